//! The brain: array state, request paths, epochs, rows, the metadata writer, assembly.
//! Owns: what a member is trusted with, and in which order things become durable. Not here: how a device does I/O.
//! Invariant: no write is answered before the superblocks say truthfully who holds it.

pub mod assemble;
pub mod world;

pub use assemble::{
    AssembleError, AssembleOptions, Candidate, MemberPlan, Place, ReadOnlyReason, Refusal, Refused, StartPlan, assemble,
};
pub use world::{Mail, Pool, World};
