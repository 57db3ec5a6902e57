//! What threads share is made of these.
//! Owns: their names. Not here: any of them; `tests/loom` and the simulator's `tests/shuttle` put others in their place
//! and compile the same files.

pub(crate) use std::sync::atomic::{AtomicBool, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
pub(crate) use std::{thread, thread_local};
