//! The planner: any geometry, then ranges with any members missing.
//! Owns: containment, coverage, order. Not here: an independent model of the addresses (layout's exhaustive tests).
//! Input: level 1, layout 4, chunk 3, members 2, size 3, member sizes 3 x 3; then ranges of start 3, length 3, missing 2.

use crate::input::Input;
use uraid_block::{ArrayRange, ArraySector, Sectors, Slot, SlotSet};
use uraid_layout::{CopyChoice, Layout, Level, ParityLayout, Plan, Row, RowMap, Spec};

const RANGES_MAX: usize = 8;
/// A plan has a part for each chunk: who plans bounds the range.
const CHUNKS_MAX: u64 = 32;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let Ok(layout) = Layout::new(&spec(&mut input)) else { return };
    let size = layout.array_size().0;
    assert!(size > 0);
    for _ in 0..RANGES_MAX {
        let start = input.number() % size;
        let wanted = input.number();
        let room = if layout.chunk().0 == 0 { u64::MAX } else { layout.chunk().0.saturating_mul(CHUNKS_MAX) };
        let length = wanted.min(room).min(size - start);
        let missing = input.u16();
        let usable = usable(&layout, missing);
        check_range(&layout, ArrayRange::new(ArraySector(start), Sectors(length)), &usable);
        check_place(&layout, start);
        if input.is_empty() {
            break;
        }
    }
    check_discard(&layout, ArrayRange::new(ArraySector(0), Sectors(size)), &SlotSet::first(layout.slots()));
}

fn spec(input: &mut Input<'_>) -> Spec {
    let level = input.pick(&Level::ALL);
    let word = input.u32();
    // Either any word, or one of the few that mean something.
    let layout = if word >> 31 == 1 { word & 0x7fff_ffff } else { word & 0x7_0707 };
    let chunk = Sectors(input.number());
    let raid_disks = input.u16() % 1024;
    let size = Sectors(input.number());
    let sizes = [input.number(), input.number(), input.number()];
    let needs_sizes = matches!(level, Level::Linear | Level::Raid0);
    let count = if needs_sizes { usize::from(raid_disks) } else { 0 };
    let member_sizes = (0..count).map(|n| Sectors(sizes[n % 3])).collect();
    Spec { level, layout, chunk, raid_disks, size, member_sizes }
}

/// Up to four members are missing.
fn usable(layout: &Layout, missing: u16) -> SlotSet {
    let mut usable = SlotSet::first(layout.slots());
    for nibble in 0..missing >> 14 {
        usable.remove(Slot((missing & 0x3fff).rotate_left(u32::from(nibble) * 3) % layout.slots()));
    }
    usable
}

fn check_range(layout: &Layout, range: ArrayRange, usable: &SlotSet) {
    for choice in [CopyChoice::First, CopyChoice::Nth(1)] {
        let plan = layout.plan_read(range, usable, choice);
        check_runs(layout, &plan, usable);
        check_parts(&plan, range, 1);
    }
    let copies = match layout {
        Layout::Parity(parity) => return check_rows(layout, parity, range),
        Layout::Copies(copies) => copies,
    };
    let write = copies.plan_write(range, usable);
    check_runs(layout, &write, usable);
    check_parts(&write, range, usize::from(layout.copies_count()));
    let discard = copies.plan_discard(range, usable);
    check_runs(layout, &discard, usable);
    let same = |(a, b): (&uraid_layout::Run, &uraid_layout::Run)| (a.slot, a.at, a.length) == (b.slot, b.at, b.length);
    assert!(discard.runs.len() == write.runs.len() && discard.runs.iter().zip(&write.runs).all(same));
}

/// Runs ascend with a gap, on members that are there, inside of what the array uses of them.
fn check_runs(layout: &Layout, plan: &Plan, usable: &SlotSet) {
    for pair in plan.runs.windows(2) {
        let ascends = pair[0].slot < pair[1].slot
            || pair[0].slot == pair[1].slot && pair[0].at.0 + pair[0].length.0 < pair[1].at.0;
        assert!(ascends, "{:?} {plan:?}", layout.spec());
    }
    for run in &plan.runs {
        assert!(usable.contains(run.slot) && run.length.0 > 0);
        let end = run.at.0.checked_add(run.length.0).expect("a run ends on the member");
        assert!(end <= layout.member_used(run.slot).0, "{run:?} {:?}", layout.spec());
    }
}

/// Every sector of the range is in at least one part or given up, in at most `copies_max` parts.
fn check_parts(plan: &Plan, range: ArrayRange, copies_max: usize) {
    let runs = plan.runs.iter().flat_map(|run| plan.parts_of(run));
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for (part, weight) in runs.map(|part| (part, 1)).chain(plan.lost.iter().map(|part| (part, 1))) {
        assert!(part.length.0 > 0 && part.offset.0 + part.length.0 <= range.length.0, "outside the range");
        edges.push((part.offset.0, weight));
        edges.push((part.offset.0 + part.length.0, -weight));
    }
    edges.sort_unstable();
    let (mut at, mut depth) = (0, 0);
    for (edge, weight) in edges {
        if edge > at {
            assert!(depth >= 1 && depth as usize <= copies_max, "{depth} times at {at}: {plan:?}");
            at = edge;
        }
        depth += weight;
    }
    assert_eq!(at, range.length.0, "the range is not covered: {plan:?}");
}

/// Rows follow each other, and each names every member once.
fn check_rows(layout: &Layout, parity: &ParityLayout, range: ArrayRange) {
    let mut next = range.start.0;
    for part in parity.rows(range) {
        assert!(part.row.0 < parity.rows_count());
        assert_eq!(part.row.0 * layout.stripe().0 + part.start.0, next);
        next += part.length.0;
        check_row(layout, &parity.row(part.row));
    }
    assert_eq!(next, range.end().0);
    check_row(layout, &parity.row(Row(parity.rows_count() - 1)));
}

fn check_row(layout: &Layout, map: &RowMap) {
    let mut all: Vec<u16> = map.data.iter().map(|slot| slot.0).collect();
    all.extend([map.parity.0].into_iter().chain(map.syndrome.map(|slot| slot.0)));
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..layout.slots()), "{map:?}");
    for slot in &map.data {
        assert!(map.start.0 + layout.chunk().0 <= layout.member_used(*slot).0);
    }
}

/// The copies of a sector lie on different places, inside.
fn check_place(layout: &Layout, sector: u64) {
    let copies: Vec<_> = layout.copies(ArraySector(sector)).into_iter().collect();
    assert_eq!(copies.len(), usize::from(layout.copies_count()));
    for (n, (slot, at)) in copies.iter().enumerate() {
        assert!(at.0 < layout.member_used(*slot).0);
        assert!(!copies[..n].contains(&(*slot, *at)));
    }
    let together = layout.contiguous(ArraySector(sector)).0;
    assert!(together > 0 && together <= layout.array_size().0 - sector);
}

/// A discard of everything is a handful of runs, whatever the size.
fn check_discard(layout: &Layout, range: ArrayRange, all: &SlotSet) {
    let Layout::Copies(copies) = layout else { return };
    let plan = copies.plan_discard(range, all);
    check_runs(layout, &plan, all);
    let written: u128 = plan.runs.iter().map(|run| u128::from(run.length.0)).sum();
    assert_eq!(written, u128::from(range.length.0) * u128::from(layout.copies_count()), "{:?}", layout.spec());
}
