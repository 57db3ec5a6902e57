//! Arrays started for one task of this process, on one shard, without sockets.
//! Owns: starting them in order, the task, stopping them in reverse. Not here: the task, and arrays that are served
//! (`session`). Invariant: what was started to be written is stopped before [`run`] returns, however the task ended.

use crate::progress::ProgressLine;
use crate::stack::{Assembled, Stack, StackError};
use crate::world::{HostArray, Letter};
use std::future::{Future, pending};
use std::pin::pin;
use std::rc::Rc;
use uraid_block::local::{Either, race};
use uraid_host::{Local, Shard};

/// Starts the arrays of `stack`, runs `task` with them, in the order of the stack, and stops them. Read-only changes no
/// byte of any member, and the outcome is the task's. Else an array that is dirty is made consistent first, as when it
/// is served; a signal ends that, and what comes after it is short and runs to its end.
pub fn run<T, F, Fut>(stack: &Stack, read_only: bool, task: F) -> Result<T, StackError>
where
    T: Send,
    F: Fn(Vec<Rc<HostArray>>, Local) -> Fut + Send + Sync,
    Fut: Future<Output = T>,
{
    let options = stack.host_options();
    let main = |shard: Shard<Letter>| {
        let arrays = stack.build(&shard, &options, read_only);
        let task = &task;
        async move {
            let mailed = arrays.clone();
            shard.on_mail(move |letter| {
                let (array, mail) = letter.unserved();
                mailed[array.0].deliver(mail);
            });
            // A task that only reads hears signals itself.
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
            // Read-only there is nothing to bring to an end, and an array that froze meanwhile is the task's to speak of.
            let to_stop = if read_only { 0 } else { started };
            for index in (0..to_stop).rev() {
                let stopped = arrays[index].stop().await;
                let named = |source| StackError::Stop { array: stack.arrays[index].name.clone(), source };
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
    // Not by the array's `stop`: what the resync has not reached must stay marked dirty.
    let outcome = match plan.is_dirty {
        true => match race(told_to_end, start).await {
            Either::Left(()) => Err(StackError::Interrupted { array: name.clone() }),
            Either::Right(outcome) => outcome.map_err(|source| StackError::Start { array: name.clone(), source }),
        },
        false => start.await.map_err(|source| StackError::Start { array: name.clone(), source }),
    };
    match (&outcome, last) {
        (Ok(()), Some(last)) => line.finish(&last),
        (Ok(()) | Err(_), _) => line.interrupted(),
    }
    outcome
}
