//! Members that fail together, are full, or give errors that pass: seen from the command line.
//! Owns: FUSE servers under members that answer with errors, on redundant levels, with io_uring and helper threads.
//! Not here: the same at every moment (`uraid-sim`), members that do not answer (`hung`).

use crate::common::stubborn::{Fails, StubbornFile};
use crate::common::{MIB, Scratch, Served, pattern};
use fuser::Errno;
use std::path::PathBuf;

const RINGS: [&str; 2] = ["auto", "threads"];
/// Enough for rows on every member.
const BYTES: usize = 2 << 20;
const ENOSPC: u32 = 28;

/// An array whose members `sick` are stubborn files, served.
struct Rig {
    served: Served,
    sick: Vec<StubbornFile>,
    members: Vec<PathBuf>,
    // Dropped after the mounts.
    scratch: Scratch,
}

fn rig(level: &str, count: usize, sick: &[usize], options: &[&str]) -> Rig {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", count, 4 * MIB);
    let files = sick.iter().map(|at| StubbornFile::in_place_of(&mut members, *at)).collect();
    scratch.create("sick", &format!("-l {level} -n {count} --assume-clean"), &members);
    let served = scratch.ready(options, &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &pattern(1, BYTES)).expect("connected"), 0);
    assert_eq!(client.flush().expect("connected"), 0);
    Rig { served, sick: files, members, scratch }
}

impl Rig {
    fn write(&self, seed: u64) -> u32 {
        self.served.client().write(0, &pattern(seed, BYTES)).expect("connected")
    }

    fn read(&self) -> Vec<u8> {
        self.served.client().read(0, BYTES).expect("connected").expect("readable")
    }

    fn says(&self, words: &[&str]) -> String {
        self.scratch.uraid(words).expect_done().stdout
    }
}

#[test]
fn an_array_whose_members_failed_together_starts_again_without_force() {
    for ((level, count, sick), ring) in
        [("5", 3, &[0, 1][..]), ("6", 4, &[0, 1, 3])].into_iter().flat_map(|array| RINGS.map(|ring| (array, ring)))
    {
        let case = format!("raid{level}, {ring}");
        let rig = rig(level, count, sick, &["--ring", ring]);
        rig.sick.iter().for_each(|file| file.fail_from_data(Errno::EIO, u32::MAX));
        assert_ne!(rig.write(2), 0, "{case}");
        rig.served.wait_for("takes no more writes");
        let shown = rig.says(&["detail", "sick"]);
        let over = sick.iter().map(|at| format!("{}: the medium failed (errno 5)", rig.members[*at].display()));
        let over = over.collect::<Vec<String>>().join(", ");
        let whole = format!("Frozen : {over}\n");
        assert!(shown.contains(&whole), "{case}: {shown}");
        // On a busy machine the array may have been marked clean before the write, and then stays so.
        let listed = rig.says(&["list"]);
        let is_listed = |state| listed.contains(&format!("{state}, frozen ({over})"));
        assert!(is_listed("active") || is_listed("clean"), "{case}: {listed}");
        let report: serde_json::Value = serde_json::from_str(&rig.says(&["list", "--json"])).expect("JSON");
        assert_eq!(report[0]["frozen"], over, "{case}");
        // On a busy machine the flush of an idle array may come between, and meet the error before the write does.
        let refused = rig.scratch.uraid(["fail", "sick", "0"]);
        let is_flush = refused.stderr.contains("a flush failed");
        let reason = if is_flush { "a flush failed" } else { "more members were full or failed together" };
        refused.expect_refused(&["stays frozen", reason, "stop it and start it again"]);
        rig.sick.iter().for_each(|file| file.fail_next(Errno::EIO, 0));
        let Rig { served, sick, members, scratch } = rig;
        served.stop().expect_refused(&["stays marked dirty"]);
        let again = scratch.ready(&[], &members);
        assert_eq!(again.client().write(0, &pattern(3, BYTES)).expect("connected"), 0, "{case}");
        assert_eq!(again.stop().code, Some(0), "{case}");
        drop(sick);
    }
}

#[test]
fn a_full_member_is_failed_by_command_and_writes_go_on() {
    for ((level, count), ring) in
        [("1", 2), ("10", 4), ("5", 3), ("6", 4)].into_iter().flat_map(|array| RINGS.map(|ring| (array, ring)))
    {
        let case = format!("raid{level}, {ring}");
        let rig = rig(level, count, &[1], &["--ring", ring]);
        rig.sick[0].fail_from_data(Errno::ENOSPC, u32::MAX);
        assert_eq!(rig.write(2), ENOSPC, "{case}");
        assert_eq!(rig.write(2), ENOSPC, "{case}: frozen");
        assert!(rig.says(&["detail", "sick"]).contains("Frozen : "), "{case}");
        let before = rig.read();
        rig.says(&["fail", "sick", "1"]);
        rig.served.wait_for("takes writes again");
        assert!(rig.read() == before, "{case}: other bytes than before");
        assert_eq!(rig.write(3), 0, "{case}");
        assert!(rig.read() == pattern(3, BYTES), "{case}");
        let Rig { served, sick, mut members, scratch } = rig;
        assert_eq!(served.stop().code, Some(0), "{case}: clean");
        drop(sick);
        members.remove(1);
        let again = scratch.ready(&["--run"], &members);
        let read = again.client().read(0, BYTES).expect("connected");
        assert!(read.as_ref() == Ok(&pattern(3, BYTES)), "{case}: after a restart");
        assert_eq!(again.stop().code, Some(0));
    }
}

/// Writes of whole rows need each member: one of two full members is not enough.
#[test]
fn all_full_members_are_failed_in_one_command() {
    let rig = rig("6", 4, &[1, 2], &[]);
    rig.sick.iter().for_each(|file| file.fail_from_data(Errno::ENOSPC, u32::MAX));
    assert_eq!(rig.write(2), ENOSPC);
    let before = rig.read();
    let other = rig.members[2].display().to_string();
    rig.scratch.uraid(["fail", "sick", "1"]).expect_refused(&["stays frozen", &other, "name it in the same command"]);
    let shown = rig.says(&["detail", "sick"]);
    assert!(shown.contains("State : broken \n") && shown.contains("Slots : [4/4] [UUUU]\n"), "{shown}");
    rig.says(&["fail", "sick", "1", &other]);
    rig.served.wait_for("takes writes again [U__U]");
    assert!(rig.read() == before);
    assert_eq!(rig.write(3), 0);
    assert!(rig.read() == pattern(3, BYTES));
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn a_full_member_is_failed_by_itself_with_on_full() {
    let rig = rig("5", 3, &[0, 2], &["--on-full", "fail"]);
    rig.sick[0].fail_from_data(Errno::ENOSPC, u32::MAX);
    assert_eq!(rig.write(2), 0);
    rig.served.wait_for("is faulty: a write failed: no space left under the member");
    assert!(rig.read() == pattern(2, BYTES));
    // Without the second one it cannot be served.
    rig.sick[1].fail_from_data(Errno::ENOSPC, u32::MAX);
    assert_eq!(rig.write(3), ENOSPC);
    let full = rig.members[2].display();
    rig.served
        .wait_for(&format!("takes no more writes: {full}: no space left under the member (errno 28); reads are "));
    rig.sick.iter().for_each(|file| file.fail_next(Errno::ENOSPC, 0));
    rig.served.stop().expect_refused(&["stays marked dirty"]);
}

#[test]
fn a_start_without_room_names_the_member_and_says_what_to_do() {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 3, 4 * MIB);
    let full = StubbornFile::in_place_of(&mut members, 1);
    scratch.create("full", "-l 5 -n 3", &members);
    full.fail(Fails::Full);
    let refused = scratch.serve(&[], &members).end();
    let member = members[1].display();
    for text in ["stops:", "uraid fail", "reads are served"] {
        assert!(!refused.stderr.contains(text), "{text}: {refused:?}");
    }
    refused.expect_refused(&[
        &format!(
            "full: the array could not be started for lack of room under {member}: make room there and start it again"
        ),
        "or serve it with --read-only",
        &format!("full: is frozen: {member}: no space left under the member (errno 28)\n"),
    ]);
    full.fail(Fails::Nothing);
    assert_eq!(scratch.ready(&[], &members).stop().code, Some(0));
}

#[test]
fn errors_that_pass_cost_no_member() {
    for (errno, ring) in [Errno::EAGAIN, Errno::ENOMEM].into_iter().flat_map(|errno| RINGS.map(|ring| (errno, ring))) {
        let rig = rig("5", 3, &[0, 2], &["--ring", ring]);
        rig.sick.iter().for_each(|file| file.fail_from_data(errno, 5));
        assert_eq!(rig.write(2), 0, "{errno:?}, {ring}");
        let shown = rig.says(&["detail", "sick"]);
        assert!(shown.contains("[3/3] [UUU]"), "{errno:?}, {ring}: {shown}");
        assert!(rig.read() == pattern(2, BYTES));
        assert_eq!(rig.served.stop().code, Some(0));
    }
}
