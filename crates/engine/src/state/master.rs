//! The authoritative state of an array: its members, its gate, its marks, what its superblocks say.
//! Owns: [`Master`], [`Change`], the view that follows from the state, invariants across its fields. Not here: when
//! a change is made (`steward`, `judge`, `recorder`, `lifecycle`, `fail`), superblocks (`images`).
//! Invariant: the state changes by [`Master::apply`] only, which checks it. The view of every shard is derived from it.

mod bad_blocks;
mod behind;
mod bitmap;
mod check;
mod forced;
mod images;
mod left_behind;
mod member_state;
mod members;
mod read_only;
mod recovery;
mod replace;
mod shape;
#[cfg(test)]
mod tests;

pub(crate) use bad_blocks::{BadBlocks, LogPages};
pub(crate) use bitmap::BitmapChange;
pub(crate) use images::Image;
pub use member_state::MemberState;
pub(crate) use members::Membership;
pub(crate) use read_only::ReadOnly;
pub(crate) use replace::Replace;
pub(crate) use shape::ShapeChange;

use crate::state::bits::BitsRound;
use crate::state::shape::Shape;
use crate::state::view::{self, Access, Copies, Epoch, Flagged, Gate, SlotMap, SlotMember, View};
use crate::words::failure::Failure;
use crate::words::progress;
use crate::{Place, StartPlan};
use bad_blocks::MemberLog;
use bitmap::ArrayBitmap;
use uraid_block::{ErrorKind, IoError, Sectors, Slot, SlotSet, Tick};
use uraid_format::{MemberFlag, Superblock};

/// Why an array froze. If it has several reasons, the last one of this list counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FreezeCause {
    /// Members are full.
    Full,
    /// A member of a mirror failed after the array froze.
    FailedSince,
    /// More members failed than it can lose.
    TooMany,
    /// A flush failed on more members than it can lose: it is unknown which writes are lost.
    LostFlush,
}

/// The state of a frozen array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frozen {
    /// The first error that froze it.
    pub(crate) kind: ErrorKind,
    pub(crate) cause: FreezeCause,
}

/// One change of the state.
pub(crate) enum Change<'a> {
    /// None: the view is published again.
    Nothing,
    /// The gate opens for reads only.
    OpenReadOnly,
    /// The gate opens for the first time.
    Open,
    /// The gate closes, for a stop or a command.
    Close,
    /// The gate of an array that was frozen opens: the superblocks say dirty already.
    OpenForWrites,
    /// The gate of an array that stays frozen opens for reads again.
    OpenFrozen,
    /// The array becomes read-only by command, or takes writes again.
    ReadOnly(ReadOnly),
    /// The array gets another shape.
    Shape(ShapeChange<'a>),
    /// The last change.
    Stop,
    /// The start leaves members out that the superblocks do not yet name.
    LeaveOutsiders,
    /// The next superblocks say dirty.
    MarkDirty,
    /// The dirty mark is durable: writes may be submitted.
    AdmitWrites,
    /// Writes wait, because the array may go clean.
    HoldWrites,
    /// The next superblocks say clean.
    MarkClean,
    /// All is consistent below this, and flushed.
    Checkpoint(Sectors),
    /// The resync has ended: all is consistent.
    EndResync,
    /// The resync has ended, and met sectors that could neither be read nor computed.
    MarkSuspect,
    /// Gives a spare a slot that has no member.
    TakeSpare { member: usize, slot: Slot },
    /// The members that are recovering in these slots hold what is below this, and were flushed.
    CheckpointRecovery(SlotSet, Sectors),
    /// The members that are recovering in these slots hold everything, and were flushed: the next superblocks say so.
    ShowRecovered(SlotSet),
    /// The superblocks say so: they are read.
    EndRecovery(SlotSet),
    /// A member is copied to another one.
    Replace(Replace),
    /// These members have a flag, or no longer.
    SetFlag(&'a [usize], MemberFlag, bool),
    /// No write is behind from now on, or some may be again.
    HoldBehind(bool),
    /// No shard may rely on a bit of the bitmap that it knows: it may be cleared.
    ForgetBits,
    /// The array gets a bitmap, or loses it.
    Bitmap(BitmapChange),
    /// Sectors that members lack.
    BadBlocks(BadBlocks<'a>),
    /// A member joins or leaves.
    Membership(Membership),
    /// Takes trust from members in use.
    FailMembers(&'a [Failure], Tick),
    /// Takes trust from a spare, whose superblock could not be written.
    FailSpare { member: usize, error: IoError, at: Tick },
    /// Stops writes to the array. The members keep their slots: the next start finds a dirty array and makes it
    /// consistent.
    Freeze(ErrorKind, FreezeCause),
    /// A member had no room for its superblock.
    MissRound(Slot),
    /// Fails the members that the array froze over. It is dirty and takes writes again once this is recorded.
    Unfreeze(&'a [Failure], Tick),
    /// What [`Change::Unfreeze`] did could not be recorded: frozen as before.
    Refreeze(Frozen),
    /// Members that had missed the last round before the start have caught up.
    CatchUp,
    /// A round of superblocks begins, at this time in seconds since 1970.
    BeginRound(u64),
    /// All trusted members have taken a round.
    EndRound(&'a Round),
}

/// What a round of superblocks shows.
pub(crate) struct Round {
    /// The version of the state.
    pub(crate) version: u64,
    /// Whether it names all failed members.
    pub(crate) names_all: bool,
    /// Failed members that it does not name. All others have taken a superblock since they failed.
    pub(crate) proven: Vec<usize>,
}

/// The authoritative state of the array.
pub(crate) struct Master {
    shape: Shape,
    epoch: Epoch,
    gate: Gate,
    takes_writes: bool,
    members: Vec<MemberState>,
    /// From here on, copies may differ and parity may be wrong, until a resync has ended. What is below is flushed.
    /// `None`: all is consistent, but for writes under way.
    resync_from: Option<Sectors>,
    /// The next superblocks say dirty: writes may be under way, anywhere.
    is_dirty: bool,
    /// A sector could neither be read nor computed in the resync, which has ended: the array stays dirty.
    is_suspect: bool,
    /// Slots whose recovery has ended, and is not recorded yet.
    shown_recovered: SlotSet,
    /// Slots in which a member that recovers lacks only what the bitmap names. Of no meaning for the others.
    by_bits: SlotSet,
    /// Slots whose second member held everything at the start, and stays beside the first.
    at_rest: SlotSet,
    /// Members that became the second of a slot, in this order.
    seconds: Vec<usize>,
    /// The spare that the superblocks do not list yet.
    joining: Option<usize>,
    /// The former member that the superblocks do not list in its slot yet.
    returning: Option<usize>,
    /// The gate was open.
    has_opened: bool,
    /// The array was open, and is read-only by command: nothing is written to any member.
    writes_nothing: bool,
    /// Bytes are being moved for another shape: the gate stays closed.
    is_moving: bool,
    /// The array is frozen. It stays so until its next start, or until the members that it froze over are failed.
    frozen: Option<Frozen>,
    /// Slots whose member had no room for its superblock, and has missed a round.
    missed_round: SlotSet,
    events: u64,
    /// As in the view: see [`View::older`].
    older: &'static [SlotSet],
    /// The members of these slots, with how many events their superblocks stay behind: until the resync has ended, a start
    /// without `--force` must not take them for as fresh as the others.
    unlisted: Vec<(usize, u64)>,
    /// When the last round of superblocks began, in seconds since 1970.
    updated: u64,
    /// Indexes of members in a slot whose superblock on disk has fewer events than the freshest one.
    lagging: Vec<usize>,
    /// The bitmap, if the array has one that is kept up to date.
    bitmap: Option<ArrayBitmap>,
    bits_round: BitsRound,
    /// Writes may not be behind now.
    holds_behind: bool,
    /// Some could be, since the start.
    has_behind: bool,
    /// Counts changes that superblocks must show, and which of them they show.
    version: u64,
    recorded: u64,
    /// Whether the superblocks record all members that have failed.
    is_recorded: bool,
    /// The event count that the superblocks must reach before the changes count as recorded, and the count that they
    /// have all reached: see [`Master::leave_behind`].
    events_min: u64,
    events_recorded: u64,
    /// Failed members that the superblocks do not name yet, as indexes into `members`: see [`Change::FailMembers`].
    unnamed: Vec<usize>,
    /// Nothing was recorded since the start, and a device that is not in use may have as many events as the members.
    has_outsiders: bool,
    /// The freshest superblock at assembly, for the fields that all members share.
    template: Superblock,
    /// Each member's own superblock.
    superblocks: Vec<Superblock>,
    /// Each member's bad-block log.
    logs: Vec<MemberLog>,
}

/// Where the resync that this start needs begins.
fn resync_from(plan: &StartPlan) -> Option<Sectors> {
    // Rounded down to a page: after a start inside a page, later windows would not be aligned either.
    let recorded = Sectors(plan.template.resync_offset & !7);
    plan.is_dirty.then(|| if recorded < progress::total(&plan.layout) { recorded } else { Sectors::ZERO })
}

impl Master {
    pub(crate) fn new(plan: &StartPlan) -> Master {
        let members = plan.members.iter().map(|member| match member.place {
            Place::Slot(slot) => MemberState::Active(slot),
            // Rounded down to a page: after a start inside a page, later windows would not be aligned either.
            Place::Recovering { slot, below } => MemberState::Recovering { slot, below: Sectors(below.0 & !7) },
            Place::Replacing { slot, below } => MemberState::Replacing { slot, below: Sectors(below.0 & !7) },
            Place::Spare => MemberState::Spare,
        });
        assert!(plan.template.events <= plan.events, "the template is the freshest superblock");
        let master = Master {
            shape: Shape::new(plan.layout.clone()),
            epoch: Epoch(0),
            gate: Gate::Closed,
            takes_writes: false,
            members: members.collect(),
            resync_from: resync_from(plan),
            is_dirty: resync_from(plan) == Some(Sectors::ZERO),
            is_suspect: false,
            shown_recovered: SlotSet::EMPTY,
            by_bits: recovery::by_bits(plan),
            at_rest: replace::whole_at_start(plan),
            seconds: replace::seconds(plan),
            joining: None,
            returning: None,
            has_opened: false,
            writes_nothing: false,
            is_moving: false,
            frozen: None,
            missed_round: SlotSet::EMPTY,
            events: plan.events,
            older: forced::older(plan),
            unlisted: forced::unlisted(plan),
            updated: plan.template.updated_seconds(),
            lagging: plan.lagging().collect(),
            bitmap: bitmap::bitmap_of(plan),
            bits_round: BitsRound::default(),
            holds_behind: false,
            has_behind: false,
            version: 0,
            recorded: 0,
            is_recorded: true,
            events_min: 0,
            events_recorded: 0,
            unnamed: Vec::new(),
            has_outsiders: left_behind::has_outsiders(plan),
            template: images::written(plan, &plan.template),
            superblocks: plan.members.iter().map(|member| images::written(plan, &member.superblock)).collect(),
            logs: bad_blocks::logs(plan),
        };
        master.check();
        master
    }

    /// The view of every shard. Nothing else derives one.
    pub(crate) fn view(&self) -> View {
        let slots = self.slot_map();
        View {
            epoch: self.epoch,
            shape: self.shape.clone(),
            behind: self.behind(&slots),
            has_behind: self.has_behind,
            slots,
            gate: self.gate,
            takes_writes: self.takes_writes,
            copies: self.copies(),
            older: self.older,
            is_recorded: self.is_recorded,
            bits_round: self.bits_round,
            bits: self.bitmap.map(|bitmap| bitmap.shape),
            bad_blocks: self.bad_lists(),
        }
    }

    /// A failed member keeps its slot until the slot gets another member: requests that were planned with the failed
    /// one still look it up.
    fn slot_map(&self) -> SlotMap {
        let mut of_slots = vec![None; usize::from(self.slots())];
        let (mut replacements, mut flagged) = (Vec::new(), Flagged::default());
        for (index, (member, superblock)) in self.members.iter().zip(&self.superblocks).enumerate() {
            let data_offset = superblock.data_offset;
            let (slot, access) = match member {
                MemberState::Active(slot) => (*slot, Access::ReadWrite),
                MemberState::Recovering { slot, .. } => (*slot, Access::WriteOnly),
                MemberState::Replacing { slot, .. } => {
                    replacements.push((*slot, SlotMember { index, data_offset, access: Access::WriteOnly }));
                    continue;
                }
                MemberState::Faulty { slot: Some(slot), .. } => (*slot, Access::None),
                MemberState::Faulty { slot: None, .. } | MemberState::Spare | MemberState::Removed => continue,
            };
            assert!(slot.0 < self.slots());
            let of_slot: &mut Option<SlotMember> = &mut of_slots[slot.index()];
            let is_taken = of_slot.is_some_and(|other| other.access != Access::None);
            assert!(!(is_taken && access != Access::None), "one member a slot");
            if !is_taken {
                *of_slot = Some(SlotMember { index, data_offset, access });
                if access != Access::None {
                    flagged.note(slot, superblock);
                }
            }
        }
        SlotMap::new(of_slots, replacements, flagged)
    }

    fn copies(&self) -> Copies {
        let agree = self.resync_from.is_none() && self.frozen.is_none();
        if agree { Copies::Any } else { Copies::Canonical }
    }

    /// Changes the state.
    pub(crate) fn apply(&mut self, change: Change<'_>) {
        self.check_change(&change);
        let before = (self.version, self.recorded, self.events);
        match change {
            Change::Nothing => {}
            Change::OpenReadOnly => self.gate = Gate::ReadOnly,
            Change::Open => self.open(),
            Change::OpenForWrites => {
                self.recover_anew();
                self.open();
                self.takes_writes = true;
            }
            Change::Close => self.gate = Gate::Closed,
            Change::OpenFrozen => self.gate = Gate::Frozen(self.frozen.expect("it froze before").kind),
            Change::ReadOnly(change) => self.change_read_only(change),
            Change::Shape(change) => self.change_shape(change),
            Change::Stop => self.gate = Gate::Stopped,
            Change::LeaveOutsiders => {
                self.leave_outsiders_behind();
                self.version += 1;
            }
            Change::MarkDirty => {
                self.is_dirty = true;
                self.version += 1;
                self.leave_outsiders_behind();
            }
            Change::AdmitWrites => self.takes_writes = true,
            Change::HoldWrites => self.takes_writes = false,
            Change::MarkClean => {
                self.is_dirty = false;
                self.version += 1;
            }
            Change::Checkpoint(below) => {
                self.resync_from = Some(below);
                self.version += 1;
            }
            Change::EndResync => {
                self.resync_from = None;
                // All copies are equal now.
                (self.older, self.unlisted) = (&[], Vec::new());
                self.version += 1;
            }
            Change::MarkSuspect => self.mark_suspect(),
            Change::TakeSpare { member, slot } => self.take_slot(member, slot, false),
            Change::CheckpointRecovery(slots, below) => self.note_recovered(slots, below),
            Change::ShowRecovered(slots) => {
                self.shown_recovered = slots;
                self.version += 1;
            }
            Change::EndRecovery(slots) => self.end_recovery(slots),
            Change::Replace(change) => self.change_replace(change),
            Change::SetFlag(members, flag, is_set) => self.set_flag(members, flag, is_set),
            Change::HoldBehind(holds) => self.holds_behind = holds,
            Change::ForgetBits => self.bits_round.0 += 1,
            Change::Bitmap(change) => self.change_bitmap(change),
            Change::BadBlocks(change) => self.change_bad_blocks(change),
            Change::Membership(change) => self.change_membership(change),
            Change::FailMembers(failures, at) => failures.iter().for_each(|failure| self.fail_member(failure, at)),
            Change::FailSpare { member, error, at } => self.fail_spare(member, error, at),
            Change::Freeze(kind, cause) => self.freeze(kind, cause),
            Change::MissRound(slot) => self.missed_round.insert(slot),
            Change::Unfreeze(failures, at) => self.unfreeze(failures, at),
            Change::Refreeze(frozen) => self.frozen = self.frozen.or(Some(frozen)),
            Change::CatchUp => self.lagging.clear(),
            Change::BeginRound(seconds) => self.begin_round(seconds),
            Change::EndRound(round) => self.end_round(round),
        }
        self.check_growth(before);
        self.check();
    }

    /// Changes the state. Returns the next view.
    pub(crate) fn apply_and_view(&mut self, change: Change<'_>) -> View {
        self.apply(change);
        self.epoch.0 += 1;
        let view = self.view();
        self.has_behind |= view.behind.is_some();
        View { has_behind: self.has_behind, ..view }
    }

    fn open(&mut self) {
        assert!(self.frozen.is_none(), "a frozen array stays frozen");
        assert_eq!(self.gate, Gate::Closed, "requests have waited at the gate");
        self.gate = Gate::Open;
        self.has_opened = true;
        if !self.is_redundant() || self.is_dirty {
            // There is no dirty mark to wait for.
            self.takes_writes = true;
        }
    }

    /// The first of the two rounds that follow still lists the member in its slot: if other members fail this round, the
    /// array freezes, and no superblock says that a member is missing.
    fn fail_member(&mut self, failure: &Failure, at: Tick) {
        let Failure { slot, operation, error, member, .. } = *failure;
        assert_eq!(self.members[member].written_slot(), Some(slot), "it is in use");
        self.members[member] = MemberState::Faulty { slot: Some(slot), operation, error, at };
        self.promote_replacement(slot);
        self.is_recorded = false;
        self.version += 1;
        self.leave_behind();
        self.unnamed.push(member);
        assert!(!self.shows(self.version), "no superblock shows a failure of this moment");
    }

    fn freeze(&mut self, kind: ErrorKind, cause: FreezeCause) {
        assert!(self.gate != Gate::ReadOnly || cause != FreezeCause::Full, "a read-only array writes to no member");
        self.shown_recovered = SlotSet::EMPTY;
        let frozen = self.frozen.get_or_insert(Frozen { kind, cause });
        frozen.cause = frozen.cause.max(cause);
        match self.gate {
            // The first error stays: writes at the gate and those that are told by `frozen_error` get the same one.
            Gate::Closed if self.is_moving => {}
            Gate::Open | Gate::Closed | Gate::NoNewWrites => self.gate = Gate::Frozen(frozen.kind),
            Gate::ReadOnly | Gate::Frozen(_) | Gate::Stopped => {}
        }
    }

    fn unfreeze(&mut self, failures: &[Failure], at: Tick) {
        failures.iter().for_each(|failure| self.fail_member(failure, at));
        // Requests were inside when it froze. What they left is whole now, and the superblocks say dirty until the array
        // is idle.
        self.is_dirty = true;
        self.version += 1;
        self.frozen = None;
    }

    fn begin_round(&mut self, seconds: u64) {
        assert!(self.frozen.is_none(), "a frozen array writes no superblock");
        assert!(!self.writes_nothing && !matches!(self.gate, Gate::ReadOnly | Gate::Stopped));
        assert!(
            self.lagging.is_empty(),
            "members one round behind come first, or this round would leave them two behind"
        );
        self.events += 1;
        // Assembly refuses to write long before this count, which could not be read back.
        assert!(self.events < Superblock::EVENTS_END);
        self.updated = seconds;
    }

    fn end_round(&mut self, round: &Round) {
        assert!(round.version <= self.version, "a round shows changes that were made");
        assert!(round.proven.iter().all(|member| !self.members[*member].is_trusted()));
        self.events_recorded = self.events;
        if round.names_all {
            assert!(round.version >= self.recorded, "rounds follow one another");
            self.recorded = round.version;
        }
        if round.version == self.version {
            self.returning = None;
        }
        self.unnamed.retain(|member| !round.proven.contains(member));
        self.is_recorded |= self.shows(self.version);
    }

    /// Whether the superblocks show at least `version`, and are two events ahead of every member that was left out.
    pub(crate) fn shows(&self, version: u64) -> bool {
        self.recorded >= version && self.events_recorded >= self.events_min
    }

    /// Slots whose member may be read.
    pub(crate) fn readable(&self) -> SlotSet {
        self.slot_map().readable()
    }

    /// Slots whose member every write goes to.
    pub(crate) fn writable(&self) -> SlotSet {
        self.slot_map().writable()
    }

    pub(crate) fn gate(&self) -> Gate {
        self.gate
    }

    pub(crate) fn takes_writes(&self) -> bool {
        self.takes_writes
    }

    pub(crate) fn members(&self) -> &[MemberState] {
        &self.members
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// From where on the array may be inconsistent.
    pub(crate) fn resync_from(&self) -> Option<Sectors> {
        self.resync_from
    }

    /// Whether a resync runs, or should.
    pub(crate) fn needs_resync(&self) -> bool {
        self.resync_from.is_some() && !self.is_suspect
    }

    /// Whether the superblocks say dirty, and nothing could differ: of a mirror with one member left.
    pub(crate) fn is_dirty_without_need(&self) -> bool {
        self.template.is_dirty() && self.resync_from.is_none() && !self.is_dirty
    }

    pub(crate) fn has_opened(&self) -> bool {
        self.has_opened
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    pub(crate) fn missed_round(&self) -> SlotSet {
        self.missed_round
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn updated(&self) -> u64 {
        self.updated
    }

    /// The number of the last change that superblocks must show.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn frozen(&self) -> Option<Frozen> {
        self.frozen
    }

    /// The error for writes since the array froze. Do not infer this from the gate: `stop` overwrites `Frozen`.
    pub(crate) fn frozen_error(&self) -> Option<IoError> {
        self.frozen.map(|frozen| view::frozen_error(frozen.kind))
    }

    /// A flush failed on more members than the array can lose.
    pub(crate) fn has_lost_flush(&self) -> bool {
        self.frozen.is_some_and(|frozen| frozen.cause == FreezeCause::LostFlush)
    }

    /// Whether the superblocks may say clean once all is flushed.
    pub(crate) fn can_go_clean(&self) -> bool {
        self.takes_writes && !self.is_suspect && self.frozen.is_none()
    }
}
