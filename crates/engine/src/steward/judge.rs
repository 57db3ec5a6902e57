//! Members that fail: which failures are judged together, which members are failed, when the array freezes.
//! Owns: [`Judge`], [`Collection`]. Not here: what an error means (`verdict`), writing superblocks (`recorder`),
//! the order of a view's changes (`steward`).
//! Invariant: an error fails a member only if the array can serve without it, and only if the members that failed
//! together with it are no more than the array can lose. Too many read errors (`health`) never freeze the array.
//!
//! Members that share a controller or a cable fail together, but not in the same microsecond: each fails with the first
//! request that reaches it. If the first one were failed at once, its failure would be in the superblocks before the
//! second one fails, and the next start would lack one more member than necessary. So failures are collected for a
//! moment, and no superblock names a failed member before all others have taken a superblock since:
//!
//! ```text
//!   member 0 fails a write          |<-- Config::collect_failures -->|  judged      round 1        round 2
//!   member 1 fails a write                 x  too many: the array freezes, no superblock is written
//!   member 1 fails its superblock                                                      x  the same: round 1 names no member
//! ```
//!
//! A request that waits until its failure is recorded also waits for the collection. If its members are failed by
//! command meanwhile, the collection ends at once.

use crate::World;
use crate::state::master::{Change, FreezeCause, Master, MemberState};
use crate::state::view::Gate;
use crate::steward::Steward;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::verdict::{Operation, Verdict};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::{Notify, race};
use uraid_block::{IoError, SlotSet};

/// Failures that are judged together.
struct Collection {
    failures: RefCell<Vec<Failure>>,
    /// A failure was added, or a member was failed by command.
    changed: Notify,
    /// The failures were judged, and every shard has the resulting view.
    is_over: Cell<bool>,
    over: Notify,
}

impl Collection {
    fn new() -> Rc<Collection> {
        Rc::new(Collection {
            failures: RefCell::default(),
            changed: Notify::new(),
            is_over: Cell::new(false),
            over: Notify::new(),
        })
    }

    fn slots(&self) -> SlotSet {
        self.failures.borrow().iter().map(|failure| failure.slot).collect()
    }

    /// The slots of failures that are errors (see `is_error`).
    fn slots_of_errors(&self) -> SlotSet {
        self.failures.borrow().iter().filter(|failure| is_error(failure)).map(|failure| failure.slot).collect()
    }
}

/// Judges failures; on shard 0 only.
pub(crate) struct Judge<W: World> {
    steward: Rc<Steward<W>>,
    /// Failures that are being collected, to be judged together.
    collecting: RefCell<Option<Rc<Collection>>>,
}

impl<W: World> Judge<W> {
    pub(crate) fn new(steward: &Rc<Steward<W>>) -> Rc<Judge<W>> {
        Rc::new(Judge { steward: steward.clone(), collecting: RefCell::default() })
    }

    /// Judges failures together with those of other members within [`crate::Config::collect_failures`]. When this
    /// returns, every shard has the resulting view. Returns whether this call changed anything.
    pub(crate) async fn judge_together(&self, failures: &[Failure]) -> bool {
        let mut is_new = false;
        let mut waits = Vec::new();
        let mut at_once = Vec::new();
        let fresh = fresh(&self.steward.master(), failures);
        for failure in fresh {
            match self.steward.shared.verdict(&failure) {
                // The array loses nothing with it.
                Verdict::List | Verdict::FailOrFreeze if self.is_replacement(&failure) => at_once.push(failure),
                Verdict::List | Verdict::FailOrFreeze if failure.operation != Operation::Command => waits.push(failure),
                Verdict::List | Verdict::FailOrFreeze | Verdict::Freeze => at_once.push(failure),
                Verdict::ReadElsewhere | Verdict::FailRequest => {}
            }
        }
        if !at_once.is_empty() {
            is_new |= self.judge_now(&at_once).await;
        }
        if !waits.is_empty() {
            is_new |= self.collect(waits).await;
        }
        is_new
    }

    /// Judges members that failed a write of their metadata. A spare needs no verdict.
    pub(crate) async fn judge_members(&self, failed: &[(usize, IoError)]) {
        assert!(!failed.is_empty());
        let mut failures: Vec<Failure> = Vec::new();
        for (member, error) in failed {
            let state = self.steward.master().members()[*member];
            match state {
                MemberState::Active(slot)
                | MemberState::Recovering { slot, .. }
                | MemberState::Replacing { slot, .. } => {
                    failures.push(Failure::new((slot, *member), Operation::Superblock, *error));
                }
                MemberState::Spare => {
                    mark::hit(Mark::SpareFailed);
                    let (member, error, at) = (*member, *error, self.steward.shared.world.now());
                    self.steward.apply(Change::FailSpare { member, error, at });
                }
                MemberState::Removed | MemberState::Faulty { .. } => {}
            }
        }
        self.judge_together(&failures).await;
    }

    /// Adds failures to those that are being collected, and waits until they are judged. The first caller of a
    /// collection judges it.
    async fn collect(&self, failures: Vec<Failure>) -> bool {
        assert!(!failures.is_empty(), "something is to be judged");
        let slot = &self.collecting;
        let joined = slot.borrow().clone();
        if let Some(collection) = joined {
            assert!(!collection.is_over.get(), "a collection takes failures until it is judged");
            collection.failures.borrow_mut().extend(failures);
            collection.changed.notify_all();
            collection.over.wait_for(|| collection.is_over.get().then_some(())).await;
            return false;
        }
        let collection = Collection::new();
        collection.failures.borrow_mut().extend(failures);
        *slot.borrow_mut() = Some(collection.clone());
        let moment = self.steward.shared.config.collect_failures;
        if !moment.is_zero() {
            let is_settled = collection.changed.wait_for(|| self.is_settled(&collection).then_some(()));
            race(is_settled, self.steward.shared.world.sleep(moment)).await;
        }
        let ended = slot.borrow_mut().take();
        assert!(ended.is_some_and(|ended| Rc::ptr_eq(&ended, &collection)), "one collection at a time");
        let failures = collection.failures.take();
        assert!(!failures.is_empty());
        let is_new = self.judge_now(&failures).await;
        assert!(!collection.is_over.replace(true), "a collection is judged once");
        collection.over.notify_all();
        is_new
    }

    /// Whether no later failure could change the result: too many members have failed already, or each was failed by
    /// command meanwhile.
    fn is_settled(&self, collection: &Collection) -> bool {
        assert!(!collection.failures.borrow().is_empty(), "a collection begins with a failure");
        let master = self.steward.master();
        let is_empty = collection.slots().and(master.writable()).is_empty();
        is_empty || !self.steward.shared.layout().can_serve(&master.readable().minus(collection.slots_of_errors()))
    }

    /// Waits until the failures that are being collected are judged.
    pub(crate) async fn collection_over(&self) {
        let collection = self.collecting.borrow().clone();
        if let Some(collection) = collection {
            collection.over.wait_for(|| collection.is_over.get().then_some(())).await;
        }
    }

    /// Members whose failures are being collected.
    pub(crate) fn collected(&self) -> SlotSet {
        self.collecting.borrow().as_ref().map_or(SlotSet::EMPTY, |collection| collection.slots())
    }

    async fn judge_now(&self, failures: &[Failure]) -> bool {
        if self.steward.master().gate() == Gate::Stopped {
            // No superblock is written any more. Only the probe of a slow member can fail as late as this.
            return false;
        }
        let is_new = self.judge(failures);
        if is_new {
            assert!(!failures.is_empty(), "nothing changes without a failure");
            self.steward.publish(Change::Nothing).await;
        }
        if let Some(collection) = &*self.collecting.borrow() {
            collection.changed.notify_all();
        }
        is_new
    }

    /// Applies the verdicts to the state. Returns whether anything changed. All failures of one call are judged
    /// together: if they hit more members than the array can lose, none of them is failed.
    fn judge(&self, failures: &[Failure]) -> bool {
        let steward = &self.steward;
        let mut grave: Vec<Failure> = Vec::new();
        let fresh = fresh(&steward.master(), failures);
        let (of_replacements, fresh): (Vec<_>, Vec<_>) =
            fresh.into_iter().partition(|failure| self.is_replacement(failure));
        let mut is_new = self.fail_replacements(&of_replacements);
        for failure in fresh {
            match self.steward.shared.verdict(&failure) {
                Verdict::Freeze => {
                    self.freeze_over(&failure);
                    is_new = true;
                }
                // What could be listed was taken out before.
                Verdict::List | Verdict::FailOrFreeze => grave.push(failure),
                Verdict::ReadElsewhere | Verdict::FailRequest => {}
            }
        }
        let is_frozen = steward.master().frozen().is_some();
        if is_frozen || !self.can_lose(&grave) {
            // A member with too many read errors still takes writes. After the other failures the array may need it.
            grave.retain(is_error);
        }
        if !grave.is_empty() {
            if is_frozen && !self.steward.shared.layout().level().is_parity() {
                self.stay_frozen(&grave);
            } else {
                self.fail_or_freeze(&grave);
            }
            is_new = true;
        }
        let readable = steward.master().readable();
        assert!(steward.shared.layout().can_serve(&readable), "no verdict takes the last copy of a sector");
        is_new
    }

    /// A replacement that failed is of no use, even if it was only full. One of a frozen array is copied anew if the array
    /// takes writes again.
    fn fail_replacements(&self, failures: &[Failure]) -> bool {
        let steward = &self.steward;
        if failures.is_empty() || steward.master().frozen().is_some() {
            return false;
        }
        mark::hit(Mark::ReplacementFailed);
        steward.apply(Change::FailMembers(failures, steward.shared.world.now()));
        true
    }

    fn is_replacement(&self, failure: &Failure) -> bool {
        matches!(self.steward.master().members()[failure.member], MemberState::Replacing { .. })
    }

    fn freeze_over(&self, failure: &Failure) {
        if failure.operation == Operation::Superblock {
            self.steward.apply(Change::MissRound(failure.slot));
        }
        let is_flush = failure.operation == Operation::Flush;
        mark::hit(if is_flush { Mark::FrozenFlushLost } else { Mark::FrozenNoSpace });
        let cause = if is_flush { FreezeCause::LostFlush } else { FreezeCause::Full };
        self.steward.apply(Change::Freeze(failure.error.kind, cause));
        let frozen = self.steward.master().frozen().expect("it froze now");
        assert!(frozen.cause >= cause, "the graver cause counts");
    }

    fn can_lose(&self, failures: &[Failure]) -> bool {
        let failed = failures.iter().map(|failure| failure.slot).collect();
        self.steward.shared.layout().can_serve(&self.steward.master().readable().minus(failed))
    }

    fn fail_or_freeze(&self, grave: &[Failure]) {
        assert!(!grave.is_empty());
        let steward = &self.steward;
        if grave.len() > 1 {
            mark::hit(Mark::FailedTogether);
        }
        let version = steward.master().version();
        if !steward.master().shows(version) {
            mark::hit(Mark::FailedWhileRecording);
        }
        if !self.can_lose(grave) {
            assert!(grave.iter().all(is_error), "too many read errors never freeze the array");
            mark::hit(Mark::FrozenTooMany);
            return steward.apply(Change::Freeze(grave[0].error.kind, cause_of(grave, FreezeCause::TooMany)));
        }
        steward.apply(Change::FailMembers(grave, self.steward.shared.world.now()));
        let master = steward.master();
        let is_trusted = |failure: &Failure| master.members()[failure.member].is_trusted();
        assert!(!grave.iter().any(is_trusted), "a failed member takes no write");
    }

    /// After a freeze a mirror keeps its members: readers of a torn part see its canonical copy, and so does a start
    /// after a crash. Without that member they would see another copy. After a failed flush, no later flush may
    /// succeed.
    fn stay_frozen(&self, grave: &[Failure]) {
        assert!(self.steward.master().frozen().is_some() && !self.steward.shared.layout().level().is_parity());
        mark::hit(Mark::FailedSinceFrozen);
        self.steward.apply(Change::Freeze(grave[0].error.kind, cause_of(grave, FreezeCause::FailedSince)));
    }
}

/// The cause of a freeze over these failures: a lost flush, or else `other`.
fn cause_of(grave: &[Failure], other: FreezeCause) -> FreezeCause {
    assert!(other < FreezeCause::LostFlush, "a lost flush is the gravest cause");
    if grave.iter().any(|failure| failure.operation == Operation::Flush) {
        mark::hit(Mark::FrozenFlushLost);
        return FreezeCause::LostFlush;
    }
    other
}

/// The failures of members that are still in use: of each member the gravest one, and of equal ones the first.
fn fresh(master: &Master, failures: &[Failure]) -> Vec<Failure> {
    let usable = master.writable();
    let has_slot = |failure: &Failure| {
        usable.contains(failure.slot) && master.members()[failure.member].written_slot() == Some(failure.slot)
    };
    let mut fresh: Vec<Failure> = Vec::new();
    for failure in failures {
        let known = fresh.iter_mut().find(|other| other.member == failure.member);
        match known {
            Some(other) if has_slot(failure) && gravity(failure) > gravity(other) => {
                mark::hit(Mark::FailedMoreGravely);
                *other = *failure;
            }
            None if has_slot(failure) => fresh.push(*failure),
            Some(_) | None => mark::hit(Mark::FailedBefore),
        }
    }
    assert!(fresh.len() <= 2 * usable.count() && fresh.len() <= failures.len(), "one failure for each member in use");
    fresh
}

/// How much a failure says of what its member holds. A member that failed a read may stay if the array needs it; one that
/// lacks a write, or a part of the bitmap, may not; after a lost flush, not even a later flush of the array succeeds.
fn gravity(failure: &Failure) -> u8 {
    match failure.operation {
        Operation::ReadErrors | Operation::FailFast => 0,
        Operation::Read | Operation::Write | Operation::Superblock | Operation::Command | Operation::Replaced => 1,
        Operation::Flush => 2,
    }
}

/// Whether the member failed a request that only it could serve, or may have missed a write.
fn is_error(failure: &Failure) -> bool {
    gravity(failure) > 0
}
