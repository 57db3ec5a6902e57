//! Assembly as sentences: who is taken, who is refused and why, what run and force change.
//! Owns: single situations of members that are whole. Not here: members that are not, arrays that are only read
//! (tests/assemble_read_only.rs), all situations (tests/assemble_rounds.rs), the order of candidates (the same).

use crate::candidates::{FORCE, RUN, array, record_failure, set, slots, start};
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_engine::assemble::Duplicate;
use uraid_engine::{AssembleError, Candidate, Place, Refusal, Refused, assemble};
use uraid_format::{Features, Role, Superblock, Version};
use uraid_layout::Level;

#[test]
fn a_whole_clean_array_of_every_level_starts() {
    for level in Level::ALL {
        let spares = u16::from(!matches!(level, Level::Linear | Level::Raid0));
        let plan = start(&array(level, 4, spares)).unwrap();
        assert_eq!(slots(&plan), [(0, 0), (1, 1), (2, 2), (3, 3)], "{level:?}");
        assert_eq!(plan.members.len(), 4 + usize::from(spares));
        assert_eq!((plan.missing, plan.is_dirty, plan.read_only, plan.events), (SlotSet::EMPTY, false, None, 10));
        assert_eq!(plan.refused, []);
        assert_eq!(plan.lagging().count(), 0);
    }
}

#[test]
fn nothing_and_spares_alone_are_no_array() {
    assert_eq!(start(&[]).unwrap_err(), AssembleError::NoCandidates);
    let members = array(Level::Raid1, 2, 2);
    assert_eq!(start(&members[2..]).unwrap_err(), AssembleError::OnlySpares { found: 2 });
}

#[test]
fn a_member_of_another_array_is_refused_as_foreign() {
    let mut members = array(Level::Raid1, 3, 0);
    members[1].superblock.set_uuid = [9; 16];
    let plan = assemble(&members, &RUN).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (2, 2)]);
    let reason = Refusal::Foreign { found: [9; 16], expected: [7; 16] };
    assert_eq!(plan.refused, [Refused { candidate: 1, reason }]);
}

#[test]
fn members_of_two_arrays_in_equal_number_are_refused_with_both_named() {
    let mut members = array(Level::Raid1, 2, 0);
    members[1].superblock.set_uuid = [9; 16];
    let error = start(&members).unwrap_err();
    let AssembleError::SeveralArrays { sets } = &error else { panic!("{error}") };
    assert_eq!(sets.iter().map(|set| set.candidates.clone()).collect::<Vec<_>>(), [[0], [1]]);
    assert!(error.to_string().contains("07070707:07070707:07070707:07070707 (r) has member 0"), "{error}");
}

#[test]
fn a_member_one_event_behind_is_taken_only_if_the_freshest_lists_it() {
    let mut members = array(Level::Raid6, 4, 0);
    record_failure(&mut members, &[0], &[3]);
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(plan.refused, [Refused { candidate: 3, reason: Refusal::Faulty { found: 10, recorded: 11 } }]);
    assert_eq!(plan.lagging().collect::<Vec<_>>(), [1, 2]);
    assert_eq!((plan.missing, plan.events), (set(&[3]), 11));
}

#[test]
fn a_member_that_missed_two_rounds_is_stale() {
    let mut members = array(Level::Raid6, 4, 0);
    record_failure(&mut members, &[0, 1, 2], &[3]);
    record_failure(&mut members, &[0, 1, 2], &[]);
    let plan = start(&members).unwrap();
    assert_eq!(plan.refused, [Refused { candidate: 3, reason: Refusal::Stale { found: 10, expected: 12 } }]);
    let mut late = array(Level::Raid6, 4, 0);
    record_failure(&mut late, &[0, 1, 2], &[]);
    record_failure(&mut late, &[0, 1, 2], &[]);
    // Its loss was not recorded, so the array is more degraded than its superblocks say.
    let error = start(&late).unwrap_err();
    let AssembleError::NeedsRun { found: 3, expected: 4, missing, .. } = &error else { panic!("{error}") };
    assert_eq!(*missing, set(&[3]));
    assert!(assemble(&late, &RUN).is_ok());
}

#[test]
fn a_failed_raid6_member_with_an_event_count_right_behind_is_not_taken_after_a_crash() {
    // R3, the corruption that md had until 6.8: the member failed, its slot stayed, the count moved on by one only.
    let mut members = array(Level::Raid6, 6, 0);
    record_failure(&mut members, &[0, 1, 2, 3, 4], &[5]);
    members[..5].iter_mut().for_each(|member| member.superblock.resync_offset = 0);
    let AssembleError::DirtyDegraded { missing, .. } = start(&members).unwrap_err() else { panic!() };
    assert_eq!(missing, set(&[5]));
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!(slots(&plan).len(), 5);
    assert!(plan.is_dirty && plan.forced.is_dirty_degraded && plan.forced.raised.is_empty());
}

#[test]
fn a_missing_member_that_nobody_recorded_needs_run() {
    let members = array(Level::Raid5, 4, 0);
    let error = start(&members[1..]).unwrap_err();
    let AssembleError::NeedsRun { found: 3, expected: 4, .. } = &error else { panic!("{error}") };
    assert_eq!(assemble(&members[1..], &RUN).unwrap().missing, set(&[0]));
    assert_eq!(assemble(&members[1..], &FORCE).unwrap().missing, set(&[0]));
    assert_eq!(
        error.to_string(),
        "found 3 members, the superblocks count 4; slots without a member: 0; give the missing members, or --run to \
         start degraded"
    );
}

#[test]
fn too_few_members_are_an_error_that_counts_them() {
    let members = array(Level::Raid6, 5, 0);
    let error = assemble(&members[3..], &FORCE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "found 2 of 5 members, raid6 needs at least 3; slots without a member: 0, 1, 2; give the missing members"
    );
    let members = array(Level::Raid0, 3, 0);
    let error = assemble(&members[1..], &RUN).unwrap_err();
    assert_eq!(
        error.to_string(),
        "found 2 of 3 members, raid0 needs at least 3; slots without a member: 0; give the missing members"
    );
    let members = array(Level::Raid10, 4, 0);
    assert!(assemble(&[members[0].clone(), members[2].clone()], &RUN).is_ok());
    let error = assemble(&members[..2], &RUN).unwrap_err().to_string();
    assert!(error.contains("needs others: all copies of some data are missing"), "{error}");
}

#[test]
fn a_dirty_and_degraded_parity_array_needs_force_unless_only_parity_is_missing() {
    let dirty = |level, slots| {
        let mut members = array(level, slots, 0);
        members.iter_mut().for_each(|member| member.superblock.resync_offset = 0);
        members
    };
    let lost = |mut members: Vec<Candidate>, at: usize| {
        members.remove(at);
        members
    };
    let members = lost(dirty(Level::Raid5, 4), 2);
    assert_eq!(
        assemble(&members, &RUN).unwrap_err(),
        AssembleError::DirtyDegraded { level: "raid5", missing: set(&[2]), recovering: vec![], refused: vec![] }
    );
    let text = assemble(&members, &RUN).unwrap_err().to_string();
    assert!(text.ends_with("be wrong in places; give the missing member, or --force to accept that"), "{text}");
    // One that was given and does not help is named.
    let mut members = dirty(Level::Raid5, 4);
    record_failure(&mut members, &[0, 1, 3], &[2]);
    let reason = Refusal::Faulty { found: 10, recorded: 11 };
    let error = start(&members).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("slots without a member: 2; member 2: left out: faulty: has 10 events"), "{text}");
    // It is here: there is none to be given.
    assert!(text.ends_with("be wrong in places; --force to accept that"), "{text}");
    let refused = vec![Refused { candidate: 2, reason }];
    assert_eq!(error, AssembleError::DirtyDegraded { level: "raid5", missing: set(&[2]), recovering: vec![], refused });
    let plan = assemble(&members, &FORCE).unwrap();
    assert!(plan.is_dirty && plan.forced.is_dirty_degraded);
    // One that is only partly recovered is named, too.
    let mut members = dirty(Level::Raid5, 4);
    let superblock = &mut members[2].superblock;
    superblock.features = superblock.features.with(Features::RECOVERY_OFFSET);
    superblock.recovery_offset = 64;
    let text = start(&members).unwrap_err().to_string();
    let size = members[2].superblock.size.0;
    let expected = format!(
        "the raid5 is dirty and degraded; member 2 (slot 2) is only partly recovered, 64 of {size} sectors: what it lacks \
         cannot be computed for sure; "
    );
    assert!(text.starts_with(&expected) && text.ends_with("be wrong in places; --force to accept that"), "{text}");
    // raid4 keeps its parity in the last slot: without it nothing has to be guessed.
    assert!(assemble(&lost(dirty(Level::Raid4, 4), 3), &RUN).unwrap().is_dirty);
    assert!(matches!(assemble(&lost(dirty(Level::Raid4, 4), 0), &RUN), Err(AssembleError::DirtyDegraded { .. })));
    // Mirrors agree with themselves.
    assert!(assemble(&lost(dirty(Level::Raid10, 4), 0), &RUN).unwrap().is_dirty);
    assert!(assemble(&lost(dirty(Level::Raid1, 3), 0), &RUN).unwrap().is_dirty);
    let plan = assemble(&lost(dirty(Level::Raid1, 2), 0), &RUN).unwrap();
    assert!(!plan.is_dirty && !plan.template.is_dirty());
}

#[test]
fn of_equally_fresh_members_one_that_is_dirty_is_enough() {
    for at in 0..3 {
        let mut members = array(Level::Raid5, 3, 0);
        members[at].superblock.resync_offset = 4096;
        let plan = start(&members).unwrap();
        assert_eq!((plan.is_dirty, plan.template.resync_offset), (true, 4096));
    }
}

/// A member that missed changes may differ below the place that the resync of the others had come to.
#[test]
fn a_resync_begins_anew_once_a_stale_member_is_taken_by_force() {
    let mut members = array(Level::Raid5, 3, 0);
    members.iter_mut().for_each(|member| member.superblock.resync_offset = 4096);
    members[1].superblock.events = 5;
    members.remove(2);
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!((plan.is_dirty, plan.template.resync_offset), (true, 0));
}

#[test]
fn linear_and_raid0_are_never_dirty() {
    for level in [Level::Linear, Level::Raid0] {
        let mut members = array(level, 3, 0);
        members.iter_mut().for_each(|member| member.superblock.resync_offset = 0);
        assert!(!start(&members).unwrap().is_dirty);
    }
}

#[test]
fn copies_of_a_member_are_refused_even_with_force() {
    let mut members = array(Level::Raid1, 2, 0);
    let mut copy = members[1].clone();
    copy.superblock.events = 3;
    members.push(copy);
    let expected = AssembleError::Duplicate { what: Duplicate::DeviceUuid, candidates: [1, 2] };
    assert_eq!(assemble(&members, &FORCE).unwrap_err(), expected);
    members[2].superblock.device_uuid = [99; 16];
    // With another id it is a stale member whose number was given away.
    assert_eq!(start(&members).unwrap().refused.len(), 1);
    members[2].superblock.events = 10;
    let expected = AssembleError::Duplicate { what: Duplicate::DevNumber(1), candidates: [1, 2] };
    assert_eq!(assemble(&members, &FORCE).unwrap_err(), expected);
}

#[test]
fn two_members_in_one_slot_are_refused() {
    let mut members = array(Level::Raid1, 2, 1);
    members.iter_mut().for_each(|member| member.superblock.roles[2] = Role::Slot(Slot(1)));
    let expected = AssembleError::Duplicate { what: Duplicate::Slot(Slot(1)), candidates: [1, 2] };
    assert_eq!(assemble(&members, &FORCE).unwrap_err(), expected);
}

#[test]
fn current_members_that_differ_in_shape_are_an_error() {
    let mut members = array(Level::Raid5, 3, 0);
    members[1].superblock.chunk = Sectors(256);
    let error = start(&members).unwrap_err();
    assert_eq!(error, AssembleError::Mismatch { candidate: 1, field: "chunk", found: 256, expected: 128 },);
    assert_eq!(error.to_string(), "member 1: chunk is 256, the freshest member says 128: leave it out");
    // A stale one may differ: the array may have changed since.
    members[1].superblock.events = 1;
    assert!(assemble(&members, &RUN).is_ok());
}

#[test]
fn spares_are_kept_whatever_their_events() {
    let mut members = array(Level::Raid6, 4, 2);
    members[4].superblock.events = 2;
    members[5].superblock.events = 11;
    let plan = start(&members).unwrap();
    assert_eq!(plan.members[4..].iter().map(|member| member.place).collect::<Vec<_>>(), [Place::Spare; 2]);
    assert_eq!(plan.events, 10);
    members[4].device_size = Sectors(1000);
    members[5].superblock.size = Sectors(128);
    let plan = start(&members).unwrap();
    assert!(matches!(plan.refused[0].reason, Refusal::Shrank { .. }));
    assert!(matches!(plan.refused[1].reason, Refusal::Mismatch { field: "used size", .. }));
}

#[test]
fn force_takes_the_freshest_stale_members_and_no_more_than_needed() {
    let mut members = array(Level::Raid5, 4, 0);
    for (at, events) in [(0, 40), (1, 40), (2, 30), (3, 20)] {
        members[at].superblock.events = events;
    }
    let error = assemble(&members, &RUN).unwrap_err();
    assert!(matches!(error, AssembleError::TooFewMembers { found: 2, expected: 3, can_force: true, .. }));
    let text = error.named(&|at| format!("/dev/sd{at}")).to_string();
    assert!(text.contains("/dev/sd2: left out: stale: has 30 events, expected at least 39"), "{text}");
    assert!(text.ends_with("; --force takes stale members and loses what they missed"), "{text}");
    let text = assemble(&members[..3], &RUN).unwrap_err().to_string();
    assert!(
        text.ends_with("; give the missing members, or --force to take stale members and lose what they missed"),
        "{text}"
    );
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(plan.forced.raised, [2]);
    assert_eq!(plan.lagging().count(), 0);
    assert_eq!(plan.refused.len(), 1);
    assert!(plan.is_dirty);
    assert_eq!((plan.events, plan.template.resync_offset), (40, 0));
    // One generation is taken whole.
    members[3].superblock.events = 30;
    assert_eq!(assemble(&members, &FORCE).unwrap().forced.raised, [2, 3]);
}

#[test]
fn force_takes_nobody_that_the_freshest_table_has_no_entry_for() {
    let mut members = array(Level::Raid10, 3, 0);
    members[0].superblock.events = 40;
    members[0].superblock.roles.truncate(1);
    for n in [1, 2] {
        members[n].superblock.events = 20;
    }
    assert!(matches!(assemble(&members, &FORCE), Err(AssembleError::TooFewMembers { found: 1, .. })));
}

#[test]
fn force_refuses_two_members_with_one_number() {
    let mut members = array(Level::Raid5, 4, 0);
    members[2].superblock.events = 5;
    members[3].superblock.events = 5;
    members[3].superblock.roles[2] = Role::Slot(Slot(3));
    members[3].superblock.dev_number = 2;
    let error = assemble(&members, &FORCE).unwrap_err();
    assert!(matches!(error, AssembleError::Duplicate { what: Duplicate::DevNumber(2), candidates: [2, 3] }), "{error}");
}

#[test]
fn a_raid0_member_that_claims_a_used_size_is_measured_by_all_its_data() {
    let mut members = array(Level::Raid0, 2, 0);
    for member in &mut members {
        member.superblock.size = Sectors(128);
        member.superblock.data_size = Sectors(1 << 40);
    }
    assert!(matches!(start(&members), Err(AssembleError::TooFewMembers { .. })));
}

#[test]
fn force_cannot_use_what_holds_no_whole_data() {
    let mut members = array(Level::Raid5, 3, 0);
    for (at, events) in [(0, 40), (1, 30), (2, 20)] {
        members[at].superblock.events = events;
    }
    members[1].superblock.features = Features::RECOVERY_OFFSET;
    assert_eq!(assemble(&members, &FORCE).unwrap().forced.raised, [2]);
    members[2].device_size = Sectors(4096);
    assert!(matches!(assemble(&members, &FORCE), Err(AssembleError::TooFewMembers { can_force: false, .. })));
}

#[test]
fn current_members_must_agree_on_everything_that_an_address_follows_from() {
    let mut members = array(Level::Raid5, 4, 0);
    let one = members[1].superblock.clone();
    let others = [
        ("creation time", Superblock { created: one.created + 1, ..one.clone() }),
        ("level", Superblock { level: 4, ..one.clone() }),
        ("layout", Superblock { layout: one.layout + 1, ..one.clone() }),
        ("chunk", Superblock { chunk: Sectors(256), ..one.clone() }),
        ("slot count", Superblock { raid_disks: 5, ..one.clone() }),
        ("used size", Superblock { size: Sectors(128), ..one.clone() }),
        ("minor version", Superblock { version: Version::V1_1, ..one.clone() }),
    ];
    for (expected, superblock) in others {
        members[1].superblock = superblock;
        let error = assemble(&members, &FORCE).unwrap_err();
        assert!(matches!(error, AssembleError::Mismatch { candidate: 1, field, .. } if field == expected), "{error}");
    }
}

/// Whatever number a table has for a member, or for another: some plan, or an error, and no panic.
#[test]
fn any_number_in_a_role_table_is_a_role() {
    for raw in (0..=u16::MAX).filter(|raw| raw % 64 < 2 || *raw > 0xfe00) {
        for (entry, on_all) in [(1, true), (1, false), (3, true)] {
            for level in [Level::Raid1, Level::Raid10, Level::Raid5] {
                let mut members = array(level, 4, 1);
                let last = if on_all { 5 } else { 2 };
                for member in &mut members[..last] {
                    member.superblock.roles[entry] = Role::from_raw(raw);
                    assert_eq!(member.superblock.roles[entry].raw(), raw);
                }
                for options in [RUN, FORCE] {
                    if let Err(error) = assemble(&members, &options) {
                        assert!(!error.to_string().is_empty());
                    }
                }
            }
        }
    }
}

#[test]
fn a_role_outside_the_array_is_none() {
    let mut members = array(Level::Raid1, 3, 1);
    members[2].superblock.roles[2] = Role::Slot(Slot(3));
    // A spare whose number has no entry in its own table.
    members[3].superblock.roles.truncate(3);
    let plan = assemble(&members, &RUN).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (1, 1)]);
    let no_slot = Refusal::NoSlot { found: 3, slots: 3 };
    let refused = [(2, no_slot), (3, Refusal::NoRole)].map(|(candidate, reason)| Refused { candidate, reason });
    assert_eq!(plan.refused, refused);
    // A vendor's flag names the slot that the member had.
    for (raw, slot) in [(0x8002, Some(2)), (0x8003, None), (3, None), (0xc002, None)] {
        let refusal = Refusal::NoSlot { found: raw, slots: 3 };
        assert_eq!(refusal.flagged_slot(), slot.map(Slot), "{raw:#x}");
    }
}

#[test]
fn a_spare_that_the_freshest_table_has_no_entry_for_is_refused() {
    let mut members = array(Level::Raid1, 3, 1);
    members[..3].iter_mut().for_each(|member| member.superblock.roles.truncate(3));
    assert!(members[3].superblock.roles.len() > 3, "its own table has an entry");
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(plan.refused, [Refused { candidate: 3, reason: Refusal::NoRole }]);
}

#[test]
fn the_widest_array_that_can_be_handled_starts() {
    let mut members = array(Level::Raid1, 2, 0);
    members.iter_mut().for_each(|member| member.superblock.raid_disks = 256);
    assert_eq!(assemble(&members, &RUN).unwrap().missing.count(), 254);
}

/// Neither excludes the other: a round with as many events as the one that names the third as failed was cut short.
/// raid6 of six: within a moment the first member is gone, then two more. Three are too few to have run.
/// raid5 of four: with two of them nothing ran, whichever two, so nothing was written since all were there.
#[test]
fn a_spare_with_the_number_of_a_member_is_a_duplicate_unless_it_is_stale() {
    let mut members = array(Level::Raid1, 2, 1);
    members[2].superblock.dev_number = 1;
    members[2].superblock.roles = vec![Role::Slot(Slot(0)), Role::Spare];
    for (events, is_duplicate) in [(11, true), (10, true), (9, true), (8, false)] {
        members[2].superblock.events = events;
        match start(&members) {
            Err(AssembleError::Duplicate { what: Duplicate::DevNumber(1), candidates: [1, 2] }) => {
                assert!(is_duplicate)
            }
            Ok(plan) => {
                assert!(!is_duplicate, "{events}");
                let reason = Refusal::Stale { found: events, expected: 10 };
                assert_eq!(plan.refused, [Refused { candidate: 2, reason }]);
            }
            Err(error) => panic!("{events}: {error}"),
        }
    }
}

#[test]
fn a_spare_that_says_it_has_too_little_room_is_refused_whatever_its_device_has() {
    let mut members = array(Level::Raid6, 4, 1);
    let size = members[4].superblock.size;
    members[4].superblock.data_size = size;
    assert_eq!(start(&members).unwrap().members.len(), 5);
    members[4].superblock.data_size = Sectors(size.0 - 1);
    assert!(matches!(start(&members).unwrap().refused[0].reason, Refusal::Shrank { .. }));
}

#[test]
fn force_takes_only_what_is_behind_fits_and_is_understood() {
    type Change = fn(&mut Superblock);
    let changes: [(&str, Change); 5] = [
        ("of another array", |it| it.set_uuid = [9; 16]),
        ("another chunk", |it| (it.events, it.chunk) = (5, Sectors(256))),
        ("unknown features", |it| (it.events, it.features) = (5, Features(1 << 13))),
        ("a number that a member has", |it| {
            (it.events, it.dev_number) = (5, 0);
            it.roles[0] = Role::Slot(Slot(1));
        }),
        ("moved", |it| it.roles[1] = Role::Slot(Slot(2))),
    ];
    for (what, change) in changes {
        // The spare makes the array's own candidates more than half of all.
        let mut members = array(Level::Raid5, 3, 1);
        members.remove(2);
        change(&mut members[1].superblock);
        if what == "moved" {
            members[1].superblock.events = 9;
        }
        let error = assemble(&members, &FORCE).unwrap_err();
        let AssembleError::TooFewMembers { found: 1, can_force, .. } = error else { panic!("{what}: {error}") };
        // Named by its own number, a stale one with a number in use may look as if it could help.
        assert!(!can_force || what == "a number that a member has", "{what}");
    }
}

#[test]
fn those_left_out_are_told_in_the_order_in_which_they_were_given() {
    let mut members = array(Level::Raid1, 5, 0);
    members[0].superblock.events = 5;
    members[1].superblock.roles[1] = Role::Journal;
    members[3].superblock.set_uuid = [9; 16];
    let refused = assemble(&members, &RUN).unwrap().refused;
    assert_eq!(refused.iter().map(|refused| refused.candidate).collect::<Vec<_>>(), [0, 1, 3]);
}
