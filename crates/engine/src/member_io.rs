//! Blocks of one member in buffers of this shard's pools: scratch of rows and passes.
//! Owns: [`MemberRun`], reading a block into one piece, writing one from plain bytes. Not here: requests of clients (`read`, `mirror`),
//! superblocks (`record`).

use crate::buffers;
use crate::failure::{Failure, ReadError, RequestKind};
use crate::shared::Shared;
use crate::verdict::Operation;
use crate::view::View;
use crate::world::{Pool, World};
use uraid_block::buffer::Arena;
use uraid_block::{Device, Fua, Lease, MemberSector, Range, ReadPieces, SECTOR_BYTES, Sectors, Slot, WritePieces};

/// A run on the member of a slot. It stays right while its request is in its epoch: a slot keeps its member so long.
#[derive(Clone, Copy)]
pub(crate) struct MemberRun {
    pub(crate) slot: Slot,
    /// The member's index in the start plan.
    pub(crate) index: usize,
    /// On its device.
    pub(crate) range: Range,
}

impl MemberRun {
    #[inline]
    pub(crate) fn by(view: &View, slot: Slot, at: MemberSector, length: Sectors) -> MemberRun {
        assert!(!length.is_zero(), "a run is of some sector");
        let member = view.member(slot);
        MemberRun { slot, index: member.index, range: member.range(at, length) }
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
        let run = self.with_view(|view| MemberRun::by(view, slot, at, into.length()));
        self.read_run(&run, into).await
    }

    /// Reads a run into scratch of one piece.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    pub(crate) fn read_run(&self, run: &MemberRun, into: ReadPieces) -> impl Future<Output = Result<Lease, ReadError>> {
        async move {
            let member = self.members.get(run.index);
            let _in_flight = self.balance.begin(run.slot);
            let begun = member.begin();
            let outcome = member.uncounted().read(run.range.start, into).await;
            member.end(&begun, RequestKind::Read, run.range, outcome.as_ref().err().copied());
            let pieces = outcome.map_err(|error| ReadError { slot: run.slot, range: run.range, error })?;
            assert_eq!(pieces.bytes(), run.range.length.len_bytes(), "a member gives as much as it is asked for");
            Ok(pieces.into_only().unwrap_or_else(|pieces| in_one_piece(&pieces)))
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
            let member = self.members.get(run.index);
            let begun = member.begin();
            let outcome = member.uncounted().write(run.range.start, from, fua).await;
            member.end(&begun, RequestKind::Write, run.range, outcome.err());
            outcome.map_err(|error| Failure::new(run.slot, Operation::Write, error))
        }
    }

    /// Writes one block.
    pub(crate) async fn write_block(&self, slot: Slot, at: MemberSector, bytes: &[u8]) -> Result<(), Failure> {
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(SECTOR_BYTES), "a block has whole sectors");
        let mut pieces = ReadPieces::new();
        pieces.push(
            buffers::take_contiguous(&self.world, Pool::Pass, Sectors::from_bytes_floor(bytes.len() as u64)).await,
        );
        pieces.copy_from(bytes);
        let outcome = self.member(slot).write(self.on_device(slot, at), pieces.freeze(), Fua::No).await;
        outcome.map_err(|error| Failure::new(slot, Operation::Write, error))
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
