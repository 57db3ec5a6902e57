//! One seed from its first choice to its verdict: rounds of work, faults, crashes and stops.
//! Owns: [`run_seed`], the rounds, what is planned to go wrong. Not here: single requests (`client`), judging (`judge`).
//! Invariant: no more members are hurt than the level survives, unless the last round is meant to go beyond.

use crate::client::{Client, Tally};
use crate::executor::{Ended, Executor};
use crate::member::{Effect, Fault, Lie, Victim};
use crate::rig::{Live, PATIENCE, Rig, STEPS_MAX};
use crate::rng::Rng;
use crate::setup::{OverBudget, Setup};
use crate::tape::Tape;
use crate::trace::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{ErrorKind, Slot};
use uraid_engine::Config;

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
    /// The seed; 0 of a tape.
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
    /// What happened, to read; empty unless the choices were recorded.
    pub story: String,
}

/// Where the choices of a run come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A seed.
    Seed(u64),
    /// A tape.
    Tape(Tape),
}

/// Runs a seed. A panic of the engine is a finding like any other.
pub fn run_seed(seed: u64, options: Options) -> Outcome {
    let executor_of = |rng: Rng| Executor::new(rng, options.is_verbose);
    run(seed, Rng::new(seed), options, executor_of)
}

/// Runs a seed or a tape, and gives all choices that were made.
pub fn run_recorded(source: Source, options: Options) -> (Outcome, Tape) {
    let (seed, (rng, deck)) = match source {
        Source::Seed(seed) => (seed, Rng::recorded(seed)),
        Source::Tape(tape) => (0, Rng::replayed(tape)),
    };
    let executor_of = |rng: Rng| {
        let executor = Executor::new(rng, options.is_verbose);
        executor.keep_story();
        executor
    };
    let outcome = run(seed, rng, options, executor_of);
    let tape = deck.borrow().recorded();
    (outcome, tape)
}

fn run(seed: u64, mut rng: Rng, options: Options, executor_of: impl FnOnce(Rng) -> Executor) -> Outcome {
    let setup = Rc::new(Setup::draw(&mut rng));
    let executor = executor_of(rng.fork());
    let (inside, plan) = (executor.clone(), setup.clone());
    let tally = Rc::new(RefCell::new(Tally::default()));
    let counts = tally.clone();
    let sectors = Rc::new(Cell::new(0));
    let compared = sectors.clone();
    let result = std::panic::catch_unwind(AssertUnwindSafe(move || {
        let mut run = Rig::new(inside, rng, plan, counts);
        if let Some(lie) = options.lie {
            let slot = run.rng.below(u64::from(run.setup.shape.slots)) as u16;
            run.disk(slot).set_lie(Some(lie));
        }
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
    let story = executor.story();
    executor.leak();
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
        story,
    }
}

impl Rig {
    fn all_rounds(&mut self) -> Result<(), String> {
        let mut root = std::mem::replace(&mut self.rng, Rng::new(0));
        for round in 0..self.setup.rounds {
            // Each round has a lane of its own, and one that a tape says nothing of does not take place.
            self.rng = root.fork();
            if !self.rng.goes_on() {
                continue;
            }
            self.executor.record(Event::Note { what: "round", value: round });
            if !self.round(false)? {
                return Ok(());
            }
        }
        self.rng = root.fork();
        self.executor.record(Event::Note { what: "last round", value: 0 });
        if self.setup.over_budget != OverBudget::Never {
            self.judge.is_over_budget.set(true);
            if !self.round(false)? || self.setup.over_budget == OverBudget::ForGood {
                return Ok(());
            }
        }
        self.round(true).map(|_| ())
    }

    /// One life of the array. False when it cannot start again. A calm round has no faults and ends well.
    fn round(&mut self, is_calm: bool) -> Result<bool, String> {
        self.executor.draw_order(self.setup.shards);
        if self.setup.looks && self.rng.chance(1, 2) {
            self.look()?;
        }
        let away = if is_calm { BTreeSet::new() } else { self.draw_away() };
        let Some(plan) = self.assemble(&away)? else { return Ok(false) };
        let victims = if is_calm { BTreeSet::new() } else { self.draw_victims() };
        self.prepare_oracle(&plan, &victims);
        let live = self.boot(&plan, &Config::default())?;
        for &slot in &victims {
            self.plan_faults(slot);
        }
        let spares = self.setup.shape.slots..self.setup.shape.slots + self.setup.spares;
        for slot in spares.clone().filter(|_| !is_calm) {
            if self.rng.chance(1, 3) {
                self.plan_faults(slot);
            }
        }
        let is_clean = self.work(&live, &victims, is_calm)?;
        if self.setup.over_budget == OverBudget::Passing {
            // The errors are over and no member was lost for good: from now on everything must be as it should.
            self.judge.is_over_budget.set(false);
        }
        if is_clean {
            self.close(&live)?;
        } else {
            self.crash(live)?;
        }
        let hurt = victims.iter().copied().chain(spares).filter(|&slot| self.disk(slot).faults_fired() > 0);
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
        let is_passing = self.judge.is_over_budget.get() && self.setup.over_budget == OverBudget::Passing;
        for _ in 0..self.rng.between(1, 4) {
            let victims =
                [Victim::Reads, Victim::Writes, Victim::Writes, Victim::SuperWrites, Victim::Flushes, Victim::Any];
            let victim = *self.rng.pick(if is_passing { &victims[..4] } else { &victims[..] });
            let kind = *self.rng.pick(&[ErrorKind::Media, ErrorKind::Media, ErrorKind::Gone, ErrorKind::ReadOnly]);
            let kind = if self.judge.is_over_budget.get() && self.rng.chance(1, 4) { ErrorKind::NoSpace } else { kind };
            let effect = match self.rng.below(6) {
                0 | 1 => Effect::Error(kind),
                2 => Effect::ErrorAfter(kind),
                3 => Effect::ErrorsFromNow(kind),
                4 if !is_passing => Effect::Vanish,
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

    fn start_clients(&mut self, live: &Live) -> Vec<u64> {
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
        clients
    }

    /// An operator who takes a member out.
    fn fail_by_hand(&mut self, live: &Live, slot: u16) {
        let (array, executor) = (live.arrays[0].clone(), self.executor.clone());
        let wait = Duration::from_micros(self.rng.below(5_000));
        self.executor.spawn(0, "operator", async move {
            executor.sleep(wait).await;
            let outcome = array.fail(Slot(slot)).await;
            executor.record(Event::Note { what: "failed by hand", value: u64::from(outcome.is_ok()) });
        });
        self.judge.lost.borrow_mut().insert(slot);
    }

    /// Lets clients work and the array stop, or power fail. True after a clean stop.
    fn work(&mut self, live: &Live, victims: &BTreeSet<u16>, is_calm: bool) -> Result<bool, String> {
        let clients = self.start_clients(live);
        if let Some(&slot) = victims.first()
            && self.rng.chance(1, 8)
        {
            self.fail_by_hand(live, slot);
        }
        let crashes = !is_calm && self.setup.has_crashes && self.rng.chance(3, 4);
        let mut stop = None;
        if !is_calm && self.rng.chance(1, 5) {
            let longest = *self.rng.pick(&[100, 3_000, 400_000]);
            let wait = Duration::from_micros(self.rng.below(longest));
            stop = Some(self.begin_stop(live, wait));
        }
        let end = self.executor.now() + PATIENCE;
        // As likely in the first moments as in the last ones.
        let longest = 1 << self.rng.between(4, 13);
        let steps = if crashes { self.rng.between(1, longest) } else { STEPS_MAX };
        let executor = self.executor.clone();
        let stopper = stop.as_ref().map(|(stopper, _)| *stopper);
        let one_in = 64 * self.setup.image_one_in;
        let ended = self.executor.run(steps, end, || {
            if executor.luck(|rng| rng.chance(1, one_in)) {
                (live.session.cut_power)();
            }
            let mut tasks = clients.iter().copied().chain(stopper);
            live.started.get().is_some() && tasks.all(|task| !executor.is_running(task))
        });
        self.judge_end(ended, live, crashes)?;
        if ended != Ended::Done || live.started.get() != Some(true) {
            return Ok(false);
        }
        if is_calm {
            self.read_all(live)?;
        }
        let (stopper, is_clean) = match stop {
            Some(stop) => stop,
            None => self.begin_stop(live, Duration::ZERO),
        };
        if !is_calm && self.setup.has_crashes && self.rng.chance(1, 6) {
            let steps = self.rng.between(1, 120);
            let ended = self.executor.run(steps, end, || !executor.is_running(stopper));
            self.judge_end(ended, live, true)?;
            return Ok(false);
        }
        self.wait_for(live, stopper)?;
        Ok(is_clean.get())
    }
}
