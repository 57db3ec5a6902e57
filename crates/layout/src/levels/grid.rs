//! Arithmetic that several levels share: chunks, and the columns of a grid of chunks.
//! Owns: [`Chunk`], [`column`], the size limit. Not here: what a level does with it.

use crate::{LayoutError, Level};
use uraid_block::Sectors;

/// The largest array, and the largest member, in sectors: a byte count has to fit a signed 64-bit integer.
/// So with at most 256 members, and thus at most 256 copies, no product in this crate overflows 64 bits.
pub(crate) const SECTORS_MAX: u64 = i64::MAX as u64 / 512;

/// Refuses sizes beyond [`SECTORS_MAX`].
pub(crate) fn bounded(sectors: u64) -> Result<u64, LayoutError> {
    if sectors > SECTORS_MAX { Err(LayoutError::TooLarge { limit: Sectors(SECTORS_MAX) }) } else { Ok(sectors) }
}

/// A chunk size that divides quickly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) sectors: u64,
    /// The logarithm if `sectors` is a power of two; only raid0 allows others.
    shift: Option<u32>,
}

impl Chunk {
    /// Any chunk but zero.
    pub(crate) fn any(level: Level, chunk: Sectors) -> Result<Chunk, LayoutError> {
        if chunk.is_zero() {
            return Err(LayoutError::Chunk { level, found: chunk, expected: "at least one sector" });
        }
        let shift = chunk.0.is_power_of_two().then(|| chunk.0.trailing_zeros());
        Ok(Chunk { sectors: chunk.0, shift })
    }

    /// A chunk that is a power of two.
    pub(crate) fn power_of_two(level: Level, chunk: Sectors) -> Result<Chunk, LayoutError> {
        if !chunk.0.is_power_of_two() {
            return Err(LayoutError::Chunk { level, found: chunk, expected: "a power of two" });
        }
        Chunk::any(level, chunk)
    }

    /// Which chunk a sector is in, and how far from the chunk's start.
    #[inline]
    pub(crate) fn split(self, sector: u64) -> (u64, u64) {
        match self.shift {
            Some(shift) => (sector >> shift, sector & (self.sectors - 1)),
            None => (sector / self.sectors, sector % self.sectors),
        }
    }
}

/// The number of members or columns, prepared for fast division by a multiplication: the processor's division is the
/// most expensive instruction of a small read.
///
/// With `reciprocal` = (2^64 - 1 - r) / d, where r < d, `(n + 1) * reciprocal / 2^64` is (n + 1) / d less (n + 1) * (1
/// + r) / (d * 2^64). For every n below 2^55 the subtracted term is above zero and at most 1 / d, because d is at most
/// 256. So the integer part is that of n / d.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    pub(crate) count: u64,
    reciprocal: u64,
}

impl Divisor {
    /// Panics outside of 1 to 256. Callers have bounded the number of slots.
    pub(crate) fn new(count: u64) -> Divisor {
        assert!((1..=256).contains(&count));
        Divisor { count, reciprocal: u64::MAX / count }
    }

    /// `(n / count, n % count)` for sectors, chunks and rows of an array.
    #[inline]
    pub(crate) fn split(self, n: u64) -> (u64, u64) {
        assert!(n <= SECTORS_MAX);
        let product = (u128::from(n) + 1) * u128::from(self.reciprocal);
        let quotient = (product >> 64) as u64;
        (quotient, n - quotient * self.count)
    }
}

/// A grid of chunks filled with near copies: `copies` cells for each chunk, counted along rows of `width` columns.
///
/// ```text
///  width 3, copies 2     column 0   1   2
///                  row 0        c0  c0  c1
///                  row 1        c1  c2  c2
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) chunk: Chunk,
    pub(crate) width: u64,
    pub(crate) copies: u64,
}

impl Grid {
    /// The single extent of `column` that holds the copies of data sectors `from..to`, as (start, end) down the
    /// column. One extent is enough, because all cells between a column's first and last one belong to the range.
    ///
    /// Only the first and the last chunk are cut, but *all* copies of them are: md cut one copy only, and destroyed up
    /// to a chunk of the other (R1). In the picture, with chunks of 8, data 4..16: columns 0 and 1 start at 4 (both
    /// copies of c0), column 2 at 0, and column 0 ends at 16 with its copy of c1.
    pub(crate) fn column(&self, column: u64, from: u64, to: u64) -> Option<(u64, u64)> {
        assert!(column < self.width);
        if from == to {
            return None;
        }
        let size = self.chunk.sectors;
        let (first, first_offset) = self.chunk.split(from);
        let (last, last_offset) = self.chunk.split(to - 1);
        let cells = first * self.copies..(last + 1) * self.copies;
        let top = cells.start + (column + self.width - cells.start % self.width) % self.width;
        if top >= cells.end {
            return None;
        }
        let bottom = cells.end - 1 - ((cells.end - 1) % self.width + self.width - column) % self.width;
        assert!(top <= bottom);
        let head = if top < cells.start + self.copies { first_offset } else { 0 };
        let tail = if bottom >= last * self.copies { last_offset + 1 } else { size };
        Some((top / self.width * size + head, bottom / self.width * size + tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_divisor_gives_the_processors_result() {
        for count in 1..=256 {
            let divisor = Divisor::new(count);
            let edges = (0..60).map(|bit| SECTORS_MAX >> bit).flat_map(|n| [n, n - n % count, n / count]);
            for n in edges.flat_map(|n| n.saturating_sub(2)..=(n + 2).min(SECTORS_MAX)) {
                assert_eq!(divisor.split(n), (n / count, n % count), "{n} by {count}");
            }
        }
    }
}
