//! What the simulator must find in an engine that makes mistakes on purpose, and which branches it must reach.
//! Owns: the checks by name. Not here: the mistakes (`uraid_engine::sabotage`), those of other systems (`museum`).
//! Only in a build with the features `sabotage` and `marks`.

mod canaries;
mod marks;
mod museum;
mod shrinking;

/// Receives each result as soon as it is there: what was found, or what was expected and is missing.
pub type Tell<'a> = &'a dyn Fn(Result<String, String>);

/// The word that chooses a check, and the check.
pub type Named = (&'static str, fn(Tell<'_>));

/// Every check.
pub const ALL: [Named; 4] =
    [("canaries", canaries::run), ("museum", museum::run), ("marks", marks::run), ("shrinking", shrinking::run)];
