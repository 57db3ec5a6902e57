//! Runs small programs of tasks in every order. Tests of `host` and `export-nbd` compile this file by its path too.
//! Owns: [`explore`], the search over orders. Not here: any program.
//!
//! As in an executor, a task is polled only after its waker was used. At every point any woken task may be polled next,
//! any task may be dropped (at most `drops_max` in all), and any task may be polled without a wake (at most
//! `spurious_max` times). Each poll passes a new waker and invalidates the previous one: a future must wake the task that
//! polled it last.
//!
//! A run ends when no task is woken. Then every remaining task is polled once more. If one of them ends, wakes a task or
//! calls [`step`], it could have continued: a wake was lost. If no task was dropped, none may remain at all.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Some tasks, and a check after all of them have ended or were dropped.
pub(crate) struct Program {
    pub(crate) tasks: Vec<Task>,
    pub(crate) at_end: Box<dyn FnOnce()>,
}

/// What may happen besides polls of woken tasks.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) drops_max: u32,
    pub(crate) spurious_max: u32,
}

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Call it when a task gets past a wait.
pub(crate) fn step() {
    STEPS.set(STEPS.get() + 1);
}

/// Shared by all wakers of one task.
#[derive(Default)]
struct Wakes {
    is_woken: AtomicBool,
    /// The number of the poll whose waker is valid.
    poll: AtomicU64,
}

struct OnePoll {
    wakes: Arc<Wakes>,
    poll: u64,
}

impl Wake for OnePoll {
    fn wake(self: Arc<Self>) {
        if self.poll == self.wakes.poll.load(Ordering::Relaxed) {
            self.wakes.is_woken.store(true, Ordering::Relaxed);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Poll(usize),
    PollUnwoken(usize),
    Drop(usize),
    End,
}

/// The choices of one run: for each, the one taken and how many there were.
#[derive(Default)]
struct Tape {
    choices: Vec<(usize, usize)>,
    at: usize,
}

impl Tape {
    fn choose(&mut self, count: usize) -> usize {
        if self.at == self.choices.len() {
            self.choices.push((0, count));
        }
        let (taken, of) = self.choices[self.at];
        assert_eq!(of, count, "the program is the same each time");
        self.at += 1;
        taken
    }

    /// Advances to the next run's choices; false if there are none left.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((taken, of)) = self.choices.pop() {
            if taken + 1 < of {
                self.choices.push((taken + 1, of));
                return true;
            }
        }
        false
    }
}

struct Run {
    tasks: Vec<Option<Task>>,
    wakes: Vec<Arc<Wakes>>,
    history: Vec<Event>,
}

impl Run {
    fn new(tasks: Vec<Task>) -> Run {
        let wakes: Vec<Arc<Wakes>> = tasks.iter().map(|_| Arc::default()).collect();
        wakes.iter().for_each(|wakes| wakes.is_woken.store(true, Ordering::Relaxed));
        Run { tasks: tasks.into_iter().map(Some).collect(), wakes, history: Vec::new() }
    }

    fn is_woken(&self, task: usize) -> bool {
        self.wakes[task].is_woken.load(Ordering::Relaxed)
    }

    fn left(&self) -> impl Iterator<Item = usize> {
        (0..self.tasks.len()).filter(|&task| self.tasks[task].is_some())
    }

    fn events(&self, bounds: Bounds) -> Vec<Event> {
        let count = |wanted: fn(&Event) -> bool| self.history.iter().filter(|event| wanted(event)).count() as u32;
        let mut events: Vec<Event> = self.left().filter(|&task| self.is_woken(task)).map(Event::Poll).collect();
        if events.is_empty() {
            events.push(Event::End);
        }
        if count(|event| matches!(event, Event::PollUnwoken(_))) < bounds.spurious_max {
            events.extend(self.left().filter(|&task| !self.is_woken(task)).map(Event::PollUnwoken));
        }
        if count(|event| matches!(event, Event::Drop(_))) < bounds.drops_max {
            events.extend(self.left().map(Event::Drop));
        }
        events
    }

    fn poll(&mut self, task: usize) {
        let wakes = self.wakes[task].clone();
        wakes.is_woken.store(false, Ordering::Relaxed);
        let poll = wakes.poll.fetch_add(1, Ordering::Relaxed) + 1;
        let waker = Waker::from(Arc::new(OnePoll { wakes, poll }));
        let future = self.tasks[task].as_mut().expect("a task that is left");
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks[task] = None;
        }
    }

    /// Performs one run, with the choices of the tape.
    fn go(&mut self, name: &str, bounds: Bounds, tape: &mut Tape) {
        loop {
            let events = self.events(bounds);
            let event = events[tape.choose(events.len())];
            self.history.push(event);
            assert!(self.history.len() < 200, "{name}: tasks wake each other for ever: {:?}", self.history);
            match event {
                Event::Poll(task) | Event::PollUnwoken(task) => self.poll(task),
                Event::Drop(task) => self.tasks[task] = None,
                Event::End => return self.end(name),
            }
        }
    }

    fn end(&mut self, name: &str) {
        let left: Vec<usize> = self.left().collect();
        for &task in &left {
            let before = STEPS.get();
            self.poll(task);
            let goes_on = self.tasks[task].is_none() || STEPS.get() > before || left.iter().any(|&n| self.is_woken(n));
            assert!(!goes_on, "{name}: task {task} could go on and was not woken: {:?}", self.history);
        }
        let was_dropped = self.history.iter().any(|event| matches!(event, Event::Drop(_)));
        assert!(was_dropped || left.is_empty(), "{name}: tasks {left:?} wait for ever: {:?}", self.history);
    }
}

/// Runs the program in every order within the bounds and returns the number of orders. Panics with the events of the
/// first run that fails.
pub(crate) fn explore(name: &str, bounds: Bounds, program: impl Fn() -> Program) -> u64 {
    let (mut tape, mut runs) = (Tape::default(), 0);
    loop {
        let Program { tasks, at_end } = program();
        let mut run = Run::new(tasks);
        run.go(name, bounds, &mut tape);
        run.tasks.clear();
        at_end();
        runs += 1;
        if !tape.advance() {
            return runs;
        }
    }
}

/// Polls a future once, with a waker that does nothing.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
