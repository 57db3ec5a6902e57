//! Members that join and leave a running array.
//! Owns: [`Membership`], [`RemoveError`], the order of the steps, flags of members.
//! Not here: why none can join (`join_error`), the devices on each shard (`places`), who opens and closes them (the caller), when a spare takes a slot (`take_slot`), superblocks
//! (`recorder`).
//! Invariant: a member that joins takes a slot only when every superblock lists it as a spare. A member that leaves has
//! no slot, no request in flight, and no superblock that lists it, before its device is let go.
//!
//! ```text
//!   step                                       a crash after it: the next start has
//!   a place is reserved, no device yet         the array as it was
//!   the caller installs it on every shard      the same
//!   superblocks list it as a spare             the spare, if it is given
//!   the state says so: it may take a slot      the same; see `kinds::recovery`
//!
//!   a former member is installed as above      the array as it was
//!   drain, the whole bitmap on it, superblocks
//!   list it in its slot, to be recovered       the recovery goes on by the bits
//!   drain: every write goes to it              the same
//!
//!   a spare, or its failure is recorded        the array as it is
//!   drain: no request knows the member         the same
//!   superblocks list it as removed             the array without it
//!   the caller lets it go on every shard       the same
//! ```

use crate::World;
use crate::pass::passes::Passes;
use crate::shard::places::MEMBERS_MAX;
use crate::state::master::{Change, MemberState, Membership as Step};
use crate::state::view::Gate;
use crate::steward::current_bitmap::CurrentBitmap;
use crate::steward::recorder::Recorder;
use crate::steward::{NotNow, Steward};
use crate::words::join_error::{AddError, ReAddError};
use std::rc::Rc;
use std::sync::Arc;
use uraid_block::local::Semaphore;
use uraid_block::{ErrorKind, IoError, Sector, Sectors, Slot, SlotSet};
use uraid_format::bitmap::{BitmapHeader, BitmapImage, BitmapUnusable};
use uraid_format::{Features, MemberFlag, NoCopies, ROLES_MAX, Superblock};

/// Why a member cannot be removed from an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoveError {
    /// It works in a slot.
    #[error("works in the array: `uraid fail` comes first")]
    InUse,
    /// Another command has removed it, or is removing it now.
    #[error("is no member any more")]
    Gone,
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The removal could not be recorded.
    #[error("the array is frozen, so its superblocks cannot say that a member was removed; stop it and start it again")]
    Frozen(#[source] IoError),
}

/// Why a flag of members cannot be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FlagError {
    /// The level does not choose which member to read.
    #[error(transparent)]
    NoCopies(#[from] NoCopies),
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// A member has failed or was removed.
    #[error("has failed or was removed")]
    NoMember {
        /// Its index.
        member: usize,
    },
    /// Copies may differ, and the flag says which of them counts.
    #[error(
        "the array is not in sync, and write-mostly members are the last that its resync copies from; try again when the \
         resync has ended"
    )]
    NotInSync,
    /// The array is frozen.
    #[error("the array is frozen")]
    Frozen(#[source] IoError),
}

impl From<NotNow> for FlagError {
    fn from(reason: NotNow) -> FlagError {
        match reason {
            NotNow::ReadOnly => FlagError::ReadOnly,
            NotNow::NotOpen => FlagError::NotOpen,
            NotNow::Frozen(error) => FlagError::Frozen(error),
        }
    }
}

/// A device that was a member.
#[derive(Clone, Debug)]
pub struct FormerMember {
    /// Its superblock.
    pub superblock: Superblock,
    /// The size of its device.
    pub device_size: Sectors,
    /// Its own bitmap.
    pub bitmap: Result<BitmapImage, BitmapUnusable>,
}

/// What the superblock of a device that joins is made from.
#[derive(Clone, Debug)]
pub struct Vacancy {
    /// A member's superblock: the source of the fields that all members share.
    pub template: Superblock,
    /// The number of the device: its entry in the role table.
    pub number: u32,
    /// The array's bitmap as it is now, if it has one.
    pub bitmap: Option<Arc<BitmapImage>>,
}

/// Adds and removes members; on shard 0 only.
pub(crate) struct Membership<W: World> {
    steward: Rc<Steward<W>>,
    recorder: Rc<Recorder<W>>,
    passes: Rc<Passes<W>>,
    bitmap: Rc<CurrentBitmap<W>>,
    /// One removal at a time.
    turn: Rc<Semaphore>,
}

impl<W: World> Membership<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        recorder: &Rc<Recorder<W>>,
        passes: &Rc<Passes<W>>,
        bitmap: &Rc<CurrentBitmap<W>>,
    ) -> Membership<W> {
        Membership {
            steward: steward.clone(),
            recorder: recorder.clone(),
            passes: passes.clone(),
            bitmap: bitmap.clone(),
            turn: Semaphore::new(1),
        }
    }

    /// Whether a member could join now, and with which number.
    pub(crate) fn vacancy(&self) -> Result<Vacancy, AddError> {
        let shared = &self.steward.shared;
        if !shared.is_redundant() {
            return Err(AddError::NoRedundancy { level: shared.layout().level() });
        }
        let master = self.steward.master();
        match master.gate() {
            Gate::ReadOnly | Gate::NoNewWrites => return Err(AddError::ReadOnly),
            Gate::Closed | Gate::Stopped => return Err(AddError::NotOpen),
            Gate::Frozen(_) | Gate::Open => {}
        }
        if let Some(error) = master.frozen_error() {
            return Err(AddError::Frozen(error));
        }
        if self.steward.is_stopping.get() {
            return Err(AddError::NotOpen);
        }
        let has_place = master.members().len() < MEMBERS_MAX;
        let number = master.free_number().filter(|_| has_place).ok_or(AddError::Full { maximum: ROLES_MAX })?;
        let bitmap = self.bitmap.get().filter(|_| master.lists_bitmap()).map(|bitmap| bitmap.snapshot_bits());
        Ok(Vacancy { template: master.template_to_join(), number, bitmap })
    }

    /// Reserves the next index for a device with this superblock, which is made from the last vacancy. The member takes
    /// part in nothing until [`Membership::add`] or [`Membership::re_add`].
    pub(crate) fn reserve(&self, superblock: Superblock) -> Result<usize, AddError> {
        let vacancy = self.vacancy()?;
        assert_eq!(vacancy.number, superblock.dev_number, "one device joins at a time");
        let index = self.steward.master().members().len();
        self.steward.apply(Change::Membership(Step::Reserve(Box::new(superblock))));
        Ok(index)
    }

    /// Makes the member a spare. Returns when every superblock lists it. Every shard must have its device.
    pub(crate) async fn add(&self, member: usize) -> Result<(), AddError> {
        let steward = &self.steward;
        {
            let _one = steward.transition.acquire(1).await;
            self.vacancy()?;
            assert_eq!(steward.shared.members.len(), member + 1, "it is installed");
            steward.apply(Change::Membership(Step::AddSpare(member)));
        }
        let version = steward.master().version();
        let recorded = self.recorder.record_up_to(version).await;
        let _one = steward.transition.acquire(1).await;
        let state = steward.master().members()[member];
        let error = match (state, recorded) {
            (MemberState::Spare, Ok(())) => {
                steward.apply(Change::Membership(Step::Joined(member)));
                if steward.master().gate() == Gate::Open {
                    // This wakes the task that gives slots to spares.
                    steward.publish(Change::Nothing).await;
                }
                return Ok(());
            }
            (MemberState::Faulty { error, .. }, _) => AddError::Superblock(error),
            (_, Err(error)) if error.kind == ErrorKind::Stopping => AddError::NotOpen,
            (_, Err(error)) => AddError::Frozen(error),
            (_, Ok(())) => unreachable!("a member that joins is given no slot, and removed by no other command"),
        };
        steward.apply(Change::Membership(Step::Remove(member)));
        Err(error)
    }

    /// The slot into which a former member returns, if it lacks only what the bitmap names.
    pub(crate) fn former_slot(&self, former: &FormerMember) -> Result<Slot, ReAddError> {
        let FormerMember { superblock: former, device_size, bitmap: own_bitmap } = former;
        self.vacancy().map_err(ReAddError::NotNow)?;
        let bitmap = self.bitmap.get().filter(|_| self.steward.master().lists_bitmap()).ok_or(ReAddError::NoBitmap)?;
        let slot = former.own_role().slot().ok_or(ReAddError::NoSlot)?;
        let master = self.steward.master();
        self.check_shape(former)?;
        let expected = former.data_offset + former.size;
        if Sector(device_size.0) < expected {
            return Err(ReAddError::Shrank { found: *device_size, expected: Sectors(expected.0) });
        }
        if master.writable().contains(slot) {
            return Err(ReAddError::Taken { slot });
        }
        let (found, expected) = (former.events, master.events());
        if found > expected {
            return Err(ReAddError::Ahead { found, expected });
        }
        // When it left, the others could serve the array. If not, it was the array.
        let slots = self.steward.shared.layout().slots();
        let listed = former.roles.iter().filter_map(|role| role.slot()).filter(|listed| listed.0 < slots);
        let others = listed.collect::<SlotSet>().without(slot);
        if master.was_apart(former) || !self.steward.shared.layout().can_serve(&others) {
            return Err(ReAddError::Apart);
        }
        let expected = bitmap.events_cleared();
        if found < expected {
            return Err(ReAddError::TooOld { found, expected });
        }
        // Should it have run apart all the same, its own bits name what was written then.
        let is_believed = |own: &BitmapImage| {
            let header = own.header();
            let is_kept = header.state & (BitmapHeader::STALE | BitmapHeader::WRITE_ERROR) == 0;
            is_kept && header.set_uuid == former.set_uuid && header.events >= found && bitmap.is_alike(own)
        };
        if !own_bitmap.as_ref().is_ok_and(is_believed) {
            return Err(ReAddError::OwnBitmap);
        }
        if !master.is_recorded() {
            return Err(ReAddError::Unrecorded);
        }
        let features = former.features;
        // An unfinished recovery by bits has cleared no bit: all that the member lacks is still named.
        if features.contains(Features::RECOVERY_OFFSET) && !features.contains(Features::RECOVERY_BITMAP) {
            let found = Sectors(former.recovery_offset);
            return Err(ReAddError::Incomplete { found, expected: former.size });
        }
        if features.contains(Features::BAD_BLOCKS) {
            return Err(ReAddError::BadBlocks);
        }
        Ok(slot)
    }

    fn check_shape(&self, former: &Superblock) -> Result<(), ReAddError> {
        let master = self.steward.master();
        let own = master.template();
        let shape = |superblock: &Superblock| {
            let Superblock { set_uuid, created, version, level, layout, chunk, raid_disks, size, .. } = superblock;
            (*set_uuid, *created, *version, *level, *layout, *chunk, *raid_disks, *size)
        };
        // What may differ between the members of one array.
        let recovery = Features::RECOVERY_OFFSET.with(Features::RECOVERY_BITMAP).with(Features::REPLACEMENT);
        let own_features = recovery.with(Features::BAD_BLOCKS);
        let of_array =
            |superblock: &Superblock| superblock.features.without(own_features.with(Features::BITMAP_OFFSET));
        let is_alike = shape(former) == shape(own) && of_array(former) == of_array(own);
        let has_slot = former.own_role().slot().is_some_and(|slot| slot.0 < self.steward.shared.layout().slots());
        if is_alike && has_slot && master.has_room_for_bitmap(former) { Ok(()) } else { Err(ReAddError::Shape) }
    }

    /// Gives a former member its slot back. Returns when the superblocks say so. Every shard must have its
    /// device.
    pub(crate) async fn re_add(&self, member: usize, former: &FormerMember) -> Result<(), ReAddError> {
        let steward = &self.steward;
        let slot = self.former_slot(former)?;
        assert_eq!(steward.shared.members.len(), member + 1, "it is installed");
        let bits = former.bitmap.as_ref().expect("it was checked");
        self.passes.give_back(member, slot, bits, || self.former_slot(former).map(|_| ())).await?;
        match steward.master().members()[member] {
            MemberState::Faulty { error, .. } => Err(ReAddError::Superblock(error)),
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Replacing { .. }
            | MemberState::Spare
            | MemberState::Removed => Ok(()),
        }
    }

    /// Gives members a flag, or takes it away: all of them or none.
    pub(crate) async fn set_flag(&self, members: &[usize], flag: MemberFlag, is_set: bool) -> Result<(), FlagError> {
        let steward = &self.steward;
        flag.check_level(steward.shared.layout().level())?;
        let _turn = self.turn.acquire(1).await;
        let holds = orders_copies(flag) && steward.master().has_write_behind();
        if holds {
            // A crash while a write is behind must find the flag: the copy of this member is then the last that counts.
            let epoch = {
                let _one = steward.transition.acquire(1).await;
                steward.check_open()?;
                steward.publish(Change::HoldBehind(true)).await
            };
            steward.drain(epoch).await;
        }
        let outcome = self.record_flag(members, flag, is_set).await;
        if holds {
            let _one = steward.transition.acquire(1).await;
            if steward.master().gate() != Gate::Stopped {
                steward.publish(Change::HoldBehind(false)).await;
            }
        }
        outcome
    }

    async fn record_flag(&self, members: &[usize], flag: MemberFlag, is_set: bool) -> Result<(), FlagError> {
        let steward = &self.steward;
        {
            let _one = steward.transition.acquire(1).await;
            steward.check_open()?;
            // Two reads of one sector agree, also across a crash: until copies agree, the one that counts stays.
            if orders_copies(flag) && steward.master().resync_from().is_some() {
                return Err(FlagError::NotInSync);
            }
            let is_gone = |member: &&usize| !steward.master().members()[**member].is_trusted();
            if let Some(member) = members.iter().find(is_gone) {
                return Err(FlagError::NoMember { member: *member });
            }
            steward.publish(Change::SetFlag(members, flag, is_set)).await;
        }
        let version = steward.master().version();
        self.recorder.record_up_to(version).await.map_err(FlagError::Frozen)
    }

    /// Takes a member out of the array: a spare, or one that has failed. Returns when no request and no superblock knows
    /// it. The caller then lets its device go on every shard.
    pub(crate) async fn remove(&self, member: usize) -> Result<(), RemoveError> {
        let steward = &self.steward;
        let _turn = self.turn.acquire(1).await;
        loop {
            self.check_remove(member)?;
            if self.is_failure_unrecorded(member) {
                let version = steward.master().version();
                self.recorder.record_up_to(version).await.map_err(RemoveError::Frozen)?;
                continue;
            }
            let epoch = {
                let _one = steward.transition.acquire(1).await;
                steward.publish(Change::Nothing).await
            };
            // Requests that were planned with the member look it up until they are answered.
            steward.drain(epoch).await;
            let _one = steward.transition.acquire(1).await;
            // A spare may have taken a slot, or a stop or a freeze may have begun meanwhile.
            self.check_remove(member)?;
            if self.is_failure_unrecorded(member) {
                continue;
            }
            steward.publish(Change::Membership(Step::Remove(member))).await;
            break;
        }
        let version = steward.master().version();
        self.recorder.record_up_to(version).await.map_err(RemoveError::Frozen)
    }

    /// Whether the superblocks of the others do not say yet that it failed. Only a record of that, or a freeze, ends this.
    fn is_failure_unrecorded(&self, member: usize) -> bool {
        let master = self.steward.master();
        matches!(master.members()[member], MemberState::Faulty { .. }) && !master.is_recorded()
    }

    fn check_remove(&self, member: usize) -> Result<(), RemoveError> {
        let master = self.steward.master();
        match master.gate() {
            Gate::ReadOnly | Gate::NoNewWrites => return Err(RemoveError::ReadOnly),
            Gate::Closed | Gate::Stopped => return Err(RemoveError::NotOpen),
            Gate::Open | Gate::Frozen(_) => {}
        }
        match master.members()[member] {
            MemberState::Active(_) | MemberState::Recovering { .. } | MemberState::Replacing { .. } => {
                return Err(RemoveError::InUse);
            }
            MemberState::Removed => return Err(RemoveError::Gone),
            MemberState::Faulty { .. } | MemberState::Spare => {}
        }
        if self.steward.is_stopping.get() {
            return Err(RemoveError::NotOpen);
        }
        master.frozen_error().map_or(Ok(()), |error| Err(RemoveError::Frozen(error)))
    }
}
/// Whether a flag says which copies count before others.
fn orders_copies(flag: MemberFlag) -> bool {
    match flag {
        MemberFlag::WriteMostly => true,
        MemberFlag::FailFast => false,
    }
}
