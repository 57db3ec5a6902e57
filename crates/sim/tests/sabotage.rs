//! The tests that need the engine's features for tests, as one program: building many small ones takes minutes.
//! Owns: the list of their files. Not here: what runs without features (`suite`), the engine on threads (`shuttle`).
//! `cargo test --release -p uraid-sim --features sabotage,marks --test sabotage`; of one file: with `museum::` behind it.

mod canaries;
mod marks;
mod museum;
mod shrink;
