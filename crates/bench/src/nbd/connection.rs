//! One connection of the load generator: many requests in flight, many in each system call.
//! Owns: [`Connection`]: handshake, sending, receiving, checking that every request is answered once.
//! Not here: which requests, and how long (`nbd`).
//! Invariant: a reply belongs to a request that is in flight, or the run ends with an error.

use super::peer::Peer;
use super::uri::{Address, Endpoint};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use uraid_nbd::handshake::{GREETING_BYTES, OPTION_REPLY_HEADER_BYTES, client_flags, option};
use uraid_nbd::transmission::SIMPLE_REPLY_BYTES;
use uraid_nbd::{
    Command, CommandFlags, Cookie, ErrorCode, ExportInfo, ExportQuery, HandshakeFlags, Info, OptionCode, OptionReply,
    OptionReplyHeader, Request, SimpleReply, WireError, parse_greeting,
};

/// Bytes that one receive call asks for.
const RECEIVE_BYTES: usize = 1 << 20;
/// The most request bytes in flight on a unix socket: enough that the server sees all writes at once.
const SEND_BYTES: usize = 4 << 20;
/// The largest payload of an option reply that is read: names and texts are shorter.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// A server that sends nothing for this long is considered hung.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Why a connection could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The socket failed.
    #[error("{action}")]
    Io {
        /// What was done.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The server sent invalid NBD.
    #[error("the server does not speak NBD as it should")]
    Wire(#[from] WireError),
    /// The server refuses the export.
    #[error("the server refuses the export: {0}")]
    Refused(String),
    /// The server answered with an error.
    #[error("the server answered {command} at byte {offset} with an error: {code:?}")]
    Answer {
        /// The command of the request.
        command: &'static str,
        /// Where.
        offset: u64,
        /// Its error.
        code: ErrorCode,
    },
    /// The server answered a request that was not sent.
    #[error("the server answered request {found:#x}, which is not in flight")]
    Stray {
        /// The cookie.
        found: u64,
    },
    /// The server sends nothing.
    #[error("the server has not answered for {} s", SILENCE_MAX.as_secs())]
    Silent,
}

pub(super) fn failed(action: &'static str) -> impl Fn(io::Error) -> LoadError {
    move |source| LoadError::Io { action, source }
}

/// Both kinds of sockets.
pub(super) enum Stream {
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP connection.
    Tcp(TcpStream),
}

impl Stream {
    /// Connects, without any handshake.
    pub(super) fn connect(endpoint: &Endpoint) -> io::Result<Stream> {
        match endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                // The system may give less.
                let _ = set_socket_send_buffer_size(&stream, SEND_BYTES);
                Ok(Stream::Unix(stream))
            }
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Timeouts for the handshake, which uses blocking calls.
    pub(super) fn set_timeouts(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(Some(SILENCE_MAX)),
            Stream::Tcp(stream) => stream.set_read_timeout(Some(SILENCE_MAX)),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_nonblocking(true),
            Stream::Tcp(stream) => stream.set_nonblocking(true),
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(into),
            Stream::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(from),
            Stream::Tcp(stream) => stream.write(from),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A request that is in flight.
#[derive(Clone, Copy)]
struct Open<T> {
    is_read: bool,
    offset: u64,
    bytes: usize,
    note: T,
}

/// A connection in its transmission phase. The caller attaches a note of type `T` to each request.
pub(super) struct Connection<T> {
    stream: Stream,
    /// Size and abilities of the export.
    pub export: ExportInfo,
    open: Vec<Option<Open<T>>>,
    free: Vec<usize>,
    out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// Received and not parsed yet: `input[from..to]`.
    from: usize,
    to: usize,
    /// Bytes of a read that will still arrive and are discarded.
    data_left: usize,
}

impl<T: Copy> Connection<T> {
    /// Connects and takes the export; at most `depth` requests will be in flight.
    pub(super) fn open(address: &Address, depth: usize) -> Result<Connection<T>, LoadError> {
        let mut stream = Stream::connect(&address.endpoint).map_err(failed("connecting"))?;
        stream.set_timeouts().map_err(failed("limiting the time of the handshake"))?;
        let export = take_export(&mut stream, &address.export)?;
        stream.set_nonblocking().map_err(failed("making the socket non-blocking"))?;
        Ok(Connection {
            stream,
            export,
            open: vec![None; depth],
            free: (0..depth).rev().collect(),
            out: Vec::new(),
            sent: 0,
            input: vec![0; RECEIVE_BYTES],
            from: 0,
            to: 0,
            data_left: 0,
        })
    }

    /// The server's process, if the system tells it.
    pub(super) fn peer(&self) -> Option<Peer> {
        match &self.stream {
            Stream::Unix(stream) => Peer::of(stream),
            Stream::Tcp(_) => None,
        }
    }

    /// How many more requests may be queued.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// How many are in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.open.len() - self.free.len()
    }

    /// Queues a request: a read of `bytes` bytes, or a write of `write`.
    pub(super) fn put(&mut self, offset: u64, bytes: usize, write: Option<&[u8]>, note: T) {
        let index = self.free.pop().expect("there is room");
        self.open[index] = Some(Open { is_read: write.is_none(), offset, bytes, note });
        let command = if write.is_some() { Command::Write } else { Command::Read };
        let (flags, cookie) = (CommandFlags::NONE, Cookie(index as u64));
        self.out.extend_from_slice(&Request { flags, command, cookie, offset, length: bytes as u64 }.encode());
        if let Some(payload) = write {
            assert_eq!(payload.len(), bytes);
            self.out.extend_from_slice(payload);
        }
    }

    /// Queues a write-zeroes request of `bytes` bytes.
    pub(super) fn put_zeroes(&mut self, offset: u64, bytes: u64, note: T) {
        let index = self.free.pop().expect("there is room");
        self.open[index] = Some(Open { is_read: false, offset, bytes: 0, note });
        let (flags, cookie) = (CommandFlags::NO_HOLE, Cookie(index as u64));
        let request = Request { flags, command: Command::WriteZeroes, cookie, offset, length: bytes };
        self.out.extend_from_slice(&request.encode());
    }

    /// Sends and receives what is possible; returns whether it did either.
    pub(super) fn turn_now(&mut self, ended: &mut impl FnMut(T)) -> Result<bool, LoadError> {
        let has_sent = self.send()?;
        Ok(self.receive(ended)? || has_sent)
    }

    /// Fails if the server has closed the connection. Takes no reply.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let mut descriptors = [PollFd::from_borrowed_fd(self.stream.descriptor(), PollFlags::empty())];
        match poll(&mut descriptors, Some(&rustix::event::Timespec::default())) {
            // The server has hung up: `poll` always reports that.
            Ok(1..) => Err(failed("the connection")(ErrorKind::ConnectionAborted.into())),
            Ok(0) | Err(_) => Ok(()),
        }
    }

    /// Sends and receives what is possible, and waits if neither was. Calls `ended` for each request that ended.
    pub(super) fn turn(&mut self, ended: &mut impl FnMut(T)) -> Result<(), LoadError> {
        if !self.turn_now(ended)? {
            let mut wanted = PollFlags::IN;
            wanted.set(PollFlags::OUT, self.sent < self.out.len());
            let mut descriptors = [PollFd::from_borrowed_fd(self.stream.descriptor(), wanted)];
            let timeout = SILENCE_MAX.try_into().expect("a short time");
            match poll(&mut descriptors, Some(&timeout)) {
                Ok(0) => return Err(LoadError::Silent),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(failed("waiting for the socket")(error.into())),
            }
        }
        Ok(())
    }

    /// Disconnects.
    pub(super) fn close(mut self) {
        let bye = Request {
            flags: CommandFlags::NONE,
            command: Command::Disconnect,
            cookie: Cookie(0),
            offset: 0,
            length: 0,
        };
        // The server may be gone, but the figures are already known.
        let _ = self.stream.write(&bye.encode());
    }

    /// Sends what is possible; returns whether it sent anything.
    pub(super) fn send(&mut self) -> Result<bool, LoadError> {
        if self.sent == self.out.len() {
            return Ok(false);
        }
        match self.stream.write(&self.out[self.sent..]) {
            Ok(count) => {
                self.sent += count;
                if self.sent == self.out.len() {
                    self.out.clear();
                    self.sent = 0;
                }
                Ok(count > 0)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(failed("sending requests")(error)),
        }
    }

    fn receive(&mut self, ended: &mut impl FnMut(T)) -> Result<bool, LoadError> {
        self.input.copy_within(self.from..self.to, 0);
        (self.to, self.from) = (self.to - self.from, 0);
        match self.stream.read(&mut self.input[self.to..]) {
            Ok(0) => Err(failed("receiving replies")(ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.to += count;
                self.look(ended)?;
                Ok(true)
            }
            Err(error) if is_passing(&error) => Ok(false),
            Err(error) => Err(failed("receiving replies")(error)),
        }
    }

    fn look(&mut self, ended: &mut impl FnMut(T)) -> Result<(), LoadError> {
        loop {
            let step = self.data_left.min(self.to - self.from);
            self.from += step;
            self.data_left -= step;
            let Some(header) = self.input[self.from..self.to].first_chunk::<SIMPLE_REPLY_BYTES>() else {
                return Ok(());
            };
            if self.data_left > 0 {
                return Ok(());
            }
            let reply = SimpleReply::parse(header)?;
            self.from += SIMPLE_REPLY_BYTES;
            let index = usize::try_from(reply.cookie.0).ok().filter(|index| *index < self.open.len());
            let Some((index, open)) = index.and_then(|index| Some((index, self.open[index].take()?))) else {
                return Err(LoadError::Stray { found: reply.cookie.0 });
            };
            if let Err(code) = reply.result {
                let command = if open.is_read { "a read" } else { "a write" };
                return Err(LoadError::Answer { command, offset: open.offset, code });
            }
            self.free.push(index);
            self.data_left = if open.is_read { open.bytes } else { 0 };
            ended(open.note);
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// A blocking socket reports a timeout with the error code of a nonblocking one.
fn handshake_failed(error: io::Error) -> LoadError {
    if error.kind() == ErrorKind::WouldBlock { LoadError::Silent } else { failed("the handshake")(error) }
}

/// The handshake: waits for the export of this name.
pub(super) fn take_export(stream: &mut Stream, name: &str) -> Result<ExportInfo, LoadError> {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting).map_err(handshake_failed)?;
    let offered = parse_greeting(&greeting)?;
    let flags =
        HandshakeFlags::FIXED_NEWSTYLE.with_if(offered.contains(HandshakeFlags::NO_ZEROES), HandshakeFlags::NO_ZEROES);
    let query = ExportQuery { name, infos: Vec::new() }.encode();
    let mut hello = client_flags(flags).to_vec();
    hello.extend(option(OptionCode::Go, &query));
    stream.write_all(&hello).map_err(handshake_failed)?;
    let mut export = None;
    loop {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        stream.read_exact(&mut header).map_err(handshake_failed)?;
        let header = OptionReplyHeader::parse(&header)?;
        if header.length > OPTION_BYTES_MAX {
            return Err(WireError::Field { field: "option reply length", found: header.length.into() }.into());
        }
        let mut payload = vec![0; header.length as usize];
        stream.read_exact(&mut payload).map_err(handshake_failed)?;
        if header.reply == OptionReply::Ack {
            return export.ok_or_else(|| LoadError::Refused("it did not tell its size".to_owned()));
        }
        if header.reply.is_error() {
            let text = String::from_utf8_lossy(&payload);
            return Err(LoadError::Refused(format!("{:?} {text}", header.reply)));
        }
        if header.reply == OptionReply::Info
            && let Info::Export(info) = Info::parse(&payload)?
        {
            export = Some(info);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_nothing_is_told_from_one_that_hangs_up() {
        let (mut stream, other) = UnixStream::pair().map(|(one, other)| (Stream::Unix(one), other)).expect("a pair");
        let Stream::Unix(inner) = &stream else { unreachable!("made so") };
        inner.set_read_timeout(Some(Duration::from_millis(1))).expect("it can be limited");
        assert!(matches!(take_export(&mut stream, "x"), Err(LoadError::Silent)));
        drop(other);
        assert!(matches!(take_export(&mut stream, "x"), Err(LoadError::Io { action: "the handshake", .. })));
    }
}
