//! kill -9 of `uraid monitor` at random moments, while members fail, spares take over and checks run.
//! Owns: that each event arises once, in the order of the history, and that none is lost. Not here: the events themselves
//! (`monitor`).
//! `URAID_KILL_CYCLES` sets how often it is killed.

use crate::common::{Served, next_random};
use crate::monitor::{Rig, notes};
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One line of the program: the event's id, whether it is told again, and what it is.
struct Line {
    id: String,
    is_again: bool,
    event: String,
}

fn lines(rig: &Rig) -> Vec<Line> {
    let text = fs::read_to_string(rig.scratch.path("told")).unwrap_or_default();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let component = words.get(4).map(|path| format!(" {path}")).unwrap_or_default();
        Line { id: words[0].to_owned(), is_again: words[1] == "1", event: format!("{}{component}", words[2]) }
    };
    text.lines().map(line).collect()
}

/// The events of md's monitor that the history of the array says have happened.
fn recorded(rig: &Rig) -> Vec<String> {
    let shown = rig.scratch.uraid(["history", "home", "--json"]).expect_done().stdout;
    let entries = shown.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let event = |entry: serde_json::Value| {
        let member = || entry["facts"]["member"].as_str().unwrap_or_default().to_owned();
        let is_check = entry["text"].as_str().unwrap_or_default().starts_with("check ");
        match entry["event"].as_str().unwrap_or_default() {
            "member-failed" => Some(format!("Fail {}", member())),
            "member-recovered" => Some(format!("SpareActive {}", member())),
            "pass-started" => Some("RebuildStarted".to_owned()),
            "pass-finished" if !is_check => Some("RebuildFinished".to_owned()),
            "check-result" => Some("RebuildFinished".to_owned()),
            _ => None,
        }
    };
    entries.filter_map(event).collect()
}

/// A member fails, the spare takes its slot, the member comes back as a spare, a check runs.
fn round(rig: &Rig, nth: usize) {
    rig.scratch.uraid(["fail", "home", if nth.is_multiple_of(2) { "0" } else { "1" }]).expect_done();
    rig.wait_until_whole();
    rig.scratch.uraid(["check", "--wait", "home"]).expect_done();
    let report = rig.scratch.uraid(["detail", "--json", "home"]).expect_done().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let members = report["members"].as_array().expect("a list");
    let failed = members.iter().find(|member| member["state"] == "faulty").expect("one has failed");
    let failed = failed["path"].as_str().expect("a path");
    rig.scratch.uraid(["remove", "home", failed]).expect_done();
    rig.scratch.uraid(["add", "--force", "home", failed]).expect_done();
}

#[test]
fn no_event_is_lost_or_doubled_when_the_monitor_is_killed_at_random_moments() {
    let cycles = std::env::var("URAID_KILL_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let rig = Rig::new();
    rig.look(&[]);
    let program = notes(&rig.scratch);
    let is_over = AtomicBool::new(false);
    let mut seed = 0x5eed_0050_u64 ^ u64::from(std::process::id());
    println!("seed {seed:#x}, {cycles} kills");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut nth = 0;
            while !is_over.load(Ordering::Relaxed) || nth == 0 {
                round(&rig, nth);
                nth += 1;
            }
        });
        for _ in 0..cycles {
            let words = ["monitor", "--scan", "--delay", "1", "--program"];
            let mut monitor = Served::start(rig.scratch.command(words).arg(&program));
            std::thread::sleep(Duration::from_micros((next_random(&mut seed) >> 32) % 700_000));
            monitor.kill_unawaited();
            while !monitor.has_ended() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    rig.look(&[]);
    let told = lines(&rig);
    let mut by_id: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    told.iter().for_each(|line| by_id.entry(&line.id).or_default().push(line));
    for (id, lines) in by_id.iter().filter(|(_, lines)| lines.len() > 1) {
        assert!(lines.iter().filter(|line| !line.is_again).count() <= 1, "{id} does not say that it is a repeat");
        assert!(lines.iter().all(|line| line.event == lines[0].event), "{id} stands for two events");
    }
    // Each where it arrived first.
    let is_first = |line: &&Line| std::ptr::eq(by_id[line.id.as_str()][0], *line);
    let is_percentage = |event: &str| event.strip_prefix("Rebuild").is_some_and(|rest| rest.parse::<u8>().is_ok());
    let events = told.iter().filter(is_first).map(|line| line.event.clone());
    let events: Vec<String> = events.filter(|event| !is_percentage(event)).collect();
    let expected = recorded(&rig);
    assert_eq!(events, expected);
    let repeats = told.len() - by_id.len();
    println!("{} events, {repeats} of them told again after a kill, {} failures", events.len(), {
        events.iter().filter(|event| event.starts_with("Fail ")).count()
    });
}
