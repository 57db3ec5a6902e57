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

use super::choose::recovered_below;
use super::error::{AssembleError, Unsupported};
use super::{AssembleOptions, Candidate, Place, StartPlan, assemble};
use std::collections::BTreeSet;
use std::ops::Range;
use uraid_block::{ArraySector, Sectors, Slot};
use uraid_format::{Features, ReshapePlan, ReshapeShape, Superblock};
use uraid_layout::{Layout, Spec};

/// Both geometries of an array, over the same candidates.
#[derive(Clone, Debug)]
pub struct HalfReshaped {
    /// How each stretch of the array is read: ascending, adjacent, from sector 0 to the end of the array.
    pub parts: Vec<ReshapedPart>,
    /// The old geometry.
    pub from: Layout,
    /// The new geometry.
    pub to: Layout,
    /// How far the reshape is, by the freshest superblock.
    pub plan: ReshapePlan,
}

/// A stretch of an array that is being reshaped.
#[derive(Clone, Debug)]
pub struct ReshapedPart {
    /// Its sectors.
    pub range: Range<ArraySector>,
    /// Whether it has the new geometry.
    pub is_new: bool,
    /// The members of that geometry.
    pub start: StartPlan,
    /// Members that hold something else here, as indexes into the plan's: the reshape had not reached this stretch when
    /// they left, or were recovered. They must not be read.
    pub lacking: Vec<usize>,
}

impl HalfReshaped {
    /// How much of the array can be read. An array that grows still has its old size. An array that shrinks was cut to
    /// its new size before the reshape.
    pub fn array_size(&self) -> Sectors {
        self.from.array_size().min(self.to.array_size())
    }

    /// The members to show: those of the new geometry, if some stretch has it.
    pub fn shown(&self) -> &StartPlan {
        let new = self.parts.iter().find(|part| part.is_new);
        &new.or(self.parts.first()).expect("an array has a sector").start
    }
}

/// Decides, as [`assemble`] does, which candidates make up an array that is being reshaped, for reading only. `None` if
/// it is not being reshaped. A geometry in which no sector lies yet, or any more, needs no member.
pub fn assemble_half_reshaped(
    candidates: &[Candidate],
    options: &AssembleOptions,
) -> Option<Result<HalfReshaped, AssembleError>> {
    let is_reshaped = |candidate: &Candidate| candidate.superblock.features.contains(Features::RESHAPE_ACTIVE);
    candidates.iter().any(is_reshaped).then(|| decide(candidates, options))
}

fn decide(candidates: &[Candidate], options: &AssembleOptions) -> Result<HalfReshaped, AssembleError> {
    let options = AssembleOptions { read_only: true, ..*options };
    let old = assemble(&in_shape(candidates, |plan| plan.from)?, &options);
    let new = assemble(&joined(in_shape(candidates, |plan| plan.to)?), &options);
    // All members have a slot of the wider geometry: what is missing is told by the new one.
    let either = match (&new, &old) {
        (Ok(either), _) | (Err(_), Ok(either)) => either,
        (Err(of_new), Err(of_old)) => return Err(if has_begun(candidates) { of_new } else { of_old }.clone()),
    };
    let freshest = either.members.iter().map(|member| &candidates[member.candidate].superblock);
    let freshest = freshest.max_by_key(|superblock| superblock.events).expect("a plan has members");
    let Some(plan) = reshape_plan(freshest)? else {
        return Err(AssembleError::Unsupported(Unsupported::Reshape));
    };
    let (from, to) = (layout_of(&old, freshest, plan.from)?, layout_of(&new, freshest, plan.to)?);
    let size = from.array_size().min(to.array_size()).0;
    let position = plan.position.0.min(size);
    let (of_old, of_new) =
        if plan.is_backwards { (0..position, position..size) } else { (position..size, 0..position) };
    let mut parts = Vec::new();
    if !of_old.is_empty() {
        let range = ArraySector(of_old.start)..ArraySector(of_old.end);
        parts.push(ReshapedPart { range, is_new: false, start: old?, lacking: Vec::new() });
    }
    if !of_new.is_empty() {
        parts.extend(cut(candidates, &plan, of_new, new?));
    }
    parts.sort_by_key(|part| part.range.start);
    assert!(parts.iter().all(|part| part.start.read_only.is_some()), "a half reshaped array is only read");
    assert!(parts.windows(2).all(|two| two[0].range.end == two[1].range.start), "the parts are adjacent");
    Ok(HalfReshaped { parts, from, to, plan })
}

/// Whether some sector has the new geometry, by the freshest superblock.
fn has_begun(candidates: &[Candidate]) -> bool {
    let superblocks = candidates.iter().map(|candidate| &candidate.superblock);
    let freshest = superblocks.filter(|superblock| superblock.reshape.is_some()).max_by_key(|it| it.events);
    let plan = freshest.and_then(|superblock| superblock.reshape_plan().ok()?);
    plan.is_none_or(|plan| plan.is_backwards || plan.position.0 > 0)
}

/// Cuts the stretch with the new geometry where a member's part in the reshape ended.
///
/// ```text
///   forwards         0          9 of slot 1       20 of the array
///   new geometry     ├─────────────┼─────────────────┤├─ old geometry
///   slot 1           like the rest │ the old geometry's bytes: lacking
/// ```
fn cut(candidates: &[Candidate], plan: &ReshapePlan, of_new: Range<u64>, start: StartPlan) -> Vec<ReshapedPart> {
    let reached: Vec<(usize, u64)> = start
        .members
        .iter()
        .enumerate()
        .filter(|(_, member)| matches!(member.place, Place::Slot(_)))
        .map(|(index, member)| {
            (index, reached(&candidates[member.candidate].superblock, member.candidate, plan, &start))
        })
        .collect();
    let inside = reached.iter().map(|(_, at)| *at).filter(|at| of_new.contains(at));
    let edges: BTreeSet<u64> = inside.chain([of_new.start, of_new.end]).collect();
    let edges: Vec<u64> = edges.into_iter().collect();
    let part = |edge: &[u64]| {
        let holds = |at: u64| if plan.is_backwards { at <= edge[0] } else { edge[1] <= at };
        let lacking = reached.iter().filter(|(_, at)| !holds(*at)).map(|(index, _)| *index).collect();
        let range = ArraySector(edge[0])..ArraySector(edge[1]);
        ReshapedPart { range, is_new: true, start: start.clone(), lacking }
    };
    edges.windows(2).map(part).collect()
}

/// How far a member took part in the reshape, as a position of it. A current member took part in all of it, but for one
/// that joined: it is recovered by the reshape. One that left, and is taken by force, did so up to its own position.
fn reached(own: &Superblock, candidate: usize, plan: &ReshapePlan, start: &StartPlan) -> u64 {
    let nowhere = if plan.is_backwards { u64::MAX } else { 0 };
    let left_at = match (start.forced.raised.contains(&candidate), own.reshape_plan()) {
        (false, _) => plan.position.0,
        (true, Ok(Some(own))) => own.position.0,
        (true, _) => nowhere,
    };
    if !own.features.contains(Features::RECOVERY_OFFSET) {
        return left_at;
    }
    // Recovered in whole rows of its data.
    let (chunk, stripe) = (start.layout.chunk().0, start.layout.stripe().0);
    let below = recovered_below(own).0;
    let recovered = below.checked_div(chunk).map_or(below, |rows| rows.saturating_mul(stripe));
    if plan.is_backwards { nowhere } else { left_at.min(recovered) }
}

/// A member that joined for the reshape is recovered by it: in the new geometry it is in sync as far as that has come.
fn joined(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let marks = Features::RECOVERY_OFFSET;
    let is_whole = |superblock: &Superblock| !superblock.features.intersects(marks.with(Features::REPLACEMENT));
    let in_sync: BTreeSet<Slot> = candidates
        .iter()
        .filter(|candidate| is_whole(&candidate.superblock))
        .filter_map(|candidate| candidate.superblock.own_role().slot())
        .collect();
    for Candidate { superblock, .. } in &mut candidates {
        let is_second = superblock.features.contains(Features::REPLACEMENT);
        let is_alone = superblock.own_role().slot().is_some_and(|slot| !in_sync.contains(&slot));
        if is_alone && !is_second && !recovered_below(superblock).is_zero() {
            superblock.features = superblock.features.without(marks);
        }
    }
    candidates
}

/// The layout of a geometry, also if it lacks members.
fn layout_of(
    start: &Result<StartPlan, AssembleError>,
    freshest: &Superblock,
    shape: ReshapeShape,
) -> Result<Layout, AssembleError> {
    if let Ok(start) = start {
        return Ok(start.layout.clone());
    }
    let superblock = of_shape(freshest, shape);
    let Some((level, layout)) = superblock.level_layout() else {
        return Err(AssembleError::Unsupported(Unsupported::Level(superblock.level)));
    };
    let slots = u16::try_from(shape.raid_disks).map_err(|_| too_many(shape.raid_disks))?;
    let Superblock { chunk, size, .. } = superblock;
    let spec = Spec { level, layout, chunk, raid_disks: slots, size, member_sizes: Vec::new() };
    Layout::new(&spec).map_err(AssembleError::Layout)
}

fn too_many(found: u32) -> AssembleError {
    AssembleError::TooManySlots { found, maximum: u32::from(uraid_block::SlotSet::SLOTS_MAX) }
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
