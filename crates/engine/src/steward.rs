//! The one task of an array that changes its view: members, gate, dirty mark.
//! Owns: `publish`, `drain`, dirty and clean, the order of the semaphores. Not here: the state and its invariants
//! (`master`), which members are failed (`failing`), writing superblocks (`record`), start and stop (`lifecycle`).
//! Invariant: trust may be taken away at once. It is given, and a mark is lifted, only after older requests have left.
//!
//! ```text
//!   failure:       take trust away -> publish -> superblocks -> answer       (never waits for a drain)
//!   first write:   dirty superblocks -> publish -> write
//!   idle:          publish "no writes" -> drain -> flush members -> clean superblocks
//!                  a write that comes before the last step undoes all of it at once: publish "writes"
//! ```
//!
//! Order of the semaphores: a task that holds one of them may wait for those below it, never for one above it.
//!
//! ```text
//!   transition      one change between dirty, clean, frozen and stopped at a time
//!   flush turn      one round of flushes at a time (`flush`)
//!   recording       one round of superblocks at a time (`record`)
//!   collection      failures that are judged together (`failing`): judging them waits for none of the three
//! ```

use crate::array::Array;
use crate::by_command::Commands;
use crate::failing::Collection;
use crate::flush::Flusher;
use crate::health::Health;
use crate::mail::{Answer, Call};
use crate::mark::{self, Mark};
use crate::master::{Change, Master};
use crate::sabotage::{self, Sabotage};
use crate::view::{Epoch, Gate};
use crate::world::World;
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::IoError;
use uraid_block::ShardIndex;
use uraid_block::local::{Either, Notify, Semaphore, join_all, oneshot, race};

/// The steward's state; on shard 0 only.
pub(crate) struct Steward {
    master: RefCell<Master>,
    /// Rounds of superblocks so far.
    pub(crate) rounds: Cell<u64>,
    /// How long the last failure took from the report to the durable record.
    pub(crate) last_record: Cell<Option<Duration>>,
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
    pub(crate) fn new(master: Master) -> Steward {
        Steward {
            health: Health::new(master.members().len()),
            master: RefCell::new(master),
            rounds: Cell::new(0),
            last_record: Cell::new(None),
            transition: Semaphore::new(1),
            recording: Semaphore::new(1),
            flusher: Flusher::new(),
            collecting: RefCell::default(),
            is_stopping: Cell::new(false),
            commands: Commands::default(),
            clean_up: Cell::new(CleanUp::Committed),
            clean_up_changed: Notify::new(),
        }
    }

    /// The state. Do not keep it across an await.
    pub(crate) fn master(&self) -> Ref<'_, Master> {
        self.master.borrow()
    }

    /// Changes the state, which no shard learns: that takes `Array::publish`.
    pub(crate) fn apply(&self, change: Change<'_>) {
        self.master.borrow_mut().apply(change);
    }

    async fn clean_up_revoked(&self) {
        self.clean_up_changed.wait_for(|| (self.clean_up.get() == CleanUp::Revoked).then_some(())).await;
    }
}

impl<W: World> Array<W> {
    pub(crate) fn steward(&self) -> &Steward {
        self.steward.as_ref().expect("the steward lives on shard 0")
    }

    /// Changes the state and waits until every shard uses the view that follows. Requests already inside continue in
    /// their epoch.
    pub(crate) async fn publish(&self, change: Change<'_>) -> Epoch {
        let view = self.steward().master.borrow_mut().apply_and_view(change);
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
            let master = steward.master();
            if let Some(error) = master.frozen_error() {
                mark::hit(Mark::DirtyMarkRefused);
                return Err(error);
            }
            if master.gate() != Gate::Open || master.takes_writes() {
                mark::hit(Mark::DirtyMarkShared);
                return Ok(());
            }
        }
        steward.apply(Change::MarkDirty);
        if !sabotage::is(Sabotage::SkipDirtyMark) {
            let version = steward.master().version();
            self.record_up_to(version).await?;
        }
        self.publish(Change::AdmitWrites).await;
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
        assert!(!steward.master().takes_writes(), "a clean-up is revoked once");
        self.publish(Change::AdmitWrites).await;
        true
    }

    /// [`Array::go_clean`] of an idle array. No request waits for this, so a member that does not answer delays only
    /// the requests that need it. A write or a stop ends it at once if its superblocks are not begun. A flush in flight
    /// then continues by itself, because the system reports a lost write only once.
    async fn try_clean(self: &Rc<Self>) {
        let steward = self.steward();
        if !steward.master().can_go_clean() {
            return;
        }
        steward.clean_up.set(CleanUp::Revocable);
        let (sender, flushed) = oneshot();
        let array = self.clone();
        let is_quiet = async {
            let epoch = self.publish(Change::HoldWrites).await;
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
        if !self.steward().master().can_go_clean() {
            return;
        }
        self.publish(Change::HoldWrites).await;
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
        let steward = self.steward();
        if steward.master().frozen_error().is_some() {
            return;
        }
        steward.apply(Change::MarkClean);
        let version = steward.master().version();
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
            if writes == seen && self.steward().master().takes_writes() {
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
