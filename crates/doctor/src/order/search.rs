//! Finds which member was in which slot: tries every order of every given geometry, and ranks them by evidence.
//! Owns: the search, its bounds. Not here: the evidence (`rows`, `marks`, `seams`, `parity_place`), its weights
//! (`ranking`).
//! Invariant: all orders of a geometry are tried, or none. A sector of a member is read once, and never written.

use crate::order::bench::{Assumed, BLOCK, Bench};
use crate::order::counts::Counts;
use crate::order::marks::{self, HEAD_BYTES};
use crate::order::orders::orders;
use crate::order::question::{Members, Question, SearchError, Trial};
use crate::order::ranking::{self, Candidate, Ranking, Tally};
use crate::order::seams::{self, Grid};
use crate::order::{parity_place, places, rows};
use std::borrow::Cow;
use std::collections::BTreeMap;
use uraid_block::{ArraySector, SECTOR_BYTES, Sector, Sectors};
use uraid_layout::{Layout, Level};

/// The most candidates that are tried: two minutes of work.
const TRIED_MAX: u64 = 1 << 20;

/// Votes at seams, by data offset and chunk.
type SeamVotes = BTreeMap<(Sector, Sectors), Vec<seams::Vote>>;

/// Tries every order of every geometry.
pub fn search(question: &Question, members: &mut impl Members) -> Result<Ranking, SearchError> {
    let trials = &question.trials;
    trials.iter().try_for_each(|trial| trial.check(question.members))?;
    let mut bench = Bench::new(members);
    let places = places::with_data(question, &mut bench);
    let mut evidence = Evidence {
        members: question.members,
        counts: Counts::of(&mut bench, question.members, &places),
        places,
        seam_votes: SeamVotes::new(),
        parity_votes: None,
    };
    let mut best: Vec<Candidate> = Vec::new();
    let (mut tried, mut trials_tried) = (0, 0);
    for (at, trial) in trials.iter().enumerate() {
        let orders = orders(question.members, &trial.layout);
        if tried > 0 && tried + orders.len() as u64 > TRIED_MAX {
            break;
        }
        tried += orders.len() as u64;
        trials_tried += 1;
        evidence.judge(&mut bench, at, trial, orders, &mut best);
        bench.progress(at + 1, trials.len());
    }
    if let (0, Some(trial)) = (tried, trials.first()) {
        return Err(trial.too_few(question.members));
    }
    let is_mirror = trials.first().is_some_and(|trial| trial.layout.level() == Level::Raid1);
    let strays = if is_mirror { rows::strays(&mut bench, question.members, &evidence.places) } else { Vec::new() };
    let verdict = ranking::verdict(&best);
    Ok(Ranking { candidates: best, tried, trials_tried, strays, verdict })
}

/// Evidence about the members that does not depend on an order.
struct Evidence {
    members: usize,
    places: Vec<Sector>,
    counts: Counts,
    seam_votes: SeamVotes,
    parity_votes: Option<Vec<parity_place::Vote>>,
}

impl Evidence {
    /// Judges all orders of one geometry.
    fn judge(
        &mut self,
        bench: &mut Bench<'_>,
        at: usize,
        trial: &Trial,
        orders: Vec<Vec<Option<usize>>>,
        best: &mut Vec<Candidate>,
    ) {
        let (level, data_offset) = (trial.layout.level(), trial.data_offset);
        let members = self.members;
        let missing = usize::from(trial.layout.slots()) - members;
        let (counts, places) = (&self.counts, &self.places);
        let chunk = trial.layout.chunk();
        let votes = self.seam_votes.entry((data_offset, chunk)).or_insert_with(|| {
            let sizes: Vec<Sectors> =
                trial.member_sizes.iter().map(|size| whole_chunks(&trial.layout, *size)).collect();
            let grid = Grid { level, data_offset, chunk, members, sizes: &sizes };
            seams::votes(bench, counts, &grid, places)
        });
        let parity_votes =
            self.parity_votes.get_or_insert_with(|| parity_place::votes(bench, level, members, missing, places));
        let begins = begins(bench, members, data_offset);
        let fixed_next = seams::next(&trial.layout, data_offset, places);
        let mut fixed_rows: Option<Tally> = None;
        for order in orders {
            let Some(layout) = trial.layout_in(&order) else { continue };
            let own_next = match &layout {
                Cow::Borrowed(_) => None,
                Cow::Owned(layout) => Some(seams::next(layout, data_offset, places)),
            };
            let assumed = Assumed { layout: &layout, data_offset, order: &order };
            // P is the same sum in every order.
            let is_fixed = matches!(level, Level::Raid4 | Level::Raid5);
            let rows = fixed_rows.filter(|_| is_fixed).unwrap_or_else(|| rows::tally(bench, &assumed, places));
            fixed_rows = Some(rows);
            let marks = marks_of(bench, &assumed);
            let seams = seams::tally(&assumed, votes, own_next.as_ref().unwrap_or(&fixed_next));
            let parity = parity_place::tally(&assumed, parity_votes);
            ranking::keep(best, Candidate { trial: at, order, rows, marks, seams, parity, begins });
        }
    }
}

/// The part of a member's data area that linear uses.
fn whole_chunks(layout: &Layout, size: Sectors) -> Sectors {
    Sectors(size.0 - size.0 % layout.spec().chunk.0.max(1))
}

/// Whether data could begin here: some member stores something in the first block - as most file systems, partition
/// tables and volume managers do - and no member stores something directly before it.
fn begins(bench: &mut Bench<'_>, members: usize, data_offset: Sector) -> bool {
    let mut has_data = |at: Sector| (0..members).any(|member| bench.has_data(member, at));
    let mut before = (1..=BLOCK.0).filter_map(|back| data_offset.0.checked_sub(back).map(Sector));
    places::sectors(data_offset).any(&mut has_data) && !before.any(has_data)
}

/// How many marks are found, of those that the starts of the array and of its partitions record.
fn marks_of(bench: &mut Bench<'_>, assumed: &Assumed<'_>) -> Tally {
    let head = head_at(bench, assumed, ArraySector(0));
    let mut tally = Tally::default();
    let starts = [ArraySector(0)].into_iter().chain(marks::partitions(&head));
    for start in starts.collect::<Vec<_>>() {
        for mark in marks::promised(&head_at(bench, assumed, start)) {
            let at = start.0.checked_add(mark.at.0).map(ArraySector);
            let found = at.and_then(|at| bench.of_array(assumed, at));
            tally.add(found.is_some_and(|sector| mark.is_in(&sector)));
        }
    }
    tally
}

/// The head of a file system or a partition table, if one begins here; zeroes if it cannot be read.
fn head_at(bench: &mut Bench<'_>, assumed: &Assumed<'_>, start: ArraySector) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    for (nth, part) in (0..).zip(head.chunks_mut(SECTOR_BYTES)) {
        let at = start.0.checked_add(nth).map(ArraySector);
        if let Some(sector) = at.and_then(|at| bench.of_array(assumed, at)) {
            part.copy_from_slice(&sector);
        }
    }
    head
}
