//! Assembly as sentences: members that are not whole, and arrays that are only read or not at all.
//! Owns: members being recovered, replacements, bad blocks, shrunk devices, features. Not here: members that are whole
//! (tests/assemble.rs).

use crate::candidates::{FORCE, RUN, array, record_failure, set, slots, start};
use uraid_block::{Sectors, Slot};
use uraid_engine::assemble::{Duplicate, Unsupported};
use uraid_engine::{
    AssembleError, AssembleOptions, Candidate, Place, ReadOnlyReason, Refusal, Refused, StartPlan, assemble,
};
use uraid_format::{Features, Role, Superblock, Version};
use uraid_layout::Level;

const REDUNDANT: [Level; 5] = [Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];

/// A clean array whose member in slot `at` md was rebuilding: `done` sectors of it are.
fn rebuilding(level: Level, slots: u16, at: usize, done: u64) -> Vec<Candidate> {
    let mut members = array(level, slots, 0);
    members[at].superblock.features = Features::RECOVERY_OFFSET;
    members[at].superblock.recovery_offset = done;
    members
}

#[test]
fn a_device_that_shrank_below_its_data_is_refused() {
    let mut members = array(Level::Raid1, 2, 0);
    let end = Sectors(members[1].superblock.data_offset.0) + members[1].superblock.size;
    members[1].device_size = Sectors(end.0 - 1);
    let plan = assemble(&members, &RUN).unwrap();
    assert_eq!(plan.refused[0].reason, Refusal::Shrank { found: Sectors(end.0 - 1), expected: end });
    members[1].device_size = end;
    assert!(start(&members).unwrap().refused.is_empty());
}

/// The members that recover in a plan: candidate, slot, how far.
fn recovering(plan: &StartPlan) -> Vec<(usize, u16, u64)> {
    let members = plan.members.iter().filter_map(|member| match member.place {
        Place::Recovering { slot, below } => Some((member.candidate, slot.0, below.0)),
        Place::Slot(_) | Place::Replacing { .. } | Place::Spare => None,
    });
    members.collect()
}

#[test]
fn a_member_being_recovered_counts_as_missing_goes_on_and_needs_no_run() {
    for level in REDUNDANT {
        let mut members = rebuilding(level, 4, 3, 2048);
        let plan = start(&members).unwrap();
        assert_eq!((plan.read_only, plan.missing, plan.is_dirty), (None, set(&[3]), false), "{level:?}");
        assert_eq!((recovering(&plan), plan.refused), (vec![(3, 3, 2048)], Vec::new()), "{level:?}");
        members[3].superblock.features = Features::RECOVERY_OFFSET.with(Features::RECOVERY_BITMAP);
        let plan = start(&members).unwrap();
        assert_eq!(recovering(&plan), [(3, 3, 0)], "{level:?}: the bitmap that guided its recovery is gone");
    }
}

#[test]
fn a_member_being_recovered_replaces_no_other() {
    let mut members = rebuilding(Level::Raid5, 4, 3, 2048);
    members.remove(0);
    assert!(matches!(assemble(&members, &FORCE), Err(AssembleError::TooFewMembers { can_force: false, .. })));
}

#[test]
fn two_members_being_recovered_have_their_own_offsets() {
    let mut members = rebuilding(Level::Raid6, 5, 4, 4096);
    members[1].superblock.features = Features::RECOVERY_OFFSET;
    members[1].superblock.recovery_offset = 128;
    let plan = start(&members).unwrap();
    assert_eq!((recovering(&plan), plan.missing), (vec![(1, 1, 128), (4, 4, 4096)], set(&[1, 4])));
}

#[test]
fn a_dirty_mirror_with_one_member_in_sync_is_made_consistent_if_another_is_being_recovered() {
    let mut members = rebuilding(Level::Raid1, 2, 1, 2048);
    members.iter_mut().for_each(|member| member.superblock.resync_offset = 0);
    assert!(start(&members).unwrap().is_dirty, "what it holds already may differ");
    assert!(!assemble(&members[..1], &RUN).unwrap().is_dirty, "one copy differs from none");
}

#[test]
fn a_member_being_recovered_that_is_one_event_behind_goes_on_and_two_behind_is_stale() {
    let mut members = rebuilding(Level::Raid5, 4, 3, 2048);
    record_failure(&mut members, &[0, 1, 2], &[]);
    let plan = start(&members).unwrap();
    assert_eq!(recovering(&plan), [(3, 3, 2048)]);
    assert_eq!(plan.lagging().collect::<Vec<_>>(), [3], "it is brought up to the others first");
    record_failure(&mut members, &[0, 1, 2], &[]);
    assert!(matches!(start(&members), Err(AssembleError::NeedsRun { .. })));
    let plan = assemble(&members, &RUN).unwrap();
    assert!(recovering(&plan).is_empty() && matches!(plan.refused[0].reason, Refusal::Stale { .. }));
}

#[test]
fn a_member_being_recovered_for_a_slot_that_force_fills_is_left_out() {
    let mut members = rebuilding(Level::Raid5, 4, 3, 2048);
    let mut stale = members[3].clone();
    stale.superblock.features = Features::default();
    stale.superblock.device_uuid[15] = 77;
    stale.superblock.dev_number = 4;
    stale.superblock.roles.resize(5, Role::Spare);
    stale.superblock.roles[4] = Role::Slot(Slot(3));
    members.remove(0);
    // The freshest superblock no longer lists the stale one.
    record_failure(&mut members, &[0, 1, 2], &[]);
    record_failure(&mut members, &[0, 1, 2], &[]);
    for member in &mut members {
        member.superblock.roles.resize(5, Role::Spare);
        member.superblock.roles[4] = Role::Faulty;
    }
    members.push(stale);
    let plan = assemble(&members, &FORCE).unwrap();
    let expected = members[2].superblock.size;
    let reason = Refusal::NotInSync { slot: Slot(3), found: Sectors(2048), expected };
    assert_eq!((recovering(&plan), &plan.refused[..]), (Vec::new(), &[Refused { candidate: 2, reason }][..]));
}

#[test]
fn a_bitmap_is_the_reason_before_a_member_being_rebuilt_because_run_does_not_lift_it() {
    let mut members = rebuilding(Level::Raid1, 2, 1, 2048);
    for member in &mut members {
        member.superblock.features = member.superblock.features.with(Features::BITMAP_OFFSET);
    }
    assert_eq!(start(&members).unwrap().read_only, Some(ReadOnlyReason::Bitmap));
    assert_eq!(assemble(&members, &RUN).unwrap().read_only, Some(ReadOnlyReason::Bitmap));
}

#[test]
fn an_array_that_counts_too_high_to_count_on_is_only_read() {
    let counting = |events: u64| {
        let mut members = array(Level::Raid5, 3, 0);
        members.iter_mut().for_each(|member| member.superblock.events = events);
        members
    };
    let last = Superblock::EVENTS_WRITE_END - 1;
    assert_eq!(start(&counting(last)).unwrap().read_only, None);
    for found in [last + 1, Superblock::EVENTS_END - 1, u64::MAX] {
        for options in [AssembleOptions::default(), RUN, FORCE] {
            let plan = assemble(&counting(found), &options).unwrap();
            assert_eq!(plan.read_only, Some(ReadOnlyReason::Events { found }));
        }
    }
}

#[test]
fn a_spare_that_a_round_made_a_member_is_recovered_from_the_beginning() {
    let mut members = array(Level::Raid1, 2, 1);
    record_failure(&mut members, &[0], &[1]);
    members[0].superblock.roles[2] = Role::Slot(Slot(1));
    let mut given = [members[0].clone(), members[2].clone()];
    let plan = start(&given).unwrap();
    assert_eq!((slots(&plan), recovering(&plan)), (vec![(0, 0)], vec![(1, 1, 0)]));
    // However long it was away, and whatever its own superblock says of a recovery: nothing on it is relied upon.
    given[0].superblock.events += 7;
    given[1].superblock.features = Features::RECOVERY_OFFSET;
    given[1].superblock.recovery_offset = 64;
    assert_eq!(recovering(&start(&given).unwrap()), [(1, 1, 0)]);
    given[0].superblock.roles[2] = Role::Slot(Slot(9));
    assert!(recovering(&assemble(&given, &RUN).unwrap()).is_empty(), "the array has no such slot");
}

/// In a mirror, what a member that recovers has on disk is a spare's superblock. It fails, and only the others say so.
#[test]
fn a_spare_that_failed_is_not_taken_again() {
    let mut members = array(Level::Raid1, 3, 0);
    members.iter_mut().for_each(|member| member.superblock.roles[2] = Role::Spare);
    assert_eq!(start(&members).unwrap().members.len(), 3, "a spare");
    record_failure(&mut members, &[0, 1], &[2]);
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (1, 1)]);
    let reason = Refusal::Faulty { found: 10, recorded: 11 };
    assert_eq!((plan.members.len(), &plan.refused[..]), (2, &[Refused { candidate: 2, reason }][..]));
}

#[test]
fn what_cannot_be_kept_up_to_date_starts_read_only() {
    let with = |features: Features| {
        let mut members = array(Level::Raid5, 3, 0);
        members.iter_mut().for_each(|member| member.superblock.features = features);
        members
    };
    assert_eq!(start(&with(Features::BITMAP_OFFSET)).unwrap().read_only, Some(ReadOnlyReason::Bitmap));
    assert_eq!(start(&with(Features::PPL)).unwrap().read_only, Some(ReadOnlyReason::Ppl));
    assert_eq!(start(&with(Features::MULTIPLE_PPLS)).unwrap().read_only, Some(ReadOnlyReason::Ppl));
    let read_only = AssembleOptions { read_only: true, ..AssembleOptions::default() };
    let plan = assemble(&with(Features::default()), &read_only).unwrap();
    assert_eq!(plan.read_only, Some(ReadOnlyReason::Requested));
    // A log makes a dirty and degraded array readable for md, not for us.
    let mut members = with(Features::PPL);
    members.iter_mut().for_each(|member| member.superblock.resync_offset = 0);
    assert!(start(&members).unwrap().is_dirty);
    assert!(matches!(assemble(&members[1..], &RUN), Err(AssembleError::DirtyDegraded { .. })));
}

#[test]
fn an_array_with_old_superblocks_starts_read_only_and_versions_do_not_mix() {
    let mut members = array(Level::Raid5, 3, 0);
    members.iter_mut().for_each(|member| member.superblock.version = Version::V0_90);
    assert_eq!(start(&members).unwrap().read_only, Some(ReadOnlyReason::OldSuperblock));
    members[1].superblock.version = Version::V1_0;
    assert!(matches!(start(&members), Err(AssembleError::Mismatch { field: "minor version", .. })));
}

#[test]
fn members_with_bad_blocks_take_part_under_every_option_and_the_array_is_only_read() {
    let mut members = array(Level::Raid1, 2, 0);
    members[0].superblock.features = Features::BAD_BLOCKS;
    for options in [AssembleOptions::default(), RUN, FORCE] {
        let plan = assemble(&members, &options).unwrap();
        assert_eq!(plan.read_only, Some(ReadOnlyReason::BadBlocks), "{options:?}");
        assert_eq!((slots(&plan), plan.refused), (vec![(0, 0), (1, 1)], vec![]), "{options:?}");
    }
    // Also where only a member that force takes has a list.
    let mut members = array(Level::Raid5, 3, 0);
    members[0].superblock.features = Features::BAD_BLOCKS;
    members[0].superblock.events -= 2;
    let plan = assemble(&members[..2], &FORCE).unwrap();
    assert_eq!((plan.read_only, plan.forced.raised), (Some(ReadOnlyReason::BadBlocks), vec![0]));
}

/// A raid1 of two whose second member is being replaced by a third device.
fn replacing() -> Vec<Candidate> {
    let mut members = array(Level::Raid1, 2, 1);
    members.iter_mut().for_each(|member| member.superblock.roles[2] = Role::Slot(Slot(1)));
    members[2].superblock.features = Features::REPLACEMENT.with(Features::RECOVERY_OFFSET);
    members
}

/// The members that are copied to in a plan: candidate, slot, how far.
fn copied(plan: &StartPlan) -> Vec<(usize, u16, u64)> {
    let members = plan.members.iter().filter_map(|member| match member.place {
        Place::Replacing { slot, below } => Some((member.candidate, slot.0, below.0)),
        Place::Slot(_) | Place::Recovering { .. } | Place::Spare => None,
    });
    members.collect()
}

#[test]
fn a_replacement_goes_on_beside_the_member_that_it_replaces() {
    let mut members = replacing();
    members[2].superblock.recovery_offset = 64;
    let plan = start(&members).unwrap();
    assert_eq!((slots(&plan), plan.read_only, plan.refused.len()), (vec![(0, 0), (1, 1)], None, 0));
    assert_eq!(copied(&plan), [(2, 1, 64)]);
    // After a crash the two may differ anywhere.
    members.iter_mut().for_each(|member| member.superblock.resync_offset = 0);
    assert_eq!(copied(&start(&members).unwrap()), [(2, 1, 0)]);
    // It holds everything, and the first one was not yet named as failed.
    let mut members = replacing();
    members[2].superblock.features = Features::REPLACEMENT;
    let size = members[2].superblock.size.0;
    assert_eq!(copied(&start(&members).unwrap()), [(2, 1, size)]);
}

/// The second member has writes that the first one, which force takes, has missed.
#[test]
fn a_replacement_of_a_member_that_force_takes_holds_nothing() {
    let mut members = replacing();
    members[2].superblock.recovery_offset = 64;
    record_failure(&mut members, &[0, 2], &[]);
    record_failure(&mut members, &[0, 2], &[]);
    for member in [0, 2] {
        members[member].superblock.roles[1] = Role::Faulty;
    }
    let found = [members[1].clone(), members[2].clone()];
    let plan = assemble(&found, &FORCE).unwrap();
    assert_eq!((slots(&plan), copied(&plan)), (vec![(1, 0)], vec![(1, 1, 0)]));
    assert_eq!(plan.forced.raised, [0]);
}

#[test]
fn a_level_without_redundancy_has_no_replacement() {
    let mut members = array(Level::Raid0, 2, 0);
    let mut second = members[1].clone();
    second.superblock.dev_number = 2;
    second.superblock.device_uuid[0] ^= 0x80;
    second.superblock.features = Features::REPLACEMENT;
    members.push(second);
    for member in &mut members {
        member.superblock.roles.resize(3, Role::Spare);
        member.superblock.roles[2] = Role::Slot(Slot(1));
    }
    let plan = assemble(&members, &RUN).unwrap();
    assert_eq!((slots(&plan), copied(&plan)), (vec![(0, 0), (1, 1)], vec![]));
    assert_eq!(plan.refused, [Refused { candidate: 2, reason: Refusal::NoRole }]);
}

/// It is no replacement, and was being rebuilt for a slot that has a member in sync.
#[test]
fn a_second_member_of_a_slot_that_replaces_none_keeps_the_array_read_only() {
    let mut members = replacing();
    members[2].superblock.features = Features::RECOVERY_OFFSET;
    let plan = start(&members).unwrap();
    assert_eq!((slots(&plan), plan.read_only), (vec![(0, 0), (1, 1)], Some(ReadOnlyReason::TwoMembers)));
    assert_eq!(plan.refused.len(), 1);
    for options in [RUN, FORCE] {
        let plan = assemble(&members, &options).unwrap();
        assert_eq!((slots(&plan), plan.read_only), (vec![(0, 0), (1, 1)], None), "it is given up");
    }
}

#[test]
fn a_replacement_that_is_not_given_or_stale_is_given_up_only_with_run() {
    let mut members = replacing();
    let error = start(&members[..2]).unwrap_err();
    let AssembleError::NeedsRun { found: 2, expected: 3, missing, .. } = &error else { panic!("{error}") };
    assert_eq!(*missing, set(&[1]));
    assert_eq!(assemble(&members[..2], &RUN).unwrap().read_only, None);
    record_failure(&mut members, &[0, 1], &[]);
    record_failure(&mut members, &[0, 1], &[]);
    assert!(matches!(start(&members), Err(AssembleError::NeedsRun { .. })));
    // The member that it replaces is not here, and it does not hold all yet.
    let members = replacing();
    let plan = start(&[members[0].clone(), members[2].clone()]);
    assert!(matches!(plan, Err(AssembleError::NeedsRun { .. })), "{plan:?}");
}

#[test]
fn a_replacement_whose_slot_has_no_other_member_is_recovered_or_has_the_slot() {
    let mut members = replacing();
    members.iter_mut().for_each(|member| member.superblock.roles[1] = Role::Faulty);
    members[2].superblock.recovery_offset = 64;
    let plan = start(&[members[0].clone(), members[2].clone()]).unwrap();
    assert_eq!((plan.read_only, plan.missing, recovering(&plan)), (None, set(&[1]), vec![(1, 1, 64)]));
    members[2].superblock.features = Features::REPLACEMENT;
    let plan = start(&[members[0].clone(), members[2].clone()]).unwrap();
    assert_eq!((slots(&plan), plan.missing, copied(&plan)), (vec![(0, 0), (1, 1)], set(&[]), vec![]));
}

/// Power failed in the round that lists a spare as a replacement: its own superblock still says spare.
#[test]
fn a_replacement_whose_own_superblock_says_spare_holds_nothing() {
    let mut members = replacing();
    members[2].superblock.features = Features::default();
    members[2].superblock.roles[2] = Role::Spare;
    members[2].superblock.events -= 1;
    let plan = start(&members).unwrap();
    assert_eq!((slots(&plan), plan.read_only, copied(&plan)), (vec![(0, 0), (1, 1)], None, vec![(2, 1, 0)]));
    members.iter_mut().take(2).for_each(|member| member.superblock.roles[1] = Role::Faulty);
    let plan = start(&[members[0].clone(), members[2].clone()]).unwrap();
    assert_eq!((slots(&plan), recovering(&plan)), (vec![(0, 0)], vec![(1, 1, 0)]));
}

#[test]
fn a_slot_has_one_replacement_at_most() {
    let mut members = replacing();
    let mut third = members[2].clone();
    third.superblock.dev_number = 3;
    third.superblock.device_uuid[0] ^= 1;
    members.push(third);
    members.iter_mut().for_each(|member| member.superblock.roles[3] = Role::Slot(Slot(1)));
    let error = start(&members).unwrap_err();
    let duplicate = AssembleError::Duplicate { what: Duplicate::Slot(Slot(1)), candidates: [2, 3] };
    assert_eq!(error, duplicate);
}

#[test]
fn what_would_be_read_wrongly_is_refused_even_with_force() {
    let cases = [
        (Features::RESHAPE_ACTIVE, Unsupported::ReshapeFields(uraid_format::ReshapeError::Empty)),
        (Features::NEW_OFFSET, Unsupported::Reshape),
        (Features::CLUSTERED.with(Features::BITMAP_OFFSET), Unsupported::Clustered),
        (Features(1 << 13), Unsupported::Features(1 << 13)),
    ];
    for (features, expected) in cases {
        let mut members = array(Level::Raid5, 3, 0);
        members[1].superblock.features = features;
        assert_eq!(assemble(&members, &FORCE).unwrap_err(), AssembleError::Unsupported(expected));
    }
    let mut members = array(Level::Raid5, 3, 0);
    members.iter_mut().for_each(|member| member.superblock.level = -4);
    assert_eq!(assemble(&members, &FORCE).unwrap_err(), AssembleError::Unsupported(Unsupported::Level(-4)));
    members.iter_mut().for_each(|member| (member.superblock.level, member.superblock.raid_disks) = (5, 257));
    assert_eq!(assemble(&members, &FORCE).unwrap_err(), AssembleError::TooManySlots { found: 257, maximum: 256 });
    members.iter_mut().for_each(|member| (member.superblock.layout, member.superblock.raid_disks) = (99, 3));
    assert!(matches!(assemble(&members, &FORCE), Err(AssembleError::Layout(_))));
}

#[test]
fn an_array_with_a_journal_is_only_read_and_only_by_force() {
    let mut members = array(Level::Raid5, 3, 0);
    members.iter_mut().for_each(|member| member.superblock.features = Features::JOURNAL);
    assert_eq!(start(&members).unwrap_err(), AssembleError::Unsupported(Unsupported::Journal));
    assert_eq!(assemble(&members, &FORCE).unwrap().read_only, Some(ReadOnlyReason::Journal));
    // The journal itself, if it is given.
    members[2].superblock.roles[2] = Role::Journal;
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!(plan.refused, [Refused { candidate: 2, reason: Refusal::Journal }]);
}

#[test]
fn what_any_member_in_use_or_left_out_for_it_announces_counts_not_only_the_freshest() {
    for at in 0..3 {
        for (features, expected) in [
            (Features::BITMAP_OFFSET, ReadOnlyReason::Bitmap),
            (Features::MULTIPLE_PPLS, ReadOnlyReason::Ppl),
            (Features::BAD_BLOCKS, ReadOnlyReason::BadBlocks),
        ] {
            let mut members = array(Level::Raid5, 3, 0);
            members[at].superblock.features = features;
            assert_eq!(assemble(&members, &FORCE).unwrap().read_only, Some(expected), "member {at}");
        }
    }
}

#[test]
fn what_a_member_taken_by_force_announces_counts_too() {
    let mut members = array(Level::Raid5, 3, 0);
    for (at, events) in [(0, 40), (1, 30), (2, 20)] {
        members[at].superblock.events = events;
    }
    members[1].superblock.features = Features::BAD_BLOCKS;
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!((slots(&plan), plan.read_only), (vec![(0, 0), (1, 1)], Some(ReadOnlyReason::BadBlocks)));
    // A bitmap that the freshest superblock does not list is the array's no more.
    members[1].superblock.features = Features::BITMAP_OFFSET;
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!((slots(&plan), plan.read_only), (vec![(0, 0), (1, 1)], None));
}

#[test]
fn a_spare_with_a_feature_that_is_not_supported_is_an_error() {
    let mut members = array(Level::Raid1, 2, 1);
    members[2].superblock.features = Features::JOURNAL;
    assert_eq!(start(&members).unwrap_err(), AssembleError::Unsupported(Unsupported::Journal));
}

#[test]
fn a_member_is_never_recovered_further_than_its_end() {
    let members = rebuilding(Level::Raid1, 2, 1, u64::MAX);
    let size = members[1].superblock.size;
    assert_eq!(recovering(&start(&members).unwrap()), [(1, 1, size.0)]);
}

/// md refuses such a log. Its first header would be written over the superblock, or over data.
#[test]
fn a_partial_parity_log_over_something_else_is_not_written() {
    use uraid_format::ppl::{PplLog, PplState};
    let place = array(Level::Raid5, 3, 0)[0].superblock.clone();
    let to_data = (place.data_offset.0 - place.super_offset.0) as i32;
    for (what, offset) in [("the superblock", 0), ("data", to_data), ("the first data", to_data - 200)] {
        let mut members = array(Level::Raid5, 3, 0);
        for member in &mut members {
            member.superblock.features = Features::PPL;
            member.superblock.bitmap_offset = 264 << 16 | offset;
            member.ppl = Some(PplLog { state: PplState::Empty, stretches: Vec::new() });
        }
        assert_eq!(start(&members).unwrap().read_only, Some(ReadOnlyReason::Ppl), "over {what}");
    }
}
