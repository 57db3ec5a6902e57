//! What the parts of an array share on one shard: its members, its view, its calls to other shards.
//! Owns: [`Shared`], looking members up, switching to a view, reporting failures. Not here: admission (`permit`), what a
//! request does (`reader`, `mirror`, `row`), who changes the view (`steward`).
//! Invariant: views take effect in the order of their epochs. A member is looked up in the view after every wait.

use crate::shard::balance::Balance;
use crate::shard::behind::Behind;
use crate::shard::calls::Calls;
use crate::shard::epochs::Epochs;
use crate::shard::intent::Intent;
use crate::shard::limits::Limits;
use crate::shard::mail::{Call, Mail, Message, STEWARD};
use crate::shard::member_counts::CountedMember;
use crate::shard::places::Places;
use crate::shard::range_lock::{LockId, RangeLock};
use crate::shard::torn::Torn;
use crate::shard::unsynced::Unsynced;
use crate::shard::world::World;
use crate::state::recorded::{FailureOutcome, NotRecorded, Recorded};
use crate::state::view::{Access, Copies, Epoch, Gate, View};
use crate::words::config::Config;
use crate::words::failure::{Failure, ReadError};
use crate::words::mark::{self, Mark};
use crate::words::verdict::{self, Operation, Verdict};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::Notify;
use uraid_block::{
    ArrayRange, Device, ErrorKind, Geometry, IoError, MemberSector, Sector, Sectors, ShardIndex, Slot, SlotSet,
};
use uraid_layout::{Layout, ParityLayout, Row};

/// What the request paths count, per shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Reads served.
    pub reads: u64,
    /// Writes, zeroes and discards served.
    pub writes: u64,
    /// Rows written without reading.
    pub rows_full: u64,
    /// Row parts written by read-modify-write.
    pub rows_modified: u64,
    /// Row parts written after reading the rest of their row.
    pub rows_reconstructed: u64,
    /// Row parts read by computing what a lost member held.
    pub rows_recovered: u64,
    /// Writes that waited for a row, and were written by the task that held it together with its own write.
    pub writes_absorbed: u64,
    /// Locks of copies that were not free at once: a write waited for another one, or for a window of a pass.
    pub locks_waited: u64,
    /// Reads that failed on one member and were served by others.
    pub reads_retried: u64,
    /// Member reads that failed on the medium.
    pub read_errors: u64,
}

/// What the parts of an array use in common, on one shard.
pub(crate) struct Shared<W: World> {
    pub(crate) world: W,
    limits: Limits,
    /// By index: those of the start plan come first.
    pub(crate) members: Places<W>,
    pub(crate) config: Config,
    view: RefCell<Rc<View>>,
    pub(crate) view_changed: Notify,
    pub(crate) epochs: Epochs,
    pub(crate) calls: Calls<W>,
    pub(crate) writes_admitted: Cell<u64>,
    pub(crate) balance: Balance,
    /// Ranges are in sectors of the array on levels with copies, and in rows on parity levels.
    pub(crate) locks: RangeLock,
    pub(crate) torn: Torn,
    pub(crate) behind: Behind,
    pub(crate) intent: Intent,
    /// Below this, the copies or rows that this shard owns are consistent: sectors of the array for copies, of each
    /// member for rows. Raised by the resync (`shard_pass`).
    pub(crate) in_sync_below: Cell<Sectors>,
    pub(crate) unsynced: Unsynced,
    /// The array has a partial parity log: rows are logged before they are written.
    pub(crate) has_log: bool,
    /// How often this shard has begun or ended a write to a member, but for mirrors.
    writes_begun_or_ended: Cell<u64>,
    counters: Cell<Counters>,
    longest_wait: Cell<Duration>,
}

/// What may end the knowledge of what a member's sectors hold.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Changes {
    pub(crate) epoch: Epoch,
    pub(crate) writes: u64,
}

/// The fields of [`Shared`] that the caller of [`Shared::new`] gives.
pub(crate) struct Parts<W: World> {
    pub(crate) world: W,
    pub(crate) limits: Limits,
    pub(crate) members: Places<W>,
    pub(crate) config: Config,
    pub(crate) view: View,
    pub(crate) balance: Balance,
    pub(crate) locks: RangeLock,
    pub(crate) intent: Intent,
    pub(crate) in_sync_below: Sectors,
    pub(crate) unsynced: Unsynced,
    pub(crate) has_log: bool,
}

impl<W: World> Shared<W> {
    pub(crate) fn new(parts: Parts<W>) -> Rc<Shared<W>> {
        let Parts { world, limits, members, config, view, balance, locks, .. } = parts;
        let Parts { intent, in_sync_below, unsynced, has_log, .. } = parts;
        assert!(view.shape.layout().can_serve(&view.readable()), "an array starts with every sector");
        balance.set_write_mostly(view.slots.write_mostly());
        for of_slot in view.slots.members() {
            assert!(of_slot.index < members.len(), "a slot has a member of the plan");
        }
        members.set_bad_blocks(&view.bad_blocks);
        Rc::new(Shared {
            epochs: Epochs::new(view.epoch),
            view: RefCell::new(Rc::new(view)),
            view_changed: Notify::new(),
            calls: Calls::new(world.clone()),
            writes_admitted: Cell::new(0),
            torn: Torn::default(),
            behind: Behind::new(),
            in_sync_below: Cell::new(in_sync_below),
            unsynced,
            has_log,
            writes_begun_or_ended: Cell::new(0),
            counters: Cell::default(),
            longest_wait: Cell::default(),
            world,
            limits,
            members,
            config,
            balance,
            locks,
            intent,
        })
    }

    /// This shard's current view. Do not keep it across an await.
    pub(crate) fn view(&self) -> Rc<View> {
        self.view.borrow().clone()
    }

    /// Calls `look` with this shard's current view, without cloning it.
    #[inline]
    pub(crate) fn with_view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.view.borrow())
    }

    /// The layout by this shard's current view, borrowed: it is not kept across an await, where the view may change. Clippy
    /// (`await_holding_refcell_ref`) refuses that.
    #[inline]
    pub(crate) fn layout(&self) -> Ref<'_, Layout> {
        Ref::map(self.view.borrow(), |view| view.shape.layout())
    }

    /// The same, of a parity level.
    #[inline]
    pub(crate) fn rows(&self) -> Ref<'_, ParityLayout> {
        Ref::map(self.view.borrow(), |view| view.shape.rows())
    }

    /// What clients are told, by this shard's current view.
    pub(crate) fn geometry(&self) -> Geometry {
        self.with_view(|view| self.limits.geometry(&view.shape))
    }

    /// What this shard's request paths have counted.
    pub(crate) fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// The longest time that a write has waited for a lock of copies.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.longest_wait.get()
    }

    /// Locks a range of copies that this shard owns, for a write. Counts it if the range is not free at once.
    pub(crate) async fn lock_for_write(&self, sectors: std::ops::Range<u64>) -> LockId {
        if let Some(id) = self.locks.try_lock(sectors.clone()) {
            return id;
        }
        let began = self.world.now();
        let id = self.locks.lock(sectors).await;
        self.count(|counters| counters.locks_waited += 1);
        self.longest_wait.set(self.longest_wait.get().max(self.world.now().since(began)));
        id
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The member in a slot.
    #[inline]
    pub(crate) fn member(&self, slot: Slot) -> Rc<CountedMember<W>> {
        self.members.get(self.with_view(|view| view.member(slot).index))
    }

    /// Where a member's sector lies on its device.
    #[inline]
    pub(crate) fn on_device(&self, slot: Slot, at: MemberSector) -> Sector {
        self.with_view(|view| view.member(slot).data_offset) + Sectors(at.0)
    }

    pub(crate) fn is_redundant(&self) -> bool {
        self.layout().level().is_redundant()
    }

    /// Makes `view` the one that requests enter with. Requests already inside keep their epoch and look members up
    /// anew. If they wait for a member that the view leaves out, they are answered now.
    pub(crate) fn switch(&self, view: View) {
        assert!(view.shape.layout().can_serve(&view.readable()), "every view serves every sector");
        self.epochs.switch(view.epoch);
        self.intent.switch(view.bits_round, view.bits);
        if view.gate == Gate::Open && self.with_view(|before| before.gate != Gate::Open) {
            self.torn.clear();
        }
        if view.takes_corrections() && !self.with_view(View::takes_corrections) && !view.bad_blocks.is_empty() {
            self.world.post(self.world.shard(), Mail(Message::Resume));
        }
        let failed = self.with_view(|before| left_out(before, &view));
        self.balance.set_write_mostly(view.slots.write_mostly());
        if self.with_view(|before| before.bad_blocks != view.bad_blocks) {
            self.members.set_bad_blocks(&view.bad_blocks);
        }
        self.view.replace(Rc::new(view));
        failed.into_iter().for_each(|member| self.members.get(member).mark_dead());
        self.view_changed.notify_all();
    }

    /// Makes sure that superblocks record the members that a request did not reach: its own `failures`, and the members
    /// that `view`, under which its members were chosen, had left out already.
    #[inline]
    pub(crate) async fn settle(&self, view: &View, failures: &[Failure]) -> Result<Recorded, IoError> {
        Ok(self.settle_planned(Recorded::by(view), failures).await?)
    }

    /// [`Shared::settle`], where `recorded` was asked of the view when the members were chosen.
    #[inline]
    pub(crate) async fn settle_planned(
        &self,
        recorded: Option<Recorded>,
        failures: &[Failure],
    ) -> Result<Recorded, NotRecorded> {
        match recorded {
            Some(recorded) if failures.is_empty() => Ok(recorded),
            Some(_) | None => Box::pin(self.report(failures)).await.into_recorded(),
        }
    }

    /// [`Shared::settle_planned`] for a write of copies. What a freeze leaves half done is torn.
    pub(crate) async fn settle_copies(
        &self,
        recorded: Option<Recorded>,
        range: ArrayRange,
        failures: &[Failure],
    ) -> Result<Recorded, IoError> {
        let outcome = self.settle_planned(recorded, failures).await;
        if matches!(outcome, Err(NotRecorded::Frozen(_))) && self.is_redundant() {
            self.torn.mark_copies(range);
        }
        Ok(outcome?)
    }

    /// Reports failed members to the steward and waits until the superblocks of the others record them. Failures that
    /// the verdict ignores are dropped. With no failures, waits until every failure known already is recorded.
    pub(crate) async fn report(&self, failures: &[Failure]) -> FailureOutcome {
        let mut grave = Vec::new();
        let mut answer = FailureOutcome::Recorded;
        for failure in failures {
            assert!(failure.slot.0 < self.layout().slots(), "a member of a slot failed");
            match self.verdict(failure) {
                Verdict::List | Verdict::FailOrFreeze | Verdict::Freeze => grave.push(*failure),
                Verdict::ReadElsewhere => {}
                Verdict::FailRequest => {
                    assert!(!self.is_redundant(), "other copies answer, or the array freezes");
                    mark::hit(Mark::RequestFailed);
                    answer = FailureOutcome::Unwritten(failure.error);
                }
            }
        }
        if grave.is_empty() && !failures.is_empty() {
            return answer;
        }
        self.calls.call(STEWARD, Call::Fail(grave)).await.failed()
    }

    pub(crate) fn verdict(&self, failure: &Failure) -> Verdict {
        verdict::decide(failure.operation, failure.error.kind, self.config.policy(self.is_redundant()))
    }

    /// Called when a request that met these read errors is done. `was_read_elsewhere`: it got all its bytes from other
    /// members. Waits until the steward has counted the errors and has failed the members over the limit.
    pub(crate) async fn settle_read_errors(&self, errors: Vec<ReadError>, was_read_elsewhere: bool) {
        if was_read_elsewhere {
            assert!(self.is_redundant(), "no other member has the bytes");
            errors.iter().for_each(|error| self.members.get(error.member).note_read_elsewhere(error.range.length));
        }
        let errors: Vec<ReadError> = errors.into_iter().filter(|error| counts(error.error)).collect();
        let is_failfast = |error: &&ReadError| self.with_view(|view| view.slots.is_failfast(error.slot, error.member));
        let fast: Vec<ReadError> = errors.iter().filter(is_failfast).copied().collect();
        if was_read_elsewhere {
            errors.iter().filter(|error| !is_failfast(error)).for_each(|error| self.want_correction(error));
        }
        let is_judged = self.config.read_errors_max > 0 || !fast.is_empty();
        if !errors.is_empty() && is_judged && self.is_redundant() {
            self.calls.call(STEWARD, Call::ReadErrors { errors, was_read_elsewhere }).await.done();
        }
        if was_read_elsewhere {
            // Those of members that have failed by now ask for nothing: only one that the array needs is still read.
            fast.iter().for_each(|error| self.want_correction(error));
        }
    }

    /// Counts a failed member read, and tells the steward if the member is gone. An error ends the request: no other
    /// member can supply these bytes.
    pub(crate) async fn note_read_failure(&self, failed: Failure) -> Result<(), IoError> {
        assert_eq!(failed.operation, Operation::Read);
        assert_ne!(failed.error.kind, ErrorKind::Late, "a read that was cut is no error of its member");
        self.count(|counters| {
            counters.read_errors += 1;
            counters.reads_retried += 1;
        });
        if !self.is_redundant() {
            return Err(failed.error);
        }
        // Ignore whether it was recorded: no write's answer depends on it.
        let _ = self.report(&[failed]).await;
        Ok(())
    }

    /// The slot of a member that failed to read, if it still has it: another one may have taken it, and have the sectors.
    pub(crate) fn still_of(&self, failed: &Failure) -> SlotSet {
        let has_it = self.with_view(|view| {
            !view.readable().contains(failed.slot) || view.member(failed.slot).index == failed.member
        });
        if has_it { SlotSet::EMPTY.with(failed.slot) } else { SlotSet::EMPTY }
    }

    /// Whether the list of the member in a slot names a sector of this stretch of its data.
    pub(crate) fn lists_some(&self, slot: Slot, at: MemberSector, length: Sectors) -> bool {
        self.with_view(|view| {
            let of_slot = view.has_member(slot).then(|| view.member(slot));
            of_slot.is_some_and(|member| self.members.get(member.index).lacks(member.range(at, length)))
        })
    }

    /// The longest stretch of these places that each member's list names as a whole, or not at all.
    pub(crate) fn listed_alike(
        &self,
        places: impl IntoIterator<Item = (Slot, MemberSector)>,
        length: Sectors,
    ) -> Sectors {
        places.into_iter().fold(length, |length, (slot, at)| {
            let member = self.with_view(|view| view.member(slot));
            length.min(self.members.get(member.index).lacks_alike(member.range(at, length)))
        })
    }

    /// A write to a member's data begins, or has ended.
    #[inline]
    pub(crate) fn note_write(&self) {
        self.writes_begun_or_ended.set(self.writes_begun_or_ended.get() + 1);
    }

    pub(crate) fn changes(&self) -> Changes {
        Changes { epoch: self.with_view(|view| view.epoch), writes: self.writes_begun_or_ended.get() }
    }

    /// The members to read only if the others do not suffice.
    pub(crate) fn slow_members(&self) -> SlotSet {
        let slow = self.balance.slow();
        if slow.is_empty() || self.view().copies != Copies::Any { SlotSet::EMPTY } else { slow }
    }

    /// The shard that works on a row.
    pub(crate) fn owner_of(&self, row: Row) -> ShardIndex {
        ShardIndex((row.0 % u64::from(self.world.shards())) as u16)
    }

    /// The owners of these rows, ascending.
    pub(crate) fn owners_of(&self, rows: std::ops::Range<u64>) -> impl Iterator<Item = ShardIndex> + use<W> {
        let shards = u64::from(self.world.shards());
        let is_owner = move |shard: &u64| (rows.start + (shards + shard - rows.start % shards) % shards) < rows.end;
        (0..shards).filter(is_owner).map(|shard| ShardIndex(shard as u16))
    }

    /// Makes all writes that were answered before this call stable on every usable member.
    pub(crate) async fn flush_members(&self) -> Result<Recorded, IoError> {
        self.calls.call(STEWARD, Call::Flush).await.settled()
    }

    /// Returns when the array has stopped.
    pub(crate) async fn stopped(&self) {
        let has_stopped = || self.with_view(|view| view.gate == Gate::Stopped);
        self.view_changed.wait_for(|| has_stopped().then_some(())).await;
    }
}

/// The members that the next view leaves out: their requests in flight are to end now. A member that was replaced is not
/// among them: most of these end by themselves in a moment, and the rest by [`Call::CutOff`].
fn left_out(before: &View, next: &View) -> Vec<usize> {
    let mut left_out = Vec::new();
    for slot in before.writable().iter() {
        let (member, replacement) = (before.member(slot), before.replacement(slot));
        let of_next = if next.writable().contains(slot) { Some(next.member(slot)) } else { None };
        let stays = |index: usize| {
            of_next.is_some_and(|member| member.index == index)
                || next.replacement(slot).is_some_and(|member| member.index == index)
        };
        if !stays(member.index) {
            let takes = replacement.zip(of_next).filter(|(replacement, next)| replacement.index == next.index);
            let is_in_sync = of_next.is_some_and(|member| member.access == Access::ReadWrite);
            assert!(!is_in_sync || takes.is_some(), "a slot keeps its member until that has failed");
            let is_replaced = takes.is_some_and(|(_, next)| next.access == Access::ReadWrite);
            left_out.extend((!is_replaced).then_some(member.index));
        }
        left_out.extend(replacement.map(|member| member.index).filter(|index| !stays(*index)));
    }
    left_out
}

/// Whether a failed read counts towards the limit: the device was asked for these sectors and could not return them.
/// Reads that a bad-block list or a nested array refuses do not count. For other kinds the first error fails the
/// member.
fn counts(error: IoError) -> bool {
    error.kind.is_of_sectors() && error.is_of_device()
}
