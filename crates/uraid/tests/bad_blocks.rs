//! Members with a list of bad blocks: what the list names is never read from that member, under any option.
//! Owns: this promise on the real binary, for every level. Not here: the bytes of a list (`format`), sectors that fail
//! when they are read (`rescue`).

use crate::common::superblock::{BAD_BLOCK_OFFSET, BAD_BLOCK_SECTORS, BAD_BLOCK_SHIFT, EVENTS, Raw};
use crate::common::{Done, MIB, Scratch, pattern};
use std::fs;
use std::path::{Path, PathBuf};

/// Damages the list of a member.
type Spoil = fn(&Path);

/// Sectors of a member's data: the first one and how many.
type Listed = &'static [(u64, u64)];

/// A stopped array full of data. The sectors that a member lists have wrong bytes there, so that a read of them is
/// noticed.
struct Array {
    scratch: Scratch,
    members: Vec<PathBuf>,
    bytes: Vec<u8>,
}

impl Array {
    fn new(options: &str, lists: &[Listed]) -> Array {
        let array = Array::filled(options, lists.len());
        array.list(lists);
        array
    }

    fn filled(options: &str, members: usize) -> Array {
        let scratch = Scratch::new();
        let members = scratch.members("m", members, 8 * MIB);
        scratch.create("listed", options, &members);
        let served = scratch.ready(&[], &members);
        let bytes = pattern(3, served.client().size as usize);
        served.write_all(0, &bytes);
        served.stop().expect_done();
        Array { scratch, members, bytes }
    }

    fn list(&self, lists: &[Listed]) {
        for (member, listed) in self.members.iter().zip(lists).filter(|(_, listed)| !listed.is_empty()) {
            let mut raw = Raw::read(member);
            raw.list_bad(listed);
            raw.spoil(listed);
        }
    }

    fn out(&self) -> PathBuf {
        self.scratch.path("out")
    }

    /// `uraid copy OPTIONS MEMBERS OUT`
    fn copy(&self, options: &[&str], members: &[PathBuf]) -> Done {
        let _ = fs::remove_file(self.out());
        let _ = fs::remove_file(self.scratch.path("out.map"));
        let words = ["copy"].iter().chain(options).map(PathBuf::from);
        self.scratch.uraid(words.chain(members.iter().cloned()).chain([self.out()]))
    }

    /// Copies with each of these options and expects all sectors except `lost`: ranges of array sectors.
    #[track_caller]
    fn expect_copied(&self, lost: &[(u64, u64)]) {
        for options in [&[][..], &["--run"], &["--force"]] {
            let done = self.copy(options, &self.members);
            if lost.is_empty() {
                done.expect_done();
            } else {
                let count: u64 = lost.iter().map(|(start, end)| end - start).sum();
                done.expect_refused(&[&format!("{count} sectors could not be read")]);
            }
            let mut expected = self.bytes.clone();
            for (start, end) in lost {
                expected[*start as usize * 512..*end as usize * 512].fill(0);
            }
            let found = fs::read(self.out()).expect("a copy");
            let differs = found.chunks(512).zip(expected.chunks(512)).position(|(one, other)| one != other);
            assert_eq!((differs, found.len()), (None, expected.len()), "{options:?}");
            assert_eq!(self.lost_by_map(), lost, "{options:?}");
        }
    }

    /// What the map calls unreadable.
    fn lost_by_map(&self) -> Vec<(u64, u64)> {
        let map = fs::read_to_string(self.scratch.path("out.map")).expect("a map");
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number") / 512;
        let rows = map.lines().filter(|line| line.ends_with(" -"));
        let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
        words.map(|words| (number(words[0]), number(words[0]) + number(words[1]))).collect()
    }
}

/// Chunks of 64 KiB have 128 sectors.
const CHUNK: u64 = 128;

#[test]
fn members_with_lists_in_different_places_are_read_from_each_other() {
    // Inside a read, across the end of a chunk, at the start of the data, single sectors, two adjacent entries.
    let one: Listed = &[(0, 8), (100, 56), (1000, 1)];
    let other: Listed = &[(8, 16), (24, 8), (2047, 130), (5000, 1)];
    for options in [
        "-l 1 -n 2 --assume-clean",
        "-l 1 -n 2 -e 1.0 --assume-clean",
        "-l 10 -n 2 -c 64K -p n2 --assume-clean",
        "-l 10 -n 2 -c 64K -p n2 -e 1.1 --assume-clean",
    ] {
        Array::new(options, &[one, other]).expect_copied(&[]);
    }
    for options in ["-l 10 -n 4 -c 64K -p f2 --assume-clean", "-l 10 -n 4 -c 64K -p o2 --assume-clean"] {
        Array::new(options, &[one, &[], other, &[]]).expect_copied(&[]);
    }
}

#[test]
fn listed_sectors_of_parity_levels_are_computed_from_the_rest() {
    for options in [
        "-l 4 -n 4 -c 64K --assume-clean",
        "-l 5 -n 4 -c 64K --assume-clean",
        "-l 5 -n 4 -c 64K -e 1.0 --assume-clean",
        "-l 6 -n 4 -c 64K --assume-clean",
    ] {
        // Not two members of one row in one sector; in one row in different sectors, also over its end.
        Array::new(options, &[&[(0, 8), (1000, 30)], &[(8, 8)], &[(120, 16)], &[(300, 512)]]).expect_copied(&[]);
    }
    // Two members of one row in the same sectors, data and parity, and other ones of it by a third member.
    let two: Listed = &[(64, 256), (700, 1)];
    let array = Array::new("-l 6 -n 4 -c 64K --assume-clean", &[two, &[(10, 40)], two, &[(50, 14)]]);
    array.expect_copied(&[]);
}

#[test]
fn sectors_that_every_copy_lists_are_unreadable_and_the_map_says_which() {
    Array::new("-l 1 -n 2 --assume-clean", &[&[(40, 20)], &[(50, 20)]]).expect_copied(&[(50, 60)]);
    Array::new("-l 1 -n 3 --assume-clean", &[&[(8, 8)], &[(8, 8)], &[(15, 9)]]).expect_copied(&[(15, 16)]);
    Array::new("-l 0 -n 2 -c 64K", &[&[(3, 2)], &[(CHUNK, 1)]]).expect_copied(&[(3, 5), (3 * CHUNK, 3 * CHUNK + 1)]);
    Array::new("-l linear -n 2", &[&[(3, 2)], &[]]).expect_copied(&[(3, 5)]);
    // Row 0 of left-symmetric: data 0, 1, 2 on members 0, 1, 2.
    let both: &[Listed] = &[&[(4, 4)], &[(6, 4)], &[], &[]];
    Array::new("-l 5 -n 4 -c 64K --assume-clean", both).expect_copied(&[(6, 8), (CHUNK + 6, CHUNK + 8)]);
    // On raid6 the third one is too many. Row 0 of left-symmetric: data 0 and 1 on members 1 and 2.
    let three: &[Listed] = &[&[(5, 1)], &[(0, 6)], &[], &[(0, 9)]];
    Array::new("-l 6 -n 4 -c 64K --assume-clean", three).expect_copied(&[(5, 6)]);
}

#[test]
fn holes_of_members_that_list_them_are_not_taken_for_zeroes() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("hole", "-l 1 -n 2 --assume-clean", &members);
    for member in &members {
        Raw::read(member).list_bad(&[(4000, 8)]);
    }
    let array = Array { bytes: vec![0; 6 * MIB as usize], scratch, members };
    let done = array.copy(&[], &array.members);
    done.expect_refused(&["8 sectors could not be read"]);
    assert_eq!(array.lost_by_map(), [(4000, 4008)]);
}

#[test]
fn a_list_counts_in_blocks_of_its_shift_and_only_as_far_as_its_room_goes() {
    let array = Array::filled("-l 1 -n 2 --assume-clean", 2);
    for (member, listed) in array.members.iter().zip([&[(64, 24)], &[(80, 16)]]) {
        let mut raw = Raw::read(member);
        raw.set(BAD_BLOCK_SHIFT, &[3]);
        raw.list_bad(listed);
        raw.spoil(listed);
    }
    array.expect_copied(&[(80, 88)]);
    // One sector holds 64 entries; what follows is not part of the list.
    let array = Array::filled("-l 1 -n 2 --assume-clean", 2);
    let full: Vec<(u64, u64)> = (0..64).map(|at| (at * 16, 1)).collect();
    let mut raw = Raw::read(&array.members[0]);
    let data_offset = raw.u64(crate::common::superblock::DATA_OFFSET);
    raw.list_bad(&[full.clone(), vec![(9000, 8)]].concat());
    raw.set(BAD_BLOCK_SECTORS, &1u16.to_le_bytes());
    raw.write();
    raw.spoil(&full);
    // Both copies: were the 65th entry taken as one, these sectors would be lost.
    Raw::read(&array.members[1]).list_bad(&[(9000, 8)]);
    assert!(data_offset > 0);
    array.expect_copied(&[]);
}

#[test]
fn a_server_never_reads_what_a_member_lists() {
    for (options, flags) in
        [("-l 1 -n 2", &[][..]), ("-l 1 -n 2", &["--read-only"]), ("-l 5 -n 2 -c 64K", &["--force"])]
    {
        let array = Array::new(&format!("{options} --assume-clean"), &[&[(16, 16), (90, 2)], &[(32, 8)]]);
        let served = array.scratch.ready(flags, &array.members);
        let mut client = served.client();
        for (at, length) in [(0, 64 << 10), (17 * 512, 512), (31 * 512, 1024), (0, 4096), (16 * 512, 8192)] {
            let read = client.read(at, length).expect("served").expect("readable");
            assert!(read == array.bytes[at as usize..at as usize + length], "{options} {flags:?} {at} {length}");
        }
        drop(client);
        served.stop().expect_done();
    }
}

#[test]
fn a_list_in_other_units_than_sectors_is_read_and_the_array_takes_no_writes() {
    let array = Array::filled("-l 1 -n 2 --assume-clean", 2);
    let mut raw = Raw::read(&array.members[0]);
    raw.set(BAD_BLOCK_SHIFT, &[3]);
    raw.list_bad(&[(64, 8)]);
    raw.spoil(&[(64, 8)]);
    let served = array.scratch.ready(&[], &array.members);
    let said = format!("opened read-only: {} has a list of bad blocks in units", array.members[0].display());
    served.wait_for(&said);
    let mut client = served.client();
    assert!(client.is_read_only, "it is told so when it connects");
    assert!(client.read(64 * 512, 4096).expect("served").expect("readable") == array.bytes[64 * 512..72 * 512]);
    assert_ne!(client.write(0, &[1; 512]).expect("served"), 0);
    drop(client);
    served.stop().expect_done();
}

/// The ranges that `uraid examine` says a member's list has, from the start of its data.
fn listed(array: &Array, member: usize) -> Vec<(u64, u64)> {
    let words = ["examine", "--json"].map(PathBuf::from).into_iter().chain([array.members[member].clone()]);
    let shown = array.scratch.uraid(words).expect_done().stdout;
    let json: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let found = &json[0];
    let data = Raw::read(&array.members[member]).u64(crate::common::superblock::DATA_OFFSET);
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    let list = found["areas"]["bad_blocks"].as_array().cloned().unwrap_or_default();
    list.iter().map(|range| (number(&range["sector"]) - data, number(&range["sectors"]))).collect()
}

#[test]
fn sectors_that_are_written_again_leave_the_list_and_are_held_again() {
    for options in ["-l 1 -n 2", "-l 10 -n 2 -c 64K", "-l 5 -n 3 -c 64K", "-l 6 -n 4 -c 64K"] {
        let members = if options.starts_with("-l 5") { 3 } else { 2 + 2 * usize::from(options.starts_with("-l 6")) };
        let mut lists: Vec<Listed> = vec![&[]; members];
        lists[0] = &[(16, 16), (90, 2)];
        let mut array = Array::new(&format!("{options} --assume-clean"), &lists);
        let served = array.scratch.ready(&[], &array.members);
        let mut client = served.client();
        // All that its rows hold, so that each level writes these sectors.
        let new = pattern(9, 1 << 20);
        assert_eq!(client.write(0, &new).expect("served"), 0, "{options}");
        array.bytes[..1 << 20].copy_from_slice(&new);
        served.wait_for("holds all sectors again");
        drop(client);
        served.stop().expect_done();
        assert_eq!(listed(&array, 0), [], "{options}");
        // The member is needed now.
        let alone: Vec<PathBuf> = match options {
            "-l 1 -n 2" | "-l 10 -n 2 -c 64K" => array.members[..1].to_vec(),
            _ => array.members[..members - 1].to_vec(),
        };
        array.copy(&["--run"], &alone).expect_done();
        assert!(fs::read(array.out()).expect("a copy") == array.bytes, "{options}");
    }
}

#[test]
fn a_member_that_cannot_write_some_sectors_lists_them_and_stays() {
    let mut array = Array::filled("-l 1 -n 2 --assume-clean", 2);
    let data = Raw::read(&array.members[1]).u64(crate::common::superblock::DATA_OFFSET);
    // Its sectors 100 to 107 fail reads and writes.
    let failing = PathBuf::from(format!("bad:{}+8:{}", data + 100, array.members[1].display()));
    let given = [array.members[0].clone(), failing];
    let served = array.scratch.ready(&[], &given);
    let mut client = served.client();
    let new = pattern(9, 256 << 10);
    assert_eq!(client.write(0, &new).expect("served"), 0);
    array.bytes[..256 << 10].copy_from_slice(&new);
    served.wait_for("its bad-block list names");
    let read = client.read(0, 256 << 10).expect("served").expect("readable");
    assert!(read == array.bytes[..256 << 10]);
    let shown = array.scratch.uraid(["detail", "listed"].map(PathBuf::from)).expect_done().stdout;
    assert!(shown.contains("[2/2] [UU]") && shown.contains(": its bad-block list"), "{shown}");
    drop(client);
    served.stop().expect_done();
    // One failed request is listed as a whole.
    let found = listed(&array, 1);
    assert!(found.iter().any(|(start, length)| *start <= 100 && start + length >= 108), "{found:?}");
    // Without the failing device: what is listed comes from the other member, though this one could read it.
    array.expect_copied(&[]);
    let lost: u64 = found.iter().map(|(_, length)| length).sum();
    array.copy(&["--run"], &array.members[1..]).expect_refused(&[&format!("{lost} sectors could not be read")]);
    // A repair gives it its sectors.
    let served = array.scratch.ready(&[], &array.members);
    array.scratch.uraid(["repair", "listed"].map(PathBuf::from)).expect_done();
    served.wait_for("listed: repair complete");
    served.stop().expect_done();
    assert_eq!(listed(&array, 1), []);
    array.copy(&["--run"], &array.members[1..]).expect_done();
}

/// What mdadm's own test suite has as 05r1-add-badblocks.
#[test]
fn a_mirror_is_added_to_a_member_with_bad_blocks_and_lacks_no_more_than_that() {
    let mut array = Array::new("-l 1 -n 2 --assume-clean", &[&[(16, 16), (90, 2)], &[]]);
    array.members[1] = array.scratch.member("new", 8 * MIB);
    let served = array.scratch.ready(&["--run"], &array.members[..1]);
    array
        .scratch
        .uraid(["add", "listed"].map(PathBuf::from).into_iter().chain([array.members[1].clone()]))
        .expect_done();
    // It may be over already.
    array.scratch.uraid(["wait", "listed"].map(PathBuf::from));
    served.wait_for(" [UU]\n");
    let mut client = served.client();
    let read = client.read(32 * 512, 4096).expect("served").expect("readable");
    assert!(read == array.bytes[32 * 512..40 * 512]);
    assert!(client.read(16 * 512, 512).expect("served").is_err(), "no member has it");
    assert_eq!(listed(&array, 1), [(16, 16), (90, 2)]);
    // A write gives it to both.
    let new = pattern(9, 64 << 10);
    assert_eq!(client.write(0, &new).expect("served"), 0);
    array.bytes[..64 << 10].copy_from_slice(&new);
    drop(client);
    served.stop().expect_done();
    assert_eq!((listed(&array, 0), listed(&array, 1)), (vec![], vec![]));
    array.copy(&["--run"], &array.members[1..]).expect_done();
    assert!(fs::read(array.out()).expect("a copy") == array.bytes);
}

#[test]
fn lists_of_members_that_only_force_takes_and_of_degraded_arrays_count_too() {
    // Two of three: what one of them lists cannot be computed.
    let array = Array::new("-l 5 -n 3 -c 64K --assume-clean", &[&[(4, 4)], &[], &[]]);
    for options in [["--run"], ["--force"]] {
        array.copy(&options, &array.members[..2]).expect_refused(&["4 sectors could not be read"]);
        assert_eq!(array.lost_by_map(), [(4, 8)], "{options:?}");
    }
    // A member that missed changes, taken by force: stale, and with a list.
    let array = Array::new("-l 5 -n 3 -c 64K --assume-clean", &[&[(4, 4)], &[], &[]]);
    for fresh in &array.members[1..] {
        let mut raw = Raw::read(fresh);
        raw.set(EVENTS, &(raw.u64(EVENTS) + 5).to_le_bytes());
        raw.write();
    }
    let done = array.copy(&["--force"], &array.members[..2]);
    done.expect_refused(&["missed the last changes and is taken all the same", "4 sectors could not be read"]);
    assert_eq!(array.lost_by_map(), [(4, 8)]);
}

#[test]
fn an_array_as_a_member_keeps_its_list() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 1, 16 * MIB), scratch.members("r", 1, 16 * MIB));
    for (name, members) in [("left", &left), ("right", &right)] {
        scratch.create(name, "-l linear -n 1 --force", members);
    }
    let grouped = |verb: &str, options: &str, out: Option<PathBuf>| {
        let words = [verb].into_iter().chain(options.split_whitespace()).map(PathBuf::from);
        let group = |members: &[PathBuf]| [PathBuf::from("--array")].into_iter().chain(members.to_vec());
        scratch.uraid(words.chain(out).chain(group(&left)).chain(group(&right)))
    };
    grouped("create", "-l 1 -n 2 --assume-clean --homehost none -N outer", None).expect_done();
    // The outer superblock is in the data of the inner array, at the place of 1.2 there.
    let inner = Raw::read(&left[0]).u64(crate::common::superblock::DATA_OFFSET) * 512;
    for (member, listed) in [(&left[0], (100, 8)), (&right[0], (104, 8))] {
        let whole = fs::read(member).expect("a member");
        let carried = scratch.member("carried", 0);
        fs::write(&carried, &whole[inner as usize..]).expect("room");
        Raw::read(&carried).list_bad(&[listed]);
        crate::common::superblock::write_at(member, inner, &fs::read(&carried).expect("it was written"));
    }
    let out = scratch.path("out");
    let done = grouped("copy", "", Some(out));
    done.expect_refused(&["4 sectors could not be read"]);
}

#[test]
fn a_list_that_cannot_be_read_leaves_its_member_out() {
    let spoilt: [(&str, Spoil); 4] = [
        ("bad-block entry 0 has length 0", |member| {
            let mut raw = Raw::read(member);
            raw.list_bad(&[(8, 0)]);
        }),
        ("has a bad-block list of 9 sectors, expected at most 8", |member| {
            let mut raw = Raw::read(member);
            raw.set(BAD_BLOCK_SECTORS, &9u16.to_le_bytes());
            raw.list_bad(&[(8, 8)]);
        }),
        ("the superblock does not say where", |member| {
            let mut raw = Raw::read(member);
            raw.list_bad(&[(8, 8)]);
            raw.set(BAD_BLOCK_OFFSET, &[0; 4]);
            raw.write();
        }),
        ("reading the bad-block list failed", |member| {
            let mut raw = Raw::read(member);
            raw.list_bad(&[(8, 8)]);
            raw.set(BAD_BLOCK_OFFSET, &(1u32 << 30).to_le_bytes());
            raw.write();
        }),
    ];
    for (said, spoil) in spoilt {
        let array = Array::filled("-l 1 -n 2 --assume-clean", 2);
        spoil(&array.members[0]);
        array.copy(&[], &array.members).expect_refused(&["m0", said, "--run"]);
        array.copy(&["--run"], &array.members).expect_done();
        assert!(fs::read(array.out()).expect("a copy") == array.bytes, "{said}");
        array.copy(&["--force"], &array.members[..1]).expect_refused(&[said]);
        let words = ["detail"].map(PathBuf::from).into_iter().chain(array.members.iter().cloned());
        let done = array.scratch.uraid(words).expect_done().expect_said(&[said]);
        assert!(done.stdout.contains("[2/1] [_U]"), "{}", done.stdout);
    }
}

#[test]
fn detail_shows_members_with_lists_in_their_slots_and_that_the_array_opens_read_only() {
    let array = Array::new("-l 1 -n 2 --assume-clean", &[&[(8, 8)], &[]]);
    let words = ["detail"].map(PathBuf::from).into_iter().chain(array.members.iter().cloned());
    let shown = array.scratch.uraid(words).expect_done().stdout;
    assert!(shown.contains("State : clean, Not Started \n"), "{shown}");
    assert!(!shown.contains("Left Out"), "{shown}");
}

/// ```text
///   raid1   m0 is set faulty          m1 lists 8 sectors: nobody has them now
/// ```
#[test]
fn a_start_names_the_sectors_that_no_member_has_before_it_serves() {
    let said = |options: &str, lists: &[Listed], without: Option<usize>| {
        let mut array = Array::filled(options, lists.len());
        array.list(lists);
        if let Some(without) = without {
            array.members.remove(without);
        }
        let served = array.scratch.ready(&["--run"], &array.members);
        let said = served.stderr();
        served.stop();
        // Before the line that says that it is started.
        let before = said.split(" is started").next().expect("a line").to_owned();
        before.lines().find(|line| line.contains("no member is left that has ")).map(str::to_owned)
    };
    let list: Listed = &[(1000, 8), (2000, 1)];
    let line = said("-l 1 -n 2 --assume-clean", &[&[], list], Some(0)).expect("a line");
    assert!(
        line.contains("listed: no member is left that has 9 sectors of the array (1000 to 1007, 2000): "),
        "{line}"
    );
    assert_eq!(said("-l 1 -n 2 --assume-clean", &[&[], list], Some(1)), None);
    assert_eq!(said("-l 1 -n 2 --assume-clean", &[&[], list], None), None);
    // All are there, and none has it.
    let line = said("-l 1 -n 2 --assume-clean", &[&[(1004, 8)], list], None).expect("a line");
    assert!(line.contains(" 4 sectors of the array (1004 to 1007): "), "{line}");
    let options = "-l 5 -n 3 -c 64K --assume-clean";
    let line = said(options, &[&[], list, &[]], Some(0)).expect("a line");
    assert!(line.contains(" of the array ("), "{line}");
    assert_eq!(said("-l 6 -n 4 -c 64K --assume-clean", &[&[], list, &[], &[]], Some(0)), None);
}

#[test]
fn a_fail_that_leaves_sectors_without_a_copy_says_so() {
    for (options, members, failed, sectors) in [
        ("-l 1 -n 2 --assume-clean", 2, "0", Some(8)),
        ("-l 1 -n 3 --assume-clean", 3, "0", None),
        ("-l 10 -n 4 -c 64K -p n2 --assume-clean", 4, "0", Some(8)),
        ("-l 10 -n 4 -c 64K -p n2 --assume-clean", 4, "2", None),
        ("-l 5 -n 3 -c 64K --assume-clean", 3, "0", Some(8)),
        ("-l 6 -n 4 -c 64K --assume-clean", 4, "0", None),
    ] {
        let mut lists: Vec<Listed> = vec![&[]; members];
        lists[1] = &[(1000, 8)];
        let array = Array::filled(options, members);
        array.list(&lists);
        let served = array.scratch.ready(&[], &array.members);
        let done = array.scratch.uraid(["fail", "listed", failed]);
        let says = done.stderr.contains("no member is left that has ");
        assert_eq!((done.code, says), (Some(0), sectors.is_some()), "{options}: {done:?}");
        if let Some(sectors) = sectors {
            assert!(
                done.stderr.contains(&format!("listed: no member is left that has {sectors} sectors: ")),
                "{done:?}"
            );
        }
        served.stop();
    }
}
