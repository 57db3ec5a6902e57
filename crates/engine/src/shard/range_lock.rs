//! Locks on ranges. If two locks overlap, the later one is granted only after the earlier one is unlocked.
//! Owns: [`RangeLock`], the locks of one shard. Not here: which ranges are locked, and on which shard (`permit`, `row`).
//! Invariant: a lock is granted when no earlier lock that overlaps it is held or waits. Locks that do not overlap never
//! wait for one another.
//!
//! Most locks overlap no other lock. To find that out without a search, each block of a range is hashed to one of 1024
//! places, and each place counts the locks that have a block there. Ranges that overlap have a block in common. So a
//! range whose counts were all zero overlaps no other:
//!
//! ```text
//!   lock 100..108   block 0, place 7     counts[7] was 0: granted without a search
//!   lock 104..112   block 0, place 7     counts[7] was 1: the list is searched: it overlaps 100..108, and waits
//!   lock 64..72     block 0, place 7     counts[7] was 2: the list is searched: no overlap, granted
//! ```

use crate::words::mark::{self, Mark};
use std::cell::RefCell;
use std::ops::Range;
use std::task::{Poll, Waker};

/// How many counts there are.
const PLACES: usize = 1024;
/// A range of more blocks is not counted by its blocks. While such a lock exists, all other locks search the list.
const BLOCKS_MAX: u64 = 16;

/// One lock, at the shard that granted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockId(u32);

/// A lock that is held or waits.
struct Entry {
    range: Range<u64>,
    /// The order of the calls. 0: this entry is free.
    turn: u64,
    waker: Option<Waker>,
}

struct Entries {
    /// In no order; a lock's id is its place here.
    list: Vec<Entry>,
    free: Vec<u32>,
    /// For each hash, the number of locks that have a block with this hash.
    counts: Box<[u32; PLACES]>,
    /// Locks that are too long to be counted by their blocks.
    long: usize,
    waiting: usize,
    next_turn: u64,
}

/// The range locks of one shard.
pub(crate) struct RangeLock {
    /// A block is 2 to this power units long.
    block_bits: u32,
    /// Hit by a call that waits.
    waited: Mark,
    entries: RefCell<Entries>,
}

/// A lock that this shard granted to itself. Dropping it unlocks.
pub(crate) struct RangeGuard<'a> {
    locks: &'a RangeLock,
    id: LockId,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.unlock(self.id);
    }
}

/// A call of [`RangeLock::lock`] that was not granted yet. If it is dropped, it loses its turn.
struct Waiting<'a> {
    locks: &'a RangeLock,
    id: LockId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.locks.entries.borrow_mut().waiting -= 1;
        self.locks.unlock(self.id);
    }
}

impl RangeLock {
    /// Ranges of most locks should have one or two blocks of `2^block_bits` units.
    pub(crate) fn new(block_bits: u32, waited: Mark) -> RangeLock {
        let counts = Box::new([0; PLACES]);
        let entries = Entries { list: Vec::new(), free: Vec::new(), counts, long: 0, waiting: 0, next_turn: 1 };
        RangeLock { block_bits, waited, entries: RefCell::new(entries) }
    }

    /// Waits until no earlier lock overlaps. The caller must [`RangeLock::unlock`] it.
    #[inline]
    pub(crate) async fn lock(&self, range: Range<u64>) -> LockId {
        let (id, is_granted) = self.entries.borrow_mut().add(range, self.block_bits);
        if !is_granted {
            self.wait(id).await;
        }
        id
    }

    /// Locks the range if it overlaps no lock that is held or waits. Otherwise changes nothing.
    #[inline]
    pub(crate) fn try_lock(&self, range: Range<u64>) -> Option<LockId> {
        let mut entries = self.entries.borrow_mut();
        let (id, is_granted) = entries.add(range, self.block_bits);
        if !is_granted {
            // No other lock waits for this one, because it was added last.
            entries.remove(id, self.block_bits);
            return None;
        }
        Some(id)
    }

    /// [`RangeLock::lock`] for a lock that does not leave this shard.
    #[inline]
    pub(crate) async fn guard(&self, range: Range<u64>) -> RangeGuard<'_> {
        RangeGuard { locks: self, id: self.lock(range).await }
    }

    #[cold]
    async fn wait(&self, id: LockId) {
        mark::hit(self.waited);
        let waiting = Waiting { locks: self, id };
        self.entries.borrow_mut().waiting += 1;
        std::future::poll_fn(|context| {
            let mut entries = self.entries.borrow_mut();
            if entries.is_first(id) {
                return Poll::Ready(());
            }
            let waker = &mut entries.list[id.0 as usize].waker;
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
        std::mem::forget(waiting);
        let mut entries = self.entries.borrow_mut();
        assert!(entries.waiting > 0, "this call was counted");
        entries.waiting -= 1;
        entries.list[id.0 as usize].waker = None;
    }

    /// Unlocks, and wakes the tasks whose turn it is now.
    #[inline]
    pub(crate) fn unlock(&self, id: LockId) {
        let mut entries = self.entries.borrow_mut();
        let range = entries.remove(id, self.block_bits);
        if entries.waiting > 0 {
            let woken = entries.next_after(&range);
            drop(entries);
            woken.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether a call waits for its turn.
    #[cfg(test)]
    fn is_contended(&self) -> bool {
        self.entries.borrow().waiting > 0
    }
}

impl Entries {
    /// Adds a lock. Returns whether it is granted.
    #[inline]
    fn add(&mut self, range: Range<u64>, block_bits: u32) -> (LockId, bool) {
        assert!(range.start < range.end, "a lock is on something");
        let is_alone = self.count_in(&range, block_bits);
        let turn = self.next_turn;
        self.next_turn += 1;
        let id = match self.free.pop() {
            Some(free) => {
                let place = &mut self.list[free as usize];
                assert!(place.turn == 0 && place.waker.is_none(), "a free entry is no lock");
                (place.range, place.turn) = (range, turn);
                LockId(free)
            }
            None => {
                self.list.push(Entry { range, turn, waker: None });
                LockId((self.list.len() - 1) as u32)
            }
        };
        (id, is_alone || self.is_first(id))
    }

    /// Counts a range by its blocks. Returns whether it certainly overlaps no other.
    #[inline]
    fn count_in(&mut self, range: &Range<u64>, block_bits: u32) -> bool {
        let Some(blocks) = blocks_of(range, block_bits) else {
            self.long += 1;
            return self.list.len() == self.free.len();
        };
        let mut is_alone = self.long == 0;
        for block in blocks {
            let count = &mut self.counts[place_of(block)];
            is_alone &= *count == 0;
            *count += 1;
        }
        is_alone
    }

    #[inline]
    fn remove(&mut self, id: LockId, block_bits: u32) -> Range<u64> {
        let entry = &mut self.list[id.0 as usize];
        assert!(entry.turn > 0, "a lock is unlocked once");
        entry.turn = 0;
        entry.waker = None;
        let range = entry.range.clone();
        self.free.push(id.0);
        match blocks_of(&range, block_bits) {
            None => self.long -= 1,
            Some(blocks) => blocks.for_each(|block| self.counts[place_of(block)] -= 1),
        }
        range
    }

    /// Whether no earlier lock overlaps this one.
    fn is_first(&self, id: LockId) -> bool {
        let Entry { range, turn, .. } = &self.list[id.0 as usize];
        assert!(*turn > 0, "a free entry has no turn");
        !self.list.iter().any(|other| other.turn > 0 && other.turn < *turn && overlaps(&other.range, range))
    }

    /// The wakers of locks that waited for `range`, and wait for nothing now.
    fn next_after(&mut self, range: &Range<u64>) -> Vec<Waker> {
        assert!(self.waiting > 0, "the caller has looked");
        let waits = |entry: &Entry| entry.turn > 0 && entry.waker.is_some() && overlaps(&entry.range, range);
        let waiting: Vec<usize> = (0..self.list.len()).filter(|&at| waits(&self.list[at])).collect();
        let next = waiting.into_iter().filter(|&at| self.is_first(LockId(at as u32))).collect::<Vec<usize>>();
        next.into_iter().filter_map(|at| self.list[at].waker.take()).collect()
    }
}

/// The blocks of a range, or `None` if there are more than [`BLOCKS_MAX`].
#[inline]
fn blocks_of(range: &Range<u64>, block_bits: u32) -> Option<Range<u64>> {
    let blocks = range.start >> block_bits..((range.end - 1) >> block_bits) + 1;
    (blocks.end - blocks.start <= BLOCKS_MAX).then_some(blocks)
}

#[inline]
fn place_of(block: u64) -> usize {
    crate::shard::stream_ends::hash_index(block, PLACES)
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::Context;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn overlapping_locks_take_turns_in_order_and_others_do_not_wait() {
        let locks = RangeLock::new(7, Mark::LockWaited);
        let first = poll(pin!(locks.lock(100..108))).expect("nothing is locked");
        let (mut second, mut third) = (pin!(locks.lock(104..112)), pin!(locks.lock(100..104)));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        let beside = poll(pin!(locks.lock(64..72))).expect("same block, no overlap");
        let mut long = pin!(locks.lock(0..1 << 20));
        assert!(poll(long.as_mut()).is_none(), "it overlaps all of them");
        let mut after_long = pin!(locks.lock(1 << 19..(1 << 19) + 8));
        assert!(poll(after_long.as_mut()).is_none(), "an earlier lock waits for this range");
        locks.unlock(first);
        let second = poll(second.as_mut()).expect("its turn");
        let third = poll(third.as_mut()).expect("the second one does not overlap it");
        for id in [second, third] {
            assert!(poll(long.as_mut()).is_none());
            locks.unlock(id);
        }
        locks.unlock(beside);
        let long = poll(long.as_mut()).expect("it is alone");
        locks.unlock(long);
        let last = poll(after_long.as_mut()).expect("its turn");
        locks.unlock(last);
        assert!(!locks.is_contended());
        assert!(locks.entries.borrow().counts.iter().all(|count| *count == 0));
        assert_eq!(locks.entries.borrow().long, 0);
    }

    #[test]
    fn a_try_takes_what_is_free_and_leaves_nothing_behind_where_it_fails() {
        let locks = RangeLock::new(7, Mark::LockWaited);
        let first = locks.try_lock(100..108).expect("nothing is locked");
        assert_eq!(locks.try_lock(104..112), None);
        let beside = locks.try_lock(108..112).expect("the try that failed locks nothing");
        let mut waits = pin!(locks.lock(96..104));
        assert!(poll(waits.as_mut()).is_none());
        assert_eq!(locks.try_lock(96..100), None, "a lock that waits comes first");
        locks.unlock(beside);
        locks.unlock(first);
        let waited = poll(waits.as_mut()).expect("its turn");
        locks.unlock(waited);
        assert!(locks.entries.borrow().counts.iter().all(|count| *count == 0));
    }

    #[test]
    fn a_call_that_is_dropped_gives_up_its_turn() {
        let locks = RangeLock::new(0, Mark::LockWaited);
        let first = poll(pin!(locks.lock(5..6))).expect("nothing is locked");
        {
            let mut dropped = pin!(locks.lock(5..7));
            assert!(poll(dropped.as_mut()).is_none() && locks.is_contended());
        }
        assert!(!locks.is_contended());
        let beside = poll(pin!(locks.lock(6..7))).expect("the dropped call locks nothing");
        locks.unlock(first);
        locks.unlock(beside);
    }

    #[test]
    fn more_locks_than_16_bits_count_wait_for_one_block() {
        let locks = RangeLock::new(7, Mark::LockWaited);
        let mut entries = locks.entries.borrow_mut();
        let first = entries.add(0..8, 7);
        assert!(first.1);
        for _ in 0..70_000 {
            assert!(!entries.add(0..8, 7).1, "the first one is held");
        }
    }

    /// Every order of up to five locks and unlocks on ranges of a tiny space, against a list that is searched in order.
    #[test]
    fn it_grants_what_an_ordered_list_grants() {
        let ranges: Vec<Range<u64>> = vec![0..2, 1..3, 2..4, 0..40, 3..4];
        for order in 0..5u64.pow(4) {
            let picked: Vec<Range<u64>> =
                (0..4).map(|at| ranges[(order / 5u64.pow(at) % 5) as usize].clone()).collect();
            let locks = RangeLock::new(1, Mark::LockWaited);
            let mut entries = locks.entries.borrow_mut();
            let ids: Vec<(LockId, bool)> = picked.iter().map(|range| entries.add(range.clone(), 1)).collect();
            for (at, (id, is_granted)) in ids.iter().enumerate() {
                let is_first = !picked[..at].iter().any(|earlier| overlaps(earlier, &picked[at]));
                assert_eq!(*is_granted, is_first, "{picked:?}");
                assert_eq!(entries.is_first(*id), is_first);
            }
            let mut left: Vec<usize> = (0..4).collect();
            while !left.is_empty() {
                let gone = left.remove((order as usize) % left.len());
                entries.remove(ids[gone].0, 1);
                for (place, &at) in left.iter().enumerate() {
                    let is_first = !left[..place].iter().any(|&earlier| overlaps(&picked[earlier], &picked[at]));
                    assert_eq!(entries.is_first(ids[at].0), is_first);
                }
            }
        }
    }
}
