//! An array on simulated members, from power on to power off.
//! Owns: [`Rig`]: assembly, start, requests up to an end, stop, crash, and the checks that belong to each; its clients and
//! counts. Not here: the choices of a seed (`scenario`). Called by `scenario` and `proof`.
//! Invariant: the oracle is told of a start, a stop or a crash when it happens to the members.

pub mod client;
mod live;
mod pass_watch;
pub mod tally;

use crate::image::areas::PPL_AT;
use crate::image::{logs, ppl};
use crate::judge::bits_check::BitsCheck;
use crate::judge::guard::{Guard, raw_facts};
use crate::judge::legal_errors::LegalErrors;
use crate::judge::resynced::Resynced;
use crate::judge::{AssembleMode, Assembled, Judge};
use crate::machine::event::Event;
use crate::machine::executor::{Ended, Executor};
use crate::machine::fault_kind::FaultKind;
use crate::machine::member::medium::CrashMode;
use crate::machine::member::{Disk, SimMember};
use crate::machine::world::{Machine, PoolSize, SimWorld, WallClock};
use crate::random::rng::Rng;
use crate::reference::model::Model;
use crate::reference::oracle::{Oracle, Value};
use crate::rig::client::Session;
use crate::rig::pass_watch::PassWatch;
use crate::rig::tally::Tally;
use crate::setup::Setup;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::Notify;
use uraid_block::{Device, SECTOR_BYTES};
use uraid_engine::verdict::OnFull;
use uraid_engine::{Array, Config, PassKind, StartPlan};

pub use live::Live;

/// Polls and events after which a piece of work counts as an endless loop.
pub const STEPS_MAX: u64 = 2_000_000;
/// The virtual time within which each piece of work must end.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Everything except the engine.
pub struct Rig {
    /// Tasks and time.
    pub executor: Executor,
    /// The random choices.
    pub rng: Rng,
    /// The array and its members, as drawn.
    pub setup: Rc<Setup>,
    /// The members and their legal contents.
    pub judge: Rc<Judge>,
    /// The watch over every access.
    pub guard: Rc<Guard>,
    /// Counts.
    pub tally: Rc<RefCell<Tally>>,
    /// Whether the array was stopped cleanly with every member in sync.
    pub is_healthy: bool,
    /// An earlier image of a member: slot, bytes, events.
    pub old_image: Option<(u16, Vec<u8>, u64)>,
    op_next: Rc<Cell<u64>>,
    members_before: BTreeSet<u16>,
}

impl Rig {
    /// New members for this setup.
    pub fn new(executor: Executor, mut rng: Rng, setup: Rc<Setup>, tally: Rc<RefCell<Tally>>) -> Rig {
        let model = Rc::new(Model::new(setup.shape.clone()));
        let initial = if setup.starts_dirty { Value::Any } else { Value::Zero };
        let oracle = Rc::new(RefCell::new(Oracle::new(setup.array, model.array_size(), initial)));
        let disks = setup.make_disks(&executor, &mut rng);
        let guard = Rc::new(Guard::new(model.clone(), setup.data_offsets.clone()));
        for disk in &disks {
            disk.set_watch(Some(guard.clone()));
        }
        if setup.bits.is_some() {
            guard.check_bits(BitsCheck::new(model.clone(), &disks));
        }
        if setup.has_write_behind() {
            guard.allow_behind();
        }
        if setup.has_logs {
            guard.allow_logs(&disks);
        }
        if setup.has_ppl {
            guard.allow_ppl(PPL_AT..PPL_AT + ppl::sectors(setup.shape.chunk));
        }
        if !setup.is_redundant() {
            // A client with two flushes in flight may receive the error from only one of them.
            let oracle = oracle.clone();
            guard.on_failure(move || oracle.borrow_mut().lose_unflushed());
        }
        let suspect = if setup.starts_dirty { (0..model.rows.len()).collect() } else { BTreeSet::new() };
        let judge = Rc::new(Judge {
            setup: setup.clone(),
            model,
            oracle,
            disks,
            lost: RefCell::default(),
            recovering: RefCell::default(),
            suspect: RefCell::new(suspect),
            in_flight: RefCell::default(),
            missing_before: RefCell::default(),
            may_be_split: Cell::new(false),
            is_over_budget: Cell::new(false),
            unreadable: RefCell::default(),
            torn: RefCell::default(),
            must_stay_out: RefCell::default(),
            resynced: Cell::default(),
            knows_unsynced: Cell::default(),
        });
        guard.check_claims(&judge);
        let corrupting = judge.clone();
        guard.on_corruption(move |slot, at, length| corrupting.mark_corrupted(slot, at, length));
        let members_before = (0..setup.shape.slots).collect();
        let (op_next, old_image) = (Rc::new(Cell::new(1)), None);
        Rig { executor, rng, setup, judge, guard, tally, is_healthy: false, old_image, op_next, members_before }
    }

    /// A separate rig whose members hold these images, as if power had failed now. It has its own time.
    pub fn branch(&self, images: Vec<Option<Vec<u8>>>, rng: Rng) -> Result<Rig, String> {
        let mut rng = rng;
        let executor = Executor::new(rng.fork(), false);
        let branch = Rig::new(executor, rng, self.setup.clone(), self.tally.clone());
        let mut oracle = self.judge.oracle.borrow().clone();
        if self.judge.model.is_parity() {
            let rows = oracle.uncertain().into_iter().map(|x| self.judge.model.row_of[x as usize]);
            branch.judge.in_flight.borrow_mut().extend(self.judge.in_flight.borrow().iter().copied());
            branch.judge.in_flight.borrow_mut().extend(oracle.uncertain());
            *branch.judge.suspect.borrow_mut() = self.judge.suspect.borrow().iter().copied().chain(rows).collect();
        }
        oracle.crash();
        *branch.judge.oracle.borrow_mut() = oracle;
        *branch.judge.lost.borrow_mut() = self.judge.missing(&BTreeSet::new());
        branch.judge.unreadable.borrow_mut().clone_from(&self.judge.unreadable.borrow());
        for (disk, image) in branch.judge.disks.iter().zip(images) {
            disk.replace(image.expect("every disk has an image"));
        }
        branch.reset_events()?;
        Ok(Rig { op_next: self.op_next.clone(), members_before: self.members_before.clone(), ..branch })
    }

    /// The member of a slot.
    pub fn disk(&self, slot: u16) -> &Rc<Disk> {
        &self.judge.disks[usize::from(slot)]
    }

    pub(crate) fn images_without(&self, away: &BTreeSet<u16>) -> Vec<Option<Vec<u8>>> {
        let image = |(slot, disk): (usize, &Rc<Disk>)| {
            (!away.contains(&(slot as u16))).then(|| disk.medium().current().to_vec())
        };
        self.judge.disks.iter().enumerate().map(image).collect()
    }

    /// Opens the members read-only, reads everything several times, and checks that no byte changes (M8, I3).
    pub fn check_read_only(&mut self) -> Result<(), String> {
        let images = self.images_without(&BTreeSet::new());
        let Assembled::Plan(plan) = self.judge.assemble(&images, AssembleMode::ReadOnly)? else { return Ok(()) };
        self.executor.record(Event::Note { what: "a look", value: u64::from(plan.is_dirty) });
        self.prepare_oracle(&plan, &BTreeSet::new());
        self.guard.set_read_only(true);
        let live = self.boot(&plan, &Config { read_only: true, ..Config::default() })?;
        if plan.must_write_to_read() {
            // The start is refused.
            self.wait_for(&live, live.start)?;
        } else {
            self.read_all(&live)?;
        }
        self.stop(&live)?;
        self.empty(&live)?;
        self.guard.set_read_only(false);
        let is_changed = self.images_without(&BTreeSet::new()) != images;
        if is_changed { Err("M8: bytes changed under a look".to_string()) } else { Ok(()) }
    }

    /// Runs the real assembly on the members, and forces it if it is refused as dirty and degraded.
    pub fn assemble(&mut self, away: &BTreeSet<u16>) -> Result<Option<StartPlan>, String> {
        let images = self.images_without(away);
        self.judge.lost.borrow_mut().extend(away);
        self.judge.starts_without(away);
        let plan = match self.judge.assemble(&images, AssembleMode::Plain)? {
            Assembled::Plan(plan) => plan,
            Assembled::Impossible => return Ok(None),
            Assembled::DirtyDegraded => {
                self.tally.borrow_mut().refusals += 1;
                self.executor.record(Event::Note { what: "dirty and degraded: forced", value: 0 });
                match self.judge.assemble(&images, AssembleMode::Forced)? {
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

    /// Tells the oracle what a dirty start may change, and what it does not guarantee.
    pub fn prepare_oracle(&mut self, plan: &StartPlan, victims: &BTreeSet<u16>) {
        let here = Judge::in_slots(plan);
        let missing: BTreeSet<u16> = (0..self.setup.shape.slots).filter(|slot| !here.contains(slot)).collect();
        self.judge.missing_before.borrow_mut().push(missing.clone());
        let mut oracle = self.judge.oracle.borrow_mut();
        let mut tally = self.tally.borrow_mut();
        tally.degraded += u64::from(!missing.is_empty());
        if here != self.members_before {
            oracle.reopen();
        }
        self.members_before = here;
        let bits = plan.bitmap.as_ref().filter(|bitmap| !bitmap.is_out_of_date).map(|bitmap| &bitmap.image);
        let is_some = bits.is_some_and(|bits| bits.count() < bits.header().chunks());
        let knows = is_some && plan.is_dirty && plan.forced == Default::default() && self.judge.model.is_parity();
        self.judge.knows_unsynced.set(knows);
        if !plan.is_dirty {
            return;
        }
        tally.resyncs += 1;
        let model = &self.judge.model;
        let unsure: BTreeSet<u16> = missing.union(victims).copied().collect();
        // With a complete partial parity log, only what was being written is uncertain.
        let is_logged = plan.ppl.as_ref().is_some_and(|ppl| ppl.is_complete);
        for &row in self.judge.suspect.borrow().iter() {
            for (x, place, _) in &model.rows[row].data {
                let start = self.setup.data_offsets[usize::from(place.slot)];
                let member = self.disk(place.slot).medium();
                let is_listed = self.setup.has_logs && logs::is_listed(member.current(), start + place.sector);
                let may_differ = !is_logged || self.judge.in_flight.borrow().contains(x);
                if may_differ && !knows && (unsure.contains(&place.slot) || is_listed) {
                    oracle.give_up(*x);
                }
            }
        }
        if !victims.is_empty() {
            // The canonical copy may fail before the others agree with it.
            oracle.reopen();
            for x in oracle.undecided() {
                oracle.set_undecided(x, true);
            }
        }
    }

    /// Creates the array on every shard and starts it, without waiting.
    pub fn boot(&mut self, plan: &StartPlan, config: &Config) -> Result<Live, String> {
        let blocks = self.setup.spare_blocks + if self.setup.shape.slots <= 4 { 6 } else { 10 };
        let pool = PoolSize { small: 16 + 8 * self.setup.spare_blocks, large: blocks * self.setup.pool_factor };
        self.judge.disks.iter().for_each(Disk::change_process);
        let is_failed = config.on_full == OnFull::Fail && self.setup.is_redundant();
        self.judge.disks.iter().for_each(|disk| disk.set_failed_when_full(is_failed));
        let Setup { shards, mail_delay_max, .. } = *self.setup;
        let machine = Machine { shards, pool, mail_delay_max, wall_clock: WallClock::Jumps };
        let worlds = SimWorld::boot(&self.executor, machine);
        let mut arrays = Vec::new();
        for world in &worlds {
            let members = plan.members.iter().map(|member| SimMember(self.judge.disks[member.candidate].clone()));
            let array = Array::new(world.clone(), plan, members.collect(), config.clone());
            let inbox = array.clone();
            world.on_mail(move |mail| inbox.deliver(mail));
            arrays.push(array);
        }
        let size = arrays[0].layout().array_size().0;
        let offered = arrays[0].geometry().size.0;
        if offered != size {
            return Err(format!("C14: the array offers {offered} sectors and has {size}"));
        }
        if size != self.judge.model.array_size() {
            return Err(format!("the array has {size} sectors, the model {}", self.judge.model.array_size()));
        }
        let recovering = self.judge.to_recover(plan);
        let has_pass = plan.is_dirty || !recovering.is_empty();
        self.guard.set_pass_running(has_pass);
        self.tally.borrow_mut().recoveries += recovering.len() as u64;
        self.judge.resynced.set(Resynced::Whole);
        let started = Rc::new(Cell::new(None));
        let (array, result, executor) = (arrays[0].clone(), started.clone(), self.executor.clone());
        let session = self.session(arrays[0].clone());
        let stopping = session.clone();
        let (guard, passes) = (self.guard.clone(), has_pass && !config.read_only);
        let is_refused = config.read_only && !config.force && plan.must_write_to_read();
        let (tally, judge) = (self.tally.clone(), self.judge.clone());
        let watch = PassWatch {
            executor: executor.clone(),
            judge: self.judge.clone(),
            guard: guard.clone(),
            array: array.clone(),
            recovering,
            unreadable: plan.is_dirty.then(|| self.judge.unreadable_places(array.view().readable())),
        };
        let start = self.executor.spawn(0, "start", async move {
            let outcome = array.start().await;
            executor.record(Event::Note { what: "started", value: u64::from(outcome.is_ok()) });
            if let Err(error) = &outcome
                && !stopping.legal_errors.may_freeze()
                && !stopping.is_stopping.get()
                && !is_refused
            {
                executor.violate(format!("start failed in vain: {error:?}"));
            }
            if outcome.is_ok() && is_refused {
                executor.violate("opened read-only, although its logs must be made good first".to_string());
            }
            result.set(Some(outcome.is_ok()));
            if outcome.is_ok() && passes {
                tally.borrow_mut().recovered += watch.run().await;
            }
            // Rows that the resync could not make consistent stay so: a write to one writes what it had to compute, too.
            guard.set_pass_running(judge.resynced.get() != Resynced::Whole);
        });
        Ok(Live { worlds, arrays, session, started, start })
    }

    fn session(&self, array: Rc<Array<SimWorld>>) -> Rc<Session> {
        let (judge, executor, tally) = (self.judge.clone(), self.executor.clone(), self.tally.clone());
        let cut_power = Rc::new(move || {
            let images = executor.random(|rng| judge.images(rng));
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
            legal_errors: LegalErrors::new(self.judge.clone(), self.guard.clone(), array),
            cut_power,
            cut_one_in: self.setup.image_one_in,
            running: RefCell::default(),
            ended: Notify::new(),
            is_stopping: Cell::new(false),
            tally: self.tally.clone(),
        })
    }

    /// Turns the end of the executor's run into a verdict.
    pub fn judge_end(&self, ended: Ended, live: &Live, will_crash: bool) -> Result<(), String> {
        let running = live.session.describe_running();
        match ended {
            Ended::Done => Ok(()),
            Ended::Steps if will_crash => Ok(()),
            Ended::Steps => Err(format!("L1: no end after {STEPS_MAX} steps; running: {running}")),
            Ended::Time => Err(format!("L1: no end after {TIMEOUT:?}; running: {running}")),
            Ended::Stuck => Err(format!("L1: nothing left to happen; running: {running}")),
            Ended::Violation => Err(self.executor.violation().unwrap_or_default()),
        }
    }

    /// Reads every sector through every shard.
    pub fn read_all(&mut self, live: &Live) -> Result<(), String> {
        let size = self.judge.model.array_size();
        for shard in 0..live.worlds.len() as u16 {
            let mut client = live.client(shard, self.rng.fork());
            // A slow member answers after 40 ms: 1,500 reads take a minute.
            let step = self.rng.between(1, 24).max(size.div_ceil(500));
            let reader = self.executor.spawn(shard, "reader", async move {
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

    /// Runs until a task has ended.
    pub fn wait_for(&self, live: &Live, task: u64) -> Result<(), String> {
        let executor = self.executor.clone();
        let end = self.executor.now() + TIMEOUT;
        let ended = self.executor.run(STEPS_MAX, end, || !executor.is_running(task));
        self.judge_end(ended, live, false)
    }

    /// Stops the array. Returns whether it is clean.
    pub fn stop(&mut self, live: &Live) -> Result<bool, String> {
        let (stopper, clean) = self.begin_stop(live, Duration::ZERO);
        self.wait_for(live, stopper)?;
        Ok(clean.get())
    }

    /// Begins to stop the array after `wait`. Returns the task, and a cell that will say whether the array is clean.
    pub fn begin_stop(&mut self, live: &Live, wait: Duration) -> (u64, Rc<Cell<bool>>) {
        let (array, executor) = (live.arrays[0].clone(), self.executor.clone());
        let clean = Rc::new(Cell::new(false));
        let result = clean.clone();
        let (session, guard) = (live.session.clone(), self.guard.clone());
        let (started, waits_for_start) = (live.started.clone(), !self.setup.stops_while_starting);
        let stopper = self.executor.spawn(0, "stop", async move {
            executor.sleep(wait).await;
            while waits_for_start && started.get().is_none() {
                executor.sleep(Duration::from_micros(100)).await;
            }
            let interrupts_start = started.get().is_none();
            session.is_stopping.set(true);
            executor.record(Event::Note { what: "stopping", value: 0 });
            let outcome = array.stop().await;
            executor.record(Event::Note { what: "stopped", value: u64::from(outcome.is_ok()) });
            if let Err(error) = &outcome
                && !session.legal_errors.may_stay_dirty()
                && !interrupts_start
            {
                executor.violate(format!("stop failed in vain: {error:?}"));
            }
            // A stopped array must not write to its members.
            guard.set_read_only(true);
            result.set(outcome.is_ok());
        });
        (stopper, clean)
    }

    /// Checks after a clean stop: no task, no leased buffer, all data on the members, all redundancy right.
    pub fn close(&mut self, live: &Live) -> Result<(), String> {
        self.empty(live)?;
        let status = live.arrays[0].status();
        let usable = status.usable.iter().map(|slot| slot.0).collect();
        let in_resync = status.pass.is_some_and(|progress| progress.kind == PassKind::Resync);
        let was_read_only = live.session.legal_errors.may_be_read_only();
        if in_resync { self.check_stopped_in_resync() } else { self.check_clean(usable, was_read_only) }
    }

    /// Checks after any stop: no task remains, and no block is leased.
    fn empty(&mut self, live: &Live) -> Result<(), String> {
        let executor = self.executor.clone();
        let end = self.executor.now() + Duration::from_secs(20);
        // A device may still work on operations from before its member was failed, and hold their buffers.
        let disks = self.judge.disks.clone();
        let is_quiet = || disks.iter().all(|disk| disk.in_flight() == 0);
        let ended = self.executor.run(STEPS_MAX, end, || executor.tasks() == 0 && is_quiet());
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
        Ok(())
    }

    fn check_clean(&mut self, usable: BTreeSet<u16>, was_read_only: bool) -> Result<(), String> {
        self.tally.borrow_mut().stops += 1;
        self.executor.record(Event::Note { what: "clean stop", value: 0 });
        self.judge.disks.iter().for_each(|disk| disk.stop_lying());
        let images: Vec<Option<Vec<u8>>> =
            self.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
        {
            match self.judge.assemble(&images, AssembleMode::Plain)? {
                Assembled::Plan(plan) if plan.is_dirty => return Err("dirty after a clean stop".to_string()),
                Assembled::Plan(plan) => {
                    let here = Judge::in_slots(&plan);
                    // A member that shrank before any request needed its lost sectors still works; the next start may
                    // leave it out.
                    let is_told = |slot: &u16| !self.disk(*slot).is_shrunk();
                    let (worked, are_in): (BTreeSet<u16>, BTreeSet<u16>) =
                        (usable.into_iter().filter(is_told).collect(), here.iter().copied().filter(is_told).collect());
                    // A read-only array records no failure: nothing was written without the member.
                    let is_unrecorded = was_read_only && worked.is_subset(&are_in);
                    if worked != are_in && self.setup.is_redundant() && !is_unrecorded {
                        return Err(format!("M6: members {worked:?} worked, the superblocks say {are_in:?}"));
                    }
                    self.judge.check_stays_dirty(&plan)?;
                    self.judge.check_rest(&images, &plan)?;
                    if here.len() == usize::from(self.setup.shape.slots) {
                        self.is_healthy = true;
                    }
                }
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

    /// After a stop in the middle of a resync: the superblocks say from where on copies and parity may be wrong.
    fn check_stopped_in_resync(&mut self) -> Result<(), String> {
        self.tally.borrow_mut().stops += 1;
        self.executor.record(Event::Note { what: "stopped in the resync", value: 0 });
        self.judge.disks.iter().for_each(|disk| disk.stop_lying());
        let images: Vec<Option<Vec<u8>>> =
            self.judge.disks.iter().map(|disk| Some(disk.medium().durable().to_vec())).collect();
        self.judge.oracle.borrow_mut().settle();
        self.judge.check_power_cut(&images)?;
        if let Assembled::Plan(plan) = self.judge.assemble(&images, AssembleMode::Plain)? {
            self.judge.check_redundancy_below(&images, &plan)?;
        }
        self.judge.oracle.borrow_mut().crash();
        self.guard.reset();
        let mode = *self.rng.pick(&CrashMode::ALL);
        for disk in &self.judge.disks {
            disk.power_cycle(mode, &mut self.rng);
        }
        self.reset_events()
    }

    /// Power fails.
    pub fn crash(&mut self, live: Live) -> Result<(), String> {
        self.executor.cut();
        drop(live);
        let rows = &self.judge.model.row_of;
        if self.judge.model.is_parity() {
            let uncertain = self.judge.oracle.borrow().uncertain();
            self.judge.in_flight.borrow_mut().extend(&uncertain);
            self.judge.suspect.borrow_mut().extend(uncertain.into_iter().map(|x| rows[x as usize]));
        }
        let images = self.judge.images(&mut self.rng);
        self.note_damage(&images);
        self.tally.borrow_mut().crashes += 1;
        self.judge.check_power_cut(&images).map_err(|found| format!("crash: {found}"))?;
        for x in self.judge.not_durable_on_liars() {
            self.judge.oracle.borrow_mut().mark_corrupted(x);
        }
        self.judge.oracle.borrow_mut().crash();
        self.guard.reset();
        for (disk, image) in self.judge.disks.iter().zip(images) {
            disk.power_cycle(CrashMode::None, &mut self.rng);
            disk.replace(image.expect("every disk has an image"));
        }
        self.reset_events()
    }

    /// Records what a power cut did to superblocks that were being written, and to members that lied about flushes.
    fn note_damage(&self, images: &[Option<Vec<u8>>]) {
        let torn = self.judge.torn.borrow().clone();
        self.tally.borrow_mut().count_fault(FaultKind::TornSuper, torn.len() as u64);
        self.judge.lost.borrow_mut().extend(torn.iter().copied());
        self.judge.unreadable.borrow_mut().extend(torn);
        for (disk, image) in self.judge.disks.iter().zip(images).filter(|(disk, _)| disk.is_liar()) {
            let is_changed = image.as_deref() != Some(disk.medium().current());
            self.tally.borrow_mut().count_fault(FaultKind::LyingFlush, u64::from(is_changed));
        }
    }

    /// Sets each member's event count to what the power cut left.
    pub(crate) fn reset_events(&self) -> Result<(), String> {
        for (slot, disk) in self.judge.disks.iter().enumerate() {
            if self.judge.unreadable.borrow().contains(&(slot as u16)) {
                continue;
            }
            let bytes = disk.medium().current()[8 * SECTOR_BYTES..16 * SECTOR_BYTES].to_vec();
            let facts = raw_facts(&bytes).map_err(|found| format!("M1: superblock of disk {slot}: {found}"))?;
            self.guard.reset_events(slot as u16, facts.events);
        }
        Ok(())
    }

    /// Breaks the reference cycles.
    pub fn power_off(&self) {
        self.executor.cut();
        for disk in &self.judge.disks {
            disk.set_watch(None);
        }
    }
}
