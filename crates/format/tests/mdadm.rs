//! Real mdadm reads what we write. Without mdadm the test prints SKIPPED past the captured output, or fails if mdadm is
//! required.
//! Owns: `mdadm --examine` on members of every version and level, its views of bitmaps and bad blocks. Not here: the
//! kernel's opinion (`cargo xtask vm`), members that mdadm made (tests/golden.rs).

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test runs a program on files")]

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::Command;
use uraid_block::{Sector, Sectors};
use uraid_format::bad_blocks::{BadBlockLog, BadRange};
use uraid_format::bitmap::{BitmapHeader, BitmapVersion};
use uraid_format::create::{CreateOptions, Creation, NewMember, NewPolicy, create};
use uraid_format::{Features, SetName, Superblock, Version};
use uraid_layout::{Level, default_layout};

const SIZE: Sectors = Sectors(1 << 18);
const MAJOR_1: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

/// The path of mdadm. The rule for all tests with foreign programs: a missing one fails if `URAID_REQUIRE_CLIENTS` is
/// set or `URAID_CLIENTS` is `required`; otherwise the test's output says so.
fn mdadm() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join("mdadm")).find(|file| file.is_file());
    if found.is_none() {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| value != "0" && !value.is_empty());
        let is_required = std::env::var_os("URAID_CLIENTS").is_some_and(|value| value == "required");
        assert!(!is_required && !is_set("URAID_REQUIRE_CLIENTS"), "not installed: mdadm");
        // Straight to the descriptor: a passing test's output is hidden.
        writeln!(std::io::stderr(), "SKIPPED {}: not installed: mdadm", file!()).expect("a standard error");
    }
    found
}

/// The output of mdadm with this option for a device with these bytes at these sectors.
fn ask(mdadm: &PathBuf, what: &str, name: &str, contents: &[(Sector, &[u8])]) -> String {
    let path: PathBuf = std::env::temp_dir().join(format!("uraid-format-{}-{name}", std::process::id()));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).unwrap();
    file.set_len(SIZE.bytes()).unwrap();
    for (at, bytes) in contents {
        file.seek(SeekFrom::Start(at.0 * 512)).unwrap();
        file.write_all(bytes).unwrap();
    }
    let output = Command::new(mdadm).arg(what).arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn made(version: Version, level: Level) -> Creation {
    let options = CreateOptions {
        version,
        level,
        layout: default_layout(level),
        chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
        raid_disks: 4,
        spare_devices: u16::from(!matches!(level, Level::Linear | Level::Raid0)),
        size: None,
        data_offset: None,
        set_uuid: std::array::from_fn(|n| n as u8),
        set_name: SetName::new("lab", "r").unwrap(),
        now_seconds: 1_700_000_000,
        assume_clean: false,
        force: false,
        policy: NewPolicy::Resync,
    };
    let count = options.raid_disks + options.spare_devices;
    let members: Vec<_> = (0..count).map(|n| NewMember::Device { size: SIZE, uuid: [n as u8; 16] }).collect();
    create(&options, &members).unwrap()
}

/// The value of a line `Field : value`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let lines = text.lines().filter_map(|line| line.split_once(" : "));
    lines.into_iter().find(|(field, _)| field.trim() == name).map_or("", |(_, value)| value.trim())
}

#[test]
fn mdadm_finds_new_members_of_every_version_and_level_correct() {
    let Some(mdadm) = mdadm() else { return };
    for (version, level) in MAJOR_1.into_iter().flat_map(|version| Level::ALL.map(|level| (version, level))) {
        let made = made(version, level);
        for (at, superblock) in made.superblocks.iter().flatten().enumerate() {
            let bytes = superblock.encode();
            let contents = [(superblock.super_offset, &bytes[..superblock.written_bytes()])];
            let name = format!("{}-{}-{at}", version.name(), level.name());
            let text = ask(&mdadm, "--examine", &name, &contents);
            assert!(field(&text, "Checksum").ends_with(" - correct"), "{text}");
            assert_eq!(field(&text, "Version"), version.name(), "{text}");
            assert_eq!(field(&text, "Raid Level"), level.name(), "{text}");
            assert_eq!(field(&text, "Array UUID"), "00010203:04050607:08090a0b:0c0d0e0f", "{text}");
            assert_eq!(field(&text, "State"), if made.is_clean { "clean" } else { "active" }, "{text}");
            let role = if at < 4 { format!("Active device {at}") } else { "spare".into() };
            assert_eq!(field(&text, "Device Role"), role, "{text}");
            assert!(field(&text, "Array State").starts_with("AAAA"), "{text}");
            assert_eq!(field(&text, "Raid Devices"), "4", "{text}");
            assert_eq!(field(&text, "Super Offset"), format!("{} sectors", superblock.super_offset.0), "{text}");
            if made.geometry.size.0 > 0 {
                let array = field(&text, "Array Size").split(' ').next().unwrap();
                assert_eq!(array, (made.layout.array_size().0 / 2).to_string(), "{text}");
            }
            // mdadm does not print the one of 1.0, which is 0.
            let offset =
                if version == Version::V1_0 { "" } else { &format!("{} sectors", made.geometry.data_offset.0) };
            assert_eq!(field(&text, "Data Offset"), offset, "{text}");
        }
    }
}

#[test]
fn mdadm_reads_our_bitmaps_and_bad_blocks() {
    let Some(mdadm) = mdadm() else { return };
    for version in MAJOR_1 {
        let plain = made(version, Level::Raid1).superblocks.remove(0).unwrap();
        let header = BitmapHeader {
            version: BitmapVersion::LittleEndian,
            set_uuid: plain.set_uuid,
            events: 7,
            events_cleared: 5,
            sync_size: plain.size,
            state: 0,
            chunk_bytes: 1 << 20,
            daemon_sleep_seconds: 9,
            write_behind: 256,
            sectors_reserved: Sectors(8),
            nodes: 0,
            cluster_name: [0; 64],
        };
        let mut page = [0; 4096];
        page[..256].copy_from_slice(&header.encode());
        for chunk in [0, 9, header.chunks() - 1] {
            let (byte, mask) = header.position_of(chunk);
            page[byte as usize] |= mask;
        }
        let features = Features::BITMAP_OFFSET.with(Features::BAD_BLOCKS);
        let mut superblock = Superblock { features, ..plain };
        // Nothing follows a 1.0 superblock, so the bitmap goes before it; on 1.1 and 1.2 the bad-block list makes room.
        (superblock.bitmap_offset, superblock.bad_blocks.offset) =
            if version == Version::V1_0 { (-16, -8) } else { (8, 16) };
        let ranges = vec![BadRange { start: Sector(3048), length: Sectors(8) }];
        let list = BadBlockLog { shift: 0, ranges }.encode().unwrap();
        let bytes = superblock.encode();
        let contents = [
            (superblock.super_offset, &bytes[..superblock.written_bytes()]),
            // mdadm reports a bitmap only if it finds one at its place.
            (superblock.bitmap_start().unwrap(), &page[..]),
            (superblock.bad_blocks_extent().unwrap().start, &list[..]),
        ];
        // On a regular file, mdadm takes the start of the file as the bitmap.
        let text = ask(&mdadm, "--examine-bitmap", version.name(), &[(Sector(0), &page[..])]);
        let bits = format!("{} bits (chunks), 3 dirty", header.chunks());
        assert!(field(&text, "Bitmap").starts_with(&bits), "{text}");
        assert_eq!((field(&text, "Events"), field(&text, "Events Cleared")), ("7", "5"), "{text}");
        assert_eq!((field(&text, "Chunksize"), field(&text, "Daemon")), ("1 MB", "9s flush period"), "{text}");
        assert_eq!(field(&text, "Write Mode"), "Allow write behind, max 256", "{text}");
        let text = ask(&mdadm, "--examine", version.name(), &contents);
        let distance = format!("{} sectors from superblock", superblock.bitmap_offset);
        assert_eq!(field(&text, "Internal Bitmap"), distance, "{text}");
        let text = ask(&mdadm, "--examine-badblocks", version.name(), &contents);
        assert!(text.lines().any(|line| line.trim() == "3048 for 8 sectors"), "{text}");
    }
}
