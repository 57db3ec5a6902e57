//! Bitmaps that a running array gets or loses.
//! Owns: what members hold afterwards, when a change is refused. Not here: crashes in it (the exploration of crash images),
//! changes beside faults and passes (the swarm).

use super::*;
use crate::directed::joining::leaving;
use crate::directed::re_adding::{content_without_others, former_member, return_now, rig_with as re_adding_rig};
use crate::directed::spares::{CASES, fill, wait};
use uraid_engine::{ChangeBitmapError, ReAddError};
use uraid_sim::image::bits::bitmap_to_add;

fn add(rig: &Rig, live: &Live, chunk: u64) -> Result<(), ChangeBitmapError> {
    let array = live.arrays[0].clone();
    let bitmap = bitmap_to_add(&rig.setup.shape, rig.setup.superblock(0).set_uuid, chunk, 0);
    all(rig, live, vec![async move { array.add_bitmap(bitmap).await }]).remove(0)
}

fn remove(rig: &Rig, live: &Live) -> Result<(), ChangeBitmapError> {
    let array = live.arrays[0].clone();
    all(rig, live, vec![async move { array.remove_bitmap().await }]).remove(0)
}

/// A raid1 that was made without a bitmap. Data from sector 24 on leaves room for one, from 16 on it does not.
fn mirror_without_bits(data_offsets: Vec<u64>) -> Rig {
    let slots = data_offsets.len();
    let shape = Shape { level: 1, layout: 0, chunk: 0, slots: slots as u16, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(3);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { data_offsets, data_sizes: vec![24; slots], ..Setup::plain(shape) };
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

/// Whether the superblock of a member lists a bitmap, durably.
fn is_listed(rig: &Rig, disk: u16) -> bool {
    let medium = rig.disk(disk).medium();
    let bytes: [u8; 4096] = medium.durable()[8 * 512..16 * 512].try_into().expect("a place");
    let superblock = Superblock::parse(&bytes, Sector(8), rig.disk(disk).geometry().size).expect("a good one");
    assert_eq!(superblock.bitmap_offset, if superblock.features.contains(Features::BITMAP_OFFSET) { 8 } else { 0 });
    superblock.features.contains(Features::BITMAP_OFFSET)
}

#[test]
fn no_superblock_lists_a_removed_bitmap_and_an_added_one_names_what_is_written() {
    for (level, slots) in [(1, 2), (1, 3), (5, 3), (6, 5)] {
        for shards in [1, 3] {
            let case = format!("raid{level} of {slots}, {shards} shards");
            let mut rig = rig_with_bits(level, slots, 0, shards);
            let live = start_with(&mut rig, &[], &config());
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 1)]), [Ok(())]);
            assert_eq!(remove(&rig, &live), Ok(()), "{case}");
            assert!((0..slots).all(|disk| !is_listed(&rig, disk)), "{case}");
            assert_eq!(live.arrays[0].status().bitmap, None, "{case}");
            let before = bits(&rig, 0);
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 9, 1, 1)]), [Ok(())]);
            assert_eq!(bits(&rig, 0), before, "{case}: this write has no bit");
            assert_eq!(remove(&rig, &live), Err(ChangeBitmapError::NoBitmap), "{case}");
            assert_eq!(add(&rig, &live, 1), Ok(()), "{case}");
            assert!((0..slots).all(|disk| is_listed(&rig, disk) && bits(&rig, disk).is_empty()), "{case}");
            assert_eq!(add(&rig, &live, 1), Err(ChangeBitmapError::HasBitmap), "{case}");
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 9, 1, 1)]), [Ok(())]);
            assert!((0..slots).all(|disk| !bits(&rig, disk).is_empty()), "{case}");
            pause(&rig, &live, 4 * CLEAR_AFTER);
            assert!((0..slots).all(|disk| bits(&rig, disk).is_empty()), "{case}: bits are cleared");
            assert!(rig.stop(&live).expect("legal"), "{case}");
            assert_eq!(add(&rig, &live, 1), Err(ChangeBitmapError::NotOpen), "{case}");
            rig.power_off();
        }
    }
}

#[test]
fn a_bitmap_stays_as_it_is_during_a_resync() {
    let mut rig = rig_with_bits(1, 2, 0, 1);
    for disk in 0..2 {
        change_superblock(&rig, disk, |superblock| superblock.resync_offset = 0);
    }
    let slow = Config { pass_window: Sectors(1), ..config() };
    let live = open_with(&mut rig, &[], &slow);
    assert_eq!(remove(&rig, &live), Err(ChangeBitmapError::Busy(PassKind::Resync)));
    wait(&rig, &live);
    assert_eq!(remove(&rig, &live), Ok(()));
    rig.power_off();
}

#[test]
fn a_member_without_room_is_named() {
    let mut rig = mirror_without_bits(vec![24, 16]);
    let live = start(&mut rig, &[]);
    let length = Sectors(1);
    assert_eq!(add(&rig, &live, 1), Err(ChangeBitmapError::MemberRoom { member: 1, length }));
    assert!(!is_listed(&rig, 0) && live.arrays[0].status().bitmap.is_none());
    rig.power_off();
}

/// The area of the bitmap on a member is bad: the array goes on without a bitmap, and with the member.
#[test]
fn a_member_that_cannot_take_a_new_bitmap_is_named_and_stays() {
    for (level, slots) in [(1, 2), (5, 3)] {
        let mut rig = rig_with_bits(level, slots, 0, 1);
        let live = start_with(&mut rig, &[], &config());
        assert_eq!(remove(&rig, &live), Ok(()));
        let error = ErrorKind::Media;
        rig.disk(1).add_fault(Fault { victim: Target::SuperWrites, after: 0, effect: Effect::Error(error) });
        match add(&rig, &live, 1) {
            Err(ChangeBitmapError::Member { member: 1, error: found }) => assert_eq!(found.kind, error),
            other => panic!("raid{level}: {other:?}"),
        }
        assert_eq!(live.arrays[0].status().members[1], MemberState::Active(Slot(1)), "raid{level}");
        assert!((0..slots).all(|disk| !is_listed(&rig, disk)), "raid{level}");
        assert_eq!(live.arrays[0].status().bitmap, None, "raid{level}");
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 3, 1, 1)]), [Ok(())]);
        assert_eq!(add(&rig, &live, 1), Ok(()), "raid{level}: the fault is over");
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 3, 1, 1)]), [Ok(())]);
        assert!(!bits(&rig, 1).is_empty(), "raid{level}");
        rig.power_off();
    }
}

/// The array freezes while superblocks that list the bitmap are written, and takes writes again: some of them list it, so
/// every write needs its bit.
#[test]
fn a_bitmap_that_a_superblock_lists_stays_although_the_array_froze() {
    let mut rig = rig_with_bits(1, 3, 0, 1);
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &Config { clean_after: Duration::from_secs(600), ..config() });
    assert_eq!(remove(&rig, &live), Ok(()));
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 1)]), [Ok(())]);
    let slow = Effect::Hang(Duration::from_secs(5));
    // The bitmap and its header with new events come first.
    rig.disk(0).add_fault(Fault { victim: Target::SuperWrites, after: 2, effect: slow });
    let outcome = Rc::new(Cell::new(None));
    let (array, told) = (live.arrays[0].clone(), outcome.clone());
    let bitmap = bitmap_to_add(&rig.setup.shape, rig.setup.superblock(0).set_uuid, 1, 0);
    rig.executor.spawn(0, "add", async move { told.set(Some(array.add_bitmap(bitmap).await)) });
    pause(&rig, &live, Duration::from_secs(1));
    several::fill_up(&rig, 1, Target::Writes);
    assert!(all(&rig, &live, vec![write(&rig, &live, 5, 1, 2)])[0].is_err());
    assert_eq!(live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace));
    spares::fail(&rig, &live, 1);
    run(&rig, &live, || outcome.get().is_some());
    assert!(matches!(outcome.get(), Some(Err(ChangeBitmapError::Frozen(_)))), "{:?}", outcome.get());
    assert_eq!(live.arrays[0].status().gate, Gate::Open);
    assert!(is_listed(&rig, 0) && live.arrays[0].status().bitmap.is_some());
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 9, 1, 3)]), [Ok(())]);
    assert!([0, 2].into_iter().all(|disk| bits(&rig, disk).contains(&9)));
    rig.power_off();
}

/// It lists no bitmap of its own: that the new one does not reach back to it is the reason.
#[test]
fn a_member_of_an_array_that_never_had_a_bitmap_is_too_old_for_it() {
    let mut rig = mirror_without_bits(vec![24; 3]);
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    let live = start(&mut rig, &[]);
    spares::fail(&rig, &live, 1);
    assert_eq!(all(&rig, &live, vec![leaving(&live, 1)]), [Ok(())]);
    assert_eq!(add(&rig, &live, 1), Ok(()));
    let template = live.arrays[0].vacancy().expect("there is a number").template;
    assert!(template.features.contains(Features::BITMAP_OFFSET), "a spare keeps room for it");
    let outcome = return_now(&rig, &live, 1);
    assert!(matches!(outcome, Err(ReAddError::TooOld { .. })), "{outcome:?}");
    rig.power_off();
}

/// A member that left before the bitmap was added has missed writes that it does not name.
#[test]
fn a_member_that_left_before_the_bitmap_is_too_old_for_it() {
    for (level, layout, slots) in CASES {
        let mut rig = re_adding_rig(level, layout, slots, 1);
        let live = start_with(&mut rig, &[slots], &config());
        let mut content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        spares::fail(&rig, &live, 1);
        assert_eq!(all(&rig, &live, vec![leaving(&live, 1)]), [Ok(())]);
        assert_eq!(remove(&rig, &live), Ok(()));
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 1, 1, 77)]), [Ok(())]);
        content[512..1024].fill(77);
        assert_eq!(return_now(&rig, &live, 1), Err(ReAddError::NoBitmap), "raid{level} {layout:#x}");
        assert_eq!(add(&rig, &live, 1), Ok(()), "raid{level} {layout:#x}");
        let events = former_member(&rig, 1).superblock.events;
        match return_now(&rig, &live, 1) {
            Err(ReAddError::TooOld { found, expected }) => assert!(found == events && expected > found),
            other => panic!("raid{level} {layout:#x}: {other:?}"),
        }
        // One that leaves afterwards returns by its bits.
        if live.arrays[0].layout().can_serve(&live.arrays[0].status().usable.without(Slot(0))) {
            spares::fail(&rig, &live, 0);
            assert_eq!(all(&rig, &live, vec![leaving(&live, 0)]), [Ok(())]);
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 3, 1, 78)]), [Ok(())]);
            content[3 * 512..4 * 512].fill(78);
            return_now(&rig, &live, 0).expect("the bitmap names it");
            assert_eq!(wait(&rig, &live), [PassKind::Recovery], "raid{level} {layout:#x}");
            assert!(content_without_others(&rig, &live, 0) == content, "raid{level} {layout:#x}");
        }
        rig.power_off();
    }
}
