//! A member takes a slot that has none: a spare, or a former member with what it holds.
//! Owns: the order of the steps until its recovery may begin. Not here: which spare takes which slot (`master`), who may
//! return (`membership`), the recovery (`recovery`), the second member of a slot (`replace`).
//! Invariant: superblocks list the member in the slot before a write goes to it, and its recovery begins when every
//! write does.

use crate::pass::passes::Passes;
use crate::shard::world::World;
use crate::state::master::{Change, Membership};
use crate::state::view::Gate;
use crate::words::join_error::{AddError, ReAddError};
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassKind, PassOrder};
use uraid_block::{ErrorKind, IoError, Slot};
use uraid_format::bitmap::BitmapImage;

impl<W: World> Passes<W> {
    /// Gives a spare the slot of a member that has failed or is missing.
    pub(in crate::pass) async fn take_spare(&self) {
        let steward = &self.steward;
        let before = self.wanted_spare();
        // Older requests may still report a failure of the slot's last member. It must not be taken for the spare's.
        let epoch = {
            let _one = steward.transition.acquire(1).await;
            steward.publish(Change::Nothing).await
        };
        steward.drain(epoch).await;
        let epoch = {
            let _one = steward.transition.acquire(1).await;
            let wanted = self.wanted_spare().filter(|_| steward.master().gate() == Gate::Open);
            let Some((member, slot)) = wanted.filter(|_| wanted == before) else { return };
            // Every bit must be on the spare before any write goes to it.
            if let Some(bitmap) = self.bitmap.get()
                && let Err(error) = bitmap.give_to(member).await
            {
                bitmap.judge(member, error).await;
                let version = steward.master().version();
                // If this fails, the array has frozen.
                let _ = self.recorder.record_up_to(version).await;
                return;
            }
            // Its log begins before any superblock lists it in the slot.
            if let Some(ppl) = &self.ppl
                && let Err(error) = ppl.give_to(member).await
            {
                ppl.judge(member, error).await;
                let version = steward.master().version();
                let _ = self.recorder.record_up_to(version).await;
                return;
            }
            let is_still_wanted = self.wanted_spare() == Some((member, slot));
            if !is_still_wanted || steward.master().gate() != Gate::Open {
                return;
            }
            steward.apply(Change::TakeSpare { member, slot });
            self.given_up.set(self.given_up.get().without(slot));
            let version = steward.master().version();
            if self.recorder.record_up_to(version).await.is_err() {
                return;
            }
            steward.publish(Change::Nothing).await
        };
        // When its recovery begins, no write that did not go to it is under way.
        steward.drain(epoch).await;
    }

    /// Gives a former member its slot. Every bit is on the member before any write goes to it, and its recovery begins
    /// only when every write goes to it. `check` says whether the member may still have the slot.
    pub(crate) async fn give_back(
        &self,
        member: usize,
        slot: Slot,
        former: &BitmapImage,
        check: impl Fn() -> Result<(), ReAddError>,
    ) -> Result<(), ReAddError> {
        let frozen = |error: IoError| {
            let is_stopping = error.kind == ErrorKind::Stopping;
            ReAddError::NotNow(if is_stopping { AddError::NotOpen } else { AddError::Frozen(error) })
        };
        let steward = &self.steward;
        // As for a spare: after this drain, no request can report a failure of the slot's last member.
        let epoch = {
            let _one = steward.transition.acquire(1).await;
            steward.publish(Change::Nothing).await
        };
        steward.drain(epoch).await;
        let (epoch, outcome) = {
            let _one = steward.transition.acquire(1).await;
            check()?;
            let bitmap = self.bitmap.get().ok_or(ReAddError::NoBitmap)?;
            self.end_recovery_of(slot).await;
            bitmap.unite(former).await.map_err(frozen)?;
            bitmap.give_to(member).await.map_err(ReAddError::Bitmap)?;
            // The failure of another member may have no record yet.
            let version = steward.master().version();
            self.recorder.record_up_to(version).await.map_err(frozen)?;
            check()?;
            self.undrained.set(self.undrained.get() + 1);
            steward.apply(Change::Membership(Membership::Return { member, slot }));
            self.given_up.set(self.given_up.get().without(slot));
            let version = steward.master().version();
            let outcome = self.recorder.record_up_to(version).await;
            (steward.publish(Change::Nothing).await, outcome)
        };
        steward.drain(epoch).await;
        self.undrained.set(self.undrained.get() - 1);
        steward.shared.view_changed.notify_all();
        outcome.map_err(frozen)
    }

    /// Ends the recovery of the failed member that had this slot. What it did does not count for the next member.
    /// A drain does not wait for its windows: they may be waiting for the speed limit, in no epoch.
    async fn end_recovery_of(&self, slot: Slot) {
        let order = self.steward.pass_order.get();
        let of_slot = |order: &PassOrder| order.kind == PassKind::Recovery && order.recovering.contains(slot);
        if let Some(order) = order.filter(of_slot) {
            mark::hit(Mark::RecoveryAnew);
            self.steward.pass_order.set(None);
            self.steer(|steering| steering.ended = steering.ended.max(order.number)).await;
        }
    }
}
