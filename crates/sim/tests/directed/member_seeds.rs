//! A swarm whose members fail, leave, return, join and are replaced in random order, with requests, faults and power cuts
//! at the same time.
//! Owns: its arrays, whose disks are in any slot; what each sector must hold. Not here: each step on its own (`joining`,
//! `re_adding`), every other kind of fault (the swarm of scenarios, whose members stay in their slots).
//!
//! `URAID_SIM_SEEDS=20000 cargo test --release -p uraid-sim --test suite member_seeds -- --nocapture` is the long form;
//! `URAID_SIM_FIRST` starts at another seed.

use super::joining::{assembled_anywhere, joining, leaving, wipe};
use super::re_adding::{former_member, returning};
use super::spares::{CASES, wait};
use super::*;
use uraid_engine::verdict::Operation;
use uraid_engine::{AddError, Array, PassKind, ReAddError};
use uraid_format::{Features, MemberFlag};
use uraid_sim::image::bits::Bits;
use uraid_sim::image::logs;
use uraid_sim::machine::world::SimWorld;

const SEEDS: u64 = 150;
const ROUNDS: u64 = 4;
const CLEAR_AFTER: Duration = Duration::from_secs(2);

/// What a sector holds.
#[derive(Clone, Default, Debug)]
struct Held {
    value: u8,
    /// What else a power cut may leave: values of before, and the one that is being written.
    others: BTreeSet<u8>,
    /// What copies may still hold since a power cut: if the one that counts fails before the resync has ended, another one
    /// counts.
    undecided: BTreeSet<u8>,
    /// A write of it is under way.
    is_busy: bool,
    /// How many writes have begun.
    version: u64,
}

type Cells = Rc<RefCell<Vec<Held>>>;

/// How often something happened in all seeds.
#[derive(Default, Debug)]
struct Counts {
    joined: u64,
    replaced: u64,
    returned: u64,
    /// Starts in the middle of a recovery by bits.
    continued: u64,
    /// Power cuts while data was written.
    cut_writes: u64,
    faults: u64,
}

/// An array, and which disk each of its members is.
struct Run {
    rig: Rig,
    live: Live,
    rng: Rng,
    /// By index; `None`: it was removed.
    disks: Rc<RefCell<Vec<Option<u16>>>>,
    cells: Cells,
    /// Slots whose member has a fault, until the next pause: the array must be able to do without them.
    faulty: SlotSet,
    counts: Counts,
}

fn config() -> Config {
    Config { clear_bits_after: Some(CLEAR_AFTER), pass_window: Sectors(3), ..Config::default() }
}

/// The last disk is blank.
fn rig_for(rng: &mut Rng) -> Rig {
    let (level, layout, slots) = *rng.pick(&CASES);
    let chunk = if level == 1 { 0 } else { *rng.pick(&[2, 8]) };
    let shape = Shape { level, layout, chunk, slots, size: 24, member_sizes: Vec::new() };
    let executor = Executor::new(rng.fork(), false);
    let all = usize::from(slots) + 1;
    let (data_offsets, data_sizes) = (vec![16; all], vec![24; all]);
    let shards = rng.between(1, 3) as u16;
    let setup = Setup { spares: 1, shards, data_offsets, data_sizes, ..Setup::plain(shape) };
    let bits = Bits { chunk: 1, clear_after: CLEAR_AFTER, are_set: false, write_behind: 0 };
    let (has_bits, has_logs) = (rng.chance(1, 2), rng.chance(1, 3));
    let setup = setup.with_bits(has_bits.then_some(bits));
    let setup = if has_logs { setup.with_logs() } else { setup };
    let setup = if level == 5 && !has_bits { setup.with_ppl() } else { setup };
    let rig = Rig::new(executor, rng.fork(), Rc::new(setup), Rc::new(RefCell::new(Tally::default())));
    // No guard: it expects that members keep their slot, and knows what their superblocks must say.
    rig.judge.disks.iter().for_each(|disk| disk.set_watch(None));
    rig.judge.is_over_budget.set(true);
    make_blank(&rig, slots);
    rig
}

/// A device without a superblock. The program that adds one writes an empty bad-block log first.
fn make_blank(rig: &Rig, disk: u16) {
    wipe(rig, disk);
    if rig.setup.has_logs {
        let mut image = rig.disk(disk).medium().current().to_vec();
        logs::clear(&mut image);
        rig.disk(disk).replace(image);
    }
}

fn is_blank(rig: &Rig, disk: u16) -> bool {
    rig.disk(disk).medium().current()[8 * 512..8 * 512 + 4] == [0; 4]
}

/// Writes sectors one after the other. A write may only fail if power does.
async fn write_all(array: Rc<Array<SimWorld>>, world: SimWorld, cells: Cells, plan: Vec<(u64, u8, Fua)>) {
    for (at, byte, fua) in plan {
        let before = {
            let cell = &mut cells.borrow_mut()[at as usize];
            if cell.is_busy {
                continue;
            }
            cell.is_busy = true;
            cell.version += 1;
            cell.others.insert(byte);
            cell.value
        };
        let mut pieces = world.client_arena().take(512).expect("room");
        pieces.fill(byte);
        array.write(Sector(at), pieces.freeze(), fua).await.expect("the array can do without what fails");
        let cell = &mut cells.borrow_mut()[at as usize];
        cell.is_busy = false;
        cell.value = byte;
        cell.undecided.clear();
        match fua {
            Fua::Yes => cell.others.clear(),
            Fua::No => drop(cell.others.insert(before)),
        }
    }
}

/// Reads sectors that are not being written.
async fn read_all(array: Rc<Array<SimWorld>>, world: SimWorld, cells: Cells, plan: Vec<u64>) {
    for at in plan {
        let before = cells.borrow()[at as usize].clone();
        let pieces = world.client_arena().take(512).expect("room");
        let found = array.read(Sector(at), pieces).await.expect("the array can do without what fails");
        let now = cells.borrow()[at as usize].version;
        if !before.is_busy && now == before.version {
            let found = found.to_vec();
            let is_legal = found[0] == before.value || before.undecided.contains(&found[0]);
            assert!(is_legal && found == [found[0]; 512], "sector {at}: {}, expected {before:?}", found[0]);
        }
    }
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Rng::new(seed);
        let mut rig = rig_for(&mut rng);
        let slots = rig.setup.shape.slots;
        let live = start_with(&mut rig, &[slots], &config());
        let cells = vec![Held::default(); rig.judge.model.array_size() as usize];
        let disks = Rc::new(RefCell::new((0..slots).map(Some).collect()));
        let cells = Rc::new(RefCell::new(cells));
        let mut run = Run { rig, live, rng, disks, cells, faulty: SlotSet::EMPTY, counts: Counts::default() };
        let all_sectors =
            (0..run.cells.borrow().len() as u64).map(|at| (at, run.rng.between(1, 255) as u8, Fua::No)).collect();
        let task = run.spawn_writes(0, all_sectors);
        run.end_of(&[task]);
        run
    }

    fn spawn_writes(&self, shard: u16, plan: Vec<(u64, u8, Fua)>) -> u64 {
        let (array, world) =
            (self.live.arrays[usize::from(shard)].clone(), self.live.worlds[usize::from(shard)].clone());
        self.rig.executor.spawn(shard, "writes", write_all(array, world, self.cells.clone(), plan))
    }

    /// Requests on every shard. With `writes`, half of them are.
    fn spawn_requests(&mut self, writes: bool) -> Vec<u64> {
        let size = self.cells.borrow().len() as u64;
        let mut tasks = Vec::new();
        for shard in 0..self.rig.setup.shards {
            let count = self.rng.between(1, 6);
            if writes {
                let plan = (0..count).map(|_| {
                    let fua = if self.rng.chance(1, 3) { Fua::Yes } else { Fua::No };
                    (self.rng.below(size), self.rng.between(1, 255) as u8, fua)
                });
                let plan = plan.collect();
                tasks.push(self.spawn_writes(shard, plan));
            }
            let plan = (0..count).map(|_| self.rng.below(size)).collect();
            let at = usize::from(shard);
            let (array, world) = (self.live.arrays[at].clone(), self.live.worlds[at].clone());
            tasks.push(self.rig.executor.spawn(shard, "reads", read_all(array, world, self.cells.clone(), plan)));
        }
        tasks
    }

    fn end_of(&self, tasks: &[u64]) {
        let executor = self.rig.executor.clone();
        run(&self.rig, &self.live, || tasks.iter().all(|task| !executor.is_running(*task)));
    }

    fn states(&self) -> Vec<MemberState> {
        self.live.arrays[0].status().members
    }

    /// Slots whose member may lack something: it has a fault, or lists sectors.
    fn weak(&self) -> SlotSet {
        let lists = |disk: &u16| logs::is_in_force(self.rig.disk(*disk).medium().current());
        let (states, disks) = (self.states(), self.disks.borrow());
        let listing = states.iter().zip(disks.iter()).filter(|(_, disk)| disk.filter(lists).is_some());
        listing.filter_map(|(state, _)| state.slot()).chain(self.faulty.iter()).collect()
    }

    /// Whether the array can do without the member in this slot, too. Not before the resync has ended: until then one copy
    /// counts, and parity may be wrong. Beside requests that takes a while.
    fn can_lose(&self, slot: Slot) -> bool {
        let status = self.live.arrays[0].status();
        let left = status.usable.minus(self.weak()).without(slot);
        let is_in_sync = status.pass.is_none_or(|pass| pass.kind != PassKind::Resync);
        is_in_sync && self.live.arrays[0].layout().can_serve(&left)
    }

    /// Perhaps begins a fault of a member that the array can do without: its reads or writes fail.
    fn begin_fault(&mut self) {
        let usable: Vec<Slot> = self.live.arrays[0].status().usable.iter().collect();
        let slot = *self.rng.pick(&usable);
        let index = self.states().iter().position(|state| state.slot() == Some(slot));
        let disk = index.and_then(|index| self.disks.borrow()[index]);
        let Some(disk) = disk.filter(|_| self.rng.chance(1, 3) && self.can_lose(slot)) else { return };
        self.faulty = self.faulty.with(slot);
        self.counts.faults += 1;
        let start = self.rig.setup.data_offsets[usize::from(disk)];
        match self.rng.below(3) {
            0 => {
                let sectors: Vec<u64> = (0..self.rng.between(1, 3)).map(|_| start + self.rng.below(24)).collect();
                self.rig.disk(disk).add_latent(sectors);
            }
            what => {
                let victim = if what == 1 { Target::Writes } else { Target::Any };
                let kind = *self.rng.pick(&[ErrorKind::Media, ErrorKind::Gone]);
                let fault = Fault { victim, after: self.rng.below(12), effect: Effect::ErrorsFromNow(kind) };
                self.rig.disk(disk).add_fault(fault);
            }
        }
    }

    /// All faults are over.
    fn mend(&mut self) {
        self.faulty = SlotSet::EMPTY;
        self.rig.judge.disks.iter().for_each(|disk| disk.forget_faults());
        // A correction that could not be written fails its member although no request waits for it: when failures of others
        // would no longer count as the same event.
        self.pause(2 * Config::default().collect_failures);
    }

    fn pause(&self, time: Duration) {
        let executor = self.rig.executor.clone();
        all(&self.rig, &self.live, vec![async move { executor.sleep(time).await }]);
    }

    /// Begins a change of members.
    fn begin_change(&mut self) -> Option<u64> {
        let states = self.states();
        let failed: Vec<usize> =
            (0..states.len()).filter(|&index| matches!(states[index], MemberState::Faulty { .. })).collect();
        let array = self.live.arrays[0].clone();
        let usable: Vec<Slot> = array.status().usable.iter().collect();
        let slot = *self.rng.pick(&usable);
        let second = states.iter().find_map(|state| state.written_slot().filter(|_| state.slot().is_none()));
        let disks = self.disks.clone();
        let (name, is_set) = (*self.rng.pick(&[MemberFlag::WriteMostly, MemberFlag::FailFast]), self.rng.chance(1, 2));
        match self.rng.below(6) {
            0 => Some(self.rig.executor.spawn(0, "replace", async move {
                // It may have the slot by now, and it may be refused: no spare, or a member that is being replaced already.
                match second {
                    Some(slot) => drop(array.fail_replacement(slot).await),
                    None => drop(array.replace(slot, None).await),
                }
            })),
            1 if self.can_lose(slot) => Some(self.rig.executor.spawn(0, "fail", async move {
                let _ = array.fail(SlotSet::EMPTY.with(slot)).await;
            })),
            2 if !failed.is_empty() => {
                let index = *self.rng.pick(&failed);
                let leaving = leaving(&self.live, index);
                Some(self.rig.executor.spawn(0, "leave", async move {
                    assert_eq!(leaving.await, Ok(()));
                    disks.borrow_mut()[index] = None;
                }))
            }
            3 => {
                let member = states.iter().position(|state| state.slot() == Some(slot))?;
                Some(self.rig.executor.spawn(0, "flag", async move {
                    let _ = array.set_flag(&[member], name, is_set).await;
                }))
            }
            _ => self.begin_join(),
        }
    }

    /// A free disk returns or joins.
    fn begin_join(&mut self) -> Option<u64> {
        let is_free = |disk: &u16| !self.disks.borrow().contains(&Some(*disk));
        let free: Vec<u16> = (0..self.rig.judge.disks.len() as u16).filter(is_free).collect();
        let disk = *self.rng.pick(free.get(..).filter(|free| !free.is_empty())?);
        if self.rng.chance(1, 3) {
            make_blank(&self.rig, disk);
        }
        let disks = self.disks.clone();
        disks.borrow_mut().push(Some(disk));
        assert_eq!(disks.borrow().len(), self.states().len() + 1, "it has the next index");
        let is_faulty = !self.faulty.is_empty();
        let can_return =
            !is_blank(&self.rig, disk) && self.live.arrays[0].former_slot(&former_member(&self.rig, disk)).is_ok();
        if can_return {
            self.counts.returned += 1;
            let returning = returning(&self.rig, &self.live, disk);
            return Some(self.rig.executor.spawn(0, "return", async move {
                match returning.await {
                    Ok(_) => {}
                    // A spare was faster.
                    Err(ReAddError::Taken { .. }) => *disks.borrow_mut().last_mut().expect("it is there") = None,
                    // It is the one that fails writes.
                    Err(ReAddError::Bitmap(_) | ReAddError::Superblock(_)) if is_faulty => {
                        *disks.borrow_mut().last_mut().expect("it is there") = None
                    }
                    Err(error) => panic!("it can return: {error}"),
                }
            }));
        }
        self.counts.joined += 1;
        // What it listed as a member of before does not count any more.
        make_blank(&self.rig, disk);
        let joining = joining(&self.rig, &self.live, disk);
        Some(self.rig.executor.spawn(0, "join", async move {
            match joining.await {
                Ok(_) => {}
                // It is the one that fails writes.
                Err(AddError::Superblock(_)) if is_faulty => {
                    *disks.borrow_mut().last_mut().expect("it is there") = None
                }
                Err(error) => panic!("there is room: {error}"),
            }
        }))
    }

    /// Changes members beside requests.
    fn change(&mut self) {
        self.begin_fault();
        let mut tasks = self.spawn_requests(true);
        tasks.extend(self.begin_change());
        self.end_of(&tasks);
        // It may have been refused before it had an index.
        let members = self.states().len();
        self.disks.borrow_mut().truncate(members);
    }

    /// What all sectors hold now.
    fn check(&mut self) {
        let size = self.cells.borrow().len() as u64;
        let (array, world) = (self.live.arrays[0].clone(), self.live.worlds[0].clone());
        let task = self.rig.executor.spawn(0, "reads", read_all(array, world, self.cells.clone(), (0..size).collect()));
        self.end_of(&[task]);
    }

    /// Waits until everything is on the members.
    fn settle(&mut self) {
        let array = self.live.arrays[0].clone();
        run(&self.rig, &self.live, || !array.status().is_dirty);
        // The superblocks say so a little later.
        self.pause(Duration::from_secs(1));
        self.cells.borrow_mut().iter_mut().for_each(|cell| cell.others.clear());
        self.decide(|cell| cell.undecided.clone(), |_| BTreeSet::new());
    }

    /// Reads every sector, which may hold its value or one of `others`. What it holds is its value from then on.
    fn decide(&self, others: impl Fn(&Held) -> BTreeSet<u8>, undecided: impl Fn(BTreeSet<u8>) -> BTreeSet<u8>) {
        let size = self.cells.borrow().len() as u64;
        for at in 0..size {
            let found = all(&self.rig, &self.live, vec![read(&self.live, at, 1)]).remove(0).expect("it can be read");
            let cell = &mut self.cells.borrow_mut()[at as usize];
            let mut legal = others(cell);
            legal.insert(cell.value);
            assert!(
                legal.contains(&found[0]) && found == [found[0]; 512],
                "sector {at}: {}, legal {legal:?}",
                found[0]
            );
            *cell = Held { value: found[0], undecided: undecided(legal), ..Held::default() };
        }
    }

    /// Power fails in the middle of a change and, where no row can be half written with a member missing, of writes.
    fn cut_power(&mut self) {
        self.mend();
        self.settle();
        let status = self.live.arrays[0].status();
        let is_whole = status.usable == SlotSet::first(status.slots) && status.pass.is_none() && self.weak().is_empty();
        let setup = self.rig.setup.clone();
        let is_mirror = matches!(setup.shape.level, 1 | 10);
        let writes = is_mirror || setup.has_ppl || is_whole && self.rng.chance(1, 2);
        let may_change = is_mirror || setup.has_ppl || !writes;
        let mut tasks = self.spawn_requests(writes);
        tasks.extend(if may_change { self.begin_change() } else { None });
        let (steps, executor) = (self.rng.below(200), self.rig.executor.clone());
        let end = executor.now() + Duration::from_secs(60);
        executor.run(steps, end, || tasks.iter().all(|task| !executor.is_running(*task)));
        self.counts.cut_writes += u64::from(self.cells.borrow().iter().any(|cell| cell.is_busy));
        self.start_again();
    }

    fn start_again(&mut self) {
        let disks = &self.rig.judge.disks;
        let mut images = self.rig.judge.images(&mut self.rng);
        // A disk that is no member is lost at times.
        for (disk, image) in (0u16..).zip(&mut images) {
            if !self.disks.borrow().contains(&Some(disk)) && self.rng.chance(1, 2) {
                image.iter_mut().for_each(|image| image.fill(0));
            }
        }
        self.rig.judge.unreadable.borrow_mut().extend(0..disks.len() as u16);
        let mut after = self.rig.branch(images, self.rng.fork()).expect("whole superblocks");
        after.judge.is_over_budget.set(true);
        let plan = assembled_anywhere(&after);
        let live = after.boot(&plan, &config()).expect("sizes agree");
        run(&after, &live, || live.started.get().is_some());
        assert_eq!(live.started.get(), Some(true));
        let by_bits = Features::RECOVERY_BITMAP;
        self.counts.continued +=
            u64::from(plan.members.iter().any(|member| member.superblock.features.contains(by_bits)));
        *self.disks.borrow_mut() = plan.members.iter().map(|member| Some(member.candidate as u16)).collect();
        std::mem::replace(&mut self.rig, after).power_off();
        self.live = live;
        // Writes that were not durable are there or not: for good, when a resync has ended.
        let legal = |cell: &Held| &cell.others | &cell.undecided;
        self.decide(legal, |legal| if legal.len() > 1 { legal } else { BTreeSet::new() });
    }

    /// Lets as many members fail as the array can do without: the bytes of the others are needed.
    fn need_few(&mut self) {
        self.mend();
        wait(&self.rig, &self.live);
        let status = self.live.arrays[0].status();
        let mut slots: Vec<Slot> = status.usable.iter().collect();
        while !slots.is_empty() {
            let slot = slots.swap_remove(self.rng.below(slots.len() as u64) as usize);
            if self.can_lose(slot) {
                super::spares::fail(&self.rig, &self.live, slot.0);
            }
        }
        self.check();
    }
}

fn run_seed(seed: u64) -> Counts {
    let mut run = Run::new(seed);
    for _ in 0..ROUNDS {
        for _ in 0..run.rng.between(1, 8) {
            run.change();
            if run.rng.chance(1, 2) {
                run.mend();
                wait(&run.rig, &run.live);
            }
        }
        run.mend();
        run.check();
        let is_replaced =
            |state: &&MemberState| matches!(state, MemberState::Faulty { operation: Operation::Replaced, .. });
        run.counts.replaced += run.states().iter().filter(is_replaced).count() as u64;
        run.cut_power();
        run.check();
    }
    run.need_few();
    run.rig.power_off();
    run.counts
}

#[test]
fn members_come_and_go_in_any_order_and_every_sector_stays() {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (first, count) = (number("URAID_SIM_FIRST", 0), number("URAID_SIM_SEEDS", SEEDS));
    let (mut sum, mut failed) = (Counts::default(), Vec::new());
    for seed in first..first + count {
        let Ok(counts) = std::panic::catch_unwind(|| run_seed(seed)) else {
            println!("seed {seed} failed");
            failed.push(seed);
            continue;
        };
        sum.joined += counts.joined;
        sum.replaced += counts.replaced;
        sum.returned += counts.returned;
        sum.continued += counts.continued;
        sum.cut_writes += counts.cut_writes;
        sum.faults += counts.faults;
    }
    println!("{count} seeds: {sum:?}");
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
    let all = [sum.joined, sum.replaced, sum.returned, sum.continued * 40, sum.cut_writes, sum.faults];
    assert!(all.iter().all(|of_kind| *of_kind > count / 4), "{sum:?}");
}
