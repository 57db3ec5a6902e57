//! Arrays whose member md was rebuilding or replacing, on the real binary: both go on, and none is given up without
//! --run.
//! Owns: serve, detail, wait and examine of such arrays. Not here: spares that take a slot while uraid serves
//! (`spares`), the decision (`engine::assemble`), md itself (`xtask vm`).

use crate::common::stubborn::StubbornFile;
use crate::common::superblock::{BAD_BLOCK_SECTORS, BAD_BLOCK_SHIFT, DATA_OFFSET, Raw, SIZE, write_at};
use crate::common::{MIB, Scratch, Served, pattern, side_by_side, wait};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

const RECOVERY_OFFSET: u32 = 1 << 1;
const REPLACEMENT: u32 = 1 << 4;
const RECOVERY_OFFSET_FIELD: usize = 152;
const REBUILT: u64 = 2048;
/// With members of 16 MiB, this many milliseconds for each 64 KiB are at least ten seconds.
const SLOW: Duration = Duration::from_millis(50);
const LEVELS: [(&str, usize); 5] = [("1", 3), ("10", 4), ("4", 3), ("5", 4), ("6", 4)];

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Changes the superblock 1.2 of a member, whose checksum is then right again.
fn edit(member: &Path, change: impl Fn(&mut [u8])) {
    let file = OpenOptions::new().read(true).write(true).open(member).expect("a member");
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 4096).expect("a superblock");
    change(&mut block);
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
    let covered = 256 + 2 * word(220) as usize;
    let sum: u64 = (0..covered).step_by(4).filter(|at| *at != 216).map(|at| u64::from(word(at))).sum();
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    block[216..220].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&block, 4096).expect("our file");
}

/// What md's superblock says of a member that it is rebuilding: in its slot, whole up to a sector.
fn mark_rebuilding(member: &Path, more_features: u32) {
    edit(member, |block| {
        block[8..12].copy_from_slice(&(RECOVERY_OFFSET | more_features).to_le_bytes());
        block[152..160].copy_from_slice(&REBUILT.to_le_bytes());
    });
}

fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("a member")).collect()
}

/// A full array whose last member is being rebuilt, and what it holds. The member has garbage where it is not rebuilt.
fn rebuilding(scratch: &Scratch, level: &str, count: usize) -> (Vec<PathBuf>, Vec<u8>) {
    let members = scratch.members(&format!("m{level}-"), count, 16 * MIB);
    scratch.create("half", &format!("-l {level} -n {count} --assume-clean"), &members);
    let served = scratch.ready(&[], &members);
    let data = pattern(41, served.client().size as usize);
    served.write_all(0, &data);
    assert_eq!(served.stop().code, Some(0));
    let last = &members[count - 1];
    let superblock = Raw::read(last);
    let (data_offset, size) = (superblock.u64(DATA_OFFSET), superblock.u64(SIZE));
    assert!(size > 2 * REBUILT);
    write_at(last, (data_offset + REBUILT) * 512, &pattern(43, (size - REBUILT) as usize * 512));
    mark_rebuilding(last, 0);
    (members, data)
}

/// How far the member is rebuilt by its own superblock.
fn rebuilt(member: &Path) -> u64 {
    Raw::read(member).u64(RECOVERY_OFFSET_FIELD)
}

fn detail(scratch: &Scratch) -> String {
    scratch.uraid(["detail", "half"]).expect_done().stdout
}

fn recovery(scratch: &Scratch) -> Value {
    let shown = scratch.uraid(["detail", "--json", "half"]).expect_done().stdout;
    let report: Value = serde_json::from_str(&shown).expect("JSON");
    report["recovery"].clone()
}

/// Every part of the array that a client has written is read back.
#[track_caller]
fn expect_bytes(served: &Served, data: &[u8]) {
    assert_eq!(served.first_difference(data), None, "{}", served.stderr());
}

/// The array is served from the last member and as few others as the level allows.
fn expect_recovered(scratch: &Scratch, level: &str, members: &[PathBuf], data: &[u8]) {
    let others = members.len() - 1;
    let lost: Vec<Vec<usize>> = match level {
        "1" => vec![(0..others).collect()],
        "6" => (0..others).map(|kept| (0..others).filter(|at| *at != kept).collect()).collect(),
        "10" => vec![vec![0, 2], vec![1, 2]],
        _ => (0..others).map(|at| vec![at]).collect(),
    };
    for lost in lost {
        let left = members.iter().enumerate().filter(|(at, _)| !lost.contains(at));
        let left: Vec<PathBuf> = left.map(|(_, path)| path.clone()).collect();
        let served = scratch.ready(&["--read-only", "--run"], &left);
        expect_bytes(&served, data);
        assert_eq!(served.stop().code, Some(0), "raid{level} without {lost:?}");
    }
}

#[test]
fn an_array_whose_member_is_being_rebuilt_takes_writes_at_once_and_the_member_is_recovered() {
    side_by_side(LEVELS, |(level, count)| {
        let scratch = Scratch::new();
        let (mut members, mut data) = rebuilding(&scratch, level, count);
        let (last, plain) = (count - 1, members.clone());
        let slow = StubbornFile::in_place_of(&mut members, last);
        slow.slow_writes(SLOW);
        let served = scratch.ready(&[], &members);
        served.wait_for(&format!("half: raid{level} starts degraded, {last} of {count} slots, without slot {last}\n"));
        served.wait_for(&format!("half: {} (slot {last}) holds 2048 of ", text(&members[last])));
        let mut client = served.client();
        assert!(!client.is_read_only, "raid{level}");
        let part = pattern(44, 300 * 512);
        for at in [0, data.len() / 2, data.len() - part.len()] {
            assert_eq!(client.write(at as u64, &part).expect("connected"), 0, "raid{level}");
            data[at..at + part.len()].copy_from_slice(&part);
        }
        let picture = format!("[{count}/{last}] [{}_]", "U".repeat(last));
        let state = format!("Slots : {picture}\n");
        wait(|| detail(&scratch).contains(&state)).unwrap_or_else(|()| panic!("{state}{}", detail(&scratch)));
        let shown = detail(&scratch);
        let row =
            format!("       {last}       0        0        {last}      spare rebuilding   {}", text(&members[last]));
        assert!(shown.contains(&row) && shown.contains("    Rebuild Status : "), "raid{level}: {row}\n{shown}");
        let shown = scratch.uraid(["mdstat"]).expect_done().stdout;
        assert!(shown.contains("]  recovery = ") && shown.contains(&picture), "raid{level}: {shown}");
        expect_bytes(&served, &data);
        slow.slow_writes(Duration::ZERO);
        served.wait_for("half: recovery done: ");
        let full = "U".repeat(count);
        served.wait_for(&format!("half: member {} (slot {last}) is recovered [{full}]\n", text(&members[last])));
        let shown = detail(&scratch);
        assert!(shown.contains(&format!(" [{count}/{count}] [{full}]\n")), "raid{level}: {shown}");
        assert!(!shown.contains("rebuilding") && !shown.contains("Rebuild Status"), "raid{level}: {shown}");
        assert_eq!(served.stop().code, Some(0), "raid{level}");
        drop(slow);
        assert_eq!(Raw::read(&plain[last]).u32(8) & RECOVERY_OFFSET, 0, "raid{level}: it is a full member");
        expect_recovered(&scratch, level, &plain, &data);
    });
}

#[test]
fn a_stop_ends_no_recovery_and_the_next_start_continues_where_it_was() {
    let scratch = Scratch::new();
    let (mut members, data) = rebuilding(&scratch, "5", 4);
    let (plain, size) = (members.clone(), Raw::read(&members[3]).u64(SIZE));
    let slow = StubbornFile::in_place_of(&mut members, 3);
    slow.slow_writes(SLOW);
    let served = scratch.ready(&[], &members);
    wait(|| recovery(&scratch)["done"].as_u64() > Some(3 * REBUILT)).expect("it moves");
    let done = served.stop();
    assert_eq!(done.code, Some(0), "{done:?}");
    done.expect_said(&["half: stopped with ", " of its recovery left; the next start continues it"]);
    let reached = rebuilt(&plain[3]);
    assert!(reached > 2 * REBUILT && reached < size, "{reached} of {size}");

    // A crash of an idle array loses no more than what was done since the last sixteenth.
    let served = scratch.ready(&[], &members);
    served.wait_for(&format!(" (slot 3) holds {reached} of {size} sectors: its recovery continues\n"));
    wait(|| rebuilt(&plain[3]) > reached).expect("the superblocks follow");
    served.kill_unawaited();
    drop(served);
    let reached = rebuilt(&plain[3]);
    assert!(reached < size, "{reached} of {size}");
    let served = scratch.ready(&[], &members);
    served.wait_for(&format!(" (slot 3) holds {reached} of {size} sectors: its recovery continues\n"));
    slow.slow_writes(Duration::ZERO);
    served.wait_for("half: recovery done: ");
    assert_eq!(served.stop().code, Some(0));
    drop(slow);
    expect_recovered(&scratch, "5", &plain, &data);
}

#[test]
fn after_kill_9_a_mirror_is_resynced_and_then_its_member_recovered() {
    let scratch = Scratch::new();
    let (mut members, mut data) = rebuilding(&scratch, "1", 3);
    let plain = members.clone();
    let slow = StubbornFile::in_place_of(&mut members, 2);
    slow.slow_writes(SLOW);
    let served = scratch.ready(&[], &members);
    let part = pattern(45, 300 * 512);
    assert_eq!(served.client().write(0, &part).expect("connected"), 0);
    data[..part.len()].copy_from_slice(&part);
    served.kill_unawaited();
    drop(served);
    slow.slow_writes(Duration::ZERO);
    let served = scratch.ready(&[], &members);
    served.wait_for("half: resync done: ");
    // In what a kill leaves, a member of a mirror that recovers is a spare.
    served.wait_for("half: the spare ");
    served.wait_for("is recovered [UUU]");
    assert_eq!(served.stop().code, Some(0));
    drop(slow);
    expect_recovered(&scratch, "1", &plain, &data);
}

#[test]
fn wait_returns_when_the_recovery_has_ended() {
    let scratch = Scratch::new();
    let mut members = rebuilding(&scratch, "5", 4).0;
    let slow = StubbornFile::in_place_of(&mut members, 3);
    slow.slow_writes(SLOW);
    let served = scratch.ready(&[], &members);
    wait(|| recovery(&scratch)["done"].is_u64()).expect("it runs");
    let mut command = scratch.command(["wait", "half"]);
    let mut waiter = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
    std::thread::sleep(Duration::from_millis(500));
    assert!(matches!(waiter.try_wait(), Ok(None)), "the recovery has not ended");
    slow.slow_writes(Duration::ZERO);
    let output = waiter.wait_with_output().expect("it is ours");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
    assert!(detail(&scratch).contains(" [4/4] [UUUU]\n"), "{}", detail(&scratch));
    scratch.uraid(["wait", "half"]).expect_refused(&["nothing to wait for: no resync, recovery, check or repair runs"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn read_only_changes_no_byte_of_a_member_that_is_being_rebuilt() {
    let scratch = Scratch::new();
    let (members, data) = rebuilding(&scratch, "5", 4);
    let before = contents(&members);
    let served = scratch.ready(&["--read-only"], &members);
    expect_bytes(&served, &data);
    let shown = detail(&scratch);
    assert!(shown.contains("State : readonly, degraded \n") && shown.contains("Slots : [4/3] [UUU_]\n"), "{shown}");
    assert!(shown.contains("spare rebuilding"), "{shown}");
    assert_eq!(served.stop().code, Some(0));
    assert!(contents(&members) == before, "a member was written");
}

#[test]
fn a_member_that_cannot_be_recovered_whole_is_written_and_not_read() {
    let scratch = Scratch::new();
    let (mut members, data) = rebuilding(&scratch, "5", 4);
    let plain = members.clone();
    // Half-way of the first member.
    let bad = Raw::read(&members[0]).u64(DATA_OFFSET) + 3 * REBUILT;
    members[0] = PathBuf::from(format!("bad:{bad}+8:{}", text(&members[0])));
    // The new member has no log that could list them.
    let mut raw = Raw::read(&members[3]);
    raw.set(BAD_BLOCK_SECTORS, &[0; 2]);
    raw.write();
    let served = scratch.ready(&[], &members);
    served.wait_for("half: recovery done: ");
    served.wait_for("4.00 KiB unreadable: the new member gets all writes, but is not used for reads, so the array ");
    assert!(detail(&scratch).contains("spare rebuilding"), "{}", detail(&scratch));
    scratch.uraid(["wait", "half"]).expect_refused(&["nothing to wait for: no resync, recovery, check or repair runs"]);
    let part = pattern(46, 4096);
    assert_eq!(served.client().write(0, &part).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    // With all sectors again, the next start recovers it.
    let served = scratch.ready(&[], &plain);
    served.wait_for("half: recovery done: ");
    served.wait_for("(slot 3) is recovered [UUUU]\n");
    assert_eq!(served.stop().code, Some(0));
    let mut data = data;
    data[..4096].copy_from_slice(&part);
    expect_recovered(&scratch, "5", &plain, &data);
}

#[test]
fn sectors_that_no_member_can_give_cost_these_sectors_and_not_the_recovery() {
    let scratch = Scratch::new();
    let (mut members, data) = rebuilding(&scratch, "5", 4);
    let plain = members.clone();
    let bad = Raw::read(&members[0]).u64(DATA_OFFSET) + 3 * REBUILT;
    members[0] = PathBuf::from(format!("bad:{bad}+8:{}", text(&members[0])));
    let served = scratch.ready(&[], &members);
    served.wait_for("half: recovery done: ");
    served.wait_for("4.00 KiB that no member could give: the new member's bad-block list names them");
    served.wait_for("(slot 3) is recovered [UUUU]\n");
    assert_eq!(served.stop().code, Some(0));
    // With all sectors of the first member again, no sector of the array is lost, and a repair gives the new one its own.
    let served = scratch.ready(&[], &plain);
    scratch.uraid(["repair", "--wait", "half"]);
    served.wait_for("holds all sectors again that its bad-block list named");
    assert_eq!(served.stop().code, Some(0));
    expect_recovered(&scratch, "5", &plain, &data);
}

/// An array whose member in slot 1 md was copying to a third device.
fn replacing(scratch: &Scratch) -> Vec<PathBuf> {
    let members = scratch.members("m", 3, 4 * MIB);
    scratch.create("half", "-l 1 -n 2 -x 1 --assume-clean", &members);
    for member in &members {
        // The third device is a second one of slot 1.
        edit(member, |block| block[260..262].copy_from_slice(&1u16.to_le_bytes()));
    }
    mark_rebuilding(&members[2], REPLACEMENT);
    members
}

#[test]
fn a_replacement_that_md_began_goes_on() {
    let scratch = Scratch::new();
    let members = replacing(&scratch);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
    served.wait_for("(slot 1) was replaced, and may be removed [UU]");
    assert_eq!(served.stop().code, Some(0));
    let kept = [members[0].clone(), members[2].clone()];
    let served = scratch.ready(&[], &kept);
    served.wait_for("raid1 is started, 2 of 2 slots [UU]");
    scratch.uraid(["fail", "half", &text(&members[0])]).expect_done();
    assert_eq!(served.client().read(0, 512).expect("connected"), Ok(vec![1; 512]));
    assert_eq!(served.stop().code, Some(0));
    scratch.serve(&[], &members[..2]).end().expect_refused(&["--run"]);
}

#[test]
fn a_replacement_that_is_not_given_is_given_up_only_with_run() {
    let scratch = Scratch::new();
    let members = replacing(&scratch);
    let before = contents(&members);
    scratch.serve(&[], &members[..2]).end().expect_refused(&["found 2 members, the superblocks count 3", "--run"]);
    assert!(contents(&members) == before, "a member was written");
    let served = scratch.ready(&["--run"], &members[..2]);
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
}

/// A member in sync, and another one that was being rebuilt for the same slot.
#[test]
fn a_second_member_of_a_slot_that_replaces_none_is_not_given_up_without_run() {
    let scratch = Scratch::new();
    let members = replacing(&scratch);
    mark_rebuilding(&members[2], 0);
    let before = contents(&members);
    let served = scratch.ready(&[], &members);
    served.wait_for("opened read-only: a slot has a member in sync and another one that was being rebuilt for it");
    assert!(served.client().is_read_only, "clients are told before they try");
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 1, "EPERM");
    // It cannot be given up by a command either.
    scratch.uraid(["fail", "half", &text(&members[2])]).expect_refused(&[]);
    assert_eq!(served.stop().code, Some(0));
    assert!(contents(&members) == before, "a member was written");
    let served = scratch.ready(&["--run"], &members);
    assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn detail_and_examine_show_a_member_that_is_being_rebuilt() {
    let scratch = Scratch::new();
    let (members, _) = rebuilding(&scratch, "5", 4);
    let words = || ["detail".to_owned()].into_iter().chain(members.iter().map(|path| text(path)));
    let shown = scratch.uraid(words()).expect_done().stdout;
    assert!(
        shown.contains("State : clean, degraded, Not Started \n") && shown.contains("Slots : [4/3] [UUU_]\n"),
        "{shown}"
    );
    let row = format!("       3       0        0        3      spare rebuilding   {}", text(&members[3]));
    assert!(shown.contains(&row) && !shown.contains("Read-Only :"), "{shown}");
    let shown = scratch.uraid(words().chain(["--json".to_owned()])).expect_done().stdout;
    let json: Value = serde_json::from_str(&shown).expect("JSON");
    assert!(json["read_only"].is_null() && json["left_out"].as_array().is_some_and(Vec::is_empty), "{json}");
    let shown = scratch.uraid(["examine", &text(&members[3])]).expect_done().stdout;
    assert!(shown.contains("Recovery Offset : 2048 sectors"), "{shown}");
}

#[test]
fn an_array_over_one_that_opens_read_only_is_only_read_and_gives_up_no_member() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 2, 6 * MIB), scratch.members("r", 2, 6 * MIB));
    scratch.create("left", "-l 1 -n 2 --assume-clean", &left);
    scratch.create("right", "-l 1 -n 2 --assume-clean", &right);
    let groups = || {
        let members = |group: &[PathBuf]| group.iter().map(|path| text(path)).collect::<Vec<_>>();
        [vec!["--array".to_owned()], members(&left), vec!["--array".to_owned()], members(&right)].concat()
    };
    let words = ["create", "--homehost", "none", "--name", "over", "-l", "1", "-n", "2", "--assume-clean"];
    scratch.uraid(words.map(str::to_owned).into_iter().chain(groups())).expect_done();
    let mut raw = Raw::read(&left[1]);
    // A list in blocks of eight sectors is only read.
    raw.set(BAD_BLOCK_SHIFT, &[3]);
    raw.list_bad(&[(1024, 8)]);
    let all = [&left[..], &right[..]].concat();
    let before = contents(&all);
    let options: Vec<String> = groups();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let served = scratch.ready(&options, &[]);
    served.wait_for("left: opened read-only: ");
    served.wait_for("over: opened read-only: a member is an array that opens read-only itself");
    let mut client = served.client_of("over");
    assert_eq!(client.write(0, &[1; 512]).expect("connected"), 1, "EPERM");
    assert!(client.read(0, 65536).expect("connected").is_ok());
    assert_eq!(served.stop().code, Some(0));
    assert!(contents(&all) == before, "a member was written");
}

fn events(scratch: &Scratch, member: &Path) -> u64 {
    let shown = scratch.uraid(["examine", "--json", &text(member)]).expect_done().stdout;
    let json: Value = serde_json::from_str(&shown).expect("JSON");
    json["events"].as_u64().or_else(|| json[0]["events"].as_u64()).expect("a number")
}

/// With --force, mdadm accepts a member that is one event behind.
#[test]
fn a_member_that_is_left_out_is_two_events_behind_before_the_first_write_is_answered() {
    let scratch = Scratch::new();
    let replacing = scratch.members("replacing", 3, 4 * MIB);
    scratch.create("replacing", "-l 1 -n 2 -x 1 --assume-clean", &replacing);
    for member in &replacing {
        edit(member, |block| block[260..262].copy_from_slice(&1u16.to_le_bytes()));
    }
    // Beside a member in sync it is left out.
    mark_rebuilding(&replacing[2], 0);
    // md's events can step back, so that a member which failed right before has as many as the others.
    let failed = scratch.members("failed", 3, 4 * MIB);
    scratch.create("failed", "-l 1 -n 3 --assume-clean", &failed);
    for member in &failed[..2] {
        edit(member, |block| block[260..262].copy_from_slice(&0xfffe_u16.to_le_bytes()));
    }
    for (options, members) in [(&["--run"][..], replacing), (&[], failed)] {
        let (first, left_out) = (&members[0], members.last().expect("it has members"));
        assert_eq!(events(&scratch, first), events(&scratch, left_out));
        let served = scratch.ready(options, &members);
        assert_eq!(served.client().write(0, &[1; 512]).expect("connected"), 0);
        served.kill_unawaited();
        drop(served);
        let ahead = events(&scratch, first) - events(&scratch, left_out);
        assert!(ahead >= 2, "{}: {ahead}", first.display());
    }
}
