//! A real file system with a real tree, filled through uraid, degraded, written again: clean and equal at the end.
//! Owns: ext4 and xfs, each by image (any user) and by mount (root). Not here: other clients (`foreign_clients`).
//! If a program is missing, its test is skipped with a message, or fails if `URAID_REQUIRE_CLIENTS` is set.

use std::path::{Path, PathBuf};
use uraid_blackbox::filesystem::mount::{self, Loop};
use uraid_blackbox::filesystem::tree;
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::programs::binary::run;
use uraid_blackbox::programs::foreign;
use uraid_blackbox::programs::server::Server;

/// mkfs.xfs refuses less than 300 MB.
const ARRAY: Shape = Shape { level: "raid6", layout: "", members: 6, tolerates: 2, chunk: "64K", member_mib: 100 };
const TREE_BYTES: u64 = 24 << 20;

#[track_caller]
fn client<S: AsRef<std::ffi::OsStr>>(program: &str, words: impl IntoIterator<Item = S>) {
    run(&mut foreign::command(program, words)).expect_done();
}

struct Served {
    scratch: Scratch,
    members: Vec<PathBuf>,
    server: Server,
}

impl Served {
    fn new() -> Served {
        let scratch = Scratch::new();
        let members = create(&scratch, "files", &ARRAY);
        let server = Server::start(scratch.path(), &members, &[]);
        Served { scratch, members, server }
    }

    fn path(&self, name: &str) -> String {
        self.scratch.file(name).display().to_string()
    }

    /// An empty file as large as the array.
    fn image(&self) -> String {
        let said = run(&mut foreign::command("nbdinfo", ["--size", self.server.uri()])).expect_done();
        let bytes = said.out.trim().parse().expect("nbdinfo says a number");
        self.scratch.sparse("image", bytes).display().to_string()
    }

    /// Copies an image in, loses two members, copies it out and stops.
    fn through_a_degraded_array(self, image: &str) -> (Scratch, String) {
        let out = self.path("out");
        client("nbdcopy", ["--flush", image, self.server.uri()]);
        self.server.fail(&self.members[1]);
        self.server.fail(&self.members[4]);
        client("nbdcopy", [self.server.uri(), &out]);
        self.server.stop();
        (self.scratch, out)
    }
}

#[test]
fn an_ext4_image_with_a_tree_comes_out_of_a_degraded_array_clean_and_equal() {
    if !foreign::has(&["nbdinfo", "nbdcopy", "mke2fs", "e2fsck", "debugfs", "diff"]) {
        return;
    }
    let served = Served::new();
    let (files, dumped) = (served.scratch.file("tree"), served.scratch.file("dumped"));
    tree::make(&files, TREE_BYTES).expect("the folder is ours");
    let image = served.image();
    client("mke2fs", ["-q", "-F", "-t", "ext4", "-d", &files.display().to_string(), &image]);
    let (_scratch, out) = served.through_a_degraded_array(&image);
    client("e2fsck", ["-fn", &out]);
    std::fs::create_dir(&dumped).expect("the folder is ours");
    client("debugfs", ["-R", &format!("rdump / {}", dumped.display()), &out]);
    tree::assert_same(&files, &dumped, "lost+found");
}

#[test]
fn an_xfs_image_read_from_a_degraded_array_is_clean_and_equal() {
    if !foreign::has(&["nbdinfo", "nbdcopy", "mkfs.xfs", "xfs_repair", "cmp"]) {
        return;
    }
    let served = Served::new();
    let files = served.scratch.file("tree");
    tree::make(&files, TREE_BYTES).expect("the folder is ours");
    let (image, prototype) = (served.image(), served.path("prototype"));
    std::fs::write(&prototype, tree::prototype(&files)).expect("the folder is ours");
    client("mkfs.xfs", ["-q", "-f", "-p", &prototype, &image]);
    let (_scratch, out) = served.through_a_degraded_array(&image);
    client("xfs_repair", ["-n", "-f", &out]);
    client("cmp", [&image, &out]);
}

/// One kind of file system, mounted.
struct Kind {
    mkfs: &'static [&'static str],
    check: &'static [&'static str],
    ignored: &'static str,
}

const EXT4: Kind =
    Kind { mkfs: &["mke2fs", "-q", "-F", "-t", "ext4"], check: &["e2fsck", "-fn"], ignored: "lost+found" };
const XFS: Kind = Kind { mkfs: &["mkfs.xfs", "-q", "-f"], check: &["xfs_repair", "-n"], ignored: "lost+found" };

fn on_device(words: &[&str], device: &str) {
    client(words[0], words[1..].iter().copied().chain([device]));
}

fn can_mount(kind: &Kind) -> bool {
    if !foreign::has(&["nbdfuse", "losetup", "mount", "umount", "diff", "cp", kind.mkfs[0], kind.check[0]]) {
        return false;
    }
    if let Some(why) = mount::obstacle() {
        foreign::skipped(why);
        return false;
    }
    true
}

/// Fills a file system, loses a member while files are copied and another one afterwards, writes again, checks,
/// restarts and checks again.
fn fill_degrade_and_fill_again(kind: &Kind) {
    if !can_mount(kind) {
        return;
    }
    let served = Served::new();
    let (files, at) = (served.scratch.file("tree"), served.scratch.file("mnt"));
    tree::make(&files, TREE_BYTES).expect("the folder is ours");
    let attached = match Loop::attach(served.server.uri(), &served.scratch.file("fuse")) {
        Ok(attached) => attached,
        Err(said) => return foreign::skipped(&said),
    };
    on_device(kind.mkfs, attached.device());

    let mounted = attached.mount(&at, "noatime");
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| copy(&files, &at.join("first")));
        std::thread::sleep(std::time::Duration::from_millis(200));
        served.server.fail(&served.members[0]);
        copying.join().expect("the copy succeeds");
    });
    mounted.unmount();
    on_device(kind.check, attached.device());
    served.server.fail(&served.members[3]);

    let mounted = attached.mount(&at, "noatime");
    tree::assert_same(&files, &at.join("first"), kind.ignored);
    copy(&files, &at.join("second"));
    std::fs::remove_dir_all(at.join("first").join("odd")).expect("it was copied");
    copy(&files.join("odd"), &at.join("first").join("odd"));
    mounted.unmount();
    on_device(kind.check, attached.device());
    drop(attached);
    served.server.stop();

    let server = Server::start(served.scratch.path(), &served.members, &["--run"]);
    let attached = Loop::attach(server.uri(), &served.scratch.file("fuse")).expect("it worked before");
    on_device(kind.check, attached.device());
    let mounted = attached.mount(&at, "ro");
    tree::assert_same(&files, &at.join("first"), kind.ignored);
    tree::assert_same(&files, &at.join("second"), kind.ignored);
    mounted.unmount();
    drop(attached);
    server.stop();
}

fn copy(from: &Path, to: &Path) {
    client("cp", ["--archive".as_ref(), from.as_os_str(), to.as_os_str()]);
}

#[test]
fn a_mounted_ext4_survives_two_lost_members_and_is_clean_and_equal() {
    fill_degrade_and_fill_again(&EXT4);
}

#[test]
fn a_mounted_xfs_survives_two_lost_members_and_is_clean_and_equal() {
    fill_degrade_and_fill_again(&XFS);
}
