//! What `serve` lets clients do: the mode of the NBD socket, exports that are read-only, privileges of the process.
//! Owns: options of access, by the binary. Not here: the NBD protocol (`export-nbd`), the control socket (`control.rs`).

use crate::common::{MIB, Scratch, pattern};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const RAID1: &str = "--level 1 --raid-devices 2 --assume-clean";

#[test]
fn the_mode_of_the_export_is_as_asked_for_and_nonsense_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("mode", RAID1, &members);
    for (options, expected) in
        [(&[][..], 0o600), (&["--export-mode", "660"], 0o660), (&["--export-mode", "0666"], 0o666)]
    {
        let served = scratch.ready(options, &members);
        let mode = |path: PathBuf| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(served.socket()), mode(scratch.path("mode.ctl"))), (expected, 0o600));
        assert_eq!(served.stop().code, Some(0));
    }
    for nonsense in ["", "6", "888", "rw-rw----", "066", "1666", "+600", "0o600"] {
        let done = scratch.serve(&["--export-mode", nonsense], &members).end();
        assert_eq!(done.code, Some(2), "{nonsense}");
        assert!(done.stderr.contains("--export-mode"), "{}", done.stderr);
    }
}

#[test]
fn a_read_only_export_of_an_array_that_is_written() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("look", RAID1, &members);
    let served = scratch.ready(&["--export-read-only"], &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &[7; 512]).expect("connected"), 1, "EPERM");
    assert_eq!(client.read(0, 512).expect("connected"), Ok(vec![0; 512]));
    assert_eq!(served.stop().code, Some(0));
}

/// Each thread's `/proc/PID/task/TID/status`, in a moment.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    // A thread may end meanwhile.
    tasks.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok()).collect()
}

#[test]
fn no_thread_of_a_server_has_or_can_gain_privileges_and_it_serves_all_the_same() {
    for ring in ["auto", "threads"] {
        let scratch = Scratch::new();
        let members = scratch.members("m", 3, 8 * MIB);
        scratch.create("bound", "--level 1 --raid-devices 3 --assume-clean", &members);
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            // Root can reach this only with a capability.
            let user = rustix::process::Uid::from_raw(12345);
            let folder = scratch.path("folder");
            fs::create_dir(&folder).expect("made");
            fs::rename(&members[2], folder.join("m2")).expect("moved");
            for (path, mode) in [(folder.join("m2"), 0o600), (folder.clone(), 0o700)] {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
                rustix::fs::chown(&path, Some(user), None).expect("root may");
            }
        }
        let third = if is_root { scratch.path("folder/m2") } else { members[2].clone() };
        let members = [members[0].clone(), members[1].clone(), third];
        let served = scratch.ready(&["--shards", "2", "--ring", ring], &members);
        let mut client = served.client();
        let data = pattern(5, MIB as usize);
        assert_eq!(client.write(0, &data).expect("connected"), 0);
        assert_eq!(client.flush().expect("connected"), 0);
        // Looks at the paths on helper threads.
        let shown = scratch.uraid(["detail", "bound"]).expect_done().stdout;
        assert!(shown.contains("[UUU]") && !shown.contains("its path leads"), "{shown}");
        let all = threads(served.pid());
        assert!(all.len() >= 3, "{all:?}");
        for status in &all {
            let has = |text: &str| status.lines().any(|line| line == text);
            assert!(has("NoNewPrivs:\t1"), "{status}");
            for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
                assert!(has(&format!("{set}:\t0000000000000000")), "{ring}: {status}");
            }
            assert!(has("CapBnd:\t0000000000000000") || !is_root, "{ring}: {status}");
        }
        // Once for its data, and for the flushes of each of the two threads that serve.
        let descriptors = fs::read_dir(format!("/proc/{}/fd", served.pid())).expect("it runs").flatten();
        let opened = descriptors.filter(|fd| fs::read_link(fd.path()).is_ok_and(|path| path == members[2])).count();
        assert_eq!(opened, 3, "{ring}");
        scratch.uraid(["fail", "bound", "0"]).expect_done();
        assert_eq!(client.write(MIB, &data).expect("connected"), 0);
        assert_eq!(client.read(0, data.len()).expect("connected").as_ref(), Ok(&data));
        scratch.uraid(["stop", "--force", "bound"]).expect_done();
        assert_eq!(served.end().code, Some(0));
        assert!(!scratch.path("bound.ctl").exists() && !scratch.path("bound.nbd").exists());
    }
}

#[test]
fn a_mode_for_a_tcp_address_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("wide", RAID1, &members);
    let options = ["--nbd", "tcp:127.0.0.1:0", "--insecure", "--export-mode", "660"];
    let done = scratch.serve(&options, &members).end();
    done.expect_refused(&["--export-mode is the mode of a unix socket, and --nbd tcp:127.0.0.1:0 has none"]);
}

#[test]
fn detail_tells_how_clients_get_in_and_how_long_a_member_may_take() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("shown", RAID1, &members);
    let ways: [(&[&str], _, _, _, _); 3] = [
        (&[], "shown, read-write, socket mode 600", "30 s", 30_000, Some("600")),
        (
            &["--export-mode", "660", "--export-read-only", "--export-name", "x", "--member-timeout", "1500ms"],
            "x, read-only, socket mode 660",
            "1.5 s",
            1500,
            Some("660"),
        ),
        (
            &["--nbd", "tcp:127.0.0.1:0", "--insecure", "--read-only", "--member-timeout", "0"],
            "shown, read-only, TCP",
            "none",
            0,
            None,
        ),
    ];
    for (options, export, timeout, milliseconds, mode) in ways {
        let served = scratch.ready(options, &members);
        let text = scratch.uraid(["detail", "shown"]).expect_done().stdout;
        assert!(text.contains(&format!("Export : {export}\n")), "{text}");
        assert!(text.contains(&format!("Member Timeout : {timeout}\n")), "{text}");
        let json = scratch.uraid(["detail", "--json", "shown"]).expect_done().stdout;
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["server"]["member_timeout_ms"], milliseconds, "{json}");
        assert_eq!(json["server"]["exports"][0]["mode"].as_str(), mode, "{json}");
        assert_eq!(served.stop().code, Some(0));
    }
}
