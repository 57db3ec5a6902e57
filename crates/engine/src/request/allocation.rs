//! Which parts of an array read as zeroes, by what its members can tell without reading.
//! Owns: the walk over pieces, and the skip over stretches where no member stores anything. Not here: what a member
//! knows (`host`). Invariant: a stretch is called zero only if it reads as zero on every copy that a read may take.
//!
//! The skip makes a sparse 18 TB array cheap. Addresses are linear, so one query of each member tells whether [from,
//! to) of the array is zero. If no member stores anything there, lost members held zeroes too, because the parity of
//! zeroes is zero.

use crate::World;
use crate::shard::shared::Shared;
use crate::state::view::{Gate, View};
use uraid_block::{
    Allocation, ArrayRange, ArraySector, Device, ErrorKind, IoError, MemberSector, Range, Sectors, Slot,
};
use uraid_layout::Layout;

/// The most pieces that one query checks. The answer covers only these.
const PIECES_MAX: usize = 256;
/// The first skip tries this many stripes, the next one twice as many, and so on.
const SKIP_STRIPES: u64 = 16;

impl<W: World> Shared<W> {
    /// The first stretch of one kind in `range`. The caller is inside an epoch.
    pub(crate) async fn allocation_of(&self, range: ArrayRange) -> Result<Allocation, IoError> {
        assert!(!range.length.is_zero(), "nothing is asked about an empty range");
        let mut known = self.first_piece(range).await?;
        assert!(known.length <= range.length, "the answer is about the range");
        if known.is_zero {
            // Skip only once: the skip ends where some member stores something.
            known.length = self.skip(range, known.length).await?;
        }
        for _ in 1..PIECES_MAX {
            if known.length == range.length {
                break;
            }
            let rest = ArrayRange::between(range.start + known.length, range.end());
            let next = self.first_piece(rest).await?;
            if next.is_zero != known.is_zero {
                break;
            }
            assert!(!next.length.is_zero() && next.length <= rest.length, "each step goes on, and not past the range");
            known.length += next.length;
        }
        assert!(!known.length.is_zero() && known.length <= range.length);
        Ok(known)
    }

    /// The allocation of the start of `range`: of at most its first piece, and of no more than the member's answer
    /// covers.
    async fn first_piece(&self, range: ArrayRange) -> Result<Allocation, IoError> {
        let view = self.view();
        let layout = view.shape.layout();
        let piece = range.length.min(layout.contiguous(range.start));
        assert!(!piece.is_zero(), "a sector is in a piece");
        let plan = layout.plan_read(ArrayRange::new(range.start, piece), &view.readable(), view.canonical());
        let Some(run) = plan.runs.first().filter(|run| run.length == piece) else {
            let is_zero = self.is_all_zero(&view, ArrayRange::new(range.start, piece)).await?;
            return Ok(Allocation { length: piece, is_zero });
        };
        assert!(view.readable().contains(run.slot), "only a member that holds everything is asked");
        let _turn = match view.read_waits(run.slot) {
            true => Some(self.lock_to_read(ArrayRange::new(range.start, piece)).await?),
            false => None,
        };
        let on_member = Range::new(self.on_device(run.slot, run.at), run.length);
        Ok(self.ask_member(run.slot, on_member).await)
    }

    /// If a member cannot tell, its range counts as data. If the member failed, the read that follows reports that.
    async fn ask_member(&self, slot: Slot, range: Range) -> Allocation {
        let unknown = Allocation { length: range.length, is_zero: false };
        let known = self.member(slot).allocation(range).await.unwrap_or(unknown);
        assert!(!known.length.is_zero() && known.length <= range.length, "a member answers for the start of the range");
        known
    }

    /// How far from the start of `range` everything is zero. The first `known` sectors are known to be zero already.
    async fn skip(&self, range: ArrayRange, known: Sectors) -> Result<Sectors, IoError> {
        assert!(known <= range.length, "what is known is in the range");
        let view = self.view();
        let stripe = view.shape.layout().stripe().0.max(1);
        let (mut length, mut step) = (known.0, stripe.saturating_mul(SKIP_STRIPES));
        while length < range.length.0 {
            let next = length.saturating_add(step).min(range.length.0);
            let ahead = ArrayRange::new(range.start + Sectors(length), Sectors(next - length));
            if !self.is_all_zero(&view, ahead).await? {
                break;
            }
            assert!(next > length, "a skip goes on");
            (length, step) = (next, step.saturating_mul(2));
        }
        assert!(known.0 <= length && length <= range.length.0);
        Ok(Sectors(length))
    }

    /// Whether no usable member stores anything for `range`: it is then zero, whichever members are lost.
    async fn is_all_zero(&self, view: &View, range: ArrayRange) -> Result<bool, IoError> {
        if !view.shape.layout().can_serve(&view.readable()) {
            return Err(ErrorKind::TooManyLost.into());
        }
        let is_whole = view.readable().count() == usize::from(view.shape.layout().slots());
        if matches!(view.gate, Gate::Frozen(_)) && view.shape.layout().level().is_parity() && !is_whole {
            // A refused write may have reached only a lost member. Only the owner of a row knows whether it is half
            // written.
            return Ok(false);
        }
        for (slot, at, length) in self.member_stretches(view, range) {
            let mut from = self.on_device(slot, at);
            let end = from + length;
            while from < end {
                let known = self.ask_member(slot, Range::between(from, end)).await;
                if !known.is_zero {
                    return Ok(false);
                }
                from = from + known.length;
            }
        }
        Ok(true)
    }

    /// Where on the usable members `range` lies. Parity levels: whole rows, parity included.
    fn member_stretches(&self, view: &View, range: ArrayRange) -> Vec<(Slot, MemberSector, Sectors)> {
        let layout = match view.shape.layout() {
            Layout::Parity(layout) => layout,
            Layout::Copies(layout) => {
                let plan = layout.plan_discard(range, &view.readable());
                return plan.runs.iter().map(|run| (run.slot, run.at, run.length)).collect();
            }
        };
        let row_at = |at: ArraySector| {
            let mut rows = layout.rows(ArrayRange::new(at, Sectors(1)));
            rows.next().expect("a sector has a row").row
        };
        let first = layout.row_start(row_at(range.start));
        let last = layout.row_start(row_at(ArraySector(range.end().0 - 1)));
        assert!(first <= last, "rows ascend with the array");
        let length = Sectors(last.0 - first.0) + layout.chunk();
        view.readable().iter().map(|slot| (slot, first, length)).collect()
    }
}
