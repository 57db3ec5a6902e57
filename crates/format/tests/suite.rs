//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what the quick list of faults runs (programs of their own, in `Cargo.toml`).
//! Invariant: a file beside this one is in one of the two lists, or it would never run; `cargo xtask tidy` checks it.

mod bounds;
mod create;
mod docs;
mod find;
mod logs;
mod mdadm;
mod mutations;
mod old;
mod partition;
mod vectors;
