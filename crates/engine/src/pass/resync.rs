//! What the windows of passes have in common: reading a window, and making its rows consistent.
//! Owns: [`Resync`], recomputing parity, also for members that do not hold their blocks yet. Not here: which windows, their
//! locks (`shard_pass`), their pieces (`window`), what each kind of pass does with them (`kinds`), windows of a check
//! (`resync::check`).
//! Invariant: readable data is never changed on parity levels, but by a repair.

mod check;

use crate::row::io::RowIo;
use crate::row::parity::{OldBytes, parities_agree, parity_of, recover_blocks};
use crate::shard::buffers;
use crate::shard::mail::Window;
use crate::shard::shared::Shared;
use crate::shard::unsynced::Computable;
use crate::state::recorded::FailureOutcome;
use crate::words::failure::{Failure, ReadError};
use crate::words::findings::Findings;
use crate::words::mark::{self, Mark};
use crate::words::progress::{PassCounts, PassOrder};
use crate::{Pool, World};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;
use uraid_block::local::{Semaphore, join_all};
use uraid_block::{ErrorKind, IoError, Lease, MemberSector, SECTOR_BYTES, Sectors, Slot, SlotSet};
use uraid_layout::{Row, RowMap};

/// A block of a window: where it belongs, and its bytes where they could be read.
pub(super) struct Found {
    pub(super) slot: Slot,
    pub(super) at: MemberSector,
    pub(super) bytes: Option<Lease>,
    /// The member lacks every sector of it, as its bad-block list says.
    lacks_all: bool,
    /// The list names some of its sectors, and not all.
    lacks_some: bool,
}

/// Whether smaller pieces could show more: some sectors of a block could perhaps be read.
pub(super) fn is_mixed(found: &[Found]) -> bool {
    found.iter().any(|block| block.bytes.is_none() && !block.lacks_all)
}

/// Whether a check has to be repeated in smaller pieces. A correction asks no device for single sectors: it may try for
/// seconds to read a bad one.
fn is_to_repeat(order: &PassOrder, found: &[Found]) -> bool {
    if order.unreadable.is_empty() { is_mixed(found) } else { found.iter().any(|block| block.lacks_some) }
}

/// A part of a row: the stretch of `length` sectors from `start` of a window at `at`.
struct RowStretch {
    at: MemberSector,
    start: Sectors,
    length: Sectors,
}

/// The windows of one array on one shard.
pub(crate) struct Resync<W: World> {
    pub(super) shared: Rc<Shared<W>>,
    /// Of parity levels.
    pub(super) rows: Option<Rc<RowIo<W>>>,
    /// Windows of a recovery that are being read; the others are being written. Members that merge the requests of
    /// windows side by side would else be read and written in turn, each while the others wait:
    ///
    /// ```text
    ///   16 windows together    read |==|  |==|  |==|        8 at once    read |=|=|=|=|=|
    ///                          write   |==|  |==|  |==|                  write  |=|=|=|=|=|
    /// ```
    pub(super) reading: Rc<Semaphore>,
    /// Of the check or repair.
    pub(crate) findings: RefCell<Findings>,
}

impl<W: World> Resync<W> {
    /// `windows`: how many may be under way.
    pub(crate) fn new(shared: Rc<Shared<W>>, rows: Option<Rc<RowIo<W>>>, windows: usize) -> Resync<W> {
        assert_eq!(shared.layout().level().is_parity(), rows.is_some(), "only parity levels have rows");
        let reading = Semaphore::new((windows / 2).max(1));
        Resync { shared, rows, reading, findings: RefCell::default() }
    }

    /// Recomputes parity over the data and writes it where it differs. The slots in `computed` are computed, not read;
    /// `reading` is held while blocks are read.
    pub(super) async fn resync_rows(
        &self,
        order: &PassOrder,
        rows: &RowIo<W>,
        piece: Window,
        computed: SlotSet,
        reading: Option<&Rc<Semaphore>>,
    ) -> Result<Option<PassCounts>, IoError> {
        let (at, length) = (MemberSector(piece.at), piece.length);
        let usable = self.shared.view().readable();
        let is_read = |slot: &Slot| usable.contains(*slot) && !computed.contains(*slot);
        let present = (0..self.shared.layout().slots()).map(Slot).filter(is_read);
        let found = {
            let _reads = if let Some(reading) = reading { Some(reading.acquire(1).await) } else { None };
            self.read_window(present.map(|slot| (slot, at)), length).await?
        };
        if length.0 > 1 && is_mixed(&found) {
            return Ok(None);
        }
        let chunk = self.shared.layout().chunk().0;
        let mut window = PassCounts::default();
        let mut start = 0;
        while start < length.0 {
            let member = at.0 + start;
            let cut = Sectors((chunk - member % chunk).min(length.0 - start));
            assert!(!cut.is_zero() && start + cut.0 <= length.0, "a step goes on, inside the window");
            let map = rows.layout().row(Row(member / chunk));
            let stretch = RowStretch { at, start: Sectors(start), length: cut };
            window.add(self.resync_row(order, rows, &map, &found, stretch).await?);
            start += cut.0;
        }
        Ok(Some(window))
    }

    /// The part of a window that lies in one row.
    async fn resync_row(
        &self,
        order: &PassOrder,
        rows: &RowIo<W>,
        map: &RowMap,
        found: &[Found],
        stretch: RowStretch,
    ) -> Result<PassCounts, IoError> {
        let RowStretch { at, start, length } = stretch;
        let _room = rows.room_for_interval().await;
        let range = start.len_bytes()..(start + length).len_bytes();
        let copy_of = async |slot: Slot| {
            let bytes = found.iter().find(|block| block.slot == slot).and_then(|block| block.bytes.as_ref())?;
            let mut copy = buffers::take_contiguous(&self.shared.world, Pool::Row, length).await;
            copy.copy_from_slice(&bytes[range.clone()]);
            Some(copy)
        };
        let mut old = OldBytes { data: SmallVec::new(), p: copy_of(map.parity).await, q: None };
        if let Some(slot) = map.syndrome {
            old.q = copy_of(slot).await;
        }
        for slot in &map.data {
            old.data.push(copy_of(*slot).await);
        }
        let unknown: Vec<usize> = (0..old.data.len()).filter(|index| old.data[*index].is_none()).collect();
        assert_eq!(old.data.len(), map.data.len());
        let parities = usize::from(old.p.is_some()) + usize::from(old.q.is_some());
        if unknown.len() > parities {
            return Ok(PassCounts { unreadable: length.0, ..PassCounts::default() });
        }
        let first = MemberSector(at.0 + start.0);
        let lost: SlotSet = unknown.iter().map(|index| map.data[*index]).collect();
        if !lost.is_empty() && self.shared.unsynced.touches(first, length) {
            return Box::pin(self.resync_unsynced(order, map, old, (lost, parities), first, length)).await;
        }
        // A member could not read its block, or does not hold it yet. Write what parity computes, as md does.
        let usable = self.written(order, at);
        let healed: Vec<usize> = unknown.iter().copied().filter(|index| usable.contains(map.data[*index])).collect();
        let unread_p = old.p.is_none() && usable.contains(map.parity);
        let unread_q = old.q.is_none() && map.syndrome.is_some_and(|slot| usable.contains(slot));
        if healed.is_empty() && !unread_p && !unread_q && !unknown.is_empty() && unknown.len() == parities {
            mark::hit(Mark::ResyncSkipped);
            return Ok(PassCounts { skipped: length.0, ..PassCounts::default() });
        }
        if !unknown.is_empty() {
            old = recover_blocks(&self.shared.world, map, old, length, Pool::Row).await;
        }
        let failed = self.heal_blocks(map, &old, &healed, first).await?;
        let mut window = self.correct_parity(map, old, first, usable).await?;
        window.failed += failed;
        let known = map.data.iter().copied().collect();
        self.shared.unsynced.settle(first, length, (SlotSet::EMPTY, SlotSet::EMPTY), known);
        Ok(window)
    }

    /// The part of a window in one row with lost blocks, that is not in sync or whose lost blocks are unknown. Nothing is
    /// computed for these, unless P and Q agree about it. A part that is not wholly so, or about which they do not agree,
    /// is called unreadable: it is repeated in smaller pieces.
    async fn resync_unsynced(
        &self,
        order: &PassOrder,
        map: &RowMap,
        old: OldBytes,
        (lost, parities): (SlotSet, usize),
        at: MemberSector,
        length: Sectors,
    ) -> Result<PassCounts, IoError> {
        let unsynced = &self.shared.unsynced;
        let present = lost.and(self.shared.view().readable());
        let is = |what: Computable| lost.iter().any(|slot| unsynced.computable(slot, at, length) == what);
        let in_pieces = PassCounts { unreadable: length.0, ..PassCounts::default() };
        if is(Computable::Partly) {
            assert!(length > Sectors(1), "a sector has no parts");
            return Ok(in_pieces);
        }
        mark::hit(Mark::UnsyncedPassed);
        let unknown = PassCounts { unknown: length.0, ..PassCounts::default() };
        if is(Computable::No) {
            return Ok(unknown);
        }
        if lost.count() == parities {
            // Whatever these blocks were: with what parity gives for them, the row is consistent.
            unsynced.settle(at, length, (lost, present), SlotSet::EMPTY);
            return Ok(unknown);
        }
        let all = recover_blocks(&self.shared.world, map, old, length, Pool::Row).await;
        let agree = parities_agree(map, &all);
        if !agree && length > Sectors(1) {
            return Ok(in_pieces);
        }
        let usable = self.written(order, at);
        let healed: Vec<usize> =
            (0..map.data.len()).filter(|index| agree && lost.and(usable).contains(map.data[*index])).collect();
        let failed = self.heal_blocks(map, &all, &healed, at).await?;
        let mut window = self.correct_parity(map, all, at, usable).await?;
        window.failed += failed;
        window.unknown += if agree { 0 } else { length.0 };
        let unknown = if agree { (SlotSet::EMPTY, SlotSet::EMPTY) } else { (lost, present) };
        unsynced.settle(at, length, unknown, SlotSet::EMPTY);
        Ok(window)
    }

    /// The slots of a row that a window at this sector may write.
    fn written(&self, order: &PassOrder, at: MemberSector) -> SlotSet {
        self.shared.with_view(|view| view.readable().or(view.writable().and(order.writes(at))))
    }

    async fn heal_blocks(
        &self,
        map: &RowMap,
        known: &OldBytes,
        healed: &[usize],
        at: MemberSector,
    ) -> Result<u64, IoError> {
        assert!(known.data.iter().all(Option::is_some), "a block is healed from all the others");
        let mut failures = Vec::new();
        if !healed.is_empty() {
            mark::hit(Mark::ResyncHealed);
        }
        for index in healed {
            let bytes = known.data[*index].as_ref().expect("all data is known");
            failures.extend(self.shared.write_block(map.data[*index], at, bytes).await);
        }
        self.settle_pass(&failures).await
    }

    async fn correct_parity(
        &self,
        map: &RowMap,
        old: OldBytes,
        at: MemberSector,
        usable: SlotSet,
    ) -> Result<PassCounts, IoError> {
        let data: Vec<&[u8]> = old.data.iter().map(|block| &block.as_ref().expect("all data is known")[..]).collect();
        let (p, q) = parity_of(map, &data);
        assert_eq!(q.is_empty(), map.syndrome.is_none());
        let mut window = PassCounts::default();
        let mut failures: Vec<Failure> = Vec::new();
        let right = [(Some(map.parity), &p, &old.p), (map.syndrome, &q, &old.q)];
        for (slot, right, found) in right {
            let Some(slot) = slot.filter(|slot| usable.contains(*slot)) else { continue };
            if found.as_ref().is_some_and(|found| found[..] == right[..]) {
                continue;
            }
            if found.is_some() {
                mark::hit(Mark::ResyncCorrected);
                window.corrected += (right.len() / SECTOR_BYTES) as u64;
            }
            failures.extend(self.shared.write_block(slot, at, right).await);
        }
        window.failed += self.settle_pass(&failures).await?;
        Ok(window)
    }

    /// Reads one block of every place, all at once. An unreadable one stays `None`; a member that is gone is failed.
    pub(super) async fn read_window(
        &self,
        places: impl Iterator<Item = (Slot, MemberSector)>,
        length: Sectors,
    ) -> Result<Vec<Found>, IoError> {
        self.read_window_but(SlotSet::EMPTY, places, length).await
    }

    /// The same, but for slots that are known not to give their block: a device may try for many seconds.
    async fn read_window_but(
        &self,
        unreadable: SlotSet,
        places: impl Iterator<Item = (Slot, MemberSector)>,
        length: Sectors,
    ) -> Result<Vec<Found>, IoError> {
        let (known, places): (Vec<_>, Vec<_>) = places.partition(|(slot, _)| unreadable.contains(*slot));
        let places = places.into_iter();
        let outcomes = join_all(places.map(async |(slot, at)| (slot, at, self.read_of_window(slot, at, length).await)));
        let mut found = Vec::new();
        for (slot, at, outcome) in outcomes.await {
            let bytes = match outcome {
                Ok(bytes) => Some(bytes),
                Err(failed) => {
                    if failed.error.kind == ErrorKind::Gone {
                        mark::hit(Mark::ResyncMemberGone);
                        self.settle_pass(&[failed.failure()]).await?;
                        continue;
                    }
                    self.shared.count(|counters| counters.read_errors += 1);
                    None
                }
            };
            let (lacks_some, lacks_all) = if bytes.is_none() { self.lacks(slot, at, length) } else { (false, false) };
            found.push(Found { slot, at, bytes, lacks_all, lacks_some });
        }
        found.extend(known.into_iter().map(|(slot, at)| Found {
            slot,
            at,
            bytes: None,
            lacks_all: true,
            lacks_some: false,
        }));
        Ok(found)
    }

    /// Whether its list names some, but not all, and whether it names all of these sectors.
    fn lacks(&self, slot: Slot, at: MemberSector, length: Sectors) -> (bool, bool) {
        let of_slot = self.shared.with_view(|view| view.member(slot));
        let (member, range) = (self.shared.members.get(of_slot.index), of_slot.range(at, length));
        let lacks_all = member.lacks_all(range);
        (member.lacks(range) && !lacks_all, lacks_all)
    }

    /// A read that was cut because its member does not answer now is made again: there is time, and the block may be
    /// there.
    async fn read_of_window(&self, slot: Slot, at: MemberSector, length: Sectors) -> Result<Lease, ReadError> {
        loop {
            match self.shared.read_block(slot, at, length, Pool::Pass).await {
                Err(failed) if failed.error.kind == ErrorKind::Late => {}
                outcome => return outcome,
            }
        }
    }

    /// Returns how many there are.
    pub(super) async fn settle_pass(&self, failures: &[Failure]) -> Result<u64, IoError> {
        if failures.is_empty() {
            return Ok(0);
        }
        mark::hit(Mark::ResyncWriteFailed);
        match self.shared.report(failures).await {
            // What a pass could not write is listed, or its member was failed: the pass goes on.
            FailureOutcome::Recorded | FailureOutcome::Unwritten(_) => Ok(failures.len() as u64),
            FailureOutcome::Frozen(error) => Err(error),
        }
    }
}
