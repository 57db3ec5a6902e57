//! Admission: what a request takes before it touches a member, and gives back when it is answered.
//! Owns: [`Entered`], [`WritePermit`], which shards lock a range of copies, or several rows. Not here: what the view
//! admits (`view`), the locks of one shard (`range_lock`), a single row, which its owner locks (`row`).
//! Invariant: a request is counted in its epoch from admission to answer, and waits for no drain meanwhile. Of two
//! overlapping writes of copies, the second goes to no member before the first is settled on all of them.
//!
//! Without that order, two clients that write one sector at the same time could leave its copies different, and two
//! reads of that sector would disagree for ever (as in md). Each unit of 64 MiB has one shard that locks its ranges. A
//! write asks that shard before it is submitted from its own shard. A range over several units is locked at their
//! shards in ascending order, so there is no deadlock:
//!
//! ```text
//!   shard 0    [w 0..8]  [w 100..108]  [w 4..12 waits for the first]
//!   shard 1    [discard 0..whole array]                    locked at shard 0 first, then here
//! ```

use crate::shard::mail::{Call, Mail, Message, STEWARD};
use crate::shard::range_lock::LockId;
use crate::shard::shared::Shared;
use crate::shard::world::World;
use crate::state::view::{Admission, Epoch, Gate, View, Wish};
use crate::words::mark::{self, Mark};
use std::ops::Range;
use std::rc::Rc;
use uraid_block::{ArrayRange, ErrorKind, IoError, ShardIndex};
use uraid_layout::Level;

/// Sectors of the array that one shard locks: 64 MiB.
pub(crate) const UNIT: u64 = 131_072;

/// A request inside its epoch. Dropping it leaves the epoch.
pub(crate) struct Entered<'a, W: World> {
    shared: &'a Shared<W>,
    epoch: Epoch,
}

impl<W: World> Drop for Entered<'_, W> {
    fn drop(&mut self) {
        self.shared.epochs.leave(self.epoch);
    }
}

/// The locks of one write, or of a read that waits its turn. Dropping them unlocks.
pub(crate) struct Locks<'a, W: World> {
    shared: &'a Shared<W>,
    held: Held,
}

/// Which locks a write holds.
enum Held {
    /// None: its level needs no order, or it has not locked yet.
    Nothing,
    One(ShardIndex, LockId),
    /// Of a range over units of several shards.
    Several(Vec<(ShardIndex, LockId)>),
}

impl Held {
    fn add(&mut self, shard: ShardIndex, id: LockId) {
        *self = match std::mem::replace(self, Held::Nothing) {
            Held::Nothing => Held::One(shard, id),
            Held::One(first, of_first) => {
                assert!(first < shard, "shards are asked in ascending order");
                Held::Several(vec![(first, of_first), (shard, id)])
            }
            Held::Several(mut all) => {
                assert!(all.iter().all(|(before, _)| *before < shard), "shards are asked in ascending order");
                all.push((shard, id));
                Held::Several(all)
            }
        };
    }
}

impl<W: World> Drop for Locks<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.shared.unlock(&self.held);
    }
}

/// What a write, discard or write-zeroes holds: its range against overlapping ones, and its place in its epoch. Keep it
/// until the failures of the request are recorded. The locks are given back before the epoch is left, so after a drain
/// no older request holds a range. The mail that unlocks at another shard may arrive later. Until then a new lock of
/// the range waits, although no older request is in flight.
#[must_use]
pub(crate) struct WritePermit<'a, W: World> {
    /// Dropped first.
    _locks: Locks<'a, W>,
    _entered: Entered<'a, W>,
}

/// A [`WritePermit`] that a task keeps after the answer.
pub(crate) struct OwnedPermit<W: World> {
    shared: Rc<Shared<W>>,
    held: Held,
    epoch: Epoch,
}

impl<W: World> Drop for OwnedPermit<W> {
    fn drop(&mut self) {
        // In the order of a `WritePermit`.
        self.shared.unlock(&self.held);
        self.shared.epochs.leave(self.epoch);
    }
}

impl<W: World> WritePermit<'_, W> {
    /// The same permit, for a task. `shared` is that of this permit.
    pub(crate) fn into_owned(self, shared: &Rc<Shared<W>>) -> OwnedPermit<W> {
        assert!(std::ptr::eq(self._entered.shared, &raw const **shared), "a permit stays on its shard");
        let WritePermit { _locks: mut locks, _entered: entered } = self;
        let held = std::mem::replace(&mut locks.held, Held::Nothing);
        let epoch = entered.epoch;
        std::mem::forget(entered);
        OwnedPermit { shared: shared.clone(), held, epoch }
    }
}

impl<W: World> Shared<W> {
    #[inline]
    fn unlock(&self, held: &Held) {
        match held {
            Held::Nothing => {}
            Held::One(shard, id) => self.unlock_at(*shard, *id),
            Held::Several(all) => all.iter().for_each(|(shard, id)| self.unlock_at(*shard, *id)),
        }
    }

    /// Waits until every earlier write of this range is on all of its members. Later ones wait until the locks are dropped.
    /// An error: an answered write of it was lost.
    pub(crate) async fn lock_to_read(&self, range: ArrayRange) -> Result<Locks<'_, W>, IoError> {
        assert!(self.locks_copies(), "only copies can be behind");
        mark::hit(Mark::BehindRead);
        let mut locks = Locks { shared: self, held: Held::Nothing };
        self.lock_copies(&mut locks, range).await;
        if self.behind.has_lost_in(range) { Err(ErrorKind::Media.into()) } else { Ok(locks) }
    }

    /// Waits until the view lets a read, or a flush, in.
    #[inline]
    pub(crate) async fn admit_read(&self) -> Result<Entered<'_, W>, IoError> {
        self.enter(Wish::Read).await
    }

    /// Waits until the view lets a write in, its dirty mark is durable, no earlier write that overlaps is in flight, and
    /// the bits of its chunks are durable.
    #[inline]
    pub(crate) async fn admit_write(&self, range: ArrayRange) -> Result<WritePermit<'_, W>, IoError> {
        match self.try_admit_write(range) {
            Some(permit) => Ok(permit),
            // Boxed to keep the request future small.
            None => Box::pin(self.wait_to_write(range)).await,
        }
    }

    /// A permit, if the write has nothing to wait for. Else it has taken nothing.
    #[inline]
    fn try_admit_write(&self, range: ArrayRange) -> Option<WritePermit<'_, W>> {
        let may_go_on =
            |view: &View| view.admit(Wish::Write) == Admission::Enter && self.intent.covers(view.shape.layout(), range);
        if !self.with_view(may_go_on) {
            return None;
        }
        let held = if self.locks_copies() { self.try_lock_copies(range)? } else { Held::Nothing };
        Some(WritePermit { _locks: Locks { shared: self, held }, _entered: self.count_in(Wish::Write) })
    }

    async fn wait_to_write(&self, range: ArrayRange) -> Result<WritePermit<'_, W>, IoError> {
        let entered = self.enter(Wish::Write).await?;
        let mut locks = Locks { shared: self, held: Held::Nothing };
        if self.locks_copies() {
            self.lock_copies(&mut locks, range).await;
        }
        let needed = self.with_view(|view| {
            let layout = view.shape.layout();
            (!self.intent.covers(layout, range)).then(|| self.intent.needed(layout, range))
        });
        if let Some((chunks, round)) = needed {
            self.calls.call(STEWARD, Call::NeedBits(chunks.clone())).await.bits()?;
            self.intent.learn(chunks, round);
        }
        Ok(WritePermit { _locks: locks, _entered: entered })
    }

    /// Lets a window of a pass in, if the gate is open.
    pub(crate) fn admit_pass(&self) -> Option<Entered<'_, W>> {
        let is_open = self.with_view(|view| view.gate == Gate::Open);
        is_open.then(|| Entered { shared: self, epoch: self.epochs.enter() })
    }

    /// Levels with one copy need no order. Rows of parity levels are locked by their owner.
    fn locks_copies(&self) -> bool {
        match self.layout().level() {
            Level::Raid1 | Level::Raid10 => true,
            Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => false,
        }
    }

    /// The lock of a range that this shard alone locks, if it is free.
    #[inline]
    fn try_lock_copies(&self, range: ArrayRange) -> Option<Held> {
        let here = self.world.shard();
        if only_lock_owner(range, self.world.shards()) != Some(here) {
            return None;
        }
        self.locks.try_lock(range.start.0..range.end().0).map(|id| Held::One(here, id))
    }

    async fn lock_copies<'a>(&'a self, locks: &mut Locks<'a, W>, range: ArrayRange) {
        let sectors = range.start.0..range.end().0;
        for owner in lock_owners(range, self.world.shards()) {
            self.lock_at(locks, owner, sectors.clone()).await;
        }
        assert!(!matches!(locks.held, Held::Nothing), "every unit has an owner");
    }

    /// Locks rows at all their owners, in ascending order.
    pub(crate) async fn lock_rows(&self, rows: Range<u64>) -> Locks<'_, W> {
        let mut locks = Locks { shared: self, held: Held::Nothing };
        for owner in self.owners_of(rows.clone()) {
            self.lock_at(&mut locks, owner, rows.clone()).await;
        }
        locks
    }

    async fn lock_at<'a>(&'a self, locks: &mut Locks<'a, W>, owner: ShardIndex, range: Range<u64>) {
        let id = if owner == self.world.shard() {
            self.lock_for_write(range).await
        } else {
            self.calls.call(owner, Call::Lock(range)).await.locked()
        };
        locks.held.add(owner, id);
    }

    #[inline]
    fn unlock_at(&self, shard: ShardIndex, id: LockId) {
        if shard == self.world.shard() {
            self.locks.unlock(id);
        } else {
            assert!(shard.0 < self.world.shards(), "the owner of a unit is a shard of this array");
            self.world.post(shard, Mail(Message::Unlock(id)));
        }
    }

    #[inline]
    async fn enter(&self, wish: Wish) -> Result<Entered<'_, W>, IoError> {
        match self.with_view(|view| view.admit(wish)) {
            Admission::Enter => Ok(self.count_in(wish)),
            // Cold path, boxed to keep the request future small.
            Admission::WaitForGate | Admission::NeedsDirtyMark | Admission::Refused(_) => {
                Box::pin(self.wait_to_enter(wish)).await
            }
        }
    }

    #[inline]
    fn count_in(&self, wish: Wish) -> Entered<'_, W> {
        if wish == Wish::Write {
            self.writes_admitted.set(self.writes_admitted.get() + 1);
        }
        Entered { shared: self, epoch: self.epochs.enter() }
    }

    /// The cold path of `enter`. A write that needs the dirty mark asks the steward for it, outside of any epoch.
    async fn wait_to_enter(&self, wish: Wish) -> Result<Entered<'_, W>, IoError> {
        loop {
            let (admission, seen) = self.with_view(|view| (view.admit(wish), view.epoch));
            match admission {
                Admission::Enter => return Ok(self.count_in(wish)),
                Admission::WaitForGate => {
                    self.view_changed.wait_for(|| self.with_view(|view| view.epoch > seen).then_some(())).await;
                }
                Admission::NeedsDirtyMark => self.calls.call(STEWARD, Call::NeedDirty).await.dirty()?,
                Admission::Refused(error) => return Err(error),
            }
        }
    }
}

/// The shard that locks all of this range; `None` if several shards lock parts of it.
#[inline]
fn only_lock_owner(range: ArrayRange, shards: u16) -> Option<ShardIndex> {
    if shards == 1 {
        return Some(ShardIndex(0));
    }
    assert!(!range.length.is_zero(), "a range has a last sector");
    let first = range.start.0 / UNIT;
    let is_one_unit = (range.end().0 - 1) / UNIT == first;
    is_one_unit.then(|| ShardIndex((first % u64::from(shards)) as u16))
}

/// The shards that lock parts of this range, ascending.
fn lock_owners(range: ArrayRange, shards: u16) -> impl Iterator<Item = ShardIndex> {
    let first = range.start.0 / UNIT;
    let units_more = (range.end().0 - 1) / UNIT - first;
    let owner = (first % u64::from(shards)) as u16;
    // Nearly every range is in one unit, and asks one shard.
    let asked = if units_more == 0 { owner..owner + 1 } else { 0..shards };
    let is_owner = move |shard: &u16| {
        let ahead = if *shard >= owner { *shard - owner } else { *shard + (shards - owner) };
        u64::from(ahead) <= units_more
    };
    asked.filter(is_owner).map(ShardIndex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{ArraySector, Sectors};

    #[test]
    fn each_unit_of_a_range_has_its_owner_among_those_asked() {
        for shards in 1..5u16 {
            for first in 0..9u64 {
                for units in 1..9u64 {
                    let range = ArrayRange::new(ArraySector(first * UNIT + 7), Sectors((units - 1) * UNIT + 1));
                    let asked: Vec<u64> = lock_owners(range, shards).map(|shard| u64::from(shard.0)).collect();
                    let mut expected: Vec<u64> = (first..first + units).map(|unit| unit % u64::from(shards)).collect();
                    expected.sort_unstable();
                    expected.dedup();
                    assert_eq!(asked, expected, "{shards} shards, {units} units from {first}");
                    let only = only_lock_owner(range, shards).map(|shard| vec![u64::from(shard.0)]);
                    assert!(only.is_none_or(|only| only == expected), "{shards} shards, {units} units from {first}");
                }
            }
        }
    }
}
