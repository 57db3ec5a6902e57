//! `uraid wait`: its end, its exit code, several that wait, a terminal.
//! Owns: waits for a resync that a FUSE server holds up. Not here: what else is said of it (`passes`).

use crate::common::stubborn::{Fails, StubbornFile};
use crate::common::{MIB, Scratch, Served, wait};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::Duration;

/// More than the control socket has places for.
const WAITERS: usize = 40;

struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    served: Served,
    // Dropped after the mount.
    scratch: Scratch,
}

/// An array `home`, whose resync stands still about half-way.
fn rig() -> Rig {
    let rig = rig_of("-l 5 -n 3 -c 64K");
    wait(|| rig.member.is_hung()).unwrap_or_else(|()| panic!("the resync reads it: {}", rig.served.stderr()));
    rig
}

/// An array `home`. A member does not answer reads of its middle.
fn rig_of(options: &str) -> Rig {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 3, 64 * MIB);
    let member = StubbornFile::in_place_of(&mut members, 1);
    scratch.create("home", options, &members);
    member.hang_at_read_of(32 * MIB..48 * MIB);
    let served = scratch.serve(&["--shards", "1"], &members);
    served.wait_until_ready();
    Rig { served, member, scratch }
}

/// A server without a resync.
fn idle(scratch: &Scratch) -> Served {
    let members = scratch.members("idle", 2, 8 * MIB);
    scratch.create("idle", "-l 1 -n 2 --assume-clean", &members);
    scratch.ready(&[], &members)
}

impl Rig {
    fn waiter(&self, words: &[&str]) -> Child {
        let mut command = self.scratch.command(["wait"].iter().chain(words));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    }
}

/// Its exit code, and what it said.
fn ended(waiter: Child) -> (Option<i32>, String) {
    let output = waiter.wait_with_output().expect("it is ours");
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn all_that_wait_return_when_the_resync_has_ended() {
    let rig = rig();
    let idle = idle(&rig.scratch);
    let mut waiters: Vec<Child> = (0..WAITERS).map(|_| rig.waiter(&["home"])).collect();
    let both = rig.waiter(&["home", "idle"]);
    std::thread::sleep(Duration::from_millis(500));
    assert!(waiters.iter_mut().all(|waiter| matches!(waiter.try_wait(), Ok(None))), "the resync has not ended");
    // They hold no place of the control socket.
    rig.scratch.uraid(["detail", "home"]).expect_done();
    rig.member.go_on();
    for waiter in waiters {
        assert_eq!(ended(waiter), (Some(0), String::new()));
    }
    let report = rig.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
    assert!(report.contains("\"resync\":null"), "{report}");
    let none = "nothing to wait for: no resync, recovery, check or repair runs";
    let nothing = |name: &str| (Some(1), format!("uraid: {name}: {none}\n"));
    assert_eq!(ended(both), nothing("idle"));
    assert_eq!(ended(rig.waiter(&["home"])), nothing("home"));
    assert_eq!((rig.served.stop().code, idle.stop().code), (Some(0), Some(0)));
    let gone = rig.scratch.uraid(["wait", "home"]);
    assert!(gone.code == Some(4) && gone.stderr.contains("no running array is called home"), "{gone:?}");
}

#[test]
fn an_array_that_is_stopped_meanwhile_is_an_error() {
    let rig = rig();
    let waiter = rig.waiter(&["home"]);
    std::thread::sleep(Duration::from_millis(500));
    rig.served.signal(rustix::process::Signal::TERM);
    rig.served.wait_for("home: stops: SIGTERM");
    rig.member.go_on();
    let (code, said) = ended(waiter);
    assert_eq!(code, Some(4), "{said}");
    assert!(
        said.starts_with("uraid: home: it was stopped, or its server has ended, at ")
            && said.contains("% of its resync; the next start continues it"),
        "{said}"
    );
    assert_eq!(rig.served.end().code, Some(0));
}

#[test]
fn a_check_whose_array_is_stopped_is_an_error() {
    let rig = rig_of("-l 5 -n 3 -c 64K --assume-clean");
    let mut command = rig.scratch.command(["check", "--wait", "home"]);
    let waiter = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    wait(|| rig.member.is_hung()).expect("the check reads it");
    std::thread::sleep(Duration::from_millis(300));
    rig.served.kill_unawaited();
    rig.member.go_on();
    let (code, said) = ended(waiter);
    let text = "uraid: home: it was stopped, or its server has ended, at ";
    assert!(
        code == Some(1) && said.starts_with(text) && said.contains("% of its check; the next start does"),
        "{said}"
    );
}

#[test]
fn an_array_that_is_killed_meanwhile_is_an_error() {
    let rig = rig();
    let waiter = rig.waiter(&["home"]);
    std::thread::sleep(Duration::from_millis(500));
    rig.served.kill_unawaited();
    rig.member.go_on();
    let (code, said) = ended(waiter);
    assert!(code == Some(4) && said.contains("home: it was stopped, or its server has ended, at "), "{said}");
}

#[test]
fn an_array_that_freezes_meanwhile_is_an_error() {
    let scratch = Scratch::new();
    // Large enough not to be done before the write.
    let mut members = scratch.members_to_pass("m", 2, 256 << 30);
    let member = StubbornFile::in_place_of(&mut members, 0);
    scratch.create("home", "-l 1 -n 2", &members);
    let served = scratch.serve(&[], &members);
    served.wait_until_ready();
    let rig = Rig { member, served, scratch };
    let waiter = rig.waiter(&["home"]);
    std::thread::sleep(Duration::from_millis(500));
    rig.member.fail(Fails::Full);
    assert_ne!(rig.served.client().write(0, &[1; 4096]).expect("connected"), 0, "there is no room");
    let (code, said) = ended(waiter);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("home: its resync waits at ") && said.contains("the array is frozen ("), "{said}");
    // It waits for a command, not for time.
    assert_eq!(ended(rig.waiter(&["home"])).0, Some(4));
    let shown = rig.scratch.uraid(["mdstat"]).expect_done().stdout;
    assert!(shown.contains(" : broken raid1 ") && shown.contains("\n      \tresync=PENDING\n"), "{shown}");
}

/// The two ends of a pseudoterminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("ours");
    let name = ptsname(&ours, Vec::new()).expect("it has a name");
    let theirs =
        rustix::fs::open(name, rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY, rustix::fs::Mode::empty());
    (ours, theirs.expect("it was unlocked"))
}

#[test]
fn a_terminal_shows_how_far_it_is() {
    let rig = rig();
    let (ours, theirs) = terminal();
    let mut command = rig.scratch.command(["wait", "home"]);
    let mut waiter = command.stdout(Stdio::null()).stderr(theirs).spawn().expect("the binary runs");
    // The command holds the other end, too, which would keep the terminal open.
    drop(command);
    let mut screen = std::fs::File::from(ours);
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("K/sec") {
        let count = screen.read(&mut buffer).unwrap_or_else(|error| panic!("{error}: {seen}"));
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(seen.contains("\r\x1b[Khome: resync [") && seen.contains(" KiB) finish="), "{seen}");
    rig.member.go_on();
    assert_eq!(waiter.wait().expect("it is ours").code(), Some(0));
    // The line is removed. After the last process has closed it, a terminal gives an error.
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(seen.ends_with("\r\x1b[K"), "{seen:?}");
}
