//! Sectors that a member could not read or write: written again from the others, at once.
//! Owns: [`Corrector`], which sectors, on which shard, what follows if they still cannot be read. Not here: what is written
//! (`resync::check`), which errors count against the member (`health`), sectors that cannot be written (`bad_block_log`).
//! Invariant: only what the other members agree on is written, and only where this member failed.
//!
//! ```text
//!   a read fails, others have the data ─┐
//!   a write fails and is listed ────────┴─> the owner of these sectors locks them, reads the others, writes, reads again
//!                                             it can be read      mended; if it was listed, the list forgets it
//!                                             it cannot           it is listed, if the member has a log, and if the
//!                                                                 others could give all of it
//! ```
//!
//! A correction that finds no place, or comes before the others are known to be right, is dropped. What is listed is then
//! asked for again, from its beginning to its end, when nothing else waits and corrections may be made.
//!
//! Devices have spare sectors, and take one when a bad sector is written. md does the same, and stops the whole array for
//! it; here only requests for these sectors wait.

use crate::pass::resync::Resync;
use crate::pass::shard_pass;
use crate::row::io::RowIo;
use crate::shard::mail::{Call, Correction, Mail, Message, STEWARD, Window};
use crate::shard::permit::UNIT;
use crate::shard::shared::Shared;
use crate::state::view::{Copies, Gate, View};
use crate::words::failure::ReadError;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassKind, PassOrder, WINDOW};
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use uraid_block::local::Semaphore;
use uraid_block::{ArraySector, IoError, MemberSector, Range, Sector, Sectors, ShardIndex, Slot, SlotSet};
use uraid_layout::{Layout, Row};

/// The most stretches that wait on a shard. Further ones are dropped: if they are not listed, the next read of them meets
/// the error again.
const WAITING_MAX: usize = 64;

/// What is corrected as one: 4 KiB, as by md. A device may try for seconds to read a bad sector, so it is not asked for each
/// sector of them.
const PIECE: u64 = 8;

/// The most sectors that are remembered as given up.
const GIVEN_UP_MAX: usize = 1024;

/// Writes sectors again, on one shard.
pub(crate) struct Corrector<W: World> {
    shared: Rc<Shared<W>>,
    resync: Resync<W>,
    /// Room for windows, shared with the passes.
    room: Rc<Semaphore>,
    waiting: RefCell<VecDeque<Correction>>,
    is_running: Cell<bool>,
    /// A stretch was dropped. It may be listed.
    was_dropped: Cell<bool>,
    /// What is listed is asked for again, from this sector of this member on.
    listed_from: Cell<Option<(usize, Sector)>>,
    /// Sectors of members that stayed bad and could not be listed: they are not written again and again.
    given_up: RefCell<BTreeSet<(usize, Sector)>>,
}

/// A check of one window: it writes what a member could not read, if all others agree.
const ORDER: PassOrder = PassOrder {
    number: 0,
    kind: PassKind::Check,
    recovering: SlotSet::EMPTY,
    second: None,
    from: Sectors::ZERO,
    written_below: Sectors::ZERO,
    unreadable: SlotSet::EMPTY,
    by_bits: false,
    fills: false,
};

impl<W: World> Corrector<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, rows: Option<Rc<RowIo<W>>>, room: Rc<Semaphore>) -> Rc<Corrector<W>> {
        let resync = Resync::new(shared.clone(), rows, 1);
        let (waiting, is_running, was_dropped, listed_from, given_up) = Default::default();
        Rc::new(Corrector { shared, resync, room, waiting, is_running, was_dropped, listed_from, given_up })
    }

    /// Corrects a stretch that this shard owns, after those that wait.
    pub(crate) fn add(self: &Rc<Self>, stretch: Correction) {
        let mut waiting = self.waiting.borrow_mut();
        if self.given_up.borrow().contains(&(stretch.member, stretch.range.start)) {
            return;
        }
        if waiting.contains(&stretch) {
            return;
        }
        if waiting.len() == WAITING_MAX {
            self.was_dropped.set(true);
            return;
        }
        waiting.push_back(stretch);
        drop(waiting);
        self.run();
    }

    /// Corrections may be made again: what is listed is asked for, if some of it was dropped.
    pub(crate) fn resume(self: &Rc<Self>) {
        if self.was_dropped.get() {
            self.run();
        }
    }

    fn run(self: &Rc<Self>) {
        if !self.is_running.replace(true) {
            self.shared.world.spawn(self.clone().correct_all());
        }
    }

    async fn correct_all(self: Rc<Self>) {
        loop {
            let next = self.waiting.borrow_mut().pop_front();
            let Some(stretch) = next.or_else(|| self.next_listed()) else { break };
            if self.correct(&stretch).await.is_err() {
                // The array has frozen.
                self.waiting.borrow_mut().clear();
                self.was_dropped.set(true);
            }
        }
        self.is_running.set(false);
    }

    /// A stretch cannot be corrected: perhaps later.
    fn drop_early(&self) {
        if !self.shared.takes_corrections() {
            mark::hit(Mark::CorrectionTooEarly);
            self.was_dropped.set(true);
        }
    }

    /// The next stretch that is asked for because it is listed. Each drop leads to one more round through all lists: what
    /// stays bad is not written again and again.
    fn next_listed(&self) -> Option<Correction> {
        if !self.shared.takes_corrections() {
            let is_cut = self.listed_from.take().is_some();
            self.was_dropped.set(self.was_dropped.get() || is_cut);
            return None;
        }
        loop {
            let first = (0, Sector(0));
            let from = self.listed_from.get().or_else(|| self.was_dropped.take().then_some(first))?;
            let next = self.listed(from);
            self.listed_from.set(next.map(|stretch| (stretch.member, stretch.range.end())));
            if next.is_some() {
                mark::hit(Mark::CorrectionAskedAgain);
                return next;
            }
        }
    }

    /// The first listed stretch of this shard from a sector of a member on.
    fn listed(&self, (member, sector): (usize, Sector)) -> Option<Correction> {
        let (view, own) = (self.shared.view(), self.shared.world.shard());
        let slot_of = |index: usize| view.readable().iter().find(|slot| view.member(*slot).index == index);
        let lists = view.bad_blocks.iter().filter(|(index, _)| *index >= member);
        let mut listed = lists.filter_map(|(index, list)| Some((*index, slot_of(*index)?, list)));
        listed.find_map(|(index, slot, list)| {
            let begin = if index == member { sector } else { Sector(0) };
            let ranges = list.ranges().iter().filter(|range| range.end() > begin);
            let ranges = ranges.map(|range| Range::between(range.start.max(begin), range.end()));
            let mut stretches = ranges.flat_map(|range| self.shared.stretches(slot, index, range));
            let is_wanted = |stretch: &Correction| !self.given_up.borrow().contains(&(index, stretch.range.start));
            stretches.find(|(owner, stretch)| *owner == own && is_wanted(stretch)).map(|(_, stretch)| stretch)
        })
    }

    async fn correct(&self, stretch: &Correction) -> Result<(), IoError> {
        let _room = self.room.acquire(1).await;
        let Some(_inside) = self.shared.admit_pass() else {
            self.drop_early();
            return Ok(());
        };
        let _lock = self.shared.locks.guard(shard_pass::locked(&self.shared, &stretch.window)).await;
        if !self.may_correct(stretch) {
            self.drop_early();
            return Ok(());
        }
        let device = self.shared.members.get(stretch.member);
        if stretch.range.length.0 <= PIECE || device.lacks_all(stretch.range) {
            return self.write_again(stretch, &stretch.window).await;
        }
        for start in (0..stretch.window.length.0).step_by(PIECE as usize) {
            let piece = stretch.window.part(start, PIECE.min(stretch.window.length.0 - start));
            if self.read_piece(stretch, start, piece.length).await.is_err() {
                self.write_again(stretch, &piece).await?;
            }
        }
        Ok(())
    }

    /// Writes what the others give, and reads it again.
    async fn write_again(&self, stretch: &Correction, part: &Window) -> Result<(), IoError> {
        mark::hit(Mark::Corrected);
        let order = PassOrder { unreadable: SlotSet::EMPTY.with(stretch.slot), ..ORDER };
        let is_given = self.resync.correct_window(&order, *part).await?;
        let start = part.at - stretch.window.at;
        for start in (start..start + part.length.0).step_by(PIECE as usize) {
            let length = Sectors(PIECE.min(stretch.window.length.0 - start));
            if let Err(failed) = self.read_piece(stretch, start, length).await
                && failed.error.kind.is_of_sectors()
                && failed.error.is_of_device()
            {
                mark::hit(Mark::StillUnreadable);
                // What another member cannot give, either, may be readable here, beside the bad sector.
                let is_listed =
                    is_given && self.shared.calls.call(STEWARD, Call::ListUnreadable(failed)).await.listed()?;
                let mut given_up = self.given_up.borrow_mut();
                if !is_listed && given_up.len() < GIVEN_UP_MAX {
                    given_up.insert((stretch.member, failed.range.start));
                }
            }
        }
        Ok(())
    }

    /// Reads a part of a stretch from the member that failed.
    async fn read_piece(&self, stretch: &Correction, start: u64, length: Sectors) -> Result<(), ReadError> {
        let data_offset = self.shared.with_view(|view| {
            let now = view.has_member(stretch.slot).then(|| view.member(stretch.slot));
            now.filter(|now| now.index == stretch.member).map(|now| now.data_offset)
        });
        // Another member may have the slot since. It holds what was copied to it.
        let Some(data_offset) = data_offset else { return Ok(()) };
        let at = MemberSector(stretch.range.start.0 + start - data_offset.0);
        self.shared.read_block(stretch.slot, at, length, Pool::Pass).await.map(|_bytes| ())
    }

    /// Whether the others are known to be right about these sectors, and the member is still the one that failed.
    fn may_correct(&self, stretch: &Correction) -> bool {
        let (in_sync, window) = (self.shared.in_sync_below.get().0, &stretch.window);
        let is_consistent = match &*self.shared.layout() {
            Layout::Parity(_) => {
                let is_known = !self.shared.unsynced.touches(MemberSector(window.at), window.length);
                is_known && window.at + window.length.0 <= in_sync
            }
            Layout::Copies(_) => self.shared.with_view(|view| view.copies == Copies::Any),
        };
        let is_in_use = self.shared.with_view(|view| {
            let is_same = || view.member(stretch.slot).index == stretch.member;
            view.gate == Gate::Open && view.readable().contains(stretch.slot) && is_same()
        });
        is_consistent && is_in_use && self.shared.torn.is_empty()
    }
}

impl<W: World> Shared<W> {
    /// Lets the owners of these sectors write them again from other members.
    pub(crate) fn want_correction(&self, failed: &ReadError) {
        if !self.is_redundant() || self.config.read_only {
            return;
        }
        for (owner, stretch) in self.stretches(failed.slot, failed.member, failed.range) {
            self.world.post(owner, Mail(Message::Correct(stretch)));
        }
    }

    /// Whether all sectors may be corrected: the others are known to be right.
    pub(crate) fn takes_corrections(&self) -> bool {
        self.with_view(View::takes_corrections)
    }

    /// The data in a range of the member in a slot, each piece with the shard that owns it. Nothing, if another member has
    /// the slot, or it is not read.
    fn stretches(
        &self,
        slot: Slot,
        member: usize,
        range: Range,
    ) -> impl Iterator<Item = (ShardIndex, Correction)> + '_ {
        let data = self.with_view(|view| {
            let is_in_use = view.readable().contains(slot) && view.member(slot).index == member;
            let data_offset = view.has_member(slot).then(|| view.member(slot).data_offset);
            let data = data_offset.map(|offset| Range::new(offset, view.shape.layout().member_used(slot)));
            data.filter(|_| is_in_use).unwrap_or(Range::new(range.start, Sectors::ZERO))
        });
        // A log may name what is no data.
        let end = range.end().min(data.end()).0.saturating_sub(data.start.0);
        let mut at = range.start.0.saturating_sub(data.start.0);
        std::iter::from_fn(move || {
            while at < end {
                let start = at;
                if let Some((owner, window)) = self.window_to_correct(slot, MemberSector(at), Sectors(end - at)) {
                    at += window.length.0;
                    let range = Range::new(Sector(start + data.start.0), window.length);
                    return Some((owner, Correction { slot, member, range, window }));
                }
                // No copy lies in this chunk.
                let chunk = self.layout().chunk().0;
                at = at.checked_div(chunk).map_or(end, |chunks| (chunks + 1) * chunk);
            }
            None
        })
    }

    /// The window at a sector of a member's data, and the shard that owns it.
    fn window_to_correct(&self, slot: Slot, at: MemberSector, longest: Sectors) -> Option<(ShardIndex, Window)> {
        let longest = longest.0.min(WINDOW);
        match &*self.layout() {
            Layout::Parity(layout) => {
                let (row, chunk) = (at.0 / layout.chunk().0, layout.chunk().0);
                let length = Sectors(longest.min(chunk - at.0 % chunk));
                Some((self.owner_of(Row(row)), Window { at: at.0, sector: ArraySector(at.0), length }))
            }
            Layout::Copies(layout) => {
                let sector = layout.sector_of_copy(slot, at)?;
                let unit = sector.0 / UNIT;
                let held = self.layout().contiguous(sector).0.min((unit + 1) * UNIT - sector.0);
                let owner = ShardIndex((unit % u64::from(self.world.shards())) as u16);
                Some((owner, Window { at: sector.0, sector, length: Sectors(longest.min(held)) }))
            }
        }
    }
}
