//! What is right, by slow code that shares nothing with the engine.
//! Owns: where each sector lies and what parity must be (`model`), what each sector may hold (`oracle`). Not here: comparing
//! that with the members (`judge`). Called by all rooms above.

pub mod model;
pub mod oracle;
