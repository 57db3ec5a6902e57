//! The tests of this crate that may share a process, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: the engine on threads (`shuttle`), checks of the checkers (`self_check`).
//! Invariant: a file beside this one is a program, or a module of one: `cargo xtask tidy` checks it.

mod crash_images;
mod determinism;
mod directed;
mod lies;
mod model;
mod own_mistakes;
mod read_errors;
mod rounds;
mod swarm;
