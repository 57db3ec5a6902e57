//! Programs that the commands start: cargo's tests, and those of the system.
//! Owns: what is built and installed, running tests side by side, counting their results. Not here: which are run (`runs`).
//! Called by all rooms above.

pub(crate) mod packages;
pub(crate) mod runner;
pub(crate) mod stage;
pub(crate) mod test_program;
