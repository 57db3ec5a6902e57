//! Spares that arrays of different processes share, by their group in the configuration or of their servers.
//! Owns: which spare moves, both steps of a move, finishing one that was interrupted. Not here: arrays of one process, whose
//! server moves spares itself.
//! Invariant: an array gives a spare only while all its slots have members in sync. That a spare is on its way is in the
//! state file before its array loses it, so that a monitor that is killed in between finishes the move when it is started
//! again.

use super::sight::Sight;
use serde::{Deserialize, Serialize};
use uraid_control::client::{self, ClientError};
use uraid_control::log::with_causes;
use uraid_control::report::Report;
use uraid_format::FlagChange;

/// A spare on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Moving {
    /// Its path.
    pub spare: String,
    /// The UUID of the array that gives it.
    pub from: String,
    /// The UUID of the array that gets it.
    pub to: String,
    /// It was given up for the new array, and goes back.
    #[serde(default)]
    pub is_returning: bool,
}

/// The move that is due, if one is. `may_share`: whether the first array may give a spare to the second one. `is_refused`:
/// moves that have failed not long ago.
pub(crate) fn due(
    reports: &[Report],
    may_share: impl Fn(&Report, &Report, &str) -> bool,
    is_refused: impl Fn(&Moving) -> bool,
) -> Option<Moving> {
    let serves = |report: &&Report| report.state.iter().all(|word| !NOT_SERVING.contains(&word.as_str()));
    let seen: Vec<(&Report, Sight)> =
        reports.iter().filter(serves).map(|report| (report, Sight::of(report, None))).collect();
    for (taker, to) in seen.iter().filter(|(_, sight)| lacks_spare(sight)) {
        for (giver, from) in seen.iter().filter(|(_, from)| from.server != to.server && is_whole(from)) {
            for spare in from.spares.iter().filter(|spare| may_share(giver, taker, spare)) {
                let (spare, from, to) = (spare.clone(), from.uuid.clone(), to.uuid.clone());
                let moving = Moving { spare, from, to, is_returning: false };
                if !is_refused(&moving) {
                    return Some(moving);
                }
            }
        }
    }
    None
}

/// An array in one of these states neither gives nor takes a spare.
const NOT_SERVING: [&str; 5] = ["read-only", "frozen", "starting", "stopping", "stopped"];

/// Degraded, without a spare, nothing is being rebuilt, and nobody has announced that members go away for a while.
fn lacks_spare(sight: &Sight) -> bool {
    sight.is_degraded() && sight.spares.is_empty() && sight.pass.is_none() && !sight.is_in_maintenance
}

/// Every slot has its member in sync.
fn is_whole(sight: &Sight) -> bool {
    sight.has_redundancy && !sight.is_degraded()
}

/// What a step of a move comes to.
#[derive(Debug)]
pub(crate) enum Step {
    /// The new array has it.
    Arrived,
    /// The old array has it, and keeps it: why.
    Kept(String),
    /// No array has it yet: why. It is tried again.
    Waits(String),
}

/// Takes a move as far as it goes. Repeating it after a crash does no harm.
pub(crate) fn advance(moving: &mut Moving, reports: &[Report]) -> Step {
    let has = |uuid: &str| {
        let report = reports.iter().find(|report| report.uuid == uuid);
        report.map(|report| report.members.iter().any(|member| member.is_called(&moving.spare)))
    };
    if has(&moving.to) == Some(true) {
        return Step::Arrived;
    }
    let Moving { spare, from, to, .. } = moving.clone();
    if has(&from) == Some(true) {
        if moving.is_returning {
            return Step::Kept(format!("the spare {spare} is back in its array"));
        }
        if let Err(error) = remove(&from, &spare) {
            return Step::Kept(format!("the spare {spare} is not given away: {}", with_causes(&error)));
        }
    }
    if !moving.is_returning {
        match add(&to, &spare) {
            Ok(()) => return Step::Arrived,
            Err(error) => {
                moving.is_returning = true;
                let why = with_causes(&error);
                return match add(&from, &spare) {
                    Ok(()) => Step::Kept(format!("the spare {spare} is not taken: {why}; its array has it again")),
                    Err(back) => Step::Waits(stranded(&spare, &with_causes(&back))),
                };
            }
        }
    }
    match add(&from, &spare) {
        Ok(()) => Step::Kept(format!("the spare {spare} is back in its array")),
        Err(error) => Step::Waits(stranded(&spare, &with_causes(&error))),
    }
}

fn stranded(spare: &str, why: &str) -> String {
    format!("the spare {spare} is in no array now: {why}; `uraid add` adds it to one")
}

fn remove(uuid: &str, spare: &str) -> Result<(), ClientError> {
    client::find(Some(uuid), None)?.remove(&[spare.to_owned()]).map(drop)
}

/// What a spare carries is what its array has left there: it may be lost.
fn add(uuid: &str, spare: &str) -> Result<(), ClientError> {
    client::find(Some(uuid), None)?.add(&[spare.to_owned()], &[FlagChange::default()], true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_reports;

    /// The array in this state, as another one of another process.
    fn report(state: &str, nth: u32) -> Report {
        let (_, mut report) =
            sample_reports::reports().into_iter().find(|(name, _)| *name == state).expect("there is one");
        report.uuid = format!("{nth:08}:00000000:00000000:00000000");
        if let Some(server) = &mut report.server {
            server.pid = nth;
        }
        report
    }

    #[test]
    fn a_spare_moves_from_a_whole_array_to_one_that_is_degraded_and_has_none() {
        let (give, take) = (report("healthy", 1), report("degraded", 2));
        let moves = |reports: &[Report]| due(reports, |_, _, _| true, |_| false).is_some();
        let moving =
            due(&[give.clone(), take.clone()], |_, _, spare| spare == "/dev/sdf", |_| false).expect("it is due");
        let expected =
            Moving { spare: "/dev/sdf".into(), from: give.uuid.clone(), to: take.uuid.clone(), is_returning: false };
        assert_eq!(moving, expected);
        assert!(due(&[give.clone(), take.clone()], |_, _, _| false, |_| false).is_none(), "no group in common");
        assert!(due(&[give.clone(), take.clone()], |_, _, _| true, |_| true).is_none(), "it has just failed");
        assert!(!moves(&[give.clone(), report("healthy", 3)]), "nobody lacks one");
        assert!(!moves(&[give.clone(), report("recovering", 3)]), "it has one that is being filled");
        assert!(!moves(&[report("degraded", 1), take.clone()]), "neither has one");
        let in_maintenance = Report { maintenance_until: Some(9), ..take.clone() };
        assert!(!moves(&[give.clone(), in_maintenance]), "its members come back soon");
        for state in NOT_SERVING {
            let mut stopped = take.clone();
            stopped.state.push(state.to_owned());
            assert!(!moves(&[give.clone(), stopped]), "{state}");
        }
        let mut same = take;
        same.server.clone_from(&give.server);
        assert!(!moves(&[give, same]), "their own process does that");
    }
}
