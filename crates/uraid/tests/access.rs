//! What `serve` lets clients do: the mode of the NBD socket, exports that are read-only, privileges of the process.
//! Owns: options of access, by the binary. Not here: the NBD protocol (`export-nbd`), the control socket (`control.rs`).

mod common;

use common::{MIB, Scratch};
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

#[test]
fn no_thread_of_a_server_can_gain_privileges() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("bound", RAID1, &members);
    let served = scratch.ready(&["--shards", "2"], &members);
    for thread in fs::read_dir(format!("/proc/{}/task", served.pid())).expect("it runs").flatten() {
        let status = fs::read_to_string(thread.path().join("status")).expect("it runs");
        assert!(status.lines().any(|line| line == "NoNewPrivs:\t1"), "{status}");
    }
    assert_eq!(served.stop().code, Some(0));
}
