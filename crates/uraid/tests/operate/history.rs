//! `uraid history`, and what servers note, on the real binary.
//! Owns: commands and events with their actors, order over kills, a state directory that cannot be written, bad input. Not
//! here: the files' form and bounds (`control`).

use crate::common::tmpfs::Tmpfs;
use crate::common::{MIB, Scratch, Served, wait};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A running raid1 `home` of two members.
pub(crate) struct Rig {
    pub(crate) served: Served,
    pub(crate) members: Vec<PathBuf>,
    pub(crate) scratch: Scratch,
}

impl Rig {
    pub(crate) fn new(level: &str, slots: usize) -> Rig {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots, 8 * MIB);
        scratch.create("home", &format!("-l {level} -n {slots} --assume-clean"), &members);
        let served = scratch.ready(&[], &members);
        Rig { served, members, scratch }
    }

    /// A pass that is over within a tenth of a second is not seen between two looks at the array.
    fn slow_passes(&self) {
        self.uraid("speed home --max 4000").expect_done();
    }

    pub(crate) fn uraid(&self, line: &str) -> crate::common::Done {
        self.scratch.uraid(line.split_whitespace())
    }
}

/// The entries, oldest first.
pub(crate) fn entries(scratch: &Scratch) -> Vec<Value> {
    let shown = scratch.uraid(["history", "--json"]).expect_done().stdout;
    shown.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

pub(crate) fn events(scratch: &Scratch) -> Vec<String> {
    entries(scratch).iter().map(|entry| entry["event"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
pub(crate) fn wait_for_event(scratch: &Scratch, event: &str) {
    wait(|| events(scratch).iter().any(|it| it == event))
        .unwrap_or_else(|()| panic!("no {event} in {:?}", events(scratch)));
}

#[test]
fn a_recovery_begins_behind_the_failure_that_it_mends() {
    let rig = Rig::new("1", 2);
    let spare = rig.scratch.member("spare", 8 * MIB);
    rig.slow_passes();
    rig.uraid(&format!("add home {}", spare.display())).expect_done();
    rig.uraid("fail home 1").expect_done();
    wait_for_event(&rig.scratch, "member-recovered");
    let all = events(&rig.scratch);
    let at = |event: &str| all.iter().position(|it| it == event).unwrap_or_else(|| panic!("{event}: {all:?}"));
    let order = ["spare-added", "member-failed", "pass-started", "pass-finished", "member-recovered"].map(at);
    assert!(order.is_sorted(), "{all:?}");
    rig.served.stop().expect_done();
}

#[test]
fn commands_and_events_are_kept_with_who_did_it_over_stops_and_kills() {
    let rig = Rig::new("1", 2);
    let spare = rig.scratch.member("spare", 8 * MIB);
    rig.slow_passes();
    rig.uraid("fail home 1").expect_done();
    rig.uraid(&format!("add home {}", spare.display())).expect_done();
    wait_for_event(&rig.scratch, "member-recovered");
    rig.uraid("fail home 7").expect_refused(&["no such member"]);
    for word in ["/dev/md/home", rig.members[0].to_str().expect("ASCII")] {
        assert!(rig.uraid(&format!("history {word}")).expect_done().stdout.contains("member-recovered"), "{word}");
    }
    wait(|| entries(&rig.scratch).iter().any(|entry| entry["done"] == false || entry["facts"]["done"] == false))
        .expect("the refused call is noted");
    let all = entries(&rig.scratch);
    let of =
        |event: &str| all.iter().find(|entry| entry["event"] == event).unwrap_or_else(|| panic!("{event}: {all:?}"));
    for event in ["started", "member-failed", "spare-taken", "member-recovered"] {
        assert_eq!(of(event)["actor"]["kind"], "engine", "{event}");
    }
    let is_fail = |entry: &&Value| entry["facts"]["call"]["method"] == "fail";
    let command = all.iter().find(is_fail).expect("the command is noted");
    assert_eq!((&command["actor"]["kind"], &command["actor"]["program"]), (&"process".into(), &"uraid".into()));
    assert_eq!(command["actor"]["uid"], rustix::process::geteuid().as_raw());
    assert_eq!(command["event"], "command");
    // A command is noted behind what it did: both are in the order of their numbers.
    let numbers: Vec<u64> = all.iter().filter_map(|entry| entry["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<u64>>());
    let before = numbers.len();
    let Rig { served, members, scratch } = rig;
    served.signal(rustix::process::Signal::KILL);
    drop(served);
    let again = scratch.ready(&[], &[members[0].clone(), spare]);
    wait(|| entries(&scratch).len() > before).expect("the second start is noted");
    assert_eq!(entries(&scratch)[before]["number"], before as u64 + 1, "numbers go on");
    again.stop().expect_done();
    let all = entries(&scratch);
    let last = all.last().expect("some");
    assert_eq!((&last["event"], &last["array"]), (&"stopped".into(), &"home".into()), "it needs no server to be read");
    let text = scratch.uraid(["history", "home", "--since", "1h"]).expect_done().stdout;
    assert_eq!(text.lines().count(), all.len());
    assert!(text.contains(" home 1 started, engine: raid1 is started"), "{text}");
    scratch.uraid(["history", "nobody"]).expect_refused(&["no history has an array nobody"]);
    assert_eq!(scratch.uraid(["history", "--since", "noon"]).code, Some(2));
}

#[test]
fn a_state_directory_that_others_can_change_is_said_and_the_array_serves_on() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let state = scratch.path("state");
    fs::create_dir(&state).expect("room");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("our folder");
    let served = scratch.ready(&[], &members);
    served.wait_for("the history is not written: the state directory ");
    served.write_all(0, &vec![7; MIB as usize]);
    let shown = scratch.uraid(["status", "home"]);
    assert!(shown.stdout.contains("URAID-26 the history is not written: "), "{shown:?}");
    assert_eq!(shown.code, Some(1));
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("our folder");
    served.wait_for("the history is written again");
    assert_eq!(events(&scratch)[0], "started", "what was pending is there");
    served.stop().expect_done();
}

#[test]
fn following_shows_what_happens() {
    let rig = Rig::new("1", 2);
    wait_for_event(&rig.scratch, "started");
    let follower = Served::start(&mut rig.scratch.command(["history", "--follow", "home"]));
    rig.uraid("readonly home").expect_done();
    wait(|| follower.printed().contains(" read-only, engine: is read-only by command\n")).expect("it is shown");
    assert!(follower.printed().contains(" started, engine: "), "{}", follower.printed());
}

#[test]
fn a_full_disk_loses_no_entry_and_stops_no_array() {
    let scratch = Scratch::new();
    let Some(room) = Tmpfs::mount(&scratch, "size=256k,mode=755") else {
        println!("no file system can be mounted here: not tested");
        return;
    };
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    room.fill();
    let state = room.0.join("state");
    let mut command = scratch.command(["serve"].map(PathBuf::from).into_iter().chain(members.iter().cloned()));
    let served = Served::start(command.env("URAID_STATE_DIR", &state));
    served.wait_until_ready();
    served.wait_for("the history is not written: ");
    served.write_all(0, &vec![7; MIB as usize]);
    scratch.uraid(["readonly", "home"]).expect_done();
    fs::remove_file(room.0.join("filler")).expect("it is there");
    served.wait_for("the history is written again");
    let shown =
        scratch.command(["history", "--json"]).env("URAID_STATE_DIR", &state).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let found: Vec<&str> =
        ["started", "command", "read-only"].into_iter().filter(|it| text.contains(&format!("\"{it}\""))).collect();
    assert_eq!(found, ["started", "command", "read-only"], "{text}");
    assert_eq!(served.stderr().matches("the history is not written").count(), 1, "it is said once");
    served.stop().expect_done();
}
