//! What is true of an array, and what follows from it.
//! Owns: the state with its one way to change (`master`), the view that requests see, the proof that superblocks say a
//! failure (`recorded`). Not here: who changes it, and when (`steward`). Called by all rooms above; it calls no one.

pub(crate) mod bits;
pub(crate) mod master;
pub(crate) mod recorded;
pub(crate) mod shape;
pub mod view;
