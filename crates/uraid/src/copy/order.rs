//! Members whose order is lost: tries every order and prints the ranking.
//! Owns: what is printed, which candidate is copied. Not here: which geometries to try (`trials`), the search
//! (`uraid_doctor`).
//! Invariant: a copy never guesses: the best candidate must be clearly ahead, or the user must choose one.

mod trials;

use super::assume::{self, AssumeError, Geometry};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, Instant};
use trials::Asked;
pub(super) use trials::Unknown;
use uraid_block::sizes;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_doctor::{Candidate, Members, Question, Ranking, SearchError, Tally, Verdict, search};
use uraid_host::Claimed;
use uraid_layout::Level;

/// How many candidates are printed.
const PRINTED_MAX: usize = 8;
/// How often a long search reports its progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(5);

/// Why no order was chosen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// A geometry that no array has, or a member that could not be claimed.
    #[error(transparent)]
    Assume(#[from] AssumeError),
    /// The search is not possible.
    #[error("the order cannot be searched for")]
    Search(#[from] SearchError),
    /// There is no such candidate.
    #[error("there is no candidate {found} in the ranking, it has {count}")]
    NoCandidate {
        found: usize,
        /// How many are kept.
        count: usize,
    },
    /// The best candidate is not clearly ahead.
    #[error("nothing was copied: the order is undecided; --candidate N copies by candidate N of the ranking")]
    Undecided,
    /// The best candidate does not fit.
    #[error("nothing was copied: no candidate fits; --candidate N copies by candidate N of the ranking")]
    Contradicted,
}

/// The geometries to try, and the members in the order they were named; `None` for each that is missing.
pub(super) struct Search {
    asked: Vec<Asked>,
    members: Vec<Option<Claimed>>,
    ranking: Ranking,
}

struct Sectorwise<'a> {
    members: Vec<&'a Claimed>,
    said: Instant,
}

impl Members for Sectorwise<'_> {
    fn read(&mut self, index: usize, at: Sector, into: &mut [u8; SECTOR_BYTES]) -> bool {
        self.members[index].read_at(Sectors(at.0).bytes(), into).is_ok()
    }

    fn progress(&mut self, done: usize, of: usize) {
        if self.said.elapsed() >= PROGRESS_PERIOD {
            self.said = Instant::now();
            uraid_control::log::warn(&format!("searching: {done} of {of} geometries are done"));
        }
    }
}

impl Search {
    /// Tries all orders of these members in all geometries that fit what is given.
    pub(super) fn run(given: &Geometry, unknown: Unknown, members: Vec<Option<Claimed>>) -> Result<Search, OrderError> {
        let asked = trials::trials(given, unknown, &members)?;
        let trials = asked.iter().map(|asked| asked.trial.clone()).collect();
        let mut present = Sectorwise { members: members.iter().flatten().collect(), said: Instant::now() };
        let question = Question { trials, members: present.members.len() };
        let ranking = search(&question, &mut present)?;
        Ok(Search { asked, members, ranking })
    }

    /// The ranking as text.
    pub(super) fn text(&self) -> String {
        let mut text = self.searched();
        for (at, candidate) in self.ranking.candidates.iter().take(PRINTED_MAX).enumerate() {
            let _ = writeln!(text, "{:>3}  {}", at + 1, self.line(candidate));
        }
        for (member, strays) in self.members.iter().flatten().zip(&self.ranking.strays).filter(|(_, n)| **n > 0) {
            let asked = self.ranking.candidates.first().map_or(0, |first| first.rows.asked);
            let _ = writeln!(text, "{} differs from the others in {strays} of {asked} places", member.name());
        }
        text + &self.verdict() + "\n"
    }

    /// What was tried, and what was not.
    fn searched(&self) -> String {
        let ranking = &self.ranking;
        let (done, left) = self.asked.split_at(ranking.trials_tried);
        let mut text = match ranking.tried {
            1 => "1 candidate tried".to_owned(),
            tried => format!("{tried} candidates tried"),
        };
        let chunks: BTreeSet<u64> = done.iter().map(|asked| asked.geometry.chunk.0).collect();
        if let (Some(&first), Some(&last)) = (chunks.first(), chunks.last()) {
            match (first == last, last) {
                (true, 0) => (),
                (true, _) => text += &format!(", chunk {}", sizes::chunk(Sectors(first))),
                (false, _) => {
                    let (first, last) = (Sectors(first), Sectors(last));
                    text += &format!(", chunks {} to {}", sizes::chunk(first), sizes::chunk(last));
                }
            }
        }
        let offsets: BTreeSet<u64> = done.iter().map(|asked| asked.trial.data_offset.0).collect();
        let offsets: Vec<String> = offsets.iter().map(u64::to_string).collect();
        text += &format!(", data from sector {}\n", offsets.join(", "));
        if !left.is_empty() {
            let (left, all) = (left.len(), self.asked.len());
            text += &format!(
                "not tried: {left} of {all} geometries, too much work; give --chunk, --layout or --data-offset\n"
            );
        }
        text
    }

    fn line(&self, candidate: &Candidate) -> String {
        let tallies = [
            (candidate.rows, "rows"),
            (candidate.marks, "marks"),
            (candidate.seams, "seams"),
            (candidate.parity, "places of parity"),
        ];
        let told = |(Tally { agreed, asked }, what)| (asked > 0).then(|| format!("{agreed} of {asked} {what}"));
        let mut agree: Vec<String> = tallies.into_iter().filter_map(told).collect();
        if candidate.begins {
            agree.push("the data offset".to_owned());
        }
        let agree = if agree.is_empty() { "no evidence".to_owned() } else { agree.join(", ") + " agree" };
        format!("{agree}: {}: {}", self.shape(candidate), self.names(candidate))
    }

    fn shape(&self, candidate: &Candidate) -> String {
        let asked = &self.asked[candidate.trial];
        format!("{}, data from sector {}", assume::shape(&asked.geometry), asked.trial.data_offset.0)
    }

    fn names(&self, candidate: &Candidate) -> String {
        let members = self.named(candidate);
        let names: Vec<&str> = members.iter().map(|member| member.as_ref().map_or("missing", Claimed::name)).collect();
        names.join(" ")
    }

    fn verdict(&self) -> String {
        let ranking = &self.ranking;
        let leading = ranking.leading();
        let is_mirror = self.asked.first().is_some_and(|asked| asked.geometry.level == Level::Raid1);
        match ranking.verdict {
            Verdict::Ahead(_) if is_mirror => "sure: the members are copies of each other, in any order".to_owned(),
            Verdict::Ahead(lead) => format!("sure: candidate 1 has {lead} points more than any other"),
            Verdict::Contradicted => {
                "none fits: most of what was looked at contradicts the best candidate: another level, chunk or data \
                 offset, or a member that is stale or of another array"
                    .to_owned()
            }
            Verdict::Undecided => {
                let mut text = format!("undecided: {} candidates or more explain as much", leading.len());
                if leading.len() < 2 {
                    text = "undecided: nothing shows that the best candidate is right".to_owned();
                }
                let names: BTreeSet<String> = leading.iter().map(|candidate| self.names(candidate)).collect();
                let shapes: BTreeSet<String> = leading.iter().map(|candidate| self.shape(candidate)).collect();
                match (names.len(), shapes.len()) {
                    (1, 2..) => text += "; they agree in the order",
                    (2.., 1) => text += "; they agree in all but the order",
                    _ => (),
                }
                text
            }
        }
    }

    fn named(&self, candidate: &Candidate) -> Vec<Option<Claimed>> {
        let present: Vec<&Claimed> = self.members.iter().flatten().collect();
        candidate.order.iter().map(|member| member.map(|member| present[member].clone())).collect()
    }

    /// The candidate to copy: the one with this number, or the first one if it is clearly ahead.
    pub(super) fn choose(&self, number: Option<usize>) -> Result<(Geometry, Vec<Option<Claimed>>), OrderError> {
        let ranking = &self.ranking;
        let at = match (number, ranking.verdict) {
            (Some(number), _) => number,
            (None, Verdict::Ahead(_)) => 1,
            (None, Verdict::Undecided) => return Err(OrderError::Undecided),
            (None, Verdict::Contradicted) => return Err(OrderError::Contradicted),
        };
        let count = ranking.candidates.len();
        let chosen = at.checked_sub(1).and_then(|at| ranking.candidates.get(at));
        let chosen = chosen.ok_or(OrderError::NoCandidate { found: at, count })?;
        Ok((self.asked[chosen.trial].geometry.clone(), self.named(chosen)))
    }
}
