//! The doctor: finds the geometry of an array whose superblocks are lost, and what of an array costs I/O or safety.
//! Owns: [`search()`], the ranking of geometries and orders; [`examine()`], the findings about an array and what lies on
//! it; [`predict()`], what writing a file costs. Not here: reading members or file systems (the caller), addresses (`layout`),
//! plans of writes (`engine`).
//! Invariant: it only reads, and never claims to be sure if a second candidate explains as much.

mod cost;
mod order;

pub use cost::extents::{Extent, ExtentFlags, Prediction, predict};
pub use cost::facts::{Content, Facts, MemberFacts, Volume};
pub use cost::findings::{Finding, Severity, cost_text, examine, size_text};
pub use cost::healthy::healthy_cost;
pub use order::question::{Members, Question, SearchError, Trial};
pub use order::ranking::{Candidate, Ranking, Tally, Verdict};
pub use order::search::search;
