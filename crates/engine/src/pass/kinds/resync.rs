//! The resync: makes copies equal, and parity right, after a crash or in a new array.
//! Owns: [`ResyncPass`], what its end changes, its window of copies. Not here: its window of rows (`resync`), the
//! superblocks that say how far it has come (`dirty_mark`, `recorder`).
//! Invariant: any copy may be read, and parity is relied upon, only when every shard has gone through all that it
//! owns. The canonical copy is never changed.
//!
//! ```text
//!   start      superblocks say dirty -> the gate opens, mirrors read the canonical copy -> every shard passes
//!   end        flush -> publish "consistent" -> superblocks, if no write is under way
//!   stop       the gate closes -> drain (windows are inside the epoch) -> flush -> superblocks: dirty from here on
//!   a crash    before any of these superblocks: the next start begins anew, or at the last recorded sector
//! ```

use super::pass_type::{PassNames, PassType, ReportedAs};
use crate::World;
use crate::pass::passes::Passes;
use crate::pass::resync::{Resync, is_mixed};
use crate::shard::mail::Window;
use crate::shard::shared::Shared;
use crate::state::master::Change;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassOrder, PassReport};
use std::ops::Range;
use std::rc::Rc;
use uraid_block::{IoError, Sectors, SlotSet};

/// See [`PassKind::Resync`](crate::PassKind).
pub(super) struct ResyncPass;

impl PassType for ResyncPass {
    const NAMES: PassNames = PassNames {
        word: "resync",
        state: "resyncing",
        reported_as: ReportedAs::Resync,
        always_tells_corrected: true,
        if_unreadable: "the array stays marked dirty",
    };
    const OUTLIVES_FREEZE: bool = true;

    fn is_due<W: World>(passes: &Passes<W>) -> bool {
        passes.steward.master().needs_resync()
    }

    fn slots<W: World>(passes: &Passes<W>) -> SlotSet {
        passes.steward.master().recovering()
    }

    fn recorded<W: World>(passes: &Passes<W>, _slots: SlotSet) -> Sectors {
        passes.steward.master().resync_from().expect("a resync is needed")
    }

    fn complete<W: World>(passes: &Passes<W>, order: &mut PassOrder) {
        // It keeps right what these members hold already. What they lack is recovered afterwards.
        order.written_below = passes.steward.master().most_recovered();
    }

    fn may_record<W: World>(passes: &Passes<W>, _order: &PassOrder) -> bool {
        passes.steward.may_record_checkpoint()
    }

    fn record<W: World>(passes: &Passes<W>, _order: &PassOrder, below: Sectors) {
        passes.steward.note_checkpoint(below);
    }

    fn readable_below(_order: &PassOrder, reports: &[PassReport]) -> Sectors {
        reports.iter().map(|report| report.in_sync_below).min().expect("an array has a shard")
    }

    async fn end<W: World>(passes: &Rc<Passes<W>>, _order: &PassOrder) {
        let steward = &passes.steward;
        // If no write is under way, the superblocks are not marked dirty, and must record that the array is consistent.
        let is_recorded_now = !steward.master().takes_writes();
        if passes.progress.get().unreadable.is_zero() {
            steward.publish(Change::EndResync).await;
            if let Some(ppl) = &passes.ppl {
                // If this fails, the array has frozen.
                let _ = ppl.complete().await;
            }
        } else {
            // A sector that no member could give now may become readable later and then disagree: do not mark the array
            // clean.
            mark::hit(Mark::ResyncUnreadable);
            steward.publish(Change::MarkSuspect).await;
        }
        if is_recorded_now {
            let version = steward.master().version();
            // If this fails, the array freezes, and the next write gets that error.
            let _ = passes.recorder.record_up_to(version).await;
        }
    }

    fn begins_at<W: World>(shared: &Shared<W>, _order: &PassOrder) -> Sectors {
        shared.in_sync_below.get()
    }

    fn stretch<W: World>(
        shared: &Shared<W>,
        _order: &PassOrder,
        (at, total): (u64, u64),
        longest: u64,
    ) -> Option<Range<u64>> {
        shared.intent.stretch_to_resync(at, total, longest)
    }

    async fn window<W: World>(
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError> {
        match &windows.rows {
            Some(rows) => windows.resync_rows(order, rows, piece, SlotSet::EMPTY, None).await,
            None => windows.resync_copies(order, piece).await,
        }
    }

    fn note_below<W: World>(shared: &Shared<W>, below: Sectors) {
        assert!(below >= shared.in_sync_below.get(), "what is consistent stays so");
        shared.in_sync_below.set(below);
    }

    fn end_on_shard<W: World>(shared: &Shared<W>) {
        shared.unsynced.end_resync();
    }
}

impl<W: World> Resync<W> {
    /// Copies the canonical copy over those that differ, and over those that are not read and have been recovered.
    async fn resync_copies(&self, order: &PassOrder, piece: Window) -> Result<Option<PassCounts>, IoError> {
        let Window { sector: at, length, .. } = piece;
        let (usable, writable) = self.shared.with_view(|view| (view.readable(), view.writable()));
        let copies = self.shared.with_view(|view| view.in_order(view.shape.layout().copies(at)));
        let places = copies.iter().copied().filter(|(slot, _)| usable.contains(*slot));
        let found = self.read_window(places, length).await?;
        if length.0 > 1 && is_mixed(&found) {
            return Ok(None);
        }
        let Some(canonical) = found.iter().position(|copy| copy.bytes.is_some()) else {
            return Ok(Some(PassCounts { unreadable: length.0, ..PassCounts::default() }));
        };
        let mut window = PassCounts::default();
        let mut failures = Vec::new();
        for index in canonical + 1..found.len() + canonical {
            assert_ne!(index % found.len(), canonical, "the canonical copy is never written");
            let copy = &found[index % found.len()];
            let right = found[canonical].bytes.as_ref().expect("the canonical copy was read");
            if copy.bytes.as_ref().is_some_and(|bytes| bytes[..] == right[..]) {
                continue;
            }
            mark::hit(Mark::ResyncCorrected);
            window.corrected += length.0;
            failures.extend(self.shared.write_block(copy.slot, copy.at, right).await);
        }
        let unread = writable.minus(usable);
        for (slot, place) in copies.iter().copied().filter(|(slot, _)| unread.contains(*slot)) {
            if order.writes(place).contains(slot) {
                let right = found[canonical].bytes.as_ref().expect("the canonical copy was read");
                failures.extend(self.shared.write_block(slot, place, right).await);
            }
        }
        window.failed += self.settle_pass(&failures).await?;
        Ok(Some(window))
    }
}
