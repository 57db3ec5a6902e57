//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what counts allocations (`no_allocation`).
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod clearing;
mod common;
mod extended;
mod hostile;
mod orders;
mod session;
mod socket;
mod stalled;
