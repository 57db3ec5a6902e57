//! I7: when a request may be answered with an error.
//! Owns: [`LegalErrors`]: the rule for requests, and for a frozen array. Not here: whether an answer without an error is
//! right (`oracle`).
//! Invariant: a request fails only if one of *its own* sectors is unavailable, or if the array had to freeze. A failure
//! of another member, or at another place, does not justify an error.
//!
//! A place is unavailable while its member is out, while a latent error covers it, or after an access that covered it
//! failed during the request. On levels with redundancy a request for `x` may fail if
//!
//! | request              | condition                                                                         |
//! |----------------------|-----------------------------------------------------------------------------------|
//! | read, mirror         | no copy of `x` is available; if copies may differ, the canonical one is not        |
//! | read, parity         | `x` and at least as many other blocks of its row as it has parities are unavailable |
//! | write, parity        | more blocks of the row of `x` than it has parities are unavailable                  |
//! | any write, any flush | the array froze: a member was full, or more members failed than can be lost        |
//! | any write            | the array was, or became, read-only during the request                             |

use crate::image::logs;
use crate::judge::Judge;
use crate::judge::guard::Guard;
use crate::judge::resynced::Resynced;
use crate::machine::member::{Access, Op};
use crate::machine::world::SimWorld;
use crate::reference::model::Place;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use uraid_block::{ErrorKind, IoError, Slot};
use uraid_engine::Array;
use uraid_engine::view::{Copies, Gate, View};

/// A client's request that has not been answered.
#[derive(Clone, Debug)]
pub struct Request {
    /// The character that the trace shows.
    pub kind: char,
    /// First sector.
    pub at: u64,
    /// Sectors.
    pub length: u64,
    /// Whether it changes data.
    pub writes: bool,
    /// How many member accesses had failed when the request began.
    pub failures_before: usize,
    /// The shard's view when it began.
    pub view: Rc<View>,
    /// The sectors of each disk that its log listed when it began.
    pub listed: Vec<Vec<u64>>,
    /// How often the array had begun to become read-only.
    pub read_only_before: u64,
}

/// The rule for one run of an array.
pub struct LegalErrors {
    judge: Rc<Judge>,
    guard: Rc<Guard>,
    array: Rc<Array<SimWorld>>,
    /// How often it began to become read-only, and whether it may be so now.
    read_only: Cell<(u64, bool)>,
}

impl LegalErrors {
    /// The rule for this array; `array` is the handle on shard 0.
    pub fn new(judge: Rc<Judge>, guard: Rc<Guard>, array: Rc<Array<SimWorld>>) -> LegalErrors {
        LegalErrors { judge, guard, array, read_only: Cell::default() }
    }

    /// The array begins to become read-only.
    pub fn begin_read_only(&self) {
        self.read_only.set((self.read_only.get().0 + 1, true));
    }

    /// The array takes writes.
    pub fn end_read_only(&self) {
        self.read_only.set((self.read_only.get().0, false));
    }

    /// Whether the array may be read-only, or was when it stopped.
    pub fn may_be_read_only(&self) -> bool {
        self.read_only.get().1
    }

    /// How often the array has begun to become read-only; one fewer if it may be so now.
    pub fn read_only_before(&self) -> u64 {
        let (begun, is_now) = self.read_only.get();
        begun - u64::from(is_now)
    }

    /// The sectors of each disk that its log lists now; nothing if the members have none.
    pub fn listed(&self) -> Vec<Vec<u64>> {
        let disks = if self.judge.setup.has_logs { &self.judge.disks[..] } else { &[] };
        disks.iter().map(|disk| logs::listed(disk.medium().current())).collect()
    }

    /// How many accesses have failed so far.
    pub fn failures(&self) -> usize {
        self.guard.failures_count()
    }

    /// Whether the error says that the array froze, or the array itself says so.
    pub fn is_frozen(&self, error: IoError) -> bool {
        match error.kind {
            ErrorKind::Frozen => true,
            ErrorKind::NoSpace if self.judge.setup.is_redundant() => true,
            ErrorKind::NoSpace
            | ErrorKind::Media
            | ErrorKind::Gone
            | ErrorKind::ReadOnly
            | ErrorKind::OutOfRange
            | ErrorKind::Unsupported
            | ErrorKind::NoMemory
            | ErrorKind::TooManyLost
            | ErrorKind::Stopping
            | ErrorKind::Late => matches!(self.array.view().gate, Gate::Frozen(_)),
        }
    }

    /// Whether the array had a reason to freeze, and so to fail a start or a stop.
    pub fn may_freeze(&self) -> bool {
        let failures = self.guard.failures();
        if !self.judge.setup.is_redundant() {
            return failures.iter().any(|(access, _)| access.op == Op::Flush);
        }
        if self.judge.disks.iter().any(|disk| disk.has_no_space()) {
            return true;
        }
        let usable = self.array.view().readable();
        let is_grave = |access: &Access, kind: ErrorKind| {
            let is_failfast = self.judge.disks[usize::from(access.disk)].is_failfast();
            kind == ErrorKind::Gone || access.op != Op::Read || is_failfast
        };
        let failed = failures.iter().filter(|(access, kind)| is_grave(access, *kind)).map(|(access, _)| access.disk);
        let out = (0..self.judge.setup.shape.slots).filter(|slot| !usable.contains(Slot(*slot)));
        !self.judge.model.can_serve_without(&failed.chain(out).collect())
    }

    /// Whether a stop may leave the array marked dirty.
    pub fn may_stay_dirty(&self) -> bool {
        self.may_freeze() || self.judge.resynced.get() != Resynced::Whole
    }

    /// Whether a request may end with this error; `now` is its shard's view.
    pub fn check(&self, request: &Request, error: IoError, now: &View) -> Result<(), String> {
        if error.kind == ErrorKind::ReadOnly && request.writes && self.read_only.get().0 > request.read_only_before {
            return Ok(());
        }
        let is_frozen = self.is_frozen(error);
        let is_redundant = self.judge.setup.is_redundant();
        if is_frozen && !self.may_freeze() {
            return Err("the array froze without a reason".to_string());
        }
        if is_frozen && (request.writes || request.kind == 'f') {
            return Ok(());
        }
        if !is_redundant && request.kind == 'f' {
            let failures = self.guard.failures();
            let has_failed = failures[request.failures_before..].iter().any(|(access, _)| access.op == Op::Flush);
            return if has_failed { Ok(()) } else { Err("no flush of a member has failed".to_string()) };
        }
        let bad = self.bad_places(request, now);
        let is_bad = |place: Place| bad(place);
        let cannot_be_had = |x: u64| match (is_redundant, self.judge.model.is_parity()) {
            (false, _) => self.judge.model.copies[x as usize].iter().any(|place| is_bad(*place)),
            (true, true) => self.is_row_lost(x, &is_bad, request, is_frozen),
            (true, false) => !request.writes && self.are_copies_lost(x, &is_bad, request, now),
        };
        if (request.at..request.at + request.length).any(cannot_be_had) {
            return Ok(());
        }
        let (View { copies, gate, .. }, readable) = (now, now.readable());
        Err(format!("every sector of it can be had; readable {readable:?}, {copies:?}, {gate:?}"))
    }

    /// The places that were unavailable to the request: see the head of this file.
    fn bad_places(&self, request: &Request, now: &View) -> impl Fn(Place) -> bool {
        let disks = self.judge.disks.clone();
        let starts = self.judge.setup.data_offsets.clone();
        let failures: Vec<Access> =
            self.guard.failures()[request.failures_before..].iter().map(|(access, _)| *access).collect();
        // Once the steward has failed a member, that member answers no shard any more, including those that have not
        // received the new view.
        let (before, now, known) = (request.view.readable(), now.readable(), self.array.view().readable());
        let has_logs = self.judge.setup.has_logs;
        // What failed may be listed, and its log not be written yet; after a freeze it is not written at all.
        let listed_before = request.listed.clone();
        let is_frozen = matches!(self.array.view().gate, Gate::Frozen(_));
        let may_be_listed = |access: &Access| has_logs && (access.op != Op::Read || is_frozen);
        let all = self.guard.failures();
        let maybe_listed: Vec<Access> = all.iter().map(|(access, _)| *access).filter(may_be_listed).collect();
        move |place: Place| {
            let slot = Slot(place.slot);
            let sector = starts[usize::from(place.slot)] + place.sector;
            let covers = |access: &Access| access.covers(place.slot, sector);
            !before.contains(slot)
                || !now.contains(slot)
                || !known.contains(slot)
                || disks[usize::from(place.slot)].has_latent(sector)
                || maybe_listed.iter().any(covers)
                || listed_before.get(usize::from(place.slot)).is_some_and(|listed| listed.contains(&sector))
                || has_logs && logs::is_listed(disks[usize::from(place.slot)].medium().current(), sector)
                || failures.iter().any(covers)
        }
    }

    fn are_copies_lost(&self, x: u64, is_bad: &dyn Fn(Place) -> bool, request: &Request, now: &View) -> bool {
        let places = &self.judge.model.copies[x as usize];
        let is_canonical_lost = |view: &View| {
            // Copies on write-mostly members come last.
            let mut readable: Vec<&Place> =
                places.iter().filter(|place| view.readable().contains(Slot(place.slot))).collect();
            readable.sort_by_key(|place| view.last_copies().contains(Slot(place.slot)));
            let canonical = readable.first();
            view.copies == Copies::Canonical && canonical.is_none_or(|place| is_bad(**place))
        };
        places.iter().all(|place| is_bad(*place))
            || is_canonical_lost(&request.view)
            || is_canonical_lost(now)
            || self.may_be_lost_behind(places)
    }

    /// A write that was behind failed on a member, and that could not be recorded: the array froze. Until the stop it refuses
    /// to read these sectors, also if other members have the write.
    fn may_be_lost_behind(&self, places: &[Place]) -> bool {
        let starts = &self.judge.setup.data_offsets;
        let has_failed = |place: &Place| {
            let sector = starts[usize::from(place.slot)] + place.sector;
            let is_write = |access: &Access| matches!(access.op, Op::Write { .. });
            self.guard.failures().iter().any(|(access, _)| is_write(access) && access.covers(place.slot, sector))
        };
        let is_frozen = matches!(self.array.view().gate, Gate::Frozen(_));
        is_frozen && self.judge.setup.has_write_behind() && places.iter().any(has_failed)
    }

    fn is_row_lost(&self, x: u64, is_bad: &dyn Fn(Place) -> bool, request: &Request, is_frozen: bool) -> bool {
        let model = &self.judge.model;
        let index = model.row_of[x as usize];
        let row = &model.rows[index];
        let lost = row.data.iter().map(|(_, place, _)| *place).chain(row.q).chain([row.p]);
        let lost = lost.filter(|place| is_bad(*place)).count();
        let is_own_bad = model.copies[x as usize].iter().any(|place| is_bad(*place));
        // A row that was half written when the array froze can no longer be computed from.
        let is_torn = || {
            let uncertain: BTreeSet<u64> = self.judge.oracle.borrow().uncertain().into_iter().collect();
            let is_frozen =
                is_frozen || matches!(self.array.view().gate, Gate::Frozen(_) | Gate::Closed | Gate::Stopped);
            is_frozen && row.data.iter().any(|(y, _, _)| uncertain.contains(y))
        };
        let is_unsynced = || self.judge.knows_unsynced.get() && !request.writes;
        (request.writes || is_own_bad) && (lost > model.parities() || is_torn() || is_unsynced())
    }
}
