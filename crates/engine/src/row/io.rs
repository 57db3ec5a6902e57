//! Writing and recovering one interval of a row that this shard holds.
//! Owns: the reads, the parity arithmetic and the writes of each row plan. Not here: the choice (`row::plan`), the
//! holder of the row (`row`).
//! The fast paths of most small requests are `row_io/update` and `row_io/one_lost`, that of holes is `row_io/blank`.
//! Invariant: nothing is written before everything it depends on was read. Member states are looked up again after
//! every failed read.

mod blank;
mod log;
mod one_lost;
mod recover;
mod room;
mod update;

use crate::row::parity::{NewParity, OldBytes, generate, modify, parities_agree, recover_blocks};
use crate::row::plan::{Blocks, Interval, RowPlan, Segment, blocks_of, choose, reads_of, reads_to_verify};
use crate::shard::buffers;
use crate::shard::member_io::{MemberRun, Zeroing};
use crate::shard::shared::Shared;
use crate::shard::torn::TornState;
use crate::state::recorded::{NotRecorded, Recorded};
use crate::state::view::{Gate, View, frozen_error};
use crate::words::failure::{Failure, ReadError};
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use blank::KnownHoles;
use smallvec::SmallVec;
use std::cell::{Cell, Ref};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::{Permit, Semaphore, join_each};
use uraid_block::{ErrorKind, Fua, IoError, MemberSector, ReadPieces, Sectors, Slot, SlotSet, WritePieces};
use uraid_layout::{ParityLayout, Row, RowMap};

/// A part of a row's chunks whose new bytes could not be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedPart {
    /// From the start of the chunk.
    start: Sectors,
    length: Sectors,
    /// The slots of the data that was to be written there.
    covered: SlotSet,
    pub(crate) error: IoError,
}

impl FailedPart {
    /// Whether a write of `length` sectors from `start` of the row's data has sectors in this part.
    pub(crate) fn touches(&self, map: &RowMap, chunk: Sectors, start: Sectors, length: Sectors) -> bool {
        assert!(!length.is_zero() && !self.length.is_zero(), "what is empty touches nothing");
        (0..).zip(&map.data).filter(|(_, slot)| self.covered.contains(**slot)).any(|(data, _)| {
            let part = Sectors(data * chunk.0) + self.start;
            start < part + self.length && part < start + length
        })
    }
}

/// The members of a parity array, written and read by row, on one shard.
pub(crate) struct RowIo<W: World> {
    shared: Rc<Shared<W>>,
    /// Permits for blocks of the row arena: an interval takes all it can need before its first I/O.
    blocks: Rc<Semaphore>,
    /// The same for reads of lost bytes. These need not wait for writes, whose permits a member that does not answer
    /// may keep.
    blocks_to_read: Rc<Semaphore>,
    /// The slots of a healthy array.
    all: SlotSet,
    /// Whether a small write of a healthy row is a read-modify-write (`update`).
    updates_healthy: bool,
    /// Whether the last part of a row that was to become a hole read as something else than zeroes.
    holes_had_data: Cell<bool>,
    holes: KnownHoles,
    /// The longest stretch that is logged with its parity, if the array has a partial parity log.
    log_room: Option<Sectors>,
}

impl<W: World> RowIo<W> {
    /// A quarter of the row arena is for reads, if there are enough blocks for two intervals.
    pub(crate) fn new(shared: Rc<Shared<W>>, layout: &ParityLayout, log_room: Option<Sectors>) -> RowIo<W> {
        let blocks = shared.world.arena(Pool::Row).large_blocks();
        let interval = interval_blocks(layout);
        assert!(blocks >= interval, "the row arena holds one row");
        let to_read = (blocks / 4).max(interval);
        let (blocks, blocks_to_read) = if blocks - to_read >= interval {
            (Semaphore::new(blocks - to_read), Semaphore::new(to_read))
        } else {
            let one = Semaphore::new(blocks);
            (one.clone(), one)
        };
        let (all, updates_healthy) = (SlotSet::first(layout.slots()), update::modifies_healthy(layout));
        let (holes_had_data, holes) = (Cell::new(false), KnownHoles::default());
        RowIo { shared, blocks, blocks_to_read, all, updates_healthy, holes_had_data, holes, log_room }
    }

    pub(crate) fn shared(&self) -> &Shared<W> {
        &self.shared
    }

    pub(crate) fn layout(&self) -> Ref<'_, ParityLayout> {
        self.shared.rows()
    }

    /// What an interval takes of the row arena.
    fn interval_blocks(&self) -> usize {
        interval_blocks(&self.layout())
    }

    /// Takes the permit for the scratch of one interval.
    pub(crate) async fn room_for_interval(&self) -> Permit {
        self.blocks.acquire(self.interval_blocks()).await
    }

    /// The longest interval that is read.
    pub(crate) fn partial_max(&self) -> Sectors {
        partial_max(&self.layout(), self.log_room)
    }

    /// The longest interval of full stripes.
    pub(crate) fn full_max(&self) -> Sectors {
        full_max(&self.layout())
    }

    /// Writes an interval: plans it, reads what the plan needs, computes parity, writes, and records failed members. An
    /// error names the parts that failed. All other parts are written and recorded.
    pub(crate) async fn write_interval(
        &self,
        map: &RowMap,
        interval: Interval,
        fua: Fua,
    ) -> Result<Recorded, Vec<FailedPart>> {
        assert!(!interval.new.is_empty() && !interval.length.is_zero(), "something is to be written");
        assert!(interval.start + interval.length <= self.layout().chunk(), "an interval stays in its row");
        let covered = interval.covered(map);
        let failed = |error| vec![FailedPart { start: interval.start, length: interval.length, covered, error }];
        if self.shared.torn.state(map.row, &(interval.start..interval.start + interval.length)) != TornState::Whole {
            mark::hit(Mark::TornRowKept);
            let kind =
                self.shared.with_view(|view| if let Gate::Frozen(kind) = view.gate { kind } else { ErrorKind::Frozen });
            return Err(failed(frozen_error(kind)));
        }
        if let Some(runs) = self.runs_to_log(&interval) {
            return Box::pin(self.write_one_after_another(map, runs, fua)).await;
        }
        let room = self.room_for_interval().await;
        self.write_planned(map, interval, fua, room, Vec::new()).await
    }

    /// Writes intervals of one row that share sectors of the parity. If one fails, the others are written anyway.
    async fn write_one_after_another(
        &self,
        map: &RowMap,
        intervals: Vec<Interval>,
        fua: Fua,
    ) -> Result<Recorded, Vec<FailedPart>> {
        let (mut recorded, mut failed) = (None, Vec::new());
        for interval in intervals {
            match self.write_interval(map, interval, fua).await {
                Ok(of_interval) => recorded = Some(of_interval),
                Err(of_interval) => failed.extend(of_interval),
            }
        }
        if failed.is_empty() { Ok(recorded.expect("there is one")) } else { Err(failed) }
    }

    /// Whether the old parity of a stretch matches its old data. This shard owns the row.
    #[inline]
    fn is_in_sync(&self, at: MemberSector, length: Sectors) -> bool {
        at.0 + length.0 <= self.shared.in_sync_below.get().0
    }

    /// Like [`RowIo::write_interval`], with the interval's permit. `earlier`: reads for the interval that have failed
    /// already.
    async fn write_planned(
        &self,
        map: &RowMap,
        mut interval: Interval,
        fua: Fua,
        room: Permit,
        earlier: Vec<ReadError>,
    ) -> Result<Recorded, Vec<FailedPart>> {
        let covered = interval.covered(map);
        let (start, length) = (interval.start, interval.length);
        let failed = |error| vec![FailedPart { start, length, covered, error }];
        let at = map.start + interval.start;
        let is_in_sync = self.is_in_sync(at, interval.length);
        let (mut unreadable, mut late, mut read_errors) = (SlotSet::EMPTY, self.shared.slow_members(), Vec::new());
        if !earlier.is_empty() {
            mark::hit(Mark::RowPlannedAgain);
            let noted = self.note_failed_reads(earlier, &mut unreadable, &mut late, &mut read_errors);
            Box::pin(noted).await.map_err(failed)?;
        }
        let (view, parity, settled) = loop {
            let view = self.shared.view();
            let blocks = Blocks { is_in_sync, ..blocks(map, &view, unreadable.or(late)) };
            let plan = choose(covered, &blocks);
            let lost = blocks.data.minus(covered).minus(blocks.readable);
            // Without lost blocks, a read-modify-write leaves the parity as wrong as it was.
            let known = if plan == RowPlan::ReadModifyWrite { covered } else { blocks.data.minus(lost) };
            let mut settled = (plan != RowPlan::ReadModifyWrite || !lost.is_empty()).then_some((lost, known));
            let is_suspect = self.shared.unsynced.is_suspect(at, length);
            let may_verify = is_suspect && !self.shared.unsynced.is_unknown(lost, at, length);
            let verifying = if may_verify && plan == RowPlan::Recover { reads_to_verify(&blocks) } else { None };
            let Some(wanted) = verifying.or_else(|| reads_of(plan, covered, &blocks)) else {
                if !late.is_empty() {
                    // The other members do not suffice: wait for the late ones.
                    late = SlotSet::EMPTY;
                    continue;
                }
                if !unreadable.is_empty() && interval.length > Sectors(1) {
                    drop(room);
                    return Box::pin(self.write_halves(map, &interval, fua)).await;
                }
                mark::hit(Mark::RowImpossible);
                Box::pin(self.shared.settle_read_errors(read_errors, false)).await;
                return Err(failed(lost_error(unreadable)));
            };
            assert!(wanted.is_within(blocks.readable), "no block is read that cannot be read");
            match pin!(self.read_blocks(map, wanted, at, interval.length)).await {
                Ok(old) if plan == RowPlan::ReadModifyWrite => {
                    self.shared.count(|counters| counters.rows_modified += 1);
                    break (view, modify(map, &interval, old), settled);
                }
                // A rare path with long lists: boxed, to keep the future of a read-modify-write small.
                Ok(old) => {
                    let unread = blocks.data.minus(covered).and(blocks.usable).minus(blocks.readable);
                    let healed = if is_in_sync || is_suspect { SlotSet::EMPTY } else { unread };
                    let mut agrees = verifying.is_some();
                    let made = self.new_parity(map, &mut interval, plan, old, healed, &mut agrees);
                    let parity = Box::pin(made).await;
                    settled = settled
                        .map(|(lost, known)| if agrees { (SlotSet::EMPTY, known.or(lost)) } else { (lost, known) });
                    break (view, parity, settled);
                }
                Err(failures) => {
                    mark::hit(Mark::RowPlannedAgain);
                    let noted = self.note_failed_reads(failures, &mut unreadable, &mut late, &mut read_errors);
                    Box::pin(noted).await.map_err(failed)?;
                }
            }
        };
        let (start, length) = (interval.start, interval.length);
        let usable = view.writable();
        let outcome = pin!(self.write_blocks(map, interval, parity, &view, fua, room)).await;
        if !read_errors.is_empty() {
            Box::pin(self.shared.settle_read_errors(read_errors, true)).await;
        }
        if let (Ok(_), Some((lost, known))) = (&outcome, settled) {
            self.shared.unsynced.settle(at, length, (lost, lost.and(usable)), known);
        }
        outcome.map_err(|error| vec![FailedPart { start, length, covered, error }])
    }

    /// Splits an interval that cannot be read as a whole. Each half may be readable, because two members rarely lose
    /// the same sector. If one half fails, the other is written anyway: the halves may belong to different requests.
    async fn write_halves(&self, map: &RowMap, interval: &Interval, fua: Fua) -> Result<Recorded, Vec<FailedPart>> {
        mark::hit(Mark::RowHalved);
        assert!(interval.length > Sectors(1), "a sector has no halves");
        let half = Sectors(interval.length.0 / 2);
        let first = self.write_interval(map, interval.part(Sectors::ZERO, half), fua).await;
        let rest = interval.part(half, interval.length - half);
        let second = match &first {
            // Write nothing more to an array that froze over the first half.
            Err(failed) if matches!(self.shared.view().gate, Gate::Frozen(_)) => {
                Err(vec![FailedPart { start: rest.start, length: rest.length, ..failed[0] }])
            }
            Ok(_) | Err(_) => self.write_interval(map, rest, fua).await,
        };
        match (first, second) {
            (Ok(_first), second) => second,
            (Err(first), Ok(_second)) => Err(first),
            (Err(first), Err(second)) => Err([first, second].concat()),
        }
    }

    async fn write_blocks(
        &self,
        map: &RowMap,
        interval: Interval,
        parity: NewParity,
        view: &View,
        fua: Fua,
        room: Permit,
    ) -> Result<Recorded, IoError> {
        let at = map.start + interval.start;
        let torn = interval.start..interval.start + interval.length;
        assert!(interval.new.iter().all(|new| new.from.length() == interval.length));
        assert!(map.syndrome.is_some() || parity.q.is_none(), "only raid6 has Q");
        for pieces in [&parity.p, &parity.q].into_iter().flatten() {
            assert_eq!(pieces.length(), interval.length, "parity is as long as the data");
        }
        let logged = self.log(map, &interval, &parity, view).await?;
        let is_hole = interval.is_hole;
        let of_data = interval.new.into_iter().map(|new| (map.data[new.data], new.from));
        let of_parity = [(Some(map.parity), parity.p), (map.syndrome, parity.q)].into_iter();
        let of_parity = of_parity.filter_map(|(slot, pieces)| slot.zip(pieces.map(ReadPieces::freeze)));
        let blocks = of_data.chain(of_parity).filter(|(slot, _)| view.writable().contains(*slot));
        // A member that has taken the slot since the plan gets the write, and the one before it does not: so the answer
        // waits for what either view has not recorded.
        let planned = Recorded::by(view);
        let (recorded, writes) = self.shared.with_view(|view| {
            let mut writes: SmallVec<[(MemberRun, WritePieces); 3]> = SmallVec::new();
            for (slot, from) in blocks {
                if let Some(replacement) = view.replacement(slot) {
                    writes.push((MemberRun::of(slot, &replacement, at, from.length()), from.clone()));
                }
                writes.push((MemberRun::by(view, slot, at, from.length()), from));
            }
            (planned.and(Recorded::by(view)), writes)
        });
        let outcomes = join_each(
            writes.into_iter().map(|(run, from)| async move { self.write_or_punch(&run, from, fua, is_hole).await }),
        );
        let failures: Vec<Failure> = outcomes.await.filter_map(Result::err).collect();
        // Give back the memory and the permit: other rows need not wait for the record of this one.
        drop(room);
        let outcome = match recorded {
            Some(recorded) if failures.is_empty() => Ok(recorded),
            recorded => Box::pin(self.settle_row(map.row, torn, recorded, &failures)).await,
        };
        // Until the superblocks say that a member missed this write, a crash could leave it in the array with old data.
        drop(logged);
        outcome
    }

    /// Writes a block, or makes it a hole if it is zeroes that are to take no space.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    fn write_or_punch(
        &self,
        run: &MemberRun,
        from: WritePieces,
        fua: Fua,
        is_hole: bool,
    ) -> impl Future<Output = Result<(), Failure>> {
        async move {
            if is_hole && from.iter().all(|piece| blank::is_zeroes(piece)) {
                assert_eq!(fua, Fua::No, "no write with FUA is a hole");
                // Boxed to keep the future of a write small.
                return Box::pin(Zeroing::Punch.run(&self.shared, run)).await;
            }
            self.shared.write_run(run, from, fua).await
        }
    }

    /// Records the failures of writes to a part of a row. If that fails, the part is torn.
    async fn settle_row(
        &self,
        row: Row,
        part: Range<Sectors>,
        recorded: Option<Recorded>,
        failures: &[Failure],
    ) -> Result<Recorded, IoError> {
        let outcome = self.shared.settle_planned(recorded, failures).await;
        if matches!(outcome, Err(NotRecorded::Frozen(_))) {
            mark::hit(Mark::RowTorn);
            // Some blocks of the row are new and some are old: blocks that missed the write do not match the others.
            self.shared.torn.mark_row(row, part, failures.iter().map(|failure| failure.slot).collect());
        }
        Ok(outcome?)
    }

    /// Reads the wanted blocks of one interval, all members at once. Returns the slots that failed.
    async fn read_blocks(
        &self,
        map: &RowMap,
        wanted: SlotSet,
        at: MemberSector,
        length: Sectors,
    ) -> Result<OldBytes, Vec<ReadError>> {
        let mut old = OldBytes::default();
        old.data.resize_with(map.data.len(), || None);
        if wanted.is_empty() {
            return Ok(old);
        }
        let (p, q) = (map.data.len(), map.data.len() + 1);
        let slots = map.data.iter().copied().chain([map.parity]).chain(map.syndrome);
        // Take all scratch first, then start the reads.
        let mut reads: SmallVec<[(usize, Slot, ReadPieces); 3]> = SmallVec::new();
        for (place, slot) in (0..).zip(slots).filter(|(_, slot)| wanted.contains(*slot)) {
            reads.push((
                place,
                slot,
                buffers::one_piece(buffers::take_contiguous(&self.shared.world, Pool::Row, length).await),
            ));
        }
        assert_eq!(reads.len(), wanted.count(), "the wanted blocks are of this row");
        let reads = reads.into_iter();
        let outcomes = join_each(reads.map(|(place, slot, into)| async move {
            match self.shared.run_to_read(slot, at, into.length()) {
                Ok(run) => (place, self.shared.read_run(&run, into).await),
                Err(error) => (place, Err(error)),
            }
        }));
        let mut failures = Vec::new();
        for (place, outcome) in outcomes.await {
            match outcome {
                Ok(block) if place == p => old.p = Some(block),
                Ok(block) if place == q => old.q = Some(block),
                Ok(block) => old.data[place] = Some(block),
                Err(failed) => failures.push(failed),
            }
        }
        if failures.is_empty() { Ok(old) } else { Err(failures) }
    }

    /// `healed`: slots whose data could not be read, in a row that is not in sync. Their data is computed, and the
    /// parity is made from it. So the computed data is written, too, as the resync would do. `agrees`: whether to look
    /// if P and Q agree about the block that is computed, and then whether they do.
    async fn new_parity(
        &self,
        map: &RowMap,
        interval: &mut Interval,
        plan: RowPlan,
        old: OldBytes,
        healed: SlotSet,
        agrees: &mut bool,
    ) -> NewParity {
        let length = interval.length;
        match plan {
            RowPlan::DataOnly => NewParity::default(),
            RowPlan::FullStripe => {
                self.shared.count(|counters| counters.rows_full += 1);
                generate(&self.shared.world, map, interval, &old).await
            }
            RowPlan::ReadModifyWrite => unreachable!("the old parity is modified in place"),
            RowPlan::Reconstruct => {
                self.shared.count(|counters| counters.rows_reconstructed += 1);
                generate(&self.shared.world, map, interval, &old).await
            }
            RowPlan::Recover => {
                mark::hit(Mark::RowRecovered);
                self.shared.count(|counters| counters.rows_reconstructed += 1);
                let mut all = recover_blocks(&self.shared.world, map, old, length, Pool::Row).await;
                *agrees = *agrees && parities_agree(map, &all);
                let parity = generate(&self.shared.world, map, interval, &all).await;
                for data in (0..map.data.len()).filter(|data| healed.contains(map.data[*data])) {
                    let block = all.data[data].take().expect("all blocks are known");
                    let from = buffers::one_piece(block).freeze();
                    interval.new.push(Segment { data, start: interval.start, from });
                }
                parity
            }
            RowPlan::Impossible => unreachable!("an impossible plan has no reads"),
        }
    }

    /// Notes which members did not supply their blocks. A read that was cut, because its member does not answer now,
    /// does not count as an error of the member.
    async fn note_failed_reads(
        &self,
        failures: Vec<ReadError>,
        unreadable: &mut SlotSet,
        late: &mut SlotSet,
        read_errors: &mut Vec<ReadError>,
    ) -> Result<(), IoError> {
        assert!(!failures.is_empty(), "a read failed");
        for failed in failures {
            if failed.error.kind == ErrorKind::Late {
                late.insert(failed.slot);
                continue;
            }
            self.shared.note_read_failure(failed.failure()).await?;
            *unreadable = unreadable.or(self.shared.still_of(&failed.failure()));
            read_errors.push(failed);
        }
        Ok(())
    }
}

/// The longest interval that is read: one contiguous piece of scratch per member. `log_room`: the longest stretch that is
/// logged with its parity.
pub(crate) fn partial_max(layout: &ParityLayout, log_room: Option<Sectors>) -> Sectors {
    assert!(!layout.chunk().is_zero(), "a row has chunks");
    let longest = layout.chunk().0.min((LARGE_BLOCK_BYTES / uraid_block::SECTOR_BYTES) as u64);
    Sectors(log_room.map_or(longest, |room| room.0.min(longest)))
}

/// The longest interval of full stripes: its parity fits into the scratch that a partial interval of this width takes.
pub(crate) fn full_max(layout: &ParityLayout) -> Sectors {
    let pieces = u64::from(layout.slots() / 2).max(1);
    Sectors(layout.chunk().0.min(pieces * (LARGE_BLOCK_BYTES / uraid_block::SECTOR_BYTES) as u64))
}

/// The most blocks of the row arena that an interval takes.
fn interval_blocks(layout: &ParityLayout) -> usize {
    usize::from(layout.slots()) + 2
}

/// The blocks of a row under `view`. Those in `unreadable` cannot be read for these sectors.
fn blocks(map: &RowMap, view: &View, unreadable: SlotSet) -> Blocks {
    blocks_of(map, view.writable(), view.readable().minus(unreadable))
}

fn lost_error(unreadable: SlotSet) -> IoError {
    if unreadable.is_empty() { ErrorKind::TooManyLost } else { ErrorKind::Media }.into()
}
