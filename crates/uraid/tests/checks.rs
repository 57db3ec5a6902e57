//! Checks and repairs by command, on the real binary.
//! Owns: what is printed of a spoiled member, exit codes, refusals, freezing, speed, mdadm's spelling. Not here: which block is
//! wrong (`engine`), checks beside clients and crashes (`sim`).

use crate::common::superblock::{DATA_OFFSET, Raw};
use crate::common::{MIB, Scratch, Served, pattern, wait};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A running array `home` that is full of data.
struct Rig {
    served: Served,
    members: Vec<PathBuf>,
    scratch: Scratch,
}

impl Rig {
    fn new(level: &str, slots: usize) -> Rig {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots, 8 * MIB);
        let clean = if level == "0" { "" } else { " --assume-clean" };
        scratch.create("home", &format!("-l {level} -n {slots}{clean}"), &members);
        let served = scratch.ready(&[], &members);
        let size = served.client().size as usize;
        served.write_all(0, &pattern(7, size));
        Rig { served, members, scratch }
    }

    fn uraid(&self, line: &str) -> crate::common::Done {
        self.scratch.uraid(line.split(' '))
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.uraid(line).stdout).expect("JSON")
    }

    /// Changes a byte of this sector of a member's data, behind the server's back.
    fn spoil(&self, member: usize, sector: u64) {
        let (path, at) = (&self.members[member], self.place(member, sector));
        let file = File::options().read(true).write(true).open(path).expect("a member");
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        file.write_all_at(&[byte[0] ^ 0x5a], at).expect("a byte");
        file.sync_all().expect("written");
    }

    fn place(&self, member: usize, sector: u64) -> u64 {
        (Raw::read(&self.members[member]).u64(DATA_OFFSET) + sector) * 512 + 77
    }

    fn byte(&self, member: usize, sector: u64) -> u8 {
        let mut byte = [0];
        let file = File::open(&self.members[member]).expect("a member");
        file.read_exact_at(&mut byte, self.place(member, sector)).expect("a byte");
        byte[0]
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_spoiled_member_of_a_raid6_is_found_named_and_mended() {
    let rig = Rig::new("6", 4);
    let agrees = rig.uraid("check --wait home").expect_done().stdout;
    assert_eq!(agrees, "home: check complete: 0 sectors disagree\n");
    // The first chunks of a left-symmetric raid6 of four: data on slots 1 and 2.
    let good = rig.byte(1, 5);
    rig.spoil(1, 5);
    let checked = rig.uraid("check --wait home");
    let found = format!("array sector 5+1: {} (slot 1) is wrong, at member sector 5+1", text(&rig.members[1]));
    assert_eq!(checked.code, Some(3), "{checked:?}");
    assert_eq!(checked.stdout, format!("home: check complete: 1 sector disagrees\n  {found}\n"));
    assert_eq!(rig.uraid("detail --mismatches home").expect_done().stdout, checked.stdout);
    let shown = rig.uraid("detail home").expect_done().stdout;
    assert!(shown.contains("Mismatches : 1 sector, 0 corrected (check complete)\n"), "{shown}");
    assert_ne!(rig.byte(1, 5), good, "a check changes nothing");
    let repaired = rig.uraid("repair --wait home").expect_done().stdout;
    assert_eq!(
        repaired,
        format!("home: repair complete: 1 sector disagrees, 1 sector of members corrected\n  {found}; corrected\n")
    );
    assert_eq!(rig.byte(1, 5), good);
    let json = rig.json("check --wait --json home");
    assert_eq!((&json["mismatched"], &json["end"], &json["kind"]), (&0.into(), &"complete".into(), &"check".into()));
    rig.served.wait_for("home: repair complete: 1 sector disagrees, 1 corrected");
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn two_copies_that_differ_are_found_and_the_first_counts() {
    let rig = Rig::new("1", 2);
    rig.spoil(0, 3000);
    let json = rig.json("check --wait --json home");
    let found = &json["mismatches"][0];
    assert_eq!(
        (&found["sector"], &found["known"], &found["slots"][0]),
        (&3000.into(), &false.into(), &1.into()),
        "{json}"
    );
    let repaired = rig.uraid("repair --wait home").expect_done().stdout;
    let found = format!("{} (slot 1) differs from the first copy, either may be wrong", text(&rig.members[1]));
    assert!(repaired.contains(&found) && repaired.contains("; made equal to the first copy"), "{repaired}");
    assert_eq!(rig.byte(0, 3000), rig.byte(1, 3000));
    assert_eq!(rig.served.stop().code, Some(0));
}

/// 16 sectors of one member can be neither read nor written.
#[test]
fn sectors_that_a_member_lacks_are_counted() {
    for (level, count) in [("1", 2), ("5", 3), ("6", 4)] {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", count, 32 * MIB);
        scratch.create("home", &format!("-l {level} -n {count} --assume-clean"), &members);
        members[1] = PathBuf::from(format!("bad:20000+16:{}", text(&members[1])));
        let served = scratch.ready(&[], &members);
        for verb in ["check", "repair"] {
            let done = scratch.uraid([verb, "--wait", "home"]);
            let expected = format!(
                "home: {verb} complete: 0 sectors disagree, 16 sectors that a member cannot read or take again\n"
            );
            assert_eq!((done.code, done.stdout), (Some(3), expected), "raid{level}");
        }
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_check_can_be_slowed_paused_and_ended_and_a_second_one_is_refused() {
    let rig = Rig::new("5", 3);
    assert_eq!(
        rig.uraid("speed home").expect_done().stdout,
        "home: minimum 1000 KiB/s (default), maximum none, of each member; beside clients 15 % (default)\n"
    );
    rig.uraid("speed home --min 900 --max 100")
        .expect_refused(&["minimum of 900 KiB/s is above the maximum of 100 KiB/s"]);
    rig.uraid("speed home --max 4T").expect_refused(&["a speed is at most 2147483647 KiB/s"]);
    let share = "of each member; beside clients 15 % (default)\n";
    let fast = rig.uraid("speed home --max 10M").expect_done().stdout;
    assert_eq!(fast, format!("home: minimum 1000 KiB/s (default), maximum 10240 KiB/s, {share}"));
    let set = rig.uraid("speed home --min 10 --max 500").expect_done().stdout;
    assert_eq!(set, format!("home: minimum 10 KiB/s, maximum 500 KiB/s, {share}"));
    let shared = rig.uraid("speed home --share 40").expect_done().stdout;
    assert_eq!(shared, "home: minimum 10 KiB/s, maximum 500 KiB/s, of each member; beside clients 40 %\n");
    assert!(rig.uraid("speed home --share 0").expect_done().stdout.ends_with("beside clients 15 % (default)\n"));
    rig.uraid("detail --mismatches home").expect_refused(&["no check or repair has ended yet"]);
    rig.uraid("--misc --action=check home").expect_done();
    rig.uraid("repair home").expect_refused(&["home: a check runs already, or is due"]);
    wait(|| rig.uraid("mdstat").stdout.contains("]  check =")).expect("mdstat shows it");
    let shown = rig.uraid("detail home").expect_done().stdout;
    assert!(shown.contains(", checking ") && shown.contains("      Check Status : "), "{shown}");
    let paused = rig.uraid("freeze home").expect_done().stdout;
    assert_eq!(paused, "home: resync, recovery, check and repair are paused\n");
    let shown = rig.uraid("detail home").expect_done().stdout;
    assert!(shown.contains("Passes : paused; ") && !rig.uraid("mdstat").stdout.contains("check"), "{shown}");
    // Longer than a pass needs to have a speed.
    std::thread::sleep(Duration::from_millis(500));
    let (shown, json) = (rig.uraid("detail home").expect_done().stdout, rig.json("detail --json home"));
    assert!(shown.contains("Check Status : ") && !shown.contains("Check Speed : "), "{shown}");
    assert!(json["check"]["done"].is_u64() && json["check"]["seconds_left"].is_null(), "{json}");
    let continued = rig.uraid("unfreeze home").expect_done().stdout;
    assert_eq!(continued, "home: resync, recovery, check and repair are not paused any more\n");
    let again = rig.uraid("unfreeze home").expect_done().stdout;
    assert_eq!(again, "home: resync, recovery, check and repair were not paused\n");
    assert_eq!(rig.uraid("idle home").expect_done().stdout, "home: its check or repair is ended\n");
    wait(|| rig.json("detail --json home")["check"].is_null()).expect("it ends");
    assert_eq!(rig.json("detail --mismatches --json home")["end"], "ended");
    assert_eq!(rig.uraid("idle home").expect_done().stdout, "home: no check or repair runs\n");
    rig.uraid("freeze home").expect_done();
    rig.uraid("check home").expect_refused(&["home: resync, recovery, check and repair are paused: `uraid unfreeze` "]);
    let idle = rig.uraid("--action idle home").expect_done().stdout;
    assert_eq!(idle, "home: no check or repair runs; resync and recovery are not paused any more\n");
    rig.uraid("speed home --max 0").expect_done();
    rig.uraid("check home").expect_done();
    rig.uraid("wait home");
    assert_eq!(rig.uraid("check --wait home").code, Some(0));
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn a_check_is_refused_in_one_sentence_where_there_is_nothing_to_compare() {
    let rig = Rig::new("0", 2);
    rig.uraid("check home")
        .expect_refused(&["home: the level has no copies and no parity: there is nothing to compare"]);
    let done = rig.uraid("--action=resync home");
    assert!(done.code == Some(2) && done.stderr.contains("expected check, repair, idle or frozen"), "{done:?}");
    assert_eq!(rig.served.stop().code, Some(0));
    let rig = Rig::new("5", 3);
    rig.uraid("fail home 1").expect_done();
    rig.uraid("repair home").expect_refused(&["too many members are missing: no redundancy is left to compare"]);
    assert_eq!(rig.served.stop().code, Some(0));
}
