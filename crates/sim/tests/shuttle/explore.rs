//! Runs a scenario under many schedules, or under one recorded schedule.
//! Owns: [`Explore`], the mix of schedulers. Not here: the scenario's run (`life`), the choice of scenarios (`main`).
//! Invariant: a seed gives the same schedules again; an exploration keeps no state of the previous one.

use crate::life::{Scenario, live};
use crate::sync::{MachineSabotage, set_sabotage};
use crate::{bell, sys};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uraid_engine::canary;
use uraid_sim::reference::model::Model;

/// Bytes of a thread's stack.
const STACK_BYTES: usize = 256 << 10;
/// Scheduling points of one schedule. Most have a few thousand; more than this is an endless loop.
const STEPS_MAX: usize = 200_000;
/// How often PCT changes priorities in a schedule. A low number finds bugs that need few coincidences, a high one those
/// that need many.
const DEPTHS: [usize; 2] = [3, 24];

/// A deliberate mistake that a scenario must detect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mistake {
    None,
    /// A mistake of the engine.
    Engine(&'static str),
    /// A mistake of the machine below the engine.
    Machine(MachineSabotage),
}

/// Which schedules.
#[derive(Clone, Debug)]
pub(crate) enum Schedules {
    /// This many, from this seed.
    Drawn { count: usize, seed: u64 },
    /// The one that shuttle printed.
    Again(String),
}

impl Schedules {
    /// Multiplies the number of schedules.
    pub(crate) fn times(&self, factor: usize) -> Schedules {
        match self {
            Schedules::Drawn { count, seed } => Schedules::Drawn { count: count * factor, seed: *seed },
            Schedules::Again(schedule) => Schedules::Again(schedule.clone()),
        }
    }
}

/// Alternates between schedulers: uniformly random, and PCT with few and with many changes of priority.
struct Mixed {
    // Never dropped: that would print seeds, which say less than the schedule does.
    schedulers: ManuallyDrop<Vec<Box<dyn Scheduler>>>,
    turn: usize,
    left: usize,
}

impl Mixed {
    fn new(seed: u64, count: usize) -> Mixed {
        let mut schedulers: Vec<Box<dyn Scheduler>> = vec![Box::new(RandomScheduler::new_from_seed(seed, count))];
        for depth in DEPTHS {
            schedulers.push(Box::new(PctScheduler::new_from_seed(seed, depth, count)));
        }
        Mixed { schedulers: ManuallyDrop::new(schedulers), turn: 0, left: count }
    }
}

impl Scheduler for Mixed {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.left = self.left.checked_sub(1)?;
        self.turn = (self.turn + 1) % self.schedulers.len();
        self.schedulers[self.turn].new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        self.schedulers[self.turn].next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.schedulers[self.turn].next_u64()
    }
}

static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// shuttle prints the schedule of a panic; a canary's panic is expected and not printed.
pub(crate) fn install_hooks() {
    // shuttle installs its hook once, on top of the existing one.
    std::panic::set_hook(Box::new(|_| {}));
    Runner::new(RandomScheduler::new_from_seed(0, 1), config(false)).run(|| {});
    let shuttles = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !IS_QUIET.load(Ordering::Relaxed) {
            shuttles(info);
        }
    }));
}

fn config(is_quiet: bool) -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.failure_persistence = if is_quiet { FailurePersistence::None } else { FailurePersistence::Print };
    // That shuttle treats every access as SeqCst is known: see `sync`.
    config.silence_warnings = true;
    // Threads that panicked may hold what others wait for.
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config
}

/// Runs a scenario in its own thread, with or without a mistake. Returns the number of schedules, or the failure.
pub(crate) fn explore(scenario: &Scenario, schedules: &Schedules, mistake: Mistake) -> Result<usize, String> {
    IS_QUIET.store(mistake != Mistake::None, Ordering::Relaxed);
    let (scenario, schedules) = (scenario.clone(), schedules.clone());
    let thread = std::thread::spawn(move || {
        match mistake {
            Mistake::None => {}
            Mistake::Engine(name) => canary::set(Some(name)),
            Mistake::Machine(sabotage) => set_sabotage(sabotage),
        }
        let model = Arc::new(Model::new(scenario.shape.clone()));
        let execution = move || {
            bell::forget_all();
            sys::reset_clock();
            live(&scenario, &model);
        };
        let config = config(mistake != Mistake::None);
        match schedules {
            Schedules::Drawn { count, seed } => Runner::new(Mixed::new(seed, count), config).run(execution),
            Schedules::Again(schedule) => {
                Runner::new(ReplayScheduler::new_from_encoded(&schedule), config).run(execution)
            }
        }
    });
    thread.join().map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_string()
    })
}
