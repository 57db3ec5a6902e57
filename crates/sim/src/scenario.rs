//! One seed from its first choice to its verdict: rounds of work, faults, crashes and stops.
//! Owns: [`run_seed`], the rounds, what is planned to go wrong. Not here: single requests (`client`), judging (`judge`).
//! Invariant: no more members are hurt than the level survives, unless the last round is meant to go beyond.

use crate::client::{Client, Session, Tally};
use crate::disk::CrashMode;
use crate::executor::{Ended, Executor};
use crate::judge::{Assembled, Judge};
use crate::member::{Effect, Fault, Lie, SimMember, Victim};
use crate::model::Model;
use crate::oracle::{Oracle, Value};
use crate::rng::Rng;
use crate::setup::Setup;
use crate::trace::Event;
use crate::watch::{Guard, raw_facts};
use crate::world::{PoolSize, SimWorld};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::Notify;
use uraid_block::{ErrorKind, SECTOR_BYTES, Slot};
use uraid_engine::{Array, Config, StartPlan};

/// Polls and events that a round may take before it counts as a loop without end.
const STEPS_MAX: u64 = 2_000_000;
/// Virtual time that everything must be done in.
const PATIENCE: Duration = Duration::from_secs(120);

/// How to run a seed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Print events as they come.
    pub is_verbose: bool,
    /// A lie that one member tells, to see whether it is found.
    pub lie: Option<Lie>,
}

/// What came out of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The trace hash.
    pub hash: u64,
    /// Events in the trace.
    pub events: u64,
    /// Polls and firings.
    pub steps: u64,
    /// Virtual time that passed, in nanoseconds.
    pub time: u64,
    /// Level and layout.
    pub kind: String,
    /// Counts.
    pub tally: Tally,
    /// Sectors that were compared.
    pub sectors: u64,
    /// What was found, if anything, with the last events.
    pub failure: Option<String>,
}

struct Run {
    executor: Executor,
    rng: Rng,
    setup: Rc<Setup>,
    judge: Rc<Judge>,
    guard: Rc<Guard>,
    tally: Rc<RefCell<Tally>>,
    op_next: Rc<Cell<u64>>,
    may_fail: Rc<dyn Fn() -> bool>,
    members_before: BTreeSet<u16>,
}

/// The array while it runs.
struct Live {
    worlds: Vec<SimWorld>,
    arrays: Vec<Rc<Array<SimWorld>>>,
    session: Rc<Session>,
    started: Rc<Cell<Option<bool>>>,
}

/// Runs a seed. A panic of the engine is a finding like any other.
pub fn run_seed(seed: u64, options: Options) -> Outcome {
    let mut rng = Rng::new(seed);
    let setup = Rc::new(Setup::draw(&mut rng));
    let executor = Executor::new(rng.fork(), options.is_verbose);
    let (inside, plan) = (executor.clone(), setup.clone());
    let tally = Rc::new(RefCell::new(Tally::default()));
    let counts = tally.clone();
    let sectors = Rc::new(Cell::new(0));
    let compared = sectors.clone();
    let result = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let mut run = Run::new(inside, rng, plan, counts, options);
        let result = run.all_rounds();
        compared.set(run.judge.oracle.borrow().sectors_checked());
        run.power_off();
        result
    }));
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    let (hash, events) = executor.trace_hash();
    let failure = result.err().map(|found| {
        let running = executor.waiting();
        format!("{found}\n{setup:?}\nlast events:\n{}waiting: {running}", executor.trace_tail())
    });
    // After a panic tasks are left; dropping them in the middle of something would panic again.
    executor.cut();
    let tally = *tally.borrow();
    Outcome {
        seed,
        hash,
        events,
        steps: executor.steps(),
        time: executor.now().0,
        kind: setup.kind(),
        tally,
        sectors: sectors.get(),
        failure,
    }
}

impl Run {
    fn new(executor: Executor, mut rng: Rng, setup: Rc<Setup>, tally: Rc<RefCell<Tally>>, options: Options) -> Run {
        let model = Rc::new(Model::new(setup.shape.clone()));
        let initial = if setup.starts_dirty { Value::Any } else { Value::Zero };
        let oracle = Rc::new(RefCell::new(Oracle::new(setup.array, model.array_size(), initial)));
        let disks = setup.make_disks(&executor, &mut rng);
        let guard = Rc::new(Guard::new(model.clone(), setup.data_offsets.clone()));
        for disk in &disks {
            disk.set_watch(Some(guard.clone()));
        }
        if !setup.is_redundant() {
            // A client that has another flush in flight may hear of the loss by one of the two only.
            let oracle = oracle.clone();
            guard.on_failure(move || oracle.borrow_mut().lose_unflushed());
        }
        if let Some(lie) = options.lie {
            rng.pick(&disks).set_lie(Some(lie));
        }
        let suspect = if setup.starts_dirty { (0..model.rows.len()).collect() } else { BTreeSet::new() };
        let judge = Rc::new(Judge {
            setup: setup.clone(),
            model,
            oracle,
            disks,
            lost: RefCell::default(),
            suspect: RefCell::new(suspect),
            is_over_budget: Cell::new(false),
        });
        let (inside, is_redundant) = (judge.clone(), setup.is_redundant());
        let may_fail: Rc<dyn Fn() -> bool> = Rc::new(move || {
            let fired = inside.disks.iter().any(|disk| disk.faults_fired() > 0);
            fired && (!is_redundant || inside.is_over_budget.get())
        });
        let members_before = (0..setup.shape.slots).collect();
        Run { executor, rng, setup, judge, guard, tally, op_next: Rc::new(Cell::new(1)), may_fail, members_before }
    }

    fn all_rounds(&mut self) -> Result<(), String> {
        for round in 0..self.setup.rounds {
            self.executor.record(Event::Note { what: "round", value: round });
            if !self.round(false)? {
                return Ok(());
            }
        }
        self.executor.record(Event::Note { what: "last round", value: 0 });
        if self.setup.goes_over_budget {
            self.judge.is_over_budget.set(true);
            self.round(false)?;
            return Ok(());
        }
        self.round(true).map(|_| ())
    }

    /// One life of the array. False when it cannot start again. A calm round has no faults and ends well.
    fn round(&mut self, is_calm: bool) -> Result<bool, String> {
        self.executor.draw_order(self.setup.shards);
        let away = if is_calm { BTreeSet::new() } else { self.draw_away() };
        let Some(plan) = self.assemble(&away)? else { return Ok(false) };
        let victims = if is_calm { BTreeSet::new() } else { self.draw_victims() };
        self.prepare_oracle(&plan, &victims);
        let live = self.boot(&plan)?;
        for &slot in &victims {
            self.plan_faults(slot);
        }
        let will_crash = !is_calm && self.setup.has_crashes && self.rng.chance(3, 4);
        let ended = self.work(&live, &victims, will_crash, is_calm)?;
        let clean = if ended { self.stop(&live)? } else { false };
        if !clean {
            self.crash(live)?;
        } else {
            self.close(&live)?;
        }
        let hurt = victims.iter().copied().filter(|&slot| self.disk(slot).faults_fired() > 0);
        let hurt: Vec<u16> = hurt.collect();
        self.tally.borrow_mut().faults += hurt.iter().map(|&slot| self.disk(slot).faults_fired()).sum::<u64>();
        if self.setup.is_redundant() {
            self.judge.lost.borrow_mut().extend(hurt);
        }
        for disk in &self.judge.disks {
            disk.reset_faults();
        }
        Ok(true)
    }

    fn disk(&self, slot: u16) -> &Rc<crate::member::Disk> {
        &self.judge.disks[usize::from(slot)]
    }

    /// Some members that are not there this time, as many as may be.
    fn draw_away(&mut self) -> BTreeSet<u16> {
        let mut away = BTreeSet::new();
        if !self.setup.has_faults || !self.setup.is_redundant() || self.rng.chance(2, 3) {
            return away;
        }
        for _ in 0..self.rng.between(1, 2) {
            let slot = self.rng.below(u64::from(self.setup.shape.slots)) as u16;
            away.insert(slot);
            if !self.judge.model.can_serve_without(&self.judge.missing(&away)) {
                away.remove(&slot);
            }
        }
        away
    }

    /// Members that will be hurt this time, as many as may be; any number when the budget is off.
    fn draw_victims(&mut self) -> BTreeSet<u16> {
        let mut victims = BTreeSet::new();
        if !self.setup.has_faults && !self.judge.is_over_budget.get() {
            return victims;
        }
        for _ in 0..self.rng.between(0, 3) {
            let slot = self.rng.below(u64::from(self.setup.shape.slots)) as u16;
            victims.insert(slot);
            let is_within = self.judge.model.can_serve_without(&self.judge.missing(&victims));
            if self.setup.is_redundant() && !is_within && !self.judge.is_over_budget.get() {
                victims.remove(&slot);
            }
        }
        victims
    }

    fn plan_faults(&mut self, slot: u16) {
        let disk = self.disk(slot).clone();
        for _ in 0..self.rng.between(1, 2) {
            let victim = *self.rng.pick(&[
                Victim::Reads,
                Victim::Writes,
                Victim::Writes,
                Victim::SuperWrites,
                Victim::Flushes,
                Victim::Any,
            ]);
            let kind = *self.rng.pick(&[ErrorKind::Media, ErrorKind::Media, ErrorKind::Gone, ErrorKind::ReadOnly]);
            let kind = if self.judge.is_over_budget.get() && self.rng.chance(1, 4) { ErrorKind::NoSpace } else { kind };
            let effect = match self.rng.below(6) {
                0 | 1 => Effect::Error(kind),
                2 => Effect::ErrorAfter(kind),
                3 => Effect::ErrorsFromNow(kind),
                4 => Effect::Vanish,
                _ => Effect::Hang(Duration::from_millis(self.rng.between(1, 5000))),
            };
            let after = self.rng.below(30);
            disk.add_fault(Fault { victim, after, effect });
        }
        if self.rng.chance(1, 3) {
            let (start, size) = (self.setup.data_offsets[usize::from(slot)], self.setup.data_sizes[usize::from(slot)]);
            let sectors: Vec<u64> = (0..self.rng.between(1, 3)).map(|_| start + self.rng.below(size)).collect();
            disk.add_latent(sectors);
        }
    }

    /// The real assembly on what the disks hold, forced where only that helps.
    fn assemble(&mut self, away: &BTreeSet<u16>) -> Result<Option<StartPlan>, String> {
        let images: Vec<Option<Vec<u8>>> = (self.judge.disks.iter().enumerate())
            .map(|(slot, disk)| (!away.contains(&(slot as u16))).then(|| disk.medium().current().to_vec()))
            .collect();
        self.judge.lost.borrow_mut().extend(away);
        let plan = match self.judge.assemble(&images, false)? {
            Assembled::Plan(plan) => plan,
            Assembled::Impossible => return Ok(None),
            Assembled::DirtyDegraded => {
                self.tally.borrow_mut().refusals += 1;
                self.executor.record(Event::Note { what: "dirty and degraded: forced", value: 0 });
                match self.judge.assemble(&images, true)? {
                    Assembled::Plan(plan) => plan,
                    Assembled::Impossible => return Ok(None),
                    Assembled::DirtyDegraded => {
                        return Err("dirty and degraded, and force does not help".to_string());
                    }
                }
            }
        };
        Ok(Some(*plan))
    }

    /// Tells the oracle what a dirty start may change, and what it does not promise.
    fn prepare_oracle(&mut self, plan: &StartPlan, victims: &BTreeSet<u16>) {
        let here: BTreeSet<u16> = plan.members.iter().map(|member| member.candidate as u16).collect();
        let missing: BTreeSet<u16> = (0..self.setup.shape.slots).filter(|slot| !here.contains(slot)).collect();
        let mut oracle = self.judge.oracle.borrow_mut();
        let mut tally = self.tally.borrow_mut();
        tally.degraded += u64::from(!missing.is_empty());
        if here != self.members_before {
            oracle.reopen();
        }
        self.members_before = here;
        if !plan.is_dirty {
            return;
        }
        tally.resyncs += 1;
        let model = &self.judge.model;
        let unsure: BTreeSet<u16> = missing.union(victims).copied().collect();
        for &row in self.judge.suspect.borrow().iter() {
            for (x, place, _) in &model.rows[row].data {
                if unsure.contains(&place.slot) {
                    oracle.give_up(*x);
                }
            }
        }
        if !victims.is_empty() {
            for x in oracle.undecided() {
                oracle.set_loose(x, true);
            }
        }
    }

    fn boot(&mut self, plan: &StartPlan) -> Result<Live, String> {
        let blocks = u32::from(self.setup.shape.slots) + 2 + self.setup.spare_blocks;
        let pool = PoolSize { small: 16 + 8 * self.setup.spare_blocks, large: blocks };
        let worlds = SimWorld::boot(&self.executor, self.setup.shards, pool, self.setup.mail_delay_max);
        let mut arrays = Vec::new();
        for world in &worlds {
            let members = plan.members.iter().map(|member| SimMember(self.judge.disks[member.candidate].clone()));
            let array = Array::new(world.clone(), plan, members.collect(), Config::default());
            let inbox = array.clone();
            world.on_mail(move |mail| inbox.deliver(mail));
            arrays.push(array);
        }
        let size = arrays[0].layout().array_size().0;
        if size != self.judge.model.array_size() {
            return Err(format!("the array has {size} sectors, the model {}", self.judge.model.array_size()));
        }
        self.guard.set_pass_running(plan.is_dirty);
        let started = Rc::new(Cell::new(None));
        let (array, result, executor) = (arrays[0].clone(), started.clone(), self.executor.clone());
        let may_fail = self.may_fail.clone();
        let (guard, judge, is_dirty) = (self.guard.clone(), self.judge.clone(), plan.is_dirty);
        self.executor.spawn(0, "start", async move {
            let outcome = array.start(|_| {}).await;
            executor.record(Event::Note { what: "started", value: u64::from(outcome.is_ok()) });
            if let Err(error) = &outcome
                && !may_fail()
            {
                executor.violate(format!("start failed in vain: {error:?}"));
            }
            if outcome.is_ok() && is_dirty {
                judge.suspect.borrow_mut().clear();
                judge.oracle.borrow_mut().resynced();
            }
            guard.set_pass_running(false);
            result.set(Some(outcome.is_ok()));
        });
        let session = self.session();
        Ok(Live { worlds, arrays, session, started })
    }

    fn session(&self) -> Rc<Session> {
        let (judge, executor, tally) = (self.judge.clone(), self.executor.clone(), self.tally.clone());
        let one_in = self.setup.image_one_in;
        let after_answer = Rc::new(move || {
            if executor.luck(|rng| !rng.chance(1, one_in)) {
                return;
            }
            let images = executor.luck(|rng| judge.images(rng, None));
            tally.borrow_mut().images += 1;
            if let Err(found) = judge.check_power_cut(&images) {
                executor.violate(format!("M2: {found}"));
            }
        });
        Rc::new(Session {
            executor: self.executor.clone(),
            model: self.judge.model.clone(),
            oracle: self.judge.oracle.clone(),
            guard: self.guard.clone(),
            mix: self.setup.mix,
            op_next: self.op_next.clone(),
            may_fail: self.may_fail.clone(),
            after_answer,
            running: RefCell::default(),
            ended: Notify::new(),
            tally: self.tally.clone(),
        })
    }

    /// Lets clients work. True when they came to their end, false when power is to fail now.
    fn work(&mut self, live: &Live, victims: &BTreeSet<u16>, will_crash: bool, is_calm: bool) -> Result<bool, String> {
        let mut clients = Vec::new();
        for number in 0..self.setup.clients {
            let shard = (number % u64::from(self.setup.shards)) as usize;
            let client = Client {
                session: live.session.clone(),
                array: live.arrays[shard].clone(),
                world: live.worlds[shard].clone(),
                rng: self.rng.fork(),
            };
            clients.push(self.executor.spawn(shard as u16, "client", client.run(self.setup.requests)));
        }
        if let Some(&slot) = victims.first()
            && self.rng.chance(1, 8)
        {
            let (array, executor) = (live.arrays[0].clone(), self.executor.clone());
            let wait = Duration::from_micros(self.rng.below(5_000));
            self.executor.spawn(0, "operator", async move {
                executor.sleep(wait).await;
                let outcome = array.fail(Slot(slot)).await;
                executor.record(Event::Note { what: "failed by hand", value: u64::from(outcome.is_ok()) });
            });
            self.judge.lost.borrow_mut().insert(slot);
        }
        let end = self.executor.now() + PATIENCE;
        let steps = if will_crash { self.rng.between(1, 6_000) } else { STEPS_MAX };
        let executor = self.executor.clone();
        let ended = self.executor.run(steps, end, || {
            live.started.get().is_some() && clients.iter().all(|&client| !executor.is_running(client))
        });
        self.judge_end(ended, live, will_crash)?;
        if ended != Ended::Done || live.started.get() != Some(true) {
            return Ok(false);
        }
        if is_calm {
            self.read_all(live)?;
        }
        Ok(true)
    }

    fn judge_end(&self, ended: Ended, live: &Live, will_crash: bool) -> Result<(), String> {
        let running = live.session.describe_running();
        match ended {
            Ended::Done => Ok(()),
            Ended::Steps if will_crash => Ok(()),
            Ended::Steps => Err(format!("L1: no end after {STEPS_MAX} steps; running: {running}")),
            Ended::Time => Err(format!("L1: no end after {PATIENCE:?}; running: {running}")),
            Ended::Stuck => Err(format!("L1: nothing left to happen; running: {running}")),
            Ended::Violation => Err(self.executor.violation().unwrap_or_default()),
        }
    }

    /// Every sector through every shard.
    fn read_all(&mut self, live: &Live) -> Result<(), String> {
        let size = self.judge.model.array_size();
        for shard in 0..live.worlds.len() {
            let mut client = Client {
                session: live.session.clone(),
                array: live.arrays[shard].clone(),
                world: live.worlds[shard].clone(),
                rng: self.rng.fork(),
            };
            let step = self.rng.between(1, 24);
            let reader = self.executor.spawn(shard as u16, "reader", async move {
                for turn in 0..3 {
                    for at in (0..size).step_by(step as usize) {
                        client.read(at, (step + turn).min(size - at)).await;
                    }
                }
            });
            self.wait_for(live, reader)?;
        }
        Ok(())
    }

    fn wait_for(&self, live: &Live, task: u64) -> Result<(), String> {
        let executor = self.executor.clone();
        let end = self.executor.now() + PATIENCE;
        let ended = self.executor.run(STEPS_MAX, end, || !executor.is_running(task));
        self.judge_end(ended, live, false)
    }

    /// Stops the array. True when it is clean.
    fn stop(&mut self, live: &Live) -> Result<bool, String> {
        let (array, executor, may_fail) = (live.arrays[0].clone(), self.executor.clone(), self.may_fail.clone());
        let clean = Rc::new(Cell::new(false));
        let result = clean.clone();
        let stopper = self.executor.spawn(0, "stop", async move {
            let outcome = array.stop().await;
            executor.record(Event::Note { what: "stopped", value: u64::from(outcome.is_ok()) });
            if let Err(error) = &outcome
                && !may_fail()
            {
                executor.violate(format!("stop failed in vain: {error:?}"));
            }
            result.set(outcome.is_ok());
        });
        self.wait_for(live, stopper)?;
        Ok(clean.get())
    }

    /// After a clean stop: nothing is left running or leased, all is on the members, all redundancy is true.
    fn close(&mut self, live: &Live) -> Result<(), String> {
        let executor = self.executor.clone();
        let end = self.executor.now() + Duration::from_secs(20);
        let ended = self.executor.run(STEPS_MAX, end, || executor.tasks() == 0);
        if ended == Ended::Violation {
            return self.judge_end(ended, live, false);
        }
        if executor.tasks() > 0 {
            return Err(format!("L3: tasks left after the stop: {}", executor.waiting()));
        }
        for (shard, world) in live.worlds.iter().enumerate() {
            let blocks = world.blocks_in_use();
            if blocks != [0; 5] {
                return Err(format!("L3: blocks in use after the stop on shard {shard}: {blocks:?}"));
            }
        }
        self.power_off_worlds(live);
        self.tally.borrow_mut().stops += 1;
        self.executor.record(Event::Note { what: "clean stop", value: 0 });
        let images: Vec<Option<Vec<u8>>> =
            self.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
        if !self.judge.is_over_budget.get() && !(self.may_fail)() {
            match self.judge.assemble(&images, false)? {
                Assembled::Plan(plan) if plan.is_dirty => return Err("dirty after a clean stop".to_string()),
                Assembled::Plan(plan) => self.judge.check_rest(&images, &plan)?,
                Assembled::DirtyDegraded => return Err("dirty and degraded after a clean stop".to_string()),
                Assembled::Impossible => {}
            }
        }
        // Members that were lost may have more in their caches; the others have nothing.
        self.judge.oracle.borrow_mut().stop();
        self.guard.reset();
        let mode = *self.rng.pick(&CrashMode::ALL);
        for disk in &self.judge.disks {
            disk.power_cycle(mode, &mut self.rng);
        }
        self.reset_events()
    }

    fn power_off_worlds(&self, live: &Live) {
        if let Some(world) = live.worlds.first() {
            world.shut_down();
        }
    }

    /// Power fails.
    fn crash(&mut self, live: Live) -> Result<(), String> {
        self.executor.cut();
        self.power_off_worlds(&live);
        drop(live);
        let rows = &self.judge.model.row_of;
        if self.judge.model.is_parity() {
            let uncertain = self.judge.oracle.borrow().uncertain();
            self.judge.suspect.borrow_mut().extend(uncertain.into_iter().map(|x| rows[x as usize]));
        }
        let images = self.judge.images(&mut self.rng, None);
        self.tally.borrow_mut().crashes += 1;
        self.judge.check_power_cut(&images).map_err(|found| format!("crash: {found}"))?;
        self.judge.oracle.borrow_mut().crash();
        self.guard.reset();
        for (disk, image) in self.judge.disks.iter().zip(images) {
            disk.power_cycle(CrashMode::None, &mut self.rng);
            disk.replace(image.expect("every disk has an image"));
        }
        self.reset_events()
    }

    /// Each member's events are what power failure left.
    fn reset_events(&self) -> Result<(), String> {
        for (slot, disk) in self.judge.disks.iter().enumerate() {
            let bytes = disk.medium().current()[8 * SECTOR_BYTES..16 * SECTOR_BYTES].to_vec();
            let facts = raw_facts(&bytes).map_err(|found| format!("M1: superblock of disk {slot}: {found}"))?;
            self.guard.reset_events(slot as u16, facts.events);
        }
        Ok(())
    }

    /// Lets go of everything that holds everything else.
    fn power_off(&self) {
        self.executor.cut();
        for disk in &self.judge.disks {
            disk.set_watch(None);
        }
    }
}
