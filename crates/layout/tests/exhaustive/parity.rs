//! The conditions on writes and discards of parity levels, which go by row, not by plan.
//! Owns: rows as the model has them, a range cut by row, and which places of the members a range changes.
//! Not here: parity bytes, the choice between full stripe, read-modify-write and reconstruct (`engine::row_plan`).
//!
//! A write changes its data places and, in each of its rows, the columns of P and Q that its data covers. A discard can
//! take only whole rows, with their parity: these are consecutive on every member, so it is one run per member. (The
//! engine offers no discard on these levels yet; what it would submit is checked here.)

use super::model::Model;
use uraid_block::{ArrayRange, ArraySector, Sectors, Slot, SlotSet};
use uraid_layout::{ParityLayout, Row, RowBlock, RowMap, RowPart};

const UNCLAIMED: u64 = u64::MAX;

/// Which array sector a place of a member belongs to, and which places the range at hand has already claimed.
pub(crate) struct Places {
    depth: u64,
    sectors: Vec<u64>,
    claimed: Vec<u32>,
    round: u32,
}

impl Places {
    pub(crate) fn new(model: &Model) -> Places {
        let depth = model.places.iter().map(|place| place.1 + 1).max().expect("an array has sectors");
        let count = (depth * model.members) as usize;
        let mut places = Places { depth, sectors: vec![UNCLAIMED; count], claimed: vec![0; count], round: 0 };
        for x in 0..model.size() {
            for place in model.copies_of(x) {
                places.sectors[(place.0 * depth + place.1) as usize] = x;
            }
        }
        places
    }

    /// The array sector that lies there; a number that no array has where none does.
    pub(crate) fn sector(&self, member: u64, at: u64) -> u64 {
        if at >= self.depth { UNCLAIMED } else { self.sectors[(member * self.depth + at) as usize] }
    }

    /// Clears the claimed places.
    fn next_range(&mut self) {
        self.round += 1;
    }

    fn claim(&mut self, member: u64, at: u64) {
        assert!(member * self.depth + at < self.claimed.len() as u64 && at < self.depth, "a place behind the array");
        let claimed = &mut self.claimed[(member * self.depth + at) as usize];
        assert!(*claimed < self.round, "a place is changed twice");
        *claimed = self.round;
    }
}

/// Every row is what the model says; P, Q and data share no member, and no two exponents are equal.
pub(crate) fn check_rows(layout: &ParityLayout, model: &Model) {
    assert_eq!(layout.rows_count(), model.rows.len() as u64);
    for (index, expected) in model.rows.iter().enumerate() {
        let map = layout.row(Row(index as u64));
        let numbers = |slots: &[Slot]| slots.iter().map(|slot| u64::from(slot.0)).collect::<Vec<_>>();
        assert_eq!(map.row, Row(index as u64));
        assert_eq!(map.start.0, index as u64 * layout.chunk().0);
        assert_eq!(layout.row_start(map.row), map.start);
        assert_eq!(numbers(&map.data), expected.data);
        assert_eq!(u64::from(map.parity.0), expected.p);
        assert_eq!(map.syndrome.map(|slot| u64::from(slot.0)), expected.q);
        assert_eq!(map.exponents.iter().map(|&e| u64::from(e)).collect::<Vec<_>>(), expected.exponents);
        check_blocks(layout, &map);
        let mut all = numbers(&map.data);
        all.extend([expected.p].into_iter().chain(expected.q));
        all.sort_unstable();
        assert_eq!(all, (0..model.members).collect::<Vec<_>>(), "every member has one part in a row");
        let mut exponents = expected.exponents.clone();
        exponents.sort_unstable();
        exponents.dedup();
        assert_eq!(exponents.len(), expected.data.len(), "two exponents are equal");
    }
}

/// A block alone is where the row says.
fn check_blocks(layout: &ParityLayout, map: &RowMap) {
    let chunk = layout.chunk().0;
    for (data, &slot) in map.data.iter().enumerate() {
        for offset in [0, chunk - 1] {
            let (start, at) = (Sectors(data as u64 * chunk + offset), map.start + Sectors(offset));
            let block = layout.block(map.row, start, Sectors(chunk - offset));
            let (parity, syndrome, exponent) = (map.parity, map.syndrome, map.exponents[data]);
            assert_eq!(block, Some(RowBlock { data, start: Sectors(offset), at, slot, parity, syndrome, exponent }));
            assert_eq!(layout.block(map.row, start, Sectors(chunk - offset + 1)), None, "it is in two chunks");
        }
    }
}

/// The range cut by row, in order, without a gap.
fn parts(layout: &ParityLayout, (from, to): (u64, u64)) -> Vec<RowPart> {
    let parts: Vec<RowPart> = layout.rows(ArrayRange::between(ArraySector(from), ArraySector(to))).collect();
    let stripe = layout.stripe().0;
    let mut next = from;
    for part in &parts {
        assert_eq!(part.offset.0, next - from);
        assert_eq!(part.row.0 * stripe + part.start.0, next);
        assert!(part.length > Sectors::ZERO && part.start.0 + part.length.0 <= stripe);
        next += part.length.0;
        assert!(next == to || next.is_multiple_of(stripe), "a part ends inside a row");
    }
    assert_eq!(next, to);
    parts
}

/// Runs of a row that a part changes: of data chunk k (`Some`), or of P and Q (`None`); first and length in the chunk.
fn runs_of(part: &RowPart, chunk: u64) -> Vec<(Option<usize>, u64, u64)> {
    let (start, end) = (part.start.0, part.start.0 + part.length.0);
    let mut runs = Vec::new();
    let (first, last) = (start / chunk, (end - 1) / chunk);
    for k in first..=last {
        let (from, to) = (start.max(k * chunk), end.min((k + 1) * chunk));
        runs.push((Some(k as usize), from - k * chunk, to - from));
    }
    let (head, tail) = (start % chunk, (end - 1) % chunk + 1);
    match last - first {
        0 => runs.push((None, head, tail - head)),
        // The end of one chunk and the start of the next: the columns in between are not touched.
        1 if tail < head => runs.extend([(None, 0, tail), (None, head, chunk - head)]),
        _ => runs.push((None, 0, chunk)),
    }
    runs
}

/// A write of the range changes its data places and the parity columns over them: each once, and nothing else.
pub(crate) fn check_write(
    layout: &ParityLayout,
    model: &Model,
    range: (u64, u64),
    usable: &SlotSet,
    places: &mut Places,
) {
    places.next_range();
    let chunk = layout.chunk().0;
    let mut changed = 0;
    for part in parts(layout, range) {
        let map = layout.row(part.row);
        let mut next = range.0 + part.offset.0;
        for (data, first, length) in runs_of(&part, chunk) {
            let slots: Vec<Slot> = match data {
                Some(k) => vec![map.data[k]],
                None => [map.parity].into_iter().chain(map.syndrome).collect(),
            };
            for slot in slots.into_iter().filter(|&slot| usable.contains(slot)) {
                for column in first..first + length {
                    let at = map.start.0 + column;
                    match data {
                        Some(_) => assert_eq!(places.sector(slot.0.into(), at), next + column - first, "{range:?}"),
                        None => assert!(is_over(model, &part, column, chunk, range), "{range:?} {layout:?}"),
                    }
                    places.claim(slot.0.into(), at);
                    changed += 1;
                }
            }
            next += if data.is_some() { length } else { 0 };
        }
    }
    assert_eq!(changed, changes(model, chunk, range, usable), "{range:?} {usable:?} {layout:?}");
}

/// Whether the range has data over a parity column of a row; the places of that parity hold no data.
fn is_over(model: &Model, part: &RowPart, column: u64, chunk: u64, range: (u64, u64)) -> bool {
    let across = model.rows[part.row.0 as usize].data.len() as u64;
    (0..across).any(|k| {
        let x = (part.row.0 * across + k) * chunk + column;
        range.0 <= x && x < range.1
    })
}

/// How many places of usable members the range changes, sector by sector.
fn changes(model: &Model, chunk: u64, range: (u64, u64), usable: &SlotSet) -> u64 {
    let is_there = |member: u64| usable.contains(Slot(member as u16));
    let (mut count, mut previous, mut columns) = (0, u64::MAX, 0u64);
    for x in range.0..range.1 {
        let row = x / chunk / model.rows[0].data.len() as u64;
        if row != previous {
            (previous, columns) = (row, 0);
        }
        count += u64::from(is_there(model.copies_of(x)[0].0));
        let column = 1u64 << (x % chunk);
        if columns & column == 0 {
            columns |= column;
            let parity = &model.rows[row as usize];
            count += [Some(parity.p), parity.q].into_iter().flatten().filter(|&member| is_there(member)).count() as u64;
        }
    }
    count
}

/// A discard of the range is one run per usable member: its whole rows, which follow each other.
pub(crate) fn check_discard(
    layout: &ParityLayout,
    model: &Model,
    range: (u64, u64),
    usable: &SlotSet,
    places: &mut Places,
) {
    places.next_range();
    let (chunk, stripe) = (layout.chunk().0, layout.stripe().0);
    let whole: Vec<RowMap> = parts(layout, range)
        .into_iter()
        .filter(|part| part.length.0 == stripe)
        .map(|part| layout.row(part.row))
        .collect();
    let follow = whole.windows(2).all(|pair| pair[0].start.0 + chunk == pair[1].start.0);
    assert!(follow, "whole rows of a range do not follow each other on the members: {range:?}");
    let mut discarded = 0;
    if let (Some(first), Some(last)) = (whole.first(), whole.last()) {
        for slot in (0..layout.slots()).map(Slot).filter(|&slot| usable.contains(slot)) {
            for at in first.start.0..last.start.0 + chunk {
                let row = at / chunk * stripe;
                assert!(range.0 <= row && row + stripe <= range.1, "a discard leaves its range: {range:?}");
                places.claim(slot.0.into(), at);
                discarded += 1;
            }
        }
    }
    let is_whole = |row: u64| (row * stripe..(row + 1) * stripe).all(|x| range.0 <= x && x < range.1);
    let expected = (0..model.rows.len() as u64).filter(|&row| is_whole(row)).count() as u64;
    assert_eq!(discarded, expected * chunk * usable.count() as u64, "{range:?} {usable:?} {layout:?}");
}
