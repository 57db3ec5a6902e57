//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what counts allocations (programs of their own, in `Cargo.toml`).
//! Invariant: a file beside this one is in one of the two lists, or it would never run; `cargo xtask tidy` checks it.

mod clearing;
mod common;
mod extended;
mod hostile;
mod orders;
mod session;
mod socket;
mod stalled;
