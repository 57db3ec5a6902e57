//! How a process of shards ends: by a handled signal, and by a panic. Each runs in its own process.

use crate::common::StartLock;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uraid_host::{Options, Shard, Signal, run};

fn start(part: &str) -> Child {
    // Signals that are ignored here, as under nohup, would be ignored in the child too.
    Command::new("env")
        .arg("--default-signal=HUP,INT,TERM")
        .arg(std::env::current_exe().expect("known"))
        .args(["--exact", part, "--ignored", "--nocapture"])
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

#[test]
#[ignore = "a part of another test"]
fn waits_for_signals() {
    run(2, &Options::default(), |shard: Shard<()>| async move {
        if shard.index().0 != 0 {
            return;
        }
        for expected in [Signal::Interrupt, Signal::Terminate, Signal::HangUp] {
            let terminated = shard.terminated();
            println!("\nready");
            assert_eq!(terminated.await, expected);
        }
        println!("\nended well");
    });
}

#[test]
fn signals_are_events_once_a_task_waits_for_them() {
    let _start_lock = StartLock::exclusive();
    let mut child = start("endings::waits_for_signals");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map(|line| line.expect("text"));
    for signal in ["-INT", "-TERM", "-HUP"] {
        assert!(lines.by_ref().any(|line| line == "ready"));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().expect("runs").success());
    }
    assert!(lines.any(|line| line == "ended well"));
    assert!(child.wait().expect("waited").success());
}

#[test]
#[ignore = "a part of another test"]
fn panics_on_the_second_shard() {
    run(2, &Options::default(), |shard: Shard<()>| async move {
        if shard.index().0 == 1 {
            shard.spawn(async { panic!("the reason why") });
        }
        shard.sleep(Duration::from_secs(60)).await;
    });
}

#[test]
fn a_panic_of_one_task_ends_the_process_with_its_message() {
    let _start_lock = StartLock::exclusive();
    let mut child = start("endings::panics_on_the_second_shard");
    let status = child.wait().expect("waited");
    let mut words = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut words).expect("text");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "aborted");
    for expected in ["uraid-shard-1", "the reason why", "endings.rs", "the process ends"] {
        assert!(words.contains(expected), "{expected} in {words}");
    }
}
