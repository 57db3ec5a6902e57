//! The rules of new arrays: first states, roles, refusals.
//! Owns: the rules of `create` beyond its numbers. Not here: the numbers (tests/vectors.rs).

use uraid_block::{Sector, Sectors, Slot};
use uraid_format::create::{CreateError, CreateOptions, Creation, NewMember, NewPolicy, create};
use uraid_format::{BadBlocks, Features, Role, SetName, Superblock, Version, location_v12};
use uraid_layout::{Layout, LayoutError, Level, Spec, default_layout};

const SIZE: Sectors = Sectors(1 << 18);

fn options(level: Level, raid_disks: u16) -> CreateOptions {
    CreateOptions {
        version: uraid_format::Version::V1_2,
        level,
        layout: default_layout(level),
        chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(1024) },
        raid_disks,
        spare_devices: 0,
        size: None,
        data_offset: None,
        set_uuid: [7; 16],
        set_name: SetName::new("host", "name").unwrap(),
        now_seconds: 1_700_000_000,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    }
}

fn devices(sizes: &[u64]) -> Vec<NewMember> {
    let device = |(n, size): (usize, &u64)| match size {
        0 => NewMember::Missing,
        _ => NewMember::Device { size: Sectors(*size), uuid: [n as u8 | 1 << 7; 16] },
    };
    sizes.iter().enumerate().map(device).collect()
}

fn make(options: &CreateOptions, missing: &[usize]) -> Result<Creation, CreateError> {
    let count = usize::from(options.raid_disks + options.spare_devices);
    let sizes: Vec<u64> = (0..count).map(|at| if missing.contains(&at) { 0 } else { SIZE.0 }).collect();
    create(options, &devices(&sizes))
}

#[test]
fn every_superblock_parses_at_its_place_with_its_role() {
    for level in Level::ALL {
        let mut options = options(level, 4);
        options.spare_devices = if matches!(level, Level::Linear | Level::Raid0) { 0 } else { 2 };
        let made = make(&options, &[]).unwrap();
        for (at, superblock) in made.superblocks.iter().enumerate() {
            let superblock = superblock.as_ref().unwrap();
            assert_eq!(Superblock::parse(&superblock.encode(), location_v12(), SIZE).as_ref(), Ok(superblock));
            assert_eq!(superblock.dev_number as usize, at);
            assert_eq!(superblock.device_uuid, [at as u8 | 1 << 7; 16]);
            assert_eq!(superblock.own_role(), if at < 4 { Role::Slot(Slot(at as u16)) } else { Role::Spare });
            assert_eq!((superblock.events, superblock.roles.len()), (0, 128));
            assert_eq!(superblock.updated, superblock.created);
        }
    }
}

#[test]
fn redundant_levels_start_dirty_and_the_others_clean() {
    for level in Level::ALL {
        let made = make(&options(level, 4), &[]).unwrap();
        let is_clean = matches!(level, Level::Linear | Level::Raid0);
        assert_eq!(made.is_clean, is_clean, "{level:?}");
        let superblock = made.superblocks[0].as_ref().unwrap();
        assert_eq!(superblock.resync_offset, if is_clean { Superblock::CLEAN } else { 0 });
        let assumed = make(&CreateOptions { assume_clean: true, ..options(level, 4) }, &[]).unwrap();
        assert!(assumed.is_clean);
    }
}

#[test]
fn a_missing_slot_makes_raid5_clean_and_leaves_its_number_unused() {
    let made = make(&options(Level::Raid5, 4), &[1]).unwrap();
    assert!(made.is_clean && made.superblocks[1].is_none());
    let superblock = made.superblocks[2].as_ref().unwrap();
    let roles: Vec<u16> = superblock.roles[..5].iter().map(|role| role.raw()).collect();
    assert_eq!(roles, [0, 0xffff, 2, 3, 0xffff]);
    assert_eq!(superblock.dev_number, 2);
    assert!(!make(&options(Level::Raid10, 4), &[1]).unwrap().is_clean);
    assert!(!make(&options(Level::Raid1, 2), &[0]).unwrap().is_clean);
}

#[test]
fn a_raid6_starts_with_two_missing_but_not_with_one() {
    assert!(make(&options(Level::Raid6, 4), &[0, 3]).unwrap().is_clean);
    assert_eq!(make(&options(Level::Raid6, 4), &[3]).unwrap_err(), CreateError::DirtyDegraded);
    let forced = CreateOptions { force: true, ..options(Level::Raid6, 4) };
    assert!(!make(&forced, &[3]).unwrap().is_clean);
}

#[test]
fn more_missing_than_the_level_survives_is_refused() {
    let too_many = |level, missing: &[usize]| make(&options(level, 4), missing).unwrap_err().to_string();
    assert!(too_many(Level::Raid0, &[1]).starts_with("3 of 4 slots have a device, too few for raid0"));
    assert!(too_many(Level::Raid5, &[1, 2]).starts_with("2 of 4"));
    assert!(too_many(Level::Raid6, &[0, 1, 2]).starts_with("1 of 4"));
    assert!(too_many(Level::Raid10, &[0, 1]).starts_with("2 of 4"));
    assert!(make(&options(Level::Raid10, 4), &[0, 2]).is_ok());
    assert!(too_many(Level::Raid1, &[0, 1, 2, 3]).starts_with("no slot has a device"));
}

#[test]
fn the_list_must_fit_the_counts() {
    let error = create(&options(Level::Raid5, 4), &devices(&[SIZE.0; 3])).unwrap_err();
    assert_eq!(error, CreateError::MemberCount { found: 3, expected: 4 });
    let mut spare = options(Level::Raid5, 3);
    spare.spare_devices = 1;
    assert_eq!(make(&spare, &[3]).unwrap_err(), CreateError::MissingSpare { member: 3 });
    let mut spare = options(Level::Raid0, 3);
    spare.spare_devices = 1;
    assert!(matches!(make(&spare, &[]), Err(CreateError::NoSpares { found: 1, .. })));
    assert!(matches!(make(&options(Level::Raid1, 1), &[]), Err(CreateError::SingleSlot { .. })));
    assert!(make(&CreateOptions { force: true, ..options(Level::Raid1, 1) }, &[]).is_ok());
    assert!(matches!(make(&options(Level::Raid6, 3), &[]), Err(CreateError::TooFewSlots { minimum: 4, .. })));
    assert!(matches!(make(&options(Level::Raid1, 257), &[]), Err(CreateError::TooManySlots { .. })));
}

#[test]
fn a_mirror_ignores_the_requested_chunk() {
    let asked = CreateOptions { chunk: Sectors(1024), ..options(Level::Raid1, 2) };
    let made = make(&asked, &[]).unwrap();
    assert!(made.superblocks.iter().flatten().all(|superblock| superblock.chunk.is_zero()));
}

#[test]
fn the_size_comes_from_the_smallest_member_and_the_data_offset_from_the_first() {
    let made = create(&options(Level::Raid5, 3), &devices(&[1 << 22, 1 << 20, 1 << 23])).unwrap();
    assert_eq!(made.geometry.data_offset, Sectors(6144));
    assert_eq!(made.geometry.size, Sectors((1 << 20) - 6144));
    let sizes: Vec<u64> = made.superblocks.iter().flatten().map(|superblock| superblock.data_size.0).collect();
    assert_eq!(sizes, [(1 << 22) - 6144, (1 << 20) - 6144, (1 << 23) - 6144]);
}

#[test]
fn size_and_data_offset_can_be_given() {
    let asked =
        CreateOptions { size: Some(Sectors(10_000)), data_offset: Some(Sectors(2048)), ..options(Level::Raid5, 3) };
    let made = make(&asked, &[]).unwrap();
    assert_eq!((made.geometry.size, made.geometry.data_offset), (Sectors(9216), Sectors(2048)));
    let far = CreateOptions { size: Some(SIZE), ..options(Level::Raid5, 3) };
    assert!(matches!(make(&far, &[]), Err(CreateError::SizeTooLarge { member: 0, .. })));
    let tiny = CreateOptions { size: Some(Sectors(8)), ..options(Level::Raid5, 3) };
    assert!(matches!(make(&tiny, &[]), Err(CreateError::SizeTooSmall { .. })));
    let low = CreateOptions { data_offset: Some(Sectors(15)), ..options(Level::Raid5, 3) };
    assert!(matches!(make(&low, &[]), Err(CreateError::DataOffset { .. })));
    let error = create(&options(Level::Raid5, 3), &devices(&[SIZE.0, 4000, SIZE.0])).unwrap_err();
    assert!(matches!(error, CreateError::DeviceTooSmall { member: 1, found: Sectors(4000), .. }), "{error}");
}

#[test]
fn a_raid10_records_the_sectors_that_md_uses_of_its_members() {
    let kinds = |copies: u32| [0x100 + copies, 1 + (copies << 8), 0x1_0001 + (copies << 8)];
    let mixed = [(0x202, 2), (0x1_0202, 2), (0x302, 3)];
    let pure = (2..=6).flat_map(|copies| kinds(copies).map(|layout| (layout, layout >> 8 & 0xff)));
    let mut made = 0;
    for (layout, far) in pure.chain(mixed) {
        for (raid_disks, chunks) in (2..=8).flat_map(|slots| (6..=30).map(move |chunks| (slots, chunks))) {
            let (chunk, size) = (Sectors(8), Some(Sectors(8 * chunks + 6)));
            let options = CreateOptions { layout, chunk, size, ..options(Level::Raid10, raid_disks) };
            let Ok(creation) = make(&options, &[]) else { continue };
            // Whole chunks of each far copy: md records nothing else once it has run the array.
            let used = Sectors((chunks - chunks % u64::from(far)) * 8);
            assert_eq!(creation.geometry.size, used, "{layout:#x} {raid_disks} {chunks}");
            assert!(creation.superblocks.iter().flatten().all(|superblock| superblock.size == used));
            made += 1;
        }
    }
    assert!(made > 1500, "only {made} arrays could be made");
}

#[test]
fn the_bad_block_list_moves_before_the_data_or_is_left_out_if_room_is_short() {
    let at = |offset: u64| {
        let made = make(&CreateOptions { data_offset: Some(Sectors(offset)), ..options(Level::Raid1, 2) }, &[]);
        let superblock = made.unwrap().superblocks.remove(0).unwrap();
        assert_eq!(superblock.data_offset, Sector(offset));
        superblock.bad_blocks
    };
    assert_eq!(at(2048), BadBlocks { shift: 0, size: 8, offset: 16 });
    assert_eq!(at(24), BadBlocks { shift: 0, size: 8, offset: 8 });
    assert_eq!(at(16), BadBlocks::default());
}

/// Kernels before 5.4 refuse the bit, and those from 5.4 on an array of several zones without it.
#[test]
fn a_raid0_records_its_layout_only_if_members_differ_in_chunks() {
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for (layout, sizes, is_recorded) in [
            (1, [SIZE.0; 3], false),
            (2, [SIZE.0; 3], false),
            (1, [SIZE.0, SIZE.0 + 1000, SIZE.0 + 8], false),
            (1, [SIZE.0, SIZE.0, SIZE.0 + 1024], true),
            (2, [SIZE.0, SIZE.0, SIZE.0 + 1024], true),
            (1, [SIZE.0 + 1024, SIZE.0, SIZE.0 + 1024], true),
            (2, [SIZE.0, SIZE.0 + 4096, SIZE.0 + 8192], true),
        ] {
            // 1.0 reserves 32 sectors at the end; added to the sizes here, so that all chunks fit.
            let kept = if version == Version::V1_0 { 32 } else { 0 };
            let options = CreateOptions { version, layout, ..options(Level::Raid0, 3) };
            let made = create(&options, &devices(&sizes.map(|size| size + kept))).unwrap();
            for superblock in made.superblocks.iter().flatten() {
                let features = if is_recorded { Features::RAID0_LAYOUT } else { Features::default() };
                assert_eq!(superblock.features, features, "{version} {layout} {sizes:?}");
                // mdadm writes the number anyway; without the bit it is not valid.
                assert_eq!(superblock.layout, layout);
                let counting = if is_recorded { layout } else { 0 };
                assert_eq!(superblock.level_layout(), Some((Level::Raid0, counting)));
                let spec = Spec { layout: counting, ..made.layout.spec().clone() };
                assert_eq!(Layout::new(&spec).unwrap().array_size(), made.layout.array_size());
            }
        }
    }
    let linear = create(&options(Level::Linear, 2), &devices(&[SIZE.0, SIZE.0 + 4096])).unwrap();
    assert!(linear.superblocks.iter().flatten().all(|superblock| superblock.features == Features::default()));
}

#[test]
fn chunks_and_layouts_that_md_refuses_are_refused() {
    for (level, chunk) in [(Level::Raid5, 4), (Level::Raid5, 0), (Level::Raid0, 3), (Level::Raid10, 1 << 32)] {
        let error = make(&CreateOptions { chunk: Sectors(chunk), ..options(level, 4) }, &[]).unwrap_err();
        assert!(matches!(error, CreateError::Chunk { .. }), "{level:?} {chunk}: {error}");
    }
    let error = make(&CreateOptions { layout: 77, ..options(Level::Raid5, 4) }, &[]).unwrap_err();
    assert!(matches!(error, CreateError::Layout(LayoutError::UnknownLayout { .. })), "{error:?}");
}
