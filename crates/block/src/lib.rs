//! The types that every other crate uses.
//! Owns: units and their text, extents, slot sets, buffer leases and memory of others, error kinds, the trait [`Device`], a device in memory,
//! single-threaded waiting.
//! Not here: anything that knows a level, a byte on disk or a syscall.
//! Invariant: while a device may still write a buffer, it is not freed, reused or visible elsewhere ([`buffer`]).

#![allow(unsafe_code, reason = "buffers: memory that a device writes, and pieces of it on other threads")]

pub mod buffer;
pub mod device;
pub mod error;
pub mod foreign;
pub mod local;
pub mod memory;
pub mod pieces;
pub mod sizes;
pub mod slots;
mod sync;
pub mod units;

pub use buffer::{Arena, ArenaFull, Lease, Shared};
pub use device::{Allocation, Device, Fua, Geometry};
pub use error::{ErrorKind, IoError};
pub use foreign::{Changes, ForeignMemory, LendError};
pub use memory::MemoryDevice;
pub use pieces::{Cutter, Pieces, ReadPieces, WritePieces};
pub use slots::{Slot, SlotSet};
pub use units::{
    ArrayRange, ArraySector, Extent, MemberRange, MemberSector, Range, SECTOR_BYTES, Sector, Sectors, ShardIndex, Tick,
};
