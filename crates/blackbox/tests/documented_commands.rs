//! The commands of README.md and of docs/operating/first-array.md, run as a reader pastes them.
//! Owns: finding the blocks, running them as root and as an ordinary user without a login session, comparing what they
//! print. Not here: what else the commands do (`crates/uraid/tests`).
//!
//! A block of `sh` runs as a whole with `sh -e`. In a block of `console`, each line behind `$ ` is run, and must print the
//! lines below it: a line `...` stands for any lines, `...` in a line for any text. `<!-- needs: PROGRAM -->` before a
//! block names what is not installed everywhere.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use uraid_blackbox::members::scratch::Scratch;
use uraid_blackbox::programs::binary::{self, Finished, run};
use uraid_blackbox::programs::foreign;

const README: &str = "README.md";
const PAGE: &str = "docs/operating/first-array.md";
const PICTURE: &str = "docs/operating/first-array.svg";

fn document(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate lies in crates/");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Lines to paste.
    Sh,
    /// Lines to type, each with its output.
    Console,
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    /// The program that is not installed everywhere.
    needs: Option<String>,
    /// From 1; for messages.
    line: usize,
    lines: Vec<String>,
}

/// The command blocks of a document.
fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let kind = match *line {
            "```sh" => Kind::Sh,
            "```console" => Kind::Console,
            _ => continue,
        };
        let before = index.checked_sub(1).map_or("", |index| lines[index]);
        let needs = before.strip_prefix("<!-- needs: ").and_then(|rest| rest.strip_suffix(" -->"));
        let inside = lines[index + 1..].iter().take_while(|line| **line != "```").map(|line| line.to_string());
        found.push(Block { kind, needs: needs.map(str::to_string), line: index + 1, lines: inside.collect() });
    }
    found
}

/// The commands of a block of `console`, each with the lines that it prints.
fn commands(block: &Block) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in &block.lines {
        match line.strip_prefix("$ ") {
            Some(command) => found.push((command, Vec::new())),
            None => found.last_mut().expect("a block of console begins with a command").1.push(line),
        }
    }
    found
}

/// Whether the lines are those expected, where a line `...` stands for any lines.
fn fit(expected: &[&str], found: &[&str]) -> bool {
    match (expected.split_first(), found.split_first()) {
        (None, found) => found.is_none(),
        (Some((&"...", rest)), found_first) => {
            fit(rest, found) || found_first.is_some_and(|(_, behind)| fit(expected, behind))
        }
        (Some(_), None) => false,
        (Some((line, rest)), Some((first, behind))) => fits(line.trim_end(), first.trim_end()) && fit(rest, behind),
    }
}

/// Whether the line is the one expected, where `...` stands for any text.
fn fits(expected: &str, found: &str) -> bool {
    match expected.split_once("...") {
        None => expected == found,
        Some((start, rest)) => found.strip_prefix(start).is_some_and(|behind| {
            behind.char_indices().map(|(at, _)| at).chain([behind.len()]).any(|at| fits(rest, &behind[at..]))
        }),
    }
}

/// Who pastes the lines.
#[derive(Clone, Copy, Debug)]
enum User {
    /// The user of this test, with a runtime directory of the test's own.
    Own,
    /// A user with this id, who has no login session and so no `XDG_RUNTIME_DIR`.
    Ordinary(u32),
}

/// An empty folder with the binary first in PATH; the array in it is stopped when dropped.
struct Shell {
    scratch: Scratch,
    user: User,
}

impl Shell {
    fn new(user: User) -> Shell {
        let scratch = Scratch::new();
        for folder in ["bin", "run", "empty"] {
            std::fs::create_dir(scratch.file(folder)).expect("the folder is ours");
        }
        let program = scratch.file("bin/uraid");
        // The folder of the build may be one that only its owner enters.
        if std::fs::hard_link(binary::path(), &program).is_err() {
            std::fs::copy(binary::path(), &program).expect("there is room for the binary");
        }
        if let User::Ordinary(id) = user {
            chown(scratch.file("empty"), Some(id), Some(id)).expect("root may");
        }
        Shell { scratch, user }
    }

    fn run(&self, script: &str) -> Finished {
        let mut command = Command::new("/bin/sh");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.scratch.file("bin").display());
        command.args(["-e", "-c", script]).current_dir(self.scratch.file("empty"));
        command.env_clear().env("PATH", path).env("HOME", self.scratch.file("empty"));
        match self.user {
            User::Own => command.env("URAID_RUNTIME_DIR", self.scratch.file("run")),
            User::Ordinary(id) => command.uid(id).gid(id),
        };
        run(&mut command)
    }

    /// Runs all blocks, in order, as far as what they need is installed. How many commands of `console` were compared.
    #[track_caller]
    fn run_all(&self, document: &str, blocks: &[Block]) -> usize {
        let mut compared = 0;
        for block in blocks {
            if block.needs.as_deref().is_some_and(|program| !foreign::has(&[program])) {
                continue;
            }
            let place = format!("{document}:{}, as {:?}", block.line, self.user);
            match block.kind {
                Kind::Sh => {
                    println!("{place}");
                    let lines: Vec<String> = block.lines.iter().map(|line| whenever(line)).collect();
                    self.run(&lines.join("\n")).expect_done();
                }
                Kind::Console => {
                    for (command, expected) in commands(block) {
                        println!("{place}: {command}");
                        let done = self.run(&whenever(command)).expect_done();
                        let found: Vec<&str> = done.out.trim_end().lines().collect();
                        assert!(
                            fit(&expected, &found),
                            "{place}: {command}\nexpected:\n{}\nfound:\n{}",
                            expected.join("\n"),
                            done.out
                        );
                        compared += 1;
                    }
                }
            }
        }
        compared
    }
}

/// The same command, whether or not a pass has ended before it begins: on a slow machine `wait` may find nothing to wait
/// for, and says so by exit code 1, as `mdadm --wait` does.
fn whenever(command: &str) -> String {
    if command.starts_with("uraid wait ") { format!("{command} || test $? = 1") } else { command.to_owned() }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // By a member: this ends no other array that has the same name. It fails if the page has stopped its array.
        let _ = self.run("for disk in disk?; do uraid stop --force ./$disk && break; done");
        if let User::Ordinary(id) = self.user {
            let _ = std::fs::remove_dir_all(PathBuf::from(format!("/tmp/uraid-{id}")));
        }
    }
}

/// The test's own user, and if that is root an ordinary one, whom no other test has at this time.
fn users() -> Vec<User> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 4 + COUNT.fetch_add(1, Ordering::Relaxed);
    let mut users = vec![User::Own];
    if rustix::process::geteuid().is_root() {
        // Ids that systems keep for services that come and go.
        users.push(User::Ordinary(61_184 + number % 4_000));
    } else {
        foreign::skipped("the commands as another user: only root can run them so");
    }
    users
}

#[test]
fn the_first_array_of_the_readme_works_when_pasted() {
    let text = document(README);
    let (_, section) = text.split_once("## The first array\n").expect("README.md has the section");
    let section = section.split("\n## ").next().expect("it has text");
    let blocks = blocks(section);
    assert_eq!(
        blocks.len(),
        self::blocks(&text).len(),
        "a command block of README.md outside of the section runs nowhere"
    );
    assert!(blocks.iter().any(|block| block.kind == Kind::Sh && block.lines.len() == 6), "six lines make an array");
    for user in users() {
        let shell = Shell::new(user);
        shell.run_all(README, &blocks);
        let detail = shell.run("uraid detail disk0 disk1 disk2 disk3").expect_done();
        assert!(detail.out.contains("State : clean, Not Started "), "{}", detail.out);
        let stopped = shell.run("! uraid detail backup");
        assert_eq!(stopped.code, Some(0), "the array still runs: {}", stopped.out);
    }
}

#[test]
fn the_page_of_the_first_array_prints_what_it_quotes() {
    let blocks = blocks(&document(PAGE));
    for user in users() {
        let compared = Shell::new(user).run_all(PAGE, &blocks);
        assert!(compared >= 15, "{compared} commands were compared");
    }
}

#[test]
fn the_picture_shows_what_the_page_quotes() {
    let page = blocks(&document(PAGE));
    let quoted: Vec<(&str, Vec<&str>)> = page.iter().filter(|b| b.kind == Kind::Console).flat_map(commands).collect();
    let svg = document(PICTURE);
    let texts =
        svg.lines().filter_map(|line| Some(line.split_once("<text")?.1.split_once('>')?.1.split_once("</text>")?.0));
    let lines = texts.map(|text| text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")).collect();
    let picture = Block { kind: Kind::Console, needs: None, line: 1, lines };
    let shown = commands(&picture);
    assert!(!shown.is_empty(), "{PICTURE} shows no command");
    for (command, mut found) in shown {
        let (_, expected) = quoted.iter().find(|(quoted, _)| *quoted == command).expect("the page has the command");
        while found.last().is_some_and(|line| line.is_empty()) {
            found.pop();
        }
        assert!(
            fit(expected, &found),
            "{PICTURE}: {command}\nexpected:\n{}\nfound:\n{}",
            expected.join("\n"),
            found.join("\n")
        );
    }
}

#[test]
fn dots_stand_for_lines_and_for_text() {
    assert!(fits("a ... c", "a b c") && fits("a...", "a") && fits("...b", "ab") && !fits("a...c", "ab"));
    assert!(fit(&["a", "...", "d"], &["a", "b", "c", "d"]) && fit(&["..."], &[]) && fit(&[], &[]));
    assert!(!fit(&["a"], &["a", "b"]) && !fit(&["a", "b"], &["a"]) && !fit(&["...", "x"], &["a"]));
}
