//! What commands say where the system hides what they ask it for: no /proc, other mount namespaces.
//! Owns: chroots and containers, as far as a mount namespace is one. Not here: members in use where all is seen (`members`,
//! `mounting`).
//! Only root may make a mount namespace.

use crate::common::{Done, MIB, Scratch};
use std::path::Path;
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
