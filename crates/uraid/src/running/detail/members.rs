//! The members of an array that does not run, as a report.
//! Owns: the arrays of the given members, their slots by the freshest superblock, what would keep each array from
//! starting. Not here: the decision (`engine::assemble`).
//! Invariant: every readable member is in a report, even if nothing could be started. Nothing is changed.

use super::DetailError;
use crate::shared::blank;
use crate::shared::probe::probe;
use std::time::Duration;
use uraid_block::{Slot, SlotSet};
use uraid_control::asking;
use uraid_control::client;
use uraid_control::member_name;
use uraid_control::report::{
    InUse, LeftOut, Member, NOT_STARTED, REPLACEMENT, Report, Reshape, Shape, WHOLE_REPLACEMENT, flag_words,
};
use uraid_engine::{
    AssembleError, AssembleOptions, Candidate, HalfReshaped, Place, ReadOnlyReason, StartPlan, assemble,
    assemble_half_reshaped,
};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_format::{Features, Role, Superblock};
use uraid_host::{Holder, holder};
use uraid_layout::{Layout, Level, Spec};
use uraid_serve::assembly;
use uraid_serve::opening::{self, Timeouts};

/// The reports of the members' arrays.
pub(super) struct Told {
    /// One for each array.
    pub reports: Vec<Report>,
    /// The error if the members make up no array; shown after the reports.
    pub outcome: Result<(), DetailError>,
}

/// Members with a superblock: their names, and what was found.
#[derive(Clone, Default)]
struct Known {
    names: Vec<String>,
    candidates: Vec<Candidate>,
    /// By candidate.
    bitmaps: Vec<Result<BitmapImage, BitmapUnusable>>,
    /// By candidate.
    holders: Vec<Option<Holder>>,
    /// By candidate: what else lives on it.
    cautions: Vec<Vec<String>>,
}

/// Reads the members and reports the arrays that they belong to. Unreadable members are listed on stderr.
pub(super) fn tell(members: &[String], time_max: Option<Duration>) -> Result<Told, DetailError> {
    let mut known = Known::default();
    let mut first_error = None;
    for name in members {
        match probe(name, time_max) {
            Ok(found) => {
                known.names.push(name.clone());
                known.holders.push(found.holder);
                known.cautions.push(found.cautions);
                known.bitmaps.push(found.bitmap.unwrap_or(Err(BitmapUnusable::NoRoom)));
                let candidate = Candidate::new(found.superblock, found.size);
                let bad_blocks = Some(found.bad_blocks);
                known.candidates.push(Candidate { bad_blocks, ppl: found.ppl, ..candidate });
            }
            Err(error) if members.len() > 1 => {
                uraid_control::log::complain(&error);
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(error) = first_error.filter(|_| known.candidates.is_empty()) {
        return Err(error.into());
    }
    // For the report, allow everything that changes nothing.
    let look = AssembleOptions { force: false, run: true, read_only: true };
    let outcome = assemble(&known.candidates, &look);
    for (name, cautions) in known.names.iter().zip(&known.cautions) {
        cautions.iter().for_each(|text| uraid_control::log::warn(&format!("{name}: {text}")));
    }
    let reports = match &outcome {
        Err(AssembleError::SeveralArrays { sets }) => {
            let sets = sets.iter().map(|set| known.only(&set.candidates));
            sets.map(|set| set.report(&assemble(&set.candidates, &look), time_max)).collect()
        }
        Ok(_) | Err(_) => vec![known.report(&outcome, time_max)],
    };
    let outcome = outcome.map(drop).map_err(|error| DetailError::Assemble { reason: known.text(&error) });
    Ok(Told { reports, outcome })
}

/// The array of each group of members, and the array above them if they carry the superblocks of one.
pub(super) fn tell_stacked(groups: &[Vec<String>], time_max: Option<Duration>) -> Result<Told, DetailError> {
    let look = AssembleOptions { force: false, run: true, read_only: true };
    // Query this before this process claims the members.
    let in_use: Vec<InUse> = groups.iter().flatten().filter_map(|name| in_use_now(name, time_max)).collect();
    let stack = opening::stack(groups, &[], true, &look, &Timeouts::begin().with_members(time_max))?;
    let report = |index| {
        let array = stack.array(index);
        let paths: Vec<String> = (0..array.plan.members.len()).map(|at| stack.member_path(index, at)).collect();
        let of_array = in_use.iter().filter(|it| paths.contains(&client::member_path(&it.path)));
        let of_array = of_array.cloned().collect();
        let mut report = Report { name: array.name.clone(), ..report_of(&array.plan, &paths, Vec::new()) };
        report.set_in_use(of_array);
        report
    };
    Ok(Told { reports: stack.indexes().map(report).collect(), outcome: Ok(()) })
}

impl Known {
    /// The report of an array that starts; `outcome` is of all candidates together.
    fn report_of_start(&self, plan: &StartPlan) -> Report {
        let name = |at: usize| &self.names[at];
        let paths: Vec<String> =
            plan.members.iter().map(|member| client::member_path(name(member.candidate))).collect();
        let left_out = plan
            .refused
            .iter()
            .map(|refused| LeftOut { path: name(refused.candidate).clone(), reason: refused.reason.to_string() });
        report_of(plan, &paths, left_out.collect())
    }

    /// The report of an array whose reshape stopped half-way, with the members of the new geometry.
    fn report_of_half_reshaped(&self, both: &HalfReshaped) -> Report {
        let HalfReshaped { from, to, plan, .. } = both;
        let mut report = self.report_of_start(both.shown());
        report.state.insert(report.state.len() - 1, "reshaping".to_owned());
        // `--draw` shows neither of its two geometries.
        report.geometry = None;
        report.array_sectors = both.array_size().0;
        report.reshape = Some(Reshape {
            position: plan.position.0,
            is_backwards: plan.is_backwards,
            delta_disks: i64::from(to.slots()) - i64::from(from.slots()),
            from: Shape::of(from),
            to: Shape::of(to),
        });
        report
    }

    fn only(&self, candidates: &[usize]) -> Known {
        Known {
            names: candidates.iter().map(|&at| self.names[at].clone()).collect(),
            candidates: candidates.iter().map(|&at| self.candidates[at].clone()).collect(),
            bitmaps: candidates.iter().map(|&at| self.bitmaps[at].clone()).collect(),
            holders: candidates.iter().map(|&at| self.holders[at]).collect(),
            cautions: candidates.iter().map(|&at| self.cautions[at].clone()).collect(),
        }
    }

    /// The members of which something is to be known before an advice is followed.
    fn cautioned(&self) -> Vec<&str> {
        let named = self.names.iter().zip(&self.cautions);
        named.filter(|(_, cautions)| !cautions.is_empty()).map(|(name, _)| name.as_str()).collect()
    }

    /// An error with the members' names in it.
    fn text(&self, error: &AssembleError) -> String {
        let text = error.named(&|at| self.names[at].clone()).to_string();
        let text = std::error::Error::source(error).map_or(text.clone(), |cause| format!("{text}: {cause}"));
        match self.cautioned()[..] {
            [] => text,
            ref names => format!("{text}; but first read what is said of {} above", names.join(", ")),
        }
    }

    /// The report of all known members. `outcome` is that of all of them together; `time_max`: how long a member may
    /// take.
    fn report(&self, outcome: &Result<StartPlan, AssembleError>, time_max: Option<Duration>) -> Report {
        let mut report = match outcome {
            Ok(plan) => self.report_of_start(plan),
            Err(error) => self.report_of_none(error),
        };
        // If the array can be started, find out what `serve` would do: without options, else with --run or --force.
        let as_served = assemble(&self.candidates, &AssembleOptions::default());
        let forms = [false, true].map(|force| AssembleOptions { force, run: true, read_only: false });
        let as_asked = || forms.iter().find_map(|options| assemble(&self.candidates, options).ok());
        if let Some(mut plan) = as_served.as_ref().ok().cloned().or_else(as_asked) {
            plan.take_bitmaps(|candidate| self.bitmaps[candidate].clone());
            let plan = &plan;
            let name = |member: usize| self.names[plan.members[member].candidate].clone();
            report.read_only = assembly::read_only_text(plan, name);
        }
        report.refusal = outcome.as_ref().err().or(as_served.as_ref().err()).map(|error| self.text(error));
        let held = self.names.iter().zip(&self.holders);
        report.set_in_use(held.filter_map(|(name, holder)| Some(in_use(name, (*holder)?))).collect());
        report.is_blank =
            report.in_use.is_empty() && outcome.as_ref().is_ok_and(|plan| blank::is_blank(plan, &self.names, time_max));
        report
    }

    /// The report of members whose array cannot be started.
    fn report_of_none(&self, error: &AssembleError) -> Report {
        match error {
            // All possible members are there: show the slots that `--force` would use.
            AssembleError::DirtyDegraded { .. } | AssembleError::SplitBrain { .. } => {
                let options = AssembleOptions { force: true, run: true, read_only: true };
                if let Ok(plan) = assemble(&self.candidates, &options) {
                    return self.report_of_start(&plan);
                }
            }
            AssembleError::Unsupported(_) => {
                let options = AssembleOptions { force: false, run: true, read_only: true };
                if let Some(Ok(both)) = assemble_half_reshaped(&self.candidates, &options) {
                    return self.report_of_half_reshaped(&both);
                }
            }
            AssembleError::NoCandidates
            | AssembleError::SeveralArrays { .. }
            | AssembleError::OnlySpares { .. }
            | AssembleError::Duplicate { .. }
            | AssembleError::Mismatch { .. }
            | AssembleError::TooManySlots { .. }
            | AssembleError::TooFewMembers { .. }
            | AssembleError::NeedsRun { .. }
            | AssembleError::Layout(_) => {}
        }
        let left_out = self.left_out(error);
        let is_left_out = |at: usize| left_out.iter().any(|(other, _)| *other == at);
        let template = self.freshest(is_left_out);
        let mut members: Vec<Member> =
            (0..self.names.len()).filter(|&at| !is_left_out(at)).map(|at| self.by_role(at, template)).collect();
        let slots = u16::try_from(template.raid_disks).unwrap_or(u16::MAX).min(SlotSet::SLOTS_MAX);
        let is_filled = |slot: &u16| members.iter().any(|member| member.slot == Some(*slot));
        let empty: Vec<u16> = (0..slots).filter(|slot| !is_filled(slot)).collect();
        members.extend(empty.into_iter().map(|slot| empty_slot(template, Slot(slot), !left_out.is_empty())));
        members.sort_by_key(Member::order);
        let mut state = vec![if template.is_dirty() { "active" } else { "clean" }.to_owned()];
        if matches!(error, AssembleError::TooFewMembers { .. }) {
            state.push("FAILED".to_owned());
        }
        state.push(NOT_STARTED.to_owned());
        let left_out = left_out.into_iter().map(|(at, reason)| LeftOut { path: self.names[at].clone(), reason });
        let left_out = left_out.collect();
        Report { state, members, left_out, ..Report::of_template(template, layout_of(template).as_ref()) }
    }

    /// The superblock with the most events, of those with a slot if there are any.
    fn freshest(&self, is_left_out: impl Fn(usize) -> bool) -> &Superblock {
        // One that is left out may be of another array.
        let rank = |(at, candidate): &(usize, &Candidate)| {
            (!is_left_out(*at), candidate.superblock.own_role().slot().is_some(), candidate.superblock.events)
        };
        let freshest = self.candidates.iter().enumerate().rev().max_by_key(rank);
        &freshest.expect("a set has members").1.superblock
    }

    /// The candidates that the error is about, and why.
    fn left_out(&self, error: &AssembleError) -> Vec<(usize, String)> {
        match error {
            AssembleError::TooFewMembers { refused, .. }
            | AssembleError::NeedsRun { refused, .. }
            | AssembleError::DirtyDegraded { refused, .. } => {
                refused.iter().map(|refused| (refused.candidate, refused.reason.to_string())).collect()
            }
            AssembleError::Duplicate { what, candidates: [one, other] } => {
                let same = |other: usize| format!("has the same {what} as {}", self.names[other]);
                vec![(*one, same(*other)), (*other, same(*one))]
            }
            AssembleError::Mismatch { candidate, field, found, expected } => {
                vec![(*candidate, format!("does not fit: {field} is {found}, the freshest member says {expected}"))]
            }
            AssembleError::NoCandidates
            | AssembleError::SeveralArrays { .. }
            | AssembleError::OnlySpares { .. }
            | AssembleError::SplitBrain { .. }
            | AssembleError::Unsupported(_)
            | AssembleError::TooManySlots { .. }
            | AssembleError::Layout(_) => Vec::new(),
        }
    }

    /// A member at its slot in the freshest superblock.
    fn by_role(&self, at: usize, template: &Superblock) -> Member {
        let superblock = &self.candidates[at].superblock;
        let (slot, state) = match template.role_of(superblock.dev_number) {
            Role::Slot(slot) if superblock.features.contains(Features::RECOVERY_OFFSET) => {
                (Some(slot.0), "spare rebuilding")
            }
            Role::Slot(slot) => (Some(slot.0), "active sync"),
            Role::Spare => (None, "spare"),
            Role::Faulty => (None, "faulty"),
            Role::Journal => (None, "journal"),
            Role::BeyondSlots(_) | Role::Reserved(_) => (None, "unknown"),
        };
        member(slot, state, superblock, client::member_path(&self.names[at]))
    }
}

/// Which process uses a member; `None` if none does, or if that cannot be found out.
fn in_use_now(name: &str, time_max: Option<Duration>) -> Option<InUse> {
    let own = name.to_owned();
    let look = move || holder(&member_name::resolve(&own).ok()?).ok()?;
    asking::ask(name, time_max, look).ok()?.map(|holder| in_use(name, holder))
}

fn in_use(name: &str, holder: Holder) -> InUse {
    let pid = match holder {
        Holder::Process(pid) => Some(pid),
        Holder::Unknown => None,
    };
    InUse { path: name.to_owned(), pid }
}

/// The report of an array that could be started. `paths` are those of the plan's members.
fn report_of(plan: &StartPlan, paths: &[String], left_out: Vec<LeftOut>) -> Report {
    let mut state = vec![if plan.is_dirty { "active" } else { "clean" }.to_owned()];
    if !plan.missing.is_empty() {
        state.push("degraded".to_owned());
    }
    state.push(NOT_STARTED.to_owned());
    let placed = plan.members.iter().zip(paths).map(|(found, path)| {
        let (slot, state) = match found.place {
            // Only `--force` would take it.
            Place::Slot(slot) if plan.forced.raised.contains(&found.candidate) => (Some(slot.0), "stale"),
            Place::Slot(slot) => (Some(slot.0), "active sync"),
            Place::Recovering { slot, .. } => (Some(slot.0), "spare rebuilding"),
            Place::Replacing { slot, .. } if found.is_whole_replacement() => (Some(slot.0), WHOLE_REPLACEMENT),
            Place::Replacing { slot, .. } => (Some(slot.0), REPLACEMENT),
            Place::Spare => (None, "spare"),
        };
        member(slot, state, &found.superblock, path.clone())
    });
    let empty = plan
        .missing
        .minus(recovering(plan))
        .iter()
        .map(|slot| empty_slot(&plan.template, slot, !plan.refused.is_empty()));
    let mut members: Vec<Member> = placed.chain(empty).collect();
    members.sort_by_key(Member::order);
    // Ignore that this report itself asked for read-only: that is not a property of the array.
    let read_only = assembly::read_only_text(plan, |member| paths[member].clone());
    let read_only = read_only.filter(|_| plan.read_only != Some(ReadOnlyReason::Requested));
    Report { state, members, read_only, left_out, ..Report::of_template(&plan.template, Some(&plan.layout)) }
}

fn member(slot: Option<u16>, state: &str, superblock: &Superblock, path: String) -> Member {
    Member {
        number: Some(superblock.dev_number),
        slot,
        state: state.to_owned(),
        path: Some(path),
        written: None,
        reason: None,
        data_offset: Some(superblock.data_offset.0),
        flags: flag_words(superblock.flags()),
        path_state: None,
        io: None,
    }
}

/// A slot that the freshest superblock expects to be filled: the member was not given, or is among those left out.
fn empty_slot(template: &Superblock, slot: Slot, is_one_left_out: bool) -> Member {
    let state = match (template.roles.contains(&Role::Slot(slot)), is_one_left_out) {
        (true, false) => "not given",
        (true, true) => "missing",
        (false, _) => "removed",
    };
    Member { state: state.to_owned(), ..Member::removed(slot.0) }
}

/// The slots whose member is being recovered.
fn recovering(plan: &StartPlan) -> SlotSet {
    let slots = plan.members.iter().filter_map(|member| match member.place {
        Place::Recovering { slot, .. } => Some(slot),
        Place::Slot(_) | Place::Replacing { .. } | Place::Spare => None,
    });
    slots.collect()
}

/// The layout of an array whose members are not all known; `None` where it follows from them.
fn layout_of(template: &Superblock) -> Option<Layout> {
    let (level, layout) = template.level_layout()?;
    let raid_disks = u16::try_from(template.raid_disks).ok()?;
    match level {
        Level::Linear | Level::Raid0 => None,
        Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            let (chunk, size) = (template.chunk, template.size);
            Layout::new(&Spec { level, layout, chunk, raid_disks, size, member_sizes: Vec::new() }).ok()
        }
    }
}
