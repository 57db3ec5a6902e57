//! The machine floor: shards, executor, timers, signals, mail; files, block devices, memory as devices; sockets; FUSE
//! mounts.
//! Owns: every thread, clock and syscall of the project. Not here: arrays, parity, the protocols that are served.
//! Invariant: a buffer that the kernel may still read or write is held until the completion, even if its future was
//! dropped.

#![allow(unsafe_code, reason = "system calls, and memory that the kernel writes")]

mod bell;
mod door;
mod executor;
mod extents;
mod fuse;
mod limits;
mod mail;
pub mod member;
mod memory;
pub mod net;
mod options;
mod panic_hook;
mod privileges;
mod processors;
mod reclaim;
mod ring;
mod shard;
mod signals;
mod stack;
mod sync;
mod sys;
mod timers;

pub use extents::{ExtentState, FileExtent, file_extents};
pub use fuse::{FuseDevice, FuseError, FuseMount, MountError};
pub use limits::{TooFewDescriptors, close_descriptors_on_exec, ensure_descriptors};
pub use member::{
    Access, BadSectors, Claimed, Holder, Identity, Medium, Member, OpenError, Overlay, PathState, Target, Window,
    holder, used_by_system,
};
pub use memory::{NoMemory, ensure_memory, share_heap_under_a_limit};
pub use net::{Listener, NetError, Peer, Stream};
pub use options::{ARENAS, ArenaBlocks, CLIENT_ARENA, LeftBehind, Options, RingChoice};
pub use privileges::{PrivilegeError, drop_privileges, keep_locked_memory};
pub use processors::{pin, processors_allowed};
pub use reclaim::{ReclaimGuard, guard_against_reclaim};
pub use ring::{SIZE_CLASSES, Trace, TraceCounts, Traced, TracedKind};
pub use shard::{Local, Shard, run};
pub use signals::{Signal, ignore_signals_of_writes, interruption, note_interruptions};
pub use stack::with_stack;
pub use sys::io_text;
