//! Coverage of the seeds: every rare branch of the engine is taken.
//! Owns: how many seeds that may need. Not here: what a branch does (`uraid_engine`).

use super::Tell;
use crate::proof::fleet::run_seeds;
use crate::scenario::Options;

/// The seeds within which every mark must be hit, except those below.
const SEEDS: u64 = 3_000;
/// A build without the engine's marks must not pass.
const MARKS_MIN: usize = 30;
/// Marks that this number of seeds may miss. A round cut short such that two tables with the same events disagree: long
/// seeds reach it, and so do the tests of the engine's assembly. Read errors whose data no other member could supply,
/// or of a member that the array needs: directed tests in `read_errors.rs`. Short seeds seldom have a recovery or a resync
/// that something else meets, or a failure that a read-only array does not record: the long seeds of the proof do, and
/// `directed::bits::unsynced`, `directed::bad_blocks`, `directed::re_adding`, `directed::read_only`. A recovery that is given
/// up, and a start that cannot bring a member up, were met by 1 and 3 of 3,000 short seeds when passes did not give way to
/// clients, and by none of them since; of 300 long seeds by 1 and 33. A freeze in zeroes of whole rows, and one beside `fail`: `directed::frozen`.
const SELDOM: [&str; 12] = [
    "HistorySuperseded",
    "NeededDespiteReadErrors",
    "ReadErrorsOfAll",
    "RecoveryAnew",
    "RecoveryGivenUp",
    "CatchUpFailed",
    "UnsyncedRefused",
    "UnsyncedPassed",
    "RecordPutOff",
    "BadBlockLacking",
    "RowsZeroedTorn",
    "FailedFrozenAgain",
];
/// The swarm's members keep their slots: `directed::joining::replacing` and `directed::member_seeds` take these.
const OF_REPLACEMENTS: [&str; 8] = [
    "ReplacingTaken",
    "ReplacingRecovers",
    "Replaced",
    "ReplacedCutOff",
    "ReplacedFromOthers",
    "CopyGivenUp",
    "ReplacementPromoted",
    "ReplacementFailed",
];
/// Seeds list few sectors and seldom freeze meanwhile: `directed::bad_blocks::rare` takes these.
const OF_LISTS: [&str; 4] = ["BadBlockUnwritten", "CorrectionAskedAgain", "BadBlockForgotten", "TornStaysListed"];
/// All other members of a write that is behind fail, and then it fails: `directed::behind` does that.
const OF_WRITE_BEHIND: [&str; 1] = ["BehindLost"];

pub(super) fn run(tell: Tell<'_>) {
    let sum = run_seeds(0..SEEDS, 2, Options::default(), || {});
    tell(if sum.failures.is_empty() { Ok(sum.marks_report()) } else { Err(sum.report()) });
    let count = sum.marks.len();
    tell(if count >= MARKS_MIN { Ok(format!("{count} marks")) } else { Err(format!("{count} marks of {MARKS_MIN}")) });
    let elsewhere = [&SELDOM[..], &OF_REPLACEMENTS, &OF_LISTS, &OF_WRITE_BEHIND].concat();
    let missed = sum.marks_never_hit().into_iter().filter(|mark| !elsewhere.contains(&mark.as_str()));
    missed.for_each(|mark| tell(Err(format!("{mark}: not hit in {SEEDS} seeds"))));
}
