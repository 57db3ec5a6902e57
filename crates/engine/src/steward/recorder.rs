//! The metadata writer: superblocks, in rounds.
//! Owns: [`Recorder`], the order in which superblocks are written. Not here: their bytes (`uraid_format`), when a
//! round is needed (`steward`).
//! Invariant: when a round is done, every member that the array still trusts says the same, durably. Events never step
//! back. A failed member ends at least two events behind, and the first of these rounds does not name it. The writer
//! takes no row, claim or epoch and has its own buffers, so it cannot deadlock with a request that waits for it.
//!
//! ```text
//!   round n:  member 0 |==FUA==|                 one first: should power tear every write in flight,
//!             member 1          |==FUA==|        a whole superblock of this round, or of the one before,
//!             member 2          |==FUA==|        is still on each member that was not being written
//! ```

use crate::shard::buffers;
use crate::state::master::{BadBlocks, Change, Image, LogPages, Round};
use crate::state::recorded::FailureOutcome;
use crate::state::view::Gate;
use crate::steward::Steward;
use crate::steward::current_bitmap::CurrentBitmap;
use crate::steward::judge::Judge;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::read_errors::ReadErrors;
use crate::words::verdict::Operation;
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Permit, Semaphore, join_all};
use uraid_block::{Device, ErrorKind, Fua, IoError, SECTOR_BYTES, Sector, Sectors};
use uraid_format::Features;

/// Writes superblocks; on shard 0 only.
pub(crate) struct Recorder<W: World> {
    pub(crate) steward: Rc<Steward<W>>,
    pub(crate) judge: Rc<Judge<W>>,
    bitmap: Rc<CurrentBitmap<W>>,
    /// One round at a time.
    turn: Rc<Semaphore>,
    rounds: Cell<u64>,
    /// How long the last failure took from the report to the durable record.
    last_record: Cell<Option<Duration>>,
    /// The failed writes of each member that were listed, or would have been.
    pub(crate) write_errors: RefCell<BTreeMap<usize, ReadErrors>>,
}

impl<W: World> Recorder<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        judge: &Rc<Judge<W>>,
        bitmap: &Rc<CurrentBitmap<W>>,
    ) -> Rc<Recorder<W>> {
        Rc::new(Recorder {
            steward: steward.clone(),
            judge: judge.clone(),
            bitmap: bitmap.clone(),
            turn: Semaphore::new(1),
            rounds: Cell::new(0),
            last_record: Cell::new(None),
            write_errors: RefCell::default(),
        })
    }

    /// Rounds of superblocks so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.get()
    }

    pub(crate) fn last_record(&self) -> Option<Duration> {
        self.last_record.get()
    }

    /// Waits until no round is under way. None begins until the permit is dropped.
    pub(crate) async fn turn(&self) -> Permit {
        self.turn.acquire(1).await
    }

    /// Lists sectors that members failed to write, or takes trust from failed members; tells every shard, and writes it to
    /// the superblocks. With no failures, waits until everything known so far is written.
    pub(crate) async fn fail_members(&self, failures: &[Failure]) -> FailureOutcome {
        let began = self.steward.shared.world.now();
        let others = &self.list_unwritten(failures).await[..];
        let is_new = self.judge.judge_together(others).await;
        let steward = &self.steward;
        let version = steward.master().version();
        let outcome = self.record_up_to(version).await;
        if is_new && outcome.is_ok() {
            self.last_record.set(Some(self.steward.shared.world.now().since(began)));
        }
        if outcome.is_ok() {
            let master = steward.master();
            let is_in_use = |member: usize| master.members()[member].written_slot().is_some();
            let misses_write = |failure: &Failure| failure.operation == Operation::Write && is_in_use(failure.member);
            assert!(!others.iter().any(misses_write), "a member that missed a write is in use");
        }
        match outcome {
            Ok(()) => self.unwritten(failures).map_or(FailureOutcome::Recorded, FailureOutcome::Unwritten),
            Err(error) => FailureOutcome::Frozen(error),
        }
    }

    /// Writes superblocks until they show at least `version`. Rounds repeat until one meets no new failure.
    pub(crate) async fn record_up_to(&self, version: u64) -> Result<(), IoError> {
        let steward = &self.steward;
        if self.steward.shared.config.read_only {
            // Nothing is written, so no answer depends on a record. Reads avoid the lost member.
            return Ok(());
        }
        assert!(version <= steward.master().version(), "a version is recorded after it was made");
        let _one = self.turn.acquire(1).await;
        let mut is_first = true;
        loop {
            if steward.master().writes_nothing() {
                // The same. A member that failed since has missed no write.
                mark::hit(Mark::RecordPutOff);
                return Ok(());
            }
            let frozen = steward.master().frozen_error();
            if let Some(error) = frozen {
                mark::hit(Mark::RecordFrozen);
                self.forget_unwritten_lists().await;
                return Err(error);
            }
            {
                let master = steward.master();
                if master.shows(version) {
                    if is_first {
                        mark::hit(Mark::RecordShared);
                    }
                    return Ok(());
                }
                if master.gate() == Gate::Stopped {
                    return Err(ErrorKind::Stopping.into());
                }
            }
            is_first = false;
            self.record_round().await;
        }
    }

    /// Brings members that missed the last round before a crash up to the freshest superblock, byte for byte, before
    /// any round increments the events: a crash in that round would leave one member two events ahead, and all others
    /// stale. Bitmaps come first, as in every round.
    pub(crate) async fn catch_up(&self) -> Result<(), IoError> {
        let steward = &self.steward;
        let _one = self.turn.acquire(1).await;
        let mut failed = match self.bitmap.get() {
            Some(bitmap) => bitmap.bring_up().await,
            None => Vec::new(),
        };
        let lost: Vec<usize> = failed.iter().map(|(member, _)| *member).collect();
        let images = steward.master().lagging_images();
        assert_eq!(self.rounds.get(), 0, "no round comes before");
        if !images.is_empty() {
            mark::hit(Mark::CaughtUp);
        }
        failed.extend(self.write_superblocks(images.iter().filter(|(member, _)| !lost.contains(member))).await);
        steward.apply(Change::CatchUp);
        while !failed.is_empty() {
            mark::hit(Mark::CatchUpFailed);
            self.judge.judge_members(&failed).await;
            if steward.master().frozen_error().is_some() {
                break;
            }
            // Write the others again, byte for byte, before a round increments the events: see `record_round`.
            let images = steward.master().freshest_images();
            failed = self.write_round(&images).await;
        }
        steward.master().frozen_error().map_or(Ok(()), Err)
    }

    /// One round: repeated unchanged, without the members that fail, until all others have taken it. So members that
    /// failed during it are at most one event behind if the next failure freezes the array.
    async fn record_round(&self) {
        let steward = &self.steward;
        steward.apply(Change::BeginRound(self.steward.shared.world.unix_seconds()));
        let (version, names_all, mut images) = {
            let master = steward.master();
            (master.version(), master.unnamed().is_empty(), master.images())
        };
        let own_events = |member: usize| steward.master().events_of(member);
        assert!(images.iter().all(|(member, superblock)| superblock.events == own_events(*member)));
        let proven = loop {
            let proven = steward.master().unnamed().to_vec();
            let failed = self.write_round(&images).await;
            self.rounds.set(self.rounds.get() + 1);
            if failed.is_empty() {
                break proven;
            }
            mark::hit(Mark::RecordRepeated);
            self.judge.judge_members(&failed).await;
            let master = steward.master();
            let before = images.len();
            images.retain(|(member, _)| master.members()[*member].is_trusted());
            if master.frozen_error().is_some() || images.len() == before {
                return;
            }
            assert!(!images.is_empty(), "an array that is not frozen has members that can take a superblock");
        };
        let was_recorded = steward.master().is_recorded();
        steward.apply(Change::EndRound(&Round { version, names_all, proven }));
        if steward.master().is_recorded() != was_recorded {
            self.steward.publish(Change::Nothing).await;
        }
    }

    /// Returns the members whose superblock failed, with the error.
    async fn write_round(&self, images: &[Image]) -> Vec<(usize, IoError)> {
        assert!(images.windows(2).all(|pair| pair[0].0 < pair[1].0), "a round is one superblock for each member");
        // A bitmap that is older than its superblock is not believed: its header comes first.
        let mut failed = match (self.bitmap.get(), images.iter().map(|(_, image)| image.events).max()) {
            (Some(bitmap), Some(events)) => {
                let members: Vec<usize> = images.iter().map(|(member, _)| *member).collect();
                bitmap.show_events(events, &members).await
            }
            (None, _) | (_, None) => Vec::new(),
        };
        let lost: Vec<usize> = failed.iter().map(|(member, _)| *member).collect();
        // Write one member at a time until one succeeds. The others follow in the same round even if an earlier one
        // failed: a member that is left two rounds behind would look stale after a crash, though nothing was answered
        // without it.
        let returning = self.steward.master().returning();
        let (hidden, order): (Vec<&Image>, Vec<&Image>) = images
            .iter()
            .filter(|(member, _)| !lost.contains(member))
            .partition(|(member, _)| self.steward.master().hides(*member));
        let (mut unlisted, mut order): (Vec<&Image>, Vec<&Image>) =
            order.into_iter().partition(|(member, _)| self.steward.master().is_unlisted(*member));
        // These are spares now. If the others said dirty before that is durable, md would take them for copies.
        failed.extend(self.write_superblocks(hidden.into_iter()).await);
        order.sort_by_key(|(member, _)| returning != Some(*member));
        let mut waiting = order.into_iter();
        for image in waiting.by_ref() {
            match self.write_superblock(image).await {
                Ok(()) => break,
                Err(error) => {
                    mark::hit(Mark::RecordFirstFailed);
                    failed.push((image.0, error));
                }
            }
        }
        failed.extend(self.write_superblocks(waiting).await);
        // The fresher ones first: whenever this ends, they still have the higher counts.
        unlisted.sort_by_key(|(_, image)| std::cmp::Reverse(image.events));
        for image in unlisted {
            failed.extend(self.write_superblocks(std::iter::once(image)).await);
        }
        assert!(failed.len() <= images.len(), "a superblock fails once in a round");
        failed
    }

    /// Writes all at once. Returns the members whose superblock failed, with the error.
    async fn write_superblocks(&self, images: impl Iterator<Item = &Image>) -> Vec<(usize, IoError)> {
        let outcomes = join_all(images.map(async |image| (image.0, self.write_superblock(image).await))).await;
        outcomes.into_iter().filter_map(|(member, outcome)| Some((member, outcome.err()?))).collect()
    }

    async fn write_superblock(&self, (member, superblock): &Image) -> Result<(), IoError> {
        let log = self.steward.master().log_to_write(*member);
        if let Some(LogPages { place, pages }) = log {
            for page in &pages {
                self.write_metadata(*member, place.start, page).await?;
                self.steward.apply(Change::BadBlocks(BadBlocks::Written(*member, page)));
            }
        }
        let bytes = superblock.encode();
        let length = Sectors(superblock.written_bytes().div_ceil(SECTOR_BYTES) as u64);
        self.write_metadata(*member, superblock.super_offset, &bytes[..length.len_bytes()]).await?;
        let counts = superblock.features.contains(Features::BAD_BLOCKS);
        self.steward.apply(Change::BadBlocks(BadBlocks::Counts(*member, counts)));
        Ok(())
    }

    async fn write_metadata(&self, member: usize, at: Sector, bytes: &[u8]) -> Result<(), IoError> {
        assert!(!self.steward.shared.config.read_only, "nothing is written to a member of a read-only array");
        let length = Sectors::from_bytes_floor(bytes.len() as u64);
        let mut pieces = buffers::take(&self.steward.shared.world, Pool::Metadata, length).await;
        pieces.copy_from(bytes);
        self.steward.shared.members.get(member).write(at, pieces.freeze(), Fua::Yes).await
    }
}
