//! Runs a task that uses arrays: starts the arrays before it, and stops them after it.
//! Owns: [`run`], [`OnShard`], [`start_and_wait`], [`wait`], the order of start, task, stop and end over all shards.
//! Not here: arrays that clients reach, whose shards send each other more than the engine's mail.
//! Invariant: an array is stopped only when no shard uses it any more, and only after the arrays that are made of it.
//! No shard ends before the last stop.

use crate::array::HostArray;
use crate::barrier::Barrier;
use crate::build::{ArraySetup, build_traced};
use crate::world::{ArrayIndex, ArrayMail};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use uraid_engine::{PassError, Progress, StartError};
use uraid_host::{Local, Options, Shard, Trace};

/// Arrays to run.
pub struct Setup<'a> {
    /// Member arrays before those that are made of them.
    pub arrays: Vec<ArraySetup<'a>>,
    /// Threads.
    pub shards: u16,
    /// How the machine is set up.
    pub options: Options,
    /// Which arrays are stopped in the end.
    pub stop: Stop,
}

/// Whether `run` stops the arrays that it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Also after a failure.
    Always,
    /// Unless a start or a task failed.
    AfterSuccess,
    /// Never: an array that was written stays marked dirty.
    Never,
}

/// Starts an array and waits until it is consistent, for tasks that need a consistent array. `show` is called now and
/// then with the progress of its resync. Shard 0 only.
pub async fn start_and_wait(array: &HostArray, mut show: impl FnMut(Progress)) -> Result<(), StartError> {
    array.start().await?;
    wait(array, &mut show).await
}

/// Waits until the array has no pass left. Shard 0 only.
pub async fn wait(array: &HostArray, show: &mut dyn FnMut(Progress)) -> Result<(), StartError> {
    match array.wait(show).await {
        Ok(_) => Ok(()),
        Err(PassError::Stopped) => Err(StartError::Stopping),
        Err(PassError::Frozen(error)) => Err(StartError::Frozen(error)),
    }
}

/// What a task has on each shard.
pub struct OnShard {
    /// The shard.
    pub local: Local,
    /// By [`ArrayIndex`].
    pub arrays: Vec<Rc<HostArray>>,
    /// The traces of those members of each array that are devices, if [`Options::trace`] is set.
    pub traces: Vec<Vec<Rc<Trace>>>,
    barrier: Arc<Barrier>,
}

impl OnShard {
    /// Whether this is shard 0, on which arrays are started and stopped.
    pub fn is_first(&self) -> bool {
        self.local.index().0 == 0
    }

    /// Waits until the tasks of all shards have called this. False: one of them has failed.
    pub async fn wait_for_others(&self) -> bool {
        self.barrier.wait(&self.local).await
    }
}

/// Builds the arrays on every shard, calls `start` for each of them in order and on shard 0, then `task` on every shard,
/// and `stop` in reverse order on shard 0 when all tasks have ended. Returns the values of the tasks in the order of the
/// shards, or the first shard's error. If a start fails, no task runs.
pub fn run<T: Send, E: Send>(
    setup: &Setup<'_>,
    start: impl AsyncFn(&OnShard, ArrayIndex) -> Result<(), E> + Send + Sync,
    task: impl AsyncFn(&OnShard) -> Result<T, E> + Send + Sync,
    stop: impl AsyncFn(&OnShard, ArrayIndex) -> Result<(), E> + Send + Sync,
) -> Result<Vec<T>, E> {
    let outcomes = (0..setup.shards).map(|_| Mutex::new(Ok(None))).collect();
    let steps = TypedSteps { start, task, stop, outcomes };
    run_steps(setup, &steps);
    let outcomes = steps.outcomes.into_iter().map(|outcome| outcome.into_inner().expect("a panic aborts"));
    let values = outcomes.collect::<Result<Vec<Option<T>>, E>>()?;
    Ok(values.into_iter().map(|value| value.expect("every task runs if no start fails")).collect())
}

/// A step's future: whether the step succeeded.
type Step<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// The caller's steps without their types: what runs them is compiled once, in this crate.
trait Steps: Sync {
    fn start<'a>(&'a self, on: &'a OnShard, index: ArrayIndex) -> Step<'a>;
    fn task<'a>(&'a self, on: &'a OnShard) -> Step<'a>;
    fn stop<'a>(&'a self, on: &'a OnShard, index: ArrayIndex) -> Step<'a>;
}

struct TypedSteps<T, E, Start, Task, Stop> {
    start: Start,
    task: Task,
    stop: Stop,
    /// Of each shard: its task's value, or the first error. `None`: the task did not run.
    outcomes: Vec<Mutex<Result<Option<T>, E>>>,
}

impl<T, E, Start, Task, Stop> TypedSteps<T, E, Start, Task, Stop> {
    /// Keeps a step's outcome unless an earlier step of this shard has failed.
    fn keep(&self, on: &OnShard, outcome: Result<Option<T>, E>) -> bool {
        let succeeded = outcome.is_ok();
        let mut kept = self.outcomes[usize::from(on.local.index().0)].lock().expect("a panic aborts");
        match (&*kept, &outcome) {
            (Err(_), _) | (Ok(_), Ok(None)) => (),
            (Ok(_), Ok(Some(_)) | Err(_)) => *kept = outcome,
        }
        succeeded
    }
}

impl<T, E, Start, Task, Stop> Steps for TypedSteps<T, E, Start, Task, Stop>
where
    T: Send,
    E: Send,
    Start: AsyncFn(&OnShard, ArrayIndex) -> Result<(), E> + Send + Sync,
    Task: AsyncFn(&OnShard) -> Result<T, E> + Send + Sync,
    Stop: AsyncFn(&OnShard, ArrayIndex) -> Result<(), E> + Send + Sync,
{
    fn start<'a>(&'a self, on: &'a OnShard, index: ArrayIndex) -> Step<'a> {
        Box::pin(async move { self.keep(on, (self.start)(on, index).await.map(|()| None)) })
    }

    fn task<'a>(&'a self, on: &'a OnShard) -> Step<'a> {
        Box::pin(async move { self.keep(on, (self.task)(on).await.map(Some)) })
    }

    fn stop<'a>(&'a self, on: &'a OnShard, index: ArrayIndex) -> Step<'a> {
        Box::pin(async move { self.keep(on, (self.stop)(on, index).await.map(|()| None)) })
    }
}

#[inline(never)]
fn run_steps(setup: &Setup<'_>, steps: &dyn Steps) {
    let barrier = Arc::new(Barrier::default());
    uraid_host::run(setup.shards, &setup.options, |shard: Shard<ArrayMail>| {
        let on = on_shard(setup, &shard, &barrier);
        async move { run_shard(setup, &on, steps).await }
    });
}

fn on_shard(setup: &Setup<'_>, shard: &Shard<ArrayMail>, barrier: &Arc<Barrier>) -> OnShard {
    let built = build_traced(shard, &setup.arrays, &setup.options).into_iter();
    let (arrays, traces): (Vec<_>, Vec<_>) = built.map(|built| (built.array, built.traces)).unzip();
    let mailed = arrays.clone();
    shard.on_mail(move |ArrayMail { array, mail }| mailed[array.0].deliver(mail));
    OnShard { local: (**shard).clone(), arrays, traces, barrier: barrier.clone() }
}

async fn run_shard(setup: &Setup<'_>, on: &OnShard, steps: &dyn Steps) {
    let barrier = &on.barrier;
    let mut started = 0;
    let mut is_well = true;
    while on.is_first() && started < on.arrays.len() && is_well {
        is_well = steps.start(on, ArrayIndex(started)).await;
        started += usize::from(is_well);
    }
    if !is_well {
        barrier.give_up();
    }
    if barrier.wait(&on.local).await && !steps.task(on).await {
        barrier.give_up();
    }
    // The tasks of other shards may still use the arrays.
    barrier.wait_for_all(&on.local).await;
    let is_stopped = match setup.stop {
        Stop::Always => true,
        Stop::AfterSuccess => !barrier.is_given_up(),
        Stop::Never => false,
    };
    if is_stopped {
        for index in (0..started).rev() {
            steps.stop(on, ArrayIndex(index)).await;
        }
    }
    // All shards carry the mail of a stop.
    barrier.wait_for_all(&on.local).await;
}
