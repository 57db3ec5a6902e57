//! One array on one shard: the entry point for requests and for mail.
//! Owns: [`Array`], admission, calls between shards. Not here: what a request does (`read`, `mirror`, `row`), who
//! changes the view (`steward`).
//! Invariant: a request is counted in its epoch from admission to answer, and waits for no drain meanwhile.

use crate::balance::Balance;
use crate::calls::Calls;
use crate::config::Config;
use crate::epochs::Epochs;
use crate::failure::{Failure, RequestKind};
use crate::gather::Streams;
use crate::mail::{Answer, Call, Mail, Message, RowWrite, STEWARD};
use crate::mark::{self, Mark};
use crate::master::Master;
use crate::member_counts::{CountedMember, MemberCounts};
use crate::range_lock::RangeLock;
use crate::read::OnePlace;
use crate::recorded::{FailureOutcome, Recorded};
use crate::row::Rows;
use crate::sabotage::{self, Sabotage};
use crate::steward::Steward;
use crate::torn::Torn;
use crate::verdict::Verdict;
use crate::view::{Copies, Gate, SlotMap, View};
use crate::world::{Pool, World};
use crate::{MemberPlan, Place, StartPlan};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use uraid_block::local::Notify;
use uraid_block::{
    Allocation, ArrayRange, ArraySector, Device, ErrorKind, Fua, Geometry, IoError, MemberSector, Range, ReadPieces,
    Sector, Sectors, Slot, SlotSet, WritePieces,
};
use uraid_layout::{CopyChoice, Layout, RowPart};

/// The largest request a client is told to send.
const IO_MAX_BYTES: u64 = 32 << 20;

/// In a superblock's `devflags`: read this member last.
const WRITE_MOSTLY: u8 = 1;

/// Writes of copies are locked in blocks of 2 to this power sectors: 64 KiB.
const LOCK_BITS: u32 = 7;

/// What never changes while the array is open.
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    pub(crate) geometry: Geometry,
}

/// What the request paths count, per shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Reads served.
    pub reads: u64,
    /// Writes, zeroes and discards served.
    pub writes: u64,
    /// Rows written without reading.
    pub rows_full: u64,
    /// Row parts written by read-modify-write.
    pub rows_modified: u64,
    /// Row parts written after reading the rest of their row.
    pub rows_reconstructed: u64,
    /// Row parts read by computing what a lost member held.
    pub rows_recovered: u64,
    /// Writes that the row's holder wrote together with its own.
    pub writes_absorbed: u64,
    /// Reads that failed on one member and were served by others.
    pub reads_retried: u64,
    /// Member reads that failed on the medium.
    pub read_errors: u64,
}

/// One array, as one shard drives it. There is one on every shard, all made from the same plan.
pub struct Array<W: World> {
    pub(crate) world: W,
    pub(crate) shape: Arc<Shape>,
    pub(crate) members: Vec<CountedMember<W>>,
    pub(crate) config: Config,
    view: RefCell<Rc<View>>,
    pub(crate) view_changed: Notify,
    pub(crate) epochs: Epochs,
    pub(crate) calls: Calls<W>,
    pub(crate) writes_admitted: Cell<u64>,
    pub(crate) watches_reads: Cell<bool>,
    /// How often slow members have answered again.
    pub(crate) members_returned: Cell<u32>,
    pub(crate) balance: Balance,
    pub(crate) streams: Streams,
    pub(crate) rows: Rows,
    /// Of levels with copies: sectors of the array. Of parity levels: rows.
    pub(crate) locks: RangeLock,
    pub(crate) torn: Torn,
    pub(crate) counters: Cell<Counters>,
    pub(crate) steward: Option<Steward>,
}

impl<W: World> Array<W> {
    /// The array of `plan` on this shard; `members[i]` drives `plan.members[i]`. Nothing is read or written yet:
    /// requests wait until `start` on shard 0 opens the gate. Panics if `members` does not fit the plan or the row
    /// arena cannot hold one row: both are mistakes of the caller.
    pub fn new(world: W, plan: &StartPlan, members: Vec<W::Member>, mut config: Config) -> Rc<Array<W>> {
        config.read_only |= plan.read_only.is_some();
        assert_eq!(plan.members.len(), members.len());
        let master = Master::new(plan);
        let view = master.view();
        let shape = Arc::new(shape_of::<W>(plan, &view.slots, &members));
        let locks = match &shape.layout {
            Layout::Parity(_) => RangeLock::new(0, Mark::RowWaited),
            Layout::Copies(_) => RangeLock::new(LOCK_BITS, Mark::LockWaited),
        };
        let is_write_mostly = |member: &&MemberPlan| member.superblock.devflags & WRITE_MOSTLY != 0;
        let write_mostly =
            plan.members.iter().filter(is_write_mostly).filter_map(|member| slot_of(&member.place)).collect();
        let blocks = world.arena(Pool::Row).large_blocks();
        let steward = (world.shard() == STEWARD).then(|| Steward::new(master));
        let members = members.into_iter().enumerate();
        let members = members.map(|(index, member)| CountedMember::new(world.clone(), member, index)).collect();
        Rc::new(Array {
            rows: Rows::new(blocks, usize::from(shape.layout.slots()) + 2),
            locks,
            torn: Torn::default(),
            epochs: Epochs::new(view.epoch),
            view: RefCell::new(Rc::new(view)),
            view_changed: Notify::new(),
            calls: Calls::new(world.clone()),
            writes_admitted: Cell::new(0),
            watches_reads: Cell::new(false),
            members_returned: Cell::new(0),
            balance: Balance::new(shape.layout.slots(), write_mostly, world.shard().0),
            streams: Streams::new(),
            counters: Cell::default(),
            steward,
            world,
            shape,
            members,
            config,
        })
    }

    /// This shard's current view. Do not keep it across an await.
    pub fn view(&self) -> Rc<View> {
        self.view.borrow().clone()
    }

    /// Calls `look` with this shard's current view, without cloning it.
    #[inline]
    pub(crate) fn with_view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.view.borrow())
    }

    /// What this shard's request paths have counted.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// This shard's counts of requests to each member of the plan.
    pub fn member_counts(&self) -> Vec<MemberCounts> {
        self.members.iter().map(CountedMember::counts).collect()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// The member in a slot.
    #[inline]
    pub(crate) fn member(&self, slot: Slot) -> &CountedMember<W> {
        &self.members[self.with_view(|view| view.member(slot).index)]
    }

    /// Where a member's sector lies on its device.
    #[inline]
    pub(crate) fn on_device(&self, slot: Slot, at: MemberSector) -> Sector {
        self.with_view(|view| view.member(slot).data_offset) + Sectors(at.0)
    }

    /// The member in a slot, and where a run on it lies on its device.
    #[inline]
    pub(crate) fn run_on_device(&self, slot: Slot, at: MemberSector, length: Sectors) -> (&CountedMember<W>, Range) {
        let member = self.with_view(|view| view.member(slot));
        (&self.members[member.index], member.range(at, length))
    }

    pub(crate) fn is_redundant(&self) -> bool {
        self.shape.layout.level().is_redundant()
    }

    /// Makes `view` the one that requests enter with. Requests already inside keep their epoch and look members up
    /// anew. If they wait for a member that the view leaves out, they are answered now.
    pub(crate) fn switch(&self, view: View) {
        self.epochs.switch(view.epoch);
        if view.gate == Gate::Open && self.with_view(|before| before.gate != Gate::Open) {
            self.torn.clear();
        }
        let failed = self.with_view(|before| before.writable().minus(view.writable()));
        self.view.replace(Rc::new(view));
        // Some sabotages do harm only if a failed member continues to work.
        let goes_on = [Sabotage::WaitForDead, Sabotage::FlushTogether, Sabotage::StaleRead];
        if !goes_on.into_iter().any(sabotage::is) {
            failed.iter().for_each(|slot| self.member(slot).mark_dead());
        }
        self.view_changed.notify_all();
    }

    /// Takes mail from a shard of the same array. The world calls this for each piece of mail, in order.
    pub fn deliver(self: &Rc<Self>, mail: Mail) {
        match mail.0 {
            Message::Answer { id, answer } => {
                self.calls.answer(id, answer);
            }
            Message::Errors(report) => self.steward().health.note(&report),
            Message::Call { id, from, call } => {
                // A view takes effect at once and in order. All other calls run as tasks.
                if let Call::Switch(view) = call {
                    let serves = matches!(view.gate, Gate::Open | Gate::ReadOnly);
                    self.switch(view);
                    if serves {
                        self.begin_watching_reads();
                    }
                    self.world.post(from, Mail(Message::Answer { id, answer: Answer::Done }));
                    return;
                }
                let array = self.clone();
                self.world.spawn(async move {
                    let answer = array.answer(call).await;
                    array.world.post(from, Mail(Message::Answer { id, answer }));
                });
            }
        }
    }

    async fn answer(&self, call: Call) -> Answer {
        match call {
            Call::Switch(_) => unreachable!("a view is switched on arrival"),
            Call::Drain(epoch) => {
                self.epochs.drain(epoch).await;
                Answer::Done
            }
            Call::SetTorn { row, start, state } => {
                self.torn.set_state(row, start, state);
                Answer::Done
            }
            Call::Torn => Answer::Torn(self.torn.parts()),
            Call::CountWrites => Answer::Count(self.writes_admitted.get()),
            Call::NeedDirty => Answer::Dirty(self.need_dirty().await),
            Call::Fail(failures) => Answer::Failed(self.fail_members(&failures).await),
            Call::ReadErrors { errors, made_up } => {
                self.count_read_errors(&errors, made_up).await;
                Answer::Done
            }
            Call::Flush => Answer::Settled(self.flush_round().await),
            Call::Lock(range) => Answer::Locked(self.locks.lock(range).await),
            Call::Unlock(id) => {
                self.locks.unlock(id);
                Answer::Done
            }
            Call::WriteRow(write) => Answer::Settled(self.write_row_owned(write).await),
            Call::ReadRow(read) => Answer::Read(self.read_row_owned(read).await),
        }
    }

    /// Makes sure that superblocks record the members that a request did not reach: its own `failures`, and the members
    /// that `view`, under which its members were chosen, had left out already.
    #[inline]
    pub(crate) async fn settle(&self, view: &View, failures: &[Failure]) -> Result<Recorded, IoError> {
        match Recorded::by(view) {
            Some(recorded) if failures.is_empty() => Ok(recorded),
            Some(_) | None => Box::pin(self.report(failures)).await.into_recorded(),
        }
    }

    /// Reports failed members to the steward and waits until the superblocks of the others record them. Failures that
    /// the verdict ignores are dropped. With no failures, waits until every failure known already is recorded.
    pub(crate) async fn report(&self, failures: &[Failure]) -> FailureOutcome {
        let mut grave = Vec::new();
        let mut answer = FailureOutcome::Recorded;
        for failure in failures {
            match self.verdict(failure) {
                Verdict::FailOrFreeze | Verdict::Freeze => grave.push(*failure),
                Verdict::ReadElsewhere => {}
                Verdict::FailRequest => {
                    mark::hit(Mark::RequestFailed);
                    answer = FailureOutcome::Frozen(failure.error);
                }
            }
        }
        if grave.is_empty() && !failures.is_empty() {
            return answer;
        }
        if sabotage::is(Sabotage::SkipRecord) {
            return FailureOutcome::Recorded;
        }
        self.calls.call(STEWARD, Call::Fail(grave)).await.failed()
    }

    pub(crate) fn check(&self, at: Sector, length: Sectors) -> Result<ArrayRange, IoError> {
        let end = at.0.checked_add(length.0).filter(|end| *end <= self.shape.geometry.size.0);
        match end {
            Some(_) => Ok(ArrayRange::new(ArraySector(at.0), length)),
            None => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// Which copy to read: the best placed if all are equal, else the one that a resync copies from.
    #[inline]
    pub(crate) fn copy_choice(&self, view: &View, range: ArrayRange, usable: &SlotSet) -> CopyChoice {
        let is_canonical = view.copies == Copies::Canonical && !sabotage::is(Sabotage::NonCanonicalRead);
        if is_canonical || self.shape.layout.copies_count() == 1 || range.length.is_zero() {
            return CopyChoice::First;
        }
        CopyChoice::Nth(self.balance.choose(&self.shape.layout, range, usable))
    }

    /// Requests of this shard that are inside an epoch.
    pub fn requests_in_flight(&self) -> u64 {
        self.epochs.in_flight()
    }
}

/// The array as a device. The caller must drive a request's future to its end: if a write is dropped half way, no
/// superblock records which members have it. (A frontend runs each request as a task of its own.)
impl<W: World> Device for Array<W> {
    fn geometry(&self) -> &Geometry {
        &self.shape.geometry
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        let range = self.check(at, into.length())?;
        if range.length.is_zero() {
            return Ok(into);
        }
        let _inside = self.admit_read().await?;
        // The usual case is one piece on a healthy member: it is submitted at once. All other cases are boxed to keep
        // the future of every read small.
        let outcome = match self.one_place(range) {
            Ok(OnePlace { slot, at, member }) if !self.balance.is_slow(slot) => {
                let _in_flight = self.balance.begin(slot);
                let of_member = member.range(at, range.length);
                let member = &self.members[member.index];
                let begun = member.begin();
                match member.uncounted().read(of_member.start, into).await {
                    Err(error) => {
                        member.end(&begun, RequestKind::Read, of_member, Some(error));
                        let failed = self.read_error(slot, at, range.length, error);
                        Box::pin(self.read_around(range, failed)).await
                    }
                    Ok(pieces) => {
                        member.end(&begun, RequestKind::Read, of_member, None);
                        Ok(pieces)
                    }
                }
            }
            Ok(OnePlace { slot, .. }) => Box::pin(self.read_beside(range, into, slot)).await,
            Err(choice) => Box::pin(self.read_pieces(range, into, choice)).await,
        };
        if sabotage::is(Sabotage::Leak) {
            std::mem::forget(self.world.arena(Pool::Request).take(1));
        }
        self.count(|counters| counters.reads += 1);
        outcome
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let range = self.check(at, from.length())?;
        if range.length.is_zero() {
            return Ok(());
        }
        let _permit = self.admit_write(range).await?;
        let fua = if sabotage::is(Sabotage::SkipFua) { Fua::No } else { fua };
        let outcome = if self.shape.layout.level().is_parity() {
            let hold_time = self.hold_time_after(range);
            let before = sabotage::is(Sabotage::RowFlushByOldView).then(|| self.with_view(|view| view.readable()));
            let outcome = match self.only_own_row(range) {
                Some(RowPart { row, start, .. }) => {
                    // Pinned here, the future is driven where it was made. Awaiting it by value first moves 1.7 KiB.
                    pin!(self.write_row_owned(RowWrite { row, start, from, fua, hold_time })).await
                }
                None => Box::pin(self.write_rows(range, from, fua, hold_time)).await,
            };
            self.streams.note_answered(range);
            match outcome {
                // Cold path, so boxed.
                Ok(recorded) if fua == Fua::Yes => {
                    let usable = before.unwrap_or_else(|| self.with_view(|view| view.readable()));
                    Box::pin(self.flush_missing_data(range, usable, recorded)).await
                }
                Ok(_) | Err(_) => outcome,
            }
        } else {
            self.write_copies(range, &from, fua).await
        };
        self.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }

    async fn flush(&self) -> Result<(), IoError> {
        let _inside = self.admit_read().await?;
        if sabotage::is(Sabotage::SkipFlush) {
            return Ok(());
        }
        self.flush_members().await.map(|_recorded: Recorded| ())
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() || self.shape.geometry.discard_granularity.is_zero() {
            return Ok(());
        }
        let _permit = self.admit_write(range).await?;
        let outcome = self.discard_copies(range).await;
        self.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(Allocation { length: Sectors::ZERO, is_zero: false });
        }
        let _inside = self.admit_read().await?;
        self.allocation_of(range).await
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(());
        }
        let _permit = self.admit_write(range).await?;
        let outcome = if self.shape.layout.level().is_parity() {
            self.zero_rows(range).await
        } else {
            self.zero_copies(range).await
        };
        self.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }
}

fn shape_of<W: World>(plan: &StartPlan, slots: &SlotMap, members: &[W::Member]) -> Shape {
    let layout = plan.layout.clone();
    let stripe = layout.stripe();
    let largest = IO_MAX_BYTES / uraid_block::SECTOR_BYTES as u64;
    // A client that cuts at the largest request then cuts on stripe edges: 24 sectors a stripe -> 65520, not 65536.
    let io_max = if stripe.0 == 0 || stripe.0 > largest { largest } else { largest / stripe.0 * stripe.0 };
    let active = || slots.members().map(|member| members[member.index].geometry());
    let can_discard = !layout.level().is_parity() && active().all(|member| !member.discard_granularity.is_zero());
    let geometry = Geometry {
        size: layout.array_size() + if sabotage::is(Sabotage::SizePastEnd) { layout.chunk() } else { Sectors::ZERO },
        logical_block: Sectors(1),
        physical_block: active().map(|member| member.physical_block).max().unwrap_or(Sectors(1)),
        chunk: layout.chunk(),
        stripe,
        io_max: Sectors(io_max),
        segments_max: 1024,
        discard_granularity: if can_discard { Sectors(1) } else { Sectors::ZERO },
        zeroes_after_discard: false,
        volatile_cache: true,
    };
    Shape { layout, geometry }
}

fn slot_of(place: &Place) -> Option<Slot> {
    match place {
        Place::Slot(slot) => Some(*slot),
        Place::Spare => None,
    }
}
