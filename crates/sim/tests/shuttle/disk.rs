//! A member: memory that all shards share, and that a helper thread of the host's ring reads and writes.
//! Owns: [`Disk`], [`Member`], what a flush makes durable. Not here: its right content (`judge`).
//! Invariant: an operation accesses the bytes in one step, on a helper thread and never on the shard's, at a moment
//! between its start and its completion that the schedule draws.

use crate::ring::{Buffers, Driver, Kind};
use shuttle::rand::{Rng, thread_rng};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uraid_block::{
    Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, SECTOR_BYTES, Sector, Sectors, WritePieces,
};

/// The bytes of a member. The lock is never held across a scheduling point.
pub(crate) struct Medium {
    /// What a read returns.
    pub(crate) current: Vec<u8>,
    /// What survives a power cut.
    pub(crate) durable: Vec<u8>,
    /// Sectors that the next flush makes durable.
    is_cached: Vec<bool>,
    operations: u64,
    /// This operation and all later ones fail.
    fails_from: u64,
    flushes: u64,
    /// This flush fails, and drops what it had not made durable.
    fails_flush: u64,
    /// The array was stopped: any access is a violation.
    is_released: bool,
}

/// One member, shared by all shards.
pub(crate) struct Disk {
    geometry: Geometry,
    medium: Mutex<Medium>,
}

/// The work of a helper thread.
enum Work {
    Read { at: usize, into: ReadPieces },
    Write { at: usize, from: WritePieces, fua: Fua },
    Zeroes { at: usize, bytes: usize },
    Flush,
}

impl Work {
    fn describe(&self) -> String {
        match self {
            Work::Read { at, into } => format!("a read of {} bytes at {at}", into.bytes()),
            Work::Write { at, from, fua } => format!("a write of {} bytes at {at}, fua {fua:?}", from.bytes()),
            Work::Zeroes { at, bytes } => format!("{bytes} bytes of zeroes at {at}"),
            Work::Flush => "a flush".to_string(),
        }
    }
}

impl Disk {
    /// A disk with these bytes, all durable.
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Disk> {
        let geometry = Geometry {
            size: Sectors((bytes.len() / SECTOR_BYTES) as u64),
            logical_block: Sectors(1),
            physical_block: Sectors(1),
            chunk: Sectors::ZERO,
            stripe: Sectors::ZERO,
            io_max: Sectors(2048),
            segments_max: 1024,
            discard_granularity: Sectors::ZERO,
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        };
        let medium = Medium {
            durable: bytes.clone(),
            is_cached: vec![false; bytes.len() / SECTOR_BYTES],
            current: bytes,
            operations: 0,
            fails_from: u64::MAX,
            flushes: 0,
            fails_flush: u64::MAX,
            is_released: false,
        };
        Arc::new(Disk { geometry, medium: Mutex::new(medium) })
    }

    /// The bytes.
    pub(crate) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.medium.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All operations from this number on fail.
    pub(crate) fn fail_from(&self, operation: u64) {
        self.medium().fails_from = operation;
    }

    /// This one flush fails, as in Linux: the cached data is dropped, later operations succeed, and no later flush
    /// reports the loss.
    pub(crate) fn fail_flush(&self, flush: u64) {
        self.medium().fails_flush = flush;
    }

    /// Makes every later access a violation.
    pub(crate) fn release(&self) {
        self.medium().is_released = true;
    }

    fn run(&self, work: Work) -> Result<ReadPieces, IoError> {
        let mut medium = self.medium();
        if medium.is_released {
            panic!("a member is touched after the stop: {}", work.describe());
        }
        medium.operations += 1;
        if medium.operations > medium.fails_from {
            return Err(ErrorKind::Media.into());
        }
        let medium = &mut *medium;
        match work {
            Work::Read { at, mut into } => {
                into.copy_from(&medium.current[at..at + into.bytes()]);
                Ok(into)
            }
            Work::Write { at, from, fua } => {
                let range = at..at + from.bytes();
                from.copy_to(&mut medium.current[range.clone()]);
                medium.note_written(range, fua);
                Ok(ReadPieces::new())
            }
            Work::Zeroes { at, bytes } => {
                medium.current[at..at + bytes].fill(0);
                medium.note_written(at..at + bytes, Fua::No);
                Ok(ReadPieces::new())
            }
            Work::Flush => {
                medium.flushes += 1;
                let fails = medium.flushes > medium.fails_flush;
                for sector in 0..medium.is_cached.len() {
                    if std::mem::take(&mut medium.is_cached[sector]) && !fails {
                        medium.settle(sector);
                    }
                }
                if !fails {
                    return Ok(ReadPieces::new());
                }
                medium.fails_flush = u64::MAX;
                Err(ErrorKind::Media.into())
            }
        }
    }
}

impl Medium {
    fn note_written(&mut self, bytes: std::ops::Range<usize>, fua: Fua) {
        for sector in bytes.start / SECTOR_BYTES..bytes.end / SECTOR_BYTES {
            self.is_cached[sector] = fua == Fua::No;
            if fua == Fua::Yes {
                self.settle(sector);
            }
        }
    }

    fn settle(&mut self, sector: usize) {
        let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
        self.durable[range.clone()].copy_from_slice(&self.current[range]);
    }

    /// Replaces bytes; they are durable.
    pub(crate) fn replace(&mut self, start: usize, bytes: &[u8]) {
        self.current[start..start + bytes.len()].copy_from_slice(bytes);
        self.durable[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

/// Yields to other threads, sometimes.
fn maybe_yield() {
    for _ in 0..thread_rng().gen_range(0..4) {
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// A member as one shard accesses it.
pub(crate) struct Member {
    pub(crate) disk: Arc<Disk>,
    pub(crate) driver: Rc<Driver>,
}

impl Member {
    async fn run(&self, work: Work) -> Result<ReadPieces, IoError> {
        let answer = Arc::new(Mutex::new(None));
        let (disk, into) = (self.disk.clone(), answer.clone());
        let call = move || {
            maybe_yield();
            let outcome = disk.run(work);
            maybe_yield();
            *into.lock().expect("no thread panics while it holds the lock") = Some(outcome);
            0
        };
        self.driver.start(Kind::call(call), Buffers::None, None).await;
        let outcome = answer.lock().expect("no thread panics while it holds the lock").take();
        outcome.expect("a completion comes after the operation")
    }
}

fn byte_of(at: Sector) -> usize {
    at.0 as usize * SECTOR_BYTES
}

impl Device for Member {
    fn geometry(&self) -> Geometry {
        self.disk.geometry
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.run(Work::Read { at: byte_of(at), into }).await
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        self.run(Work::Write { at: byte_of(at), from, fua }).await.map(drop)
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.run(Work::Flush).await.map(drop)
    }

    async fn discard(&self, _: Range) -> Result<(), IoError> {
        Err(ErrorKind::Unsupported.into())
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.run(Work::Zeroes { at: byte_of(range.start), bytes: range.length.len_bytes() }).await.map(drop)
    }
}
