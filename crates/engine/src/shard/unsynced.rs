//! Rows of a parity level that a crash left not in sync, as the write-intent bitmap says, and blocks that nothing can
//! tell since.
//! Owns: [`Unsynced`], one shard's record of both. Not here: which windows a resync makes (`shard_pass`, `intent`), what it
//! writes (`resync`), how lost blocks are computed (`row::io`).
//! Invariant: a block is not computed from a row that is named here, unless P and Q agree about it. Both sets name what
//! this shard owns; what they name of other rows is not looked at.
//!
//! ```text
//!   raid5, crash in a write of D1, then the member of D0 fails, before the resync has reached the row
//!     D0  lost      P is of the old D1, or of the new one: what D0 was cannot be told
//!     D1  new
//!     P   old?      reads of D0 fail.   A write of D1 changes P by the difference: D0 stays unknown
//!                                       A write of D0 makes P anew from all data: the row is in sync
//! ```
//!
//! Without a bitmap every row is suspected, and nothing is known of any: then lost blocks are computed, as md does, and
//! so they are with `--force`. A bitmap of which all bits are set says no more than that.

use crate::assemble::{BitmapPlan, Forced, StartPlan};
use crate::words::progress;
use crate::words::range_set::RangeSet;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use uraid_block::{MemberSector, Range, Sector, Sectors, Slot, SlotSet};

/// Whether a block may be computed from the others of its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Computable {
    Yes,
    /// Only where P and Q, each with the other blocks, give the same.
    IfParitiesAgree,
    /// Some sectors of it.
    Partly,
    No,
}

/// What one shard knows of rows that are not in sync.
pub(crate) struct Unsynced {
    /// Stretches of rows, as sectors of each member's data, whose parity may not belong to their data.
    rows: RefCell<RangeSet>,
    /// Blocks of such rows, by slot, which were lost when the rest of the row was made consistent.
    unknown: RefCell<BTreeMap<Slot, RangeSet>>,
    /// Whether one of them has a sector.
    is_empty: Cell<bool>,
}

impl Unsynced {
    /// What a start knows by its bitmap.
    pub(crate) fn new(plan: &StartPlan, force: bool) -> Unsynced {
        let is_forced = force || plan.forced != Forced::default();
        let is_known = |bitmap: &&BitmapPlan| {
            let is_all = bitmap.image.count() == bitmap.image.header().chunks();
            plan.is_dirty && !is_forced && plan.layout.level().is_parity() && !bitmap.is_out_of_date && !is_all
        };
        let rows: RangeSet = match plan.bitmap.as_ref().filter(is_known) {
            Some(bitmap) => dirty_ranges(bitmap, progress::total(&plan.layout)),
            None => RangeSet::default(),
        };
        Unsynced { is_empty: Cell::new(rows.is_empty()), rows: RefCell::new(rows), unknown: RefCell::default() }
    }

    /// Whether everything may be computed.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.get()
    }

    /// Whether a sector of this stretch is in a row that is not in sync, or is unknown on some member.
    pub(crate) fn touches(&self, at: MemberSector, length: Sectors) -> bool {
        let stretch = stretch(at, length);
        let is_unknown = || self.unknown.borrow().values().any(|blocks| blocks.overlaps(stretch));
        !self.is_empty() && (self.rows.borrow().overlaps(stretch) || is_unknown())
    }

    /// Whether a sector of this stretch is in a row that is not in sync.
    pub(crate) fn is_suspect(&self, at: MemberSector, length: Sectors) -> bool {
        !self.is_empty() && self.rows.borrow().overlaps(stretch(at, length))
    }

    /// Whether a sector of this stretch is unknown on one of these members. What parity says of it is what parity was
    /// made for: P and Q agree about it, whatever it was.
    pub(crate) fn is_unknown(&self, slots: SlotSet, at: MemberSector, length: Sectors) -> bool {
        let unknown = self.unknown.borrow();
        slots.iter().any(|slot| unknown.get(&slot).is_some_and(|blocks| blocks.overlaps(stretch(at, length))))
    }

    /// Whether the block of a slot may be computed.
    pub(crate) fn computable(&self, slot: Slot, at: MemberSector, length: Sectors) -> Computable {
        if self.is_empty() {
            return Computable::Yes;
        }
        let stretch = stretch(at, length);
        let (rows, unknown) = (self.rows.borrow(), self.unknown.borrow());
        let of_slot = unknown.get(&slot);
        if of_slot.is_some_and(|blocks| blocks.contains(stretch)) {
            Computable::No
        } else if of_slot.is_some_and(|blocks| blocks.overlaps(stretch)) {
            Computable::Partly
        } else if rows.contains(stretch) {
            Computable::IfParitiesAgree
        } else if rows.overlaps(stretch) {
            Computable::Partly
        } else {
            Computable::Yes
        }
    }

    /// All rows that this shard owns are in sync. What is left are rows of others.
    pub(crate) fn end_resync(&self) {
        self.rows.take();
        self.is_empty.set(self.unknown.borrow().is_empty());
    }

    /// The parity of this stretch now belongs to the data of its row. What it gives for the blocks of `lost` is unknown
    /// where the row was not in sync; the members of those in `present` are there, and could not read them. The blocks of
    /// `known` were written, or read for the parity.
    pub(crate) fn settle(
        &self,
        at: MemberSector,
        length: Sectors,
        (lost, present): (SlotSet, SlotSet),
        known: SlotSet,
    ) {
        assert!(present.is_within(lost) && lost.and(known).is_empty(), "a block is lost or known");
        if self.is_empty() {
            return;
        }
        let stretch = stretch(at, length);
        let (mut rows, mut unknown) = (self.rows.borrow_mut(), self.unknown.borrow_mut());
        for slot in lost.iter() {
            let of_slot = unknown.entry(slot).or_default();
            rows.within(stretch).for_each(|range| of_slot.add(range));
        }
        // If such a member gives its block later, it is not the one that parity was made for.
        if present.is_empty() {
            rows.remove(stretch);
        }
        for slot in known.iter() {
            if let Some(of_slot) = unknown.get_mut(&slot) {
                of_slot.remove(stretch);
            }
        }
        unknown.retain(|_, blocks| !blocks.is_empty());
        self.is_empty.set(rows.is_empty() && unknown.is_empty());
    }
}

fn stretch(at: MemberSector, length: Sectors) -> Range {
    Range::new(Sector(at.0), length)
}

/// The sectors of each member that the set bits stand for.
fn dirty_ranges(bitmap: &BitmapPlan, total: Sectors) -> RangeSet {
    let (image, chunk) = (&bitmap.image, bitmap.image.header().chunk().0);
    let chunks = image.header().chunks();
    let mut next = 0;
    let ranges = std::iter::from_fn(|| {
        let first = image.first_set_in(next..chunks)?;
        let behind = image.first_clear_in(first..chunks).unwrap_or(chunks);
        next = behind;
        Some(Range::between(Sector(first * chunk), Sector((behind * chunk).min(total.0))))
    });
    ranges.filter(|range| !range.length.is_zero()).collect()
}
