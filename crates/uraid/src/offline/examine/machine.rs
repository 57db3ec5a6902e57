//! Superblocks for scripts: JSON, mdadm's `--export` and `--brief`.
//! Owns: the keys, one line per array. Not here: the values (`member`).
//! Invariant: keys stay; a new fact is a new key. No line can be broken by a name from a superblock.
//! Spec: docs/md/behaviour.md#mdadms-reports, docs/md/behaviour.md#mdadmconf.

use super::member::Examined;
use super::text::{flag_names, role};
use super::words::{layout_word, level_word, reshape_of};
use super::{areas, old};
use serde_json::{Value, json};
use std::fmt::Write as _;
use uraid_block::sizes::human_brief;
use uraid_control::names::{conf_file, conf_word, printable};
use uraid_format::{Disk090, Features, Role, uuid};

/// One object: lengths and places in sectors, times in seconds since 1970.
pub(super) fn facts(found: &Examined) -> Value {
    let superblock = &found.superblock;
    let features = superblock.features;
    let layout = superblock.level_layout().map(|(level, layout)| layout_word(level, layout));
    let list = Some(superblock.bad_blocks).filter(|log| log.size > 0 && log.offset != 0);
    let reshape = features.contains(Features::RESHAPE_ACTIVE).then(|| {
        let to = reshape_of(superblock);
        json!({
            "position": to.position, "delta_devices": to.delta_disks, "new_level": level_word(to.new_level.cast_signed()),
            "new_layout": to.new_layout, "new_chunk": to.new_chunk, "new_offset": to.new_offset,
            "is_backwards": features.contains(Features::RESHAPE_BACKWARDS),
        })
    });
    let mut facts = json!({
        "path": found.path.display().to_string(),
        "device_sectors": found.size.0,
        "version": superblock.version.name(),
        "feature_map": features.0,
        "features": if features.is_empty() { Vec::new() } else { features.to_string().split(',').map(str::to_owned).collect() },
        "array_uuid": uuid::text(&superblock.set_uuid),
        "name": superblock.set_name.as_str(),
        "created": superblock.created_seconds(),
        "level": level_word(superblock.level),
        "level_number": superblock.level,
        "layout": layout.filter(|name| !name.is_empty()),
        "layout_number": superblock.layout,
        "chunk": superblock.chunk.0,
        "raid_devices": superblock.raid_disks,
        "avail_dev_size": superblock.data_size.0,
        "used_dev_size": found.used().0,
        "array_size": found.array_size().map(|size| size.0),
        "data_offset": superblock.data_offset.0,
        "super_offset": superblock.super_offset.0,
        "recovery_offset": features.contains(Features::RECOVERY_OFFSET).then_some(superblock.recovery_offset),
        "unused_before": found.unused_before(),
        "unused_after": i64::try_from(found.unused_after()).ok(),
        "state": if superblock.is_dirty() { "active" } else { "clean" },
        "resync_offset": superblock.is_dirty().then_some(superblock.resync_offset),
        "device_uuid": uuid::text(&superblock.device_uuid),
        "device_number": superblock.dev_number,
        "device_role": role(superblock),
        "slot": superblock.own_role().slot().map(|slot| slot.0),
        "flags": flag_names(superblock),
        "corrected_reads": superblock.corrected_reads,
        "bitmap_offset": features.contains(Features::BITMAP_OFFSET).then_some(superblock.bitmap_offset),
        "ppl": found.superblock.ppl_word().map(|(offset, size)| json!({ "offset": offset, "size": size })),
        "reshape": reshape,
        "bad_block_log": list.map(|log| json!({ "offset": log.offset, "size": log.size, "shift": log.shift })),
        "areas": areas::facts(&found.areas),
        "updated": superblock.updated_seconds(),
        "events": superblock.events,
        "checksum": format!("{:08x}", found.checksum.found),
        "checksum_expected": format!("{:08x}", found.checksum.computed),
        "checksum_is_correct": found.checksum.is_correct(),
        "array_state": found.slot_letters(),
    });
    facts["metadata_0_90"] = found.old.as_ref().map_or(Value::Null, old::facts);
    facts
}

/// `KEY=VALUE` lines, as `mdadm --examine --export`.
pub(super) fn export(found: &Examined) -> String {
    let superblock = &found.superblock;
    let mut out = String::new();
    let mut line = |key: &str, value: &str| writeln!(out, "{key}={value}").expect("a string takes all");
    line("MD_LEVEL", level_word(superblock.level));
    line("MD_DEVICES", &superblock.raid_disks.to_string());
    let name = superblock.set_name.as_str();
    // As in mdadm, the name is cut at the end of its first line.
    let name = name.split('\n').next().unwrap_or_default();
    if !name.is_empty() {
        line("MD_NAME", &printable(name));
    }
    // 0.90 has no device ids, and mdadm omits the array's size too.
    let is_new = found.old.is_none();
    if let Some(bytes) = found.mdadm_array_bytes().filter(|_| is_new) {
        line("MD_ARRAY_SIZE", &human_brief(bytes));
    }
    line("MD_UUID", &uuid::text(&superblock.set_uuid));
    // For 0.90, mdadm prints the creation time if there was no update.
    let updated = match superblock.updated_seconds() {
        0 if !is_new => superblock.created_seconds(),
        updated => updated,
    };
    line("MD_UPDATE_TIME", &updated.to_string());
    if is_new {
        line("MD_DEV_UUID", &uuid::text(&superblock.device_uuid));
    }
    line("MD_EVENTS", &superblock.events.to_string());
    out
}

/// One `ARRAY` line per array, as `mdadm --examine --brief` writes it for its configuration file: the array whose first
/// member comes last is first. With `is_verbose` the level, the number of slots and the members too.
pub(super) fn brief(members: &[&Examined], is_verbose: bool) -> String {
    let mut arrays: Vec<Vec<&Examined>> = Vec::new();
    for &member in members {
        match arrays.iter_mut().find(|array| array[0].superblock.set_uuid == member.superblock.set_uuid) {
            Some(array) => array.push(member),
            None => arrays.insert(0, vec![member]),
        }
    }
    arrays.iter().map(|array| array_line(array, is_verbose)).collect()
}

fn array_line(members: &[&Examined], is_verbose: bool) -> String {
    let superblock = &members[0].superblock;
    let name = printable(&superblock.set_name.as_str());
    let level = level_word(superblock.level);
    let mut out = "ARRAY ".to_owned();
    let mut put = |text: &str| out.push_str(text);
    match &members[0].old {
        Some(old) => {
            put(&format!("/dev/md{}", old.md_minor.cast_signed()));
            if is_verbose {
                put(&format!(" level={level} num-devices={}", superblock.raid_disks));
            }
        }
        None => {
            if !name.is_empty() {
                put(&format!("/dev/md/{} ", conf_file(&name)));
            }
            if is_verbose {
                put(&format!(" level={level}"));
            }
            put(&format!(" metadata={}", superblock.version.name()));
            if is_verbose {
                put(&format!(" num-devices={}", superblock.raid_disks));
            }
        }
    }
    put(&format!(" UUID={}", uuid::text(&superblock.set_uuid)));
    if !name.is_empty() {
        put(&format!(" name={}", conf_word(&name)));
    }
    // To mdadm, a replacement of a member that is still there is a spare, and so is a journal.
    let is_spare = |member: &&&Examined| match (&member.old, member.superblock.own_role()) {
        (Some(old), _) => old.this_disk.state & Disk090::SYNC == 0,
        (None, Role::BeyondSlots(_) | Role::Spare | Role::Faulty | Role::Journal | Role::Reserved(_)) => true,
        (None, Role::Slot(_)) => member.superblock.features.contains(Features::REPLACEMENT),
    };
    let spares = members.iter().filter(is_spare).count();
    out.push('\n');
    if spares > 0 {
        write!(out, "   spares={spares}").expect("a string takes all");
    }
    if is_verbose {
        let paths: Vec<String> = members.iter().map(|member| member.path.display().to_string()).collect();
        write!(out, "   devices={}", paths.join(",")).expect("a string takes all");
    }
    if spares > 0 || is_verbose {
        out.push('\n');
    }
    out
}
