//! Members that are parts of a file, and members with bad sectors: what every command makes of their names.
//! Owns: windows and partitions of an image, `bad:`, on the real binary. Not here: locks and I/O, which `host` shows.

use crate::common::{Done, MIB, Scratch, pattern};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RAID1: &str = "-l 1 -n 2 --assume-clean";
const SIZE: u64 = 8 * MIB;

fn at(image: &Path, part: &str) -> PathBuf {
    format!("{}@{part}", image.display()).into()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// An MBR with two partitions of 8 MiB, from 1 and from 16 MiB on.
fn partitioned(scratch: &Scratch) -> PathBuf {
    let image = scratch.member("disk.img", 32 * MIB);
    let mut record = [0; 512];
    for (entry, start) in record[446..].chunks_exact_mut(16).zip([MIB, 16 * MIB]) {
        entry[4] = 0xfd;
        entry[8..12].copy_from_slice(&((start / 512) as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&((SIZE / 512) as u32).to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    OpenOptions::new().write(true).open(&image).and_then(|file| file.write_all_at(&record, 0)).expect("a file");
    image
}

/// The same partitions in a GPT, behind the MBR that protects it; without the backup at the end.
fn partitioned_by_gpt(scratch: &Scratch) -> PathBuf {
    let image = scratch.member("gpt.img", 32 * MIB);
    let mut table = vec![0_u8; 34 * 512];
    table[446 + 4] = 0xee;
    table[446 + 8..446 + 16].copy_from_slice(&[1, 0, 0, 0, 0xff, 0xff, 0, 0]);
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (nth, start) in [MIB, 16 * MIB].into_iter().enumerate() {
        let entry = &mut table[1024 + nth * 128..][..128];
        // Types and ids of partitions are any that are not zero.
        entry[..32].fill(nth as u8 + 1);
        entry[32..40].copy_from_slice(&(start / 512).to_le_bytes());
        entry[40..48].copy_from_slice(&((start + SIZE) / 512 - 1).to_le_bytes());
    }
    let entries = crc32(&table[1024..]);
    let header = &mut table[512..604];
    header[..8].copy_from_slice(b"EFI PART");
    // Revision 1.0, the length of the header; then from byte 24 on its place, the backup's, and what lies between.
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    for (at, value) in [(24, 1), (32, 65_535), (40, 34), (48, 65_502), (72, 2)] {
        header[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    for (at, value) in [(80, 128), (84, 128), (88, entries)] {
        header[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    let sum = crc32(header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    OpenOptions::new().write(true).open(&image).and_then(|file| file.write_all_at(&table, 0)).expect("a file");
    image
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0xedb8_8320 })
    })
}

fn bytes(path: &Path, at: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    File::open(path).and_then(|file| file.read_exact_at(&mut bytes, at)).expect("readable");
    bytes
}

fn examine(scratch: &Scratch, member: &Path) -> Done {
    scratch.uraid([Path::new("examine"), member]).expect_done()
}

#[test]
fn an_array_of_two_partitions_of_one_image_is_an_array_like_any_other() {
    let scratch = Scratch::new();
    let image = partitioned(&scratch);
    let outside = (bytes(&image, 0, MIB), bytes(&image, 9 * MIB, 7 * MIB));
    let members = [at(&image, "p1"), at(&image, "p2")];
    scratch.create("parts", RAID1, &members);
    let data = pattern(5, 300_032);
    {
        let served = scratch.ready(&[], &members);
        let mut client = served.client();
        assert_eq!(client.write(4096, &data).expect("connected"), 0);
        // Found by one of its members, and the member by its name.
        let shown = scratch.uraid(["detail", &text(&members[1])]).expect_done().stdout;
        assert!(shown.contains("disk.img@p1") && shown.contains("disk.img@p2"), "{shown}");
        // Two windows of one file have no lock that names a process: its server says that it has them.
        let whose = format!("disk.img@p1: in use by process {}, which serves the array parts", served.pid());
        scratch.uraid(["serve", &text(&members[0])]).expect_refused(&[&whose]);
        scratch.uraid(["serve", &text(&image)]).expect_refused(&["disk.img: in use by another process"]);
        scratch.uraid(["fail", "parts", &text(&members[1])]).expect_done();
        assert_eq!(client.read(4096, data.len()).expect("connected").as_ref(), Ok(&data));
        assert_eq!(served.stop().code, Some(0));
    }
    assert!((bytes(&image, 0, MIB), bytes(&image, 9 * MIB, 7 * MIB)) == outside, "nothing outside was written");
    // The same bytes as files of their own, and as windows: the same superblocks, the same array.
    let file = scratch.path("part1");
    std::fs::write(&file, bytes(&image, MIB, SIZE)).expect("room");
    let rest = |done: Done| done.stdout.split_once('\n').map(|(_, rest)| rest.to_owned());
    let expected = rest(examine(&scratch, &file));
    assert_eq!(rest(examine(&scratch, &members[0])), expected);
    let window = at(&image, "1M+8M");
    assert_eq!(rest(examine(&scratch, &window)), expected);
    for members in [vec![window], vec![file]] {
        let served = scratch.ready(&["--run", "--read-only"], &members);
        assert_eq!(served.client().read(4096, data.len()).expect("connected").as_ref(), Ok(&data));
    }
    scratch.uraid([Path::new("detail"), &members[0]]).expect_done();
    scratch.uraid([Path::new("zero-superblock"), &members[0]]).expect_done();
    scratch.uraid([Path::new("examine"), &members[0]]).expect_refused(&["disk.img@p1: "]);
    examine(&scratch, &members[1]);
}

#[test]
fn an_array_can_be_made_of_windows_that_start_and_end_inside_sectors() {
    let scratch = Scratch::new();
    let image = scratch.member("disk.img", 64 * MIB);
    let members = [at(&image, "1001+8000000"), at(&image, "8001001+8000000"), at(&image, "20M")];
    scratch.create("odd", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let data = pattern(6, 1 << 20);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    let served = scratch.ready(&["--run"], &members[1..]);
    assert_eq!(served.client().read(0, data.len()).expect("connected").as_ref(), Ok(&data));
}

#[test]
fn a_wrong_window_is_a_mistake_and_not_a_missing_member() {
    let scratch = Scratch::new();
    let image = partitioned(&scratch);
    scratch.create("parts", RAID1, &[at(&image, "p1"), at(&image, "p2")]);
    let good = text(&at(&image, "p1"));
    let wrong = [
        ("16M+17M", "the window has bytes 16777216 to 34603008, the file 33554432 bytes"),
        ("32M", "the window has bytes 33554432 to 33554944, the file 33554432 bytes"),
        ("p3", "there is no partition 3, found 1, 2"),
        ("1Q", "@1Q is not a window, expected @OFFSET[+LENGTH] in bytes, or @pN for a partition"),
        ("8M+4M", "a member is named twice"),
    ];
    for (part, expected) in wrong {
        let name = text(&at(&image, part));
        // One half of the mirror would be enough to start.
        scratch.uraid(["serve", "--run", &good, &name]).expect_refused(&["the array is not started", expected]);
    }
    for (part, expected) in &wrong[..4] {
        // `examine` reports the same, except for the window that begins at the end, which it calls too short.
        let expected = if *part == "32M" { "is too short for a superblock: 0 bytes" } else { expected };
        scratch.uraid(["examine", &text(&at(&image, part))]).expect_refused(&[expected]);
    }
    let empty = scratch.member("empty.img", MIB);
    scratch.uraid(["examine", &text(&at(&empty, "p1"))]).expect_refused(&["has no partition table"]);
    scratch.uraid(["serve", "bad:1+0:x"]).expect_refused(&["bad:1+0:x: expected bad:SECTOR[+COUNT]"]);
    // A missing image is a missing member.
    let served = scratch.serve(&["--run"], &[at(&image, "p1"), at(&scratch.path("none"), "1M")]);
    served.wait_until_ready();
    served.wait_for("none@1M: not found");
}

#[test]
fn a_disk_without_a_superblock_is_told_the_names_of_its_partitions() {
    for table in [partitioned, partitioned_by_gpt] {
        let scratch = Scratch::new();
        let image = table(&scratch);
        scratch.create("parts", RAID1, &[at(&image, "p1"), at(&image, "p2")]);
        let disk = text(&image);
        let expected =
            format!("{disk}: no md superblock, but a partition table: its partitions are {disk}@p1, {disk}@p2");
        for verb in ["examine", "detail", "serve", "copy"] {
            let mut line = vec![verb, &disk];
            line.extend((verb == "copy").then_some("out.img"));
            scratch.uraid(line).expect_refused(&[&expected]);
        }
        // A part of a disk has no partitions that a name could say.
        scratch.uraid(["examine", &text(&at(&image, "0"))]).expect_refused(&["no md superblock: magic is"]);
    }
}

#[test]
fn a_file_with_the_name_of_a_window_is_that_file() {
    let scratch = Scratch::new();
    scratch.member("a", 32 * MIB);
    let members = [scratch.member("a@p1", SIZE), scratch.member("a@1M", SIZE)];
    scratch.create("names", RAID1, &members);
    examine(&scratch, &members[0]);
    assert_eq!(bytes(&scratch.path("a"), 0, 32 * MIB), vec![0; 32 << 20]);
}

#[test]
fn bad_sectors_fail_where_there_is_no_other_copy() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, SIZE);
    scratch.create("stripes", "-l 0 -n 2 -c 64K --data-offset 1024", &members);
    let data = pattern(8, 256 << 10);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    // The data starts at sector 2048, so this is the second sector of the array.
    let bad = [PathBuf::from(format!("bad:2049:{}", members[0].display())), members[1].clone()];
    let served = scratch.ready(&["--read-only"], &bad);
    let mut client = served.client();
    assert_eq!(client.read(0, 512).expect("connected").as_deref(), Ok(&data[..512]));
    assert_eq!(client.read(0, 1024).expect("connected"), Err(5), "EIO");
    assert_eq!(client.read(1024, 200 << 10).expect("connected").as_deref(), Ok(&data[1024..1024 + (200 << 10)]));
    drop(served);
    // If the superblock's sectors are bad, none is found.
    let name = format!("bad:8+8:{}", members[0].display());
    scratch.uraid(["examine", &name]).expect_refused(&["(errno 5)"]);
}

#[test]
fn bad_sectors_of_one_half_of_a_mirror_are_read_from_the_other() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, SIZE);
    scratch.create("mirror", "-l 1 -n 2 --assume-clean --data-offset 1024", &members);
    let bad = [PathBuf::from(format!("bad:2048+100,3000:{}", members[0].display())), members[1].clone()];
    let data = pattern(9, 600 << 10);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    let served = scratch.ready(&["--read-only"], &bad);
    assert_eq!(served.client().read(0, data.len()).expect("connected").as_ref(), Ok(&data));
}
