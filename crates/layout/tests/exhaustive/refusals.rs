//! Geometries that no array can have.
//! Owns: each [`LayoutError`]; which raid10 layouts are unsound, determined by checking every sector of the model.

use super::model::{Model, Raid10};
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_layout::{Layout, LayoutError, Level, Spec};

fn spec(level: Level, layout: u32, chunk: u64, raid_disks: u16, size: u64) -> Spec {
    Spec { level, layout, chunk: Sectors(chunk), raid_disks, size: Sectors(size), member_sizes: Vec::new() }
}

fn sized(level: Level, layout: u32, chunk: u64, sizes: &[u64]) -> Spec {
    let member_sizes = sizes.iter().map(|&size| Sectors(size)).collect();
    Spec { member_sizes, ..spec(level, layout, chunk, sizes.len() as u16, 0) }
}

fn refusal(spec: &Spec) -> LayoutError {
    Layout::new(spec).err().unwrap_or_else(|| panic!("{spec:?} is accepted"))
}

/// Everything md's layout word can say on 2 to 12 members.
#[test]
fn a_raid10_layout_is_refused_exactly_when_it_is_unsound() {
    let (mut collide, mut collide_in_reference, mut share, mut sound) = (0, 0, 0, 0);
    for shape in (2..=12).flat_map(Raid10::all) {
        let (chunk, rows) = (1, 2 * shape.near + 1);
        let size = rows * shape.far * chunk;
        let model = Model::raid10(shape, chunk, size);
        let layout = Layout::new(&spec(Level::Raid10, shape.word(), chunk, shape.members as u16, size));
        let members = shape.members as u16;
        let found = shape.word();
        let expected = if model.collides() {
            assert!(shape.near > 1 && shape.far > 1, "{shape:?}");
            collide += 1;
            collide_in_reference += u32::from(shape.near <= 4 && shape.far <= 4);
            Some(LayoutError::NotInjective { found, members })
        } else if model.shares_members() {
            assert_eq!(shape.kind, 1, "only md's first far sets do that: {shape:?}");
            share += 1;
            Some(LayoutError::CopiesShareMember { found, members })
        } else {
            sound += 1;
            None
        };
        assert_eq!(layout.err(), expected, "{shape:?}");
    }
    // docs/md/address-mapping.md#raid10 counts those with at most four near and four far copies.
    assert_eq!(collide_in_reference, 76);
    println!("raid10 words: {collide} collide, {share} share members, {sound} are sound");
}

#[test]
fn member_counts_have_bounds() {
    for (level, expected) in [
        (Level::Linear, 1),
        (Level::Raid0, 1),
        (Level::Raid1, 1),
        (Level::Raid10, 2),
        (Level::Raid4, 2),
        (Level::Raid5, 2),
        (Level::Raid6, 4),
    ] {
        let found = expected - 1;
        let error = refusal(&spec(level, 0x102, 8, found, 64));
        assert_eq!(error, LayoutError::TooFewMembers { level, found, expected });
        let error = refusal(&spec(level, 0x102, 8, 257, 64));
        assert_eq!(error, LayoutError::TooManyMembers { level, found: 257, expected: 256 });
    }
    let error = refusal(&spec(Level::Raid6, 10, 8, 256, 64));
    assert_eq!(error, LayoutError::TooManyMembers { level: Level::Raid6, found: 256, expected: 255 });
    assert!(Layout::new(&spec(Level::Raid6, 2, 8, 256, 64)).is_ok());
    let Ok(Layout::Parity(ddf)) = Layout::new(&spec(Level::Raid6, 10, 8, 255, 64)) else { panic!("DDF takes 255") };
    assert_eq!(ddf.row(uraid_layout::Row(0)).data.len(), 253);
}

#[test]
fn a_chunk_is_a_power_of_two_except_in_raid0() {
    for level in [Level::Raid10, Level::Raid4, Level::Raid5, Level::Raid6] {
        for chunk in [0, 3, 96, u64::MAX] {
            let layout = if level == Level::Raid10 { 0x102 } else { 2 };
            let error = refusal(&spec(level, layout, chunk, 4, 4096));
            assert!(matches!(error, LayoutError::Chunk { .. }), "{error}");
        }
    }
    assert!(matches!(refusal(&sized(Level::Raid0, 1, 0, &[64, 64])), LayoutError::Chunk { .. }));
    assert!(Layout::new(&sized(Level::Raid0, 1, 96, &[960, 960])).is_ok());
}

#[test]
fn an_array_holds_at_least_one_chunk() {
    let chunk = Sectors(8);
    for (level, layout) in [(Level::Raid10, 0x102), (Level::Raid4, 0), (Level::Raid5, 2), (Level::Raid6, 2)] {
        let error = refusal(&spec(level, layout, 8, 4, 7));
        assert_eq!(error, LayoutError::SizeTooSmall { found: Sectors(7), expected: chunk });
    }
    let error = refusal(&spec(Level::Raid10, 0x201, 8, 4, 15));
    assert_eq!(error, LayoutError::SizeTooSmall { found: Sectors(15), expected: Sectors(16) });
    let error = refusal(&spec(Level::Raid1, 0, 0, 2, 0));
    assert_eq!(error, LayoutError::SizeTooSmall { found: Sectors(0), expected: Sectors(1) });
    for level in [Level::Linear, Level::Raid0] {
        let error = refusal(&sized(level, 1, 8, &[64, 7, 64]));
        assert_eq!(error, LayoutError::MemberTooSmall { slot: Slot(1), found: Sectors(7), expected: chunk });
    }
    let wanted = Spec { member_sizes: vec![Sectors(64)], ..spec(Level::Raid0, 1, 8, 2, 0) };
    assert_eq!(refusal(&wanted), LayoutError::MemberSizes { found: 1, expected: 2 });
}

#[test]
fn sizes_beyond_a_signed_byte_count_are_refused() {
    let limit = Sectors(i64::MAX as u64 / 512);
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid10, 0x102), (Level::Raid5, 2), (Level::Raid6, 2)] {
        for size in [limit.0 + 1, u64::MAX, u64::MAX - 7] {
            assert_eq!(refusal(&spec(level, layout, 8, 4, size)), LayoutError::TooLarge { limit }, "{level}");
        }
    }
    assert_eq!(refusal(&spec(Level::Raid5, 2, 8, 4, limit.0)), LayoutError::TooLarge { limit });
    for level in [Level::Linear, Level::Raid0] {
        assert_eq!(refusal(&sized(level, 1, 8, &[u64::MAX, u64::MAX])), LayoutError::TooLarge { limit });
        assert_eq!(refusal(&sized(level, 1, 8, &[limit.0, limit.0])), LayoutError::TooLarge { limit });
    }
    let far = spec(Level::Raid10, 0x201, 1 << 63, 2, limit.0);
    assert!(matches!(refusal(&far), LayoutError::SizeTooSmall { .. }));
}

#[test]
fn unknown_layout_numbers_are_refused() {
    for (level, layout) in
        [(Level::Raid5, 6), (Level::Raid5, 16), (Level::Raid6, 6), (Level::Raid6, 7), (Level::Raid6, 21)]
    {
        assert_eq!(refusal(&spec(level, layout, 8, 4, 64)), LayoutError::UnknownLayout { level, found: layout });
    }
    for found in [0x6_0102, 0x8_0102, u32::MAX] {
        let error = refusal(&spec(Level::Raid10, found, 8, 4, 64));
        assert_eq!(error, LayoutError::UnknownLayout { level: Level::Raid10, found });
    }
    for (found, copies) in [(0x101, 1), (0, 0), (0x105, 5), (0x202 + 1, 6)] {
        let error = refusal(&spec(Level::Raid10, found, 8, 4, 64));
        assert_eq!(error, LayoutError::CopiesCount { found: copies, members: 4 });
    }
    // The kernel ignores raid4's number.
    assert!(Layout::new(&spec(Level::Raid4, 77, 8, 4, 64)).is_ok());
}

#[test]
fn a_raid0_needs_its_layout_only_where_it_matters() {
    for layout in [0, 3, u32::MAX] {
        assert!(Layout::new(&sized(Level::Raid0, layout, 8, &[16, 16, 16])).is_ok(), "one zone");
        assert!(Layout::new(&sized(Level::Raid0, layout, 8, &[16, 32, 16])).is_ok(), "a second zone of one member");
        assert!(
            Layout::new(&sized(Level::Raid0, layout, 8, &[16, 32, 32])).is_ok(),
            "6 chunks first: both are the same"
        );
        let error = refusal(&sized(Level::Raid0, layout, 8, &[8, 32, 32]));
        assert_eq!(error, LayoutError::ZonesWithoutLayout { zones: 2, found: layout });
    }
}

#[test]
fn raid10_survives_what_its_windows_allow() {
    let layout = Layout::new(&spec(Level::Raid10, 0x102, 8, 4, 64)).expect("n2 on 4");
    let healthy = SlotSet::first(4);
    assert!(layout.can_serve(&healthy.without(Slot(0)).without(Slot(2))), "one of each pair");
    assert!(!layout.can_serve(&healthy.without(Slot(2)).without(Slot(3))), "a whole pair");
    assert!(layout.can_serve(&SlotSet::first(200)), "slots that the array has not do not matter");
    let far = Layout::new(&spec(Level::Raid10, 0x201, 8, 4, 64)).expect("f2 on 4");
    assert!(!far.can_serve(&healthy.without(Slot(3)).without(Slot(0))), "the last window wraps");
}
