//! What commands do while a member hangs: they look at its path only if they must.
//! Owns: how long `detail`, `list`, `fail` and `stop` take while a FUSE server under one member is stopped; what a stop
//! leaves behind. Not here: requests of clients (`hung`), members that hang before they are served (`hung_paths`).

use crate::common::stubborn::StubbornFile;
use crate::common::{Done, MIB, Scratch, Served, pattern, wait};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The kernel may know a path's attributes for a second.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(1200);
/// Far above what is measured, which is printed, and far below what a member that hangs takes.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    served: Served,
    members: Vec<PathBuf>,
    // Dropped after the mount.
    scratch: Scratch,
}

/// A raid5 whose member 1 hangs, and waits for nothing.
fn rig(options: &[&str]) -> Rig {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 4, 4 * MIB);
    let member = StubbornFile::in_place_of(&mut members, 1);
    scratch.create("hung", "-l 6 -n 4 --assume-clean", &members);
    let served = scratch.ready(options, &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &pattern(1, 1 << 20)).expect("connected"), 0);
    assert_eq!(client.flush().expect("connected"), 0);
    wait(|| scratch.uraid(["detail", "hung"]).stdout.contains("State : clean")).expect("it is idle");
    member.hang();
    std::thread::sleep(FORGOTTEN_AFTER);
    Rig { member, served, members, scratch }
}

impl Rig {
    /// How a command ended, which it must without the member.
    #[track_caller]
    fn says(&self, words: &[&str]) -> Done {
        let began = Instant::now();
        let mut command = self.scratch.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let is_in_time = loop {
            match child.try_wait().expect("it is our child") {
                Some(_) => break true,
                None if began.elapsed() > ANSWERS_WITHIN => break false,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let took = began.elapsed();
        if !is_in_time {
            // The process may have a request in flight, and ends only when it is answered.
            self.member.go_on();
        }
        let output = child.wait_with_output().expect("it is our child");
        assert!(is_in_time, "{words:?} waits for the member: {output:?}");
        println!("{:<24} {took:?}", words[..words.len().min(2)].join(" ").replace('/', "_"));
        Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

#[test]
fn commands_that_name_a_member_that_hangs_do_not_look_at_it() {
    let rig = rig(&["--member-timeout", "0"]);
    let (hung, other) = (rig.members[1].clone(), rig.members[2].clone());
    for words in [&["detail", "hung"][..], &["list"], &["detail", text(&hung)], &["detail", "hung"]] {
        assert!(rig.says(words).expect_done().stdout.contains("hung"), "{words:?}");
    }
    // None is failed where one is unknown.
    rig.says(&["fail", "hung", text(&other), "9"]).expect_refused(&["9: no such member or slot"]);
    assert!(rig.says(&["list"]).stdout.contains("[4/4]"));
    let failed = rig.says(&["fail", "hung", text(&hung), "2"]).expect_done();
    assert!(failed.stdout.ends_with("2: set faulty in hung, [U__U]\n"), "{failed:?}");
    let stopped = rig.says(&["stop", text(&hung)]).expect_done();
    assert_eq!(stopped.stdout, "hung: stopped\n");
    rig.member.go_on();
    assert_eq!(rig.served.end().code, Some(0));
}

/// The device is opened and asked before the list of members is taken.
#[test]
fn an_add_of_a_device_that_hangs_delays_no_other_change_of_the_members() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 4 * MIB);
    let mut spares = scratch.members("spare", 2, 4 * MIB);
    let hangs = StubbornFile::in_place_of(&mut spares, 0);
    scratch.create("hung", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&["--member-timeout", "20s"], &members);
    hangs.hang();
    std::thread::sleep(FORGOTTEN_AFTER);
    let began = Instant::now();
    let add = ["add", "hung", text(&spares[0])];
    let mut waiting = scratch.command(add).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    served.wait_for(&format!("{}: it does not answer; waiting for up to 20s", text(&spares[0])));
    assert!(began.elapsed() < ANSWERS_WITHIN, "it is named after two seconds");
    scratch.uraid(["add", "hung", text(&spares[1])]).expect_done();
    scratch.uraid(["remove", "hung", text(&spares[1])]).expect_done();
    assert!(waiting.try_wait().expect("our child").is_none(), "the first add still waits");
    assert!(began.elapsed() < ANSWERS_WITHIN + Duration::from_secs(5), "the others did not");
    hangs.go_on();
    assert!(waiting.wait().expect("our child").success(), "the device has answered in time");
    scratch.uraid(["stop", "hung"]).expect_done();
    assert_eq!(served.end().code, Some(0));
}

#[test]
fn detail_names_a_member_that_does_not_answer_before_it_is_failed() {
    let rig = rig(&["--member-timeout", "0"]);
    let mut client = rig.served.client();
    let write = std::thread::spawn(move || client.write(0, &pattern(2, 1 << 20)));
    let line = format!("Silent Device : {}: it has not answered a request for ", text(&rig.members[1]));
    wait(|| rig.says(&["detail", "hung"]).stdout.contains(&line)).expect("it is named");
    let named = |text: &str| text.matches("has not answered a request").count();
    assert_eq!(named(&rig.says(&["detail", "hung"]).stdout), 1, "the others answer");
    let listed = rig.says(&["list"]).stdout;
    // Clean or active: the member may hang in the superblock that says which.
    let note = format!(", {} does not answer  nbd+unix", text(&rig.members[1]));
    assert!(listed.contains(&note), "{listed}");
    rig.member.go_on();
    assert_eq!(write.join().expect("no panic").expect("connected"), 0);
    wait(|| named(&rig.says(&["detail", "hung"]).stdout) == 0).expect("it has answered");
    rig.served.signal(rustix::process::Signal::TERM);
    assert_eq!(rig.served.end().code, Some(0));
}

#[test]
fn the_log_names_a_member_that_does_not_answer_and_says_when_it_does_again() {
    let rig = rig(&["--member-timeout", "0"]);
    let mut client = rig.served.client();
    let write = std::thread::spawn(move || client.write(0, &pattern(2, 1 << 20)));
    let hung = text(&rig.members[1]).to_owned();
    let silent = format!("Z hung: member {hung} has not answered a request for ");
    rig.served.wait_for(&silent);
    rig.served.wait_for(&format!(" s; `uraid fail hung {hung}` takes it out\n"));
    // Further checks log nothing new.
    std::thread::sleep(Duration::from_secs(2));
    rig.member.go_on();
    assert_eq!(write.join().expect("no panic").expect("connected"), 0);
    let answers = format!("Z hung: member {hung} answers again, after ");
    rig.served.wait_for(&answers);
    rig.served.signal(rustix::process::Signal::TERM);
    let ended = rig.served.end();
    assert_eq!(ended.code, Some(0));
    let said = [&silent, &answers].map(|line| ended.stderr.matches(line.as_str()).count());
    assert_eq!(said, [1, 1], "{}", ended.stderr);
}

#[test]
fn an_array_that_was_stopped_gives_up_its_name_though_its_process_stays() {
    for is_by_signal in [false, true] {
        let mut rig = rig(&["--member-timeout", "0"]);
        let mut client = rig.served.client();
        let write = std::thread::spawn(move || client.write(0, &pattern(2, 1 << 20)));
        std::thread::sleep(Duration::from_millis(300));
        rig.says(&["fail", "hung", "1"]).expect_done();
        assert_eq!(write.join().expect("no panic").expect("connected"), 0);
        let began = Instant::now();
        if is_by_signal {
            rig.served.signal(rustix::process::Signal::TERM);
        } else {
            assert_eq!(rig.says(&["stop", "hung"]).expect_done().stdout, "hung: stopped\n");
        }
        let sockets = ["hung.nbd", "hung.ctl"].map(|name| rig.scratch.path(name));
        let are_gone = wait(|| sockets.iter().all(|socket| !socket.exists()));
        println!("the sockets are gone     {:?}", began.elapsed());
        assert!(!rig.served.has_ended(), "the kernel keeps it");
        let listed = rig.says(&["list"]);
        rig.says(&["detail", "hung"]).expect_refused(&["no running array is called hung"]);
        let member = text(&rig.members[1]).to_owned();
        let last = format!("Z hung: member {member} has not answered: the kernel keeps this process");
        rig.served.wait_for(&last);
        // Under the same name, by the same sockets.
        let others: Vec<PathBuf> = [0, 2, 3].map(|at| rig.members[at].clone()).into();
        let again = rig.scratch.ready(&["--run"], &others);
        assert!(again.client().read(0, 1 << 20).expect("connected") == Ok(pattern(2, 1 << 20)));
        assert!(!rig.served.has_ended(), "it is still kept");
        rig.member.go_on();
        let ended = rig.served.end();
        assert!(are_gone.is_ok() && sockets.iter().all(|socket| socket.exists()), "{ended:?}");
        assert_eq!((ended.code, listed.stdout.as_str(), listed.stderr.as_str()), (Some(0), "", ""), "{ended:?}");
        assert_eq!(ended.stderr.matches("has not answered: the kernel").count(), 1, "{ended:?}");
        assert_eq!(again.stop().code, Some(0));
    }
}

#[test]
fn a_stop_that_gives_up_names_the_member_and_leaves_the_others_to_the_next_start() {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 4, 4 * MIB);
    let member = StubbornFile::in_place_of(&mut members, 1);
    scratch.create("hung", "-l 5 -n 4 --assume-clean", &members);
    // A flush may take four times as long as other requests, 24 s: the stop gives up after 21.
    let served = scratch.ready(&["--member-timeout", "6s"], &members);
    let mut rig = Rig { member, served, members, scratch };
    assert_eq!(rig.served.client().write(0, &pattern(1, 1 << 20)).expect("connected"), 0);
    rig.member.hang();
    let hung = text(&rig.members[1]).to_owned();
    // The flush of the idle clean-up.
    std::thread::sleep(Duration::from_secs(2));
    rig.served.signal(rustix::process::Signal::TERM);
    rig.served.wait_for(&format!("Z hung: the stop waits for {hung} to answer, for at most 21s in all"));
    rig.served.wait_for(&format!("Z hung: member {hung} has not answered: the kernel keeps this process"));
    assert!(!rig.served.has_ended(), "the kernel keeps it");
    let others: Vec<PathBuf> = [0, 2, 3].map(|at| rig.members[at].clone()).into();
    // Dirty and without a member: what a write to all members of a row had left half done is not known.
    rig.scratch.serve(&["--run"], &others).end().expect_refused(&["--force"]);
    let again = rig.scratch.ready(&["--run", "--force"], &others);
    assert!(again.client().read(0, 1 << 20).expect("connected") == Ok(pattern(1, 1 << 20)));
    assert_eq!(again.stop().code, Some(0));
    rig.member.go_on();
    let ended = rig.served.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("hung: members have not answered after 21s"), "{ended:?}");
}

#[test]
fn a_stop_that_waits_for_a_member_ends_clean_once_that_is_failed() {
    let rig = rig(&["--member-timeout", "0"]);
    rig.member.go_on();
    assert_eq!(rig.served.client().write(0, &pattern(2, 1 << 20)).expect("connected"), 0);
    rig.member.hang();
    // The flush of the idle clean-up.
    std::thread::sleep(Duration::from_secs(1));
    rig.served.signal(rustix::process::Signal::TERM);
    let hung = text(&rig.members[1]);
    rig.served
        .wait_for(&format!("Z hung: the stop waits for {hung} to answer, for at most 60s in all; `uraid fail hung"));
    rig.says(&["fail", "hung", hung]).expect_done();
    assert!(rig.served.stderr().contains(&format!("`uraid fail hung {hung}` lets it continue without {hung}\n")));
    rig.served.wait_for("Z hung: is stopped and clean");
    let others: Vec<PathBuf> = [0, 2, 3].map(|at| rig.members[at].clone()).into();
    let again = rig.scratch.ready(&["--run"], &others);
    assert!(again.client().read(0, 1 << 20).expect("connected") == Ok(pattern(2, 1 << 20)));
    assert_eq!(again.stop().code, Some(0));
    rig.member.go_on();
    let ended = rig.served.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_stop_that_requests_of_clients_hold_up_names_the_member_at_once() {
    let rig = rig(&["--member-timeout", "0"]);
    let mut client = rig.served.client();
    client.send_write(1, 0, &pattern(2, 1 << 20)).expect("connected");
    // The server has the request, and so has the member.
    let line = format!("Silent Device : {}: it has not answered a request for ", text(&rig.members[1]));
    wait(|| rig.says(&["detail", "hung"]).stdout.contains(&line)).expect("it is named");
    let began = Instant::now();
    rig.served.signal(rustix::process::Signal::TERM);
    let hung = text(&rig.members[1]);
    let advice = format!("`uraid fail hung {hung}` lets it continue without {hung}");
    // This includes the 20 s for requests.
    rig.served.wait_for(&format!("Z hung: the stop waits for {hung} to answer, for at most 80s in all; {advice}"));
    println!("the member is named      {:?}", began.elapsed());
    assert!(!rig.served.stderr().contains("not done after 20s"), "requests are still waited for");
    rig.says(&["fail", "hung", hung]).expect_done();
    rig.served.wait_for("Z hung: is stopped and clean");
    assert_eq!(rig.served.stderr().matches("the stop waits").count(), 1);
    rig.member.go_on();
    assert_eq!(rig.served.end().code, Some(0));
}

/// More of them than the control socket has places. A stop that was asked for without waiting goes on.
#[test]
fn callers_that_wait_for_a_stop_leave_places_to_others() {
    for stay in [false, true] {
        let rig = rig(&["--member-timeout", "0"]);
        let mut client = rig.served.client();
        client.send_write(1, 0, &pattern(2, 1 << 20)).expect("connected");
        let connect = || UnixStream::connect(rig.scratch.path("hung.ctl")).expect("the server is there");
        let stop = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stop\",\"params\":{\"force\":true}}\n";
        let mut callers = Vec::new();
        for _ in 0..40 {
            let mut caller = connect();
            caller.write_all(stop).expect("connected");
            if stay {
                // A caller that has shut down its sending side still waits for an answer.
                caller.shutdown(Shutdown::Write).expect("connected");
                callers.push(caller);
            }
        }
        assert!(rig.says(&["detail", "hung"]).expect_done().stdout.contains("Raid Level : raid6"));
        if !stay {
            // Callers that hung up leave their places to a waiting one.
            let waits = || {
                let mut caller = connect();
                caller.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
                caller.write_all(stop).expect("connected");
                let is_refused = caller.read(&mut [0]).is_ok();
                if is_refused { None } else { Some(caller) }
            };
            let began = Instant::now();
            while callers.is_empty() && began.elapsed() < ANSWERS_WITHIN {
                callers.extend(waits());
            }
        }
        rig.says(&["fail", "hung", "1"]).expect_done();
        rig.served.wait_for("Z hung: is stopped and clean");
        let answers: Vec<String> = callers.into_iter().map(answer).collect();
        let count = |text: &str| answers.iter().filter(|answer| answer.contains(text)).count();
        let expected = if stay { (16, 24) } else { (1, 0) };
        assert_eq!((count("\"stopped\":true"), count("16 commands wait for that already")), expected, "{answers:?}");
        rig.member.go_on();
        assert_eq!(rig.served.end().code, Some(0));
    }
}

/// What the server answers a caller that sends no more.
fn answer(mut caller: UnixStream) -> String {
    let mut text = String::new();
    caller.set_read_timeout(Some(ANSWERS_WITHIN)).expect("a timeout can be set");
    caller.read_to_string(&mut text).expect("an answer");
    text
}

#[test]
fn a_member_of_a_member_array_is_failed_there_and_the_stop_says_so() {
    let scratch = Scratch::new();
    let mut lower = scratch.members("a", 3, 8 * MIB);
    let others = scratch.members("b", 3, 8 * MIB);
    let member = StubbornFile::in_place_of(&mut lower, 1);
    scratch.create("lo1", "-l 5 -n 3 --assume-clean", &lower);
    scratch.create("lo2", "-l 5 -n 3 --assume-clean", &others);
    let group = |members: &[PathBuf]| -> Vec<String> {
        ["--array".to_owned()].into_iter().chain(members.iter().map(|path| text(path).to_owned())).collect()
    };
    let groups = [group(&lower), group(&others)].concat();
    let create = ["create", "--homehost", "none", "--name", "top", "-l", "1", "-n", "2", "--assume-clean"];
    scratch.uraid(create.map(str::to_owned).iter().chain(&groups)).expect_done();
    let options: Vec<&str> = ["--member-timeout", "0"].into_iter().chain(groups.iter().map(String::as_str)).collect();
    let served = scratch.ready(&options, &[]);
    let rig = Rig { member, served, members: lower, scratch };
    assert_eq!(rig.served.client().write(0, &pattern(1, 1 << 20)).expect("connected"), 0);
    rig.member.hang();
    let hung = text(&rig.members[1]);
    let advice = format!("`uraid fail lo1 {hung}`");
    // The array over it has another member in this place, which is not to blame.
    rig.served.wait_for(&format!("Z lo1: member {hung} has not answered a request for "));
    rig.served.wait_for(&format!("{advice} takes it out\n"));
    assert!(!rig.served.stderr().contains("Z top: member"), "{}", rig.served.stderr());
    rig.says(&["fail", "top", hung]).expect_refused(&["is a member of lo1: ", &advice]);
    rig.served.signal(rustix::process::Signal::TERM);
    rig.served.wait_for(&format!("Z top: the stop waits for {hung} to answer, for at most 60s in all; {advice}"));
    rig.says(&["fail", "lo1", hung]).expect_done();
    for name in ["top", "lo2", "lo1"] {
        rig.served.wait_for(&format!("Z {name}: is stopped and clean"));
    }
    rig.member.go_on();
    assert_eq!(rig.served.end().code, Some(0));
}

#[test]
fn a_member_is_known_by_the_link_that_it_was_given_by_and_by_its_own_path() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 4 * MIB);
    let link = |at: usize| scratch.path(&format!("link{at}"));
    for (at, member) in members.iter().enumerate() {
        std::os::unix::fs::symlink(member, link(at)).expect("ours");
    }
    scratch.create("linked", "-l 6 -n 4 --assume-clean", &members);
    let served = scratch.ready(&[], &[members[0].clone(), link(1), members[2].clone(), link(3)]);
    // The path as given, with links resolved, and a link that the server has never seen.
    for (at, path) in [(1, link(1)), (2, link(2))] {
        let shown = scratch.uraid(["fail", text(&link(0)), text(&path)]).expect_done().stdout;
        assert!(shown.contains("set faulty in linked"), "{at}: {shown}");
    }
    let report = scratch.uraid(["detail", "--json", text(&members[3])]).expect_done().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let of_slot_3 = report["members"].as_array().expect("a list").iter().find(|member| member["slot"] == 3);
    let of_slot_3 = of_slot_3.expect("it works");
    assert_eq!(
        (of_slot_3["path"].as_str(), of_slot_3["written"].as_str()),
        (Some(text(&members[3])), Some(text(&link(3))))
    );
    scratch
        .uraid(["fail", "linked", text(&members[0])])
        .expect_refused(&["the array cannot serve without ", "m0 (slot 0): 2 members work, 2 are needed"]);
    scratch.uraid(["stop", text(&link(3))]).expect_done();
    assert_eq!(served.end().code, Some(0));
}

#[test]
fn fail_by_another_path_of_a_member_that_hangs_says_what_works_at_once() {
    let rig = rig(&["--member-timeout", "0"]);
    let link = rig.scratch.path("link");
    std::os::unix::fs::symlink(&rig.members[1], &link).expect("ours");
    let failing = Served::start(&mut rig.scratch.command(["fail", "hung", text(&link)]));
    let line = format!(
        "uraid: {}: it does not answer; waiting for up to 30s; its slot number works at once, and so does its path as \
         `uraid detail` shows it\n",
        link.display()
    );
    let is_said = wait(|| failing.stderr().contains(&line));
    let by_slot = rig.says(&["fail", "hung", "1"]);
    // Do this before any assertion: the kernel does not end a process that waits for the member.
    rig.member.go_on();
    let failed = failing.end();
    assert!(is_said.is_ok(), "{failed:?}");
    by_slot.expect_done();
    failed.expect_refused(&["has failed already"]);
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn fail_takes_several_members_and_says_so() {
    let scratch = Scratch::new();
    let help = scratch.uraid(["fail", "--help"]).expect_done().stdout;
    assert!(help.contains("Usage: uraid fail ARRAY MEMBER...\n"), "{help}");
    assert!(help.contains("  <ARRAY> <MEMBER>...\n"), "{help}");
    assert_eq!(scratch.uraid(["fail", "home"]).code, Some(2));
    let members = scratch.members("m", 4, 4 * MIB);
    scratch.create("home", "-l 6 -n 4 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let socket = scratch.path("home.ctl");
    let words = ["fail", "--control", text(&socket), "0", text(&members[0]), "3", "1"];
    // All of them, or none.
    scratch.uraid(words).expect_refused(&[
        "cannot serve without ",
        "m1 (slot 1), ",
        "m3 (slot 3): 4 members work, 2 are",
    ]);
    assert!(scratch.uraid(["list"]).stdout.contains("[UUUU]"));
    scratch.uraid(&words[..6]).expect_done();
    assert!(scratch.uraid(["list"]).stdout.contains("[_UU_]"));
    assert_eq!(served.stop().code, Some(0));
    // Of copies it matters which members are left, not how many.
    let members = scratch.members("x", 4, 4 * MIB);
    scratch.create("ten", "-l 10 -n 4 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let refused =
        scratch.uraid(["fail", "ten", "0", "1"]).expect_refused(&["x1 (slot 1): some data would have no copy left"]);
    assert!(!refused.stderr.contains("needed"), "{refused:?}");
    scratch.uraid(["fail", "ten", "0", "2"]).expect_done();
    assert_eq!(served.stop().code, Some(0));
}
