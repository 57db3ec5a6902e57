//! A bitmap for an array that has none, and none for one that has it, while the array serves.
//! Owns: [`BitmapChanger`], [`ChangeBitmapError`], the order of the steps. Not here: setting and clearing bits
//! (`bitmap`), its place and first bytes (`uraid_format::create`), superblocks (`recorder`).
//! Invariant: while any superblock lists a bitmap, every write under way has its bit in it.
//!
//! ```text
//!   step                                         a crash after it: the next start has
//!   added
//!     publish: every write notes its bits        no bitmap; a dirty array is resynced as a whole
//!     drain: no write is left that did not       the same
//!     the bitmap on every member, flush them     the same
//!     from here on a bit is durable before its   the same
//!     data; the pages of all bits until now
//!     bitmap headers, superblocks list it        the bitmap; outside of its bits everything is durable
//!   removed
//!     no bit is cleared any more                 the bitmap
//!     superblocks do not list it                 no bitmap, or the one that is still kept up to date
//!     publish: no write asks -> drain            no bitmap
//! ```
//!
//! A member that fails while a bitmap is added may miss a write that has no bit. So `events_cleared` of the new bitmap
//! is the count of superblocks that all name that failure: such a member is too old for it.

use crate::World;
use crate::assemble::BitmapPlan;
use crate::pass::passes::Passes;
use crate::state::master::{BitmapChange, Change};
use crate::state::view::{Epoch, Gate};
use crate::steward::bitmap::{Bitmap, Phase};
use crate::steward::current_bitmap::CurrentBitmap;
use crate::steward::flusher::Flusher;
use crate::steward::judge::Judge;
use crate::steward::recorder::Recorder;
use crate::steward::{NotNow, Steward};
use crate::words::mark::{self, Mark};
use crate::words::progress::{self, PassKind};
use std::cell::Cell;
use std::rc::Rc;
use uraid_block::local::{Notify, Permit, Semaphore};
use uraid_block::{ErrorKind, IoError, Sectors};
use uraid_format::create::{BitmapToAdd, NoBitmapPlace, bitmap_to_add};
use uraid_layout::Level;

/// Why the bitmap of an array cannot be added or removed now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeBitmapError {
    /// The level cannot use one.
    #[error("{} has no redundancy that a bitmap could help to make consistent", level.name())]
    NoRedundancy {
        /// The level.
        level: Level,
    },
    /// It has a partial parity log.
    #[error("the array has a partial parity log: md allows no bitmap beside it")]
    HasLog,
    /// It has one.
    #[error("the array has a bitmap already")]
    HasBitmap,
    /// It has none.
    #[error("the array has no bitmap")]
    NoBitmap,
    /// There is no place for one.
    #[error(transparent)]
    Place(NoBitmapPlace),
    /// One member has no room between its superblock and what follows it.
    #[error("has no room for a bitmap of {} beside its superblock", length.size())]
    MemberRoom {
        /// Its index.
        member: usize,
        /// What the bitmap takes.
        length: Sectors,
    },
    /// It could not be written to a member.
    #[error("the bitmap cannot be written to it; the array has no bitmap, as before")]
    Member {
        /// Its index.
        member: usize,
        /// The error.
        #[source]
        error: IoError,
    },
    /// A pass runs or is due.
    #[error("a pass runs, or is due")]
    Busy(PassKind),
    /// A former member takes its slot back.
    #[error("a member is about to return; try again")]
    MemberReturns,
    /// A resync met sectors that it could not read.
    #[error("the last resync met sectors that no member could give, so the array is not known to be consistent")]
    Suspect,
    /// The array is read-only.
    #[error("the array is read-only")]
    ReadOnly,
    /// The array is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// The array is frozen.
    #[error("the array is frozen, so its superblocks cannot say what changes")]
    Frozen(#[source] IoError),
}

impl From<NotNow> for ChangeBitmapError {
    fn from(reason: NotNow) -> ChangeBitmapError {
        match reason {
            NotNow::ReadOnly => ChangeBitmapError::ReadOnly,
            NotNow::NotOpen => ChangeBitmapError::NotOpen,
            NotNow::Frozen(error) => ChangeBitmapError::Frozen(error),
        }
    }
}

/// Adds and removes the bitmap; on shard 0 only.
pub(crate) struct BitmapChanger<W: World> {
    steward: Rc<Steward<W>>,
    judge: Rc<Judge<W>>,
    recorder: Rc<Recorder<W>>,
    flusher: Rc<Flusher<W>>,
    passes: Rc<Passes<W>>,
    current: Rc<CurrentBitmap<W>>,
    /// One change at a time.
    turn: Rc<Semaphore>,
    is_changing: Cell<bool>,
    changed: Notify,
}

impl<W: World> BitmapChanger<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        judge: &Rc<Judge<W>>,
        recorder: &Rc<Recorder<W>>,
        flusher: &Rc<Flusher<W>>,
        passes: &Rc<Passes<W>>,
        current: &Rc<CurrentBitmap<W>>,
    ) -> BitmapChanger<W> {
        BitmapChanger {
            steward: steward.clone(),
            judge: judge.clone(),
            recorder: recorder.clone(),
            flusher: flusher.clone(),
            passes: passes.clone(),
            current: current.clone(),
            turn: Semaphore::new(1),
            is_changing: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// Waits until no change is under way. After a stop has begun, none begins. The caller must not hold the transition,
    /// which a change may wait for.
    pub(crate) async fn over(&self) {
        assert!(self.steward.is_stopping.get(), "a stop waits for it");
        self.changed.wait_for(|| (!self.is_changing.get()).then_some(())).await;
    }

    /// Waits until no change is under way. None begins until the permit is dropped. The caller must not hold the
    /// transition yet.
    pub(crate) async fn turn(&self) -> Permit {
        self.turn.acquire(1).await
    }

    /// A bitmap of mdadm's choice for this array. `chunk`: what a bit stands for; `None`: as mdadm chooses.
    pub(crate) fn choose(&self, chunk: Option<Sectors>) -> Result<BitmapToAdd, ChangeBitmapError> {
        self.check_add()?;
        let covered = progress::total(&self.steward.shared.layout());
        bitmap_to_add(self.steward.master().template(), covered, chunk).map_err(ChangeBitmapError::Place)
    }

    /// Gives the array this bitmap. Returns when the superblocks say so.
    pub(crate) async fn add(&self, bitmap: BitmapToAdd) -> Result<(), ChangeBitmapError> {
        let _turn = self.turn.acquire(1).await;
        self.check_add()?;
        self.is_changing.set(true);
        let outcome = self.add_in_steps(bitmap).await;
        self.is_changing.set(false);
        self.changed.notify_all();
        outcome
    }

    /// Takes the bitmap away. Returns when the superblocks say so, and no write uses it.
    pub(crate) async fn remove(&self) -> Result<(), ChangeBitmapError> {
        let _turn = self.turn.acquire(1).await;
        let bitmap = self.check_remove()?;
        self.is_changing.set(true);
        bitmap.hold_clearing(true);
        bitmap.clearing_over().await;
        let outcome = self.unlist(&bitmap).await;
        bitmap.hold_clearing(false);
        self.is_changing.set(false);
        self.changed.notify_all();
        outcome
    }

    async fn add_in_steps(&self, bitmap: BitmapToAdd) -> Result<(), ChangeBitmapError> {
        let steward = &self.steward;
        let (bitmap, epoch) = {
            let _one = steward.transition.acquire(1).await;
            self.check_add()?;
            let change = BitmapChange::to_use(bitmap.offset, bitmap.image.header());
            let bitmap = Bitmap::new(steward, &self.judge, &self.flusher, &self.plan(bitmap)?, Phase::Noting);
            // Before the view: a write that has it asks at once.
            self.current.set(Some(bitmap.clone()));
            (bitmap, steward.publish(Change::Bitmap(change)).await)
        };
        steward.drain(epoch).await;
        let outcome = self.list(&bitmap).await;
        match outcome {
            Ok(()) => {
                mark::hit(Mark::BitmapAdded);
                // The view of each shard may let writes be behind now.
                let _one = steward.transition.acquire(1).await;
                if steward.master().has_write_behind() && steward.check_open().is_ok() {
                    steward.publish(Change::Nothing).await;
                }
                steward.shared.world.spawn(bitmap.clear_now_and_then());
            }
            // The array froze while the superblocks were written. Some may list the bitmap, so it is kept up to date.
            Err(_) if steward.master().lists_bitmap() => steward.shared.world.spawn(bitmap.clear_now_and_then()),
            Err(_) => self.take_back(&bitmap).await,
        }
        outcome
    }

    /// What every member with a slot is to get, if there is room for it.
    fn plan(&self, bitmap: BitmapToAdd) -> Result<BitmapPlan, ChangeBitmapError> {
        let master = self.steward.master();
        let BitmapToAdd { offset, mut image } = bitmap;
        assert_eq!(
            image.header().sync_size,
            progress::total(&self.steward.shared.layout()),
            "its bits cover the array"
        );
        assert_eq!(image.next_set(0), None, "a bit is set by a write");
        let length = image.header().used_sectors();
        if let Some(member) = master.without_room(offset, length) {
            return Err(ChangeBitmapError::MemberRoom { member, length });
        }
        image.change_header(|header| (header.events, header.events_cleared) = (master.events(), master.events()));
        let behind =
            (0..master.members().len()).filter(|member| master.members()[*member].written_slot().is_some()).collect();
        Ok(BitmapPlan { image, behind, is_out_of_date: false })
    }

    /// Writes the bitmap to every member, and lets the superblocks list it. Every write asks for its bits.
    async fn list(&self, bitmap: &Bitmap<W>) -> Result<(), ChangeBitmapError> {
        let steward = &self.steward;
        if let Some((member, error)) = bitmap.bring_up().await.first().copied() {
            return Err(ChangeBitmapError::Member { member, error });
        }
        // What was written before every write asked has no bit: it must not be lost.
        let _recorded = self.flusher.flush_round().await.map_err(|error| self.not_recorded(error))?;
        let _one = steward.transition.acquire(1).await;
        self.check_open()?;
        if let Err((member, error)) = bitmap.begin_to_set().await {
            return Err(ChangeBitmapError::Member { member, error });
        }
        loop {
            let version = steward.master().version();
            self.recorder.record_up_to(version).await.map_err(|error| self.not_recorded(error))?;
            if steward.master().is_recorded() {
                break;
            }
            // A spare failed in the round, which did not show that yet.
        }
        let events = steward.master().events();
        bitmap.count_from(events);
        steward.apply(Change::Bitmap(BitmapChange::List));
        let version = steward.master().version();
        self.recorder.record_up_to(version).await.map_err(|error| self.not_recorded(error))
    }

    /// The array has no bitmap, as before. If it has stopped, no write comes any more.
    async fn take_back(&self, bitmap: &Rc<Bitmap<W>>) {
        let epoch = {
            let _one = self.steward.transition.acquire(1).await;
            if self.steward.master().gate() == Gate::Stopped {
                return;
            }
            mark::hit(Mark::BitmapTakenBack);
            self.drop_bitmap(bitmap).await
        };
        // The next bitmap may have other chunks: requests that have asked for those of this one leave.
        self.steward.drain(epoch).await;
    }

    /// Lets the superblocks say that there is no bitmap, and then no write asks. No bit is being cleared.
    async fn unlist(&self, bitmap: &Rc<Bitmap<W>>) -> Result<(), ChangeBitmapError> {
        let steward = &self.steward;
        let epoch = {
            let _one = steward.transition.acquire(1).await;
            self.check_remove()?;
            steward.apply(Change::Bitmap(BitmapChange::Unlist));
            let version = steward.master().version();
            if let Err(error) = self.recorder.record_up_to(version).await {
                // Some superblocks may still list it. If the array takes writes again, all of them do.
                steward.apply(Change::Bitmap(BitmapChange::List));
                return Err(self.not_recorded(error));
            }
            mark::hit(Mark::BitmapRemoved);
            self.drop_bitmap(bitmap).await
        };
        // Requests that have asked for bits leave.
        steward.drain(epoch).await;
        Ok(())
    }

    /// No superblock lists the bitmap. The caller holds the transition.
    async fn drop_bitmap(&self, bitmap: &Rc<Bitmap<W>>) -> Epoch {
        let _page = bitmap.turn().await;
        bitmap.end();
        self.current.set(None);
        self.steward.publish(Change::Bitmap(BitmapChange::Drop)).await
    }

    fn check_add(&self) -> Result<(), ChangeBitmapError> {
        self.check_open()?;
        if self.current.get().is_some() {
            return Err(ChangeBitmapError::HasBitmap);
        }
        if self.steward.shared.has_log {
            return Err(ChangeBitmapError::HasLog);
        }
        self.check_passes()?;
        if self.steward.master().resync_from().is_some() {
            return Err(ChangeBitmapError::Suspect);
        }
        Ok(())
    }

    fn check_remove(&self) -> Result<Rc<Bitmap<W>>, ChangeBitmapError> {
        self.check_open()?;
        let bitmap = self.current.get().ok_or(ChangeBitmapError::NoBitmap)?;
        self.check_passes()?;
        Ok(bitmap)
    }

    /// As with md, the bitmap of an array stays as it is during a pass. A recovery may go on by its bits.
    fn check_passes(&self) -> Result<(), ChangeBitmapError> {
        match self.passes.progress() {
            Some(progress) => Err(ChangeBitmapError::Busy(progress.kind)),
            None if self.passes.has_undrained() => Err(ChangeBitmapError::MemberReturns),
            None => Ok(()),
        }
    }

    fn check_open(&self) -> Result<(), ChangeBitmapError> {
        let shared = &self.steward.shared;
        if !shared.is_redundant() {
            return Err(ChangeBitmapError::NoRedundancy { level: shared.layout().level() });
        }
        Ok(self.steward.check_open()?)
    }

    fn not_recorded(&self, error: IoError) -> ChangeBitmapError {
        if error.kind == ErrorKind::Stopping { ChangeBitmapError::NotOpen } else { ChangeBitmapError::Frozen(error) }
    }
}
