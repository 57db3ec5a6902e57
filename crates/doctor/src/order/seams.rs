//! Seams: at the end of a chunk, which member continues the data?
//! Owns: the continuation at a seam, the votes, counting a candidate's agreement. Not here: counting strings
//! (`counts`).
//! Invariant: a vote needs one continuation that is clearly better than all others; random bytes give none.
//!
//! ```text
//!  raid0, chunks of text         row 0                     row 1
//!     a   "...two members may |    b  "be lost, and all... |   c  "...
//!  At the end of a's chunk in row 0, all chunks of rows 0, 1 and 2 on every member are scored as its continuation: b's
//!  of row 0 gets +11 bits ("ay b", "y be" occur elsewhere), the next best +1: a vote that b's chunk of row 0 follows.
//!  The order a b c agrees with it, c b a does not. 60 votes of 60 for a b c, 11 for b c a, which has them at other rows.
//! ```
//! The middle of a chunk is checked too: if another member continues the data there, the chunk is too large. Tables
//! count: if three records before the seam count in equal steps, the record after it must continue the count.
//! Compressed and encrypted data, zeroes and copies of one sector fit every continuation equally well: no vote.

use crate::order::bench::{Assumed, Bench};
use crate::order::counts::Counts;
use crate::order::ranking::Tally;
use crate::order::rows::chunks_of_row;
use std::collections::{BTreeMap, BTreeSet};
use uraid_block::{ArraySector, MemberSector, SECTOR_BYTES, Sector, Sectors, Slot};
use uraid_layout::{Layout, Level};

/// The least score of the best continuation, and its least lead over the next, in bits.
const BITS_MIN: f64 = 4.0;
/// The score of a continued count.
const COUNT_BITS: f64 = 16.0;
/// Lengths of records in tables; all of them divide a sector.
const RECORDS: [usize; 5] = [8, 16, 32, 64, 128];

type Bytes = [u8; SECTOR_BYTES];

/// The place of a sector: the member, and the sector on it.
type Place = (usize, Sector);

/// The continuation of a sector, by its bytes.
pub(crate) struct Vote {
    /// The last sector before the seam.
    tail: Place,
    /// The sectors, equal to each other, that continue it best.
    heads: Vec<Place>,
}

/// What follows the last sector of a slot's chunk, by the slot and the sector after that chunk.
pub(crate) type Next = BTreeMap<(Slot, MemberSector), (Slot, MemberSector)>;

/// A geometry without its order: votes depend on nothing else.
pub(crate) struct Grid<'a> {
    pub(crate) level: Level,
    pub(crate) data_offset: Sector,
    pub(crate) chunk: Sectors,
    pub(crate) members: usize,
    /// The data area of each member. For linear.
    pub(crate) sizes: &'a [Sectors],
}

/// The votes at the chunks that hold these places.
pub(crate) fn votes(bench: &mut Bench<'_>, counts: &Counts, grid: &Grid<'_>, places: &[Sector]) -> Vec<Vote> {
    let all = 0..grid.members;
    let mut votes = Vec::new();
    let mut ask = |tail: Place, heads: &[Place]| votes.extend(vote(bench, counts, tail, heads));
    match grid.level {
        // All copies of a raid1 continue in the same way.
        Level::Raid1 => (),
        Level::Linear => {
            let starts: Vec<Place> = all.clone().map(|member| (member, grid.data_offset)).collect();
            for (member, size) in all.zip(grid.sizes).filter(|(_, size)| !size.is_zero()) {
                let others: Vec<Place> = starts.iter().copied().filter(|(other, _)| *other != member).collect();
                ask((member, grid.data_offset + Sectors(size.0 - 1)), &others);
            }
        }
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            for start in row_starts(grid, places) {
                let half = Sectors(grid.chunk.0 / 2);
                let heads = |starts: &[Sectors]| -> Vec<Place> {
                    let of = |after: &Sectors| all.clone().map(|member| (member, start + *after)).collect::<Vec<_>>();
                    starts.iter().flat_map(of).collect()
                };
                let at_end = heads(&[Sectors::ZERO, grid.chunk, Sectors(2 * grid.chunk.0)]);
                let at_half = heads(&[Sectors::ZERO, half, grid.chunk]);
                for member in all.clone() {
                    ask((member, start + Sectors(grid.chunk.0 - 1)), &at_end);
                    if half.0 >= crate::order::bench::BLOCK.0 {
                        ask((member, start + Sectors(half.0 - 1)), &at_half);
                    }
                }
            }
        }
    }
    votes
}

/// Where the rows of chunks begin, on every member, that hold these places.
fn row_starts(grid: &Grid<'_>, places: &[Sector]) -> BTreeSet<Sector> {
    let start = |place: &Sector| {
        let within = place.0 - grid.data_offset.0;
        Sector(place.0 - within % grid.chunk.0)
    };
    places.iter().map(start).collect()
}

/// The continuation that is clearly the best, if there is one.
fn vote(bench: &mut Bench<'_>, counts: &Counts, tail: Place, heads: &[Place]) -> Option<Vote> {
    let before = *bench.sector(tail.0, tail.1)?;
    if before[SECTOR_BYTES - 4..].iter().all(|byte| *byte == before[SECTOR_BYTES - 1]) && !counts_up(&before) {
        return None;
    }
    let end = [before[SECTOR_BYTES - 3], before[SECTOR_BYTES - 2], before[SECTOR_BYTES - 1]];
    let mut best: Option<(f64, Bytes, Vec<Place>)> = None;
    let mut next = f64::NEG_INFINITY;
    for place in heads {
        let Some(behind) = bench.sector(place.0, place.1) else { continue };
        let gain = counts.gain(end, [behind[0], behind[1], behind[2]])
            + if counts_on(&before, behind) { COUNT_BITS } else { 0.0 };
        match &mut best {
            Some((_, bytes, places)) if bytes == behind => places.push(*place),
            Some((most, ..)) if *most >= gain => next = next.max(gain),
            Some((most, ..)) => {
                next = next.max(*most);
                best = Some((gain, *behind, vec![*place]));
            }
            None => best = Some((gain, *behind, vec![*place])),
        }
    }
    let (gain, _, heads) = best?;
    (gain >= BITS_MIN && gain - next >= BITS_MIN).then_some(Vote { tail, heads })
}

fn word(sector: &Bytes, at: usize) -> u32 {
    u32::from_le_bytes(sector[at..at + 4].try_into().expect("four bytes"))
}

/// The step by which a word of the last three records counts, and what would come next.
fn steps(before: &Bytes, record: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
    (0..record).step_by(4).filter_map(move |field| {
        let back = |nth: usize| word(before, SECTOR_BYTES - nth * record + field);
        let step = back(1).wrapping_sub(back(2));
        let counts = step != 0 && back(2).wrapping_sub(back(3)) == step;
        counts.then(|| (field, back(1).wrapping_add(step)))
    })
}

fn counts_up(before: &Bytes) -> bool {
    RECORDS.iter().any(|record| steps(before, *record).next().is_some())
}

/// Whether a table's count continues: 40 41 42 | 43.
fn counts_on(before: &Bytes, behind: &Bytes) -> bool {
    RECORDS.iter().any(|record| steps(before, *record).any(|(field, expected)| word(behind, field) == expected))
}

/// For each end of a chunk in the rows of these places, the sector that follows it in this layout.
pub(crate) fn next(layout: &Layout, data_offset: Sector, places: &[Sector]) -> Next {
    let (size, chunk) = (layout.array_size().0, layout.chunk().0);
    let mut next = Next::new();
    let mut add = |first: u64, length: u64| {
        if first + length < size {
            let copies = (layout.copies(ArraySector(first + length - 1)), layout.copies(ArraySector(first + length)));
            if let (Some((slot, at)), Some(behind)) = (copies.0.first(), copies.1.first()) {
                next.insert((*slot, MemberSector(at.0 + 1)), *behind);
            }
        }
    };
    match layout.level() {
        Level::Raid1 => (),
        Level::Linear => {
            let mut first = 0;
            for slot in 0..layout.slots() {
                let length = layout.member_used(Slot(slot)).0;
                add(first, length);
                first += length;
            }
        }
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            let rows: BTreeSet<u64> = places.iter().map(|place| (place.0 - data_offset.0) / chunk).collect();
            rows.into_iter().flat_map(|row| chunks_of_row(layout, row)).for_each(|nth| add(nth * chunk, chunk));
        }
    }
    next
}

/// How many of the votes agree with this order.
pub(crate) fn tally(assumed: &Assumed<'_>, votes: &[Vote], next: &Next) -> Tally {
    let mut tally = Tally::default();
    let (offset, chunk) = (assumed.data_offset.0, assumed.layout.chunk().0);
    for vote in votes {
        let (member, tail) = vote.tail;
        let behind = MemberSector(tail.0 + 1 - offset);
        let claimed = if chunk != 0 && !behind.0.is_multiple_of(chunk) {
            Some((member, tail + Sectors(1)))
        } else {
            let slot = (0..).zip(assumed.order).find(|(_, entry)| **entry == Some(member)).map(|(slot, _)| Slot(slot));
            let claimed = slot.and_then(|slot| next.get(&(slot, behind)));
            claimed.and_then(|(slot, at)| Some((assumed.order[slot.index()]?, Sector(offset + at.0))))
        };
        tally.add(claimed.is_some_and(|claimed| vote.heads.contains(&claimed)));
    }
    tally
}
