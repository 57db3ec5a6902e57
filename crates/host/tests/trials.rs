//! Members with a simulated cost or deferred completion, and the trace of their requests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{Device, Fua, Range, Sector, Sectors, WritePieces};
use uraid_host::{Access, ArenaBlocks, Claimed, Options, RingChoice, Shard, TracedKind, run};

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];

fn options(ring: RingChoice) -> Options {
    Options { ring, trace: true, arenas: [ArenaBlocks { small: 256, large: 16 }; 5], ..Options::default() }
}

fn page(shard: &Shard<()>, byte: u8) -> WritePieces {
    let mut pieces = shard.arena(0).take(4096).expect("room");
    pieces.fill(byte);
    pieces.freeze()
}

#[test]
fn requests_of_all_shards_queue_on_one_trial_device() {
    const REQUEST: Duration = Duration::from_millis(3);
    for name in ["mem:1M,request=3ms", "null:1M,request=3ms"] {
        for ring in RINGS {
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            let times = run(2, &options(ring), |shard: Shard<()>| {
                let claimed = claimed.clone();
                async move {
                    let member = claimed.on_shard(&shard);
                    let before = shard.now();
                    join_all((0..4).map(|n| {
                        let (member, shard) = (&member, &shard);
                        async move { member.write(Sector(16 * n), page(shard, 7), Fua::No).await.expect("writable") }
                    }))
                    .await;
                    member.flush().await.expect("flushed");
                    (before, shard.now())
                }
            });
            let start = times.iter().map(|(start, _)| *start).min().expect("two shards");
            let end = times.iter().map(|(_, end)| *end).max().expect("two shards");
            assert!(end.since(start) >= 10 * REQUEST, "{name}: {:?}", end.since(start));
        }
    }
}

#[test]
fn bandwidth_adds_time_in_proportion_to_bytes() {
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| async move {
        let member = Claimed::open("mem:1M,bandwidth=1M", Access::ReadWrite).expect("claimed").on_shard(&shard);
        let before = shard.now();
        member.read(Sector(0), shard.arena(0).take(8192).expect("room")).await.expect("readable");
        assert!(shard.now().since(before) >= Duration::from_nanos(1_000_000_000 / 128));
    });
}

#[test]
fn deferred_requests_are_all_in_flight_before_the_first_completes() {
    for name in ["mem:1M", "null:1M", "mem:1M,completion=deferred", "null:1M,completion=deferred"] {
        let is_deferred = name.ends_with("deferred");
        run(1, &options(RingChoice::Auto), |shard: Shard<()>| async move {
            let member = Claimed::open(name, Access::ReadWrite).expect("claimed").on_shard(&shard);
            let (started, at_first_end) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            join_all((0..8).map(|n| {
                let (member, shard) = (&member, &shard);
                let (started, at_first_end) = (started.clone(), at_first_end.clone());
                async move {
                    started.set(started.get() + 1);
                    if n % 2 == 0 {
                        member.write(Sector(8 * n), page(shard, 7), Fua::No).await.expect("writable");
                    } else {
                        let page = shard.arena(0).take(4096).expect("room");
                        member.read(Sector(8 * n), page).await.expect("readable");
                    }
                    if at_first_end.get() == 0 {
                        at_first_end.set(started.get());
                    }
                }
            }))
            .await;
            assert_eq!(at_first_end.get(), if is_deferred { 8 } else { 1 }, "{name}");
        });
    }
}

#[test]
fn a_trace_lists_the_requests_to_a_member_of_any_kind() {
    let path = std::env::temp_dir().join(format!("uraid-trials-{}", std::process::id()));
    std::fs::File::create(&path).expect("a file").set_len(1 << 20).expect("room");
    for name in [path.to_str().expect("utf-8"), "mem:1M", "null:1M", "mem:1M,request=1us", "null:1M,request=1us"] {
        for is_traced in [true, false] {
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            let options = Options { trace: is_traced, ..options(RingChoice::Auto) };
            run(1, &options, |shard: Shard<()>| {
                let claimed = claimed.clone();
                async move {
                    let member = claimed.on_shard(&shard);
                    let trace = member.trace();
                    member.write(Sector(64), page(&shard, 1), Fua::Yes).await.expect("writable");
                    member.read(Sector(8), shard.arena(0).take(8192).expect("room")).await.expect("readable");
                    member.flush().await.expect("flushed");
                    member.discard(Range::new(Sector(128), Sectors(128))).await.expect("discarded");
                    member.write_zeroes(Range::new(Sector(256), Sectors(128))).await.expect("zeroed");
                    drop(member);
                    assert_eq!(trace.is_some(), is_traced);
                    let Some(trace) = trace else { return };
                    let counts = trace.counts();
                    assert_eq!(counts.requests, [1; 5], "{name}");
                    assert_eq!((counts.sizes[3], counts.sizes[4], counts.sectors), (1, 1, 24));
                    assert_eq!((counts.descending, counts.merged), (1, 0));
                    let log: Vec<(TracedKind, u64)> =
                        trace.log().iter().map(|traced| (traced.kind, traced.range.start.0)).collect();
                    let [read, write, flush, discard, zero] = TracedKind::ALL;
                    assert_eq!(log, [(write, 64), (read, 8), (flush, 0), (discard, 128), (zero, 256)]);
                }
            });
        }
    }
    std::fs::remove_file(&path).expect("removed");
}
