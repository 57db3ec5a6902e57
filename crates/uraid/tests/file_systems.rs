//! ext4, XFS and Btrfs on arrays that lose members and get them back.
//! Owns: a tree that survives, and a file under random operations beside a model. Not here: punches and trims by
//! themselves (`fuse_loop`). Needs root and losetup, as loop devices do.

use crate::common::loop_device::LoopDevice;
use crate::common::{MIB, next_random, pattern};
use crate::fuse::Mounted;
use crate::fuse_loop::{FileSystem, looped, run};
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file system: how it is made, and checked without a change.
struct Kind {
    name: &'static str,
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const KINDS: [Kind; 3] = [
    Kind { name: "ext4", make: &["mkfs.ext4", "-q"], check: &["e2fsck", "-fn"] },
    Kind { name: "xfs", make: &["mkfs.xfs", "-q"], check: &["xfs_repair", "-n"] },
    Kind { name: "btrfs", make: &["mkfs.btrfs", "-q"], check: &["btrfs", "check", "--readonly"] },
];

fn call(words: &[&str], device: &LoopDevice) {
    device.wait_until_free();
    let rest = words[1..].iter().map(Path::new).chain([device.path()]);
    run(words[0], &rest.collect::<Vec<&Path>>());
}

/// The array `home`, a raid6 of five, with a file system; `None` where loop devices are not allowed.
fn made(kind: &Kind) -> Option<(Mounted, LoopDevice)> {
    let (mounted, device) = looped("raid6", 5, 140 * MIB)?;
    call(kind.make, &device);
    Some((mounted, device))
}

/// Files of many sizes in folders, some of them removed again, links and a sparse file.
fn fill(root: &Path) {
    for nth in 0..300u64 {
        let folder = root.join(format!("d{}/e{}", nth % 7, nth % 3));
        fs::create_dir_all(&folder).expect("a folder");
        let bytes = (nth * nth * 37 % 90_000) as usize;
        fs::write(folder.join(format!("f{nth}")), pattern(nth, bytes)).expect("room");
    }
    for nth in (0..300u64).step_by(5) {
        fs::remove_file(root.join(format!("d{}/e{}/f{nth}", nth % 7, nth % 3))).expect("ours");
    }
    std::os::unix::fs::symlink("d1", root.join("link")).expect("a link");
    let sparse = File::create(root.join("sparse")).expect("a new file");
    sparse.write_all_at(&pattern(1, 5000), 40 << 20).expect("room");
}

fn expect_filled(root: &Path, kind: &str) {
    for nth in 0..300u64 {
        let path = root.join(format!("d{}/e{}/f{nth}", nth % 7, nth % 3));
        let bytes = (nth * nth * 37 % 90_000) as usize;
        if nth % 5 == 0 {
            assert!(!path.exists(), "{kind}: {nth}");
        } else {
            assert!(fs::read(&path).expect("it is there") == pattern(nth, bytes), "{kind}: file {nth}");
        }
    }
    assert_eq!(fs::read_link(root.join("link")).expect("it is there"), Path::new("d1"), "{kind}");
    let mut found = vec![0; 5000];
    let sparse = File::open(root.join("sparse")).expect("it is there");
    sparse.read_exact_at(&mut found, 40 << 20).expect("its end");
    assert!(found == pattern(1, 5000), "{kind}: the sparse file");
}

#[test]
fn a_tree_is_whole_after_two_members_are_lost() {
    for kind in &KINDS {
        let Some((mounted, device)) = made(kind) else { return };
        let folder = mounted.scratch.path("root");
        fill(&FileSystem::mount(device.path(), folder.clone()).0);
        call(kind.check, &device);
        mounted.scratch.uraid(["fail", "home", "1", "3"]).expect_done();
        expect_filled(&FileSystem::mount(device.path(), folder).0, kind.name);
        call(kind.check, &device);
        drop(device);
        mounted.scratch.stop_when_left("home");
    }
}

/// The most bytes of the file under random operations.
const FILE_MAX: u64 = 3 << 20;

/// A file and what it should hold.
struct Model {
    file: File,
    bytes: Vec<u8>,
    random: u64,
}

impl Model {
    fn below(&mut self, limit: u64) -> u64 {
        next_random(&mut self.random) % limit.max(1)
    }

    /// One operation, as fsx has them.
    fn step(&mut self, what: &str) {
        let at = self.below(FILE_MAX);
        let length = 1 + self.below(100_000).min(FILE_MAX - at - 1);
        let size = self.bytes.len() as u64;
        match self.below(8) {
            0 | 1 => {
                let data = pattern(self.random, length as usize);
                self.file.write_all_at(&data, at).expect(what);
                self.bytes.resize(size.max(at + length) as usize, 0);
                self.bytes[at as usize..(at + length) as usize].copy_from_slice(&data);
            }
            2 => {
                self.file.set_len(at).expect(what);
                self.bytes.resize(at as usize, 0);
            }
            3 if at + length <= size => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, at, length).expect(what);
                self.bytes[at as usize..(at + length) as usize].fill(0);
            }
            4 => self.file.sync_all().expect(what),
            // What is read next comes from the array.
            5 => {
                self.file.sync_all().expect(what);
                fadvise(&self.file, 0, None, Advice::DontNeed).expect(what);
            }
            _ => {
                let (from, to) = (at.min(size), (at + length).min(size));
                let mut found = vec![0; (to - from) as usize];
                self.file.read_exact_at(&mut found, from).expect(what);
                assert!(found == self.bytes[from as usize..to as usize], "{what}: {from} to {to}");
            }
        }
    }
}

#[test]
fn a_file_under_random_operations_is_right_while_members_fail_and_come_back() {
    for kind in &KINDS {
        let Some((mounted, device)) = made(kind) else { return };
        let uraid = |words: &[&str]| mounted.scratch.uraid(words).expect_done();
        let member = |nth: usize| mounted.members[nth].to_str().expect("ASCII").to_owned();
        {
            let root = FileSystem::mount(device.path(), mounted.scratch.path("root"));
            let path = root.0.join("file");
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("a new file");
            let mut model = Model { file, bytes: Vec::new(), random: 11 };
            for step in 0..1000 {
                match step {
                    100 => drop(uraid(&["fail", "home", "0"])),
                    200 => drop(uraid(&["fail", "home", "4"])),
                    300 => drop(uraid(&["remove", "home", "failed"])),
                    // They are recovered while the steps go on.
                    350 => drop(uraid(&["add", "home", &member(0)])),
                    500 => drop(uraid(&["add", "home", &member(4)])),
                    700 => {
                        mounted.scratch.uraid(["wait", "home"]);
                        uraid(&["fail", "home", "2"]);
                    }
                    800 => drop(uraid(&["remove", "home", "failed"])),
                    850 => drop(uraid(&["add", "home", &member(2)])),
                    _ => {}
                }
                model.step(&format!("{}, step {step}", kind.name));
            }
            // An array whose recovery has ended already has nothing to wait for.
            mounted.scratch.uraid(["wait", "home"]);
            model.file.sync_all().expect("durable");
        }
        call(kind.check, &device);
        drop(device);
        let check = mounted.scratch.uraid(["check", "--wait", "home"]).expect_done();
        assert!(check.stdout.contains("0 sectors"), "{}: {check:?}", kind.name);
        mounted.scratch.stop_when_left("home");
    }
}
