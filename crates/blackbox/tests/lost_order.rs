//! Members whose order is lost: what `copy --order` finds on real file systems, not on crafted marks.
//! Owns: ext4 and xfs with a tree, by level. Not here: the search by options (`uraid`'s `rescue`).
//! If a program is missing, its test is skipped with a message, or fails if `URAID_CLIENTS` is `required`.

use std::path::{Path, PathBuf};
use uraid_blackbox::filesystem::tree;
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::programs::binary::{run, uraid};
use uraid_blackbox::programs::foreign;
use uraid_blackbox::programs::server::Server;

/// With only a few MiB, too little data continues from chunk to chunk, and the search ends undecided.
const TREE_BYTES: u64 = 24 << 20;

#[track_caller]
fn client<S: AsRef<std::ffi::OsStr>>(program: &str, words: impl IntoIterator<Item = S>) {
    run(&mut foreign::command(program, words)).expect_done();
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// An array that holds a file system with a tree; its superblocks are gone and its members mixed up.
struct Lost {
    scratch: Scratch,
    /// In an order that is not the array's.
    mixed: Vec<PathBuf>,
    /// A file with the contents of the array.
    image: PathBuf,
}

impl Lost {
    fn new(shape: &Shape, fill: impl FnOnce(&Scratch, &Path)) -> Lost {
        let scratch = Scratch::new();
        let members = create(&scratch, "files", shape);
        let server = Server::start(scratch.path(), &members, &[]);
        let said = run(&mut foreign::command("nbdinfo", ["--size", server.uri()])).expect_done();
        let image = scratch.sparse("image", said.out.trim().parse().expect("nbdinfo says a number"));
        fill(&scratch, &image);
        client("nbdcopy", ["--flush", &text(&image), server.uri()]);
        server.stop();
        uraid(["zero-superblock".to_string()].into_iter().chain(members.iter().map(|member| text(member))))
            .expect_done();
        let mut mixed = members;
        mixed.rotate_left(1);
        mixed.swap(0, 1);
        Lost { scratch, mixed, image }
    }

    /// Searches with these words; the first of the ranking must be the array, without a doubt.
    #[track_caller]
    fn expect_found(&self, words: &str) {
        let out = self.scratch.file("out");
        let all = ["copy", "--order"].into_iter().chain(words.split(' ')).map(str::to_string);
        let members = self.mixed.iter().map(|member| text(member));
        let done = uraid(all.chain(members).chain([text(&out)])).expect_done();
        assert!(done.err.contains("sure: candidate 1 "), "{}", done.err);
        client("cmp", [text(&self.image), text(&out)]);
    }
}

fn fill_ext4(scratch: &Scratch, image: &Path) {
    let files = scratch.file("tree");
    tree::make(&files, TREE_BYTES).expect("the folder is ours");
    client("mke2fs", ["-q", "-F", "-t", "ext4", "-d", &text(&files), &text(image)]);
}

const EXT4_TOOLS: [&str; 4] = ["nbdinfo", "nbdcopy", "mke2fs", "cmp"];

#[test]
fn the_order_and_the_layout_of_a_raid5_with_ext4_are_found() {
    if !foreign::has(&EXT4_TOOLS) {
        return;
    }
    let layout = "left-asymmetric";
    let shape = Shape { level: "raid5", layout, members: 4, tolerates: 1, chunk: "64K", member_mib: 24 };
    Lost::new(&shape, fill_ext4).expect_found("-l 5 -n 4 -c 64K");
}

#[test]
fn the_order_and_the_layout_of_a_raid10_with_ext4_are_found() {
    if !foreign::has(&EXT4_TOOLS) {
        return;
    }
    let shape = Shape { level: "raid10", layout: "o2", members: 4, tolerates: 1, chunk: "64K", member_mib: 24 };
    Lost::new(&shape, fill_ext4).expect_found("-l 10 -n 4 -c 64K");
}

#[test]
fn the_order_of_a_raid6_with_xfs_is_found() {
    if !foreign::has(&["nbdinfo", "nbdcopy", "mkfs.xfs", "cmp"]) {
        return;
    }
    let shape = Shape { level: "raid6", layout: "", members: 5, tolerates: 2, chunk: "64K", member_mib: 108 };
    let fill = |scratch: &Scratch, image: &Path| {
        let files = scratch.file("tree");
        tree::make(&files, TREE_BYTES).expect("the folder is ours");
        let prototype = scratch.file("prototype");
        std::fs::write(&prototype, tree::prototype(&files)).expect("the folder is ours");
        client("mkfs.xfs", ["-q", "-f", "-p", &text(&prototype), &text(image)]);
    };
    Lost::new(&shape, fill).expect_found("-l 6 -n 5 -c 64K -p ls");
}
