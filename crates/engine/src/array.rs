//! One array on one shard: the entry point for requests and for mail.
//! Owns: [`Array`], admission, calls between shards. Not here: what a request does (`read`, `mirror`, `row`), who
//! changes the view (`steward`).
//! Invariant: a request is counted in its epoch from admission to answer, and waits for no drain meanwhile.

use crate::balance::Balance;
use crate::gather::Streams;
use crate::holds::Holds;
use crate::mail::{Answer, Call, CallId, Failure, Mail, Message, RowWrite};
use crate::mark::{self, Mark};
use crate::member_counts::{CountedMember, MemberCounts, RequestKind};
use crate::row::Rows;
use crate::sabotage::{self, Sabotage};
use crate::steward::{Condemned, Recorded, Steward};
use crate::torn::Torn;
use crate::verdict::{OnFull, Operation, Verdict};
use crate::view::{Admission, Copies, Epoch, Epochs, Gate, View, Wish};
use crate::{MemberPlan, Place, Pool, StartPlan, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::{Notify, Receiver, Sender, join_all, oneshot};
use uraid_block::{
    Allocation, ArrayRange, ArraySector, Device, ErrorKind, Fua, Geometry, IoError, MemberSector, Range, ReadPieces,
    Sector, Sectors, ShardIndex, Slot, SlotSet, WritePieces,
};
use uraid_layout::{CopyChoice, Layout, RowPart};

/// The shard that the steward runs on.
pub(crate) const STEWARD: ShardIndex = ShardIndex(0);
/// The largest request a client is told to send.
const IO_MAX_BYTES: u64 = 32 << 20;

/// In a superblock's `devflags`: read this member last.
const WRITE_MOSTLY: u8 = 1;

/// Tunable settings. Every limit is set at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Open for reading only; no member is written.
    pub read_only: bool,
    /// How long an array must be without a write before it is marked clean (md: safe_mode_delay).
    pub clean_after: Duration,
    /// Serve a dirty read-only mirror from another copy if the canonical one cannot be read.
    pub force: bool,
    /// A member with more read errors than this is failed if the array can serve without it (md: max_read_errors). The
    /// count is halved for each hour without an error. 0: never.
    pub read_errors_max: u32,
    /// How long a member's failure is held before it is judged, to collect failures that happen together, as when a
    /// controller or a cable fails. If more members fail than the level tolerates, the array freezes and fails none of
    /// them.
    pub collect_failures: Duration,
    /// What happens to a member that has no room for a write.
    pub on_full: OnFull,
}

/// md's limit for mirrors. On its parity levels the limit is the number of stripes in the stripe cache.
const READ_ERRORS_MAX: u32 = 20;

/// A controller that is reset returns the requests of all its disks within about ten milliseconds, and busy shards
/// report them no later than that. A client waits this long once for each failed member; the disk itself took longer to
/// fail.
const COLLECT_FAILURES: Duration = Duration::from_millis(200);

impl Default for Config {
    fn default() -> Config {
        Config {
            read_only: false,
            clean_after: Duration::from_millis(200),
            force: false,
            read_errors_max: READ_ERRORS_MAX,
            collect_failures: COLLECT_FAILURES,
            on_full: OnFull::Freeze,
        }
    }
}

/// What never changes while the array is open.
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    /// For each slot, the index of its member in the list of members.
    pub(crate) members: Vec<Option<usize>>,
    /// First data sector of each member.
    pub(crate) data_offsets: Vec<Sector>,
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
    epochs: Epochs,
    calls: RefCell<BTreeMap<CallId, Sender<Answer>>>,
    next_call: Cell<u64>,
    writes_admitted: Cell<u64>,
    pub(crate) watches_reads: Cell<bool>,
    /// How often slow members have answered again.
    pub(crate) members_returned: Cell<u32>,
    pub(crate) balance: Balance,
    pub(crate) streams: Streams,
    pub(crate) rows: Rows,
    pub(crate) holds: Holds,
    pub(crate) torn: Torn,
    pub(crate) counters: Cell<Counters>,
    pub(crate) steward: Option<Steward>,
}

/// A request inside its epoch. Dropping it leaves the epoch.
pub(crate) struct Entered<'a, W: World> {
    array: &'a Array<W>,
    epoch: Epoch,
}

impl<W: World> Drop for Entered<'_, W> {
    fn drop(&mut self) {
        self.array.epochs.leave(self.epoch);
    }
}

impl<W: World> Array<W> {
    /// The array of `plan` on this shard; `members[i]` drives `plan.members[i]`. Nothing is read or written yet:
    /// requests wait until `start` on shard 0 opens the gate. Panics if `members` does not fit the plan or the row
    /// arena cannot hold one row: both are mistakes of the caller.
    pub fn new(world: W, plan: &StartPlan, members: Vec<W::Member>, mut config: Config) -> Rc<Array<W>> {
        config.read_only |= plan.read_only.is_some();
        assert_eq!(plan.members.len(), members.len());
        let shape = Arc::new(shape_of::<W>(plan, &members));
        let usable = plan.members.iter().filter_map(|member| slot_of(&member.place)).collect();
        let view = View {
            epoch: Epoch(0),
            usable,
            gate: Gate::Closed,
            takes_writes: false,
            copies: if plan.is_dirty { Copies::Canonical } else { Copies::Any },
            is_recorded: true,
        };
        let is_write_mostly = |member: &&MemberPlan| member.superblock.devflags & WRITE_MOSTLY != 0;
        let write_mostly =
            plan.members.iter().filter(is_write_mostly).filter_map(|member| slot_of(&member.place)).collect();
        let blocks = world.arena(Pool::Row).large_blocks();
        let steward = (world.shard() == STEWARD).then(|| Steward::new(plan, &view));
        let members = members.into_iter().enumerate();
        let members = members.map(|(index, member)| CountedMember::new(world.clone(), member, index)).collect();
        Rc::new(Array {
            rows: Rows::new(blocks, usize::from(shape.layout.slots()) + 2),
            holds: Holds::default(),
            torn: Torn::default(),
            epochs: Epochs::new(view.epoch),
            view: RefCell::new(Rc::new(view)),
            view_changed: Notify::new(),
            calls: RefCell::default(),
            next_call: Cell::new(0),
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

    /// The member in a slot. Panics for a slot that was empty when the array was assembled: no view trusts such a slot.
    #[inline]
    pub(crate) fn member(&self, slot: Slot) -> &CountedMember<W> {
        &self.members[self.shape.members[slot.index()].expect("a usable slot has a member")]
    }

    /// Where a member's sector lies on its device.
    #[inline]
    pub(crate) fn on_device(&self, slot: Slot, at: MemberSector) -> Sector {
        let member = self.shape.members[slot.index()].expect("a usable slot has a member");
        self.shape.data_offsets[member] + Sectors(at.0)
    }

    pub(crate) fn is_redundant(&self) -> bool {
        self.shape.layout.level().is_redundant()
    }

    /// Waits until the view lets the request in.
    #[inline]
    pub(crate) async fn enter(&self, wish: Wish) -> Result<Entered<'_, W>, IoError> {
        match self.with_view(|view| view.admit(wish)) {
            Admission::Enter => Ok(self.admit(wish)),
            // Cold path, boxed to keep the request future small.
            Admission::WaitForGate | Admission::NeedsDirtyMark | Admission::Refused(_) => {
                Box::pin(self.wait_to_enter(wish)).await
            }
        }
    }

    #[inline]
    fn admit(&self, wish: Wish) -> Entered<'_, W> {
        if wish == Wish::Write {
            self.writes_admitted.set(self.writes_admitted.get() + 1);
        }
        Entered { array: self, epoch: self.epochs.enter() }
    }

    /// The cold path of `enter`. A write that needs the dirty mark asks the steward for it, outside of any epoch.
    async fn wait_to_enter(&self, wish: Wish) -> Result<Entered<'_, W>, IoError> {
        loop {
            let (admission, seen) = self.with_view(|view| (view.admit(wish), view.epoch));
            match admission {
                Admission::Enter => return Ok(self.admit(wish)),
                Admission::WaitForGate => {
                    self.view_changed.wait_for(|| (self.view.borrow().epoch > seen).then_some(())).await;
                }
                Admission::NeedsDirtyMark => self.call(STEWARD, Call::NeedDirty).await.dirty()?,
                Admission::Refused(error) => return Err(error),
            }
        }
    }

    /// Makes `view` the one that requests enter with. Requests already inside keep their epoch and look members up
    /// anew. If they wait for a member that the view leaves out, they are answered now.
    pub(crate) fn switch(&self, view: View) {
        self.epochs.switch(view.epoch);
        if view.gate == Gate::Open && self.with_view(|before| before.gate != Gate::Open) {
            self.torn.clear();
        }
        let failed = self.with_view(|before| before.usable.minus(view.usable));
        self.view.replace(Rc::new(view));
        // Some sabotages do harm only if a failed member continues to work.
        let goes_on = [Sabotage::WaitForDead, Sabotage::FlushTogether, Sabotage::StaleRead];
        if !goes_on.into_iter().any(sabotage::is) {
            failed.iter().for_each(|slot| self.member(slot).mark_dead());
        }
        self.view_changed.notify_all();
    }

    /// Calls another shard, or this one, and waits for the answer.
    pub(crate) async fn call(&self, to: ShardIndex, call: Call) -> Answer {
        self.start_call(to, call).await.expect("every call is answered")
    }

    /// Sends a call now; its answer comes later.
    pub(crate) fn start_call(&self, to: ShardIndex, call: Call) -> Receiver<Answer> {
        let id = CallId(self.next_call.get());
        self.next_call.set(id.0 + 1);
        let (sender, receiver) = oneshot();
        self.calls.borrow_mut().insert(id, sender);
        self.world.post(to, Mail(Message::Call { id, from: self.world.shard(), call }));
        receiver
    }

    /// Calls all shards, this one too. Returns the answers in their order.
    pub(crate) async fn call_all(&self, call: impl Fn() -> Call) -> Vec<Answer> {
        let shards = (0..self.world.shards()).map(ShardIndex);
        let calls: Vec<_> = shards.map(|shard| self.start_call(shard, call())).collect();
        join_all(calls).await.into_iter().map(|answer| answer.expect("every call is answered")).collect()
    }

    /// Takes mail from a shard of the same array. The world calls this for each piece of mail, in order.
    pub fn deliver(self: &Rc<Self>, mail: Mail) {
        match mail.0 {
            Message::Answer { id, answer } => {
                let waiting = self.calls.borrow_mut().remove(&id).expect("an answer belongs to a call");
                waiting.send(answer);
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
            Call::Condemn(failures) => Answer::Condemned(self.condemn(&failures).await),
            Call::ReadErrors { errors, made_up } => {
                self.count_read_errors(&errors, made_up).await;
                Answer::Done
            }
            Call::Flush => Answer::Settled(self.flush_round().await),
            Call::Hold(range) => Answer::Held(self.holds.hold(range).await),
            Call::Release(id) => {
                self.holds.release(id);
                Answer::Done
            }
            Call::WriteRow(write) => Answer::Settled(self.write_row_owned(write).await),
            Call::ReadRow(read) => Answer::Read(self.read_row_owned(read).await),
        }
    }

    /// Reports failed members to the steward and waits until the superblocks of the others record them. Failures that
    /// the verdict ignores are dropped. With no failures, waits until every failure known already is recorded.
    pub(crate) async fn report(&self, failures: &[Failure]) -> Condemned {
        let mut grave = Vec::new();
        let mut answer = Condemned::Recorded;
        for failure in failures {
            match self.verdict(failure) {
                Verdict::CondemnOrFreeze | Verdict::Freeze => grave.push(*failure),
                Verdict::ReadElsewhere => {}
                Verdict::FailRequest => {
                    mark::hit(Mark::RequestFailed);
                    answer = Condemned::Frozen(failure.error);
                }
            }
        }
        if grave.is_empty() && !failures.is_empty() {
            return answer;
        }
        if sabotage::is(Sabotage::SkipRecord) {
            return Condemned::Recorded;
        }
        self.call(STEWARD, Call::Condemn(grave)).await.condemned()
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
/// superblock records which members have it. (A face runs each request as a task of its own.)
impl<W: World> Device for Array<W> {
    fn geometry(&self) -> &Geometry {
        &self.shape.geometry
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        let range = self.check(at, into.length())?;
        if range.length.is_zero() {
            return Ok(into);
        }
        let _inside = self.enter(Wish::Read).await?;
        // The usual case is one piece on a healthy member: it is submitted at once. All other cases are boxed to keep
        // the future of every read small.
        let outcome = match self.one_place(range) {
            Ok((slot, place)) if !self.balance.is_slow(slot) => {
                let _on_the_way = self.balance.begin(slot);
                let (member, at) = (self.member(slot), self.on_device(slot, place));
                let (begun, of_member) = (member.begin(), Range::new(at, range.length));
                match member.uncounted().read(at, into).await {
                    Err(error) => {
                        member.end(&begun, RequestKind::Read, of_member, Some(error));
                        let failed = self.read_error(slot, place, range.length, error);
                        Box::pin(self.read_around(range, failed)).await
                    }
                    Ok(pieces) => {
                        member.end(&begun, RequestKind::Read, of_member, None);
                        Ok(pieces)
                    }
                }
            }
            Ok((slot, _)) => Box::pin(self.read_beside(range, into, slot)).await,
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
        let _inside = self.enter(Wish::Write).await?;
        let fua = if sabotage::is(Sabotage::SkipFua) { Fua::No } else { fua };
        let outcome = if self.shape.layout.level().is_parity() {
            let hold_time = self.hold_time_after(range);
            let before = sabotage::is(Sabotage::RowFlushByOldView).then(|| self.with_view(|view| view.usable));
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
                    let usable = before.unwrap_or_else(|| self.with_view(|view| view.usable));
                    Box::pin(self.flush_missing_data(range, usable, recorded)).await
                }
                Ok(_) | Err(_) => outcome,
            }
        } else {
            let held = self.hold(range).await;
            let outcome = self.write_copies(range, &from, fua).await;
            self.release(held);
            outcome
        };
        self.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }

    async fn flush(&self) -> Result<(), IoError> {
        let _inside = self.enter(Wish::Read).await?;
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
        let _inside = self.enter(Wish::Write).await?;
        let held = self.hold(range).await;
        let outcome = self.discard_copies(range).await;
        self.release(held);
        self.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(Allocation { length: Sectors::ZERO, is_zero: false });
        }
        let _inside = self.enter(Wish::Read).await?;
        self.allocation_of(range).await
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(());
        }
        let _inside = self.enter(Wish::Write).await?;
        let outcome = if self.shape.layout.level().is_parity() {
            self.zero_rows(range).await
        } else {
            let held = self.hold(range).await;
            let outcome = self.zero_copies(range).await;
            self.release(held);
            outcome
        };
        self.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }
}

fn shape_of<W: World>(plan: &StartPlan, members: &[W::Member]) -> Shape {
    let layout = plan.layout.clone();
    let mut by_slot = vec![None; usize::from(layout.slots())];
    for (index, member) in plan.members.iter().enumerate() {
        if let Some(slot) = slot_of(&member.place) {
            assert!(by_slot[slot.index()].is_none(), "one member a slot");
            by_slot[slot.index()] = Some(index);
        }
    }
    let stripe = layout.stripe();
    let largest = IO_MAX_BYTES / uraid_block::SECTOR_BYTES as u64;
    // A client that cuts at the largest request then cuts on stripe edges: 24 sectors a stripe -> 65520, not 65536.
    let io_max = if stripe.0 == 0 || stripe.0 > largest { largest } else { largest / stripe.0 * stripe.0 };
    let active = || by_slot.iter().flatten().map(|member| members[*member].geometry());
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
    let data_offsets = plan.members.iter().map(|member| member.superblock.data_offset).collect();
    Shape { layout, members: by_slot, data_offsets, geometry }
}

fn slot_of(place: &Place) -> Option<Slot> {
    match place {
        Place::Slot(slot) => Some(*slot),
        Place::Spare => None,
    }
}

/// A failed operation of one member, for a report.
pub(crate) fn failure(slot: Slot, operation: Operation, error: IoError) -> Failure {
    Failure { slot, operation, error }
}
