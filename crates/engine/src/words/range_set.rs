//! A set of sectors, as ranges.
//! Owns: [`RangeSet`]. Not here: what its sectors stand for (`bad_blocks`, `unsynced`).
//! Invariant: the ranges are sorted, and neither overlap nor touch, so that one set has one form.

use uraid_block::{Range, Sectors};

/// A set of sectors of a device.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct RangeSet(Vec<Range>);

impl FromIterator<Range> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::default();
        ranges.into_iter().for_each(|range| set.add(range));
        set
    }
}

impl RangeSet {
    /// Whether it has no sector.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its ranges, ascending.
    pub(crate) fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// How many sectors it has.
    pub(crate) fn sectors(&self) -> Sectors {
        Sectors(self.0.iter().map(|range| range.length.0).sum())
    }

    /// Whether it has a sector of the range.
    pub(crate) fn overlaps(&self, range: Range) -> bool {
        let first = self.0.partition_point(|own| own.end() <= range.start);
        !range.length.is_zero() && self.0.get(first).is_some_and(|own| own.start < range.end())
    }

    /// Whether it has every sector of the range.
    pub(crate) fn contains(&self, range: Range) -> bool {
        let first = self.0.partition_point(|own| own.end() <= range.start);
        let is_inside = |own: &Range| own.start <= range.start && range.end() <= own.end();
        range.length.is_zero() || self.0.get(first).is_some_and(is_inside)
    }

    /// The longest stretch from the start of a range of which it has all sectors, or none.
    pub(crate) fn alike(&self, range: Range) -> Sectors {
        match self.within(range).next() {
            Some(own) if own.start == range.start => own.length,
            Some(own) => Sectors(own.start.0 - range.start.0),
            None => range.length,
        }
    }

    /// Adds a range.
    pub(crate) fn add(&mut self, range: Range) {
        if range.length.is_zero() {
            return;
        }
        // Those that touch it become one with it.
        let first = self.0.partition_point(|own| own.end() < range.start);
        let behind = self.0.partition_point(|own| own.start <= range.end());
        let (mut start, mut end) = (range.start, range.end());
        if first < behind {
            start = start.min(self.0[first].start);
            end = end.max(self.0[behind - 1].end());
        }
        self.0.splice(first..behind, [Range::between(start, end)]);
    }

    /// Takes a range out of it.
    pub(crate) fn remove(&mut self, range: Range) {
        if !self.overlaps(range) {
            return;
        }
        let first = self.0.partition_point(|own| own.end() <= range.start);
        let behind = self.0.partition_point(|own| own.start < range.end());
        let (start, end) = (self.0[first].start, self.0[behind - 1].end());
        let before = (start < range.start).then(|| Range::between(start, range.start));
        let after = (range.end() < end).then(|| Range::between(range.end(), end));
        self.0.splice(first..behind, before.into_iter().chain(after));
    }

    /// What it has of a range, ascending.
    pub(crate) fn within(&self, range: Range) -> impl Iterator<Item = Range> + '_ {
        let first = self.0.partition_point(|own| own.end() <= range.start);
        let inside = self.0[first..].iter().take_while(move |own| own.start < range.end());
        inside.map(move |own| Range::between(own.start.max(range.start), own.end().min(range.end())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sector;

    const ALL: u64 = 7;

    fn range(start: u64, end: u64) -> Range {
        Range::between(Sector(start), Sector(end))
    }

    /// The set of the sectors whose bit is set.
    fn set(bits: u64) -> RangeSet {
        (0..ALL).filter(|at| bits & 1 << at != 0).map(|at| range(at, at + 1)).collect()
    }

    #[test]
    fn it_is_a_set_of_sectors_whatever_is_added_and_removed() {
        for bits in 0..1 << ALL {
            let before = set(bits);
            assert!(before.0.windows(2).all(|pair| pair[0].end() < pair[1].start), "{before:?}");
            assert_eq!(before.sectors(), Sectors(u64::from(bits.count_ones())));
            for (start, end) in (0..=ALL).flat_map(|start| (start..=ALL).map(move |end| (start, end))) {
                let mask = (1 << end) - (1 << start);
                let (mut more, mut less) = (before.clone(), before.clone());
                more.add(range(start, end));
                less.remove(range(start, end));
                assert_eq!((more, less), (set(bits | mask), set(bits & !mask)), "{bits:b} {start}..{end}");
                let inside: RangeSet = before.within(range(start, end)).collect();
                assert_eq!(inside, set(bits & mask), "{bits:b} {start}..{end}");
                let is_like_first = |at: &u64| (bits >> at & 1) == (bits >> start & 1);
                let alike = (start..end).take_while(is_like_first).count() as u64;
                assert_eq!(before.alike(range(start, end)), Sectors(alike), "{bits:b} {start}..{end}");
                assert_eq!(before.overlaps(range(start, end)), bits & mask != 0, "{bits:b} {start}..{end}");
                assert_eq!(before.contains(range(start, end)), bits & mask == mask, "{bits:b} {start}..{end}");
            }
        }
    }
}
