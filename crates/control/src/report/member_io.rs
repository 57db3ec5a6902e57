//! The requests to each member of a running array, and their results.
//! Owns: [`MemberIo`], its JSON, its table in `uraid detail`. Not here: the counting (`uraid_engine`), the sum over
//! threads (`overseer`). Invariant: text and JSON say the same.

use super::Member;
use crate::words::dates;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Duration;
use uraid_block::Sectors;
use uraid_block::sizes;

/// A request is reported only after it was in flight for this long: disks sometimes take a second.
pub const UNANSWERED_MIN: Duration = Duration::from_secs(2);

/// The requests to one member since the array was started, by all threads.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct MemberIo {
    /// Reads.
    pub reads: MemberRequests,
    /// Writes of data, parity and superblocks.
    pub writes: MemberRequests,
    /// Cache flushes.
    pub flushes: MemberRequests,
    /// Discards.
    pub discards: MemberRequests,
    /// Zeroes without data, as a hole or written. What a file system on a loop device discards arrives so.
    #[serde(default)]
    pub zeroes: MemberRequests,
    /// Sectors of its failed reads for which the other members supplied the data. md would have rewritten them.
    pub read_elsewhere_sectors: u64,
    /// The sectors that the member lacks, by its bad-block list: each range as its first sector, from the start of the
    /// device, and its length.
    #[serde(default)]
    pub bad_blocks: Vec<(u64, u64)>,
    /// None before the first request has ended.
    pub slowest: Option<SlowestRequest>,
    /// How long the member has had its oldest request in flight, in milliseconds, to within a second; 0 if there is
    /// none.
    #[serde(default)]
    pub unanswered_ms: u64,
    /// Whether the member had more read errors than `serve --max-read-errors` allows, and stays because the array
    /// cannot serve without it.
    pub is_needed: bool,
}

/// Requests of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct MemberRequests {
    /// All requests that ended, including failed ones.
    pub count: u64,
    /// Bytes of the requests that succeeded.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// The request that took longest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SlowestRequest {
    /// `read`, `write`, `flush`, `discard`, `write-zeroes`.
    pub kind: String,
    /// How long it took, in microseconds.
    pub us: u64,
    /// When it ended, in seconds since 1970.
    pub ended: u64,
}

impl MemberIo {
    /// `3 read, 1 write`; `-` for none.
    fn errors(&self) -> String {
        let kinds = [
            (self.reads, "read"),
            (self.writes, "write"),
            (self.flushes, "flush"),
            (self.discards, "discard"),
            (self.zeroes, "write-zeroes"),
        ];
        let some = kinds.iter().filter(|(requests, _)| requests.errors > 0);
        let words: Vec<String> = some.map(|(requests, kind)| format!("{} {kind}", requests.errors)).collect();
        if words.is_empty() { "-".to_owned() } else { words.join(", ") }
    }

    /// Whether the member has kept a request for a long time.
    pub fn is_silent(&self) -> bool {
        Duration::from_millis(self.unanswered_ms) >= UNANSWERED_MIN
    }

    fn slowest(&self) -> String {
        let Some(slowest) = &self.slowest else { return "-".to_owned() };
        let (millis, when) = (slowest.us as f64 / 1e3, dates::stamp(slowest.ended));
        format!("{} {millis:.1} ms, {when}", slowest.kind)
    }
}

/// A table of members that have counts.
pub(super) fn write_table(members: &[Member], out: &mut String) {
    let counted: Vec<(&Member, &MemberIo)> = members.iter().filter_map(|m| Some((m, m.io.as_ref()?))).collect();
    if counted.is_empty() {
        return;
    }
    let text = "a string takes all";
    let requests = |requests: &MemberRequests| {
        format!("{} ({})", requests.count, sizes::binary(Sectors::from_bytes_floor(requests.bytes)))
    };
    writeln!(
        out,
        "\n    {:>6}   {:<22} {:<22} {:>7} {:>8}   {:<22} {:<16} {:>9}   Slowest",
        "Number", "Reads", "Writes", "Flushes", "Discards", "Zeroes", "Errors", "Elsewhere"
    )
    .expect(text);
    for (member, io) in &counted {
        let number = member.number.map_or("-".to_owned(), |number| number.to_string());
        let (reads, writes, zeroes) = (requests(&io.reads), requests(&io.writes), requests(&io.zeroes));
        let (flushes, discards, errors) = (io.flushes.count, io.discards.count, io.errors());
        let (elsewhere, slowest) = (io.read_elsewhere_sectors, io.slowest());
        writeln!(
            out,
            "    {number:>6}   {reads:<22} {writes:<22} {flushes:>7} {discards:>8}   {zeroes:<22} {errors:<16} {elsewhere:>9}   {slowest}"
        )
        .expect(text);
    }
    if counted.iter().any(|(_, io)| io.read_elsewhere_sectors > 0) {
        out.push_str("    Elsewhere: sectors that the member failed to read and others supplied\n");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;
    use super::*;

    #[test]
    fn the_table_says_what_each_member_did_and_is_not_there_without_counts() {
        let mut report = degraded();
        assert!(!report.verbose_text().contains("Slowest"));
        let io = MemberIo {
            reads: MemberRequests { count: 21, bytes: 1 << 20, errors: 3 },
            writes: MemberRequests { count: 2, bytes: 8192, errors: 1 },
            read_elsewhere_sectors: 24,
            slowest: Some(SlowestRequest { kind: "read".to_owned(), us: 12_345, ended: 1_700_000_000 }),
            unanswered_ms: 12_900,
            bad_blocks: vec![(4096, 8), (5000, 1)],
            is_needed: true,
            ..MemberIo::default()
        };
        report.members[0].io = Some(io);
        report.members[2].io = Some(MemberIo::default());
        let text = report.verbose_text();
        assert!(text.contains("         0   21 (1.00 MiB)"), "{text}");
        assert!(text.contains("   3 read, 1 write         24   read 12.3 ms, "), "{text}");
        assert!(text.contains("failed to read and others supplied\n"), "{text}");
        assert!(text.contains("Silent Device : a.img: it has not answered a request for 12 s\n"), "{text}");
        assert!(
            text.contains("Bad Blocks : a.img: it lacks 9 sectors, the first at its sector 4096: its bad-block list\n"),
            "{text}"
        );
        assert!(text.contains("Kept Device : a.img: it has more read errors than --max-read-errors allows"), "{text}");
        assert!(text.contains("         2   0 (0"), "{text}");
        let json = report.json();
        assert_eq!(json["members"][0]["io"]["reads"]["errors"], 3);
        assert_eq!(json["members"][0]["io"]["read_elsewhere_sectors"], 24);
    }
}
