//! What is kept of checks: how far one is, and what it has found, beyond the run of the array.
//! Owns: a check that goes on where an earlier one has ended, the record in the state directory. Not here: the calls
//! (`passes`), adding up (`uraid_control::protocol`), writing the file (`uraid_control::history`).
//! Invariant: a record is kept at least every ten seconds of a check, so that a crash costs no more of it.

use super::Overseer;
use super::seen::CheckRun;
use std::sync::PoisonError;
use std::time::Duration;
use uraid_block::Sectors;
use uraid_control::dates;
use uraid_control::history::{self, Actor, Event};
use uraid_control::protocol::{CheckFact, CheckRecord, CheckResult, RpcError};
use uraid_engine::{PassKind, Progress};
use uraid_layout::Layout;

/// How often the place is kept while a check runs.
const KEEP_PERIOD: Duration = Duration::from_secs(10);
/// How many places an entry of the history lists.
const PLACES_MAX: usize = 20;

impl Overseer {
    /// What an earlier check has done, and left undone.
    pub(super) fn check_to_resume(&self) -> Result<Option<CheckFact>, RpcError> {
        let place = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = || RpcError::refused(format!("{}: its record of checks is not read yet; try again", self.name()));
        let total = self.check_total();
        place.as_ref().map(|record| record.to_resume(total).cloned()).ok_or_else(unread)
    }

    fn check_total(&self) -> u64 {
        let layout = self.array.layout();
        match &*layout {
            Layout::Parity(parity) => parity.rows_count() * parity.chunk().0,
            Layout::Copies(_) => layout.array_size().0,
        }
    }

    /// A check or repair has begun.
    pub(super) fn check_began(&self, before: Option<CheckFact>) {
        let now = self.session.local().now();
        let run = CheckRun { began: dates::now(), at: now, kept: now, last: None, before };
        *self.check_run.borrow_mut() = Some(run);
    }

    /// Keeps how far the check is now and then, and what it has found when it has ended.
    pub(crate) fn follow_check(&self) {
        let Some(mut run) = self.check_run.take() else { return };
        let now = self.session.local().now();
        if let Some(result) = self.check_result(true) {
            self.keep_check(&run, result.clone());
            self.note_check(result);
            return;
        }
        let progress = self.status().pass.filter(|pass| pass.kind == PassKind::Check);
        run.last = progress.or(run.last);
        if let Some(progress) = progress
            && now.since(run.kept) >= KEEP_PERIOD
        {
            self.keep_check(&run, self.interim(&progress));
            run.kept = now;
        }
        *self.check_run.borrow_mut() = Some(run);
    }

    /// The array is stopped: what a check has done is kept, also if the stop left it no time for a result.
    pub(crate) fn end_check_of_stop(&self) {
        self.follow_check();
        let Some(run) = self.check_run.take() else { return };
        if let Some(progress) = run.last {
            let result = CheckResult { end: "stopped".to_owned(), ..self.interim(&progress) };
            self.keep_check(&run, result);
        }
    }

    fn keep_check(&self, run: &CheckRun, result: CheckResult) {
        let seconds = self.session.local().now().since(run.at).as_secs();
        let fact = CheckFact { began: run.began, ended: dates::now(), seconds, result };
        let mut place = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        let record = place.get_or_insert_default();
        record.note(fact.after(run.before.as_ref()));
        history::save_checks(&self.session.uuid_text(self.index), record.clone());
    }

    fn note_check(&self, mut result: CheckResult) {
        result.mismatches.truncate(PLACES_MAX);
        let CheckResult { kind, end, mismatched, lacking, unreadable, .. } = &result;
        let text = format!(
            "{kind} {end}: {mismatched} sectors disagree, {lacking} that a member cannot read or take, {unreadable} that no \
             member could give"
        );
        let event = if end == "complete" { Event::PassFinished } else { Event::PassAborted };
        self.session.note(self.index, event, &format!("{kind} {end}"));
        let entry = self.session.entry(self.index, Event::CheckResult, Actor::Engine, &text);
        history::note(entry.with("result", serde_json::json!(result)));
        if result.healed + result.corrected > 0 {
            let text = format!("{} sectors were written again from the others", result.healed + result.corrected);
            self.session.note(self.index, Event::Corrected, &text);
        }
    }

    /// The result of a check that runs.
    fn interim(&self, progress: &Progress) -> CheckResult {
        CheckResult {
            array: self.name().to_owned(),
            kind: "check".to_owned(),
            end: "running".to_owned(),
            done: progress.done.0,
            total: progress.total.0,
            mismatched: progress.mismatched.0,
            corrected: progress.corrected.0,
            healed: progress.healed.0,
            lacking: progress.lacking.0,
            skipped: progress.skipped.0,
            unreadable: progress.unreadable.0,
            mismatches: Vec::new(),
        }
    }

    /// What is kept of checks, for a report.
    pub(super) fn check_record(&self) -> Option<CheckRecord> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where a check begins that goes on.
    pub(super) fn place_of(before: Option<&CheckFact>) -> Sectors {
        before.map_or(Sectors::ZERO, |fact| Sectors(fact.result.done))
    }
}
