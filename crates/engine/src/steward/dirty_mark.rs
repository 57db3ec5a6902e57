//! Dirty and clean: the mark in the superblocks that says whether redundancy may be wrong.
//! Owns: [`DirtyMark`], when it is set, the clean-up of an idle array, which a write can revoke. Not here: writing
//! superblocks (`recorder`), flushes (`flusher`).
//! Invariant: the mark is durable before the first write is submitted. It is cleared only after older requests have left
//! and every member was flushed.
//!
//! ```text
//!   first write:   dirty superblocks -> publish -> write
//!   idle:          publish "no writes" -> drain -> flush members -> clean superblocks
//!                  a write that comes before the last step undoes all of it at once: publish "writes"
//! ```

use crate::shard::mail::{Answer, Call};
use crate::shard::world::World;
use crate::state::master::Change;
use crate::state::view::Gate;
use crate::steward::flusher::Flusher;
use crate::steward::recorder::Recorder;
use crate::steward::{Passed, Steward};
use crate::words::mark::{self, Mark};
use std::cell::Cell;
use std::rc::Rc;
use uraid_block::IoError;
use uraid_block::local::{Either, Notify, oneshot, race};

/// Sets and clears the dirty mark; on shard 0 only.
pub(crate) struct DirtyMark<W: World> {
    steward: Rc<Steward<W>>,
    recorder: Rc<Recorder<W>>,
    flusher: Rc<Flusher<W>>,
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
    /// A write or a stop arrived: the clean-up must end without a change.
    Revoked,
}

impl<W: World> DirtyMark<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        recorder: &Rc<Recorder<W>>,
        flusher: &Rc<Flusher<W>>,
    ) -> Rc<DirtyMark<W>> {
        Rc::new(DirtyMark {
            steward: steward.clone(),
            recorder: recorder.clone(),
            flusher: flusher.clone(),
            clean_up: Cell::new(CleanUp::Committed),
            clean_up_changed: Notify::new(),
        })
    }

    async fn clean_up_revoked(&self) {
        self.clean_up_changed.wait_for(|| (self.clean_up.get() == CleanUp::Revoked).then_some(())).await;
    }

    /// Makes the dirty mark durable and lets writes in.
    pub(crate) async fn set(&self) -> Result<(), IoError> {
        let steward = &self.steward;
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
        let version = steward.master().version();
        self.recorder.record_up_to(version).await?;
        assert!(steward.master().shows(version), "the mark is durable before the first write");
        assert!(steward.master().is_dirty());
        self.steward.publish(Change::AdmitWrites).await;
        Ok(())
    }

    /// Revokes a clean-up that has not begun to write superblocks. The superblocks still say dirty, so writes are
    /// admitted again. Returns whether there was such a clean-up.
    pub(crate) async fn revoke_clean_up(&self) -> bool {
        let steward = &self.steward;
        if self.clean_up.get() != CleanUp::Revocable {
            return false;
        }
        self.clean_up.set(CleanUp::Revoked);
        self.clean_up_changed.notify_all();
        assert!(!steward.master().takes_writes(), "a clean-up is revoked once");
        assert!(steward.master().is_dirty(), "its superblocks are not begun");
        self.steward.publish(Change::AdmitWrites).await;
        true
    }

    /// Marks an idle array clean, as [`DirtyMark::go_clean`] does. No request waits for this, so a member that does not
    /// answer delays only the requests that need this member. A write or a stop ends it at once if no superblock is
    /// being written yet. A flush in flight then continues on its own, because the system reports a lost write only
    /// once.
    async fn try_clean(self: &Rc<Self>) {
        let steward = &self.steward;
        if !steward.master().can_go_clean() {
            return;
        }
        let before = self.clean_up.replace(CleanUp::Revocable);
        assert_eq!(before, CleanUp::Committed, "one clean-up at a time");
        let (sender, flushed) = oneshot();
        let mark = self.clone();
        let is_quiet = async {
            let epoch = self.steward.publish(Change::HoldWrites).await;
            self.steward.drain(epoch).await;
            self.steward.shared.world.spawn(async move { sender.send(mark.flush_before_clean().await) });
            flushed.await.flatten()
        };
        let outcome = race(self.clean_up_revoked(), is_quiet).await;
        // There is no await after `outcome`. A write or stop that arrives now waits for the transition.
        let before = self.clean_up.replace(CleanUp::Committed);
        if let Either::Right(Some(passed)) = outcome {
            assert_eq!(before, CleanUp::Revocable, "one that was revoked has ended as such");
            self.record_clean(passed).await;
        }
    }

    /// Marks an array clean that stops, or becomes read-only: flushes every member, then writes the superblocks. If a
    /// step fails, the array stays dirty. The caller holds the transition, has closed the gate to writes, and has seen
    /// the last one leave.
    pub(crate) async fn go_clean(&self) {
        assert_ne!(self.steward.shared.view().gate, Gate::Open, "no write may come any more");
        let is_needed = {
            let master = self.steward.master();
            let is_suspect = master.resync_from().is_some() && !master.needs_resync();
            let has_pass = !is_suspect && (master.resync_from().is_some() || master.has_incomplete());
            master.can_go_clean() || (master.has_opened() && has_pass && master.frozen().is_none())
        };
        if !is_needed {
            return;
        }
        if self.steward.master().takes_writes() {
            self.steward.publish(Change::HoldWrites).await;
        }
        if let Some(passed) = self.flush_before_clean().await {
            self.record_clean(passed).await;
        }
    }

    /// Returns how far the array is consistent and flushed: all of it, unless a pass is under way.
    async fn flush_before_clean(&self) -> Option<Passed> {
        let passed = self.steward.passed().await;
        if self.flusher.flush_round().await.is_err() {
            mark::hit(Mark::CleanGivenUp);
            return None;
        }
        Some(passed)
    }

    async fn record_clean(&self, passed: Passed) {
        let steward = &self.steward;
        if steward.master().frozen_error().is_some() {
            return;
        }
        steward.note_checkpoint(passed.in_sync_below);
        steward.note_recovered(passed.recovered);
        steward.apply(Change::MarkClean);
        let version = steward.master().version();
        // If this fails, the array freezes, and the next write gets that error.
        if self.recorder.record_up_to(version).await.is_ok() {
            assert!(!steward.master().is_dirty(), "none marks the array dirty during this transition");
        }
    }

    /// Watches for the array to be idle; runs on shard 0 until the array stops.
    pub(crate) async fn watch_idle(self: Rc<Self>) {
        let mut seen = 0;
        loop {
            self.steward.shared.world.sleep(self.steward.shared.config.clean_after).await;
            if self.steward.is_stopping.get() {
                return;
            }
            let writes = self.writes_so_far().await;
            assert!(writes >= seen, "the count of writes only grows");
            if writes == seen && self.steward.master().takes_writes() {
                let _one = self.steward.transition.acquire(1).await;
                if self.writes_so_far().await == seen && !self.steward.is_stopping.get() {
                    self.try_clean().await;
                }
            }
            seen = writes;
        }
    }

    async fn writes_so_far(&self) -> u64 {
        self.steward.shared.calls.call_all(|| Call::CountWrites).await.into_iter().map(Answer::count).sum()
    }
}
