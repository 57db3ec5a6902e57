//! One array on one shard: the entry point for requests and for mail.
//! Owns: [`Array`], its parts and how they are put together, dispatch of calls between shards. Not here: what a request
//! does (`reader`, `mirror`, `row`), admission (`permit`), who changes the view (`steward`).
//! Invariant: a request is counted in its epoch from admission to answer, and waits for no drain meanwhile.

mod checks;
pub mod local;

use crate::StartPlan;
use crate::command::bitmap_changer::ChangeBitmapError;
use crate::command::fail::FailError;
use crate::command::lifecycle::{Lifecycle, StartError, Status, StopError};
use crate::command::membership::{FlagError, FormerMember, RemoveError, Vacancy};
use crate::command::read_only::AccessError;
use crate::command::reshaper::ShapeError;
use crate::pass::corrector::Corrector;
use crate::pass::kinds::ReplaceError;
use crate::pass::schedule::PassError;
use crate::pass::shard_pass::{self, Pass};
use crate::request::mirror::Mirror;
use crate::request::read_watch::ReadWatch;
use crate::request::reader::Reader;
use crate::row::Rows;
use crate::row::io::RowIo;
use crate::shard::balance::Balance;
use crate::shard::buffers;
use crate::shard::intent::Intent;
use crate::shard::limits::Limits;
use crate::shard::mail::{Answer, Call, Mail, Message, STEWARD};
use crate::shard::member_counts::MemberCounts;
use crate::shard::member_io::Zeroing;
use crate::shard::places::Places;
use crate::shard::range_lock::RangeLock;
use crate::shard::request_times::{RequestCells, RequestTimes};
use crate::shard::shared::{Counters, Parts, Shared};
use crate::shard::unsynced::Unsynced;
use crate::shard::world::World;
use crate::state::master::Master;
use crate::state::recorded::Recorded;
use crate::state::shape::NewShape;
use crate::state::view::{Gate, View};
use crate::words::config::Config;
use crate::words::join_error::{AddError, ReAddError};
use crate::words::mark::Mark;
use crate::words::progress::{self, Progress};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::Semaphore;
use uraid_block::{
    Allocation, ArrayRange, ArraySector, Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors,
    Slot, SlotSet, WritePieces,
};
use uraid_format::create::BitmapToAdd;
use uraid_format::{MemberFlag, Superblock};
use uraid_layout::Layout;

/// Writes of copies are locked in blocks of 2 to this power sectors: 64 KiB.
const LOCK_BITS: u32 = 7;

/// The writes of an array: by copies, or by rows with parity.
enum Writer<W: World> {
    Copies(Mirror<W>),
    Parity(Rc<Rows<W>>),
}

/// One array, as one shard drives it. There is one on every shard, all made from the same plan.
pub struct Array<W: World> {
    shared: Rc<Shared<W>>,
    reader: Reader<W>,
    writer: Writer<W>,
    read_watch: Rc<ReadWatch<W>>,
    pass: Pass<W>,
    corrector: Rc<Corrector<W>>,
    times: RequestCells,
    /// On shard 0.
    lifecycle: Option<Lifecycle<W>>,
    /// It is to be opened read-only, and would read wrong bytes.
    is_unreadable: bool,
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
        let layout = &plan.layout;
        let ppl = plan.ppl.as_ref().filter(|_| !config.read_only);
        let in_sync_below = master.resync_from().unwrap_or(progress::total(layout));
        let limits = Limits::of(&members, ppl.is_some());
        let locks = match layout {
            Layout::Parity(_) => RangeLock::new(0, Mark::RowWaited),
            Layout::Copies(_) => RangeLock::new(LOCK_BITS, Mark::LockWaited),
        };
        let balance = Balance::new(layout.slots(), world.shard().0);
        let members = Places::new(&world, members);
        let bitmap = plan.bitmap.as_ref().filter(|_| !config.read_only);
        let intent = Intent::new(plan, bitmap);
        let unsynced = Unsynced::new(plan, config.force);
        let parts = Parts {
            world,
            limits,
            members,
            config,
            view,
            balance,
            locks,
            intent,
            in_sync_below,
            unsynced,
            has_log: ppl.is_some(),
        };
        let shared = Shared::new(parts);
        let (rows, writer) = match layout {
            Layout::Copies(_) => (None, Writer::Copies(Mirror::new(shared.clone()))),
            Layout::Parity(layout) => {
                let io = Rc::new(RowIo::new(shared.clone(), layout, ppl.map(|ppl| ppl.room)));
                let rows = Rc::new(Rows::new(shared.clone(), io.clone()));
                (Some((rows.clone(), io)), Writer::Parity(rows))
            }
        };
        let (rows, io) = rows.unzip();
        let read_watch = ReadWatch::new(shared.clone());
        let windows = shard_pass::windows_at_once(&shared);
        let room = Semaphore::new(windows);
        let pass = Pass::new(shared.clone(), io.clone(), (windows, room.clone()));
        let corrector = Corrector::new(shared.clone(), io.clone(), room);
        let is_first = shared.world.shard() == STEWARD;
        let lifecycle = is_first.then(|| Lifecycle::new(shared.clone(), master, (bitmap, ppl), io, read_watch.clone()));
        let reader = Reader::new(shared.clone(), rows);
        let is_unreadable = shared.config.read_only && !shared.config.force && plan.must_write_to_read();
        let times = RequestCells::default();
        Rc::new(Array { shared, reader, writer, read_watch, pass, corrector, times, lifecycle, is_unreadable })
    }

    /// This shard's current view. Do not keep it across an await.
    pub fn view(&self) -> Rc<View> {
        self.shared.view()
    }

    /// What this shard's request paths have counted.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// How long this shard's requests took.
    pub fn request_times(&self) -> RequestTimes {
        self.times.times()
    }

    /// The longest time that a write of this shard's copies has waited for another write, or a window of a pass.
    pub fn longest_wait(&self) -> Duration {
        self.shared.longest_wait()
    }

    /// This shard's counts of requests to each member, by index: those of the plan, then those that were installed.
    pub fn member_counts(&self) -> Vec<MemberCounts> {
        self.shared.members.counts()
    }

    /// Requests of this shard that are inside an epoch.
    pub fn requests_in_flight(&self) -> u64 {
        self.shared.epochs.in_flight()
    }

    /// The layout of the array, at this moment.
    pub fn layout(&self) -> Arc<Layout> {
        self.shared.with_view(|view| view.shape.share())
    }

    fn lifecycle(&self) -> &Lifecycle<W> {
        self.lifecycle.as_ref().expect("shard 0 decides for all shards")
    }

    /// Brings the superblocks up to date, and opens the gate. A dirty array is then made consistent beside its requests:
    /// see [`Array::wait`]. Shard 0 only.
    pub async fn start(&self) -> Result<(), StartError> {
        if self.is_unreadable {
            return Err(StartError::ReadOnlyLog);
        }
        self.lifecycle().start().await
    }

    /// Waits until no pass runs (md: `--wait`), and calls `show` with its progress now and then. Returns the progress of
    /// the last one. Shard 0 only.
    pub async fn wait(&self, show: impl FnMut(Progress)) -> Result<Progress, PassError> {
        self.lifecycle().passes.wait(show).await
    }

    /// Keeps new requests out, waits for those inside, flushes, marks the array clean. Shard 0 only; a second call is
    /// harmless. Later requests are refused.
    pub async fn stop(&self) -> Result<(), StopError> {
        self.lifecycle().stop().await
    }

    /// Takes no more writes, from a moment on (md: `--readonly`). Returns when those under way have ended, the superblocks
    /// say clean, and nothing is written to any member any more: `false` if it was so before. Passes wait. Shard 0 only.
    pub async fn become_read_only(&self) -> Result<bool, AccessError> {
        self.lifecycle().become_read_only().await
    }

    /// Takes writes again after [`Array::become_read_only`] (md: `--readwrite`), and lets passes go on: `false` if it takes
    /// them already. The superblocks name members that failed meanwhile before that. Shard 0 only.
    pub async fn become_writable(&self) -> Result<bool, AccessError> {
        self.lifecycle().become_writable().await
    }

    /// Gives the array another shape: the seam for growing while it runs, which no command uses yet. Requests wait until
    /// `moving`, which runs while none is inside, has moved the bytes and returns where they are. The superblocks say so
    /// before the first request goes on; those that are past the new end are refused. If `moving` fails, all stays as it
    /// was. Only levels without redundancy. Panics if the new layout is of another level or has another number of slots.
    /// Shard 0 only.
    pub async fn set_shape(&self, moving: impl Future<Output = Result<NewShape, IoError>>) -> Result<(), ShapeError> {
        self.lifecycle().set_shape(moving).await
    }

    /// Fails members by command, all or none, also while a stop waits for them. Returns when the superblocks of the
    /// others record it. An array that froze because these members are full then takes writes again. Shard 0 only.
    pub async fn fail(&self, slots: SlotSet) -> Result<(), FailError> {
        self.lifecycle().commands.fail(slots).await
    }

    /// Fails the member to which that of this slot is being copied. Returns when the superblocks of the others record it.
    /// Shard 0 only.
    pub async fn fail_replacement(&self, slot: Slot) -> Result<(), FailError> {
        self.lifecycle().commands.fail_replacement(slot).await
    }

    /// Copies a member to a spare, which takes its slot when it holds everything (md: `--replace`, `--with`). `with`: the
    /// index of the spare; `None`: any. Returns the spare's index when the superblocks list it in the slot; the copy runs
    /// beside requests. Shard 0 only.
    pub async fn replace(&self, slot: Slot, with: Option<usize>) -> Result<usize, ReplaceError> {
        self.lifecycle().passes.replace(slot, with).await
    }

    /// Gives members a flag, or takes it away. Returns when the superblocks say so. Only levels with copies have use for
    /// flags. Shard 0 only.
    pub async fn set_flag(&self, members: &[usize], flag: MemberFlag, is_set: bool) -> Result<(), FlagError> {
        self.lifecycle().membership.set_flag(members, flag, is_set).await
    }

    /// Whether a member could join now, and what its superblock is to be made from. Shard 0 only.
    pub fn vacancy(&self) -> Result<Vacancy, AddError> {
        self.lifecycle().membership.vacancy()
    }

    /// Reserves an index for a device that joins. Its superblock is made from [`Array::vacancy`], and one device joins at
    /// a time. Then [`Array::install`] on every shard, and [`Array::add`]. Shard 0 only.
    pub fn reserve(&self, superblock: Superblock) -> Result<usize, AddError> {
        self.lifecycle().membership.reserve(superblock)
    }

    /// Gives this shard the device of a member whose index was reserved.
    pub fn install(&self, index: usize, member: W::Member) {
        self.shared.members.install(&self.shared.world, index, member);
    }

    /// Makes a member that is installed on every shard a spare; it takes a slot that lacks a member by itself. Returns
    /// when the superblocks list it. After an error the caller lets it go. Shard 0 only.
    pub async fn add(&self, index: usize) -> Result<(), AddError> {
        self.lifecycle().membership.add(index).await
    }

    /// Whether there is a spare that may take a slot: one whose bad-block list names no sector, and that has room for the
    /// bitmap. Shard 0 only.
    pub fn has_usable_spare(&self) -> bool {
        self.lifecycle().steward.master().spares().next().is_some()
    }

    /// The slot into which a former member can return with what it holds. Shard 0 only.
    pub fn former_slot(&self, former: &FormerMember) -> Result<Slot, ReAddError> {
        self.lifecycle().membership.former_slot(former)
    }

    /// Gives a former member its slot back. `former` has the superblock that it had; it was reserved with one of a new number,
    /// and is installed on every shard. Returns when the superblocks say so; what it has missed is recovered beside requests.
    /// After an error the caller lets it go, if its state is [`Removed`](crate::MemberState). Shard 0 only.
    pub async fn re_add(&self, index: usize, former: &FormerMember) -> Result<(), ReAddError> {
        self.lifecycle().membership.re_add(index, former).await
    }

    /// Takes a spare or a failed member out of the array. Returns when no request uses it and the superblocks of the
    /// others say so; its own stays as it is, as with md. Then [`Array::let_go`] on every shard. Shard 0 only.
    pub async fn remove(&self, index: usize) -> Result<(), RemoveError> {
        self.lifecycle().membership.remove(index).await
    }

    /// Lets this shard's device of a removed member go. It closes when the last request to it has ended.
    pub fn let_go(&self, index: usize) {
        self.shared.members.let_go(index);
    }

    /// The write-intent bitmap that mdadm would choose for this array, which has none. `chunk`: what a bit stands for;
    /// `None`: as mdadm chooses. Shard 0 only.
    pub fn choose_bitmap(&self, chunk: Option<Sectors>) -> Result<BitmapToAdd, ChangeBitmapError> {
        self.lifecycle().bitmap_changer.choose(chunk)
    }

    /// Gives the array this write-intent bitmap, beside requests. Returns when the superblocks list it. Shard 0 only.
    pub async fn add_bitmap(&self, bitmap: BitmapToAdd) -> Result<(), ChangeBitmapError> {
        self.lifecycle().bitmap_changer.add(bitmap).await
    }

    /// Takes the write-intent bitmap away, beside requests. Returns when no superblock lists it and no write uses it.
    /// Shard 0 only.
    pub async fn remove_bitmap(&self) -> Result<(), ChangeBitmapError> {
        self.lifecycle().bitmap_changer.remove().await
    }

    /// Publishes the view again and waits until every request that was inside has left. It measures what a drain costs
    /// any change that needs one. Requests continue meanwhile. Shard 0 only, and outside of any request.
    pub async fn drain_once(&self) {
        self.lifecycle().drain_once().await;
    }

    /// What the array is like now. Shard 0 only.
    pub fn status(&self) -> Status {
        self.lifecycle().status()
    }

    /// Takes mail from a shard of the same array. The world calls this for each piece of mail, in order.
    pub fn deliver(self: &Rc<Self>, mail: Mail) {
        match mail.0 {
            Message::Answer { id, answer } => {
                self.shared.calls.answer(id, answer);
            }
            Message::Errors(report) => self.lifecycle().health.note(&report),
            Message::Correct(stretch) => self.corrector.add(stretch),
            Message::Resume => self.corrector.resume(),
            Message::Written(slot) => self.lifecycle().ppl().finish(slot),
            Message::Unlock(id) => self.shared.locks.unlock(id),
            Message::ZeroedRows(zeroed) => self.rows().note_zeroed(&zeroed),
            Message::Call { id, from, call: Call::LogParity(request) } => {
                self.lifecycle().ppl().log(request, (from, id));
            }
            Message::Call { id, from, call } => match self.answer_at_once(call) {
                Ok(answer) => self.shared.world.post(from, Mail(Message::Answer { id, answer })),
                Err(call) => {
                    let array = self.clone();
                    self.shared.world.spawn(async move {
                        let answer = array.answer(call).await;
                        array.shared.world.post(from, Mail(Message::Answer { id, answer }));
                    });
                }
            },
        }
    }

    /// Answers a call that waits for nothing, or returns it. A view must take effect at once and in order; a lock that
    /// is free needs no task.
    #[inline]
    fn answer_at_once(&self, call: Call) -> Result<Answer, Call> {
        match call {
            Call::Switch(view) => {
                let serves = matches!(view.gate, Gate::Open | Gate::NoNewWrites | Gate::ReadOnly);
                if view.gate == Gate::Open {
                    self.shared.behind.made_good();
                }
                self.shared.switch(*view);
                if serves {
                    self.read_watch.begin();
                }
                Ok(Answer::Done)
            }
            Call::Lock(range) => match self.shared.locks.try_lock(range.clone()) {
                Some(id) => Ok(Answer::Locked(id)),
                None => Err(Call::Lock(range)),
            },
            Call::PassReport => Ok(Answer::Passed(self.pass.report())),
            Call::BitsToRecover(bits) => {
                self.shared.intent.set_to_recover(bits);
                Ok(Answer::Done)
            }
            Call::TakeFindings => Ok(Answer::Findings(self.pass.take_findings())),
            Call::CutOff(member) => {
                self.shared.members.cut_off(member);
                Ok(Answer::Done)
            }
            Call::Steer(steering) => {
                self.pass.steer(steering);
                Ok(Answer::Done)
            }
            Call::BehindLost(range) => {
                self.shared.behind.lose(range);
                Ok(Answer::Done)
            }
            Call::ZeroedRows(zeroed) => {
                self.rows().note_zeroed(&zeroed);
                Ok(Answer::Done)
            }
            Call::MadeGood => {
                self.shared.in_sync_below.set(progress::total(&self.shared.layout()));
                Ok(Answer::Done)
            }
            Call::Drain(_)
            | Call::BehindOver
            | Call::Pass(_)
            | Call::CountWrites
            | Call::Torn
            | Call::SetTorn { .. }
            | Call::NeedDirty
            | Call::NeedBits(_)
            | Call::Fail(_)
            | Call::ListLacking(_)
            | Call::ListUnreadable(_)
            | Call::ClearListed { .. }
            | Call::ReadErrors { .. }
            | Call::Flush
            | Call::WriteRow(_)
            | Call::ReadRow(_) => Err(call),
            Call::LogParity(_) => unreachable!("the writer of the log answers"),
        }
    }

    async fn answer(&self, call: Call) -> Answer {
        match call {
            Call::Switch(_)
            | Call::BitsToRecover(_)
            | Call::PassReport
            | Call::TakeFindings
            | Call::CutOff(_)
            | Call::Steer(_)
            | Call::BehindLost(_)
            | Call::ZeroedRows(_)
            | Call::MadeGood => unreachable!("these are answered at once"),
            Call::LogParity(_) => unreachable!("the writer of the log answers"),
            Call::Drain(epoch) => {
                self.shared.epochs.drain(epoch).await;
                Answer::Done
            }
            Call::BehindOver => Answer::Count(self.shared.behind.over().await),
            Call::SetTorn { row, start, state } => {
                self.shared.torn.set_state(row, start, state);
                Answer::Done
            }
            Call::Torn => Answer::Torn(self.shared.torn.parts()),
            Call::Pass(order) => {
                self.pass.run(order).await;
                Answer::Passed(self.pass.report())
            }
            Call::CountWrites => Answer::Count(self.shared.writes_admitted.get()),
            Call::NeedDirty => Answer::Dirty(self.lifecycle().dirty_mark.set().await),
            Call::NeedBits(chunks) => Answer::Bits(self.lifecycle().need_bits(chunks).await),
            Call::Fail(failures) => Answer::Failed(self.lifecycle().recorder.fail_members(&failures).await),
            Call::ListLacking(lacking) => Answer::Listed(self.lifecycle().recorder.list_lacking(&lacking).await),
            Call::ListUnreadable(error) => Answer::Listed(self.lifecycle().recorder.list_unreadable(&error).await),
            Call::ClearListed { member, range } => {
                self.lifecycle().recorder.clear_listed(member, range).await;
                Answer::Done
            }
            Call::ReadErrors { errors, was_read_elsewhere } => {
                self.lifecycle().health.count_read_errors(&errors, was_read_elsewhere).await;
                Answer::Done
            }
            Call::Flush => Answer::Settled(self.lifecycle().flusher.flush_round().await),
            Call::Lock(range) => Answer::Locked(self.shared.lock_for_write(range).await),
            Call::WriteRow(write) => Answer::Settled(self.rows().write_row_owned(write).await),
            Call::ReadRow(read) => Answer::Read(self.rows().read_row_owned(read).await),
        }
    }

    /// For mail about rows, which only parity levels send.
    fn rows(&self) -> &Rows<W> {
        match &self.writer {
            Writer::Parity(rows) => rows,
            Writer::Copies(_) => panic!("an array without parity sends no mail about rows"),
        }
    }

    fn check(&self, at: Sector, length: Sectors) -> Result<ArrayRange, IoError> {
        let size = self.shared.with_view(|view| view.shape.size());
        let end = at.0.checked_add(length.0).filter(|end| *end <= size.0);
        match end {
            Some(_) => Ok(ArrayRange::new(ArraySector(at.0), length)),
            None => Err(ErrorKind::OutOfRange.into()),
        }
    }

    /// The array may have become smaller while an admitted request waited at the gate.
    fn check_inside(&self, range: ArrayRange) -> Result<(), IoError> {
        self.check(Sector(range.start.0), range.length).map(|_inside| ())
    }
}

/// The array as a device. The caller must drive a request's future to its end: if a write is dropped half way, no
/// superblock records which members have it. (A frontend runs each request as a task of its own.)
impl<W: World> Device for Array<W> {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.shared.with_view(|view| matches!(view.gate, Gate::NoNewWrites | Gate::ReadOnly))
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        let range = self.check(at, into.length())?;
        if range.length.is_zero() {
            return Ok(into);
        }
        let begun = self.shared.world.turn_time();
        let _inside = self.shared.admit_read().await?;
        self.check_inside(range)?;
        let outcome = self.reader.read(range, into).await;
        self.times.reads.note(begun, self.shared.world.turn_time());
        outcome
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let range = self.check(at, from.length())?;
        if range.length.is_zero() {
            return Ok(());
        }
        let begun = self.shared.world.turn_time();
        // A guest that writes its buffer meanwhile would leave two versions of a sector, or parity of a third one.
        let from = match from.may_change() && self.shared.is_redundant() {
            true => Box::pin(buffers::private_copy(&self.shared.world, from)).await,
            false => from,
        };
        let permit = self.shared.admit_write(range).await?;
        self.check_inside(range)?;
        let outcome = match &self.writer {
            Writer::Copies(mirror) => match self.shared.place_behind(range, fua) {
                None => mirror.write(range, from, fua).await,
                // Boxed to keep the future of every other write small.
                Some(place) => Box::pin(mirror.write_behind(range, from, permit, place)).await,
            },
            Writer::Parity(rows) => rows.write(range, from, fua).await,
        };
        self.times.writes.note(begun, self.shared.world.turn_time());
        self.shared.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }

    async fn flush(&self) -> Result<(), IoError> {
        let begun = self.shared.world.turn_time();
        let _inside = self.shared.admit_read().await?;
        let outcome = match &self.lifecycle {
            Some(lifecycle) => lifecycle.flusher.flush_round().await,
            None => self.shared.flush_members().await,
        };
        self.times.flushes.note(begun, self.shared.world.turn_time());
        outcome.map(|_recorded: Recorded| ())
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() || self.geometry().discard_granularity.is_zero() {
            return Ok(());
        }
        let _permit = self.shared.admit_write(range).await?;
        self.check_inside(range)?;
        let outcome = match &self.writer {
            Writer::Copies(mirror) => mirror.discard(range).await.map(Some),
            Writer::Parity(rows) => rows.discard(range).await,
        };
        self.shared.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Option<Recorded>| ())
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(Allocation { length: Sectors::ZERO, is_zero: false });
        }
        let _inside = self.shared.admit_read().await?;
        self.check_inside(range)?;
        self.shared.allocation_of(range).await
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.zero(range, Zeroing::Write).await
    }

    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        self.zero(range, Zeroing::Punch).await
    }
}

impl<W: World> Array<W> {
    async fn zero(&self, range: Range, how: Zeroing) -> Result<(), IoError> {
        let range = self.check(range.start, range.length)?;
        if range.length.is_zero() {
            return Ok(());
        }
        let _permit = self.shared.admit_write(range).await?;
        self.check_inside(range)?;
        let outcome = match &self.writer {
            Writer::Copies(mirror) => mirror.zero(range, how).await,
            Writer::Parity(rows) => rows.zero(range, how).await,
        };
        self.shared.count(|counters| counters.writes += 1);
        outcome.map(|_recorded: Recorded| ())
    }
}
