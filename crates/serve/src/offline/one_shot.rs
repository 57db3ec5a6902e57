//! Arrays that are started for one offline task of this process, on one shard, without sockets.
//! Owns: what a task has of them, what is said while they start, the end of a start by a signal. Not here: the task
//! itself, the order of start, task and stop (`uraid_arrays::run`), served arrays (`session`).
//! Invariant: every array that was started for writing is stopped before [`run`] returns, even on failure. If a resync
//! is interrupted, the array is left as a crash would leave it, and its next start continues.
//!
//! A task may be of another crate: it borrows the arrays, so that not even their end is compiled there.

use crate::lines::progress::PassLines;
use crate::stack::{Assembled, AssembledStack, StackError};
use std::future::{Future, pending};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Mutex;
use uraid_arrays::{ArrayIndex, HostArray, OnShard, Setup, Stop};
use uraid_block::local::{Either, race};
use uraid_block::{Device, Fua, Geometry, IoError, SECTOR_BYTES, Sector};
use uraid_host::{CLIENT_ARENA, Local};

/// The answer to a request.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, IoError>> + 'a>>;

/// What a task has: the arrays, and the shard that they run on. One request at a time has its buffers.
pub struct Arrays {
    /// By [`ArrayIndex`].
    pub(crate) arrays: Vec<Rc<HostArray>>,
    pub(crate) local: Local,
}

impl Arrays {
    /// The shard.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// In the order of the stack.
    pub fn indexes(&self) -> impl Iterator<Item = ArrayIndex> + use<> {
        (0..self.arrays.len()).map(ArrayIndex)
    }

    /// The geometry of one of them.
    #[inline(never)]
    pub fn geometry(&self, index: ArrayIndex) -> Geometry {
        self.arrays[index.0].geometry()
    }

    /// Bytes of an array, a whole number of sectors.
    #[inline(never)]
    pub fn read(&self, index: ArrayIndex, at: Sector, bytes: usize) -> Answer<'_, Vec<u8>> {
        Box::pin(async move {
            assert!(bytes.is_multiple_of(SECTOR_BYTES));
            let buffers = self.local.arena(CLIENT_ARENA).take(bytes).expect("no other request has buffers");
            Ok(self.arrays[index.0].read(at, buffers).await?.to_vec())
        })
    }

    /// Writes these bytes, a whole number of sectors.
    #[inline(never)]
    pub fn write<'a>(&'a self, index: ArrayIndex, at: Sector, bytes: &'a [u8]) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut buffers = self.local.arena(CLIENT_ARENA).take(bytes.len()).expect("no other request has buffers");
            buffers.copy_from(bytes);
            self.arrays[index.0].write(at, buffers.freeze(), Fua::No).await
        })
    }

    /// Makes all that was written durable.
    #[inline(never)]
    pub fn flush(&self, index: ArrayIndex) -> Answer<'_, ()> {
        Box::pin(self.arrays[index.0].flush())
    }
}

/// Starts the arrays of `stack`, runs `task` with them, in the order of the stack, and stops them. If read-only, no
/// byte of any member changes, and the outcome is the task's. Otherwise a dirty array is resynced before the task runs.
/// A signal ends the resync; the steps after it are short and run to their end.
pub fn run<T: Send>(
    stack: &AssembledStack,
    read_only: bool,
    task: impl AsyncFn(&Arrays) -> T + Send + Sync,
) -> Result<T, StackError> {
    let task = TypedTask { task, value: Mutex::new(None) };
    run_task(stack, read_only, &task)?;
    Ok(task.value.into_inner().expect("a panic aborts").expect("one shard gives one value"))
}

/// The caller's task without its types: what runs it is compiled once, in this crate.
trait Task: Sync {
    fn run<'a>(&'a self, arrays: &'a Arrays) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
}

struct TypedTask<T, F> {
    task: F,
    value: Mutex<Option<T>>,
}

impl<T: Send, F: AsyncFn(&Arrays) -> T + Send + Sync> Task for TypedTask<T, F> {
    fn run<'a>(&'a self, arrays: &'a Arrays) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async move {
            let value = (self.task)(arrays).await;
            *self.value.lock().expect("a panic aborts") = Some(value);
        })
    }
}

#[inline(never)]
fn run_task(stack: &AssembledStack, read_only: bool, task: &dyn Task) -> Result<(), StackError> {
    let setup = Setup {
        arrays: stack.setups(read_only),
        shards: 1,
        options: stack.host_options(),
        // Read-only arrays need no stop. If one froze meanwhile, the task reports the error.
        stop: if read_only { Stop::Never } else { Stop::Always },
    };
    uraid_arrays::run(
        &setup,
        async |on, index| start(stack, on, index, read_only).await,
        async |on| {
            task.run(&Arrays { arrays: on.arrays.clone(), local: on.local.clone() }).await;
            Ok(())
        },
        async |on, index| stop(stack, &on.arrays[index.0], index).await,
    )?;
    Ok(())
}

async fn stop(stack: &AssembledStack, array: &HostArray, index: ArrayIndex) -> Result<(), StackError> {
    let before = array.status();
    let stopped = array.stop().await;
    stopped.map_err(|error| stack.stop_error(index, &before, &array.status(), error))
}

async fn start(stack: &AssembledStack, on: &OnShard, index: ArrayIndex, read_only: bool) -> Result<(), StackError> {
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
