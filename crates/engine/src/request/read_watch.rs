//! Reads of a slow member: another copy answers them, or the other members of the row do.
//! Owns: the periodic check of reads in flight, the probe of whether a slow member answers again. Not here: which copy
//! a read takes (`balance`), the retry elsewhere (`reader`), members that never answer (the host's timeout, `steward`).
//! Invariant: it acts only while all copies are equal and parity is right, and never fails a member.
//!
//! ```text
//!   every LOOK   has a member reads in flight, and has it ended none since the last check
//!                (of a parity array: since the last four)?
//!                  no   nothing
//!                  yes  it is slow: its reads in flight end with `Late` and are read elsewhere;
//!                       new reads go elsewhere at once; one small read probes whether it answers again
//!   still slow, with reads in flight that had no other member, and another one answers again: cut once more
//! ```
//!
//! A read that is cut is performed twice, and the slow member still works on it. If all members are slow and none
//! hangs, cutting reads adds to their load. So a shard cuts at most a tenth of its reads, and more only if a member
//! hangs.
//!
//! A read that the others cannot serve waits for the slow member. Writes always wait for it, because they need it.
//! A read of a row that is being written waits for that write.

use crate::shard::buffers;
use crate::shard::member_counts::CountedMember;
use crate::shard::shared::Shared;
use crate::state::view::Copies;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::verdict::Operation;
use crate::{Pool, World};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, race};
use uraid_block::{Device, ErrorKind, IoError, MemberSector, Sector, Slot};
use uraid_layout::Layout;

/// A disk that is busy or moves its heads ends at least one read in this time. A disk that recovers a sector may take
/// longer. Then another copy is faster.
const LOOK: Duration = Duration::from_millis(250);
/// A member of a parity array is slow only after this many checks in a row. Reconstructing its data costs a read of
/// every other member, which would slow down disks that are only busy.
const LOOKS_OF_PARITY: u32 = 4;

/// A member that has ended no read for this many checks (three seconds) hangs: its reads are cut, however many there are.
const LOOKS_OF_HUNG: u32 = 12;
const _: () = assert!(1 <= LOOKS_OF_PARITY && LOOKS_OF_PARITY < LOOKS_OF_HUNG, "a member is slow before it hangs");
/// 1 in this many reads may be cut.
const READS_A_CUT: u64 = 10;
/// The reads that may be cut before any has ended, and the most that can be saved up.
const CUTS_FIRST: u64 = 64;
const CUTS_MAX: u64 = 4096;
const _: () = assert!(CUTS_FIRST <= CUTS_MAX);

/// A member that has kept a request for this long does not answer. The host checks the age of requests once a second,
/// and measures it from the last check before the request.
const OLD: Duration = Duration::from_secs(2);

/// The state of one member.
#[derive(Clone, Copy, Default)]
struct Watched {
    /// The checks in a row at which it had ended no read.
    looks: u32,
    /// The value of `members_returned` when its reads were last cut; `None` if they were not cut since it became slow.
    cut_at: Option<u32>,
}

/// How many reads may be cut. The allowance grows when reads end.
struct Allowance {
    /// Counted in reads that have ended.
    saved: u64,
    /// Member reads that one cut read costs.
    price: u64,
}

impl Allowance {
    fn new(layout: &Layout) -> Allowance {
        // On a parity array, all other members are read instead.
        let others = if layout.level().is_parity() { u64::from(layout.slots()) - 1 } else { 1 };
        assert!(others > 0, "a cut read goes to another member");
        Allowance { saved: CUTS_FIRST * READS_A_CUT, price: others * READS_A_CUT }
    }

    fn save(&mut self, ended: u64) {
        assert!(self.saved <= CUTS_MAX * READS_A_CUT, "more is not saved up");
        self.saved = (self.saved + ended).min(CUTS_MAX * READS_A_CUT);
    }

    /// Whether this many reads may be cut: if the allowance is large enough, or if the member hangs. If so, subtracts
    /// their cost.
    fn take(&mut self, reads: u32, is_hung: bool) -> bool {
        let cost = u64::from(reads) * self.price;
        let may_cut = cost <= self.saved || is_hung;
        if may_cut {
            self.saved = self.saved.saturating_sub(cost);
        }
        may_cut
    }
}

/// The watch over one shard's reads.
pub(crate) struct ReadWatch<W: World> {
    shared: Rc<Shared<W>>,
    has_begun: Cell<bool>,
    /// How often slow members have answered again.
    members_returned: Cell<u32>,
}

impl<W: World> ReadWatch<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>) -> Rc<ReadWatch<W>> {
        Rc::new(ReadWatch { shared, has_begun: Cell::new(false), members_returned: Cell::new(0) })
    }

    /// Starts the watch over this shard's reads, if they can go elsewhere. Call it once.
    pub(crate) fn begin(self: &Rc<Self>) {
        if self.shared.layout().tolerates() > 0 && !self.has_begun.replace(true) {
            self.shared.world.spawn(self.clone().watch());
        }
    }

    async fn watch(self: Rc<Self>) {
        let (enough, mut members, mut allowance) = {
            let layout = self.shared.layout();
            assert!(layout.tolerates() > 0, "reads can go to other members");
            let enough = if layout.level().is_parity() { LOOKS_OF_PARITY } else { 1 };
            (enough, vec![Watched::default(); layout.slots().into()], Allowance::new(&layout))
        };
        loop {
            if let Either::Right(()) =
                race(self.shared.world.sleep(self.until_next_look()), self.shared.stopped()).await
            {
                return;
            }
            let (looked, view) = (self.shared.balance.look(), self.shared.view());
            allowance.save(looked.ended);
            for (slot, member) in (0..).map(Slot).zip(&mut members) {
                member.looks = if looked.stuck.contains(slot) { member.looks + 1 } else { 0 };
                if member.looks >= enough && view.copies == Copies::Any && view.readable().contains(slot) {
                    self.leave(slot, member, &mut allowance);
                }
            }
        }
    }

    /// The watches over all arrays of a thread look together, and so wake it once.
    fn until_next_look(&self) -> Duration {
        const NANOS: u64 = LOOK.as_nanos() as u64;
        Duration::from_nanos(NANOS - self.shared.world.now().0 % NANOS)
    }

    /// Moves reads away from a member that has ended none. On a mirror, sending new reads elsewhere costs nothing.
    fn leave(self: &Rc<Self>, slot: Slot, member: &mut Watched, allowance: &mut Allowance) {
        assert!(member.looks > 0, "a member is left because it was stuck");
        let (is_slow, returns) = (self.shared.balance.is_slow(slot), self.members_returned.get());
        if is_slow && member.cut_at == Some(returns) {
            return;
        }
        let may_cut = allowance.take(self.shared.balance.in_flight(slot), member.looks >= LOOKS_OF_HUNG);
        if !is_slow && (may_cut || !self.shared.layout().level().is_parity()) {
            member.cut_at = None;
            self.read_elsewhere(slot);
        }
        if may_cut {
            mark::hit(Mark::ReadLate);
            *member = Watched { looks: 0, cut_at: Some(returns) };
            self.shared.member(slot).cut_reads();
        }
    }

    /// New reads avoid a member until it answers a probe.
    fn read_elsewhere(self: &Rc<Self>, slot: Slot) {
        let was_slow = self.shared.balance.set_slow(slot, true);
        assert!(!was_slow, "a slow member has one probe");
        let watch = self.clone();
        let probed = self.shared.with_view(|view| view.member(slot).index);
        // Both now: no drain waits for a probe, and the member may have been removed when it asks again.
        let (member, at) = (self.shared.member(slot), self.shared.on_device(slot, MemberSector(0)));
        self.shared.world.spawn(async move {
            let answers = watch.ask_whether_it_answers(&member, at);
            if let Either::Left(Err(error)) = race(answers, watch.shared.stopped()).await {
                // Report that the member is gone. Ignore whether it was recorded: no write here depends on it.
                let _ = watch.shared.report(&[Failure::new((slot, probed), Operation::Read, error)]).await;
            }
            assert!(watch.shared.balance.is_slow(slot), "only its probe ends that a member is slow");
            watch.shared.balance.set_slow(slot, false);
            watch.members_returned.set(watch.members_returned.get().wrapping_add(1));
        });
    }

    async fn ask_whether_it_answers(&self, member: &CountedMember<W>, at: Sector) -> Result<(), IoError> {
        loop {
            let into = buffers::take(&self.shared.world, Pool::Request, member.geometry().logical_block).await;
            match member.read(at, into).await {
                // A page cache may answer the probe, so check also that the member has no old requests.
                Ok(_) if member.unanswered_for() < OLD => return Ok(()),
                Ok(_) => self.shared.world.sleep(LOOK).await,
                // The probe was cut off together with the other reads.
                Err(error) if error.kind == ErrorKind::Late => self.shared.world.sleep(LOOK).await,
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_reads_may_be_cut_and_all_of_a_member_that_hangs() {
        let mut allowance = Allowance { saved: 0, price: READS_A_CUT };
        assert!(!allowance.take(1, false));
        allowance.save(99);
        assert!(!allowance.take(10, false), "99 reads have ended");
        assert!(allowance.take(9, false) && !allowance.take(1, false));
        assert!(allowance.take(1000, true), "it hangs");
        allowance.save(1 << 40);
        assert!(allowance.take(CUTS_MAX as u32, false) && !allowance.take(1, false));
    }
}
