//! The writer of the partial parity log: what a raid5 notes before it changes part of a row, so that a crash, and the
//! loss of a member with it, costs nothing that was not being written.
//! Owns: [`Ppl`], every write of a log, and their order. Not here: what a row logs (`row::io::log`), what a start makes good
//! (`assemble::ppl`, `replay`), bytes (`uraid_format::ppl`).
//! Invariant: a row in sync is written only after the log on the member of its parity names it, durably. What a log names
//! is written over only when it is durable on the members. A member's first header says that its log is complete only
//! while every row is consistent but those that the log names.
//!
//! ```text
//!   a member's area    | first header | header, entries | partial parity of each entry |
//!
//!   rows wait          one write (FUA) for all that wait: header, entries, partial parity -> they write data and parity
//!                      all of these are done -> flush the members -> the next write, over the last one
//!   start              make good what the logs name -> flush -> superblocks, if a member has failed -> no entries
//!                      -> first headers: complete -> the gate opens
//!   start, unsure      first headers: none -> superblocks -> the gate opens, a resync runs -> flush -> first headers: complete
//!   a new member       no entries, first header -> superblocks list it in the slot
//! ```
//!
//! A log write that power tears ends nothing: its rows have not begun. The first header is not written again while the
//! array runs, so it cannot be torn. md's own header is at the start of the area; what it leaves is read, and then written
//! in this form. md reads this form as a ring whose first header has no entries.
//!
//! While a slot has two members, both get the log. A row whose parity has no member needs no log, but its write waits until
//! the superblocks say so: else the member could return with old parity that no log names.

mod replay;

use crate::assemble::PplPlan;
use crate::shard::buffers;
use crate::shard::mail::{Answer, Call, CallId, LogOutcome, LogRequest, Mail, Message};
use crate::steward::Steward;
use crate::steward::flusher::Flusher;
use crate::steward::judge::Judge;
use crate::steward::recorder::Recorder;
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::{Notify, join_all};
use uraid_block::{
    Device, ErrorKind, Fua, IoError, Range, SECTOR_BYTES, Sector, Sectors, ShardIndex, Slot, WritePieces,
};
use uraid_format::ppl::{PPL_ENTRIES_MAX, PPL_HEADER_SECTORS, PplHeader};

struct Waiting {
    request: LogRequest,
    /// The call that is answered, and its shard.
    call: (ShardIndex, CallId),
}

/// The log of the member in one slot.
#[derive(Default)]
struct SlotLog {
    waiting: RefCell<Vec<Waiting>>,
    /// Rows that the last log write names and that are still being written.
    unfinished: Cell<usize>,
    /// A task writes it.
    is_driven: Cell<bool>,
    /// Members may not hold durably what the last log write names.
    is_unflushed: Cell<bool>,
    /// The last of these rows was finished.
    emptied: Notify,
}

/// The logs of an array; on shard 0 only.
pub(crate) struct Ppl<W: World> {
    steward: Rc<Steward<W>>,
    judge: Rc<Judge<W>>,
    recorder: Rc<Recorder<W>>,
    flusher: Rc<Flusher<W>>,
    plan: PplPlan,
    logs: Vec<SlotLog>,
    /// Of the last header of any log.
    generation: Cell<u64>,
    /// The first headers say that the logs are complete.
    is_complete: Cell<bool>,
}

impl<W: World> Ppl<W> {
    pub(crate) fn new(
        steward: &Rc<Steward<W>>,
        judge: &Rc<Judge<W>>,
        recorder: &Rc<Recorder<W>>,
        flusher: &Rc<Flusher<W>>,
        plan: &PplPlan,
    ) -> Rc<Ppl<W>> {
        Rc::new(Ppl {
            steward: steward.clone(),
            judge: judge.clone(),
            recorder: recorder.clone(),
            flusher: flusher.clone(),
            plan: plan.clone(),
            logs: (0..steward.shared.layout().slots()).map(|_| SlotLog::default()).collect(),
            generation: Cell::new(PplHeader::first_generation()),
            is_complete: Cell::new(plan.is_complete),
        })
    }

    /// Makes a stretch durable in the log of its parity's member, then answers this call of a shard.
    pub(crate) fn log(self: &Rc<Self>, request: LogRequest, call: (ShardIndex, CallId)) {
        let slot = request.slot;
        let log = &self.logs[slot.index()];
        log.waiting.borrow_mut().push(Waiting { request, call });
        if !log.is_driven.replace(true) {
            self.steward.shared.world.spawn(self.clone().drive(slot));
        }
    }

    /// A row that was logged has been written, or given up.
    pub(crate) fn finish(&self, slot: Slot) {
        let log = &self.logs[slot.index()];
        let left = log.unfinished.get().checked_sub(1).expect("a logged row is finished once");
        log.unfinished.set(left);
        if left == 0 {
            log.emptied.notify_all();
        }
    }

    /// Writes the log of a slot as long as rows wait for it.
    async fn drive(self: Rc<Self>, slot: Slot) {
        let log = &self.logs[slot.index()];
        loop {
            let batch = self.take_batch(log);
            if batch.is_empty() {
                log.is_driven.set(false);
                return;
            }
            assert_eq!(log.unfinished.get(), 0, "what the log names is written before it names something else");
            let outcome = self.write_batch(log, slot, &batch).await;
            if outcome == Ok(LogOutcome::Logged) {
                log.unfinished.set(batch.len());
                log.is_unflushed.set(true);
            }
            for Waiting { call: (shard, id), .. } in &batch {
                let answer = Message::Answer { id: *id, answer: Answer::Logged(outcome) };
                self.steward.shared.world.post(*shard, Mail(answer));
            }
            drop(batch);
            log.emptied.wait_for(|| (log.unfinished.get() == 0).then_some(())).await;
        }
    }

    /// As many of the waiting stretches as one log write has room for.
    fn take_batch(&self, log: &SlotLog) -> Vec<Waiting> {
        let mut waiting = log.waiting.borrow_mut();
        let mut length = Sectors::ZERO;
        let fits = |one: &&Waiting| {
            length += one.request.parity.length();
            length <= self.plan.room
        };
        let count = waiting.iter().take(PPL_ENTRIES_MAX).take_while(fits).count();
        assert!(count > 0 || waiting.is_empty(), "a log has room for one stretch");
        waiting.drain(..count).collect()
    }

    async fn write_batch(&self, log: &SlotLog, slot: Slot, batch: &[Waiting]) -> Result<LogOutcome, IoError> {
        let steward = &self.steward;
        if log.is_unflushed.get() && self.has_caches() {
            let _recorded = self.flusher.flush_round().await?;
            log.is_unflushed.set(false);
        }
        if let Some(error) = steward.master().frozen_error() {
            return Err(error);
        }
        let members: Vec<usize> = {
            let view = steward.shared.view();
            let is_written = view.writable().contains(slot);
            if is_written { view.writers(slot).map(|member| member.index).collect() } else { Vec::new() }
        };
        self.generation.set(self.generation.get() + 1);
        let header = PplHeader {
            generation: self.generation.get(),
            entries: batch.iter().map(|one| one.request.entry).collect(),
            ..PplHeader::empty(&self.set_uuid())
        };
        let mut bytes = self.header_pieces(&header.encode()[..]).await;
        batch.iter().for_each(|one| bytes.append(one.request.parity.clone()));
        let written = members.iter().map(async |member| (*member, self.write_log(*member, bytes.clone()).await));
        let outcomes = join_all(written).await;
        let failed: Vec<(usize, IoError)> =
            outcomes.into_iter().filter_map(|(member, outcome)| Some((member, outcome.err()?))).collect();
        if !failed.is_empty() {
            mark::hit(Mark::LogWriteFailed);
            self.judge.judge_members(&failed).await;
        }
        // A member of the parity that is not written must be known to have missed it: its log does not name the row.
        let version = steward.master().version();
        let is_left = members.len() > failed.len();
        if !is_left || !steward.master().is_recorded() {
            self.recorder.record_up_to(version).await?;
        }
        Ok(if is_left { LogOutcome::Logged } else { LogOutcome::NoMember })
    }

    /// Whether a member may hold in a cache what was written to it.
    fn has_caches(&self) -> bool {
        let shared = &self.steward.shared;
        let has_cache = |member: usize| shared.members.get(member).geometry().volatile_cache;
        shared.with_view(|view| view.slots.members().any(|member| has_cache(member.index)))
    }

    fn set_uuid(&self) -> [u8; 16] {
        self.steward.master().set_uuid()
    }

    async fn header_pieces(&self, bytes: &[u8]) -> WritePieces {
        let length = Sectors::from_bytes_floor(bytes.len() as u64);
        let mut pieces = buffers::take(&self.steward.shared.world, Pool::Metadata, length).await;
        pieces.copy_from(bytes);
        pieces.freeze()
    }

    /// Writes the header with its entries, and their partial parity, behind the first header.
    async fn write_log(&self, member: usize, bytes: WritePieces) -> Result<(), IoError> {
        let area = self.steward.master().log_area(member).expect("a member in a slot has a log");
        self.write(member, area.start + PPL_HEADER_SECTORS, bytes).await
    }

    async fn write(&self, member: usize, at: Sector, bytes: WritePieces) -> Result<(), IoError> {
        let shared = &self.steward.shared;
        assert!(!shared.config.read_only, "nothing is written to a member of a read-only array");
        shared.members.get(member).write(at, bytes, Fua::Yes).await
    }

    /// Makes good what the logs name, and begins them anew. The gate is closed.
    pub(crate) async fn begin(&self) -> Result<(), IoError> {
        let is_whole = self.replay().await?;
        // A member that failed meanwhile would come back with what was not made good, and no log would name that.
        if !self.steward.master().is_recorded() {
            let version = self.steward.master().version();
            self.recorder.record_up_to(version).await?;
        }
        let lacks_a_member =
            self.steward.master().readable().count() < usize::from(self.steward.shared.layout().slots());
        if !is_whole && !lacks_a_member {
            // A resync makes good what could not be read. Without a member it could not, and all other rows are right.
            self.is_complete.set(false);
        }
        if self.is_complete.get() {
            let shards = self.steward.shared.calls.call_all(|| Call::MadeGood).await;
            shards.into_iter().for_each(Answer::done);
        }
        let is_complete = self.is_complete.get();
        self.on_members(|member| self.begin_log(member, is_complete)).await
    }

    /// If the logs cannot be relied upon: makes sure that no later start does, before superblocks list members that were
    /// taken by force.
    pub(crate) async fn distrust(&self) -> Result<(), IoError> {
        if self.is_complete.get() {
            return Ok(());
        }
        self.on_members(|member| self.write_first(member, false)).await
    }

    /// What the log of a member names is not needed any more. Nothing is left of it, nor of the headers that md has written
    /// anywhere in the area, which md would find behind ours. Then the first header says what holds without it.
    async fn begin_log(&self, member: usize, is_complete: bool) -> Result<(), IoError> {
        let area = self.steward.master().log_area(member).ok_or(IoError::from(ErrorKind::NoSpace))?;
        assert!(!self.steward.shared.config.read_only, "nothing is written to a member of a read-only array");
        let device = self.steward.shared.members.get(member);
        let behind = Range::new(area.start + PPL_HEADER_SECTORS, area.length - PPL_HEADER_SECTORS);
        device.write_zeroes(behind).await?;
        device.flush().await?;
        self.write_first(member, is_complete).await
    }

    /// Every row is consistent, and flushed: the logs are complete.
    pub(crate) async fn complete(&self) -> Result<(), IoError> {
        if !self.is_complete.replace(true) {
            self.on_members(|member| self.write_first(member, true)).await?;
        }
        Ok(())
    }

    /// Begins the log of a member that is to take a slot. An error is the member's.
    pub(crate) async fn give_to(&self, member: usize) -> Result<(), IoError> {
        self.begin_log(member, self.is_complete.get()).await
    }

    /// Judges a member that could not take a log.
    pub(crate) async fn judge(&self, member: usize, error: IoError) {
        self.judge.judge_members(&[(member, error)]).await;
    }

    async fn write_first(&self, member: usize, is_complete: bool) -> Result<(), IoError> {
        let area = self.steward.master().log_area(member).expect("a member in a slot has a log");
        let header = PplHeader::complete(&self.set_uuid()).encode();
        let none = [0; PPL_HEADER_SECTORS.len_bytes()];
        let bytes = if is_complete { &header[..] } else { &none[..] };
        self.write(member, area.start, self.header_pieces(bytes).await).await
    }

    /// Does something on every member with a slot, at once, and judges those where it fails.
    async fn on_members(&self, what: impl AsyncFn(usize) -> Result<(), IoError>) -> Result<(), IoError> {
        let has_slot = |member: &usize| self.steward.master().members()[*member].written_slot().is_some();
        let count = self.steward.master().members().len();
        let members: Vec<usize> = (0..count).filter(has_slot).collect();
        let outcomes = join_all(members.iter().map(async |member| (*member, what(*member).await))).await;
        let failed: Vec<(usize, IoError)> =
            outcomes.into_iter().filter_map(|(member, outcome)| Some((member, outcome.err()?))).collect();
        if !failed.is_empty() {
            mark::hit(Mark::LogWriteFailed);
            self.judge.judge_members(&failed).await;
        }
        self.steward.master().frozen_error().map_or(Ok(()), Err)
    }
}

const _: () = assert!(PPL_HEADER_SECTORS.len_bytes() == 8 * SECTOR_BYTES);
