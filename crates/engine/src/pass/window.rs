//! One window of a pass, whatever its kind: as a whole, or in pieces where something could not be read or written.
//! Owns: the pieces of a window, what is listed because no member could give it. Not here: what is done in a piece
//! (`kinds`), which windows, their locks (`shard_pass`, `corrector`).

use crate::World;
use crate::pass::resync::Resync;
use crate::shard::mail::{Call, STEWARD, Window};
use crate::state::view::SlotMember;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassOrder, WINDOW};
use uraid_block::{IoError, MemberSector, Range, Sectors};

/// Pieces of a window that has an unreadable sector: 4 KiB.
const SMALL_PIECE: u64 = 8;

impl<W: World> Resync<W> {
    /// Passes over one window, which the caller has locked. If something in it cannot be read or written, the window is
    /// repeated in small pieces, so that one bad sector affects only its own row of sectors.
    pub(crate) async fn resync_window(&self, order: &PassOrder, window: Window) -> Result<PassCounts, IoError> {
        let length = window.length.0;
        assert!(length > 0 && length <= WINDOW, "a window fits one piece of the arena");
        let mut unreadable = Vec::new();
        let mut sum = match self.resync_piece(order, window).await? {
            Some(counts) if length == 1 || !counts.is_mixed(order.kind.is_by_command()) => {
                unreadable.extend((counts.unreadable > 0).then_some(MemberSector(window.at)));
                counts
            }
            Some(_) | None => self.resync_apart(order, window, &mut unreadable).await?,
        };
        if self.list_lacking(order, &unreadable).await? {
            sum.listed += std::mem::take(&mut sum.unreadable);
        }
        // Not listed: `--force` may accept what parity gives.
        sum.unreadable += sum.unknown;
        Ok(sum)
    }

    /// Writes a window of a member that is known not to have it, from the others. In pieces of 4 KiB if it cannot be written
    /// as a whole. Returns whether the others could give all of it.
    pub(crate) async fn correct_window(&self, order: &PassOrder, window: Window) -> Result<bool, IoError> {
        assert!(!order.unreadable.is_empty(), "a member lacks it");
        let outcome = self.resync_piece(order, window).await?;
        let mut is_given = outcome.is_some_and(|counts| counts.unreadable == 0);
        if !is_given || outcome.is_some_and(|counts| counts.failed > 0 && window.length.0 > SMALL_PIECE) {
            is_given = true;
            for start in (0..window.length.0).step_by(SMALL_PIECE as usize) {
                let small = window.part(start, SMALL_PIECE.min(window.length.0 - start));
                is_given &= self.correct_piece(order, small).await?;
            }
        }
        self.findings.borrow_mut().take();
        Ok(is_given)
    }

    /// By single sectors where another member cannot give some of it, or where its list names some of it, too: what that one
    /// has is compared, not written. Returns whether the others could give all of it.
    async fn correct_piece(&self, order: &PassOrder, piece: Window) -> Result<bool, IoError> {
        if self.resync_piece(order, piece).await?.is_some_and(|counts| counts.unreadable == 0) {
            return Ok(true);
        }
        let mut is_given = true;
        for start in 0..piece.length.0 {
            let counts = self.resync_piece(order, piece.part(start, 1)).await?;
            is_given &= counts.is_some_and(|counts| counts.unreadable == 0);
        }
        Ok(is_given)
    }

    async fn resync_apart(
        &self,
        order: &PassOrder,
        window: Window,
        unreadable: &mut Vec<MemberSector>,
    ) -> Result<PassCounts, IoError> {
        let length = window.length.0;
        assert!(length > 1, "a single sector is always settled");
        mark::hit(Mark::ResyncTakenApart);
        let mut sum = PassCounts::default();
        for start in (0..length).step_by(SMALL_PIECE as usize) {
            let small = window.part(start, SMALL_PIECE.min(length - start));
            let counts = self.resync_piece(order, small).await?;
            if let Some(counts) = counts.filter(|counts| counts.unreadable == 0) {
                sum.add(counts);
                continue;
            }
            for start in 0..small.length.0 {
                let sector = small.part(start, 1);
                let counts = self.resync_piece(order, sector).await?.expect("a single sector is always settled");
                unreadable.extend((counts.unreadable > 0).then_some(MemberSector(sector.at)));
                sum.add(counts);
            }
        }
        Ok(sum)
    }

    /// Lists these sectors on the members that the pass gives their content, because no member could give it: so one
    /// sector is lost, and not the whole member. Returns whether they are listed.
    async fn list_lacking(&self, order: &PassOrder, sectors: &[MemberSector]) -> Result<bool, IoError> {
        if sectors.is_empty() {
            return Ok(false);
        }
        let lacking: Vec<(usize, Range)> = self.shared.with_view(|view| {
            let targets = order.recovering.iter().filter_map(|slot| order.kind.target(view, order, slot));
            let of_target =
                |target: SlotMember| sectors.iter().map(move |at| (target.index, target.range(*at, Sectors(1))));
            targets.flat_map(of_target).collect()
        });
        if lacking.is_empty() {
            return Ok(false);
        }
        self.shared.calls.call(STEWARD, Call::ListLacking(lacking)).await.listed()
    }

    /// `None`: something could not be read, and the piece is more than one sector.
    async fn resync_piece(&self, order: &PassOrder, piece: Window) -> Result<Option<PassCounts>, IoError> {
        order.kind.window(self, order, piece).await
    }
}
