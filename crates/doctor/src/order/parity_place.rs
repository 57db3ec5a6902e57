//! Which member holds the parity of a row, by the statistics of its bytes.
//! Owns: the votes, and counting a candidate's agreement. Not here: whether parity fits (`rows`).
//! Invariant: a member gets a vote only if its entropy is clearly higher than that of all others; random bytes give
//! none.
//!
//! The xor of several texts uses more different bytes, more evenly, than any of them: the sum of independent values
//! never has lower entropy than its parts. The measure is the entropy of the bytes of one block, 0 to 8 bits.
//!
//! ```text
//!            a     b     c     d                          a     b     c     d
//!  row 17   4.4   4.6   5.8   4.5   parity is on c       7.9   4.6   7.9   4.5   a zip file on a or on c: no vote
//! ```
//! In left-symmetric and left-asymmetric layouts, parity moves one slot down with every row, so votes give the order of
//! all members. They do not distinguish this from the reverse order in a right-... layout, nor symmetric from
//! asymmetric layouts: seams and marks do.

use crate::order::bench::{Assumed, BLOCK, Bench};
use crate::order::ranking::Tally;
use uraid_block::Sector;
use uraid_layout::{Layout, Level, Row};

/// By how much the highest entropy must exceed the next. Random blocks differ by 0.02 bits.
const BITS_MIN: f64 = 0.25;

/// The member (`None`: the missing one) that holds parity at a place.
pub(crate) struct Vote {
    place: Sector,
    member: Option<usize>,
}

/// The votes at these places; none for levels without P, and none if several members are missing.
pub(crate) fn votes(
    bench: &mut Bench<'_>,
    level: Level,
    members: usize,
    missing: usize,
    places: &[Sector],
) -> Vec<Vote> {
    match level {
        Level::Raid4 | Level::Raid5 if missing < 2 => (),
        // Q gives stronger evidence, and entropy cannot distinguish P and Q of one row.
        Level::Raid4 | Level::Raid5 | Level::Raid6 => return Vec::new(),
        Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10 => return Vec::new(),
    }
    places.iter().filter_map(|place| vote(bench, members, missing, *place)).collect()
}

fn vote(bench: &mut Bench<'_>, members: usize, missing: usize, place: Sector) -> Option<Vote> {
    let mut blocks: Vec<Vec<u8>> = (0..members).map(|member| bench.block(member, place)).collect::<Option<_>>()?;
    if missing == 1 {
        let mut sum = vec![0; BLOCK.len_bytes()];
        blocks.iter().for_each(|block| uraid_parity::xor_into(&mut sum, block));
        blocks.push(sum);
    }
    let mut ranked: Vec<(f64, usize)> = blocks.iter().map(|block| entropy(block)).zip(0..).collect();
    ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
    let [first, second, ..] = ranked.as_slice() else { return None };
    let member = Some(first.1).filter(|member| *member < members);
    (first.0 - second.0 >= BITS_MIN).then_some(Vote { place, member })
}

/// Bits per byte: 0 when all bytes are the same, 8 when all 256 are as frequent.
fn entropy(block: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    block.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let all = block.len() as f64;
    let of = |count: &u32| f64::from(*count) / all * (all / f64::from(*count)).log2();
    counts.iter().filter(|count| **count > 0).map(of).sum()
}

/// How many of the votes agree with this order.
pub(crate) fn tally(assumed: &Assumed<'_>, votes: &[Vote]) -> Tally {
    let mut tally = Tally::default();
    let Layout::Parity(layout) = assumed.layout else { return tally };
    for vote in votes {
        let row = Row((vote.place.0 - assumed.data_offset.0) / layout.chunk().0);
        tally.add(assumed.order[layout.row(row).parity.index()] == vote.member);
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_0_of_one_byte_and_8_of_all() {
        assert!(entropy(&[7; 4096]).abs() < 1e-9);
        let all: Vec<u8> = (0..4096).map(|n| n as u8).collect();
        assert!((entropy(&all) - 8.0).abs() < 1e-9);
    }
}
