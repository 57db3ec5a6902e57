//! Unix and TCP sockets on the shard's ring.
//! Owns: [`Listener`], [`Stream`]. Not here: any protocol.
//! Invariant: a broken connection is an error value, never a signal.

use crate::shard::Local;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use uraid_block::{Lease, WritePieces};

/// Why a socket operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetError {
    /// The other side went away.
    #[error("the peer closed the connection")]
    Closed,
    /// A live server listens on this unix socket.
    #[error("{}: socket in use by a running server", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is no socket stands where the socket should be.
    #[error("{}: exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// What the system said.
    #[error("{call} failed with errno {os}")]
    Os {
        /// Which call.
        call: &'static str,
        /// Its errno.
        os: i32,
    },
}

/// A listening socket. Clones are handles of the same one; several shards may accept from it.
#[derive(Clone)]
pub struct Listener(std::sync::Arc<()>);

impl Listener {
    /// Listens on a unix socket that gets this mode (0o600). A stale socket is removed; the file is removed with
    /// the last handle.
    pub fn unix(path: &Path, mode: u32) -> Result<Listener, NetError> {
        let _ = (path, mode);
        panic!("not built yet")
    }
    /// Listens on a TCP address.
    pub fn tcp(address: SocketAddr) -> Result<Listener, NetError> {
        let _ = address;
        panic!("not built yet")
    }
    /// The address, of a TCP listener: tells which port the system chose for port 0.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        panic!("not built yet")
    }
    /// Waits for a client. `&Shard<M>` will do for the shard.
    pub async fn accept(&self, shard: &Local) -> Result<Stream, NetError> {
        let _ = shard;
        panic!("not built yet")
    }
}

/// A connection on one shard. Receiving and sending may go on at the same time; of each, one at a time.
pub struct Stream(());

impl Stream {
    /// Receives what there is, at least one byte, at most the lease's length. 0: the peer has closed.
    pub async fn recv(&self, into: Lease) -> Result<(Lease, usize), NetError> {
        let _ = into;
        panic!("not built yet")
    }
    /// Sends all of the bytes.
    pub async fn send(&self, from: WritePieces) -> Result<(), NetError> {
        let _ = from;
        panic!("not built yet")
    }
    /// Ends the connection in both directions: waiting operations end.
    pub fn shutdown(&self) {
        panic!("not built yet")
    }
    /// The socket without its shard, to hand it to another one.
    pub fn into_raw(self) -> OwnedFd {
        panic!("not built yet")
    }
    /// A socket as a stream of this shard.
    pub fn from_raw(shard: &Local, socket: OwnedFd) -> Stream {
        let _ = (shard, socket);
        panic!("not built yet")
    }
    /// Connects to a unix socket, blocking for the moment that takes.
    pub fn connect_unix(shard: &Local, path: &Path) -> Result<Stream, NetError> {
        let _ = (shard, path);
        panic!("not built yet")
    }
    /// Connects to a TCP address, blocking.
    pub fn connect_tcp(shard: &Local, address: SocketAddr) -> Result<Stream, NetError> {
        let _ = (shard, address);
        panic!("not built yet")
    }
}
