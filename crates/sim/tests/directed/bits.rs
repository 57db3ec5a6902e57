//! Write-intent bitmaps: shared pages, bits that stay, bits that are cleared, spares that get them.
//! Owns: what is written to the bitmap, and when. Not here: which bitmaps are believed (`engine`'s tests), a bit before
//! its data on every path, which the guard of every run checks.

mod changes;
mod pages;
mod unsynced;

use super::*;
use uraid_engine::PassKind;
use uraid_format::Features;
use uraid_sim::image::bits::Bits;
use uraid_sim::machine::member::{Access, Op, Watch};

const BITMAP_AT: u64 = 16;
const CLEAR_AFTER: Duration = Duration::from_secs(2);

/// Chunks of one sector; no bit is set.
pub(super) fn rig_with_bits(level: i32, slots: u16, spares: u16, shards: u16) -> Rig {
    let chunk = if level == 1 { 0 } else { 2 };
    let layout = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let mut rng = Rng::new(11);
    let executor = Executor::new(rng.fork(), false);
    let all = usize::from(slots + spares);
    let setup = Setup { spares, shards, data_offsets: vec![16; all], data_sizes: vec![24; all], ..Setup::plain(shape) };
    let setup = setup.with_bits(Some(Bits { chunk: 1, clear_after: CLEAR_AFTER, are_set: false, write_behind: 0 }));
    Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())))
}

pub(super) fn config() -> Config {
    Config { clear_bits_after: Some(CLEAR_AFTER), ..Config::default() }
}

/// Counts the writes of a member's bitmap.
struct Pages {
    inner: Rc<dyn Watch>,
    count: Cell<u64>,
}

impl Watch for Pages {
    fn submitted(&self, access: Access) -> Result<(), String> {
        if access.at == BITMAP_AT && matches!(access.op, Op::Write { .. }) {
            self.count.set(self.count.get() + 1);
        }
        self.inner.submitted(access)
    }
    fn superblock(&self, disk: u16, bytes: &[u8]) -> Result<(), String> {
        self.inner.superblock(disk, bytes)
    }
    fn failed(&self, access: Access, error: ErrorKind) {
        self.inner.failed(access, error);
    }
    fn given_up(&self, disk: u16) {
        self.inner.given_up(disk);
    }
    fn corrupted(&self, disk: u16, at: u64, length: u64) {
        self.inner.corrupted(disk, at, length);
    }
}

fn watch_pages(rig: &Rig, slot: u16) -> Rc<Pages> {
    let pages = Rc::new(Pages { inner: rig.guard.clone(), count: Cell::new(0) });
    rig.disk(slot).set_watch(Some(pages.clone()));
    pages
}

/// The chunks whose bit is set durably.
fn bits(rig: &Rig, slot: u16) -> Vec<u64> {
    let medium = rig.disk(slot).medium();
    let bytes = medium.durable()[BITMAP_AT as usize * 512 + 256..].to_vec();
    (0..24).filter(|bit| bytes[(bit / 8) as usize] & 1 << (bit % 8) != 0).collect()
}

fn pause(rig: &Rig, live: &Live, time: Duration) {
    let executor = rig.executor.clone();
    all(rig, live, vec![async move { executor.sleep(time).await }]);
}

#[test]
fn writes_that_wait_share_a_page_and_a_dirty_area_needs_none() {
    for shards in [1, 3] {
        let mut rig = rig_with_bits(1, 2, 0, shards);
        let live = start_with(&mut rig, &[], &config());
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 1)]), [Ok(())]);
        assert_eq!((bits(&rig, 0), bits(&rig, 1)), (vec![0], vec![0]));
        let pages = watch_pages(&rig, 0);
        let requests = (4..12).map(|at| write(&rig, &live, at, 1, 2)).collect();
        assert_eq!(all(&rig, &live, requests), [Ok(()); 8]);
        assert!(pages.count.get() <= 2, "{} pages for eight writes", pages.count.get());
        let before = pages.count.get();
        let requests = (4..12).map(|at| write(&rig, &live, at, 1, 3)).collect();
        assert_eq!(all(&rig, &live, requests), [Ok(()); 8]);
        assert_eq!(pages.count.get(), before, "these bits are set");
        assert_eq!(bits(&rig, 1), [0, 4, 5, 6, 7, 8, 9, 10, 11]);
        rig.power_off();
    }
}

#[test]
fn a_bit_is_cleared_after_a_period_without_a_write_and_not_before() {
    let mut rig = rig_with_bits(5, 3, 0, 2);
    let live = start_with(&mut rig, &[], &config());
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 1), write(&rig, &live, 20, 1, 1)]), [Ok(()), Ok(())]);
    // A row is two sectors of each member.
    assert_eq!(bits(&rig, 2), [0, 1, 10, 11]);
    for turn in 0..4 {
        pause(&rig, &live, CLEAR_AFTER / 2);
        assert_eq!(all(&rig, &live, vec![write(&rig, &live, 20, 1, turn)]), [Ok(())]);
        assert!(bits(&rig, 2).ends_with(&[10, 11]), "it is written all the time");
    }
    pause(&rig, &live, CLEAR_AFTER);
    assert!(!bits(&rig, 2).contains(&0), "this one is not");
    pause(&rig, &live, 3 * CLEAR_AFTER);
    assert_eq!((bits(&rig, 0), bits(&rig, 1), bits(&rig, 2)), (vec![], vec![], vec![]));
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 0, 1, 7)]), [Ok(())]);
    assert_eq!(bits(&rig, 1), [0, 1], "and is set again");
    rig.power_off();
}

#[test]
fn no_bit_is_cleared_while_a_member_is_missing() {
    let mut rig = rig_with_bits(1, 3, 0, 1);
    let live = start_with(&mut rig, &[], &config());
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 3, 1, 1)]), [Ok(())]);
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.fail(SlotSet::EMPTY.with(Slot(2))).await }]), [Ok(())]);
    assert_eq!(all(&rig, &live, vec![write(&rig, &live, 9, 1, 1)]), [Ok(())]);
    pause(&rig, &live, 5 * CLEAR_AFTER);
    assert_eq!((bits(&rig, 0), bits(&rig, 1)), (vec![3, 9], vec![3, 9]));
    assert!(rig.stop(&live).expect("legal"));
    assert_eq!(bits(&rig, 0), [3, 9], "nor by a clean stop");
    rig.power_off();
}

#[test]
fn a_spare_has_every_bit_before_the_superblocks_list_it() {
    let mut rig = rig_with_bits(5, 3, 1, 2);
    rig.disk(3).set_watch(None);
    change_superblock(&rig, 3, |superblock| superblock.features = Features::default());
    rig.judge.is_over_budget.set(true);
    let live = start_with(&mut rig, &[], &config());
    let before = vec![write(&rig, &live, 0, 1, 1), write(&rig, &live, 9, 1, 1)];
    assert_eq!(all(&rig, &live, before), [Ok(()), Ok(())]);
    let array = live.arrays[0].clone();
    assert_eq!(all(&rig, &live, vec![async move { array.fail(SlotSet::EMPTY.with(Slot(1))).await }]), [Ok(())]);
    let array = live.arrays[0].clone();
    let listed = || live.arrays[0].status().members[3] != MemberState::Spare;
    run(&rig, &live, listed);
    assert_eq!(bits(&rig, 3), bits(&rig, 0));
    let waiting = async move { array.wait(|_| {}).await.expect("it ends").kind };
    assert_eq!(all(&rig, &live, vec![waiting]), [PassKind::Recovery]);
    let image = rig.disk(3).medium().current().to_vec();
    let bytes: &[u8; 4096] = image[8 * 512..16 * 512].try_into().expect("a superblock");
    let superblock = Superblock::parse(bytes, Sector(8), rig.disk(3).geometry().size).expect("a good one");
    assert!(superblock.features.contains(Features::BITMAP_OFFSET) && superblock.bitmap_offset == 8);
    pause(&rig, &live, 4 * CLEAR_AFTER);
    assert_eq!((bits(&rig, 0), bits(&rig, 3)), (vec![], vec![]), "the array is whole again");
    rig.power_off();
}
