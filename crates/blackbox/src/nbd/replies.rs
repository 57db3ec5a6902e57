//! Replies of the independent NBD client, simple and structured.
//! Owns: matching replies to requests, joining the chunks of a read. Not here: requests (`nbd`).
//! Invariant: every byte of a read is answered exactly once. Spec: doc/proto.md, "Transmission phase".

use super::handshake::{read_u16, read_u32, read_u64};
use super::{ClientError, InFlight, Reply, Stream, broken};
use std::io::Read;
use std::sync::PoisonError;

const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
const DONE: u16 = 1;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_HOLE: u16 = 2;
const CHUNK_STATUS: u16 = 5;
/// More extents than any server sends at once.
const STATUS_BYTES_MAX: u32 = 64 * 1024;
const CHUNK_ERROR: u16 = 1 << 15 | 1;
const CHUNK_ERROR_AT: u16 = 1 << 15 | 2;

/// What a reply is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pending {
    Read {
        at: u64,
        length: u32,
    },
    /// Of the context with this number.
    Status {
        context: u32,
    },
    Other,
}

pub(super) fn receive(stream: &mut Stream, in_flight: &InFlight, is_structured: bool) -> Result<Reply, ClientError> {
    let mut joined: Option<Joined> = None;
    loop {
        match read_u32(stream)? {
            SIMPLE => return simple(stream, in_flight, is_structured),
            STRUCTURED if is_structured => {}
            other => return broken("a reply has a magic that was agreed on", other.into()),
        }
        let (flags, kind, cookie, length) =
            (read_u16(stream)?, read_u16(stream)?, read_u64(stream)?, read_u32(stream)?);
        let pending = look_up(in_flight, cookie)?;
        let mut reply = match joined.take() {
            // The protocol allows chunks of several replies to be mixed; no known server does that, and neither does
            // uraid.
            Some(joined) if joined.cookie != cookie => return broken("chunks of one reply come together", cookie),
            Some(joined) => joined,
            None => Joined::new(cookie, pending),
        };
        reply.add(stream, kind, length)?;
        if flags & DONE != 0 {
            in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&cookie);
            return reply.finish();
        }
        joined = Some(reply);
    }
}

fn look_up(in_flight: &InFlight, cookie: u64) -> Result<Pending, ClientError> {
    match in_flight.lock().unwrap_or_else(PoisonError::into_inner).get(&cookie) {
        Some(pending) => Ok(*pending),
        None => broken("a reply is to a request in flight", cookie),
    }
}

fn simple(stream: &mut Stream, in_flight: &InFlight, is_structured: bool) -> Result<Reply, ClientError> {
    let (error, cookie) = (read_u32(stream)?, read_u64(stream)?);
    let pending = look_up(in_flight, cookie)?;
    in_flight.lock().unwrap_or_else(PoisonError::into_inner).remove(&cookie);
    let mut bytes = Vec::new();
    match pending {
        Pending::Read { .. } if is_structured => return broken("a read has a structured reply once agreed", cookie),
        Pending::Read { length, .. } if error == 0 => {
            bytes.resize(length as usize, 0);
            stream.read_exact(&mut bytes)?;
        }
        Pending::Status { .. } if error == 0 => return broken("block status has a structured reply", cookie),
        Pending::Read { .. } | Pending::Status { .. } | Pending::Other => {}
    }
    Ok(Reply { cookie, result: if error == 0 { Ok(bytes) } else { Err(error) } })
}

/// A structured reply, as far as it has come.
struct Joined {
    cookie: u64,
    pending: Pending,
    bytes: Vec<u8>,
    covered: Vec<(u64, u64)>,
    error: Option<u32>,
}

impl Joined {
    fn new(cookie: u64, pending: Pending) -> Joined {
        let length = match pending {
            Pending::Read { length, .. } => length as usize,
            Pending::Status { .. } | Pending::Other => 0,
        };
        Joined { cookie, pending, bytes: vec![0; length], covered: Vec::new(), error: None }
    }

    fn add(&mut self, stream: &mut Stream, kind: u16, length: u32) -> Result<(), ClientError> {
        match kind {
            CHUNK_NONE if length == 0 => Ok(()),
            CHUNK_DATA if length > 8 => {
                let at = read_u64(stream)?;
                let range = self.cover(at, u64::from(length) - 8)?;
                Ok(stream.read_exact(&mut self.bytes[range])?)
            }
            CHUNK_HOLE if length == 12 => {
                let (at, hole) = (read_u64(stream)?, read_u32(stream)?);
                self.cover(at, hole.into()).map(drop)
            }
            CHUNK_STATUS if length >= 12 && (length - 4).is_multiple_of(8) && length <= STATUS_BYTES_MAX => {
                let context = read_u32(stream)?;
                match self.pending {
                    Pending::Status { context: expected } if context == expected && self.bytes.is_empty() => {}
                    Pending::Read { .. } | Pending::Status { .. } | Pending::Other => {
                        return broken("block status answers its request, once", context.into());
                    }
                }
                self.bytes.resize(length as usize - 4, 0);
                self.covered.push((0, self.bytes.len() as u64));
                Ok(stream.read_exact(&mut self.bytes)?)
            }
            CHUNK_ERROR | CHUNK_ERROR_AT if length >= 6 => {
                let (error, text_length) = (read_u32(stream)?, read_u16(stream)?);
                let rest = length - 6;
                if error == 0 || u32::from(text_length) > rest {
                    return broken("an error chunk has an error and a text that fits", error.into());
                }
                std::io::copy(&mut stream.take(rest.into()), &mut std::io::sink())?;
                self.error = Some(error);
                Ok(())
            }
            other => broken("a chunk has a known type and a length that fits it", other.into()),
        }
    }

    /// The range of the buffer for a chunk. Refuses data outside the read, and data that came before.
    fn cover(&mut self, at: u64, length: u64) -> Result<std::ops::Range<usize>, ClientError> {
        let Pending::Read { at: first, .. } = self.pending else {
            return broken("only a read is answered with data", self.cookie);
        };
        let Some(start) = at.checked_sub(first) else { return broken("data lies within the read", at) };
        let end = start + length;
        if end > self.bytes.len() as u64 {
            return broken("data lies within the read", end);
        }
        if self.covered.iter().any(|(from, to)| start < *to && *from < end) {
            return broken("data comes once", at);
        }
        self.covered.push((start, end));
        Ok(start as usize..end as usize)
    }

    fn finish(self) -> Result<Reply, ClientError> {
        let covered: u64 = self.covered.iter().map(|(from, to)| to - from).sum();
        match self.error {
            None if self.bytes.is_empty() && matches!(self.pending, Pending::Status { .. }) => {
                broken("block status has an extent", self.cookie)
            }
            Some(error) => Ok(Reply { cookie: self.cookie, result: Err(error) }),
            None if covered == self.bytes.len() as u64 => Ok(Reply { cookie: self.cookie, result: Ok(self.bytes) }),
            None => broken("a read is answered whole", covered),
        }
    }
}
