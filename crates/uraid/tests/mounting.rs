//! `uraid mount` and `uraid umount`.
//! Owns: each step by itself failing, what is left then; arrays that ran before and that did not. Not here: file systems
//! on loop devices in general (`fuse_loop`). Needs root and losetup, as loop devices do.

use crate::common::loop_device::LoopDevice;
use crate::common::{Done, MIB, Scratch, wait};
use crate::fuse::Mounted;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An array `home` with an ext4 on it, not running.
pub(crate) struct Rig {
    pub scratch: Scratch,
    pub members: Vec<PathBuf>,
    pub folder: PathBuf,
}

/// `None` where loop devices are not allowed.
pub(crate) fn rig(level: &str, slots: usize) -> Option<Rig> {
    rig_with(level, slots, false)
}

/// With the file system in a partition of 24 MiB at 1 MiB, if asked for.
fn rig_with(level: &str, slots: usize, is_partitioned: bool) -> Option<Rig> {
    let scratch = Scratch::new();
    let members = scratch.members("m", slots, 32 * MIB);
    scratch.create("home", &format!("-l {level} -n {slots} --assume-clean"), &members);
    let mounted = Mounted::serve(scratch, members, &[]);
    let mut options = vec!["--direct-io=on".to_owned()];
    if is_partitioned {
        mounted.open().write_all_at(&mbr(), 0).expect("a partition table");
        options.extend([format!("--offset={MIB}"), format!("--sizelimit={}", 24 * MIB)]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let Some(device) = LoopDevice::with_options(&mounted.path(), &options) else {
        println!("a loop device needs root and losetup: not tested here");
        return None;
    };
    let made = Command::new("mkfs.ext4").arg("-q").arg(device.path()).status();
    assert!(made.expect("e2fsprogs: `cargo xtask packages` installs it").success());
    drop(device);
    mounted.scratch.stop_when_left("home");
    let (scratch, members) = mounted.into_parts();
    let folder = scratch.path("root");
    fs::create_dir(&folder).expect("a folder");
    Some(Rig { scratch, members, folder })
}

impl Rig {
    fn words(&self, verb: &str, options: &[&str], array: &[PathBuf]) -> Vec<PathBuf> {
        let words = std::iter::once(&verb).chain(options).map(PathBuf::from);
        words.chain(array.iter().cloned()).chain([self.folder.clone()]).collect()
    }

    pub(crate) fn mount(&self, options: &[&str], array: &[PathBuf]) -> Done {
        self.scratch.uraid(self.words("mount", options, array))
    }

    pub(crate) fn umount(&self) -> Done {
        self.scratch.uraid(self.words("umount", &[], &[]))
    }

    /// The file of the array that `mount` serves.
    fn file(&self) -> PathBuf {
        let folders = fs::read_dir(self.scratch.path("")).expect("ours").flatten().map(|entry| entry.path());
        let mut files = folders.map(|folder| folder.join("files/home"));
        files.find(|file| file.exists()).expect("the array as a file")
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
        mounts.lines().any(|line| line.split(' ').nth(1) == self.folder.to_str())
    }

    /// No server, no mount, no loop device and no folder of `mount`; the members can be claimed.
    #[track_caller]
    fn expect_nothing_left(&self) {
        assert!(!self.is_mounted());
        let here = self.scratch.path("");
        let here = here.to_str().expect("ASCII");
        let loops = Command::new("losetup").args(["--list", "--noheadings", "--output", "BACK-FILE"]).output();
        let loops = String::from_utf8_lossy(&loops.expect("losetup").stdout).into_owned();
        assert!(!loops.contains(here), "{loops}");
        let left = fs::read_dir(here).expect("ours").flatten().map(|entry| entry.file_name());
        let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("mount-")).collect();
        assert!(left.is_empty(), "{left:?}");
        self.scratch.uraid(["list"]).expect_done();
        let detail: Vec<PathBuf> = [PathBuf::from("detail")].into_iter().chain(self.members.iter().cloned()).collect();
        let shown = self.scratch.uraid(detail).expect_done().stdout;
        assert!(!shown.contains("Served By") && !shown.contains("in use"), "{shown}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = self.umount();
        }
    }
}

#[test]
fn members_become_a_file_system_in_one_command_and_back() {
    for (level, slots) in [("1", 2), ("5", 3), ("6", 4)] {
        let Some(rig) = rig(level, slots) else { return };
        let (folder, members) = (rig.folder.clone(), rig.members.iter().cloned());
        let options = ["-o", "noatime"].map(PathBuf::from);
        let words = [PathBuf::from("mount")].into_iter().chain(members).chain(options).chain([folder]);
        let said = rig.scratch.uraid(words).expect_done().stdout;
        assert!(
            said.contains("home: mounted at ") && said.contains("/dev/loop") && said.contains("its log is"),
            "{said}"
        );
        fs::write(rig.folder.join("file"), "words").expect("room");
        let shown = rig.scratch.uraid(["detail", "home"]).expect_done().stdout;
        assert!(shown.contains("/files/home"), "{shown}");
        // As any array while its file is open; and its members are in use.
        rig.scratch.uraid(["stop", "home"]).expect_refused(&["is open once"]);
        let busy = fs::File::open(rig.folder.join("file")).expect("it is there");
        rig.umount().expect_refused(&["umount: ", "busy"]);
        drop(busy);
        let said = rig.umount().expect_done().stdout;
        assert!(said.contains("unmounted; home: stopped"), "{said}");
        rig.expect_nothing_left();
        // Degraded, and only to look at.
        let before: Vec<Vec<u8>> = rig.members.iter().map(|member| fs::read(member).expect("ours")).collect();
        rig.mount(&["--read-only"], &rig.members[1..])
            .expect_refused(&["nothing is mounted: cannot start the array: ", "--run"]);
        rig.mount(&["--read-only", "--run"], &rig.members[1..]).expect_done();
        assert_eq!(fs::read(rig.folder.join("file")).expect("readable"), b"words");
        assert!(fs::write(rig.folder.join("file"), "other").is_err(), "read-only");
        rig.umount().expect_done();
        rig.expect_nothing_left();
        let after = rig.members.iter().map(|member| fs::read(member).expect("ours"));
        assert!(before.into_iter().eq(after), "raid{level}: a member was written");
    }
}

/// An MBR with a partition of 24 MiB at 1 MiB.
fn mbr() -> [u8; 512] {
    let mut sector = [0; 512];
    sector[450] = 0x83;
    sector[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    sector[458..462].copy_from_slice(&(24_u32 << 11).to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

#[test]
fn the_file_system_of_a_partition_is_mounted_by_its_number() {
    let Some(rig) = rig_with("5", 3, true) else { return };
    rig.mount(&[], &rig.members)
        .expect_refused(&["mount: ", "home has the partitions 1: --partition NUMBER mounts one"]);
    rig.mount(&["--partition", "2"], &rig.members).expect_refused(&["home: there is no partition 2, found 1"]);
    rig.expect_nothing_left();
    rig.mount(&["--partition", "1"], &rig.members).expect_done();
    fs::write(rig.folder.join("file"), "words").expect("room");
    let sizes = rustix::fs::statvfs(&rig.folder).expect("mounted");
    assert!(sizes.f_blocks * sizes.f_frsize <= 24 * MIB, "it ends with its partition");
    rig.umount().expect_done();
    rig.expect_nothing_left();
    rig.mount(&["--partition", "1", "--read-only", "--run"], &rig.members[1..]).expect_done();
    assert_eq!(fs::read(rig.folder.join("file")).expect("readable"), b"words");
    rig.umount().expect_done();
    rig.expect_nothing_left();
}

#[test]
fn an_array_that_runs_is_mounted_by_its_name_and_runs_on() {
    let Some(rig) = rig("1", 2) else { return };
    let home = [PathBuf::from("home")];
    let files = rig.scratch.path("files");
    let served = rig.scratch.ready(&["--fuse", files.to_str().expect("ASCII")], &rig.members);
    rig.mount(&[], &home).expect_done();
    fs::write(rig.folder.join("file"), "words").expect("room");
    // A second loop device would let two file systems write the same array.
    let second = rig.scratch.path("again");
    fs::create_dir(&second).expect("a folder");
    let words = ["mount", "home", second.to_str().expect("ASCII")];
    rig.scratch.uraid(words).expect_refused(&["home: /dev/loop", "has it already, mounted at", "unmount that first"]);
    let said = rig.umount().expect_done().stdout;
    assert!(said.contains("still runs, as before"), "{said}");
    let other_path = rig.scratch.path("other-path");
    fs::create_dir(&other_path).expect("a folder");
    assert!(Command::new("mount").arg("--bind").arg(&files).arg(&other_path).status().expect("mount").success());
    for folder in [&files, &other_path] {
        let by_hand = LoopDevice::new(&folder.join("home")).expect("as `mount`");
        rig.mount(&[], &home).expect_refused(&["has it already: mount that one, or detach it with losetup -d"]);
        drop(by_hand);
    }
    wait(|| Command::new("umount").arg(&other_path).status().expect("umount").success()).expect("the device is gone");
    wait(|| rig.mount(&[], &home).code == Some(0)).expect("the device is gone");
    rig.umount().expect_done();
    rig.scratch.uraid(["fail", "home", "1"]).expect_done();
    // By a member, and in two places.
    rig.mount(&[], &rig.members[..1]).expect_done();
    assert_eq!(fs::read(rig.folder.join("file")).expect("readable"), b"words");
    let second = rig.scratch.path("second");
    fs::create_dir(&second).expect("a folder");
    assert!(Command::new("mount").arg("--bind").arg(&rig.folder).arg(&second).status().expect("mount").success());
    rig.umount().expect_refused(&[&format!("is mounted at {}, too: unmount that first", second.display())]);
    rig.scratch.uraid([Path::new("umount"), &second]).expect_refused(&["expected a mount that `uraid mount` has made"]);
    // By hand; the rest is done by `umount` all the same.
    for folder in [&second, &rig.folder] {
        assert!(Command::new("umount").arg(folder).status().expect("umount").success());
    }
    rig.umount().expect_done();
    rig.scratch.uraid(["stop", "home"]).expect_done();
    served.end().expect_done();
    rig.expect_nothing_left();
}

#[test]
fn a_mount_that_fails_at_any_step_leaves_nothing() {
    let Some(rig) = rig("5", 3) else { return };
    let text = |path: &Path| path.to_str().expect("ASCII").to_owned();
    // No folder.
    rig.scratch.uraid(["mount", "home"]).expect_refused(&["found one word; expected an array"]);
    let missing = rig.scratch.path("missing");
    let words = |folder: &Path| -> Vec<PathBuf> {
        [PathBuf::from("mount")].into_iter().chain(rig.members.iter().cloned()).chain([folder.to_owned()]).collect()
    };
    rig.scratch.uraid(words(&missing)).expect_refused(&[&text(&missing), "expected a folder to mount at"]);
    rig.scratch.uraid(words(&rig.members[0])).expect_refused(&["is not a folder; expected a folder to mount at"]);
    // No array.
    rig.mount(&[], &[rig.scratch.member("blank", MIB)]).expect_refused(&["nothing is mounted: "]);
    rig.mount(&[], &[PathBuf::from("nowhere")]).expect_refused(&["nothing is mounted: ", "nowhere"]);
    rig.mount(&[], &rig.members[..1]).expect_refused(&["nothing is mounted: cannot start the array: found 1 of 3"]);
    rig.expect_nothing_left();
    // No such file system.
    rig.mount(&["-t", "xfs"], &rig.members).expect_refused(&["mount: "]);
    rig.expect_nothing_left();
    // No NBD driver; where there is one, the VM has the tests (`cargo xtask vm matrix --mount`).
    if !Path::new("/sys/block/nbd0").exists() {
        rig.mount(&["--nbd"], &rig.members).expect_refused(&["--nbd: found no NBD driver in this kernel"]);
        rig.expect_nothing_left();
    }
    // An array that runs without a file, and one that is read-only.
    let served = rig.scratch.ready(&[], &rig.members);
    if !Path::new("/sys/block/nbd0").exists() {
        rig.mount(&[], &[PathBuf::from("home")]).expect_refused(&["home: runs without --fuse"]);
        rig.mount(&[], &rig.members).expect_refused(&["home: runs without --fuse"]);
    }
    served.stop();
    let files = rig.scratch.path("files");
    let served = rig.scratch.ready(&["--read-only", "--fuse", &text(&files)], &rig.members);
    rig.mount(&[], &[PathBuf::from("home")]).expect_refused(&["home: runs read-only: mount it with --read-only"]);
    rig.mount(&["-r"], &[PathBuf::from("home")]).expect_done();
    rig.umount().expect_done();
    served.stop();
    rig.expect_nothing_left();
}

#[test]
fn what_is_no_mount_of_an_array_is_left_alone() {
    let scratch = Scratch::new();
    let folder = scratch.path("folder");
    fs::create_dir(&folder).expect("a folder");
    scratch.uraid([Path::new("umount"), &folder]).expect_refused(&["nothing is mounted there"]);
    scratch
        .uraid(["umount", "/proc"])
        .expect_refused(&["proc is mounted there", "expected a mount that `uraid mount` has made"]);
    scratch.uraid([Path::new("umount"), &scratch.path("none")]).expect_refused(&["expected a folder"]);
}

/// The loop device that `mount` has named.
fn device_of(mounted: &Done) -> String {
    let device = mounted.stdout.split_whitespace().find(|word| word.starts_with("/dev/loop"));
    device.expect("named").trim_end_matches(';').to_owned()
}

/// The process that serves `home`.
fn server_of(rig: &Rig) -> u64 {
    let report: serde_json::Value =
        serde_json::from_str(&rig.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout).expect("JSON");
    report["server"]["pid"].as_u64().expect("a number")
}

/// Ends the server of `home` as a crash does.
fn kill_server(rig: &Rig) {
    let pid = server_of(rig);
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill").success());
    wait(|| !Path::new(&format!("/proc/{pid}/fd")).exists()).expect("it ends");
}

#[test]
fn what_is_left_of_a_mount_that_was_undone_by_hand_is_not_taken_for_the_next_one() {
    let Some(rig) = rig("1", 2) else { return };
    let device = device_of(&rig.mount(&[], &rig.members).expect_done());
    kill_server(&rig);
    for (program, word) in [("umount", rig.folder.to_str().expect("ASCII")), ("losetup", "-d")] {
        let mut command = Command::new(program);
        command.arg(word).args((program == "losetup").then_some(&device));
        assert!(command.status().expect("util-linux").success());
    }
    rig.mount(&[], &rig.members).expect_done();
    rig.mount(&[], &rig.members).expect_refused(&["is mounted there by `uraid mount`"]);
    let said = rig.umount().expect_done().stdout;
    assert!(said.contains("unmounted; home: stopped") && said.lines().count() == 1, "{said}");
    rig.expect_nothing_left();
}

#[test]
fn a_mount_that_was_killed_half_way_is_undone() {
    let Some(rig) = rig("1", 2) else { return };
    // A program that `uraid mount` runs kills it: before there is a loop device, right after that has the file, and later.
    const AT_ONCE: &str = "kill -9 $PPID";
    const AFTER_ATTACHING: &str =
        "PATH=${PATH#*:} losetup \"$@\" || exit\ncase \"$*\" in *--find*|*--list*) ;; *) kill -9 $PPID ;; esac";
    for (program, text) in [("losetup", AT_ONCE), ("losetup", AFTER_ATTACHING), ("mount", AT_ONCE)] {
        let programs = rig.scratch.path("programs");
        fs::create_dir_all(&programs).expect("a folder");
        let script = programs.join(program);
        fs::write(&script, format!("#!/bin/sh\n{text}\n")).expect("room");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
        let mut command = rig.scratch.command(rig.words("mount", &[], &rig.members));
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
        assert!(!command.env("PATH", path).status().expect("it starts").success());
        rig.scratch.uraid(["detail", "home"]).expect_done();
        let said = rig.umount().expect_done().stdout;
        assert!(said.contains("home: stopped"), "{said}");
        rig.expect_nothing_left();
        fs::remove_file(&script).expect("ours");
    }
}

#[test]
fn a_server_runs_until_the_last_of_its_mounts_is_undone() {
    let Some(rig) = rig_with("5", 3, true) else { return };
    rig.mount(&["--partition", "1"], &rig.members).expect_done();
    // A second partition, at 40 MiB.
    let mut sector = mbr();
    sector[466] = 0x83;
    sector[470..474].copy_from_slice(&(40_u32 << 11).to_le_bytes());
    sector[474..478].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    let file = rig.file();
    fs::OpenOptions::new().write(true).open(&file).and_then(|file| file.write_all_at(&sector, 0)).expect("written");
    let options = [format!("--offset={}", 40 * MIB), format!("--sizelimit={}", 16 * MIB)];
    let device = LoopDevice::with_options(&file, &options.each_ref().map(String::as_str)).expect("as before");
    let made = Command::new("mkfs.ext4").arg("-q").arg(device.path()).status();
    assert!(made.expect("e2fsprogs").success());
    drop(device);
    let second = rig.scratch.path("second");
    fs::create_dir(&second).expect("a folder");
    let words = [Path::new("mount"), Path::new("--partition"), Path::new("2"), Path::new("home"), &second];
    wait(|| rig.scratch.uraid(words).code == Some(0)).expect("the device is gone");
    let said = rig.umount().expect_done().stdout;
    assert!(said.contains(&format!("unmounted; home runs on for {}", second.display())), "{said}");
    let said = rig.scratch.uraid([Path::new("umount"), &second]).expect_done().stdout;
    assert!(said.contains("unmounted; home: stopped"), "{said}");
    rig.expect_nothing_left();
}

/// After `umount` and `losetup -d` by hand, the number of the loop device is free for others.
#[test]
fn a_loop_device_that_someone_else_attached_meanwhile_is_left_alone() {
    let Some(rig) = rig("1", 2) else { return };
    let device = device_of(&rig.mount(&[], &rig.members).expect_done());
    let run = |words: &[&str]| {
        let done = Command::new(words[0]).args(&words[1..]).status().expect("util-linux");
        assert!(done.success(), "{words:?}");
    };
    let folder = rig.folder.to_str().expect("ASCII");
    run(&["umount", folder]);
    // The device is mounted by hand, at another place.
    let second = rig.scratch.path("second");
    fs::create_dir(&second).expect("a folder");
    run(&["mount", &device, second.to_str().expect("ASCII")]);
    rig.umount().expect_refused(&["is mounted at", "second, too: unmount that first"]);
    run(&["umount", second.to_str().expect("ASCII")]);
    // And detached, and attached again.
    let file = rig.file();
    run(&["losetup", "-d", &device]);
    wait(|| Command::new("losetup").arg(&device).arg(&file).status().expect("losetup").success()).expect("it is free");
    rig.umount().expect_refused(&["is open once"]);
    let backing = fs::read_to_string(Path::new("/sys/block").join(&device["/dev/".len()..]).join("loop/backing_file"));
    assert_eq!(backing.expect("attached").trim_end(), file.to_str().expect("ASCII"));
    run(&["losetup", "-d", &device]);
    wait(|| rig.umount().code == Some(0)).expect("nothing has the file open any more");
    rig.expect_nothing_left();
}

#[test]
fn an_array_that_an_nbd_client_uses_is_not_mounted() {
    let Some(rig) = rig("1", 2) else { return };
    let files = rig.scratch.path("files");
    let served = rig.scratch.ready(&["--fuse", files.to_str().expect("ASCII")], &rig.members);
    let client = served.client();
    let home = [PathBuf::from("home")];
    rig.mount(&[], &home).expect_refused(&["home: another client is connected to the server by NBD"]);
    drop(client);
    wait(|| rig.mount(&[], &home).code == Some(0)).expect("it has left");
    rig.umount().expect_done();
    served.stop();
    rig.expect_nothing_left();
}

/// Nothing is left then that unmounts the array's file.
#[test]
fn a_mount_whose_server_and_its_child_were_killed_is_undone() {
    let Some(rig) = rig("1", 2) else { return };
    rig.mount(&[], &rig.members).expect_done();
    let pid = server_of(&rig);
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("procfs");
    for pid in children.split_whitespace().chain([pid.to_string().as_str()]) {
        assert!(Command::new("kill").args(["-9", pid]).status().expect("kill").success());
    }
    wait(|| !Path::new(&format!("/proc/{pid}/fd")).exists()).expect("it ends");
    rig.umount().expect_done();
    let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
    assert!(!mounts.contains(rig.scratch.path("").to_str().expect("ASCII")), "{mounts}");
    rig.expect_nothing_left();
}

#[test]
fn mount_says_what_is_there_instead_of_a_file_system() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 32 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let folder = scratch.path("root");
    fs::create_dir(&folder).expect("a folder");
    let rig = Rig { scratch, members, folder };
    if !rustix::process::geteuid().is_root() {
        rig.mount(&[], &rig.members).expect_refused(&["loop devices and mounts are root's"]);
        return;
    }
    rig.mount(&[], &rig.members).expect_refused(&["home holds no file system that is known. To make one: ", "mount: "]);
    let served = rig.scratch.ready(&[], &rig.members);
    let mut table = mbr();
    // 24 MiB from 16 MiB on.
    table[454..458].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    served.write_all(0, &table);
    served.stop();
    let sectors = "home: partition 1 ends past the ";
    rig.mount(&["--partition", "1"], &rig.members).expect_refused(&[sectors, "sectors of the array"]);
    rig.expect_nothing_left();
}

#[test]
fn a_mount_whose_server_was_killed_is_undone_and_the_array_mounted_again() {
    let Some(rig) = rig("1", 2) else { return };
    rig.mount(&[], &rig.members).expect_done();
    fs::write(rig.folder.join("file"), "words").expect("room");
    assert!(Command::new("sync").arg("-f").arg(&rig.folder).status().expect("sync").success());
    kill_server(&rig);
    let said = rig.umount().expect_done().stdout;
    assert!(said.contains("the server of the array had ended before"), "{said}");
    rig.mount(&[], &rig.members).expect_done();
    assert_eq!(fs::read(rig.folder.join("file")).expect("readable"), b"words");
    rig.umount().expect_done();
    rig.expect_nothing_left();
}
