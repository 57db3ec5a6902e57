//! The doctor: finds the geometry of an array whose superblocks are lost.
//! Owns: [`search()`], the ranking of geometries and orders. Not here: reading members (the caller), addresses
//! (`layout`).
//! Invariant: it only reads, and never claims to be sure if a second candidate explains as much.

mod bench;
mod counts;
mod marks;
mod orders;
mod parity_place;
mod places;
mod question;
mod ranking;
mod rows;
mod seams;
mod search;

pub use question::{Members, Question, SearchError, Trial};
pub use ranking::{Candidate, Ranking, Tally, Verdict};
pub use search::search;
