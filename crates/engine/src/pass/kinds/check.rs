//! The passes by command: a check compares all copies, or parity with data; a repair also makes them agree.
//! Owns: [`CheckPass`], [`RepairPass`]. Not here: when they may begin, their result (`schedule::asked`), what a window
//! compares (`resync::check`).
//! Invariant: a check changes no state of the array and no superblock.

use super::pass_type::{PassNames, PassType, ReportedAs};
use crate::World;
use crate::pass::passes::Passes;
use crate::pass::resync::Resync;
use crate::shard::mail::Window;
use crate::words::progress::{PassCounts, PassKind, PassOrder};
use uraid_block::{IoError, Sectors, SlotSet};

/// See [`PassKind::Check`].
pub(super) struct CheckPass;

/// See [`PassKind::Repair`].
pub(super) struct RepairPass;

impl PassType for CheckPass {
    const NAMES: PassNames = PassNames {
        word: "check",
        state: "checking",
        reported_as: ReportedAs::Check,
        always_tells_corrected: false,
        if_unreadable: "no member could give them",
    };
    const BY_COMMAND: bool = true;

    fn is_due<W: World>(passes: &Passes<W>) -> bool {
        passes.asked.get() == Some(PassKind::Check)
    }

    /// No superblock has it: the caller says where an earlier check has ended.
    fn recorded<W: World>(passes: &Passes<W>, _slots: SlotSet) -> Sectors {
        passes.asked_from.get()
    }

    /// What it wrote again, a member could not read before.
    fn skips_flush() -> bool {
        true
    }

    async fn window<W: World>(
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError> {
        windows.check(order, piece, false).await
    }
}

impl PassType for RepairPass {
    const NAMES: PassNames = PassNames {
        word: "repair",
        state: "repairing",
        reported_as: ReportedAs::Repair,
        always_tells_corrected: false,
        if_unreadable: CheckPass::NAMES.if_unreadable,
    };
    const BY_COMMAND: bool = true;

    fn is_due<W: World>(passes: &Passes<W>) -> bool {
        passes.asked.get() == Some(PassKind::Repair)
    }

    async fn window<W: World>(
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError> {
        windows.check(order, piece, true).await
    }
}

impl<W: World> Resync<W> {
    async fn check(&self, order: &PassOrder, piece: Window, repairs: bool) -> Result<Option<PassCounts>, IoError> {
        match &self.rows {
            Some(rows) => self.check_rows(order, rows, piece, repairs).await,
            None => self.check_copies(order, piece, repairs).await,
        }
    }
}
