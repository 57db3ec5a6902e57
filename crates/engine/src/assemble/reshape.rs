//! An array whose reshape has begun and not ended: its bytes lie in the old geometry on one side of a position and in
//! the new one on the other.
//! Owns: the start plans of both geometries, for reading. Not here: the fields (`uraid_format`), which members are used
//! (`choose`), going on with the reshape (not implemented). Spec: docs/format/reshape.md.
//! Invariant: md writes the position to all members before it overwrites what the old geometry needs above it. A crash
//! may leave the older or the newer of two rounds on the freshest member. All bytes can be read with either.
//!
//! ```text
//!   forwards, 3 to 4 slots                      backwards, 4 to 3 slots
//!   array  ├─ new: 4 slots ─┼─ old: 3 slots ─┤   ├─ old: 4 slots ─┼─ new: 3 slots ─┤
//!                        position                               position
//! ```

use super::error::{AssembleError, Unsupported};
use super::{AssembleOptions, Candidate, StartPlan, assemble};
use uraid_block::Sectors;
use uraid_format::{Features, ReshapePlan, ReshapeShape, Superblock};

/// Both geometries of an array, over the same candidates.
#[derive(Clone, Debug)]
pub struct HalfReshaped {
    /// Places the sectors below `plan.position`.
    pub below: StartPlan,
    /// Places the sectors from `plan.position` on.
    pub above: StartPlan,
    /// How far the reshape is, by the freshest superblock.
    pub plan: ReshapePlan,
}

impl HalfReshaped {
    /// How much of the array can be read. An array that grows still has its old size. An array that shrinks was cut to
    /// its new size before the reshape.
    pub fn array_size(&self) -> Sectors {
        self.below.layout.array_size().min(self.above.layout.array_size())
    }
}

/// Decides, as [`assemble`] does, which candidates make up an array that is being reshaped, for reading only. `None` if
/// it is not being reshaped.
pub fn assemble_half_reshaped(
    candidates: &[Candidate],
    options: &AssembleOptions,
) -> Option<Result<HalfReshaped, AssembleError>> {
    let is_reshaped = |candidate: &Candidate| candidate.superblock.features.contains(Features::RESHAPE_ACTIVE);
    candidates.iter().any(is_reshaped).then(|| decide(candidates, options))
}

fn decide(candidates: &[Candidate], options: &AssembleOptions) -> Result<HalfReshaped, AssembleError> {
    let options = AssembleOptions { read_only: true, ..*options };
    let old = in_shape(candidates, |plan| plan.from)?;
    let new = in_shape(candidates, |plan| plan.to)?;
    let (from, to) = (assemble(&old, &options)?, assemble(&new, &options)?);
    let freshest = to.members.iter().map(|member| &candidates[member.candidate].superblock);
    let freshest = freshest.max_by_key(|superblock| superblock.events).expect("a plan has members");
    let Some(plan) = reshape_plan(freshest)? else {
        return Err(AssembleError::Unsupported(Unsupported::Reshape));
    };
    assert!(from.read_only.is_some() && to.read_only.is_some(), "a half reshaped array is only read");
    assert_eq!(from.template.set_uuid, to.template.set_uuid, "both geometries are of one array");
    let (below, above) = if plan.is_backwards { (from, to) } else { (to, from) };
    Ok(HalfReshaped { below, above, plan })
}

/// The candidates as they would be if one of the geometries were the only one.
fn in_shape(
    candidates: &[Candidate],
    side: impl Fn(&ReshapePlan) -> ReshapeShape,
) -> Result<Vec<Candidate>, AssembleError> {
    let in_shape = |candidate: &Candidate| {
        let superblock = match reshape_plan(&candidate.superblock)? {
            Some(plan) => of_shape(&candidate.superblock, side(&plan)),
            None => candidate.superblock.clone(),
        };
        Ok(Candidate { superblock, ..candidate.clone() })
    };
    candidates.iter().map(in_shape).collect()
}

fn of_shape(superblock: &Superblock, shape: ReshapeShape) -> Superblock {
    assert!(superblock.reshape.is_some(), "an array with a plan is being reshaped");
    let marks = Features::RESHAPE_ACTIVE.with(Features::RESHAPE_BACKWARDS).with(Features::NEW_OFFSET);
    let ReshapeShape { level, layout, chunk, raid_disks, data_offset } = shape;
    let features = superblock.features.without(marks);
    Superblock { level, layout, chunk, raid_disks, data_offset, features, reshape: None, ..superblock.clone() }
}

fn reshape_plan(superblock: &Superblock) -> Result<Option<ReshapePlan>, AssembleError> {
    superblock.reshape_plan().map_err(|error| AssembleError::Unsupported(Unsupported::ReshapeFields(error)))
}
