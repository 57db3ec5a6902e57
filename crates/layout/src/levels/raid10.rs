//! raid10: striped copies, near, far, offset.
//! Owns: the layout word, the map, which layouts are sound. Not here: anything shared (`plan`, `grid`).
//! Invariant: no two chunks share a place and no two copies share a member; a layout that breaks it is refused.
//! Spec: docs/md/address-mapping.md#raid10; docs/md/behaviour.md#discard.
//!
//! ```text
//!  near 2 on 3      far 2 on 3          offset 2 on 3
//!  A  A  B          A  B  C             A  B  C
//!  B  C  C          D  E  F             C  A  B
//!  D  D  E          ... then, a stride  D  E  F
//!                   C  A  B   further   F  D  E
//!                   F  D  E
//! ```

use crate::levels::grid::{Chunk, Divisor, Grid, bounded};
use crate::plan::{Images, Place, Places, Stretch};
use crate::{LayoutError, Spec};
use uraid_block::{Sectors, Slot, SlotSet};

#[derive(Clone, Debug)]
pub(crate) struct Raid10 {
    /// The grid of the first copies of a section: `near` cells for each chunk.
    grid: Grid,
    /// Chunks of one row of the grid, if the copies of each chunk are in one row.
    across: Option<Divisor>,
    near: u16,
    far: u16,
    is_offset: bool,
    /// Sectors from one far copy to the next.
    stride: u64,
    size: u64,
    used: u64,
    /// `forward[f * members + slot]`: the slot of the f-th far copy of `slot`'s data; `backward` is the inverse.
    forward: Vec<u16>,
    backward: Vec<u16>,
    /// Every set of slots that holds all copies of some chunk.
    groups: Vec<SlotSet>,
}

/// The decoded layout word.
#[derive(Clone, Copy, Debug)]
struct Word {
    near: u16,
    far: u16,
    is_offset: bool,
    sets: FarSets,
}

/// The number of members among which the far copies rotate.
#[derive(Clone, Copy, Debug)]
enum FarSets {
    /// All of them.
    Whole,
    /// members / far: md's first version. It can put two copies on one member; those combinations are refused.
    Early,
    /// near * far.
    Fixed,
}

impl Word {
    fn parse(spec: &Spec) -> Result<Word, LayoutError> {
        let word = spec.layout;
        let sets = match word >> 17 {
            0 => FarSets::Whole,
            1 => FarSets::Early,
            2 => FarSets::Fixed,
            _ => return Err(LayoutError::UnknownLayout { level: spec.level, found: word }),
        };
        let (near, far) = (word & 0xff, (word >> 8) & 0xff);
        if near * far < 2 || near * far > spec.raid_disks.into() {
            return Err(LayoutError::CopiesCount { found: near * far, members: spec.raid_disks });
        }
        Ok(Word { near: near as u16, far: far as u16, is_offset: word & 0x1_0000 != 0, sets })
    }

    /// From the slot of a copy to the slot of its next far copy, for every slot.
    fn steps(self, members: u16) -> Vec<u16> {
        let set = match self.sets {
            FarSets::Whole => members,
            FarSets::Early => members / self.far,
            FarSets::Fixed => self.near * self.far,
        };
        // The last set includes the members that do not fill a set.
        let tail = members % set;
        let last = (members / set - 1) * set;
        let step = |slot: u16| {
            let next = slot + self.near;
            if tail > 0 && next > last { last + (next - last) % (set + tail) } else { slot / set * set + next % set }
        };
        (0..members).map(step).collect()
    }
}

impl Raid10 {
    pub(crate) fn new(spec: &Spec) -> Result<Raid10, LayoutError> {
        let word = Word::parse(spec)?;
        let chunk = Chunk::power_of_two(spec.level, spec.chunk)?;
        let (members, near, far) = (u64::from(spec.raid_disks), u64::from(word.near), u64::from(word.far));
        let rows = chunk.split(bounded(spec.size.0)?).0 / far;
        let chunks = rows * members / near;
        if chunks == 0 {
            return Err(LayoutError::SizeTooSmall {
                found: spec.size,
                expected: Sectors(chunk.sectors.saturating_mul(far)),
            });
        }
        let used = (chunks * near * far).div_ceil(members);
        let (forward, backward) = far_tables(spec, word)?;
        let mut raid10 = Raid10 {
            grid: Grid { chunk, width: members, copies: near },
            across: members.is_multiple_of(near).then(|| Divisor::new(members / near)),
            near: word.near,
            far: word.far,
            // With one far copy the bit means nothing.
            is_offset: word.is_offset && far > 1,
            stride: if word.is_offset && far > 1 { chunk.sectors } else { used / far * chunk.sectors },
            size: bounded(chunks * chunk.sectors)?,
            used: used * chunk.sectors,
            forward,
            backward,
            groups: Vec::new(),
        };
        // A near copy that wraps moves one chunk down; in an offset layout that is the place of a far copy.
        if raid10.is_offset && members % near != 0 {
            return Err(LayoutError::NotInjective { found: spec.layout, members: spec.raid_disks });
        }
        raid10.groups = raid10.groups();
        if raid10.groups.iter().any(|group| group.count() != raid10.copies_count() as usize) {
            return Err(LayoutError::CopiesShareMember { found: spec.layout, members: spec.raid_disks });
        }
        Ok(raid10)
    }

    /// The slots of each chunk's copies, over as many chunks as it takes until the pattern repeats.
    fn groups(&self) -> Vec<SlotSet> {
        let mut groups: Vec<SlotSet> = Vec::new();
        let mut slot = 0;
        loop {
            let first = Place { slot, at: 0 };
            groups.push((0..self.copies_count()).map(|n| Slot(self.copy(first, n).slot)).collect());
            slot = (slot + self.near) % self.members();
            if slot == 0 {
                return groups;
            }
        }
    }

    fn members(&self) -> u16 {
        self.grid.width as u16
    }

    pub(crate) fn array_size(&self) -> u64 {
        self.size
    }

    pub(crate) fn member_used(&self) -> u64 {
        self.used
    }

    /// Data sectors of one stripe; of `near` stripes if the copies of a chunk can lie in two rows.
    pub(crate) fn stripe(&self) -> u64 {
        let (width, near) = (self.grid.width, self.grid.copies);
        self.grid.chunk.sectors * if width.is_multiple_of(near) { width / near } else { width }
    }

    /// The slots of each chunk's copies, until the pattern repeats.
    pub(crate) fn copy_groups(&self) -> &[SlotSet] {
        &self.groups
    }

    /// Whether each chunk has a copy on one of these slots. md checks every window of consecutive slots instead. Both
    /// give the same result for every layout that mdadm makes; with far sets, md's windows do not match the copies.
    pub(crate) fn can_serve(&self, usable: &SlotSet) -> bool {
        self.groups.iter().all(|group| group.iter().any(|slot| usable.contains(slot)))
    }

    /// The array sector whose copy lies at sector `at` of a member: the inverse of [`Places::copy`].
    pub(crate) fn sector_of_copy(&self, slot: u16, at: u64) -> Option<u64> {
        let (row, offset) = self.grid.chunk.split(at);
        let far = u64::from(self.far);
        let (row, far) = if self.is_offset {
            (row / far, row % far)
        } else {
            let rows = self.stride / self.grid.chunk.sectors;
            (row % rows, row / rows)
        };
        if far >= u64::from(self.far) {
            return None;
        }
        let first = self.backward[self.table_index(far as u16, slot)];
        let cell = row * self.grid.width + u64::from(first);
        let sector = cell / self.grid.copies * self.grid.chunk.sectors + offset;
        (sector < self.size).then_some(sector)
    }

    /// Array sectors that include all whose copies lie in `length` sectors from `at` of any member: those of whole rows.
    /// `None`: the stretch goes over the end of a section of a far layout.
    pub(crate) fn sectors_around(&self, at: u64, length: u64) -> Option<(u64, u64)> {
        let (size, far) = (self.grid.chunk.sectors, u64::from(self.far));
        let row_of = |at: u64| match self.is_offset {
            true => (at / size / far, 0),
            false => (at / size % (self.stride / size), at / size / (self.stride / size)),
        };
        let ((first, section), (last, of_last)) = (row_of(at), row_of(at + length - 1));
        let (from, to) = (first * self.grid.width, (last + 1) * self.grid.width);
        let to = (to.div_ceil(self.grid.copies) * size).min(self.size);
        let from = from / self.grid.copies * size;
        (section == of_last && section < far && from < to).then_some((from, to))
    }

    /// The extents of `row` of an offset layout of which array sectors `from..to` cover a part. Each chunk is `near`
    /// cells of one row, and the row is stored `far` times, rotated.
    fn offset_row(&self, slot: Slot, row: u64, from: u64, to: u64, image: &mut impl FnMut(u64, u64)) {
        let (size, across) = (self.grid.chunk.sectors, self.grid.width / self.grid.copies);
        for far in 0..self.far {
            let cell = self.backward[self.table_index(far, slot.0)];
            let chunk = row * across + u64::from(cell / self.near);
            let (start, end) = (from.max(chunk * size), to.min((chunk + 1) * size));
            if start < end {
                let top = (row * u64::from(self.far) + u64::from(far)) * size;
                image(top + (start - chunk * size), top + (end - chunk * size));
            }
        }
    }

    #[inline]
    fn table_index(&self, far: u16, slot: u16) -> usize {
        far as usize * self.grid.width as usize + slot as usize
    }
}

/// The tables of [`Raid10`]; an error if two members would hold their far copies at the same place.
fn far_tables(spec: &Spec, word: Word) -> Result<(Vec<u16>, Vec<u16>), LayoutError> {
    let members = spec.raid_disks as usize;
    let steps = word.steps(spec.raid_disks);
    let mut forward: Vec<u16> = (0..spec.raid_disks).collect();
    for far in 1..word.far as usize {
        for slot in 0..members {
            forward.push(steps[forward[(far - 1) * members + slot] as usize]);
        }
    }
    let mut backward = vec![u16::MAX; forward.len()];
    for (index, &slot) in forward.iter().enumerate() {
        let from = &mut backward[index / members * members + slot as usize];
        if *from != u16::MAX {
            return Err(LayoutError::NotInjective { found: spec.layout, members: spec.raid_disks });
        }
        *from = (index % members) as u16;
    }
    Ok((forward, backward))
}

impl Places for Raid10 {
    fn copies_count(&self) -> u16 {
        self.near * self.far
    }

    #[inline]
    fn stretch(&self, at: u64) -> Stretch {
        let (chunk, offset) = self.grid.chunk.split(at);
        if self.grid.copies == self.grid.width {
            // Every member holds everything: one piece of any length.
            return Stretch { first: Place { slot: 0, at }, length: self.size - at };
        }
        let (mut row, slot) = match self.across {
            Some(across) => {
                let (row, of_row) = across.split(chunk);
                (row, of_row * self.grid.copies)
            }
            None => {
                let cell = chunk * self.grid.copies;
                (cell / self.grid.width, cell % self.grid.width)
            }
        };
        if self.is_offset {
            row *= u64::from(self.far);
        }
        let first = Place { slot: slot as u16, at: row * self.grid.chunk.sectors + offset };
        Stretch { first, length: self.grid.chunk.sectors - offset }
    }

    /// Copy `n` is far copy `n % far` of near copy `n / far`.
    #[inline]
    fn copy(&self, first: Place, n: u16) -> Place {
        if n == 0 {
            return first;
        }
        assert!(n < self.copies_count(), "a copy of this layout");
        // Most layouts are near ones, and the processor's division is slow.
        let (near, far) = if self.far == 1 { (n, 0) } else { (n / self.far, n % self.far) };
        let (mut slot, mut at) = (first.slot + near, first.at);
        if slot >= self.members() {
            slot -= self.members();
            at += self.grid.chunk.sectors;
        }
        if far == 0 {
            return Place { slot, at };
        }
        Place { slot: self.forward[self.table_index(far, slot)], at: at + u64::from(far) * self.stride }
    }
}

impl Images for Raid10 {
    fn images(&self, slot: Slot, from: u64, to: u64, image: &mut impl FnMut(u64, u64)) {
        if from == to {
            return;
        }
        if !self.is_offset {
            // A far layout is `far` near grids below each other, each rotated.
            for far in 0..self.far {
                let column = self.backward[self.table_index(far, slot.0)];
                if let Some((start, end)) = self.grid.column(column.into(), from, to) {
                    let top = u64::from(far) * self.stride;
                    image(top + start, top + end);
                }
            }
            return;
        }
        // Only the first and the last row can be partial; between them the whole member belongs to the range.
        let stripe = self.stripe();
        let (first, last) = (from / stripe, (to - 1) / stripe);
        self.offset_row(slot, first, from, to, image);
        if last > first {
            let depth = u64::from(self.far) * self.grid.chunk.sectors;
            if last > first + 1 {
                image((first + 1) * depth, last * depth);
            }
            self.offset_row(slot, last, from, to, image);
        }
    }
}
