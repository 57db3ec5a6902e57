//! The level, the layout and the chunk of an array as people name them.
//! Owns: how they are read, what stands for them if they are not given. Not here: layouts themselves (`uraid_layout`).

use super::usage::usage_error;
use uraid_block::Sectors;
use uraid_layout::{Level, default_chunk, default_layout, parse_layout};

/// Any of the spellings that mdadm accepts.
pub fn level(text: &str) -> Result<Level, String> {
    Level::parse(text)
        .ok_or_else(|| format!("no such level: {text}, expected linear, raid0, raid1, raid4, raid5, raid6 or raid10"))
}

/// The layout number that `--layout` means, or that `create` chooses; ends the process when the level has no such layout.
pub fn layout_number(level: Level, option: Option<&str>) -> u32 {
    let Some(text) = option else { return default_layout(level) };
    parse_layout(level, text)
        .unwrap_or_else(|| usage_error(&format!("{level} has no layout {text:?}; see LAYOUTS in create's --help")))
}

/// The chunk that `--chunk` means, or that `create` chooses. raid1 has none, whatever the option says.
pub fn chunk_size(level: Level, option: Option<Sectors>) -> Sectors {
    match level {
        Level::Raid1 => Sectors::ZERO,
        Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {
            option.unwrap_or_else(|| default_chunk(level))
        }
    }
}
