//! An open array that becomes read-only by command, and takes writes again.
//! Owns: [`AccessError`], the order of the steps. Not here: arrays that were opened read-only (`lifecycle`), what a
//! read-only array refuses (`view`), superblocks (`recorder`), when passes go on (`schedule`).
//! Invariant: while the array is read-only, nothing is written to any member. It becomes so only when all that was
//! answered is durable, and the superblocks say so. It takes no write before they name every member that failed.
//!
//! ```text
//!   step                                          a crash after it: the next start has
//!   becomes read-only
//!     publish: writes are refused; passes end     the array dirty, as before
//!       their windows; drain; no bit is cleared
//!     flush the members                           the same
//!     superblocks: clean, how far passes came     the array clean; passes go on from there
//!     publish: nothing is written                 the same
//!   is read-only
//!     a member fails: reads avoid it              the member in its slot: nothing was written without it
//!   takes writes again
//!     publish: superblocks may be written         the same
//!     superblocks name the members that failed    the array without them
//!     publish: open; passes go on                 the same, clean until the dirty mark of the first write
//! ```
//!
//! Reads go on all the time. A resync that met unreadable sectors leaves the superblocks dirty, as a stop does.

use crate::World;
use crate::command::lifecycle::Lifecycle;
use crate::state::master::{Change, ReadOnly};
use crate::state::view::{Gate, frozen_error};
use crate::words::mark::{self, Mark};
use uraid_block::IoError;

/// Why an array does not become read-only, or writable, now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// It was opened read-only.
    #[error("the array was started read-only; stop it and start it again to write to it")]
    OpenedReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The array is frozen.
    #[error("the array is frozen")]
    Frozen(#[source] IoError),
}

impl<W: World> Lifecycle<W> {
    /// Takes no more writes. Returns when nothing is written to any member any more; `false` if it was so before.
    pub(crate) async fn become_read_only(&self) -> Result<bool, AccessError> {
        let steward = &self.steward;
        // The superblocks must not list a bitmap that is half there.
        let _bitmap_stays = self.bitmap_changer.turn().await;
        self.dirty_mark.revoke_clean_up().await;
        let _one = steward.transition.acquire(1).await;
        if self.check_access()? == Gate::ReadOnly {
            return Ok(false);
        }
        let epoch = steward.publish(Change::ReadOnly(ReadOnly::RefuseWrites)).await;
        steward.drain(epoch).await;
        let bitmap = self.bitmap.get();
        if let Some(bitmap) = &bitmap {
            bitmap.hold_clearing(true);
            bitmap.clearing_over().await;
        }
        let outcome = self.settle_members().await;
        if let Some(bitmap) = &bitmap {
            bitmap.hold_clearing(false);
        }
        assert_ne!(steward.master().gate(), Gate::NoNewWrites, "it is read-only, or frozen");
        outcome.map(|()| true)
    }

    /// Makes all durable, says so in the superblocks, and ends all writing. The caller holds the transition, and no write
    /// is under way.
    async fn settle_members(&self) -> Result<(), AccessError> {
        let steward = &self.steward;
        // `go_clean` flushes nothing if the array must stay dirty.
        let _recorded = self.flusher.flush_round().await.map_err(AccessError::Frozen)?;
        if !steward.shared.is_redundant() {
            // The flush of a client may have failed since.
            let frozen = steward.master().frozen_error();
            if let Some(error) = frozen {
                return Err(AccessError::Frozen(error));
            }
            steward.publish(Change::ReadOnly(ReadOnly::Begin)).await;
            return Ok(());
        }
        self.dirty_mark.go_clean().await;
        let bitmap = self.bitmap.get();
        loop {
            let version = steward.master().version();
            self.recorder.record_up_to(version).await.map_err(AccessError::Frozen)?;
            // After this no superblock and no bitmap is written.
            let _last = self.recorder.turn().await;
            let _last_of_bitmap = match &bitmap {
                Some(bitmap) => Some(bitmap.turn().await),
                None => None,
            };
            let (frozen, is_shown) = {
                let master = steward.master();
                (master.frozen_error(), master.shows(master.version()))
            };
            if let Some(error) = frozen {
                return Err(AccessError::Frozen(error));
            }
            // A member may have failed since.
            if is_shown {
                mark::hit(Mark::ReadOnlyByCommand);
                steward.publish(Change::ReadOnly(ReadOnly::Begin)).await;
                return Ok(());
            }
        }
    }

    /// Takes writes again; `false` if it does already.
    pub(crate) async fn become_writable(&self) -> Result<bool, AccessError> {
        let steward = &self.steward;
        self.dirty_mark.revoke_clean_up().await;
        let _one = steward.transition.acquire(1).await;
        if self.check_access()? == Gate::Open {
            return Ok(false);
        }
        steward.publish(Change::ReadOnly(ReadOnly::Leave)).await;
        if steward.shared.is_redundant() {
            loop {
                let version = steward.master().version();
                self.recorder.record_up_to(version).await.map_err(AccessError::Frozen)?;
                let is_shown = steward.master().shows(steward.master().version());
                if is_shown {
                    break;
                }
            }
        }
        let frozen = steward.master().frozen_error();
        if let Some(error) = frozen {
            return Err(AccessError::Frozen(error));
        }
        mark::hit(Mark::WritableAgain);
        steward.publish(Change::ReadOnly(ReadOnly::End)).await;
        self.passes.begin();
        Ok(true)
    }

    /// The gate, which is open, or read-only by command. The caller holds the transition.
    fn check_access(&self) -> Result<Gate, AccessError> {
        let steward = &self.steward;
        let master = steward.master();
        match master.gate() {
            _ if steward.is_stopping.get() => Err(AccessError::NotOpen),
            Gate::ReadOnly if !master.writes_nothing() => Err(AccessError::OpenedReadOnly),
            gate @ (Gate::Open | Gate::ReadOnly) => {
                master.frozen_error().map_or(Ok(gate), |error| Err(AccessError::Frozen(error)))
            }
            Gate::Frozen(kind) => Err(AccessError::Frozen(frozen_error(kind))),
            Gate::Closed | Gate::Stopped | Gate::NoNewWrites => Err(AccessError::NotOpen),
        }
    }
}
