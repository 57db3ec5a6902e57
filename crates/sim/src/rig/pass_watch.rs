//! Follows the passes of a running array, and tells the judge and the oracle what their ends change.
//! Owns: [`PassWatch`]. Not here: what the judge makes of it (`judge`, `checks`).

use crate::judge::Judge;
use crate::judge::guard::Guard;
use crate::judge::resynced::Resynced;
use crate::machine::event::Event;
use crate::machine::executor::Executor;
use crate::machine::world::SimWorld;
use crate::reference::model::Place;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::Slot;
use uraid_engine::view::Gate;
use uraid_engine::{Array, PassError, PassKind};

/// What is to be noted of the passes of one start.
pub(crate) struct PassWatch {
    pub(crate) executor: Executor,
    pub(crate) judge: Rc<Judge>,
    pub(crate) guard: Rc<Guard>,
    pub(crate) array: Rc<Array<SimWorld>>,
    /// Slots whose member is recovering at the start.
    pub(crate) recovering: BTreeSet<u16>,
    /// A resync is due, and these places could not be read at its start.
    pub(crate) unreadable: Option<BTreeSet<Place>>,
}

impl PassWatch {
    /// Waits until no pass is left, or the array has stopped. Returns how many members were recovered.
    pub(crate) async fn run(self) -> u64 {
        let is_noted = Cell::new(false);
        let resync_over = || {
            if let Some(before) = self.unreadable.as_ref().filter(|_| !is_noted.replace(true)) {
                self.executor.record(Event::Note { what: "consistent", value: 0 });
                self.judge.note_resync(before, self.array.view().readable(), &self.guard.failures());
                if self.judge.resynced.get() == Resynced::Whole || !self.judge.knows_unsynced.get() {
                    self.judge.suspect.borrow_mut().clear();
                    self.judge.in_flight.borrow_mut().clear();
                }
                self.judge.oracle.borrow_mut().resynced();
            }
        };
        loop {
            let outcome = self.array.wait(|progress| {
                if progress.kind != PassKind::Resync {
                    resync_over();
                }
            });
            match outcome.await {
                Ok(_) => {
                    resync_over();
                    return self.note_recovered();
                }
                // It goes on if `fail` lets writes in again.
                Err(PassError::Frozen(_)) if self.array.view().gate != Gate::Stopped => {
                    self.executor.sleep(Duration::from_millis(1)).await;
                }
                Err(PassError::Frozen(_) | PassError::Stopped) => {
                    let in_resync = self.array.status().pass.is_some_and(|pass| pass.kind == PassKind::Resync);
                    if !in_resync {
                        resync_over();
                    }
                    return 0;
                }
            }
        }
    }

    fn note_recovered(&self) -> u64 {
        let readable = self.array.view().readable();
        let recovered = self.recovering.iter().filter(|slot| readable.contains(Slot(**slot)));
        recovered.map(|slot| u64::from(self.judge.recovering.borrow_mut().remove(slot))).sum()
    }
}
