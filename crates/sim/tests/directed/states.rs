//! Every kind of request that changes data, in every state in which a slot has two members, one that holds a part only, or
//! none: what each member holds afterwards.
//! Owns: this table. Not here: failures in these states (`spares`, `joining::replacing`), freezes (`frozen`).

use super::spares::{CASES, content_of, fail, fill, wait};
use super::zeroes::{Verb, clear};
use super::*;
use uraid_sim::machine::member::medium::CrashMode;
use uraid_sim::reference::model::Place;

/// What the array is doing when the request comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// A slot has no member.
    Degraded,
    /// A spare has the slot of one that failed.
    Recovering,
    /// A member is copied to a spare, and both are written.
    Replacing,
    /// A crash has interrupted the recovery: a resync runs, then the recovery goes on.
    Resync,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write,
    Durable,
    Clear(Verb),
}

const KINDS: [Kind; 5] =
    [Kind::Write, Kind::Durable, Kind::Clear(Verb::Zeroes), Kind::Clear(Verb::Discard), Kind::Clear(Verb::Holes)];

/// Chunks of two sectors: parts of rows, whole rows, both.
const RANGES: [(u64, u64); 4] = [(5, 1), (0, 24), (11, 9), (12, 12)];

/// A small write of a raid5 of five reads and writes two members only.
const ARRAYS: [(i32, u32, u16); 10] = {
    let mut arrays = [(5, 2, 5); 10];
    let mut at = 0;
    while at < CASES.len() {
        arrays[at] = CASES[at];
        at += 1;
    }
    arrays
};

struct Table {
    rig: Rig,
    live: Live,
    content: Vec<u8>,
    /// The disk of each member.
    disks: Vec<usize>,
}

impl Table {
    /// An array with a spare, whose members keep that a discarded sector is zero.
    fn new((level, layout, slots): (i32, u32, u16), state: State) -> Table {
        let chunk = if level == 1 { 0 } else { 2 };
        let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
        let mut rng = Rng::new(11);
        let executor = Executor::new(rng.fork(), false);
        let (data_offsets, data_sizes) = (vec![16; usize::from(slots) + 1], vec![24; usize::from(slots) + 1]);
        let plain = Setup { spares: 1, shards: 2, discard: (1, true), ..Setup::plain(shape) };
        let setup = Setup { data_offsets, data_sizes, pass_window: Sectors(3), ..plain };
        let mut rig = Rig::new(executor, rng, Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
        // The guard knows what lies where on members that keep their slot.
        rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
        change_superblock(&rig, slots, |superblock| superblock.features = Default::default());
        let mut rubbish = rig.disk(slots).medium().current().to_vec();
        rubbish[DATA_AT as usize * 512..].fill(0xee);
        rig.disk(slots).replace(rubbish);
        rig.judge.is_over_budget.set(true);
        let away = if state == State::Degraded { vec![slots] } else { Vec::new() };
        let live = start_with(&mut rig, &away, &config());
        let content = fill(&rig, &live);
        let flush = live.arrays[0].clone();
        assert_eq!(all(&rig, &live, vec![async move { flush.flush().await }]), [Ok(())]);
        Table { rig, live, content, disks: (0..=usize::from(slots)).collect() }
    }

    /// Brings the array into the state, and runs this many steps of it. Returns whether the state is over.
    fn enter(&mut self, state: State, victim: u16, steps: u64) -> bool {
        if state == State::Degraded {
            fail(&self.rig, &self.live, victim);
            return steps > 0;
        }
        self.rig.judge.lost.borrow_mut().insert(victim);
        let array = self.live.arrays[0].clone();
        let task = self.rig.executor.spawn(0, "operator", async move {
            if state == State::Replacing {
                let _ = array.replace(Slot(victim), None).await;
            } else {
                let _ = array.fail(SlotSet::EMPTY.with(Slot(victim))).await;
            }
            let _ = array.wait(|_| {}).await;
        });
        if state != State::Resync {
            return self.run(steps, task);
        }
        self.run(60, task);
        self.live = self.crashed();
        let executor = self.rig.executor.clone();
        let end = executor.now() + Duration::from_secs(60);
        executor.run(steps, end, || !executor.is_running(self.live.start));
        !executor.is_running(self.live.start)
    }

    /// The array, opened again after a power cut that leaves all of what was written.
    fn crashed(&mut self) -> Live {
        self.rig.executor.cut();
        self.rig.judge.disks.iter().for_each(|disk| disk.power_cycle(CrashMode::All, &mut self.rig.rng));
        self.rig.guard.reset();
        // The members come in the order of their slots.
        let plan = self.rig.assemble(&BTreeSet::new()).expect("legal").expect("it starts");
        self.disks = plan.members.iter().map(|member| member.candidate).collect();
        open_with(&mut self.rig, &[], &config())
    }

    fn run(&self, steps: u64, task: u64) -> bool {
        let executor = self.rig.executor.clone();
        let end = executor.now() + Duration::from_secs(60);
        executor.run(steps, end, || !executor.is_running(task));
        !executor.is_running(task)
    }

    fn request(&mut self, kind: Kind, at: u64, length: u64) -> Request {
        let (rig, live) = (&self.rig, &self.live);
        let byte = if matches!(kind, Kind::Clear(_)) { 0 } else { 201 };
        let changed = match kind {
            Kind::Clear(Verb::Discard) => {
                let unit = live.arrays[0].geometry().discard_granularity.0;
                at.div_ceil(unit) * unit..((at + length) / unit * unit).max(at.div_ceil(unit) * unit)
            }
            Kind::Write | Kind::Durable | Kind::Clear(_) => at..at + length,
        };
        self.content[changed.start as usize * 512..changed.end as usize * 512].fill(byte);
        match kind {
            Kind::Write => Box::pin(write(rig, live, at, length, 201)),
            Kind::Durable => Box::pin(write_as(rig, live, at, length, 201, Fua::Yes)),
            Kind::Clear(verb) => clear(rig, live, 1, verb, (at, length)),
        }
    }

    /// Each sector by itself: one that cannot be read does not hide another.
    fn read_all(&self) -> Vec<Result<Vec<u8>, ErrorKind>> {
        let sectors = 0..self.rig.judge.model.array_size();
        sectors
            .map(|at| all(&self.rig, &self.live, vec![read(&self.live, at, 1)]).remove(0).map_err(|error| error.kind))
            .collect()
    }

    /// What the array gives is right, and so is every copy and parity of the members in slots.
    fn check(&mut self, case: &str) {
        let pause = self.rig.executor.clone();
        all(&self.rig, &self.live, vec![async move { pause.sleep(Duration::from_secs(1)).await }]);
        assert!(content_of(&self.rig, &self.live) == self.content, "{case}");
        let members = self.live.arrays[0].status().members;
        let disk_of = |slot: u16| {
            members
                .iter()
                .position(|state| *state == MemberState::Active(Slot(slot)))
                .map(|at| &self.rig.judge.disks[self.disks[at]])
        };
        let get = |place: Place| -> Option<[u8; 512]> {
            let start = (DATA_AT + place.sector) as usize * 512;
            disk_of(place.slot)?.medium().current()[start..start + 512].try_into().ok()
        };
        let found = self.rig.judge.model.find_mismatch(&get, &|_| false);
        assert_eq!(found, None, "{case}: members {members:?}");
        self.rig.power_off();
    }
}

fn config() -> Config {
    Config { pass_window: Sectors(3), ..Config::default() }
}

/// Every kind of request at many moments of the state.
fn every_kind_in(state: State, arrays: &[(i32, u32, u16)]) -> u64 {
    let mut cases = 0;
    for (number, array) in arrays.iter().enumerate() {
        let requests = KINDS.into_iter().flat_map(|kind| RANGES.map(|range| (kind, range)));
        // Every other one; another array has the rest. The raid5 of five, the tenth, has the small write.
        for (kind, (at, length)) in requests.skip((number + 1) % stride(2)).step_by(stride(2)) {
            for steps in (0..).step_by(stride(61)) {
                let victim = number as u16 % array.2;
                let case =
                    format!("{array:?}, slot {victim}, {state:?}, {kind:?} of {at}+{length} after {steps} steps");
                let mut table = Table::new(*array, state);
                let is_over = table.enter(state, victim, steps);
                let size = table.rig.judge.model.array_size();
                let request = table.request(kind, at.min(size - 1), length.min(size - at));
                assert_eq!(all(&table.rig, &table.live, vec![request]), [Ok(())], "{case}");
                wait(&table.rig, &table.live);
                table.check(&case);
                cases += 1;
                if is_over {
                    break;
                }
            }
        }
    }
    cases
}

#[test]
fn a_degraded_array_keeps_every_kind_of_change() {
    assert!(every_kind_in(State::Degraded, &ARRAYS) >= 10 * 10);
}

#[test]
fn a_member_in_recovery_gets_every_kind_of_change() {
    assert!(every_kind_in(State::Recovering, &ARRAYS) >= 10 * 20);
}

#[test]
fn a_member_that_replaces_another_gets_every_kind_of_change() {
    assert!(every_kind_in(State::Replacing, &ARRAYS) >= 10 * 20);
}

#[test]
fn a_resync_beside_a_recovery_leaves_every_kind_of_change() {
    let redundant = [(1, 0, 3), (10, 0x103, 4), (6, 2, 5), (6, 16, 6)];
    assert!(every_kind_in(State::Resync, &redundant) >= 4 * 20);
}

/// A member is full in the middle of a request: the array freezes, and takes writes again without the member. Whatever the
/// request left behind, readers see no change, and copies and parity agree.
#[test]
fn what_a_freeze_leaves_half_done_is_made_whole_for_every_kind_of_change() {
    let mut frozen = [0; KINDS.len()];
    for array in [(1, 0, 3), (10, 0x102, 4), (10, 0x201, 4), (4, 0, 4), (5, 2, 4), (6, 2, 5)] {
        for (full, after) in [(0, 0), (0, 1), (array.2 - 1, 0), (array.2 - 1, 1), (1, 2)] {
            for ((number, kind), (at, length)) in
                KINDS.iter().enumerate().flat_map(|kind| RANGES.map(|range| (kind, range)))
            {
                let case = format!("{array:?}, member {full} full after {after}, {kind:?} of {at}+{length}");
                let mut table = Table::new(array, State::Degraded);
                let effect = Effect::ErrorsFromNow(ErrorKind::NoSpace);
                table.rig.disk(full).add_fault(Fault { victim: Target::Writes, after, effect });
                let size = table.rig.judge.model.array_size();
                let request = table.request(*kind, at.min(size - 1), length.min(size - at));
                let answer = all(&table.rig, &table.live, vec![request])[0];
                if answer.is_ok() {
                    // The member had no part of it, or may refuse it: a discard is advice.
                    table.rig.power_off();
                    continue;
                }
                frozen[number] += 1;
                assert_eq!(table.live.arrays[0].status().gate, Gate::Frozen(ErrorKind::NoSpace), "{case}");
                let before = table.read_all();
                assert!(before.iter().all(Result::is_ok), "{case}");
                table.rig.judge.lost.borrow_mut().insert(full);
                fail(&table.rig, &table.live, full);
                assert_eq!(table.live.arrays[0].status().gate, Gate::Open, "{case}");
                assert!(before == table.read_all(), "{case}: other bytes than before");
                table.content = before.into_iter().flat_map(|sector| sector.expect("it was read")).collect();
                table.check(&case);
            }
        }
    }
    assert!(
        frozen.iter().zip(KINDS).all(|(count, kind)| *count > 20 || kind == Kind::Clear(Verb::Discard)),
        "{frozen:?}"
    );
}
