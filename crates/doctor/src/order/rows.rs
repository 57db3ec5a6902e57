//! Rows: whether parity matches the data, and copies match each other.
//! Owns: the evidence of a row for each level. Not here: which rows (`places`), how P and Q are computed (`parity`).
//! Invariant: how many rows are checked does not depend on the order.
//!
//! What rows can show: for raid6, with at most one member missing, the order of members, except for layouts that put P
//! and Q in the same places; for raid10, which members hold copies of each other; for raid1, that they do. raid4 and
//! raid5 have only P, which is the same in every order: it shows whether these are the members of one array. raid0 and
//! linear: nothing.

use crate::order::bench::{Assumed, Bench};
use crate::order::ranking::Tally;
use uraid_block::{ArraySector, MemberSector, SECTOR_BYTES, Sector, Sectors, Slot};
use uraid_layout::{Layout, Level, Row};

/// Rows that are compared.
const ROWS_MAX: usize = 16;

type Bytes = [u8; SECTOR_BYTES];

/// How many of the rows at these places fit.
pub(crate) fn tally(bench: &mut Bench<'_>, assumed: &Assumed<'_>, places: &[Sector]) -> Tally {
    let layout = assumed.layout;
    let missing = assumed.order.iter().filter(|entry| entry.is_none()).count();
    let mut tally = Tally::default();
    for place in places.iter().take(ROWS_MAX) {
        let at = MemberSector(place.0 - assumed.data_offset.0);
        let fits = match layout.level() {
            Level::Linear | Level::Raid0 => None,
            Level::Raid4 | Level::Raid5 if missing > 0 => None,
            Level::Raid6 if missing > 1 => None,
            Level::Raid4 | Level::Raid5 | Level::Raid6 => parity_fits(bench, assumed, at),
            Level::Raid1 => Some(copies_fit(bench, assumed, ArraySector(at.0))),
            Level::Raid10 => {
                let chunk = layout.chunk().0;
                let chunks = chunks_of_row(layout, at.0 / chunk);
                let mut of_row = chunks.iter().map(|nth| ArraySector(nth * chunk + at.0 % chunk));
                (!chunks.is_empty()).then(|| of_row.all(|at| copies_fit(bench, assumed, at)))
            }
        };
        if let Some(fits) = fits {
            tally.add(fits);
        }
    }
    tally
}

/// Whether P, and Q, of a sector of every member match its data; `None` for levels without parity. One missing member
/// is computed from P; Q can then still be checked.
fn parity_fits(bench: &mut Bench<'_>, assumed: &Assumed<'_>, at: MemberSector) -> Option<bool> {
    let Layout::Parity(layout) = assumed.layout else { return None };
    let row = layout.row(Row(at.0 / layout.chunk().0));
    let on_device = assumed.data_offset + Sectors(at.0);
    let mut of_slot =
        |slot: Slot| assumed.order[slot.index()].and_then(|member| bench.sector(member, on_device).copied());
    let mut data: Vec<Option<Bytes>> = row.data.iter().map(|slot| of_slot(*slot)).collect();
    let mut parity = of_slot(row.parity);
    let syndrome = row.syndrome.and_then(&mut of_slot);
    let unknown = data.iter().chain([&parity]).filter(|sector| sector.is_none()).count();
    if unknown > 1 || (unknown == 1 && syndrome.is_none()) {
        return Some(false);
    }
    let mut sum = [0; SECTOR_BYTES];
    data.iter().chain([&parity]).flatten().for_each(|sector| uraid_parity::xor_into(&mut sum, sector));
    if let Some(sector) = data.iter_mut().chain([&mut parity]).find(|sector| sector.is_none()) {
        *sector = Some(sum);
    } else if sum.iter().any(|byte| *byte != 0) {
        return Some(false);
    }
    let Some(syndrome) = syndrome else { return Some(true) };
    let data: Vec<&[u8]> = data.iter().flatten().map(|sector| &sector[..]).collect();
    let mut computed = [0; SECTOR_BYTES];
    uraid_parity::generate_q(&mut computed, &data, &row.exponents);
    Some(computed == syndrome)
}

/// Whether all copies that are there are the same.
fn copies_fit(bench: &mut Bench<'_>, assumed: &Assumed<'_>, at: ArraySector) -> bool {
    let mut first: Option<Bytes> = None;
    for (slot, on_member) in assumed.layout.copies(at) {
        let Some(member) = assumed.order[slot.index()] else { continue };
        let Some(found) = bench.sector(member, assumed.data_offset + Sectors(on_member.0)) else { return false };
        match &first {
            None => first = Some(*found),
            Some(first) if first != found => return false,
            Some(_) => (),
        }
    }
    true
}

/// In how many of these places each member differs from the majority.
pub(crate) fn strays(bench: &mut Bench<'_>, members: usize, places: &[Sector]) -> Vec<usize> {
    let mut strays = vec![0; members];
    for place in places.iter().take(ROWS_MAX) {
        let all: Vec<Option<Bytes>> = (0..members).map(|member| bench.sector(member, *place).copied()).collect();
        let alike = |one: &Option<Bytes>| all.iter().filter(|other| *other == one).count();
        for (stray, one) in strays.iter_mut().zip(&all) {
            *stray += usize::from(alike(one) * 2 <= members);
        }
    }
    strays
}

/// The array's chunks whose first copy lies in this row of chunks, ascending; none for levels without chunks.
/// raid10, near 2 on 3 (`A A B / B C C`): row 0 has A and B, row 1 has C.
pub(crate) fn chunks_of_row(layout: &Layout, row: u64) -> Vec<u64> {
    let (chunk, slots) = (layout.chunk().0, u64::from(layout.slots()));
    let about = match layout.level() {
        Level::Linear | Level::Raid1 => return Vec::new(),
        Level::Raid0 => row * slots,
        Level::Raid4 | Level::Raid5 | Level::Raid6 => row * (layout.stripe().0 / chunk),
        Level::Raid10 => {
            let word = u64::from(layout.spec().layout);
            let (near, far, is_offset) = (word & 0xff, (word >> 8) & 0xff, word & 0x1_0000 != 0);
            let of_first_copies = if is_offset { row / far.max(1) } else { row };
            of_first_copies * slots / near.max(1)
        }
    };
    let all = layout.array_size().0 / chunk;
    // If copies do not fill rows, the first one may lie two rows before, and the last one after.
    let around = about.saturating_sub(2)..(about + slots + 2).min(all);
    let is_in = |nth: &u64| layout.copies(ArraySector(nth * chunk)).first().is_some_and(|(_, at)| at.0 / chunk == row);
    around.filter(is_in).collect()
}
