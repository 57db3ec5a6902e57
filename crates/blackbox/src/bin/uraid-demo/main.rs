//! `make demo`: kills, failures and recovery of one array in twenty seconds, on the real binary.
//! Owns: the sequence of steps. Not here: the picture (`screen`), the clients and the model (`uraid_blackbox`).
//! Invariant: every acknowledged sector is compared with what was written; no process or file is left behind.

mod load;
mod screen;

use load::Load;
use screen::{Member, Screen};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uraid_blackbox::members::scratch::Scratch;
use uraid_blackbox::nbd;
use uraid_blackbox::programs::server::Server;
use uraid_blackbox::programs::{binary, foreign};
use uraid_blackbox::sectors::model::Model;
use uraid_blackbox::sectors::writers::{self, SharedModel};

const MEMBERS: usize = 8;
const MEMBER_MIB: u64 = 24;
const SECONDS_BEFORE_KILL: u64 = 4;
const SECONDS_WITH_FAILURES: u64 = 5;

fn main() -> ExitCode {
    // The run panics with its finding if something is wrong; its guards still clean up.
    std::panic::set_hook(Box::new(|panic| eprintln!("\ndemo: {panic}")));
    match std::panic::catch_unwind(|| Story::new().run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => {
            eprintln!("demo: FAILED");
            ExitCode::FAILURE
        }
    }
}

struct Story {
    scratch: Scratch,
    screen: Screen,
    members: Vec<PathBuf>,
    states: Vec<Member>,
    proved: Vec<String>,
    began: Instant,
}

impl Story {
    fn new() -> Story {
        let scratch = Scratch::new();
        let members = (0..MEMBERS).map(|n| scratch.file(&format!("m{n}"))).collect();
        let states = (0..MEMBERS).map(|_| Member::Absent).collect();
        let screen = Screen::new(scratch.path());
        Story { scratch, screen, members, states, proved: Vec::new(), began: Instant::now() }
    }

    fn run(mut self) {
        self.screen.title("uraid: Linux software RAID in user space, on a bad day");
        let model = self.create();
        let server = self.serve("a new array: its parity is computed while it takes requests");
        self.write_and_kill(server, &model);
        let server = self.serve("dirty: parity is computed again, beside the requests");
        server.wait_until_consistent();
        self.verify_after_kill(&server, &model);
        self.write_while_members_fail(&server, &model);
        self.verify(&server, &model, "six of eight members, every sector computed or read");
        self.screen.say("SIGTERM: answer what is in flight, flush, mark clean");
        server.stop();
        let server = self.serve_degraded();
        self.verify(&server, &model, "after a restart without the two");
        self.foreign_clients(&server, &model);
        server.stop();
        self.foreign_examine();
        self.finish();
    }

    fn uraid(&mut self, words: &[String]) -> String {
        self.screen.command(words);
        binary::uraid(words).expect_done().out
    }

    fn names(&self) -> Vec<String> {
        self.members.iter().map(|path| path.display().to_string()).collect()
    }

    fn create(&mut self) -> SharedModel {
        self.screen.chapter("eight sparse files become a raid6");
        let size = format!("{MEMBER_MIB}M");
        self.screen.plain(&format!("truncate --size {size} m0 m1 m2 m3 m4 m5 m6 m7"));
        for n in 0..MEMBERS {
            self.scratch.sparse(&format!("m{n}"), MEMBER_MIB << 20);
        }
        let words = ["create", "--level", "6", "--raid-devices", "8", "--chunk", "64K", "--name", "demo"];
        let mut words: Vec<String> = words.map(String::from).to_vec();
        words.extend(self.names());
        self.uraid(&words);
        self.states.fill(Member::Up);
        // The model is as large as the array, which only the server knows; see `serve`.
        Arc::new(Mutex::new(Model::new(0)))
    }

    fn serve(&mut self, what: &str) -> Server {
        let members = self.members.clone();
        self.start(&members, &[], what)
    }

    fn serve_degraded(&mut self) -> Server {
        let lost = |state: &Member| matches!(state, Member::Failed);
        let left: Vec<PathBuf> = self
            .members
            .iter()
            .zip(&self.states)
            .filter(|(_, state)| !lost(state))
            .map(|(path, _)| path.clone())
            .collect();
        self.screen.chapter("the same array from the six members that are left");
        self.start(&left, &[], "the superblocks know that two are lost: no --run is needed")
    }

    fn start(&mut self, members: &[PathBuf], extra: &[&str], what: &str) -> Server {
        let mut words: Vec<String> = ["serve", "--nbd", "unix:s.nbd", "--control", "s.ctl"].map(String::from).to_vec();
        words.extend(extra.iter().map(|word| word.to_string()));
        words.extend(members.iter().map(|path| path.display().to_string()));
        self.screen.command(&words);
        let began = Instant::now();
        let server = Server::start(self.scratch.path(), members, extra);
        self.screen.say(&format!("ready after {}: {what}", screen::time(began.elapsed())));
        self.screen.say(server.uri());
        server
    }

    fn write_and_kill(&mut self, server: Server, model: &SharedModel) {
        let bytes = nbd::Connection::open(server.address(), &nbd::Options::default())
            .map(|connection| connection.export().bytes)
            .unwrap_or_else(|error| panic!("the first connection: {error}"));
        *writers::lock(model) = Model::new(bytes / 512);
        self.screen.chapter("four writers: small and large, anywhere, with flushes; then kill -9");
        let load = Load::start(&server, model, 1);
        self.watch(&load, Duration::from_secs(SECONDS_BEFORE_KILL));
        self.screen.plain("kill -9 $(pidof uraid)");
        server.kill();
        let summary = load.finish_after_kill();
        self.screen.say(&format!("killed in mid-write after {summary}"));
        let words = ["examine".to_string(), self.members[0].display().to_string()];
        let said = self.uraid(&words);
        let state = said.lines().find(|line| line.trim_start().starts_with("State :")).unwrap_or("no state").trim();
        assert!(state.ends_with("active"), "after kill -9 the superblock must say active (dirty), it says: {state}");
        self.screen.say(&format!("{state}   (active: there were writes that no clean stop followed)"));
    }

    fn verify_after_kill(&mut self, server: &Server, model: &SharedModel) {
        let began = Instant::now();
        let choices = writers::settle(server.address(), model, "after kill -9");
        let sectors = writers::lock(model).sectors();
        let took = screen::time(began.elapsed());
        self.screen
            .say(&format!("{sectors} sectors read and compared in {took}, {choices} of them in flight at the kill"));
        self.proved.push(format!("kill -9 in mid-write: none of {sectors} sectors lost an acknowledged write"));
    }

    fn write_while_members_fail(&mut self, server: &Server, model: &SharedModel) {
        self.screen.chapter("two members fail under the running writers");
        let load = Load::start(server, model, 2);
        let part = Duration::from_secs(SECONDS_WITH_FAILURES) / 3;
        self.watch(&load, part);
        let words = ["fail", "--control", "s.ctl", "m2"].map(String::from);
        self.screen.command(&words);
        let began = Instant::now();
        server.fail(&self.members[2]);
        let by_hand = began.elapsed();
        self.states[2] = Member::Failed;
        self.screen.say(&format!("m2 taken out; the other seven superblocks say so since {}", screen::time(by_hand)));
        self.watch(&load, part);
        self.screen.plain("truncate --size 0 m5          # as if its disk had died");
        std::fs::File::options()
            .write(true)
            .open(&self.members[5])
            .and_then(|file| file.set_len(0))
            .unwrap_or_else(|error| panic!("m5: {error}"));
        self.states[5] = Member::Failed;
        self.watch(&load, part);
        let stall = load.longest_stall();
        let summary = load.finish();
        for line in server.log().lines().filter(|line| line.contains("m5") || line.contains("m2")).take(4) {
            self.screen.say(&format!("the server said: {}", self.screen.short(line)));
        }
        self.screen.say(&format!("no writer saw an error: {summary}; longest stall {}", screen::time(stall)));
        let picture = server.command("detail", &["--json"]).expect_done().out;
        let record = json_number(&picture, "last_record_us").map(|us| Duration::from_micros(us as u64));
        if let Some(record) = record {
            self.screen
                .say(&format!("the last failure was in all superblocks {} after it was met", screen::time(record)));
        }
        self.proved
            .push("two members failed under load: no write was refused, each failure recorded first".to_string());
    }

    fn verify(&mut self, server: &Server, model: &SharedModel, when: &str) {
        let began = Instant::now();
        writers::verify(server.address(), model, when);
        let sectors = writers::lock(model).sectors();
        self.screen.say(&format!("{sectors} sectors compared in {}: {when}", screen::time(began.elapsed())));
        self.proved.push(format!("all {sectors} sectors right: {when}"));
    }

    fn foreign_clients(&mut self, server: &Server, model: &SharedModel) {
        self.screen.chapter("programs that others wrote");
        let copy = self.scratch.file("copy.img");
        let copy_name = copy.display().to_string();
        let copiers: [(&str, Vec<String>); 2] = [
            ("nbdcopy", vec![server.uri().to_string(), copy_name.clone()]),
            (
                "qemu-img",
                ["convert", "-f", "raw", "-O", "raw"]
                    .map(String::from)
                    .into_iter()
                    .chain([server.uri().to_string(), copy_name])
                    .collect(),
            ),
        ];
        for (program, words) in copiers {
            if foreign::find(program).is_none() {
                self.screen.say(&format!("{program} is not installed: left out"));
                continue;
            }
            self.screen.foreign(program, &words);
            binary::run(&mut foreign::command(program, &words)).expect_done();
            let bytes = std::fs::read(&copy).unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
            if let Err(wrong) = writers::lock(model).check(0, &bytes) {
                panic!("{program} copied something else: {wrong}");
            }
            self.screen.say("its copy is right in every sector");
            self.proved.push(format!("{program} reads the degraded array, every sector right"));
        }
    }

    fn foreign_examine(&mut self) {
        if foreign::find("mdadm").is_none() {
            self.screen.say("mdadm is not installed: left out");
            return;
        }
        let words = ["--examine".to_string(), self.members[0].display().to_string()];
        self.screen.foreign("mdadm", &words);
        let said = binary::run(&mut foreign::command("mdadm", &words)).expect_done().out;
        for wanted in ["State :", "Checksum :", "Array State :"] {
            let line = said.lines().find(|line| line.trim_start().starts_with(wanted)).unwrap_or(wanted);
            self.screen.say(line.trim());
        }
        assert!(said.contains("correct"), "mdadm finds the checksum wrong");
        self.proved.push("mdadm finds our superblocks correct".to_string());
    }

    fn watch(&mut self, load: &Load, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
            self.screen.live(&self.states, load);
        }
        self.screen.live_end(&self.states, load);
    }

    fn finish(self) {
        self.screen.chapter("what was proved");
        for fact in &self.proved {
            self.screen.say(&format!("* {fact}"));
        }
        let folder = self.scratch.path().to_path_buf();
        drop(self.scratch);
        assert!(!folder.exists(), "{} is left behind", folder.display());
        self.screen.say(&format!("{} in all; nothing is left behind", screen::time(self.began.elapsed())));
    }
}

/// The number after `"name":` in one line of JSON. Enough for one field of a report whose format the CLI's tests check.
fn json_number(text: &str, name: &str) -> Option<f64> {
    let rest = text.split_once(&format!("\"{name}\":"))?.1.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
