//! A member of an array: a device of the host, or another array of this process.
//! Owns: [`ArrayMember`], which implements `Device`. Not here: the array that has such members (`array`), the implementation of
//! either kind, which array is whose member (`build`).
//! Invariant: a request to a member array runs to its end even if its future is dropped. If a write were dropped
//! half-way, no superblock would record which members have it.

use crate::array::HostArray;
use crate::recorder::Recorder;
use crate::world::ShardWorld;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::oneshot;
use uraid_block::{Allocation, Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, WritePieces};
use uraid_engine::World;
use uraid_host::{Member, Trace};

/// One shard of the host as the world of one array.
pub type HostWorld = ShardWorld<ArrayMember>;

/// A member as one shard drives it.
pub enum ArrayMember {
    /// A file, a block device, memory.
    Host(Member),
    /// An array of the level below, on the same shard.
    Array(InnerArray),
    /// Nothing: it only records.
    Recorder(Recorder),
}

/// A member array, and the shard that runs its work.
pub struct InnerArray {
    pub(crate) array: Rc<HostArray>,
    pub(crate) world: HostWorld,
}

/// The future of an array's request contains those of its members' requests. Members may be arrays, so it is boxed
/// here.
type Work<T> = Pin<Box<dyn Future<Output = Result<T, IoError>>>>;

impl InnerArray {
    async fn run<T: 'static>(&self, work: impl FnOnce(Rc<HostArray>) -> Work<T>) -> Result<T, IoError> {
        let (sender, receiver) = oneshot();
        let work = work(self.array.clone());
        self.world.spawn(async move { sender.send(work.await) });
        receiver.await.expect("a task ends with an answer while its shard runs")
    }
}

impl ArrayMember {
    /// The trace of this shard's requests to the member, if it is a device and the host keeps traces.
    pub(crate) fn trace(&self) -> Option<Rc<Trace>> {
        match self {
            ArrayMember::Host(member) => member.trace(),
            ArrayMember::Array(_) | ArrayMember::Recorder(_) => None,
        }
    }
}

impl Device for ArrayMember {
    fn geometry(&self) -> &Geometry {
        match self {
            ArrayMember::Host(member) => member.geometry(),
            ArrayMember::Array(inner) => inner.array.geometry(),
            ArrayMember::Recorder(recorder) => recorder.geometry(),
        }
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        match self {
            ArrayMember::Host(member) => member.read(at, into).await,
            ArrayMember::Recorder(recorder) => recorder.read(at, into).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.read(at, into).await })).await
            }
        }
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.write(at, from, fua).await,
            ArrayMember::Recorder(recorder) => recorder.write(at, from, fua).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.write(at, from, fua).await })).await
            }
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.flush().await,
            ArrayMember::Recorder(recorder) => recorder.flush().await,
            ArrayMember::Array(inner) => inner.run(|array| Box::pin(async move { array.flush().await })).await,
        }
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.discard(range).await,
            ArrayMember::Recorder(recorder) => recorder.discard(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.discard(range).await })).await
            }
        }
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.write_zeroes(range).await,
            ArrayMember::Recorder(recorder) => recorder.write_zeroes(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.write_zeroes(range).await })).await
            }
        }
    }

    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.punch_hole(range).await,
            ArrayMember::Recorder(recorder) => recorder.punch_hole(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.punch_hole(range).await })).await
            }
        }
    }

    fn mark_dead(&self) {
        match self {
            ArrayMember::Host(member) => member.mark_dead(),
            ArrayMember::Recorder(recorder) => recorder.mark_dead(),
            // The array ends its requests by itself, once it has failed those of its members that do not answer.
            ArrayMember::Array(_) => {}
        }
    }

    fn cut_reads(&self) {
        match self {
            ArrayMember::Host(member) => member.cut_reads(),
            ArrayMember::Recorder(recorder) => recorder.cut_reads(),
            // The array detects its slow members itself.
            ArrayMember::Array(_) => {}
        }
    }

    fn unanswered_for(&self) -> Duration {
        match self {
            ArrayMember::Host(member) => member.unanswered_for(),
            ArrayMember::Recorder(recorder) => recorder.unanswered_for(),
            // The member array reports its unanswered requests in its own `detail`.
            ArrayMember::Array(_) => Duration::ZERO,
        }
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        match self {
            ArrayMember::Host(member) => member.allocation(range).await,
            ArrayMember::Recorder(recorder) => recorder.allocation(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.allocation(range).await })).await
            }
        }
    }
}
