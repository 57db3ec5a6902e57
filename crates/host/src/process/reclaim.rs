//! What keeps a server of a mount on the same machine from waiting for itself when memory is short.
//! Owns: [`guard_against_reclaim`]. Not here: who needs it (the caller), what can still go wrong (docs/operating/serving.md).
//! Invariant: nothing is refused for a lack of rights: the server then runs with the hazard, and the caller says so.

use crate::sys::{self, Errno};
use rustix::process::{Resource, getrlimit};

/// What the system has granted; else the errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimGuard {
    /// The kernel allocates memory for this process without writing anything back (PR_SET_IO_FLUSHER).
    pub io_flusher: Result<(), i32>,
    /// The memory of this process is not swapped out (mlockall).
    pub locked: Result<(), i32>,
}

/// A file system on a local mount of ours writes dirty pages to us when memory is short. If that finds our own memory
/// swapped out, or if the kernel waits for such a write while it serves us, both wait for ever. Call it before the
/// serving threads are started, which inherit it, and with the process's privileges.
pub fn guard_against_reclaim() -> ReclaimGuard {
    let io_flusher = sys::set_io_flusher().map_err(|Errno(os)| os);
    // With a limit, later allocations of the process would fail at the limit.
    let locked = match getrlimit(Resource::Memlock).current {
        None => sys::lock_memory().map_err(|Errno(os)| os),
        Some(_) => Err(libc::EPERM),
    };
    ReclaimGuard { io_flusher, locked }
}
