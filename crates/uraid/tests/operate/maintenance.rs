//! `uraid maintenance` on the real binary.
//! Owns: spares that wait, the mark of events, the end by itself and by command, bad input.

use crate::common::{MIB, wait};
use crate::history::{Rig, entries, wait_for_event};
use std::time::{SystemTime, UNIX_EPOCH};

fn report(rig: &Rig) -> serde_json::Value {
    serde_json::from_str(&rig.uraid("detail --json home").stdout).expect("JSON")
}

#[test]
fn no_spare_starts_until_it_ends_and_events_are_marked() {
    let rig = Rig::new("1", 2);
    let spare = rig.scratch.member("spare", 8 * MIB);
    rig.uraid(&format!("add home {}", spare.display())).expect_done();
    let begun = rig.uraid("maintenance home --for 1h").expect_done().stdout;
    assert!(begun.starts_with("home: no spare starts until 2"), "{begun}");
    rig.uraid("fail home 1").expect_done();
    wait_for_event(&rig.scratch, "member-failed");
    let shown = report(&rig);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let until = shown["maintenance_until"].as_u64().expect("a time");
    assert!((now..=now + 3600).contains(&until), "{until}");
    assert!(shown["recovery"].is_null() && shown["state"].to_string().contains("degraded"), "{shown}");
    assert!(rig.uraid("status home").stdout.contains("URAID-25 maintenance until "));
    assert!(rig.uraid("detail home").stdout.contains("Maintenance : until "));
    let failed = entries(&rig.scratch).into_iter().find(|entry| entry["event"] == "member-failed").expect("noted");
    assert_eq!(failed["maintenance"], true);
    let ended = rig.uraid("maintenance home --end").expect_done().stdout;
    assert_eq!(ended, "home: maintenance has ended: spares start again\n");
    wait_for_event(&rig.scratch, "member-recovered");
    assert_eq!(rig.uraid("maintenance home --end").expect_done().stdout, "home: no maintenance was announced\n");
}

#[test]
fn it_ends_by_itself() {
    let rig = Rig::new("1", 2);
    rig.uraid("maintenance home --for 1s").expect_done();
    rig.served.wait_for("home: maintenance has ended: spares start again");
    assert!(report(&rig)["maintenance_until"].is_null());
    for wrong in
        ["maintenance home", "maintenance home --for soon", "maintenance home --for 0s", "maintenance --for 1h"]
    {
        assert_eq!(rig.uraid(wrong).code, Some(2), "{wrong}");
    }
    rig.uraid("maintenance home --for 8d").expect_refused(&["maintenance is at most 7 days"]);
    wait(|| entries(&rig.scratch).iter().any(|entry| entry["event"] == "maintenance-ended")).expect("it is noted");
}
