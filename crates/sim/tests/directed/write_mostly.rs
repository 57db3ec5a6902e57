//! Write-mostly members are the last that count where copies may differ.
//! Owns: which copy a resync keeps, and what is read before its end. Not here: which member is read where all copies agree
//! (`engine::balance`).

use super::*;
use uraid_engine::FlagError;
use uraid_format::MemberFlag;

const FLAG: MemberFlag = MemberFlag::WriteMostly;

fn make_write_mostly(rig: &Rig, slots: &[u16]) {
    for slot in slots {
        change_superblock(rig, *slot, |superblock| superblock.devflags = FLAG.put(superblock.devflags, true));
    }
}

/// The first data sectors of a member.
fn data_of(rig: &Rig, slot: u16, sectors: u64) -> Vec<u8> {
    let start = DATA_AT as usize * 512;
    rig.disk(slot).medium().current()[start..start + sectors as usize * 512].to_vec()
}

/// Every member holds something else. With write-behind, a crash leaves a write-mostly member with data that are older than
/// what was answered: its copy is never kept while another one is there.
#[test]
fn a_resync_keeps_the_copy_of_the_first_member_that_is_not_write_mostly() {
    for (write_mostly, kept) in [(vec![], 0), (vec![0], 1), (vec![0, 1], 2), (vec![1, 2], 0), (vec![0, 1, 2], 0)] {
        let mut rig = rig(1, 3, true);
        make_write_mostly(&rig, &write_mostly);
        let right = data_of(&rig, kept, 6);
        let live = open_with(&mut rig, &[], &Config::default());
        assert_eq!(live.arrays[0].view().copies, Copies::Canonical);
        assert!(all(&rig, &live, vec![read(&live, 0, 6)]) == [Ok(right.clone())], "{write_mostly:?}: read before");
        let executor = rig.executor.clone();
        run(&rig, &live, || !executor.is_running(live.start));
        assert_eq!(live.arrays[0].view().copies, Copies::Any);
        for slot in 0..3 {
            assert!(data_of(&rig, slot, 6) == right, "{write_mostly:?}: slot {slot} afterwards");
        }
        rig.power_off();
    }
}

/// Two near copies on four members, chunks of two sectors: slots 0 and 1 hold sectors 0 and 1, slots 2 and 3 the next two.
#[test]
fn each_sector_of_a_raid10_is_kept_from_its_own_first_member_that_is_not_write_mostly() {
    let mut rig = rig(10, 4, true);
    make_write_mostly(&rig, &[0, 3]);
    let right = [data_of(&rig, 1, 2), data_of(&rig, 2, 2)].concat();
    let live = open_with(&mut rig, &[], &Config::default());
    assert!(all(&rig, &live, vec![read(&live, 0, 4)]) == [Ok(right.clone())], "read before");
    let executor = rig.executor.clone();
    run(&rig, &live, || !executor.is_running(live.start));
    assert!(data_of(&rig, 0, 2) == right[..1024] && data_of(&rig, 3, 2) == right[1024..]);
    rig.power_off();
}

/// The write is on the write-mostly member only. What readers saw since the freeze is what `fail` keeps.
#[test]
fn a_torn_write_is_made_whole_by_the_copy_that_is_not_write_mostly() {
    let mut rig = rig(1, 3, false);
    make_write_mostly(&rig, &[0]);
    let live = start(&mut rig, &[]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 6, 1)]), [Ok(())]);
    for full in [1, 2] {
        let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
        rig.disk(full).add_fault(Fault { victim: Target::Writes, after: 0, effect });
    }
    assert_eq!(kind(&all(&rig, &live, vec![write(&rig, &live, 2, 2, 2)])[0]), Some(ErrorKind::NoSpace));
    assert_eq!(data_of(&rig, 0, 3)[1024..], [2; 512]);
    let old = || vec![Ok(vec![1; 6 * 512])];
    assert!(all(&rig, &live, vec![read(&live, 0, 6)]) == old(), "frozen");
    let array = live.arrays[0].clone();
    let both = SlotSet::EMPTY.with(Slot(1)).with(Slot(2));
    assert_eq!(all(&rig, &live, vec![async move { array.fail(both).await }]), [Ok(())]);
    assert!(all(&rig, &live, vec![read(&live, 0, 6)]) == old(), "of the only member that is left");
    rig.power_off();
}

#[test]
fn a_member_becomes_write_mostly_only_while_copies_agree() {
    let mut rig = rig(1, 2, true);
    let live = open_with(&mut rig, &[], &Config::default());
    let set = |flag| {
        let array = live.arrays[0].clone();
        all(&rig, &live, vec![async move { array.set_flag(&[0], flag, true).await }])
    };
    assert_eq!(set(FLAG), [Err(FlagError::NotInSync)]);
    assert_eq!(set(MemberFlag::FailFast), [Ok(())], "it orders no copies");
    let executor = rig.executor.clone();
    run(&rig, &live, || !executor.is_running(live.start));
    assert_eq!(set(FLAG), [Ok(())]);
    assert!(live.arrays[0].view().last_copies() == SlotSet::EMPTY.with(Slot(0)));
    rig.power_off();
}
