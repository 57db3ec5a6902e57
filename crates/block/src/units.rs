//! Units as types: two addresses of different spaces cannot be swapped.
//! Owns: the three address spaces, lengths, extents, time. Not here: how one space maps to another (`layout`).

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in a sector, the unit of every address and length.
pub const SECTOR_BYTES: usize = 512;

/// A length in 512-byte sectors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Sectors(pub u64);

impl Sectors {
    /// Zero sectors.
    pub const ZERO: Sectors = Sectors(0);

    /// The length in bytes. Panics at or above 2^64 bytes: sizes are bounded where they are parsed.
    pub const fn bytes(self) -> u64 {
        match self.0.checked_mul(SECTOR_BYTES as u64) {
            Some(bytes) => bytes,
            None => panic!("a length above 2^64 bytes"),
        }
    }

    /// The length in bytes, for indexing memory.
    pub const fn len_bytes(self) -> usize {
        self.bytes() as usize
    }

    /// This many bytes as sectors; `None` if it is not a whole number of sectors.
    pub const fn from_bytes(bytes: u64) -> Option<Sectors> {
        if bytes.is_multiple_of(SECTOR_BYTES as u64) { Some(Sectors(bytes / SECTOR_BYTES as u64)) } else { None }
    }

    /// This many bytes in whole sectors, rounded down.
    pub const fn from_bytes_floor(bytes: u64) -> Sectors {
        Sectors(bytes / SECTOR_BYTES as u64)
    }

    /// As a person writes sizes: the largest unit that it is a whole number of, `64 KiB`, or bytes: `1536 bytes`.
    pub fn size(self) -> impl fmt::Display {
        let bytes = self.bytes();
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let whole = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
        let (unit, shift) = whole.unwrap_or(("bytes", 0));
        fmt::from_fn(move |out| write!(out, "{} {unit}", bytes >> shift))
    }

    /// Whether this is the empty length.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Sectors {
    type Output = Sectors;
    fn add(self, other: Sectors) -> Sectors {
        Sectors(self.0 + other.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, other: Sectors) {
        self.0 += other.0;
    }
}

impl Sub for Sectors {
    type Output = Sectors;
    fn sub(self, other: Sectors) -> Sectors {
        Sectors(self.0 - other.0)
    }
}

impl SubAssign for Sectors {
    fn sub_assign(&mut self, other: Sectors) {
        self.0 -= other.0;
    }
}

impl fmt::Display for Sectors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => out.write_str("1 sector"),
            count => write!(out, "{count} sectors"),
        }
    }
}

/// An address in one of the spaces. Adding [`Sectors`] moves it; the difference of two addresses is [`Sectors`].
pub trait Address: Copy + Ord + fmt::Debug {
    /// The address `n` sectors from the start of its space.
    fn at(n: u64) -> Self;
    /// Sectors from the start of its space.
    fn get(self) -> u64;
}

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub struct $name(pub u64);

        impl Address for $name {
            fn at(n: u64) -> $name {
                $name(n)
            }
            fn get(self) -> u64 {
                self.0
            }
        }

        impl Add<Sectors> for $name {
            type Output = $name;
            fn add(self, length: Sectors) -> $name {
                $name(self.0 + length.0)
            }
        }

        impl Sub for $name {
            type Output = Sectors;
            fn sub(self, from: $name) -> Sectors {
                Sectors(self.0 - from.0)
            }
        }
    };
}

address! {
    /// What a client of the array addresses.
    ArraySector
}
address! {
    /// On one member, counted from its data_offset. What `layout` computes.
    MemberSector
}
address! {
    /// On one [`Device`](crate::Device), counted from its first sector. A member's superblock is at `Sector(8)`.
    Sector
}

impl Sector {
    /// The address of its first byte. Panics at or above 2^64 bytes: sizes are bounded where they are parsed.
    pub const fn first_byte(self) -> u64 {
        Sectors(self.0).bytes()
    }
}

/// A stretch of one address space: `length` sectors from `start`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Extent<A> {
    /// The first sector.
    pub start: A,
    /// The number of sectors.
    pub length: Sectors,
}

/// A range of the array, as clients address it.
pub type ArrayRange = Extent<ArraySector>;
/// A stretch of one member's data.
pub type MemberRange = Extent<MemberSector>;
/// A stretch of one device.
pub type Range = Extent<Sector>;

impl<A: Address> Extent<A> {
    /// `length` sectors from `start`. Does not check that the end fits 64 bits: see [`Extent::end`].
    pub fn new(start: A, length: Sectors) -> Extent<A> {
        Extent { start, length }
    }

    /// From `start` up to, but not including, `end`. Panics if `end` is before `start`.
    pub fn between(start: A, end: A) -> Extent<A> {
        assert!(start <= end);
        Extent { start, length: Sectors(end.get() - start.get()) }
    }

    /// The sector after the last one. Panics above 2^64: a client's range is checked before it becomes an extent.
    pub fn end(self) -> A {
        A::at(self.start.get().checked_add(self.length.0).expect("an extent's end fits 64 bits"))
    }

    /// Whether the two have a sector in common.
    pub fn overlaps(self, other: Extent<A>) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// A point in time on the `World`'s monotonic clock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Tick(pub u64);

impl Add<std::time::Duration> for Tick {
    type Output = Tick;
    fn add(self, wait: std::time::Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Tick {
    /// The time since `earlier`; zero if `earlier` is later than `self`.
    pub fn since(self, earlier: Tick) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The number of a shard, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ShardIndex(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_do_not_overlap() {
        let a = ArrayRange::new(ArraySector(8), Sectors(8));
        assert_eq!(a.end(), ArraySector(16));
        assert!(!a.overlaps(ArrayRange::new(ArraySector(16), Sectors(1))));
        assert!(!a.overlaps(ArrayRange::new(ArraySector(0), Sectors(8))));
        assert!(a.overlaps(ArrayRange::new(ArraySector(15), Sectors(9))));
        assert!(a.overlaps(ArrayRange::new(ArraySector(0), Sectors(9))));
    }

    #[test]
    fn byte_counts_that_are_not_whole_sectors_are_refused() {
        assert_eq!(Sectors::from_bytes(1024), Some(Sectors(2)));
        assert_eq!(Sectors::from_bytes(1025), None);
        assert_eq!(Sectors::from_bytes_floor(1025), Sectors(2));
    }
}
