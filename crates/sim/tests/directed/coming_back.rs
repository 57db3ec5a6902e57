//! Who may come back: each condition of taking a former member with the bits only.
//! Owns: that each condition alone keeps one out, that what the bits do not name is never skipped. Not here: what is copied
//! of one that is taken (`re_adding`), a bitmap that comes or goes meanwhile (`changing`), assembly (`engine`'s tests).

mod changing;

use super::joining::joining;
use super::re_adding::{
    CLEAR_AFTER, SIZE, begun, config, content_without_others, former_member, leave, pause, return_now, rig_with,
    set_speed, superblock_of, write_now,
};
use super::spares::{content_of, fail, fill, wait};
use super::*;
use uraid_engine::{AddError, FormerMember, PassKind, ReAddError, SpeedLimits};
use uraid_format::bitmap::{BitmapHeader, BitmapUnusable};
use uraid_format::{BadBlocks, Features};
use uraid_sim::image::bits::{bitmap_of, bitmap_to_add};
use uraid_sim::reference::model::Place;

/// Readers get what was written, and so would they from any member in sync. The disk of a slot has its number.
fn check(rig: &Rig, live: &Live, content: &[u8], case: &str) {
    pause(rig, live, Duration::from_secs(1));
    assert!(content_of(rig, live) == content, "{case}: the array gives something else than was written");
    let usable = live.arrays[0].status().usable;
    let get = |place: Place| -> Option<[u8; 512]> {
        let at = (rig.setup.data_offsets[usize::from(place.slot)] + place.sector) as usize * 512;
        let is_here = usable.contains(Slot(place.slot));
        is_here.then(|| rig.disk(place.slot).medium().current()[at..at + 512].try_into().expect("a sector"))
    };
    assert_eq!(rig.judge.model.find_mismatch(&get, &|_| false), None, "{case}: in sync are {usable:?}");
}

/// What all disks keep without power.
fn durable(rig: &Rig) -> Vec<Option<Vec<u8>>> {
    rig.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect()
}

fn stop(rig: &Rig, live: &Live) {
    let arrays = live.arrays.clone();
    assert!(all(rig, live, vec![async move { arrays[0].stop().await }]).remove(0).is_ok());
}

/// What changes about a member that fulfils every condition, and whether it may return.
type Row = (&'static str, Box<dyn Fn(&mut FormerMember)>, Option<ReAddError>);

fn of_superblock(
    name: &'static str,
    change: impl Fn(&mut Superblock) + 'static,
    expected: impl Into<Option<ReAddError>>,
) -> Row {
    (name, Box::new(move |former: &mut FormerMember| change(&mut former.superblock)), expected.into())
}

fn of_bitmap(name: &'static str, change: impl Fn(&mut BitmapHeader) + 'static) -> Row {
    let change = move |former: &mut FormerMember| former.bitmap.as_mut().expect("it has one").change_header(&change);
    (name, Box::new(change), Some(ReAddError::OwnBitmap))
}

/// What the superblocks of all members say alike.
fn shapes() -> Vec<Row> {
    let shape = ReAddError::Shape;
    vec![
        of_superblock("the id of another array", |own| own.set_uuid[0] ^= 1, shape),
        of_superblock("created at another time", |own| own.created += 1, shape),
        of_superblock("another version", |own| own.version = uraid_format::Version::V1_1, shape),
        of_superblock("another level", |own| own.level = 4, shape),
        of_superblock("another layout", |own| own.layout ^= 1, shape),
        of_superblock("another chunk", |own| own.chunk += Sectors(8), shape),
        of_superblock("another slot more", |own| own.raid_disks += 1, shape),
        of_superblock("smaller", |own| own.size -= Sectors(1), shape),
        of_superblock("a log beside it", |own| own.features = own.features.with(Features::PPL), shape),
        of_superblock("in a reshape", |own| own.features = own.features.with(Features::RESHAPE_ACTIVE), shape),
        of_superblock("a slot behind the others", |own| own.roles[1] = Role::Slot(Slot(9)), shape),
        of_superblock(
            "a list of bad blocks where the bitmap would be",
            |own| own.bad_blocks = BadBlocks { shift: 0, size: 8, offset: 8 },
            shape,
        ),
    ]
}

/// What its own bitmap says. `found`: the events of its superblock.
fn bitmaps(found: u64) -> Vec<Row> {
    vec![
        (
            "a bitmap that cannot be read",
            Box::new(|former| former.bitmap = Err(BitmapUnusable::Unreadable)),
            Some(ReAddError::OwnBitmap),
        ),
        of_bitmap("a bitmap that md called stale", |header| header.state = BitmapHeader::STALE),
        of_bitmap("a bitmap that could not be written", |header| header.state = BitmapHeader::WRITE_ERROR),
        of_bitmap("the bitmap of another array", |header| header.set_uuid[0] ^= 1),
        of_bitmap("a bitmap older than its superblock", move |header| header.events = found - 1),
        (
            "a bitmap of other chunks",
            Box::new(|former| {
                let own = former.bitmap.as_ref().expect("it has one").header().clone();
                let mut header = own.clone();
                header.chunk_bytes *= 2;
                former.bitmap = uraid_format::bitmap::BitmapImage::filled(header, Sectors(8));
            }),
            Some(ReAddError::OwnBitmap),
        ),
    ]
}

/// `events`: its own, and those of the array. `cleared`: from where on the bits name every write.
fn conditions(former: &FormerMember, events: u64, cleared: u64) -> Vec<Row> {
    let found = former.superblock.events;
    let data_end = Sectors(former.superblock.data_offset.0 + SIZE);
    let short = data_end - Sectors(1);
    let half = |own: &mut Superblock| {
        own.features = own.features.with(Features::RECOVERY_OFFSET);
        own.recovery_offset = 16;
    };
    let set_events = |former: &mut FormerMember, events: u64| {
        former.superblock.events = events;
        former.bitmap.as_mut().expect("it has one").change_header(|header| header.events = events);
    };
    let ahead = ReAddError::Ahead { found: events + 1, expected: events };
    let mut rows: Vec<Row> = vec![
        ("nothing", Box::new(|_| {}), None),
        ("as many events as the array", Box::new(move |former| set_events(former, events)), None),
        ("more events than the array", Box::new(move |former| set_events(former, events + 1)), Some(ahead)),
        ("as old as the bits reach", Box::new(move |former| set_events(former, cleared)), None),
        (
            "one event older than that",
            Box::new(move |former| set_events(former, cleared - 1)),
            Some(ReAddError::TooOld { found: cleared - 1, expected: cleared }),
        ),
        of_superblock("no slot", |own| own.roles[1] = Role::Spare, ReAddError::NoSlot),
        of_superblock("the slot of another member", |own| own.roles[1] = Role::Slot(Slot(2)), {
            ReAddError::Taken { slot: Slot(2) }
        }),
        of_superblock("it knows that another one failed", |own| own.roles[2] = Role::Faulty, ReAddError::Apart),
        of_superblock(
            "it lists no other one",
            |own| (0..).zip(&mut own.roles).filter(|(at, _)| *at != 1).for_each(|(_, role)| *role = Role::Spare),
            ReAddError::Apart,
        ),
        of_superblock("half recovered", half, ReAddError::Incomplete { found: Sectors(16), expected: Sectors(SIZE) }),
        of_superblock(
            "half recovered, by the bits",
            move |own| {
                half(own);
                own.features = own.features.with(Features::RECOVERY_BITMAP);
            },
            None,
        ),
        of_superblock(
            "bad blocks",
            |own| own.features = own.features.with(Features::BAD_BLOCKS),
            ReAddError::BadBlocks,
        ),
        ("just large enough", Box::new(move |former| former.device_size = data_end), None),
        (
            "too small now",
            Box::new(move |former| former.device_size = short),
            Some(ReAddError::Shrank { found: short, expected: data_end }),
        ),
    ];
    rows.extend(shapes());
    rows.extend(bitmaps(found));
    rows
}

/// The array's own bitmap, on a member.
fn header_on(rig: &Rig, disk: u16) -> BitmapHeader {
    let image = rig.disk(disk).medium().durable().to_vec();
    bitmap_of(&image, &superblock_of(rig, disk)).expect("it has a bitmap").header().clone()
}

#[test]
fn a_former_member_of_which_one_condition_is_untrue_is_refused_and_changes_nothing() {
    for (level, layout, slots) in [(1, 0, 3), (5, 2, 4), (6, 2, 5), (10, 0x102, 4)] {
        let mut rig = rig_with(level, layout, slots, 1);
        let live = start_with(&mut rig, &[slots], &config());
        let mut content = fill(&rig, &live);
        // Its bits are cleared, so the bits do not name everything.
        pause(&rig, &live, 4 * CLEAR_AFTER);
        write_now(&rig, &live, &mut content, 3, 99);
        fail(&rig, &live, 1);
        leave(&rig, &live, 1);
        write_now(&rig, &live, &mut content, 9, 100);
        let good = former_member(&rig, 1);
        let cleared = header_on(&rig, 0).events_cleared;
        assert!(cleared > 1 && cleared < good.superblock.events, "the border lies in the life of the array");
        let before = durable(&rig);
        for (name, change, expected) in conditions(&good, live.arrays[0].status().events, cleared) {
            let mut former = good.clone();
            change(&mut former);
            let outcome = live.arrays[0].former_slot(&former);
            assert_eq!(outcome.err(), expected, "raid{level} {layout:#x}: {name}");
        }
        assert!(durable(&rig) == before, "a question writes nothing");
        let index = return_now(&rig, &live, 1).expect("every condition is true");
        assert_eq!(wait(&rig, &live), [PassKind::Recovery]);
        assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)));
        check(&rig, &live, &content, &format!("raid{level} {layout:#x}"));
        rig.power_off();
    }
}

/// The array is what a member returns to: it must be there, and know of every failure.
#[test]
fn no_member_returns_to_an_array_that_could_not_record_it() {
    let mut rig = rig_with(1, 0, 3, 1);
    let live = start_with(&mut rig, &[3], &config());
    let content = fill(&rig, &live);
    fail(&rig, &live, 1);
    leave(&rig, &live, 1);
    let former = former_member(&rig, 1);
    assert_eq!(live.arrays[0].former_slot(&former), Ok(Slot(1)));
    // The record of another failure takes a while.
    let slow = Effect::Hang(Duration::from_secs(1));
    rig.disk(0).add_fault(Fault { victim: Target::SuperWrites, after: 1, effect: slow });
    let array = live.arrays[0].clone();
    let failing = rig.executor.spawn(0, "fail", async move {
        assert_eq!(array.fail(SlotSet::EMPTY.with(Slot(2))).await, Ok(()));
    });
    run(&rig, &live, || live.arrays[0].status().usable.count() == 1);
    assert_eq!(live.arrays[0].former_slot(&former), Err(ReAddError::Unrecorded));
    let executor = rig.executor.clone();
    run(&rig, &live, || !executor.is_running(failing));
    assert_eq!(live.arrays[0].former_slot(&former), Ok(Slot(1)));
    let array = live.arrays[0].clone();
    assert!(all(&rig, &live, vec![async move { array.become_read_only().await == Ok(true) }])[0]);
    assert_eq!(live.arrays[0].former_slot(&former), Err(ReAddError::NotNow(AddError::ReadOnly)));
    assert!(content_of(&rig, &live) == content);
    rig.power_off();
}

/// Returns by the bits, which are few, and fails before it has them all.
fn half_returned(rig: &Rig, live: &Live, content: &mut [u8]) -> usize {
    let slow = SpeedLimits { min: None, max: Some(1), share: None };
    fail(rig, live, 1);
    leave(rig, live, 1);
    (0..SIZE).for_each(|at| write_now(rig, live, content, at, 100 + at as u8));
    set_speed(rig, live, slow);
    let index = return_now(rig, live, 1).expect("the bits name all that it lacks");
    pause(rig, live, Duration::from_secs(15));
    let progress = live.arrays[0].status().pass.expect("it goes on");
    assert!(progress.kind == PassKind::Recovery && progress.done < progress.total, "{progress:?}");
    index
}

/// The bits of the slot's last member say nothing of what another device lacks.
#[test]
fn a_spare_in_the_slot_of_one_that_returned_by_the_bits_gets_everything() {
    for is_recovered in [false, true] {
        let mut rig = rig_with(1, 0, 3, 1);
        let live = start_with(&mut rig, &[3], &config());
        let mut content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        let index = half_returned(&rig, &live, &mut content);
        if is_recovered {
            set_speed(&rig, &live, SpeedLimits::default());
            assert_eq!(wait(&rig, &live), [PassKind::Recovery]);
            pause(&rig, &live, 4 * CLEAR_AFTER);
        }
        fail(&rig, &live, 1);
        leave(&rig, &live, index);
        set_speed(&rig, &live, SpeedLimits::default());
        let spare = all(&rig, &live, vec![joining(&rig, &live, 3)]).remove(0).expect("it joins");
        wait(&rig, &live);
        assert_eq!(live.arrays[0].status().members[spare], MemberState::Active(Slot(1)));
        assert!(content_without_others(&rig, &live, 1) == content, "the last one was recovered: {is_recovered}");
        rig.power_off();
    }
}

/// A bit that is cleared is missed by a member that fails before it was copied.
#[test]
fn no_bit_is_cleared_before_a_member_that_returned_has_what_it_names() {
    let mut rig = rig_with(1, 0, 2, 1);
    let live = start_with(&mut rig, &[2], &config());
    let mut content = fill(&rig, &live);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    let index = half_returned(&rig, &live, &mut content);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    fail(&rig, &live, 1);
    leave(&rig, &live, index);
    return_now(&rig, &live, 1).expect("the bits name all that it lacks");
    set_speed(&rig, &live, SpeedLimits::default());
    assert_eq!(wait(&rig, &live), [PassKind::Recovery]);
    check(&rig, &live, &content, "it failed in its recovery");
    rig.power_off();
}

/// Bits that a stop has cleared are not there for a member that was away.
#[test]
fn a_member_that_was_away_when_a_stop_cleared_the_bits_is_too_old() {
    for writes in [1, 5] {
        let mut rig = rig_with(1, 0, 3, 1);
        let live = start_with(&mut rig, &[3], &config());
        let mut content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        fail(&rig, &live, 1);
        leave(&rig, &live, 1);
        all(&rig, &live, vec![joining(&rig, &live, 3)]).remove(0).expect("it joins");
        wait(&rig, &live);
        // No period has passed when the array stops: it is the stop that clears these bits.
        (0..writes).for_each(|at| write_now(&rig, &live, &mut content, 40 + at, 99));
        stop(&rig, &live);
        let cleared = header_on(&rig, 0);
        assert!(cleared.events_cleared > superblock_of(&rig, 1).events, "{cleared:?}");
        let images = durable(&rig);
        rig.power_off();
        let (rig, live) = begun(&rig, images);
        let spare = live.arrays[0].status().members.iter().position(|state| state.slot() == Some(Slot(1)));
        fail(&rig, &live, 1);
        leave(&rig, &live, spare.expect("the spare has the slot"));
        let outcome = return_now(&rig, &live, 1);
        assert!(matches!(outcome, Err(ReAddError::TooOld { .. })), "{outcome:?}");
        assert!(content_of(&rig, &live) == content);
        rig.power_off();
    }
}
