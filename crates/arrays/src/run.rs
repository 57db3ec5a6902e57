//! Runs a task that uses arrays: starts the arrays before it, and stops them after it.
//! Owns: [`run`], [`OnShard`], [`start_and_wait`], [`wait`], the order of start, task, stop and end over all shards.
//! Not here: arrays that clients reach, whose shards send each other more than the engine's mail.
//! Invariant: an array is stopped only when no shard uses it any more, and only after the arrays that are made of it.
//! No shard ends before the last stop.

use crate::array::HostArray;
use crate::barrier::Barrier;
use crate::build::{ArraySetup, build_traced};
use crate::world::{ArrayIndex, ArrayMail};
use std::rc::Rc;
use std::sync::Arc;
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
    let barrier = Arc::new(Barrier::default());
    let outcomes = uraid_host::run(setup.shards, &setup.options, |shard: Shard<ArrayMail>| {
        let on = on_shard(setup, &shard, &barrier);
        let (start, task, stop) = (&start, &task, &stop);
        async move { run_shard(setup, &on, start, task, stop).await }
    });
    let values = outcomes.into_iter().collect::<Result<Vec<Option<T>>, E>>()?;
    Ok(values.into_iter().map(|value| value.expect("every task runs if no start fails")).collect())
}

fn on_shard(setup: &Setup<'_>, shard: &Shard<ArrayMail>, barrier: &Arc<Barrier>) -> OnShard {
    let built = build_traced(shard, &setup.arrays, &setup.options).into_iter();
    let (arrays, traces): (Vec<_>, Vec<_>) = built.map(|built| (built.array, built.traces)).unzip();
    let mailed = arrays.clone();
    shard.on_mail(move |ArrayMail { array, mail }| mailed[array.0].deliver(mail));
    OnShard { local: (**shard).clone(), arrays, traces, barrier: barrier.clone() }
}

/// `None`: the task was not run, because a start on shard 0 has failed.
async fn run_shard<T, E>(
    setup: &Setup<'_>,
    on: &OnShard,
    start: &impl AsyncFn(&OnShard, ArrayIndex) -> Result<(), E>,
    task: &impl AsyncFn(&OnShard) -> Result<T, E>,
    stop: &impl AsyncFn(&OnShard, ArrayIndex) -> Result<(), E>,
) -> Result<Option<T>, E> {
    let barrier = &on.barrier;
    let mut started = 0;
    let mut outcome = Ok(None);
    while on.is_first() && started < on.arrays.len() && outcome.is_ok() {
        match start(on, ArrayIndex(started)).await {
            Ok(()) => started += 1,
            Err(error) => outcome = Err(error),
        }
    }
    if outcome.is_err() {
        barrier.give_up();
    }
    if barrier.wait(&on.local).await {
        outcome = task(on).await.map(Some);
        if outcome.is_err() {
            barrier.give_up();
        }
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
            let stopped = stop(on, ArrayIndex(index)).await;
            outcome = outcome.and_then(|value| stopped.map(|()| value));
        }
    }
    // All shards carry the mail of a stop.
    barrier.wait_for_all(&on.local).await;
    outcome
}
