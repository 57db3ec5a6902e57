//! An independent NBD client, written from the protocol's text; it shares nothing with uraid's codec.
//! Owns: connections with many requests in flight. Not here: negotiation (`handshake`), bytes of replies (`replies`).
//! Called by `programs`, `sectors`, `storm` and by tests.
//! Invariant: every reply belongs to one request in flight and fits it; anything else is an error.
//! Spec: github.com/NetworkBlockDevice/nbd, doc/proto.md.

mod handshake;
mod replies;

pub use handshake::{Export, Negotiate, Options, list};

use replies::Pending;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// Longer than any test waits, so that a hang becomes a failure.
const REPLY_SECONDS_MAX: u64 = 60;

/// An error of the connection or the server.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The connection ended or broke.
    #[error("the connection broke")]
    Broken(#[from] io::Error),
    /// No reply in time.
    #[error("no reply within {REPLY_SECONDS_MAX} s")]
    TimedOut,
    /// The server answered with an error number of the protocol (EIO is 5, EINVAL 22, ENOSPC 28, ...).
    #[error("the server answered with error {0}")]
    Refused(u32),
    /// The server refused an option with this reply type.
    #[error("the server refused option {option} with {reply:#x}: {text}")]
    Option {
        /// The option's number.
        option: u32,
        /// The reply's type, bit 31 set.
        reply: u32,
        /// The server's error text.
        text: String,
    },
    /// The server broke the protocol.
    #[error("the server broke the protocol: {what} ({found:#x})")]
    Protocol {
        /// The rule.
        what: &'static str,
        /// The number that breaks it.
        found: u64,
    },
}

pub(crate) fn broken<T>(what: &'static str, found: u64) -> Result<T, ClientError> {
    Err(ClientError::Protocol { what, found })
}

/// Where a server listens, and the export's name.
#[derive(Clone, Debug)]
pub struct Address {
    /// The export's name.
    pub export: String,
    /// The socket.
    pub socket: Socket,
}

/// A socket to connect to.
#[derive(Clone, Debug)]
pub enum Socket {
    /// A unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
}

impl Address {
    /// Reads `nbd+unix:///NAME?socket=PATH` or `nbd://HOST:PORT/NAME`; none if it is neither.
    pub fn parse(uri: &str) -> Option<Address> {
        if let Some(rest) = uri.strip_prefix("nbd+unix:///") {
            let (export, socket) = rest.split_once("?socket=")?;
            return Some(Address { export: decode(export)?, socket: Socket::Unix(decode(socket)?.into()) });
        }
        let (host, export) = uri.strip_prefix("nbd://")?.split_once('/')?;
        Some(Address { export: decode(export)?, socket: Socket::Tcp(host.to_string()) })
    }

    /// A raw connection, before any byte is exchanged.
    pub fn connect(&self) -> io::Result<Stream> {
        match &self.socket {
            Socket::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
            Socket::Tcp(host) => TcpStream::connect(host).map(Stream::Tcp),
        }
    }
}

/// Undoes `%41`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A connected socket of either kind.
#[derive(Debug)]
pub enum Stream {
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP socket.
    Tcp(TcpStream),
}

impl Stream {
    /// A second handle of the same connection.
    pub fn try_clone(&self) -> io::Result<Stream> {
        match self {
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
        }
    }

    /// Ends both directions, which wakes a reader.
    pub fn shutdown(&self) {
        // It may be closed already, which is what is wanted.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
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

/// One request; offsets and lengths in bytes.
#[derive(Clone, Debug)]
pub enum Request {
    /// Reads `length` bytes.
    Read {
        /// First byte.
        at: u64,
        /// How many.
        length: u32,
    },
    /// Writes the bytes.
    Write {
        /// First byte.
        at: u64,
        /// What to write.
        data: Vec<u8>,
        /// Durable before the reply.
        fua: bool,
    },
    /// Makes the range read as zeroes.
    WriteZeroes {
        /// First byte.
        at: u64,
        /// How many.
        length: u32,
        /// The server may not punch a hole.
        no_hole: bool,
    },
    /// Discards the content of the range.
    Trim {
        /// First byte.
        at: u64,
        /// How many.
        length: u32,
    },
    /// Asks for the extents from here on; the reply has pairs of 32 bits, length and state.
    Status {
        /// First byte.
        at: u64,
        /// How many.
        length: u32,
    },
    /// Everything answered before is durable when this is answered.
    Flush,
}

/// The answer to one request.
#[derive(Debug)]
pub struct Reply {
    /// Which request.
    pub cookie: u64,
    /// The bytes of a read or of block status (empty for others), or the protocol's error number.
    pub result: Result<Vec<u8>, u32>,
}

type InFlight = Arc<Mutex<BTreeMap<u64, Pending>>>;

/// A connection in the transmission phase. Replies are received by a separate thread, so that neither
/// end can block the other by not reading.
pub struct Connection {
    stream: Stream,
    export: Export,
    in_flight: InFlight,
    replies: Receiver<Result<Reply, ClientError>>,
    next_cookie: u64,
    buffer: Vec<u8>,
}

const REQUEST_MAGIC: u32 = 0x2560_9513;
const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 2;

impl Connection {
    /// Connects and negotiates.
    pub fn open(address: &Address, options: &Options) -> Result<Connection, ClientError> {
        let mut stream = address.connect()?;
        let export = handshake::negotiate(&mut stream, &address.export, options)?;
        let in_flight = InFlight::default();
        let (to_us, replies) = channel();
        let (mut reading, pending) = (stream.try_clone()?, in_flight.clone());
        let is_structured = export.is_structured;
        std::thread::spawn(move || {
            loop {
                let reply = replies::receive(&mut reading, &pending, is_structured);
                let is_last = reply.is_err();
                if to_us.send(reply).is_err() || is_last {
                    break;
                }
            }
        });
        Ok(Connection { stream, export, in_flight, replies, next_cookie: 1, buffer: Vec::new() })
    }

    /// The server's information about the export.
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Sends a request without waiting; gives its cookie.
    pub fn submit(&mut self, request: &Request) -> Result<u64, ClientError> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let (flags, kind, at, length, pending): (u16, u16, u64, u32, Pending) = match request {
            Request::Read { at, length } => (0, 0, *at, *length, Pending::Read { at: *at, length: *length }),
            Request::Write { at, data, fua } => {
                let length = u32::try_from(data.len()).expect("a request is below 4 GiB");
                (if *fua { FLAG_FUA } else { 0 }, 1, *at, length, Pending::Other)
            }
            Request::Flush => (0, 3, 0, 0, Pending::Other),
            Request::Status { at, length } => {
                let context = self.export.allocation.expect("block status was negotiated");
                (0, 7, *at, *length, Pending::Status { context })
            }
            Request::Trim { at, length } => (0, 4, *at, *length, Pending::Other),
            Request::WriteZeroes { at, length, no_hole } => {
                (if *no_hole { FLAG_NO_HOLE } else { 0 }, 6, *at, *length, Pending::Other)
            }
        };
        self.buffer.clear();
        self.buffer.extend(REQUEST_MAGIC.to_be_bytes());
        self.buffer.extend(flags.to_be_bytes());
        self.buffer.extend(kind.to_be_bytes());
        self.buffer.extend(cookie.to_be_bytes());
        self.buffer.extend(at.to_be_bytes());
        self.buffer.extend(length.to_be_bytes());
        if let Request::Write { data, .. } = request {
            self.buffer.extend(data);
        }
        // Register it before sending: the reply may arrive at once.
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner).insert(cookie, pending);
        self.stream.write_all(&self.buffer)?;
        Ok(cookie)
    }

    /// Waits for the next reply, of whichever request.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        match self.replies.recv_timeout(Duration::from_secs(REPLY_SECONDS_MAX)) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => Err(ClientError::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }

    /// Sends one request and waits for its reply; nothing else may be in flight.
    pub fn call(&mut self, request: &Request) -> Result<Vec<u8>, ClientError> {
        let cookie = self.submit(request)?;
        let reply = self.receive()?;
        assert_eq!(reply.cookie, cookie, "something else was in flight");
        reply.result.map_err(ClientError::Refused)
    }

    /// `call` of a read.
    pub fn read(&mut self, at: u64, length: u32) -> Result<Vec<u8>, ClientError> {
        self.call(&Request::Read { at, length })
    }

    /// `call` of a write.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Result<(), ClientError> {
        self.call(&Request::Write { at, data: data.to_vec(), fua: false }).map(drop)
    }

    /// `call` of block status: the extents from `at` on, each with its length in bytes and whether it reads as zeroes.
    pub fn status(&mut self, at: u64, length: u32) -> Result<Vec<(u64, bool)>, ClientError> {
        let bytes = self.call(&Request::Status { at, length })?;
        let word = |word: &[u8]| u32::from_be_bytes(word.try_into().expect("four bytes"));
        let extents = bytes.chunks_exact(8).map(|pair| (u64::from(word(&pair[..4])), word(&pair[4..]) & 2 != 0));
        Ok(extents.collect())
    }

    /// `call` of a flush.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.call(&Request::Flush).map(drop)
    }

    /// Sends raw bytes, for a client that breaks the protocol.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends the protocol's disconnect, without waiting.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        self.buffer.clear();
        self.buffer.extend(REQUEST_MAGIC.to_be_bytes());
        self.buffer.extend([0, 0, 0, 2]);
        self.buffer.extend([0; 20]);
        Ok(self.stream.write_all(&self.buffer)?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_uri_parse() {
        let unix = Address::parse("nbd+unix:///my%20array?socket=/run/u%2fs.nbd").expect("a URI");
        assert_eq!(unix.export, "my array");
        assert!(matches!(&unix.socket, Socket::Unix(path) if path.ends_with("u/s.nbd")));
        let tcp = Address::parse("nbd://127.0.0.1:10809/x").expect("a URI");
        assert!(matches!(&tcp.socket, Socket::Tcp(host) if host == "127.0.0.1:10809"));
        assert!(Address::parse("http://x/y").is_none());
    }
}
