//! The doctor: finds the geometry of an array whose superblocks are lost, and what of an array costs I/O or safety.
//! Owns: [`search()`], the ranking of geometries and orders; [`examine()`], the findings about an array and what lies on
//! it; [`predict()`], what writing a file costs. Not here: reading members or file systems (the caller), addresses (`layout`),
//! plans of writes (`engine`).
//! Invariant: it only reads, and never claims to be sure if a second candidate explains as much.

mod bench;
mod cost;
mod counts;
mod extents;
mod facts;
mod findings;
mod marks;
mod orders;
mod parity_place;
mod places;
mod question;
mod ranking;
mod rows;
mod seams;
mod search;

pub use cost::healthy_cost;
pub use extents::{Extent, ExtentFlags, Prediction, predict};
pub use facts::{Content, Facts, MemberFacts, Volume};
pub use findings::{Finding, Severity, cost_text, examine, size_text};
pub use question::{Members, Question, SearchError, Trial};
pub use ranking::{Candidate, Ranking, Tally, Verdict};
pub use search::search;
