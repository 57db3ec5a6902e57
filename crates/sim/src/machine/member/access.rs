//! The operations of a simulated member, and who watches them.
//! Owns: [`Op`], [`Access`], [`Watch`]. Not here: carrying them out (`member`), what is allowed (`judge::guard`).
//! Invariant: a watch sees every operation before it has an effect.

use uraid_block::ErrorKind;

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A read.
    Read,
    /// A write, FUA or not.
    Write {
        /// Whether it is FUA.
        fua: bool,
    },
    /// A flush.
    Flush,
    /// A discard.
    Discard,
    /// Zeroes, written without a buffer.
    Zeroes,
}

impl Op {
    pub(super) fn letter(self) -> char {
        match self {
            Op::Read => 'r',
            Op::Write { fua: false } => 'w',
            Op::Write { fua: true } => 'W',
            Op::Flush => 'f',
            Op::Discard => 'd',
            Op::Zeroes => 'z',
        }
    }
}

/// One operation of a member, as the watch sees it.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Which member.
    pub disk: u16,
    /// The kind.
    pub op: Op,
    /// First sector of the device.
    pub at: u64,
    /// Sectors.
    pub length: u64,
}

impl Access {
    /// Whether it reads or changes a sector of a disk.
    pub fn covers(&self, disk: u16, sector: u64) -> bool {
        self.disk == disk && self.op != Op::Flush && (self.at..self.at + self.length).contains(&sector)
    }
}

/// Checks accesses, and superblocks that become visible. An error is a violation. What a watch does not name it permits.
pub trait Watch {
    /// An operation is submitted.
    fn submitted(&self, _access: Access) -> Result<(), String> {
        Ok(())
    }
    /// A superblock is about to be written.
    fn superblock_submitted(&self, _disk: u16, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
    /// A write of the superblock is complete; `bytes` are the sectors 8..16 now.
    fn superblock(&self, _disk: u16, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
    /// An operation has failed.
    fn failed(&self, _access: Access, _error: ErrorKind) {}
    /// The array has failed the member and uses it no more.
    fn given_up(&self, _disk: u16) {}
    /// These sectors were corrupted silently.
    fn corrupted(&self, _disk: u16, _at: u64, _length: u64) {}
}
