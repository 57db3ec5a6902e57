//! `uraid monitor` on the real binary: who is told what, once, also by a monitor that is started again.
//! Owns: events of arrays that are served, mails and programs, refusals, spares across processes. Not here: which events
//! follow from what (`crates/operate/src/monitor`), kill -9 at random moments (`monitor_kills`).

use crate::common::{MIB, Scratch, Served, wait};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that another process writes: while this one has it open, a child of another test may hold it.
pub(crate) fn script(scratch: &Scratch, name: &str, body: &str) -> PathBuf {
    let path = scratch.path(name);
    let text = format!("#!/bin/sh\n{body}\n");
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", &text]).arg(&path);
    assert!(shell.status().expect("a shell").success());
    path
}

/// A program that notes what it is told, one line for each event: id, whether it is told again, mdadm's arguments.
pub(crate) fn notes(scratch: &Scratch) -> PathBuf {
    let told = scratch.path("told");
    script(scratch, "notes", &format!("echo \"$URAID_EVENT_ID $URAID_AGAIN $*\" >>{}", told.display()))
}

/// What the program was told: the events with the name of the member's file, without percentages.
pub(crate) fn told(scratch: &Scratch) -> Vec<String> {
    let text = fs::read_to_string(scratch.path("told")).unwrap_or_default();
    let word = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let component = words.get(4).map(|path| format!(" {}", path.rsplit('/').next().unwrap_or(path)));
        format!("{}{}", words[2], component.unwrap_or_default())
    };
    let is_percentage = |word: &String| word.strip_prefix("Rebuild").is_some_and(|rest| rest.parse::<u8>().is_ok());
    text.lines().map(word).filter(|word| !is_percentage(word)).collect()
}

/// A raid1 of two members and a spare that is served.
pub(crate) struct Rig {
    pub(crate) scratch: Scratch,
    pub(crate) members: Vec<PathBuf>,
    pub(crate) served: Served,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let scratch = Scratch::new();
        let members = scratch.members("m", 3, 16 * MIB);
        scratch.create("home", "-l 1 -n 2 -x 1 --assume-clean", &members);
        let served = scratch.ready(&[], &members);
        Rig { scratch, members, served }
    }

    pub(crate) fn monitor(&self, options: &[&str]) -> Served {
        Served::start(&mut self.scratch.command(["monitor"].iter().chain(options)))
    }

    /// Looks once and tells the program.
    pub(crate) fn look(&self, options: &[&str]) {
        let program = notes(&self.scratch);
        let program = program.to_str().expect("text");
        let words = ["monitor", "--scan", "--oneshot", "--program", program];
        self.scratch.uraid(words.iter().chain(options)).expect_done().expect_said(&[]);
    }

    #[track_caller]
    pub(crate) fn wait_until_told(&self, event: &str) {
        let is_told = || told(&self.scratch).iter().any(|line| line == event);
        wait(is_told).unwrap_or_else(|()| panic!("{event:?} is not told: {:?}", told(&self.scratch)));
    }

    pub(crate) fn wait_until_whole(&self) {
        let is_whole = || self.scratch.uraid(["detail", "--test", "home"]).code == Some(0);
        wait(is_whole).unwrap_or_else(|()| panic!("{:?}", self.scratch.uraid(["detail", "home"])));
    }
}

#[test]
fn a_failure_the_spare_that_takes_over_and_a_check_are_told_as_by_mdadm() {
    let rig = Rig::new();
    let program = notes(&rig.scratch);
    let monitor =
        rig.monitor(&["--scan", "--delay", "1", "--program", program.to_str().expect("text"), "--json", "--test"]);
    rig.wait_until_told("TestMessage");
    rig.scratch.uraid(["fail", "home", "0"]).expect_done();
    rig.wait_until_told("SpareActive m2");
    rig.wait_until_told("RebuildFinished");
    rig.scratch.uraid(["check", "--wait", "home"]).expect_done();
    wait(|| told(&rig.scratch).iter().filter(|line| *line == "RebuildFinished").count() == 2)
        .expect("the check is told");
    rig.served.stop().expect_done();
    wait(|| told(&rig.scratch).iter().any(|line| line == "DeviceDisappeared")).expect("the stop is told");
    let done = monitor.stop().expect_done();
    let mut events = told(&rig.scratch);
    let lines: Vec<serde_json::Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().all(|event| event["device"] == "/dev/md/home" && event["array"] == "home"), "{lines:?}");
    let fail = lines.iter().find(|event| event["kind"] == "Fail").expect("it is told");
    assert_eq!(fail["component"], rig.members[0].display().to_string());
    assert_eq!(fail["severity"], "critical");
    // Which of the two is seen first is a matter of moments.
    let began = events.iter().position(|event| event == "RebuildStarted").expect("it is told");
    let failed = events.iter().position(|event| event == "Fail m0").expect("it is told");
    assert!(began.abs_diff(failed) == 1, "{events:?}");
    events.retain(|event| event != "RebuildStarted" && event != "RebuildFinished");
    assert_eq!(events, ["TestMessage", "Fail m0", "SpareActive m2", "DeviceDisappeared"]);
}

#[test]
fn what_happens_while_no_monitor_runs_is_told_once_by_the_next_one() {
    let rig = Rig::new();
    rig.look(&[]);
    assert_eq!(told(&rig.scratch), [""; 0], "all is well, and the array is not new to the first look");
    rig.scratch.uraid(["fail", "home", "0"]).expect_done();
    rig.wait_until_whole();
    rig.look(&[]);
    let mut events = told(&rig.scratch);
    events.retain(|event| !event.starts_with("Rebuild"));
    assert_eq!(events, ["Fail m0", "SpareActive m2"]);
    let before = told(&rig.scratch);
    rig.look(&[]);
    rig.look(&[]);
    assert_eq!(told(&rig.scratch), before, "each is told once");
    rig.scratch.uraid(["fail", "home", "1"]).expect_done();
    rig.look(&[]);
    assert_eq!(told(&rig.scratch)[before.len()..], ["Fail m1"]);
    rig.scratch.uraid(["monitor", "--acknowledge", "home"]).expect_done();
    rig.scratch.uraid(["monitor", "--acknowledge", "other"]).expect_refused(&["it knows home"]);
    rig.look(&[]);
    let state = fs::read_to_string(rig.scratch.path("state/monitor.json")).expect("a state");
    assert!(state.contains("\"is_acknowledged\":true"), "{state}");
}

#[test]
fn a_check_that_ends_for_the_day_is_paused_and_what_it_goes_on_to_is_its_end() {
    let rig = Rig::new();
    rig.look(&[]);
    rig.scratch.uraid(["speed", "home", "--max", "64K"]).expect_done();
    rig.scratch.uraid(["check", "home"]).expect_done();
    let report = || {
        let text = rig.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    wait(|| report()["check"]["done"].as_u64() > Some(0)).expect("it goes on");
    // As `uraid scrub` ends it when the night is over.
    rig.scratch.uraid(["idle", "home"]).expect_done();
    let look_until_told = |event: &str| {
        let is_told = || {
            rig.look(&[]);
            told(&rig.scratch).iter().any(|line| line == event)
        };
        wait(is_told).unwrap_or_else(|()| panic!("{:?}", told(&rig.scratch)));
    };
    look_until_told("RebuildPaused");
    rig.scratch.uraid(["speed", "home", "--max", "0"]).expect_done();
    let done = rig.scratch.uraid(["scrub", "--now", "home"]).expect_done().stdout;
    assert!(done.starts_with("home: check begun, from "), "{done}");
    look_until_told("RebuildFinished");
    let mut events = told(&rig.scratch);
    // Its second beginning may be too short to be seen.
    events.retain(|event| event != "RebuildStarted");
    assert_eq!(events, ["RebuildPaused", "RebuildFinished"]);
}

#[test]
fn a_mail_is_kept_until_a_mail_program_takes_it_and_delays_nobody_else() {
    let rig = Rig::new();
    let program = notes(&rig.scratch);
    let program = program.to_str().expect("text");
    let failing = script(&rig.scratch, "failing", "exit 1");
    let mail = rig.scratch.path("mail");
    let good = script(&rig.scratch, "good", &format!("cat >>{}", mail.display()));
    let look = |sendmail: &Path| {
        let sendmail = sendmail.to_str().expect("text");
        let words = ["monitor", "-s", "-1", "-m", "root", "--sendmail", sendmail, "-p", program];
        rig.scratch.uraid(words).expect_done()
    };
    look(&failing).expect_said(&[]);
    rig.scratch.uraid(["fail", "home", "0"]).expect_done();
    rig.wait_until_whole();
    look(&failing).expect_said(&["no mail to root: ", "failing ended with exit code 1; it is tried again"]);
    assert!(told(&rig.scratch).iter().any(|line| line == "Fail m0"), "the program is told at once");
    look(&good).expect_said(&[]);
    let text = fs::read_to_string(&mail).expect("it has arrived");
    assert_eq!(text.matches("Subject: Fail event on /dev/md/home:").count(), 1, "{text}");
    assert!(text.contains("Fail event detected on md device /dev/md/home, component device /"), "{text}");
    assert!(text.contains("\nPersonalities : ") && text.contains(" : active raid1 "), "{text}");
    look(&good).expect_said(&[]);
    assert_eq!(fs::read_to_string(&mail).expect("it is there"), text, "it arrives once");
}

#[test]
fn one_monitor_tells_for_a_state_directory_and_a_damaged_file_is_put_aside() {
    let rig = Rig::new();
    let program = notes(&rig.scratch);
    let program = program.to_str().expect("text");
    let monitor = rig.monitor(&["--scan", "--program", program, "--test"]);
    rig.wait_until_told("TestMessage");
    let pid = format!("process {} monitors with this state directory already", monitor.pid());
    rig.scratch.uraid(["monitor", "--scan", "--program", program]).expect_refused(&[&pid]);
    let once = rig.scratch.uraid(["monitor", "--scan", "--program", program, "--oneshot"]);
    once.expect_done().expect_said(&[&pid]);
    rig.scratch.uraid(["monitor", "--scan", "--program", program, "--oneshot", "--test"]).expect_done();
    assert_eq!(told(&rig.scratch), ["TestMessage", "TestMessage"]);
    monitor.stop().expect_done();
    fs::write(rig.scratch.path("state/monitor.json"), "{\"version\":1,\"arr").expect("room");
    let once = rig.scratch.uraid(["monitor", "--scan", "--program", program, "--oneshot"]).expect_done();
    once.expect_said(&["monitor.json is damaged: it is now ", "the monitor starts afresh"]);
    assert_eq!(told(&rig.scratch).len(), 2, "nothing is doubled");
}

#[test]
fn in_the_background_it_has_a_file_with_its_number_and_ends_with_it() {
    let rig = Rig::new();
    let (program, pid_file) = (notes(&rig.scratch), rig.scratch.path("pid"));
    let (program, file) = (program.to_str().expect("text"), pid_file.to_str().expect("text"));
    let words = ["monitor", "-s", "-f", "-i", file, "-p", program, "-t", "-d", "1"];
    assert_eq!(rig.scratch.uraid(words).expect_done().stdout, "");
    rig.wait_until_told("TestMessage");
    let pid: i32 = fs::read_to_string(&pid_file).expect("a file").trim().parse().expect("a number");
    let process = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    wait(|| !pid_file.exists()).expect("it ends");
    let refused = rig.scratch.uraid(["monitor", "-s", "-f", "-p", "/nowhere/at/all"]);
    refused.expect_refused(&["--program: /nowhere/at/all: "]);
}

#[test]
fn what_makes_no_sense_is_refused_by_one_sentence() {
    let scratch = Scratch::new();
    let refused = |words: &[&str], text: &str| {
        let done = scratch.uraid(["monitor"].iter().chain(words)).expect_refused(&[text]);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    };
    let open = script(&scratch, "open", "exit 0");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&open, mode).expect("ours");
    let open = open.to_str().expect("text");
    refused(&["--scan", "home", "--mail", "root"], "--scan watches all arrays");
    refused(&["--mail", "root"], "no array is named");
    refused(&["--scan"], "No mail address or alert command - not monitoring");
    refused(&["--scan", "--program", open], "other users may write to");
    refused(&["--scan", "--reactions", open], "--reactions: ");
    refused(&["--acknowledge", "home"], "no monitor has kept anything there");
    for words in [&["--scan", "--webhook", "https://a/b"][..], &["--scan", "--delay", "0"], &["-r", "100", "x"]] {
        let done = scratch.uraid(["monitor"].iter().chain(words));
        assert_eq!(done.code, Some(2), "{done:?}");
    }
    let never = scratch.uraid(["monitor", "nowhere"]).expect_done();
    assert!(never.stdout.contains("DeviceDisappeared event detected on md device /dev/md/nowhere"), "{never:?}");
    never.expect_said(&["No array with redundancy detected, stopping"]);
}

#[test]
fn a_spare_moves_to_an_array_of_another_process_of_its_group() {
    let scratch = Scratch::new();
    let (give, take) = (scratch.members("g", 3, 16 * MIB), scratch.members("t", 2, 16 * MIB));
    scratch.create("give", "-l 1 -n 2 -x 1 --assume-clean", &give);
    scratch.create("take", "-l 1 -n 2 --assume-clean", &take);
    let _servers = [scratch.ready(&[], &give), scratch.ready(&[], &take)];
    let line = |name: &str| {
        let report = scratch.uraid(["detail", "--json", name]).expect_done().stdout;
        let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
        format!("ARRAY {name} uuid={} spare-group=pool\n", report["uuid"].as_str().expect("text"))
    };
    let config = scratch.path("conf");
    fs::write(&config, format!("{}{}MONITORDELAY 1\n", line("give"), line("take"))).expect("room");
    let program = notes(&scratch);
    let words = ["monitor", "--scan", "--config", config.to_str().expect("text"), "--program"];
    let mut command = scratch.command(words);
    let monitor = Served::start(command.arg(&program));
    scratch.uraid(["fail", "take", "0"]).expect_done();
    let is_whole = || scratch.uraid(["detail", "--test", "take"]).code == Some(0);
    wait(is_whole).unwrap_or_else(|()| panic!("{}", monitor.stderr()));
    wait(|| told(&scratch).iter().any(|line| line == "MoveSpare give")).expect("it is told");
    wait(|| told(&scratch).iter().any(|line| line == "SpareActive g2")).expect("it is told");
    monitor.stop().expect_done();
    let events = told(&scratch);
    assert_eq!(events.iter().filter(|line| line.starts_with("MoveSpare")).count(), 1, "{events:?}");
}
