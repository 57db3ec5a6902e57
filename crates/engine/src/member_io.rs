//! Blocks of one member in buffers of this shard's pools: scratch of rows and passes.
//! Owns: reading a block into one piece, writing one from plain bytes. Not here: requests of clients (`read`, `mirror`),
//! superblocks (`record`).

use crate::buffers;
use crate::failure::{Failure, ReadError, RequestKind};
use crate::shared::Shared;
use crate::verdict::Operation;
use crate::world::{Pool, World};
use uraid_block::buffer::Arena;
use uraid_block::{Device, Fua, Lease, MemberSector, ReadPieces, SECTOR_BYTES, Sectors, Slot};

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

    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(crate) fn read_into(
        &self,
        slot: Slot,
        at: MemberSector,
        into: ReadPieces,
    ) -> impl Future<Output = Result<Lease, ReadError>> {
        async move {
            let (member, range) = self.run_on_device(slot, at, into.length());
            let _in_flight = self.balance.begin(slot);
            let begun = member.begin();
            let outcome = member.uncounted().read(range.start, into).await;
            member.end(&begun, RequestKind::Read, range, outcome.as_ref().err().copied());
            let pieces = outcome.map_err(|error| self.read_error(slot, at, range.length, error))?;
            assert_eq!(pieces.bytes(), range.length.len_bytes(), "a member gives as much as it is asked for");
            let is_one = pieces.count() == 1;
            Ok(if is_one { pieces.into_iter().next().expect("there is one piece") } else { in_one_piece(&pieces) })
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
