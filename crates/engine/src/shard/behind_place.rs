//! The place of a write among those that are behind, and what becomes of one that fails.
//! Owns: [`BehindPlace`]. Not here: how many places there are, and the drawing (`behind`).

use crate::shard::behind::share;
use crate::shard::mail::{Answer, Call};
use crate::shard::shared::Shared;
use crate::shard::world::World;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use std::rc::Rc;
use uraid_block::{ArrayRange, Fua};

/// The place of one write among those that are behind. Dropping it gives the place back.
pub(crate) struct BehindPlace<W: World> {
    shared: Rc<Shared<W>>,
    number: u64,
}

impl<W: World> Drop for BehindPlace<W> {
    fn drop(&mut self) {
        self.shared.behind.give_back(self.number);
    }
}

impl<W: World> Shared<W> {
    /// A place among the writes that are behind, for a write that may be: by its kind, its length, and the number of
    /// those that are.
    #[inline]
    pub(crate) fn place_behind(self: &Rc<Self>, range: ArrayRange, fua: Fua) -> Option<BehindPlace<W>> {
        let writes_max = self.with_view(|view| view.behind.as_ref().map(|behind| behind.writes_max))?;
        self.take_place(range, fua, writes_max)
    }

    fn take_place(self: &Rc<Self>, range: ArrayRange, fua: Fua, writes_max: u32) -> Option<BehindPlace<W>> {
        if fua == Fua::Yes {
            return None;
        }
        let share = share(writes_max, self.world.shard().0, self.world.shards());
        let number = self.behind.take(range.length, share)?;
        Some(BehindPlace { shared: self.clone(), number })
    }

    /// A write that was answered has ended on the members that were behind. Returns when their failures are recorded, or
    /// the array has frozen: then no flush succeeds, because a start could take the member without the write alone. If no
    /// member has it any more, no shard reads its sectors either.
    pub(crate) async fn end_behind(&self, range: ArrayRange, failures: &[Failure]) {
        if failures.is_empty() {
            return;
        }
        mark::hit(Mark::BehindFailed);
        let outcome = self.settle_copies(None, range, failures).await;
        if outcome.is_err() {
            self.behind.note_unrecorded();
        }
        let has_other = || self.with_view(|view| !view.readable().minus(view.slots.write_mostly()).is_empty());
        if outcome.is_err() && !has_other() {
            mark::hit(Mark::BehindLost);
            self.calls.call_all(|| Call::BehindLost(range)).await.into_iter().for_each(Answer::done);
        }
    }

    /// Waits until every write that was answered before this call is on all of its members, or its failure is recorded.
    /// Returns whether that is so, and false if the array has frozen over such a failure. On shard 0 only.
    pub(crate) async fn behind_over(&self) -> bool {
        if !self.with_view(|view| view.has_behind) {
            return true;
        }
        let unrecorded = self.calls.call_all(|| Call::BehindOver).await.into_iter().map(Answer::count);
        unrecorded.sum::<u64>() == 0
    }
}
