//! `cargo xtask parsers`: programs that read mdadm's and the kernel's words read uraid's, in every state of an array.
//! Owns: the readers and where they come from, the states, taking the texts. Not here: what each reader must have
//! understood (`tests/parsers/read.py`).
//! Invariant: the readers are unchanged, and one that cannot be had is a failure. What they read is compared with
//! uraid's JSON, taken before and after the text; if an array has changed between, the texts are taken again.

use crate::programs::packages;
use crate::programs::stage::Tally;
use crate::project::{cargo, root, target};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The readers that are Python's, from PyPI.
const PYTHON: [&str; 4] = ["jc==1.26.1", "pymdstat==0.5.1", "mdstat==1.0.4", "insights-core==3.8.4"];
/// Debian's package of check_raid.
const CHECK_RAID: &str = "monitoring-plugins-contrib";
/// Debian's package with promtool.
const PROMETHEUS: &str = "prometheus";
/// How many readers there are: these, procfs of node_exporter, check_raid, promtool, our metrics of md beside procfs, and
/// what libblockdev, udisks, curtin and ReaR look for.
const READERS: u64 = 12;
/// How often the texts are taken anew, if the array changes meanwhile.
const TRIES: usize = 40;
/// How often a pass that has just begun is looked at, one look right after the other.
const BEGUN_LOOKS: usize = 5;
const READY_MAX: Duration = Duration::from_secs(30);
/// Sparse; a pass over it takes longer than the looks at its beginning.
const MEMBER_BYTES: u64 = 4 << 30;
/// There is a byte in each of these stretches of a member.
const DATA_EACH: usize = 32 << 20;

/// An array in some state, and how it gets there.
struct State {
    name: &'static str,
    /// The words of `create` and the number of members, of each array: `a`, `b`.
    arrays: &'static [(&'static str, u32)],
    /// Commands; `@a2` is member 2 of `a`.
    then: &'static [&'static str],
    /// A word that must be in a state of the JSON.
    word: &'static str,
}

const fn state(
    name: &'static str,
    arrays: &'static [(&'static str, u32)],
    then: &'static [&'static str],
    word: &'static str,
) -> State {
    State { name, arrays, then, word }
}

/// It lasts no longer than the last request, so what the array said before is answered with this word in it.
const STOPPING: &str = "stopping";

const SLOW: &str = "speed a --max 2000";

/// The first ones are the short form.
const STATES: [State; 26] = [
    state("a mirror without a member", &[("-l 1 -n 2 --assume-clean", 2)], &["fail a @a1"], "degraded"),
    state("a resync that has just begun", &[("-l 6 -n 4", 4)], &[], "resyncing"),
    state("passes paused", &[("-l 5 -n 3", 3)], &["freeze a"], ""),
    state(
        "a recovery that has just begun",
        &[("-l 5 -n 3 --assume-clean", 3)],
        &["fail a @a1", "remove a @a1", "add a @a3"],
        "recovering",
    ),
    state("clean, a bitmap", &[("-l 5 -n 4 --assume-clean --bitmap internal", 4)], &[], "clean"),
    state("read-only", &[("-l 1 -n 2 --assume-clean", 2)], &["readonly a"], "read-only"),
    state("nothing runs", &[], &[], ""),
    state("raid0", &[("-l 0 -n 3", 3)], &[], "clean"),
    state("linear", &[("-l linear -n 2", 2)], &[], "clean"),
    state("raid10, near", &[("-l 10 -n 4 --assume-clean", 4)], &[], "clean"),
    state("raid10, far", &[("-l 10 -p f2 -n 3 --assume-clean", 3)], &[], "clean"),
    state("raid10, offset, without a member", &[("-l 10 -p o2 -n 4 --assume-clean", 4)], &["fail a @a3"], "degraded"),
    state("raid4", &[("-l 4 -n 3 --assume-clean", 3)], &[], "clean"),
    state("raid6 without two members", &[("-l 6 -n 5 --assume-clean", 5)], &["fail a @a0", "fail a @a4"], "degraded"),
    state("a spare, write-mostly", &[("-l 1 -n 2 --assume-clean", 2)], &["add a @a2", "write-mostly a @a1"], "clean"),
    state("a failed spare", &[("-l 1 -n 2 -x 1 --assume-clean", 3)], &[SLOW, "fail a @a1", "fail a @a2"], "degraded"),
    state("a check", &[("-l 6 -n 4 --assume-clean", 4)], &[SLOW, "check a"], "checking"),
    state("a repair", &[("-l 1 -n 3 --assume-clean", 3)], &[SLOW, "repair a"], "repairing"),
    state("a resync, slow", &[("-l 10 -n 4", 4)], &[SLOW], "resyncing"),
    state("a resync after unfreeze", &[("-l 5 -n 3", 3)], &["freeze a", "unfreeze a"], "resyncing"),
    state(
        "a recovery paused",
        &[("-l 5 -n 3 --assume-clean", 3)],
        &["fail a @a1", "remove a @a1", "add a @a3", SLOW, "freeze a"],
        "",
    ),
    state("a replacement", &[("-l 6 -n 4 --assume-clean", 4)], &["add a @a4", SLOW, "replace a @a2"], ""),
    state("removed, not replaced", &[("-l 5 -n 3 --assume-clean", 3)], &["fail a @a0", "remove a @a0"], "degraded"),
    state("two arrays", &[("-l 1 -n 2", 2), ("-l 5 -n 3 --assume-clean", 3)], &["fail b @b2"], "degraded"),
    state("older metadata", &[("-l 1 -n 2 -e 1.0 --assume-clean", 2)], &[], "clean"),
    state("inactive: an array that stops", &[("-l 5 -n 3 --assume-clean", 3)], &[], STOPPING),
];

/// How many states the short form has.
const SHORT: usize = 7;

/// Every state, or the first ones.
pub(crate) fn run(is_short: bool) -> Tally {
    let programs = target().join("parsers");
    if let Err(why) = get(&programs) {
        println!("parsers: {why}");
        return Tally { passed: 0, failed: 1 };
    }
    let mut sum = Tally::default();
    let states = if is_short { &STATES[..SHORT] } else { &STATES[..] };
    for state in states {
        match read(state, &programs) {
            Ok(all) => all.iter().for_each(|told| {
                let failed = told.lines().filter(|line| !line.ends_with(": ok")).count() as u64;
                if failed > 0 {
                    println!("FAILED {}:\n{told}", state.name);
                }
                sum.add(Tally { passed: READERS.saturating_sub(failed), failed });
            }),
            Err(why) => {
                println!("FAILED {}: {why}", state.name);
                sum.add(Tally { passed: 0, failed: READERS });
            }
        }
    }
    let (states, all) = (states.len(), sum.passed + sum.failed);
    println!("parsers: {states} states, {READERS} readers each: {} of {all} understand the whole text", sum.passed);
    sum
}

/// Builds uraid, and gets the readers, if they are not there.
fn get(programs: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    done(&mut cargo(&["build", "--quiet", "--package", "uraid"]), "uraid does not build")?;
    fs::create_dir_all(programs).map_err(text)?;
    let python = programs.join("python");
    if !python.join("insights").is_dir() || !python.join("mdstat").is_dir() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "-q", "--target"]).arg(&python).args(PYTHON);
        done(&mut pip, "the readers of PyPI are missing")?;
    }
    let procfs = programs.join("procfs");
    if !procfs.join("read").is_file() {
        packages::find("go").ok_or("procfs of node_exporter needs Go, 1.24 or later: `go` is missing")?;
        let mut go = Command::new("go");
        go.current_dir(root().join("tests/parsers/procfs")).args(["build", "-o"]).arg(procfs.join("read")).arg(".");
        done(&mut go, "procfs of node_exporter is missing")?;
    }
    unpack(programs, CHECK_RAID, "check_raid")?;
    unpack(programs, PROMETHEUS, "prometheus")
}

/// Gets a package of Debian's, and unpacks it into this folder.
fn unpack(programs: &Path, package: &str, folder: &str) -> Result<(), String> {
    let (text, target) = (|error: std::io::Error| error.to_string(), programs.join(folder));
    if target.is_dir() {
        return Ok(());
    }
    let mut download = Command::new("apt-get");
    download.current_dir(programs).args(["-qq", "download", package]);
    done(&mut download, &format!("{folder} is missing: `apt-get update` may be due"))?;
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
    };
    let file = fs::read_dir(programs).map_err(text)?.filter_map(Result::ok).map(|entry| entry.path()).find(is_it);
    let file = file.ok_or(format!("apt-get downloaded no package of {folder}"))?;
    done(Command::new("dpkg-deb").arg("-x").arg(file).arg(&target), &format!("{folder} is missing"))?;
    Ok(())
}

fn done(command: &mut Command, what: &str) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{what}: {:?}: {}", command, said.trim()))
}

/// A folder with members, and the server.
struct Scene {
    folder: PathBuf,
    servers: Vec<Child>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    fn uraid(&self, words: &str) -> Command {
        let mut command = Command::new(target().join("debug/uraid"));
        command.env("URAID_RUNTIME_DIR", self.folder.join("run")).env("URAID_STATE_DIR", self.folder.join("state"));
        command.current_dir(&self.folder);
        let member = |word: &str| word.strip_prefix('@').map_or(word.to_owned(), str::to_owned);
        command.args(words.split_whitespace().map(member));
        command
    }

    fn said(&self, words: &str) -> Result<String, String> {
        let output = done(&mut self.uraid(words), "a command failed")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Creates and serves the arrays, and brings them into the state.
    fn begin(state: &State) -> Result<Scene, String> {
        let text = |error: std::io::Error| error.to_string();
        let folder = std::env::temp_dir().join(format!("uraid-parsers-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("run")).map_err(text)?;
        let mut scene = Scene { folder, servers: Vec::new() };
        for ((words, count), name) in state.arrays.iter().zip(["a", "b"]) {
            let own: Vec<String> = (0..*count).map(|at| format!("{name}{at}")).collect();
            // One more, which can become a spare.
            for at in 0..=*count {
                let file = fs::File::create(scene.folder.join(format!("{name}{at}"))).map_err(text)?;
                file.set_len(MEMBER_BYTES).map_err(text)?;
                // No pass goes over what is a hole on all members.
                for at in (0..MEMBER_BYTES).step_by(DATA_EACH) {
                    file.write_all_at(&[1], at + 9999).map_err(text)?;
                }
            }
            let own = own.join(" ");
            scene.said(&format!("create --homehost none --name {name} {words} {own}"))?;
            let mut serve = scene.uraid(&format!("serve {own}"));
            let path = scene.folder.join(format!("{name}.log"));
            let log = fs::File::create(&path).map_err(text)?;
            serve.stdout(log.try_clone().map_err(text)?).stderr(log).stdin(Stdio::null());
            scene.servers.push(serve.spawn().map_err(text)?);
            wait_until_ready(&path)?;
        }
        for words in state.then {
            scene.said(words)?;
        }
        if state.word == STOPPING {
            scene.stay_stopping()?;
        }
        Ok(scene)
    }

    /// Stops the array `a`, and answers in its place, for the rest of this process: with its report, as it is while it stops.
    fn stay_stopping(&self) -> Result<(), String> {
        let text = |error: std::io::Error| error.to_string();
        let reports: serde_json::Value =
            serde_json::from_str(&self.said("mdstat --json")?).map_err(|it| it.to_string())?;
        let mut report = reports[0].clone();
        report["state"].as_array_mut().ok_or("the report has no state")?.push(STOPPING.into());
        self.said("stop a")?;
        let listener = UnixListener::bind(self.folder.join("run/a.ctl")).map_err(text)?;
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A client that goes away ends its own connection only.
                let _ = answer_all(&client, &report);
            }
        });
        Ok(())
    }

    /// Takes the texts into a folder, while no array changes its state.
    fn take(&self, state: &State) -> Result<PathBuf, String> {
        let text = |error: std::io::Error| error.to_string();
        let folders = (0..).map(|at| self.folder.join(format!("texts-{at}")));
        let folder = folders.into_iter().find(|folder| !folder.exists()).expect("a number is free");
        fs::create_dir_all(&folder).map_err(text)?;
        for _ in 0..TRIES {
            let before = self.said("mdstat --json")?;
            fs::write(folder.join("mdstat"), self.said("mdstat")?).map_err(text)?;
            let reports: serde_json::Value = serde_json::from_str(&before).map_err(|error| error.to_string())?;
            for (at, report) in reports.as_array().into_iter().flatten().enumerate() {
                let name = report["name"].as_str().unwrap_or_default();
                fs::write(folder.join(format!("detail-{at}")), self.said(&format!("detail {name}"))?).map_err(text)?;
                self.take_exports(&folder, at, name, report)?;
            }
            fs::write(folder.join("detail-scan"), self.said("detail --scan")?).map_err(text)?;
            fs::write(folder.join("metrics"), self.said("metrics --once")?).map_err(text)?;
            let after = self.said("mdstat --json")?;
            let later: serde_json::Value = serde_json::from_str(&after).map_err(|error| error.to_string())?;
            let has_word = state.word.is_empty() || shape(&reports).contains(&format!("\"{}\"", state.word));
            if shape(&reports) == shape(&later) {
                fs::write(folder.join("report.json"), format!("[{before},{after}]")).map_err(text)?;
                return if has_word {
                    Ok(folder)
                } else {
                    Err(format!("it is not {}: {}", state.word, shape(&reports)))
                };
            }
        }
        Err("the arrays do not keep their state".to_owned())
    }
}

impl Scene {
    /// What programs read that look at one array or member: keys, and lines for mdadm.conf.
    fn take_exports(&self, folder: &Path, at: usize, name: &str, report: &serde_json::Value) -> Result<(), String> {
        let write = |file: String, text: String| fs::write(folder.join(file), text).map_err(|error| error.to_string());
        write(format!("detail-export-{at}"), self.said(&format!("detail --export {name}"))?)?;
        let members = report["members"].as_array().into_iter().flatten();
        let working = members.filter(|member| member["path"].is_string() && member["state"] != "faulty");
        let mut paths = Vec::new();
        for member in working {
            let path = member["path"].as_str().unwrap_or_default();
            let number = &member["number"];
            write(format!("examine-export-{at}-{number}"), self.said(&format!("examine --export {path}"))?)?;
            paths.push(path);
        }
        write(format!("examine-brief-{at}"), self.said(&format!("examine --brief {}", paths.join(" ")))?)
    }
}

/// Answers each call with this result.
fn answer_all(client: &UnixStream, result: &serde_json::Value) -> std::io::Result<()> {
    for line in BufReader::new(client).lines() {
        let call: serde_json::Value = serde_json::from_str(&line?)?;
        let (id, version) = (&call["id"], &call["version"]);
        let answer = serde_json::json!({ "jsonrpc": "2.0", "id": id, "version": version, "result": result });
        writeln!(&mut &*client, "{answer}")?;
    }
    Ok(())
}

fn wait_until_ready(log: &Path) -> Result<(), String> {
    let began = Instant::now();
    let said = || fs::read_to_string(log).unwrap_or_default();
    while !said().lines().any(|line| line.starts_with("nbd+unix:")) {
        if began.elapsed() > READY_MAX {
            return Err(format!("the server is not ready: {}", said()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What a report says of states: of the array and of each member.
fn shape(reports: &serde_json::Value) -> String {
    let of = |report: &serde_json::Value| {
        let members = report["members"].as_array().into_iter().flatten();
        let members: Vec<String> = members.map(|member| format!("{}{}", member["number"], member["state"])).collect();
        format!("{}{}{}", report["name"], report["state"], members.join(","))
    };
    reports.as_array().into_iter().flatten().map(of).collect()
}

/// What the readers told, a line each; of a pass that has just begun several times.
fn read(state: &State, programs: &Path) -> Result<Vec<String>, String> {
    let scene = Scene::begin(state)?;
    let looks = if state.name.ends_with("begun") { BEGUN_LOOKS } else { 1 };
    let texts: Vec<PathBuf> = (0..looks).map(|_| scene.take(state)).collect::<Result<_, _>>()?;
    texts.iter().map(|folder| understood(folder, programs)).collect()
}

fn understood(folder: &Path, programs: &Path) -> Result<String, String> {
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", programs.join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = python.arg(root().join("tests/parsers/read.py")).arg(folder).arg(programs).output();
    let output = output.map_err(|error| format!("python3: {error}"))?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    match told.lines().count() as u64 {
        READERS => Ok(told),
        _ => Err(format!("{told}{}", String::from_utf8_lossy(&output.stderr))),
    }
}
