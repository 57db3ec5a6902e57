//! The kinds of passes, a file for each: how it begins, what a window does, what superblocks say of it, what its end
//! changes, how it is called.
//! Owns: the list of kinds, the one `match` that leads from a [`PassKind`] to its [`PassType`]. Not here: when a pass runs
//! (`schedule`), each shard's part of it (`shard_pass`).
//! Invariant: everything else asks a kind; only a kind's own commands name it.

mod check;
mod pass_type;
mod recovery;
mod replace;
mod resync;

pub use pass_type::{PassNames, ReportedAs};
pub use replace::ReplaceError;

use crate::World;
use crate::pass::passes::Passes;
use crate::pass::resync::Resync;
use crate::shard::mail::Window;
use crate::shard::shared::Shared;
use crate::state::view::{SlotMember, View};
use crate::words::progress::{self, PassCounts, PassKind, PassOrder, PassReport, Share};
use check::{CheckPass, RepairPass};
use pass_type::PassType;
use recovery::RecoveryPass;
use replace::ReplacePass;
use resync::ResyncPass;
use std::ops::Range;
use std::rc::Rc;
use uraid_block::{IoError, Sectors, Slot, SlotSet};
use uraid_layout::Layout;

/// Evaluates an expression with the type of a kind.
macro_rules! of {
    ($kind:expr, $of:ident => $answer:expr) => {
        match $kind {
            PassKind::Resync => {
                type $of = ResyncPass;
                $answer
            }
            PassKind::Recovery => {
                type $of = RecoveryPass;
                $answer
            }
            PassKind::Replace => {
                type $of = ReplacePass;
                $answer
            }
            PassKind::Check => {
                type $of = CheckPass;
                $answer
            }
            PassKind::Repair => {
                type $of = RepairPass;
                $answer
            }
        }
    };
}

impl PassKind {
    /// All kinds. What is due earlier comes first.
    pub const ALL: [PassKind; 5] =
        [PassKind::Resync, PassKind::Recovery, PassKind::Replace, PassKind::Check, PassKind::Repair];

    /// What it is called.
    pub fn names(self) -> PassNames {
        of!(self, Of => Of::NAMES)
    }

    /// Whether it runs because a command asked for it. The others run because the array needs them.
    pub fn is_by_command(self) -> bool {
        of!(self, Of => Of::BY_COMMAND)
    }
}

/// What shard 0 asks.
impl PassKind {
    pub(super) fn is_due<W: World>(self, passes: &Passes<W>) -> bool {
        of!(self, Of => Of::is_due(passes))
    }

    pub(super) fn slots<W: World>(self, passes: &Passes<W>) -> SlotSet {
        of!(self, Of => Of::slots(passes))
    }

    pub(super) fn recorded<W: World>(self, passes: &Passes<W>, slots: SlotSet) -> Sectors {
        of!(self, Of => Of::recorded(passes, slots))
    }

    pub(super) fn complete<W: World>(self, passes: &Passes<W>, order: &mut PassOrder) {
        order.fills = of!(self, Of => Of::FILLS);
        of!(self, Of => Of::complete(passes, order));
    }

    pub(super) fn may_record<W: World>(self, passes: &Passes<W>, order: &PassOrder) -> bool {
        of!(self, Of => Of::may_record(passes, order))
    }

    pub(super) fn record<W: World>(self, passes: &Passes<W>, order: &PassOrder, below: Sectors) {
        of!(self, Of => Of::record(passes, order, below));
    }

    pub(super) fn readable_below(self, order: &PassOrder, reports: &[PassReport]) -> Sectors {
        of!(self, Of => Of::readable_below(order, reports))
    }

    pub(super) fn share<W: World>(self, passes: &Passes<W>) -> Share {
        of!(self, Of => Of::share(passes))
    }

    pub(super) fn skips_flush(self) -> bool {
        of!(self, Of => Of::skips_flush())
    }

    pub(super) fn outlives_freeze(self) -> bool {
        of!(self, Of => Of::OUTLIVES_FREEZE)
    }

    pub(super) fn is_needless<W: World>(self, passes: &Passes<W>, order: &PassOrder) -> bool {
        of!(self, Of => Of::is_needless(passes, order))
    }

    pub(super) async fn end<W: World>(self, passes: &Rc<Passes<W>>, order: &PassOrder) {
        of!(self, Of => Of::end(passes, order).await);
    }
}

/// What each shard asks.
impl PassKind {
    /// What it goes through.
    pub(super) fn total(self, layout: &Layout) -> Sectors {
        match layout {
            // Every member of a mirror uses as much.
            Layout::Copies(_) if of!(self, Of => Of::FILLS) => layout.member_used(Slot(0)),
            Layout::Copies(_) | Layout::Parity(_) => progress::total(layout),
        }
    }

    pub(super) fn begins_at<W: World>(self, shared: &Shared<W>, order: &PassOrder) -> Sectors {
        of!(self, Of => Of::begins_at(shared, order))
    }

    pub(super) fn stretch<W: World>(
        self,
        shared: &Shared<W>,
        order: &PassOrder,
        (at, total): (u64, u64),
        longest: u64,
    ) -> Option<Range<u64>> {
        of!(self, Of => Of::stretch(shared, order, (at, total), longest))
    }

    pub(super) fn target(self, view: &View, order: &PassOrder, slot: Slot) -> Option<SlotMember> {
        of!(self, Of => Of::target(view, order, slot))
    }

    pub(super) async fn window<W: World>(
        self,
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError> {
        of!(self, Of => Of::window(windows, order, piece).await)
    }

    pub(super) fn note_below<W: World>(self, shared: &Shared<W>, below: Sectors) {
        of!(self, Of => Of::note_below(shared, below));
    }

    pub(super) fn end_on_shard<W: World>(self, shared: &Shared<W>) {
        of!(self, Of => Of::end_on_shard(shared));
    }
}
