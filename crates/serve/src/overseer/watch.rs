//! Reports on stderr what happens to a running array.
//! Owns: the difference between two states, the words for it. Not here: when it is logged (`overseer`), reactions (the
//! `engine` has already reacted by then).

use crate::lines::frozen;
use crate::lines::lost::lost_line;
use crate::lines::member_errors::{error_text, failure_text};
use uraid_block::{Range, Slot};
use uraid_control::history::Event;
use uraid_engine::verdict::Operation;
use uraid_engine::view::Gate;
use uraid_engine::{BadBlockList, ErrorCount, MemberErrors, MemberState, RequestKind, Status};

/// One line.
pub(crate) struct News {
    pub(crate) event: Event,
    pub(crate) line: String,
    /// The member that it is about.
    pub(crate) member: Option<usize>,
}

fn of_array(event: Event, line: String) -> News {
    News { event, line, member: None }
}

/// What is new in `now`. `returned`: whether a member was in the array before it was added.
pub(crate) fn changes<'a>(
    before: &Status,
    now: &Status,
    name: impl Fn(usize) -> &'a str,
    returned: impl Fn(usize) -> bool,
) -> Vec<News> {
    let mut lines: Vec<News> = Vec::new();
    // A member's error is reported before its consequences.
    for (index, (old, new)) in before.errors.iter().zip(&now.errors).enumerate() {
        let about = |line| format!("member {}: {line}", name(index));
        let errors = errors(old, new).map(about);
        lines.extend(errors.map(|line| News { event: Event::MemberErrors, line, member: Some(index) }));
    }
    for (index, new) in now.bad_blocks.iter().enumerate() {
        let none = BadBlockList::default();
        let old = before.bad_blocks.get(index).unwrap_or(&none);
        let event = if new.sectors() > old.sectors() { Event::BadBlocks } else { Event::BadBlocksMended };
        let line = list_line(old, new).map(|line| format!("member {}: {line}", name(index)));
        lines.extend(line.map(|line| News { event, line, member: Some(index) }));
    }
    for (index, new) in now.members.iter().enumerate() {
        // One that was added since.
        let old = before.members.get(index).unwrap_or(&MemberState::Removed);
        let line = match (old, new.slot()) {
            (MemberState::Removed, Some(slot)) if returned(index) => {
                Some(returned_line(name(index), slot, &now.picture()))
            }
            _ => member_line(old, new, name(index), &now.picture()),
        };
        lines.extend(line.map(|line| News { event: member_event(old, new), line, member: Some(index) }));
    }
    if now.without_source > before.without_source {
        lines.push(of_array(Event::SectorsLost, lost_line(now.without_source, "")));
    }
    match (before.gate, now.gate, frozen::reason(now, &name)) {
        (Gate::Open | Gate::NoNewWrites | Gate::ReadOnly, Gate::Frozen(kind), Some(reason)) => {
            let advice = frozen::advice(kind, now.level.is_redundant());
            let line = format!("takes no more writes: {reason}; reads are served as far as possible; {advice}");
            lines.push(of_array(Event::Frozen, line));
        }
        // No line during a start or a stop: the error at its end says what to do.
        (Gate::Closed, Gate::Frozen(_), Some(reason)) => {
            lines.push(of_array(Event::Frozen, format!("is frozen: {reason}")));
        }
        _ => {}
    }
    match (before.gate, now.gate) {
        (Gate::Open | Gate::NoNewWrites, Gate::ReadOnly) => {
            lines.push(of_array(Event::ReadOnly, "is read-only by command".to_owned()));
        }
        (Gate::Frozen(_) | Gate::ReadOnly, Gate::Open) => {
            lines.push(of_array(Event::Writable, format!("takes writes again {}", now.picture())));
        }
        _ => {}
    }
    lines
}

/// A line for a member that has failed, takes a slot, or is recovered.
fn member_line(old: &MemberState, new: &MemberState, member: &str, picture: &str) -> Option<String> {
    match (old, new) {
        (MemberState::Removed, MemberState::Removed) => None,
        (_, MemberState::Removed) => Some(format!("member {member} is removed {picture}")),
        (MemberState::Faulty { .. }, _) => None,
        (_, MemberState::Faulty { operation: Operation::Replaced, slot, .. }) => {
            let place = slot.map_or("spare".to_owned(), |slot| slot.to_string());
            Some(format!("member {member} ({place}) was replaced, and may be removed {picture}"))
        }
        (_, MemberState::Faulty { operation, error, slot, .. }) => {
            let place = slot.map_or("spare".to_owned(), |slot| slot.to_string());
            let what = failure_text(*operation, *error);
            Some(format!("member {member} ({place}) is faulty: {what}; the array goes on {picture}"))
        }
        (MemberState::Spare, MemberState::Replacing { slot, .. }) => {
            Some(format!("the spare {member} is to replace the member in {slot}, which is copied to it {picture}"))
        }
        (MemberState::Replacing { .. }, MemberState::Active(slot)) => {
            Some(format!("member {member} holds all of {slot}, and has taken it {picture}"))
        }
        (MemberState::Replacing { .. }, MemberState::Recovering { slot, .. }) => {
            Some(format!("member {member} takes {slot} now, and is being recovered {picture}"))
        }
        (MemberState::Spare, MemberState::Recovering { slot, .. }) => {
            Some(format!("the spare {member} takes {slot}, and is being recovered {picture}"))
        }
        // A recovery can be shorter than the time between two checks.
        (MemberState::Spare, MemberState::Active(slot)) => {
            Some(format!("the spare {member} takes {slot}, and is recovered {picture}"))
        }
        (MemberState::Recovering { .. }, MemberState::Active(slot)) => {
            Some(format!("member {member} ({slot}) is recovered {picture}"))
        }
        (MemberState::Removed, MemberState::Spare) => Some(format!("member {member} is added as a spare {picture}")),
        (
            MemberState::Removed,
            MemberState::Recovering { slot, .. } | MemberState::Replacing { slot, .. } | MemberState::Active(slot),
        ) => Some(format!("member {member} is added, and takes {slot} {picture}")),
        (
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare,
            _,
        ) => None,
    }
}

/// The kind of event of a member's line.
fn member_event(old: &MemberState, new: &MemberState) -> Event {
    match (old, new) {
        (_, MemberState::Removed) => Event::MemberRemoved,
        (_, MemberState::Faulty { operation: Operation::Replaced, .. })
        | (MemberState::Replacing { .. }, MemberState::Active(_)) => Event::MemberReplaced,
        (_, MemberState::Faulty { .. }) => Event::MemberFailed,
        (_, MemberState::Spare) => Event::SpareAdded,
        (_, MemberState::Replacing { .. }) => Event::ReplaceStarted,
        (MemberState::Removed, MemberState::Recovering { .. } | MemberState::Active(_)) => Event::MemberAdded,
        (_, MemberState::Recovering { .. }) => Event::SpareTaken,
        (_, MemberState::Active(_)) => Event::MemberRecovered,
    }
}

/// A line for a member that has its slot back.
fn returned_line(member: &str, slot: Slot, picture: &str) -> String {
    format!("member {member} is re-added in {slot}: only what changed while it was away is copied to it {picture}")
}

/// A line for a bad-block list that has changed.
fn list_line(before: &BadBlockList, now: &BadBlockList) -> Option<String> {
    let fresh: Vec<Range> = now.ranges().iter().copied().filter(|range| !before.contains(*range)).collect();
    match (fresh.first(), now == before) {
        (_, true) => None,
        (Some(first), _) => Some(format!(
            "its bad-block list names {} now, {} from its sector {} among them; reads of these go to other members that have \
             them",
            now.sectors(),
            first.length,
            first.start.0
        )),
        (None, _) if now.is_empty() => Some("holds all sectors again that its bad-block list named".to_owned()),
        (None, _) => Some(format!("its bad-block list still names {}", now.sectors())),
    }
}

/// A line for the first error of each kind, and one whenever the count gains a digit. Errors between two checks make
/// one line, with the count at that time.
fn errors(before: &MemberErrors, now: &MemberErrors) -> impl Iterator<Item = String> {
    let of_kinds = RequestKind::ALL.into_iter().zip(before.of.iter().zip(&now.of));
    let lines: Vec<String> = of_kinds.filter_map(|(kind, (before, now))| error_line(kind, before, now)).collect();
    let is_needed = (now.is_needed && !before.is_needed).then(|| {
        "has more read errors than --max-read-errors allows, and stays: the array cannot serve without it".to_owned()
    });
    lines.into_iter().chain(is_needed)
}

/// `10 read errors so far, the last at sector 4096 (8 sectors): the medium failed (errno 5)`
fn error_line(kind: RequestKind, before: &ErrorCount, now: &ErrorCount) -> Option<String> {
    let (range, error) = now.last?;
    if now.count.checked_ilog10() == before.count.checked_ilog10() {
        return None;
    }
    let (name, count) = (kind.name(), now.count);
    let what = match (before.count, count) {
        (0, 1) => format!("first {name} error"),
        (0, _) => format!("first {name} errors, {count} at once, the last"),
        _ => format!("{count} {name} errors so far, the last"),
    };
    let place = if range.length.is_zero() {
        String::new()
    } else {
        format!(" at its sector {} ({})", range.start.0, range.length)
    };
    Some(format!("{what}{place}: {}", error_text(kind, error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::member_errors::ETIMEDOUT;
    use uraid_block::{ErrorKind, IoError, Sector, Sectors};

    fn count(count: u64) -> ErrorCount {
        let error = IoError { kind: ErrorKind::Media, os: 5 };
        let last = (count > 0).then_some((Range::new(Sector(4096), Sectors(8)), error));
        ErrorCount { count, last }
    }

    #[test]
    fn the_first_error_is_said_and_then_each_tenfold_count() {
        let mut before = count(0);
        let mut said = Vec::new();
        for n in 1..=1000 {
            if let Some(line) = error_line(RequestKind::Read, &before, &count(n)) {
                said.push((n, line));
            }
            before = count(n);
        }
        assert_eq!(said.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 10, 100, 1000]);
        assert_eq!(said[0].1, "first read error at its sector 4096 (8 sectors): the medium failed (errno 5)");
        assert_eq!(
            said[1].1,
            "10 read errors so far, the last at its sector 4096 (8 sectors): the medium failed (errno 5)"
        );
        let gone = IoError { kind: ErrorKind::Gone, os: ETIMEDOUT };
        let last = Some((Range::new(Sector(8), Sectors(8)), gone));
        assert_eq!(
            error_line(RequestKind::Write, &count(0), &ErrorCount { count: 1, last }).as_deref(),
            Some("first write error at its sector 8 (8 sectors): it did not answer a write in time (--member-timeout)")
        );
        // Several errors at once are one line.
        let line = error_line(RequestKind::Flush, &count(0), &count(37)).expect("news");
        assert!(line.starts_with("first flush errors, 37 at once, the last at its sector"), "{line}");
        assert_eq!(error_line(RequestKind::Flush, &count(0), &count(0)), None);
    }

    #[test]
    fn sectors_that_are_listed_and_those_that_are_held_again_are_said() {
        let list = |ranges: &[(u64, u64)]| -> BadBlockList {
            ranges.iter().map(|(start, length)| Range::new(Sector(*start), Sectors(*length))).collect()
        };
        let (none, one, two) = (list(&[]), list(&[(8, 1)]), list(&[(8, 1), (40, 8)]));
        assert_eq!(list_line(&one, &one), None);
        let said = list_line(&one, &two).expect("news");
        assert_eq!(
            said,
            "its bad-block list names 9 sectors now, 8 sectors from its sector 40 among them; reads of these go to other members \
             that have them"
        );
        assert_eq!(list_line(&two, &one).expect("news"), "its bad-block list still names 1 sector");
        assert!(list_line(&two, &none).expect("news").starts_with("holds all sectors again"));
    }

    #[test]
    fn a_spare_that_takes_a_slot_and_the_end_of_its_recovery_are_said_once() {
        let (slot, below) = (Slot(1), Sectors(8));
        let line = |old, new| member_line(&old, &new, "m3", "[U_U]");
        let (spare, recovering) = (MemberState::Spare, MemberState::Recovering { slot, below });
        let whole = MemberState::Active(slot);
        let taken = line(spare, recovering).expect("news");
        assert_eq!(taken, "the spare m3 takes slot 1, and is being recovered [U_U]");
        assert_eq!(line(recovering, MemberState::Recovering { slot, below: Sectors(16) }), None);
        assert_eq!(line(recovering, whole).expect("news"), "member m3 (slot 1) is recovered [U_U]");
        assert_eq!(line(whole, whole), None);
        assert_eq!(line(spare, whole).expect("news"), "the spare m3 takes slot 1, and is recovered [U_U]");
    }

    #[test]
    fn that_a_member_stays_in_spite_of_its_errors_is_said_once() {
        let stays = MemberErrors { is_needed: true, ..MemberErrors::default() };
        assert_eq!(errors(&MemberErrors::default(), &stays).count(), 1);
        assert_eq!(errors(&stays, &stays).count(), 0);
    }
}
