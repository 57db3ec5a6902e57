//! What is said of an array while it runs: why it froze, what its members failed with, what they
//! all lost, how far a pass is.
//! Owns: these words and lines. Not here: what happens to be said (`overseer`), the log (`uraid_control::log`). Called by
//! all rooms above; it calls no one.

pub(crate) mod frozen;
pub(crate) mod lost;
pub(crate) mod member_errors;
pub(crate) mod pace;
pub mod progress;
