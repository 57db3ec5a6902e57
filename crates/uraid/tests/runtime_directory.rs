//! Which runtime directory a user gets, and which ones are refused.
//! Owns: users with and without a login session, directories that others could change, what `list` and `mdstat` say when
//! they cannot know. Not here: sockets of other users in a directory that is not refused (`control`).
//! The directory of a user without a session is below /tmp: each test has a user of its own, which only root can be.

use crate::common::{Done, MIB, Scratch, wait};
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A user that nothing else belongs to, with an array `home`.
struct User {
    scratch: Scratch,
    id: u32,
}

impl User {
    /// `None`: this is not root.
    fn new() -> Option<User> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            println!("only root can be another user: not tested here");
            return None;
        }
        let scratch = Scratch::new();
        scratch.binary();
        let id = 100_000 + std::process::id() % 1_000_000 * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let user = User { scratch, id };
        let _ = fs::remove_dir_all(user.fallback());
        let members = user.scratch.members("m", 2, 6 * MIB);
        user.scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
        members.iter().chain([&user.scratch.path("")]).for_each(|path| user.give(path));
        Some(user)
    }

    fn give(&self, path: &Path) {
        chown(path, Some(self.id), Some(self.id)).expect("root may");
    }

    /// Where the sockets are outside a login session.
    fn fallback(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/uraid-{}", self.id))
    }

    /// A folder of this user.
    fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.scratch.path(name);
        fs::create_dir(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our folder");
        self.give(&path);
        path
    }

    /// `uraid LINE` in the scratch folder, with these variables and no others.
    fn uraid(&self, variables: &[(&str, &Path)], line: &str) -> Done {
        let mut command = Command::new(self.scratch.path("uraid"));
        command.args(line.split(' ')).current_dir(self.scratch.path("")).env_clear();
        command.envs(variables.iter().copied()).uid(self.id).gid(self.id).stdin(Stdio::null());
        let output = command.output().expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Done { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    #[track_caller]
    fn expect_runs(&self, variables: &[(&str, &Path)], directory: &Path) {
        let shown = self.uraid(variables, "list").expect_done();
        let uri = format!("nbd+unix:///home?socket={}/home.nbd\n", directory.display());
        assert!(shown.stdout.ends_with(&uri) && shown.stderr.is_empty(), "{shown:?}");
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if fs::remove_file(self.fallback()).is_err() {
            let _ = fs::remove_dir_all(self.fallback());
        }
    }
}

#[test]
fn a_user_without_a_login_session_has_a_private_directory_which_is_found_from_a_session_too() {
    let Some(user) = User::new() else { return };
    assert_eq!(user.uraid(&[], "list").expect_done().stdout, "");
    assert!(!user.fallback().exists(), "nothing is made to look");
    user.uraid(&[], "serve --background m0 m1").expect_done();
    let status = fs::symlink_metadata(user.fallback()).expect("it is made");
    assert_eq!((status.mode() & 0o7777, status.uid()), (0o700, user.id));
    user.expect_runs(&[], &user.fallback());
    // A session that begins later, one of another user (su), and words that are no path.
    let (session, other) = (user.folder("session", 0o700), user.scratch.path("other"));
    fs::create_dir(&other).expect("a folder of root");
    for directory in [&session, &other, Path::new("relative"), Path::new("/nowhere"), Path::new("")] {
        user.expect_runs(&[("XDG_RUNTIME_DIR", directory)], &user.fallback());
    }
    // One of the user's own that others may change is refused, and nothing is put elsewhere.
    let shared = user.folder("shared", 0o777);
    for words in ["list", "serve --background m0 m1"] {
        let line = format!("uraid: the runtime directory {}/uraid is not used: ", shared.display());
        user.uraid(&[("XDG_RUNTIME_DIR", &shared)], words).expect_refused(&[&line, "writ"]);
    }
    assert!(user.uraid(&[("XDG_RUNTIME_DIR", &session)], "mdstat").expect_done().stdout.contains(" : active raid"));
    let elsewhere = user.folder("elsewhere", 0o700);
    assert_eq!(user.uraid(&[("URAID_RUNTIME_DIR", &elsewhere)], "list").expect_done().stdout, "");
    user.uraid(&[("XDG_RUNTIME_DIR", &session)], "stop home").expect_done();
    // Inside the session, new sockets are there.
    let inside = [("XDG_RUNTIME_DIR", &*session)];
    user.uraid(&inside, "serve --background m0 m1").expect_done();
    user.expect_runs(&inside, &session.join("uraid"));
    assert_eq!(fs::metadata(session.join("uraid")).expect("it is made").mode() & 0o7777, 0o700);
    let outside = user.uraid(&[], "list").expect_done();
    assert_eq!(outside.stdout, "");
    let expected = format!("of user {} has its sockets in {}/uraid: ", user.id, session.display());
    outside.expect_said(&["uraid: not shown: process ", &expected, "URAID_RUNTIME_DIR="]);
    user.uraid(&inside, "stop home").expect_done();
}

/// What root's `list` shows without URAID_RUNTIME_DIR.
fn list_of_root(user: &User) -> String {
    let mut command = Command::new(user.scratch.path("uraid"));
    let output = command.arg("list").env_remove("URAID_RUNTIME_DIR").output().expect("the binary runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn root_is_told_whose_arrays_it_is_not_shown() {
    let Some(user) = User::new() else { return };
    let line =
        format!("of user {0} has its sockets in {1}: `uraid list` of user {0} ", user.id, user.fallback().display());
    assert!(!list_of_root(&user).contains(&line));
    user.uraid(&[], "serve --background m0 m1").expect_done();
    let said = list_of_root(&user);
    assert_eq!(said.matches(&line).count(), 1, "{said}");
    user.uraid(&[], "stop home").expect_done();
    wait(|| !list_of_root(&user).contains(&line)).expect("it has ended");
}

#[test]
fn what_another_user_has_put_in_the_place_of_the_private_directory_is_refused() {
    let Some(user) = User::new() else { return };
    let place = user.fallback();
    let theirs = user.scratch.path("theirs");
    fs::create_dir(&theirs).expect("a folder of root");
    let refused = |reason: &str| {
        let line = format!("uraid: the runtime directory {} is not used: {reason}", place.display());
        for words in ["list", "mdstat", "serve m0 m1", "serve --background m0 m1", "stop home", "detail home"] {
            let done = user.uraid(&[], words).expect_refused(&[&line, "name it with URAID_RUNTIME_DIR\n"]);
            assert!(done.stdout.is_empty() && done.stderr.lines().count() == 1, "{done:?}");
        }
        // The superblocks are told all the same.
        let told = user.uraid(&[], "detail m0 m1").expect_done();
        assert!(told.stdout.contains("Raid Level : raid1") && told.stderr.contains(&line), "{told:?}");
        let named = user.folder("named", 0o700);
        assert_eq!(user.uraid(&[("URAID_RUNTIME_DIR", &named)], "list").expect_done().stderr, "");
        fs::remove_dir(named).expect("it is empty");
    };
    fs::create_dir(&place).expect("nothing is there");
    chown(&place, Some(65_534), None).expect("root may");
    refused(&format!("{} belongs to user 65534;", place.display()));
    // Root's, which would be left alone, is not private.
    chown(&place, Some(0), None).expect("root may");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("root may");
    refused(&format!("{} belongs to user 0 and has mode 755, expected this user and mode 700;", place.display()));
    user.give(&place);
    refused(&format!(
        "{} belongs to user {} and has mode 755, expected this user and mode 700;",
        place.display(),
        user.id
    ));
    fs::remove_dir(&place).expect("it is empty");
    symlink(&theirs, &place).expect("a link");
    lchown(&place, Some(65_534), None).expect("root may");
    refused(&format!("{} belongs to user 65534;", place.display()));
    fs::remove_file(&place).expect("the link");
    fs::write(&place, "").expect("a file");
    refused(&format!("{} is not a directory;", place.display()));
    // It is no obstacle for a user with a session.
    let session = user.folder("session", 0o700);
    assert_eq!(user.uraid(&[("XDG_RUNTIME_DIR", &session)], "list").expect_done().stderr, "");
}

/// Also for root, and wherever on the way.
#[test]
fn directories_that_others_could_change_are_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let (outer, inner) = (scratch.path("outer"), scratch.path("outer/inner"));
    fs::create_dir_all(&inner).expect("a folder");
    let mode = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    let uraid = |directory: &Path, words: &[&str]| {
        let words = words.iter().map(PathBuf::from).chain(members.iter().filter(|_| words[0] == "serve").cloned());
        let output = scratch.command(words).env("URAID_RUNTIME_DIR", directory).output().expect("the binary runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Done { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    };
    let refused = |directory: &Path, reason: &str| {
        let line = format!("uraid: the runtime directory {} is not used: {reason}; ", directory.display());
        for words in [&["list"][..], &["mdstat"], &["serve"], &["serve", "--background"]] {
            uraid(directory, words).expect_refused(&[&line]);
        }
    };
    for (of_outer, of_inner, wrong) in [(0o755, 0o777, &inner), (0o755, 0o720, &inner), (0o707, 0o700, &outer)] {
        mode(&outer, of_outer);
        mode(&inner, of_inner);
        let found = if *wrong == inner { of_inner } else { of_outer };
        refused(&inner, &format!("other users may write to {} (mode {found:o})", wrong.display()));
    }
    mode(&outer, 0o755);
    mode(&inner, 0o750);
    assert_eq!(uraid(&inner, &["list"]).expect_done().stderr, "");
    let link = scratch.path("link");
    symlink(&inner, &link).expect("a link");
    assert_eq!(uraid(&link, &["list"]).expect_done().stderr, "");
    if geteuid().is_root() {
        lchown(&link, Some(65_534), None).expect("root may");
        refused(&link, &format!("{} belongs to user 65534", link.display()));
        chown(&outer, Some(65_534), None).expect("root may");
        refused(&inner, &format!("{} belongs to user 65534", outer.display()));
    }
    // One that is not there is made.
    let new = scratch.path("new/one");
    assert_eq!(uraid(&new, &["list"]).expect_done().stdout, "");
    assert!(!new.exists());
    uraid(&new, &["serve", "--background"]).expect_done();
    assert_eq!(fs::metadata(&new).expect("it is made").mode() & 0o7777, 0o700);
    uraid(&new, &["stop", "home"]).expect_done();
    // A socket's path is short.
    let long = scratch.path(&"d".repeat(100));
    let said = uraid(&long, &["serve", "--background"]).expect_refused(&[" bytes, a socket's has at most 107"]);
    assert!(said.stderr.contains(&format!("cannot listen on {}/home.nbd: ", long.display())), "{said:?}");
}
