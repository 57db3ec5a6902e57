//! Ways in which an array is found broken, and how its bytes are saved: docs/operating/recovering.md, case by case.
//! Owns: the commands of that page, on the real binary. Not here: `uraid copy` on members in good health (`copy`).

use crate::common::superblock::{DATA_SIZE, Raw};
use crate::common::{Done, MIB, Scratch, pattern};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const RAID5: &str = "-l 5 -n 4 -c 64K --assume-clean";
const CHUNK: u64 = 64 << 10;
const RAID6: &str = "-l 6 -n 4 -c 64K --assume-clean";

/// An array full of data, stopped.
struct Broken {
    scratch: Scratch,
    members: Vec<PathBuf>,
    bytes: Vec<u8>,
}

impl Broken {
    fn new(options: &str) -> Broken {
        let scratch = Scratch::new();
        let members = scratch.members("disk", 4, 8 * MIB);
        let bytes = fill(&scratch, "home", options, &members, 1);
        Broken { scratch, members, bytes }
    }

    fn copy(&self, options: &str, members: &[PathBuf]) -> Done {
        let fixed = ["copy"].into_iter().chain(options.split_whitespace()).map(PathBuf::from);
        self.scratch.uraid(fixed.chain(members.iter().cloned()).chain([self.out()]))
    }

    fn out(&self) -> PathBuf {
        self.scratch.path("rescued.img")
    }

    #[track_caller]
    fn expect_rescued(&self) {
        assert!(fs::read(self.out()).expect("a copy") == self.bytes, "not the bytes that were written");
    }

    /// Expects the bytes of each chunk, from an offset in it, that `is_left`, and zeroes elsewhere.
    #[track_caller]
    fn expect_left(&self, is_left: impl Fn(u64, u64) -> bool) {
        let mut expected = self.bytes.clone();
        for (sector, bytes) in (0_u64..).zip(expected.chunks_mut(512)) {
            let at = sector * 512;
            if !is_left(at / CHUNK, at % CHUNK) {
                bytes.fill(0);
            }
        }
        assert!(fs::read(self.out()).expect("a copy") == expected, "not what is left");
    }

    /// Expects the map to list this many bytes as lost, `-`, and all others as copied.
    #[track_caller]
    fn expect_holes(&self, lost: u64) {
        let map = fs::read_to_string(self.scratch.path("rescued.img.map")).expect("a map");
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
        // After the line of the current position: start, length, state.
        let lines = map.lines().filter(|line| !line.starts_with('#')).skip(1);
        let parts = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
        let (mut holes, mut copied) = (0, 0);
        for part in parts {
            match part[2] {
                "-" => holes += number(part[1]),
                "+" => copied += number(part[1]),
                other => panic!("{other} in {map}"),
            }
        }
        assert_eq!((holes, copied), (lost, self.bytes.len() as u64 - lost), "{map}");
    }

    #[track_caller]
    fn expect_nothing_copied(&self) {
        assert!(!self.out().exists() && !self.scratch.path("rescued.img.map").exists());
    }
}

/// Makes an array and writes all of it.
fn fill(scratch: &Scratch, name: &str, options: &str, members: &[PathBuf], seed: u64) -> Vec<u8> {
    scratch.create(name, options, members);
    let served = scratch.ready(&[], members);
    let bytes = pattern(seed, served.client().size as usize);
    served.write_all(0, &bytes);
    served.stop().expect_done();
    bytes
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, at)).expect("a file");
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn case_1_two_members_are_gone() {
    let broken = Broken::new(RAID6);
    let left = [broken.members[3].clone(), broken.members[1].clone()];
    broken.copy("", &left).expect_refused(&["--run"]);
    broken.expect_nothing_copied();
    broken.copy("--run", &left).expect_done().expect_said(&["2 of 4 slots, without 0, 2"]);
    broken.expect_rescued();
    let of_raid5 = Broken::new(RAID5);
    for options in ["--run", "--force"] {
        let hint = "home: --run --force copies what is left of a raid5 that lacks members";
        of_raid5.copy(options, &of_raid5.members[..2]).expect_refused(&["cannot start the array", hint]);
        of_raid5.expect_nothing_copied();
    }
    // Nothing can be computed, but half of the chunks lie on the members that are left.
    let done = of_raid5.copy("--run --force", &of_raid5.members[..2]);
    let done =
        done.expect_said(&["raid5 is copied without slot 2", "raid5 is copied without slot 3", "could not be read"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    // Left-symmetric, four slots: row r has its parity on 3 - r % 4, and its data behind that.
    of_raid5.expect_left(|chunk, _| (4 - chunk / 3 % 4 + chunk % 3) % 4 < 2);
}

#[test]
fn case_2_the_order_of_the_members_is_mixed_up() {
    let broken = Broken::new(RAID5);
    let mixed = [2, 0, 3, 1].map(|at| broken.members[at].clone());
    broken.copy("", &mixed).expect_done();
    broken.expect_rescued();
}

#[test]
fn case_3_one_superblock_is_zeroed() {
    let broken = Broken::new(RAID5);
    broken.scratch.uraid(["zero-superblock", &text(&broken.members[2])]).expect_done();
    broken.copy("", &broken.members).expect_refused(&["disk2", "--run"]);
    let done = broken.copy("--run", &broken.members).expect_done();
    done.expect_said(&["is copied degraded, 3 of 4 slots, without 2"]);
    broken.expect_rescued();
}

#[test]
fn case_4_all_superblocks_are_zeroed_and_the_geometry_is_known() {
    for (options, assumed) in [
        (RAID5, "--assume -l 5 -n 4 -c 64K"),
        ("-l 6 -n 4 -c 64K -p ra --assume-clean", "--assume -l 6 -n 4 -c 64K -p ra"),
        ("-l 10 -n 4 -c 32K -p o2 --assume-clean", "--assume -l raid10 -n 4 -c 32K -p o2"),
        ("-l 5 -n 4 -c 64K --data-offset 2M --assume-clean", "--assume -l 5 -n 4 -c 64K --data-offset 2M"),
        ("-l 0 -n 4 -c 64K", "--assume -l 0 -n 4 -c 64K"),
        ("-l linear -n 4", "--assume -l linear -n 4"),
    ] {
        let broken = Broken::new(options);
        for member in &broken.members {
            broken.scratch.uraid(["zero-superblock", &text(member)]).expect_done();
        }
        broken.copy("--run", &broken.members).expect_refused(&["none of the members can be used"]);
        broken.copy(assumed, &broken.members).expect_done();
        broken.expect_rescued();
        if options.contains("-l 0") || options.contains("linear") {
            continue;
        }
        let mut one_missing = broken.members.clone();
        one_missing[1] = PathBuf::from("missing");
        broken.copy(&format!("{assumed} --overwrite"), &one_missing).expect_done();
        broken.expect_rescued();
        // A copy by another geometry is another copy, and is not resumed.
        let mixed = [1, 0, 2, 3].map(|at| broken.members[at].clone());
        broken.copy(assumed, &mixed).expect_refused(&["is the map of another copy"]);
        broken.copy(assumed, &mixed[..3]).expect_refused(&["3 members are listed, expected 4"]);
    }
}

#[test]
fn case_5_the_order_is_not_known() {
    let broken = Broken::new(RAID6);
    for member in &broken.members {
        broken.scratch.uraid(["zero-superblock", &text(member)]).expect_done();
    }
    let mixed = [2, 0, 3, 1].map(|at| broken.members[at].clone());
    let order = "--order -l 6 -n 4 -c 64K -p ls";
    // Without OUT: the ranking, and nothing else.
    let words = ["copy"].into_iter().chain(order.split(' ')).map(PathBuf::from).chain(mixed.iter().cloned());
    let shown = broken.scratch.uraid(words).expect_done().stdout;
    let right: Vec<String> = broken.members.iter().map(|member| text(member)).collect();
    assert!(shown.starts_with("144 candidates tried, chunk 64K, data from sector 0, 16, 264, 272, 2048, 4096\n"));
    let first = shown.lines().nth(1).expect("a ranking");
    let expected = format!("raid6, left-symmetric, chunk 64K, data from sector 2048: {}", right.join(" "));
    assert!(first.starts_with("  1  16 of 16 rows, ") && first.ends_with(&expected), "{shown}");
    assert!(shown.contains("\nsure: candidate 1 has "), "{shown}");
    broken.expect_nothing_copied();
    broken.copy(order, &mixed).expect_done().expect_said(&["sure: "]);
    broken.expect_rescued();
    // P and Q fit the symmetric and the asymmetric layout alike: only a signature of a file system tells them
    // apart.
    let fresh = "--overwrite --order -l 6 -n 4 -c 64K";
    broken.copy(fresh, &mixed).expect_refused(&["undecided: ", "nothing was copied", "--candidate N"]);
    let names = broken.copy(fresh, &mixed).stderr;
    let is_right = |line: &&str| {
        line.contains("left-symmetric") && line.contains("sector 2048") && line.ends_with(&right.join(" "))
    };
    let line = names.lines().find(is_right).expect("the right one is in the ranking");
    let number = line.trim_start_matches("uraid: ").split_whitespace().next().expect("a number");
    broken.copy(&format!("{fresh} --candidate {number}"), &mixed).expect_done();
    broken.expect_rescued();
    broken.copy(&format!("{fresh} --candidate 99"), &mixed).expect_refused(&["there is no candidate 99"]);
}

#[test]
fn case_6_a_member_is_truncated() {
    let broken = Broken::new(RAID5);
    File::options().write(true).open(&broken.members[1]).and_then(|file| file.set_len(5 * MIB)).expect("a file");
    let done = broken.copy("--run", &broken.members).expect_done();
    done.expect_said(&["disk1: left out: shrank", "without 1"]);
    broken.expect_rescued();
    let of_raid0 = Broken::new("-l 0 -n 4 -c 64K --data-offset 1M");
    File::options().write(true).open(&of_raid0.members[1]).and_then(|file| file.set_len(5 * MIB)).expect("a file");
    let refused = of_raid0.copy("", &of_raid0.members);
    refused.expect_refused(&["disk1: left out: shrank", "--run copies what is left of a raid0 that lacks members"]);
    of_raid0.expect_nothing_copied();
    let done = of_raid0.copy("--run", &of_raid0.members);
    done.expect_refused(&[
        "disk1: has 5.00 MiB, its data needs 8.00 MiB: what is past its end is zeroes",
        "could not be read",
    ]);
    of_raid0.expect_left(|chunk, offset| chunk % 4 != 1 || offset + chunk / 4 * CHUNK < 4 * MIB);
}

#[test]
fn case_7_members_have_unreadable_sectors() {
    let broken = Broken::new(&format!("{RAID5} --data-offset 1M"));
    let bad = |list: &str, at: usize| PathBuf::from(format!("bad:{list}:{}", text(&broken.members[at])));
    let [_, _, disk2, disk3] = broken.members.clone().try_into().expect("four members");
    // Of one row, one sector each of two data members; and much that the others make up for.
    let members = [bad("2053,4000+100", 0), bad("2053,5000+300", 1), disk2, disk3];
    let done = broken.copy("", &members);
    done.expect_refused(&["2 sectors could not be read and are zeroes in the copy, listed in", "rescued.img.map"]);
    let map = fs::read_to_string(broken.scratch.path("rescued.img.map")).expect("a map");
    // With chunks of 128 sectors, sector 5 of the first chunks of disk0 and disk1 is sector 5 and 133 of the array.
    let lost: Vec<&str> = map.lines().filter(|line| line.ends_with('-')).collect();
    assert_eq!(lost, ["0x00000A00  0x00000200  -", "0x00010A00  0x00000200  -"]);
    let mut expected = broken.bytes.clone();
    for sector in [5, 133] {
        expected[sector * 512..(sector + 1) * 512].fill(0);
    }
    assert!(fs::read(broken.out()).expect("a copy") == expected);
    // Later the disk can read them: the same command tries only them again.
    broken.copy("", &broken.members).expect_done().expect_said(&["goes on", "2 sectors were unreadable"]);
    broken.expect_rescued();
    // Into a pipe there is no map: what is lost is said.
    let line = [PathBuf::from("copy")].into_iter().chain(members).chain([PathBuf::from("-")]);
    let done = broken.scratch.command(line).output().expect("the binary runs");
    assert!(done.status.code() == Some(1) && done.stdout == expected);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("unreadable: 1 sectors from sector 133"), "{said}");
}

#[test]
fn case_7_a_mirror_that_was_not_stopped_cleanly_says_how_to_read_its_other_copies() {
    let broken = Broken::new("-l 1 -n 4 --data-offset 1M");
    // A new array: its copies have not been made equal.
    let create = ["create", "-l", "1", "-n", "4", "-N", "new", "--data-offset", "1M", "--force"].map(PathBuf::from);
    let made =
        broken.scratch.command(create.into_iter().chain(broken.members.clone())).output().expect("the binary runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut members = broken.members.clone();
    members[0] = format!("bad:2053:{}", text(&members[0])).into();
    let done = broken.copy("", &members);
    done.expect_refused(&[
        "one copy of each sector is read; --force reads the others too",
        "1 sectors could not be read",
    ]);
    broken.copy("--force", &members).expect_done();
    broken.expect_rescued();
}

#[test]
fn case_7_a_level_without_redundancy_loses_what_cannot_be_read_and_no_more() {
    let broken = Broken::new("-l 0 -n 4 -c 64K --data-offset 1M");
    let mut members = broken.members.clone();
    members[1] = format!("bad:2055+3:{}", text(&members[1])).into();
    broken.copy("", &members).expect_refused(&["3 sectors could not be read"]);
    let mut expected = broken.bytes.clone();
    expected[135 * 512..138 * 512].fill(0);
    assert!(fs::read(broken.out()).expect("a copy") == expected);
}

#[test]
fn case_11_members_of_an_array_without_redundancy_are_gone() {
    let broken = Broken::new("-l 0 -n 4 -c 64K");
    let [disk0, _, disk2, disk3] = broken.members.clone().try_into().expect("four members");
    let left = [disk0.clone(), disk2, disk3.clone()];
    broken.copy("", &left).expect_refused(&["found 3 of 4 members", "--run copies what is left of a raid0"]);
    broken.expect_nothing_copied();
    let done = broken.copy("--run", &left);
    done.expect_refused(&[
        "home: slot 1 is taken to have held as much data as each of the others",
        "home: raid0 is copied without slot 1: what it held is zeroes in the copy",
        "sectors could not be read and are zeroes in the copy, listed in",
    ]);
    broken.expect_left(|chunk, _| chunk % 4 != 1);
    broken.expect_holes(broken.bytes.len() as u64 / 4);
    broken.copy("--run --overwrite", &[disk0, disk3]).expect_refused(&["without slot 1", "without slot 2"]);
    broken.expect_left(|chunk, _| ![1, 2].contains(&(chunk % 4)));
}

#[test]
fn case_11_a_superblock_that_cannot_be_read_is_that_of_the_empty_slot() {
    let broken = Broken::new("-l 0 -n 4 -c 64K --data-offset 1M");
    let mut members = broken.members.clone();
    members[2] = format!("bad:8+8,2049:{}", text(&members[2])).into();
    broken.copy("", &members).expect_refused(&["disk2: reading the superblock failed", "--run copies what is left"]);
    let done = broken.copy("--run", &members);
    done.expect_refused(&[
        "disk2: is taken as slot 2 of home, the only one without a member",
        "1 sectors could not be",
    ]);
    broken.expect_left(|chunk, offset| chunk != 2 || offset / 512 != 1);
}

#[test]
fn case_11_a_linear_array_with_a_short_and_an_unreadable_member_is_read_around_them() {
    let broken = Broken::new("-l linear -n 4 --data-offset 1M");
    let of_each = 7 * MIB;
    // Half of the data of disk1 is cut off; the superblock and one sector of disk2 cannot be read.
    File::options().write(true).open(&broken.members[1]).and_then(|file| file.set_len(5 * MIB)).expect("a file");
    let mut members = broken.members.clone();
    members[2] = format!("bad:8+8,2049:{}", text(&members[2])).into();
    broken.copy("", &members).expect_refused(&["--run copies what is left of a linear that lacks members"]);
    broken.expect_nothing_copied();
    broken.copy("--run", &members).expect_refused(&[
        "disk1: has 5.00 MiB, its data needs 8.00 MiB: what is past its end is zeroes in the copy",
        "disk2: is taken as slot 2 of home, the only one without a member",
        "6145 sectors could not be read and are zeroes in the copy, listed in",
    ]);
    let is_lost = |at: u64| (of_each + 4 * MIB..2 * of_each).contains(&at) || at / 512 == 2 * of_each / 512 + 1;
    broken.expect_left(|chunk, offset| !is_lost(chunk * CHUNK + offset));
    broken.expect_holes(3 * MIB + 512);
}

/// 64 million chunks that no member has are one stretch of the map, and no work.
#[test]
fn a_raid0_that_claims_32_tib_on_6_mib_is_copied_at_once() {
    let scratch = Scratch::new();
    let members = scratch.members("disk", 2, 3 * MIB);
    scratch.create("home", "-l 0 -n 2", &members);
    let mut raw = Raw::read(&members[1]);
    raw.set(DATA_SIZE, &(1_u64 << 36).to_le_bytes());
    raw.write();
    let out = scratch.path("out");
    let words = ["copy", "--run"].map(PathBuf::from).into_iter().chain(members.clone()).chain([out.clone()]);
    let wanted = ["has 3.00 MiB, its data needs 32.00 TiB", "sectors could not be read and are zeroes in the copy"];
    let began = std::time::Instant::now();
    scratch.uraid(words).expect_refused(&wanted);
    println!("{:?}", began.elapsed());
    assert!(fs::metadata(&out).expect("a copy").len() > 1 << 45);
    let map = fs::read_to_string(scratch.path("out.map")).expect("a map");
    assert!(map.lines().any(|line| line == "0x00200000  0x1FFFFFF00000  -"), "{map}");
}

#[test]
fn case_11_the_size_of_a_missing_member_is_asked_for_where_the_others_differ() {
    let scratch = Scratch::new();
    let mut members = scratch.members("disk", 2, 8 * MIB);
    members.extend(scratch.members("large", 1, 24 * MIB));
    let bytes = fill(&scratch, "home", "-l linear -n 3 --data-offset 1M", &members, 1);
    let broken = Broken { scratch, members, bytes };
    let [disk0, disk1, large] = broken.members.clone().try_into().expect("three members");
    let differ = [disk0.clone(), large.clone()];
    broken.copy("--run", &differ).expect_refused(&[
        "how much data slot 1 held is not known: the others differ (7.00 MiB, 23.00 MiB)",
        "--size SIZE says it",
        "found 2 of 3 members",
    ]);
    broken.expect_nothing_copied();
    broken.copy("--run --size 7M", &differ).expect_refused(&["linear is copied without slot 1", "14336 sectors could"]);
    let is_of_disk1 = |at: u64| (7 * MIB..14 * MIB).contains(&at);
    broken.expect_left(|chunk, offset| !is_of_disk1(chunk * CHUNK + offset));
    // The last one: what comes before it is where it was, however large it is taken to be.
    broken.copy("--run --overwrite", &[disk0, disk1]).expect_refused(&["linear is copied without slot 2"]);
    assert!(fs::read(broken.out()).expect("a copy")[..14 * MIB as usize] == broken.bytes[..14 * MIB as usize]);
}

#[test]
fn case_8_a_member_is_stale() {
    let mut broken = Broken::new(RAID5);
    let served = broken.scratch.ready(&[], &broken.members);
    broken.scratch.uraid(["fail", "home", &text(&broken.members[2])]).expect_done();
    let mut client = served.client();
    let newer = pattern(9, 3 * MIB as usize);
    assert_eq!(client.write(MIB, &newer).expect("it serves"), 0);
    broken.bytes[MIB as usize..4 * MIB as usize].copy_from_slice(&newer);
    drop(client);
    served.stop().expect_done();
    let done = broken.copy("", &broken.members).expect_done();
    done.expect_said(&["disk2: left out: ", "without 2"]);
    broken.expect_rescued();
}

#[test]
fn case_9_the_members_are_parts_of_one_disk_image() {
    const FIRST: u64 = 1;
    let mut broken = Broken::new(RAID5);
    let image = broken.scratch.member("disk.img", 40 * MIB);
    // An MBR with four partitions of 8 MiB each, one after the other.
    let mut table = vec![0_u8; 512];
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    for (nth, member) in broken.members.iter().enumerate() {
        let at = (FIRST + nth as u64 * 9) * MIB;
        write_at(&image, at, &fs::read(member).expect("a member"));
        let entry = &mut table[446 + nth * 16..446 + (nth + 1) * 16];
        entry[4] = 0xfd;
        entry[8..12].copy_from_slice(&u32::try_from(at / 512).expect("small").to_le_bytes());
        entry[12..].copy_from_slice(&(8 * MIB as u32 / 512).to_le_bytes());
    }
    write_at(&image, 0, &table);
    let named = |suffix: &str| PathBuf::from(format!("{}@{suffix}", text(&image)));
    broken.members = ["p1", "10M+8M", "p3", "28M+8M"].map(named).to_vec();
    broken.copy("", &broken.members).expect_done();
    broken.expect_rescued();
    // The image holds the members: it is never an OUT.
    let before = fs::read(&image).expect("an image");
    let words = ["copy", "--overwrite"].map(PathBuf::from).into_iter().chain(broken.members.iter().cloned());
    broken.scratch.uraid(words.chain([image.clone()])).expect_refused(&["disk.img: is"]);
    assert!(fs::read(&image).expect("an image") == before);
}

#[test]
fn case_10_half_of_the_members_come_from_another_array() {
    let broken = Broken::new(RAID5);
    let others = broken.scratch.members("other", 4, 8 * MIB);
    fill(&broken.scratch, "other", RAID5, &others, 2);
    let mixed = [&broken.members[..2], &others[2..]].concat();
    for options in ["", "--run", "--force"] {
        let done = broken.copy(options, &mixed);
        done.expect_refused(&["disk0", "disk1: of array home", "other3: of array other", "cannot start the array"]);
        broken.expect_nothing_copied();
    }
}
