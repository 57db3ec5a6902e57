//! Stretches that are holes on every member: a pass reads nothing there.
//! Owns: [`Holes`], when members are asked for holes, how far a pass may skip. Not here: what a member knows about its
//! holes (`host`), windows (`shard_pass`).
//! Invariant: a stretch is skipped only while this shard has its lock, and each slot has a member that is read, or that
//! the pass fills, and says that it stores nothing there. Then all copies are zeroes, and so are P and Q: nothing is to
//! be compared or written. The flush at the end of the pass makes the holes durable, as it does zeroes that are written.
//!
//! ```text
//!   member 0   |data|............................|data|.......      . a hole
//!   member 1   |data|..............................|data|.....
//!   member 2   |data|............................|data|.......
//!              ^ no hole here: asked again behind the data
//!                   ^ skipped, up to the first data ^
//! ```
//!
//! Other shards' rows or units in the stretch are theirs to skip; their writes make it shorter, and nothing else.

use crate::World;
use crate::shard::mail::Window;
use crate::shard::shared::Shared;
use crate::state::view::{Gate, SlotMember, View};
use crate::words::mark::{self, Mark};
use crate::words::progress::PassOrder;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use uraid_block::{Allocation, ArrayRange, ArraySector, Device, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::{CopyLayout, Layout, Level};

/// The longest stretch that members are asked for at once: 1 TiB. Writes into it wait meanwhile.
pub(crate) const ASK_MAX: u64 = 1 << 31;
/// Where no long stretch of holes was found, the next look is this part of a stretch that is worth a skip further on,
/// and twice as far after each such look in a row, up to 1 GiB: members full of short holes are asked rarely.
const NEXT_LOOK: u64 = 16;
const NEXT_LOOK_MAX: u64 = 1 << 21;

/// Looks for holes in one shard's part of a pass.
pub(crate) struct Holes<W: World> {
    shared: Rc<Shared<W>>,
    next: NextLook,
}

/// From where on members are asked again.
struct NextLook {
    from: Cell<u64>,
    step: Cell<u64>,
    /// The first step.
    least: u64,
}

impl NextLook {
    /// `skip`: the shortest stretch that is worth a skip.
    fn new(skip: Sectors) -> NextLook {
        let least = (skip.0 / NEXT_LOOK).max(1);
        NextLook { from: Cell::new(0), step: Cell::new(least), least }
    }

    fn is_due(&self, at: u64) -> bool {
        at >= self.from.get()
    }

    /// What was found at this place.
    fn note(&self, at: u64, found: Found) {
        match found {
            Found::Holes(length) => {
                self.from.set(at + length);
                self.step.set(self.least);
            }
            Found::Data(length) => {
                let step = self.step.get();
                self.from.set(at.saturating_add(length.max(step)));
                self.step.set((2 * step).min(NEXT_LOOK_MAX));
            }
        }
    }
}

/// What members store from some place on, in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// None of them anything for this long.
    Holes(u64),
    /// One of them something, for as long as it says; or it cannot tell.
    Data(u64),
}

/// A stretch of one member.
type Place = (SlotMember, MemberSector, Sectors);

impl<W: World> Holes<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>) -> Holes<W> {
        let next = NextLook::new(shared.config.pass_skip);
        Holes { shared, next }
    }

    /// A pass begins.
    pub(crate) fn restart(&self) {
        self.next.from.set(0);
        self.next.step.set(self.next.least);
    }

    /// Whether it is time to ask members for holes from this place on.
    pub(crate) fn is_due(&self, at: u64) -> bool {
        self.next.is_due(at)
    }

    /// How far the pass may skip from this window on, up to `end`, because no member stores anything there; `None`: less
    /// than is worth it. The caller lets no window begin meanwhile, and is inside an epoch.
    pub(crate) async fn hole(&self, order: &PassOrder, window: &Window, end: u64) -> Option<u64> {
        let (at, least) = (window.at, self.shared.config.pass_skip.0.max(1));
        let longest = (end - at).min(ASK_MAX);
        if longest < least {
            return None;
        }
        // Without a lock first: mostly there is data, and no write shall wait for that answer.
        let seen = match self.stored(order, window, longest).await {
            Found::Holes(length) if length >= least => length,
            Found::Holes(length) | Found::Data(length) => {
                self.next.note(at, Found::Data(length));
                return None;
            }
        };
        let _lock = self.shared.locks.guard(self.to_lock(order, window, seen)?).await;
        // As for a window: what was refused half done is not looked at.
        if !self.shared.torn.is_empty() || self.shared.with_view(|view| view.gate != Gate::Open) {
            return None;
        }
        let found = self.stored(order, window, seen).await;
        self.next.note(at, found);
        match found {
            Found::Holes(length) => {
                mark::hit(Mark::PassSkippedHole);
                Some(length)
            }
            Found::Data(_) => None,
        }
    }

    /// The rows or sectors of a stretch that is looked at.
    fn to_lock(&self, order: &PassOrder, window: &Window, length: u64) -> Option<Range<u64>> {
        match &*self.shared.layout() {
            Layout::Parity(layout) => {
                let chunk = layout.chunk().0;
                Some(window.at / chunk..(window.at + length).div_ceil(chunk))
            }
            Layout::Copies(layout) => {
                let range = array_range(layout, order, window, length)?;
                Some(range.start.0..range.end().0)
            }
        }
    }

    /// What all members store from the start of this window on.
    async fn stored(&self, order: &PassOrder, window: &Window, length: u64) -> Found {
        let mut length = length;
        while length >= self.shared.config.pass_skip.0.max(1) {
            let places = self.shared.with_view(|view| self.places(view, order, window, length));
            match self.stored_at(places.as_deref(), length).await {
                // Where it ends in the array is not asked: a shorter stretch is tried.
                None => length /= 8,
                Some(found) => return found,
            }
        }
        Found::Data(0)
    }

    /// `None`: there are holes, and where they end cannot be told.
    async fn stored_at(&self, places: Option<&[Place]>, length: u64) -> Option<Found> {
        let is_alike = self.is_at_one_place();
        let mut holes = length;
        for (member, at, of_member) in places? {
            let known = self.ask(*member, *at, *of_member).await;
            match known.is_zero {
                true if known.length == *of_member => {}
                true if is_alike => holes = holes.min(known.length.0),
                true => return None,
                false if is_alike => return Some(Found::Data(known.length.0)),
                false => return None,
            }
        }
        assert!(holes > 0, "a member answers for one sector at least");
        Some(Found::Holes(holes))
    }

    /// A member that cannot tell counts as one that stores something. So does one that lacks sectors.
    async fn ask(&self, member: SlotMember, at: MemberSector, length: Sectors) -> Allocation {
        let unknown = Allocation { length, is_zero: false };
        let range = member.range(at, length);
        let device = self.shared.members.get(member.index);
        if device.lacks(range) {
            return unknown;
        }
        device.allocation(range).await.unwrap_or(unknown)
    }

    /// Whether a stretch lies at the same sectors of each member.
    fn is_at_one_place(&self) -> bool {
        let level = self.shared.layout().level();
        level.is_parity() || level == Level::Raid1
    }

    /// Where on each member this many sectors from the window's start lie. `None`: a slot has no member that holds what
    /// it should, or shall; or rows may not be what their parity says.
    fn places(&self, view: &View, order: &PassOrder, window: &Window, length: u64) -> Option<Vec<Place>> {
        let layout = view.shape.layout();
        let slots = || (0..layout.slots()).map(Slot);
        let holder = |slot: Slot| match view.readable().contains(slot) {
            true => Some(view.member(slot)),
            false => order.kind.target(view, order, slot),
        };
        let second = |slot: Slot| order.second.and_then(|_| order.kind.target(view, order, slot));
        let members: Vec<SlotMember> = slots().map(holder).collect::<Option<_>>()?;
        let seconds = order.recovering.iter().filter_map(second);
        if self.is_at_one_place() {
            let at = MemberSector(window.at);
            if self.shared.unsynced.touches(at, Sectors(length)) {
                return None;
            }
            return Some(members.into_iter().chain(seconds).map(|member| (member, at, Sectors(length))).collect());
        }
        let Layout::Copies(copies) = layout else { unreachable!("rows of parity lie at one place") };
        let all: SlotSet = slots().collect();
        let plan = copies.plan_discard(array_range(copies, order, window, length)?, &all);
        let of_members = plan.runs.iter().map(|run| (members[run.slot.index()], run.at, run.length));
        let of_seconds = seconds.map(|member| (member, MemberSector(window.at), Sectors(length)));
        Some(of_members.chain(of_seconds).collect())
    }
}

/// The sectors of a mirrored array to look at. A pass that fills a member counts by the sectors of that member; all others
/// count by those of the array. `None`: a shorter stretch may be found.
fn array_range(layout: &CopyLayout, order: &PassOrder, window: &Window, length: u64) -> Option<ArrayRange> {
    match order.fills {
        true => layout.sectors_around(MemberSector(window.at), Sectors(length)),
        false => Some(ArrayRange::new(ArraySector(window.at), Sectors(length))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_without_long_holes_are_asked_less_and_less() {
        let holes = NextLook::new(Sectors(131_072));
        let (mut at, mut looks) = (0, 0);
        // 4 TiB in windows of 256 KiB, in which every second block is a hole.
        while at < 1 << 33 {
            if holes.is_due(at) {
                looks += 1;
                holes.note(at, Found::Data(8));
            }
            at += 512;
        }
        assert!((4096..4120).contains(&looks), "{looks} looks, one each GiB");
        holes.note(at, Found::Holes(1 << 20));
        assert!(!holes.is_due(at + (1 << 20) - 1) && holes.is_due(at + (1 << 20)));
        holes.note(at, Found::Data(1 << 30));
        assert!(!holes.is_due(at + (1 << 30) - 1) && holes.is_due(at + (1 << 30)));
    }
}
