//! What distinguishes one kind of pass from the others.
//! Owns: [`PassType`], what a kind says of itself; [`PassNames`]. Not here: which kinds there are (`kinds`), when they are
//! asked (`schedule` on shard 0, `shard_pass` and `window` on each shard).
//! Invariant: shard 0 asks in the order of these methods. A kind that says nothing to a question has the answer of a pass
//! that only looks: it writes to nobody, and no superblock says how far it is.

use crate::World;
use crate::pass::passes::Passes;
use crate::pass::resync::Resync;
use crate::shard::mail::Window;
use crate::shard::shared::Shared;
use crate::state::view::{SlotMember, View};
use crate::steward::recovered_below;
use crate::words::progress::{PassCounts, PassOrder, PassReport, Share};
use std::ops::Range;
use std::rc::Rc;
use uraid_block::{IoError, Sectors, Slot, SlotSet};

/// Which pass of md's reports a pass is shown as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportedAs {
    /// `resync`
    Resync,
    /// `recovery`
    Recovery,
    /// `check`
    Check,
    /// `repair`: md calls it a resync.
    Repair,
}

/// What a pass is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassNames {
    /// What /proc/mdstat calls it, also the copy of a member to another one; it calls a repair a resync.
    pub word: &'static str,
    /// What the state of an array says while it runs (`resyncing`).
    pub state: &'static str,
    /// Its place in a report.
    pub reported_as: ReportedAs,
    /// Its last line says how much it has corrected, also if that is nothing.
    pub always_tells_corrected: bool,
    /// What follows if no member could give some sectors.
    pub if_unreadable: &'static str,
}

/// A kind of pass. What it shows and does on shard 0 has [`Passes`], on every shard [`Shared`].
pub(super) trait PassType {
    /// What it is called.
    const NAMES: PassNames;
    /// It runs because a command asked for it, after all that the array needs. The others run because the array needs
    /// them.
    const BY_COMMAND: bool = false;
    /// It gives the members in its slots what they do not hold. On mirrors, it is of one slot and goes over the sectors of
    /// that member; all others go over those of the array.
    const FILLS: bool = false;
    /// What it did before a freeze still counts after it.
    const OUTLIVES_FREEZE: bool = false;

    /// Whether the array needs it, or a command asked for it.
    fn is_due<W: World>(passes: &Passes<W>) -> bool;

    /// The slots whose members it would write now, though they are not read.
    fn slots<W: World>(_passes: &Passes<W>) -> SlotSet {
        SlotSet::EMPTY
    }

    /// How far it has come according to the superblocks: those of the members in these slots, if it fills members.
    fn recorded<W: World>(_passes: &Passes<W>, _slots: SlotSet) -> Sectors {
        Sectors::ZERO
    }

    /// Adds to an order what only this kind says.
    fn complete<W: World>(_passes: &Passes<W>, _order: &mut PassOrder) {}

    /// Whether the superblocks may say now how far it has come.
    fn may_record<W: World>(_passes: &Passes<W>, _order: &PassOrder) -> bool {
        false
    }

    /// All below `below` is done on every shard, and was flushed: the next superblocks say so. The caller holds the
    /// transition.
    fn record<W: World>(_passes: &Passes<W>, _order: &PassOrder, _below: Sectors) {
        unreachable!("no superblock says how far it is")
    }

    /// Below which sector all is done on all shards, and could be read.
    fn readable_below(order: &PassOrder, reports: &[PassReport]) -> Sectors {
        recovered_below(order, reports)
    }

    /// What it takes of the members while clients are active, where no limit says another.
    fn share<W: World>(_passes: &Passes<W>) -> Share {
        Share::DEFAULT
    }

    /// Whether its end waits for no flush.
    fn skips_flush() -> bool {
        false
    }

    /// Whether all members that the order would fill have failed.
    fn is_needless<W: World>(_passes: &Passes<W>, _order: &PassOrder) -> bool {
        false
    }

    /// Every shard has gone through all that it owns, and the members were flushed; or the pass is needless. The caller holds
    /// the transition. A pass by command ends by itself.
    async fn end<W: World>(_passes: &Rc<Passes<W>>, _order: &PassOrder) {
        unreachable!("a pass by command ends by itself")
    }

    /// Where a shard begins.
    fn begins_at<W: World>(_shared: &Shared<W>, order: &PassOrder) -> Sectors {
        order.from
    }

    /// The next stretch from `at` on, up to `total`, that is to be gone through; `None`: nothing is left. It may
    /// be cut to `longest` sectors. A check compares
    /// what no bit names, too: that is where it finds what went wrong unseen.
    fn stretch<W: World>(
        _shared: &Shared<W>,
        _order: &PassOrder,
        (at, total): (u64, u64),
        _longest: u64,
    ) -> Option<Range<u64>> {
        Some(at..total)
    }

    /// The member of a slot of the order that it gives what it does not hold, if that is still there.
    fn target(_view: &View, _order: &PassOrder, _slot: Slot) -> Option<SlotMember> {
        None
    }

    /// One window, or a piece of it, which is locked. `None`: something could not be read, and the piece is more than one
    /// sector.
    async fn window<W: World>(
        windows: &Resync<W>,
        order: &PassOrder,
        piece: Window,
    ) -> Result<Option<PassCounts>, IoError>;

    /// What a shard owns below this is done, and could be read.
    fn note_below<W: World>(_shared: &Shared<W>, _below: Sectors) {}

    /// A shard has gone through all that it owns, and could read it.
    fn end_on_shard<W: World>(_shared: &Shared<W>) {}
}
