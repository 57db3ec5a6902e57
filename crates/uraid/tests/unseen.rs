//! What commands say where the system hides what they ask it for: no /proc, other mount namespaces.
//! Owns: chroots and containers, as far as a mount namespace is one. Not here: members in use where all is seen (`members`,
//! `mounting`).
//! Only root may make a mount namespace.

use crate::common::loop_device::LoopDevice;
use crate::common::{Done, MIB, Scratch, wait};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A command in a mount namespace of its own, in which `before` has been run. `None`: this user may not have one.
fn in_namespace(before: &str, command: &Command) -> Option<Command> {
    let may_mount = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        println!("not tested: a mount namespace needs root");
        return None;
    }
    let mut inner = Command::new("unshare");
    inner.args(["-m", "sh", "-c", &format!("{before} && exec \"$0\" \"$@\"")]);
    inner.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inner.env(name, value),
            None => inner.env_remove(name),
        };
    }
    Some(inner)
}

/// `uraid WORDS` without /proc.
fn without_proc(scratch: &Scratch, words: &[&str], has_directory: bool) -> Option<Done> {
    let mut command = scratch.command(words);
    if !has_directory {
        command.env_remove("URAID_RUNTIME_DIR");
    }
    let output = in_namespace("mount -t tmpfs none /proc", &command)?.output().expect("the binary runs");
    Some(Done {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[test]
fn what_cannot_be_looked_for_without_proc_is_said() {
    let scratch = Scratch::new();
    for verb in ["list", "mdstat"] {
        let Some(done) = without_proc(&scratch, &[verb], false) else { return };
        let said = "servers with sockets in other directories are not looked for: /proc/net/unix: not found";
        done.expect_done().expect_said(&[said]);
        // The user has said where to look.
        assert_eq!(without_proc(&scratch, &[verb], true).expect("root").expect_done().stderr, "", "{verb}");
    }
    let said = "cannot tell which block devices this system has: /proc/partitions: not found; name the members";
    without_proc(&scratch, &["examine", "--scan"], true).expect("root").expect_refused(&[said]);
    let uuid = "01234567:89abcdef:01234567:89abcdef";
    for more in [&[][..], &["--run-after", "1m"]] {
        let words = [&["serve", "--uuid", uuid], more].concat();
        without_proc(&scratch, &words, true).expect("root").expect_refused(&[said]);
    }
    // Members that are named are found all the same.
    let member = scratch.members("m", 1, 8 * MIB);
    scratch.create("home", "-l 1 -n 1 --force", &member);
    let path: &Path = &member[0];
    let words = ["examine", "--scan", path.to_str().expect("text")];
    let shown = without_proc(&scratch, &words, true).expect("root").expect_done();
    assert!(shown.stdout.starts_with("ARRAY /dev/md/home"), "{shown:?}");
}

#[test]
fn a_server_in_the_background_that_cannot_be_started_leaves_no_log() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let paths = members.iter().map(|path| path.to_str().expect("text"));
    let words: Vec<&str> = ["serve", "--background"].into_iter().chain(paths).collect();
    let Some(done) = without_proc(&scratch, &words, true) else { return };
    done.expect_refused(&["no server in the background: /proc/self/"]);
    let files = fs::read_dir(scratch.path("")).expect("ours").map(|entry| entry.expect("ours").file_name());
    let logs: Vec<_> = files.filter(|name| name.to_string_lossy().contains(".log")).collect();
    assert!(logs.is_empty(), "{logs:?}");
}

#[test]
fn a_file_below_a_loop_device_that_another_namespace_has_mounted_is_not_written() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 32 * MIB);
    let place = scratch.path("fs");
    fs::create_dir(&place).expect("a folder");
    let Some(device) = LoopDevice::new(&members[0]) else {
        println!("not run: no loop device here");
        return;
    };
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(device.path()).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("not run: no mkfs.ext4 here");
        return;
    }
    // Mounted where this process does not see it, until the shell has ended.
    let mount = format!("mount {} {}", device.path().display(), place.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", "touch \"$1\"; read line", "sh"]).arg(scratch.path("mounted"));
    let Some(mut inner) = in_namespace(&mount, &shell) else { return };
    let mut mounted = inner.stdin(Stdio::piped()).spawn().expect("root may");
    wait(|| scratch.path("mounted").exists()).expect("it is mounted");
    let words = |force: bool| {
        let words = ["create", "--name", "home", "--homehost", "none", "-l", "1", "-n", "2", "--assume-clean"];
        let words = words.into_iter().chain(force.then_some("--force")).map(PathBuf::from);
        words.chain(members.iter().cloned()).collect::<Vec<PathBuf>>()
    };
    let used = "shows, which a mount in another namespace, or another process, uses: stop that, then try again";
    let wanted = format!("{}: is what {} {used}", members[0].display(), device.path().display());
    scratch.uraid(words(true)).expect_refused(&[&wanted]);
    scratch.uraid([Path::new("zero-superblock"), &members[0]]).expect_refused(&[&wanted]);
    drop(mounted.stdin.take());
    mounted.wait().expect("it ends");
    device.wait_until_free();
    // Now it is in nobody's way, whether by the name of the file or of the device.
    scratch.uraid(words(true)).expect_done();
    scratch.uraid([Path::new("zero-superblock"), device.path()]).expect_done();
}
