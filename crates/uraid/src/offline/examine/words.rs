//! Words and lines that members of every version have.
//! Owns: one field, checksums, levels, layouts, what a reshape changes. Not here: which fields a version has (`text`, `old`).

use std::fmt::Write as _;
use uraid_block::sizes::human;
use uraid_format::{Checksum, Reshape, Superblock};
use uraid_layout::{Level, layout_name};

/// `61822436 - correct`
pub(super) fn checksum(sum: Checksum) -> String {
    let verdict = if sum.is_correct() { "correct".to_owned() } else { format!("expected {:x}", sum.computed) };
    format!("{:x} - {verdict}", sum.found)
}

/// What the reshape changes. `layout_word` and `new_chunk` give the version's own words; `new_chunk` is given if it
/// differs.
pub(super) fn reshape(
    out: &mut String,
    superblock: &Superblock,
    layout_word: impl Fn(Level, u32) -> String,
    new_chunk: Option<String>,
) {
    let to = reshape_of(superblock);
    field(out, "Reshape pos'n", &format!("{}{}", to.position / 2, human(u128::from(to.position) * 512)));
    if to.delta_disks != 0 {
        let now = i64::from(superblock.raid_disks);
        let delta = i64::from(to.delta_disks);
        field(out, "Delta Devices", &format!("{delta} ({}->{now})", now - delta));
    }
    if to.new_level.cast_signed() != superblock.level {
        field(out, "New Level", level_word(to.new_level.cast_signed()));
    }
    if let Some(level) = superblock.known_level().filter(|_| to.new_layout != superblock.layout) {
        match level {
            Level::Raid5 | Level::Raid6 | Level::Raid10 => field(out, "New Layout", &layout_word(level, to.new_layout)),
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 => (),
        }
    }
    if let Some(chunk) = new_chunk {
        field(out, "New Chunksize", &chunk);
    }
}

/// The fields as recorded: all zero if there is no reshape.
pub(super) fn reshape_of(superblock: &Superblock) -> Reshape {
    superblock.reshape.unwrap_or_default()
}

/// md's number of a level as a word; mdadm has words for levels that uraid does not know, too.
pub(super) fn level_word(level: i32) -> &'static str {
    match (Level::from_md(level), level) {
        (Some(level), _) => level.name(),
        (None, -4) => "multipath",
        (None, -5) => "faulty",
        (None, _) => "-unknown-",
    }
}

/// `left-symmetric`, `near=2`; `-unknown-` for a number without a name.
pub(super) fn layout_word(level: Level, layout: u32) -> String {
    let name = layout_name(level, layout);
    if name.bytes().all(|byte| byte.is_ascii_digit()) { "-unknown-".to_owned() } else { name }
}

/// `     Array UUID : ...`: names end at one column.
pub(super) fn field(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{name:>15} : {value}").expect("a string takes all");
}
