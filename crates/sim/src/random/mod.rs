//! Random choices, recorded.
//! Owns: numbers from a seed, the tape that reproduces them. Not here: what is chosen with them. Called by all rooms above;
//! it calls no one.

pub mod rng;
pub mod tape;
