//! The simulated machine: one thread, virtual time, shards, and members that fail.
//! Owns: when each task, timer and I/O runs, the trace of it, the engine's world, what a member does with an operation.
//! Not here: which faults happen (`scenario`), what is allowed (`judge`), how crash images do I/O (`crash`). Called by all
//! rooms above.

pub mod event;
pub mod executor;
pub mod fault_kind;
pub mod member;
pub mod trace;
pub mod world;
