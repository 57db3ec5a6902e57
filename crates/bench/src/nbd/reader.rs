//! Reads of an export, one at a time.
//! Owns: [`Reader`]. Not here: the handshake (`connection`), load (`nbd`).
//! Invariant: a server that does not answer, or answers something else, is an error after a bounded time.

use super::NbdError;
use super::connection::{LoadError, Stream, failed, take_export};
use super::uri::Address;
use std::io::{Read, Write};
use uraid_nbd::transmission::SIMPLE_REPLY_BYTES;
use uraid_nbd::{Command, CommandFlags, Cookie, Request, SimpleReply};

/// An export that is read in whole blocks of this size.
const BLOCK: u64 = 4096;

/// A connection that reads.
pub struct Reader {
    stream: Stream,
    size: u64,
    reads: u64,
}

impl Reader {
    /// Connects to an export.
    pub fn open(uri: &str) -> Result<Reader, NbdError> {
        let address = Address::parse(uri)?;
        let failed = |source| NbdError::Load { uri: uri.to_owned(), source };
        let mut stream = Stream::connect(&address.endpoint).map_err(|error| failed(failed_to_connect(error)))?;
        stream.set_timeouts().map_err(|error| failed(failed_to_connect(error)))?;
        let export = take_export(&mut stream, &address.export).map_err(failed)?;
        Ok(Reader { stream, size: export.size, reads: 0 })
    }

    /// The size of the export in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads bytes inside the export, at most a few MiB.
    pub fn read_at(&mut self, at: u64, into: &mut [u8]) -> Result<(), LoadError> {
        assert!(at + into.len() as u64 <= self.size, "reads are inside the export");
        if into.is_empty() {
            return Ok(());
        }
        let start = at - at % BLOCK;
        let end = (at + into.len() as u64).next_multiple_of(BLOCK).min(self.size);
        let mut blocks = vec![0; (end - start) as usize];
        self.read_blocks(start, &mut blocks)?;
        into.copy_from_slice(&blocks[(at - start) as usize..][..into.len()]);
        Ok(())
    }

    fn read_blocks(&mut self, offset: u64, into: &mut [u8]) -> Result<(), LoadError> {
        let cookie = Cookie(self.reads);
        self.reads += 1;
        let (flags, command, length) = (CommandFlags::NONE, Command::Read, into.len() as u64);
        self.stream
            .write_all(&Request { flags, command, cookie, offset, length }.encode())
            .map_err(failed("sending a read"))?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut reply).map_err(failed("receiving a reply"))?;
        let reply = SimpleReply::parse(&reply)?;
        if reply.cookie != cookie {
            return Err(LoadError::Stray { found: reply.cookie.0 });
        }
        reply.result.map_err(|code| LoadError::Answer { command: "a read", offset, code })?;
        self.stream.read_exact(into).map_err(failed("receiving data"))
    }
}

fn failed_to_connect(error: std::io::Error) -> LoadError {
    failed("connecting")(error)
}
