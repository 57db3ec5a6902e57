//! Measures an array beside its own members, in the same run; servers and parity kernels, too.
//! Owns: works, trial arrays, the loop, the figures and how they are shown. Not here: the command line, consent to lose
//! data, claims on members, wiping them (the binary), where text goes ([`Screen`]).
//! Invariant: every figure was measured in this run.
//!
//! ```text
//!   work, target ──► trace: what would the array ask of its members? ──► programs ────────┐
//!                                                                                         │
//!   table, plot ◄── measure: rounds of  array │ replay │ ideal  by the loop of `drive` ◄──┘
//! ```

mod figures;
pub mod kernels;
mod measure;
pub mod nbd;
mod report;
pub mod scenario;
mod screen;
mod target;
mod work;

pub use measure::{Case, MeasureError};
pub use report::{plot, table};
pub use scenario::cycles::CyclesError;
pub use screen::{Progress, Screen};
use std::time::Duration;
pub use target::{Target, Trial, TrialError};
pub use work::{Pattern, Work, WorkError, parse_bytes, whole_sectors};

use measure::Outcome;
use table::Row;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A trial array could not be made.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The run failed.
    #[error("{what}")]
    Measure {
        /// Which work.
        what: String,
        /// Why.
        source: MeasureError,
    },
    /// A drain or a client hangs.
    #[error("{what}")]
    Cycles {
        /// Which work.
        what: String,
        /// What is lost.
        source: CyclesError,
    },
}

/// How long and how often to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// How long each side runs in each round.
    pub runtime: Duration,
    /// How many rounds.
    pub rounds: u32,
    /// Whether to take the time of each request.
    pub has_latencies: bool,
    /// How many drains the scenario `drain-cycles` does.
    pub cycles: u64,
}

/// Adds the name of the work to an error.
fn measure_error(what: &str) -> impl Fn(MeasureError) -> BenchError {
    move |source| BenchError::Measure { what: what.to_owned(), source }
}

/// Measures one work on one array that is called `on`, and shows the table. `scenario` is the name in the figures.
pub fn measured(case: &Case<'_>, scenario: &str, on: &str, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let outcome = measure::measure(case, screen).map_err(measure_error(&case.name))?;
    Ok(shown(case, scenario, on, &outcome, screen))
}

/// Shows the table of what was measured; returns its rows.
fn shown(case: &Case<'_>, scenario: &str, on: &str, outcome: &Outcome, screen: &dyn Screen) -> Vec<Row> {
    let mut rows = Row::of_case(scenario, &case.work, on, outcome);
    screen.print(&table::case_table(&case.work, on, outcome, &rows));
    rows.extend(scenario::drain_rows(scenario, &case.name, &outcome.drains, screen));
    rows
}
