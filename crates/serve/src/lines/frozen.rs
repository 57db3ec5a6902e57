//! Why an array takes no more writes, with the members' names.
//! Owns: which members' errors made an array freeze, if its status shows that. Not here: when it freezes (`engine`).
//! Invariant: only members that the array still uses are named. On a level with redundancy, a member that failed a
//! write or a flush and is still used is one that the array needs. Without redundancy, only a failed flush freezes the
//! array.

use crate::lines::member_errors;
use uraid_block::ErrorKind;
use uraid_engine::view::Gate;
use uraid_engine::{MemberErrors, MemberState, RequestKind, StartError, Status, StopError};

/// `m2: no space left under the member (errno 28)`; `None` if it is not frozen. `name` gives the name of a member of the
/// plan.
pub(crate) fn reason<'a>(status: &Status, name: impl Fn(usize) -> &'a str) -> Option<String> {
    let Gate::Frozen(kind) = status.gate else { return None };
    Some(blamed(status, kind, name).unwrap_or_else(|| kind.to_string()))
}

/// Why a stop was not clean, if members are the reason. `before`, `after`: the status before and after it; the gate is
/// closed for good by then.
pub(crate) fn stop_reason<'a>(
    before: &Status,
    after: &Status,
    error: &StopError,
    name: impl Fn(usize) -> &'a str,
) -> Option<String> {
    match error {
        StopError::Frozen(_) | StopError::FrozenPlain(_) => reason(before, name),
        StopError::NotClean(source) | StopError::Flush(source) => blamed(after, source.kind, name),
    }
}

fn blamed<'a>(status: &Status, kind: ErrorKind, name: impl Fn(usize) -> &'a str) -> Option<String> {
    let members: Vec<String> = members(status, kind).map(|(index, text)| format!("{}: {text}", name(index))).collect();
    (!members.is_empty()).then(|| members.join(", "))
}

/// What to do about an array that froze over an error of this kind.
pub(crate) fn advice(kind: ErrorKind, is_redundant: bool) -> &'static str {
    if kind != ErrorKind::NoSpace {
        "check its members, stop it and serve it again"
    } else if is_redundant {
        "fail all full members with one `uraid fail`, if the array can do without them; or make room, stop the array \
         and serve it again"
    } else {
        "make room, stop it and serve it again"
    }
}

/// The message of a failed start, between the array's name and the engine's reason.
pub(crate) fn start_text<'a>(status: &Status, error: &StartError, name: impl Fn(usize) -> &'a str) -> String {
    let kind = match error {
        StartError::Record(error) | StartError::Frozen(error) => error.kind,
        StartError::Stopping | StartError::ReadOnlyLog => return String::new(),
    };
    let members: Vec<&str> = members(status, kind).map(|(index, _)| name(index)).collect();
    let has_no_room = kind == ErrorKind::NoSpace;
    match (members.join(", "), has_no_room) {
        (members, false) if members.is_empty() => String::new(),
        (members, false) => format!(" because of {members}"),
        (members, true) => {
            let place = if members.is_empty() { "under a member".to_owned() } else { format!("under {members}") };
            format!(" for lack of room {place}: make room there and start it again, or serve it with --read-only")
        }
    }
}

/// The message about a stop that was not clean. `reason`: see [`stop_reason`].
pub(crate) fn stop_text(error: &StopError, reason: Option<String>, is_degraded: bool) -> String {
    let over = reason.map_or(String::new(), |reason| format!(" ({reason})"));
    match error {
        StopError::Frozen(_) if is_degraded => format!(
            "it was frozen{over} and stays marked dirty, without all its members: the next start makes it consistent with \
             the missing ones, else it needs --force, and what was being written may be wrong then"
        ),
        StopError::Frozen(_) => {
            format!("it was frozen{over} and stays marked dirty; the next start makes it consistent")
        }
        StopError::FrozenPlain(_) => {
            format!("it was frozen{over}; what was written since its last good flush may be lost")
        }
        StopError::NotClean(source) => {
            let over = if over.is_empty() { format!(" ({source})") } else { over };
            format!("it could not be marked clean{over} and stays marked dirty; the next start makes it consistent")
        }
        StopError::Flush(source) => {
            let over = if over.is_empty() { format!(" ({source})") } else { over };
            format!(
                "its last flush failed{over}: what was written since the one before may be lost; check its members, serve \
                 it again and check what was written last"
            )
        }
    }
}

fn members(status: &Status, kind: ErrorKind) -> impl Iterator<Item = (usize, String)> {
    let is_redundant = status.level.is_redundant();
    let all = status.members.iter().zip(&status.errors).enumerate();
    all.filter_map(move |(index, (state, errors))| match state {
        MemberState::Active(_) | MemberState::Recovering { .. } | MemberState::Replacing { .. } => {
            error_text(errors, kind, is_redundant).map(|text| (index, text))
        }
        MemberState::Spare | MemberState::Removed | MemberState::Faulty { .. } => None,
    })
}

fn error_text(errors: &MemberErrors, kind: ErrorKind, is_redundant: bool) -> Option<String> {
    let mut text = RequestKind::ALL.into_iter().zip(&errors.of).filter_map(|(request, count)| {
        let (_, error) = count.last?;
        let may_freeze = match request {
            RequestKind::Flush => true,
            RequestKind::Write | RequestKind::Zeroes => is_redundant,
            // An unreadable sector is read elsewhere or fails its request.
            RequestKind::Read => is_redundant && error.kind == kind && kind != ErrorKind::Media,
            RequestKind::Discard => false,
        };
        may_freeze.then(|| member_errors::error_text(request, error))
    });
    text.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{IoError, Range, Sector, Sectors};
    use uraid_engine::ErrorCount;

    fn failed(request: RequestKind, kind: ErrorKind, os: i32) -> MemberErrors {
        let mut errors = MemberErrors::default();
        let last = Some((Range::new(Sector(8), Sectors(8)), IoError { kind, os }));
        errors.of[request as usize] = ErrorCount { count: 1, last };
        errors
    }

    #[test]
    fn only_errors_that_freeze_are_reasons() {
        let full = failed(RequestKind::Write, ErrorKind::NoSpace, 28);
        let text = error_text(&full, ErrorKind::NoSpace, true);
        assert_eq!(text.as_deref(), Some("no space left under the member (errno 28)"));
        assert_eq!(error_text(&full, ErrorKind::NoSpace, false), None, "raid0 fails the request");
        let unreadable = failed(RequestKind::Read, ErrorKind::Media, 5);
        assert_eq!(error_text(&unreadable, ErrorKind::Media, true), None);
        let hung = failed(RequestKind::Flush, ErrorKind::Gone, 110);
        let text = error_text(&hung, ErrorKind::Gone, false);
        assert_eq!(text.as_deref(), Some("it did not answer a flush in time (--member-timeout)"));
    }

    #[test]
    fn a_stop_says_each_thing_once() {
        let error = StopError::FrozenPlain(ErrorKind::Frozen.into());
        let text = stop_text(&error, Some("m0: the medium failed (errno 5)".to_owned()), false);
        let expected =
            "it was frozen (m0: the medium failed (errno 5)); what was written since its last good flush may be lost";
        assert_eq!(text, expected);
        let error = StopError::Flush(ErrorKind::Frozen.into());
        let text = stop_text(&error, Some("m0: the medium failed (errno 5)".to_owned()), false);
        assert!(text.starts_with("its last flush failed (m0: the medium failed (errno 5)): what was "), "{text}");
        let full = IoError { kind: ErrorKind::NoSpace, os: 28 };
        let text = stop_text(&StopError::NotClean(full), None, false);
        assert!(
            text.starts_with("it could not be marked clean (no space left under the member (errno 28)) "),
            "{text}"
        );
    }
}
