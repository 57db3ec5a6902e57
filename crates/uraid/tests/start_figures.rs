//! How soon a dirty array of 8 x 4 TB serves, and what its resync reads if it has a bitmap, in figures.
//! Owns: the first read and the first write after a crash. Not here: that a resync skips what no bit names (`bitmap`).
//! Measures, so it runs only when asked for:
//! `cargo test --release -p uraid --test figures start_figures:: -- --ignored --nocapture`.

use crate::common::{MIB, Scratch, Served, pattern};
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const MEMBERS: usize = 8;
/// Sparse: 4 TB each.
const MEMBER: u64 = 4 << 40;
const TURNS: usize = 5;
/// Each in a chunk of the bitmap of its own.
const WRITES: u64 = 1000;
/// The smallest for which members of this size have room.
const CHUNK_MIB: u64 = 8;

/// Serves the array. Returns when the process began, and how long after that the first read and write were answered.
fn serve(scratch: &Scratch, members: &[PathBuf]) -> (Served, Duration, Duration) {
    let began = Instant::now();
    let served = scratch.serve(&[], members);
    served.wait_until_ready();
    let mut client = served.client();
    client.read(1 << 40, 4096).expect("connected").expect("it serves");
    let read = began.elapsed();
    assert_eq!(client.write(1 << 41, &pattern(3, 4096)).expect("connected"), 0);
    (served, read, began.elapsed())
}

fn report(scratch: &Scratch) -> Value {
    let shown = scratch.uraid(["detail", "--json", "big"]).expect_done().stdout;
    serde_json::from_str(&shown).expect("JSON")
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!("{what}: median {:.0} ms, at most {:.0} ms", ms(times[times.len() / 2]), ms(times[times.len() - 1]));
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn how_soon_a_dirty_array_serves_and_what_its_bitmap_spares() {
    let scratch = Scratch::new();
    let members = scratch.members("m", MEMBERS, MEMBER);
    scratch.create("big", &format!("-l 6 -n {MEMBERS} --bitmap=none"), &members);
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let (served, read, write) = serve(&scratch, &members);
        assert!(!report(&scratch)["resync"].is_null(), "it is resynced meanwhile");
        served.kill_unawaited();
        reads.push(read);
        writes.push(write);
    }
    print("no bitmap, from the start of the process to the first read", reads);
    print("no bitmap, to the first write", writes);

    let scratch = Scratch::new();
    let members = scratch.members("m", MEMBERS, MEMBER);
    let bitmap = format!("--assume-clean --bitmap=internal --bitmap-chunk={CHUNK_MIB}M");
    scratch.create("big", &format!("-l 6 -n {MEMBERS} {bitmap}"), &members);
    // A new bitmap has all bits set; a stop clears them.
    assert_eq!(scratch.ready(&[], &members).stop().code, Some(0));
    let served = scratch.ready(&[], &members);
    let (mut client, block) = (served.client(), pattern(4, 4096));
    let stride = client.size / WRITES / 4096 * 4096;
    for write in 0..WRITES {
        assert_eq!(client.write(write * stride, &block).expect("connected"), 0);
    }
    served.kill_unawaited();
    drop((client, served));
    let (served, read, write) = serve(&scratch, &members);
    print("1,000 dirty bits, to the first read", vec![read]);
    print("1,000 dirty bits, to the first write", vec![write]);
    let began = Instant::now();
    scratch.uraid(["wait", "big"]);
    let took = began.elapsed();
    let report = report(&scratch);
    let members = report["members"].as_array().expect("a list").iter();
    let read = members.map(|member| member["io"]["reads"]["bytes"].as_u64().expect("a count")).max().unwrap_or(0);
    println!("its resync took {:.1} s and read {} MiB of each member", took.as_secs_f64(), read / MIB);
    // The first write has set one more bit.
    assert!(read <= (WRITES + 2) * CHUNK_MIB * MIB, "{read} bytes");
    assert!(read >= WRITES / 2 * CHUNK_MIB * MIB, "{read} bytes");
    assert_eq!(served.stop().code, Some(0));
}
