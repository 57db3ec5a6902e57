//! The doctor: what can be said about an array whose superblocks are lost.
//! Owns: [`search`], the ranking of orders and layouts. Not here: reading members (the caller), addresses (`layout`).
//! Invariant: it reads, and never says that it is sure when a second candidate explains as much.

mod marks;
mod order;

pub use order::{Candidate, Members, Question, Ranking, SearchError, Trial, Verdict, search};
