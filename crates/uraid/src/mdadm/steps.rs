//! The steps of a line, one after the other.
//! Owns: which exit code counts, whether `--test` has seen a change. Not here: the steps (`translate`), a new array
//! (`start`).

use super::translate::{Step, Steps};
use super::{Runner, WrongWords};
use crate::offline::zero::ZeroError;
use std::error::Error;
use std::process::ExitCode;
use uraid_control::client;
use uraid_control::log::complain;

/// Carries them out. The first code that is not success counts.
pub(super) fn run(steps: &Steps, runner: Runner) -> ExitCode {
    let before = if steps.tests_change { members(&steps.arrays) } else { None };
    let mut outcome = ExitCode::SUCCESS;
    for step in &steps.steps {
        let code = one(step, runner);
        if code != ExitCode::SUCCESS && outcome == ExitCode::SUCCESS {
            outcome = code;
        }
        if outcome != ExitCode::SUCCESS && steps.stops_at_failure {
            return outcome;
        }
    }
    let is_unchanged = before.is_some() && before == members(&steps.arrays);
    if outcome == ExitCode::SUCCESS && is_unchanged { ExitCode::from(2) } else { outcome }
}

fn one(step: &Step, runner: Runner) -> ExitCode {
    match step {
        Step::Verb(words) => {
            let code = runner(words).unwrap_or_else(|error| code_of(&*error));
            // The code of `uraid wait` for an array that cannot be asked, and mdadm's for what is no array.
            let is_wait = words.first().is_some_and(|verb| verb == "wait");
            if is_wait && code == ExitCode::from(4) { ExitCode::from(2) } else { code }
        }
        Step::MustRun(array) => match client::find(Some(array), None) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                ExitCode::FAILURE
            }
        },
    }
}

/// Says the error, and gives mdadm's code for it.
pub(super) fn code_of(error: &(dyn Error + 'static)) -> ExitCode {
    complain(error);
    match error.downcast_ref::<ZeroError>() {
        // To mdadm, what has nothing to be wiped is done.
        Some(ZeroError::NoSuperblock { .. } | ZeroError::NoneThere(_) | ZeroError::Damaged(_)) => {
            return ExitCode::SUCCESS;
        }
        Some(ZeroError::Claim(_) | ZeroError::ClaimOne(_)) => return ExitCode::from(2),
        Some(ZeroError::Read { .. } | ZeroError::Write(_)) | None => {}
    }
    if error.is::<WrongWords>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// What `--test` compares of a member: its path, slot and state.
type Compared = (Option<String>, Option<u16>, String);

/// The members of the first array.
fn members(arrays: &[String]) -> Option<Vec<Compared>> {
    let mut client = client::find(arrays.first().map(String::as_str), None).ok()?;
    let members = client.status().ok()?.members;
    Some(members.into_iter().map(|member| (member.path, member.slot, member.state)).collect())
}
