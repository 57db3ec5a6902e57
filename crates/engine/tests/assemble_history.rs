//! Members with the same event count, or of histories that exclude each other.
//! Owns: which tables are one history, what `--force` joins, the split-brain error. Not here: other situations
//! (tests/assemble.rs), all partial rounds (tests/assemble_rounds.rs).

use super::candidates::{FORCE, RUN, array, record_failure, set, slots, start};
use uraid_block::Slot;
use uraid_engine::{AssembleError, Refusal, Refused, assemble};
use uraid_format::Role;
use uraid_layout::Level;

#[test]
fn members_that_each_ran_alone_are_a_split_brain() {
    for second_run in [1, 2, 5] {
        let mut members = array(Level::Raid1, 2, 0);
        record_failure(&mut members, &[0], &[1]);
        for _ in 0..second_run {
            record_failure(&mut members, &[1], &[0]);
        }
        let error = start(&members).unwrap_err();
        let AssembleError::SplitBrain { histories } = &error else { panic!("{error}") };
        assert_eq!(histories.len(), 2);
        assert!(error.to_string().contains("11 events"), "{error}");
        let plan = assemble(&members, &FORCE).unwrap();
        assert!(plan.forced.is_split_brain);
        let winner = usize::from(second_run > 1);
        assert_eq!(plan.members.len(), 1);
        assert_eq!(plan.members[0].candidate, winner);
        assert!(matches!(plan.refused[0].reason, Refusal::SplitBrain { .. }));
    }
}

#[test]
fn a_loss_recorded_with_the_same_event_count_is_a_loss_and_no_split_brain() {
    // md's events step back when it marks an array clean: a member lost at that moment has the event count of the round
    // that recorded its loss.
    let mut members = array(Level::Raid1, 3, 0);
    record_failure(&mut members, &[0, 1], &[2]);
    members[2].superblock.events = 11;
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (1, 1)]);
    assert_eq!(plan.refused, [Refused { candidate: 2, reason: Refusal::Faulty { found: 11, recorded: 11 } }]);
}

#[test]
fn a_round_that_was_cut_short_is_no_split_brain_with_the_run_that_followed() {
    // The round that records the loss of 0 reaches 1 only, then the power fails; the next run has 0, 2, 3, but not 1.
    let mut members = array(Level::Raid10, 4, 0);
    record_failure(&mut members, &[1], &[0]);
    record_failure(&mut members, &[0, 2, 3], &[1]);
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (2, 2), (3, 3)]);
    assert_eq!(plan.refused, [Refused { candidate: 1, reason: Refusal::Faulty { found: 11, recorded: 11 } }]);
}

#[test]
fn a_first_member_that_was_a_spare_beside_another_one_is_its_heir_and_no_split_brain() {
    for level in [Level::Raid1, Level::Raid10] {
        for (role, is_split) in [(Role::Spare, false), (Role::Faulty, true)] {
            // 1 and 3 had 0 as a spare; it was recovered, and was left alone.
            let mut members = array(level, 4, 0);
            record_failure(&mut members, &[1, 3], &[0, 2]);
            members[1].superblock.roles[0] = role;
            members[3].superblock.roles[0] = role;
            let alone: &[usize] = if level == Level::Raid1 { &[0] } else { &[0, 2] };
            let others: &[usize] = if level == Level::Raid1 { &[1, 2, 3] } else { &[1, 3] };
            (0..3).for_each(|_| record_failure(&mut members, alone, others));
            let given: Vec<_> = members.into_iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, it)| it).collect();
            match start(&given) {
                Ok(plan) => {
                    assert!(!is_split, "{level}");
                    assert_eq!(slots(&plan)[0], (0, 0), "{level}");
                }
                Err(AssembleError::SplitBrain { .. }) => assert!(is_split, "{level}"),
                Err(error) => panic!("{level}: {error}"),
            }
        }
    }
}

#[test]
fn a_member_that_returned_after_another_left_is_not_called_a_split_brain() {
    // 0 fails, 1 leaves, 0 comes back and is rebuilt: the table of 1 lacks 0 but shares 2 with the freshest.
    let mut members = array(Level::Raid1, 3, 0);
    record_failure(&mut members, &[1, 2], &[0]);
    record_failure(&mut members, &[2], &[1]);
    let roles = vec![Role::Slot(Slot(0)), Role::Faulty, Role::Slot(Slot(2))];
    for at in [0, 2] {
        members[at].superblock.events = 20;
        members[at].superblock.roles = roles.clone();
    }
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 0), (2, 2)]);
    assert!(matches!(plan.refused[0].reason, Refusal::Stale { found: 11, expected: 20 }));
}

#[test]
fn a_first_member_is_old_and_no_split_brain_after_all_first_members_were_replaced() {
    // 1 fails and spare 2 takes its slot, then 0 fails and spare 3 takes its slot. 1 comes back: its table is {0, 1}.
    let mut members = array(Level::Raid1, 2, 2);
    let roles = vec![Role::Faulty, Role::Faulty, Role::Slot(Slot(1)), Role::Slot(Slot(0))];
    for at in [2, 3] {
        members[at].superblock.events = 30;
        members[at].superblock.roles[..4].clone_from_slice(&roles);
    }
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(0, 3), (1, 2)]);
    let is_old = |refused: &Refused| matches!(refused.reason, Refusal::Faulty { .. } | Refusal::Stale { .. });
    assert!(plan.refused.len() == 2 && plan.refused.iter().all(is_old), "{:?}", plan.refused);
}

#[test]
fn two_equally_fresh_members_that_leave_each_other_out_are_a_split_brain_also_if_both_list_a_third() {
    let mut members = array(Level::Raid1, 3, 0);
    record_failure(&mut members, &[0], &[1]);
    record_failure(&mut members, &[1], &[0]);
    for given in [&members[..2], &members] {
        assert!(matches!(start(given), Err(AssembleError::SplitBrain { .. })));
        let plan = assemble(given, &FORCE).unwrap();
        assert!(plan.forced.is_split_brain && plan.is_dirty == (given.len() == 3));
        assert!(matches!(plan.refused[0], Refused { candidate: 1, reason: Refusal::SplitBrain { .. } }));
    }
}

#[test]
fn two_equally_fresh_members_that_disagree_about_a_third_are_one_history_without_it() {
    let mut members = array(Level::Raid1, 3, 0);
    record_failure(&mut members, &[0], &[]);
    record_failure(&mut members, &[1], &[2]);
    let plan = start(&members[..2]).unwrap();
    assert_eq!((slots(&plan), plan.missing), (vec![(0, 0), (1, 1)], set(&[2])));
    record_failure(&mut members, &[2], &[]);
    let plan = start(&members).unwrap();
    assert!(matches!(plan.refused[..], [Refused { candidate: 2, reason: Refusal::Faulty { .. } }]), "{plan:?}");
}

#[test]
fn members_that_fail_one_after_the_other_within_moments_leave_one_history() {
    let mut members = array(Level::Raid6, 6, 0);
    let [one, all] = [&[5][..], &[1, 2, 5]];
    record_failure(&mut members, &[0], one);
    record_failure(&mut members, &[3, 4], all);
    record_failure(&mut members, &[1, 2], &[]);
    let expected = (vec![(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], vec![5]);
    for options in [RUN, FORCE] {
        let plan = assemble(&members, &options).unwrap();
        let refused = plan.refused.iter().map(|refused| refused.candidate).collect::<Vec<_>>();
        assert_eq!((slots(&plan), refused), expected);
        assert_eq!(plan.template.roles[5], Role::Faulty, "the last table with which it could run");
    }
}

#[test]
fn force_joins_members_whose_tables_are_all_too_small_to_have_run_and_those_that_list_each_other() {
    let halves = |level, count: u16, first: &[usize], second: &[usize]| {
        let mut members = array(level, count, 0);
        record_failure(&mut members, first, second);
        record_failure(&mut members, second, first);
        members
    };
    for (level, count, first, second) in
        [(Level::Raid5, 4, &[0, 1][..], &[2, 3][..]), (Level::Raid6, 6, &[0, 2, 4], &[1, 3, 5])]
    {
        let members = halves(level, count, first, second);
        assert!(matches!(start(&members), Err(AssembleError::SplitBrain { .. })));
        let plan = assemble(&members, &FORCE).unwrap();
        assert_eq!((slots(&plan).len(), plan.refused.len()), (count.into(), 0), "{level:?}");
        assert!(!plan.forced.is_split_brain && plan.forced.raised.is_empty());
    }
    // Halves of mirrors could be written: one of them is taken.
    let plan = assemble(&halves(Level::Raid10, 4, &[0, 2], &[1, 3]), &FORCE).unwrap();
    assert!(plan.forced.is_split_brain);
    // raid5 of five: 0 saw 1 fail, 3 saw 4 fail, and each lists the other.
    let mut members = array(Level::Raid5, 5, 0);
    record_failure(&mut members, &[0], &[1]);
    record_failure(&mut members, &[2], &[1, 4]);
    record_failure(&mut members, &[3], &[4]);
    let given = [members[0].clone(), members[2].clone(), members[3].clone()];
    let Err(AssembleError::TooFewMembers { found: 3, refused, .. }) = assemble(&given, &FORCE) else {
        panic!("three of five are too few")
    };
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn histories_are_told_the_freshest_first_each_with_its_last_update() {
    let mut members = array(Level::Raid1, 5, 0);
    let histories: [(&[usize], u64); 3] = [(&[0], 5), (&[1, 2], 9), (&[3, 4], 20)];
    for (own, events) in histories {
        for at in own {
            let superblock = &mut members[*at].superblock;
            (superblock.events, superblock.updated) = (events, 1000 + *at as u64);
            for (other, role) in superblock.roles.iter_mut().take(5).enumerate() {
                *role = if own.contains(&other) { Role::Slot(Slot(other as u16)) } else { Role::Faulty };
            }
        }
    }
    let AssembleError::SplitBrain { histories } = start(&members).unwrap_err() else { panic!("they ran apart") };
    let told: Vec<_> = histories.iter().map(|it| (it.candidates.clone(), it.events, it.updated_seconds)).collect();
    assert_eq!(told, [(vec![3, 4], 20, 1004), (vec![1, 2], 9, 1002), (vec![0], 5, 1000)]);
    // Members of an older array with the same id share no member with this one either, but never ran against it.
    members[..3].iter_mut().for_each(|member| member.superblock.created -= 1);
    let plan = start(&members).unwrap();
    assert_eq!(slots(&plan), [(3, 3), (4, 4)]);
    assert!(plan.refused.iter().all(|refused| matches!(refused.reason, Refusal::Stale { .. })), "{:?}", plan.refused);
}

#[test]
fn force_takes_nobody_of_another_history() {
    let mut members = array(Level::Raid10, 4, 0);
    record_failure(&mut members, &[0, 2], &[1, 3]);
    record_failure(&mut members, &[1, 3], &[0, 2]);
    record_failure(&mut members, &[1, 3], &[]);
    let plan = assemble(&members, &FORCE).unwrap();
    assert_eq!(slots(&plan), [(1, 1), (3, 3)]);
    assert!(plan.is_dirty && plan.forced.is_split_brain && plan.forced.raised.is_empty());
    // Not even where the freshest history has too few.
    members.remove(3);
    let error = assemble(&members, &FORCE).unwrap_err();
    assert!(matches!(error, AssembleError::TooFewMembers { found: 1, can_force: false, .. }), "{error}");
}
