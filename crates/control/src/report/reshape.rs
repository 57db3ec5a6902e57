//! A reshape that stopped half-way, in a report.
//! Owns: [`Reshape`], [`Shape`], their text. Not here: the decision (`uraid_engine::assemble_half_reshaped`).

use super::field;
use serde::{Deserialize, Serialize};
use uraid_block::Sectors;
use uraid_block::sizes;
use uraid_layout::{Layout, layout_name};

/// A reshape that stopped half-way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reshape {
    /// The position of the reshape, in sectors of the array.
    pub position: u64,
    /// Whether the reshape runs from the end: then sectors from `position` on have the new geometry, otherwise those
    /// below.
    pub is_backwards: bool,
    /// The number of slots after the reshape minus the number before it.
    pub delta_disks: i64,
    /// The geometry before.
    pub from: Shape,
    /// The geometry after.
    pub to: Shape,
}

impl Reshape {
    /// As lines of `detail`; the array has `array_sectors`.
    pub(super) fn write(&self, out: &mut String, array_sectors: u64) {
        let Reshape { position, is_backwards, delta_disks, from, to } = self;
        let is_new = if *is_backwards { "from there on" } else { "below" };
        let percent = (u128::from(*position) * 100 / u128::from(array_sectors.max(1))) as u64;
        let percent = if *is_backwards { 100_u64.saturating_sub(percent) } else { percent };
        let status = format!("stopped at {percent}%, at sector {position} of the array: {is_new}, the new geometry");
        field(out, "Reshape Status", &status);
        field(out, "Delta Devices", &format!("{delta_disks}, ({}->{})", from.raid_devices, to.raid_devices));
        field(out, "Old Geometry", &from.text());
        field(out, "New Geometry", &to.text());
    }
}

/// A geometry, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// `raid6`
    pub level: String,
    /// `left-symmetric`; `None` if the level has no layouts.
    pub layout: Option<String>,
    /// In sectors.
    pub chunk_sectors: u64,
    /// The slots.
    pub raid_devices: u16,
}

impl Shape {
    /// Of a layout.
    pub fn of(layout: &Layout) -> Shape {
        let spec = layout.spec();
        Shape {
            level: spec.level.name().to_owned(),
            layout: Some(layout_name(spec.level, spec.layout)).filter(|name| !name.is_empty()),
            chunk_sectors: layout.chunk().0,
            raid_devices: layout.slots(),
        }
    }

    /// `raid5 of 4 slots, left-symmetric, chunk 64K`.
    pub fn text(&self) -> String {
        let layout = self.layout.iter().map(|layout| format!(", {layout}")).collect::<String>();
        let chunk = sizes::chunk(Sectors(self.chunk_sectors));
        format!("{} of {} slots{layout}, chunk {chunk}", self.level, self.raid_devices)
    }
}
