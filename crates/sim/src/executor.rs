//! Runs several shards on one thread, in an order that the seed chooses.
//! Owns: tasks, the choice of the next one, the virtual clock, timers, the trace, found violations.
//! Not here: the engine's world (`world`), the behaviour of a member (`disk`).
//! Invariant: every step is a poll or an event recorded in the trace; time passes only here.

use crate::rng::Rng;
use crate::trace::{Event, Trace};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use uraid_block::Tick;

/// Which ready task is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Any.
    Random,
    /// The one that waits longest.
    Fifo,
    /// The one that was woken last.
    Lifo,
    /// Any, but one shard's tasks only when nothing else is ready.
    Starve(u16),
    /// Any, but every fourth task, by number, only when nothing else is ready.
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
    /// No task is ready and no event is to come.
    Stuck,
    /// A checker found something: see [`Executor::violation`].
    Violation,
}

/// The uses of random choices: each has its own stream, so that a tape can be cut in one and keep the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Luck {
    /// Which task is next.
    Order,
    /// Latencies of members, and when their operations take effect.
    Latency,
    /// How long mail takes.
    Mail,
    /// Everything else: when power failure is imagined, and what it leaves.
    Judging,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;
type Action = Box<dyn FnOnce()>;

struct Entry {
    task: Option<Task>,
    name: &'static str,
    shard: u16,
    waker: Waker,
    queued: Arc<TaskWake>,
}

struct TaskWake {
    number: u64,
    is_queued: AtomicBool,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.woken.lock().expect("one thread, no panic inside").push(self.number);
        }
    }
}

struct Core {
    now: u64,
    poll_cost: u64,
    order: Order,
    rngs: [Rng; 4],
    trace: Trace,
    tasks: BTreeMap<u64, Entry>,
    ready: Vec<u64>,
    task_next: u64,
    events: BTreeMap<(u64, u64), Action>,
    event_next: u64,
    steps: u64,
    violation: Option<String>,
}

/// The executor. Clones are handles of the same one.
#[derive(Clone)]
pub struct Executor {
    core: Rc<RefCell<Core>>,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Executor {
    /// An executor without tasks, at a time of one second. `rng` makes all its choices.
    pub fn new(mut rng: Rng, is_verbose: bool) -> Executor {
        let poll_cost = *rng.pick(&[0, 50, 300, 2_000, 15_000]);
        let core = Core {
            now: 1_000_000_000,
            poll_cost,
            order: Order::Random,
            rngs: std::array::from_fn(|_| rng.fork()),
            trace: Trace::new(is_verbose),
            tasks: BTreeMap::new(),
            ready: Vec::new(),
            task_next: 0,
            events: BTreeMap::new(),
            event_next: 0,
            steps: 0,
            violation: None,
        };
        let executor = Executor { core: Rc::new(RefCell::new(core)), woken: Arc::default() };
        executor.draw_order(4);
        executor
    }

    /// Draws another order of tasks, with this many shards to starve one of.
    pub fn draw_order(&self, shards: u16) {
        let mut core = self.core.borrow_mut();
        core.order = match core.rngs[Luck::Order as usize].below(8) {
            0..=3 => Order::Random,
            4 => Order::Fifo,
            5 => Order::Lifo,
            6 => Order::StarveSome,
            _ => Order::Starve(core.rngs[Luck::Order as usize].below(u64::from(shards.max(1))) as u16),
        };
    }

    /// The virtual clock.
    pub fn now(&self) -> Tick {
        Tick(self.core.borrow().now)
    }

    /// How many polls and events there were.
    pub fn steps(&self) -> u64 {
        self.core.borrow().steps
    }

    /// The trace's hash, and how many events it took in.
    pub fn trace_hash(&self) -> (u64, u64) {
        let core = self.core.borrow();
        (core.trace.hash(), core.trace.events())
    }

    /// The last events to read.
    pub fn trace_tail(&self) -> String {
        self.core.borrow().trace.tail()
    }

    /// Takes an event into the trace.
    pub fn record(&self, event: Event) {
        let mut core = self.core.borrow_mut();
        let now = core.now;
        core.trace.add(now, event);
    }

    /// Keeps the events of the run from now on, for a readable log.
    pub fn keep_story(&self) {
        self.core.borrow_mut().trace.keep_story();
    }

    /// Those events, one a line.
    pub fn story(&self) -> String {
        self.core.borrow().trace.story()
    }

    /// Lets a choice be made that is neither order nor time.
    pub fn luck<T>(&self, choose: impl FnOnce(&mut Rng) -> T) -> T {
        self.luck_in(Luck::Judging, choose)
    }

    /// Lets a choice be made.
    pub fn luck_in<T>(&self, luck: Luck, choose: impl FnOnce(&mut Rng) -> T) -> T {
        choose(&mut self.core.borrow_mut().rngs[luck as usize])
    }

    /// A checker found something that must not be. The first finding is kept and stops the run.
    pub fn violate(&self, what: String) {
        let mut core = self.core.borrow_mut();
        if core.violation.is_none() {
            let now = core.now;
            core.trace.add(now, Event::Note { what: "violation", value: 0 });
            core.violation = Some(what);
        }
    }

    /// What a checker found.
    pub fn violation(&self) -> Option<String> {
        self.core.borrow().violation.clone()
    }

    /// Starts a task of a shard. The name is for reports.
    pub fn spawn(&self, shard: u16, name: &'static str, task: impl Future<Output = ()> + 'static) -> u64 {
        let mut core = self.core.borrow_mut();
        let number = core.task_next;
        core.task_next += 1;
        let now = core.now;
        core.trace.add(now, Event::Spawn { task: number, shard });
        let queued = Arc::new(TaskWake { number, is_queued: AtomicBool::new(true), woken: self.woken.clone() });
        let waker = Waker::from(queued.clone());
        core.tasks.insert(number, Entry { task: Some(Box::pin(task)), name, shard, waker, queued });
        core.ready.push(number);
        number
    }

    /// Whether the task has not ended.
    pub fn is_running(&self, task: u64) -> bool {
        self.core.borrow().tasks.contains_key(&task)
    }

    /// Lets `action` happen when `wait` has passed.
    pub fn after(&self, wait: Duration, action: impl FnOnce() + 'static) {
        let at = self.core.borrow().now + wait.as_nanos() as u64;
        self.at(Tick(at), action);
    }

    /// Runs `action` at a moment; actions of the same moment run in the order of the calls.
    pub fn at(&self, moment: Tick, action: impl FnOnce() + 'static) {
        let mut core = self.core.borrow_mut();
        let number = core.event_next;
        core.event_next += 1;
        core.events.insert((moment.0, number), Box::new(action));
    }

    /// Ends when `wait` has passed.
    pub async fn sleep(&self, wait: Duration) {
        let (sender, receiver) = uraid_block::local::oneshot();
        self.after(wait, move || sender.send(()));
        receiver.await;
    }

    /// Runs until `done`, at most `steps_max` steps more and up to the moment `until`.
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

    /// One poll, or one event when it is due or nothing is ready. False when there is neither.
    fn step(&self) -> bool {
        self.take_woken();
        let mut core = self.core.borrow_mut();
        core.steps += 1;
        let due = core.events.first_key_value().map(|(&(at, _), _)| at);
        let is_due = due.is_some_and(|at| at <= core.now);
        if is_due || (core.ready.is_empty() && due.is_some()) {
            let ((at, number), action) = core.events.pop_first().expect("there is a first event");
            core.now = core.now.max(at);
            let now = core.now;
            core.trace.add(now, Event::Fire { event: number });
            drop(core);
            action();
            return true;
        }
        if core.ready.is_empty() {
            return false;
        }
        let number = core.choose();
        core.now += core.poll_cost;
        let now = core.now;
        core.trace.add(now, Event::Poll { task: number });
        let Some(entry) = core.tasks.get_mut(&number) else { return true };
        entry.queued.is_queued.store(false, Ordering::Relaxed);
        let waker = entry.waker.clone();
        let mut task = entry.task.take().expect("a task is polled once at a time");
        drop(core);
        let state = task.as_mut().poll(&mut Context::from_waker(&waker));
        let mut core = self.core.borrow_mut();
        match state {
            Poll::Ready(()) => {
                let entry = core.tasks.remove(&number);
                drop(core);
                drop(entry);
                drop(task);
            }
            Poll::Pending => {
                if let Some(entry) = core.tasks.get_mut(&number) {
                    entry.task = Some(task);
                }
            }
        }
        true
    }

    fn take_woken(&self) {
        let woken = std::mem::take(&mut *self.woken.lock().expect("one thread, no panic inside"));
        let mut core = self.core.borrow_mut();
        for task in woken {
            let now = core.now;
            core.trace.add(now, Event::Wake { task });
            core.ready.push(task);
        }
    }

    /// Ends every task and event at once, as when power fails.
    pub fn cut(&self) {
        self.record(Event::Note { what: "power is cut", value: 0 });
        self.end_all(drop);
    }

    /// The same after a panic: unfinished work is leaked, because its destructors could panic again.
    pub fn leak(&self) {
        self.end_all(std::mem::forget);
    }

    fn end_all(&self, end: impl Fn(Entry)) {
        // Dropping may spawn, wake and post: repeat until nothing is left.
        loop {
            let (tasks, events) = {
                let mut core = self.core.borrow_mut();
                core.ready.clear();
                (std::mem::take(&mut core.tasks), std::mem::take(&mut core.events))
            };
            if tasks.is_empty() && events.is_empty() {
                break;
            }
            tasks.into_values().for_each(&end);
            drop(events);
        }
        self.woken.lock().expect("one thread, no panic inside").clear();
    }

    /// How many tasks have not ended.
    pub fn tasks(&self) -> usize {
        self.core.borrow().tasks.len()
    }

    /// The tasks that have not ended, to read.
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
        let rng = &mut self.rngs[Luck::Order as usize];
        let at = match self.order {
            Order::Fifo => 0,
            // Not for ever: two tasks that wake each other must not keep a third one out.
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

    // Starving is hard but not for ever: a task that polls itself while it waits must not stop the world.
    fn first_from(&mut self, start: usize, is_liked: impl Fn(&Entry, u64) -> bool) -> usize {
        if self.rngs[Luck::Order as usize].chance(1, 64) {
            return start;
        }
        let count = self.ready.len();
        (0..count)
            .map(|step| (start + step) % count)
            .find(|&at| {
                let number = self.ready[at];
                self.tasks.get(&number).is_some_and(|entry| is_liked(entry, number))
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
    fn a_seed_gives_one_order_and_seeds_give_many() {
        assert_eq!(racing(7), racing(7));
        let orders: std::collections::BTreeSet<Vec<u64>> = (0..20).map(|seed| racing(seed).0).collect();
        assert!(orders.len() > 3, "{orders:?}");
    }

    #[test]
    fn time_jumps_when_nothing_is_ready() {
        let executor = Executor::new(Rng::new(1), false);
        let inside = executor.clone();
        let start = executor.now();
        executor.spawn(0, "sleeper", async move { inside.sleep(Duration::from_secs(3600)).await });
        assert_eq!(executor.run(100, Tick(u64::MAX), || executor.tasks() == 0), Ended::Done);
        assert!(executor.now().since(start) >= Duration::from_secs(3600));
    }

    #[test]
    fn a_task_that_waits_for_nothing_is_named() {
        let executor = Executor::new(Rng::new(1), false);
        executor.spawn(2, "lost", std::future::pending());
        assert_eq!(executor.run(100, Tick(u64::MAX), || executor.tasks() == 0), Ended::Stuck);
        assert_eq!(executor.waiting(), "task 0 (lost, shard 2)");
    }

    #[test]
    fn a_cut_ends_everything() {
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
