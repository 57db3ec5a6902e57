//! Rows: the unit of parity work, one chunk on every member.
//! Owns: [`Row`], [`RowPart`], [`RowMap`], [`RowBlock`]. Not here: where parity sits (`raid456`).

use smallvec::SmallVec;
use uraid_block::{ArrayRange, MemberSector, Sectors, Slot};

/// A row of chunks of a parity level, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Row(pub u64);

/// The piece of a range that lies in one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowPart {
    /// Which row.
    pub row: Row,
    /// From the start of the range.
    pub offset: Sectors,
    /// Within the row's data: 0 up to the layout's stripe.
    pub start: Sectors,
    /// How many sectors.
    pub length: Sectors,
}

/// The slots of one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowMap {
    /// Which row.
    pub row: Row,
    /// Where it begins, on every member.
    pub start: MemberSector,
    /// The slot of data chunk 0, 1, ...
    pub data: SmallVec<[Slot; 16]>,
    /// The exponent of data chunk 0, 1, ... in the Q sum, as many as `data`. raid4 and raid5: the chunk's index.
    pub exponents: SmallVec<[u8; 16]>,
    /// The slot of P.
    pub parity: Slot,
    /// The slot of Q; raid6 only.
    pub syndrome: Option<Slot>,
}

/// A stretch of one data chunk of a row, and of the parity that covers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowBlock {
    /// Which data chunk of the row.
    pub data: usize,
    /// Its first sector, from the start of the chunk.
    pub start: Sectors,
    /// Its first sector on the member; the same for data, P and Q.
    pub at: MemberSector,
    /// The slot of the data.
    pub slot: Slot,
    /// The slot of P.
    pub parity: Slot,
    /// The slot of Q; raid6 only.
    pub syndrome: Option<Slot>,
    /// The power of the generator that the data is multiplied by in Q.
    pub exponent: u8,
}

/// Cuts a range into rows of `stripe` data sectors.
pub(crate) fn cut(range: ArrayRange, stripe: u64) -> impl Iterator<Item = RowPart> + use<> {
    let (from, to) = (range.start.0, range.end().0);
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= to {
            return None;
        }
        let (row, start) = (at / stripe, at % stripe);
        let length = (stripe - start).min(to - at);
        let part =
            RowPart { row: Row(row), offset: Sectors(at - from), start: Sectors(start), length: Sectors(length) };
        at += length;
        Some(part)
    })
}
