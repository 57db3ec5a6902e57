//! Proofs by other programs: ours, the fuzzer, readers of mdadm's words, cargo-deny.
//! Owns: how each is run, and what counts as a result. Not here: when (`runs`), faults put into the code (`mutants`), a
//! real kernel (`vm`). Called by `runs`.

pub(crate) mod deny;
pub(crate) mod fuzz;
pub(crate) mod parsers;
pub(crate) mod prove;
