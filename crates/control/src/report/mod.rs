//! The state of an array, as text and for scripts.
//! Owns: [`Report`], its JSON, its text in `mdadm --detail`'s words. Not here: the source of the facts (`control` for a
//! running array, `detail` for its members). Invariant: text and JSON say the same.
//! Spec: docs/md/behaviour.md#mdadms-reports.

mod bitmap;
mod counts;
mod hints;
mod in_use;
mod machine;
mod mdstat;
mod member_io;
mod named;
mod pass;
mod pass_progress;
mod redundancy;
mod reshape;
mod server;
mod table;
mod template;

pub use bitmap::Bitmap;
pub use counts::{Clients, Counts, RequestTimes, Times};
pub use hints::MkfsOf;
pub use in_use::InUse;
pub use machine::Verdict;
pub use mdstat::mdstat;
pub use member_io::{MemberIo, MemberRequests, SlowestRequest, UNANSWERED_MIN};
pub use named::Fit;
pub use pass::{Pass, PassLimits};
pub use pass_progress::{PassProgress, duration};
pub use redundancy::Redundancy;
pub use reshape::{Reshape, Shape};
pub use server::{Export, Server};

use crate::protocol::{CheckRecord, CheckResult};
use crate::words::dates;
use crate::words::names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write as _;
use uraid_block::Sectors;
use uraid_block::sizes::{self, counted};
use uraid_format::MemberFlag;

/// The facts about one array. Lengths in 512-byte sectors, times in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The array's name without the host.
    pub name: String,
    /// The array's name with the host, as in the superblock.
    pub set_name: String,
    /// `md127`: its device name, while it runs.
    #[serde(default)]
    pub device: Option<String>,
    /// Four groups of eight hex digits.
    pub uuid: String,
    /// The version of the superblocks: `1.2`.
    pub metadata: String,
    /// `raid6`
    pub level: String,
    /// `left-symmetric`; `None` if the level has no layouts.
    pub layout: Option<String>,
    /// Zero where the level has no chunks.
    pub chunk_sectors: u64,
    /// The size for clients; zero if it is unknown because members are missing.
    pub array_sectors: u64,
    /// What the array uses of each member; zero if members differ.
    pub member_sectors: u64,
    /// The slots.
    pub raid_devices: u16,
    /// The state in mdadm's words, the most important last: `clean, degraded`.
    pub state: Vec<String>,
    /// Why the array is frozen, with the members that caused it: `/dev/sdb: no space left under the member (errno 28)`.
    #[serde(default)]
    pub frozen: Option<String>,
    /// When the array was made.
    pub created: u64,
    /// When a superblock was last written.
    pub updated: u64,
    /// The count of recorded changes of the array's state.
    pub events: u64,
    /// The progress of a resync that runs or is due; see [`Report::pass`].
    pub resync: Option<PassProgress>,
    /// The same of a recovery.
    #[serde(default)]
    pub recovery: Option<PassProgress>,
    /// The same of a check.
    #[serde(default)]
    pub check: Option<PassProgress>,
    /// The same of a repair.
    #[serde(default)]
    pub repair: Option<PassProgress>,
    /// How the last check or repair ended since the array was started, without its list.
    #[serde(default)]
    pub last_check: Option<CheckResult>,
    /// What is kept of its checks in the state directory; `None` if it does not run, or that is not read yet.
    #[serde(default)]
    pub checks: Option<CheckRecord>,
    /// Until when no spare starts, by `uraid maintenance`.
    #[serde(default)]
    pub maintenance_until: Option<u64>,
    /// Why its history is not written now.
    #[serde(default)]
    pub history_error: Option<String>,
    /// Passes are kept where they are, by command.
    #[serde(default)]
    pub passes_frozen: bool,
    /// How fast a pass is at least and at most; `None` if the array does not run.
    #[serde(default)]
    pub pass_limits: Option<PassLimits>,
    /// A reshape that stopped half-way; only of an array that does not run.
    #[serde(default)]
    pub reshape: Option<Reshape>,
    /// Slots in order, then spares and the failed.
    pub members: Vec<Member>,
    /// The process that serves it; `None` if it does not run.
    pub server: Option<Server>,
    /// The counts of its request paths; `None` if it does not run.
    pub counts: Option<Counts>,
    /// How long they took; `None` if it does not run.
    #[serde(default)]
    pub times: Option<RequestTimes>,
    /// The requests of clients; `None` if it does not run.
    #[serde(default)]
    pub clients: Option<Clients>,
    /// How copies and parity are made to agree after a crash, in mdadm's words: `none`, `resync`, `bitmap`, `ppl`,
    /// `journal`; `clustered bitmap` for an array that is refused because of it.
    #[serde(default)]
    pub consistency_policy: String,
    /// The write-intent bitmap of a running array that keeps one up to date.
    #[serde(default)]
    pub bitmap: Option<Bitmap>,
    /// Why it is open read-only. For an array that does not run: why it would be, if started without `--run` and
    /// `--force`.
    #[serde(default)]
    pub read_only: Option<String>,
    /// Given members that are left out; of a running array, at its start.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Of a running array: it shares its spares with the arrays of the same process that have this group.
    #[serde(default)]
    pub spare_group: Option<String>,
    /// For an array that does not run: why it would not start as given, without `--run` and `--force`.
    #[serde(default)]
    pub refusal: Option<String>,
    /// Whether both ends of the array are zeroes and no client has written since. `false` if that is not known.
    #[serde(default)]
    pub is_blank: bool,
    /// Of an array that does not run here: the members that other processes or the kernel have claimed.
    #[serde(default)]
    pub in_use: Vec<InUse>,
    /// The inputs of its layout; `None` if they are not known for all members.
    #[serde(default)]
    pub geometry: Option<Geometry>,
}

/// The inputs of a layout besides the level and the slots. Sizes in sectors.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Geometry {
    /// md's number.
    pub layout: u32,
    /// As recorded: linear rounds its members to it.
    pub chunk: u64,
    /// Used of each member; zero for linear and raid0.
    pub size: u64,
    /// Of linear and raid0: the data of each slot.
    pub member_sizes: Vec<u64>,
}

/// A given member that is left out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    /// The path as it was given; for a running array, in the form of [`Member::path`].
    pub path: String,
    /// Why.
    pub reason: String,
}

/// One member, or an empty slot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its permanent index in the array's table (md: dev_number); none for an empty slot.
    pub number: Option<u32>,
    /// Its slot; none for a spare and for a member that has lost its slot.
    pub slot: Option<u16>,
    /// `active sync`, `spare`, `spare rebuilding`, `faulty`, `removed`; `not given` or `missing` if the other
    /// superblocks list a member there; `stale` if the member missed changes and only `--force` would take it.
    pub state: String,
    /// Its path; `None` for an empty slot.
    pub path: Option<String>,
    /// For a running array, the path as it was given, made absolute; in `path`, links are resolved, too.
    #[serde(default)]
    pub written: Option<String>,
    /// For a faulty member, the error.
    pub reason: Option<String>,
    /// Where its data begins, in sectors from its start; none for an empty slot.
    #[serde(default)]
    pub data_offset: Option<u64>,
    /// mdadm's words for its flags: `writemostly`, `failfast`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// For a running array, the state of the member's path: `deleted`, `replaced`, `missing`; `None` if it still leads
    /// to the file.
    #[serde(default)]
    pub path_state: Option<String>,
    /// For a running array: the requests to the member, and their results.
    #[serde(default)]
    pub io: Option<MemberIo>,
}

impl Member {
    /// A slot without a member.
    pub fn removed(slot: u16) -> Member {
        Member {
            number: None,
            slot: Some(slot),
            state: "removed".to_owned(),
            path: None,
            written: None,
            reason: None,
            data_offset: None,
            flags: Vec::new(),
            path_state: None,
            io: None,
        }
    }

    /// Whether this text is one of the member's paths.
    pub fn is_called(&self, path: &str) -> bool {
        [&self.path, &self.written].into_iter().any(|own| own.as_deref() == Some(path))
    }

    /// Whether the member's file is gone when the array stops.
    pub fn is_deleted(&self) -> bool {
        self.path_state.as_deref() == Some("deleted")
    }

    /// What is to be said of its path.
    fn path_note(&self) -> Option<&'static str> {
        match self.path_state.as_deref() {
            Some("deleted") => Some("deleted: gone when the array stops"),
            Some("replaced") => Some("its path leads to another file"),
            Some("missing") => Some("its path leads nowhere"),
            _ => None,
        }
    }

    /// The order in a table: slots ascending, then spares, then failed members.
    pub fn order(&self) -> (u32, u32) {
        let behind = if self.state == "faulty" { 1 << 17 } else { 1 << 16 };
        (self.slot.map_or(behind, u32::from), self.number.unwrap_or(u32::MAX))
    }
}

/// mdadm's word for a member that is read only where no other has the sectors, in [`Member::flags`].
pub const WRITE_MOSTLY: &str = "writemostly";

/// mdadm's words for flags, in [`Member::flags`].
pub fn flag_words(flags: impl IntoIterator<Item = MemberFlag>) -> Vec<String> {
    let word = |flag| match flag {
        MemberFlag::WriteMostly => WRITE_MOSTLY,
        MemberFlag::FailFast => "failfast",
    };
    flags.into_iter().map(|flag| word(flag).to_owned()).collect()
}

/// mdadm's words for a member that replaces another one, in [`Member::state`].
pub const REPLACEMENT: &str = "spare rebuilding replacement";
/// The state of one that holds everything, and stays beside the other.
pub const WHOLE_REPLACEMENT: &str = "active sync replacement";

/// The last word of the state of an array that does not run.
pub const NOT_STARTED: &str = "Not Started";

impl Report {
    /// Records which members others have claimed: the array may be running where this process cannot ask.
    pub fn set_in_use(&mut self, in_use: Vec<InUse>) {
        if !in_use.is_empty() {
            self.state.iter_mut().filter(|word| *word == NOT_STARTED).for_each(|word| *word = "In Use".to_owned());
        }
        self.in_use = in_use;
    }

    /// `[UU_U]` and `[4/3]` as /proc/mdstat shows them.
    pub fn picture(&self) -> String {
        let slots = self.slots();
        let in_sync = slots.chars().filter(|&letter| letter == 'U').count();
        format!("[{}/{in_sync}] [{slots}]", self.raid_devices)
    }

    /// One letter per slot: `U` in sync, `_` not.
    pub fn slots(&self) -> String {
        let is_in_sync = |slot| self.members.iter().any(|m| m.slot == Some(slot) && m.state == "active sync");
        (0..self.raid_devices).map(|slot| if is_in_sync(slot) { 'U' } else { '_' }).collect()
    }

    /// The state in one line: `active, frozen (/dev/sdb: no space left under the member (errno 28))`.
    pub fn state_text(&self) -> String {
        let word = |word: &String| match &self.frozen {
            Some(reason) if word == "frozen" => format!("{word} ({reason})"),
            Some(_) | None => word.clone(),
        };
        self.state.iter().map(word).collect::<Vec<String>>().join(", ")
    }

    /// The text of `uraid detail`: `mdadm --detail`'s, and between its lines and its table more of the same form.
    pub fn text(&self) -> String {
        let mut out = format!("{}:\n", self.dev_path());
        self.head(&mut out);
        self.counts(&mut out);
        out.push('\n');
        self.identity(&mut out);
        if self.counts.is_some() {
            out.push('\n');
            self.work(&mut out);
        }
        self.notes(&mut out);
        out.push('\n');
        self.table(&mut out);
        names::printable_lines(&out)
    }

    /// The text of `uraid detail --verbose`: behind the table the requests of each member, and lines to copy.
    pub fn verbose_text(&self) -> String {
        let mut out = self.text();
        member_io::write_table(&self.members, &mut out);
        self.write_hints(&mut out);
        names::printable_lines(&out)
    }

    /// The state in mdadm's words, and only in these: `clean, degraded, recovering`, `active, resyncing (PENDING)`.
    fn mdadm_state(&self) -> String {
        let has = |word: &str| self.state.iter().any(|found| found == word);
        let first = match () {
            () if has("frozen") => "broken",
            () if has("read-only") => "readonly",
            () if has("starting") || has("stopping") || has("stopped") => "inactive",
            () => self.state.first().map_or("clean", String::as_str),
        };
        let mut words = vec![first];
        words.extend(["degraded", "FAILED"].into_iter().filter(|word| has(word)));
        // md calls a repair a resync.
        let moves = [("resyncing", "resyncing"), ("recovering", "recovering"), ("reshaping", "reshaping")];
        let moves = moves.into_iter().chain([("checking", "checking"), ("repairing", "resyncing")]);
        words.extend(moves.filter(|(word, _)| has(word)).map(|(_, word)| word));
        if has(NOT_STARTED) || has("In Use") {
            words.push(NOT_STARTED);
        }
        // Of a recovery or check that waits the kernel says nothing.
        let waits = has("resyncing") && self.pass().is_some_and(|pass| pass.is_pending && pass.word == "resync");
        words.join(", ") + if waits { " (PENDING)" } else { "" }
    }

    /// The report with what `detail` adds to it: `hints` has the lines to copy.
    pub fn json(&self) -> Value {
        let mut report = json!(self);
        report["hints"] = json!(self.hints());
        report
    }

    fn head(&self, out: &mut String) {
        field(out, "Version", &self.metadata);
        field(out, "Creation Time", &dates::utc(self.created));
        field(out, "Raid Level", &self.level);
        if self.array_sectors > 0 {
            field(out, "Array Size", &kib(self.array_sectors));
        }
        if self.member_sectors > 0 {
            field(out, "Used Dev Size", &kib(self.member_sectors));
        }
        field(out, "Raid Devices", &self.raid_devices.to_string());
        field(out, "Total Devices", &self.members.iter().filter(|m| m.path.is_some()).count().to_string());
        field(out, "Persistence", "Superblock is persistent");
        out.push('\n');
        if self.consistency_policy == "bitmap" {
            field(out, "Intent Bitmap", "Internal");
            if let Some(writes) = self.bitmap.map(|bitmap| bitmap.write_behind).filter(|writes| *writes > 0) {
                field(out, "Write Mode", &format!("Allow write behind, max {writes}"));
            }
            out.push('\n');
        }
        field(out, "Update Time", &dates::utc(self.updated));
    }

    fn counts(&self, out: &mut String) {
        let count = |states: &[&str]| {
            let members = self.members.iter().filter(|m| m.path.is_some() && states.contains(&m.state.as_str()));
            members.count().to_string()
        };
        // mdadm's line ends with a blank.
        field(out, "State", &format!("{} ", self.mdadm_state()));
        field(out, "Active Devices", &count(&["active sync"]));
        field(out, "Working Devices", &count(&["active sync", "spare", "spare rebuilding"]));
        field(out, "Failed Devices", &count(&["faulty"]));
        field(out, "Spare Devices", &count(&["spare", "spare rebuilding"]));
        if let Some(group) = &self.spare_group {
            field(out, "Spare Group", group);
        }
        out.push('\n');
        if let Some(layout) = &self.layout {
            field(out, "Layout", layout);
        }
        if self.chunk_sectors > 0 {
            field(out, "Chunk Size", &sizes::chunk(Sectors(self.chunk_sectors)));
        }
        out.push('\n');
        field(out, "Consistency Policy", &self.consistency_policy);
        field(out, "Slots", &self.picture());
        if self.state.iter().any(|word| word == "frozen") {
            field(out, "Frozen", self.frozen.as_deref().unwrap_or("it takes no more writes"));
        }
        if let Some(reason) = &self.read_only {
            field(out, "Read-Only", reason);
        }
        if !self.in_use.is_empty() {
            let by = in_use::text(&self.in_use);
            field(out, "In Use", &format!("{by}; this report is from the superblocks, which may be behind"));
        }
        if let Some(pass) = self.pass() {
            pass.write(out);
        }
        pass::write_last(self, out);
        if let Some(reshape) = &self.reshape {
            reshape.write(out, self.array_sectors);
        }
    }

    fn identity(&self, out: &mut String) {
        field(out, "Name", &names::with_locality(&self.set_name));
        field(out, "UUID", &self.uuid);
        field(out, "Events", &self.events.to_string());
        if let Some(server) = &self.server {
            server.write(out);
        }
    }

    fn work(&self, out: &mut String) {
        let Some(counts) = &self.counts else { return };
        self.write_clients(out);
        let (reads, writes) = (counted(counts.reads, "read", "reads"), counted(counts.writes, "write", "writes"));
        field(out, "Requests", &format!("{reads}, {writes}"));
        let rows = counts.rows_full + counts.rows_modified + counts.rows_reconstructed;
        if rows > 0 {
            let (full, modified, rest) = (counts.rows_full, counts.rows_modified, counts.rows_reconstructed);
            field(
                out,
                "Rows Written",
                &format!("{full} whole, {modified} read-modify-write, {rest} reconstruct-write"),
            );
        }
        if counts.rows_recovered > 0 {
            field(out, "Rows Recovered", &format!("{} read by computing lost data", counts.rows_recovered));
        }
        if counts.reads_retried + counts.read_errors > 0 {
            let served = match counts.reads_retried {
                0 => String::new(),
                reads => format!("; {} served by other members", counted(reads, "read was", "reads were")),
            };
            field(out, "Read Errors", &format!("{}{served}", counts.read_errors));
        }
    }

    fn write_clients(&self, out: &mut String) {
        let Some(clients) = &self.clients else { return };
        let of_all = if clients.exports > 1 { " of all arrays of the process" } else { "" };
        let (now, all) = (clients.connected, clients.connections);
        field(out, "NBD Connections", &format!("{now} now, {all} in all{of_all}"));
        let size = |bytes: u64| sizes::binary(Sectors(bytes / 512));
        let mut parts = vec![
            format!("{} ({})", counted(clients.reads, "read", "reads"), size(clients.read_bytes)),
            format!("{} ({})", counted(clients.writes, "write", "writes"), size(clients.written_bytes)),
        ];
        for (count, one, several) in [
            (clients.flushes, "flush", "flushes"),
            (clients.trims, "trim", "trims"),
            (clients.write_zeroes, "write-zeroes", "write-zeroes"),
            (clients.caches, "cache", "cache"),
            (clients.block_statuses, "block status", "block status"),
            (clients.refused, "refused", "refused"),
            (clients.failed, "failed", "failed"),
        ] {
            if count > 0 {
                parts.push(counted(count, one, several));
            }
        }
        field(out, "NBD Requests", &parts.join(", "));
    }
}

/// `     Array Size : 10240 (10.00 MiB 10.49 MB)`: names end at one column.
fn field(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{name:>18} : {}", names::one_line(value)).expect("a string takes all");
}

fn kib(sectors: u64) -> String {
    format!("{}{}", sectors / 2, sizes::human(u128::from(sectors) * 512))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A raid5 of three members, one of them gone.
    pub(crate) fn degraded() -> Report {
        Report {
            name: "home".to_owned(),
            set_name: "box:home".to_owned(),
            device: None,
            uuid: "10111213:14151617:18191a1b:1c1d1e1f".to_owned(),
            metadata: "1.2".to_owned(),
            level: "raid5".to_owned(),
            layout: Some("left-symmetric".to_owned()),
            chunk_sectors: 1024,
            array_sectors: 40_960,
            member_sectors: 20_480,
            raid_devices: 3,
            state: vec!["active".to_owned(), "degraded".to_owned()],
            frozen: None,
            created: 1_700_000_000,
            updated: 1_700_000_100,
            events: 42,
            resync: None,
            recovery: None,
            check: None,
            repair: None,
            last_check: None,
            checks: None,
            maintenance_until: None,
            history_error: None,
            passes_frozen: false,
            pass_limits: None,
            reshape: None,
            members: vec![
                member(Some(0), Some(0), "active sync", Some("a.img")),
                member(None, Some(1), "removed", None),
                member(Some(2), Some(2), "active sync", Some("c.img")),
                member(Some(1), None, "faulty", Some("b.img")),
            ],
            server: None,
            counts: None,
            times: None,
            clients: None,
            consistency_policy: "resync".to_owned(),
            bitmap: None,
            left_out: Vec::new(),
            spare_group: None,
            refusal: None,
            read_only: None,
            is_blank: true,
            in_use: Vec::new(),
            geometry: None,
        }
    }

    #[test]
    fn what_froze_an_array_is_said_and_reads_that_nobody_served_are_not() {
        let mut report = degraded();
        report.state = ["active", "frozen"].map(str::to_owned).into();
        report.frozen = Some("c.img: no space left under the member (errno 28)".to_owned());
        let read_errors = |reads_retried| Some(Counts { read_errors: 240, reads_retried, ..Counts::default() });
        report.counts = read_errors(0);
        let text = report.text();
        assert!(text.contains("State : broken \n"), "{text}");
        assert!(text.contains("            Frozen : c.img: no space left under the member (errno 28)\n"), "{text}");
        assert!(text.contains("       Read Errors : 240\n"), "{text}");
        report.counts = read_errors(7);
        assert!(report.text().contains("       Read Errors : 240; 7 reads were served by other members\n"));
    }

    fn member(number: Option<u32>, slot: Option<u16>, state: &str, path: Option<&str>) -> Member {
        let (state, path) = (state.to_owned(), path.map(str::to_owned));
        Member { number, slot, state, path, ..Member::removed(0) }
    }

    #[test]
    fn a_degraded_array_shows_who_is_gone() {
        let report = degraded();
        let text = report.text();
        assert!(
            text.starts_with("/dev/md/home:\n           Version : 1.2\n     Creation Time : Tue Nov 14 22:13:20 2023")
        );
        assert!(text.contains("        Array Size : 20480 (20.00 MiB 20.97 MB)\n"), "{text}");
        assert!(text.contains("             State : active, degraded \n"), "{text}");
        assert!(text.contains("    Failed Devices : 1\n"), "{text}");
        let table = "\n\n    Number   Major   Minor   RaidDevice State\n       0       0        0        0      active sync   a.img\n       \
                     -       0        0        1      removed\n       2       0        0        2      active sync   c.img\n\n       \
                     1       0        0        -      faulty   b.img\n";
        assert!(text.ends_with(table), "{text}");
        let text = report.verbose_text();
        assert!(text.contains("    mkfs.xfs -d su=512k,sw=2 DEVICE\n"), "{text}");
        assert!(text.contains("    mkfs.ext4 -b 4096 -E stride=128,stripe_width=256 DEVICE\n"), "{text}");
        assert!(text.ends_with("    ARRAY <ignore> UUID=10111213:14151617:18191a1b:1c1d1e1f\n"), "{text}");
        let json = serde_json::to_string(&report).expect("plain data");
        assert_eq!(serde_json::from_str::<Report>(&json).expect("what was written"), report);
    }
}
