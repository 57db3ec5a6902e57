//! An operator who makes an array read-only, and writable again, while clients, faults and passes change it.
//! Owns: when that is, which refusals are right, what a start would find meanwhile. Not here: which requests may be refused
//! (`judge::legal_errors`), that no member is written meanwhile (`judge::guard`).
//! Invariant: an array is left read-only only when it is being stopped.

use crate::judge::legal_errors::LegalErrors;
use crate::judge::{AssembleMode, Assembled, Judge};
use crate::machine::event::Event;
use crate::rig::{Live, Rig};
use crate::scenario::checking::{follow_pass, start_over};
use std::time::Duration;
use uraid_engine::{AccessError, PassKind};

impl Rig {
    /// Perhaps starts the operator.
    pub(crate) fn change_access_by_hand(&mut self, live: &Live) {
        if !self.rng.chance(1, 3) {
            return;
        }
        let (array, executor, started) = (live.arrays[0].clone(), self.executor.clone(), live.started.clone());
        let (session, guard, judge) = (live.session.clone(), self.guard.clone(), self.judge.clone());
        let mut rng = self.rng.fork();
        self.executor.spawn(0, "access changer", async move {
            start_over(&executor, &started).await;
            for _ in 0..rng.between(1, 4) {
                let longest = *rng.pick(&[50, 2_000, 300_000]);
                executor.sleep(Duration::from_micros(rng.below(longest))).await;
                if session.is_stopping.get() {
                    return;
                }
                session.legal_errors.begin_read_only();
                // What was answered before is durable then, as after a flush.
                let op = session.op_next.replace(session.op_next.get() + 1);
                session.oracle.borrow_mut().begin_flush(op);
                let outcome = array.become_read_only().await;
                session.oracle.borrow_mut().end_flush(op, outcome.is_ok());
                executor.record(Event::Note { what: "read-only", value: u64::from(outcome.is_ok()) });
                if let Err(error) = outcome {
                    session.legal_errors.end_read_only();
                    if is_wrong(error) {
                        executor.violate(format!("C2: read-only: {error}"));
                    }
                    continue;
                }
                guard.set_read_only(true);
                let in_resync = array.status().pass.is_some_and(|progress| progress.kind == PassKind::Resync);
                let checked = executor.random(|rng| is_clean(&judge, &session.legal_errors, &judge.images(rng)));
                if let Err(found) = checked
                    && !in_resync
                {
                    executor.violate(format!("I5: while the array is read-only: {found}"));
                }
                executor.sleep(Duration::from_micros(rng.below(longest))).await;
                if session.is_stopping.get() {
                    return;
                }
                guard.set_read_only(false);
                let outcome = array.become_writable().await;
                executor.record(Event::Note { what: "writable", value: u64::from(outcome.is_ok()) });
                match outcome {
                    Ok(_) => {
                        session.legal_errors.end_read_only();
                        follow_pass(&array, &guard, &judge).await;
                    }
                    Err(error) if is_wrong(error) => executor.violate(format!("C2: writable: {error}")),
                    // It has frozen, or stops: writes stay refused.
                    Err(_) => return,
                }
            }
        });
    }
}

/// Refusals that an array that was opened to be written has no reason for.
fn is_wrong(error: AccessError) -> bool {
    match error {
        AccessError::OpenedReadOnly => true,
        AccessError::NotOpen | AccessError::Frozen(_) => false,
    }
}

/// A start after a power cut now would find the array clean, unless a resync is due.
fn is_clean(judge: &Judge, legal: &LegalErrors, images: &[Option<Vec<u8>>]) -> Result<(), String> {
    if !judge.setup.is_redundant() || legal.may_stay_dirty() || judge.disks.iter().any(|disk| disk.is_liar()) {
        return Ok(());
    }
    match judge.assemble(images, AssembleMode::Plain)? {
        Assembled::Plan(plan) if plan.is_dirty => Err("a start would find it dirty".to_string()),
        Assembled::Plan(_) | Assembled::Impossible => Ok(()),
        Assembled::DirtyDegraded => Err("a start would find it dirty and degraded".to_string()),
    }
}
