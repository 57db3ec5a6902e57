//! Members written by the real md driver and mdadm: each is read, means what mdadm prints, and is written back
//! unchanged.
//! Owns: golden/*.json (see the README there). Not here: making them (`cargo xtask vm golden`).

#![expect(clippy::disallowed_methods, reason = "a test reads the files beside it")]

use serde_json::Value;
use std::collections::BTreeMap;
use uraid_block::{Sector, Sectors};
use uraid_format::bad_blocks::{BAD_BLOCKS_BYTES, BadBlockLog};
use uraid_format::bitmap::{BitmapHeader, BitmapStatistics, ChunkState};
use uraid_format::journal::{JournalBlock, JournalEntry, block_checksum};
use uraid_format::ppl::PplHeader;
use uraid_format::{Role, Superblock, Superblock090, Version, find, uuid};

/// One member of a golden array.
struct Member {
    /// The file and the member's place in it, for failures.
    name: String,
    size: Sectors,
    sectors: BTreeMap<u64, [u8; 512]>,
    said: Value,
}

impl Member {
    fn read<const N: usize>(&self, at: Sector) -> [u8; N] {
        let mut bytes = [0; N];
        for (sector, out) in (at.0..).zip(bytes.chunks_mut(512)) {
            let known = self.sectors.get(&sector).copied().unwrap_or([0; 512]);
            out.copy_from_slice(&known[..out.len()]);
        }
        bytes
    }

    /// The value of a line `Field : value` of what mdadm said.
    fn field(&self, command: &str, name: &str) -> Option<&str> {
        let lines = self.said[command].as_str()?.lines().filter_map(|line| line.split_once(" : "));
        lines.into_iter().find(|(field, _)| field.trim() == name).map(|(_, value)| value.trim())
    }

    fn first_word(&self, command: &str, name: &str) -> Option<&str> {
        self.field(command, name)?.split(' ').next()
    }
}

/// `a92b4e` is three bytes, `ff*512` is the byte ff 512 times.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let (digits, count) = word.split_once('*').map_or((word, 1), |(byte, count)| (byte, count.parse().unwrap()));
        let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        let pairs: Vec<u8> = pairs.collect();
        (0..count).for_each(|_| bytes.extend_from_slice(&pairs));
    }
    bytes
}

fn members() -> Vec<Member> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|ending| ending == "json")).collect();
    paths.sort();
    let mut members = Vec::new();
    for path in paths {
        let array: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for (number, said) in array["members"].as_array().unwrap().iter().enumerate() {
            let mut sectors = BTreeMap::new();
            for stretch in said["content"].as_array().unwrap() {
                let bytes = decoded(stretch[1].as_str().unwrap());
                for (sector, content) in (stretch[0].as_u64().unwrap()..).zip(bytes.chunks(512)) {
                    let mut whole = [0; 512];
                    whole[..content.len()].copy_from_slice(content);
                    sectors.insert(sector, whole);
                }
            }
            let name = format!("{} member {number}", array["name"].as_str().unwrap());
            members.push(Member {
                name,
                size: Sectors(said["sectors"].as_u64().unwrap()),
                sectors,
                said: said.clone(),
            });
        }
    }
    members
}

fn superblock(member: &Member) -> Superblock {
    let found = find(member.size, |at, block| {
        *block = member.read(at);
        Ok::<_, ()>(())
    });
    let found = found.unwrap_or_else(|error| panic!("{}: {error:?}", member.name));
    assert!(found.others.is_empty(), "{}: {:?}", member.name, found.others);
    found.superblock
}

#[test]
fn every_superblock_is_found_means_what_mdadm_says_and_round_trips() {
    let mut seen = BTreeMap::new();
    for member in members() {
        let name = &member.name;
        let superblock = superblock(&member);
        *seen.entry(superblock.version).or_insert(0) += 1;
        let examined = |field: &str| member.field("examine", field);
        let bytes: [u8; 4096] = member.read(superblock.super_offset);
        let checksum = if superblock.version == Version::V0_90 {
            let own = Superblock090::parse(&bytes).unwrap();
            assert!(own.encode()[..] == bytes[..], "{name}");
            assert_eq!(member.first_word("examine", "UUID"), Some(&uuid::text(&superblock.set_uuid)[..]), "{name}");
            152
        } else {
            let written = superblock.written_bytes();
            assert!(superblock.encode()[..written] == bytes[..written], "{name}");
            assert_eq!(examined("Array UUID"), Some(&uuid::text(&superblock.set_uuid)[..]), "{name}");
            assert_eq!(examined("Device UUID"), Some(&uuid::text(&superblock.device_uuid)[..]), "{name}");
            assert_eq!(examined("Version"), Some(superblock.version.name()), "{name}");
            assert_eq!(examined("Feature Map"), Some(&format!("{:#x}", superblock.features.0)[..]), "{name}");
            216
        };
        let sum = u32::from_le_bytes(bytes[checksum..checksum + 4].try_into().unwrap());
        assert_eq!(examined("Checksum"), Some(&format!("{sum:x} - correct")[..]), "{name}");
        assert_eq!(examined("Events"), Some(&superblock.events.to_string()[..]), "{name}");
        assert_eq!(examined("Raid Level"), Some(superblock.known_level().unwrap().name()), "{name}");
        let state = if superblock.is_dirty() { "active" } else { "clean" };
        assert!(examined("State").unwrap().starts_with(state), "{name}");
        assert_eq!(examined("Raid Devices").unwrap(), superblock.raid_disks.to_string(), "{name}");
        if let Some(offset) = member.first_word("examine", "Data Offset") {
            assert_eq!(offset, superblock.data_offset.0.to_string(), "{name}");
        }
        if let Some(role) = examined("Device Role") {
            let own = match superblock.own_role() {
                Role::Slot(slot) if role.starts_with("Replacement") => format!("Replacement device {}", slot.0),
                Role::Slot(slot) => format!("Active device {}", slot.0),
                Role::Spare => "spare".into(),
                Role::Journal => "Journal".into(),
                Role::BeyondSlots(_) | Role::Faulty | Role::Reserved(_) => {
                    panic!("{name}: a member that calls itself faulty")
                }
            };
            assert_eq!(role, own, "{name}");
        }
    }
    assert!(Version::ALL.iter().all(|version| seen.get(version).is_some_and(|count| *count >= 15)), "{seen:?}");
}

#[test]
fn every_bitmap_is_counted_as_mdadm_counts_and_round_trips() {
    let mut seen = 0;
    for member in members() {
        let name = &member.name;
        let superblock = superblock(&member);
        let Some(at) = superblock.bitmap_start().filter(|_| superblock.own_role().slot().is_some()) else { continue };
        let bytes: [u8; 256] = member.read(at);
        let header = BitmapHeader::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(header.encode(), bytes, "{name}");
        let mut id = header.set_uuid;
        if superblock.version == Version::V0_90 {
            id.chunks_mut(4).for_each(|word| word.reverse());
        }
        assert_eq!(id, superblock.set_uuid, "{name}");
        let (start, _) = header.position_of(0);
        let mut statistics = BitmapStatistics::new(&header);
        for page in 0..header.area_bytes() / 4096 {
            let content: [u8; 4096] = member.read(Sector(at.0 + page * 8));
            statistics.add(&content[if page == 0 { start as usize } else { 0 }..]);
        }
        let dirty = statistics.count(ChunkState::Dirty);
        let said = member.field("bitmap", "Bitmap").unwrap();
        assert!(said.starts_with(&format!("{} bits (chunks), {dirty} dirty", header.chunks())), "{name}: {said}");
        assert_eq!(member.field("bitmap", "Events").unwrap(), header.events.to_string(), "{name}");
        assert_eq!(member.field("bitmap", "Events Cleared").unwrap(), header.events_cleared.to_string(), "{name}");
        let covered = member.first_word("bitmap", "Sync Size").unwrap();
        assert_eq!(covered, (header.sync_size.0 / 2).to_string(), "{name}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen} bitmaps");
}

#[test]
fn every_bad_block_log_is_read_as_mdadm_reads_it_and_round_trips() {
    let (mut lists, mut entries) = (0, 0);
    for member in members() {
        let name = &member.name;
        let superblock = superblock(&member);
        let Some(extent) = superblock.bad_blocks_extent() else { continue };
        // A list that was never written is all zeroes; the feature bit says whether a list is in force.
        if !superblock.features.contains(uraid_format::Features::BAD_BLOCKS) {
            continue;
        }
        let bytes: [u8; BAD_BLOCKS_BYTES] = member.read(extent.start);
        let log = BadBlockLog::parse(&bytes, superblock.bad_blocks.shift).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(log.encode().unwrap()[..] == bytes[..], "{name}");
        let said = member.said["badblocks"].as_str().unwrap();
        let ranges = said.lines().filter_map(|line| line.trim().split_once(" for "));
        let ranges: Vec<_> = ranges.map(|(at, rest)| (at.trim(), rest.split(' ').next().unwrap())).collect();
        let ours = log.ranges.iter().map(|range| (range.start.0.to_string(), range.length.0.to_string()));
        let ours: Vec<_> = ours.collect();
        assert_eq!(ours.iter().map(|(at, length)| (&at[..], &length[..])).collect::<Vec<_>>(), ranges, "{name}");
        (lists, entries) = (lists + 1, entries + ranges.len());
    }
    assert!(lists >= 2 && entries >= 2, "{lists} lists with {entries} entries");
}

#[test]
fn every_partial_parity_log_is_read_and_round_trips() {
    let (mut headers, mut entries) = (0, 0);
    for member in members() {
        let name = &member.name;
        let superblock = superblock(&member);
        let Some(room) = superblock.ppl_extent().filter(|_| superblock.own_role().slot().is_some()) else { continue };
        let said = member.first_word("examine", "PPL").unwrap();
        assert_eq!(said, room.length.0.to_string(), "{name}");
        let mut at = room.start;
        while at < room.end() {
            let bytes: [u8; 4096] = member.read(at);
            let Ok(header) = PplHeader::parse(&bytes, &superblock.set_uuid) else { break };
            assert!(header.encode()[..] == bytes[..], "{name} at {at:?}");
            headers += 1;
            let mut parity_at = at + Sectors(8);
            for entry in &header.entries {
                assert!(entry.parity_slot < superblock.raid_disks, "{name}: {entry:?}");
                // The entries of these arrays have one page of parity or none, so one read covers each.
                let parity: [u8; 4096] = member.read(parity_at);
                let length = entry.parity_bytes as usize;
                assert!(length <= parity.len() && entry.matches(&parity[..length]), "{name}: {entry:?}");
                parity_at = parity_at + Sectors(u64::from(entry.parity_bytes) / 512);
                entries += 1;
            }
            at = parity_at;
        }
        assert!(at > room.start, "{name} has no good header");
    }
    assert!(headers >= 6 && entries >= 1, "{headers} headers with {entries} entries");
}

#[test]
fn every_journal_is_read_and_round_trips() {
    let (mut journals, mut blocks, mut summed) = (0, 0, 0);
    for member in members() {
        let superblock = superblock(&member);
        if superblock.own_role() != Role::Journal {
            continue;
        }
        journals += 1;
        // On a journal, `recovery_offset` is the sector of the first valid block.
        let mut tail = superblock.recovery_offset;
        let before = blocks;
        while tail < superblock.data_size.0 {
            let bytes: [u8; 4096] = member.read(superblock.data_offset + Sectors(tail));
            let Ok(block) = JournalBlock::parse(&bytes, &superblock.set_uuid) else { break };
            assert!(block.encode(&superblock.set_uuid)[..] == bytes[..], "{} at {tail}", member.name);
            assert_eq!(block.position, Sector(tail), "{}", member.name);
            let sums = block.entries.iter().flat_map(|entry| match entry {
                JournalEntry::Data(logged) => &logged.checksums[..],
                JournalEntry::Parity(logged) => &logged.checksums[..],
                JournalEntry::Flushed { .. } => &[],
            });
            for (number, sum) in (1..).zip(sums) {
                let logged: [u8; 4096] = member.read(superblock.data_offset + Sectors(tail + 8 * number));
                assert_eq!(block_checksum(&superblock.set_uuid, &logged), *sum, "{} at {tail}", member.name);
                summed += 1;
            }
            tail += block.log_length().0;
            blocks += 1;
        }
        assert!(blocks > before, "{} has no good block at {tail}", member.name);
    }
    assert!(journals >= 2 && blocks >= 4 && summed >= 6, "{journals} journals, {blocks} blocks, {summed} sums");
}

#[test]
fn the_reshape_in_progress_is_understood() {
    let mut seen = 0;
    for member in members() {
        let superblock = superblock(&member);
        let Some(plan) = superblock.reshape_plan().unwrap() else { continue };
        let said = member.first_word("examine", "Reshape pos'n").unwrap();
        assert_eq!(said, (plan.position.0 / 2).to_string(), "{}", member.name);
        if let Some(change) = member.field("examine", "Delta Devices") {
            assert_eq!(change, format!("1 ({}->{})", plan.from.raid_disks, plan.to.raid_disks), "{}", member.name);
        }
        seen += 1;
    }
    assert!(seen >= 3, "{seen} members with a reshape");
}
