//! The primitives for state that threads share.
//! Owns: their names. Not here: their implementation; `tests/loom` and the simulator's `tests/shuttle` substitute
//! their own and compile the same files.

pub(crate) use std::sync::atomic::{AtomicBool, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, RwLock, mpsc};
pub(crate) use std::{thread, thread_local};
