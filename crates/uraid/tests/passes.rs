//! What is said of an array while a pass runs over it.
//! Owns: `detail` and `mdstat` in the middle of a resync that a FUSE server holds up. Not here: the resync itself (`hung_start`,
//! `life`), the figures of a line (`pace`).

use crate::common::stubborn::StubbornFile;
use crate::common::{MIB, Scratch, Served, wait};
use serde_json::Value;
use std::time::Duration;

struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    served: Served,
    // Dropped after the mount.
    scratch: Scratch,
}

impl Rig {
    /// A new array `home` whose resync has come about half-way and stands still.
    fn new(options: &str, count: usize) -> Rig {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", count, 64 * MIB);
        let member = StubbornFile::in_place_of(&mut members, 1);
        scratch.create("home", options, &members);
        member.hang_at_read_of(32 * MIB..48 * MIB);
        let served = scratch.serve(&["--shards", "1"], &members);
        served.wait_until_ready();
        let rig = Rig { served, member, scratch };
        wait(|| rig.member.is_hung()).unwrap_or_else(|()| panic!("the resync reads it: {}", rig.served.stderr()));
        wait(|| rig.done() > 0 && rig.stands_still()).expect("a part of it is done");
        rig
    }

    fn done(&self) -> u64 {
        self.report()["resync"]["done"].as_u64().unwrap_or(0)
    }

    /// Windows that do not need the member that hangs go on for a moment. The progress is renewed each 200 ms.
    fn stands_still(&self) -> bool {
        let before = self.done();
        std::thread::sleep(Duration::from_secs(1));
        self.done() == before
    }

    fn report(&self) -> Value {
        let shown = self.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
        serde_json::from_str(&shown).expect("JSON")
    }

    fn mdstat(&self) -> String {
        self.scratch.uraid(["mdstat"]).expect_done().stdout
    }

    fn text(&self) -> String {
        self.scratch.uraid(["detail", "home"]).expect_done().stdout
    }

    /// The resync goes on to its end, and the array stops clean.
    fn end(self) {
        self.member.go_on();
        wait(|| self.report()["resync"].is_null()).expect("it ends");
        assert!(!self.text().contains("Resync"), "{}", self.text());
        assert!(!self.mdstat().contains("resync"), "{}", self.mdstat());
        assert_eq!(self.served.stop().code, Some(0));
    }
}

#[test]
fn detail_shows_a_resync_in_mdadms_fields() {
    for (options, count, slots) in [("-l 5 -n 3 -c 64K", 3, "[3/3] [UUU]"), ("-l 1 -n 2", 2, "[2/2] [UU]")] {
        let rig = Rig::new(options, count);
        let has_speed = || rig.report()["resync"]["sectors_per_second"].is_u64();
        wait(has_speed).expect("its speed is known after a while, even if that is nothing");
        let (report, text) = (rig.report(), rig.text());
        let (done, total) = (report["resync"]["done"].as_u64(), report["resync"]["total"].as_u64());
        let (done, total) = (done.expect("a number"), total.expect("a number"));
        assert!(done < total && total == report["member_sectors"].as_u64().expect("a number"), "{report}");
        assert!(text.contains(&format!("     Resync Status : {}% complete\n", done * 100 / total)), "{text}");
        // Clean where the array has been idle for a while.
        let is_state = |word| {
            text.contains(&format!("             State : {word}, resyncing \n"))
                && text.contains(&format!(" Slots : {slots}\n"))
        };
        assert!(is_state("active") || is_state("clean"), "{text}");
        assert!(text.contains("Consistency Policy : resync\n"), "{text}");
        rig.scratch.uraid(["freeze", "home"]).expect_done();
        let text = rig.text();
        assert!(text.contains(", resyncing (PENDING) \n") && text.contains("     Resync Status : "), "{text}");
        rig.scratch.uraid(["unfreeze", "home"]).expect_done();
        assert!(rig.text().contains(", resyncing \n"), "{}", rig.text());
        rig.end();
    }
}

#[test]
fn mdstat_shows_the_kernels_picture() {
    let rig = Rig::new("-l 5 -n 3 -c 64K", 3);
    let report = rig.report();
    let (done, total) = (&report["resync"]["done"], &report["resync"]["total"]);
    let kib = |sectors: &Value| sectors.as_u64().expect("a number") / 2;
    let shown = rig.mdstat();
    let lines: Vec<&str> = shown.lines().collect();
    let size = format!("      {} blocks super 1.2 level 5, 64k chunk, algorithm 2 [3/3] [UUU]", 2 * kib(total));
    let levels = "Personalities : [linear] [raid0] [raid1] [raid10] [raid4] [raid5] [raid6]";
    let head = format!("{} : active raid5 m0[0] member[1] m2[2]", report["device"].as_str().expect("a name"));
    assert_eq!(lines[..3], [levels, &head, &size]);
    let [pass, "", "unused devices: <none>"] = lines[3..] else { panic!("{shown}") };
    let (bar, figures) = pass.split_once("  resync = ").expect("a resync runs");
    assert_eq!((bar.len(), &bar[..7]), (29, "      ["), "{shown}");
    assert!(bar.trim_matches([' ', '[', ']', '=', '.']) == ">", "{shown}");
    assert!(figures.contains(&format!("% ({}/{}) finish=", kib(done), kib(total))), "{shown}");
    assert!(figures.contains("min speed=") && figures.ends_with("K/sec"), "{shown}");
    let json: Value =
        serde_json::from_str(&rig.scratch.uraid(["mdstat", "--json"]).expect_done().stdout).expect("JSON");
    assert_eq!((&json[0]["name"], &json[0]["resync"]["total"]), (&Value::from("home"), total));
    rig.end();
}

#[test]
fn mdstat_shows_all_arrays_and_what_failed() {
    let scratch = Scratch::new();
    let nothing = scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(nothing.lines().count() == 2 && nothing.ends_with("unused devices: <none>\n"), "{nothing}");
    let (one, other) = (scratch.members("a", 4, 8 * MIB), scratch.members("b", 2, 8 * MIB));
    scratch.create("one", "-l 1 -n 2 -x 2 --assume-clean", &one);
    scratch.create("other", "-l 0 -n 2 -c 64K", &other);
    let (served, too) = (scratch.ready(&[], &one), scratch.ready(&[], &other));
    scratch.uraid(["fail", "one", "1"]).expect_done();
    // One of the spares has its slot then, the other one waits.
    served.wait_for(" recovered [UU]\n");
    let shown = scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(shown.contains(" : active raid1 a0[0] "), "{shown}");
    assert!(shown.contains(" a1[1](F)") && shown.contains(" a2[2] ") && shown.contains(" a3[3](S)"), "{shown}");
    assert!(
        shown.contains(" blocks super 1.2 [2/2] [UU]\n\nmd") && shown.contains(" : active raid0 b0[0] b1[1]\n"),
        "{shown}"
    );
    assert!(shown.contains(" blocks super 1.2 64k chunks\n\nunused devices: <none>\n"), "{shown}");
    assert_eq!((served.stop().code, too.stop().code), (Some(0), Some(0)));
}
