//! Write-behind: writes of a raid1 that are answered before its write-mostly members have them.
//! Owns: [`Behind`], one shard's writes that are behind, how many may be. Not here: what becomes of one that fails
//! (`behind_place`), which members may be behind (`master::behind`), the write itself (`mirror`), its lock (`permit`).
//! Invariant: a write that is behind keeps its permit: its place in its epoch and the lock on its range. So a drain waits
//! for it, and no bit is cleared, no superblock says clean and no later write of its sectors begins before it has ended.
//!
//! ```text
//!   write    members in time   ========| answered
//!            write-mostly      ====================|        from a copy of the data
//!            permit            --------------------|
//!   read of a write-mostly member, same sectors    |=====
//!   flush, asked for after the answer              |=====   of all members
//! ```
//!
//! Order and reasons: docs/decisions/0020-write-behind.md.

use crate::words::mark::{self, Mark};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use uraid_block::local::Notify;
use uraid_block::{ArrayRange, Sectors};

/// A longer write is not behind, as with md: 1 MiB.
const LENGTH_MAX: Sectors = Sectors(2048);
/// Sectors of all copies of data that one shard holds for writes that are behind: 16 MiB.
const HELD_MAX: Sectors = Sectors(16 * 2048);
const _: () = assert!(LENGTH_MAX.0 <= HELD_MAX.0);

/// The writes of one shard that are behind.
pub(crate) struct Behind {
    /// Their lengths, by the order in which they took their place.
    outstanding: RefCell<BTreeMap<u64, Sectors>>,
    next: Cell<u64>,
    held: Cell<Sectors>,
    ended: Notify,
    /// Answered writes that no member of the array has any more.
    lost: RefCell<Vec<ArrayRange>>,
    /// Answered writes that a member lacks, and no superblock says so: the array froze.
    unrecorded: Cell<u64>,
}

impl Behind {
    pub(crate) fn new() -> Behind {
        Behind {
            outstanding: RefCell::default(),
            next: Cell::new(0),
            held: Cell::new(Sectors::ZERO),
            ended: Notify::new(),
            lost: RefCell::default(),
            unrecorded: Cell::new(0),
        }
    }

    /// Takes a place for a write of this length: its number. `None` if it is too long, if as many `places` are taken
    /// already, or if its copy would be more than this shard may hold.
    pub(crate) fn take(&self, length: Sectors, places: usize) -> Option<u64> {
        if length > LENGTH_MAX {
            return None;
        }
        let held = self.held.get() + length;
        if self.outstanding.borrow().len() >= places || held > HELD_MAX {
            mark::hit(Mark::BehindFull);
            return None;
        }
        let number = self.next.replace(self.next.get() + 1);
        self.outstanding.borrow_mut().insert(number, length);
        self.held.set(held);
        Some(number)
    }

    pub(crate) fn give_back(&self, number: u64) {
        let length = self.outstanding.borrow_mut().remove(&number).expect("a place is given back once");
        self.held.set(self.held.get() - length);
        self.ended.notify_all();
    }

    /// Waits until every write of this shard that is behind now has ended, and its failure is recorded, or the array has
    /// frozen. Returns how many answered writes a member lacks without a record.
    pub(crate) async fn over(&self) -> u64 {
        let begun = self.next.get();
        let is_later = |first: Option<u64>| first.is_none_or(|first| first >= begun);
        let first = || self.outstanding.borrow().first_key_value().map(|(number, _)| *number);
        self.ended.wait_for(|| is_later(first()).then_some(())).await;
        self.unrecorded.get()
    }

    /// A member lacks an answered write, and no superblock says so.
    pub(crate) fn note_unrecorded(&self) {
        self.unrecorded.set(self.unrecorded.get() + 1);
    }

    /// The array takes writes again: the freeze's half-done writes are made good or recorded.
    pub(crate) fn made_good(&self) {
        self.unrecorded.set(0);
    }

    /// Notes that no member has an answered write.
    pub(crate) fn lose(&self, range: ArrayRange) {
        assert!(!range.length.is_zero(), "a write is of some sector");
        self.lost.borrow_mut().push(range);
    }

    /// Whether an answered write of these sectors was lost.
    pub(crate) fn has_lost_in(&self, range: ArrayRange) -> bool {
        let meets = |lost: &ArrayRange| lost.start < range.end() && range.start < lost.end();
        self.lost.borrow().iter().any(meets)
    }

    /// Whether an answered write was lost: no flush may succeed.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.borrow().is_empty()
    }
}

/// How many of `all` writes one shard may have behind.
pub(crate) fn share(all: u32, shard: u16, shards: u16) -> usize {
    assert!(shard < shards, "a shard of the array");
    let (each, more) = (all / u32::from(shards), all % u32::from(shards));
    each as usize + usize::from(u32::from(shard) < more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_shards_are_all_that_may_be_behind() {
        for (all, shards) in [(1, 1), (1, 4), (256, 3), (16_383, 7), (5, 5)] {
            let shares: Vec<usize> = (0..shards).map(|shard| share(all, shard, shards)).collect();
            assert_eq!(shares.iter().sum::<usize>(), all as usize);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
    }

    const LONGEST: u64 = LENGTH_MAX.0;

    /// Writes of these lengths, one after the other. Returns the number of each that got a place.
    fn taken(behind: &Behind, lengths: &[u64], places: usize) -> Vec<Option<u64>> {
        lengths.iter().map(|length| behind.take(Sectors(*length), places)).collect()
    }

    #[test]
    fn a_write_has_a_place_up_to_each_bound_and_none_beyond_it() {
        assert_eq!((LONGEST, HELD_MAX.0), (2048, 16 * LONGEST), "the cases below count on it");
        let almost_full = [&[LONGEST; 15][..], &[LONGEST - 2]].concat();
        for (earlier, length, places, expected) in [
            (&[][..], 1, 0, false),
            (&[], 1, 1, true),
            (&[1], 1, 1, false),
            (&[1; 3], 1, 5, true),
            (&[1; 4], 1, 5, true),
            (&[1; 5], 1, 5, false),
            (&[1; 5], LONGEST, 5, false),
            (&[], LONGEST - 1, 99, true),
            (&[], LONGEST, 99, true),
            (&[], LONGEST + 1, 99, false),
            (&[LONGEST; 15], LONGEST, 99, true),
            (&[LONGEST; 16], 1, 99, false),
            (&almost_full, 1, 99, true),
            (&almost_full, 2, 99, true),
            (&almost_full, 3, 99, false),
        ] {
            let behind = Behind::new();
            assert!(taken(&behind, earlier, places).iter().all(Option::is_some), "{earlier:?}");
            let (writes, held) = (earlier.len(), Sectors(earlier.iter().sum()));
            let is_taken = behind.take(Sectors(length), places).is_some();
            assert_eq!(is_taken, expected, "{length} sectors, {writes} of {places} places and {held:?} taken");
            let (more, longer) = if is_taken { (1, Sectors(length)) } else { (0, Sectors::ZERO) };
            assert_eq!(behind.outstanding.borrow().len(), writes + more, "a refusal takes nothing");
            assert_eq!(behind.held.get(), held + longer, "a refusal takes nothing");
        }
    }

    /// A member that hangs again and again: what it has ended is free, in whichever order it ended it.
    #[test]
    fn what_has_ended_has_given_back_its_place_and_its_memory() {
        let behind = Behind::new();
        for round in 0..50 {
            let lengths: Vec<u64> = (0..17).map(|at| if at < 15 { LONGEST } else { LONGEST / 2 }).collect();
            let numbers = taken(&behind, &lengths, 17);
            assert!(numbers.iter().all(Option::is_some) && behind.held.get() == HELD_MAX, "round {round}");
            assert_eq!(behind.take(Sectors(1), 99), None, "round {round}: no memory");
            let first = round % numbers.len();
            let (later, earlier) = (&numbers[first..], &numbers[..first]);
            later.iter().chain(earlier).flatten().for_each(|number| behind.give_back(*number));
            assert_eq!((behind.held.get(), behind.outstanding.borrow().len()), (Sectors::ZERO, 0), "round {round}");
        }
    }

    #[test]
    fn exactly_the_sectors_of_lost_writes_are_lost() {
        let range = |start: u64, end: u64| ArrayRange::new(uraid_block::ArraySector(start), Sectors(end - start));
        let ranges = || (0..8).flat_map(|start| (start + 1..=8).map(move |end| (start, end)));
        for (start, end) in ranges() {
            let behind = Behind::new();
            assert!(!behind.has_lost() && !behind.has_lost_in(range(0, 8)));
            behind.lose(range(start, end));
            for (first, last) in ranges() {
                let has_one = (first..last).any(|sector| (start..end).contains(&sector));
                assert_eq!(behind.has_lost_in(range(first, last)), has_one, "{start}..{end}, asked {first}..{last}");
            }
        }
    }
}
