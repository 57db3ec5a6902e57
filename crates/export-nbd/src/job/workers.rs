//! Tasks that run clients' requests and are reused for later ones.
//! Owns: [`Workers`]: which worker is woken for a job. Not here: what a job does, the workers' loop (`job`).
//! Invariant: while a job waits, either a worker has been woken and will take it, or `workers_max` are at work and the
//! first that is done takes it. A job that does not wait costs no task.
//!
//! ```text
//!   reader -> jobs -> worker: takes one; if more are left, wakes another one; runs it; takes the next ...
//! ```
//! On a device that answers at once, the first worker runs all jobs of a receive, and the worker that it woke finds
//! none. If the first job waits for the device, the woken worker takes the second job, and so on.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

/// Idle workers that are kept: they cost some KiB each.
const IDLE_MAX: usize = 128;

/// Waiting jobs and idle workers.
pub(crate) struct Workers<J> {
    jobs: RefCell<VecDeque<J>>,
    idle: RefCell<Vec<(u64, Waker)>>,
    /// A worker was woken and has not run yet.
    is_waking: Cell<bool>,
    next_id: Cell<u64>,
    /// Workers that have not ended.
    workers: Cell<usize>,
    workers_max: usize,
}

/// A worker's own state.
pub(crate) struct Worker {
    id: u64,
    reason: Reason,
}

/// Why a worker asks for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reason {
    /// The worker was started for a job.
    Woken,
    /// The worker has finished a job.
    Done,
    /// The worker was idle, and may have been woken meanwhile.
    Idle,
}

impl<J> Workers<J> {
    /// At most `workers_max` workers, at least one.
    pub(crate) fn new(workers_max: usize) -> Workers<J> {
        assert!(workers_max > 0, "a job needs a worker");
        Workers {
            jobs: RefCell::default(),
            idle: RefCell::default(),
            is_waking: Cell::new(false),
            next_id: Cell::new(0),
            workers: Cell::new(0),
            workers_max,
        }
    }

    /// Adds a job. The caller must start a returned worker.
    #[must_use]
    pub(crate) fn put(&self, job: J) -> Option<Worker> {
        self.jobs.borrow_mut().push_back(job);
        self.wake_one()
    }

    /// Makes sure that a worker takes the job: an idle one, a new one, or the first that is done.
    fn wake_one(&self) -> Option<Worker> {
        if self.is_waking.get() {
            return None;
        }
        if let Some((_, waker)) = self.idle.borrow_mut().pop() {
            self.is_waking.set(true);
            waker.wake();
            return None;
        }
        if self.workers.get() == self.workers_max {
            return None;
        }
        self.is_waking.set(true);
        self.workers.set(self.workers.get() + 1);
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        Some(Worker { id, reason: Reason::Woken })
    }

    /// The next job, and a new worker to start if more jobs are left and no other worker is idle. `None`: there is no
    /// job, and the worker ends, because `is_over` or because enough others are idle.
    pub(crate) fn poll_next(
        &self,
        worker: &mut Worker,
        is_over: bool,
        context: &Context<'_>,
    ) -> Poll<Option<(J, Option<Worker>)>> {
        let mut idle = self.idle.borrow_mut();
        assert!(idle.len() <= self.workers.get() && idle.len() <= IDLE_MAX);
        let mut position = None;
        match worker.reason {
            Reason::Woken => self.is_waking.set(false),
            Reason::Done => {}
            Reason::Idle => {
                position = idle.iter().position(|(id, _)| *id == worker.id);
                if position.is_none() {
                    self.is_waking.set(false);
                }
            }
        }
        worker.reason = Reason::Done;
        let job = self.jobs.borrow_mut().pop_front();
        if job.is_some() || is_over {
            position.map(|position| idle.swap_remove(position));
        }
        if let Some(job) = job {
            drop(idle);
            let other = if self.jobs.borrow().is_empty() { None } else { self.wake_one() };
            return Poll::Ready(Some((job, other)));
        }
        if is_over || (position.is_none() && idle.len() >= IDLE_MAX) {
            assert!(self.workers.get() > idle.len(), "one that ends is not idle");
            self.workers.set(self.workers.get() - 1);
            return Poll::Ready(None);
        }
        worker.reason = Reason::Idle;
        match position {
            Some(position) => idle[position].1.clone_from(context.waker()),
            None => idle.push((worker.id, context.waker().clone())),
        }
        Poll::Pending
    }

    /// Wakes idle workers, so that they check whether to end.
    pub(crate) fn wake_idle(&self) {
        for (_, waker) in self.idle.borrow().iter() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::every_order::{Bounds, Program, Task, explore, step};
    use std::future::poll_fn;
    use std::rc::Rc;
    use uraid_block::local::Notify;

    fn next(workers: &Workers<u32>, worker: &mut Worker) -> Poll<Option<(u32, Option<Worker>)>> {
        workers.poll_next(worker, false, &Context::from_waker(Waker::noop()))
    }

    /// The job that was taken, and whether a new worker must be started.
    fn taken(found: Poll<Option<(u32, Option<Worker>)>>) -> Option<(u32, bool)> {
        match found {
            Poll::Ready(Some((job, other))) => Some((job, other.is_some())),
            Poll::Ready(None) => panic!("the worker ends"),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_worker_does_all_that_does_not_wait_and_one_other_is_woken() {
        let workers = Workers::new(1000);
        let mut first = workers.put(1).expect("there was no worker yet");
        assert!(workers.put(2).is_none() && workers.put(3).is_none(), "one was woken already");
        let Poll::Ready(Some((1, Some(mut second)))) = next(&workers, &mut first) else {
            panic!("one job and another worker")
        };
        assert_eq!(taken(next(&workers, &mut first)), Some((2, false)));
        assert_eq!(taken(next(&workers, &mut first)), Some((3, false)));
        assert_eq!(taken(next(&workers, &mut first)), None);
        assert_eq!(taken(next(&workers, &mut second)), None);
        // Both workers are idle now: each gets one of the next two jobs, and no new worker is needed.
        assert!(workers.put(4).is_none() && workers.put(5).is_none());
        assert_eq!(taken(next(&workers, &mut second)), Some((4, false)));
        assert_eq!(taken(next(&workers, &mut first)), Some((5, false)));
    }

    #[test]
    fn a_worker_that_is_polled_without_a_job_stays_idle_once() {
        let workers = Workers::new(1000);
        let mut first = workers.put(1).expect("there was no worker yet");
        assert_eq!(taken(next(&workers, &mut first)), Some((1, false)));
        for _ in 0..3 {
            assert_eq!(taken(next(&workers, &mut first)), None);
        }
        assert_eq!(workers.idle.borrow().len(), 1);
        assert!(workers.put(2).is_none());
        assert_eq!(taken(next(&workers, &mut first)), Some((2, false)));
        assert!(workers.idle.borrow().is_empty());
        let mut second = workers.put(3).expect("the first one is at work");
        assert_eq!(taken(next(&workers, &mut second)), Some((3, false)));
    }

    #[test]
    fn workers_end_when_it_is_over_and_when_enough_others_wait() {
        let workers = Workers::new(1000);
        let mut all = Vec::new();
        for job in 0..=IDLE_MAX as u32 {
            let mut worker = workers.put(job).expect("all are at work");
            assert_eq!(taken(next(&workers, &mut worker)), Some((job, false)));
            all.push(worker);
        }
        let waiting = all.iter_mut().map(|worker| next(&workers, worker)).filter(Poll::is_pending).count();
        assert_eq!(waiting, IDLE_MAX);
        for worker in &mut all[..IDLE_MAX] {
            let over = workers.poll_next(worker, true, &Context::from_waker(Waker::noop()));
            assert!(matches!(over, Poll::Ready(None)));
        }
        assert!(workers.idle.borrow().is_empty());
    }

    #[test]
    fn a_job_beyond_the_last_worker_waits_for_the_first_that_is_done() {
        let workers = Workers::new(2);
        let mut first = workers.put(1).expect("none was there");
        assert_eq!(taken(next(&workers, &mut first)), Some((1, false)));
        let mut second = workers.put(2).expect("the first one is at work");
        assert_eq!(taken(next(&workers, &mut second)), Some((2, false)));
        assert!(workers.put(3).is_none() && workers.put(4).is_none(), "there are two");
        assert_eq!(taken(next(&workers, &mut second)), Some((3, false)));
        assert_eq!(taken(next(&workers, &mut second)), Some((4, false)));
        assert_eq!(taken(next(&workers, &mut second)), None);
        let over = |worker| workers.poll_next(worker, true, &Context::from_waker(Waker::noop()));
        assert!(matches!((over(&mut first), over(&mut second)), (Poll::Ready(None), Poll::Ready(None))));
        assert!(workers.put(5).is_some() && workers.workers.get() == 1, "those that ended make room");
    }

    /// Workers that were not started yet, and what has been done.
    struct Harness {
        workers: Workers<u32>,
        started: RefCell<Vec<Worker>>,
        begun: Cell<u32>,
        done: Cell<u32>,
        is_over: Cell<bool>,
        changed: Notify,
    }

    impl Harness {
        fn new(workers_max: usize) -> Harness {
            Harness {
                workers: Workers::new(workers_max),
                started: RefCell::default(),
                begun: Cell::new(0),
                done: Cell::new(0),
                is_over: Cell::new(false),
                changed: Notify::new(),
            }
        }

        fn start(&self, worker: Option<Worker>) {
            self.started.borrow_mut().extend(worker);
            self.changed.notify_all();
        }

        /// A task that is started as a worker once, or not at all.
        async fn work(self: Rc<Self>) {
            let started = || self.started.borrow_mut().pop().map(Some).or(self.is_over.get().then_some(None));
            let Some(mut worker) = self.changed.wait_for(started).await else { return };
            step();
            loop {
                let next = poll_fn(|context| self.workers.poll_next(&mut worker, self.is_over.get(), context));
                let Some((job, other)) = next.await else { return };
                step();
                self.start(other);
                self.begun.set(self.begun.get() + 1);
                self.changed.notify_all();
                // The first job of a round waits for the last one, which another worker must take.
                self.changed.wait_for(|| (self.begun.get() >= job).then_some(())).await;
                step();
                self.done.set(self.done.get() + 1);
                self.changed.notify_all();
            }
        }

        /// Submits jobs in rounds; a round starts when the one before is done.
        async fn give(self: Rc<Self>, rounds: &[u32]) {
            let mut jobs = 0;
            for count in rounds {
                jobs += count;
                for _ in 0..*count {
                    self.start(self.workers.put(jobs));
                }
                self.changed.wait_for(|| (self.done.get() == jobs).then_some(())).await;
                step();
            }
            self.is_over.set(true);
            self.workers.wake_idle();
            self.changed.notify_all();
        }
    }

    #[test]
    fn a_job_that_waits_for_another_never_keeps_it_from_a_worker_in_any_order() {
        for (rounds, spurious_max) in [(&[2][..], 2), (&[1, 1], 2), (&[1, 2], 0)] {
            let runs = explore(&format!("{rounds:?}"), Bounds { drops_max: 0, spurious_max }, || {
                let (harness, jobs) = (Rc::new(Harness::new(1000)), rounds.iter().sum());
                let mut tasks: Vec<Task> = vec![Box::pin(harness.clone().give(rounds))];
                tasks.extend((0..jobs).map(|_| Box::pin(harness.clone().work()) as Task));
                let at_end = Box::new(move || assert_eq!(harness.done.get(), jobs));
                Program { tasks, at_end }
            });
            println!("{rounds:?}: {runs} orders");
            assert!(runs > 100);
        }
    }
}
