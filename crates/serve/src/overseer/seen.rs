//! What an overseer remembers of passes: the check that runs, and what the history has said.
//! Owns: [`CheckRun`], [`PassSeen`]. Not here: what is done with them (`checking`, `notes`).

use uraid_block::Tick;
use uraid_control::protocol::CheckFact;
use uraid_engine::Progress;

/// A check or repair that runs.
pub(super) struct CheckRun {
    /// In seconds since 1970.
    pub(super) began: u64,
    pub(super) at: Tick,
    /// When its place was kept last.
    pub(super) kept: Tick,
    /// How far it was when it was looked at last.
    pub(super) last: Option<Progress>,
    /// What was done of it earlier.
    pub(super) before: Option<CheckFact>,
}

/// What was last seen of passes.
#[derive(Clone, Copy, Default)]
pub(super) struct PassSeen {
    pub(super) pass: Option<Progress>,
    pub(super) usable: usize,
}
