//! The book, README.md and docs/operating, as commands that can be run.
//! Owns: the blocks of a page and their markers (`block`), comparing what is printed with what is quoted (`output`), running
//! a page in a folder of its own (`shell`). Not here: which pages there are, what a reader does with them (the tests).
//! Invariant: a fenced block of a page is run, or says why not by a word of a closed list.
//!
//! ```text
//! <!-- needs: mounts mkfs.xfs -->     what is not everywhere: programs, `mounts` (root, FUSE, loop devices), `fuse`
//! <!-- not run: systemd -->           what no test of this crate has: see `Absent`
//! <!-- exit: 1 -->                    the exit code of the block; what it says on stderr is compared, too
//! <!-- shows: a file -->              before a block of `text`: it is no command, see `Shown`
//! <!-- given:                         commands that are run and not shown
//! ...
//! -->
//! ```
//!
//! A block of `sh` runs as a whole with `sh -e`. In a block of `console`, each line behind `$ ` is run, and must print the
//! lines below it: a line `...` stands for any lines, `...` in a line for any text.

pub mod block;
pub mod output;
pub mod shell;

use std::path::Path;

/// A file of the repository, by its path in it.
pub fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in crates/");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
