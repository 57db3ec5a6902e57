//! The recovery: gives members that have taken a slot what they do not hold yet.
//! Owns: [`RecoveryPass`], what its end changes, its window of copies; when a member takes a slot (`take_slot`). Not here:
//! its window of rows (`resync`), the superblocks that say how far a member is recovered (`recorder`).
//! Invariant: a member is read only when its recovery has ended on every shard, and it was flushed.
//!
//! ```text
//!   spare      drain (no request knows the slot's last member) -> superblocks list it in the slot, recovered up to 0
//!              -> publish: every write goes to it -> drain (no write misses it) -> every shard passes
//!   end        flush -> superblocks list it without a recovery -> publish: it is read
//!   a crash    its superblock says how far it was recovered; what is below was flushed, and is written by a resync
//! ```
//!
//! A spare takes its slot before a resync, which then writes nothing to it. The recovery follows the resync.

mod take_slot;

use super::pass_type::{PassNames, PassType, ReportedAs};
use crate::World;
use crate::pass::passes::Passes;
use crate::pass::resync::Resync;
use crate::shard::mail::Window;
use crate::shard::shared::Shared;
use crate::state::master::Change;
use crate::state::view::{SlotMember, View};
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassOrder, Share};
use std::ops::Range;
use std::rc::Rc;
use uraid_block::{IoError, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::Layout;

/// See [`PassKind::Recovery`](crate::PassKind).
pub(super) struct RecoveryPass;

impl PassType for RecoveryPass {
    const NAMES: PassNames = PassNames {
        word: "recovery",
        state: "recovering",
        reported_as: ReportedAs::Recovery,
        always_tells_corrected: false,
        if_unreadable: "the new member gets all writes, but is not used for reads, so the array stays degraded",
    };
    const FILLS: bool = true;

    /// A spare that may take a slot is recovered when it has it.
    fn is_due<W: World>(passes: &Passes<W>) -> bool {
        !passes.to_recover().is_empty() || passes.wanted_spare().is_some()
    }

    fn slots<W: World>(passes: &Passes<W>) -> SlotSet {
        match &*passes.steward.shared.layout() {
            Layout::Parity(_) => passes.to_recover(),
            Layout::Copies(_) => passes.to_recover().iter().take(1).collect(),
        }
    }

    fn recorded<W: World>(passes: &Passes<W>, slots: SlotSet) -> Sectors {
        // A spare that has no slot yet holds nothing.
        if slots.is_empty() { Sectors::ZERO } else { passes.steward.master().recovered_below(slots) }
    }

    fn complete<W: World>(passes: &Passes<W>, order: &mut PassOrder) {
        order.written_below = Sectors(u64::MAX);
        order.by_bits = passes.steward.master().lack_only_bits(order.recovering);
    }

    fn may_record<W: World>(passes: &Passes<W>, order: &PassOrder) -> bool {
        passes.may_record_filled(order)
    }

    fn record<W: World>(passes: &Passes<W>, order: &PassOrder, below: Sectors) {
        passes.record_filled(order, below);
    }

    /// While the loss of one more member would lose data, the recovery is what matters.
    fn share<W: World>(passes: &Passes<W>) -> Share {
        let (layout, readable) = (passes.steward.shared.layout(), passes.steward.master().readable());
        let can_lose = |slot: Slot| layout.can_serve(&readable.without(slot));
        if readable.iter().all(can_lose) { Share::DEFAULT } else { Share::WITHOUT_REDUNDANCY }
    }

    fn is_needless<W: World>(passes: &Passes<W>, order: &PassOrder) -> bool {
        order.recovering.and(passes.steward.master().recovering()).is_empty()
    }

    async fn end<W: World>(passes: &Rc<Passes<W>>, order: &PassOrder) {
        let steward = &passes.steward;
        let slots = order.recovering.and(steward.master().recovering());
        if slots.is_empty() {
            mark::hit(Mark::RecoveryNeedless);
            return;
        }
        if !passes.progress.get().unreadable.is_zero() {
            // The member stays as it is: written, and not read.
            mark::hit(Mark::RecoveryGivenUp);
            passes.given_up.set(passes.given_up.get().or(slots));
            return;
        }
        mark::hit(Mark::RecoveryEnded);
        // The end is recorded before the member is read: then a write that counts on the member need not flush the
        // others from which its content would be computed.
        steward.apply(Change::ShowRecovered(slots));
        let version = steward.master().version();
        let is_recorded = passes.recorder.record_up_to(version).await.is_ok();
        // A member may have failed meanwhile.
        let slots = slots.and(steward.master().recovering());
        if is_recorded && !slots.is_empty() {
            steward.publish(Change::EndRecovery(slots)).await;
        }
    }

    fn stretch<W: World>(
        shared: &Shared<W>,
        order: &PassOrder,
        (at, total): (u64, u64),
        longest: u64,
    ) -> Option<Range<u64>> {
        if order.by_bits { shared.intent.stretch_to_recover(at, total, longest) } else { Some(at..total) }
    }

    fn target(view: &View, _order: &PassOrder, slot: Slot) -> Option<SlotMember> {
        view.writable().contains(slot).then(|| view.member(slot))
    }

    async fn window<W: World>(
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError> {
        match &windows.rows {
            Some(rows) => windows.resync_rows(order, rows, piece, SlotSet::EMPTY, Some(&windows.reading)).await,
            None => windows.recover_copy(order, piece).await,
        }
    }
}

impl<W: World> Passes<W> {
    /// The slots whose member is to be recovered.
    fn to_recover(&self) -> SlotSet {
        self.steward.master().recovering().minus(self.given_up.get())
    }
}

impl<W: World> Resync<W> {
    /// Gives a member that does not hold its copy the first one that can be read.
    async fn recover_copy(&self, order: &PassOrder, piece: Window) -> Result<Option<PassCounts>, IoError> {
        let Window { at, sector, length } = piece;
        let at = MemberSector(at);
        let to = order.recovering.iter().next().expect("a recovery of a mirror is of one slot");
        let (readable, writable) = self.shared.with_view(|view| (view.readable(), view.writable()));
        if !writable.contains(to) {
            return Ok(Some(PassCounts { unreadable: length.0, ..PassCounts::default() }));
        }
        let copies = self.shared.with_view(|view| view.in_order(view.shape.layout().copies(sector)));
        assert!(copies.contains(&(to, at)), "the member's own copy is recovered");
        for (slot, place) in copies.iter().copied().filter(|(slot, _)| readable.contains(*slot)) {
            let found = {
                let _reads = self.reading.acquire(1).await;
                self.read_window(std::iter::once((slot, place)), length).await?
            };
            let Some(bytes) = found.into_iter().find_map(|copy| copy.bytes) else { continue };
            let failures = self.shared.write_block(to, at, &bytes).await;
            let failed = self.settle_pass(&failures).await?;
            return Ok(Some(PassCounts { failed, ..PassCounts::default() }));
        }
        mark::hit(Mark::RecoveryUnreadable);
        Ok((length.0 == 1).then_some(PassCounts { unreadable: 1, ..PassCounts::default() }))
    }
}
