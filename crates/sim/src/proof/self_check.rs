//! What the simulator must find in an engine that makes mistakes on purpose, and which branches it must reach.
//! Owns: the checks by name. Not here: the mistakes (`tests/canaries/engine.txt`), those of other systems (`museum`).
//! What needs mistakes is only in the copy of the workspace that has them, with the feature `canaries`.

#[cfg(feature = "canaries")]
mod canaries;
mod marks;
#[cfg(feature = "canaries")]
mod museum;
#[cfg(feature = "canaries")]
mod shrinking;

/// Receives each result as soon as it is there: what was found, or what was expected and is missing.
pub type Tell<'a> = &'a dyn Fn(Result<String, String>);

/// The word that chooses a check, and the check.
pub type Named = (&'static str, fn(Tell<'_>));

/// Every check of this build.
pub const ALL: &[Named] = &[
    ("marks", marks::run),
    #[cfg(feature = "canaries")]
    ("canaries", canaries::run),
    #[cfg(feature = "canaries")]
    ("museum", museum::run),
    #[cfg(feature = "canaries")]
    ("shrinking", shrinking::run),
];
