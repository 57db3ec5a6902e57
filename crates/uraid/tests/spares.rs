//! Spares that take the slot of a failed or missing member, on the real binary.
//! Owns: the log, `detail` and the contents while a spare is recovered and afterwards. Not here: members that md was
//! rebuilding (`rebuilding`), which spare takes which slot (`engine::master`).

use crate::common::stubborn::{Fails, StubbornFile};
use crate::common::superblock::{DATA_OFFSET, Raw};
use crate::common::{MIB, Scratch, Served, pattern, side_by_side, wait};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With members of 16 MiB, this many milliseconds for each 64 KiB are at least ten seconds.
const SLOW: Duration = Duration::from_millis(50);
/// A level, its slots, and how many members it can lose.
const LEVELS: [(&str, usize, usize); 4] = [("1", 3, 2), ("5", 3, 1), ("6", 4, 2), ("10", 4, 1)];

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// An array that is full of data, and its spares, of which the first is slow. Members are in the order of slots.
struct Rig {
    served: Served,
    slow: StubbornFile,
    members: Vec<PathBuf>,
    data: Vec<u8>,
    // Dropped after the mount.
    scratch: Scratch,
}

impl Rig {
    fn new(level: &str, slots: usize, spares: usize) -> Rig {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", slots + spares, 16 * MIB);
        let slow = StubbornFile::in_place_of(&mut members, slots);
        scratch.create("home", &format!("-l {level} -n {slots} -x {spares} --assume-clean"), &members);
        let served = scratch.ready(&[], &members);
        let size = served.client().size as usize;
        let mut rig = Rig { served, slow, members, data: vec![0; size], scratch };
        rig.write(0, &pattern(51, size));
        rig
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.served.write_all(at as u64, bytes);
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[track_caller]
    fn expect_data(&self) {
        let found = self.served.first_difference(&self.data);
        assert_eq!(found, None, "{}", self.served.stderr());
    }

    fn fail(&self, members: &[usize]) {
        let members = members.iter().map(|at| text(&self.members[*at]));
        self.scratch.uraid(["fail".to_owned(), "home".to_owned()].into_iter().chain(members)).expect_done();
    }

    /// The same of a spare that has taken its slot: it can fail when the superblocks list it there.
    fn fail_taken(&self, member: &str) {
        let is_done = || {
            let done = self.scratch.uraid(["fail", "home", member]);
            assert!(done.code == Some(0) || done.stderr.contains("takes its slot just now; try again"), "{done:?}");
            done.code == Some(0)
        };
        wait(is_done).expect("the superblocks are written");
    }

    fn detail(&self) -> String {
        self.scratch.uraid(["detail", "home"]).expect_done().stdout
    }

    /// `detail` has a row of this member in this slot.
    #[track_caller]
    fn expect_row(&self, member: usize, slot: &str, state: &str) {
        let shown = self.detail();
        let path = text(&self.members[member]);
        // The numbers of the device are 0 and 0: it is a file.
        let words = [member.to_string(), "0".to_owned(), "0".to_owned(), slot.to_owned()];
        let is_it = |line: &str| {
            let mut found = line.split_whitespace();
            words.iter().all(|word| found.next() == Some(word.as_str()))
                && line.contains(&format!(" {state} "))
                && line.contains(&path)
        };
        assert!(shown.lines().any(is_it), "{member} {slot} {state} {path}:\n{shown}");
    }

    #[track_caller]
    fn expect_taken(&self, spare: usize, slot: usize, picture: &str) {
        let spare = text(&self.members[spare]);
        self.served.wait_for(&format!("home: the spare {spare} takes slot {slot}, and is being recovered {picture}\n"));
    }

    #[track_caller]
    fn expect_recovered(&self, member: usize, slot: usize, picture: &str) {
        let member = text(&self.members[member]);
        self.served.wait_for(&format!("home: member {member} (slot {slot}) is recovered {picture}\n"));
    }

    /// Serves these members after a stop.
    fn serve_again(&mut self, options: &[&str], members: &[usize]) {
        self.scratch.stop_when_left("home");
        let members: Vec<PathBuf> = members.iter().map(|at| self.members[*at].clone()).collect();
        self.served = self.scratch.ready(options, &members);
    }

    fn stop(self) {
        assert_eq!(self.served.stop().code, Some(0));
    }
}

/// `U` of all slots but these.
fn picture(slots: usize, without: &[usize]) -> String {
    let letters: String = (0..slots).map(|slot| if without.contains(&slot) { '_' } else { 'U' }).collect();
    format!("[{letters}]")
}

#[test]
fn a_spare_takes_the_slot_of_a_failed_member_and_is_recovered_while_the_array_serves() {
    side_by_side(LEVELS, |(level, slots, budget)| {
        let mut rig = Rig::new(level, slots, 1);
        rig.slow.slow_writes(SLOW);
        rig.fail(&[1]);
        let degraded = picture(slots, &[1]);
        rig.expect_taken(slots, 1, &degraded);
        let state = format!(" Slots : [{slots}/{}] {degraded}\n", slots - 1);
        wait(|| rig.detail().contains(&state)).unwrap_or_else(|()| panic!("raid{level}: {state}{}", rig.detail()));
        rig.expect_row(slots, "1", "spare rebuilding");
        rig.expect_row(1, "-", "faulty");
        let shown = rig.scratch.uraid(["mdstat"]).expect_done().stdout;
        assert!(shown.contains(" m1[1](F)") && shown.contains("]  recovery = "), "raid{level}: {shown}");
        let size = rig.data.len();
        for at in [0, size / 2, size - 300 * 512] {
            rig.write(at, &pattern(52, 300 * 512));
        }
        rig.expect_data();
        rig.slow.slow_writes(Duration::ZERO);
        rig.expect_recovered(slots, 1, &picture(slots, &[]));
        rig.expect_row(slots, "1", "active sync");
        let clean = format!(" Slots : [{slots}/{slots}] {}\n", picture(slots, &[]));
        wait(|| rig.detail().contains(&clean)).unwrap_or_else(|()| panic!("raid{level}: {clean}{}", rig.detail()));
        // As many others as the level can lose, the copy or neighbour of slot 1 among them.
        let lost: Vec<usize> = [0, 2].into_iter().take(budget).collect();
        rig.fail(&lost);
        rig.expect_data();
        assert!(rig.detail().contains(&picture(slots, &lost)), "raid{level}: {}", rig.detail());
        rig.stop();
    });
}

#[test]
fn a_failed_member_that_a_spare_stands_in_for_is_left_out_of_a_full_array() {
    let mut rig = Rig::new("5", 3, 1);
    rig.fail(&[1]);
    // Whether a check saw the recovery or not.
    rig.served.wait_for(" recovered [UUU]\n");
    rig.serve_again(&[], &[0, 1, 2, 3]);
    rig.served.wait_for("left out: ");
    assert!(!rig.served.stderr().contains("starts degraded"), "{}", rig.served.stderr());
    assert!(rig.detail().contains(" [3/3] [UUU]\n"), "{}", rig.detail());
    rig.expect_data();
    // Without it nothing is missing: no --run.
    rig.serve_again(&[], &[0, 2, 3]);
    rig.expect_data();
    rig.stop();
}

#[test]
fn a_spare_takes_the_slot_of_a_member_that_is_truncated_under_load() {
    let mut rig = Rig::new("5", 3, 1);
    rig.slow.slow_writes(SLOW);
    File::options().write(true).open(&rig.members[1]).and_then(|file| file.set_len(0)).expect("our file");
    let part = pattern(53, 4 * MIB as usize);
    rig.write(MIB as usize, &part);
    rig.served.wait_for("(slot 1) is faulty: ");
    rig.expect_taken(3, 1, "[U_U]");
    rig.expect_data();
    rig.slow.slow_writes(Duration::ZERO);
    rig.expect_recovered(3, 1, "[UUU]");
    rig.fail(&[2]);
    rig.expect_data();
    rig.stop();
}

#[test]
fn a_spare_that_a_degraded_start_is_given_takes_the_slot_at_once() {
    for (level, slots, _) in LEVELS {
        let mut rig = Rig::new(level, slots, 1);
        let left: Vec<usize> = (0..=slots).filter(|at| *at != 1).collect();
        rig.slow.slow_writes(SLOW);
        rig.serve_again(&["--run"], &left);
        rig.served.wait_for(&format!("home: raid{level} starts degraded, "));
        rig.expect_taken(slots, 1, &picture(slots, &[1]));
        rig.slow.slow_writes(Duration::ZERO);
        rig.expect_recovered(slots, 1, &picture(slots, &[]));
        rig.fail(&[0]);
        rig.expect_data();
        // Nothing is missing that the superblocks count: no --run. The member that was failed just now is left out.
        rig.serve_again(&[], &left);
        rig.expect_data();
        rig.stop();
    }
}

#[test]
fn two_spares_take_the_slots_of_two_members_that_fail_together() {
    let mut rig = Rig::new("6", 4, 2);
    rig.slow.slow_writes(SLOW);
    rig.fail(&[0, 2]);
    rig.expect_taken(4, 0, "[_U_U]");
    rig.expect_taken(5, 2, "[_U_U]");
    rig.write(3 * MIB as usize, &pattern(54, MIB as usize));
    rig.expect_data();
    rig.slow.slow_writes(Duration::ZERO);
    wait(|| rig.detail().contains(" [4/4] [UUUU]\n")).unwrap_or_else(|()| panic!("{}", rig.detail()));
    rig.fail(&[1, 3]);
    rig.expect_data();
    rig.stop();
}

#[test]
fn a_spare_that_is_being_recovered_is_failed_by_name_or_slot_and_the_next_one_takes_over() {
    let mut rig = Rig::new("5", 3, 2);
    rig.slow.slow_writes(SLOW);
    rig.fail(&[1]);
    rig.expect_taken(3, 1, "[U_U]");
    rig.scratch
        .uraid(["fail", "home", &text(&rig.members[4])])
        .expect_refused(&["is a spare, which", "`uraid remove home "]);
    rig.scratch.uraid(["fail", "home", "0"]).expect_refused(&["the array cannot serve without", "(slot 0)"]);
    rig.fail_taken(&text(&rig.members[3]));
    rig.served.wait_for(&format!("home: the spare {} takes slot 1, and is ", text(&rig.members[4])));
    rig.served.wait_for(" recovered [UUU]\n");
    rig.scratch.uraid(["fail", "home", &text(&rig.members[3])]).expect_refused(&["has failed already"]);
    rig.expect_row(3, "-", "faulty");
    rig.expect_data();
    rig.write(0, &pattern(55, MIB as usize));
    rig.slow.slow_writes(Duration::ZERO);
    rig.fail(&[0]);
    rig.expect_data();
    rig.stop();

    let rig = Rig::new("1", 2, 1);
    rig.slow.slow_writes(SLOW);
    rig.fail(&[1]);
    rig.expect_taken(2, 1, "[U_]");
    rig.fail_taken("1");
    let gone = || !rig.detail().contains("recovering");
    wait(gone).unwrap_or_else(|()| panic!("{}", rig.detail()));
    rig.expect_row(2, "-", "faulty");
    rig.scratch.uraid(["fail", "home", "1"]).expect_refused(&["has failed already"]);
    rig.expect_data();
    rig.slow.slow_writes(Duration::ZERO);
    rig.stop();
}

#[test]
fn a_spare_that_cannot_write_one_spot_lists_it_and_takes_the_slot() {
    let mut rig = Rig::new("6", 4, 1);
    let end = Raw::read(&rig.members[4]).u64(DATA_OFFSET) * 512 + 8 * MIB;
    rig.slow.fail(Fails::WritesOf(end));
    rig.fail_taken(&text(&rig.members[3]));
    let spare = text(&rig.members[4]);
    // What fails with the spot is written again at once, before or after the next look at the array.
    rig.served.wait_for(&format!("member {spare}: its bad-block list "));
    rig.served.wait_for(" is recovered [UUUU]\n");
    rig.write(0, &pattern(56, MIB as usize));
    rig.expect_data();
    // Two members besides may be lost: of the rows at that spot one.
    rig.fail(&[0]);
    rig.expect_data();
    rig.stop();
}
