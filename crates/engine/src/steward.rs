//! The one task of an array that changes its view: members, gate, dirty mark.
//! Owns: the master state, `publish`, `drain`, dirty and clean. Not here: which members are failed (`failing`), writing
//! superblocks (`record`), start and stop (`lifecycle`).
//! Invariant: trust may be taken away at once. It is given, and a mark is lifted, only after older requests have left.
//!
//! ```text
//!   failure:       take trust away -> publish -> superblocks -> answer       (never waits for a drain)
//!   first write:   dirty superblocks -> publish -> write
//!   idle:          publish "no writes" -> drain -> flush members -> clean superblocks
//!                  a write that comes before the last step undoes all of it at once: publish "writes"
//! ```

use crate::array::Array;
use crate::by_command::Commands;
use crate::failing::Collection;
use crate::failure::Failure;
use crate::flush::Flusher;
use crate::health::Health;
use crate::mail::{Answer, Call};
use crate::mark::{self, Mark};
use crate::sabotage::{self, Sabotage};
use crate::verdict::Operation;
use crate::view::{self, Access, Copies, Epoch, Gate, View};
use crate::{Place, StartPlan, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, Semaphore, join_all, oneshot, race};
use uraid_block::{ErrorKind, IoError, ShardIndex, Slot, SlotSet, Tick};
use uraid_format::{Role, Superblock};

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// Read and written in its slot.
    Active(Slot),
    /// Waiting for a slot.
    Spare,
    /// Failed while the array was open.
    Faulty {
        /// The slot it had.
        slot: Option<Slot>,
        /// The operation that failed.
        operation: Operation,
        /// The error.
        error: IoError,
        /// When.
        at: Tick,
    },
}

impl MemberState {
    /// Whether it has not failed.
    pub(crate) fn is_trusted(&self) -> bool {
        match self {
            MemberState::Active(_) | MemberState::Spare => true,
            MemberState::Faulty { .. } => false,
        }
    }
}

/// Why an array froze. If it has several reasons, the last one of this list counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FreezeCause {
    /// Members are full.
    Full,
    /// A member of a mirror failed since.
    FailedSince,
    /// More members failed than it can lose.
    TooMany,
    /// A flush failed on more members than it can lose: it is unknown which writes are lost.
    LostFlush,
}

/// The state of a frozen array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frozen {
    /// The first error that froze it.
    pub(crate) kind: ErrorKind,
    pub(crate) cause: FreezeCause,
}

/// The authoritative state of the array. Every view is a copy of it.
pub(crate) struct Master {
    pub(crate) view: View,
    pub(crate) members: Vec<MemberState>,
    /// The next superblocks say dirty: some redundancy may be wrong.
    pub(crate) is_dirty: bool,
    /// A sector could neither be read nor computed in the resync: the array stays dirty.
    pub(crate) is_suspect: bool,
    /// The gate was open.
    pub(crate) has_opened: bool,
    /// The array is frozen. It stays so until its next start, or until the members that it froze over are failed.
    pub(crate) frozen: Option<Frozen>,
    /// Slots whose member had no room for its superblock, and has missed a round.
    pub(crate) missed_round: SlotSet,
    pub(crate) events: u64,
    /// When the last round of superblocks began, in seconds since 1970.
    pub(crate) updated: u64,
    /// Indexes of members in a slot whose superblock on disk has fewer events than the freshest one.
    pub(crate) lagging: Vec<usize>,
    /// Counts changes that superblocks must show, and which of them they show.
    pub(crate) version: u64,
    pub(crate) recorded: u64,
    /// The event count that the superblocks must reach before the changes count as recorded, and the count that they
    /// have all reached: see [`Master::leave_behind`].
    events_min: u64,
    /// Failed members that the superblocks do not name yet, as indexes into `members`: see [`Master::fail_member`].
    pub(crate) unnamed: Vec<usize>,
    /// Nothing was recorded since the start, and a device that is not in use may have as many events as the members.
    has_outsiders: bool,
    pub(crate) events_recorded: u64,
    /// The freshest superblock at assembly, for the fields that all members share.
    pub(crate) template: Superblock,
    /// Each member's own superblock.
    pub(crate) superblocks: Vec<Superblock>,
    pub(crate) records: u64,
    pub(crate) last_record: Option<Duration>,
}

/// The steward's state; on shard 0 only.
pub(crate) struct Steward {
    pub(crate) master: RefCell<Master>,
    /// One change between dirty, clean and stopped at a time.
    pub(crate) transition: Rc<Semaphore>,
    /// One round of superblocks at a time.
    pub(crate) recording: Rc<Semaphore>,
    pub(crate) flusher: Flusher,
    pub(crate) health: Health,
    /// Failures that are being collected, to be judged together.
    pub(crate) collecting: RefCell<Option<Rc<Collection>>>,
    pub(crate) is_stopping: Cell<bool>,
    pub(crate) commands: Commands,
    /// The clean-up of an idle array. Until its superblocks are written, a write can revoke it.
    clean_up: Cell<CleanUp>,
    clean_up_changed: Notify,
}

/// How far the clean-up of an idle array is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CleanUp {
    /// No clean-up runs, or its superblocks are being written.
    Committed,
    /// It waits for older requests or for flushes.
    Revocable,
    /// A write or a stop arrived: it must end without a change.
    Revoked,
}

impl Steward {
    pub(crate) fn new(plan: &StartPlan, view: &View) -> Steward {
        let members = plan.members.iter().map(|member| match member.place {
            Place::Slot(slot) => MemberState::Active(slot),
            Place::Spare => MemberState::Spare,
        });
        Steward {
            master: RefCell::new(Master {
                view: view.clone(),
                members: members.collect(),
                is_dirty: plan.is_dirty,
                is_suspect: false,
                has_opened: false,
                frozen: None,
                missed_round: SlotSet::EMPTY,
                events: plan.events,
                updated: plan.template.updated_seconds(),
                lagging: plan.lagging().collect(),
                version: 0,
                recorded: 0,
                events_min: 0,
                unnamed: Vec::new(),
                has_outsiders: has_outsiders(plan),
                events_recorded: 0,
                template: plan.template.clone(),
                superblocks: plan.members.iter().map(|member| member.superblock.clone()).collect(),
                records: 0,
                last_record: None,
            }),
            transition: Semaphore::new(1),
            recording: Semaphore::new(1),
            flusher: Flusher::new(),
            health: Health::new(plan.members.len()),
            collecting: RefCell::default(),
            is_stopping: Cell::new(false),
            commands: Commands::default(),
            clean_up: Cell::new(CleanUp::Committed),
            clean_up_changed: Notify::new(),
        }
    }

    async fn clean_up_revoked(&self) {
        self.clean_up_changed.wait_for(|| (self.clean_up.get() == CleanUp::Revoked).then_some(())).await;
    }
}

/// Sabotage: record a failure by one round, as md does.
fn records_once() -> bool {
    sabotage::is(Sabotage::RecordOnce) || sabotage::is(Sabotage::EventsSlack)
}

/// Whether a slot has no member, or a device that has or had a slot is not in use.
fn has_outsiders(plan: &StartPlan) -> bool {
    let is_used = |number: u32| {
        let mut in_slots = plan.members.iter().filter(|member| member.place != Place::Spare);
        in_slots.any(|member| member.superblock.dev_number == number)
    };
    let had_slot = |role: &Role| match role {
        Role::Slot(_) | Role::Faulty => true,
        Role::Spare | Role::Journal | Role::Reserved(_) => false,
    };
    let mut roles = (0u32..).zip(&plan.template.roles);
    !plan.missing.is_empty() || roles.any(|(number, role)| had_slot(role) && !is_used(number))
}

impl Master {
    fn member_of(&self, slot: Slot) -> Option<usize> {
        self.members.iter().position(|member| *member == MemberState::Active(slot))
    }

    /// Called when a member is left out of the array, while its superblock may have as many events as the newest round.
    ///
    /// `mdadm --assemble --force` accepts a member that is at most one event behind, whatever the freshest superblock
    /// says of it. So the others must be two events ahead before any request that this member has missed is answered.
    /// That takes two rounds: in one step of two, a crash in mid-round would leave the others too far apart.
    ///
    /// ```text
    ///   events     left out: 7     the others: 7 -> 8 -> 9, then the answer
    /// ```
    pub(crate) fn leave_behind(&mut self) {
        let rounds = if records_once() { 1 } else { 2 };
        self.events_min = self.events + rounds;
        self.has_outsiders = false;
    }

    /// Takes trust from a member in use. The first of the two rounds that follow still lists it in its slot: if other
    /// members fail this round, the array freezes, and no superblock says that a member is missing.
    pub(crate) fn fail_member(&mut self, failure: &Failure, at: Tick) {
        let Failure { slot, operation, error } = *failure;
        let member = self.member_of(slot).expect("a usable slot has an active member");
        self.members[member] = MemberState::Faulty { slot: Some(slot), operation, error, at };
        self.view.slots = self.view.slots.with_access(slot, Access::None);
        self.view.is_recorded = false;
        self.version += 1;
        self.leave_behind();
        if !records_once() && !sabotage::is(Sabotage::NameAtOnce) {
            self.unnamed.push(member);
        }
    }

    /// [`Master::leave_behind`] for devices that the array was started without: once, before the first write.
    pub(crate) fn leave_outsiders_behind(&mut self) {
        if self.has_outsiders {
            self.leave_behind();
        }
    }

    /// Whether the superblocks show at least `version`, and are two events ahead of every member that was left out.
    pub(crate) fn is_recorded(&self, version: u64) -> bool {
        self.recorded >= version && self.events_recorded >= self.events_min
    }

    /// Stops writes to the array. The members keep their slots: the next start finds a dirty array and makes it
    /// consistent.
    pub(crate) fn freeze(&mut self, kind: ErrorKind, cause: FreezeCause) {
        let frozen = self.frozen.get_or_insert(Frozen { kind, cause });
        frozen.cause = frozen.cause.max(cause);
        match self.view.gate {
            Gate::Open | Gate::Closed => self.view.gate = Gate::Frozen(kind),
            Gate::ReadOnly | Gate::Frozen(_) | Gate::Stopped => {}
        }
        self.view.copies = Copies::Canonical;
    }

    /// A flush failed on more members than the array can lose.
    pub(crate) fn has_lost_flush(&self) -> bool {
        self.frozen.is_some_and(|frozen| frozen.cause == FreezeCause::LostFlush)
    }

    /// Whether the superblocks may say clean once all is flushed.
    fn can_go_clean(&self) -> bool {
        self.view.takes_writes && !self.is_suspect && self.frozen.is_none()
    }

    /// The error for writes since the array froze. Do not infer this from the gate: `stop` overwrites `Frozen`.
    pub(crate) fn frozen_error(&self) -> Option<IoError> {
        self.frozen.map(|frozen| view::frozen_error(frozen.kind))
    }
}

impl<W: World> Array<W> {
    pub(crate) fn steward(&self) -> &Steward {
        self.steward.as_ref().expect("the steward lives on shard 0")
    }

    /// Changes the view and waits until every shard uses it. Requests already inside continue in their epoch.
    pub(crate) async fn publish(&self, change: impl FnOnce(&mut Master)) -> Epoch {
        let view = {
            let mut master = self.steward().master.borrow_mut();
            change(&mut master);
            master.view.epoch.0 += 1;
            master.view.clone()
        };
        let epoch = view.epoch;
        // Post before the first await: views must leave in the order of their epochs.
        let calls: Vec<_> = (1..self.world.shards())
            .map(|shard| self.calls.start(ShardIndex(shard), Call::Switch(view.clone())))
            .collect();
        self.switch(view);
        for answer in join_all(calls).await {
            answer.expect("every call is answered").done();
        }
        epoch
    }

    /// Waits until no request that entered before `epoch` is in flight on any shard.
    pub(crate) async fn drain(&self, epoch: Epoch) {
        self.calls.call_all(|| Call::Drain(epoch)).await.into_iter().for_each(Answer::done);
    }

    /// Makes the dirty mark durable and lets writes in.
    pub(crate) async fn need_dirty(&self) -> Result<(), IoError> {
        let steward = self.steward();
        if self.revoke_clean_up().await {
            mark::hit(Mark::CleanRevoked);
            return Ok(());
        }
        let _one = steward.transition.acquire(1).await;
        {
            let mut master = steward.master.borrow_mut();
            if let Some(error) = master.frozen_error() {
                mark::hit(Mark::DirtyMarkRefused);
                return Err(error);
            }
            if master.view.gate != Gate::Open || master.view.takes_writes {
                mark::hit(Mark::DirtyMarkShared);
                return Ok(());
            }
            master.is_dirty = true;
            master.version += 1;
            master.leave_outsiders_behind();
        }
        if !sabotage::is(Sabotage::SkipDirtyMark) {
            let version = steward.master.borrow().version;
            self.record_up_to(version).await?;
        }
        self.publish(|master| master.view.takes_writes = true).await;
        Ok(())
    }

    /// Ends a clean-up that has not begun to write superblocks: they still say dirty, so writes are admitted again.
    /// Returns whether there was one.
    pub(crate) async fn revoke_clean_up(&self) -> bool {
        let steward = self.steward();
        if steward.clean_up.get() != CleanUp::Revocable {
            return false;
        }
        steward.clean_up.set(CleanUp::Revoked);
        steward.clean_up_changed.notify_all();
        self.publish(|master| {
            assert!(master.is_dirty && !master.view.takes_writes, "a clean-up is revoked once");
            master.view.takes_writes = true;
        })
        .await;
        true
    }

    /// [`Array::go_clean`] of an idle array. No request waits for this, so a member that does not answer delays only
    /// the requests that need it. A write or a stop ends it at once if its superblocks are not begun. A flush in flight
    /// then continues by itself, because the system reports a lost write only once.
    async fn try_clean(self: &Rc<Self>) {
        let steward = self.steward();
        if !steward.master.borrow().can_go_clean() {
            return;
        }
        steward.clean_up.set(CleanUp::Revocable);
        let (sender, flushed) = oneshot();
        let array = self.clone();
        let is_quiet = async {
            let epoch = self.publish(|master| master.view.takes_writes = false).await;
            self.drain(epoch).await;
            self.world.spawn(async move { sender.send(array.flush_before_clean().await) });
            flushed.await == Some(true)
        };
        let outcome = race(steward.clean_up_revoked(), is_quiet).await;
        // There was no await since. A write or stop that arrives now waits for the transition.
        let before = steward.clean_up.replace(CleanUp::Committed);
        if matches!(outcome, Either::Right(true)) {
            assert_eq!(before, CleanUp::Revocable, "one that was revoked has ended as such");
            self.record_clean().await;
        }
    }

    /// Marks a stopped array clean: flushes every member, then writes the superblocks. If a step fails, the array stays
    /// dirty. The caller holds the transition, has closed the gate, and has seen the last request leave.
    pub(crate) async fn go_clean(&self) {
        assert_ne!(self.view().gate, Gate::Open, "no write may come any more");
        if !self.steward().master.borrow().can_go_clean() {
            return;
        }
        self.publish(|master| master.view.takes_writes = false).await;
        if self.flush_before_clean().await {
            self.record_clean().await;
        }
    }

    async fn flush_before_clean(&self) -> bool {
        if !sabotage::is(Sabotage::SkipCleanFlush) && self.flush_members().await.is_err() {
            mark::hit(Mark::CleanGivenUp);
            return false;
        }
        true
    }

    async fn record_clean(&self) {
        let version = {
            let mut master = self.steward().master.borrow_mut();
            if master.frozen_error().is_some() {
                return;
            }
            assert!(!master.view.takes_writes, "an array that takes writes is dirty");
            master.is_dirty = false;
            master.version += 1;
            master.version
        };
        // If this fails, the array freezes, and the next write gets that error.
        let _ = self.record_up_to(version).await;
    }

    /// Watches for the array to be idle; runs on shard 0 until the array stops.
    pub(crate) async fn watch_idle(self: Rc<Self>) {
        let mut seen = 0;
        loop {
            self.world.sleep(self.config.clean_after).await;
            if self.steward().is_stopping.get() {
                return;
            }
            let writes = self.writes_so_far().await;
            if writes == seen && self.steward().master.borrow().view.takes_writes {
                let _one = self.steward().transition.acquire(1).await;
                if self.writes_so_far().await == seen && !self.steward().is_stopping.get() {
                    self.try_clean().await;
                }
            }
            seen = writes;
        }
    }

    async fn writes_so_far(&self) -> u64 {
        self.calls.call_all(|| Call::CountWrites).await.into_iter().map(Answer::count).sum()
    }
}
