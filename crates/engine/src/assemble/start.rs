//! Whether the chosen members can start. (skeleton)
use super::{AssembleError, AssembleOptions, Candidate, StartPlan, choose::Chosen};

pub(super) fn start(
    _candidates: &[Candidate],
    _chosen: Chosen,
    _options: &AssembleOptions,
) -> Result<StartPlan, AssembleError> {
    Err(AssembleError::NoCandidates)
}
