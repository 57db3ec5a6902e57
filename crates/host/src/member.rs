//! Files, block devices, memory and null as devices, claimed so that nobody else serves them.
//! Owns: [`Claimed`], [`Member`]. Not here: what is stored on them.
//! Invariant: no inode is claimed twice, in this process or among those that claim.

use crate::shard::Local;
use std::path::PathBuf;
use uraid_block::{Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, WritePieces};

/// What a claim is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nobody else may claim it.
    ReadWrite,
    /// Other readers may claim it too; nobody may claim it for writing.
    ReadOnly,
}

/// Which inode or device a member is: two names of one thing are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// The device: the file's, or the block device itself.
    pub device: u64,
    /// The inode on it; 0 for a block device.
    pub inode: u64,
}

/// Why a member could not be claimed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such file.
    #[error("{}: not found", path.display())]
    NotFound {
        /// The name given.
        path: PathBuf,
    },
}

/// A member that this process has claimed. Clones are handles of the same claim; it ends with the last.
#[derive(Clone)]
pub struct Claimed(std::sync::Arc<()>);

impl Claimed {
    /// Claims a file, a block device, `mem:SIZE` or `null:SIZE` (SIZE with K, M, G or T, powers of 1024).
    pub fn open(name: impl AsRef<std::path::Path>, access: Access) -> Result<Claimed, OpenError> {
        let _ = (name.as_ref(), access);
        panic!("not built yet")
    }
    /// The name it was opened by.
    pub fn name(&self) -> &str {
        panic!("not built yet")
    }
    /// Its size; a rest below a sector is cut off.
    pub fn size(&self) -> Sectors {
        panic!("not built yet")
    }
    /// Which inode or device it is.
    pub fn identity(&self) -> Identity {
        panic!("not built yet")
    }
    /// What it is like.
    pub fn geometry(&self) -> &Geometry {
        panic!("not built yet")
    }
    /// Reads bytes from byte `at`, blocking: for metadata work before serving.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        let _ = (at, into);
        panic!("not built yet")
    }
    /// Writes bytes from byte `at`, blocking. Durable after [`Claimed::sync`].
    pub fn write_at(&self, at: u64, from: &[u8]) -> Result<(), IoError> {
        let _ = (at, from);
        panic!("not built yet")
    }
    /// Makes what was written durable, blocking.
    pub fn sync(&self) -> Result<(), IoError> {
        panic!("not built yet")
    }
    /// This member as a shard drives it. `&Shard<M>` will do for the shard.
    pub fn on_shard(&self, shard: &Local) -> Member {
        let _ = shard;
        panic!("not built yet")
    }
}

/// A claimed member on one shard.
pub struct Member(());

impl Device for Member {
    fn geometry(&self) -> &Geometry {
        panic!("not built yet")
    }
    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        let _ = (at, into);
        panic!("not built yet")
    }
    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let _ = (at, from, fua);
        panic!("not built yet")
    }
    async fn flush(&self) -> Result<(), IoError> {
        panic!("not built yet")
    }
    async fn discard(&self, range: Range) -> Result<(), IoError> {
        panic!("not built yet: {range:?}")
    }
    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        panic!("not built yet: {range:?}")
    }
}
