//! A member whose server hangs while its array is made consistent, beside its first requests.
//! Owns: a FUSE server that hangs under one member in the middle of the first resync, on every redundant level, with
//! io_uring and with helper threads. Not here: the same in an array that is served (`hung`).

use crate::common::stubborn::StubbornFile;
use crate::common::{MIB, Scratch, Served, pattern, wait};
use rustix::process::Signal;
use std::path::PathBuf;

const CASES: [(&str, usize, usize); 5] = [("1", 3, 0), ("1", 3, 2), ("10", 4, 1), ("5", 4, 3), ("6", 4, 0)];
const RINGS: [&str; 2] = ["auto", "threads"];
/// In the data of each member.
const HANGS_AT: std::ops::Range<u64> = 3 * MIB..4 * MIB;

struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    served: Served,
    members: Vec<PathBuf>,
    // Dropped after the mount.
    scratch: Scratch,
}

/// An array that is new, whose resync has come to a member that hangs.
fn rig(level: &str, count: usize, hung: usize, options: &[&str]) -> Rig {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", count, 6 * MIB);
    let member = StubbornFile::in_place_of(&mut members, hung);
    scratch.create("hung", &format!("-l {level} -n {count}"), &members);
    member.hang_at_read_of(HANGS_AT);
    let served = scratch.serve(options, &members);
    wait(|| member.is_hung()).unwrap_or_else(|()| panic!("the resync reads the member: {}", served.stderr()));
    Rig { served, member, members, scratch }
}

#[test]
fn a_member_that_hangs_in_the_resync_is_failed_and_clients_are_served_meanwhile() {
    for ((level, count, hung), ring) in CASES.into_iter().flat_map(|case| RINGS.map(|ring| (case, ring))) {
        let case = format!("raid{level}, {ring}, member {hung}");
        let rig = rig(level, count, hung, &["--ring", ring, "--member-timeout", "1s"]);
        for words in [&["detail", "hung"][..], &["list"]] {
            assert!(rig.scratch.uraid(words).expect_done().stdout.contains("hung"), "{case}");
        }
        rig.served.wait_until_ready();
        rig.served.wait_for(&format!("(slot {hung}) is faulty: it did not answer "));
        let mut client = rig.served.client();
        let data = pattern(1, 4 * MIB as usize);
        assert_eq!(client.write(0, &data).expect("connected"), 0, "{case}");
        assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "{case}");
        rig.member.go_on();
        let Rig { served, member, mut members, scratch } = rig;
        assert_eq!(served.stop().code, Some(0), "{case}");
        // It is recorded: the others start without it and without --force.
        drop(member);
        members.remove(hung);
        let again = scratch.ready(&["--run"], &members);
        assert!(again.client().read(0, data.len()).expect("connected").as_ref() == Ok(&data), "{case}");
        assert_eq!(again.stop().code, Some(0), "{case}");
    }
}

#[test]
fn a_stop_waits_no_longer_than_the_timeout_for_a_member_that_hangs_in_the_resync() {
    for ring in RINGS {
        let rig = rig("5", 3, 1, &["--ring", ring, "--member-timeout", "1s"]);
        rig.served.signal(Signal::TERM);
        // Once the member has failed, what is left of the resync takes milliseconds: on a busy machine it may end first.
        const LEFT: &str = " of its resync left; the next start continues it";
        let is_over = || ["is stopped and clean", LEFT].iter().any(|end| rig.served.stderr().contains(end));
        wait(is_over).unwrap_or_else(|()| panic!("{ring}: it does not stop:\n{}", rig.served.stderr()));
        let is_left = rig.served.stderr().contains(LEFT);
        // The kernel does not end the process before its last request has ended.
        rig.member.go_on();
        let Rig { served, member: _member, members, scratch } = rig;
        assert_eq!(served.end().code, Some(0), "{ring}");
        // What was left begins again.
        let again = scratch.ready(&["--force"], &members);
        if is_left {
            again.wait_for("it is made consistent, as far as the members that are left allow, while it takes requests");
        }
        assert_eq!(again.stop().code, Some(0), "{ring}");
    }
}
