//! Finds the holes of a file without reading it.
//! Owns: the conversion from SEEK_DATA and SEEK_HOLE to one stretch of whole sectors. Not here: the helper thread, the
//! member's range checks (`device`).
//! Invariant: a stretch is called zero only if it was a hole from its first byte to its last. If unsure, it is data.

use crate::sys::{self, Errno};
use std::os::fd::RawFd;
use uraid_block::{Allocation, SECTOR_BYTES, Sectors};

/// The first stretch of one kind (data or hole) in the `bytes` bytes from byte `at` of a file. The range lies inside
/// the file. `bytes` is a whole, nonzero number of sectors, and so is the stretch.
pub(super) fn of_file(fd: RawFd, at: u64, bytes: u64) -> Allocation {
    stretch(at, bytes, sys::seek_data(fd, at), || sys::seek_hole(fd, at))
}

/// `data` is the first byte at or after `at` that is not in a hole, `hole` the first byte that is in one.
fn stretch(at: u64, bytes: u64, data: Result<u64, Errno>, hole: impl FnOnce() -> Result<u64, Errno>) -> Allocation {
    const SECTOR: u64 = SECTOR_BYTES as u64;
    assert!(bytes > 0 && bytes.is_multiple_of(SECTOR));
    let zeroes = match data {
        Ok(data) => data.saturating_sub(at).min(bytes),
        // There is no data up to the end of the file, and the range does not extend past the file.
        Err(Errno(libc::ENXIO)) => bytes,
        Err(Errno(_)) => return Allocation { length: Sectors(bytes / SECTOR), is_zero: false },
    };
    if zeroes >= SECTOR {
        // Round inwards: a sector that is only partly a hole may hold anything.
        return Allocation { length: Sectors(zeroes / SECTOR), is_zero: true };
    }
    // At least the one sector in which the data starts.
    let data = hole().map_or(bytes, |hole| hole.saturating_sub(at).clamp(SECTOR, bytes));
    Allocation { length: Sectors(data.div_ceil(SECTOR)), is_zero: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_of_zeroes_is_rounded_inwards_and_data_outwards() {
        let zero = |length| Allocation { length: Sectors(length), is_zero: true };
        let data = |length| Allocation { length: Sectors(length), is_zero: false };
        let no_hole = || -> Result<u64, Errno> { panic!("not asked") };
        assert_eq!(stretch(1000, 4096, Ok(1000 + 1023), no_hole), zero(1));
        assert_eq!(stretch(1000, 4096, Ok(99_999), no_hole), zero(8));
        assert_eq!(stretch(1000, 4096, Err(Errno(libc::ENXIO)), no_hole), zero(8));
        assert_eq!(stretch(1000, 4096, Err(Errno(libc::EINVAL)), no_hole), data(8));
        assert_eq!(stretch(1000, 4096, Ok(1000 + 511), || Ok(1000 + 1025)), data(3));
        assert_eq!(stretch(1000, 4096, Ok(1000), || Ok(1000 + 1)), data(1));
        assert_eq!(stretch(1000, 4096, Ok(1000), || Ok(1000)), data(1), "it changes meanwhile");
        assert_eq!(stretch(1000, 4096, Ok(1000), || Ok(99_999)), data(8));
        assert_eq!(stretch(1000, 4096, Ok(1000), || Err(Errno(libc::ENXIO))), data(8));
    }
}
