//! A member that hangs before it is served: the path that does not answer is named, and given up in time.
//! Owns: `serve`, `examine` and `detail` of members beside a FUSE server that is stopped. Not here: members of arrays
//! that run (`hung_commands`).

use crate::common::stubborn::StubbornFile;
use crate::common::{Done, MIB, Scratch, Served, pattern, wait};
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The path is named after 2 s, and given up after this time.
const TIMEOUT: [&str; 2] = ["--member-timeout", "3s"];
const WAITS: &str = "m1.mount/member: it does not answer; waiting for up to 3s";
const GIVEN_UP: &str = "m1.mount/member: it did not answer within 3s";
const KEPT: &str = "m1.mount/member: it has not answered: the kernel may keep this process until it does\n";

struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    members: Vec<PathBuf>,
    // Dropped after the mount.
    scratch: Scratch,
}

/// A stopped raid5 whose member 1 hangs. The server is busy with a request of this process and accepts no other. A
/// process whose request was not accepted yet can end.
fn rig() -> Rig {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 3, 4 * MIB);
    let member = StubbornFile::in_place_of(&mut members, 1);
    scratch.create("home", "-l 5 -n 3 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &pattern(1, 1 << 20)).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    member.hang();
    std::thread::sleep(Duration::from_millis(1200));
    let path = members[1].clone();
    std::thread::spawn(move || std::fs::metadata(path));
    std::thread::sleep(Duration::from_millis(100));
    Rig { member, members, scratch }
}

impl Rig {
    fn begin(&self, words: &[&str]) -> Served {
        let words = words.iter().map(PathBuf::from).chain(self.members.iter().cloned());
        Served::start(&mut self.scratch.command(words))
    }

    /// Runs a command that first names the member and then gives it up. Returns how the command ended.
    #[track_caller]
    fn gives_up(&self, words: &[&str]) -> Done {
        let began = Instant::now();
        let mut running = self.begin(words);
        running.wait_for(WAITS);
        let named = began.elapsed();
        running.wait_for(GIVEN_UP);
        let given_up = began.elapsed();
        let has_ended = self.ends(&mut running);
        println!(
            "{:<8} names it after {named:?}, gives it up after {given_up:?}, ends after {:?}",
            words[0],
            began.elapsed()
        );
        let done = running.end();
        assert!(has_ended, "it waits for the member: {done:?}");
        assert!(done.stderr.ends_with(KEPT), "{done:?}");
        assert_eq!((done.stderr.matches(WAITS).count(), done.stderr.matches(GIVEN_UP).count()), (1, 1), "{done:?}");
        done
    }

    /// Whether a command ends before the member answers; it answers after this if not.
    fn ends(&self, running: &mut Served) -> bool {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            if running.has_ended() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.member.go_on();
        false
    }
}

#[test]
fn examine_and_detail_name_a_member_that_hangs_and_show_the_others() {
    let rig = rig();
    let words = |subcommand| [&[subcommand], &TIMEOUT[..]].concat();
    let done = rig.gives_up(&words("examine"));
    assert_eq!(done.code, Some(1));
    assert_eq!(done.stdout.matches("Device Role : Active device").count(), 2, "{done:?}");
    let done = rig.gives_up(&words("detail"));
    assert!(done.code == Some(0) && done.stdout.contains("clean, degraded, Not Started"), "{done:?}");
}

#[test]
fn serve_starts_without_a_member_that_hangs_where_it_may() {
    let rig = rig();
    let done = rig.gives_up(&["serve", TIMEOUT[0], TIMEOUT[1]]);
    assert_eq!(done.code, Some(1));
    assert!(done.stderr.contains("or --run to start degraded"), "{done:?}");
    let served = rig.begin(&["serve", "--run", TIMEOUT[0], TIMEOUT[1]]);
    served.wait_until_ready();
    let shown = rig.scratch.uraid(["detail", "home"]).expect_done().stdout;
    assert!(
        shown.contains(&format!("Left Out : {}: it did not answer within 3s", rig.members[1].display())),
        "{shown}"
    );
    assert!(served.client().read(0, 1 << 20).expect("connected") == Ok(pattern(1, 1 << 20)));
    let mut served = served;
    served.signal(Signal::TERM);
    served.wait_for(KEPT);
    rig.ends(&mut served);
    rig.member.go_on();
    let done = served.end();
    assert!(done.code == Some(0) && done.stderr.contains("home: is stopped and clean"), "{done:?}");
}

#[test]
fn a_signal_ends_a_command_that_waits_for_a_member() {
    let rig = rig();
    for (subcommand, signal) in [("examine", Signal::INT), ("detail", Signal::TERM), ("serve", Signal::INT)] {
        let mut running = rig.begin(&[subcommand, "--member-timeout", "0"]);
        running.wait_for("m1.mount/member: it does not answer; waiting without a limit\n");
        running.signal(signal);
        let began = Instant::now();
        let has_ended = rig.ends(&mut running);
        println!("{subcommand:<8} ends {:?} after the signal", began.elapsed());
        assert!(has_ended, "{subcommand} waits for the member");
    }
    rig.member.go_on();
    let served = rig.scratch.ready(&[], &rig.members);
    wait(|| rig.scratch.uraid(["list"]).stdout.contains("[3/3]")).expect("it is as before");
    assert_eq!(served.stop().code, Some(0));
}
