//! What one shard remembers of rows that it made zeroes in part.
//! Owns: [`ZeroedParts`]. Not here: the zeroes (`row::zeroes`, `row::io`).
//! Invariant: a remembered part reads as zeroes: any other write of its row forgets it first. It may forget a part, but
//! never names one that is not zeroes. Plain cells, a fixed size, no allocation.
//!
//! ```text
//!   a client discards 2 GiB, then the next 2 GiB      stripe 1.5 MiB
//!     the first ends in row 1365, 512 KiB from its start      remembered
//!     the second begins there, with 1 MiB of that row         the whole row is zeroes: so are P and Q, whatever it held
//! ```

use crate::shard::stream_ends::hash_index;
use std::cell::Cell;
use std::ops::Range;
use uraid_block::Sectors;
use uraid_layout::Row;

/// How many parts are remembered: a power of two.
const PLACES: usize = 16;

/// A stretch of a row's data, from the start of the row. Empty: there is none.
#[derive(Clone, Copy, Default)]
struct Part {
    row: Row,
    start: Sectors,
    end: Sectors,
}

pub(crate) struct ZeroedParts {
    places: [Cell<Part>; PLACES],
    /// Whether some place has a part.
    is_used: Cell<bool>,
}

impl ZeroedParts {
    pub(crate) fn new() -> ZeroedParts {
        ZeroedParts { places: Default::default(), is_used: Cell::new(false) }
    }

    /// The row is written: nothing is known of it any more.
    #[inline]
    pub(crate) fn forget(&self, row: Row) {
        if self.is_used.get() {
            let place = self.place(row);
            if place.get().row == row {
                place.set(Part::default());
            }
        }
    }

    /// What is zeroes once `part` is, too: that part, and the remembered one if they touch.
    pub(crate) fn with(&self, row: Row, part: Range<Sectors>) -> Range<Sectors> {
        let known = self.place(row).get();
        let touches = known.start < known.end && known.start <= part.end && part.start <= known.end;
        match known.row == row && touches {
            true => known.start.min(part.start)..known.end.max(part.end),
            false => part,
        }
    }

    /// This part is zeroes now.
    pub(crate) fn note(&self, row: Row, part: Range<Sectors>) {
        assert!(part.start < part.end, "a part has a sector");
        self.is_used.set(true);
        self.place(row).set(Part { row, start: part.start, end: part.end });
    }

    fn place(&self, row: Row) -> &Cell<Part> {
        &self.places[hash_index(row.0, PLACES)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, end: u64) -> Range<Sectors> {
        Sectors(start)..Sectors(end)
    }

    #[test]
    fn parts_that_touch_are_one_until_the_row_is_written() {
        let zeroed = ZeroedParts::new();
        assert_eq!(zeroed.with(Row(7), part(4, 6)), part(4, 6));
        zeroed.note(Row(7), part(4, 6));
        assert_eq!(zeroed.with(Row(7), part(6, 9)), part(4, 9));
        assert_eq!(zeroed.with(Row(7), part(0, 4)), part(0, 6));
        assert_eq!(zeroed.with(Row(7), part(0, 3)), part(0, 3), "sector 3 is between them");
        assert_eq!(zeroed.with(Row(8), part(6, 9)), part(6, 9), "another row");
        zeroed.forget(Row(8));
        assert_eq!(zeroed.with(Row(7), part(6, 9)), part(4, 9));
        zeroed.forget(Row(7));
        assert_eq!(zeroed.with(Row(7), part(6, 9)), part(6, 9));
    }

    #[test]
    fn nothing_is_known_of_row_0_at_first() {
        assert_eq!(ZeroedParts::new().with(Row(0), part(0, 1)), part(0, 1));
        assert_eq!(ZeroedParts::new().with(Row(0), part(1, 2)), part(1, 2));
    }
}
