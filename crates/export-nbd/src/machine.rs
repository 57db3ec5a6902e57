//! The server's interface to the machine, small enough for tests to implement.
//! Owns: [`Machine`], [`Transport`] and their implementation on the host. Not here: any protocol.
//! Invariant: shutting a transport down ends every waiting receive and send.

use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;
use uraid_block::{Arena, Lease, ReadPieces, Tick, WritePieces};
use uraid_host::{CLIENT_ARENA, Local, NetError, Peer, Stream};

/// One connection's bytes. One receive and one send may run at the same time.
#[allow(async_fn_in_trait, reason = "static dispatch only; futures stay on their shard, so no Send bound is wanted")]
pub trait Transport: 'static {
    /// Receives what there is, at least one byte, at most the lease's length. 0: the peer has closed.
    async fn recv(&self, into: Lease) -> Result<(Lease, usize), NetError>;
    /// Receives until the buffers are full; an error when the peer closes before.
    async fn recv_all(&self, into: ReadPieces) -> Result<ReadPieces, NetError>;
    /// Sends all of the bytes.
    async fn send(&self, from: WritePieces) -> Result<(), NetError>;
    /// Receives what there is now; `None` when there is nothing yet. 0: the peer has closed.
    fn try_recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, NetError>;
    /// Sends as much as possible without blocking, from the front; returns how many bytes, possibly 0.
    fn try_send(&self, from: &[IoSlice<'_>]) -> Result<usize, NetError>;
    /// The identity of the peer.
    fn peer(&self) -> Peer;
    /// Whether the peer has closed, or the connection broke; what the peer sent before may still be unread.
    fn is_hung_up(&self) -> bool;
    /// Bytes that were sent and that the peer has not received, if the system can tell.
    fn unsent(&self) -> usize;
    /// Ends the connection in both directions: waiting operations end.
    fn shutdown(&self);
}

/// The shard that a server runs on. Clones are handles of the same one.
pub trait Machine: Clone + 'static {
    /// The monotonic clock.
    fn now(&self) -> Tick;
    /// Ends after `time` has passed.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()>;
    /// Starts a task on this shard.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
    /// The arena for the clients' data.
    fn arena(&self) -> &Arena;
}

impl Transport for Stream {
    async fn recv(&self, into: Lease) -> Result<(Lease, usize), NetError> {
        Stream::recv(self, into).await
    }
    async fn recv_all(&self, into: ReadPieces) -> Result<ReadPieces, NetError> {
        Stream::recv_all(self, into).await
    }
    async fn send(&self, from: WritePieces) -> Result<(), NetError> {
        Stream::send(self, from).await
    }
    fn try_recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, NetError> {
        Stream::try_recv(self, into)
    }
    fn try_send(&self, from: &[IoSlice<'_>]) -> Result<usize, NetError> {
        Stream::try_send(self, from)
    }
    fn peer(&self) -> Peer {
        Stream::peer(self)
    }
    fn is_hung_up(&self) -> bool {
        Stream::is_hung_up(self)
    }
    fn unsent(&self) -> usize {
        Stream::unsent(self)
    }
    fn shutdown(&self) {
        Stream::shutdown(self);
    }
}

impl Machine for Local {
    fn now(&self) -> Tick {
        Local::now(self)
    }
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        Local::sleep(self, time)
    }
    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        Local::spawn(self, task);
    }
    fn arena(&self) -> &Arena {
        Local::arena(self, CLIENT_ARENA)
    }
}
