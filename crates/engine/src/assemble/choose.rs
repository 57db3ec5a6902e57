//! Which superblock is the freshest, and who agrees with it. (skeleton)
use super::{AssembleError, Candidate};

pub(super) struct Chosen;

pub(super) fn choose(_candidates: &[Candidate], _force: bool) -> Result<Chosen, AssembleError> {
    Err(AssembleError::NoCandidates)
}
