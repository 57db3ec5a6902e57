//! Small types and pure decisions that know no shard and no state.
//! Owns: what an error means (`verdict`), failures, progress and findings of passes, lists of bad blocks, sets of ranges.
//! Not here: what has more than one owner. Called by all rooms above; it calls no one.

pub(crate) mod bad_blocks;
pub(crate) mod blame;
pub(crate) mod config;
pub(crate) mod failure;
pub(crate) mod findings;
pub(crate) mod join_error;
pub(crate) mod log_order;
pub mod mark;
pub(crate) mod progress;
pub(crate) mod range_set;
pub(crate) mod read_errors;
pub mod verdict;
