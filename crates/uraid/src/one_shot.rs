//! Arrays that are started for one offline task of this process, on one shard, without sockets.
//! Owns: starting them in order, the task, stopping them in reverse. Not here: the task itself, served arrays
//! (`session`). Invariant: every array that was started for writing is stopped before [`run`] returns, even on failure.

use crate::progress::ProgressLine;
use crate::stack::{Assembled, Stack, StackError};
use crate::world::{ArrayIndex, HostArray, Message};
use std::future::{Future, pending};
use std::pin::pin;
use std::rc::Rc;
use uraid_block::local::{Either, race};
use uraid_host::{Local, Shard};

/// Starts the arrays of `stack`, runs `task` with them, in the order of the stack, and stops them. If read-only, no
/// byte of any member changes, and the outcome is the task's. Otherwise a dirty array is resynced first, as when it is
/// served. A signal ends the resync; the steps after it are short and run to their end.
pub fn run<T, F, Fut>(stack: &Stack, read_only: bool, task: F) -> Result<T, StackError>
where
    T: Send,
    F: Fn(Vec<Rc<HostArray>>, Local) -> Fut + Send + Sync,
    Fut: Future<Output = T>,
{
    let options = stack.host_options();
    let main = |shard: Shard<Message>| {
        let arrays = stack.build(&shard, &options, read_only);
        let task = &task;
        async move {
            let mailed = arrays.clone();
            shard.on_mail(move |message| {
                let (array, mail) = message.unserved();
                mailed[array.0].deliver(mail);
            });
            // A read-only task handles signals itself.
            let signal = (!read_only).then(|| shard.terminated());
            let mut told_to_end = pin!(async move {
                match signal {
                    Some(signal) => drop(signal.await),
                    None => pending().await,
                }
            });
            let mut started = 0;
            let mut outcome = Ok(());
            while started < arrays.len() && outcome.is_ok() {
                outcome = start(stack, &arrays, started, told_to_end.as_mut()).await;
                started += usize::from(outcome.is_ok());
            }
            let value = match &outcome {
                Ok(()) => Some(task(arrays.clone(), (*shard).clone()).await),
                Err(_) => None,
            };
            // Read-only arrays need no stop. If one froze meanwhile, the task reports it.
            let to_stop = if read_only { 0 } else { started };
            for index in (0..to_stop).rev() {
                let before = arrays[index].status();
                let stopped = arrays[index].stop().await;
                let named = |error| stack.stop_error(ArrayIndex(index), &before, &arrays[index].status(), error);
                outcome = outcome.and(stopped.map_err(named));
            }
            outcome.map(|()| value.expect("the task ran when all was started"))
        }
    };
    uraid_host::run(1, &options, main).pop().expect("one shard gives one value")
}

async fn start(
    stack: &Stack,
    arrays: &[Rc<HostArray>],
    index: usize,
    told_to_end: impl Future<Output = ()>,
) -> Result<(), StackError> {
    let Assembled { name, plan, .. } = &stack.arrays[index];
    let mut line = ProgressLine::new(&format!("{name}: resync"));
    let mut last = None;
    let start = arrays[index].start(|progress| {
        line.show(progress.done, progress.total);
        last = Some(progress);
    });
    let failed = |source| stack.start_error(ArrayIndex(index), &arrays[index].status(), source);
    // Do not call `stop`: what the resync has not reached must stay marked dirty.
    let outcome = match plan.is_dirty {
        true => match race(told_to_end, start).await {
            Either::Left(()) => Err(StackError::Interrupted { array: name.clone() }),
            Either::Right(outcome) => outcome.map_err(failed),
        },
        false => start.await.map_err(failed),
    };
    match (&outcome, last) {
        (Ok(()), Some(last)) => line.finish(&last),
        (Ok(()) | Err(_), _) => line.interrupted(),
    }
    outcome
}
