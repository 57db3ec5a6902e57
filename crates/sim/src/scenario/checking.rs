//! An operator who checks and repairs an array while clients, faults and other passes change it.
//! Owns: the choice of commands, and that an array whose members were never spoiled has no mismatch. Not here: what a
//! spoiled one has (`tests/directed/checks.rs`), what clients read (`oracle`).
//! Invariant: passes are never left paused.

use crate::judge::Judge;
use crate::judge::guard::Guard;
use crate::judge::resynced::Resynced;
use crate::machine::event::Event;
use crate::machine::executor::Executor;
use crate::machine::fault_kind::FaultKind;
use crate::machine::world::SimWorld;
use crate::random::rng::Rng;
use crate::rig::{Live, Rig};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uraid_engine::view::Gate;
use uraid_engine::{Array, CheckEnd, PassKind, Share, SpeedLimits};

/// Faults that change bytes silently: no request reports an error.
const SPOILING: [FaultKind; 4] =
    [FaultKind::BitRot, FaultKind::Misdirected, FaultKind::LostWrite, FaultKind::LyingFlush];

/// A minimum that no pass reaches.
const NEVER_WAITS: SpeedLimits = SpeedLimits { min: Some(1 << 30), max: None, share: None };

/// The speed of a check.
fn limits(rng: &mut Rng) -> SpeedLimits {
    match rng.below(5) {
        0 => SpeedLimits { min: Some(100), max: Some(rng.between(1_000, 20_000)), share: None },
        1 => SpeedLimits { min: Some(rng.between(10, 20_000)), max: None, share: None },
        2 => NEVER_WAITS,
        3 => {
            let percent = u8::try_from(rng.between(1, Share::MAX.into())).expect("a percentage");
            SpeedLimits { min: Some(rng.between(10, 20_000)), max: None, share: Share::of_percent(percent) }
        }
        _ => SpeedLimits::default(),
    }
}

impl Rig {
    /// Perhaps starts the operator. In every second start, passes do not give way to clients before that: more of them
    /// come to their end.
    pub(crate) fn check_by_hand(&mut self, live: &Live) {
        if !self.setup.is_redundant() {
            return;
        }
        if self.rng.chance(1, 2) {
            let array = live.arrays[0].clone();
            self.executor.spawn(0, "speed", async move { array.set_speed(NEVER_WAITS).await });
        }
        if !self.rng.chance(1, 3) {
            return;
        }
        let (array, executor, guard) = (live.arrays[0].clone(), self.executor.clone(), self.guard.clone());
        let (judge, tally, mut rng) = (self.judge.clone(), self.tally.clone(), self.rng.fork());
        let was_spoiled = {
            let before = self.tally.borrow();
            SPOILING.iter().any(|kind| before.kinds[*kind as usize] > 0)
        };
        let started = live.started.clone();
        self.executor.spawn(0, "checker", async move {
            // Only then does the guard know whether a pass runs.
            start_over(&executor, &started).await;
            for _ in 0..rng.between(1, 4) {
                let longest = *rng.pick(&[50, 2_000, 300_000]);
                executor.sleep(Duration::from_micros(rng.below(longest))).await;
                let kind = *rng.pick(&[PassKind::Check, PassKind::Repair]);
                let limits = limits(&mut rng);
                array.set_speed(limits).await;
                let begun = if kind == PassKind::Check { array.begin_check() } else { array.begin_repair() };
                executor.record(Event::Note { what: "check begins", value: u64::from(begun.is_ok()) });
                if begun.is_err() {
                    continue;
                }
                guard.set_pass_running(true);
                guard.set_repairing(kind == PassKind::Repair);
                match rng.below(4) {
                    0 => {
                        executor.sleep(Duration::from_micros(rng.below(longest))).await;
                        array.end_check().await;
                    }
                    1 => {
                        array.pause_passes(true).await;
                        executor.sleep(Duration::from_micros(rng.below(longest))).await;
                        array.pause_passes(false).await;
                    }
                    _ => {}
                }
                while array.checked().is_none() && array.view().gate != Gate::Stopped {
                    executor.sleep(Duration::from_micros(500)).await;
                }
                guard.set_pass_running(judge.resynced.get() != Resynced::Whole);
                guard.set_repairing(false);
                let Some(checked) = array.checked() else { return };
                executor.record(Event::Note { what: "checked", value: checked.progress.mismatched.0 });
                if kind == PassKind::Repair
                    && checked.end == CheckEnd::Complete
                    && let Err(found) = guard.check_repair()
                {
                    executor.violate(found);
                }
                tally.borrow_mut().checks += u64::from(checked.end == CheckEnd::Complete);
                let differs = checked.progress.mismatched.0 > 0 || !checked.mismatches.is_empty();
                if differs && !was_spoiled && !may_differ(&judge) {
                    executor.violate(format!("a {kind:?} of good members has found {checked:?}"));
                }
            }
        });
    }
}

/// Waits for the end of the start, however long: a member may never answer in it, and each look is a step of the run.
pub(crate) async fn start_over(executor: &Executor, started: &Cell<Option<bool>>) {
    let mut pause = Duration::from_micros(100);
    while started.get().is_none() {
        executor.sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// An array takes writes again: a recovery that was given up begins anew. Lets it write to members until it ends.
pub(crate) async fn follow_pass(array: &Rc<Array<SimWorld>>, guard: &Guard, judge: &Judge) {
    if array.status().pass.is_some() {
        guard.set_pass_running(true);
        let _ = array.wait(|_| {}).await;
        guard.set_pass_running(judge.resynced.get() != Resynced::Whole);
    }
}

/// Whether copies, or parity and data, may differ although the array is open and in sync.
fn may_differ(judge: &Rc<Judge>) -> bool {
    let (granularity, gives_zeroes) = judge.setup.discard;
    let is_spoiled = |kind: FaultKind| judge.disks.iter().any(|disk| disk.hits()[kind as usize] > 0);
    judge.is_over_budget.get()
        || judge.resynced.get() != Resynced::Whole
        // A discard behind the end of a member that has shrunk fails, and is not performed on its copy.
        || granularity > 0 && (!gives_zeroes || is_spoiled(FaultKind::Shrink))
        || judge.disks.iter().any(|disk| disk.is_liar())
        || SPOILING.into_iter().any(is_spoiled)
}
