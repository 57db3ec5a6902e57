//! Members whose reads fail, one after the other or all at once: which ones are failed for it.
//! Owns: the limit of read errors on every redundant level, over several shards. Not here: its arithmetic
//! (`engine::read_errors`), its combination with other faults (seeds run with a limit, too).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Device, ErrorKind, Fua, Sector, Sectors, Slot, SlotSet};
use uraid_engine::verdict::Operation;
use uraid_engine::view::Gate;
use uraid_engine::{Config, MemberState, RequestKind, Status};
use uraid_format::{MemberFlag, Role};
use uraid_sim::judge::{AssembleMode, Assembled};
use uraid_sim::machine::executor::Executor;
use uraid_sim::machine::member::{Effect, Fault, READ_ERRORS_MAX, Target};
use uraid_sim::random::rng::Rng;
use uraid_sim::reference::model::Shape;
use uraid_sim::rig::tally::Tally;
use uraid_sim::rig::{Live, Rig};
use uraid_sim::setup::Setup;

/// Level, members, members that may be lost together.
const LEVELS: [(i32, u16, &[u16]); 4] = [(1, 3, &[0, 2]), (10, 4, &[1, 2]), (5, 4, &[3]), (6, 5, &[0, 1])];
/// Sectors of each member: on every level, more of them hold data than the limit of read errors.
const SIZE: u64 = 24;
const SHARDS: u16 = 2;

struct Case {
    rig: Rig,
    live: Live,
}

impl Case {
    fn new(level: i32, slots: u16, read_errors_max: u32) -> Case {
        let (layout, chunk) = match level {
            1 => (0, 0),
            10 => (0x102, 2),
            _ => (2, 2),
        };
        let shape = Shape { level, layout, chunk, slots, size: SIZE, member_sizes: Vec::new() };
        let mut rng = Rng::new(7);
        let executor = Executor::new(rng.fork(), false);
        let setup = Setup { shards: SHARDS, ..Setup::plain(shape) };
        let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
        let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
        rig.prepare_oracle(&plan, &BTreeSet::new());
        let live = rig.boot(&plan, &Config { read_errors_max, ..Config::default() }).expect("sizes agree");
        let started = live.started.clone();
        let case = Case { rig, live };
        case.run(|| started.get().is_some());
        case
    }

    fn run(&self, is_done: impl Fn() -> bool) {
        let end = self.rig.executor.now() + Duration::from_secs(60);
        let ended = self.rig.executor.run(1_000_000, end, is_done);
        self.rig.judge_end(ended, &self.live, false).expect("no violation");
    }

    /// Makes all later reads of the member fail.
    fn fail_reads(&self, slot: u16) {
        let effect = Effect::ErrorsFromNow(ErrorKind::Media);
        self.rig.disk(slot).add_fault(Fault { victim: Target::Reads, after: 0, effect });
    }

    /// Makes these members failfast, or no longer.
    fn set_failfast(&self, members: std::ops::Range<usize>, is_set: bool) {
        let array = self.live.arrays[0].clone();
        let done = Rc::new(Cell::new(false));
        let inside = done.clone();
        self.rig.executor.spawn(0, "operator", async move {
            let members: Vec<usize> = members.collect();
            array.set_flag(&members, MemberFlag::FailFast, is_set).await.expect("it has copies");
            inside.set(true);
        });
        self.run(|| done.get());
    }

    fn sectors(&self) -> u64 {
        self.live.arrays[0].layout().array_size().0
    }

    /// Reads every sector by itself, on any shard; returns how many reads failed. In random order, because a stream
    /// stays on its copy.
    fn read_all(&self) -> u64 {
        let failed = Rc::new(Cell::new(0));
        let mut rng = Rng::new(self.sectors());
        let mut sectors: Vec<u64> = (0..self.sectors()).collect();
        while !sectors.is_empty() {
            let at = sectors.swap_remove(rng.below(sectors.len() as u64) as usize);
            let shard = rng.below(u64::from(SHARDS)) as u16;
            let array = self.live.arrays[usize::from(shard)].clone();
            let into = self.live.worlds[usize::from(shard)].client_arena().take(512).expect("room");
            let (failed, done) = (failed.clone(), Rc::new(Cell::new(false)));
            let inside = done.clone();
            self.rig.executor.spawn(shard, "reader", async move {
                if array.read(Sector(at), into).await.is_err() {
                    failed.set(failed.get() + 1);
                }
                inside.set(true);
            });
            self.run(|| done.get());
        }
        failed.get()
    }

    /// Writes every sector by itself.
    fn write_all(&self) {
        for at in 0..self.sectors() {
            let (array, guard) = (self.live.arrays[0].clone(), self.rig.guard.clone());
            let pieces = self.live.worlds[0].client_arena().take(512).expect("room").freeze();
            let done = Rc::new(Cell::new(false));
            let inside = done.clone();
            self.rig.executor.spawn(0, "writer", async move {
                guard.open_range(at, 1);
                array.write(Sector(at), pieces, Fua::No).await.expect("the others take it");
                guard.close_range(at, 1);
                inside.set(true);
            });
            self.run(|| done.get());
        }
    }

    fn status(&self) -> Status {
        self.live.arrays[0].status()
    }

    fn failed_for_reads(&self) -> Vec<u16> {
        self.failed_for(Operation::ReadErrors)
    }

    fn failed_for(&self, why: Operation) -> Vec<u16> {
        let members = (0..).zip(self.status().members);
        let failed = members.filter(|(_, member)| match member {
            MemberState::Faulty { operation, .. } => *operation == why,
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare
            | MemberState::Removed => false,
        });
        failed.map(|(slot, _)| slot).collect()
    }

    /// The roles in the superblocks if power failed now.
    fn roles(&mut self) -> Vec<Role> {
        let images = self.rig.judge.images(&mut self.rig.rng);
        match self.rig.judge.assemble(&images, AssembleMode::Forced).expect("legal") {
            Assembled::Plan(plan) => plan.template.roles.clone(),
            Assembled::DirtyDegraded | Assembled::Impossible => panic!("it does not start"),
        }
    }
}

#[test]
fn members_that_fail_every_read_are_failed_and_recorded_and_every_read_is_served() {
    for (level, slots, dying) in LEVELS {
        let mut case = Case::new(level, slots, READ_ERRORS_MAX);
        dying.iter().for_each(|&slot| case.fail_reads(slot));
        for _ in 0..4 {
            assert_eq!(case.read_all(), 0, "raid{level}");
        }
        assert_eq!(case.failed_for_reads(), dying, "raid{level}");
        for &slot in dying {
            let errors = case.status().errors[usize::from(slot)];
            let reads = errors.of[RequestKind::Read as usize].count;
            assert!(reads > u64::from(READ_ERRORS_MAX), "raid{level}: {reads} of both shards");
            assert!(!errors.is_needed);
            let counts = |shard: usize| case.live.arrays[shard].member_counts()[usize::from(slot)];
            let both = counts(0).and(&counts(1));
            assert_eq!(both.kind(RequestKind::Read).errors, reads, "what the log is told is what is counted");
            assert_eq!(both.kind(RequestKind::Read).bytes, 0);
            // The sectors that it could not read came from the other members. Each is tried once more when it was written again.
            assert!(both.read_elsewhere >= Sectors(u64::from(READ_ERRORS_MAX)), "raid{level}");
        }
        let roles = case.roles();
        for (slot, role) in (0..slots).zip(roles) {
            assert_eq!(role == Role::Faulty, dying.contains(&slot), "raid{level}: {slot}");
        }
        case.rig.power_off();
    }
}

#[test]
fn a_member_read_only_by_writes_is_failed_too() {
    for (level, slots) in [(5, 4), (6, 5)] {
        let case = Case::new(level, slots, 3);
        case.fail_reads(1);
        case.write_all();
        assert_eq!(case.failed_for_reads(), [1], "raid{level}");
        assert_eq!(case.read_all(), 0);
        case.rig.power_off();
    }
}

#[test]
fn a_member_stays_up_to_the_limit_and_always_without_a_limit() {
    for read_errors_max in [0, SIZE as u32] {
        let case = Case::new(1, 2, read_errors_max);
        case.fail_reads(0);
        for _ in 0..4 {
            assert_eq!(case.read_all(), 0);
        }
        assert_eq!(case.status().usable.count(), 2, "--max-read-errors {read_errors_max}");
        case.rig.power_off();
    }
}

#[test]
fn a_bad_sector_is_written_again_from_the_others_and_fails_no_member() {
    for (level, slots, _) in LEVELS {
        let case = Case::new(level, slots, 1);
        let start = case.rig.setup.data_offsets[0];
        case.rig.disk(0).add_latent([start]);
        for _ in 0..20 {
            assert_eq!(case.read_all(), 0);
        }
        let errors = case.status().errors[0].of[RequestKind::Read as usize];
        assert!(errors.count <= 1, "raid{level}: {errors:?}");
        assert_eq!(case.rig.disk(0).has_latent(start), errors.count == 0, "raid{level}");
        assert_eq!(case.status().usable.count(), usize::from(slots));
        case.rig.power_off();
    }
}

/// It cannot be read even after it was written, and the member has no log in which it could be listed.
#[test]
fn a_sector_that_stays_bad_is_written_again_once_and_fails_no_member() {
    let case = Case::new(5, 3, 1);
    let start = case.rig.setup.data_offsets[0];
    case.rig.disk(0).add_unreadable([start]);
    for _ in 0..20 {
        assert_eq!(case.read_all(), 0);
    }
    let errors = case.status().errors[0].of[RequestKind::Read as usize];
    assert!(errors.count > 3, "{errors:?}");
    let writes: u64 =
        case.live.arrays.iter().map(|array| array.member_counts()[0].kind(RequestKind::Write).requests).sum();
    assert!(writes <= 2, "superblocks and corrections: {writes}");
    assert_eq!(case.status().usable.count(), 3);
    case.rig.power_off();
}

#[test]
fn read_errors_of_all_members_at_once_fail_none() {
    for (level, slots, _) in LEVELS {
        let case = Case::new(level, slots, 1);
        (0..slots).for_each(|slot| case.fail_reads(slot));
        assert_eq!(case.read_all(), case.sectors(), "raid{level}");
        (0..slots).for_each(|slot| case.rig.disk(slot).forget_faults());
        assert_eq!(case.read_all(), 0, "raid{level}");
        assert_eq!(case.status().usable.count(), usize::from(slots), "raid{level}");
        assert_eq!(case.status().gate, Gate::Open);
        case.rig.power_off();
    }
}

#[test]
fn a_member_that_the_array_needs_is_not_failed_for_read_errors() {
    for (level, slots, dying) in LEVELS {
        let case = Case::new(level, slots, READ_ERRORS_MAX);
        let mut out = dying.to_vec();
        dying.iter().for_each(|&slot| case.fail_reads(slot));
        for _ in 0..4 {
            case.read_all();
        }
        // All other members as well, one after the other.
        for slot in (0..slots).filter(|slot| !dying.contains(slot)) {
            case.fail_reads(slot);
            for _ in 0..4 {
                case.read_all();
            }
        }
        let status = case.status();
        out.extend(case.failed_for_reads());
        out.sort_unstable();
        out.dedup();
        assert_eq!(out, dying, "raid{level}");
        assert_eq!(status.gate, Gate::Open, "raid{level}: writes and repairs are still taken");
        assert!(status.usable.iter().any(|slot| status.errors[slot.index()].is_needed), "raid{level}");
        assert!(status.errors.iter().zip(0..).all(|(errors, n)| !errors.is_needed || status.usable.contains(Slot(n))));
        case.rig.power_off();
    }
}

/// Level, members, of the levels that have failfast members.
const WITH_COPIES: [(i32, u16); 3] = [(1, 2), (1, 3), (10, 4)];

#[test]
fn one_read_error_fails_a_failfast_member_and_is_not_corrected() {
    for (level, slots) in WITH_COPIES {
        for read_errors_max in [0, READ_ERRORS_MAX] {
            let mut case = Case::new(level, slots, read_errors_max);
            case.set_failfast(0..1, true);
            let start = case.rig.setup.data_offsets[0];
            case.rig.disk(0).add_latent(start..start + SIZE);
            case.rig.judge.lost.borrow_mut().insert(0);
            for _ in 0..4 {
                assert_eq!(case.read_all(), 0, "raid{level}");
            }
            assert_eq!(case.failed_for(Operation::FailFast), [0], "raid{level} of {slots}, limit {read_errors_max}");
            assert!((start..start + SIZE).all(|at| case.rig.disk(0).has_latent(at)), "none was written again");
            assert_eq!(case.status().errors[0].of[RequestKind::Read as usize].count, 1);
            assert_eq!(case.roles()[0], Role::Faulty);
            case.rig.power_off();
        }
    }
}

#[test]
fn a_member_that_is_failfast_no_longer_is_corrected() {
    let case = Case::new(1, 2, 0);
    case.set_failfast(0..2, true);
    case.set_failfast(0..1, false);
    let start = case.rig.setup.data_offsets[0];
    case.rig.disk(0).add_latent(start..start + SIZE);
    for _ in 0..4 {
        assert_eq!(case.read_all(), 0);
    }
    let errors = case.status().errors[0].of[RequestKind::Read as usize].count;
    let left = (start..start + SIZE).filter(|at| case.rig.disk(0).has_latent(*at)).count() as u64;
    assert!(errors > 0 && left <= SIZE - errors, "{errors} were read, and written again; {left} are left");
    assert_eq!(case.status().usable.count(), 2);
    case.rig.power_off();
}

#[test]
fn read_errors_of_all_failfast_members_at_once_fail_none() {
    for (level, slots) in WITH_COPIES {
        let case = Case::new(level, slots, READ_ERRORS_MAX);
        case.set_failfast(0..usize::from(slots), true);
        (0..slots).for_each(|slot| case.fail_reads(slot));
        assert_eq!(case.read_all(), case.sectors(), "raid{level}");
        (0..slots).for_each(|slot| case.rig.disk(slot).forget_faults());
        assert_eq!(case.read_all(), 0, "raid{level}");
        assert_eq!(case.status().usable.count(), usize::from(slots), "raid{level}");
        case.rig.power_off();
    }
}

/// raid10 of 3: each chunk has its copies on two of the members. After one is lost, no other may fail.
#[test]
fn a_failfast_member_that_the_array_needs_is_not_failed_but_corrected() {
    let case = Case::new(10, 3, READ_ERRORS_MAX);
    case.set_failfast(0..3, true);
    case.fail_reads(2);
    for _ in 0..20 {
        assert_eq!(case.read_all(), 0);
    }
    assert_eq!(case.failed_for(Operation::FailFast), [2]);
    let start = case.rig.setup.data_offsets[0];
    case.rig.disk(0).add_latent([start]);
    for _ in 0..20 {
        assert_eq!(case.read_all(), 0, "member 1 has the first chunk, too");
    }
    assert!(!case.rig.disk(0).has_latent(start), "it was read, and written again");
    assert_eq!(case.status().usable.count(), 2);
    case.rig.power_off();
}

/// A member takes half a minute for the first sector that is written again, while all its others prove bad: only so many
/// wait for their turn. The others are asked for again when they are read.
#[test]
fn corrections_that_wait_for_a_member_are_bounded() {
    let shape = Shape { level: 1, layout: 0, chunk: 0, slots: 2, size: 2048, member_sizes: Vec::new() };
    let mut rng = Rng::new(7);
    let executor = Executor::new(rng.fork(), false);
    // Reads go to member 0.
    let setup = Setup { shards: 1, write_mostly: SlotSet::EMPTY.with(Slot(1)), ..Setup::plain(shape) };
    let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    let plan = rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
    rig.prepare_oracle(&plan, &BTreeSet::new());
    let live = rig.boot(&plan, &Config { read_errors_max: 0, ..Config::default() }).expect("sizes agree");
    let started = live.started.clone();
    let case = Case { rig, live };
    case.run(|| started.get().is_some());
    // Each in a stretch of 4 KiB of its own.
    let (disk, data_at) = (case.rig.disk(0).clone(), case.rig.setup.data_offsets[0]);
    let bad = || (0..100).map(|number| 16 * number);
    disk.add_latent(bad().map(|sector| data_at + sector));
    disk.add_fault(Fault { victim: Target::Writes, after: 0, effect: Effect::Hang(Duration::from_secs(25)) });
    for sector in bad() {
        let (array, done) = (case.live.arrays[0].clone(), Rc::new(Cell::new(false)));
        let into = case.live.worlds[0].client_arena().take(512).expect("room");
        let inside = done.clone();
        case.rig.executor.spawn(0, "reader", async move {
            array.read(Sector(sector), into).await.expect("the other copy has it");
            inside.set(true);
        });
        case.run(|| done.get());
    }
    let (over, inside) = (Rc::new(Cell::new(false)), case.rig.executor.clone());
    let is_over = over.clone();
    case.rig.executor.spawn(0, "pause", async move {
        inside.sleep(Duration::from_secs(40)).await;
        is_over.set(true);
    });
    case.run(|| over.get());
    let left = bad().filter(|sector| disk.has_latent(data_at + sector)).count();
    assert_eq!(left, 100 - 64 - 1, "64 wait, beside the one that is being corrected");
    case.rig.power_off();
}
