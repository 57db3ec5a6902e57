//! `serve --fuse`: arrays as files, by the binary and the kernel's FUSE.
//! Owns: what programs see of the files; refused mounts; stop, kill and unmount. Not here: the messages (`uraid_fuse`),
//! file systems on the files (`fuse_loop`).
//! Invariant: a mount is gone with its test, whatever fails.

use crate::common::{MIB, Scratch, Served, next_random, pattern, wait};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An array that is served as a file.
pub(crate) struct Mounted {
    pub(crate) served: Option<Served>,
    pub(crate) folder: PathBuf,
    pub(crate) scratch: Scratch,
    pub(crate) members: Vec<PathBuf>,
}

impl Mounted {
    /// An array `home` of members of 16 MiB.
    pub(crate) fn new(level: &str, slots: usize, options: &[&str]) -> Mounted {
        let clean = if matches!(level, "linear" | "raid0") { "" } else { "--assume-clean" };
        Mounted::with_options(level, slots, clean, options)
    }

    /// The same with other options of `create`.
    pub(crate) fn with_options(level: &str, slots: usize, create: &str, options: &[&str]) -> Mounted {
        Mounted::create(Scratch::new(), level, slots, create, options)
    }

    /// An array `home` of members of 16 MiB in this folder.
    pub(crate) fn create(scratch: Scratch, level: &str, slots: usize, create: &str, options: &[&str]) -> Mounted {
        let members = scratch.members("m", slots, 16 * MIB);
        scratch.create("home", &format!("-l {level} -n {slots} {create}"), &members);
        Mounted::serve(scratch, members, options)
    }

    pub(crate) fn serve(scratch: Scratch, members: Vec<PathBuf>, options: &[&str]) -> Mounted {
        let folder = scratch.path("files");
        fs::create_dir_all(&folder).expect("a folder");
        let mut all = vec!["--fuse", folder.to_str().expect("ASCII")];
        all.extend(options);
        let served = Some(scratch.ready(&all, &members));
        Mounted { served, folder, scratch, members }
    }

    /// After its server was stopped.
    pub(crate) fn into_parts(mut self) -> (Scratch, Vec<PathBuf>) {
        drop(self.served.take());
        (std::mem::replace(&mut self.scratch, Scratch::new()), std::mem::take(&mut self.members))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("home")
    }

    pub(crate) fn served(&self) -> &Served {
        self.served.as_ref().expect("it serves")
    }

    pub(crate) fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.path()).expect("the array's file")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.served.take());
        if is_mounted(&self.folder) {
            let _ = Command::new("umount").arg("-l").arg(&self.folder).stderr(Stdio::null()).status();
        }
    }
}

fn is_mounted(folder: &Path) -> bool {
    let folder = folder.to_str().expect("ASCII");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(folder))
}

fn os_error<T: std::fmt::Debug>(outcome: std::io::Result<T>) -> i32 {
    outcome.expect_err("refused").raw_os_error().expect("the system's")
}

const SHAPES: [(&str, usize); 7] =
    [("linear", 2), ("raid0", 2), ("raid1", 2), ("raid4", 3), ("raid5", 3), ("raid6", 4), ("raid10", 4)];

#[test]
fn every_level_is_a_file_that_takes_any_byte_range_and_is_the_same_over_nbd() {
    for (level, slots) in SHAPES {
        let mounted = Mounted::new(level, slots, &["--shards", "2"]);
        let names: Vec<_> =
            fs::read_dir(&mounted.folder).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(names, ["home"], "{level}");
        let status = fs::metadata(mounted.path()).expect("a file");
        let size = mounted.served().client().size;
        assert_eq!((status.len(), status.mode() & 0o7777), (size, 0o600), "{level}");
        let mut model = pattern(3, size as usize);
        let mut file = mounted.open();
        file.write_all(&model).expect("all of it");
        let mut random = 5;
        for round in 0..60 {
            let at = next_random(&mut random) % size;
            let length = match round % 4 {
                0 => 1 + next_random(&mut random) % 700,
                1 => 4096,
                2 => 1 + next_random(&mut random) % 200_000,
                _ => 512 * (1 + next_random(&mut random) % 64),
            };
            let at = if round % 2 == 0 { at } else { at / 512 * 512 };
            let length = length.min(size - at) as usize;
            let range = at as usize..at as usize + length;
            if round % 5 == 0 {
                let flags = if round % 10 == 0 {
                    FallocateFlags::ZERO_RANGE
                } else {
                    FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
                };
                fallocate(&file, flags, at, length as u64).expect("zeroes");
                model[range].fill(0);
            } else {
                let data = pattern(next_random(&mut random), length);
                file.write_all_at(&data, at).expect("written");
                model[range].copy_from_slice(&data);
            }
        }
        file.sync_all().expect("flushed");
        let mut found = vec![0; size as usize];
        file.read_exact_at(&mut found, 0).expect("all of it");
        assert!(found == model, "{level}: the file");
        let (at, length) = (size as usize / 3 + 1, 77_777);
        let mut part = vec![0; length];
        file.read_exact_at(&mut part, at as u64).expect("a ragged read");
        assert!(part == model[at..at + length], "{level}");
        assert_eq!(mounted.served().first_difference(&model), None, "{level}: over NBD");
    }
}

#[test]
fn the_end_of_the_file_is_that_of_a_block_device() {
    let mounted = Mounted::new("raid1", 2, &[]);
    let mut file = mounted.open();
    let size = file.metadata().expect("open").len();
    assert_eq!(file.read_at(&mut [0; 4096], size).expect("nothing"), 0);
    assert_eq!(file.read_at(&mut [0; 4096], size - 100).expect("the rest"), 100);
    assert_eq!(file.write_at(&[7; 4096], size - 100).expect("the rest"), 100);
    assert_eq!(os_error(file.write_at(&[7; 512], size)), 28, "ENOSPC");
    let mut last = [0; 101];
    assert_eq!(file.read_at(&mut last, size - 101).expect("the rest"), 101);
    assert_eq!((last[0], &last[1..]), (0, &[7; 100][..]));
    // The size never changes: to open with O_TRUNC is no truncation, and a truncation is refused.
    assert_eq!(File::create(mounted.path()).expect("O_TRUNC").metadata().expect("open").len(), size);
    assert_eq!(file.set_len(size).map_err(|error| error.raw_os_error()), Ok(()));
    for other in [0, size - 1, size + 1] {
        assert_eq!(os_error(file.set_len(other)), 22, "EINVAL for {other}");
    }
    assert_eq!(file.seek(SeekFrom::End(0)).expect("a size"), size);
    let keep = FallocateFlags::KEEP_SIZE;
    let refused = |flags, at, length| fallocate(&file, flags, at, length).expect_err("refused").raw_os_error();
    assert_eq!(refused(FallocateFlags::empty(), 0, 4096), 95, "plain allocation: EOPNOTSUPP");
    assert_eq!(refused(keep, 0, 4096), 95);
    assert_eq!(refused(FallocateFlags::PUNCH_HOLE | keep, size, 4096), 22, "behind the end: EINVAL");
    assert_eq!(refused(FallocateFlags::ZERO_RANGE, size - 512, 4096), 22);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, size - 50, 4096).expect("up to the end");
    assert_eq!(file.read_at(&mut last, size - 101).expect("the rest"), 101);
    assert_eq!((last[50], &last[51..]), (7, &[0; 50][..]));
    for outcome in [
        fs::remove_file(mounted.path()),
        fs::write(mounted.folder.join("new"), "x"),
        fs::create_dir(mounted.folder.join("d")),
    ] {
        assert!(outcome.is_err());
    }
    assert_eq!(os_error(fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o666))), 1, "EPERM");
}

#[test]
fn programs_are_told_the_chunk_and_a_loop_device_a_page() {
    let mounted = Mounted::new("raid5", 3, &[]);
    assert_eq!(fs::metadata(mounted.path()).expect("a file").blksize(), 512 << 10);
    let numbers = rustix::fs::statvfs(mounted.path()).expect("numbers");
    let size = fs::metadata(mounted.path()).expect("a file").len();
    assert_eq!((numbers.f_bsize, numbers.f_blocks, numbers.f_bfree), (4096, size / 4096, 0));
    let mirror = Mounted::new("raid1", 2, &[]);
    assert_eq!(fs::metadata(mirror.path()).expect("a file").blksize(), 4096);
}

#[test]
fn writers_of_neighbouring_bytes_lose_nothing() {
    let mounted = Mounted::new("raid5", 3, &["--shards", "2"]);
    // 8 threads write bytes of the same sectors, one of them whole sectors beside them.
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let file = mounted.open();
            std::thread::spawn(move || {
                for round in 0..200u64 {
                    file.write_all_at(&[thread as u8 + 1; 100], round * 800 + thread * 100).expect("written");
                }
            })
        })
        .collect();
    let file = mounted.open();
    for round in 0..400u64 {
        file.write_all_at(&[9; 512], MIB + round % 20 * 512).expect("written");
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it writes"));
    let mut found = vec![0; 160_000];
    file.read_exact_at(&mut found, 0).expect("all of it");
    for (at, byte) in found.iter().enumerate() {
        assert_eq!(*byte, (at % 800 / 100) as u8 + 1, "byte {at}");
    }
}

#[test]
fn a_read_only_file_refuses_writes_with_erofs() {
    let mounted = Mounted::new("raid1", 2, &["--export-read-only"]);
    assert_eq!(fs::metadata(mounted.path()).expect("a file").mode() & 0o7777, 0o400);
    // Root is not refused by the mode.
    assert_eq!(os_error(OpenOptions::new().write(true).open(mounted.path())), 30, "EROFS");
    let mut byte = [1];
    File::open(mounted.path()).and_then(|mut file| file.read_exact(&mut byte)).expect("reads are served");
    assert_eq!(byte, [0]);
    drop(mounted);

    let mounted = Mounted::new("raid1", 2, &[]);
    let file = mounted.open();
    let mode = || fs::metadata(mounted.path()).expect("a file").mode() & 0o7777;
    mounted.scratch.uraid(["readonly", "home"]).expect_done();
    wait(|| mode() == 0o400).expect("the kernel asks for it once a second");
    assert_eq!(os_error(file.write_at(&[1; 512], 0)), 30, "EROFS");
    assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 512).expect_err("refused").raw_os_error(), 30);
    mounted.scratch.uraid(["readwrite", "home"]).expect_done();
    assert_eq!(file.write_at(&[1; 512], 0).expect("taken"), 512);
    wait(|| mode() == 0o600).expect("as before");
}

#[test]
fn an_array_that_lacks_too_much_answers_with_eio_and_a_degraded_one_serves() {
    let mounted = Mounted::new("raid5", 3, &[]);
    let file = mounted.open();
    let data = pattern(2, MIB as usize);
    file.write_all_at(&data, 0).expect("written");
    mounted.scratch.uraid(["fail", "home", "0"]).expect_done();
    let mut found = vec![0; data.len()];
    file.read_exact_at(&mut found, 0).expect("computed from parity");
    assert!(found == data);
    file.write_all_at(&data, 100).expect("written without a member");
    file.read_exact_at(&mut found, 100).expect("read back");
    assert!(found == data);
}

#[test]
fn a_stop_is_refused_while_a_file_is_open_and_force_ends_it_without_a_hung_mount() {
    let mut mounted = Mounted::new("raid1", 2, &["--shards", "2"]);
    let (first, second) = (mounted.open(), mounted.open());
    first.write_all_at(&[5; 4096], 0).expect("written");
    let refused =
        mounted.scratch.uraid(["stop", "home"]).expect_refused(&["home is open 2 times", "losetup -d", "stop --force"]);
    assert!(refused.stderr.contains("/files/home"), "{refused:?}");
    drop(second);
    wait(|| mounted.scratch.uraid(["stop", "home"]).stderr.contains("is open once")).expect("a close is counted");
    mounted.scratch.uraid(["stop", "--force", "home"]).expect_done();
    assert!(!is_mounted(&mounted.folder), "it is unmounted when stop returns");
    assert_eq!(os_error(first.read_at(&mut [0; 512], 0)), 107, "ENOTCONN");
    mounted.served.take().expect("it served").end().expect_done().expect_said(&["home: is stopped and clean"]);
    assert!(fs::read_dir(&mounted.folder).expect("the folder is back").next().is_none());
    let (scratch, members) = (Scratch::new(), mounted.members.clone());
    let again = Mounted::serve(scratch, members, &[]);
    let mut found = [0; 4096];
    again.open().read_exact(&mut found).expect("readable");
    assert_eq!(found, [5; 4096]);
}

#[test]
fn signals_unmount_although_a_file_is_open() {
    let mut mounted = Mounted::new("raid5", 3, &[]);
    let file = mounted.open();
    file.write_all_at(&[5; 4096], 0).expect("written");
    mounted.served.take().expect("it serves").stop().expect_done().expect_said(&["home: is stopped and clean"]);
    assert!(!is_mounted(&mounted.folder));
    assert!(file.write_at(&[5; 4096], 0).is_err());
}

#[test]
fn a_killed_server_leaves_no_mount_behind() {
    let mut mounted = Mounted::new("raid1", 2, &["--shards", "2"]);
    let file = mounted.open();
    mounted.served().kill_unawaited();
    drop(mounted.served.take());
    wait(|| !is_mounted(&mounted.folder)).expect("it is unmounted");
    assert!(file.read_at(&mut [0; 512], 0).is_err());
    let Mounted { scratch, members, folder, .. } = &mounted;
    let served = scratch.ready(&["--fuse", folder.to_str().expect("ASCII")], members);
    assert_eq!(fs::metadata(mounted.path()).expect("served again").len(), served.client().size);
    served.stop().expect_done();
}

/// As a supervisor does it: the mount of the one before may still be there.
#[test]
fn a_server_that_was_killed_is_started_again_at_once() {
    let mut mounted = Mounted::new("raid1", 2, &["--shards", "2"]);
    let mut killed = Vec::new();
    for _ in 0..6 {
        mounted.served().kill_unawaited();
        // A drop would wait for its end.
        killed.extend(mounted.served.take());
        let folder = mounted.folder.to_str().expect("ASCII");
        mounted.served = Some(mounted.scratch.ready(&["--fuse", folder], &mounted.members));
    }
    assert_eq!(fs::metadata(mounted.path()).expect("served").len(), mounted.served().client().size);
    mounted.served.take().expect("it serves").stop().expect_done();
}

#[test]
fn an_unmount_by_hand_ends_the_files_and_not_the_server() {
    let mounted = Mounted::new("raid1", 2, &["--shards", "2"]);
    assert!(Command::new("umount").arg(&mounted.folder).status().expect("umount").success());
    mounted.served().wait_for("it was unmounted: its files are not served any more");
    assert_eq!(mounted.served().client().write(0, &[1; 512]).expect("connected"), 0);
    mounted.scratch.stop_when_left("home");
}

#[test]
fn what_cannot_be_a_mount_point_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let refused = |folder: &str, texts: &[&str]| {
        scratch.serve(&["--fuse", folder], &members).end().expect_refused(texts);
    };
    refused(scratch.path("none").to_str().expect("ASCII"), &["none: not found", "expected an empty folder"]);
    refused(members[0].to_str().expect("ASCII"), &["m0: is not a folder"]);
    refused(scratch.path("").to_str().expect("ASCII"), &["is not empty", "would hide"]);
    refused("/proc", &["/proc: a file system is mounted there already"]);
    // A server that is stopped with SIGKILL together with its child leaves a dead mount.
    let mounted = Mounted::serve(scratch, members, &[]);
    let folder = mounted.folder.to_str().expect("ASCII").to_owned();
    let other = Scratch::new();
    let others = other.members("m", 2, 16 * MIB);
    other.create("home", "-l 1 -n 2 --assume-clean", &others);
    other.serve(&["--fuse", &folder], &others).end().expect_refused(&["a file system is mounted there already"]);
    // A child is listed by the thread that made it.
    let threads = fs::read_dir(format!("/proc/{}/task", mounted.served().pid())).expect("procfs");
    let listed = threads.map(|thread| fs::read_to_string(thread.expect("a thread").path().join("children")));
    let children: Vec<String> = listed.map(|children| children.expect("procfs")).collect();
    let children: Vec<i32> = children
        .iter()
        .flat_map(|list| list.split_whitespace())
        .map(|child| child.parse().expect("a number"))
        .collect();
    assert!(!children.is_empty(), "a child keeps the mount");
    for child in children {
        let child = rustix::process::Pid::from_raw(child).expect("not 0");
        rustix::process::kill_process(child, rustix::process::Signal::KILL).expect("our own");
    }
    mounted.served().kill_unawaited();
    // Not its attributes: the kernel may still have them in its cache.
    wait(|| fs::read_dir(&folder).is_err_and(|error| error.raw_os_error() == Some(107))).expect("a dead mount");
    let dead = other.serve(&["--fuse", &folder], &others).end();
    dead.expect_refused(&["transport endpoint is not connected", &format!("umount {folder}"), "fusermount3 -u"]);
}

/// A shell in a mount namespace of its own, whose /dev has what a program needs, and what `more` makes.
fn with_other_dev(scratch: &Scratch, more: &str, words: &str) -> Option<String> {
    const DEVICES: &str = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9";
    let may_mount = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("not tested: a mount namespace needs root");
        return None;
    }
    let script = format!("{DEVICES} && {more} && exec {words}");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("URAID_RUNTIME_DIR", scratch.path(""))
        .stdin(Stdio::null())
        .output()
        .expect("util-linux has it");
    assert!(!output.status.success(), "it is refused");
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A raid1 `home` that another user owns, with all that serves it.
struct Given {
    scratch: Scratch,
    members: Vec<PathBuf>,
    folder: PathBuf,
    binary: PathBuf,
}

fn given_to_another_user() -> Given {
    let scratch = Scratch::on_disk();
    let members = scratch.members("m", 2, 16 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let folder = scratch.path("files");
    fs::create_dir(&folder).expect("a folder");
    let binary = scratch.binary();
    let given = Command::new("chown").args(["-R", "65534:65534"]).arg(scratch.path("")).status();
    assert!(given.expect("coreutils has it").success() || !rustix::process::geteuid().is_root());
    Given { scratch, members, folder, binary }
}

#[test]
fn a_missing_device_right_or_helper_is_named_and_the_array_is_not_served() {
    let Given { scratch, members, folder, binary } = given_to_another_user();
    let [binary, folder, one, two] =
        [&binary, &folder, &members[0], &members[1]].map(|path| path.to_str().expect("ASCII").to_owned());
    let serve = format!("{binary} serve --fuse {folder} {one} {two}");
    let as_user = format!("env PATH=/nowhere /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups {serve}");
    let cases = [
        ("true", &as_user, "/dev/fuse: not found: the kernel has no FUSE"),
        ("mknod -m 600 /dev/fuse c 10 229", &as_user, "/dev/fuse: permission denied (errno 13); expected the right to"),
        ("mknod -m 666 /dev/fuse c 10 229", &as_user, "fusermount3 is not installed, and only root may mount without"),
    ];
    for (more, words, expected) in cases {
        let Some(said) = with_other_dev(&scratch, more, words) else { return };
        assert!(said.contains(expected), "{more}: {said}");
    }
}

/// With fusermount3, of which 3.14.0 itself leaves the mount.
#[test]
fn the_mount_of_an_ordinary_user_goes_with_its_server() {
    let is_open_to_all = fs::metadata("/dev/fuse").is_ok_and(|status| status.mode() & 0o6 == 0o6);
    if !rustix::process::geteuid().is_root() || !is_open_to_all {
        println!("not tested: needs root, to be another user, and a /dev/fuse for all");
        return;
    }
    let Given { scratch, members, folder, binary } = given_to_another_user();
    let is_mounted = || {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("procfs");
        mounts.lines().any(|line| line.split(' ').nth(1) == folder.to_str())
    };
    let as_user = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        command.env("URAID_RUNTIME_DIR", scratch.path(""));
        command
    };
    for is_killed in [false, true] {
        let mut command = as_user();
        command.arg("serve").arg("--fuse").arg(&folder).args(&members);
        let served = Served::start(&mut command);
        served.wait_until_ready();
        assert!(is_mounted());
        if is_killed {
            served.kill_unawaited();
            wait(|| !is_mounted()).expect("the child unmounts");
        } else {
            let mut stop = as_user();
            let stopped = stop.args(["stop", "home"]).status();
            assert!(stopped.is_ok_and(|status| status.success()));
            assert!(!is_mounted(), "when `stop` has ended");
            drop(served);
        }
    }
}

#[test]
fn several_arrays_are_several_files_of_one_folder() {
    let scratch = Scratch::new();
    let (a, b) = (scratch.members("a", 2, 16 * MIB), scratch.members("b", 2, 24 * MIB));
    scratch.create("left", "-l 0 -n 2", &a);
    scratch.create("right", "-l 1 -n 2 --assume-clean", &b);
    let folder = scratch.path("files");
    fs::create_dir(&folder).expect("a folder");
    let text = |path: &PathBuf| path.to_str().expect("ASCII").to_owned();
    let words = [
        "serve",
        "--fuse",
        &text(&folder),
        "--array",
        &text(&a[0]),
        &text(&a[1]),
        "--array",
        &text(&b[0]),
        &text(&b[1]),
    ]
    .map(str::to_owned);
    let served = Served::start(&mut scratch.command(words));
    served.wait_until_ready();
    let mut names: Vec<_> =
        fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
    names.sort();
    assert_eq!(names, ["left", "right"]);
    for name in ["left", "right"] {
        fs::write(folder.join(name), name.repeat(1000)).expect("written");
        let found = fs::read(folder.join(name)).expect("all of it");
        assert_eq!(found[..4000], name.repeat(1000).as_bytes()[..4000]);
        assert_eq!(found.len() as u64, served.client_of(name).size);
    }
    let shown = scratch.uraid(["detail", "left"]).expect_done().stdout;
    assert!(shown.contains(&format!("Served At : {}", folder.join("left").display())), "{shown}");
    scratch.uraid(["stop", "--all", "left"]).expect_done();
    served.end().expect_done();
    assert!(!is_mounted(&folder));
}
