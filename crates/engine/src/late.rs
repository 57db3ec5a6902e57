//! Reads of a slow member: another copy answers them, or the other members of the row do.
//! Owns: the periodic check of reads in flight, the probe of whether a slow member answers again. Not here: which copy
//! a read takes (`balance`), the retry elsewhere (`read`), members that never answer (the host's timeout, `steward`).
//! Invariant: it acts only while all copies are equal and parity is right, and never fails a member.
//!
//! ```text
//!   every LOOK   has a member reads in flight, and has it ended none since the last check
//!                (of a parity array: since the last four)?
//!                  no   nothing
//!                  yes  it is slow: its reads in flight end with `Late` and are read elsewhere;
//!                       new reads go elsewhere at once; one small read probes whether it answers again
//!   it answers again: reads of other slow members, which may have had no other copy, are cut once more
//! ```
//!
//! A read that the others cannot serve waits for the slow member. Writes always wait for it, because they need it.
//! A read of a row that is being written waits for that write.

use crate::array::{Array, failure};
use crate::mark::{self, Mark};
use crate::verdict::Operation;
use crate::view::{Copies, Gate};
use crate::{Pool, World};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, race};
use uraid_block::{Device, ErrorKind, IoError, MemberSector, Slot};

/// A disk that is busy or positions its heads ends some read in this time. A disk that recovers a sector may take
/// longer; another copy is then faster.
const LOOK: Duration = Duration::from_millis(250);
/// A member of a parity array is slow only after this many looks in a row. What it should give costs a read of every other
/// member, which would slow down disks that are merely busy.
const LOOKS_OF_PARITY: u32 = 4;

/// A member that has kept a request for this long does not answer. The host notes ages once a second, and counts a request
/// from the look before.
const OLD: Duration = Duration::from_secs(2);

impl<W: World> Array<W> {
    /// Starts the watch over this shard's reads, if they can go elsewhere. Call it once.
    pub(crate) fn begin_watching_reads(self: &Rc<Self>) {
        if self.shape.layout.tolerates() > 0 && !self.watches_reads.replace(true) {
            self.world.spawn(self.clone().watch_reads());
        }
    }

    async fn watch_reads(self: Rc<Self>) {
        let layout = &self.shape.layout;
        let enough = if layout.level().is_parity() { LOOKS_OF_PARITY } else { 1 };
        let mut looks = vec![0; layout.slots().into()];
        loop {
            if let Either::Right(()) = race(self.world.sleep(LOOK), self.stopped()).await {
                return;
            }
            let (stuck, view) = (self.balance.stuck(), self.view());
            for (slot, looks) in (0..).map(Slot).zip(&mut looks) {
                *looks = if stuck.contains(slot) { *looks + 1 } else { 0 };
                if *looks >= enough && view.copies == Copies::Any && view.usable.contains(slot) {
                    self.leave_slow(slot);
                }
            }
        }
    }

    async fn stopped(&self) {
        let has_stopped = || self.with_view(|view| view.gate == Gate::Stopped);
        self.view_changed.wait_for(|| has_stopped().then_some(())).await;
    }

    fn leave_slow(self: &Rc<Self>, slot: Slot) {
        if self.balance.set_slow(slot, true) {
            return;
        }
        mark::hit(Mark::ReadLate);
        self.member(slot).cut_reads();
        let array = self.clone();
        self.world.spawn(async move {
            if let Either::Left(Err(error)) = race(array.ask_whether_it_answers(slot), array.stopped()).await {
                // The steward must know that a member is gone. Ignore whether it was recorded: no write here depends on
                // it.
                let _ = array.report(&[failure(slot, Operation::Read, error)]).await;
            }
            array.balance.set_slow(slot, false);
            if array.view().copies == Copies::Any {
                let slow = array.balance.slow();
                slow.iter().for_each(|other| array.member(other).cut_reads());
            }
        });
    }

    async fn ask_whether_it_answers(&self, slot: Slot) -> Result<(), IoError> {
        let member = self.member(slot);
        loop {
            let into = self.take_buffers(Pool::Request, member.geometry().logical_block).await;
            match member.read(self.on_device(slot, MemberSector(0)), into).await {
                // A page cache may answer the probe. A member that answers has no old requests.
                Ok(_) if member.unanswered_for() < OLD => return Ok(()),
                Ok(_) => self.world.sleep(LOOK).await,
                // The probe was cut off together with the other reads.
                Err(error) if error.kind == ErrorKind::Late => self.world.sleep(LOOK).await,
                Err(error) => return Err(error),
            }
        }
    }
}
