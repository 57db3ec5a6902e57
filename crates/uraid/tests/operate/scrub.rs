//! `uraid scrub` on the real binary.
//! Owns: what is kept over stops, going on after a stop, a kill of `scrub`, arrays that are skipped, bad input. Not here: the
//! schedule over steps of the clock (`operate`).

use crate::common::superblock::{DATA_OFFSET, Raw};
use crate::common::{MIB, Served, wait};
use crate::history::{Rig, entries};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

fn report(rig: &Rig) -> Value {
    serde_json::from_str(&rig.uraid("detail --json home").stdout).expect("JSON")
}

/// Changes a byte of this sector of a member's data, behind the server's back.
fn spoil(rig: &Rig, member: usize, sector: u64) {
    let path = &rig.members[member];
    let at = (Raw::read(path).u64(DATA_OFFSET) + sector) * 512;
    let file = File::options().read(true).write(true).open(path).expect("a member");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).and_then(|()| file.write_all_at(&[byte[0] ^ 1], at)).expect("a byte");
}

#[test]
fn what_was_found_and_where_is_kept_over_stops() {
    let rig = Rig::new("1", 3);
    assert_eq!(rig.uraid("scrub --status").expect_done().stdout, "home: no check is known\n");
    rig.uraid("scrub --now home").expect_done();
    spoil(&rig, 1, 2);
    let found = rig.uraid("scrub --now");
    assert_eq!(found.code, Some(3), "{found:?}");
    assert!(found.stdout.starts_with("home: check begun\nhome: check complete, took 0s: 1 sectors disagree\n"));
    let Rig { served, members, scratch } = rig;
    served.stop().expect_done();
    let shown = scratch.uraid(["scrub", "--status"]).expect_done().stdout;
    let place = format!("array sector 2+1: wrong on {} (slot 1), at member sector 2+1", members[1].display());
    assert!(shown.contains(&place), "{shown}");
    let rig = Rig { served: scratch.ready(&[], &members), members, scratch };
    wait(|| !report(&rig)["checks"].is_null()).expect("it is read");
    assert_eq!(report(&rig)["checks"]["complete"]["result"]["mismatched"], 1);
    assert!(rig.uraid("detail home").stdout.contains("Last Check : check complete "));
    assert!(rig.uraid("status home").stdout.contains("URAID-12 the last check, of "));
    let noted = entries(&rig.scratch);
    let result = noted.iter().rfind(|entry| entry["event"] == "check-result").expect("noted");
    assert_eq!(result["facts"]["result"]["mismatches"][0]["sector"], 2);
}

#[test]
fn a_check_goes_on_after_a_stop() {
    let rig = Rig::new("5", 3);
    let begun = Served::start(&mut rig.scratch.command(["scrub", "--now", "--max", "64K"]));
    wait(|| report(&rig)["check"]["done"].as_u64() > Some(0)).expect("it goes on");
    rig.uraid("stop home").expect_done();
    assert_eq!(begun.end().code, Some(1), "it says that the server has ended");
    let Rig { members, scratch, served } = rig;
    served.end().expect_done();
    let kept: Value = serde_json::from_str(&scratch.uraid(["scrub", "--status", "--json"]).stdout).expect("JSON");
    let place = kept["arrays"][0]["checks"]["partial"]["result"]["done"].as_u64();
    assert!(place > Some(0), "{kept}");
    let rig = Rig { served: scratch.ready(&[], &members), members, scratch };
    wait(|| !report(&rig)["checks"].is_null()).expect("it is read");
    assert!(rig.uraid("detail home").stdout.contains("Check Waits : at "));
    // What lies before the place was compared already, and what lies behind it is compared now.
    let total = report(&rig)["checks"]["partial"]["result"]["total"].as_u64().expect("a size");
    spoil(&rig, 0, 0);
    spoil(&rig, 0, total - 1);
    let done = rig.uraid("scrub --now");
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.stdout.starts_with("home: check begun, from "), "{done:?}");
    assert!(done.stdout.contains("home: check complete, took ") && done.stdout.ends_with(": 1 sectors disagree\n"));
    let anew = rig.uraid("check --wait home");
    assert!(anew.stdout.starts_with("home: check complete: 2 sectors disagree\n"), "{anew:?}");
    assert!(report(&rig)["checks"]["partial"].is_null());
}

#[test]
fn a_limit_is_taken_back_after_a_kill() {
    let rig = Rig::new("5", 3);
    let begun = Served::start(&mut rig.scratch.command(["scrub", "--now", "--max", "64K"]));
    wait(|| report(&rig)["check"]["done"].as_u64() > Some(0)).expect("it goes on");
    assert_eq!(report(&rig)["pass_limits"]["max_kib"], 64);
    rig.uraid("scrub --now").expect_refused(&["another `uraid scrub` runs checks"]);
    begun.signal(rustix::process::Signal::KILL);
    drop(begun);
    // The next one takes the limit back, and does not disturb the check.
    let next = rig.uraid("scrub --now");
    assert_eq!(next.stdout, "home: not checked: busy: a check runs or is due\n", "{next:?}");
    assert!(report(&rig)["pass_limits"]["max_kib"].is_null());
}

#[test]
fn arrays_that_cannot_be_checked_are_skipped_with_a_line_and_new_ones_are_not_due() {
    let rig = Rig::new("5", 3);
    rig.uraid("scrub --if-due --window 00:00-23:59").expect_done();
    assert!(report(&rig)["last_check"].is_null(), "a new array is not due");
    let planned = rig.uraid("scrub --now --dry-run").expect_done();
    assert_eq!(planned.stdout, "home: would be checked\n");
    rig.uraid("readonly home").expect_done();
    assert_eq!(rig.uraid("scrub --now").expect_done().stdout, "home: not checked: it is read-only\n");
    rig.uraid("readwrite home").expect_done();
    rig.uraid("fail home 1").expect_done();
    assert_eq!(rig.uraid("scrub --now").expect_done().stdout, "home: not checked: degraded [3/2] [U_U]\n");
}

#[test]
fn bad_input_is_one_sentence() {
    let rig = Rig::new("1", 2);
    for wrong in [
        "scrub",
        "scrub --now --status",
        "scrub --now --window 1-6",
        "scrub --now --max fast",
        "scrub --status --max 1",
    ] {
        assert_eq!(rig.uraid(wrong).code, Some(2), "{wrong}");
    }
    rig.uraid("scrub --now nobody").expect_refused(&["no running array is called nobody"]);
    let file = rig.scratch.path("state/scrub.json");
    fs::write(&file, "{]").expect("room");
    rig.uraid("scrub --now").expect_refused(&["scrub.json is not what uraid writes: remove it"]);
    fs::write(&file, vec![b' '; 2 * MIB as usize]).expect("room");
    rig.uraid("scrub --now").expect_refused(&["cannot use ", "has more than 1048576 bytes: remove it"]);
    fs::remove_file(&file).expect("ours");
    rig.uraid("scrub --now").expect_done();
}

#[test]
fn a_check_goes_on_after_a_crash() {
    let rig = Rig::new("1", 2);
    rig.uraid("speed home --max 256K").expect_done();
    rig.uraid("check home").expect_done();
    let place = |rig: &Rig| {
        let kept: Value = serde_json::from_str(&rig.uraid("scrub --status --json").stdout).expect("JSON");
        kept["arrays"][0]["checks"]["partial"]["result"]["done"].as_u64().unwrap_or(0)
    };
    wait(|| place(&rig) > 0).expect("it is kept while it runs");
    let Rig { served, members, scratch } = rig;
    served.signal(rustix::process::Signal::KILL);
    drop(served);
    let rig = Rig { served: scratch.ready(&[], &members), members, scratch };
    wait(|| report(&rig)["checks"]["partial"]["result"]["end"] == "interrupted").expect("it is read");
    let done = rig.uraid("scrub --now").expect_done().stdout;
    assert!(done.starts_with("home: check begun, from "), "{done}");
    assert_eq!(place(&rig), 0, "nothing is left to do");
}
