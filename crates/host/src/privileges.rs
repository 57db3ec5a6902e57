//! What this process may do beyond what its user may.
//! Owns: giving that up. Not here: what must be open before (the caller).
//! Invariant: a thread that has given its privileges up can gain none again, nor can those that it starts.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};
use rustix::thread::{remove_capability_from_bounding_set, set_capabilities, set_no_new_privs};

/// The kernel counts its capabilities in 64 bits.
const CAPABILITIES_MAX: u32 = 64;

/// The system does not let a privilege go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("capabilities cannot be given up: {}; the process goes on with them", std::io::Error::from(*errno))]
pub struct PrivilegeError {
    errno: Errno,
}

/// Gives up all capabilities of this thread, and of each thread that it starts afterwards. Threads that run already keep
/// theirs. To be called when all is open that needs them; without any, nothing changes.
pub fn drop_privileges() -> Result<(), PrivilegeError> {
    // Where the system does not know this, it is as before.
    let _ = set_no_new_privs(true);
    for number in 0..CAPABILITIES_MAX {
        // Without CAP_SETPCAP the bounding set stays; nothing that is executed gains from it: see above.
        if remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)).is_err() {
            break;
        }
    }
    let none = CapabilitySet::empty();
    // The ambient set goes with these: it is never more than they are.
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).map_err(|errno| PrivilegeError { errno })
}

/// Keeps for the process what CAP_IPC_LOCK gave it: memory that is registered with io_uring counts against a limit
/// without it. Of no effect without that capability.
pub fn keep_locked_memory() {
    let may_lock = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if may_lock && getrlimit(Resource::Memlock).current.is_some() {
        // Where it is refused, memory above the limit is not registered.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    }
}
