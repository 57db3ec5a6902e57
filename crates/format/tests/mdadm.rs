//! Real mdadm reads what we write. Skipped, with a word about it, where mdadm is not installed.
//! Owns: `mdadm --examine` on members of every level. Not here: the kernel's opinion (`cargo xtask vm`).

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a test runs a program on files")]

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::Command;
use uraid_block::Sectors;
use uraid_format::create::{CreateOptions, NewMember, create};
use uraid_format::{SetName, Superblock};
use uraid_layout::{Level, default_layout};

const SIZE: Sectors = Sectors(1 << 18);

/// What mdadm says of a device that carries this superblock; `None` where there is no mdadm.
fn examine(superblock: &Superblock, name: &str) -> Option<String> {
    let path: PathBuf = std::env::temp_dir().join(format!("uraid-format-{}-{name}", std::process::id()));
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).unwrap();
    file.set_len(SIZE.bytes()).unwrap();
    file.seek(SeekFrom::Start(superblock.super_offset.0 * 512)).unwrap();
    file.write_all(&superblock.encode()[..superblock.written_bytes()]).unwrap();
    let output = Command::new("mdadm").arg("--examine").arg(&path).output();
    std::fs::remove_file(&path).unwrap();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The value of a line `Field : value`.
fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let lines = text.lines().filter_map(|line| line.split_once(" : "));
    lines.into_iter().find(|(field, _)| field.trim() == name).map_or("", |(_, value)| value.trim())
}

#[test]
fn mdadm_finds_new_members_of_every_level_correct() {
    for level in Level::ALL {
        let options = CreateOptions {
            version: uraid_format::Version::V1_2,
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
        };
        let count = options.raid_disks + options.spare_devices;
        let members: Vec<_> = (0..count).map(|n| NewMember::Device { size: SIZE, uuid: [n as u8; 16] }).collect();
        let made = create(&options, &members).unwrap();
        for (at, superblock) in made.superblocks.iter().flatten().enumerate() {
            let Some(text) = examine(superblock, &format!("{}-{at}", level.name())) else {
                eprintln!("skipped: mdadm is not installed");
                return;
            };
            assert!(field(&text, "Checksum").ends_with(" - correct"), "{text}");
            assert_eq!(field(&text, "Version"), "1.2", "{text}");
            assert_eq!(field(&text, "Raid Level"), level.name(), "{text}");
            assert_eq!(field(&text, "Array UUID"), "00010203:04050607:08090a0b:0c0d0e0f", "{text}");
            assert_eq!(field(&text, "State"), if made.is_clean { "clean" } else { "active" }, "{text}");
            let role = if at < 4 { format!("Active device {at}") } else { "spare".into() };
            assert_eq!(field(&text, "Device Role"), role, "{text}");
            assert!(field(&text, "Array State").starts_with("AAAA"), "{text}");
            assert_eq!(field(&text, "Raid Devices"), "4", "{text}");
            if made.geometry.size.0 > 0 {
                let array = field(&text, "Array Size").split(' ').next().unwrap();
                assert_eq!(array, (made.layout.array_size().0 / 2).to_string(), "{text}");
            }
            assert_eq!(field(&text, "Data Offset"), format!("{} sectors", made.geometry.data_offset.0), "{text}");
        }
    }
}
