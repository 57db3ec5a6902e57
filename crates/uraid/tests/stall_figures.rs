//! How long a stream of writes stalls when a member dies and a spare takes over, in figures.
//! Owns: the latencies of one client's writes before, while the failure is recorded, and beside the recovery. Not here:
//! that a spare takes over at all (`spares`). Measures, so it runs only when asked for:
//! `cargo test --release -p uraid --test figures stall_figures:: -- --ignored --nocapture`.

use crate::common::{Client, MIB, Scratch, next_random, pattern};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A level, and its slots. One more member is the spare.
const LEVELS: [(&str, usize); 4] = [("1", 2), ("10", 4), ("5", 4), ("6", 5)];
const TURNS: usize = 5;
const BEFORE: Duration = Duration::from_millis(500);

/// When each write began, and how long it took.
type Times = Vec<(Instant, Duration)>;

/// Writes 4 KiB at a time to random places, one after the other, until told to end.
fn writes(mut client: Client, is_over: &AtomicBool) -> Times {
    let (blocks, block, mut state, mut times) = (client.size / 4096, pattern(7, 4096), 1, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let at = (next_random(&mut state) >> 20) % blocks * 4096;
        let began = Instant::now();
        assert_eq!(client.write(at, &block).expect("connected"), 0);
        times.push((began, began.elapsed()));
    }
    times
}

/// The median and the longest of the writes that ended in this interval or after it began, in microseconds.
fn within(times: &Times, from: Instant, to: Instant) -> (f64, f64) {
    let inside = times.iter().filter(|(began, took)| *began + *took >= from && *began < to);
    let mut inside: Vec<f64> = inside.map(|(_, took)| took.as_secs_f64() * 1e6).collect();
    inside.sort_by(f64::total_cmp);
    assert!(!inside.is_empty(), "the stream goes on");
    (inside[inside.len() / 2], inside[inside.len() - 1])
}

/// Median and maximum before the failure, around it, and beside the recovery; how long `fail` and the recovery took.
fn turn(level: &str, slots: usize) -> ([(f64, f64); 3], f64, f64) {
    let scratch = Scratch::new();
    let members = scratch.members("m", slots + 1, 64 * MIB);
    scratch.create("stall", &format!("-l {level} -n {slots} -x 1 --assume-clean"), &members);
    let served = scratch.ready(&[], &members);
    let is_over = Arc::new(AtomicBool::new(false));
    let (client, told) = (served.client(), is_over.clone());
    let stream = std::thread::spawn(move || writes(client, &told));
    let began = Instant::now();
    std::thread::sleep(BEFORE);
    let failing = Instant::now();
    scratch.uraid(["fail", "stall", "1"]).expect_done();
    let failed = Instant::now();
    // 1: there is nothing to wait for, because a small member is recovered at once.
    let waited = scratch.uraid(["wait", "stall"]).code;
    assert!(matches!(waited, Some(0 | 1)), "{waited:?}");
    let recovered = Instant::now();
    is_over.store(true, Ordering::Relaxed);
    let times = stream.join().expect("no write failed");
    let shown = scratch.uraid(["detail", "stall"]).expect_done().stdout;
    assert!(shown.contains("State : active \n") || !shown.contains("degraded"), "{shown}");
    assert_eq!(served.stop().code, Some(0));
    let parts = [(began, failing), (failing, failed), (failed, recovered)].map(|(from, to)| within(&times, from, to));
    (parts, (failed - failing).as_secs_f64() * 1e3, (recovered - failed).as_secs_f64() * 1e3)
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn how_long_writes_stall_when_a_spare_takes_over() {
    println!(
        "| array | healthy, p50 / max | while `fail` records it | beside the recovery | `fail` took | `wait` took |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for (level, slots) in LEVELS {
        let turns: Vec<_> = (0..TURNS).map(|_| turn(level, slots)).collect();
        let median = |mut figures: Vec<f64>| {
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let part = |at: usize| {
            let p50 = median(turns.iter().map(|(parts, ..)| parts[at].0).collect());
            let max = turns.iter().map(|(parts, ..)| parts[at].1).fold(0.0, f64::max);
            format!("{p50:.0} us / {:.1} ms", max / 1e3)
        };
        let (fail, recovery) = (turns.iter().map(|turn| turn.1).collect(), turns.iter().map(|turn| turn.2).collect());
        println!(
            "| raid{level} of {slots} | {} | {} | {} | {:.0} ms | {:.0} ms |",
            part(0),
            part(1),
            part(2),
            median(fail),
            median(recovery),
        );
    }
}
