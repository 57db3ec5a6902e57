//! `uraid examine`: a superblock in `mdadm --examine`'s words.
//! Owns: the text. Not here: what the fields mean for assembly (`engine`).
//! Invariant: every superblock that parses gives a text, however strange its values. Spec: md-reference 4.4.

use crate::probe::{Probe, probe};
use crate::sizes::{self, in_both_units};
use crate::{complain, dates, names, print};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use uraid_block::Sectors;
use uraid_format::{Features, Role, Superblock, uuid};
use uraid_layout::{Layout, Level, Spec, layout_name};

/// Prints every member; gives whether all had a superblock.
pub fn run(members: &[PathBuf]) -> bool {
    let mut are_all_good = true;
    for path in members {
        match probe(path) {
            Ok(found) => print(&text(path, &found)),
            Err(error) => {
                complain(&error);
                are_all_good = false;
            }
        }
    }
    are_all_good
}

fn text(path: &Path, found: &Probe) -> String {
    let superblock = &found.superblock;
    let mut out = format!("{}:\n", path.display());
    head(&mut out, superblock);
    out.push('\n');
    sizes_and_places(&mut out, found);
    field(&mut out, "State", if superblock.is_dirty() { "active" } else { "clean" });
    field(&mut out, "Device UUID", &uuid::text(&superblock.device_uuid));
    out.push('\n');
    extras(&mut out, superblock);
    field(&mut out, "Update Time", &dates::utc(superblock.updated_seconds()));
    bad_blocks(&mut out, superblock);
    // A superblock that parses has a correct checksum; its value is at a fixed place of the encoded form.
    let bytes = superblock.encode();
    let checksum = u32::from_le_bytes([bytes[216], bytes[217], bytes[218], bytes[219]]);
    field(&mut out, "Checksum", &format!("{checksum:x} - correct"));
    field(&mut out, "Events", &superblock.events.to_string());
    out.push('\n');
    shape(&mut out, superblock);
    out.push('\n');
    roles(&mut out, superblock);
    out
}

fn head(out: &mut String, superblock: &Superblock) {
    field(out, "Magic", "a92b4efc");
    field(out, "Version", "1.2");
    field(out, "Feature Map", &format!("{:#x}", superblock.features.0));
    field(out, "Array UUID", &uuid::text(&superblock.set_uuid));
    field(out, "Name", &names::with_locality(&superblock.set_name.as_str()));
    field(out, "Creation Time", &dates::utc(superblock.created_seconds()));
    let level = superblock.known_level().map_or_else(|| superblock.level.to_string(), |level| level.name().to_owned());
    field(out, "Raid Level", &level);
    field(out, "Raid Devices", &superblock.raid_disks.to_string());
}

fn sizes_and_places(out: &mut String, found: &Probe) {
    let superblock = &found.superblock;
    let in_sectors = |size: Sectors| format!("{} sectors {}", size.0, in_both_units(size));
    field(out, "Avail Dev Size", &in_sectors(superblock.data_size));
    if let Some(array) = array_size(superblock) {
        field(out, "Array Size", &format!("{} KiB {}", array.0 / 2, in_both_units(array)));
    }
    let used = if superblock.size.is_zero() { superblock.data_size } else { superblock.size };
    if used != superblock.data_size {
        field(out, "Used Dev Size", &in_sectors(used));
    }
    field(out, "Data Offset", &format!("{} sectors", superblock.data_offset.0));
    field(out, "Super Offset", &format!("{} sectors", superblock.super_offset.0));
    if superblock.features.contains(Features::RECOVERY_OFFSET) {
        field(out, "Recovery Offset", &format!("{} sectors", superblock.recovery_offset));
    }
    let before = superblock.data_offset.0.saturating_sub(metadata_end(superblock));
    let data_end = superblock.data_offset.0.saturating_add(used.0);
    let after = match found.size.0.checked_sub(data_end) {
        Some(after) => format!("{after} sectors"),
        None => format!("-{} sectors DEVICE TOO SMALL", data_end - found.size.0),
    };
    field(out, "Unused Space", &format!("before={before} sectors, after={after}"));
}

/// The first sector that mdadm calls unused: behind the superblock and 32 KiB that it keeps for a bitmap, and behind
/// the bad-block list. Example: superblock at 8, list 16 sectors on: max(8 + 8 + 64, 8 + 16 + 8) = 80.
fn metadata_end(superblock: &Superblock) -> u64 {
    const BITMAP_ROOM: u64 = 64;
    const BLOCK: u64 = 8;
    let at = superblock.super_offset.0;
    let list_end = at.saturating_add_signed(superblock.bad_blocks.offset.into()).saturating_add(BLOCK);
    at.saturating_add(BLOCK + BITMAP_ROOM).max(list_end)
}

/// What a client sees; `None` where the superblock alone does not say (linear, raid0) or makes no sense.
fn array_size(superblock: &Superblock) -> Option<Sectors> {
    let (level, layout) = superblock.level_layout()?;
    match level {
        Level::Linear | Level::Raid0 => return None,
        Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => (),
    }
    let raid_disks = u16::try_from(superblock.raid_disks).ok()?;
    let (chunk, size) = (superblock.chunk, superblock.size);
    Layout::new(&Spec { level, layout, chunk, raid_disks, size, member_sizes: Vec::new() })
        .ok()
        .map(|layout| layout.array_size())
}

fn extras(out: &mut String, superblock: &Superblock) {
    let features = superblock.features;
    if features.contains(Features::BITMAP_OFFSET) {
        field(out, "Internal Bitmap", &format!("{} sectors from superblock", superblock.bitmap_offset));
    }
    if features.intersects(Features::PPL.with(Features::MULTIPLE_PPLS)) {
        let [low, high] = [superblock.bitmap_offset as i16, (superblock.bitmap_offset >> 16) as i16];
        field(out, "PPL", &format!("{} sectors at offset {low} sectors from superblock", high as u16));
    }
    if let Some(reshape) = superblock.reshape.filter(|_| features.contains(Features::RESHAPE_ACTIVE)) {
        field(out, "Reshape pos'n", &format!("{} {}", reshape.position / 2, in_both_units(Sectors(reshape.position))));
        field(out, "Delta Devices", &reshape.delta_disks.to_string());
    }
    let flags: Vec<&str> = [(1, "write-mostly"), (2, "failfast")]
        .into_iter()
        .filter_map(|(bit, name)| (superblock.devflags & bit != 0).then_some(name))
        .collect();
    if !flags.is_empty() {
        field(out, "Flags", &flags.join(" "));
    }
}

fn bad_blocks(out: &mut String, superblock: &Superblock) {
    let log = superblock.bad_blocks;
    if log.size == 0 {
        return;
    }
    let present = if superblock.features.contains(Features::BAD_BLOCKS) { " - bad blocks present." } else { "" };
    let entries = u32::from(log.size) * 512 / 8;
    field(out, "Bad Block Log", &format!("{entries} entries available at offset {} sectors{present}", log.offset));
}

fn shape(out: &mut String, superblock: &Superblock) {
    if let Some((level, layout)) = superblock.level_layout() {
        let name = layout_name(level, layout);
        if !name.is_empty() {
            field(out, "Layout", &name);
        }
        match level {
            Level::Raid1 => (),
            Level::Linear => field(out, "Rounding", &sizes::chunk(superblock.chunk)),
            Level::Raid0 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                field(out, "Chunk Size", &sizes::chunk(superblock.chunk));
            }
        }
    }
}

fn roles(out: &mut String, superblock: &Superblock) {
    let role = match superblock.own_role() {
        Role::Slot(slot) if superblock.features.contains(Features::REPLACEMENT) => {
            format!("Replacement device {}", slot.0)
        }
        Role::Slot(slot) => format!("Active device {}", slot.0),
        Role::Spare | Role::Faulty => "spare".to_owned(),
        Role::Journal => "Journal".to_owned(),
        Role::Reserved(number) => format!("reserved ({number:#06x})"),
    };
    writeln!(out, "   Device Role : {role}").expect("a string takes all");
    let letters = slot_letters(superblock);
    writeln!(out, "   Array State : {letters} ('A' == active, '.' == missing, 'R' == replacing)")
        .expect("a string takes all");
}

/// One letter per slot, as this member sees the others.
fn slot_letters(superblock: &Superblock) -> String {
    let slots = superblock.raid_disks.min(u32::from(u16::MAX));
    let mut counts = vec![0u32; slots as usize];
    for role in &superblock.roles {
        if let Some(count) = role.slot().and_then(|slot| counts.get_mut(slot.index())) {
            *count += 1;
        }
    }
    let letter = |&count: &u32| match count {
        0 => '.',
        1 => 'A',
        2 => 'R',
        3.. => '?',
    };
    counts.iter().map(letter).collect()
}

/// `     Array UUID : ...`: names end at one column.
fn field(out: &mut String, name: &str, value: &str) {
    writeln!(out, "{name:>15} : {value}").expect("a string takes all");
}
