//! The names of all metrics.
//! Owns: each name with its kind and help. Not here: the samples (`md`, `array`, `members`, `process`).
//! Invariant: `node_md_*` are node_exporter's names and meanings, so that its dashboards and alert rules work; our own
//! begin with `uraid_`, have base units, and no label has a path or a text of an error.
//! Spec: docs/operating/metrics.md, which lists them all.

use super::family::{Kind, Name};

/// Names, in the order of the page of docs; the constant of each.
macro_rules! names {
    ($($constant:ident: $kind:ident $name:literal $help:literal;)*) => {
        $(pub(crate) const $constant: Name = Name { name: $name, kind: Kind::$kind, help: $help };)*
        /// All of them.
        #[cfg(test)]
        pub(crate) const ALL: &[Name] = &[$($constant),*];
    };
}

names! {
    MD_STATE: Gauge "node_md_state" "Indicates the state of md-device.";
    MD_DISKS: Gauge "node_md_disks" "Number of active/failed/spare disks of device.";
    MD_DISKS_REQUIRED: Gauge "node_md_disks_required" "Total number of disks of device.";
    MD_BLOCKS: Gauge "node_md_blocks" "Total number of blocks on device.";
    MD_BLOCKS_SYNCED: Gauge "node_md_blocks_synced" "Number of blocks synced on device.";
    MD_RAID_DISKS: Gauge "node_md_raid_disks" "Number of raid disks on device.";
    MD_DEGRADED: Gauge "node_md_degraded" "Number of degraded disks on device.";

    BUILD_INFO: Gauge "uraid_build_info" "The version of the program that wrote this; always 1.";
    UP: Gauge "uraid_array_up" "1 if the process that serves the array has answered in time, 0 if not.";
    SCRAPE_SECONDS: Gauge "uraid_scrape_duration_seconds" "How long asking all arrays took.";

    ARRAY_INFO: Gauge "uraid_array_info" "What does not change while the array runs; always 1.";
    STATE: Gauge "uraid_array_state" "1 if the state of the array has this word.";
    SIZE: Gauge "uraid_array_size_bytes" "The size for clients.";
    SLOTS: Gauge "uraid_array_slots" "Places for members.";
    UPDATED: Gauge "uraid_array_updated_timestamp_seconds" "When a superblock was last written.";
    REDUNDANCY_LEFT: Gauge "uraid_redundancy_left" "How many more members may fail, whichever they are, without loss.";
    REDUNDANCY_FULL: Gauge "uraid_redundancy_full" "The same with all members in sync.";
    EXPOSED: Gauge "uraid_exposed_bytes" "Bytes of the array that one more failed member would cost.";
    LEFT_OUT: Gauge "uraid_members_left_out" "Given members that the array was started without.";
    RECORD_SECONDS: Gauge "uraid_last_record_seconds" "From the error of the last failed member to the superblocks.";

    PASS_ACTIVE: Gauge "uraid_pass_active" "1 while a pass of this kind moves.";
    PASS_WAITING: Gauge "uraid_pass_waiting" "1 while a pass of this kind is due and does not move.";
    PASS_DONE: Gauge "uraid_pass_progress_ratio" "How much of the pass is done, from 0 to 1.";
    PASS_REMAINING: Gauge "uraid_pass_remaining_seconds" "When the pass ends at its present speed.";
    PASS_SPEED: Gauge "uraid_pass_speed_bytes_per_second" "How fast the pass moves over each member.";
    MAINTENANCE: Gauge "uraid_maintenance_until_timestamp_seconds" "Until when no spare starts, while that is announced.";
    PASSES_PAUSED: Gauge "uraid_passes_paused" "1 while passes are paused by command.";

    CHECK_FINISHED: Gauge "uraid_check_last_finished_timestamp_seconds" "When the last whole check or repair ended.";
    CHECK_SECONDS: Gauge "uraid_check_last_duration_seconds" "How long it ran, without pauses between its parts.";
    CHECK_COMPLETE: Gauge "uraid_check_last_complete" "1 if the last check or repair came to its end.";
    CHECK_MISMATCHED: Gauge "uraid_check_last_mismatched_bytes" "Bytes of a member at which copies or parity differ.";
    CHECK_CORRECTED: Gauge "uraid_check_last_corrected_bytes" "Bytes that the last repair has written over them.";
    CHECK_HEALED: Gauge "uraid_check_last_healed_bytes" "Bytes that a member could not read, written again.";
    CHECK_UNREADABLE: Gauge "uraid_check_last_unreadable_bytes" "Bytes that no member could give.";

    BITMAP_DIRTY: Gauge "uraid_bitmap_dirty_bytes" "What a resync after a crash would go over, by the bitmap.";
    BITMAP_CHUNK: Gauge "uraid_bitmap_chunk_bytes" "What a bit of the bitmap stands for.";

    REQUESTS: Counter "uraid_requests" "Requests that the array has served.";
    DURATIONS: Histogram "uraid_request_duration_seconds" "How long requests to the array took.";
    ROWS_WRITTEN: Counter "uraid_rows_written" "Rows, or parts of rows, that were written, by how.";
    ROWS_RECOVERED: Counter "uraid_rows_recovered" "Parts of rows that were read by computing what a member held.";
    WRITES_ABSORBED: Counter "uraid_writes_absorbed" "Writes that another write of the same row has carried along.";
    READS_RETRIED: Counter "uraid_reads_retried" "Reads that failed on a member and were served by others.";
    READ_ERRORS: Counter "uraid_read_errors" "Reads of members that failed on the medium.";

    MEMBER_STATE: Gauge "uraid_member_state" "1 if the member is in this state.";
    MEMBER_SLOT: Gauge "uraid_member_slot" "The slot that the member has.";
    MEMBER_REQUESTS: Counter "uraid_member_requests" "Requests to the member that have ended, also with an error.";
    MEMBER_BYTES: Counter "uraid_member_bytes" "Bytes of the requests that succeeded.";
    MEMBER_ERRORS: Counter "uraid_member_errors" "Requests to the member that failed, by their kind.";
    MEMBER_ELSEWHERE: Counter "uraid_member_read_elsewhere_bytes" "Bytes of failed reads that other members supplied.";
    MEMBER_BAD_BLOCKS: Gauge "uraid_member_bad_blocks_bytes" "Bytes that the member lacks, by its bad-block list.";
    MEMBER_SLOWEST: Gauge "uraid_member_slowest_request_seconds" "The longest time that a request to the member took.";
    MEMBER_UNANSWERED: Gauge "uraid_member_unanswered_seconds" "The age of the oldest request that the member has.";
    MEMBER_KEPT: Gauge "uraid_member_kept" "1 if the member has too many read errors and the array cannot serve without it.";

    SERVER_READY: Gauge "uraid_server_ready" "1 if the process takes requests for the array.";
    SERVER_SHARDS: Gauge "uraid_server_shards" "Threads that serve.";
    CONNECTIONS: Gauge "uraid_frontend_connections" "Connections of NBD clients to the process now.";
    CONNECTIONS_ALL: Counter "uraid_frontend_accepted_connections" "Connections of NBD clients that were accepted.";
    CLIENT_REQUESTS: Counter "uraid_frontend_requests" "Requests of NBD clients that were answered.";
    CLIENT_BYTES: Counter "uraid_frontend_bytes" "Bytes of these reads and writes.";
    CLIENT_ERRORS: Counter "uraid_frontend_errors" "Requests of NBD clients that were refused or failed.";
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    fn read(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The words of a text that are names of metrics.
    fn named(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_name = |word: &&str| word.starts_with("uraid_") || word.starts_with("node_md_");
        words.filter(is_name).map(str::to_owned).collect()
    }

    fn stored() -> BTreeSet<String> {
        ALL.iter().flat_map(super::Name::stored).collect()
    }

    #[test]
    fn dashboard_and_alert_rules_ask_only_for_what_is_there() {
        for path in ["contrib/grafana/uraid.json", "contrib/prometheus/rules.yml", "contrib/prometheus/rules-test.yml"]
        {
            let (found, known) = (named(&read(path)), stored());
            assert!(found.len() > 10 && found.is_subset(&known), "{path}: {:?}", found.difference(&known));
        }
        let dashboard: serde_json::Value = serde_json::from_str(&read("contrib/grafana/uraid.json")).expect("JSON");
        assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10), "{dashboard}");
    }

    #[test]
    fn the_page_of_docs_has_every_name_and_no_other() {
        let found = named(&read("docs/operating/metrics.md"));
        assert_eq!(found, stored());
    }
}
