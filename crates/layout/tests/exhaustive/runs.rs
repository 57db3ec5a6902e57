//! The maximal numbers of runs, where a number is promised, and arrays too large to enumerate.
//! Owns: the bounds as numbers. That no plan has more runs than necessary is checked by `check`.

use super::check::{Verdict, ensure};
use uraid_block::{ArrayRange, ArraySector, Sectors, Slot, SlotSet};
use uraid_layout::{
    CopyChoice, CopyLayout, Layout, Level, ParityLayout, Plan, Run, Spec, default_chunk, default_layout,
};

/// The most runs that one member gets.
fn most(plan: &Plan) -> usize {
    plan.runs.chunk_by(|a, b| a.slot == b.slot).map(<[Run]>::len).max().unwrap_or(0)
}

/// How a raid10 lies: near copies, far copies, whether far copies are offset, data sectors of whole rows.
fn raid10(layout: &Layout) -> (u32, usize, bool, u64) {
    let word = layout.spec().layout;
    let (near, far, is_offset) = (word & 0xff, (word >> 8 & 0xff) as usize, word & 0x1_0000 != 0);
    (near, far, is_offset && far > 1, u64::from(layout.slots()) * layout.chunk().0 / u64::from(near))
}

/// A read with all members there, canonical copies: one run per member, where that is promised; of parity levels, one
/// on each side of a parity chunk that lies between what is read of a member.
pub(crate) fn check_read(layout: &Layout, range: ArrayRange, usable: &SlotSet, plan: &Plan) -> Verdict {
    let members = layout.slots();
    if usable.count() < usize::from(members) {
        return Ok(());
    }
    if let Layout::Parity(layout) = layout {
        return check_between_parity(layout, range, plan);
    }
    let is_read_once = match layout.level() {
        Level::Linear | Level::Raid0 | Level::Raid1 => true,
        Level::Raid10 => {
            let (near, _, is_offset, _) = raid10(layout);
            u32::from(members).is_multiple_of(near) && !is_offset
        }
        Level::Raid4 | Level::Raid5 | Level::Raid6 => unreachable!("a level with copies"),
    };
    ensure(!is_read_once || most(plan) <= 1, "a read has more runs than promised")
}

fn check_between_parity(layout: &ParityLayout, range: ArrayRange, plan: &Plan) -> Verdict {
    let mut parity = vec![0; layout.slots().into()];
    for part in layout.rows(range) {
        let map = layout.row(part.row);
        [Some(map.parity), map.syndrome].into_iter().flatten().for_each(|slot| parity[slot.index()] += 1);
    }
    let runs = |slot: Slot| plan.runs.iter().filter(|run| run.slot == slot).count();
    let is_kept = (0..layout.slots()).map(Slot).all(|slot| runs(slot) <= 1 + parity[slot.index()]);
    ensure(is_kept, "a read has more runs than parity chunks between them")
}

/// A write and a discard without parity, with any members missing: no more runs per member than promised.
pub(crate) fn check_changes(layout: &Layout, range: ArrayRange, write: &Plan, discard: &Plan) -> Verdict {
    let (written_max, discarded_max) = match layout.level() {
        Level::Linear | Level::Raid0 | Level::Raid1 => (1, 1),
        Level::Raid10 => {
            let (_, far, is_offset, depth) = raid10(layout);
            let is_aligned = range.start.0.is_multiple_of(depth) && range.end().0.is_multiple_of(depth);
            match (far, is_offset) {
                (1, _) => (1, 1),
                (_, false) => (far, far),
                (_, true) if is_aligned => (1, 1),
                (_, true) => (far * 2 - 1, far * 2 - 1),
            }
        }
        Level::Raid4 | Level::Raid5 | Level::Raid6 => panic!("a parity level is written by row"),
    };
    ensure(most(write) <= written_max, "a write has more runs than promised")?;
    ensure(most(discard) <= discarded_max, "a discard has more runs than promised")
}

/// What a layout without parity plans.
fn copies(layout: &Layout) -> &CopyLayout {
    match layout {
        Layout::Copies(copies) => copies,
        Layout::Parity(_) => panic!("{layout:?} has parity"),
    }
}

fn spec(level: Level, layout: u32, members: u16) -> Spec {
    // 1.9 TB members, chunks of 512 KiB.
    let size = Sectors(3_710_937_500 / 2048 * 2048);
    let chunk = if level == Level::Raid1 { Sectors::ZERO } else { Sectors(1024) };
    let member_sizes = (0..members).map(|k| size + Sectors(u64::from(k) * (1 << 30))).collect();
    Spec { level, layout, chunk, raid_disks: members, size, member_sizes }
}

/// The array's whole range, and one that is ragged at both ends, in time that no walk over chunks could keep.
#[test]
fn a_discard_of_terabytes_has_few_runs() {
    for (level, layout, members, whole, ragged) in [
        (Level::Linear, 0, 4, 1, 1),
        (Level::Raid0, 1, 4, 1, 1),
        (Level::Raid0, 2, 200, 1, 1),
        (Level::Raid1, 0, 4, 1, 1),
        (Level::Raid10, 0x102, 4, 1, 1),
        (Level::Raid10, 0x102, 5, 1, 1),
        (Level::Raid10, 0x103, 256, 1, 1),
        // The sections of a far layout touch when all of each is discarded.
        (Level::Raid10, 0x201, 4, 1, 2),
        (Level::Raid10, 0x301, 7, 1, 3),
        (Level::Raid10, 0x1_0201, 4, 1, 3),
        (Level::Raid10, 0x1_0301, 256, 1, 5),
    ] {
        let layout = Layout::new(&spec(level, layout, members)).expect("a sound geometry");
        let all = SlotSet::first(members);
        let size = layout.array_size();
        for _ in 0..100 {
            let plan = copies(&layout).plan_discard(ArrayRange::new(ArraySector(0), size), &all);
            assert_eq!(most(&plan), whole, "{:?}", layout.spec());
            let count = u64::from(layout.copies_count());
            assert_eq!(plan.runs.iter().map(|run| run.length.0).sum::<u64>(), size.0 * count);
            let range = ArrayRange::new(ArraySector(777), Sectors(size.0 - 2222));
            let plan = copies(&layout).plan_discard(range, &all);
            assert!(most(&plan) <= ragged, "{:?} {plan:?}", layout.spec());
            assert_eq!(plan.runs.iter().map(|run| run.length.0).sum::<u64>(), range.length.0 * count);
        }
    }
}

#[test]
fn a_mebibyte_of_a_raid0_of_two_is_two_runs_of_interleaved_parts() {
    let mut spec = spec(Level::Raid0, 1, 2);
    spec.chunk = Sectors(512);
    let layout = Layout::new(&spec).expect("a sound geometry");
    let range = ArrayRange::new(ArraySector(4096), Sectors(2048));
    let plan = layout.plan_read(range, &SlotSet::first(2), CopyChoice::First);
    let runs: Vec<_> = plan.runs.iter().map(|run| (run.slot.0, run.at.0, run.length.0)).collect();
    assert_eq!(runs, [(0, 2048, 1024), (1, 2048, 1024)]);
    let offsets: Vec<_> = plan.parts.iter().map(|part| (part.offset.0, part.length.0)).collect();
    assert_eq!(offsets, [(0, 512), (1024, 512), (512, 512), (1536, 512)]);
}

#[test]
fn a_raid10_of_two_is_one_part_for_any_length() {
    let layout = Layout::new(&spec(Level::Raid10, 0x102, 2)).expect("a sound geometry");
    let range = ArrayRange::new(ArraySector(5), Sectors(1 << 30));
    let plan = copies(&layout).plan_write(range, &SlotSet::first(2));
    assert_eq!((plan.runs.len(), plan.parts.len()), (2, 2));
}

#[test]
#[should_panic(expected = "a range behind the array's end")]
fn a_range_beyond_the_end_panics() {
    let layout = Layout::new(&spec(Level::Raid1, 0, 2)).expect("a sound geometry");
    let range = ArrayRange::new(ArraySector(layout.array_size().0), Sectors(1));
    layout.plan_read(range, &SlotSet::first(2), CopyChoice::First);
}

#[test]
fn a_stripe_is_one_chunk_of_data_per_data_member() {
    for (level, layout, members, stripe) in [
        (Level::Linear, 0, 4, 0),
        (Level::Raid0, 1, 4, 4),
        (Level::Raid1, 0, 2, 0),
        (Level::Raid10, 0x102, 4, 2),
        // A chunk's copies lie in two rows here: two rows of five members hold five chunks.
        (Level::Raid10, 0x102, 5, 5),
        (Level::Raid10, 0x201, 5, 5),
        (Level::Raid10, 0x1_0201, 4, 4),
        (Level::Raid4, 0, 3, 2),
        (Level::Raid5, 2, 5, 4),
        (Level::Raid6, 2, 8, 6),
    ] {
        let layout = Layout::new(&spec(level, layout, members)).expect("a sound geometry");
        let chunk = if stripe == 0 { 0 } else { default_chunk(level).0 };
        assert_eq!(layout.chunk().0, chunk);
        assert_eq!(layout.stripe().0, stripe * chunk, "{:?}", layout.spec());
    }
}

#[test]
fn the_defaults_of_every_level_are_valid() {
    for level in Level::ALL {
        let spec = Spec { layout: default_layout(level), chunk: default_chunk(level), ..spec(level, 0, 4) };
        assert!(Layout::new(&spec).is_ok(), "{level}");
    }
}
