//! One area of a member alone: its bitmap, or its list of bad blocks, in the lines of mdadm's `--examine-bitmap` and
//! `--examine-badblocks`.
//! Owns: these texts. Not here: reading the areas (`areas`).

use super::areas::Areas;
use std::fmt::Write as _;
use std::path::Path;
use uraid_block::sizes::human;
use uraid_format::bitmap::{BitmapHeader, BitmapStatistics, ChunkState};
use uraid_format::uuid;

/// The number at the start of every bitmap.
const MAGIC: &str = "6d746962";

/// The bitmap of a member. The error: why there is none to show.
pub(super) fn bitmap(path: &Path, areas: &Areas) -> Result<String, String> {
    match &areas.bitmap {
        Some(Ok((header, bits))) => Ok(bitmap_text(path, header, bits)),
        Some(Err(error)) => Err(format!("{}: its bitmap: {error}", path.display())),
        None => Err(format!("{}: has no write-intent bitmap", path.display())),
    }
}

fn bitmap_text(path: &Path, header: &BitmapHeader, bits: &BitmapStatistics) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| writeln!(out, "{name:>16} : {value}").expect("a string takes all");
    line("Filename", &path.display().to_string());
    line("Magic", MAGIC);
    line("Version", &header.version.number().to_string());
    line("UUID", &uuid::text(&header.set_uuid));
    line("Events", &header.events.to_string());
    line("Events Cleared", &header.events_cleared.to_string());
    let flags = [(BitmapHeader::STALE, "Out of date"), (BitmapHeader::WRITE_ERROR, "Write error")];
    let flags: Vec<&str> = flags.iter().filter(|(bit, _)| header.state & bit != 0).map(|(_, word)| *word).collect();
    line("State", &if flags.is_empty() { "OK".to_owned() } else { flags.join(", ") });
    line("Chunksize", &chunk(u64::from(header.chunk_bytes)));
    line("Daemon", &format!("{}s flush period", header.daemon_sleep_seconds));
    let behind = header.write_behind;
    line("Write Mode", &if behind > 0 { format!("Allow write behind, max {behind}") } else { "Normal".to_owned() });
    line("Sync Size", &format!("{}{}", header.sync_size.0 / 2, human(u128::from(header.sync_size.0) * 512)));
    let (chunks, dirty) = (header.chunks(), bits.count(ChunkState::Dirty));
    let tenths = u128::from(dirty) * 1000 / u128::from(chunks.max(1));
    line("Bitmap", &format!("{chunks} bits (chunks), {dirty} dirty ({}.{}%)", tenths / 10, tenths % 10));
    out
}

/// `64 MB`, by powers of 1024.
fn chunk(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];
    let (mut left, mut unit) = (bytes, 0);
    while left >= 1024 && unit + 1 < UNITS.len() {
        left /= 1024;
        unit += 1;
    }
    format!("{left} {}", UNITS[unit])
}

/// The list of bad blocks of a member. The error: why it cannot be shown.
pub(super) fn bad_blocks(path: &Path, areas: &Areas) -> Result<String, String> {
    let path = path.display();
    match &areas.bad_blocks {
        None => Ok(format!("No bad-blocks list configured on {path}\n")),
        Some(Ok(list)) if list.ranges.is_empty() => Ok(format!("Bad-blocks list is empty in {path}\n")),
        Some(Ok(list)) => {
            let line = |start: u64, length: u64| format!("{start:>20} for {length} sectors\n");
            let lines: String = list.ranges.iter().map(|range| line(range.start.0, range.length.0)).collect();
            Ok(format!("Bad-blocks on {path}:\n{lines}"))
        }
        Some(Err(error)) => Err(format!("{path}: its list of bad blocks: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_in_the_largest_unit_that_it_has() {
        let found = [512, 4096, 64 << 20, 1 << 30, 4 << 40].map(chunk);
        assert_eq!(found, ["512 B", "4 KB", "64 MB", "1 GB", "4096 GB"]);
    }
}
