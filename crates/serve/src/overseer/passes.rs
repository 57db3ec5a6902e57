//! Carries out the calls about the passes of a running array.
//! Owns: check, repair, idle, freeze, speed, the result of the last check with paths in place of slots. Not here: the
//! passes (`engine`), how calls arrive (`control_socket`).

use super::Overseer;
use serde_json::{Value, json};
use uraid_block::sizes::counted;
use uraid_control::log::{warn, with_causes};
use uraid_control::protocol::{CheckFact, CheckResult, Mismatch, RpcError, not_compared};
use uraid_engine::{CheckEnd, CheckError, Checked, Share, SpeedLimits};

/// The highest limit, in KiB/s; the same as md's.
const SPEED_MAX: u64 = i32::MAX as u64;

impl Overseer {
    /// Ends a check or repair, and continues paused passes.
    pub(super) async fn end_check(&self) -> Result<Value, RpcError> {
        let has_ended = self.array.end_check().await;
        let was_paused = self.array.are_passes_paused();
        self.array.pause_passes(false).await;
        Ok(json!({ "array": self.name(), "ended": has_ended, "continued": was_paused }))
    }

    /// Pauses every pass, or continues them.
    pub(super) async fn pause_passes(&self, is_paused: bool) -> Result<Value, RpcError> {
        let was_paused = self.array.are_passes_paused();
        self.array.pause_passes(is_paused).await;
        // Not what `freeze` is about, but it is also called frozen.
        let takes_writes = self.frozen_over().is_none();
        let changed = is_paused != was_paused;
        Ok(json!({ "array": self.name(), "frozen": is_paused, "changed": changed, "takes_writes": takes_writes }))
    }

    /// What the last check or repair has found.
    pub(super) fn mismatches(&self) -> Result<Value, RpcError> {
        match self.check_result(true) {
            Some(result) => Ok(json!(result)),
            None => Err(RpcError::refused(format!("{}: no check or repair has ended yet", self.name()))),
        }
    }

    /// Begins a check; `resume`: where an earlier one has ended before its end.
    pub(super) fn begin_check(&self, resume: bool) -> Result<Value, RpcError> {
        // The last one may have ended just now.
        self.follow_check();
        let before = if resume { self.check_to_resume()? } else { None };
        self.begin(self.array.begin_check_at(Overseer::place_of(before.as_ref())), before)
    }

    /// Begins a repair.
    pub(super) fn begin_repair(&self) -> Result<Value, RpcError> {
        self.follow_check();
        self.begin(self.array.begin_repair(), None)
    }

    /// What a check or repair is answered that has begun, or has not.
    fn begin(&self, outcome: Result<(), CheckError>, before: Option<CheckFact>) -> Result<Value, RpcError> {
        outcome.map_err(|error| RpcError::refused(self.check_text(&error)))?;
        self.check_began(before);
        let (array, name) = (self.array.clone(), self.name().to_owned());
        self.session.local().spawn(async move {
            // The outcome is not needed: the result says how the pass ended, also after a stop or a freeze.
            let _ = array.wait(&mut |_| ()).await;
            if let Some(checked) = array.checked() {
                warn(&format!("{name}: {}", summary(&checked)));
            }
        });
        Ok(json!({ "array": self.name() }))
    }

    fn check_text(&self, error: &CheckError) -> String {
        let text = match error {
            CheckError::ReadOnly => return self.is_read_only_text(),
            CheckError::Busy(kind) => format!("a {} runs already, or is due", kind.names().word),
            CheckError::Paused => {
                "resync, recovery, check and repair are paused: `uraid unfreeze` continues them".to_owned()
            }
            CheckError::Frozen(_) => match self.frozen_over() {
                Some(reason) => format!("{error} ({reason})"),
                None => with_causes(error),
            },
            CheckError::NotRedundant | CheckError::NotOpen | CheckError::NotRecovered | CheckError::NothingLeft => {
                error.to_string()
            }
        };
        format!("{}: {text}", self.name())
    }

    /// Changes the limits that are given.
    pub(super) async fn set_speed(
        &self,
        min: Option<u64>,
        max: Option<u64>,
        percent: Option<u8>,
    ) -> Result<Value, RpcError> {
        if [min, max].into_iter().flatten().any(|kib| kib > SPEED_MAX) {
            return Err(RpcError::refused(format!("a speed is at most {SPEED_MAX} KiB/s; nothing was changed")));
        }
        let before = self.array.speed();
        let changed = |given: Option<u64>, before| given.map_or(before, |kib| Some(kib).filter(|kib| *kib > 0));
        let share = match percent {
            None => before.share,
            Some(0) => None,
            Some(percent) => match Share::of_percent(percent) {
                None => {
                    let most = Share::MAX;
                    return Err(RpcError::refused(format!("a share is 1 to {most} percent; nothing was changed")));
                }
                share => share,
            },
        };
        let limits = SpeedLimits { min: changed(min, before.min), max: changed(max, before.max), share };
        if let SpeedLimits { min: Some(min), max: Some(max), share: _ } = limits
            && min > max
        {
            return Err(RpcError::refused(format!(
                "the minimum of {min} KiB/s is above the maximum of {max} KiB/s; nothing was changed"
            )));
        }
        self.array.set_speed(limits).await;
        Ok(json!({ "array": self.name(), "min": limits.min, "max": limits.max,
            "share": self.array.pass_share().percent(), "share_is_set": share.is_some() }))
    }

    /// The result of the last check or repair.
    pub(super) fn check_result(&self, with_list: bool) -> Option<CheckResult> {
        let checked = self.array.checked()?;
        let progress = &checked.progress;
        let list = checked.mismatches.iter().filter(|_| with_list);
        Some(CheckResult {
            array: self.name().to_owned(),
            kind: checked.kind.names().word.to_owned(),
            end: end_word(checked.end).to_owned(),
            done: progress.done.0,
            total: progress.total.0,
            mismatched: progress.mismatched.0,
            corrected: progress.corrected.0,
            healed: progress.healed.0,
            lacking: progress.lacking.0,
            skipped: progress.skipped.0,
            unreadable: progress.unreadable.0,
            mismatches: list.map(|found| self.mismatch(found)).collect(),
        })
    }

    fn mismatch(&self, found: &uraid_engine::Mismatch) -> Mismatch {
        Mismatch {
            sector: found.sector.0,
            sectors: found.length.0,
            member_sector: found.at.0,
            member_sectors: found.count.0,
            slots: found.slots.iter().map(|slot| slot.0).collect(),
            members: found.slots.iter().map(|slot| self.member_or_slot(slot)).collect(),
            parity: self.array.layout().level().is_parity(),
            known: found.is_known,
            corrected: found.is_corrected,
        }
    }
}

fn end_word(end: CheckEnd) -> &'static str {
    match end {
        CheckEnd::Complete => "complete",
        CheckEnd::Ended => "ended",
        CheckEnd::Superseded => "superseded",
        CheckEnd::Stopped => "stopped",
    }
}

/// One line for the log.
fn summary(checked: &Checked) -> String {
    let (word, progress) = (checked.kind.names().word, &checked.progress);
    let mismatched = counted(progress.mismatched.0, "sector disagrees", "sectors disagree");
    let more = not_compared(progress.lacking.0, progress.skipped.0, progress.unreadable.0);
    format!("{word} {}: {mismatched}, {} corrected{more}", end_word(checked.end), progress.corrected.0)
}
