//! `uraid doctor`: what it finds on arrays, running or not, and on files of mounted file systems.
//! Owns: crafted tables and superblocks, real XFS and ext4 on a loop device. Not here: each rule's words (`uraid_doctor`).

use crate::common::loop_device::LoopDevice;
use crate::common::xfs_bmap::{BmapExtent, xfs_bmap};
use crate::common::{Done, MIB, Scratch, Served};
use crate::fuse::Mounted;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sectors of a chunk of 64 KiB, and of a stripe of the array `home`: raid6 of 6.
const CHUNK: u64 = 128;
const STRIPE: u64 = 4 * CHUNK;

/// The array `home`, which runs.
struct Home {
    served: Served,
    members: Vec<PathBuf>,
    scratch: Scratch,
}

fn home() -> Home {
    let scratch = Scratch::new();
    let members = scratch.members("m", 6, 16 * MIB);
    scratch.create("home", "-l 6 -n 6 -c 64K --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    Home { served, members, scratch }
}

impl Home {
    fn write(&self, fields: &[(u64, &[u8])]) {
        // Whole sectors, each field in the one that it is in.
        for (at, bytes) in fields {
            let sector = at / 512 * 512;
            let mut whole = self.served.client().read(sector, 512).expect("read").expect("no error");
            whole[(at - sector) as usize..][..bytes.len()].copy_from_slice(bytes);
            self.served.write_all(sector, &whole);
        }
    }

    /// The superblock of an XFS of 32 MiB at a byte of the array; unit and width in blocks of 4 KiB.
    fn write_xfs(&self, at: u64, unit: u32, width: u32) {
        self.write(&[
            (at, b"XFSB"),
            (at + 4, &4096u32.to_be_bytes()),
            (at + 8, &8192u64.to_be_bytes()),
            (at + 84, &2048u32.to_be_bytes()),
            (at + 102, &512u16.to_be_bytes()),
            (at + 184, &unit.to_be_bytes()),
            (at + 188, &width.to_be_bytes()),
        ]);
    }

    fn doctor(&self) -> Value {
        found(&self.scratch.uraid(["doctor", "--json", "home"]))
    }

    /// The same from the members, after a stop. Without the last two, it is read by computing.
    fn stopped(self, lost: usize) -> Value {
        self.scratch.uraid(["stop", "home"]).expect_done();
        drop(self.served);
        let words = ["doctor", "--json"].map(PathBuf::from).into_iter();
        let members = self.members[..self.members.len() - lost].to_vec();
        found(&self.scratch.uraid(words.chain(members)))
    }
}

/// The JSON of a doctor that could look: its exit code says whether there are warnings.
#[track_caller]
fn found(done: &Done) -> Value {
    let value: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("no JSON: {done:?}"));
    let has_warning = findings(&value).iter().any(|(severity, ..)| severity == "warning");
    assert_eq!(done.code, Some(if has_warning { 3 } else { 0 }), "{done:?}");
    value
}

/// Severity, id and about of each finding.
fn findings(value: &Value) -> Vec<(String, String, String)> {
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or("?").to_owned();
    let all = value["findings"].as_array().expect("a list");
    all.iter().map(|one| (text(one, "severity"), text(one, "id"), text(one, "about"))).collect()
}

fn has(value: &Value, id: &str, about: &str) -> bool {
    findings(value).iter().any(|(_, found, of)| found == id && of == about)
}

#[test]
fn a_blank_array_has_its_write_hole_noted_and_the_costs_of_the_planner() {
    let home = home();
    let value = home.doctor();
    assert!(has(&value, "write-hole", "the array"), "{value:#}");
    assert_eq!(value["volumes"][0]["content"], "nothing that is known");
    // raid6 of 6: 4 KiB are a reconstruct-write, the three other data blocks against one and two parities.
    let small = &value["writes"][0]["cost"];
    assert_eq!((small["member_reads"].as_u64(), small["member_writes"].as_u64()), (Some(3), Some(3)), "{value:#}");
    let stripe = &value["writes"][1]["cost"];
    assert_eq!((stripe["member_reads"].as_u64(), stripe["member_writes"].as_u64()), (Some(0), Some(6)), "{value:#}");
    let text = home.scratch.uraid(["doctor", "home"]).expect_done().stdout;
    assert!(text.contains("a write of 256 KiB: 6 member writes\n"), "{text}");
    assert!(text.contains("note: the array: its consistency policy is resync: the write hole is open"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(home.stopped(0), value, "the same from the members");
}

#[test]
fn a_stripe_that_a_file_gets_in_pieces_is_noted_with_what_the_pieces_cost() {
    let scratch = Scratch::new();
    for (slots, chunk, cost) in [
        // A row of 1024 KiB arrives whole.
        (10, "128K", None),
        // 1024 KiB are 8 of 10 chunks: the 2 others are read. 256 KiB are 2: they are read, with P and Q. The engine
        // writes each chunk in two parts, which are side by side: 2 + 4 reads and 10 + 4 writes of the devices.
        (12, "128K", Some("take 6 member reads and 14 member writes instead of 12 member writes")),
    ] {
        let members = scratch.members(&format!("m{slots}-"), slots, 16 * MIB);
        scratch.create("home", &format!("-l 6 -n {slots} -c {chunk} --assume-clean"), &members);
        let words: Vec<PathBuf> = [PathBuf::from("doctor")].into_iter().chain(members).collect();
        let text = scratch.uraid(words).expect_done().stdout;
        let flat = text.split_whitespace().collect::<Vec<&str>>().join(" ");
        assert_eq!(flat.contains("comes through --fuse and loop devices in pieces"), cost.is_some(), "{text}");
        assert!(cost.is_none_or(|cost| flat.contains(cost)), "{text}");
    }
}

#[test]
fn a_file_system_without_the_array_s_stripes_is_a_warning_also_of_a_degraded_array() {
    let home = home();
    home.write_xfs(0, 0, 0);
    let value = home.doctor();
    assert!(has(&value, "stripes", "the array"), "{value:#}");
    assert_eq!(value["volumes"][0]["file_system"], "XFS");
    home.write_xfs(0, 16, 32);
    assert!(has(&home.doctor(), "stripes", "the array"), "stripes of two chunks");
    home.write_xfs(0, 16, 64);
    let value = home.doctor();
    assert!(!has(&value, "stripes", "the array"), "{value:#}");
    assert_eq!(value["volumes"][0]["stripe_width_bytes"], 256 << 10);
    let value = home.stopped(2);
    assert!(has(&value, "degraded", "the array"), "{value:#}");
    assert_eq!(value["volumes"][0]["file_system"], "XFS", "{value:#}");
}

#[test]
fn partitions_that_begin_inside_a_stripe_or_a_chunk_are_named_with_the_place_to_begin_at() {
    let home = home();
    let entry = |start: u32| {
        let mut entry = [0; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&20_000u32.to_le_bytes());
        entry
    };
    let starts = [2048, 25_000, 50_048];
    assert!(u64::from(starts[0]).is_multiple_of(STRIPE));
    let mut entries: Vec<(u64, Vec<u8>)> =
        (0..).zip(starts).map(|(nth, start)| (446 + 16 * nth, entry(start).to_vec())).collect();
    entries.push((510, vec![0x55, 0xaa]));
    let fields: Vec<(u64, &[u8])> = entries.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
    home.write(&fields);
    home.write_xfs(2048 * 512, 16, 64);
    let value = home.doctor();
    assert!(!has(&value, "partition-start", "partition 1"), "{value:#}");
    assert!(
        has(&value, "partition-start", "partition 2") && has(&value, "partition-start", "partition 3"),
        "{value:#}"
    );
    // Its XFS says 32 MiB, the partition has 10.
    assert!(has(&value, "too-long", "partition 1"), "{value:#}");
    let text = home.scratch.uraid(["doctor", "home"]).stdout;
    let flat = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(flat.contains("partition 2: it begins at sector 25000, 212 KiB into a stripe of 256 KiB"), "{text}");
    assert!(flat.contains("make it anew from sector 25088"), "{text}");
}

#[test]
fn damaged_and_unknown_content_is_a_sentence_each() {
    let home = home();
    home.write(&[(512, b"EFI PART")]);
    let value = home.doctor();
    assert!(has(&value, "unreadable", "the array"), "{value:#}");
    let what = value["findings"][0]["what"].as_str().expect("a text");
    assert!(what.contains("the GPT is broken at the start (header of 0 bytes"), "{what}");
    home.write(&[(512, &[0; 8]), (0, b"XFSB"), (4, &5000u32.to_be_bytes())]);
    let what = home.doctor()["findings"][0]["what"].as_str().expect("a text").to_owned();
    assert_eq!(what, "XFS superblock: block size is 5000, expected a power of two from 512 to 65536");
    home.write(&[(0, &[0; 8]), (0, b"LUKS\xba\xbe\x00\x01")]);
    assert_eq!(home.doctor()["volumes"][0]["content"], "a LUKS1 volume");
    home.write(&[(0, b"garbage!")]);
    assert_eq!(home.doctor()["volumes"][0]["content"], "nothing that is known");
}

#[test]
fn what_cannot_be_looked_at_is_refused_in_one_sentence() {
    let scratch = Scratch::on_disk();
    scratch.uraid(["doctor", "nothing"]).expect_refused(&["no running array is called nothing"]);
    let fifo = scratch.path("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("coreutils").success());
    let words = ["doctor", "--file", fifo.to_str().expect("ASCII")];
    scratch.uraid(words).expect_refused(&["is not a regular file"]);
    let file = scratch.member("file", MIB);
    let file = file.to_str().expect("ASCII");
    scratch.uraid(["doctor", file]).expect_refused(&["no md superblock"]);
    scratch.uraid(["doctor", "--file", "/nowhere"]).expect_refused(&["/nowhere: not found"]);
    let folder = scratch.path("");
    let folder = folder.to_str().expect("ASCII");
    scratch.uraid(["doctor", "--file", folder]).expect_refused(&["is not a regular file"]);
    scratch.uraid(["doctor", "--file", file]).expect_refused(&["name the array, and with --at the sector"]);
    scratch.uraid(["doctor", "--file", "/proc/version"]).expect_refused(&["has no block device of its own"]);
    let done = scratch.uraid(["doctor", "--bs", "64K", "home"]);
    assert_eq!(done.code, Some(2), "--bs is of --file: {done:?}");
    // The extents of a file elsewhere are past the end of this array.
    let small = home();
    fs::write(file, vec![1; MIB as usize]).expect("room");
    let done = small.scratch.uraid(["doctor", "--file", file, "--at", "99999999999", "home"]);
    done.expect_refused(&["this array is not under the file, or --at is wrong"]);
}

#[test]
fn mkfs_is_told_the_stripes() {
    let home = home();
    let args = |of: &str| home.scratch.uraid(["detail", "--mkfs-args", of, "home"]).expect_done().stdout;
    assert_eq!(args("xfs"), "-d su=64k,sw=4\n");
    assert_eq!(args("ext4"), "-b 4096 -E stride=16,stripe_width=64\n");
    assert_eq!(args("btrfs"), "\n");
    assert_eq!(home.scratch.uraid(["detail", "--mkfs-args", "zfs", "home"]).code, Some(2));
}

/// A file system on an array, mounted.
struct OnArray {
    folder: PathBuf,
    // Unmounted before the loop device is detached, and that before the server ends.
    _device: LoopDevice,
    mounted: Mounted,
}

impl Drop for OnArray {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
    }
}

impl OnArray {
    /// A raid5 of three with this file system; `None` where loop devices are not allowed.
    fn new(mkfs: &[&str]) -> Option<OnArray> {
        let scratch = Scratch::new();
        let members = scratch.members("m", 3, 1024 * MIB);
        scratch.create("home", "-l 5 -n 3 -c 64K --assume-clean", &members);
        let mounted = Mounted::serve(scratch, members, &[]);
        let Some(device) = LoopDevice::with_options(&mounted.path(), &["--direct-io=on"]) else {
            println!("a loop device needs root and losetup: not tested here");
            return None;
        };
        let made = Command::new(mkfs[0]).args(&mkfs[1..]).arg(device.path()).output();
        let made = made.expect("`cargo xtask packages` installs it");
        assert!(made.status.success(), "{made:?}");
        let folder = mounted.scratch.path("root");
        fs::create_dir(&folder).expect("a folder");
        let status = Command::new("mount").arg(device.path()).arg(&folder).status().expect("mount");
        assert!(status.success());
        Some(OnArray { folder, _device: device, mounted })
    }

    fn doctor(&self, words: &[&str]) -> Done {
        let all = ["doctor"].iter().chain(words);
        self.mounted.scratch.uraid(all)
    }
}

/// Every other piece of a file, so that it has several extents.
fn write_pieces(path: &Path, pieces: u64, bytes: u64) {
    let file = File::create(path).expect("a new file");
    for piece in 0..pieces {
        file.write_all_at(&vec![7; bytes as usize], piece * 2 * bytes).expect("room");
    }
    file.sync_all().expect("durable");
}

#[test]
fn the_flags_of_a_file_s_extents_are_those_of_xfs_bmap() {
    let Some(xfs) = OnArray::new(&["mkfs.xfs", "-q", "-d", "su=64k,sw=2"]) else { return };
    let path = xfs.folder.join("pieces");
    write_pieces(&path, 9, 40 << 10);
    let expected = xfs_bmap(&path);
    assert!(expected.len() >= 9 && expected.iter().any(|(.., flags)| flags != "000000"), "{expected:?}");
    let done = xfs.doctor(&["--json", "--file", path.to_str().expect("ASCII")]);
    let value: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    let number = |extent: &Value, key: &str| extent[key].as_u64().expect("a number");
    let extents = value["extents"].as_array().expect("a list").iter();
    let found: Vec<BmapExtent> = extents
        .map(|one| {
            let flags = one["flags"].as_str().expect("a text").to_owned();
            (number(one, "file_sector"), number(one, "array_sector"), number(one, "sectors"), flags)
        })
        .collect();
    assert_eq!(found, expected);
    assert_eq!(done.code, Some(3), "pieces of 40 KiB are no whole stripes");
    let text = xfs.doctor(&["--plot", "--file", path.to_str().expect("ASCII")]).stdout;
    assert!(text.contains("does not end at a chunk") && text.contains("STRIPE"), "{text}");
}

#[test]
fn a_file_is_where_the_array_has_its_bytes() {
    let Some(ext4) = OnArray::new(&["mkfs.ext4", "-q", "-b", "4096", "-E", "stride=16,stripe_width=32"]) else {
        return;
    };
    let path = ext4.folder.join("file");
    let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&path, &bytes).expect("room");
    let name = path.to_str().expect("ASCII");
    let value: Value = serde_json::from_str(&ext4.doctor(&["--json", "--file", name]).stdout).expect("JSON");
    assert_eq!(value["array"], "home");
    let array = OpenOptions::new().read(true).open(ext4.mounted.path()).expect("the array's file");
    for extent in value["extents"].as_array().expect("a list") {
        let number = |key: &str| extent[key].as_u64().expect("a number");
        let (file, at) = (number("file_sector") * 512, number("array_sector") * 512);
        let length = (number("sectors") * 512).min(bytes.len() as u64 - file) as usize;
        let mut found = vec![0; length];
        array.read_exact_at(&mut found, at).expect("inside");
        assert!(found == bytes[file as usize..][..length], "extent {extent}");
    }
    let text = ext4.doctor(&["home"]).expect_done().stdout;
    assert!(text.contains("ext4, stripes of 64 KiB x 2"), "{text}");
    let small = ext4.doctor(&["--bs", "4K", "--file", name]);
    assert!(
        small.stdout.contains("3.0 member I/Os each"),
        "the other data is read, data and parity are written: {}",
        small.stdout
    );
}
