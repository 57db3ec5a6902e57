//! Arrays that are started for one offline task of this process, on one shard, without sockets.
//! Owns: what is said while they start, the end of a start by a signal. Not here: the task itself, the order of start,
//! task and stop (`uraid_arrays::run`), served arrays (`session`).
//! Invariant: every array that was started for writing is stopped before [`run`] returns, even on failure. If a resync
//! is interrupted, the array is left as a crash would leave it, and its next start continues.

use crate::progress::PassLines;
use crate::stack::{Assembled, Stack, StackError};
use std::future::{Future, pending};
use std::rc::Rc;
use uraid_arrays::{ArrayIndex, HostArray, OnShard, Setup, Stop};
use uraid_block::local::{Either, race};
use uraid_host::Local;

/// Starts the arrays of `stack`, runs `task` with them, in the order of the stack, and stops them. If read-only, no
/// byte of any member changes, and the outcome is the task's. Otherwise a dirty array is resynced before the task runs.
/// A signal ends the resync; the steps after it are short and run to their end.
pub(crate) fn run<T, F, Fut>(stack: &Stack, read_only: bool, task: F) -> Result<T, StackError>
where
    T: Send,
    F: Fn(Vec<Rc<HostArray>>, Local) -> Fut + Send + Sync,
    Fut: Future<Output = T>,
{
    let setup = Setup {
        arrays: stack.setups(read_only),
        shards: 1,
        options: stack.host_options(),
        // Read-only arrays need no stop. If one froze meanwhile, the task reports the error.
        stop: if read_only { Stop::Never } else { Stop::Always },
    };
    let values = uraid_arrays::run(
        &setup,
        async |on, index| start(stack, on, index, read_only).await,
        async |on| Ok(task(on.arrays.clone(), on.local.clone()).await),
        async |on, index| stop(stack, &on.arrays[index.0], index).await,
    );
    Ok(values?.pop().expect("one shard gives one value"))
}

async fn stop(stack: &Stack, array: &HostArray, index: ArrayIndex) -> Result<(), StackError> {
    let before = array.status();
    let stopped = array.stop().await;
    stopped.map_err(|error| stack.stop_error(index, &before, &array.status(), error))
}

async fn start(stack: &Stack, on: &OnShard, index: ArrayIndex, read_only: bool) -> Result<(), StackError> {
    // A read-only task handles signals itself. A signal that came during an earlier start is still there.
    let signal = (!read_only).then(|| on.local.terminated());
    let told_to_end = async {
        match signal {
            Some(signal) => drop(signal.await),
            None => pending().await,
        }
    };
    let array = &on.arrays[index.0];
    let Assembled { name, .. } = &stack.array(index);
    let mut line = PassLines::new(&format!("{name}: "));
    let mut last = None;
    let start = uraid_arrays::start_and_wait(array, |progress| {
        line.show(&progress);
        last = Some(progress);
    });
    let failed = |source| stack.start_error(index, &array.status(), source);
    let outcome = match race(told_to_end, start).await {
        Either::Left(()) => Err(StackError::Interrupted { array: name.clone() }),
        Either::Right(outcome) => outcome.map_err(failed),
    };
    match (&outcome, last) {
        (Ok(()), Some(last)) => line.finish(&last),
        (Ok(()) | Err(_), _) => line.interrupted(),
    }
    outcome
}
