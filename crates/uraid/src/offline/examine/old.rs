//! A 0.90 superblock in `mdadm --examine`'s words and order, which are not those of the later versions.
//! Owns: the text, the keys of JSON that only 0.90 has. Not here: the fields (`format`), what later versions have too
//! (`text`, `machine`). Invariant: a line that mdadm also prints is the same, with two exceptions: the time zone is
//! named (UTC), and mdadm's remark is missing that an array was made on this host (mdadm finds that by a hash in the
//! array's id).
//! Spec: docs/md/formats.md#version-090; `tests/examine.rs` compares with the installed mdadm.

use super::member::Examined;
use super::words::{self, field, layout_word, level_word};
use serde_json::{Value, json};
use std::fmt::Write as _;
use uraid_block::sizes::human;
use uraid_control::dates;
use uraid_format::{Disk090, Superblock090, uuid};
use uraid_layout::Level;

/// The whole text of a member, without what lies beside its superblock.
pub(super) fn text(found: &Examined, old: &Superblock090) -> String {
    let mut out = format!("{}:\n", found.path.display());
    head(&mut out, found, old);
    out.push('\n');
    if is_under_way(old) {
        let new_chunk = (old.reshape.new_chunk != old.chunk_bytes).then(|| old.reshape.new_chunk.to_string());
        words::reshape(&mut out, &found.superblock, new_layout_word, new_chunk);
        out.push('\n');
    }
    field(&mut out, "Update Time", &dates::utc(old.updated.into()));
    field(&mut out, "State", if old.is_clean() { "clean" } else { "active" });
    if old.has_bitmap() {
        field(&mut out, "Internal Bitmap", "present");
    }
    field(&mut out, "Active Devices", &signed(old.active_disks));
    field(&mut out, "Working Devices", &signed(old.working_disks));
    field(&mut out, "Failed Devices", &signed(old.failed_disks));
    field(&mut out, "Spare Devices", &signed(old.spare_disks));
    field(&mut out, "Checksum", &words::checksum(found.checksum));
    field(&mut out, "Events", &old.events.to_string());
    out.push('\n');
    shape(&mut out, old);
    out.push('\n');
    table(&mut out, old);
    out
}

/// Whether a reshape has a position; all ones mean none.
fn is_under_way(old: &Superblock090) -> bool {
    old.is_reshaping() && old.reshape.position != u64::MAX
}

/// For raid10, mdadm names all parts of the new layout here.
fn new_layout_word(level: Level, layout: u32) -> String {
    match level {
        Level::Raid10 => {
            let kind = if layout & 1 << 16 == 0 { "far" } else { "offset" };
            format!("near={}, {kind}={}", layout & 0xff, layout >> 8 & 0xff)
        }
        Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
            layout_word(level, layout)
        }
    }
}

/// mdadm prints these words of 32 bits as signed numbers.
fn signed(word: u32) -> String {
    word.cast_signed().to_string()
}

fn head(out: &mut String, found: &Examined, old: &Superblock090) {
    field(out, "Magic", "a92b4efc");
    field(out, "Version", &format!("0.{:02}.{:02}", old.minor_version, old.patch_version.cast_signed()));
    field(out, "UUID", &uuid::text(&old.set_uuid));
    field(out, "Creation Time", &dates::utc(old.created.into()));
    field(out, "Raid Level", level_word(old.level));
    if old.level > 0 {
        let bytes = u128::from(old.size_kib) * 1024;
        field(out, "Used Dev Size", &format!("{}{}", signed(old.size_kib), human(bytes)));
        if let Some(bytes) = found.mdadm_array_bytes() {
            field(out, "Array Size", &format!("{}{}", bytes / 1024, human(bytes)));
        }
    }
    field(out, "Raid Devices", &signed(old.raid_disks));
    field(out, "Total Devices", &signed(old.nr_disks));
    field(out, "Preferred Minor", &signed(old.md_minor));
}

fn shape(out: &mut String, old: &Superblock090) {
    let Some(level) = Level::from_md(old.level) else { return };
    match level {
        Level::Raid5 | Level::Raid6 | Level::Raid10 => field(out, "Layout", &layout_word(level, old.layout)),
        Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 => (),
    }
    let chunk = format!("{}K", old.chunk_bytes / 1024);
    match level {
        Level::Raid1 => (),
        Level::Linear => field(out, "Rounding", &chunk),
        Level::Raid0 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => field(out, "Chunk Size", &chunk),
    }
}

/// The descriptors of the slots, the spares, and those that a reshape removes.
fn shown(old: &Superblock090) -> impl Iterator<Item = &Disk090> {
    let fewer = if is_under_way(old) { old.reshape.delta_disks.min(0).unsigned_abs() } else { 0 };
    let count = [old.raid_disks, old.spare_disks, fewer].into_iter().map(u64::from).sum::<u64>();
    old.disks.iter().take(usize::try_from(count).unwrap_or(usize::MAX))
}

/// This device's descriptor and those of all.
fn table(out: &mut String, old: &Superblock090) {
    out.push_str("      Number   Major   Minor   RaidDevice State\n");
    line(out, "this", &old.this_disk);
    out.push('\n');
    for (at, disk) in shown(old).enumerate() {
        line(out, &at.to_string(), disk);
    }
}

fn line(out: &mut String, name: &str, disk: &Disk090) {
    let number = |word: u32| format!("{:>5}", word.cast_signed());
    let (major, minor) = (number(disk.major), number(disk.minor));
    let words = state_words(disk.state).join(" ");
    let device = device_name(disk.major, disk.minor).map_or(String::new(), |name| format!("   {name}"));
    writeln!(
        out,
        "{name:>4} {}   {major}    {minor}    {}      {words}{device}",
        number(disk.number),
        number(disk.raid_disk)
    )
    .expect("a string takes all");
}

/// The state bits of a descriptor as words; a device without any is a spare.
fn state_words(state: u32) -> Vec<&'static str> {
    const FLAGS: [(u32, &str); 2] = [(Disk090::WRITE_MOSTLY, "write-mostly"), (Disk090::FAILFAST, "failfast")];
    const STATES: [(u32, &str); 4] = [
        (Disk090::FAULTY, "faulty"),
        (Disk090::ACTIVE, "active"),
        (Disk090::SYNC, "sync"),
        (Disk090::REMOVED, "removed"),
    ];
    let has = |&(bit, _): &(u32, &str)| state & bit != 0;
    let mut words: Vec<&str> = STATES.into_iter().chain(FLAGS).filter(has).map(|(_, word)| word).collect();
    let flags = FLAGS.into_iter().fold(0, |all, (bit, _)| all | bit);
    if state & !flags == 0 {
        words.push("spare");
    }
    words
}

/// This host's name for the device with this number; it may be another device than the recorded one.
fn device_name(major: u32, minor: u32) -> Option<String> {
    let facts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let path = format!("/dev/{name}");
    std::path::Path::new(&path).exists().then_some(path)
}

/// What only 0.90 has, by name.
pub(super) fn facts(old: &Superblock090) -> Value {
    let disk = |disk: &Disk090| {
        json!({
            "number": disk.number, "major": disk.major, "minor": disk.minor, "raid_device": disk.raid_disk,
            "state": state_words(disk.state),
        })
    };
    json!({
        "minor_version": old.minor_version,
        "patch_version": old.patch_version,
        "total_devices": old.nr_disks,
        "preferred_minor": old.md_minor,
        "active_devices": old.active_disks,
        "working_devices": old.working_disks,
        "failed_devices": old.failed_disks,
        "spare_devices": old.spare_disks,
        "this": disk(&old.this_disk),
        "devices": shown(old).map(disk).collect::<Vec<_>>(),
    })
}
