//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: any test.
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod common;
mod member_requests;
mod run;
