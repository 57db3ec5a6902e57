//! The sampled places: the same sectors for every geometry, so that candidates are compared on the same bytes.
//! Owns: which places, and how many. Not here: the evidence at each place (`rows`, `seams`, `parity_place`).
//! Invariant: at most [`SCANNED_MAX`] places are read. Their distances have no period in common with the rotation of
//! parity.

use crate::order::bench::{BLOCK, Bench};
use crate::order::question::Question;
use uraid_block::{Sector, Sectors};
use uraid_layout::Layout;

/// The most places that are scanned for content other than zeroes.
const SCANNED_MAX: u64 = 512;
/// Places that are kept.
const KEPT_MAX: usize = 32;
/// Half of the places lie within this many sectors from the start: a young file system has all its data there.
const HEAD: u64 = 1 << 15;

/// Places at which some member is not all zeroes, counted from the members' start, in multiples of a block. All are in
/// the data area of every geometry.
pub(crate) fn with_data(question: &Question, bench: &mut Bench<'_>) -> Vec<Sector> {
    let first = question.trials.iter().map(|trial| trial.data_offset.0).max().unwrap_or(0).next_multiple_of(BLOCK.0);
    let used = |layout: &Layout| {
        let slots = (0..layout.slots()).map(|slot| layout.member_used(uraid_block::Slot(slot)).0);
        slots.min().unwrap_or(0)
    };
    let ends = question.trials.iter().map(|trial| trial.data_offset.0.saturating_add(used(&trial.layout)));
    let blocks = ends.min().unwrap_or(0).saturating_sub(first) / BLOCK.0;
    let mut found: Vec<Sector> = Vec::new();
    for nth in 0..SCANNED_MAX {
        let within = if nth % 2 == 0 { blocks } else { blocks.min(HEAD / BLOCK.0) };
        let at = Sector(first + scattered(nth / 2, within) * BLOCK.0);
        let is_new = within > 0 && !found.contains(&at);
        if is_new && (0..question.members).any(|member| bench.has_data(member, at)) {
            found.push(at);
        }
        if found.len() == KEPT_MAX {
            break;
        }
    }
    found.sort_unstable();
    found
}

/// Sectors of a block, from its first one.
pub(crate) fn sectors(at: Sector) -> impl Iterator<Item = Sector> {
    (0..BLOCK.0).map(move |nth| at + Sectors(nth))
}

/// The n-th number of a sequence below `below` that is spread evenly modulo every power of two: its steps are the
/// golden ratio of 2^32. `below` is at most 2^60, so the product fits 128 bits.
fn scattered(nth: u64, below: u64) -> u64 {
    let fraction = (nth * 2_654_435_769) & 0xffff_ffff;
    u64::try_from((u128::from(fraction) * u128::from(below)) >> 32).expect("less than below")
}
