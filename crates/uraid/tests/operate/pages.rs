//! The commands of the pages on operating, run as a reader pastes them.
//! Owns: which pages, a folder for each. Not here: README.md and the first array (`uraid-blackbox`).
//! A block of `sh` runs as a whole with `sh -e`, all blocks of a page in its order and in one folder.

use crate::common::Scratch;
use std::path::Path;
use std::process::{Command, Stdio};

/// Pages below docs/operating.
const PAGES: [&str; 1] = ["configuration.md"];

/// The blocks of `sh`, each with the number of its first line.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = lines.iter().enumerate().filter(|(_, line)| **line == "```sh").map(|(at, _)| at + 1);
    let block = |from: usize| lines[from..].iter().take_while(|line| **line != "```").copied().collect::<Vec<_>>();
    starts.map(|from| (from + 1, block(from).join("\n"))).collect()
}

#[test]
fn every_block_of_the_pages_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in crates/");
    for page in PAGES {
        let text = std::fs::read_to_string(root.join("docs/operating").join(page)).expect("the page is there");
        let found = blocks(&text);
        assert!(!found.is_empty(), "{page} has no block");
        let scratch = Scratch::new();
        let [folder, programs] = ["here", "bin"].map(|name| scratch.path(name));
        std::fs::create_dir(&folder).and_then(|()| std::fs::create_dir(&programs)).expect("room");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_uraid"), programs.join("uraid")).expect("room");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        for (line, block) in found {
            let mut shell = Command::new("/bin/sh");
            // The variables that a test has, from the command that would be run without a shell.
            let own = scratch.command([""; 0]);
            let variables = own.get_envs().filter_map(|(name, value)| Some((name, value?)));
            shell.envs(variables).env("PATH", &path).current_dir(&folder).stdin(Stdio::null());
            let output = shell.args(["-e", "-c", &format!("umask 022\n{block}")]).output().expect("there is a shell");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{page}:{line}: {:?}\n{block}\n{said}", output.status);
        }
        let listed = scratch.uraid(["list"]).expect_done().stdout;
        assert_eq!(listed, "", "{page} stops what it starts");
    }
}
