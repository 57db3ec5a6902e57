//! Reads: straight to the members, and round whatever fails.
//! Owns: cutting a request's buffers by the plan, retries on other copies, joining the result. Not here: computing a
//! lost member's bytes (`row`).
//! Invariant: a success holds right bytes in every sector; a failed piece is read again elsewhere or fails the request.

use crate::array::{Array, failure};
use crate::mail::{Call, Failure, RowRead};
use crate::mark::{self, Mark};
use crate::sabotage::{self, Sabotage};
use crate::verdict::Operation;
use crate::view::{Copies, View};
use crate::{Pool, World};
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{
    ArrayRange, Device, ErrorKind, IoError, MemberSector, ReadPieces, SECTOR_BYTES, Sectors, Slot, SlotSet,
};
use uraid_layout::{Part, Plan};

/// How long a retry waits before it asks a full arena again.
pub(crate) const ARENA_RETRY: Duration = Duration::from_micros(100);

/// A part of the request that is still to be read.
struct Wanted {
    /// From the start of the request.
    offset: Sectors,
    into: ReadPieces,
    /// Slots that have failed to give it.
    avoid: SlotSet,
    /// One of them failed to give more at once: 23+2 failed, and this is 24, which may be readable.
    is_suspicion: bool,
}

impl Wanted {
    fn new(offset: Sectors, into: ReadPieces) -> Wanted {
        Wanted { offset, into, avoid: SlotSet::EMPTY, is_suspicion: false }
    }
}

/// A part of the request with its bytes.
struct Got {
    offset: Sectors,
    pieces: ReadPieces,
}

impl<W: World> Array<W> {
    /// Where all of the range can be read at once.
    #[inline]
    pub(crate) fn one_place(&self, range: ArrayRange) -> Option<(Slot, MemberSector)> {
        self.with_view(|view| {
            let usable = self.readable(view);
            self.shape.layout.place_to_read(range, &usable, self.copy_choice(view, range, &usable))
        })
    }

    #[inline]
    fn readable(&self, view: &View) -> SlotSet {
        if sabotage::is(Sabotage::StaleRead) {
            return (0..self.shape.layout.slots())
                .map(Slot)
                .filter(|slot| self.shape.members[slot.index()].is_some())
                .collect();
        }
        view.usable
    }

    /// The whole request again, after the one member it was sent to has failed.
    pub(crate) async fn read_around(&self, range: ArrayRange, failed: Failure) -> Result<ReadPieces, IoError> {
        let view = self.view();
        mark::hit(Mark::ReadAround);
        self.note_read_failure(&view, failed).await?;
        let mut into = self.take_buffers(Pool::Request, range.length).await;
        if sabotage::is(Sabotage::ZeroesForError) {
            into.fill(0);
            return Ok(into);
        }
        let avoid = SlotSet::EMPTY.with(failed.slot);
        self.read_wanted(range, vec![Wanted { avoid, ..Wanted::new(Sectors::ZERO, into) }]).await
    }

    /// The whole request, which is no single piece of a healthy member.
    pub(crate) async fn read_pieces(&self, range: ArrayRange, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.read_wanted(range, vec![Wanted::new(Sectors::ZERO, into)]).await
    }

    /// Works a list of wanted parts off. Each round gets a part, adds a slot to what it avoids, or halves it: it ends.
    async fn read_wanted(&self, range: ArrayRange, mut wanted: Vec<Wanted>) -> Result<ReadPieces, IoError> {
        let mut got: Vec<Got> = Vec::new();
        while let Some(part) = wanted.pop() {
            self.read_part(range, part, &mut wanted, &mut got).await?;
        }
        got.sort_by_key(|part| part.offset);
        let mut whole = ReadPieces::new();
        for part in got {
            assert_eq!(part.offset, whole.length(), "the parts cover the request without a gap");
            whole.append(part.pieces);
        }
        assert_eq!(whole.length(), range.length);
        Ok(whole)
    }

    async fn read_part(
        &self,
        range: ArrayRange,
        part: Wanted,
        wanted: &mut Vec<Wanted>,
        got: &mut Vec<Got>,
    ) -> Result<(), IoError> {
        let view = self.view();
        let mut usable = view.usable;
        for slot in part.avoid.iter() {
            usable.remove(slot);
        }
        let base = part.offset;
        let of_part = ArrayRange::new(range.start + base, part.into.length());
        let plan = self.shape.layout.plan_read(of_part, &usable, self.copy_choice(&view, of_part, &usable));
        if !plan.lost.is_empty() && !self.shape.layout.level().is_parity() {
            if part.avoid.is_empty() {
                return Err(ErrorKind::TooManyLost.into());
            }
            if of_part.length == Sectors(1) && part.is_suspicion {
                wanted.push(Wanted::new(base, part.into));
                return Ok(());
            }
            if of_part.length == Sectors(1) {
                mark::hit(Mark::ReadExhausted);
                return Err(ErrorKind::Media.into());
            }
            // No copy gives the whole; each may give some of it.
            mark::hit(Mark::ReadHalved);
            let mut rest = part.into;
            let half = Sectors(of_part.length.0 / 2);
            let first = rest.split_to(half.len_bytes());
            wanted.push(Wanted::new(base + half, rest));
            wanted.push(Wanted::new(base, first));
            return Ok(());
        }
        let (runs, lost) = carve(&plan, part.into);
        let from_members = join_all(plan.runs.iter().zip(runs).map(async |(run, pieces)| {
            let _on_the_way = self.balance.begin(run.slot);
            let outcome = self.member(run.slot).read(self.on_device(run.slot, run.at), pieces).await;
            (run, outcome)
        }));
        let mut failures = Vec::new();
        for (run, outcome) in from_members.await {
            let parts = plan.parts_of(run);
            match outcome {
                Ok(mut pieces) => got.extend(parts.iter().map(|of_run| Got {
                    offset: base + of_run.offset,
                    pieces: pieces.split_to(of_run.length.len_bytes()),
                })),
                Err(error) => failures.push((failure(run.slot, Operation::Read, error), parts)),
            }
        }
        for (failed, parts) in failures {
            self.note_read_failure(&view, failed).await?;
            let is_suspicion = part.is_suspicion || parts.len() > 1;
            for of_run in parts {
                let into = self.take_buffers(Pool::Request, of_run.length).await;
                let avoid = part.avoid.with(failed.slot);
                wanted.push(Wanted { offset: base + of_run.offset, into, avoid, is_suspicion });
            }
        }
        for (of_plan, into) in lost {
            let at = ArrayRange::new(of_part.start + of_plan.offset, of_plan.length);
            let pieces = self.read_lost(at, into, part.avoid).await?;
            got.push(Got { offset: base + of_plan.offset, pieces });
        }
        Ok(())
    }

    /// Bytes of a lost data member: the owners of their rows compute them, one row after the other.
    async fn read_lost(&self, range: ArrayRange, mut into: ReadPieces, avoid: SlotSet) -> Result<ReadPieces, IoError> {
        let mut whole = ReadPieces::new();
        let parts: Vec<_> = self.shape.layout.rows(range).collect();
        for part in parts {
            let read =
                RowRead { row: part.row, start: part.start, into: into.split_to(part.length.len_bytes()), avoid };
            whole.append(self.ask_owner_to_read(read).await?);
        }
        Ok(whole)
    }

    async fn ask_owner_to_read(&self, read: RowRead) -> Result<ReadPieces, IoError> {
        let owner = self.owner_of(read.row);
        if owner == self.world.shard() {
            return self.read_row_owned(read).await;
        }
        self.call(owner, Call::ReadRow(read)).await.read()
    }

    /// Counts a failed member read, tells the steward if the member is gone, and decides whether the request may go
    /// on. Where the copies may differ, another copy could give other bytes than an earlier read gave: that is refused.
    pub(crate) async fn note_read_failure(&self, view: &View, failed: Failure) -> Result<(), IoError> {
        self.count(|counters| {
            counters.read_errors += 1;
            counters.reads_retried += 1;
        });
        if !self.is_redundant() {
            return Err(failed.error);
        }
        if view.copies == Copies::Canonical && !self.shape.layout.level().is_parity() && !self.config.force {
            return Err(failed.error);
        }
        // Whether it could be recorded does not matter here: no write is answered on the strength of it.
        let _ = self.report(&[failed]).await;
        Ok(())
    }

    /// Buffers for a retry. A request already holds its own, so it waits for scratch that others give back.
    pub(crate) async fn take_buffers(&self, pool: Pool, length: Sectors) -> ReadPieces {
        loop {
            match self.world.arena(pool).take(length.len_bytes()) {
                Ok(pieces) => return pieces,
                Err(_) => self.world.sleep(ARENA_RETRY).await,
            }
        }
    }
}

/// Hands each run its part of the request's buffers, in the member's order; what no member holds comes second.
fn carve(plan: &Plan, mut into: ReadPieces) -> (Vec<ReadPieces>, Vec<(Part, ReadPieces)>) {
    let mut order: Vec<(Part, Option<usize>)> =
        (0..plan.parts.len()).map(|part| (plan.parts[part], Some(part))).collect();
    order.extend(plan.lost.iter().map(|part| (*part, None)));
    order.sort_by_key(|(part, _)| part.offset);
    let mut of_parts: Vec<ReadPieces> = plan.parts.iter().map(|_| ReadPieces::new()).collect();
    let mut lost = Vec::new();
    for (part, of_run) in order {
        let pieces = into.split_to(part.length.len_bytes());
        match of_run {
            Some(part) => of_parts[part] = pieces,
            None => lost.push((part, pieces)),
        }
    }
    assert!(into.is_empty(), "a plan covers its request: {} bytes left", into.bytes() / SECTOR_BYTES);
    let runs = plan.runs.iter().map(|run| {
        let mut whole = ReadPieces::new();
        for part in &mut of_parts[run.parts.start as usize..run.parts.end as usize] {
            whole.append(std::mem::take(part));
        }
        whole
    });
    (runs.collect(), lost)
}
