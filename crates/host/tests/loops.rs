//! Loop devices and their partitions as members: whose bytes they have, and how they fail when they shrink.
//! Needs root and losetup; prints SKIPPED without them. Files and windows of files are in `windows`.

use crate::common::StartLock;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use uraid_block::{Device, ErrorKind, Fua, Range, Sector, Sectors};
use uraid_host::{Access, Claimed, OpenError, Options, RingChoice, Shard, Target, Window, run};

const MIB: u64 = 1 << 20;

/// A file of 8 MiB in a folder, both deleted with the test.
struct Image(PathBuf, #[expect(dead_code, reason = "it is held")] StartLock);

impl Image {
    fn new(name: &str) -> Image {
        let folder = std::env::temp_dir().join(format!("uraid-loops-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary directory");
        let image = Image(folder, StartLock::exclusive());
        File::create(image.path()).and_then(|file| file.set_len(8 * MIB)).expect("room");
        image
    }

    fn path(&self) -> PathBuf {
        self.0.join("image")
    }

    /// Device nodes for two partitions of a loop device, from 1 MiB to 2 MiB and from 4 MiB to 6 MiB. Added by hand:
    /// the kernel here may read no partition tables, and udev, which makes nodes in `/dev`, may be missing.
    fn nodes(&self, device: &LoopDevice) -> Option<[PathBuf; 2]> {
        let name = device.0.file_name().and_then(|name| name.to_str()).expect("loopN");
        let nodes = [("1", "2048", "2048"), ("2", "8192", "4096")].map(|(number, start, sectors)| {
            let added = Command::new("addpart").arg(&device.0).args([number, start, sectors]).status().ok()?;
            assert!(added.success(), "losetup was called with --partscan");
            let numbers = std::fs::read_to_string(format!("/sys/block/{name}/{name}p{number}/dev")).ok()?;
            let (major, minor) = numbers.trim().split_once(':')?;
            let node = self.0.join(format!("p{number}"));
            let status = Command::new("mknod").arg(&node).args(["b", major, minor]).status().ok()?;
            (status.success() && File::open(&node).is_ok()).then_some(node)
        });
        let [Some(one), Some(two)] = nodes else {
            eprintln!("SKIPPED: loops: partitions of a loop device cannot be had here");
            return None;
        };
        Some([one, two])
    }

    fn claim(&self, offset: u64, length: u64) -> Result<Claimed, OpenError> {
        let window = Some(Window { offset, length: Some(length) });
        let whole = Target::whole(&self.path()).expect("a path");
        Claimed::open_target(&Target { window, ..whole }, Access::ReadWrite)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A loop device, detached with the test.
struct LoopDevice(PathBuf);

impl LoopDevice {
    /// `None`, with a message, where that is not allowed.
    fn new(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            eprintln!("SKIPPED: loops: may not make a loop device here (needs root and losetup)");
            return None;
        };
        Some(LoopDevice(String::from_utf8(output.stdout).expect("a path").trim().into()))
    }

    fn claim(&self) -> Result<Claimed, OpenError> {
        claim(&self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

fn claim(path: &Path) -> Result<Claimed, OpenError> {
    Claimed::open(path, Access::ReadWrite)
}

#[track_caller]
fn expect_twice(second: Result<Claimed, OpenError>) {
    let error = second.err();
    assert!(matches!(error, Some(OpenError::ClaimedTwice { .. })), "{error:?}");
}

#[track_caller]
fn expect_in_use(second: Result<Claimed, OpenError>) {
    let error = second.err();
    assert!(matches!(error, Some(OpenError::InUse { .. })), "{error:?}");
}

#[test]
fn a_loop_device_and_its_file_are_one_member() {
    let image = Image::new("one");
    let Some(device) = LoopDevice::new(&image.path(), &[]) else { return };
    let link = image.0.join("link");
    std::fs::hard_link(image.path(), &link).expect("a hard link");
    for (first, second) in [(&device.0, &link), (&link, &device.0), (&device.0, &image.path())] {
        let claimed = claim(first).expect("free");
        expect_twice(claim(second));
        drop(claimed);
    }
    expect_twice(device.claim().and_then(|_held| image.claim(MIB, MIB)));
    // The inode counts, not the file that has the path now.
    std::fs::rename(image.path(), image.0.join("renamed")).expect("renamed");
    File::create(image.path()).and_then(|file| file.set_len(8 * MIB)).expect("room");
    let claimed = device.claim().expect("free");
    expect_twice(claim(&link));
    drop(claim(&image.path()).expect("another file"));
    drop(claimed);
    std::fs::remove_file(image.0.join("renamed")).expect("there");
    let claimed = claim(&link).expect("free");
    expect_twice(device.claim());
    drop(claimed);
}

#[test]
fn a_loop_device_over_a_part_of_a_file_claims_that_part() {
    let image = Image::new("part");
    let options = ["--offset", "2097152", "--sizelimit", "2097152"];
    let Some(device) = LoopDevice::new(&image.path(), &options) else { return };
    let Some(over) = LoopDevice::new(&device.0, &["--offset", "1048576"]) else { return };
    let claimed = device.claim().expect("free");
    assert_eq!(claimed.size(), Sectors(4096));
    drop((image.claim(0, 2 * MIB).expect("before it"), image.claim(4 * MIB, MIB).expect("behind it")));
    for (offset, length) in [(2 * MIB, MIB), (4 * MIB - 4096, MIB), (MIB, 4 * MIB)] {
        expect_twice(image.claim(offset, length));
    }
    expect_twice(over.claim());
    drop(claimed);
    let claimed = over.claim().expect("free");
    drop(image.claim(2 * MIB, MIB).expect("before it"));
    expect_twice(image.claim(3 * MIB, 4096));
    drop(claimed);
}

#[test]
fn partitions_of_a_loop_device_are_parts_of_its_file() {
    let image = Image::new("partitions");
    let Some(device) = LoopDevice::new(&image.path(), &["--partscan"]) else { return };
    let Some([one, two]) = image.nodes(&device) else { return };
    let claims = (claim(&one).expect("free"), claim(&two).expect("beside it"));
    expect_twice(image.claim(MIB, 4096));
    expect_twice(image.claim(5 * MIB, MIB));
    expect_twice(claim(&image.path()));
    drop(image.claim(2 * MIB, 2 * MIB).expect("between them"));
    drop(claims);
    let whole = Target::whole(&device.0).expect("a path");
    let window = |offset| Target { window: Some(Window { offset, length: Some(MIB) }), ..whole.clone() };
    let claimed = Claimed::open_target(&window(4 * MIB), Access::ReadWrite).expect("free");
    expect_twice(claim(&two));
    drop(claim(&one).expect("free"));
    drop(claimed);
}

#[test]
fn a_loop_device_is_in_use_while_another_process_has_its_file() {
    let image = Image::new("process");
    let Some(device) = LoopDevice::new(&image.path(), &[]) else { return };
    // Another description of the file stands for another process: locks belong to the description.
    let other = OpenOptions::new().read(true).write(true).open(image.path()).expect("there");
    other.lock().expect("it is free");
    expect_in_use(device.claim());
    drop(other);
    let claimed = device.claim().expect("free");
    let status =
        Command::new("flock").arg("--nonblock").arg(image.path()).arg("true").status().expect("flock is there");
    assert_eq!(status.code(), Some(1), "its file is locked");
    drop(claimed);
    // Only the bytes of the window are locked.
    drop(device);
    let Some(device) = LoopDevice::new(&image.path(), &["--offset", "4194304"]) else { return };
    let claimed = device.claim().expect("free");
    let shared = |kind: &str| {
        let mut flock = Command::new("flock");
        flock.args(["--nonblock", kind]).arg(image.path()).arg("true").status().expect("flock is there").code()
    };
    assert_eq!((shared("--shared"), shared("--exclusive")), (Some(0), Some(1)));
    drop(claimed);
    // A claim for reading shares it with other readers.
    let (one, two) = (claim_read(&device.0), File::open(image.path()).expect("there"));
    two.try_lock_shared().expect("shared");
    drop((one, two));
}

fn claim_read(path: &Path) -> Claimed {
    Claimed::open(path, Access::ReadOnly).expect("free")
}

async fn write(shard: &Shard<()>, member: &uraid_host::Member, at: u64) -> Result<(), ErrorKind> {
    let mut pieces = shard.arena(0).take(8192).expect("room");
    pieces.copy_from(&[7; 8192]);
    member.write(Sector(at), pieces.freeze(), Fua::No).await.map_err(|error| error.kind)
}

#[test]
fn a_block_device_that_shrank_is_gone_not_full() {
    let image = Image::new("shrank");
    for ring in [RingChoice::IoUring, RingChoice::Threads] {
        for at in [4096, 4096 - 8] {
            File::options().write(true).open(image.path()).and_then(|file| file.set_len(8 * MIB)).expect("room");
            let Some(device) = LoopDevice::new(&image.path(), &[]) else { return };
            let claimed = device.claim().expect("free");
            File::options().write(true).open(image.path()).and_then(|file| file.set_len(2 * MIB)).expect("a file");
            let resized = Command::new("losetup").arg("--set-capacity").arg(&device.0).status().expect("losetup");
            assert!(resized.success());
            run(1, &Options { ring, ..Options::default() }, |shard: Shard<()>| {
                let claimed = claimed.clone();
                async move {
                    let member = claimed.on_shard(&shard);
                    assert_eq!(write(&shard, &member, 1024).await, Ok(()), "{ring:?}: before its end");
                    assert_eq!(write(&shard, &member, at).await, Err(ErrorKind::Gone), "{ring:?}: at {at}");
                    // From then on all writes fail.
                    assert_eq!(write(&shard, &member, 1024).await, Err(ErrorKind::Gone), "{ring:?}");
                }
            });
            assert_eq!(claimed.write_at(4 * MIB, &[1]).map_err(|error| error.kind), Err(ErrorKind::Gone));
            drop(claimed);
            let claimed = device.claim().expect("free");
            assert_eq!(claimed.size(), Sectors(4096), "its new size");
            drop(claimed);
        }
        let Some(device) = LoopDevice::new(&image.path(), &[]) else { return };
        let claimed = device.claim().expect("free");
        File::options().write(true).open(image.path()).and_then(|file| file.set_len(MIB)).expect("a file");
        assert!(Command::new("losetup").arg("--set-capacity").arg(&device.0).status().expect("losetup").success());
        run(1, &Options { ring, ..Options::default() }, |shard: Shard<()>| {
            let claimed = claimed.clone();
            async move {
                let member = claimed.on_shard(&shard);
                let zeroed = member.write_zeroes(Range::new(Sector(3072), Sectors(64))).await;
                assert_eq!(zeroed.map_err(|error| error.kind), Err(ErrorKind::Gone), "{ring:?}: zeroes");
                let punched = member.punch_hole(Range::new(Sector(3072), Sectors(64))).await;
                assert_eq!(punched.map_err(|error| error.kind), Err(ErrorKind::Gone), "{ring:?}: a hole");
            }
        });
    }
}

/// When a process that the kernel cannot end releases its locks, the file under a loop device becomes free too.
#[test]
fn a_loop_device_whose_locks_were_released_can_be_claimed_by_its_file() {
    let image = Image::new("let-go");
    let Some(device) = LoopDevice::new(&image.path(), &[]) else { return };
    let claimed = device.claim().expect("the device is free");
    let file = File::open(image.path()).expect("ours");
    assert!(file.try_lock().is_err(), "the file is in use with the device");
    claimed.release_locks();
    file.try_lock().expect("it was let go of");
}
