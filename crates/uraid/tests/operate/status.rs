//! `uraid status` on the real binary.
//! Owns: its numbers and exit codes in several states, an array that was killed, bad input. Not here: each kind's condition
//! (`operate`).

use crate::common::MIB;
use crate::history::Rig;
use serde_json::Value;

/// The numbers that are said of the first array.
fn numbers(rig: &Rig) -> Vec<String> {
    let shown: Value = serde_json::from_str(&rig.uraid("status --json").stdout).expect("JSON");
    let findings = shown["arrays"][0]["findings"].as_array().cloned().unwrap_or_default();
    findings.iter().map(|finding| finding["number"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_state_has_its_number_and_what_is_to_be_typed_works() {
    let rig = Rig::new("5", 3);
    let healthy = rig.uraid("status");
    assert_eq!(healthy.code, Some(0), "{healthy:?}");
    assert!(healthy.stdout.contains("state: URAID-01 healthy") && healthy.stdout.contains("any one member may fail"));
    assert_eq!(rig.uraid("status -x").expect_done().stdout, "all arrays are healthy\n");
    rig.uraid("fail home 1").expect_done();
    assert_eq!(numbers(&rig), ["URAID-03", "URAID-09", "URAID-10", "URAID-16", "URAID-17"]);
    let exposed = rig.uraid("status home");
    assert_eq!(exposed.code, Some(1));
    let remove = format!("`uraid remove home {}`", rig.members[1].display());
    assert!(exposed.stdout.contains(&remove), "{}", exposed.stdout);
    rig.uraid(&format!("remove home {}", rig.members[1].display())).expect_done();
    let spare = rig.scratch.member("spare", 8 * MIB);
    rig.uraid("freeze home").expect_done();
    rig.uraid(&format!("add home {}", spare.display())).expect_done();
    assert_eq!(numbers(&rig), ["URAID-03", "URAID-04", "URAID-16", "URAID-17", "URAID-23"]);
    rig.uraid("unfreeze home").expect_done();
    crate::history::wait_for_event(&rig.scratch, "member-recovered");
    assert_eq!(numbers(&rig), ["URAID-17", "URAID-01"]);
    rig.uraid("bitmap home internal").expect_done();
    rig.uraid("readonly home").expect_done();
    assert_eq!(numbers(&rig), ["URAID-08", "URAID-01"]);
    rig.uraid("status nobody").expect_refused(&["no running array is called nobody"]);
}

#[test]
fn an_array_that_was_killed_is_missed_and_one_that_was_stopped_is_not() {
    let Rig { served, members, scratch } = Rig::new("1", 2);
    crate::history::wait_for_event(&scratch, "started");
    served.signal(rustix::process::Signal::KILL);
    drop(served);
    let missed = scratch.uraid(["status"]);
    assert_eq!(missed.code, Some(1));
    assert!(missed.stdout.contains("state: URAID-19 home does not run; it was started at 2"), "{missed:?}");
    let again = scratch.ready(&[], &members);
    again.stop().expect_done();
    assert_eq!(scratch.uraid(["status"]).expect_done().stdout, "no array runs\n");
}
