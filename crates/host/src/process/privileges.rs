//! Drops the privileges that this process has beyond its user's.
//! Owns: dropping them. Not here: what must be open before the drop (the caller).
//! Invariant: a thread that has dropped its privileges can never regain any, nor can threads that it starts.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};
use rustix::thread::{remove_capability_from_bounding_set, set_capabilities, set_no_new_privs};

/// Capability sets of the kernel have 64 bits.
const CAPABILITIES_MAX: u32 = 64;

/// The system refused to drop a privilege.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("capabilities cannot be given up: {}; the process goes on with them", crate::sys::errno_text(errno.raw_os_error()))]
pub struct PrivilegeError {
    errno: Errno,
}

/// Drops all capabilities of this thread, and of each thread that it starts afterwards. Threads that already run keep
/// theirs. Call it when everything that needs them is open. No effect on a process without capabilities.
pub fn drop_privileges() -> Result<(), PrivilegeError> {
    // Ignore a kernel without this option.
    let _ = set_no_new_privs(true);
    for number in 0..CAPABILITIES_MAX {
        // Without CAP_SETPCAP the bounding set stays. Executed programs gain nothing from it because of no_new_privs.
        if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)).is_err() {
            break;
        }
    }
    let none = CapabilitySet::empty();
    // This also clears the ambient set, which is a subset of these.
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|errno| PrivilegeError { errno })
}

/// Lifts RLIMIT_MEMLOCK, so that dropping CAP_IPC_LOCK does not limit the memory registered with io_uring. No effect
/// without that capability.
pub fn keep_locked_memory() {
    let may_lock = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if may_lock && getrlimit(Resource::Memlock).current.is_some() {
        // If it is refused, memory above the limit is not registered.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    }
}
