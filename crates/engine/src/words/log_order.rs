//! The order in which the sectors of a bad-block log change, so that no power cut forgets an entry.
//! Owns: the pages to write one after the other. Not here: the bytes of a page (`uraid_format::bad_blocks`), which lists
//! (`master::bad_blocks`), writing (`recorder`).
//! Invariant: between two pages, one sector of 512 bytes differs. With every page, what both lists name is named, and
//! nothing that neither names.
//!
//! A log is one page of ascending entries. Where entries come or go, those behind them move, also to another sector. Power
//! may fail with any sectors of a page written, so an entry must reach its new sector before it leaves the old one:
//!
//! ```text
//!   entries move to the right: the right sector first      entries move to the left: the left sector first
//!     old   [ b c d ][ e f . ]                               old   [ a b c ][ d e . ]
//!           [ b c d ][ d e f ]   d is named twice                  [ b c d ][ d e . ]   d is named twice
//!     new   [ a b c ][ d e f ]                               new   [ b c d ][ e . . ]
//! ```
//!
//! Each boundary between two sectors says which of them is first, so there is always an order that suits all.

use std::ops::Range;
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_format::bad_blocks::{BadBlockLog, BadRange};

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 8;

const ENTRIES_OF_SECTOR: usize = SECTOR_BYTES / ENTRY_BYTES;

/// The pages that make `new` of the log `old`, in their order. Both fit in the room. `old` is ascending, as everybody writes
/// it: of another one, a power cut may forget entries.
pub(crate) fn pages(old: &BadBlockLog, new: &BadBlockLog, room: Sectors) -> Vec<Vec<u8>> {
    let (mut page, last) = (page(old, room), page(new, room));
    let mut pages = Vec::new();
    for sector in order(&old.ranges, &new.ranges, ENTRIES_OF_SECTOR, room.0 as usize) {
        let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        if page[bytes.clone()] != last[bytes.clone()] {
            page[bytes.clone()].copy_from_slice(&last[bytes]);
            pages.push(page.clone());
        }
    }
    assert!(page == last, "every sector has its turn");
    pages
}

fn page(log: &BadBlockLog, room: Sectors) -> Vec<u8> {
    let all = log.encode().expect("what has room can be encoded");
    assert!(log.ranges.len() * ENTRY_BYTES <= room.len_bytes() && room.len_bytes() <= all.len());
    all[..room.len_bytes()].to_vec()
}

/// All sectors of the log, in the order in which they may be written.
fn order(old: &[BadRange], new: &[BadRange], of_sector: usize, sectors: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut done = 0;
    while done < sectors {
        // Each sector of these is written after the one to its right.
        let moves_right = |sector: &usize| *sector < sectors && is_right_first(old, new, sector * of_sector);
        let end = (done + 1..).find(|sector| !moves_right(sector)).expect("it ends with the log");
        let run: Range<usize> = done..end;
        order.extend(run.rev());
        done = end;
    }
    assert_eq!(order.len(), sectors, "every sector has its turn");
    order
}

/// Whether what stands behind the first `count` entries is written before these. It is if the new ones of these do not reach
/// as far as the old ones. A list that has no more entries reaches to the end: what is behind its end mark is not read.
fn is_right_first(old: &[BadRange], new: &[BadRange], count: usize) -> bool {
    let reach = |list: &[BadRange]| {
        let last = if count < list.len() { list[..count].last() } else { None };
        last.map_or(u64::MAX, |last| last.start.0 + last.length.0)
    };
    reach(old) > reach(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::bad_blocks::BadBlockList;
    use uraid_block::Sector;

    const ALL: u64 = 9;

    /// The sectors whose bit is set, as entries of at most `longest` sectors.
    fn entries(bits: u64, longest: u64) -> Vec<BadRange> {
        let mut list: Vec<BadRange> = Vec::new();
        for at in (0..ALL).filter(|at| bits & 1 << at != 0) {
            match list.last_mut() {
                Some(last) if last.start.0 + last.length.0 == at && last.length.0 < longest => last.length.0 += 1,
                Some(_) | None => list.push(BadRange { start: Sector(at), length: Sectors(1) }),
            }
        }
        list
    }

    /// What a reader of the log finds in it, as bits.
    fn found(log: &[Option<BadRange>]) -> u64 {
        let named = log.iter().map_while(|entry| entry.as_ref());
        named.flat_map(|entry| entry.start.0..entry.start.0 + entry.length.0).fold(0, |bits, at| bits | 1 << at)
    }

    #[test]
    fn whatever_was_written_what_both_lists_name_is_named() {
        let mut orders = std::collections::BTreeSet::new();
        for (of_sector, sectors) in [(1, 5), (2, 3), (3, 2)] {
            let slots = of_sector * sectors;
            // The old list is perhaps cut into other entries, by md.
            for (before, after, longest) in (0..1 << ALL)
                .flat_map(|before| (0..1 << ALL).map(move |after| (before, after)))
                .flat_map(|(before, after)| [1, 2, 4].map(|longest| (before, after, longest)))
            {
                let (old, new) = (entries(before, longest), entries(after, 2));
                if old.len() > slots || new.len() > slots {
                    continue;
                }
                let mut log: Vec<Option<BadRange>> = (0..slots).map(|slot| old.get(slot).copied()).collect();
                let order = order(&old, &new, of_sector, sectors);
                for sector in &order {
                    let slots = log.iter_mut().enumerate().skip(sector * of_sector).take(of_sector);
                    slots.for_each(|(slot, entry)| *entry = new.get(slot).copied());
                    let found = found(&log);
                    assert_eq!(before & after & !found, 0, "forgotten: {before:b} to {after:b}, {order:?}");
                    assert_eq!(found & !(before | after), 0, "{before:b} to {after:b}, {order:?}");
                }
                assert_eq!(found(&log), after, "{before:b} to {after:b}, {order:?}");
                orders.insert(order);
            }
        }
        assert!(orders.len() > 12, "too few orders to mean anything: {orders:?}");
    }

    #[test]
    fn each_page_changes_one_sector_and_what_does_not_change_is_not_written() {
        let list = |sectors: Range<u64>| -> BadBlockList {
            sectors.map(|n| uraid_block::Range::new(Sector(100 + 2 * n), Sectors(1))).collect()
        };
        let (few, many) = (list(0..64).log(), list(0..512).log());
        let empty = BadBlockList::default().log();
        for (old, new, count) in [
            (&few, &many, 7),
            (&many, &few, 7),
            (&list(1..64).log(), &few, 1),
            (&list(1..65).log(), &list(0..65).log(), 2),
            (&list(1..512).log(), &many, 8),
            (&many, &empty, 8),
            (&empty, &few, 1),
        ] {
            let room = Sectors(8);
            let pages = pages(old, new, room);
            assert_eq!(pages.len(), count);
            let mut before = page(old, room);
            for page in &pages {
                let sectors = page.chunks(SECTOR_BYTES).zip(before.chunks(SECTOR_BYTES));
                assert_eq!(sectors.filter(|(one, other)| one != other).count(), 1);
                before.clone_from(page);
            }
            assert_eq!(BadBlockLog::parse(&before, 0).as_ref(), Ok(new));
        }
    }
}
