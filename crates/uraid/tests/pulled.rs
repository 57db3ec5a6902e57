//! Block devices that go while they are written, as a disk that is pulled: its capacity is 0 from then on, or less.
//! Owns: what the array does then, level by level. Not here: files that shrink (`errors`), errnos (`uraid-host`).
//! Needs root and losetup; says SKIPPED where it has not.

mod common;

use common::{MIB, Scratch, pattern};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, gone with the test.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(file: &Path) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        output.status.success().then(|| LoopDevice(String::from_utf8_lossy(&output.stdout).trim().into()))
    }

    /// What is behind `bytes` is gone.
    fn shrink(&self, file: &Path, bytes: u64) {
        OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(bytes)).expect("a file");
        let resized = Command::new("losetup").arg("--set-capacity").arg(&self.0).status().expect("losetup");
        assert!(resized.success());
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// Slot 1 of an array is a block device that loses all sectors or the later ones between two writes of the whole array.
fn pull(options: &str, count: usize, bytes_left: u64) {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", count, 8 * MIB);
    let Some(device) = LoopDevice::new(&members[1]) else {
        eprintln!("SKIPPED pulled {options}: a loop device cannot be made here (needs root and losetup)");
        return;
    };
    let file = std::mem::replace(&mut members[1], device.0.clone());
    scratch.create("pulled", options, &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let size = client.size as usize;
    let mut data = pattern(1, size);
    assert_eq!(client.write(0, &data).expect("connected"), 0, "{options}");
    device.shrink(&file, bytes_left);
    for (at, part) in pattern(2, size).chunks(256 * 1024).enumerate() {
        let at = at * 256 * 1024;
        assert_eq!(client.write(at as u64, part).expect("connected"), 0, "{options}: at {at}\n{}", served.stderr());
        data[at..at + part.len()].copy_from_slice(part);
    }
    served.wait_for("(slot 1) is faulty: ");
    assert!(served.stderr().contains("the member is gone or shrank"), "{options}: {}", served.stderr());
    assert!(client.read(0, size).expect("connected").as_ref() == Ok(&data), "{options}");
    assert_eq!(served.stop().code, Some(0), "{options}");
    // It is recorded: the others start without it and without a word of consent.
    members.remove(1);
    let served = scratch.ready(&[], &members);
    assert!(served.client().read(0, size).expect("connected").as_ref() == Ok(&data), "{options}");
    assert_eq!(served.stop().code, Some(0), "{options}");
}

#[test]
fn a_block_device_that_is_pulled_under_writes_is_failed_and_no_client_notices() {
    for (options, count) in [
        ("-l 1 -n 2 --assume-clean", 2),
        ("-l 10 -n 4 -c 64K --assume-clean", 4),
        ("-l 4 -n 3 -c 64K --assume-clean", 3),
        ("-l 5 -n 3 -c 64K --assume-clean", 3),
        ("-l 6 -n 4 -c 64K --assume-clean", 4),
    ] {
        for bytes_left in [0, 4 * MIB] {
            pull(options, count, bytes_left);
        }
    }
}
