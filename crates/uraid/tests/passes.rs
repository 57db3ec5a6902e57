//! What is said of an array while a pass runs over it.
//! Owns: `detail` in the middle of a resync that a FUSE server holds up. Not here: the resync itself (`hung_start`,
//! `life`), the figures of a line (`pace`).

mod common;

use common::stubborn::StubbornFile;
use common::{MIB, Scratch, Served, wait};
use serde_json::Value;

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
        wait(|| rig.report()["resync"]["done"].as_u64() > Some(0)).expect("a part of it is done");
        rig
    }

    fn report(&self) -> Value {
        let shown = self.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
        serde_json::from_str(&shown).expect("JSON")
    }

    fn text(&self) -> String {
        self.scratch.uraid(["detail", "home"]).expect_done().stdout
    }

    /// The resync goes on to its end, and the array stops clean.
    fn end(self) {
        self.member.go_on();
        wait(|| self.report()["resync"].is_null()).expect("it ends");
        assert!(!self.text().contains("Resync"), "{}", self.text());
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
        let is_state = |word| text.contains(&format!("             State : {word}, resyncing {slots}\n"));
        assert!(is_state("active") || is_state("clean"), "{text}");
        assert!(text.contains("Consistency Policy : resync\n"), "{text}");
        rig.end();
    }
}
