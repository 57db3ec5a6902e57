//! The ends of members, one sector before, at and behind each: what a device must hold, how far a member is recovered.
//! Owns: one table for each comparison of a member's sizes in assembly. Not here: other reasons to refuse a member
//! (`assemble`), the end of a former member that comes back (`sim`).

use super::candidates::{DEVICE, FORCE, RUN, array, record_failure, slots, start};
use uraid_block::Sectors;
use uraid_engine::{AssembleError, Candidate, Place, Refusal, Refused, assemble};
use uraid_format::{Features, Role, Superblock};
use uraid_layout::Level;

const LEVELS: [Level; 7] =
    [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10];

/// Where the array's data ends on this member: in linear and raid0 all of a member's room is used.
fn data_end(superblock: &Superblock) -> Sectors {
    let used = if superblock.size.is_zero() { superblock.data_size } else { superblock.size };
    Sectors(superblock.data_offset.0 + used.0)
}

/// One sector less than `end`, `end`, and one more, each with whether it is enough.
fn around(end: Sectors) -> [(Sectors, bool); 3] {
    [(end - Sectors(1), false), (end, true), (end + Sectors(1), true)]
}

fn shrank(candidate: usize, found: Sectors, expected: Sectors) -> Refused {
    Refused { candidate, reason: Refusal::Shrank { found, expected } }
}

#[test]
fn a_device_ends_where_the_data_of_its_member_does_at_the_earliest() {
    for level in LEVELS {
        let mut members = array(level, 4, 0);
        // A larger device is not used to its end.
        members.iter_mut().for_each(|member| member.device_size = DEVICE + Sectors(8));
        let end = data_end(&members[2].superblock);
        for (size, is_enough) in around(end) {
            members[2].device_size = size;
            match assemble(&members, &RUN) {
                Ok(plan) => {
                    let refused = if is_enough { Vec::new() } else { vec![shrank(2, size, end)] };
                    assert_eq!((slots(&plan).len(), plan.refused), (3 + usize::from(is_enough), refused), "{level:?}");
                }
                Err(AssembleError::TooFewMembers { refused, .. }) => {
                    assert!(matches!(level, Level::Linear | Level::Raid0) && !is_enough, "{level:?}, {size:?}");
                    assert_eq!(refused, [shrank(2, size, end)], "{level:?}");
                }
                Err(error) => panic!("{level:?}, {size:?}: {error}"),
            }
        }
    }
}

#[test]
fn a_spare_has_room_for_the_used_data_on_its_device_and_by_its_superblock() {
    let members = array(Level::Raid5, 3, 1);
    let end = data_end(&members[3].superblock);
    let used = members[0].superblock.size;
    let answer = |device_size: Sectors, data_size: Sectors| {
        let mut members = members.clone();
        (members[3].device_size, members[3].superblock.data_size) = (device_size, data_size);
        let plan = start(&members).unwrap();
        (plan.members.iter().filter(|member| member.place == Place::Spare).count(), plan.refused)
    };
    for (size, is_enough) in around(end) {
        let refused = if is_enough { Vec::new() } else { vec![shrank(3, size, end)] };
        assert_eq!(answer(size, used), (usize::from(is_enough), refused), "a device of {size:?}");
    }
    for (size, is_enough) in around(used) {
        let refused = if is_enough { Vec::new() } else { vec![shrank(3, DEVICE, end)] };
        assert_eq!(answer(DEVICE, size), (usize::from(is_enough), refused), "room for {size:?}");
    }
}

/// Slot 1 is gone, and slot 2 was left behind.
#[test]
fn a_member_is_raised_by_force_if_its_device_has_all_of_its_data() {
    let mut members = array(Level::Raid5, 3, 0);
    members[2].superblock.events = 5;
    record_failure(&mut members, &[0], &[1, 2]);
    let given = |size: Sectors| [members[0].clone(), Candidate { device_size: size, ..members[2].clone() }];
    for (size, is_enough) in around(data_end(&members[2].superblock)) {
        match assemble(&given(size), &FORCE) {
            Ok(plan) => assert!(is_enough && slots(&plan) == [(0, 0), (2, 1)], "{size:?}"),
            Err(AssembleError::TooFewMembers { found: 1, can_force: false, .. }) => assert!(!is_enough, "{size:?}"),
            Err(error) => panic!("{size:?}: {error}"),
        }
    }
}

#[test]
fn a_member_is_recovered_up_to_the_end_of_the_used_data() {
    let mut members = array(Level::Raid5, 3, 0);
    let used = members[1].superblock.size;
    for (recorded, expected) in [(0, 0), (used.0 - 1, used.0 - 1), (used.0, used.0), (used.0 + 1, used.0)] {
        members[1].superblock.features = Features::RECOVERY_OFFSET;
        members[1].superblock.recovery_offset = recorded;
        assert_eq!(members[1].superblock.own_role(), Role::Slot(uraid_block::Slot(1)));
        let plan = start(&members).unwrap();
        let below = plan.members.iter().find_map(|member| match member.place {
            Place::Recovering { below, .. } => Some(below),
            Place::Slot(_) | Place::Replacing { .. } | Place::Spare => None,
        });
        assert_eq!(below, Some(Sectors(expected)), "{recorded} of {used:?}");
    }
}

/// A log behind the data, as no mdadm puts it, on a device that ends before the log does, with it, and behind it.
#[test]
fn a_partial_parity_log_is_on_its_device_and_has_room_for_a_chunk() {
    use uraid_engine::ReadOnlyReason;
    use uraid_format::ppl::{PplLog, PplState};
    // 4 KiB of each of two headers, and the parity of a chunk.
    const LEAST: u64 = 8 + 8 + 128;
    let read_only = |length: u64, behind: i64| {
        let mut members = array(Level::Raid5, 3, 0);
        for member in &mut members {
            let superblock = &mut member.superblock;
            (superblock.size, superblock.data_size) = (Sectors(20_480), Sectors(20_480));
            let area = data_end(superblock);
            (superblock.features, superblock.bitmap_offset) =
                (Features::PPL, (length << 16) as i32 | (area.0 - superblock.super_offset.0) as i32);
            member.ppl = Some(PplLog { state: PplState::Empty, stretches: Vec::new() });
            member.device_size = Sectors((area.0 + length).checked_add_signed(behind).unwrap());
        }
        let plan = start(&members).unwrap();
        assert!(plan.refused.is_empty() && slots(&plan).len() == 3, "the members themselves are whole");
        plan.read_only
    };
    let unusable = Some(ReadOnlyReason::Ppl);
    for (length, behind, expected) in [
        (LEAST - 1, 8, unusable),
        (LEAST, 8, None),
        (LEAST + 1, 8, None),
        (LEAST, 1, None),
        (LEAST, 0, None),
        (LEAST, -1, unusable),
    ] {
        assert_eq!(read_only(length, behind), expected, "{length} sectors, the device ends {behind} behind them");
    }
}
