//! The cases of mdadm's own test suite, told again for the real binary.
//! Owns: each level's creation, read-only starts, failures of every member and pair, checks and repairs of every raid6 layout,
//! assembly in any order, bits through a failure, members that return. Not here: the list of mdadm's tests and which of ours
//! shows each (docs/compat.md), md itself (`xtask vm`).

use crate::common::stubborn::StubbornFile;
use crate::common::superblock::{DATA_OFFSET, DATA_SIZE, Raw, SIZE, write_at};
use crate::common::{Done, MIB, Scratch, Served, pattern, wait};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const VERSIONS: [&str; 3] = ["1.0", "1.1", "1.2"];
const MEMBER_BYTES: u64 = 3 * MIB;
/// Options of a level, its slots, and how many members' worth of data it has.
const SHAPES: [(&str, usize, u64); 11] = [
    ("-l linear", 3, 3),
    ("-l 0 -c 32K", 3, 3),
    ("-l 1", 2, 1),
    ("-l 4 -c 64K", 3, 2),
    ("-l 5 -c 64K", 3, 2),
    ("-l 5 -c 128K -p ra", 4, 3),
    ("-l 6 -c 32K", 4, 2),
    ("-l 10 -c 32K -p n2", 6, 3),
    ("-l 10 -c 32K -p n3", 6, 2),
    ("-l 10 -c 32K -p f2", 6, 3),
    ("-l 10 -c 32K -p f3", 6, 2),
];
const RAID6_LAYOUTS: [&str; 14] = [
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
    "ddf-zero-restart",
    "ddf-N-restart",
    "ddf-N-continue",
    "left-asymmetric-6",
    "right-asymmetric-6",
    "left-symmetric-6",
    "right-symmetric-6",
    "parity-first-6",
];
/// Fields of a superblock: the chunk, its flags.
const CHUNK: usize = 88;
const DEVICE_FLAGS: usize = 184;
const WRITE_MOSTLY_AND_FAILFAST: u8 = 3;

fn is_redundant(options: &str) -> bool {
    !options.contains("linear") && !options.starts_with("-l 0")
}

/// A running array `case` over members that held other bytes before; paths in the order of slots, spares last.
struct Rig {
    served: Served,
    members: Vec<PathBuf>,
    data: Vec<u8>,
    what: String,
    // Dropped after the server.
    scratch: Scratch,
}

impl Rig {
    /// Made, made consistent and filled.
    fn new(options: &str, slots: usize, spares: usize) -> Rig {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots + spares, MEMBER_BYTES);
        for (seed, member) in (100..).zip(&members) {
            write_at(member, 0, &pattern(seed, MEMBER_BYTES as usize));
        }
        scratch.create("case", &format!("{options} -n {slots} -x {spares}"), &members);
        let served = scratch.ready(&[], &members);
        let mut rig = Rig { served, members, data: Vec::new(), what: options.to_owned(), scratch };
        let size = rig.served.client().size as usize;
        rig.data = vec![0; size];
        rig.write(0, &pattern(7, size));
        rig
    }

    fn run(&self, line: &str) -> Done {
        self.scratch.uraid(line.split(' '))
    }

    fn done(&self, line: &str) -> String {
        self.run(line).expect_done().stdout
    }

    fn path(&self, member: usize) -> String {
        self.members[member].display().to_string()
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.run(line).stdout).expect("JSON")
    }

    /// A verb with these members of the array.
    fn change(&self, verb: &str, members: &[usize]) -> Done {
        let paths: Vec<String> = members.iter().map(|member| self.path(*member)).collect();
        self.run(&format!("{verb} case {}", paths.join(" ")))
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.served.write_all(at as u64, bytes);
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[track_caller]
    fn expect_data(&self, when: &str) {
        let found = self.served.first_difference(&self.data);
        assert_eq!(found, None, "{}, {when}", self.what);
    }

    /// Every slot has a member in sync, and no pass runs.
    #[track_caller]
    fn expect_whole(&self) {
        let is_whole = || {
            let report = self.json("detail --json case");
            let is_idle = ["recovery", "resync"].iter().all(|pass| report[pass].is_null());
            let shown = self.done("detail case");
            is_idle && shown.contains("UU") && !shown.contains("U_") && !shown.contains("[_")
        };
        wait(is_whole).unwrap_or_else(|()| panic!("{}: {}", self.what, self.done("detail case")));
    }

    /// Serves these members after a clean stop.
    fn restart(&mut self, options: &[&str], members: &[usize]) {
        self.scratch.stop_when_left("case");
        let members: Vec<PathBuf> = members.iter().map(|at| self.members[*at].clone()).collect();
        self.served = self.scratch.ready(options, &members);
    }

    /// What the members hold for the array; all superblocks and bitmaps lie outside.
    fn data_areas(&self) -> Vec<Vec<u8>> {
        let area = |member: &PathBuf| {
            let superblock = Raw::read(member);
            let (at, size) = (superblock.u64(DATA_OFFSET) as usize * 512, superblock.u64(SIZE) as usize * 512);
            fs::read(member).expect("a member")[at..at + size].to_vec()
        };
        self.members.iter().map(area).collect()
    }

    /// The bits that are set, in the bitmap of each member, and how many there are.
    fn bits(&self, members: &[usize]) -> (Vec<u64>, u64) {
        let mut total = 0;
        let mut of = |member: &usize| {
            let text = self.done(&format!("examine {}", self.path(*member)));
            let line = text.lines().find(|line| line.contains("bits (chunks), ")).unwrap_or_else(|| panic!("{text}"));
            let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            total = numbers[0];
            numbers[1]
        };
        let dirty = members.iter().map(&mut of).collect();
        (dirty, total)
    }

    fn stop(self) {
        let done = self.served.stop();
        assert_eq!(done.code, Some(0), "{}: {done:?}", self.what);
    }
}

/// Every pair of slots.
fn pairs(slots: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..slots).flat_map(move |a| (a + 1..slots).map(move |b| vec![a, b]))
}

fn all_but(slots: usize, lost: &[usize]) -> Vec<usize> {
    (0..slots).filter(|slot| !lost.contains(slot)).collect()
}

#[test]
fn every_level_is_created_with_each_superblock_and_has_its_size_and_first_resync() {
    for version in VERSIONS {
        for (options, slots, data_members) in SHAPES {
            let spares = usize::from(slots == 6);
            let mut rig = Rig::new(&format!("{options} -e {version}"), slots, spares);
            let first = Raw::read(&rig.members[0]);
            // A raid0 uses whole chunks; the superblocks of both say 0 where the others say how much of a member is used.
            let whole_chunks = |size: u64| size - size % u64::from(first.u32(CHUNK).max(1));
            let of_each = if is_redundant(options) { first.u64(SIZE) } else { whole_chunks(first.u64(DATA_SIZE)) };
            assert_eq!(rig.data.len() as u64, of_each * 512 * data_members, "{}", rig.what);
            // A resync that was cut off by the stop would go on after the next start.
            if is_redundant(options) {
                rig.served.wait_for("case: resync done: ");
            } else {
                assert!(!rig.served.stderr().contains("resync"), "{}", rig.what);
            }
            assert!(rig.done(&format!("examine {}", rig.path(0))).contains(&format!(" Version : {version}\n")));
            assert_eq!(rig.done("detail case").matches(" spare ").count(), spares, "{}", rig.what);
            let all: Vec<usize> = (0..slots + spares).collect();
            rig.restart(&[], &all);
            assert!(!rig.served.stderr().contains("it is made consistent"), "{}: once is enough", rig.what);
            rig.expect_data("after a clean stop");
            if spares == 1 {
                rig.change("fail", &[0]).expect_done();
                rig.expect_whole();
                rig.expect_data("with the spare in slot 0");
            }
            rig.stop();
        }
    }
}

#[test]
fn every_level_is_served_read_only_and_then_writable_again() {
    for version in VERSIONS {
        for (options, slots, _) in SHAPES {
            let clean = if is_redundant(options) { "--assume-clean" } else { "" };
            let mut rig = Rig::new(&format!("{options} -e {version} {clean}"), slots, 0);
            let all: Vec<usize> = (0..slots).collect();
            rig.restart(&["--read-only"], &all);
            let bytes = |path: &PathBuf| fs::read(path).expect("a member");
            let before: Vec<Vec<u8>> = rig.members.iter().map(bytes).collect();
            let mut client = rig.served.client();
            assert!(client.is_read_only && rig.done("detail case").contains("read-only"), "{}", rig.what);
            assert_eq!(client.write(0, &[1; 4096]).expect("connected"), 1, "{}: EPERM", rig.what);
            drop(client);
            rig.expect_data("read-only");
            rig.scratch.stop_when_left("case");
            assert!(rig.members.iter().map(bytes).eq(before), "{}: a member was written", rig.what);
            rig.served = rig.scratch.ready(&[], &rig.members);
            rig.write(512, &pattern(8, 4096));
            rig.expect_data("writable again");
            rig.stop();
        }
    }
}

#[test]
fn a_member_that_fails_in_the_first_resync_returns_and_every_slot_is_active_in_the_end() {
    for (options, slots) in [("-l 1", 4), ("-l 5 -c 64K", 4)] {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", slots, 16 * MIB);
        for (seed, member) in (100..).zip(&members) {
            write_at(member, 0, &pattern(seed, 16 * MIB as usize));
        }
        let slow = StubbornFile::in_place_of(&mut members, 3);
        scratch.create("case", &format!("{options} -n {slots} --bitmap=internal"), &members);
        slow.slow_writes(Duration::from_millis(50));
        let served = scratch.serve(&[], &members);
        served.wait_until_ready();
        let size = served.client().size as usize;
        let mut rig = Rig { served, members, data: vec![0; size], what: options.to_owned(), scratch };
        rig.write(0, &pattern(9, 2 * MIB as usize));
        wait(|| rig.done("mdstat").contains("]  resync =")).expect("the first resync runs");
        rig.change("fail", &[2]).expect_done();
        assert!(rig.done("detail case").contains("[UU_U]"), "{}", rig.done("detail case"));
        rig.write(MIB as usize, &pattern(10, MIB as usize));
        rig.change("remove", &[2]).expect_done();
        rig.members.push(rig.scratch.member("new", 16 * MIB));
        rig.change("add", &[4]).expect_done();
        slow.slow_writes(Duration::ZERO);
        rig.expect_whole();
        // The slot is taken: the first member becomes a spare, and then takes the place of another one.
        rig.change("add", &[2]).expect_done();
        assert_eq!(rig.done("detail case").matches(" spare ").count(), 1, "{}", rig.done("detail case"));
        rig.change("fail", &[0]).expect_done();
        rig.expect_whole();
        assert!(rig.done("detail case").contains(" [4/4] [UUUU]\n"), "{}", rig.done("detail case"));
        let mut client = rig.served.client();
        let written = client.read(0, 2 * MIB as usize).expect("connected");
        assert!(written.as_deref() == Ok(&rig.data[..2 * MIB as usize]), "{options}");
        drop(client);
        assert_eq!(rig.done("check --wait case"), "case: check complete: 0 sectors disagree\n");
        rig.stop();
    }
}

#[test]
fn no_byte_differs_while_any_one_member_is_failed_and_after_it_has_returned() {
    let of_raid5 = ["ls", "rs", "la", "ra"].map(|layout| format!("-l 5 -c 64K -p {layout}"));
    let others = ["-l 1", "-l 4 -c 64K", "-l 10 -c 64K -p n2", "-l 10 -c 64K -p f2", "-l 10 -c 64K -p o2"];
    for options in of_raid5.into_iter().chain(others.map(str::to_owned)) {
        let slots = if options == "-l 1" { 2 } else { 4 };
        let rig = Rig::new(&options, slots, 0);
        for lost in 0..slots {
            rig.change("fail", &[lost]).expect_done();
            rig.expect_data(&format!("slot {lost} failed"));
            rig.change("remove", &[lost]).expect_done();
            rig.change("add", &[lost]).expect_done();
            rig.expect_whole();
        }
        rig.expect_data("all have been away");
        assert_eq!(rig.done("check --wait case"), "case: check complete: 0 sectors disagree\n", "{options}");
        rig.stop();
    }
}

#[test]
fn no_byte_differs_without_any_pair_of_members_in_each_layout_of_raid6() {
    let others = ["-l 1", "-l 10 -c 64K -p n3", "-l 10 -c 64K -p f3", "-l 10 -c 64K -p o3"].map(str::to_owned);
    let of_raid6 = RAID6_LAYOUTS.map(|layout| format!("-l 6 -c 64K -p {layout}"));
    for (nth, options) in of_raid6.into_iter().chain(others).enumerate() {
        let slots = if options == "-l 1" { 3 } else { 5 };
        let mut rig = Rig::new(&options, slots, 0);
        for lost in pairs(slots) {
            rig.restart(&["--read-only", "--run"], &all_but(slots, &lost));
            rig.expect_data(&format!("without {lost:?}"));
        }
        rig.restart(&[], &all_but(slots, &[]));
        // The layouts together fail, and recover, every pair.
        let count = pairs(slots).count();
        let lost = pairs(slots).nth(nth % count).expect("one of them");
        rig.change("fail", &lost).expect_done();
        rig.expect_data(&format!("{lost:?} failed"));
        rig.change("remove", &lost).expect_done();
        rig.change("add", &lost).expect_done();
        rig.expect_whole();
        rig.expect_data("the pair has returned");
        assert_eq!(rig.done("check --wait case"), "case: check complete: 0 sectors disagree\n", "{options}");
        rig.stop();
    }
}

#[test]
fn a_new_raid6_of_each_layout_agrees_and_a_repair_of_what_is_right_changes_nothing() {
    for layout in RAID6_LAYOUTS {
        for slots in [4, 5] {
            let rig = Rig::new(&format!("-l 6 -c 64K -p {layout}"), slots, 0);
            assert_eq!(rig.done("check --wait case"), "case: check complete: 0 sectors disagree\n", "{layout}");
            let before = rig.data_areas();
            assert_eq!(rig.done("repair --wait case"), "case: repair complete: 0 sectors disagree\n", "{layout}");
            assert!(rig.data_areas() == before, "{layout} of {slots}: a repair wrote what was right");
            rig.stop();
        }
    }
}

#[test]
fn a_spoiled_member_of_each_raid6_layout_is_named_and_repaired_to_the_byte() {
    for (nth, layout) in RAID6_LAYOUTS.into_iter().enumerate() {
        for slots in [4, 5] {
            let rig = Rig::new(&format!("-l 6 -c 64K -p {layout}"), slots, 0);
            let before = rig.data_areas();
            let spoiled = (nth + slots) % slots;
            // 96 KiB of other bytes, from the middle of a chunk on.
            let at = Raw::read(&rig.members[spoiled]).u64(DATA_OFFSET) * 512 + 200 * 1024;
            write_at(&rig.members[spoiled], at, &pattern(1000, 96 * 1024));
            let found = rig.json("check --wait --json case");
            assert_eq!(found["mismatched"], 192, "{layout} of {slots}: {found}");
            let all = found["mismatches"].as_array().expect("a list");
            let is_named = |one: &Value| one["known"] == true && one["slots"] == serde_json::json!([spoiled]);
            assert!(!all.is_empty() && all.iter().all(is_named), "{layout} of {slots}, slot {spoiled}: {found}");
            let done = rig.done("repair --wait case");
            assert!(
                done.contains("192 sectors disagree, 192 sectors of members corrected"),
                "{layout} of {slots}: {done}"
            );
            assert!(rig.data_areas() == before, "{layout} of {slots}: every byte is back");
            assert_eq!(rig.done("check --wait case"), "case: check complete: 0 sectors disagree\n", "{layout}");
            rig.expect_data("repaired");
            rig.stop();
        }
    }
}

/// Every order of these members.
fn orders(members: &[usize]) -> Vec<Vec<usize>> {
    let Some(first) = members.first() else { return vec![Vec::new()] };
    let shorter = orders(&members[1..]);
    let put = |order: &Vec<usize>, at: usize| [&order[..at], &[*first], &order[at..]].concat();
    shorter.iter().flat_map(|order| (0..=order.len()).map(move |at| put(order, at))).collect()
}

#[test]
fn members_are_assembled_in_any_order_whole_degraded_with_a_spare_and_with_a_stale_one() {
    for version in VERSIONS {
        let mut rig = Rig::new(&format!("-l 0 -c 64K -e {version}"), 3, 0);
        for order in orders(&[0, 1, 2]) {
            rig.restart(&["--read-only"], &order);
            rig.expect_data(&format!("{order:?}"));
        }
        rig.stop();
        let mut rig = Rig::new(&format!("-l 5 -c 64K -e {version}"), 3, 1);
        for order in orders(&[0, 1, 2, 3]).into_iter().step_by(5) {
            rig.restart(&["--read-only"], &order);
            assert!(rig.done("detail case").contains("[UUU]"), "{order:?}");
            rig.expect_data(&format!("{order:?}"));
        }
        for order in orders(&[0, 2]) {
            // A member is gone, and no superblock says so.
            rig.scratch.stop_when_left("case");
            let left: Vec<PathBuf> = order.iter().map(|at| rig.members[*at].clone()).collect();
            rig.scratch.serve(&[], &left).end().expect_refused(&["cannot start the array", "--run"]);
            rig.served = rig.scratch.ready(&["--read-only", "--run"], &left);
            rig.expect_data(&format!("{order:?}"));
        }
        rig.restart(&[], &[0, 1, 2]);
        rig.change("fail", &[1]).expect_done();
        rig.write(0, &pattern(11, MIB as usize));
        for order in orders(&[0, 1, 2]) {
            rig.restart(&["--read-only"], &order);
            rig.served.wait_for("m1: left out: ");
            rig.expect_data(&format!("{order:?}, slot 1 is stale"));
        }
        rig.stop();
    }
}

#[test]
fn no_bit_is_set_then_all_are_and_none_again_through_a_failure_and_a_rebuild() {
    for version in VERSIONS {
        for (options, slots) in [("-l 1", 2), ("-l 5 -c 64K", 3)] {
            let options = format!("{options} -e {version} --bitmap=internal --bitmap-chunk=4K");
            let mut rig = Rig::new(&options, slots, 0);
            let all: Vec<usize> = (0..slots).collect();
            rig.restart(&[], &all);
            let (dirty, bits) = rig.bits(&all);
            assert_eq!(bits, Raw::read(&rig.members[0]).u64(SIZE) / 8, "{options}: one bit for each 4 KiB");
            assert_eq!(dirty, vec![0; slots], "{options}: made consistent");
            rig.change("fail", &[1]).expect_done();
            rig.change("remove", &[1]).expect_done();
            let size = rig.data.len();
            rig.write(0, &pattern(12, size));
            rig.expect_data("degraded");
            let left = all_but(slots, &[1]);
            assert_eq!(rig.bits(&left).0, vec![bits; slots - 1], "{options}: all is written");
            rig.restart(&[], &left);
            assert_eq!(rig.bits(&left).0, vec![bits; slots - 1], "{options}: a stop forgets none");
            rig.change("re-add", &[1]).expect_done();
            rig.expect_whole();
            if version == "1.2" {
                wait(|| rig.bits(&all).0 == vec![0; slots])
                    .expect("bits are cleared some seconds after the last write");
            } else {
                rig.restart(&[], &all);
                assert_eq!(rig.bits(&all).0, vec![0; slots], "{options}: a stop of a whole array clears all");
            }
            rig.change("fail", &[0]).expect_done();
            rig.expect_data("from the member that returned");
            rig.stop();
        }
    }
}

#[test]
fn a_bitmap_that_is_added_or_removed_while_the_array_serves_is_so_after_the_next_start() {
    for version in VERSIONS {
        for (options, slots) in [("-l 1", 2), ("-l 5 -c 64K", 3)] {
            let mut rig = Rig::new(&format!("{options} -e {version} --bitmap=none"), slots, 0);
            let all: Vec<usize> = (0..slots).collect();
            for chunk in ["4K", "1M"] {
                assert!(rig.json("detail --json case")["bitmap"].is_null(), "{}", rig.what);
                rig.done(&format!("bitmap case internal --bitmap-chunk {chunk}"));
                rig.write(MIB as usize, &pattern(13, 4096));
                for turn in ["added", "assembled"] {
                    let shown = rig.json("detail --json case");
                    assert!(shown["bitmap"]["chunks"].is_u64(), "{}, {turn}: {shown}", rig.what);
                    let chunks = if chunk == "4K" { Raw::read(&rig.members[0]).u64(SIZE) / 8 } else { 0 };
                    assert!(chunks == 0 || shown["bitmap"]["chunks"] == chunks, "{}, {turn}: {shown}", rig.what);
                    rig.restart(&[], &all);
                    assert_eq!(rig.bits(&all).0, vec![0; slots], "{}, {turn}", rig.what);
                }
                rig.done("bitmap case none");
                rig.write(0, &pattern(14, 4096));
                rig.restart(&[], &all);
                let superblock = rig.done(&format!("examine {}", rig.path(0)));
                assert!(!superblock.contains("Bitmap"), "{}: {superblock}", rig.what);
                rig.expect_data("without a bitmap");
            }
            rig.stop();
        }
    }
}

/// The bytes that a member was sent since it joined, with those of superblocks and bitmaps.
fn written_to(rig: &Rig, member: usize) -> u64 {
    let report = rig.json("detail --json case");
    let members = report["members"].as_array().expect("a list");
    let path = rig.path(member);
    let found = members.iter().rfind(|one| one["path"] == path.as_str()).unwrap_or_else(|| panic!("{report}"));
    found["io"]["writes"]["bytes"].as_u64().expect("a count")
}

#[test]
fn a_member_that_is_re_added_gets_only_what_was_written_and_equals_the_other_one() {
    for version in VERSIONS {
        let options = format!("-l 1 -e {version} --bitmap=internal --bitmap-chunk=4K");
        let mut rig = Rig::new(&options, 2, 0);
        rig.restart(&[], &[0, 1]);
        for (turn, written) in [(0, 0), (1, 0), (2, 256 * 1024), (3, 256 * 1024)] {
            rig.change("fail", &[1]).expect_done();
            rig.change("remove", &[1]).expect_done();
            rig.write(MIB as usize, &pattern(20 + turn, written));
            rig.change("re-add", &[1]).expect_done();
            rig.expect_whole();
            let (sent, written) = (written_to(&rig, 1), written as u64);
            assert!(
                sent >= written && sent < written + MIB / 4,
                "{options}: {sent} bytes were sent, {written} were written"
            );
        }
        let areas = rig.data_areas();
        assert!(areas[0] == areas[1], "{options}: the copies are equal");
        rig.stop();
    }
}

#[test]
fn a_device_without_a_superblock_is_not_re_added() {
    let rig = Rig::new("-l 1 --bitmap=internal", 2, 0);
    rig.change("fail", &[1]).expect_done();
    rig.change("remove", &[1]).expect_done();
    rig.done(&format!("zero-superblock {}", rig.path(1)));
    let before = fs::read(&rig.members[1]).expect("a member");
    rig.change("re-add", &[1]).expect_refused(&["m1", "uraid add"]);
    assert!(fs::read(&rig.members[1]).expect("a member") == before, "it is as it was");
    assert!(rig.done("detail case").contains("[U_]"));
    rig.change("add", &[1]).expect_done();
    rig.expect_whole();
    rig.stop();
}

#[test]
fn the_flags_that_md_gave_a_member_are_kept_over_writes_starts_and_a_return() {
    for version in VERSIONS {
        let options = format!("-l 1 -e {version} --bitmap=internal --assume-clean");
        let mut rig = Rig::new(&options, 2, 0);
        rig.scratch.stop_when_left("case");
        let mut marked = Raw::read(&rig.members[1]);
        assert_eq!(marked.u32(DEVICE_FLAGS) & 0xff, 0, "create gives no flags");
        marked.set(DEVICE_FLAGS, &[WRITE_MOSTLY_AND_FAILFAST]);
        marked.write();
        let expect_flags = |rig: &Rig, when: &str| {
            let flags = [0, 1].map(|at| Raw::read(&rig.members[at]).u32(DEVICE_FLAGS) as u8);
            assert_eq!(flags, [0, WRITE_MOSTLY_AND_FAILFAST], "{}, {when}", rig.what);
            let text = rig.done(&format!("examine {}", rig.path(1)));
            assert!(text.contains("write-mostly") && text.contains("failfast"), "{text}");
        };
        rig.served = rig.scratch.ready(&[], &rig.members);
        rig.write(0, &pattern(15, MIB as usize));
        rig.restart(&[], &[0, 1]);
        expect_flags(&rig, "after a write and a start");
        rig.change("fail", &[1]).expect_done();
        rig.change("remove", &[1]).expect_done();
        rig.write(0, &pattern(16, 4096));
        rig.change("re-add", &[1]).expect_done();
        rig.expect_whole();
        rig.restart(&[], &[0, 1]);
        expect_flags(&rig, "after a return");
        rig.change("fail", &[0]).expect_done();
        rig.expect_data("from that member");
        rig.stop();
    }
}
