//! Block devices that go while they are written, as a disk that is pulled: its capacity is 0 from then on, or less.
//! Owns: what the array does then, level by level. Not here: files that shrink (`errors`), errnos (`uraid-host`).
//! Needs root and losetup; says SKIPPED where it has not.

use crate::common::loop_device::LoopDevice;
use crate::common::{MIB, Scratch, pattern, wait};

/// Slot 1 of an array is a block device that loses all sectors or the later ones between two writes of the whole array.
fn pull(options: &str, count: usize, bytes_left: u64) {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", count, 8 * MIB);
    let Some(device) = LoopDevice::new(&members[1]) else {
        eprintln!("SKIPPED pulled {options}: a loop device cannot be made here (needs root and losetup)");
        return;
    };
    let file = std::mem::replace(&mut members[1], device.path().to_owned());
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
    // The failure is recorded: the others start without it, and without --run or --force.
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

#[test]
fn a_loop_device_that_is_detached_in_use_serves_until_the_array_stops() {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 3, 8 * MIB);
    let Some(device) = LoopDevice::new(&members[1]) else {
        eprintln!("SKIPPED pulled, detached: a loop device cannot be made here (needs root and losetup)");
        return;
    };
    let file = std::mem::replace(&mut members[1], device.path().to_owned());
    scratch.create("pulled", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    let data = pattern(1, client.size as usize);
    device.detach();
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    assert!(device.is_attached(), "it is open");
    assert!(!served.stderr().contains("faulty"), "{}", served.stderr());
    assert_eq!(served.stop().code, Some(0));
    wait(|| !device.is_attached()).expect("it was closed");
    members[1] = file;
    let served = scratch.ready(&[], &members);
    assert!(served.client().read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    assert_eq!(served.stop().code, Some(0));
}
