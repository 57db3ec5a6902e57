//! The array that is looked at, and its bytes.
//! Owns: [`Source`]: a running array by its export, one that does not run by its members, read-only. Not here: what is
//! read (the parent).
//! Invariant: an array that does not run is started read-only, for as long as it is read.

use super::args::DoctorArgs;
use super::{DoctorError, Read};
use crate::running::detail;
use std::io;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::Duration;
use uraid_arrays::ArrayIndex;
use uraid_bench::nbd::{NbdError, Reader};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_control::client;
use uraid_control::report::Report;
use uraid_engine::AssembleOptions;
use uraid_host::{Access, Local};
use uraid_layout::Layout;
use uraid_serve::one_shot::{self, Arrays};
use uraid_serve::opening::{self, ServeError, Timeouts};
use uraid_serve::stack::AssembledStack;

/// How often the array's shard looks for the next read.
const LOOK_AGAIN_AFTER: Duration = Duration::from_micros(200);
/// The largest read of the array at once.
const READ_MAX: usize = 64 << 10;

/// An array.
pub(super) struct Source {
    pub report: Report,
    pub layout: Layout,
    /// Of an array that does not run.
    members: Option<Vec<String>>,
}

impl Source {
    /// The array that these words name, running or not.
    pub(super) fn find(args: &DoctorArgs) -> Result<Source, DoctorError> {
        let named = &args.named[..];
        let (report, members) = match client::find(named.first().map(String::as_str), args.control.as_deref()) {
            Ok(mut client) => {
                let report = client.status()?;
                client::check_words(&report, named)?;
                (report, None)
            }
            Err(error) if error.leaves_members() && detail::are_members(named) => {
                (detail::report_of_members(named)?, Some(named.to_vec()))
            }
            Err(error) => return Err(error.into()),
        };
        Source::of(report, members)
    }

    /// The running array of this report.
    pub(super) fn of_running(report: Report) -> Result<Source, DoctorError> {
        Source::of(report, None)
    }

    fn of(report: Report, members: Option<Vec<String>>) -> Result<Source, DoctorError> {
        let layout = detail::layout_of(&report)?;
        Ok(Source { report, layout, members })
    }

    /// Calls `look` with a way to read the array.
    pub(super) fn read<T: Send>(&self, look: impl FnOnce(&mut Read<'_>) -> T + Send) -> Result<T, DoctorError> {
        match &self.members {
            None => {
                let array = self.report.name.clone();
                let uri = self.report.server.as_ref().and_then(|server| server.uris.first().cloned());
                let uri = uri.ok_or_else(|| DoctorError::NoExport { array: array.clone() })?;
                let failed = |source: NbdError| DoctorError::Nbd { array, source };
                let mut reader = Reader::open(&uri).map_err(failed)?;
                Ok(look(&mut |at, into| reader.read_at(at, into).map_err(io::Error::other)))
            }
            Some(members) => read_stopped(members, look),
        }
    }
}

/// One read: where, how long, and where the bytes go.
type Job = (u64, usize, Sender<io::Result<Vec<u8>>>);

/// Starts the array in this thread, and looks at it in another one.
fn read_stopped<T: Send>(members: &[String], look: impl FnOnce(&mut Read<'_>) -> T + Send) -> Result<T, DoctorError> {
    let options = AssembleOptions { force: false, run: true, read_only: true };
    let opened = opening::open(members, Access::ReadOnly, &Timeouts::begin())?;
    let stack = AssembledStack::new(vec![opened.assemble(&options).map_err(ServeError::from)?], false);
    let (jobs, queue) = channel::<Job>();
    // The only shard takes this. It is a mutex because the closure must be shareable between threads.
    let queue = Mutex::new(Some(queue));
    std::thread::scope(|scope| {
        let looked = Builder::new().spawn_scoped(scope, move || {
            look(&mut |at, into| {
                let (answer, answered) = channel();
                let ended = || io::Error::other("the array has ended");
                jobs.send((at, into.len(), answer)).map_err(|_| ended())?;
                into.copy_from_slice(&answered.recv().map_err(|_| ended())??);
                Ok(())
            })
        });
        let looked = looked.map_err(DoctorError::Thread)?;
        let outcome = one_shot::run(&stack, true, async |arrays| {
            let queue = queue.lock().ok().and_then(|mut queue| queue.take()).expect("one shard takes it once");
            while let Some((at, bytes, answer)) = next(&queue, arrays.local()).await {
                let read = read_bytes(arrays, at, bytes).await;
                // The looker waits for it, unless it has panicked.
                let _ = answer.send(read);
            }
        });
        // If the array did not start, its queue is dropped, and the looker's reads fail.
        drop(queue);
        let looked = looked.join().unwrap_or_else(|panic| resume_unwind(panic));
        outcome?;
        Ok(looked)
    })
}

/// The next read; `None`: the looker has ended.
async fn next(queue: &Receiver<Job>, local: &Local) -> Option<Job> {
    loop {
        match queue.try_recv() {
            Ok(job) => return Some(job),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => local.sleep(LOOK_AGAIN_AFTER).await,
        }
    }
}

/// Reads bytes of the only array that need not be whole blocks.
async fn read_bytes(arrays: &Arrays, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let array = ArrayIndex(0);
    let block = arrays.geometry(array).logical_block.max(Sectors(8)).bytes();
    let size = arrays.geometry(array).size.bytes();
    let start = at - at % block;
    let end = (at + bytes as u64).next_multiple_of(block).min(size);
    let mut all = Vec::with_capacity((end - start) as usize);
    while (all.len() as u64) < end - start {
        let from = start + all.len() as u64;
        let length = READ_MAX.min((end - from) as usize);
        let read = arrays.read(array, Sector(from / SECTOR_BYTES as u64), length).await;
        all.extend(read.map_err(|error| io::Error::other(error.to_string()))?);
    }
    Ok(all[(at - start) as usize..][..bytes].to_vec())
}
