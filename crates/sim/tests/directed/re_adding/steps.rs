//! What happens around a return: a failure right before bits are cleared, a power cut at each step of it, a replacement
//! afterwards.
//! Owns: these, and how far a device that was away is left behind. Not here: each condition of returning (`coming_back`), what is copied (the parent).

use super::*;

/// No bit is cleared without it, so the bits name what it lacks.
#[test]
fn a_member_that_fails_the_flush_before_bits_are_cleared_returns_by_them() {
    for shards in [1, 3] {
        let mut rig = rig_with(1, 0, 3, shards);
        let live = start_with(&mut rig, &[3], &config());
        let mut content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        write_now(&rig, &live, &mut content, 40, 99);
        // An array that is written is not flushed to be marked clean.
        for _ in 0..80 {
            write_now(&rig, &live, &mut content, 0, 97);
            if live.arrays[0].status().members[1] == MemberState::Active(Slot(1)) {
                rig.disk(1).forget_faults();
                let effect = Effect::Error(ErrorKind::Media);
                rig.disk(1).add_fault(Fault { victim: Target::Flushes, after: 0, effect });
            }
            pause(&rig, &live, CLEAR_AFTER / 10);
        }
        let members = live.arrays[0].status().members;
        assert!(matches!(members[1], MemberState::Faulty { .. }), "{members:?}");
        rig.disk(1).forget_faults();
        leave(&rig, &live, 1);
        write_now(&rig, &live, &mut content, 9, 98);
        let index = return_now(&rig, &live, 1).expect("the bits name all that it lacks");
        assert_eq!(wait(&rig, &live), [PassKind::Recovery]);
        assert_eq!(live.arrays[0].status().members[index], MemberState::Active(Slot(1)));
        assert!(content_without_others(&rig, &live, 1) == content);
        rig.power_off();
    }
}

/// A member that replaces the one that had returned lacks more than the bits name, if that one fails half-way.
#[test]
fn a_replacement_of_a_member_that_had_returned_by_the_bits_is_recovered_whole() {
    let mut rig = rig_with(1, 0, 3, 1);
    let live = start_with(&mut rig, &[3], &config());
    let mut content = fill(&rig, &live);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    fail(&rig, &live, 1);
    leave(&rig, &live, 1);
    write_now(&rig, &live, &mut content, 9, 98);
    return_now(&rig, &live, 1).expect("the bits name all that it lacks");
    assert_eq!(wait(&rig, &live), [PassKind::Recovery]);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    let spare = all(&rig, &live, vec![joining(&rig, &live, 3)]).remove(0).expect("it joins");
    set_speed(&rig, &live, SpeedLimits { min: None, max: Some(1), share: None });
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.replace(Slot(1), None).await }]), [Ok(spare)]);
    pause(&rig, &live, Duration::from_secs(15));
    fail(&rig, &live, 1);
    assert!(
        matches!(live.arrays[0].status().members[spare], MemberState::Recovering { .. }),
        "it goes on from the others"
    );
    set_speed(&rig, &live, SpeedLimits::default());
    wait(&rig, &live);
    assert_eq!(live.arrays[0].status().members[spare], MemberState::Active(Slot(1)));
    assert!(content_without_others(&rig, &live, 1) == content);
    rig.power_off();
}

/// What the superblock of a disk says after a power cut that leaves only what is durable.
fn durable_superblock(rig: &Rig, disk: u16) -> Superblock {
    let image = rig.disk(disk).medium().durable().to_vec();
    let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a place");
    Superblock::parse(bytes, Sector(8), rig.disk(disk).geometry().size).expect("a superblock")
}

/// ```text
///   superblocks   member 1, which returns    |--|
///                 the others                     |------|  they list it
///   power cut     ^  ^  ^  ^  ^  ^  ^  ^  ^  ^  ^  ^  ^  ^
/// ```
/// From the moment at which another superblock lists it, a start does not find its own too old.
#[test]
fn a_member_that_returns_is_not_stale_for_a_superblock_that_lists_it() {
    let mut listed = 0;
    for step in 0.. {
        let mut rig = rig_with(5, 2, 3, 1);
        let live = start_with(&mut rig, &[3], &config());
        let mut content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        fail(&rig, &live, 1);
        leave(&rig, &live, 1);
        write_now(&rig, &live, &mut content, 9, 98);
        set_speed(&rig, &live, SpeedLimits { min: None, max: Some(1), share: None });
        let coming = returning(&rig, &live, 1);
        let task = rig.executor.spawn(0, "return", async move {
            coming.await.expect("the bits name all that it lacks");
        });
        let executor = rig.executor.clone();
        executor.run(step, executor.now() + Duration::from_secs(60), || !executor.is_running(task));
        let is_over = !executor.is_running(task);
        let own = durable_superblock(&rig, 1);
        let is_listed = |other: &Superblock| other.roles.contains(&Role::Slot(Slot(1)));
        for other in [0, 2].map(|disk| durable_superblock(&rig, disk)) {
            if is_listed(&other) {
                listed += 1;
                assert!(own.events + 1 >= other.events, "step {step}: {} of {}", own.events, other.events);
                assert!(own.features.contains(Features::RECOVERY_OFFSET), "step {step}: it would be read as it is");
            }
        }
        rig.power_off();
        if is_over {
            break;
        }
    }
    assert!(listed > 0);
}

/// Its own bits are those of before it left.
#[test]
fn a_member_that_returns_has_the_bits_of_the_others() {
    for (level, layout, slots) in [(1, 0, 3), (5, 2, 4)] {
        let mut rig = rig_with(level, layout, slots, 1);
        let live = start_with(&mut rig, &[slots], &config());
        let mut content = fill(&rig, &live);
        pause(&rig, &live, 4 * CLEAR_AFTER);
        fail(&rig, &live, 1);
        leave(&rig, &live, 1);
        write_now(&rig, &live, &mut content, 9, 98);
        pause_passes(&rig, &live, true);
        return_now(&rig, &live, 1).expect("the bits name all that it lacks");
        let bits = |disk| former_member(&rig, disk).bitmap.expect("a good one");
        assert!(bits(0).count() > 0 && bits(1).has_bits_of(&bits(0)), "raid{level}");
        rig.power_off();
    }
}

/// A round of superblocks that a crash cut short had reached only the device that is away now. mdadm --assemble --force
/// believes a device that is one event behind.
#[test]
fn a_device_that_is_away_is_two_events_behind_when_the_first_write_is_answered() {
    for (level, layout, slots) in [(1, 0, 3), (5, 2, 4)] {
        for ahead in [0, 1] {
            let mut rig = rig_with(level, layout, slots, 1);
            change_superblock(&rig, 2, |own| own.events += ahead);
            // One that is dirty already has no further round for that.
            if level == 1 {
                (0..slots).for_each(|slot| change_superblock(&rig, slot, |own| own.resync_offset = 0));
            }
            let live = start_with(&mut rig, &[2, slots], &config());
            assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
            let (here, away) = (durable_superblock(&rig, 0).events, durable_superblock(&rig, 2).events);
            assert!(here >= away + 2, "raid{level}: {here} and {away}");
            rig.power_off();
        }
    }
}
