//! `uraid serve --background`: when it returns, what it leaves open, what becomes of its log.
//! Owns: the command as a shell calls it, a start that fails, signals of the terminal. Not here: the server of `mount`
//! (`mounting`), which runtime directory it is (`runtime_directory`).

use crate::common::tmpfs::Tmpfs;
use crate::common::{Client, Done, MIB, Scratch, wait};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn words(options: &[&str], members: &[PathBuf]) -> Vec<PathBuf> {
    let words = ["serve", "--background"].iter().chain(options).map(PathBuf::from);
    words.chain(members.iter().cloned()).collect()
}

/// An array `home` on two mirrors.
fn home(scratch: &Scratch) -> Vec<PathBuf> {
    let members = scratch.members("m", 2, 6 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    members
}

fn server_of(scratch: &Scratch, array: &str) -> serde_json::Value {
    let shown = scratch.uraid(["detail", "--json", array]).expect_done().stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown["server"].clone()
}

/// The process is a session's leader, and has none of the caller's descriptors.
#[track_caller]
fn expect_detached(pid: u64, log: &Path) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    let (group, session, terminal) = (fields[2], fields[3], fields[4]);
    let pid_text = pid.to_string();
    assert_eq!((group, session, terminal), (&*pid_text, &*pid_text, "0"), "{stat}");
    let opened = |number: u32| fs::read_link(format!("/proc/{pid}/fd/{number}")).expect("it is open");
    assert_eq!(opened(0), Path::new("/dev/null"));
    wait(|| opened(1) == Path::new("/dev/null")).expect("stdout is left");
    assert_eq!(opened(2), log);
}

#[test]
fn it_returns_when_the_array_is_served_and_serves_on() {
    let scratch = Scratch::new();
    let members = home(&scratch);
    let Done { stdout, stderr, .. } = scratch.uraid(words(&[], &members)).expect_done();
    let socket = scratch.path("home.nbd");
    assert_eq!(stdout, format!("nbd+unix:///home?socket={}\n", socket.display()));
    let log = scratch.path("home.log");
    let server = server_of(&scratch, "home");
    let pid = server["pid"].as_u64().expect("a number");
    assert!(stderr.contains(" home: raid1 is started, 2 of 2 slots [UU]: nbd+unix:"), "{stderr}");
    let told = format!(" home: is served in the background by process {pid}; its log is {}\n", log.display());
    assert!(stderr.ends_with(&told), "{stderr}");
    assert_eq!(server["log"], log.to_str().expect("ASCII"));
    let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
    assert!(shown.contains(&format!("Log : {}\n", log.display())), "{shown}");
    expect_detached(pid, &log);
    let mut client = Client::connect(&socket).expect("it is served");
    assert_eq!(client.write(0, &[7; 4096]).expect("connected"), 0);
    drop(client);
    scratch.stop_when_left("home");
    wait(|| !Path::new(&format!("/proc/{pid}")).exists()).expect("it ends");
    let said = fs::read_to_string(&log).expect("the log stays");
    assert!(said.starts_with(&stderr) && said.ends_with(" home: is stopped and clean\n"), "{said}");
    // The next one has a log of its own, and the last one's is kept.
    scratch.uraid(words(&["--read-only"], &members)).expect_done();
    assert_eq!(fs::read_to_string(scratch.path("home.log.old")).expect("it is kept"), said);
    assert!(fs::read_to_string(&log).expect("a new one").contains("started read-only"));
    scratch.stop_when_left("home");
    let left = fs::read_dir(scratch.path("")).expect("ours").flatten().map(|entry| entry.file_name());
    let mut left: Vec<String> = left.map(|name| name.to_string_lossy().into_owned()).collect();
    left.sort();
    assert_eq!(left, [".map", "home.log", "home.log.old", "m0", "m1", "state"]);
}

#[test]
fn a_standard_output_that_is_full_is_said_and_the_array_is_served() {
    let scratch = Scratch::new();
    let members = home(&scratch);
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = scratch.command(words(&[], &members)).stdout(full).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("cannot write to stdout: ") && said.contains(", and this is missing there: nbd+unix:"),
        "{said}"
    );
    assert!(server_of(&scratch, "home")["pid"].is_u64());
    scratch.stop_when_left("home");
}

#[test]
fn several_arrays_and_files_are_all_named() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 2, 6 * MIB), scratch.members("r", 2, 6 * MIB));
    scratch.create("left", "-l 1 -n 2 --assume-clean", &left);
    scratch.create("right", "-l 1 -n 2 --assume-clean", &right);
    let array = || std::iter::once(PathBuf::from("--array"));
    let arrays: Vec<PathBuf> = array().chain(left).chain(array()).chain(right).collect();
    let folder = scratch.path("files");
    fs::create_dir(&folder).expect("a folder");
    let fuse = if File::open("/dev/fuse").is_ok() { vec!["--fuse", folder.to_str().expect("ASCII")] } else { vec![] };
    let told = scratch.uraid(words(&fuse, &arrays)).expect_done().stdout;
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}\n", scratch.path("left.nbd").display());
    let mut expected = uri("left") + &uri("right");
    if !fuse.is_empty() {
        expected += &["left", "right"].map(|name| format!("{}\n", folder.join(name).display())).concat();
        assert!(folder.join("right").exists());
    }
    assert_eq!(told, expected);
    assert_eq!(server_of(&scratch, "right")["log"], scratch.path("left.log").to_str().expect("ASCII"));
    scratch.uraid(["stop", "--all", "left"]).expect_done();
}

#[test]
fn a_start_that_fails_says_why_with_the_same_exit_code_and_leaves_nothing() {
    let scratch = Scratch::new();
    let members = home(&scratch);
    let missing = scratch.uraid(words(&[], &members[..1]));
    let foreground = scratch.uraid(["serve".into(), members[0].clone()]);
    assert_eq!((missing.code, &*missing.stdout, &missing.stderr), (Some(1), "", &foreground.stderr));
    missing.expect_refused(&["found 1 member", "--run to start degraded"]);
    // Only the server looks at the address.
    let wrong = scratch.uraid(words(&["--nbd", "nonsense"], &members));
    assert!(wrong.code == Some(2) && wrong.stderr.contains("expected unix:PATH or tcp:HOST:PORT"), "{wrong:?}");
    let left = fs::read_dir(scratch.path("")).expect("ours").count();
    assert_eq!(left, members.len());
    scratch.uraid(words(&["--run"], &members[..1])).expect_done();
    // A second one of the same name: what the first has said stays.
    let said = fs::read_to_string(scratch.path("home.log")).expect("its log");
    assert!(said.contains("starts degraded"), "{said}");
    assert_eq!(scratch.uraid(words(&["--run"], &members[..1])).code, Some(1));
    assert_eq!(fs::read_to_string(scratch.path("home.log")).expect("its log"), said);
    scratch.stop_when_left("home");
}

#[test]
fn without_room_for_a_log_the_start_says_all_the_same_why_it_fails_and_what_is_lost() {
    let scratch = Scratch::new();
    let members = home(&scratch);
    let Some(small) = Tmpfs::mount(&scratch, "size=64k,mode=0700") else {
        eprintln!("SKIPPED without_room_for_a_log_...: a tmpfs cannot be mounted here (needs root)");
        return;
    };
    small.fill();
    let uraid = |words: Vec<PathBuf>| {
        let output = scratch.command(words).env("URAID_RUNTIME_DIR", &small.0).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = uraid(words(&[], &members[..1]));
    assert_eq!(code, Some(1), "{said}");
    let no_log = format!("the log cannot be kept: no room for it in {}: no space left", small.0.display());
    assert!(said.contains(&no_log) && said.contains("found 1 member") && said.contains("--run to start"), "{said}");
    assert!(!said.contains("has not said why"), "{said}");
    let (code, said) = uraid(words(&[], &members));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&no_log) && said.contains("without a log"), "{said}");
    assert!(said.contains("may have another number at its next start: "), "{said}");
    let (code, said) = uraid(["stop", "home"].map(PathBuf::from).to_vec());
    assert_eq!(code, Some(0), "{said}");
    let left: Vec<_> = fs::read_dir(&small.0).expect("ours").map(|entry| entry.expect("ours").file_name()).collect();
    assert_eq!(left, ["filler"], "only what filled it is left");
}

/// `$(uraid serve --background ...)` waits for the end of its pipe, and a script's lock goes with the script.
#[test]
fn a_shell_gets_the_uri_and_no_descriptor_of_it_is_held() {
    let scratch = Scratch::new();
    home(&scratch);
    let script = "exec 9>\"$2/lock\"; uri=$(\"$0\" serve --background \"$1\"/m0 \"$1\"/m1) && echo \"<$uri>\"";
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_uraid")]).args([scratch.path(""), scratch.path("")]);
    shell.env("URAID_RUNTIME_DIR", scratch.path("")).stdin(Stdio::null());
    shell.stdout(writer.try_clone().expect("a descriptor")).stderr(writer);
    let status = shell.status().expect("a shell");
    drop(shell);
    let mut said = String::new();
    reader.read_to_string(&mut said).expect("the pipe ends");
    assert!(status.success(), "{said}");
    let uri = format!("<nbd+unix:///home?socket={}>\n", scratch.path("home.nbd").display());
    assert!(said.ends_with(&uri), "{said}");
    let pid = server_of(&scratch, "home")["pid"].as_u64().expect("a number");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let open: Vec<PathBuf> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    assert!(!open.contains(&scratch.path("lock")), "{open:?}");
    scratch.stop_when_left("home");
}

/// Ctrl-C and a hang-up go to the group of the command. One that comes before the server is ready ends both.
#[test]
fn signals_of_the_terminal_do_not_reach_it_and_a_command_that_is_killed_has_no_server() {
    let scratch = Scratch::new();
    let members = home(&scratch);
    let mut command = scratch.command(words(&[], &members));
    let mut child = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let group = rustix::process::Pid::from_child(&child);
    assert!(child.wait().expect("our child").success());
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::HUP] {
        // The group is gone, as far as the server is not in it.
        assert!(rustix::process::kill_process_group(group, signal).is_err());
    }
    assert!(server_of(&scratch, "home")["is_ready"].as_bool().expect("a state"));
    scratch.stop_when_left("home");
    // The command is killed while its server waits for a member that another process has.
    let before = contents(&members);
    let held = File::open(&members[0]).expect("ours");
    rustix::fs::flock(held.as_fd(), rustix::fs::FlockOperation::LockExclusive).expect("nobody has it");
    let server = start_and_kill_the_command(&scratch, words(&[], &members));
    rustix::fs::flock(held.as_fd(), rustix::fs::FlockOperation::Unlock).expect("ours");
    wait(|| !server.exists()).expect("it ends, too");
    assert!(!scratch.path("home.nbd").exists());
    assert!(contents(&members) == before, "no superblock was written");
}

/// A degraded start makes the member that is away stale: nobody waits for it any more.
#[test]
fn a_command_that_is_killed_while_members_are_awaited_leaves_them_as_they_were() {
    let scratch = Scratch::new();
    let members = home(&scratch);
    let shown = ["detail", "--json"].map(PathBuf::from).into_iter().chain(members.iter().cloned());
    let told = scratch.uraid(shown);
    let told: serde_json::Value = serde_json::from_str(&told.expect_done().stdout).expect("JSON");
    let uuid = told["uuid"].as_str().expect("a UUID");
    let before = contents(&members);
    let server = start_and_kill_the_command(&scratch, words(&["--uuid", uuid, "--run-after", "2s"], &members[..1]));
    wait(|| !server.exists()).expect("it ends, too");
    assert!(contents(&members) == before, "no superblock was written");
    let again = scratch.ready(&[], &members);
    assert_eq!(again.stop().code, Some(0));
}

fn contents(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|member| fs::read(member).expect("ours")).collect()
}

/// Kills a command when its server has begun; the server's folder in /proc.
fn start_and_kill_the_command(scratch: &Scratch, words: Vec<PathBuf>) -> PathBuf {
    let mut child = scratch.command(words).stderr(Stdio::null()).spawn().expect("it runs");
    let server = format!("/proc/{0}/task/{0}/children", child.id());
    wait(|| fs::read_to_string(&server).is_ok_and(|children| !children.is_empty())).expect("it starts a server");
    let server = PathBuf::from("/proc").join(fs::read_to_string(&server).expect("a list").trim());
    let has_begun =
        || fs::read(server.join("cmdline")).is_ok_and(|line| line.windows(10).any(|it| it == b"--detached"));
    wait(has_begun).expect("it is uraid");
    child.kill().expect("our child");
    child.wait().expect("our child");
    server
}
