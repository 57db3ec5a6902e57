//! The tests of this crate that start processes, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what starts none (`suite`).
//! Invariant: a test that claims files, or starts a process, holds a [`common::StartLock`].

mod common;
mod endings;
mod loops;
mod members;
mod registered;
mod windows;
mod write_back;
