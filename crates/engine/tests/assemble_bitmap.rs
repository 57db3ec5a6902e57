//! Which write-intent bitmaps an array that starts believes.
//! Owns: stale, foreign, unreadable and disagreeing bitmaps, and members that have none yet. Not here: reading members
//! (`uraid_format::bitmap`), setting and clearing bits (the simulator).

use crate::candidates::{FORCE, array, record_failure, start};
use uraid_block::Sectors;
use uraid_engine::{AssembleOptions, Candidate, ReadOnlyReason, StartPlan, assemble};
use uraid_format::bitmap::{BitmapHeader, BitmapImage, BitmapUnusable, BitmapVersion};
use uraid_format::{BadBlocks, Features};
use uraid_layout::Level;

const CHUNK: u32 = 1 << 20;

/// A raid1 with a bitmap beside each superblock; no bad-block log is in its way.
fn members(count: u16) -> Vec<Candidate> {
    let mut members = array(Level::Raid1, count, 0);
    for member in &mut members {
        member.superblock.features = member.superblock.features.with(Features::BITMAP_OFFSET);
        member.superblock.bitmap_offset = 8;
        member.superblock.bad_blocks = BadBlocks::default();
    }
    members
}

fn header(members: &[Candidate]) -> BitmapHeader {
    BitmapHeader {
        version: BitmapVersion::LittleEndian,
        set_uuid: [7; 16],
        events: 10,
        events_cleared: 3,
        sync_size: members[0].superblock.size,
        state: 0,
        chunk_bytes: CHUNK,
        daemon_sleep_seconds: 5,
        write_behind: 0,
        sectors_reserved: Sectors::ZERO,
        nodes: 0,
        cluster_name: [0; 64],
    }
}

/// A bitmap of these members with some bits set.
fn bitmap(members: &[Candidate], change: impl FnOnce(&mut BitmapHeader), bits: &[u64]) -> BitmapImage {
    let mut header = header(members);
    change(&mut header);
    let mut image = BitmapImage::filled(header, Sectors(8)).unwrap().cleared();
    bits.iter().for_each(|bit| image.set(*bit));
    image
}

type Found = Result<BitmapImage, BitmapUnusable>;

fn taken(mut plan: StartPlan, found: &[Found]) -> StartPlan {
    plan.take_bitmaps(|candidate| found[candidate].clone());
    plan
}

fn bits(plan: &StartPlan) -> Vec<u64> {
    let image = &plan.bitmap.as_ref().expect("it takes writes").image;
    (0..image.header().chunks()).filter(|chunk| image.is_set(*chunk)).collect()
}

fn is_out_of_date(plan: &StartPlan) -> bool {
    let bitmap = plan.bitmap.as_ref().expect("it takes writes");
    assert_eq!(bitmap.is_out_of_date, bits(plan).len() as u64 == bitmap.image.header().chunks());
    bitmap.is_out_of_date
}

#[test]
fn the_bits_of_all_that_are_believed_count() {
    let members = members(2);
    let found = [Ok(bitmap(&members, |_| {}, &[0, 5])), Ok(bitmap(&members, |_| {}, &[5, 9]))];
    let plan = start(&members).unwrap();
    assert_eq!(plan.read_only, Some(ReadOnlyReason::Bitmap), "nothing was read yet");
    let plan = taken(plan, &found);
    assert_eq!((plan.read_only, bits(&plan)), (None, vec![0, 5, 9]));
    assert_eq!(plan.bitmap.as_ref().unwrap().behind, [0, 1], "each lacks a bit of the other");
    let alike = [found[0].clone(), found[0].clone()];
    assert_eq!(taken(start(&members).unwrap(), &alike).bitmap.unwrap().behind, [0; 0]);
    // A stop was cut short between the headers of two members.
    let cleared = [found[0].clone(), Ok(bitmap(&members, |header| header.events_cleared = 8, &[0, 5]))];
    let plan = taken(start(&members).unwrap(), &cleared).bitmap.unwrap();
    assert_eq!((plan.image.header().events_cleared, plan.behind), (8, vec![0]));
}

#[test]
fn a_bitmap_older_than_the_superblocks_is_not_believed() {
    let members = members(2);
    let stale = || Ok(bitmap(&members, |header| header.events = 9, &[1]));
    let plan = taken(start(&members).unwrap(), &[stale(), stale()]);
    assert!(is_out_of_date(&plan));
    assert_eq!(plan.bitmap.unwrap().behind, [0, 1]);
    let plan = taken(start(&members).unwrap(), &[stale(), Ok(bitmap(&members, |_| {}, &[4]))]);
    assert_eq!((bits(&plan), is_out_of_date(&plan)), (vec![4], false), "the other one is");
    assert_eq!(plan.bitmap.unwrap().behind, [0]);
    // A crash between a bitmap's header and the superblocks leaves it one ahead.
    let ahead = || Ok(bitmap(&members, |header| header.events = 11, &[2]));
    let plan = taken(start(&members).unwrap(), &[ahead(), ahead()]);
    assert_eq!((bits(&plan), plan.bitmap.unwrap().image.header().events), (vec![2], 10));
}

#[test]
fn a_bitmap_that_only_a_member_left_out_has_was_never_added() {
    let mut members = members(2);
    members[0].superblock.events += 1;
    members[0].device_size = Sectors(members[0].superblock.data_offset.0 + 8);
    members[1].superblock.features = members[1].superblock.features.without(Features::BITMAP_OFFSET);
    members[1].superblock.bitmap_offset = 0;
    let found = [Ok(bitmap(&members, |_| {}, &[1])), Err(BitmapUnusable::NoRoom)];
    let run = AssembleOptions { run: true, ..AssembleOptions::default() };
    let plan = taken(assemble(&members, &run).unwrap(), &found);
    assert_eq!((plan.read_only, plan.bitmap.is_none()), (None, true));
    assert!(!plan.template.features.contains(Features::BITMAP_OFFSET) && plan.template.bitmap_offset == 0);
    assert_eq!(plan.members.len(), 1);
}

#[test]
fn what_md_marked_stale_and_other_sizes_are_not_believed_and_put_right() {
    let members = members(2);
    let found = |change: fn(&mut BitmapHeader)| [(); 2].map(|()| Ok(bitmap(&members, change, &[1])));
    let plan = taken(start(&members).unwrap(), &found(|header| header.state = BitmapHeader::STALE));
    assert!(is_out_of_date(&plan));
    assert_eq!(plan.bitmap.unwrap().image.header().state, 0);
    let plan = taken(start(&members).unwrap(), &found(|header| header.state = BitmapHeader::WRITE_ERROR));
    assert!(is_out_of_date(&plan), "a bit may be missing");
    let plan = taken(start(&members).unwrap(), &found(|header| header.sync_size = Sectors(4096)));
    assert!(is_out_of_date(&plan));
    assert_eq!(plan.bitmap.unwrap().image.header().sync_size, members[0].superblock.size);
}

#[test]
fn members_taken_by_force_may_differ_anywhere() {
    let mut members = members(2);
    record_failure(&mut members, &[0], &[]);
    record_failure(&mut members, &[0], &[]);
    members[0].superblock.roles[0] = uraid_format::Role::Slot(uraid_block::Slot(0));
    let found = [(); 2].map(|()| Ok(bitmap(&members, |header| header.events = 12, &[1])));
    // One member serves a mirror, so nothing is raised: the stale member stays out, and the bits stay.
    let plan = taken(assemble(&members, &FORCE).unwrap(), &found);
    assert_eq!((bits(&plan), plan.forced.raised.len()), (vec![1], 0));
    let mut plan = assemble(&members, &FORCE).unwrap();
    plan.forced.is_split_brain = true;
    assert!(is_out_of_date(&taken(plan, &found)));
}

#[test]
fn a_bitmap_that_cannot_be_kept_up_to_date_leaves_the_array_read_only_with_its_reason() {
    let members = members(2);
    let reason = |found: &[Found]| taken(start(&members).unwrap(), found).read_only;
    for error in [BitmapUnusable::Unreadable, BitmapUnusable::Lockless, BitmapUnusable::Clustered] {
        assert_eq!(reason(&[Err(error), Err(error)]), Some(ReadOnlyReason::BitmapUnusable(error)));
        assert_eq!(reason(&[Err(error), Ok(bitmap(&members, |_| {}, &[]))]), None, "one member has it");
    }
    let foreign = || Ok(bitmap(&members, |header| header.set_uuid = [9; 16], &[]));
    let error = BitmapUnusable::Foreign { found: [9; 16], expected: [7; 16] };
    assert_eq!(reason(&[foreign(), foreign()]), Some(ReadOnlyReason::BitmapUnusable(error)));
    let mut narrow = members.clone();
    for member in &mut narrow {
        member.superblock.bad_blocks = BadBlocks { shift: 0, size: 8, offset: 8 };
    }
    let plan = taken(start(&narrow).unwrap(), &[Ok(bitmap(&narrow, |_| {}, &[])), Ok(bitmap(&narrow, |_| {}, &[]))]);
    assert_eq!(plan.read_only, Some(ReadOnlyReason::BitmapUnusable(BitmapUnusable::NoRoom)));
}

#[test]
fn other_reasons_to_be_read_only_stay() {
    let members = members(2);
    let found = [(); 2].map(|()| Ok(bitmap(&members, |_| {}, &[])));
    let look = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let plan = taken(assemble(&members, &look).unwrap(), &found);
    assert_eq!(plan.read_only, Some(ReadOnlyReason::Requested));
}

/// A crash while the superblocks were written that do not list it any more.
#[test]
fn the_freshest_superblock_says_whether_there_is_a_bitmap() {
    let mut one = members(2);
    let found = [(); 2].map(|()| Ok(bitmap(&one, |_| {}, &[])));
    one[0].superblock.features = Features::default();
    one[0].superblock.events += 1;
    let plan = taken(start(&one).unwrap(), &found);
    assert_eq!((plan.read_only, plan.bitmap.is_none()), (None, true));
    one[1].superblock.events += 2;
    let plan = taken(start(&one).unwrap(), &[(); 2].map(|()| Ok(bitmap(&one, |header| header.events += 9, &[]))));
    assert_eq!((plan.read_only, plan.bitmap.is_some()), (None, true));
}
