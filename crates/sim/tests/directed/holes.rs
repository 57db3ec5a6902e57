//! Passes over members that are holes in large parts.
//! Owns: every place of one stretch of data that disagrees: it is found, and little else is read. Not here: how holes are
//! made (`zeroes`), the swarm, whose passes skip holes while clients write.

use super::frozen::redundancy;
use super::*;
use uraid_sim::machine::member::{Access, Op, Watch};

const SIZE: u64 = 48;

/// Counts the sectors of data that are read.
#[derive(Default)]
struct Reads(Cell<u64>);

impl Watch for Reads {
    fn submitted(&self, access: Access) -> Result<(), String> {
        if access.op == Op::Read && access.at >= 16 {
            self.0.update(|sectors| sectors + access.length);
        }
        Ok(())
    }
}

fn array(level: i32, layout: u32, slots: u16, shards: u16, holes: bool) -> Rig {
    let chunk = if level == 1 { 0 } else { 2 };
    let shape = Shape { level, layout, chunk, slots, size: SIZE, member_sizes: Vec::new() };
    let mut rng = Rng::new(3);
    let executor = Executor::new(rng.fork(), false);
    let setup = Setup { starts_dirty: true, shards, discard: (1, holes), ..Setup::plain(shape) };
    let rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    rig.judge.is_over_budget.set(true);
    rig
}

const ARRAYS: [(i32, u32, u16); 7] =
    [(1, 0, 2), (10, 0x102, 4), (10, 0x201, 4), (10, 0x1_0201, 3), (4, 0, 4), (5, 2, 4), (6, 2, 5)];

/// One member stores a stretch of bytes, all others are holes. Returns how many sectors the resync has read.
fn resync((level, layout, slots): (i32, u32, u16), shards: u16, holes: bool, stored: Option<(u16, u64, u64)>) -> u64 {
    let case = format!("raid{level} {layout:#x} of {slots}, {shards} shards, {stored:?}");
    let mut rig = array(level, layout, slots, shards, holes);
    let reads: Rc<Reads> = Rc::default();
    for slot in 0..slots {
        let data = rig.setup.data_offsets[usize::from(slot)] as usize * 512;
        let mut image = rig.disk(slot).medium().current().to_vec();
        image[data..].fill(0);
        if let Some((_, at, length)) = stored.filter(|(member, ..)| *member == slot) {
            image[data + at as usize * 512..data + (at + length) as usize * 512].fill(0xA5);
        }
        rig.disk(slot).replace(image);
        rig.disk(slot).set_watch(Some(reads.clone()));
    }
    let config = Config { pass_window: Sectors(2), pass_skip: Sectors(4), ..Config::default() };
    let live = open_with(&mut rig, &[], &config);
    super::spares::wait(&rig, &live);
    let read = reads.0.get();
    rig.power_off();
    redundancy(&mut rig).unwrap_or_else(|found| panic!("{case}: {found}"));
    read
}

#[test]
fn a_resync_of_holes_reads_nothing_and_finds_each_stretch_of_data() {
    for of in ARRAYS {
        let slots = of.2;
        for shards in [1, 2] {
            let of_all = resync(of, shards, false, None);
            assert!(of_all >= SIZE, "{of:?}: without holes all is read");
            assert_eq!(resync(of, shards, true, None), 0, "{of:?}: nothing is stored");
            for member in 0..slots {
                for at in (0..SIZE).step_by(stride(5)) {
                    for length in [1, 3, 9].into_iter().filter(|length| at + length <= SIZE) {
                        let read = resync(of, shards, true, Some((member, at, length)));
                        let most = of_all / 2 + 24 * u64::from(slots);
                        assert!(
                            read > 0 && read < most.min(of_all + 1),
                            "{of:?} {member} {at} {length}: {read} of {of_all}"
                        );
                    }
                }
            }
        }
    }
}

/// A spare that stores something takes the slot of a member; all others are holes.
#[test]
fn a_recovery_of_holes_makes_one_of_what_the_spare_stores() {
    const MEMBER: u64 = 24;
    for (level, layout, slots) in super::spares::CASES {
        for shards in [1, 2] {
            for at in (0..MEMBER).step_by(stride(5)) {
                let case = format!("raid{level} {layout:#x} of {slots}, {shards} shards, from {at}");
                let mut rig = super::spares::rig_with_spare_that(level, layout, slots, shards, (1, true));
                let data = rig.setup.data_offsets[usize::from(slots)] as usize * 512;
                let mut image = rig.disk(slots).medium().current().to_vec();
                image[data + at as usize * 512..data + (at + 1) as usize * 512].fill(0xA5);
                rig.disk(slots).replace(image);
                for slot in 0..slots {
                    let data = rig.setup.data_offsets[usize::from(slot)] as usize * 512;
                    let mut image = rig.disk(slot).medium().current().to_vec();
                    image[data..].fill(0);
                    rig.disk(slot).replace(image);
                }
                let config = Config { pass_window: Sectors(2), pass_skip: Sectors(4), ..Config::default() };
                let live = start_with(&mut rig, &[], &config);
                super::spares::fail(&rig, &live, 1);
                super::spares::wait(&rig, &live);
                let stored = rig.disk(slots).medium().current()[data..data + MEMBER as usize * 512].to_vec();
                let used = live.arrays[0].layout().member_used(Slot(0)).0 as usize * 512;
                assert!(stored[..used - 1024].iter().all(|byte| *byte == 0), "{case}: zeroes, as the others have");
                rig.power_off();
            }
        }
    }
}
