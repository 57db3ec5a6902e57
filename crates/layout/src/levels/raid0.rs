//! raid0: striped over members of any size, in zones.
//! Owns: the zones and the map. Not here: anything shared (`plan`, `grid`). Spec: docs/md/address-mapping.md#raid0.
//! Invariant: zones follow each other in the array and on each member, so a member's runs join across zones.
//!
//! ```text
//!  sizes 2, 4, 3 chunks      member 0  1  2
//!                    zone 0         0  1  2     as deep as the smallest member
//!                                   3  4  5
//!                    zone 1            6  7     the members that are longer, up to the next size (original layout: 6
//!                    zone 2            8        is even, so it goes to the zone's first member; see `Zone::columns`)
//! ```

use crate::levels::grid::{Chunk, Grid, bounded};
use crate::plan::{Images, Place, Places, Stretch};
use crate::{LayoutError, Spec};
use uraid_block::{Sectors, Slot};

/// The original layout chooses a member by the chunk's number in the array.
const ORIGINAL: u32 = 1;
/// The alternate layout chooses it by the chunk's number in the zone.
const ALTERNATE: u32 = 2;

#[derive(Clone, Debug)]
pub(crate) struct Raid0 {
    grid_chunk: Chunk,
    zones: Vec<Zone>,
    used: Vec<u64>,
    size: u64,
}

/// A depth range with the same members.
#[derive(Clone, Debug)]
struct Zone {
    /// Array sectors.
    start: u64,
    end: u64,
    /// Where the zone starts on each of its members.
    member_start: u64,
    /// The slots in the order of the zone's chunks: chunk k of the zone is on `columns[k % len]`. In the original
    /// layout chunk k of the zone is chunk start/chunk + k of the array: the slot order rotated.
    columns: Vec<u16>,
    /// The inverse: the column of a slot; `None` for a slot that is too small for the zone.
    column_of: Vec<Option<u16>>,
}

impl Raid0 {
    pub(crate) fn new(spec: &Spec) -> Result<Raid0, LayoutError> {
        let chunk = Chunk::any(spec.level, spec.chunk)?;
        let mut used = Vec::with_capacity(spec.member_sizes.len());
        let mut size = 0;
        for (index, &found) in spec.member_sizes.iter().enumerate() {
            let rounded = chunk.split(bounded(found.0)?).0 * chunk.sectors;
            if rounded == 0 {
                return Err(LayoutError::MemberTooSmall { slot: Slot(index as u16), found, expected: spec.chunk });
            }
            used.push(rounded);
            // md uses this mask even if the chunk is not a power of two; then the array is smaller than its zones.
            size = bounded(size + (rounded & !(chunk.sectors - 1)))?;
        }
        if size == 0 {
            return Err(LayoutError::SizeTooSmall { found: Sectors(0), expected: spec.chunk });
        }
        let zones = zones(&used, chunk, spec.layout)?;
        let mut raid0 = Raid0 { grid_chunk: chunk, zones, used, size };
        raid0.zones.retain(|zone| zone.start < size);
        for zone in &mut raid0.zones {
            zone.end = zone.end.min(size);
        }
        Ok(raid0)
    }

    pub(crate) fn array_size(&self) -> u64 {
        self.size
    }

    pub(crate) fn member_used(&self, slot: Slot) -> u64 {
        self.used[slot.index()]
    }

    fn zone(&self, at: u64) -> &Zone {
        &self.zones[if self.zones.len() == 1 { 0 } else { self.zones.partition_point(|zone| zone.end <= at) }]
    }
}

/// Cuts members of these (rounded) sizes into zones.
fn zones(used: &[u64], chunk: Chunk, layout: u32) -> Result<Vec<Zone>, LayoutError> {
    let mut depths: Vec<u64> = used.to_vec();
    depths.sort_unstable();
    depths.dedup();
    let (mut start, mut top) = (0, 0);
    let mut zones: Vec<Zone> = Vec::with_capacity(depths.len());
    for &depth in &depths {
        let columns: Vec<u16> = (0..used.len()).filter(|&slot| used[slot] > top).map(|slot| slot as u16).collect();
        let end = start + (depth - top) * columns.len() as u64;
        zones.push(Zone { start, end, member_start: top, columns, column_of: Vec::new() });
        (start, top) = (end, depth);
    }
    // The original layout begins a zone with this one of its members, the alternate layout with the first one.
    let turned = |zone: &Zone| (chunk.split(zone.start).0 % zone.columns.len() as u64) as usize;
    let is_ambiguous = zones.iter().any(|zone| turned(zone) != 0);
    if is_ambiguous && layout != ORIGINAL && layout != ALTERNATE {
        return Err(LayoutError::ZonesWithoutLayout { zones: zones.len(), found: layout });
    }
    for zone in &mut zones {
        if layout == ORIGINAL {
            let turned = turned(zone);
            zone.columns.rotate_left(turned);
        }
        zone.column_of = vec![None; used.len()];
        for (column, &slot) in zone.columns.iter().enumerate() {
            zone.column_of[slot as usize] = Some(column as u16);
        }
    }
    Ok(zones)
}

impl Places for Raid0 {
    fn copies_count(&self) -> u16 {
        1
    }

    #[inline]
    fn stretch(&self, at: u64) -> Stretch {
        let zone = self.zone(at);
        let (chunk, offset) = self.grid_chunk.split(at - zone.start);
        let width = zone.columns.len() as u64;
        let (row, column) = (chunk / width, chunk % width);
        let place = zone.member_start + row * self.grid_chunk.sectors + offset;
        // A zone of one member is one piece, however long.
        let until = if width == 1 { zone.end } else { zone.end.min(at - offset + self.grid_chunk.sectors) };
        Stretch { first: Place { slot: zone.columns[column as usize], at: place }, length: until - at }
    }

    fn copy(&self, first: Place, _n: u16) -> Place {
        first
    }
}

impl Images for Raid0 {
    fn images(&self, slot: Slot, from: u64, to: u64, image: &mut impl FnMut(u64, u64)) {
        for zone in &self.zones {
            let (from, to) = (from.max(zone.start), to.min(zone.end));
            let Some(column) = zone.column_of[slot.index()] else { continue };
            if from >= to {
                continue;
            }
            let grid = Grid { chunk: self.grid_chunk, width: zone.columns.len() as u64, copies: 1 };
            if let Some((start, end)) = grid.column(column.into(), from - zone.start, to - zone.start) {
                image(zone.member_start + start, zone.member_start + end);
            }
        }
    }
}
