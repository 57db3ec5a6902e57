//! Loop devices and file systems on the files of `serve --fuse`.
//! Owns: real file systems over the real kernel, punches and trims. Not here: the files by themselves (`fuse`).
//! Invariant: mounts and devices are gone with their test. Needs root and losetup, as loop devices do.

use crate::common::loop_device::LoopDevice;
use crate::common::{MIB, Scratch, pattern};
use crate::fuse::Mounted;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, unmounted when dropped.
pub(crate) struct FileSystem(pub(crate) PathBuf);

impl FileSystem {
    pub(crate) fn mount(device: &Path, folder: PathBuf) -> FileSystem {
        fs::create_dir_all(&folder).expect("a folder");
        run("mount", &[device, &folder]);
        FileSystem(folder)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        if !done.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

#[track_caller]
pub(crate) fn run(program: &str, words: &[&Path]) {
    let output = Command::new(program).args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; `cargo xtask packages` installs it"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An array `home` over sparse members, as a file with a loop device on it.
pub(crate) fn looped(level: &str, slots: usize, member_bytes: u64) -> Option<(Mounted, LoopDevice)> {
    let scratch = Scratch::new();
    let members = scratch.members("m", slots, member_bytes);
    let clean = if matches!(level, "raid0") { "" } else { "--assume-clean" };
    scratch.create("home", &format!("-l {level} -n {slots} {clean}"), &members);
    let mounted = Mounted::serve(scratch, members, &["--shards", "2"]);
    match LoopDevice::with_options(&mounted.path(), &["--direct-io=on"]) {
        Some(device) => Some((mounted, device)),
        None => {
            println!("a loop device needs root and losetup: not tested here");
            None
        }
    }
}

fn attribute(device: &LoopDevice, name: &str) -> String {
    let device = device.path().file_name().expect("a device has a name").to_owned();
    let text = fs::read_to_string(Path::new("/sys/block").join(device).join(name));
    text.expect("sysfs").trim().to_owned()
}

#[test]
fn xfs_lives_on_a_loop_device_over_every_redundant_level_also_degraded() {
    // xfs wants at least 300 MiB.
    for (level, slots, member_mib, lost) in
        [("raid1", 2, 340, &["0"][..]), ("raid5", 3, 180, &["1"]), ("raid6", 4, 180, &["0", "2"])]
    {
        let Some((mounted, device)) = looped(level, slots, member_mib * MIB) else { return };
        assert_eq!(attribute(&device, "loop/dio"), "1", "{level}: direct I/O");
        run("mkfs.xfs", &[Path::new("-q"), device.path()]);
        let folder = mounted.scratch.path("root");
        let write = |from: u64| {
            let mounted = FileSystem::mount(device.path(), folder.clone());
            for n in from..from + 20 {
                fs::write(mounted.0.join(format!("f{n}")), pattern(n, 300_000 + n as usize)).expect("written");
            }
        };
        let check = |until: u64| {
            let mounted = FileSystem::mount(device.path(), folder.clone());
            for n in 0..until {
                let found = fs::read(mounted.0.join(format!("f{n}"))).expect("readable");
                assert!(found == pattern(n, 300_000 + n as usize), "{level}: file {n}");
            }
        };
        write(0);
        mounted.scratch.uraid(["fail", "home"].iter().copied().chain(lost.iter().copied())).expect_done();
        check(20);
        write(20);
        run("xfs_repair", &[Path::new("-n"), device.path()]);
        check(40);
        assert!(
            mounted.scratch.uraid(["stop", "home"]).stderr.contains("losetup -d"),
            "{level}: the loop device has it open"
        );
        drop(device);
        mounted.scratch.stop_when_left("home");
    }
}

#[test]
fn trims_and_zeroes_of_a_loop_device_are_exact() {
    for (level, slots) in [("raid0", 2), ("raid1", 2), ("raid10", 4), ("raid5", 3)] {
        let Some((mounted, device)) = looped(level, slots, 32 * MIB) else { return };
        assert_eq!(attribute(&device, "queue/discard_granularity"), "4096", "{level}");
        let file = mounted.open();
        let size = file.metadata().expect("open").len();
        let mut model = pattern(7, size as usize);
        let mut written = fs::OpenOptions::new().write(true).open(device.path()).expect("ours");
        written.write_all(&model).expect("all of it");
        // The last close would do it, but another program may look at the device just now.
        written.sync_all().expect("written");
        drop(written);
        let discard = |program: &[&str], at: u64, length: u64| {
            let mut command = Command::new("blkdiscard");
            command.args(program).args(["-o", &at.to_string(), "-l", &length.to_string()]).arg(device.path());
            assert!(command.status().expect("blkdiscard").success(), "{level}");
        };
        discard(&[], 4096, 8 * MIB);
        model[4096..4096 + 8 * MIB as usize].fill(0);
        discard(&["-z"], 20 * MIB + 512, 3 * MIB);
        model[20 * MIB as usize + 512..23 * MIB as usize + 512].fill(0);
        let found = fs::read(mounted.path()).expect("all of it");
        let differs = found.iter().zip(&model).position(|(found, model)| found != model);
        assert_eq!((found.len(), differs), (model.len(), None), "{level}");
        drop((file, device));
        mounted.scratch.stop_when_left("home");
    }
}

#[test]
fn ext4_is_whole_after_fstrim() {
    let Some((mounted, device)) = looped("raid1", 2, 64 * MIB) else { return };
    run("mkfs.ext4", &[Path::new("-q"), device.path()]);
    {
        let root = FileSystem::mount(device.path(), mounted.scratch.path("root"));
        fs::write(root.0.join("large"), pattern(1, 24 * MIB as usize)).expect("room");
        run("sync", &[Path::new("-f"), &root.0]);
        fs::remove_file(root.0.join("large")).expect("our own");
        run("sync", &[Path::new("-f"), &root.0]);
        run("fstrim", &[&root.0]);
    }
    run("e2fsck", &[Path::new("-fn"), device.path()]);
    drop(device);
    mounted.scratch.stop_when_left("home");
}
