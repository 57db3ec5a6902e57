//! An array's life: start, stop, status.
//! Owns: [`Lifecycle`], what shard 0 has besides the request paths and how it is put together, the order of the steps.
//! Not here: the single steps (`steward`, `recorder`, `pass`).
//! Invariant: the gate opens when the superblocks say truthfully what may be inconsistent. The array is marked clean only
//! when all is on the members.

use crate::World;
use crate::assemble::{BitmapPlan, PplPlan};
use crate::command::bitmap_changer::BitmapChanger;
use crate::command::fail::Commands;
use crate::command::membership::Membership;
use crate::pass::passes::Passes;
use crate::pass::torn_resync::TornResync;
use crate::request::read_watch::ReadWatch;
use crate::row::io::RowIo;
use crate::shard::shared::{Counters, Shared};
use crate::shard::without_source::without_source;
use crate::state::master::{Change, Master, MemberState};
use crate::state::view::Gate;
use crate::steward::Steward;
use crate::steward::bitmap::{Bitmap, BitmapStatus, Phase};
use crate::steward::current_bitmap::CurrentBitmap;
use crate::steward::dirty_mark::DirtyMark;
use crate::steward::flusher::Flusher;
use crate::steward::health::{Health, MemberErrors};
use crate::steward::judge::Judge;
use crate::steward::ppl::Ppl;
use crate::steward::recorder::Recorder;
use crate::words::bad_blocks::BadBlockList;
use crate::words::mark::{self, Mark};
use crate::words::progress::Progress;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{ErrorKind, Extent, Geometry, IoError, Sector, Sectors, Slot, SlotSet};
use uraid_format::MemberFlag;
use uraid_layout::Level;

/// Why an array could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// The superblocks could not be written.
    #[error("the superblocks could not be brought up to date")]
    Record(#[source] IoError),
    /// Blocks of a missing member would be computed from parity that is to be made good first, which writes it.
    #[error(
        "a member is missing, and what its partial parity logs name must be made good before it can be read: start it for \
         writing, or with --force"
    )]
    ReadOnlyLog,
    /// A stop arrived during the start; a dirty array stays dirty.
    #[error("the array was stopped while it was being started")]
    Stopping,
    /// The array froze during the start: more members failed than the level tolerates.
    #[error("the array froze while it was started")]
    Frozen(#[source] IoError),
}

/// Why an array was not marked clean when it stopped. It is stopped all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StopError {
    /// It froze before: the next start makes it consistent.
    #[error("the array was frozen and stays marked dirty; the next start makes it consistent")]
    Frozen(#[source] IoError),
    /// The same for a level without redundancy, which has no dirty mark and no resync.
    #[error("the array was frozen: what was written since its last good flush may be lost")]
    FrozenPlain(#[source] IoError),
    /// A member could not be flushed, or the superblocks could not be written.
    #[error("the array stays marked dirty; the next start makes it consistent")]
    NotClean(#[source] IoError),
    /// A level without redundancy whose member could not be flushed.
    #[error("the last flush failed, so the last writes may be lost")]
    Flush(#[source] IoError),
}

/// The state of the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The level.
    pub level: Level,
    /// Slots in all.
    pub slots: u16,
    /// Slots whose member works.
    pub usable: SlotSet,
    /// Slots of two members that held everything at the start, and stay.
    pub at_rest: SlotSet,
    /// The state of the gate.
    pub gate: Gate,
    /// Whether the superblocks say dirty.
    pub is_dirty: bool,
    /// The event count of the superblocks.
    pub events: u64,
    /// How far the pass has come, if one runs or is due. An array that was stopped in the middle of one continues there.
    pub pass: Option<Progress>,
    /// When they were last written, in seconds since 1970.
    pub updated: u64,
    /// Each member by its index: those of the start plan in its order, then those that were added.
    pub members: Vec<MemberState>,
    /// The flags of each of them.
    pub flags: Vec<Vec<MemberFlag>>,
    /// The sectors that each of them lacks, by its bad-block list.
    pub bad_blocks: Vec<BadBlockList>,
    /// At least this many sectors cannot be read: no member is left that has them, because those that are there list
    /// them.
    pub without_source: Sectors,
    /// The errors of each of them, summed over all shards.
    pub errors: Vec<MemberErrors>,
    /// The array's geometry as a device.
    pub geometry: Geometry,
    /// Its bitmap, if it has one that is kept up to date.
    pub bitmap: Option<BitmapStatus>,
    /// Rounds of superblock writes so far.
    pub records: u64,
    /// How long the last failure took from the report to the durable record, including the collection time.
    pub last_record: Option<Duration>,
    /// What shard 0 has counted.
    pub counters: Counters,
}

impl Status {
    /// md's picture of the slots: `[UU_U]`.
    pub fn picture(&self) -> String {
        let slots = (0..self.slots).map(|slot| if self.usable.contains(Slot(slot)) { 'U' } else { '_' });
        format!("[{}]", slots.collect::<String>())
    }
}

/// The parts of an array that decide for all shards; on shard 0 only.
pub(crate) struct Lifecycle<W: World> {
    pub(crate) steward: Rc<Steward<W>>,
    judge: Rc<Judge<W>>,
    pub(crate) recorder: Rc<Recorder<W>>,
    pub(crate) flusher: Rc<Flusher<W>>,
    pub(crate) dirty_mark: Rc<DirtyMark<W>>,
    pub(crate) health: Health<W>,
    pub(crate) commands: Rc<Commands<W>>,
    pub(crate) passes: Rc<Passes<W>>,
    pub(crate) bitmap: Rc<CurrentBitmap<W>>,
    ppl: Option<Rc<Ppl<W>>>,
    pub(crate) bitmap_changer: BitmapChanger<W>,
    pub(crate) membership: Membership<W>,
    read_watch: Rc<ReadWatch<W>>,
}

impl<W: World> Lifecycle<W> {
    /// `bitmap`, `ppl`: of an array that has one. `rows`: of parity levels.
    pub(crate) fn new(
        shared: Rc<Shared<W>>,
        master: Master,
        (bitmap, ppl): (Option<&BitmapPlan>, Option<&PplPlan>),
        rows: Option<Rc<RowIo<W>>>,
        read_watch: Rc<ReadWatch<W>>,
    ) -> Lifecycle<W> {
        let torn_resync = TornResync::new(shared.clone(), rows);
        let steward = Steward::new(shared, master);
        let judge = Judge::new(&steward);
        let flusher = Flusher::new(&steward);
        let bitmap = bitmap.map(|plan| Bitmap::new(&steward, &judge, &flusher, plan, Phase::InForce));
        let bitmap = CurrentBitmap::new(bitmap);
        let recorder = Recorder::new(&steward, &judge, &bitmap);
        let dirty_mark = DirtyMark::new(&steward, &recorder, &flusher);
        let health = Health::new(&steward, &judge, &recorder);
        let ppl = ppl.map(|plan| Ppl::new(&steward, &judge, &recorder, &flusher, plan));
        let passes = Passes::new(&steward, &recorder, &flusher, &bitmap, ppl.clone());
        let commands = Commands::new(&steward, &judge, &recorder, &dirty_mark, &flusher, &passes, torn_resync);
        let membership = Membership::new(&steward, &recorder, &passes, &bitmap);
        let bitmap_changer = BitmapChanger::new(&steward, &judge, &recorder, &flusher, &passes, &bitmap);
        Lifecycle {
            steward,
            judge,
            recorder,
            flusher,
            dirty_mark,
            health,
            commands,
            passes,
            bitmap,
            ppl,
            bitmap_changer,
            membership,
            read_watch,
        }
    }

    /// Makes these bits durable. A bitmap that the array has no more needs none.
    pub(crate) async fn need_bits(&self, chunks: Range<u64>) -> Result<(), IoError> {
        match self.bitmap.get() {
            Some(bitmap) => bitmap.need(chunks).await,
            None => Ok(()),
        }
    }

    /// The partial parity log. Only shards of an array that has one send mail about it.
    pub(crate) fn ppl(&self) -> &Rc<Ppl<W>> {
        self.ppl.as_ref().expect("the array has a partial parity log")
    }

    /// Brings the superblocks up to date, and opens the gate. A resync runs beside the requests.
    pub(crate) async fn start(&self) -> Result<(), StartError> {
        let steward = &self.steward;
        // A stop that arrives now waits for this permit.
        let _one = steward.transition.acquire(1).await;
        if steward.is_stopping.get() {
            mark::hit(Mark::StartStopped);
            return Err(StartError::Stopping);
        }
        assert_eq!(steward.master().gate(), Gate::Closed, "an array starts once");
        assert!(!steward.master().has_opened());
        if steward.shared.config.read_only {
            self.steward.publish(Change::OpenReadOnly).await;
            self.read_watch.begin();
            return Ok(());
        }
        if !self.steward.shared.is_redundant() {
            self.steward.publish(Change::Open).await;
            return Ok(());
        }
        if let Some(ppl) = &self.ppl {
            ppl.distrust().await.map_err(StartError::Frozen)?;
        }
        self.recorder.catch_up().await.map_err(StartError::Record)?;
        assert!(steward.master().lagging_images().is_empty(), "all members have the freshest superblock");
        let is_to_be_recorded = {
            let master = steward.master();
            let is_due = master.leaves_a_slot_out() || master.needs_resync() || !master.is_recorded();
            is_due || master.is_dirty_without_need()
        };
        if is_to_be_recorded {
            mark::hit(Mark::StartRecorded);
            steward.apply(Change::LeaveOutsiders);
            let version = steward.master().version();
            self.recorder.record_up_to(version).await.map_err(StartError::Record)?;
        }
        if let Some(ppl) = &self.ppl {
            ppl.begin().await.map_err(StartError::Frozen)?;
        }
        let frozen = steward.master().frozen_error();
        if let Some(error) = frozen {
            return Err(StartError::Frozen(error));
        }
        if steward.is_stopping.get() {
            mark::hit(Mark::StartStopped);
            return Err(StartError::Stopping);
        }
        self.steward.publish(Change::Open).await;
        self.read_watch.begin();
        self.passes.begin();
        steward.shared.world.spawn(self.dirty_mark.clone().watch_idle());
        if let Some(bitmap) = self.bitmap.get() {
            steward.shared.world.spawn(bitmap.clear_now_and_then());
        }
        Ok(())
    }

    /// Keeps new requests out, waits for those inside, flushes, marks the array clean. A second call is harmless. Later
    /// requests are refused.
    pub(crate) async fn stop(&self) -> Result<(), StopError> {
        let steward = &self.steward;
        if steward.is_stopping.replace(true) {
            // The first call may not hold the transition yet.
            steward.shared.view_changed.wait_for(|| (steward.shared.view().gate == Gate::Stopped).then_some(())).await;
            let _done = steward.transition.acquire(1).await;
            return Ok(());
        }
        self.dirty_mark.revoke_clean_up().await;
        self.bitmap_changer.over().await;
        let _one = steward.transition.acquire(1).await;
        let is_read_only = steward.shared.view().gate == Gate::ReadOnly || steward.shared.config.read_only;
        // While nothing was written, a freeze has cost nothing.
        let frozen = steward.master().frozen_error().filter(|_| !steward.master().writes_nothing());
        let epoch = self.steward.publish(Change::Close).await;
        self.steward.drain(epoch).await;
        // A member that fails in it must be recorded by this stop.
        self.passes.flush_over().await;
        let bitmap = self.bitmap.get();
        if let Some(bitmap) = &bitmap {
            bitmap.clearing_over().await;
        }
        let mut outcome = match frozen {
            Some(error) => {
                mark::hit(Mark::StoppedFrozen);
                Err(if self.steward.shared.is_redundant() {
                    StopError::Frozen(error)
                } else {
                    StopError::FrozenPlain(error)
                })
            }
            None if is_read_only && steward.master().is_dirty() && steward.master().has_opened() => {
                Err(StopError::NotClean(ErrorKind::Media.into()))
            }
            None if is_read_only => Ok(()),
            None => self.leave_clean().await,
        };
        if let Some(bitmap) = &bitmap
            && outcome.is_ok()
            && !is_read_only
        {
            bitmap.clear_at_stop().await;
        }
        if steward.master().needs_resync() && !is_read_only {
            mark::hit(Mark::ResyncStopped);
        }
        self.commands.end().await;
        // A member's failure may not be in the superblocks yet. After this no superblock is written.
        self.judge.collection_over().await;
        let version = steward.master().version();
        if outcome.is_ok()
            && !is_read_only
            && self.steward.shared.is_redundant()
            && let Err(error) = self.recorder.record_up_to(version).await
        {
            outcome = Err(StopError::Frozen(error));
        }
        let last = self.recorder.turn().await;
        let last_of_bitmap = match &bitmap {
            Some(bitmap) => Some(bitmap.turn().await),
            None => None,
        };
        let epoch = self.steward.publish(Change::Stop).await;
        drop((last, last_of_bitmap));
        // If the array froze after the gate was closed, reads were admitted again: wait for them.
        self.steward.drain(epoch).await;
        assert_eq!(steward.shared.epochs.in_flight(), 0, "a stopped array has no request");
        assert_eq!(steward.master().gate(), Gate::Stopped);
        outcome
    }

    async fn leave_clean(&self) -> Result<(), StopError> {
        if !self.steward.shared.is_redundant() {
            return self.flusher.flush_round().await.map(|_recorded| ()).map_err(StopError::Flush);
        }
        self.dirty_mark.go_clean().await;
        let master = self.steward.master();
        assert_ne!(master.gate(), Gate::Open, "the stop has closed the gate");
        if let Some(error) = master.frozen_error() {
            return Err(StopError::NotClean(error));
        }
        if master.is_dirty() { Err(StopError::NotClean(ErrorKind::Media.into())) } else { Ok(()) }
    }

    /// Publishes the view again and waits until every request that was inside has left. It measures what a drain costs
    /// any change that needs one. Requests continue meanwhile. Call it outside of any request.
    pub(crate) async fn drain_once(&self) {
        let _one = self.steward.transition.acquire(1).await;
        let epoch = self.steward.publish(Change::Nothing).await;
        self.steward.drain(epoch).await;
    }

    /// What the array is like now.
    pub(crate) fn status(&self) -> Status {
        let steward = &self.steward;
        let master = steward.master();
        let errors = self.health.errors();
        assert_eq!(master.members().len(), errors.len(), "both are of all members");
        Status {
            level: steward.shared.layout().level(),
            slots: steward.shared.layout().slots(),
            usable: master.readable(),
            at_rest: master.at_rest(),
            gate: master.gate(),
            is_dirty: master.is_dirty(),
            events: master.events(),
            pass: self.passes.progress(),
            updated: master.updated(),
            members: master.members().to_vec(),
            flags: (0..master.members().len()).map(|member| master.flags(member)).collect(),
            bad_blocks: (0..master.members().len()).map(|member| master.bad_blocks(member).clone()).collect(),
            without_source: self.without_source(),
            errors,
            geometry: steward.shared.geometry(),
            bitmap: self.bitmap.get().map(|bitmap| bitmap.status()),
            records: self.recorder.rounds(),
            last_record: self.recorder.last_record(),
            counters: steward.shared.counters(),
        }
    }

    fn without_source(&self) -> Sectors {
        let (shared, master) = (&self.steward.shared, self.steward.master());
        let view = shared.view();
        let of_slot = |slot: Slot| {
            let member = view.member(slot);
            let in_data = |at: Sector| Sector(at.0.saturating_sub(member.data_offset.0));
            let ranges = master.bad_blocks(member.index).ranges().iter();
            let ranges = ranges.map(|range| (slot, Extent::between(in_data(range.start), in_data(range.end()))));
            ranges.collect::<Vec<_>>()
        };
        let listed: Vec<(Slot, Extent<Sector>)> = view.readable().iter().flat_map(of_slot).collect();
        if listed.is_empty() { Sectors::ZERO } else { without_source(&shared.layout(), view.readable(), &listed) }
    }
}
