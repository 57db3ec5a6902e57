//! A folder in which a page is run, with the binary first in PATH.
//! Owns: who runs it, the directories of that user, what a block needs, stopping what was started. Not here: what a block is
//! (`block`).
//! Invariant: nothing outside of the folder is written; no server and no mount is left when the shell is dropped.

use super::block::{Block, Kind};
use super::output::fit;
use crate::filesystem::mount;
use crate::members::scratch::Scratch;
use crate::programs::binary::{self, Finished, run};
use crate::programs::foreign;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who types the lines.
#[derive(Clone, Copy, Debug)]
pub enum User {
    /// The user of this test.
    Own,
    /// A user with this id, for whom root runs them. He has no login session and so no `XDG_RUNTIME_DIR`.
    Ordinary(u32),
}

impl User {
    /// An ordinary one, whom no other test has at this time; the user of this test if that is not root.
    pub fn ordinary() -> User {
        // Ids that systems keep for services that come and go.
        const FIRST: u32 = 61_184;
        const COUNT: u32 = 4_000;
        if !rustix::process::geteuid().is_root() {
            return User::Own;
        }
        let mut numbers = (0..COUNT).map(|number| FIRST + (std::process::id() * 64 + number) % COUNT);
        let free = numbers.find(|id| claim(*id));
        User::Ordinary(free.expect("one of 4000 ids has no runtime directory"))
    }
}

/// Takes a user's id for one test: whoever makes the runtime directory that such a user has without a login session.
fn claim(id: u32) -> bool {
    let folder = runtime_of(id);
    let is_ours = DirBuilder::new().mode(0o700).create(&folder).is_ok();
    if is_ours {
        chown(&folder, Some(id), Some(id)).expect("root may");
    }
    is_ours
}

fn runtime_of(id: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/uraid-{id}"))
}

/// How many blocks a page had, by what became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Blocks that were run.
    pub run: usize,
    /// Commands of `console` whose output was compared.
    pub compared: usize,
    /// Blocks that need what this machine lacks.
    pub skipped: usize,
}

/// An empty folder; what is served from it is stopped when it is dropped.
#[derive(Debug)]
pub struct Shell {
    scratch: Scratch,
    user: User,
}

impl Shell {
    /// An empty folder of this user.
    pub fn new(user: User) -> Shell {
        let scratch = Scratch::new();
        for folder in ["bin", "run", "state", "home", "empty"] {
            std::fs::create_dir(scratch.file(folder)).expect("the folder is ours");
        }
        let program = scratch.file("bin/uraid");
        // The folder of the build may be one that only its owner enters.
        if std::fs::hard_link(binary::path(), &program).is_err() {
            std::fs::copy(binary::path(), &program).expect("there is room for the binary");
        }
        if let User::Ordinary(id) = user {
            for folder in ["run", "state", "home", "empty"] {
                chown(scratch.file(folder), Some(id), Some(id)).expect("root may");
            }
        }
        for folder in ["run", "state"] {
            std::fs::set_permissions(scratch.file(folder), PermissionsExt::from_mode(0o700)).expect("it is ours");
        }
        Shell { scratch, user }
    }

    /// The folder in which the commands run.
    pub fn folder(&self) -> PathBuf {
        self.scratch.file("empty")
    }

    /// Runs a script with `sh -e`.
    pub fn run(&self, script: &str) -> Finished {
        // A page that waits for what never comes ends with a message; the limit is far above what a slow machine needs.
        let mut command = Command::new("timeout");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.scratch.file("bin").display());
        // What a page writes may count for a program of root only if no others may write to it.
        command.args(["300", "/bin/sh", "-e", "-c", &format!("umask 022\n{script}")]).current_dir(self.folder());
        command.env_clear().env("PATH", path).env("HOME", self.scratch.file("home")).env("TZ", "UTC");
        match self.user {
            User::Own => command
                .env("URAID_RUNTIME_DIR", self.scratch.file("run"))
                .env("URAID_STATE_DIR", self.scratch.file("state")),
            User::Ordinary(id) => command.uid(id).gid(id).env("XDG_STATE_HOME", self.scratch.file("state")),
        };
        run(&mut command)
    }

    /// Runs lines with `sh -e`, as a reader types them.
    pub fn run_lines<S: AsRef<str>>(&self, lines: &[S]) -> Finished {
        self.run(&lines.iter().map(|line| whenever(line.as_ref())).collect::<Vec<_>>().join("\n"))
    }

    /// Runs the blocks in their order. A block is skipped where this machine lacks what it needs, and behind a given one
    /// all are.
    #[track_caller]
    pub fn run_all(&self, document: &str, blocks: &[Block]) -> Counts {
        let mut counts = Counts::default();
        let mut is_given = true;
        for block in blocks.iter().filter(|block| block.is_run()) {
            let can = has_all(&format!("{document}:{}", block.line), &block.needs);
            if block.kind == Kind::Given {
                is_given &= can;
            }
            if !can || !is_given {
                counts.skipped += 1;
                continue;
            }
            counts.run += 1;
            counts.compared += self.run_block(&format!("{document}:{}, as {:?}", block.line, self.user), block);
        }
        counts
    }

    /// Runs one block. How many outputs were compared.
    #[track_caller]
    fn run_block(&self, place: &str, block: &Block) -> usize {
        println!("{place}");
        let expected_code = block.exit.unwrap_or(0);
        match block.kind {
            Kind::Text(_) => 0,
            Kind::Sh | Kind::Given => {
                let done = self.run_lines(&block.lines);
                assert_eq!(done.code, Some(expected_code), "{place}\n{}\n{}{}", done.line, done.out, done.err);
                0
            }
            Kind::Console => {
                let commands = block.commands();
                for (command, expected) in &commands {
                    let merged = if block.exit.is_some() { "exec 2>&1\n" } else { "" };
                    let done = self.run(&format!("{merged}{}", whenever(command)));
                    let found: Vec<&str> = done.out.trim_end().lines().collect();
                    assert!(
                        fit(expected, &found),
                        "{place}: {command}\nexpected:\n{}\nfound:\n{}\nstderr:\n{}",
                        expected.join("\n"),
                        done.out,
                        done.err
                    );
                    assert_eq!(done.code, Some(expected_code), "{place}: {command}\n{}{}", done.out, done.err);
                }
                commands.len()
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let here = self.folder();
        // First what is mounted in the folder, which keeps arrays busy. Each fails if the page has done it.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let below =
            mounts.lines().filter_map(|line| line.split(' ').nth(1)).filter(|at| Path::new(at).starts_with(&here));
        for place in below.collect::<Vec<_>>().into_iter().rev() {
            let _ = self.run(&format!("uraid umount {place} || umount {place}"));
        }
        let _ = self.run("uraid stop --force --scan");
        // By a member: what is served in another runtime directory.
        let _ = self.run("for disk in disk*; do uraid stop --force ./$disk && break; done");
        if let User::Ordinary(id) = self.user {
            let _ = std::fs::remove_dir_all(runtime_of(id));
        }
    }
}

/// The same command, whether or not a pass has ended before it begins: on a slow machine `wait` may find nothing to wait
/// for, and says so by exit code 1, as `mdadm --wait` does.
fn whenever(command: &str) -> String {
    if command.starts_with("uraid wait ") { format!("{command} || test $? = 1") } else { command.to_owned() }
}

/// Whether this machine has what the block at this place needs; says loudly what it lacks. A program that is missing fails
/// the test where all clients are required.
#[track_caller]
pub fn has_all(place: &str, needs: &[String]) -> bool {
    needs.iter().all(|need| match need.as_str() {
        "mounts" => match mount::obstacle().or_else(|| (!may_mount()).then_some("this container forbids mounts")) {
            Some(why) => {
                foreign::skipped(&format!("{place}: {why}"));
                false
            }
            None => true,
        },
        "fuse" => {
            let can = Path::new("/dev/fuse").exists() && (may_mount() || !rustix::process::geteuid().is_root());
            if !can {
                foreign::skipped(&format!("{place}: this machine or container has no FUSE"));
            }
            can && foreign::has(&["fusermount3"])
        }
        program => foreign::has(&[program]),
    })
}

/// Whether this process has CAP_SYS_ADMIN, which mounting needs.
fn may_mount() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
    effective.and_then(|hex| u64::from_str_radix(hex, 16).ok()).is_some_and(|bits| bits >> 21 & 1 == 1)
}
