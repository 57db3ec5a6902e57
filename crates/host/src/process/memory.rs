//! Checks that the system will give the memory that is about to be allocated.
//! Owns: the trial mapping, the error, what the C library reserves. Not here: the memory of members (`member`), the arenas
//! (`block`).
//! Invariant: the trial mapping is released again, so a later allocation may still fail.

use crate::sys;
use rustix::process::{Resource, getrlimit};

const MIB: u64 = 1 << 20;

/// The system does not have this much memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory {
    /// Bytes of memory, and of address space, that were requested.
    pub wanted: [u64; 2],
    /// The limit on address space of this process, in bytes.
    pub limit: Option<u64>,
}

impl std::error::Error for NoMemory {}

impl std::fmt::Display for NoMemory {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [memory, space] = self.wanted.map(|bytes| bytes.div_ceil(MIB));
        write!(out, "{memory} MiB of memory and {space} MiB more of address space are needed, and ")?;
        match self.limit {
            Some(limit) => write!(out, "this process may have {} MiB in all (ulimit -v)", limit / MIB),
            None => write!(out, "the system has less: see /proc/sys/vm/overcommit_memory and ulimit -d"),
        }
    }
}

/// Under a limit on address space (`ulimit -v`), lets all threads allocate from one heap. Without it, the GNU C library
/// reserves 64 MiB for each thread that allocates while another one does: what is left for an array would depend on how
/// busy the machine is. Called before the first thread begins. Requests do not allocate, so they do not wait for the heap.
pub fn share_heap_under_a_limit() {
    #[cfg(target_env = "gnu")]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: no pointers. No other thread allocates yet. A value that the C library does not take changes nothing.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Checks that the system would give `memory` bytes, and `space` more bytes of address space without memory.
pub fn ensure_memory(memory: u64, space: u64) -> Result<(), NoMemory> {
    let refused = |_| NoMemory { wanted: [memory, space], limit: getrlimit(Resource::As).current };
    let held = sys::Mapping::new(memory, true).map_err(refused)?;
    sys::Mapping::new(space, false).map_err(refused)?;
    drop(held);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_granted_and_a_refusal_names_the_amount() {
        assert_eq!(ensure_memory(1 << 20, 1 << 30), Ok(()));
        let refused = ensure_memory(1 << 20, 1 << 60).expect_err("more than the address space");
        assert_eq!(refused.wanted, [1 << 20, 1 << 60]);
    }
}
