//! Which sectors of an assembled array no member can give, because those that are there list them as bad blocks.
//! Owns: these ranges, and the line about them before the array serves. Not here: members that leave while it runs
//! (`engine::Status::without_source`), what a device cannot read (`copy_reader`).
//! Invariant: a sector is in a range only if each copy of it is on a slot without a member in sync or is listed, or if its
//! row lacks more blocks than it has parity.
//!
//! ```text
//!   raid5 of 3, chunks of 8; slots 0 and 1 list sector 2 of the first row: D0 D1 P
//!     sectors 2 and 10 of the array are lost; had only slot 0 listed it, D1 and P would give sector 2
//! ```

use crate::lines::lost::lost_line;
use uraid_block::{ArrayRange, ArraySector, MemberSector, Sectors, Slot};
use uraid_engine::{Place, StartPlan};
use uraid_layout::{Layout, Level, Row};

/// How many ranges the line names.
const NAMED_MAX: usize = 8;

/// The line about these sectors; `None`: each sector has a member that gives it.
pub fn without_copy_line(plan: &StartPlan) -> Option<String> {
    let ranges = Lists::of(plan).ranges();
    let count = Sectors(ranges.iter().map(|range| range.length.0).sum());
    let name = |range: &ArrayRange| match range.length {
        Sectors(1) => range.start.0.to_string(),
        Sectors(length) => format!("{} to {}", range.start.0, range.start.0 + length - 1),
    };
    let mut named: Vec<String> = ranges.iter().take(NAMED_MAX).map(name).collect();
    match ranges.len().saturating_sub(NAMED_MAX) {
        0 => {}
        1 => named.push("1 more range".to_owned()),
        more => named.push(format!("{more} more ranges")),
    }
    (!count.is_zero()).then(|| lost_line(count, &format!(" of the array ({})", named.join(", "))))
}

/// Sectors of a member's data that it lists, from the first to behind the last.
type Listed = (u64, u64);

/// What the members of an array list.
struct Lists<'a> {
    layout: &'a Layout,
    /// By slot; ascending. `None`: no member in sync has the slot.
    of_slots: Vec<Option<Vec<Listed>>>,
}

impl Lists<'_> {
    fn of(plan: &StartPlan) -> Lists<'_> {
        let layout = &plan.layout;
        let mut of_slots = vec![None; layout.slots().into()];
        for member in &plan.members {
            // Others are written and not read.
            let Place::Slot(slot) = member.place else { continue };
            let (data, used) = (member.superblock.data_offset.0, layout.member_used(slot).0);
            let to_data = |at: u64| at.saturating_sub(data).min(used);
            let ranges = member.bad_blocks.ranges.iter();
            let ranges = ranges.map(|bad| (to_data(bad.start.0), to_data(bad.start.0 + bad.length.0)));
            let mut ranges: Vec<Listed> = ranges.filter(|(start, end)| start < end).collect();
            ranges.sort_unstable();
            of_slots[usize::from(slot.0)] = Some(ranges);
        }
        Lists { layout, of_slots }
    }

    /// The ranges that no member can give, ascending; no two of them touch.
    fn ranges(&self) -> Vec<ArrayRange> {
        let mut lost: Vec<ArrayRange> = Vec::new();
        for (slot, listed) in (0..).map(Slot).zip(&self.of_slots) {
            for listed in listed.iter().flatten() {
                match self.layout {
                    Layout::Copies(_) => self.lost_copies(slot, *listed, &mut lost),
                    Layout::Parity(_) => self.lost_blocks(*listed, &mut lost),
                }
            }
        }
        lost.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<ArrayRange> = Vec::new();
        for range in lost {
            match merged.last_mut() {
                Some(last) if range.start <= last.end() => {
                    *last = ArrayRange::between(last.start, last.end().max(range.end()));
                }
                Some(_) | None => merged.push(range),
            }
        }
        merged
    }

    /// Whether a slot lacks a sector, and for how many sectors that stays so.
    fn lacks(&self, slot: Slot, at: u64) -> (bool, u64) {
        let Some(ranges) = &self.of_slots[usize::from(slot.0)] else { return (true, u64::MAX) };
        match ranges.get(ranges.partition_point(|(_, end)| *end <= at)) {
            Some((start, end)) if *start <= at => (true, end - at),
            Some((start, _)) => (false, start - at),
            None => (false, u64::MAX),
        }
    }

    /// Of what a slot lists, the sectors of the array that all of its copies lack.
    fn lost_copies(&self, slot: Slot, (mut at, end): Listed, lost: &mut Vec<ArrayRange>) {
        while at < end
            && let Some(here) = self.array_sector(slot, MemberSector(at))
        {
            let mut length = self.layout.contiguous(here).0.min(end - at);
            let mut is_lost = true;
            for (copy, place) in self.layout.copies(here) {
                let (lacks, even) = self.lacks(copy, place.0);
                (is_lost, length) = (is_lost && lacks, length.min(even));
            }
            if is_lost {
                lost.push(ArrayRange::new(here, Sectors(length)));
            }
            at += length;
        }
    }

    /// Of rows in which a slot lists something, the blocks that cannot be computed there.
    fn lost_blocks(&self, (mut at, end): Listed, lost: &mut Vec<ArrayRange>) {
        let Layout::Parity(layout) = self.layout else { return };
        let (chunk, stripe) = (layout.chunk().0, layout.stripe().0);
        while at < end {
            let (row, inside) = (at / chunk, at % chunk);
            let of_slots = (0..layout.slots()).map(|slot| self.lacks(Slot(slot), at));
            let of_slots: Vec<(bool, u64)> = of_slots.collect();
            let length = of_slots.iter().map(|(_, even)| *even).fold((chunk - inside).min(end - at), u64::min);
            if of_slots.iter().filter(|(lacks, _)| *lacks).count() > usize::from(self.layout.tolerates()) {
                let row_map = layout.row(Row(row));
                let data = (0..).zip(&row_map.data).filter(|(_, slot)| of_slots[usize::from(slot.0)].0);
                let block = |nth: u64| ArraySector(row * stripe + nth * chunk + inside);
                lost.extend(data.map(|(nth, _)| ArrayRange::new(block(nth), Sectors(length))));
            }
            at += length;
        }
    }

    /// The sector of the array that lies here on a member of a level without parity.
    fn array_sector(&self, slot: Slot, at: MemberSector) -> Option<ArraySector> {
        let Layout::Copies(copies) = self.layout else { return None };
        match self.layout.level() {
            Level::Linear => self.on_linear(slot, at),
            Level::Raid0 => self.on_raid0(slot, at),
            Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                copies.sector_of_copy(slot, at)
            }
        }
    }

    fn place(&self, here: u64) -> (Slot, u64) {
        let (slot, at) = self.layout.copies(ArraySector(here)).into_iter().next().expect("each sector has a place");
        (slot, at.0)
    }

    fn on_linear(&self, slot: Slot, at: MemberSector) -> Option<ArraySector> {
        let (mut here, size) = (0, self.layout.array_size().0);
        while here < size {
            let ((of, start), length) = (self.place(here), self.layout.contiguous(ArraySector(here)).0);
            if of == slot && (start..start + length).contains(&at.0) {
                return Some(ArraySector(here + at.0 - start));
            }
            here += length;
        }
        None
    }

    /// The rows of the array, one chunk on each member that reaches so far, follow each other on every member.
    fn on_raid0(&self, slot: Slot, at: MemberSector) -> Option<ArraySector> {
        let chunk = self.layout.chunk().0;
        let (row, chunks) = (at.0 / chunk, self.layout.array_size().0 / chunk);
        let row_of = |nth: u64| self.place(nth * chunk).1 / chunk;
        let (mut low, mut high) = (0, chunks);
        while low < high {
            let middle = low + (high - low) / 2;
            if row_of(middle) < row { low = middle + 1 } else { high = middle }
        }
        let mut of_row = (low..chunks).take_while(|&nth| row_of(nth) == row);
        let nth = of_row.find(|&nth| self.place(nth * chunk).0 == slot)?;
        Some(ArraySector(nth * chunk + at.0 % chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_layout::Spec;

    fn layout(level: Level, layout: u32, slots: u16) -> Layout {
        let is_striped = matches!(level, Level::Raid0 | Level::Linear);
        // Of several sizes, so that the rows at the end are narrower.
        let member_sizes = (0..slots).map(|slot| Sectors(64 + 16 * u64::from(slot / 2)));
        let member_sizes = if is_striped { member_sizes.collect() } else { Vec::new() };
        let chunk = if level == Level::Raid1 { Sectors::ZERO } else { Sectors(8) };
        let size = if is_striped { Sectors::ZERO } else { Sectors(64) };
        Layout::new(&Spec { level, layout, chunk, raid_disks: slots, size, member_sizes }).expect("a layout")
    }

    /// Each sector of the array by itself, by the definition.
    fn by_the_definition(lists: &Lists) -> Vec<u64> {
        let layout = lists.layout;
        let is_lost = |here: &u64| {
            let mut copies = layout.copies(ArraySector(*here)).into_iter();
            match layout {
                Layout::Copies(_) => copies.all(|(slot, at)| lists.lacks(slot, at.0).0),
                Layout::Parity(_) => {
                    let (slot, at) = copies.next().expect("one place");
                    let lacking = (0..layout.slots()).filter(|slot| lists.lacks(Slot(*slot), at.0).0).count();
                    lists.lacks(slot, at.0).0 && lacking > usize::from(layout.tolerates())
                }
            }
        };
        (0..layout.array_size().0).filter(is_lost).collect()
    }

    #[test]
    fn the_ranges_are_what_each_sector_says_by_itself() {
        let (mut seed, mut lost_of_all) = (1_u64, 0);
        for (level, number, slots) in [
            (Level::Linear, 0, 3),
            (Level::Raid0, 1, 4),
            (Level::Raid0, 2, 5),
            (Level::Raid1, 0, 2),
            (Level::Raid10, 0x102, 4),
            (Level::Raid10, 0x102, 3),
            (Level::Raid10, 0x201, 4),
            (Level::Raid10, 0x1_0201, 4),
            (Level::Raid4, 0, 3),
            (Level::Raid5, 2, 4),
            (Level::Raid6, 2, 5),
        ] {
            let layout = layout(level, number, slots);
            for round in 0..40 {
                let mut draw = |below: u64| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (seed >> 33) % below
                };
                let lists = (0..slots).map(|slot| {
                    let used = layout.member_used(Slot(slot)).0;
                    // A member that is not there can only be one of a level with redundancy.
                    if round % 4 == 3 && slot == 0 && layout.tolerates() > 0 {
                        return None;
                    }
                    let (first, second) = (draw(used / 2), draw(used / 2) + used / 2);
                    Some(vec![(first, first + 1 + draw(used / 2 - first)), (second, second + 1 + draw(used - second))])
                });
                let lists = Lists { layout: &layout, of_slots: lists.collect() };
                let ranges = lists.ranges();
                let sectors: Vec<u64> = ranges.iter().flat_map(|range| range.start.0..range.end().0).collect();
                assert_eq!(sectors, by_the_definition(&lists), "{level:?} {number:#x}, round {round}");
                assert!(ranges.windows(2).all(|two| two[0].end() < two[1].start));
                lost_of_all += sectors.len();
            }
        }
        assert!(lost_of_all > 1000);
    }
}
