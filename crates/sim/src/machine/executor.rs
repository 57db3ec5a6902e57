//! Runs several shards on one thread, in an order that the seed chooses.
//! Owns: the choice of the next task, the virtual clock, timers, the trace, found violations.
//! Not here: where tasks are kept (`executor::tasks`), the engine's world (`world`), the behaviour of a member (`member`).
//! Invariant: every step is a poll or an event recorded in the trace; time passes only here.

mod tasks;

use crate::machine::event::Event;
use crate::machine::trace::Trace;
use crate::random::rng::Rng;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tasks::{Entry, TaskWake, Tasks, Woken};
use uraid_block::Tick;

/// How the next ready task is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// A random one.
    Random,
    /// The one that has been ready longest.
    Fifo,
    /// The one that was woken last.
    Lifo,
    /// A random one, but this shard's tasks only if nothing else is ready.
    Starve(u16),
    /// A random one, but a task whose number is a multiple of 4 only if nothing else is ready.
    StarveSome,
}

/// Why a run of the executor ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The condition became true.
    Done,
    /// The limit of steps was reached.
    Steps,
    /// The clock reached the limit.
    Time,
    /// No task is ready and no event is pending.
    Stuck,
    /// A checker found a violation: see [`Executor::violation`].
    Violation,
}

/// What a random choice is for. Each purpose has its own stream: a recorded run (`tape`) can be shortened in one stream
/// without a change in the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Which task is next.
    Order,
    /// Latencies of members, and when their operations take effect.
    Latency,
    /// How long mail takes.
    Mail,
    /// Everything else: when crash images are judged, and what a crash leaves.
    Judging,
}

/// The clock of a new executor, in nanoseconds.
const START: u64 = 1_000_000_000;

type Action = Box<dyn FnOnce()>;

/// An event that has not happened.
struct Pending {
    at: u64,
    number: u64,
    action: Action,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Pending) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Pending) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Pending) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct Core {
    now: u64,
    poll_cost: u64,
    order: Order,
    rngs: [Rng; 4],
    trace: Trace,
    tasks: Tasks,
    ready: Vec<u64>,
    // The next one is the largest.
    events: BinaryHeap<Reverse<Pending>>,
    event_next: u64,
    steps: u64,
    violation: Option<String>,
}

/// The executor. Clones are handles of the same one.
#[derive(Clone)]
pub struct Executor {
    core: Rc<RefCell<Core>>,
    woken: Arc<Woken>,
}

impl Executor {
    /// An executor without tasks, at a time of one second. `rng` makes all its choices.
    pub fn new(mut rng: Rng, is_verbose: bool) -> Executor {
        let poll_cost = *rng.pick(&[0, 50, 300, 2_000, 15_000]);
        let executor = Executor::with(rng, poll_cost, Order::Random, is_verbose);
        executor.draw_order(4);
        executor
    }

    /// An executor that chooses nothing: tasks are polled in the order in which they became ready, and polls take no
    /// time.
    pub fn in_order() -> Executor {
        Executor::with(Rng::new(0), 0, Order::Fifo, false)
    }

    fn with(mut rng: Rng, poll_cost: u64, order: Order, is_verbose: bool) -> Executor {
        let core = Core {
            now: START,
            poll_cost,
            order,
            rngs: std::array::from_fn(|_| rng.fork()),
            trace: Trace::new(is_verbose),
            tasks: Tasks::default(),
            ready: Vec::new(),
            events: BinaryHeap::new(),
            event_next: 0,
            steps: 0,
            violation: None,
        };
        Executor { core: Rc::new(RefCell::new(core)), woken: Arc::default() }
    }

    /// Draws a new order of tasks; `shards` is the number of shards, one of which may be starved.
    pub fn draw_order(&self, shards: u16) {
        let mut core = self.core.borrow_mut();
        core.order = match core.rngs[Purpose::Order as usize].below(8) {
            0..=3 => Order::Random,
            4 => Order::Fifo,
            5 => Order::Lifo,
            6 => Order::StarveSome,
            _ => Order::Starve(core.rngs[Purpose::Order as usize].below(u64::from(shards.max(1))) as u16),
        };
    }

    /// The virtual clock.
    pub fn now(&self) -> Tick {
        Tick(self.core.borrow().now)
    }

    /// The number of polls and events so far.
    pub fn steps(&self) -> u64 {
        self.core.borrow().steps
    }

    /// The trace's hash, and the number of events in it.
    pub fn trace_hash(&self) -> (u64, u64) {
        let core = self.core.borrow();
        (core.trace.hash(), core.trace.events())
    }

    /// The last events, as text.
    pub fn trace_tail(&self) -> String {
        self.core.borrow().trace.tail()
    }

    /// Adds an event to the trace.
    pub fn record(&self, event: Event) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        core.trace.add(now, event);
    }

    /// Starts to keep the events, for a readable log.
    pub fn keep_log(&self) {
        self.core.borrow_mut().trace.keep_log();
    }

    /// The kept events, one per line.
    pub fn log(&self) -> String {
        self.core.borrow().trace.log()
    }

    /// Makes a random choice for [`Purpose::Judging`].
    pub fn random<T>(&self, choose: impl FnOnce(&mut Rng) -> T) -> T {
        self.choose_for(Purpose::Judging, choose)
    }

    /// Makes a random choice for this purpose.
    pub fn choose_for<T>(&self, purpose: Purpose, choose: impl FnOnce(&mut Rng) -> T) -> T {
        choose(&mut self.core.borrow_mut().rngs[purpose as usize])
    }

    /// A checker found a violation. The first one is kept and stops the run.
    pub fn violate(&self, what: String) {
        let mut core = self.core.borrow_mut();
        if core.violation.is_none() {
            let now = core.now;
            core.trace.add(now, Event::Note { what: "violation", value: 0 });
            core.violation = Some(what);
        }
    }

    /// The first violation.
    pub fn violation(&self) -> Option<String> {
        self.core.borrow().violation.clone()
    }

    /// Starts a task of a shard and returns its number. The name is for reports.
    pub fn spawn(&self, shard: u16, name: &'static str, task: impl Future<Output = ()> + 'static) -> u64 {
        let mut core = self.core.borrow_mut();
        let number = core.tasks.next();
        let now = core.now;
        core.trace.add(now, Event::Spawn { task: number, shard });
        let queued = Arc::new(TaskWake { number, is_queued: AtomicBool::new(true), woken: self.woken.clone() });
        let waker = Waker::from(queued.clone());
        core.tasks.push(Entry { task: Some((Box::pin(task), waker)), name, shard, queued });
        core.ready.push(number);
        number
    }

    /// Whether the task has not ended.
    pub fn is_running(&self, task: u64) -> bool {
        self.core.borrow().tasks.get(task).is_some()
    }

    /// Runs `action` after `wait`.
    pub fn after(&self, wait: Duration, action: impl FnOnce() + 'static) {
        let at = self.core.borrow().now + wait.as_nanos() as u64;
        self.at(Tick(at), action);
    }

    /// Runs `action` at a moment; actions of the same moment run in the order of the calls.
    pub fn at(&self, moment: Tick, action: impl FnOnce() + 'static) {
        let mut core = self.core.borrow_mut();
        let number = core.event_next;
        core.event_next += 1;
        core.events.push(Reverse(Pending { at: moment.0, number, action: Box::new(action) }));
    }

    /// Completes after `wait`.
    pub async fn sleep(&self, wait: Duration) {
        let (sender, receiver) = uraid_block::local::oneshot();
        self.after(wait, move || sender.send(()));
        receiver.await;
    }

    /// Runs until `done`, for at most `steps_max` steps and up to the moment `until`.
    pub fn run(&self, steps_max: u64, until: Tick, mut done: impl FnMut() -> bool) -> Ended {
        let end = self.steps().saturating_add(steps_max);
        loop {
            if self.core.borrow().violation.is_some() {
                return Ended::Violation;
            }
            if done() {
                return Ended::Done;
            }
            if self.steps() >= end {
                return Ended::Steps;
            }
            if self.now() >= until {
                return Ended::Time;
            }
            if !self.step() {
                return Ended::Stuck;
            }
        }
    }

    /// Performs one poll, or the next event if it is due or no task is ready. False if there is neither.
    fn step(&self) -> bool {
        self.step_now() || self.fire_next()
    }

    /// Performs the next event if it is due, or else one poll. False if there is neither: then time has to pass, or a
    /// member has to answer.
    pub fn step_now(&self) -> bool {
        self.take_woken();
        let is_due = {
            let core = self.core.borrow();
            core.events.peek().is_some_and(|Reverse(next)| next.at <= core.now)
        };
        if is_due { self.fire_next() } else { self.poll_next() }
    }

    /// Lets time pass until the next event, and performs it. False if there is none.
    pub fn fire_next(&self) -> bool {
        let mut core = self.core.borrow_mut();
        let Some(Reverse(Pending { at, number, action })) = core.events.pop() else { return false };
        core.steps += 1;
        core.now = core.now.max(at);
        let now = core.now;
        core.trace.add(now, Event::Fire { event: number });
        drop(core);
        action();
        true
    }

    /// Polls a ready task. False if there is none.
    fn poll_next(&self) -> bool {
        let mut core = self.core.borrow_mut();
        if core.ready.is_empty() {
            return false;
        }
        core.steps += 1;
        let number = core.choose();
        core.now += core.poll_cost;
        let now = core.now;
        core.trace.add(now, Event::Poll { task: number });
        let Some(entry) = core.tasks.get_mut(number) else { return true };
        entry.queued.is_queued.store(false, Ordering::Relaxed);
        let (mut task, waker) = entry.task.take().expect("a task is polled once at a time");
        drop(core);
        let state = task.as_mut().poll(&mut Context::from_waker(&waker));
        let mut core = self.core.borrow_mut();
        match state {
            Poll::Ready(()) => {
                let entry = core.tasks.remove(number);
                drop(core);
                drop(entry);
                drop(task);
            }
            Poll::Pending => {
                if let Some(entry) = core.tasks.get_mut(number) {
                    entry.task = Some((task, waker));
                }
            }
        }
        true
    }

    fn take_woken(&self) {
        self.woken.drain(|task| {
            let mut core = self.core.borrow_mut();
            let now = core.now;
            core.trace.add(now, Event::Wake { task });
            core.ready.push(task);
        });
    }

    /// Drops every task and event at once, as a power cut does.
    pub fn cut(&self) {
        self.record(Event::Note { what: "power is cut", value: 0 });
        self.end_all(drop);
    }

    /// Drops every task and event, and is as new: the clock, the numbers of tasks and events, no violation. The trace
    /// goes on.
    pub fn restart(&self) {
        self.end_all(drop);
        let mut core = self.core.borrow_mut();
        (core.now, core.event_next) = (START, 0);
        core.tasks.restart();
        core.violation = None;
    }

    /// As [`Executor::cut`] after a panic: unfinished work is leaked, because its destructors could panic again.
    pub fn leak(&self) {
        self.end_all(std::mem::forget);
    }

    fn end_all(&self, end: impl Fn(Entry)) {
        // Dropping may spawn, wake and post: repeat until nothing is left.
        loop {
            let (tasks, events) = {
                let mut core = self.core.borrow_mut();
                core.ready.clear();
                (core.tasks.take_all(), std::mem::take(&mut core.events))
            };
            if tasks.is_empty() && events.is_empty() {
                break;
            }
            tasks.into_iter().for_each(&end);
            // In the order in which they would have happened.
            events.into_sorted_vec().into_iter().rev().for_each(drop);
        }
        self.woken.drain(|_| {});
    }

    /// The number of tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.core.borrow().tasks.running()
    }

    /// The tasks that have not ended, as text.
    pub fn waiting(&self) -> String {
        let core = self.core.borrow();
        let list: Vec<String> = (core.tasks.iter())
            .map(|(number, entry)| format!("task {number} ({}, shard {})", entry.name, entry.shard))
            .collect();
        list.join(", ")
    }
}

impl Core {
    fn choose(&mut self) -> u64 {
        let count = self.ready.len();
        let rng = &mut self.rngs[Purpose::Order as usize];
        let at = match self.order {
            Order::Fifo => 0,
            // With exceptions: two tasks that wake each other must not starve a third one for ever.
            Order::Lifo if rng.chance(1, 32) => rng.below(count as u64) as usize,
            Order::Lifo => count - 1,
            Order::Random => rng.below(count as u64) as usize,
            Order::Starve(shard) => {
                let start = rng.below(count as u64) as usize;
                self.first_from(start, |entry, _| entry.shard != shard)
            }
            Order::StarveSome => {
                let start = rng.below(count as u64) as usize;
                self.first_from(start, |_, number| number % 4 != 0)
            }
        };
        self.ready.remove(at)
    }

    // Starving has exceptions: a task that polls itself while it waits must not block the others for ever.
    fn first_from(&mut self, start: usize, is_liked: impl Fn(&Entry, u64) -> bool) -> usize {
        if self.rngs[Purpose::Order as usize].chance(1, 64) {
            return start;
        }
        let count = self.ready.len();
        (0..count)
            .map(|step| (start + step) % count)
            .find(|&at| {
                let number = self.ready[at];
                self.tasks.get(number).is_some_and(|entry| is_liked(entry, number))
            })
            .unwrap_or(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn racing(seed: u64) -> (Vec<u64>, u64) {
        let executor = Executor::new(Rng::new(seed), false);
        let order = Rc::new(RefCell::new(Vec::new()));
        for n in 0..6u64 {
            let (executor_inside, order) = (executor.clone(), order.clone());
            executor.spawn(n as u16 % 2, "racer", async move {
                executor_inside.sleep(Duration::from_micros(n % 3)).await;
                order.borrow_mut().push(n);
            });
        }
        assert_eq!(executor.run(1000, Tick(u64::MAX), || executor.tasks() == 0), Ended::Done);
        (order.take(), executor.trace_hash().0)
    }

    #[test]
    fn a_seed_fixes_the_order_and_seeds_differ() {
        assert_eq!(racing(7), racing(7));
        let orders: std::collections::BTreeSet<Vec<u64>> = (0..20).map(|seed| racing(seed).0).collect();
        assert!(orders.len() > 3, "{orders:?}");
    }

    #[test]
    fn time_jumps_if_no_task_is_ready() {
        let executor = Executor::new(Rng::new(1), false);
        let inside = executor.clone();
        let start = executor.now();
        executor.spawn(0, "sleeper", async move { inside.sleep(Duration::from_secs(3600)).await });
        assert_eq!(executor.run(100, Tick(u64::MAX), || executor.tasks() == 0), Ended::Done);
        assert!(executor.now().since(start) >= Duration::from_secs(3600));
    }

    #[test]
    fn a_task_that_waits_for_ever_is_named() {
        let executor = Executor::new(Rng::new(1), false);
        executor.spawn(2, "lost", std::future::pending());
        assert_eq!(executor.run(100, Tick(u64::MAX), || executor.tasks() == 0), Ended::Stuck);
        assert_eq!(executor.waiting(), "task 0 (lost, shard 2)");
    }

    #[test]
    fn a_cut_drops_all_tasks_and_events() {
        let executor = Executor::new(Rng::new(1), false);
        let ended = Rc::new(Cell::new(false));
        let (inside, seen) = (executor.clone(), ended.clone());
        executor.spawn(0, "victim", async move {
            inside.sleep(Duration::from_secs(1)).await;
            seen.set(true);
        });
        executor.run(1, Tick(u64::MAX), || false);
        executor.cut();
        assert_eq!(executor.run(100, Tick(u64::MAX), || false), Ended::Stuck);
        assert!(!ended.get());
    }
}
