//! Runs of several checks and proofs, each by one command.
//! Owns: which stages and parts there are, and in which order; the demo. Not here: what a stage does (the rooms below).
//! Called by the program alone.

pub(crate) mod ci;
pub(crate) mod deep;
pub(crate) mod demo;
