//! Where a file of a file system on the array lies, and what writing it costs.
//! Owns: [`Extent`], its stripe flags, [`Prediction`]. Not here: asking the file system (the caller), the plans
//! (`engine::write_cost`).
//! Spec: xfs_bmap(8), -v: the flags; the kernel's Documentation/filesystems/fiemap.

use crate::cost::healthy::healthy_cost;
use uraid_block::{Range, Sector, Sectors};
use uraid_engine::WriteCost;
use uraid_layout::Layout;

/// A stretch of a file that lies in one piece on the array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// From the start of the file.
    pub file: Sector,
    /// From the start of the array.
    pub at: Sector,
    /// Its length.
    pub length: Sectors,
    /// It was allocated and not written yet.
    pub is_unwritten: bool,
    /// Other files share it.
    pub is_shared: bool,
}

/// xfs_bmap's flags, to be printed with six octal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentFlags(pub u32);

impl ExtentFlags {
    /// The meaning of each, as a legend.
    pub const LEGEND: [(u32, &'static str); 6] = [
        (0o100_000, "shared with another file"),
        (0o010_000, "allocated, not written yet"),
        (0o001_000, "does not begin at a chunk (stripe unit)"),
        (0o000_100, "does not end at a chunk"),
        (0o000_010, "does not begin at a stripe (stripe width)"),
        (0o000_001, "does not end at a stripe"),
    ];

    /// Whether this one of the legend is set.
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

impl Extent {
    /// The sector of the array behind it.
    pub fn end(&self) -> Sector {
        Sector(self.at.0.saturating_add(self.length.0))
    }

    /// Its flags for chunks and stripes of this many sectors; zero: there are none.
    pub fn flags(&self, chunk: Sectors, stripe: Sectors) -> ExtentFlags {
        let is_off = |at: Sector, unit: Sectors| !unit.is_zero() && !at.0.is_multiple_of(unit.0);
        let all = [
            self.is_shared,
            self.is_unwritten,
            is_off(self.at, chunk),
            is_off(self.end(), chunk),
            is_off(self.at, stripe),
            is_off(self.end(), stripe),
        ];
        let set = ExtentFlags::LEGEND.iter().zip(all).filter(|(_, is_set)| *is_set);
        ExtentFlags(set.fold(0, |flags, ((flag, _), _)| flags | flag))
    }
}

/// What it costs to write a file from its first byte to its last, in writes of one size, each performed alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Prediction {
    /// The writes; the last one may be shorter.
    pub writes: u64,
    /// The sectors of the file that have no place on the array.
    pub holes: Sectors,
    /// All of them.
    pub cost: WriteCost,
    /// The same data, if it lay in one piece that begins at a stripe.
    pub ideal: WriteCost,
}

/// Predicts the writes of a file's extents, ascending in the file. `None`: an extent is outside the array.
pub fn predict(layout: &Layout, extents: &[Extent], write: Sectors) -> Option<Prediction> {
    assert!(!write.is_zero(), "a write has sectors");
    let mut sum = Prediction::default();
    let mut next = 0;
    let mut last_write = None;
    for extent in extents {
        sum.holes += Sectors(extent.file.0.saturating_sub(next));
        next = extent.file.0 + extent.length.0;
        for piece in pieces(extent, write) {
            let nth = piece.start.0 / write.0;
            if last_write != Some(nth) {
                sum.writes += 1;
                last_write = Some(nth);
            }
            let at = Sector(extent.at.0 + (piece.start.0 - extent.file.0));
            sum.cost += healthy_cost(layout, at, piece.length)?;
        }
    }
    let data: u64 = extents.iter().map(|extent| extent.length.0).sum();
    let mut at = 0;
    while at < data {
        let length = write.0.min(data - at);
        sum.ideal += healthy_cost(layout, Sector(at), Sectors(length)).unwrap_or_default();
        at += length;
    }
    Some(sum)
}

/// An extent cut where writes of the file begin, as ranges of the file.
fn pieces(extent: &Extent, write: Sectors) -> impl Iterator<Item = Range> {
    let (mut at, end) = (extent.file.0, extent.file.0 + extent.length.0);
    std::iter::from_fn(move || {
        let length = (write.0 - at % write.0).min(end - at);
        (length > 0).then(|| {
            let piece = Range::new(Sector(at), Sectors(length));
            at += length;
            piece
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_layout::{Level, Spec, default_layout};

    fn extent(file: u64, at: u64, length: u64) -> Extent {
        Extent { file: Sector(file), at: Sector(at), length: Sectors(length), is_unwritten: false, is_shared: false }
    }

    #[test]
    fn the_flags_are_those_of_xfs_bmap() {
        let flags = |at: u64, length: u64| extent(0, at, length).flags(Sectors(128), Sectors(1280)).0;
        assert_eq!(flags(0, 1280), 0);
        assert_eq!(flags(128, 1280), 0o11);
        assert_eq!(flags(96, 1280), 0o1111);
        assert_eq!(flags(0, 1288), 0o101);
        let unwritten = Extent { is_unwritten: true, is_shared: true, ..extent(0, 0, 1280) };
        assert_eq!(unwritten.flags(Sectors(128), Sectors(1280)).0, 0o110_000);
        assert_eq!(extent(0, 8, 8).flags(Sectors(0), Sectors(0)).0, 0);
    }

    /// S2: 10 + 2 with chunks of 64 KiB, writes of two stripes.
    #[test]
    fn a_file_is_written_as_its_extents_lie() {
        let spec = Spec {
            level: Level::Raid6,
            layout: default_layout(Level::Raid6),
            chunk: Sectors(128),
            raid_disks: 12,
            size: Sectors(1 << 20),
            member_sizes: Vec::new(),
        };
        let layout = Layout::new(&spec).expect("a layout");
        let of = |extents: &[Extent]| predict(&layout, extents, Sectors(2560)).expect("inside the array");
        let aligned = of(&[extent(0, 12_800, 25_600)]);
        assert_eq!((aligned.writes, aligned.cost.rows_full, aligned.cost.reads), (10, 20, 0));
        assert_eq!(aligned.cost, aligned.ideal);
        let askew = of(&[extent(0, 12_800 + 256, 25_600)]);
        assert_eq!((askew.writes, askew.cost.rows_full, askew.cost.rows()), (10, 10, 30));
        // The second write lies in two extents; a hole is in front of the third.
        let torn = of(&[extent(0, 0, 3840), extent(3840, 12_800, 1280), extent(7680, 25_600, 100)]);
        assert_eq!((torn.writes, torn.holes), (3, Sectors(2560)));
        assert_eq!(torn.cost.rows_full, 4);
        assert_eq!(predict(&layout, &[extent(0, layout.array_size().0, 8)], Sectors(8)), None);
        assert_eq!(of(&[]), Prediction::default());
    }
}
