//! raid4, raid5, raid6: striped, with parity.
//! Owns: [`ParityLayout`]: the places of P, Q and each data chunk of a row, and the exponents of Q. Not here: the bytes
//! of parity (`parity`).
//! Invariant: P, Q and the data of a row are on different slots, and no two exponents of a row are equal.
//! Spec: docs/md/address-mapping.md#raid4-and-raid5, docs/md/address-mapping.md#raid6.
//!
//! ```text
//!  left-symmetric, 4 slots          raid6 left-symmetric, 5 slots
//!  row 0   D0  D1  D2  P            row 0   Q   D0  D1  D2  P      data follow behind P or Q, wrapping
//!  row 1   D4  D5  P   D3           row 1   D3  D4  D5  P   Q
//! ```

use crate::levels::grid::{Chunk, Divisor, bounded};
use crate::plan::{self, Place, Places, Stretch};
use crate::spec::Geometry;
use crate::{Copies, CopyChoice, LayoutError, Plan, Row, RowBlock, RowMap, RowPart, Spec, rows};
use smallvec::SmallVec;
use uraid_block::{ArrayRange, MemberSector, Sectors, Slot, SlotSet};

/// The places of an array with parity. A row is one chunk on every member.
#[derive(Clone, Debug)]
pub struct ParityLayout {
    pub(crate) geometry: Geometry,
    chunk: Chunk,
    slots: u64,
    /// Data chunks of a row.
    across: Divisor,
    rows: u64,
    shape: Shape,
}

/// A layout: how parity rotates, and how data is placed around it.
#[derive(Clone, Copy, Debug)]
struct Shape {
    parity: Parity,
    syndrome: Syndrome,
    data: Data,
    exponents: Exponents,
}

/// The place of P. `among`: the number of members among which it rotates.
#[derive(Clone, Copy, Debug)]
enum Parity {
    Fixed(u64),
    /// From the last member down, starting `ahead` rows later in the rotation.
    Falling {
        among: Divisor,
        ahead: u64,
    },
    /// From the first member up.
    Rising {
        among: Divisor,
    },
}

/// The place of Q.
#[derive(Clone, Copy, Debug)]
enum Syndrome {
    None,
    BehindParity,
    BeforeParity,
    Last,
}

/// The place of data chunk k.
#[derive(Clone, Copy, Debug)]
enum Data {
    /// On the k-th slot that holds no parity.
    Skip,
    /// k slots after P, wrapping among this many members.
    BehindParity { among: u64 },
    /// k slots after Q, wrapping.
    BehindSyndrome,
    /// From this slot on.
    From(u64),
}

/// The power of the generator of a data chunk in Q.
#[derive(Clone, Copy, Debug)]
enum Exponents {
    /// Data counted by place, from after Q upwards, wrapping: not always the index of the data.
    Walk,
    /// The slot's number; P and Q leave gaps (DDF).
    SlotNumber,
}

/// DDF's exponents are slot numbers, and the generator has order 255.
const DDF_SLOTS_MAX: u16 = 255;

impl Shape {
    fn raid5(layout: u32, slots: u64) -> Option<Shape> {
        let all = Divisor::new(slots);
        let falling = Parity::Falling { among: all, ahead: 0 };
        let rising = Parity::Rising { among: all };
        let (parity, data) = match layout {
            0 => (falling, Data::Skip),
            1 => (rising, Data::Skip),
            2 => (falling, Data::BehindParity { among: slots }),
            3 => (rising, Data::BehindParity { among: slots }),
            4 => (Parity::Fixed(0), Data::From(1)),
            5 => (Parity::Fixed(slots - 1), Data::From(0)),
            _ => return None,
        };
        Some(Shape { parity, syndrome: Syndrome::None, data, exponents: Exponents::Walk })
    }

    fn raid6(layout: u32, slots: u64) -> Option<Shape> {
        let all = Divisor::new(slots);
        let falling = Parity::Falling { among: all, ahead: 0 };
        let rising = Parity::Rising { among: all };
        // The "-6" layouts are those of raid5 on all members but the last, which holds Q.
        let most = slots - 1;
        let falling_6 = Parity::Falling { among: Divisor::new(most), ahead: 0 };
        let rising_6 = Parity::Rising { among: Divisor::new(most) };
        let (parity, syndrome, data) = match layout {
            0 => (falling, Syndrome::BehindParity, Data::Skip),
            1 => (rising, Syndrome::BehindParity, Data::Skip),
            2 => (falling, Syndrome::BehindParity, Data::BehindSyndrome),
            3 => (rising, Syndrome::BehindParity, Data::BehindSyndrome),
            4 => (Parity::Fixed(0), Syndrome::BehindParity, Data::From(2)),
            5 => (Parity::Fixed(slots - 2), Syndrome::BehindParity, Data::From(0)),
            8 => (rising, Syndrome::BehindParity, Data::Skip),
            9 => (Parity::Falling { among: all, ahead: 1 }, Syndrome::BehindParity, Data::Skip),
            10 => (falling, Syndrome::BeforeParity, Data::BehindParity { among: slots }),
            16 => (falling_6, Syndrome::Last, Data::Skip),
            17 => (rising_6, Syndrome::Last, Data::Skip),
            18 => (falling_6, Syndrome::Last, Data::BehindParity { among: most }),
            19 => (rising_6, Syndrome::Last, Data::BehindParity { among: most }),
            20 => (Parity::Fixed(0), Syndrome::Last, Data::From(1)),
            _ => return None,
        };
        let exponents = if (8..=10).contains(&layout) { Exponents::SlotNumber } else { Exponents::Walk };
        Some(Shape { parity, syndrome, data, exponents })
    }

    #[inline]
    fn parity(self, row: u64) -> u64 {
        match self.parity {
            Parity::Fixed(slot) => slot,
            Parity::Falling { among, ahead } => among.count - 1 - among.split(row + ahead).1,
            Parity::Rising { among } => among.split(row).1,
        }
    }

    #[inline]
    fn syndrome(self, parity: u64, slots: u64) -> Option<u64> {
        match self.syndrome {
            Syndrome::None => None,
            Syndrome::BehindParity => Some(wrap(parity + 1, slots)),
            Syndrome::BeforeParity => Some(wrap(parity + slots - 1, slots)),
            Syndrome::Last => Some(slots - 1),
        }
    }

    #[inline]
    fn data(self, k: u64, parity: u64, syndrome: Option<u64>, slots: u64) -> u64 {
        match self.data {
            Data::Skip => {
                let lower = syndrome.map_or(parity, |syndrome| syndrome.min(parity));
                let upper = syndrome.map_or(u64::MAX, |syndrome| syndrome.max(parity));
                let slot = k + u64::from(k >= lower);
                slot + u64::from(slot >= upper)
            }
            Data::BehindParity { among } => wrap(parity + 1 + k, among),
            Data::BehindSyndrome => wrap(syndrome.expect("only raid6 counts from Q") + 1 + k, slots),
            Data::From(first) => first + k,
        }
    }

    fn exponent(self, k: u64, slot: u64, parity: u64, syndrome: Option<u64>, slots: u64) -> u64 {
        let Some(syndrome) = syndrome else { return k };
        match self.exponents {
            Exponents::SlotNumber => slot,
            Exponents::Walk => {
                let behind = |slot: u64| wrap(slot + slots - syndrome, slots) - 1;
                behind(slot) - u64::from(behind(parity) < behind(slot))
            }
        }
    }
}

/// `n % among`, for an n below twice `among`.
#[inline]
fn wrap(n: u64, among: u64) -> u64 {
    if n >= among { n - among } else { n }
}

impl ParityLayout {
    pub(crate) fn raid4(spec: &Spec) -> Result<ParityLayout, LayoutError> {
        // The kernel ignores raid4's number.
        ParityLayout::new(spec, Shape::raid5(5, spec.raid_disks.into()), 1)
    }

    pub(crate) fn raid5(spec: &Spec) -> Result<ParityLayout, LayoutError> {
        ParityLayout::new(spec, Shape::raid5(spec.layout, spec.raid_disks.into()), 1)
    }

    pub(crate) fn raid6(spec: &Spec) -> Result<ParityLayout, LayoutError> {
        ParityLayout::new(spec, Shape::raid6(spec.layout, spec.raid_disks.into()), 2)
    }

    /// `parities`: the parity chunks of a row.
    fn new(spec: &Spec, shape: Option<Shape>, parities: u64) -> Result<ParityLayout, LayoutError> {
        let chunk = Chunk::power_of_two(spec.level, spec.chunk)?;
        let shape = shape.ok_or(LayoutError::UnknownLayout { level: spec.level, found: spec.layout })?;
        if matches!(shape.exponents, Exponents::SlotNumber) && spec.raid_disks > DDF_SLOTS_MAX {
            let (level, found) = (spec.level, spec.raid_disks);
            return Err(LayoutError::TooManyMembers { level, found, expected: DDF_SLOTS_MAX });
        }
        let rows = chunk.split(bounded(spec.size.0)?).0;
        if rows == 0 {
            return Err(LayoutError::SizeTooSmall { found: spec.size, expected: spec.chunk });
        }
        let slots = u64::from(spec.raid_disks);
        let across = slots - parities;
        let size = bounded(rows * chunk.sectors * across)?;
        let geometry = Geometry::new(spec, size);
        Ok(ParityLayout { geometry, chunk, slots, across: Divisor::new(across), rows, shape })
    }

    /// How many slots.
    pub fn slots(&self) -> u16 {
        self.slots as u16
    }

    /// The chunk.
    pub fn chunk(&self) -> Sectors {
        Sectors(self.chunk.sectors)
    }

    /// Data sectors of one row.
    pub fn stripe(&self) -> Sectors {
        Sectors(self.chunk.sectors * self.across.count)
    }

    /// A range inside the array cut by row, ascending.
    pub fn rows(&self, range: ArrayRange) -> impl Iterator<Item = RowPart> + use<> {
        self.geometry.bounds(range);
        rows::cut(range, self.stripe().0)
    }

    /// How many rows there are.
    pub fn rows_count(&self) -> u64 {
        self.rows
    }

    /// The start of a row on every member. Panics after the last row.
    pub fn row_start(&self, row: Row) -> MemberSector {
        assert!(row.0 < self.rows, "a row behind the last one");
        MemberSector(row.0 * self.chunk.sectors)
    }

    /// The places of a range of a row's data and of the parity that covers it; `None` if the range is not within one
    /// chunk. Gives what [`Self::row`] gives, without the rest of the row. `start` counts within the row's data. Panics
    /// outside of the row.
    #[inline]
    pub fn block(&self, row: Row, start: Sectors, length: Sectors) -> Option<RowBlock> {
        assert!(row.0 < self.rows && !length.is_zero());
        let (data, offset) = self.chunk.split(start.0);
        assert!(data < self.across.count, "a block of the row");
        if length.0 > self.chunk.sectors - offset {
            return None;
        }
        let parity = self.shape.parity(row.0);
        let syndrome = self.shape.syndrome(parity, self.slots);
        let slot = self.shape.data(data, parity, syndrome, self.slots);
        assert!(slot != parity && Some(slot) != syndrome);
        Some(RowBlock {
            data: data as usize,
            start: Sectors(offset),
            at: MemberSector(row.0 * self.chunk.sectors + offset),
            slot: Slot(slot as u16),
            parity: Slot(parity as u16),
            syndrome: syndrome.map(|q| Slot(q as u16)),
            exponent: self.shape.exponent(data, slot, parity, syndrome, self.slots) as u8,
        })
    }

    /// The slots of a row. Panics after the last row.
    pub fn row(&self, row: Row) -> RowMap {
        let start = self.row_start(row);
        let parity = self.shape.parity(row.0);
        let syndrome = self.shape.syndrome(parity, self.slots);
        let mut data = SmallVec::with_capacity(self.across.count as usize);
        let mut exponents = SmallVec::with_capacity(self.across.count as usize);
        for k in 0..self.across.count {
            let slot = self.shape.data(k, parity, syndrome, self.slots);
            assert!(slot != parity && Some(slot) != syndrome);
            data.push(Slot(slot as u16));
            exponents.push(self.shape.exponent(k, slot, parity, syndrome, self.slots) as u8);
        }
        RowMap { row, start, data, exponents, parity: Slot(parity as u16), syndrome: syndrome.map(|q| Slot(q as u16)) }
    }

    pub(crate) fn tolerates(&self) -> u16 {
        (self.slots - self.across.count) as u16
    }

    pub(crate) fn member_used(&self) -> Sectors {
        Sectors(self.rows * self.chunk.sectors)
    }

    pub(crate) fn plan_read(&self, range: ArrayRange, usable: &SlotSet) -> Plan {
        let (from, to) = self.geometry.bounds(range);
        plan::read(self, from, to, usable, CopyChoice::First)
    }

    #[inline]
    pub(crate) fn place_to_read(&self, range: ArrayRange, usable: &SlotSet) -> Option<Place> {
        let (from, to) = self.geometry.bounds(range);
        plan::place_to_read(self, from, to, usable, CopyChoice::First)
    }

    pub(crate) fn copies(&self, at: u64) -> Copies {
        plan::copies(self, at)
    }

    #[inline]
    pub(crate) fn slot_of_copy(&self, at: u64) -> Slot {
        plan::slot_of_copy(self, at, 0)
    }

    pub(crate) fn contiguous(&self, at: u64) -> u64 {
        self.stretch(at).length
    }
}

impl Places for ParityLayout {
    fn copies_count(&self) -> u16 {
        1
    }

    #[inline]
    fn stretch(&self, at: u64) -> Stretch {
        let (chunk, offset) = self.chunk.split(at);
        let (row, k) = self.across.split(chunk);
        let parity = self.shape.parity(row);
        let syndrome = self.shape.syndrome(parity, self.slots);
        let slot = self.shape.data(k, parity, syndrome, self.slots);
        let first = Place { slot: slot as u16, at: row * self.chunk.sectors + offset };
        Stretch { first, length: self.chunk.sectors - offset }
    }

    fn copy(&self, first: Place, _n: u16) -> Place {
        first
    }
}
