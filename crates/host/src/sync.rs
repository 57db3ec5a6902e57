//! What threads share is made of these.
//! Owns: their names. Not here: any of them; `tests/loom` puts loom's in their place and compiles the same files.

pub(crate) use std::sync::Mutex;
pub(crate) use std::sync::atomic::{AtomicBool, fence};
