//! Bytes in memory that are read instead of a member's own.
//! Owns: [`Overlay`]. Not here: what is laid over (the caller), the reads (`device`, `claimed`).
//! Invariant: nothing of it is ever written.

use std::collections::BTreeMap;
use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors};

/// Sectors of a member that is only read, with what they would hold if something had been made good.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Overlay(BTreeMap<u64, [u8; SECTOR_BYTES]>);

impl Overlay {
    /// Lays whole sectors over those from `at` on.
    pub fn insert(&mut self, at: Sector, bytes: &[u8]) {
        let (sectors, rest) = bytes.as_chunks::<SECTOR_BYTES>();
        assert!(rest.is_empty(), "whole sectors");
        self.0.extend((at.0..).zip(sectors.iter().copied()));
    }

    /// Whether it has no sector.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces what was read from byte `at` on.
    pub(super) fn apply(&self, at: u64, bytes: &mut [u8]) {
        let end = at + bytes.len() as u64;
        let sector = SECTOR_BYTES as u64;
        for (number, own) in self.0.range(at / sector..end.div_ceil(sector)) {
            let start = number * sector;
            let (from, to) = (start.max(at), (start + sector).min(end));
            let of_own = &own[(from - start) as usize..(to - start) as usize];
            bytes[(from - at) as usize..(to - at) as usize].copy_from_slice(of_own);
        }
    }

    /// The first sector of a range that it has.
    pub(super) fn first_in(&self, range: Range) -> Option<Sector> {
        self.0.range(range.start.0..range.end().0).next().map(|(at, _)| Sector(*at))
    }

    /// How many sectors it has.
    pub fn length(&self) -> Sectors {
        Sectors(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_through_its_sectors_is_laid_over() {
        let mut overlay = Overlay::default();
        overlay.insert(Sector(2), &[[7; SECTOR_BYTES], [8; SECTOR_BYTES]].concat());
        overlay.insert(Sector(5), &[9; SECTOR_BYTES]);
        let mut whole = vec![1; 7 * SECTOR_BYTES];
        for (sector, byte) in [(2, 7), (3, 8), (5, 9)] {
            whole[sector * SECTOR_BYTES..][..SECTOR_BYTES].fill(byte);
        }
        for from in (0..whole.len()).step_by(37) {
            for to in (from..=whole.len()).step_by(71) {
                let mut found = vec![1; to - from];
                overlay.apply(from as u64, &mut found);
                assert!(found == whole[from..to], "{from} to {to}");
            }
        }
        let first = |from, to| overlay.first_in(Range::between(Sector(from), Sector(to))).map(|at| at.0);
        assert_eq!([first(0, 2), first(0, 3), first(4, 5), first(4, 6)], [None, Some(2), None, Some(5)]);
        assert_eq!(overlay.length(), Sectors(3));
    }
}
