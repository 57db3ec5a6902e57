//! Members that fail reads: what is logged, and when a member has failed too many.
//! Owns: [`MemberErrors`], the limit of read errors, which members it fails. Not here: the count's arithmetic
//! (`read_errors`), failing a member (`judge`), how each shard counts (`member_counts`).
//! Invariant: read errors fail a member only if the other members supplied the data and the array can serve without it.
//! So a fault that keeps all members from being read fails none of them.
//!
//! ```text
//!   a read failed, and       the array can serve without the member    it cannot
//!   others gave the data     counts; over the limit: failed            counts; over the limit: it stays, logged once
//!                            failfast: failed at once                  failfast: the same
//!   no other gave the data   does not count                            counts; over the limit: it stays, logged once
//! ```

use crate::World;
use crate::state::view::Gate;
use crate::steward::Steward;
use crate::steward::judge::Judge;
use crate::steward::recorder::Recorder;
use crate::words::failure::{ErrorReport, Failure, ReadError, RequestKind};
use crate::words::mark::{self, Mark};
use crate::words::read_errors::ReadErrors;
use crate::words::verdict::Operation;
use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use uraid_block::{IoError, Range, ShardIndex};

/// One kind of errors of one member, summed over all shards.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ErrorCount {
    /// The count: exact up to 128 per shard, then to within 1 in 64.
    pub count: u64,
    /// The place of the last error on the member, and the error.
    pub last: Option<(Range, IoError)>,
}

/// The steward's record of a member's errors.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemberErrors {
    /// By [`RequestKind`].
    pub of: [ErrorCount; RequestKind::COUNT],
    /// It has had more read errors than the limit, and stays because the array cannot serve without it.
    pub is_needed: bool,
}

/// The errors of all members; on shard 0 only.
pub(crate) struct Health<W: World> {
    steward: Rc<Steward<W>>,
    judge: Rc<Judge<W>>,
    recorder: Rc<Recorder<W>>,
    members: RefCell<Vec<Member>>,
}

#[derive(Clone, Default)]
struct Member {
    /// Each shard's count of each kind.
    shards: BTreeMap<ShardIndex, [u64; RequestKind::COUNT]>,
    errors: MemberErrors,
    reads: ReadErrors,
}

impl<W: World> Health<W> {
    pub(crate) fn new(steward: &Rc<Steward<W>>, judge: &Rc<Judge<W>>, recorder: &Rc<Recorder<W>>) -> Health<W> {
        let members = RefCell::default();
        Health { steward: steward.clone(), judge: judge.clone(), recorder: recorder.clone(), members }
    }

    /// Makes room for all members that there are.
    fn all(&self) -> RefMut<'_, Vec<Member>> {
        let mut members = self.members.borrow_mut();
        members.resize_with(self.steward.master().members().len(), Member::default);
        members
    }

    /// Records an error that a shard reports.
    pub(crate) fn note(&self, report: &ErrorReport) {
        assert!(report.shard.0 < self.steward.shared.world.shards(), "a report is of a shard of this array");
        let member = &mut self.all()[report.member];
        let kind = report.kind as usize;
        let before = std::mem::replace(&mut member.shards.entry(report.shard).or_default()[kind], report.count);
        assert!(report.count > before, "mail of a shard comes in order");
        let known = &mut member.errors.of[kind];
        known.count += report.count - before;
        assert!(known.count >= report.count, "the sum is no less than one shard's count");
        known.last = Some((report.range, report.error));
    }

    pub(crate) fn errors(&self) -> Vec<MemberErrors> {
        self.all().iter().map(|member| member.errors).collect()
    }

    /// Counts read errors, and fails members that are over the limit.
    pub(crate) async fn count_read_errors(&self, errors: &[ReadError], was_read_elsewhere: bool) {
        assert!(!errors.is_empty(), "a shard asks only about errors");
        for error in errors {
            assert!(error.slot.0 < self.steward.shared.layout().slots());
            if let Some(operation) = self.fails_member(error, was_read_elsewhere) {
                // Ignore whether it was recorded: only writes depend on that, and they check it themselves.
                let of = (error.slot, error.member);
                let _ = self.recorder.fail_members(&[Failure::new(of, operation, error.error)]).await;
            }
        }
    }

    /// Counts one error. Returns why its member is to be failed, if it is failfast or over the limit, and the array can serve
    /// without it.
    fn fails_member(&self, error: &ReadError, was_read_elsewhere: bool) -> Option<Operation> {
        let steward = &self.steward;
        let master = steward.master();
        if master.gate() != Gate::Open || !master.readable().contains(error.slot) {
            return None;
        }
        assert_eq!(master.readable(), steward.shared.with_view(|view| view.readable()), "shard 0 has the newest view");
        // Count the members that are about to be failed as lost, too.
        let others = master.readable().minus(self.judge.collected()).without(error.slot);
        // What another member lists, this one may be the only one to have.
        let can_go = steward.shared.layout().can_serve(&others) && !master.others_list(error.member);
        if can_go && !was_read_elsewhere {
            mark::hit(Mark::ReadErrorsOfAll);
            return None;
        }
        if steward.shared.with_view(|view| view.slots.is_failfast(error.slot, error.member)) {
            if can_go {
                mark::hit(Mark::FailedFast);
                return Some(Operation::FailFast);
            }
            mark::hit(Mark::NeededDespiteFailFast);
        }
        let limit = steward.shared.config.read_errors_max;
        if limit == 0 {
            return None;
        }
        let member = &mut self.all()[error.member];
        if member.reads.note(steward.shared.world.now(), error.range) <= limit {
            return None;
        }
        if !can_go {
            mark::hit(Mark::NeededDespiteReadErrors);
            member.errors.is_needed = true;
        }
        can_go.then(|| {
            mark::hit(Mark::FailedByReadErrors);
            Operation::ReadErrors
        })
    }
}
