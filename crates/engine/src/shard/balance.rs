//! Which copy a read takes where all copies are equal.
//! Owns: [`Balance`], one shard's memory of streams and of its reads in flight. Not here: where copies lie (`layout`),
//! copies that may differ (`array`).
//! Invariant: plain cells of one shard, no allocation. The chosen copy is only a preference: the plan takes another
//! copy if that one is not usable.
//!
//! ```text
//!   a read that continues an earlier one    the same copy as that one: a stream stays on its member
//!   any other                               the copy whose member has the fewest reads of this shard in flight;
//!                                           of equal ones, the next in turn
//!   members marked write-mostly             only if no other copy is usable
//!   members that are slow (`read_watch`)          only if none of those above is usable
//! ```

use crate::shard::stream_ends::StreamEnds;
use std::cell::Cell;
use uraid_block::{ArrayRange, Slot, SlotSet};
use uraid_layout::Layout;

/// Chooses copies for one shard's reads.
pub(crate) struct Balance {
    /// The copies that streams of reads take.
    streams: StreamEnds<u16>,
    /// The load of the member in each slot.
    members: Vec<Load>,
    turn: Cell<u16>,
    write_mostly: Cell<SlotSet>,
    /// How many of `members` are slow. Reads of a healthy array check only this number.
    slow: Cell<u16>,
}

/// This shard's reads of one member.
#[derive(Default)]
struct Load {
    /// Low half: reads in flight. High half: reads that have ended.
    reads: Cell<u64>,
    /// The value of `reads` at the last call of [`Balance::look`].
    reads_seen: Cell<u64>,
    is_slow: Cell<bool>,
}

/// Added when a read ends: one less in the low half, one more in the high half.
const ENDED: u64 = (1 << 32) - 1;
const _: () = assert!(1 + ENDED == 1 << 32, "a read that has ended is in the high half alone");

impl Load {
    fn in_flight(&self) -> u32 {
        self.reads.get() as u32
    }
}

/// The result of [`Balance::look`].
pub(crate) struct Look {
    /// The members that had reads in flight at the last call and have ended none since.
    pub(crate) stuck: SlotSet,
    /// Member reads that have ended since the last call.
    pub(crate) ended: u64,
}

/// One read in flight to a member. It is counted until this is dropped.
pub(crate) struct InFlightRead<'a>(&'a Cell<u64>);

impl Drop for InFlightRead<'_> {
    fn drop(&mut self) {
        let reads = self.0.get();
        assert!(reads as u32 > 0, "a read ends once");
        self.0.set(reads.wrapping_add(ENDED));
    }
}

impl Balance {
    /// `first_turn` differs between shards, so that they do not all start with the same member.
    pub(crate) fn new(slots: u16, first_turn: u16) -> Balance {
        Balance {
            streams: StreamEnds::new(),
            members: (0..slots).map(|_| Load::default()).collect(),
            turn: Cell::new(first_turn),
            write_mostly: Cell::new(SlotSet::EMPTY),
            slow: Cell::new(0),
        }
    }

    /// Sets the members that are read only where no other has the sectors.
    pub(crate) fn set_write_mostly(&self, write_mostly: SlotSet) {
        assert!(
            write_mostly.is_within(SlotSet::first(self.members.len() as u16)),
            "a write-mostly member is in a slot"
        );
        self.write_mostly.set(write_mostly);
    }

    /// Counts a read that is submitted to a member now.
    #[inline]
    pub(crate) fn begin(&self, slot: Slot) -> InFlightRead<'_> {
        let reads = &self.members[slot.index()].reads;
        reads.set(reads.get() + 1);
        InFlightRead(reads)
    }

    /// What has happened since the last call.
    pub(crate) fn look(&self) -> Look {
        let mut look = Look { stuck: SlotSet::EMPTY, ended: 0 };
        for (slot, load) in (0..).map(Slot).zip(&self.members) {
            let (now, seen) = (load.reads.get(), load.reads_seen.replace(load.reads.get()));
            // The upper halves wrap around.
            let ended = ((now >> 32) as u32).wrapping_sub((seen >> 32) as u32);
            look.ended += u64::from(ended);
            if now as u32 > 0 && seen as u32 > 0 && ended == 0 {
                look.stuck.insert(slot);
            }
        }
        look
    }

    /// The reads in flight to a member.
    pub(crate) fn in_flight(&self, slot: Slot) -> u32 {
        self.members[slot.index()].in_flight()
    }

    /// Whether reads avoid a member.
    #[inline]
    pub(crate) fn is_slow(&self, slot: Slot) -> bool {
        self.slow.get() > 0 && self.members[slot.index()].is_slow.get()
    }

    /// The members that reads avoid.
    pub(crate) fn slow(&self) -> SlotSet {
        if self.slow.get() == 0 {
            return SlotSet::EMPTY;
        }
        let slow = (0..).map(Slot).zip(&self.members).filter(|(_, load)| load.is_slow.get());
        let slow: SlotSet = slow.map(|(slot, _)| slot).collect();
        assert_eq!(slow.count(), usize::from(self.slow.get()), "the count is that of the slow members");
        slow
    }

    /// Sets whether reads avoid a member when they can. Returns the old value.
    pub(crate) fn set_slow(&self, slot: Slot, is_slow: bool) -> bool {
        let was_slow = self.members[slot.index()].is_slow.replace(is_slow);
        if was_slow {
            assert!(self.slow.get() > 0, "a slow member is counted");
        }
        self.slow.set(self.slow.get() + u16::from(is_slow) - u16::from(was_slow));
        assert!(usize::from(self.slow.get()) <= self.members.len());
        was_slow
    }

    /// The number of the copy to read, for layouts with several.
    #[inline]
    pub(crate) fn choose(&self, layout: &Layout, range: ArrayRange, usable: &SlotSet) -> u16 {
        let slot_of = |copy| layout.slot_of_copy(range.start, copy);
        let before = self.streams.find(range.start).filter(|copy| self.is_wanted(slot_of(*copy), usable));
        let copy = before.unwrap_or_else(|| {
            let turn = self.turn.get();
            self.turn.set(turn.wrapping_add(1));
            least_loaded(layout.copies_count(), turn, |copy| self.load_of(slot_of(copy), usable))
        });
        assert!(copy < layout.copies_count(), "a stream was on a copy of this layout");
        self.streams.store(range.end(), copy);
        copy
    }

    fn is_wanted(&self, slot: Slot, usable: &SlotSet) -> bool {
        usable.contains(slot) && !self.write_mostly.get().contains(slot) && !self.members[slot.index()].is_slow.get()
    }

    /// Smaller is better. Write-mostly members come after all others, slow ones after these, unusable ones last. The
    /// result is one number, because comparing four fields in turn costs a read 20 ns.
    #[inline]
    fn load_of(&self, slot: Slot, usable: &SlotSet) -> u64 {
        let load = &self.members[slot.index()];
        let unusable = u64::from(!usable.contains(slot)) << 34;
        let slow = u64::from(load.is_slow.get()) << 33;
        let write_mostly = u64::from(self.write_mostly.get().contains(slot)) << 32;
        unusable | slow | write_mostly | u64::from(load.in_flight())
    }
}

/// The copy with the least load. Of equal copies, the first from `turn` on, wrapping around.
#[inline]
fn least_loaded(count: u16, turn: u16, load: impl Fn(u16) -> u64) -> u16 {
    assert!(count > 0, "each sector has a copy");
    let first = turn % count;
    let (mut least, mut load_min) = (first, load(first));
    let mut copy = first;
    for _ in 1..count {
        copy = if copy + 1 == count { 0 } else { copy + 1 };
        let load = load(copy);
        if load < load_min {
            (least, load_min) = (copy, load);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{ArraySector, Sectors};
    use uraid_layout::{Level, Spec};

    fn mirror(slots: u16) -> Layout {
        let spec = Spec {
            level: Level::Raid1,
            layout: 0,
            chunk: Sectors::ZERO,
            raid_disks: slots,
            size: Sectors(1 << 20),
            member_sizes: Vec::new(),
        };
        Layout::new(&spec).expect("a mirror")
    }

    fn near(slots: u16) -> Layout {
        let spec = Spec { level: Level::Raid10, layout: 0x102, chunk: Sectors(8), ..mirror(slots).spec().clone() };
        Layout::new(&spec).expect("a raid10")
    }

    fn range(at: u64, length: u64) -> ArrayRange {
        ArrayRange::new(ArraySector(at), Sectors(length))
    }

    fn all(slots: u16) -> SlotSet {
        SlotSet::first(slots)
    }

    #[test]
    fn a_stream_stays_on_its_member_and_another_one_gets_the_other() {
        let (layout, balance, usable) = (mirror(2), Balance::new(2, 0), all(2));
        let first = balance.choose(&layout, range(0, 8), &usable);
        let _in_flight = balance.begin(Slot(first));
        let second = balance.choose(&layout, range(50_000, 8), &usable);
        assert_ne!(first, second);
        let _in_flight_too = balance.begin(Slot(second));
        for step in 1..100 {
            // The other stream has more and more reads in flight, but each stream keeps its copy.
            assert_eq!(balance.choose(&layout, range(step * 8, 8), &usable), first);
            assert_eq!(balance.choose(&layout, range(50_000 + step * 8, 8), &usable), second);
            std::mem::forget(balance.begin(Slot(second)));
        }
    }

    #[test]
    fn forty_streams_are_spread_evenly_and_each_stays() {
        let (layout, balance, usable) = (mirror(2), Balance::new(2, 0), all(2));
        let start = |stream: u64| stream * 20_011;
        let copies: Vec<u16> =
            (0..40).map(|stream| balance.choose(&layout, range(start(stream), 128), &usable)).collect();
        assert_eq!(copies.iter().filter(|&&copy| copy == 0).count(), 20);
        let mut moved = 0;
        let mut at = copies.clone();
        for step in 1..50 {
            for stream in 0..40 {
                let copy = balance.choose(&layout, range(start(stream) + step * 128, 128), &usable);
                moved += u32::from(std::mem::replace(&mut at[stream as usize], copy) != copy);
            }
        }
        // Streams that share a slot of the table overwrite one another, so a few of the 1,960 reads move to the other
        // copy.
        assert!(moved < 1_960 / 5, "{moved}");
    }

    #[test]
    fn a_random_read_goes_to_the_member_with_the_fewest_under_way() {
        let (layout, balance, usable) = (mirror(3), Balance::new(3, 0), all(3));
        let _a = (balance.begin(Slot(0)), balance.begin(Slot(0)));
        let b = balance.begin(Slot(2));
        assert_eq!(balance.choose(&layout, range(100, 8), &usable), 1);
        let _c = (balance.begin(Slot(1)), balance.begin(Slot(1)));
        assert_eq!(balance.choose(&layout, range(300, 8), &usable), 2);
        drop(b);
        assert_eq!(balance.choose(&layout, range(700, 8), &usable), 2);
    }

    #[test]
    fn equals_take_turns() {
        let (layout, balance, usable) = (mirror(3), Balance::new(3, 1), all(3));
        let copies: Vec<u16> = (0..6).map(|n| balance.choose(&layout, range(n * 1000, 8), &usable)).collect();
        assert_eq!(copies, [1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn a_write_mostly_member_is_read_only_where_no_other_is_left() {
        let write_mostly = SlotSet::EMPTY.with(Slot(0));
        let (layout, balance) = (mirror(2), Balance::new(2, 0));
        balance.set_write_mostly(write_mostly);
        let mut usable = all(2);
        let _busy: Vec<_> = (0..5).map(|_| balance.begin(Slot(1))).collect();
        for n in 0..9 {
            assert_eq!(balance.choose(&layout, range(n * 1000, 8), &usable), 1);
        }
        usable.remove(Slot(1));
        assert_eq!(balance.choose(&layout, range(50_000, 8), &usable), 0);
        usable.insert(Slot(1));
        assert_eq!(balance.choose(&layout, range(50_008, 8), &usable), 1, "the stream goes back");
    }

    #[test]
    fn a_member_is_stuck_that_had_reads_at_the_last_look_and_has_ended_none_since() {
        let balance = Balance::new(3, 0);
        let read = balance.begin(Slot(1));
        assert!(balance.look().stuck.is_empty(), "it was not seen before");
        assert_eq!(balance.look().stuck, SlotSet::EMPTY.with(Slot(1)));
        let another = balance.begin(Slot(1));
        assert_eq!(balance.look().stuck, SlotSet::EMPTY.with(Slot(1)), "asked more, answered nothing");
        drop(read);
        assert!(balance.look().stuck.is_empty(), "it answers, though slowly");
        assert_eq!(balance.look().stuck, SlotSet::EMPTY.with(Slot(1)));
        drop(another);
        assert!(balance.look().stuck.is_empty() && balance.look().stuck.is_empty(), "nothing is under way");
        (0..5).for_each(|slot| drop(balance.begin(Slot(slot % 3))));
        let _read = balance.begin(Slot(0));
        assert_eq!((balance.look().ended, balance.look().ended), (5, 0));
    }

    #[test]
    fn a_slow_member_is_read_only_where_no_other_is_left_and_its_streams_leave_it() {
        let (layout, balance, mut usable) = (mirror(2), Balance::new(2, 0), all(2));
        assert_eq!(balance.choose(&layout, range(0, 8), &usable), 0);
        assert!(!balance.set_slow(Slot(0), true));
        let _busy: Vec<_> = (0..5).map(|_| balance.begin(Slot(1))).collect();
        for n in 1..9 {
            assert_eq!(balance.choose(&layout, range(n * 8, 8), &usable), 1);
        }
        usable.remove(Slot(1));
        assert_eq!(balance.choose(&layout, range(5000, 8), &usable), 0);
        usable.insert(Slot(1));
        assert!(balance.set_slow(Slot(0), false));
        assert_eq!(balance.choose(&layout, range(90_000, 8), &usable), 0);
    }

    #[test]
    fn a_stream_leaves_a_member_that_is_not_usable_any_more() {
        let (layout, balance) = (mirror(2), Balance::new(2, 0));
        let mut usable = all(2);
        assert_eq!(balance.choose(&layout, range(0, 8), &usable), 0);
        usable.remove(Slot(0));
        assert_eq!(balance.choose(&layout, range(8, 8), &usable), 1);
    }

    #[test]
    fn copies_of_a_raid10_are_judged_by_the_members_they_lie_on() {
        let (layout, balance, usable) = (near(4), Balance::new(4, 0), all(4));
        let _busy = balance.begin(Slot(2));
        // Chunk 1 of near 2 on four members: its copies are on slots 2 and 3.
        assert_eq!(balance.choose(&layout, range(8, 4), &usable), 1);
        assert_eq!(layout.slot_of_copy(ArraySector(8), 1), Slot(3));
    }
}
