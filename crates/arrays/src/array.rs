//! The engine's array on the host's machine, compiled once.
//! Owns: [`HostArray`]. Not here: what an array does (`uraid_engine::Array`), what it is built from (`build`).
//! Invariant: no caller sees the type of a command's future.
//!
//! The engine is generic, and the body of an `async fn` is compiled in every crate that awaits it, with all that it
//! awaits. So commands and rare requests give futures in a box, and are compiled here, with everything that mail starts.
//! Reads and writes keep their types: a box would cost a read an allocation, and a call through a pointer 25 ns, more
//! than half of what the engine adds. `inline(never)`: a small function is compiled in every crate that calls it, with
//! all that it names.

use crate::member::{ArrayMember, HostWorld};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{
    Allocation, Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, Slot, SlotSet, WritePieces,
};
use uraid_engine::{
    AccessError, AddError, Array, ChangeBitmapError, CheckError, Checked, Config, Counters, FailError, FlagError,
    FormerMember, Mail, MemberCounts, PassError, Progress, ReAddError, RemoveError, ReplaceError, SpeedLimits,
    StartError, StartPlan, Status, StopError, Vacancy,
};
use uraid_format::create::BitmapToAdd;
use uraid_format::{MemberFlag, Superblock};
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
    /// See [`Array::longest_wait`].
    longest_wait() -> Duration;
    /// See [`Array::member_counts`].
    member_counts() -> Vec<MemberCounts>;
    /// See [`Array::requests_in_flight`].
    requests_in_flight() -> u64;
    /// See [`Array::layout`].
    layout() -> &Layout;
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
    /// See [`Array::begin_repair`].
    begin_repair() -> Result<(), CheckError>;
    /// See [`Array::are_passes_paused`].
    are_passes_paused() -> bool;
    /// See [`Array::speed`].
    speed() -> SpeedLimits;
    /// See [`Array::checked`].
    checked() -> Option<Checked>;
}

impl Device for HostArray {
    fn geometry(&self) -> &Geometry {
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
