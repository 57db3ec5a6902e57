//! The engine's decision about members, reported with their names.
//! Owns: messages about members left out, histories that exclude each other, and what `--force` did.
//! Not here: the decision (`engine::assemble`). Invariant: every named member that is left out gets a line.

use std::error::Error;
use std::fmt;
use uraid_control::dates;
use uraid_control::log::warn;
use uraid_control::names::printable;
use uraid_engine::{
    AssembleError, AssembleOptions, Candidate, MemberPlan, ReadOnlyReason, Refused, StartPlan, assemble,
};
use uraid_format::{Features, uuid};

/// Why members make up no array, with their names.
#[derive(Debug)]
pub struct NamedError {
    error: Box<AssembleError>,
    /// One for each candidate.
    names: Vec<String>,
    /// Members of which something was said that comes before any advice.
    cautioned: Vec<String>,
}

impl NamedError {
    /// `names[i]` is the name of candidate `i`.
    pub fn new(error: AssembleError, names: &[String]) -> NamedError {
        NamedError { error: Box::new(error), names: names.to_vec(), cautioned: Vec::new() }
    }

    /// The same, after something was said of these members.
    pub fn cautioned(self, cautioned: Vec<String>) -> NamedError {
        NamedError { cautioned, ..self }
    }
}

impl fmt::Display for NamedError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.named(&|candidate| self.names[candidate].clone()).fmt(out)?;
        if self.cautioned.is_empty() {
            return Ok(());
        }
        write!(out, "; but first read what is said of {} above", self.cautioned.join(", "))
    }
}

impl Error for NamedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// Decides, and reports on stderr which members are left out and why. `names[i]` is candidate `i` on the command line.
pub fn decide(candidates: &[Candidate], names: &[String], options: &AssembleOptions) -> Result<StartPlan, NamedError> {
    let outcome = assemble(candidates, options);
    let lines = match &outcome {
        Ok(plan) => plan_lines(plan, names),
        Err(error) => error_lines(error, names),
    };
    for line in lines {
        warn(&line);
    }
    outcome.map_err(|error| NamedError::new(error, names))
}

/// Why an array opens read-only; `name` returns the name of a member of its plan.
pub fn read_only_text(plan: &StartPlan, name: impl Fn(usize) -> String) -> Option<String> {
    let reason = plan.read_only?;
    // Every mdadm makes lists that count in sectors.
    let has_odd = |member: &MemberPlan| {
        member.superblock.features.contains(Features::BAD_BLOCKS) && member.superblock.bad_blocks.shift != 0
    };
    let bad = plan.members.iter().enumerate().filter(|(_, member)| has_odd(member));
    let bad: Vec<String> = bad.map(|(at, _)| name(at)).collect();
    Some(match reason {
        ReadOnlyReason::BadBlocks if !bad.is_empty() => {
            let verb = if bad.len() > 1 { "have lists" } else { "has a list" };
            format!(
                "{} {verb} of bad blocks in units other than sectors, which uraid reads and does not write",
                bad.join(", ")
            )
        }
        ReadOnlyReason::Requested
        | ReadOnlyReason::OldSuperblock
        | ReadOnlyReason::Bitmap
        | ReadOnlyReason::BitmapUnusable(_)
        | ReadOnlyReason::Ppl
        | ReadOnlyReason::BadBlocks
        | ReadOnlyReason::Events { .. }
        | ReadOnlyReason::TwoMembers
        | ReadOnlyReason::Journal
        | ReadOnlyReason::Member => reason.to_string(),
    })
}

/// What is said of a start: who is left out and why, and what `--force` did.
pub fn plan_lines(plan: &StartPlan, names: &[String]) -> Vec<String> {
    let mut lines = refused_lines(&plan.refused, names);
    lines.extend(started_lines(plan, names));
    lines
}

/// What is said of members that are not left out.
pub fn started_lines(plan: &StartPlan, names: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for &raised in &plan.forced.raised {
        lines.push(format!("{}: missed the last changes and is taken all the same, by --force", names[raised]));
    }
    if !plan.forced.raised.is_empty() {
        lines.push(
            "what was written since they left is old in some places and new in others: check the content of files, not \
             only the file system; to serve the array like this writes to its members, and `uraid copy --force` does not"
                .to_owned(),
        );
    }
    if plan.read_only == Some(ReadOnlyReason::Journal) {
        lines.push(format!("it can only be read: {}", ReadOnlyReason::Journal));
    }
    if plan.forced.is_dirty_degraded {
        let (why, places) = match plan.template.is_dirty() {
            true => ("the array was dirty and is degraded", "writes were in flight"),
            false => ("the array is degraded, and members were taken that missed changes", "they missed some"),
        };
        lines.push(format!(
            "{why}: by --force it starts all the same; what the missing members held may be computed wrongly where \
             {places}: check the data"
        ));
    }
    if plan.forced.is_split_brain {
        lines.push("the members tell several histories: by --force the freshest one was chosen".to_owned());
    }
    lines
}

fn error_lines(error: &AssembleError, names: &[String]) -> Vec<String> {
    match error {
        AssembleError::SeveralArrays { sets } => sets
            .iter()
            .map(|set| {
                let (members, name) = (list(&set.candidates, names), printable(&set.name));
                format!("{members}: of array {name} ({})", uuid::text(&set.set_uuid))
            })
            .collect(),
        AssembleError::Duplicate { candidates, .. } => {
            vec![format!(
                "{} and {} are both for the same place in the array",
                names[candidates[0]], names[candidates[1]]
            )]
        }
        AssembleError::Mismatch { candidate, .. } => {
            vec![format!("{}: does not agree with the others", names[*candidate])]
        }
        AssembleError::SplitBrain { histories } => histories
            .iter()
            .map(|history| {
                let (events, updated) = (history.events, dates::utc(history.updated_seconds));
                format!("{}: one history, {events} events, last changed {updated}", list(&history.candidates, names))
            })
            .collect(),
        AssembleError::TooFewMembers { refused, .. }
        | AssembleError::NeedsRun { refused, .. }
        | AssembleError::DirtyDegraded { refused, .. } => refused_lines(refused, names),
        AssembleError::NoCandidates
        | AssembleError::OnlySpares { .. }
        | AssembleError::Unsupported(_)
        | AssembleError::TooManySlots { .. }
        | AssembleError::Layout(_) => Vec::new(),
    }
}

/// Who is left out, and why.
pub fn refused_lines(refused: &[Refused], names: &[String]) -> Vec<String> {
    refused.iter().map(|refused| format!("{}: left out: {}", names[refused.candidate], refused.reason)).collect()
}

fn list(candidates: &[usize], names: &[String]) -> String {
    candidates.iter().map(|&candidate| names[candidate].as_str()).collect::<Vec<_>>().join(", ")
}
