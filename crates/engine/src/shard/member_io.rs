//! Blocks of one member in buffers of this shard's pools: scratch of rows and passes.
//! Owns: [`MemberRun`], reading a block into one piece, writing one from plain bytes. Not here: requests of clients (`reader`, `mirror`),
//! superblocks (`recorder`).

use crate::shard::buffers;
use crate::shard::mail::{Call, STEWARD};
use crate::shard::shared::Shared;
use crate::shard::world::{Pool, World};
use crate::state::view::{Access, SlotMember, View};
use crate::words::failure::{Failure, ReadError, RequestKind};
use crate::words::verdict::Operation;
use smallvec::SmallVec;
use uraid_block::buffer::Arena;
use uraid_block::local::join_each;
use uraid_block::{
    Device, ErrorKind, Fua, IoError, Lease, MemberSector, Range, ReadPieces, SECTOR_BYTES, Sectors, Slot, WritePieces,
};

/// A run on the member of a slot. It stays right while its request is in its epoch: a slot keeps its member so long.
#[derive(Clone, Copy)]
pub(crate) struct MemberRun {
    pub(crate) slot: Slot,
    /// The member's index in the start plan.
    pub(crate) index: usize,
    /// On its device.
    pub(crate) range: Range,
}

/// How a range is made zeroes. Both are exact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Zeroing {
    /// The members keep its space.
    Write,
    /// They give it back where that makes it zeroes.
    Punch,
}

impl Zeroing {
    /// Makes a run of a member zeroes.
    pub(crate) async fn run<W: World>(self, shared: &Shared<W>, run: &MemberRun) -> Result<(), Failure> {
        let member = shared.members.get(run.index);
        let outcome = match self {
            Zeroing::Write => member.write_zeroes(run.range).await,
            Zeroing::Punch => member.punch_hole(run.range).await,
        };
        outcome.map_err(|error| run.failure(Operation::Write, error))
    }
}

impl MemberRun {
    #[inline]
    pub(crate) fn by(view: &View, slot: Slot, at: MemberSector, length: Sectors) -> MemberRun {
        MemberRun::of(slot, &view.member(slot), at, length)
    }

    #[inline]
    pub(crate) fn of(slot: Slot, member: &SlotMember, at: MemberSector, length: Sectors) -> MemberRun {
        assert!(!length.is_zero(), "a run is of some sector");
        MemberRun { slot, index: member.index, range: member.range(at, length) }
    }

    pub(crate) fn failure(&self, operation: Operation, error: IoError) -> Failure {
        let failure = Failure::new((self.slot, self.index), operation, error);
        Failure { range: Some(self.range), ..failure }
    }

    pub(crate) fn read_error(&self, error: IoError) -> ReadError {
        ReadError { slot: self.slot, member: self.index, range: self.range, error, is_listed: false }
    }
}

impl<W: World> Shared<W> {
    /// Reads one block into scratch of one piece.
    pub(crate) async fn read_block(
        &self,
        slot: Slot,
        at: MemberSector,
        length: Sectors,
        pool: Pool,
    ) -> Result<Lease, ReadError> {
        let into = buffers::one_piece(buffers::take_contiguous(&self.world, pool, length).await);
        self.read_into(slot, at, into).await
    }

    async fn read_into(&self, slot: Slot, at: MemberSector, into: ReadPieces) -> Result<Lease, ReadError> {
        let run = self.run_to_read(slot, at, into.length())?;
        self.read_run(&run, into).await
    }

    /// A run of the member that is in the slot now. An error: the one that was to be read has failed meanwhile, and
    /// another one, which does not hold everything yet, has its place.
    pub(crate) fn run_to_read(&self, slot: Slot, at: MemberSector, length: Sectors) -> Result<MemberRun, ReadError> {
        self.with_view(|view| {
            let run = MemberRun::by(view, slot, at, length);
            let is_incomplete = view.member(slot).access == Access::WriteOnly;
            if is_incomplete { Err(run.read_error(ErrorKind::Media.into())) } else { Ok(run) }
        })
    }

    /// Reads a run into scratch of one piece.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    pub(crate) fn read_run(&self, run: &MemberRun, into: ReadPieces) -> impl Future<Output = Result<Lease, ReadError>> {
        async move {
            let pieces = self.read_pieces(run, into).await?;
            Ok(pieces.into_only().unwrap_or_else(|pieces| in_one_piece(&pieces)))
        }
    }

    /// Reads a run into scratch of any pieces.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    pub(crate) fn read_pieces(
        &self,
        run: &MemberRun,
        into: ReadPieces,
    ) -> impl Future<Output = Result<ReadPieces, ReadError>> {
        async move {
            let member = self.members.get(run.index);
            let _in_flight = self.balance.begin(run.slot);
            member.check_read(run.range).map_err(|error| run.read_error(error).listed())?;
            let begun = member.begin();
            let outcome = member.uncounted().read(run.range.start, into).await;
            member.end(&begun, RequestKind::Read, run.range, outcome.as_ref().err().copied());
            let pieces = outcome.map_err(|error| run.read_error(error))?;
            assert_eq!(pieces.bytes(), run.range.length.len_bytes(), "a member gives as much as it is asked for");
            Ok(pieces)
        }
    }

    /// Writes a run.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    pub(crate) fn write_run(
        &self,
        run: &MemberRun,
        from: WritePieces,
        fua: Fua,
    ) -> impl Future<Output = Result<(), Failure>> {
        async move {
            self.note_write();
            let member = self.members.get(run.index);
            if member.lacks(run.range) {
                // Cold path, boxed to keep the future of a write small.
                let outcome = Box::pin(self.write_listed(run, from)).await;
                self.note_write();
                return outcome;
            }
            let begun = member.begin();
            let outcome = member.uncounted().write(run.range.start, from, fua).await;
            self.note_write();
            member.end(&begun, RequestKind::Write, run.range, outcome.err());
            outcome.map_err(|error| run.failure(Operation::Write, error))
        }
    }

    /// Writes a run with sectors that the member's list names. A device often has them again once they are written: then
    /// the list forgets them, as md's does. It may do so only when they are durable, hence FUA.
    async fn write_listed(&self, run: &MemberRun, from: WritePieces) -> Result<(), Failure> {
        let outcome = self.members.get(run.index).write(run.range.start, from, Fua::Yes).await;
        outcome.map_err(|error| run.failure(Operation::Write, error))?;
        self.calls.call(STEWARD, Call::ClearListed { member: run.index, range: run.range }).await.done();
        Ok(())
    }

    /// Writes one block to the members of a slot. Returns those that failed.
    pub(crate) async fn write_block(&self, slot: Slot, at: MemberSector, bytes: &[u8]) -> Vec<Failure> {
        let pieces = self.copied(bytes).await;
        let length = pieces.length();
        let runs = self.with_view(|view| {
            let runs = view.writers(slot).map(|member| MemberRun::of(slot, &member, at, length));
            runs.collect::<SmallVec<[MemberRun; 2]>>()
        });
        let outcomes = join_each(runs.iter().map(|run| self.write_run(run, pieces.clone(), Fua::No)));
        outcomes.await.filter_map(Result::err).collect()
    }

    /// Writes one block to the first member of a slot, and not to one to which that is being copied.
    pub(crate) async fn write_first(&self, slot: Slot, at: MemberSector, bytes: &[u8]) -> Result<(), Failure> {
        let pieces = self.copied(bytes).await;
        let run = self.with_view(|view| MemberRun::by(view, slot, at, pieces.length()));
        self.write_run(&run, pieces, Fua::No).await
    }

    /// Writes one block to `second`, to which the member of a slot is being copied, if that is still so.
    pub(crate) async fn write_second(
        &self,
        slot: Slot,
        second: Option<usize>,
        at: MemberSector,
        bytes: Lease,
    ) -> Result<(), Failure> {
        let pieces = buffers::one_piece(bytes).freeze();
        let now = self.with_view(|view| view.replacement(slot).filter(|now| Some(now.index) == second));
        match now {
            Some(now) => self.write_run(&MemberRun::of(slot, &now, at, pieces.length()), pieces, Fua::No).await,
            None => Ok(()),
        }
    }

    async fn copied(&self, bytes: &[u8]) -> WritePieces {
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(SECTOR_BYTES), "a block has whole sectors");
        let length = Sectors::from_bytes_floor(bytes.len() as u64);
        let mut pieces = buffers::one_piece(buffers::take_contiguous(&self.world, Pool::Pass, length).await);
        pieces.copy_from(bytes);
        pieces.freeze()
    }
}

/// A member that is an array returns other buffers than it was given if it had to read some of them again. Their bytes
/// are copied to newly allocated memory: the returned buffers already use up the permit for the pool.
fn in_one_piece(pieces: &ReadPieces) -> Lease {
    assert!(pieces.count() > 1, "one piece needs no copy");
    let mut one = Arena::for_one(pieces.bytes()).take_contiguous(pieces.bytes()).expect("it has one block");
    pieces.copy_to(&mut one);
    one
}
