//! A superblock in `mdadm --examine`'s words and order.
//! Owns: the text. Not here: the values (`member`, `areas`), the text of version 0.90 (`old`).
//! Invariant: a line that mdadm also prints is the same, except that the time zone is named (UTC). Two more things
//! differ on purpose: control characters in names show as `_`, and a negative space after the data shows as negative.
//! Spec: docs/md/behaviour.md#mdadms-reports; `tests/examine.rs` compares with the installed mdadm.

use super::member::Examined;
use super::words::{checksum, field, layout_word, level_word, reshape, reshape_of};
use super::{areas, old};
use std::fmt::Write as _;
use uraid_block::Sectors;
use uraid_block::sizes::human;
use uraid_control::dates;
use uraid_control::names;
use uraid_format::{Features, MemberFlag, Role, Superblock, uuid};
use uraid_layout::Level;

/// The whole text of a member.
pub(super) fn text(found: &Examined) -> String {
    let mut out = match &found.old {
        Some(old) => old::text(found, old),
        None => new(found),
    };
    areas::write(&mut out, &found.areas);
    out
}

/// The superblock of version 1.
fn new(found: &Examined) -> String {
    let superblock = &found.superblock;
    let mut out = format!("{}:\n", found.path.display());
    head(&mut out, superblock);
    out.push('\n');
    sizes_and_places(&mut out, found);
    field(&mut out, "State", if superblock.is_dirty() { "active" } else { "clean" });
    field(&mut out, "Device UUID", &uuid::text(&superblock.device_uuid));
    out.push('\n');
    extras(&mut out, found);
    field(&mut out, "Update Time", &dates::utc(superblock.updated_seconds()));
    bad_blocks(&mut out, superblock);
    field(&mut out, "Checksum", &checksum(found.checksum));
    field(&mut out, "Events", &superblock.events.to_string());
    out.push('\n');
    shape(&mut out, superblock);
    out.push('\n');
    writeln!(out, "   Device Role : {}", role(superblock)).expect("a string takes all");
    let letters = found.slot_letters();
    writeln!(out, "   Array State : {letters} ('A' == active, '.' == missing, 'R' == replacing)")
        .expect("a string takes all");
    out
}

fn head(out: &mut String, superblock: &Superblock) {
    field(out, "Magic", "a92b4efc");
    field(out, "Version", superblock.version.name());
    field(out, "Feature Map", &format!("{:#x}", superblock.features.0));
    field(out, "Array UUID", &uuid::text(&superblock.set_uuid));
    field(out, "Name", &names::with_locality(&superblock.set_name.as_str()));
    field(out, "Creation Time", &dates::utc(superblock.created_seconds()));
    field(out, "Raid Level", level_word(superblock.level));
    field(out, "Raid Devices", &superblock.raid_disks.to_string());
}

fn sizes_and_places(out: &mut String, found: &Examined) {
    let superblock = &found.superblock;
    let in_sectors = |size: Sectors| format!("{} sectors{}", size.0, human(u128::from(size.0) * 512));
    field(out, "Avail Dev Size", &in_sectors(superblock.data_size));
    if let Some(bytes) = found.mdadm_array_bytes() {
        field(out, "Array Size", &format!("{} KiB{}", bytes / 1024, human(bytes)));
    }
    // mdadm prints linear's size of zero, but not raid0's.
    if superblock.size != superblock.data_size && superblock.level != 0 {
        field(out, "Used Dev Size", &in_sectors(superblock.size));
    }
    if superblock.data_offset.0 > 0 {
        field(out, "Data Offset", &format!("{} sectors", superblock.data_offset.0));
    }
    let has_new_offset = superblock.features.contains(Features::NEW_OFFSET);
    let distance = reshape_of(superblock).new_offset;
    if has_new_offset && distance != 0 {
        let new = i128::from(superblock.data_offset.0) + i128::from(distance);
        field(out, "New Offset", &format!("{new} sectors"));
    }
    field(out, "Super Offset", &format!("{} sectors", superblock.super_offset.0));
    if superblock.features.contains(Features::RECOVERY_OFFSET) {
        field(out, "Recovery Offset", &format!("{} sectors", superblock.recovery_offset));
    }
    let (before, after) = (found.unused_before(), found.unused_after());
    if !has_new_offset && (before > 0 || after != 0) {
        let too_small = if after < 0 { " DEVICE TOO SMALL" } else { "" };
        field(out, "Unused Space", &format!("before={before} sectors, after={after} sectors{too_small}"));
    }
}

fn extras(out: &mut String, found: &Examined) {
    let superblock = &found.superblock;
    let features = superblock.features;
    if features.contains(Features::BITMAP_OFFSET) {
        field(out, "Internal Bitmap", &format!("{} sectors from superblock", superblock.bitmap_offset));
    }
    if let Some((offset, size)) = found.superblock.ppl_word() {
        field(out, "PPL", &format!("{size} sectors at offset {offset} sectors from superblock"));
    }
    if features.contains(Features::RESHAPE_ACTIVE) {
        let new_chunk = reshape_of(superblock).new_chunk;
        let new_chunk = (u64::from(new_chunk) != superblock.chunk.0).then(|| format!("{}K", new_chunk / 2));
        reshape(out, superblock, layout_word, new_chunk);
        out.push('\n');
    }
    let flags = flag_names(superblock).join(" ");
    if !flags.is_empty() {
        field(out, "Flags", &flags);
    }
}

/// The flags of this member.
pub(super) fn flag_names(superblock: &Superblock) -> Vec<&'static str> {
    superblock.flags().map(MemberFlag::name).collect()
}

fn bad_blocks(out: &mut String, superblock: &Superblock) {
    let log = superblock.bad_blocks;
    if log.size == 0 || log.offset == 0 {
        return;
    }
    let present = if superblock.features.contains(Features::BAD_BLOCKS) { " - bad blocks present." } else { "" };
    let entries = u32::from(log.size) * 512 / 8;
    field(out, "Bad Block Log", &format!("{entries} entries available at offset {} sectors{present}", log.offset));
}

fn shape(out: &mut String, superblock: &Superblock) {
    let Some(level) = superblock.known_level() else { return };
    let has_layout = match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => false,
        Level::Raid0 => superblock.features.contains(Features::RAID0_LAYOUT),
        Level::Raid5 | Level::Raid6 | Level::Raid10 => true,
    };
    if has_layout {
        field(out, "Layout", &layout_word(level, superblock.layout));
    }
    if superblock.logical_block_size != 0 {
        field(
            out,
            "Logical Block Size",
            &format!("{} bytes (kernels before 6.19 do not start it)", superblock.logical_block_size),
        );
    }
    let in_kib = format!("{}K", superblock.chunk.0 / 2);
    match level {
        Level::Raid1 => (),
        Level::Linear => field(out, "Rounding", &in_kib),
        Level::Raid0 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => field(out, "Chunk Size", &in_kib),
    }
}

/// A role that names a slot which the array has not.
fn no_slot(raw: u16, superblock: &Superblock) -> String {
    let unflagged = raw & 0x7fff;
    let hint = if unflagged != raw && u32::from(unflagged) < superblock.raid_disks {
        format!("; bit 15 set: slot {unflagged} with a vendor's error flag?")
    } else {
        String::new()
    };
    format!("Active device {raw} ({raw:#06x}: no slot of this array{hint})")
}

/// The member's role in its own table.
pub(super) fn role(superblock: &Superblock) -> String {
    match superblock.own_role() {
        Role::Slot(slot) if superblock.features.contains(Features::REPLACEMENT) => {
            format!("Replacement device {}", slot.0)
        }
        Role::Slot(slot) if u32::from(slot.0) >= superblock.raid_disks => no_slot(slot.0, superblock),
        Role::BeyondSlots(raw) => no_slot(raw, superblock),
        Role::Slot(slot) => format!("Active device {}", slot.0),
        Role::Spare | Role::Faulty => "spare".to_owned(),
        Role::Journal => "Journal".to_owned(),
        Role::Reserved(number) => format!("reserved ({number:#06x})"),
    }
}
