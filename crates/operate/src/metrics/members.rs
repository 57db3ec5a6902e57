//! The metrics of an array's members.
//! Owns: these samples. Not here: the array's own (`array`).
//! Invariant: the label is the member's number in the superblocks' table, which it keeps when it fails or changes its slot;
//! never its path.

use super::array::Of;
use super::family::Families;
use super::names;
use uraid_control::report::{Member, MemberIo, MemberRequests, REPLACEMENT, Report, WHOLE_REPLACEMENT};

/// The words of `uraid_member_state`.
const STATES: [&str; 5] = ["active", "rebuilding", "replacement", "spare", "faulty"];

/// Adds those of one array's members.
pub(super) fn add(families: &mut Families, of: &Of, report: &Report) {
    for member in &report.members {
        let Some(number) = member.number.filter(|_| member.path.is_some()) else { continue };
        let number = number.to_string();
        let with = |name: &'static str, value: &str| {
            let mut labels = of.with("member", number.clone());
            labels.push((name, value.to_owned()));
            labels
        };
        let now = state(member);
        for state in STATES {
            families.whole(names::MEMBER_STATE, with("state", state), u64::from(now == state));
        }
        if let Some(slot) = member.slot {
            families.whole(names::MEMBER_SLOT, of.with("member", number.clone()), slot.into());
        }
        let Some(io) = &member.io else { continue };
        for (op, requests) in kinds(io) {
            families.whole(names::MEMBER_REQUESTS, with("op", op), requests.count);
            families.whole(names::MEMBER_BYTES, with("op", op), requests.bytes);
            families.whole(names::MEMBER_ERRORS, with("kind", op), requests.errors);
        }
        let labels = || of.with("member", number.clone());
        let bad: u64 = io.bad_blocks.iter().map(|(_, length)| length).sum();
        families.whole(names::MEMBER_ELSEWHERE, labels(), io.read_elsewhere_sectors * 512);
        families.whole(names::MEMBER_BAD_BLOCKS, labels(), bad * 512);
        families.real(names::MEMBER_UNANSWERED, labels(), io.unanswered_ms as f64 / 1e3);
        families.whole(names::MEMBER_KEPT, labels(), io.is_needed.into());
        if let Some(slowest) = &io.slowest {
            families.real(names::MEMBER_SLOWEST, labels(), slowest.us as f64 / 1e6);
        }
    }
}

fn kinds(io: &MemberIo) -> [(&'static str, MemberRequests); 5] {
    [
        ("read", io.reads),
        ("write", io.writes),
        ("flush", io.flushes),
        ("discard", io.discards),
        ("write-zeroes", io.zeroes),
    ]
}

fn state(member: &Member) -> &'static str {
    match member.state.as_str() {
        "active sync" => "active",
        "spare rebuilding" => "rebuilding",
        REPLACEMENT | WHOLE_REPLACEMENT => "replacement",
        "spare" => "spare",
        "faulty" => "faulty",
        // A word of a newer server.
        _ => "",
    }
}
