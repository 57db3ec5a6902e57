//! Block status: the allocation of a device's sectors, as extents of `base:allocation`.
//! Owns: [`extents`] and its bounds. Not here: the source (`Device::allocation`), bytes (`nbd`).
//! Invariant: an extent is called zero only if the device says so. Extents are multiples of the smallest block that
//! clients may use, and lie inside the requested range. Spec: proto.md, "Metadata querying", "base:allocation".

use crate::connection::outbox::EXTENTS_MAX;
use uraid_block::{Device, IoError, Range, Sector, Sectors};
use uraid_nbd::StatusExtent;
use uraid_nbd::metadata::{STATE_HOLE, STATE_ZERO};

/// The most queries of a device for one reply: the reply then ends early, and the client asks again from there.
const QUERIES_MAX: usize = 1024;

/// The extents from the start of `range`: at least one, at most [`EXTENTS_MAX`]; adjacent ones have different states.
/// `minimum`: the smallest block in bytes; `one`: the first extent only. If the device fails after the first extent,
/// the reply ends there, and the client's next request meets the failure.
pub(crate) async fn extents<D: Device>(
    device: &D,
    range: Range,
    minimum: u32,
    one: bool,
) -> Result<Vec<StatusExtent>, IoError> {
    assert!(!range.length.is_zero());
    let block = Sectors::from_bytes(minimum.into()).expect("the smallest block is whole sectors").0;
    let mut list: Vec<StatusExtent> = Vec::new();
    let mut rest = range;
    for _ in 0..QUERIES_MAX {
        let found = match device.allocation(rest).await {
            Ok(found) => found,
            Err(error) if list.is_empty() => return Err(error),
            Err(_) => break,
        };
        assert!(!found.length.is_zero() && found.length <= rest.length);
        // A block that is only partly zero counts as data.
        let whole = found.length.0 / block * block;
        let is_zero = found.is_zero && whole > 0;
        let length = if is_zero { whole } else { found.length.0.next_multiple_of(block).min(rest.length.0) };
        let state = if is_zero { STATE_HOLE | STATE_ZERO } else { 0 };
        let count = list.len();
        match list.last_mut() {
            Some(last) if last.state == state => last.length += Sectors(length).bytes(),
            Some(_) if one || count == EXTENTS_MAX => break,
            Some(_) | None => list.push(StatusExtent { length: Sectors(length).bytes(), state }),
        }
        if length == rest.length.0 {
            break;
        }
        rest = Range::new(Sector(rest.start.0 + length), Sectors(rest.length.0 - length));
    }
    assert!(!list.is_empty());
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::every_order::poll_once;
    use std::pin::pin;
    use std::task::Poll;
    use uraid_block::{Allocation, Fua, Geometry, ReadPieces, WritePieces};

    /// Whether each sector is zero. The tests ask this device for nothing else.
    struct Map(Vec<bool>);

    impl Device for Map {
        fn geometry(&self) -> Geometry {
            panic!("not asked for")
        }
        async fn read(&self, _at: Sector, _into: ReadPieces) -> Result<ReadPieces, IoError> {
            panic!("not asked for")
        }
        async fn write(&self, _at: Sector, _from: WritePieces, _fua: Fua) -> Result<(), IoError> {
            panic!("not asked for")
        }
        async fn flush(&self) -> Result<(), IoError> {
            panic!("not asked for")
        }
        async fn discard(&self, _range: Range) -> Result<(), IoError> {
            panic!("not asked for")
        }
        async fn write_zeroes(&self, _range: Range) -> Result<(), IoError> {
            panic!("not asked for")
        }
        async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
            let sectors = &self.0[range.start.0 as usize..range.end().0 as usize];
            let length = sectors.iter().take_while(|is_zero| **is_zero == sectors[0]).count();
            Ok(Allocation { length: Sectors(length as u64), is_zero: sectors[0] })
        }
    }

    #[test]
    fn whole_blocks_are_called_zero_only_if_all_their_sectors_are() {
        const BLOCK: usize = 4;
        for bits in 0..1u32 << (3 * BLOCK) {
            let sectors: Vec<bool> = (0..3 * BLOCK).map(|bit| bits & (1 << bit) != 0).collect();
            let (device, range) = (Map(sectors.clone()), Range::new(Sector(0), Sectors(3 * BLOCK as u64)));
            let Poll::Ready(list) = poll_once(pin!(extents(&device, range, 512 * BLOCK as u32, false))) else {
                panic!("there is nothing to wait for")
            };
            let list = list.expect("the device tells");
            assert!(list.windows(2).all(|two| two[0].state != two[1].state), "{bits:#b}: {list:?}");
            let mut at = 0;
            for extent in list {
                let end = at + extent.length as usize / 512;
                assert!(extent.length > 0 && extent.length.is_multiple_of(512 * BLOCK as u64), "{bits:#b}");
                for block in sectors[at..end].chunks(BLOCK) {
                    let is_zero = block.iter().all(|is_zero| *is_zero);
                    assert_eq!(extent.state != 0, is_zero, "{bits:#b}, at {at}");
                }
                at = end;
            }
            assert_eq!(at, sectors.len(), "{bits:#b}");
        }
    }
}
