//! Members whose order is lost: every order is tried, and the ranking is told.
//! Owns: which geometries are in question, what is printed. Not here: the search (`uraid_doctor`).
//! Invariant: nothing is copied by a guess: the best candidate must be clearly ahead, or be named.

use super::assume::{self, AssumeError, Geometry};
use std::fmt::Write;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_doctor::{Candidate, Members, Question, Ranking, SearchError, Trial, Verdict, search};
use uraid_host::Claimed;

/// How many candidates are printed.
const PRINTED_MAX: usize = 8;

/// Why no order was chosen.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// A geometry that no array has, or a member that could not be claimed.
    #[error(transparent)]
    Assume(#[from] AssumeError),
    /// It cannot be searched for.
    #[error("the order cannot be searched for")]
    Search(#[from] SearchError),
    /// There is no such candidate.
    #[error("there is no candidate {found} in the ranking, it has {count}")]
    NoCandidate {
        /// The number that was given.
        found: usize,
        /// How many are kept.
        count: usize,
    },
    /// Nothing tells the best from the next.
    #[error("nothing was copied: the order is undecided; --candidate N copies by candidate N of the ranking")]
    Undecided,
}

/// The geometries in question, and the members in the order they were named; `None` for each that is missing.
pub struct Search {
    geometries: Vec<Geometry>,
    members: Vec<Option<Claimed>>,
    ranking: Ranking,
}

struct Sectorwise<'a>(Vec<&'a Claimed>);

impl Members for Sectorwise<'_> {
    fn read(&mut self, index: usize, at: Sector, into: &mut [u8; SECTOR_BYTES]) -> bool {
        self.0[index].read_at(Sectors(at.0).bytes(), into).is_ok()
    }
}

impl Search {
    /// Tries all orders of these members in all of these geometries.
    pub fn run(geometries: Vec<Geometry>, members: Vec<Option<Claimed>>) -> Result<Search, OrderError> {
        let mut trials = Vec::new();
        for geometry in &geometries {
            let creation = assume::creation(geometry, &members)?;
            trials.push(Trial { layout: creation.layout, data_offset: Sector(creation.geometry.data_offset.0) });
        }
        let mut present = Sectorwise(members.iter().flatten().collect());
        let question = Question { trials, members: present.0.len() };
        let ranking = search(&question, &mut present)?;
        Ok(Search { geometries, members, ranking })
    }

    /// The ranking for people.
    pub fn text(&self) -> String {
        let ranking = &self.ranking;
        let mut text = format!("{} candidates tried", ranking.tried);
        if ranking.rows_asked > 0 {
            let _ = write!(text, ", each on {} rows", ranking.rows_asked);
        }
        text.push('\n');
        for (at, candidate) in ranking.candidates.iter().take(PRINTED_MAX).enumerate() {
            let _ = writeln!(text, "{:>3}  {}", at + 1, self.line(candidate));
        }
        let verdict = match ranking.verdict {
            Verdict::Ahead(lead) => format!("sure: candidate 1 agrees in {lead} places more than any other"),
            Verdict::Undecided => "undecided: no candidate is ahead of the others by 2 places or more".to_owned(),
        };
        text + &verdict + "\n"
    }

    fn line(&self, candidate: &Candidate) -> String {
        let members = self.named(candidate);
        let names: Vec<&str> = members.iter().map(|member| member.as_ref().map_or("missing", Claimed::name)).collect();
        let geometry = &self.geometries[candidate.trial];
        let rows = match self.ranking.rows_asked {
            0 => String::new(),
            asked => format!("{} of {asked} rows, ", candidate.rows),
        };
        let marks = format!("{} of {} marks", candidate.marks, candidate.marks_asked);
        format!("{rows}{marks} agree: {}: {}", assume::shape(geometry), names.join(" "))
    }

    fn named(&self, candidate: &Candidate) -> Vec<Option<Claimed>> {
        let present: Vec<&Claimed> = self.members.iter().flatten().collect();
        candidate.order.iter().map(|member| member.map(|member| present[member].clone())).collect()
    }

    /// What to copy by: the candidate with this number, or the first one if it is clearly ahead.
    pub fn choose(&self, number: Option<usize>) -> Result<(Geometry, Vec<Option<Claimed>>), OrderError> {
        let ranking = &self.ranking;
        let at = match (number, ranking.verdict) {
            (Some(number), _) => number,
            (None, Verdict::Ahead(_)) => 1,
            (None, Verdict::Undecided) => return Err(OrderError::Undecided),
        };
        let count = ranking.candidates.len();
        let chosen = at.checked_sub(1).and_then(|at| ranking.candidates.get(at));
        let chosen = chosen.ok_or(OrderError::NoCandidate { found: at, count })?;
        Ok((self.geometries[chosen.trial].clone(), self.named(chosen)))
    }
}
