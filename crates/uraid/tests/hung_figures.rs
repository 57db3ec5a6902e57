//! The cost of a hanging member for requests that do not need it, in figures.
//! Owns: rates of reads beside it, the times of `detail`, `list`, handshakes, `fail` and the stop. Not here: that they
//! end at all (`hung`). Measures, so it runs only when asked for:
//! `cargo test --release -p uraid --test figures hung_figures:: -- --ignored --nocapture`.

use crate::common::stubborn::StubbornFile;
use crate::common::{Client, MIB, Scratch, Served, next_random, pattern, wait};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LEVELS: [(&str, usize); 4] = [("1", 3), ("10", 4), ("5", 4), ("6", 4)];
const CHUNK: u64 = 64 << 10;
/// Chunks that are read and written, of each array.
const CHUNKS: u64 = 24;
const PAIRS: usize = 9;
const WINDOW: Duration = Duration::from_millis(500);
const WRITERS: usize = 4;
const ASKS: usize = 20;

/// The members that a read of a chunk may need, by md's formulas: raid10 near, raid5 and raid6 left-symmetric.
fn holders(level: &str, chunk: u64) -> Vec<usize> {
    let left_symmetric = |parities: u64| {
        let (row, data) = (chunk / (4 - parities), chunk % (4 - parities));
        vec![((3 - row % 4 + parities + data) % 4) as usize]
    };
    match level {
        "10" => [2 * chunk % 4, (2 * chunk + 1) % 4].map(|slot| slot as usize).to_vec(),
        "5" => left_symmetric(1),
        "6" => left_symmetric(2),
        // Another copy will do.
        _ => Vec::new(),
    }
}

fn is_needed(level: &str, chunk: u64, hung: usize) -> bool {
    holders(level, chunk).contains(&hung)
}

/// Reads of random chunks that do not need the hung member, in one window.
fn reads(client: &mut Client, chunks: &[u64], state: &mut u64) -> f64 {
    let (begin, mut count) = (Instant::now(), 0_u32);
    while begin.elapsed() < WINDOW {
        let random = next_random(state);
        let chunk = chunks[(random >> 33) as usize % chunks.len()];
        let at = chunk * CHUNK + (random >> 40) % 16 * 4096;
        client.read(at, 4096).expect("connected").expect("no error");
        count += 1;
    }
    f64::from(count) / begin.elapsed().as_secs_f64()
}

/// Writers of the hung member's data: the time of the last answer.
fn stuck_writers(served: &Served, chunk: u64) -> mpsc::Receiver<Instant> {
    let (sender, answers) = mpsc::channel();
    for writer in 0..WRITERS {
        let (mut client, sender) = (served.client(), sender.clone());
        std::thread::spawn(move || {
            let at = chunk * CHUNK + writer as u64 * 4096;
            assert_eq!(client.write(at, &pattern(writer as u64, 4096)).expect("connected"), 0);
            // The receiver may be gone.
            let _ = sender.send(Instant::now());
        });
    }
    answers
}

fn last(answers: &mpsc::Receiver<Instant>) -> Instant {
    (0..WRITERS).map(|_| answers.recv_timeout(Duration::from_secs(30)).expect("answered")).max().expect("some")
}

fn slowest(mut ask: impl FnMut()) -> Duration {
    let time = |ask: &mut dyn FnMut()| {
        let begin = Instant::now();
        ask();
        begin.elapsed()
    };
    (0..ASKS).map(|_| time(&mut ask)).max().expect("some")
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn measure(level: &str, count: usize, hung: usize, ring: &str) -> f64 {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", count, 8 * MIB);
    let member = StubbornFile::in_place_of(&mut members, hung);
    let chunk = if level == "1" { "" } else { "-c 64K" };
    scratch.create("hung", &format!("-l {level} -n {count} {chunk} --assume-clean"), &members);
    let served = scratch.ready(&["--ring", ring, "--member-timeout", "0"], &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &pattern(1, (CHUNKS * CHUNK) as usize)).expect("connected"), 0);
    let free: Vec<u64> = (0..CHUNKS).filter(|chunk| !is_needed(level, *chunk, hung)).collect();
    let of_hung = (0..CHUNKS).find(|chunk| level == "1" || is_needed(level, *chunk, hung)).expect("one");
    let mut state = 1;
    let pairs: Vec<(f64, f64)> = (0..PAIRS)
        .map(|_| {
            let alone = reads(&mut client, &free, &mut state);
            member.hang();
            let answers = stuck_writers(&served, of_hung);
            std::thread::sleep(Duration::from_millis(20));
            let beside = reads(&mut client, &free, &mut state);
            assert!(answers.try_recv().is_err(), "the member answered");
            member.go_on();
            last(&answers);
            (alone, beside)
        })
        .collect();
    let ratios: Vec<f64> = pairs.iter().map(|(alone, beside)| beside / alone).collect();
    member.hang();
    let answers = stuck_writers(&served, of_hung);
    std::thread::sleep(Duration::from_millis(50));
    let detail = slowest(|| drop(scratch.uraid(["detail", "hung"]).expect_done()));
    let list = slowest(|| drop(scratch.uraid(["list"]).expect_done()));
    let handshake = slowest(|| drop(served.client()));
    let begin = Instant::now();
    scratch.uraid(["fail", "hung", &hung.to_string()]).expect_done();
    let fail = last(&answers) - begin;
    let (begin, socket) = (Instant::now(), served.socket());
    served.signal(rustix::process::Signal::TERM);
    wait(|| !socket.exists()).expect("the stop is bounded");
    let stop = begin.elapsed();
    member.go_on();
    assert_eq!(served.end().code, Some(0));
    let (low, high) = ratios.iter().fold((f64::MAX, 0.0_f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
    let (alone, ratio) = (median(pairs.iter().map(|pair| pair.0).collect()), median(ratios));
    println!(
        "| raid{level} of {count} | {ring} | {hung} | {alone:.0} | {ratio:.2} ({low:.2} - {high:.2}) | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} |",
        detail.as_secs_f64() * 1e3,
        list.as_secs_f64() * 1e3,
        handshake.as_secs_f64() * 1e3,
        fail.as_secs_f64() * 1e3,
        stop.as_secs_f64() * 1e3,
    );
    ratio
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn what_a_member_that_hangs_costs_those_who_do_not_need_it() {
    println!(
        "| array | ring | hung | reads/s healthy | beside it: median (range) | detail ms | list ms | handshake ms | fail ms | stop ms |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut worst = f64::MAX;
    for (level, count) in LEVELS {
        for ring in ["auto", "threads"] {
            for hung in 0..count {
                worst = worst.min(measure(level, count, hung, ring));
            }
        }
    }
    println!("lowest median: {worst:.2}");
}
