//! Writes of mirrors that overlap take turns, so that every copy sees them in one order.
//! Owns: which write holds which stretch of the array now. Not here: rows of parity levels, which have an owner anyway.
//! Invariant: of two overlapping writes, the second goes to no member before the first is settled on all of them.
//!
//! Without this order, two clients that write one sector at the same time could leave its copies different, and two
//! reads of that sector would disagree for ever (as in md). Each unit of 64 MiB has one shard that keeps its list. A
//! write asks that shard before it is submitted from its own shard. A stretch over several units is held at their
//! shards in ascending order, so there is no deadlock:
//!
//! ```text
//!   shard 0    [w 0..8]  [w 100..108]  [w 4..12 waits for the first]
//!   shard 1    [discard 0..whole array]                    held at shard 0 first, then here
//! ```

use crate::World;
use crate::array::Array;
use crate::mail::Call;
use crate::mark::{self, Mark};
use crate::sabotage::{self, Sabotage};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use uraid_block::local::Notify;
use uraid_block::{ArrayRange, ShardIndex};
use uraid_layout::Level;

/// Sectors of the array whose writes one shard orders: 64 MiB.
const UNIT: u64 = 131_072;

/// One stretch that is held, at one shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HoldId(u64);

/// The stretches held, or waited for, at this shard, in the order of the calls.
#[derive(Default)]
pub(crate) struct Holds {
    list: RefCell<Vec<(HoldId, ArrayRange)>>,
    next: Cell<u64>,
    freed: Notify,
}

/// The holds of one write, given back by [`Array::release`].
pub(crate) type Held = SmallVec<[(ShardIndex, HoldId); 1]>;

impl Holds {
    /// Waits until no earlier overlapping stretch is held here.
    pub(crate) async fn hold(&self, range: ArrayRange) -> HoldId {
        let id = HoldId(self.next.get());
        self.next.set(id.0 + 1);
        self.list.borrow_mut().push((id, range));
        if !self.is_first(id, range) {
            mark::hit(Mark::HoldWaited);
        }
        self.freed.wait_for(|| self.is_first(id, range).then_some(())).await;
        id
    }

    fn is_first(&self, id: HoldId, range: ArrayRange) -> bool {
        let list = self.list.borrow();
        !list.iter().take_while(|(other, _)| *other != id).any(|(_, earlier)| earlier.overlaps(range))
    }

    /// Wakes the next overlapping write of this shard.
    pub(crate) fn release(&self, id: HoldId) {
        let mut list = self.list.borrow_mut();
        let at = list.iter().position(|(held, _)| *held == id).expect("a stretch is released once");
        list.remove(at);
        drop(list);
        self.freed.notify_all();
    }
}

impl<W: World> Array<W> {
    /// Waits until no earlier write that overlaps is in flight. Levels with one copy need no order and hold nothing.
    pub(crate) async fn hold(&self, range: ArrayRange) -> Held {
        let mut held = Held::new();
        match self.shape.layout.level() {
            Level::Raid1 | Level::Raid10 => {}
            Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => return held,
        }
        if sabotage::is(Sabotage::SkipHold) {
            return held;
        }
        for shard in keepers(range, self.world.shards()) {
            let id = if shard == self.world.shard() {
                self.holds.hold(range).await
            } else {
                self.call(shard, Call::Hold(range)).await.held()
            };
            held.push((shard, id));
        }
        held
    }

    /// Releases a stretch, so that the next overlapping write runs. Every `hold` needs its `release`: see the note at
    /// `impl Device for Array`.
    pub(crate) fn release(&self, held: Held) {
        for (shard, id) in held {
            if shard == self.world.shard() {
                self.holds.release(id);
            } else {
                drop(self.start_call(shard, Call::Release(id)));
            }
        }
    }
}

/// The shards that order writes of this range, ascending.
fn keepers(range: ArrayRange, shards: u16) -> impl Iterator<Item = ShardIndex> {
    let first = range.start.0 / UNIT;
    let last = (range.end().0 - 1) / UNIT;
    let all = last - first + 1 >= u64::from(shards);
    let is_keeper = move |shard: u16| {
        let ahead = (u64::from(shard) + u64::from(shards) - first % u64::from(shards)) % u64::from(shards);
        all || ahead <= last - first
    };
    (0..shards).filter(move |shard| is_keeper(*shard)).map(ShardIndex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{ArraySector, Sectors};

    #[test]
    fn each_unit_of_a_range_has_its_keeper_among_those_asked() {
        for shards in 1..5u16 {
            for first in 0..9u64 {
                for units in 1..9u64 {
                    let range = ArrayRange::new(ArraySector(first * UNIT + 7), Sectors((units - 1) * UNIT + 1));
                    let asked: Vec<u64> = keepers(range, shards).map(|shard| u64::from(shard.0)).collect();
                    let mut expected: Vec<u64> = (first..first + units).map(|unit| unit % u64::from(shards)).collect();
                    expected.sort_unstable();
                    expected.dedup();
                    assert_eq!(asked, expected, "{shards} shards, {units} units from {first}");
                }
            }
        }
    }
}
