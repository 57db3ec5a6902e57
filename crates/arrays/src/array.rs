//! The engine's array on the host's machine, compiled once, and its members: devices of the host, or other such arrays.
//! Owns: [`HostArray`], [`ArrayMember`], which implements `Device`. Not here: what an array does (`uraid_engine::Array`),
//! what it is built from, which array is whose member (`build`), the devices.
//! Invariant: no caller sees the type of a command's future. A request to a member array runs to its end even if its
//! future is dropped. If a write were dropped half-way, no superblock would record which members have it.
//!
//! The engine is generic, and the body of an `async fn` is compiled in every crate that awaits it, with all that it
//! awaits. So commands and rare requests give futures in a box, and are compiled here, with everything that mail starts.
//! Reads and writes keep their types: a box would cost a read an allocation, and a call through a pointer 25 ns, more
//! than half of what the engine adds. `inline(never)`: a small function is compiled in every crate that calls it, with
//! all that it names.

use crate::recorder::Recorder;
use crate::world::ShardWorld;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::oneshot;
use uraid_block::{
    Allocation, Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, Slot, SlotSet, WritePieces,
};
use uraid_engine::{
    AccessError, AddError, Array, ChangeBitmapError, CheckError, Checked, Config, Counters, FailError, FlagError,
    FormerMember, Mail, MemberCounts, PassError, Progress, ReAddError, RemoveError, ReplaceError, RequestTimes, Share,
    SpeedLimits, StartError, StartPlan, Status, StopError, Vacancy, World,
};
use uraid_format::create::BitmapToAdd;
use uraid_format::{MemberFlag, Superblock};
use uraid_host::{Member, Trace};
use uraid_layout::Layout;

/// The future of a command.
type Command<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An array on one shard: see [`uraid_engine::Array`], which says of each function what it does.
pub struct HostArray(Rc<Array<HostWorld>>);

impl HostArray {
    pub(crate) fn new(world: HostWorld, plan: &StartPlan, members: Vec<ArrayMember>, config: Config) -> HostArray {
        HostArray(Array::new(world, plan, members, config))
    }

    pub(crate) fn install(&self, index: usize, member: ArrayMember) {
        self.0.install(index, member);
    }

    /// The slots whose members are write-mostly.
    pub fn write_mostly(&self) -> SlotSet {
        self.0.view().last_copies()
    }
}

/// A command: its future in a box.
macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident($($of:ident: $type:ty),*) -> $output:ty;)*) => {
        impl HostArray {
            $(
                $(#[$doc])*
                #[inline(never)]
                pub fn $name<'a>(&'a self, $($of: $type),*) -> Command<'a, $output> {
                    Box::pin(self.0.$name($($of),*))
                }
            )*
        }
    };
}

/// What is answered at once.
macro_rules! questions {
    ($($(#[$doc:meta])* $name:ident($($of:ident: $type:ty),*) -> $output:ty;)*) => {
        impl HostArray {
            $(
                $(#[$doc])*
                #[inline(never)]
                pub fn $name(&self, $($of: $type),*) -> $output {
                    self.0.$name($($of),*)
                }
            )*
        }
    };
}

commands! {
    /// See [`Array::start`].
    start() -> Result<(), StartError>;
    /// See [`Array::wait`].
    wait(show: &'a mut dyn FnMut(Progress)) -> Result<Progress, PassError>;
    /// See [`Array::stop`].
    stop() -> Result<(), StopError>;
    /// See [`Array::become_read_only`].
    become_read_only() -> Result<bool, AccessError>;
    /// See [`Array::become_writable`].
    become_writable() -> Result<bool, AccessError>;
    /// See [`Array::fail`].
    fail(slots: SlotSet) -> Result<(), FailError>;
    /// See [`Array::fail_replacement`].
    fail_replacement(slot: Slot) -> Result<(), FailError>;
    /// See [`Array::replace`].
    replace(slot: Slot, with: Option<usize>) -> Result<usize, ReplaceError>;
    /// See [`Array::set_flag`].
    set_flag(members: &'a [usize], flag: MemberFlag, is_set: bool) -> Result<(), FlagError>;
    /// See [`Array::add`].
    add(index: usize) -> Result<(), AddError>;
    /// See [`Array::re_add`].
    re_add(index: usize, former: &'a FormerMember) -> Result<(), ReAddError>;
    /// See [`Array::remove`].
    remove(index: usize) -> Result<(), RemoveError>;
    /// See [`Array::add_bitmap`].
    add_bitmap(bitmap: BitmapToAdd) -> Result<(), ChangeBitmapError>;
    /// See [`Array::remove_bitmap`].
    remove_bitmap() -> Result<(), ChangeBitmapError>;
    /// See [`Array::next_change`].
    next_change() -> ();
    /// See [`Array::drain_once`].
    drain_once() -> ();
    /// See [`Array::end_check`].
    end_check() -> bool;
    /// See [`Array::pause_passes`].
    pause_passes(is_paused: bool) -> ();
    /// See [`Array::set_speed`].
    set_speed(limits: SpeedLimits) -> ();
}

questions! {
    /// See [`Array::counters`].
    counters() -> Counters;
    /// See [`Array::request_times`].
    request_times() -> RequestTimes;
    /// See [`Array::longest_wait`].
    longest_wait() -> Duration;
    /// See [`Array::member_counts`].
    member_counts() -> Vec<MemberCounts>;
    /// See [`Array::requests_in_flight`].
    requests_in_flight() -> u64;
    /// See [`Array::layout`].
    layout() -> Arc<Layout>;
    /// See [`Array::vacancy`].
    vacancy() -> Result<Vacancy, AddError>;
    /// See [`Array::reserve`].
    reserve(superblock: Superblock) -> Result<usize, AddError>;
    /// See [`Array::has_usable_spare`].
    has_usable_spare() -> bool;
    /// See [`Array::former_slot`].
    former_slot(former: &FormerMember) -> Result<Slot, ReAddError>;
    /// See [`Array::let_go`].
    let_go(index: usize) -> ();
    /// See [`Array::choose_bitmap`].
    choose_bitmap(chunk: Option<Sectors>) -> Result<BitmapToAdd, ChangeBitmapError>;
    /// See [`Array::status`].
    status() -> Status;
    /// See [`Array::deliver`].
    deliver(mail: Mail) -> ();
    /// See [`Array::begin_check`].
    begin_check() -> Result<(), CheckError>;
    /// See [`Array::begin_check_at`].
    begin_check_at(from: Sectors) -> Result<(), CheckError>;
    /// See [`Array::hold_spares`].
    hold_spares(are_held: bool) -> ();
    /// See [`Array::begin_repair`].
    begin_repair() -> Result<(), CheckError>;
    /// See [`Array::are_passes_paused`].
    are_passes_paused() -> bool;
    /// See [`Array::speed`].
    speed() -> SpeedLimits;
    /// See [`Array::pass_share`].
    pass_share() -> Share;
    /// See [`Array::checked`].
    checked() -> Option<Checked>;
}

impl Device for HostArray {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.0.read(at, into).await
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        self.0.write(at, from, fua).await
    }

    #[inline(never)]
    fn flush(&self) -> impl Future<Output = Result<(), IoError>> {
        Box::pin(self.0.flush()) as Command<'_, _>
    }

    #[inline(never)]
    fn discard(&self, range: Range) -> impl Future<Output = Result<(), IoError>> {
        Box::pin(self.0.discard(range)) as Command<'_, _>
    }

    #[inline(never)]
    fn write_zeroes(&self, range: Range) -> impl Future<Output = Result<(), IoError>> {
        Box::pin(self.0.write_zeroes(range)) as Command<'_, _>
    }

    #[inline(never)]
    fn punch_hole(&self, range: Range) -> impl Future<Output = Result<(), IoError>> {
        Box::pin(self.0.punch_hole(range)) as Command<'_, _>
    }

    #[inline(never)]
    fn allocation(&self, range: Range) -> impl Future<Output = Result<Allocation, IoError>> {
        Box::pin(self.0.allocation(range)) as Command<'_, _>
    }
}

/// One shard of the host as the world of one array.
pub type HostWorld = ShardWorld<ArrayMember>;

/// A member as one shard drives it.
pub enum ArrayMember {
    /// A file, a block device, memory.
    Host(Member),
    /// An array of the level below, on the same shard.
    Array(InnerArray),
    /// Nothing: it only records.
    Recorder(Recorder),
}

/// A member array, and the shard that runs its work.
pub struct InnerArray {
    pub(crate) array: Rc<HostArray>,
    pub(crate) world: HostWorld,
}

/// The future of an array's request contains those of its members' requests. Members may be arrays, so it is boxed
/// here.
type Work<T> = Pin<Box<dyn Future<Output = Result<T, IoError>>>>;

impl InnerArray {
    async fn run<T: 'static>(&self, work: impl FnOnce(Rc<HostArray>) -> Work<T>) -> Result<T, IoError> {
        let (sender, receiver) = oneshot();
        let work = work(self.array.clone());
        self.world.spawn(async move { sender.send(work.await) });
        receiver.await.expect("a task ends with an answer while its shard runs")
    }
}

impl ArrayMember {
    /// The trace of this shard's requests to the member, if it is a device and the host keeps traces.
    pub(crate) fn trace(&self) -> Option<Rc<Trace>> {
        match self {
            ArrayMember::Host(member) => member.trace(),
            ArrayMember::Array(_) | ArrayMember::Recorder(_) => None,
        }
    }
}

impl Device for ArrayMember {
    fn geometry(&self) -> Geometry {
        match self {
            ArrayMember::Host(member) => member.geometry(),
            ArrayMember::Array(inner) => inner.array.geometry(),
            ArrayMember::Recorder(recorder) => recorder.geometry(),
        }
    }

    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        match self {
            ArrayMember::Host(member) => member.read(at, into).await,
            ArrayMember::Recorder(recorder) => recorder.read(at, into).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.read(at, into).await })).await
            }
        }
    }

    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.write(at, from, fua).await,
            ArrayMember::Recorder(recorder) => recorder.write(at, from, fua).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.write(at, from, fua).await })).await
            }
        }
    }

    async fn flush(&self) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.flush().await,
            ArrayMember::Recorder(recorder) => recorder.flush().await,
            ArrayMember::Array(inner) => inner.run(|array| Box::pin(async move { array.flush().await })).await,
        }
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.discard(range).await,
            ArrayMember::Recorder(recorder) => recorder.discard(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.discard(range).await })).await
            }
        }
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.write_zeroes(range).await,
            ArrayMember::Recorder(recorder) => recorder.write_zeroes(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.write_zeroes(range).await })).await
            }
        }
    }

    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        match self {
            ArrayMember::Host(member) => member.punch_hole(range).await,
            ArrayMember::Recorder(recorder) => recorder.punch_hole(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.punch_hole(range).await })).await
            }
        }
    }

    fn mark_dead(&self) {
        match self {
            ArrayMember::Host(member) => member.mark_dead(),
            ArrayMember::Recorder(recorder) => recorder.mark_dead(),
            // The array ends its requests by itself, once it has failed those of its members that do not answer.
            ArrayMember::Array(_) => {}
        }
    }

    fn cut_reads(&self) {
        match self {
            ArrayMember::Host(member) => member.cut_reads(),
            ArrayMember::Recorder(recorder) => recorder.cut_reads(),
            // The array detects its slow members itself.
            ArrayMember::Array(_) => {}
        }
    }

    fn unanswered_for(&self) -> Duration {
        match self {
            ArrayMember::Host(member) => member.unanswered_for(),
            ArrayMember::Recorder(recorder) => recorder.unanswered_for(),
            // The member array reports its unanswered requests in its own `detail`.
            ArrayMember::Array(_) => Duration::ZERO,
        }
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        match self {
            ArrayMember::Host(member) => member.allocation(range).await,
            ArrayMember::Recorder(recorder) => recorder.allocation(range).await,
            ArrayMember::Array(inner) => {
                inner.run(move |array| Box::pin(async move { array.allocation(range).await })).await
            }
        }
    }
}
