//! The machine floor: shards, executor, timers, signals, mail; files, block devices, memory as devices; sockets; FUSE
//! mounts.
//! Owns: every thread, clock and syscall of the project. Not here: arrays, parity, the protocols that are served.
//! Invariant: a buffer that the kernel may still read or write is held until the completion, even if its future was
//! dropped.

#![allow(unsafe_code, reason = "system calls, and memory that the kernel writes")]

mod executor;
mod fuse;
mod mail;
pub mod member;
pub mod net;
mod options;
mod process;
mod ring;
mod shard;
mod sync;
mod sys;

pub use fuse::{FuseDevice, FuseError, FuseMount, MountError};
pub use member::{
    Access, BadSectors, Claimed, ExtentState, FileExtent, Holder, Identity, Medium, Member, OpenError, Overlay,
    PathState, Target, Window, file_extents, holder, used_by_system,
};
pub use net::{Listener, NetError, Peer, PeerProcess, Stream};
pub use options::{ARENAS, ArenaBlocks, CLIENT_ARENA, LeftBehind, Options, RingChoice};
pub use process::descriptors::{TooFewDescriptors, close_descriptors_on_exec, ensure_descriptors};
pub use process::heap::Heap;
pub use process::memory::{NoMemory, ensure_memory, share_heap_under_a_limit};
pub use process::privileges::{PrivilegeError, drop_privileges, keep_locked_memory};
pub use process::processors::{pin, processors_allowed};
pub use process::reclaim::{ReclaimGuard, guard_against_reclaim};
pub use process::signals::{Signal, ignore_signals_of_writes, interruption, note_interruptions};
pub use process::stack::with_stack;
pub use ring::{SIZE_CLASSES, Trace, TraceCounts, Traced, TracedKind};
pub use shard::{Local, Shard, run};
pub use sys::io_text;
