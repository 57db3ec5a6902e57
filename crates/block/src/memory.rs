//! A device in memory, for embedders, tests and measurements.
//! Owns: [`MemoryDevice`]. Not here: devices that take time, fail or lose what was not flushed (`uraid-sim`).
//! Invariant: a request is done when its future is polled first, so none is ever half done.

use crate::{Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, WritePieces};
use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

/// Bytes of one thread as a [`Device`]. Clones are handles of the same bytes. What was written needs no flush.
#[derive(Clone)]
pub struct MemoryDevice(Rc<Inside>);

struct Inside {
    geometry: Geometry,
    bytes: RefCell<Vec<u8>>,
}

impl MemoryDevice {
    /// A device of these bytes. Its size is in whole sectors: bytes behind the last one are left alone.
    pub fn new(bytes: Vec<u8>) -> MemoryDevice {
        let geometry = Geometry {
            // What clients should prefer: a page.
            physical_block: Sectors(8),
            discard_granularity: Sectors(1),
            volatile_cache: false,
            ..Geometry::of_disk(Sectors::from_bytes_floor(bytes.len() as u64))
        };
        MemoryDevice(Rc::new(Inside { geometry, bytes: RefCell::new(bytes) }))
    }

    /// All of its bytes. Do not keep them while the device is used.
    pub fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.0.bytes.borrow(), Vec::as_slice)
    }

    /// Fills `into` from byte `at` on. Fails if it reaches past the end.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> Result<(), IoError> {
        into.copy_from_slice(&self.bytes_at(at, into.len())?);
        Ok(())
    }

    /// Stores bytes from byte `at` on. Fails if they reach past the end.
    pub fn write_at(&self, at: u64, from: &[u8]) -> Result<(), IoError> {
        self.bytes_at(at, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn bytes_at(&self, at: u64, length: usize) -> Result<RefMut<'_, [u8]>, IoError> {
        match at.checked_add(length as u64) {
            Some(end) if end <= self.0.geometry.size.bytes() => {
                let range = at as usize..end as usize;
                Ok(RefMut::map(self.0.bytes.borrow_mut(), |bytes| &mut bytes[range]))
            }
            Some(_) | None => Err(ErrorKind::OutOfRange.into()),
        }
    }

    fn sectors_at(&self, at: Sector, length: Sectors) -> Result<RefMut<'_, [u8]>, IoError> {
        if at.0.checked_add(length.0).is_none_or(|end| end > self.0.geometry.size.0) {
            return Err(ErrorKind::OutOfRange.into());
        }
        self.bytes_at(at.first_byte(), length.len_bytes())
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    async fn read(&self, at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        into.copy_from(&self.sectors_at(at, into.length())?);
        Ok(into)
    }

    async fn write(&self, at: Sector, from: WritePieces, _fua: Fua) -> Result<(), IoError> {
        from.copy_to(&mut self.sectors_at(at, from.length())?);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.sectors_at(range.start, range.length).map(drop)
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.sectors_at(range.start, range.length)?.fill(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arena, SECTOR_BYTES};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(work: impl Future<Output = T>) -> T {
        match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("memory answers at once"),
        }
    }

    #[test]
    fn what_one_handle_wrote_another_one_reads() {
        let (arena, device) = (Arena::new(2, 0), MemoryDevice::new(vec![0; 4 * SECTOR_BYTES + 100]));
        assert_eq!(device.geometry().size, Sectors(4));
        let mut written = arena.take(2 * SECTOR_BYTES).expect("room");
        written.fill(7);
        now(device.clone().write(Sector(1), written.freeze(), Fua::No)).expect("inside");
        let read = now(device.read(Sector(0), arena.take(4 * SECTOR_BYTES).expect("room"))).expect("inside");
        let expected: Vec<u8> = [0, 7, 7, 0].into_iter().flat_map(|byte| [byte; SECTOR_BYTES]).collect();
        assert_eq!(read.to_vec(), expected);
        now(device.write_zeroes(Range::new(Sector(2), Sectors(1)))).expect("inside");
        assert_eq!(device.bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>(), 7 * SECTOR_BYTES as u64);
    }

    #[test]
    fn a_request_past_the_end_is_refused_and_changes_nothing() {
        let (arena, device) = (Arena::new(2, 0), MemoryDevice::new(vec![9; 4 * SECTOR_BYTES]));
        let refused = Err(ErrorKind::OutOfRange.into());
        for at in [3, 4, u64::MAX / SECTOR_BYTES as u64, u64::MAX] {
            let bytes = || arena.take_zeroed(2 * SECTOR_BYTES).expect("room");
            let range = Range { start: Sector(at), length: Sectors(2) };
            assert_eq!(now(device.read(Sector(at), bytes())).map(drop), refused);
            assert_eq!(now(device.write(Sector(at), bytes().freeze(), Fua::Yes)), refused);
            assert_eq!(now(device.write_zeroes(range)), refused);
            assert_eq!(now(device.discard(range)), refused);
        }
        for at in [3 * SECTOR_BYTES as u64 + 1, 4 * SECTOR_BYTES as u64, u64::MAX] {
            assert_eq!(device.write_at(at, &[0; SECTOR_BYTES]), refused);
            assert_eq!(device.read_at(at, &mut [0; SECTOR_BYTES]), refused);
        }
        assert!(device.bytes().iter().all(|byte| *byte == 9));
    }
}
