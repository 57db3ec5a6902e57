//! The answer: candidates, the evidence for each, and how sure it is.
//! Owns: the weight of a piece of evidence, the lead that is enough. Not here: the evidence (`rows`, `marks`, `seams`,
//! `parity_place`).
//! Invariant: "sure" needs a lead over every other candidate that tried to explain the same bytes.
//!
//! ```text
//!                                       rows   marks  begins  seams  parity   points = 4*(rows + marks + 2*begins) + seams + parity
//!  1  left-symmetric,  a b c d           16     13      1      58      19      4*(16+13+2) + 58 + 19 = 201
//!  2  left-asymmetric, a b c d           16      9      1      31      19      4*(16+ 9+2) + 31 + 19 = 158     43 behind: sure
//! ```
//! A row or a mark is an equality of many bytes, which does not happen by chance. A seam and a place of parity are
//! guesses.

/// The weight of a row or a mark, in points; a seam or a place of parity counts one.
const HARD_POINTS: usize = 4;
/// The lead in points that the best needs: one row can be a coincidence, and so can several seams.
const LEAD_MIN: usize = 8;
/// Candidates that are kept, the best first.
pub(crate) const KEPT_MAX: usize = 32;

/// How many places were checked, and how many agreed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Places whose content is what this candidate expects.
    pub agreed: usize,
    /// Places that were checked.
    pub asked: usize,
}

impl Tally {
    pub(crate) fn add(&mut self, agrees: bool) {
        self.agreed += usize::from(agrees);
        self.asked += 1;
    }
}

/// One order of one geometry, and its evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The index of the geometry.
    pub trial: usize,
    /// The member of each slot; `None` is missing.
    pub order: Vec<Option<usize>>,
    /// Rows whose parity, or whose copies, fit. For raid4 and raid5 the same in every order.
    pub rows: Tally,
    /// Copies of superblocks and tables of file systems and partitions.
    pub marks: Tally,
    /// Ends of chunks at which the data continues as expected.
    pub seams: Tally,
    /// Rows in which the member that looks like parity is the expected one.
    pub parity: Tally,
    /// Whether something is stored at the start of the data area, and nothing directly before it.
    pub begins: bool,
}

impl Candidate {
    /// The points of the evidence that chance does not produce.
    fn hard(&self) -> usize {
        self.rows.agreed + self.marks.agreed + 2 * usize::from(self.begins)
    }

    /// The points of all evidence.
    pub fn points(&self) -> usize {
        HARD_POINTS * self.hard() + self.seams.agreed + self.parity.agreed
    }
}

/// How sure the ranking is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The first candidate leads every other by this many points.
    Ahead(usize),
    /// The lead of the first candidate is too small.
    Undecided,
    /// Most of the rows, or of the seams, contradict the best candidate: the array was not laid out like this.
    Contradicted,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The best first, at most 32.
    pub candidates: Vec<Candidate>,
    /// How many were tried.
    pub tried: u64,
    /// How many of the geometries were tried: only the first ones if all would have been too much work.
    pub trials_tried: usize,
    /// raid1: in how many rows each member differs from the majority, by the member's number.
    pub strays: Vec<usize>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Ranking {
    /// The candidates that explain about as much as the first one: one, if the verdict is `Ahead`.
    pub fn leading(&self) -> &[Candidate] {
        let Some(first) = self.candidates.first() else { return &[] };
        let count = self.candidates.partition_point(|other| other.points() + LEAD_MIN > first.points());
        &self.candidates[..count]
    }
}

/// Keeps a candidate if it is among the best; of equals the earlier one comes first.
pub(crate) fn keep(best: &mut Vec<Candidate>, found: Candidate) {
    let place = best.partition_point(|other| other.points() >= found.points());
    if place < KEPT_MAX {
        best.insert(place, found);
        best.truncate(KEPT_MAX);
    }
}

/// The verdict on the best candidates.
pub(crate) fn verdict(best: &[Candidate]) -> Verdict {
    let Some(first) = best.first() else { return Verdict::Undecided };
    let lead = first.points() - best.get(1).map_or(0, Candidate::points);
    if lead < LEAD_MIN {
        return Verdict::Undecided;
    }
    // Most rows do not match: it is another level, or a member is stale or of another array.
    if first.rows.agreed * 2 < first.rows.asked {
        return Verdict::Contradicted;
    }
    // A lead by rows and marks needs no guesses. A lead by guesses needs most of the guesses to agree.
    let others = best[1..].iter().map(Candidate::hard).max().unwrap_or(0);
    let (agreed, asked) = (first.seams.agreed + first.parity.agreed, first.seams.asked + first.parity.asked);
    if first.hard() < others + 2 && agreed * 3 < asked * 2 {
        return Verdict::Contradicted;
    }
    Verdict::Ahead(lead)
}
