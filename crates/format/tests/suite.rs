//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: any test.
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod bounds;
mod create;
mod docs;
mod find;
mod golden;
mod logs;
mod mdadm;
mod mutations;
mod old;
mod partition;
mod vectors;
