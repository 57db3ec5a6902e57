//! Layout names and defaults, in mdadm's spelling.
//! Owns: layout number <-> name, defaults of create. Not here: what a layout means (the level files).

use crate::Level;
use uraid_block::Sectors;

/// The layout number that mdadm records when none is asked for.
pub const fn default_layout(level: Level) -> u32 {
    match level {
        Level::Raid0 => 1,
        Level::Raid10 => 0x102,
        Level::Raid5 | Level::Raid6 => 2,
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
    }
}

/// The chunk that mdadm takes when none is asked for: 512 KiB, zero for levels without one.
pub const fn default_chunk(level: Level) -> Sectors {
    match level {
        Level::Linear | Level::Raid1 => Sectors::ZERO,
        Level::Raid0 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => Sectors(1024),
    }
}

/// A layout's number from any of mdadm's spellings (and from the names that [`layout_name`] gives).
pub fn parse_layout(level: Level, name: &str) -> Option<u32> {
    let _ = (level, name);
    None
}

/// A layout's name as mdadm prints it; the number itself for one without a name; empty for levels without layouts.
pub fn layout_name(level: Level, layout: u32) -> String {
    let _ = level;
    layout.to_string()
}
