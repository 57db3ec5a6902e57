//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what starts processes (`processes`), counts (`no_allocation`, `no_atomic`)
//! or measures (`measure`).
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod foreign;
mod merging;
mod net;
mod shards;
mod trials;
mod truncation;
