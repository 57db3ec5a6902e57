//! Why an episode of a storm ended early.
//! Owns: [`Trouble`]. Not here: finding it (`episode`), counting it (`figures`).

use crate::sectors::model::Wrong;
use thiserror::Error;

/// Why an episode ended early.
#[derive(Debug, Error)]
pub enum Trouble {
    /// Acknowledged bytes are missing, or there are bytes that no client wrote.
    #[error("{sectors} sectors hold what they must not; {first}")]
    Lost {
        /// How many sectors.
        sectors: u64,
        /// The first of them.
        first: Wrong,
    },
    /// The server broke a rule other than about bytes.
    #[error("{0}")]
    Conduct(String),
}
