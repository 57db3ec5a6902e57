//! What many runs show.
//! Owns: ranges of seeds, figures, mistakes that must be found, every partial round of superblocks, small runs for what was
//! found. Not here: one run (`scenario`), crash images (`crash`). Called by the program and by tests.

pub mod enumerator;
pub mod fleet;
#[cfg(feature = "canaries")]
pub mod museum;
pub mod prove;
#[cfg(feature = "marks")]
pub mod self_check;
pub mod shrink;
