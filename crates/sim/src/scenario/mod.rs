//! One seed, from its first choice to its verdict: rounds of work, faults, crashes and stops.
//! Owns: [`run_seed`], the rounds, the planned faults (`plan`), what an operator does meanwhile, what md does while the array
//! is stopped (`rebuild`). Not here: single requests (`rig::client`), judging (`judge`). Called by `proof`.
//! Invariant: no more members have faults than the level survives, unless the last round is meant to exceed that.

mod access_changes;
mod bitmap_changes;
mod checking;
mod flag_changes;
pub mod plan;
pub mod rebuild;

use crate::machine::event::Event;
use crate::machine::executor::{Ended, Executor};
use crate::machine::fault_kind::FaultKind;
use crate::machine::member::{Lie, READ_ERRORS_MAX};
use crate::random::rng::{Rng, mix};
use crate::random::tape::Tape;
use crate::rig::tally::Tally;
use crate::rig::{Live, Rig, STEPS_MAX, TIMEOUT};
use crate::scenario::checking::follow_pass;
use crate::scenario::plan::Plan;
use crate::setup::{OverBudget, Setup};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{ErrorKind, Slot, SlotSet};
use uraid_engine::Config;
use uraid_engine::verdict::OnFull;
use uraid_engine::view::Gate;

/// A long seed continues until it has at least this many client operations ...
pub const LONG_OPERATIONS: u64 = 1_000;
/// ... and this many faults that changed a result or a byte.
pub const LONG_FAULTS: u64 = 20;
/// How often an operator checks whether the array froze.
const FREEZE_CHECKS_MAX: u64 = 300;
/// The most rounds of a seed.
const ROUNDS_MAX: u64 = 1_000;

/// How to run a seed.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Print events as they occur.
    pub is_verbose: bool,
    /// A deliberate fault of one member, which must be found.
    pub lie: Option<Lie>,
    /// A long seed.
    pub is_long: bool,
    /// Do not use hangs: every member answers sooner or later.
    pub never_hangs: bool,
}

/// The result of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed; 0 for a tape.
    pub seed: u64,
    /// The trace hash.
    pub hash: u64,
    /// Events in the trace.
    pub events: u64,
    /// Polls and events.
    pub steps: u64,
    /// Virtual time that passed, in nanoseconds.
    pub time: u64,
    /// Level and layout.
    pub kind: String,
    /// Counts.
    pub tally: Tally,
    /// The number of compared sectors.
    pub sectors: u64,
    /// The finding, if any, with the last events.
    pub failure: Option<String>,
    /// How often each rare branch was taken, in the order of `Mark::ALL`; zeroes without the feature `marks`.
    pub marks: Vec<u64>,
    /// The events as text; empty unless the choices were recorded.
    pub log: String,
}

/// The source of a run's choices.
#[derive(Clone, Debug)]
pub enum Source {
    /// A seed.
    Seed(u64),
    /// A tape.
    Tape(Tape),
    /// The first lane of a tape, which is the array and its clients, and a seed for everything that happens to them.
    Redrawn(Tape, u64),
}

/// Runs a seed. A panic of the engine is a finding like any other.
pub fn run_seed(seed: u64, options: Options) -> Outcome {
    let executor_of = |rng: Rng| Executor::new(rng, options.is_verbose);
    run(seed, Rng::new(seed), options, executor_of)
}

/// Runs a seed or a tape, and also returns all its choices.
pub fn run_recorded(source: Source, options: Options) -> (Outcome, Tape) {
    let (seed, (rng, recorder)) = match source {
        Source::Seed(seed) => (seed, Rng::recorded(seed)),
        Source::Tape(tape) => (0, Rng::replayed(tape)),
        Source::Redrawn(tape, seed) => (0, Rng::redrawn(tape, seed)),
    };
    let executor_of = |rng: Rng| {
        let executor = Executor::new(rng, options.is_verbose);
        executor.keep_log();
        executor
    };
    let outcome = run(seed, rng, options, executor_of);
    let tape = recorder.borrow().recorded();
    (outcome, tape)
}

#[cfg(feature = "marks")]
fn take_marks() -> Vec<u64> {
    uraid_engine::mark::take()
}

#[cfg(not(feature = "marks"))]
fn take_marks() -> Vec<u64> {
    vec![0; uraid_engine::mark::Mark::ALL.len()]
}

fn run(seed: u64, mut rng: Rng, options: Options, executor_of: impl FnOnce(Rng) -> Executor) -> Outcome {
    let mut setup = if options.is_long { Setup::draw_long(&mut rng) } else { Setup::draw(&mut rng) };
    if options.never_hangs {
        setup.kinds = setup.kinds.without(FaultKind::NeverAnswers);
    }
    let setup = Rc::new(setup);
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
    let log = executor.log();
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
        marks: take_marks(),
        log,
    }
}

impl Rig {
    fn all_rounds(&mut self) -> Result<(), String> {
        let mut root = std::mem::replace(&mut self.rng, Rng::new(0));
        for round in 0..ROUNDS_MAX {
            if self.has_enough(round) {
                break;
            }
            // Each round has its own lane; a round whose lane is not on the tape is skipped.
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

    fn has_enough(&self, rounds: u64) -> bool {
        let tally = self.tally.borrow();
        let is_long = tally.operations >= LONG_OPERATIONS && tally.faults >= LONG_FAULTS;
        if self.setup.is_long { is_long } else { rounds >= self.setup.rounds }
    }

    /// Performs one run of the array. False if it cannot start again. A calm round has no faults and ends with a clean
    /// stop.
    fn round(&mut self, is_calm: bool) -> Result<bool, String> {
        self.executor.draw_order(self.setup.shards);
        if !is_calm {
            self.damage_while_stopped();
        }
        if self.setup.opens_read_only && self.rng.chance(1, 2) {
            self.check_read_only()?;
        }
        let away = if is_calm { BTreeSet::new() } else { self.draw_away() };
        let Some(start) = self.assemble(&away)? else { return Ok(false) };
        let mut plan = if is_calm { Plan::default() } else { self.draw_plan() };
        if !is_calm && start.missing.is_empty() {
            plan.bus = self.draw_bus(&plan);
            plan.bus_spread = [0, 100_000, 3_000_000, 20_000_000][(self.bus_draw() & 3) as usize];
        }
        self.prepare_oracle(&start, &plan.unsure());
        let on_full = self.setup.kinds.on_full();
        let pass_window = self.setup.pass_window;
        let clear_bits_after = self.setup.bits.map(|bits| bits.clear_after);
        let pass_skip = uraid_block::Sectors(2 * pass_window.0);
        let of_setup = Config { pass_window, pass_skip, clear_bits_after, ..Config::default() };
        let config = Config { read_errors_max: READ_ERRORS_MAX, on_full, ..of_setup };
        let live = self.boot(&start, &config)?;
        self.carry_out(&plan);
        let is_clean = self.work(&live, &plan, is_calm)?;
        if self.setup.over_budget == OverBudget::Passing {
            // The errors are over and no member was lost for good: everything read later must be right.
            self.judge.is_over_budget.set(false);
        }
        if is_clean {
            self.close(&live)?;
        } else {
            self.crash(live)?;
        }
        self.count_hits();
        if std::mem::take(&mut self.is_healthy) {
            self.judge.forget_faults_of_members();
        } else if is_clean && !is_calm && (self.setup.is_long || self.rng.chance(1, 4)) {
            self.rebuild()?;
        }
        Ok(true)
    }

    /// Counts the faults of this round, and records which members may be left out because of them.
    fn count_hits(&mut self) {
        let disks = self.judge.disks.iter();
        let hurt = disks.clone().enumerate().filter(|(_, disk)| disk.may_be_failed()).map(|(slot, _)| slot as u16);
        if self.setup.is_redundant() {
            self.judge.lost.borrow_mut().extend(hurt);
        }
        for disk in disks {
            for (kind, hits) in FaultKind::ALL.into_iter().zip(disk.hits()) {
                self.tally.borrow_mut().count_fault(kind, hits);
            }
            disk.reset_faults();
        }
    }

    fn start_clients(&mut self, live: &Live) -> Vec<u64> {
        let mut clients = Vec::new();
        for number in 0..self.setup.clients {
            let shard = (number % u64::from(self.setup.shards)) as u16;
            let client = live.client(shard, self.rng.fork());
            clients.push(self.executor.spawn(shard, "client", client.run(self.setup.requests)));
        }
        clients
    }

    /// An operator fails a member.
    fn fail_by_hand(&mut self, live: &Live, slot: u16) {
        let (array, executor) = (live.arrays[0].clone(), self.executor.clone());
        let wait = Duration::from_micros(self.rng.below(5_000));
        let (tally, is_redundant) = (self.tally.clone(), self.setup.is_redundant());
        self.executor.spawn(0, "operator", async move {
            executor.sleep(wait).await;
            let outcome = array.fail(SlotSet::EMPTY.with(Slot(slot))).await;
            executor.record(Event::Note { what: "failed by hand", value: u64::from(outcome.is_ok()) });
            tally.borrow_mut().count_fault(FaultKind::ByHand, u64::from(outcome.is_ok()));
            if outcome.is_ok() && !is_redundant {
                executor.violate(format!("C1: slot {slot} was taken out of an array that cannot do without"));
            }
        });
        if self.setup.is_redundant() {
            self.judge.lost.borrow_mut().insert(slot);
        }
    }

    /// A member stops answering, there is no timeout, and an operator fails it after a while.
    fn fail_hung_by_hand(&mut self, live: &Live, slot: u16) {
        let (array, executor, disk) = (live.arrays[0].clone(), self.executor.clone(), self.disk(slot).clone());
        let (wait, notice) = (self.rng.below(5_000), self.rng.below(1_000_000));
        let tally = self.tally.clone();
        self.judge.lost.borrow_mut().insert(slot);
        self.executor.spawn(0, "operator", async move {
            executor.sleep(Duration::from_micros(wait)).await;
            // An array that is starting refuses `fail`.
            if array.view().gate != Gate::Open {
                return;
            }
            disk.hang_without_deadline();
            executor.sleep(Duration::from_micros(notice)).await;
            let outcome = array.fail(SlotSet::EMPTY.with(Slot(slot))).await;
            executor.record(Event::Note { what: "hung and failed by hand", value: u64::from(outcome.is_ok()) });
            match outcome {
                Ok(()) => tally.borrow_mut().count_fault(FaultKind::NeverAnswers, 1),
                Err(_) => disk.end_hang(),
            }
        });
    }

    /// How a shared bus fails: derived from a drawn number, so that the choices of existing seeds stay the same.
    fn bus_draw(&self) -> u64 {
        mix(self.setup.array ^ 0xb05)
    }

    /// A shared bus fails, and with it several members at the same moment.
    fn fail_bus(&mut self, plan: &Plan) {
        let away = &plan.bus;
        if away.is_empty() {
            return;
        }
        let kind = *self.rng.pick(&[ErrorKind::Media, ErrorKind::Gone]);
        let wait = Duration::from_micros(self.rng.below(5_000));
        // At one moment, or each with the next request that meets the bus. Before, in a quarter of the seeds, one of them
        // fails reads for a while; in half of the seeds, those do that an array fails at their first error.
        let (draw, spread) = (self.bus_draw(), plan.bus_spread);
        for (nth, slot) in away.iter().enumerate() {
            let (disk, executor) = (self.disk(*slot).clone(), self.executor.clone());
            let later = Duration::from_nanos(mix(self.setup.array ^ u64::from(*slot)) % (spread + 1));
            let is_first_of_all = draw & 3 == 3 && nth as u64 == draw >> 8 & 1;
            let fails_reads = is_first_of_all || draw & 1 == 1 && self.setup.failfast.contains(Slot(*slot));
            self.executor.spawn(0, "bus", async move {
                executor.sleep(wait).await;
                if fails_reads {
                    disk.fail_bus_reads();
                }
                executor.sleep(later).await;
                disk.fail_bus(kind);
            });
        }
    }

    /// An operator waits until the array freezes because members are full, and fails these.
    fn fail_full_by_hand(&mut self, live: &Live, plan: &Plan) {
        let is_wanted = self.setup.kinds.has(FaultKind::NoSpace) && self.setup.is_redundant();
        if !is_wanted || self.setup.kinds.on_full() == OnFull::Fail || self.judge.is_over_budget.get() {
            return;
        }
        let unsure = plan.unsure();
        let (array, executor, judge) = (live.arrays[0].clone(), self.executor.clone(), self.judge.clone());
        let guard = self.guard.clone();
        let (look, tally) = (Duration::from_micros(self.rng.between(20, 2_000)), self.tally.clone());
        self.executor.spawn(0, "operator", async move {
            for _ in 0..FREEZE_CHECKS_MAX {
                executor.sleep(look).await;
                if !matches!(array.view().gate, Gate::Frozen(ErrorKind::NoSpace)) {
                    continue;
                }
                let full: BTreeSet<u16> = (0..judge.disks.len() as u16)
                    .filter(|slot| judge.disks[usize::from(*slot)].has_no_space())
                    .collect();
                let missing = judge.missing(&unsure.union(&full).copied().collect());
                if !judge.model.can_serve_without(&missing) {
                    return;
                }
                judge.lost.borrow_mut().extend(&full);
                let slots = full.into_iter().map(Slot).collect();
                let outcome = array.fail(slots).await;
                executor.record(Event::Note { what: "full and failed by hand", value: u64::from(outcome.is_ok()) });
                if outcome.is_ok() {
                    follow_pass(&array, &guard, &judge).await;
                }
                tally.borrow_mut().count_fault(FaultKind::ByHand, u64::from(outcome.is_ok()));
                return;
            }
        });
    }

    /// Lets clients work until the array stops or power fails. True after a clean stop.
    fn work(&mut self, live: &Live, plan: &Plan, is_calm: bool) -> Result<bool, String> {
        let clients = self.start_clients(live);
        if !is_calm {
            self.fail_bus(plan);
            self.fail_full_by_hand(live, plan);
        }
        self.check_by_hand(live);
        self.change_bitmap_by_hand(live);
        self.change_access_by_hand(live);
        self.change_flags_by_hand(live);
        let victims = &plan.victims;
        if let Some(&slot) = victims.first()
            && self.setup.kinds.has(FaultKind::ByHand)
            && self.rng.chance(1, 4)
        {
            self.fail_by_hand(live, slot);
        } else if let Some(&slot) = victims.first()
            && self.setup.kinds.has(FaultKind::NeverAnswers)
            && self.setup.is_redundant()
            && !self.judge.is_over_budget.get()
            && self.rng.chance(1, 4)
        {
            self.fail_hung_by_hand(live, slot);
        }
        let often = if self.setup.is_long { 2 } else { 3 };
        let crashes = !is_calm && self.setup.has_crashes && self.rng.chance(often, 4);
        let mut stop = None;
        if !is_calm && self.rng.chance(1, 5) {
            let longest = *self.rng.pick(&[100, 3_000, 400_000]);
            let wait = Duration::from_micros(self.rng.below(longest));
            stop = Some(self.begin_stop(live, wait));
        }
        let end = self.executor.now() + TIMEOUT;
        // Logarithmic: short times are as likely as long ones.
        let longest = 1 << self.rng.between(4, 13);
        let steps = if crashes { self.rng.between(1, longest) } else { STEPS_MAX };
        let executor = self.executor.clone();
        let stopper = stop.as_ref().map(|(stopper, _)| *stopper);
        let one_in = 64 * self.setup.image_one_in;
        let ended = self.executor.run(steps, end, || {
            if executor.random(|rng| rng.chance(1, one_in)) {
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
