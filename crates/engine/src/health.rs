//! Members that fail reads: what the log is told, and when one has failed too many.
//! Owns: [`MemberErrors`], the limit of read errors and who is failed by it. Not here: the count's arithmetic
//! (`read_errors`), failing a member (`failing`), how each shard counts (`member_counts`).
//! Invariant: a member is failed for read errors only by reads that the others made up for, and only where the array can
//! serve without it; so what keeps every member from being read at once fails none.
//!
//! ```text
//!   a read failed and        the array can serve without the member    it cannot
//!   the others made up       counts; over the limit: failed            counts; over the limit: it stays, said once
//!   nothing made up          does not count                            counts; over the limit: it stays, said once
//! ```

use crate::World;
use crate::array::{Array, STEWARD, failure};
use crate::mail::{Call, Failure};
use crate::mark::{self, Mark};
use crate::member_counts::{ErrorReport, RequestKind};
use crate::read_errors::ReadErrors;
use crate::verdict::Operation;
use crate::view::Gate;
use std::cell::RefCell;
use std::collections::BTreeMap;
use uraid_block::{IoError, MemberSector, Range, Sectors, ShardIndex, Slot};

/// Errors of one kind of a member, of all shards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ErrorCount {
    /// How many: exact up to 128 of a shard, then to within one in 64.
    pub count: u64,
    /// Where on the member the last one was, and what it was.
    pub last: Option<(Range, IoError)>,
}

/// What the steward knows of a member's errors.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemberErrors {
    /// By [`RequestKind`].
    pub of: [ErrorCount; RequestKind::COUNT],
    /// It has had more read errors than the limit, and stays because the array cannot serve without it.
    pub is_needed: bool,
}

/// A read of one member that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadError {
    pub(crate) slot: Slot,
    /// On the member.
    pub(crate) range: Range,
    pub(crate) error: IoError,
}

impl ReadError {
    pub(crate) fn failure(&self) -> Failure {
        failure(self.slot, Operation::Read, self.error)
    }
}

/// Errors of all members; on shard 0 only.
pub(crate) struct Health {
    members: RefCell<Vec<Member>>,
}

#[derive(Clone, Default)]
struct Member {
    /// What each shard has counted of each kind.
    shards: BTreeMap<ShardIndex, [u64; RequestKind::COUNT]>,
    errors: MemberErrors,
    reads: ReadErrors,
}

impl Health {
    pub(crate) fn new(members: usize) -> Health {
        Health { members: RefCell::new(vec![Member::default(); members]) }
    }

    /// A shard has met an error.
    pub(crate) fn note(&self, report: &ErrorReport) {
        let member = &mut self.members.borrow_mut()[report.member];
        let kind = report.kind as usize;
        let before = std::mem::replace(&mut member.shards.entry(report.shard).or_default()[kind], report.count);
        assert!(report.count > before, "mail of a shard comes in order");
        let known = &mut member.errors.of[kind];
        known.count += report.count - before;
        known.last = Some((report.range, report.error));
    }

    pub(crate) fn errors(&self) -> Vec<MemberErrors> {
        self.members.borrow().iter().map(|member| member.errors).collect()
    }
}

impl<W: World> Array<W> {
    /// The read error of a member's run.
    pub(crate) fn read_error(&self, slot: Slot, at: MemberSector, length: Sectors, error: IoError) -> ReadError {
        ReadError { slot, range: Range::new(self.on_device(slot, at), length), error }
    }

    /// A request that met these read errors is done: `made_up` says whether it got all its bytes from other members. Tells
    /// the steward, and waits until it has counted them and failed who has too many.
    pub(crate) async fn settle_read_errors(&self, errors: Vec<ReadError>, made_up: bool) {
        if made_up {
            errors.iter().for_each(|error| self.member(error.slot).note_made_up(error.range.length));
        }
        let errors: Vec<ReadError> = errors.into_iter().filter(|error| counts(error.error)).collect();
        if !errors.is_empty() && self.config.read_errors_max > 0 && self.is_redundant() {
            self.call(STEWARD, Call::ReadErrors { errors, made_up }).await.done();
        }
    }

    /// Counts read errors, and fails members that have too many. Shard 0 only.
    pub(crate) async fn count_read_errors(&self, errors: &[ReadError], made_up: bool) {
        for error in errors {
            if self.is_over_limit(error, made_up) {
                mark::hit(Mark::FailedByReadErrors);
                // Whether it could be recorded matters to writes, which ask for themselves.
                let _ = self.condemn(&[failure(error.slot, Operation::ReadErrors, error.error)]).await;
            }
        }
    }

    /// Counts one. True: its member has too many, and the array can do without it.
    fn is_over_limit(&self, error: &ReadError, made_up: bool) -> bool {
        let steward = self.steward();
        let master = steward.master.borrow();
        if master.view.gate != Gate::Open || !master.view.usable.contains(error.slot) {
            return false;
        }
        // Without those that are about to be failed, too.
        let can_go = self.shape.layout.can_serve(&master.view.usable.minus(self.collected()).without(error.slot));
        if can_go && !made_up {
            mark::hit(Mark::ReadErrorsOfAll);
            return false;
        }
        let index = self.shape.members[error.slot.index()].expect("a usable slot has a member");
        let member = &mut steward.health.members.borrow_mut()[index];
        if member.reads.note(self.world.now(), error.range) <= self.config.read_errors_max {
            return false;
        }
        if !can_go {
            mark::hit(Mark::NeededDespiteReadErrors);
            member.errors.is_needed = true;
        }
        can_go
    }
}

/// Whether a failed read counts towards the limit: the device was asked for these sectors and could not give them. A list
/// of bad blocks and a member that is an array speak for themselves; other kinds are judged by the first error.
fn counts(error: IoError) -> bool {
    error.kind.is_of_sectors() && error.is_of_device()
}
