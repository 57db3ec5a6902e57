//! The order of members whose superblocks are lost: which member was in which slot, and of which geometry.
//! Owns: the search, the evidence that it collects, the ranking. Not here: what an array costs (`cost`), where an array
//! that is found so is copied to (the caller). It knows nothing of `cost`, and `cost` nothing of it.

pub(crate) mod bench;
pub(crate) mod counts;
pub(crate) mod marks;
pub(crate) mod orders;
pub(crate) mod parity_place;
pub(crate) mod places;
pub(crate) mod question;
pub(crate) mod ranking;
pub(crate) mod rows;
pub(crate) mod seams;
pub(crate) mod search;
