//! A server under a service manager: what it tells it, and how the journal gets its lines.
//! Owns: systemd's protocols as a service sees them. Not here: units (`units`).

use crate::common::{MIB, Scratch, Served, wait};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;

/// What a service manager is told until now, one message each.
fn told(socket: &UnixDatagram, all: &mut Vec<String>) {
    let mut bytes = [0; 4096];
    while let Ok(count) = socket.recv(&mut bytes) {
        all.push(String::from_utf8_lossy(&bytes[..count]).into_owned());
    }
}

#[track_caller]
fn wait_until_told(socket: &UnixDatagram, all: &mut Vec<String>, text: &str) {
    let seen = std::cell::RefCell::new(all);
    let is_told = || {
        told(socket, &mut seen.borrow_mut());
        seen.borrow().iter().any(|message| message.contains(text))
    };
    wait(is_told).unwrap_or_else(|()| panic!("{text:?} is not told: {:?}", seen.borrow()));
}

#[test]
fn the_service_manager_is_told_of_readiness_state_life_and_the_stop() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "--level 1 --raid-devices 2", &members);
    let socket = UnixDatagram::bind(scratch.path("notify")).expect("a socket");
    socket.set_nonblocking(true).expect("our socket");
    let mut command = scratch.command([std::path::PathBuf::from("serve"), members[0].clone(), members[1].clone()]);
    // Heard three times in 300 ms.
    command.env("NOTIFY_SOCKET", scratch.path("notify")).env("WATCHDOG_USEC", "300000");
    let served = Served::start(&mut command);
    let mut all = Vec::new();
    wait_until_told(&socket, &mut all, "READY=1\nSTATUS=home: [UU]");
    wait_until_told(&socket, &mut all, "WATCHDOG=1");
    served.wait_until_ready();
    scratch.uraid(["fail", "home", "1"]).expect_done();
    wait_until_told(&socket, &mut all, "STATUS=home: [U_]");
    assert!(!all.iter().any(|message| message.contains("STOPPING")), "{all:?}");
    assert_eq!(served.stop().code, Some(0));
    wait_until_told(&socket, &mut all, "STOPPING=1\nSTATUS=home: [U_]");
}

#[test]
fn an_array_is_served_although_the_service_manager_is_gone() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "--level 1 --raid-devices 2", &members);
    let mut command = scratch.command([std::path::PathBuf::from("serve"), members[0].clone(), members[1].clone()]);
    command.env("NOTIFY_SOCKET", scratch.path("nobody")).env("WATCHDOG_USEC", "soon");
    let served = Served::start(&mut command);
    served.wait_until_ready();
    served.wait_for("the service manager is not told that arrays are served");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn the_journal_gets_priorities_and_notes_the_time_itself() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "--level 1 --raid-devices 2", &members);
    let journal = File::create(scratch.path("journal")).expect("room");
    let status = journal.metadata().expect("a file");
    let mut command = scratch.command([std::path::PathBuf::from("serve"), members[0].clone(), members[1].clone()]);
    command.env("JOURNAL_STREAM", format!("{}:{}", status.dev(), status.ino()));
    let served = Served::start_with_stderr(&mut command, journal);
    served.wait_until_ready();
    scratch.uraid(["fail", "home", "1"]).expect_done();
    let text = || std::fs::read_to_string(scratch.path("journal")).expect("lines");
    wait(|| text().contains("is faulty")).expect("it is said");
    assert_eq!(served.stop().code, Some(0));
    let text = text();
    let line = |part: &str| text.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(line("raid1 is started").starts_with("<5>uraid: home: raid1 is started"), "{text}");
    assert!(line("is faulty").starts_with("<4>uraid: home: member "), "{text}");
}

#[test]
fn a_service_has_its_sockets_where_systemd_has_made_room() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "--level 1 --raid-devices 2", &members);
    std::fs::create_dir(scratch.path("uraid")).expect("room");
    let list = format!("{}:{}", scratch.path("arrays").display(), scratch.path("uraid").display());
    let mut command = scratch.command([std::path::PathBuf::from("serve"), members[0].clone(), members[1].clone()]);
    command.env_remove("URAID_RUNTIME_DIR").env("RUNTIME_DIRECTORY", list);
    let served = Served::start(&mut command);
    served.wait_until_ready();
    assert_eq!(served.socket(), scratch.path("uraid/home.nbd"));
    assert_eq!(served.stop().code, Some(0));
    assert!(wait(|| !scratch.path("uraid/home.ctl").exists()).is_ok());
}
