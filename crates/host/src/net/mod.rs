//! Unix and TCP sockets on the shard's ring.
//! Owns: [`Listener`], [`Stream`]. Not here: any protocol; socket options and the identity of peers (`options`).
//! Invariant: a broken connection is an error value, never a signal.

mod options;

use crate::ring::{Buffers, Driver, Holder, Kind, SEGMENTS_MAX, cut};
use crate::shard::Local;
use crate::sys::{self, Errno};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use uraid_block::{Lease, ReadPieces, WritePieces};

pub use options::{Peer, PeerProcess};

/// The longest path of a unix socket in bytes: the system's field without its terminating zero.
const PATH_BYTES_MAX: usize = 107;
/// The send buffer of a unix socket. Several large replies fit, so one can be prepared while the client receives
/// another.
const UNIX_SEND_BYTES: libc::c_int = 512 << 10;
/// How often to try if other processes create and remove the socket at the same time.
const BIND_ATTEMPTS: u32 = 8;

/// Why a socket operation failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetError {
    /// The peer has closed the connection, or this side has shut it down.
    #[error("the connection is closed")]
    Closed,
    /// A live server listens on this unix socket.
    #[error("{}: socket in use by a running server", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The path of a unix socket is longer than the system takes.
    #[error("{}: path of {found} bytes, a socket's has at most {max}", path.display())]
    PathTooLong {
        /// The path given.
        path: PathBuf,
        /// Its length in bytes.
        found: usize,
        /// The system's limit.
        max: usize,
    },
    /// A file that is not a socket is at the socket's path.
    #[error("{}: exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The directory does not accept a new socket.
    #[error("no socket can be made there: {}; expected a path in a folder that exists and can be written",
        crate::sys::errno_text(*os))]
    NotMade {
        /// The system's errno.
        os: i32,
    },
    /// A system call failed.
    #[error("{call} failed: {}", crate::sys::errno_text(*os))]
    Os {
        /// Which call.
        call: &'static str,
        /// Its errno.
        os: i32,
    },
}

fn failed(call: &'static str) -> impl Fn(io::Error) -> NetError {
    move |error| net_error(call, Errno::from(error).0)
}

fn net_error(call: &'static str, os: i32) -> NetError {
    match os {
        libc::EPIPE | libc::ECONNRESET | libc::ECONNABORTED | libc::ECANCELED => NetError::Closed,
        _ => NetError::Os { call, os },
    }
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Removes the socket's file on drop, if it is still this one.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            // It may already be gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[derive(Debug)]
struct Listening {
    socket: Socket,
    file: Mutex<Option<SocketFile>>,
}

/// A listening socket. Clones are handles of the same one; several shards may accept from it.
#[derive(Clone, Debug)]
pub struct Listener(Arc<Listening>);

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|status| (status.dev(), status.ino()))
}

/// Removes a stale socket. A live one or any other file is an error.
fn clear_stale(path: &Path) -> Result<(), NetError> {
    let before = match std::fs::symlink_metadata(path) {
        Ok(status) if status.file_type().is_socket() => (status.dev(), status.ino()),
        Ok(_) => return Err(NetError::NotASocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("stat")(error)),
    };
    match sys::connect_now(path) {
        Ok(()) => Err(NetError::InUse { path: path.to_owned() }),
        // EAGAIN: its queue is full, so a server listens.
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Err(NetError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            if inode(path).is_ok_and(|now| now == before) {
                // It may already be gone.
                let _ = std::fs::remove_file(path);
            }
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("connect")(error)),
    }
}

/// Binds relative to the directory, because the whole path may be too long for a socket address.
fn bind(path: &Path) -> io::Result<UnixListener> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return UnixListener::bind(path);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    UnixListener::bind(short.join(path.file_name().unwrap_or_default()))
}

impl Listener {
    /// Listens on a unix socket whose file gets this mode (0o600: its owner only). Removes a stale socket first; the file
    /// is removed with the last handle.
    ///
    /// The socket is created under a temporary name and renamed once it listens, so no process sees it with other
    /// permissions or mistakes it for a stale one. [`NetError::PathTooLong`] above 107 bytes.
    pub fn unix(path: &Path, mode: u32) -> Result<Listener, NetError> {
        let found = path.as_os_str().len();
        if found > PATH_BYTES_MAX {
            return Err(NetError::PathTooLong { path: path.to_owned(), found, max: PATH_BYTES_MAX });
        }
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let new = path.with_file_name(format!(".uraid-{}-{number}", std::process::id()));
        // A leftover of an earlier process with the same process id.
        let _ = std::fs::remove_file(&new);
        let not_made = |error| NetError::NotMade { os: Errno::from(error).0 };
        let socket = bind(&new).map_err(not_made)?;
        let mut file = SocketFile { inode: inode(&new).map_err(failed("stat"))?, path: new };
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(mode)).map_err(failed("chmod"))?;
        socket.set_nonblocking(true).map_err(failed("fcntl"))?;
        for attempt in 1.. {
            clear_stale(path)?;
            match sys::rename_new(&file.path, path) {
                Ok(()) => break,
                Err(Errno(libc::EEXIST)) if attempt < BIND_ATTEMPTS => {}
                // The file system does not support RENAME_NOREPLACE.
                Err(Errno(libc::EINVAL)) => {
                    std::fs::rename(&file.path, path).map_err(failed("rename"))?;
                    break;
                }
                Err(Errno(os)) => return Err(NetError::Os { call: "rename", os }),
            }
        }
        file.path = path.to_owned();
        Ok(Listener(Arc::new(Listening { socket: Socket::Unix(socket), file: Mutex::new(Some(file)) })))
    }

    /// Listens on a TCP address.
    pub fn tcp(address: SocketAddr) -> Result<Listener, NetError> {
        let socket = TcpListener::bind(address).map_err(failed("bind"))?;
        socket.set_nonblocking(true).map_err(failed("fcntl"))?;
        Ok(Listener(Arc::new(Listening { socket: Socket::Tcp(socket), file: Mutex::default() })))
    }

    /// Removes the socket's file, refuses further clients and disconnects those in the queue, even while other handles
    /// and calls of [`Listener::accept`] exist. For a process that the kernel cannot end yet.
    pub fn close(&self) {
        drop(self.0.file.lock().unwrap_or_else(PoisonError::into_inner).take());
        // SAFETY: no pointers. An error means that it is down already.
        unsafe { libc::shutdown(ListenerHolder(self.0.clone()).as_raw_fd(), libc::SHUT_RDWR) };
        while self.0.accept_now().is_ok() {}
    }

    /// The address of a TCP listener, with the port that the system chose for port 0.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match &self.0.socket {
            Socket::Unix(_) => None,
            Socket::Tcp(socket) => socket.local_addr().ok(),
        }
    }

    /// Waits for a client. A `&Shard<M>` derefs to the argument. Skips errors of one client, such as one that
    /// disconnected before it was accepted; a returned error concerns the listener or the process (EMFILE).
    pub async fn accept(&self, shard: &Local) -> Result<Stream, NetError> {
        loop {
            match self.0.accept_now() {
                Ok(socket) => return Ok(Stream::from_raw(shard, socket)),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        let holder: Holder = Rc::new(ListenerHolder(self.0.clone()));
                        let (_, result) =
                            shard.driver().start(Kind::Poll { is_shared: false }, Buffers::None, Some(holder)).await;
                        if result < 0 && result != -libc::EINTR {
                            return Err(net_error("poll", -result));
                        }
                    }
                    Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO | libc::EPERM) => {}
                    _ => return Err(failed("accept")(error)),
                },
            }
        }
    }
}

impl Listening {
    fn accept_now(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                options::set_send_buffer(&stream, UNIX_SEND_BYTES);
                Ok(stream.into())
            }
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept()?;
                // Replies are sent whole: Nagle's delay gains nothing.
                stream.set_nodelay(true)?;
                options::notice_lost_peer(&stream);
                Ok(stream.into())
            }
        }
    }
}

struct ListenerHolder(Arc<Listening>);

impl AsRawFd for ListenerHolder {
    fn as_raw_fd(&self) -> RawFd {
        match &self.0.socket {
            Socket::Unix(socket) => socket.as_raw_fd(),
            Socket::Tcp(socket) => socket.as_raw_fd(),
        }
    }
}

/// A connection on one shard. One receive and one send may run at the same time. If a receive is dropped, the bytes
/// that it has taken may be lost; if a send is dropped, some of its bytes may have been sent.
pub struct Stream {
    driver: Rc<Driver>,
    socket: Rc<OwnedFd>,
}

impl Stream {
    fn start(&self, kind: Kind, buffers: Buffers) -> crate::ring::Operation<'_> {
        self.driver.start(kind, buffers, Some(self.socket.clone()))
    }

    /// Receives whatever is available: at least one byte, at most the lease's length. 0: the peer has closed.
    pub async fn recv(&self, into: Lease) -> Result<(Lease, usize), NetError> {
        let mut into = into;
        assert!(!into.is_empty());
        loop {
            let kind = Kind::Receive { whole: false };
            let (buffers, result) = self.start(kind, Buffers::Lease(into)).await;
            let Buffers::Lease(lease) = buffers else { panic!("a receive gives its buffers back") };
            match result {
                0.. => return Ok((lease, result as usize)),
                _ if result == -libc::EINTR || result == -libc::EAGAIN => into = lease,
                _ => return Err(net_error("recv", -result)),
            }
        }
    }

    /// Receives until the buffers are full. [`NetError::Closed`] if the peer closes first.
    pub async fn recv_all(&self, into: ReadPieces) -> Result<ReadPieces, NetError> {
        let mut rest = into;
        let mut all = ReadPieces::new();
        while !rest.is_empty() {
            let part = cut(&mut rest);
            let (buffers, result) = self.start(Kind::Receive { whole: true }, Buffers::Read(part)).await;
            let Buffers::Read(mut part) = buffers else { panic!("a receive gives its buffers back") };
            match result {
                0 => return Err(NetError::Closed),
                1.. => all.append(part.split_to(result as usize)),
                _ if result == -libc::EINTR || result == -libc::EAGAIN => {}
                _ => return Err(net_error("recv", -result)),
            }
            part.append(rest);
            rest = part;
        }
        Ok(all)
    }

    /// Sends all bytes, in as few calls as the kernel allows. Leases are sent as `leases.freeze()`.
    pub async fn send(&self, from: WritePieces) -> Result<(), NetError> {
        let mut rest = from;
        while !rest.is_empty() {
            let part = cut(&mut rest);
            let (buffers, result) = self.start(Kind::Send, Buffers::Write(part)).await;
            let Buffers::Write(mut part) = buffers else { panic!("a send gives its buffers back") };
            match result {
                0.. => drop(part.split_to(result as usize)),
                _ if result == -libc::EINTR || result == -libc::EAGAIN => {}
                _ => return Err(net_error("send", -result)),
            }
            part.append(rest);
            rest = part;
        }
        Ok(())
    }

    /// Receives what is available now, bypassing the ring; `None` if there is nothing yet. 0: the peer has closed. Do
    /// not call it while a receive of the ring is in flight.
    pub fn try_recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, NetError> {
        // SAFETY: msghdr is plain data; all zeroes is an empty one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (into.as_mut_ptr().cast(), into.len().min(SEGMENTS_MAX));
        // SAFETY: an IoSliceMut is an iovec, as its documentation promises; the slices are this call's alone.
        let result = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        at_once("recv", result)
    }

    /// Sends as many bytes as the socket accepts now, bypassing the ring, and returns how many, possibly 0. Do not call
    /// it while a send of the ring is in flight.
    pub fn try_send(&self, from: &[IoSlice<'_>]) -> Result<usize, NetError> {
        // SAFETY: msghdr is plain data; all zeroes is an empty one.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (from.as_ptr().cast_mut().cast(), from.len().min(SEGMENTS_MAX));
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: an IoSlice is an iovec, as its documentation promises; a send writes to none of it.
        let result = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const header, flags) };
        Ok(at_once("send", result)?.unwrap_or(0))
    }

    /// The user of a unix peer, the host of a TCP one.
    pub fn peer(&self) -> Peer {
        Peer::of(self.socket.as_fd())
    }

    /// The process at the other end, as it was when it connected. `None`: not over a unix socket.
    pub fn peer_process(&self) -> Option<PeerProcess> {
        PeerProcess::of(self.socket.as_fd())
    }

    /// Whether the peer has closed its sending side, or the connection broke. Bytes that it sent before may still be
    /// unread.
    pub fn is_hung_up(&self) -> bool {
        let events = libc::POLLRDHUP;
        let mut socket = [libc::pollfd { fd: self.socket.as_raw_fd(), events, revents: 0 }];
        // POLLHUP and POLLERR are always reported.
        sys::poll(&mut socket, Some(Duration::ZERO)) > 0
    }

    /// Whether the peer can receive no more replies: it has closed both directions, or the connection broke. A peer
    /// that has only closed its sending side can still receive.
    pub fn is_abandoned(&self) -> bool {
        let mut socket = [libc::pollfd { fd: self.socket.as_raw_fd(), events: 0, revents: 0 }];
        sys::poll(&mut socket, Some(Duration::ZERO)) > 0
    }

    /// Bytes that were sent and that the peer has not received, plus the system's overhead; 0 if the system does not
    /// report it.
    pub fn unsent(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes an int, which `bytes` is.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        if result == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// Ends the connection in both directions: waiting receives end with 0, sends with [`NetError::Closed`].
    pub fn shutdown(&self) {
        // SAFETY: no pointers. An error means that it is down already.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }

    /// Detaches the socket from its shard, to hand it to another one. No operation should be in flight.
    pub fn into_raw(self) -> Result<OwnedFd, NetError> {
        match Rc::try_unwrap(self.socket) {
            Ok(socket) => Ok(socket),
            // An operation whose future was dropped still holds the socket.
            Err(shared) => shared.try_clone().map_err(failed("dup")),
        }
    }

    /// A connected socket as a stream of this shard.
    pub fn from_raw(shard: &Local, socket: OwnedFd) -> Stream {
        Stream { driver: shard.driver().clone(), socket: Rc::new(socket) }
    }

    /// Connects to a unix socket, blocking briefly.
    pub fn connect_unix(shard: &Local, path: &Path) -> Result<Stream, NetError> {
        let socket = UnixStream::connect(path).map_err(failed("connect"))?;
        Ok(Stream::from_raw(shard, socket.into()))
    }

    /// Connects to a TCP address, blocking.
    pub fn connect_tcp(shard: &Local, address: SocketAddr) -> Result<Stream, NetError> {
        let socket = TcpStream::connect(address).map_err(failed("connect"))?;
        socket.set_nodelay(true).map_err(failed("setsockopt"))?;
        Ok(Stream::from_raw(shard, socket.into()))
    }
}

/// The result of a nonblocking call; `None` if it would block.
fn at_once(call: &'static str, result: isize) -> Result<Option<usize>, NetError> {
    match usize::try_from(result) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => match Errno::last().0 {
            libc::EAGAIN | libc::EINTR => Ok(None),
            os => Err(net_error(call, os)),
        },
    }
}
