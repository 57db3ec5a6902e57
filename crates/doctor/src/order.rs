//! Which member was in which slot: every order of every geometry in question, ranked by what agrees.
//! Owns: the search, its bounds, how sure its answer is. Not here: what marks there are (`marks`).
//! Invariant: all orders are tried or the question is refused; a member is read once per place, and only read.
//!
//! Two kinds of evidence: *rows*, sectors of raid6 whose P and Q fit the data in that order (raid4 and raid5 have only P,
//! which is the same sum in every order), and *marks*, copies of superblocks and tables at the places that the first
//! one tells (a wrong order finds something else there).

use crate::marks::{self, HEAD_BYTES, Mark};
use std::collections::BTreeMap;
use uraid_block::{ArraySector, MemberSector, SECTOR_BYTES, Sector, Sectors, Slot};
use uraid_layout::{Layout, Level};

/// More slots have too many orders.
const SLOTS_MAX: usize = 8;
/// Rows that are compared.
const ROWS_MAX: usize = 16;
/// Places that are looked at for rows that are not all zeroes.
const PLACES_MAX: u64 = 256;
/// By how much the best must be ahead: one agreement can be a coincidence.
const LEAD_MIN: usize = 2;
/// Candidates that are kept, the best first.
const KEPT_MAX: usize = 32;

/// Reads members.
pub trait Members {
    /// Reads one sector of member `index`, counted from the member's start; false when that is not possible.
    fn read(&mut self, index: usize, at: Sector, into: &mut [u8; SECTOR_BYTES]) -> bool;
}

/// A geometry in question.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its addresses.
    pub layout: Layout,
    /// Where data starts on each member.
    pub data_offset: Sector,
}

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The geometries in question, all of one level and number of slots.
    pub trials: Vec<Trial>,
    /// How many members there are, at most as many as slots; the other slots are missing.
    pub members: usize,
}

/// Why there is no ranking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SearchError {
    /// The level is not one whose order can be told.
    #[error("the order of {found} cannot be searched for: raid0, raid4, raid5 and raid6 can")]
    Level {
        /// The level.
        found: &'static str,
    },
    /// Too many orders.
    #[error("{found} slots have too many orders, at most {maximum} slots are searched")]
    Slots {
        /// Slots.
        found: usize,
        /// What is possible.
        maximum: usize,
    },
    /// More is missing than the level can do without.
    #[error("{found} members are too few for {slots} slots of {level}")]
    TooFew {
        /// Members.
        found: usize,
        /// Slots.
        slots: usize,
        /// The level.
        level: &'static str,
    },
}

/// One order of one geometry, and what speaks for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Which of the geometries.
    pub trial: usize,
    /// The member of each slot; `None` is missing.
    pub order: Vec<Option<usize>>,
    /// Rows whose parity fits.
    pub rows: usize,
    /// Marks that are where they should be.
    pub marks: usize,
    /// Marks that were looked for.
    pub marks_asked: usize,
}

impl Candidate {
    /// Everything that agrees.
    pub fn agreed(&self) -> usize {
        self.rows + self.marks
    }
}

/// How sure the ranking is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The first candidate agrees in so many places more than any other.
    Ahead(usize),
    /// No candidate is ahead of the others by enough.
    Undecided,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The best first, at most 32.
    pub candidates: Vec<Candidate>,
    /// How many were tried.
    pub tried: u64,
    /// How many rows each was asked about: 0 where the level has no Q or a member is missing.
    pub rows_asked: usize,
    /// What to make of it.
    pub verdict: Verdict,
}

/// Tries every order of every geometry.
pub fn search(question: &Question, members: &mut impl Members) -> Result<Ranking, SearchError> {
    let mut bench = Bench { members, sectors: BTreeMap::new() };
    let mut best: Vec<Candidate> = Vec::new();
    let (mut tried, mut rows_asked) = (0, 0);
    for (at, trial) in question.trials.iter().enumerate() {
        check(trial, question.members)?;
        let rows = bench.rows(trial, question.members);
        rows_asked = rows_asked.max(rows.len());
        for order in orders(question.members, usize::from(trial.layout.slots())) {
            tried += 1;
            let found = bench.judge(at, trial, order, &rows);
            let place = best.partition_point(|other| other.agreed() >= found.agreed());
            best.insert(place, found);
            best.truncate(KEPT_MAX);
        }
    }
    let lead = match best.as_slice() {
        [first, second, ..] => first.agreed() - second.agreed(),
        [first] => first.agreed(),
        [] => 0,
    };
    let verdict = if lead >= LEAD_MIN { Verdict::Ahead(lead) } else { Verdict::Undecided };
    Ok(Ranking { candidates: best, tried, rows_asked, verdict })
}

fn check(trial: &Trial, members: usize) -> Result<(), SearchError> {
    let layout = &trial.layout;
    let (level, slots) = (layout.level(), usize::from(layout.slots()));
    match level {
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => (),
        // Mirrors: copies in another order are the same bytes. Linear: nothing is repeated that could tell.
        Level::Linear | Level::Raid1 | Level::Raid10 => return Err(SearchError::Level { found: level.name() }),
    }
    if slots > SLOTS_MAX {
        return Err(SearchError::Slots { found: slots, maximum: SLOTS_MAX });
    }
    if members > slots || members + usize::from(layout.tolerates()) < slots {
        return Err(SearchError::TooFew { found: members, slots, level: level.name() });
    }
    Ok(())
}

/// Every way to put the members into the slots. Missing ones are all alike, so no two of them are the same.
fn orders(members: usize, slots: usize) -> Vec<Vec<Option<usize>>> {
    let mut all = Vec::new();
    let mut begun: Vec<Vec<Option<usize>>> = vec![Vec::new()];
    while let Some(order) = begun.pop() {
        if order.len() == slots {
            all.push(order);
            continue;
        }
        let missing = order.iter().filter(|entry| entry.is_none()).count();
        let free = (0..members).rev().filter(|index| !order.contains(&Some(*index))).map(Some);
        let none = (missing < slots - members).then_some(None);
        for entry in none.into_iter().chain(free.collect::<Vec<_>>()) {
            let mut longer = order.clone();
            longer.push(entry);
            begun.push(longer);
        }
    }
    all
}

/// What has been read.
struct Bench<'a, M> {
    members: &'a mut M,
    sectors: BTreeMap<(usize, Sector), Option<Box<[u8; SECTOR_BYTES]>>>,
}

impl<M: Members> Bench<'_, M> {
    fn sector(&mut self, member: usize, at: Sector) -> Option<&[u8; SECTOR_BYTES]> {
        let members = &mut *self.members;
        let read = || {
            let mut sector = Box::new([0; SECTOR_BYTES]);
            members.read(member, at, &mut sector).then_some(sector)
        };
        self.sectors.entry((member, at)).or_insert_with(read).as_deref()
    }

    /// Sectors, the same on every member, that are not all zeroes; only where Q can be computed.
    fn rows(&mut self, trial: &Trial, members: usize) -> Vec<MemberSector> {
        let layout = &trial.layout;
        if layout.level() != Level::Raid6 || members < usize::from(layout.slots()) {
            return Vec::new();
        }
        let rows = layout.rows_count();
        let step = rows.div_ceil(PLACES_MAX).max(1);
        let mut found = Vec::new();
        for row in (0..rows).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let at = MemberSector(row * layout.chunk().0);
            let on_device = trial.data_offset + Sectors(at.0);
            let is_told =
                |member: usize| self.sector(member, on_device).map(|bytes| bytes.iter().any(|byte| *byte != 0));
            let told: Option<Vec<bool>> = (0..members).map(is_told).collect();
            if told.is_some_and(|told| told.contains(&true)) {
                found.push(at);
            }
            if found.len() == ROWS_MAX {
                break;
            }
        }
        found
    }

    fn judge(&mut self, at: usize, trial: &Trial, order: Vec<Option<usize>>, rows: &[MemberSector]) -> Candidate {
        let fitting = rows.iter().filter(|row| self.fits(trial, &order, **row)).count();
        let marks = self.marks(trial, &order);
        let there = marks.iter().filter(|mark| self.has(trial, &order, mark)).count();
        Candidate { trial: at, order, rows: fitting, marks: there, marks_asked: marks.len() }
    }

    /// Whether P and Q of a sector of every member fit its data.
    fn fits(&mut self, trial: &Trial, order: &[Option<usize>], at: MemberSector) -> bool {
        let layout = &trial.layout;
        let row = layout.row(uraid_layout::Row(at.0 / layout.chunk().0));
        let on_device = trial.data_offset + Sectors(at.0);
        let mut of_slot = |slot: Slot| order[slot.index()].and_then(|member| self.sector(member, on_device).copied());
        let data: Option<Vec<[u8; SECTOR_BYTES]>> = row.data.iter().map(|slot| of_slot(*slot)).collect();
        let syndrome = row.syndrome.and_then(&mut of_slot);
        let (Some(data), Some(p), Some(q)) = (data, of_slot(row.parity), syndrome) else { return false };
        let data: Vec<&[u8]> = data.iter().map(|sector| &sector[..]).collect();
        uraid_parity::check_pq(&p, &q, &data, &row.exponents)
    }

    fn marks(&mut self, trial: &Trial, order: &[Option<usize>]) -> Vec<Mark> {
        let mut head = [0; HEAD_BYTES];
        for (at, part) in head.chunks_mut(SECTOR_BYTES).enumerate() {
            if let Some(sector) = self.read(trial, order, ArraySector(at as u64)) {
                part.copy_from_slice(&sector);
            }
        }
        marks::promised(&head)
    }

    fn has(&mut self, trial: &Trial, order: &[Option<usize>], mark: &Mark) -> bool {
        self.read(trial, order, mark.at).is_some_and(|sector| mark.is_in(&sector))
    }

    /// A sector of the array in this order; computed from P where its member is missing.
    fn read(&mut self, trial: &Trial, order: &[Option<usize>], at: ArraySector) -> Option<[u8; SECTOR_BYTES]> {
        let layout = &trial.layout;
        if at.0 >= layout.array_size().0 {
            return None;
        }
        let (slot, on_member) = *layout.copies(at).first()?;
        let on_device = trial.data_offset + Sectors(on_member.0);
        if let Some(member) = order[slot.index()] {
            return self.sector(member, on_device).copied();
        }
        if !layout.level().is_parity() {
            return None;
        }
        let row = layout.row(uraid_layout::Row(on_member.0 / layout.chunk().0));
        let mut sum = [0; SECTOR_BYTES];
        for other in row.data.iter().chain([&row.parity]).filter(|other| **other != slot) {
            // Two of them missing would want Q: a mark there is not looked at.
            let bytes = self.sector(order[other.index()]?, on_device)?;
            sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
        }
        Some(sum)
    }
}
