//! Measures costs, without limits: `cargo test --release -p uraid-host --test measure -- --ignored --nocapture
//! --test-threads 1`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{Device, Fua, Sector, ShardIndex};
use uraid_host::{Access, Claimed, Member, Options, RingChoice, Shard, run};

/// CPU time of this thread in nanoseconds.
fn thread_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    text.split(' ').next().expect("three numbers").parse().expect("a number")
}

async fn random_io(shard: &Shard<u32>, member: &Rc<Member>, what: &str, depth: u64, count: u64, writes: bool) {
    let blocks = member.geometry().size.0 / 8;
    let (wall, cpu) = (shard.now(), thread_nanos());
    join_all((0..depth).map(|task| {
        let member = member.clone();
        async move {
            let mut state = task * 2 + 1;
            let mut pieces = shard.arena(0).take(4096).expect("room");
            for _ in 0..count / depth {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = Sector((state >> 33) % blocks * 8);
                if writes {
                    member
                        .write(at, shard.arena(0).take(4096).expect("room").freeze(), Fua::No)
                        .await
                        .expect("writable");
                } else {
                    pieces = member.read(at, pieces).await.expect("readable");
                }
            }
        }
    }))
    .await;
    let wall = shard.now().since(wall).as_secs_f64();
    let cpu = (thread_nanos() - cpu) as f64 / count as f64;
    println!("{what}: {:.0} k/s, {cpu:.0} ns of CPU on the shard's thread each", count as f64 / wall / 1000.0);
}

#[test]
#[ignore = "measures"]
fn four_kib_at_depth_64() {
    let path = std::env::temp_dir().join(format!("uraid-measure-{}", std::process::id()));
    let file = File::create(&path).expect("a file");
    for at in 0..64 {
        file.write_all_at(&vec![7; 1 << 20], at << 20).expect("room");
    }
    file.sync_all().expect("synced");
    drop(file);
    for ring in [RingChoice::IoUring, RingChoice::Threads] {
        for (name, count) in [("null:1G", 4_000_000), ("mem:64M", 2_000_000), (path.to_str().expect("utf-8"), 64_000)] {
            let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
            run(1, &Options { ring, ..Options::default() }, |shard: Shard<u32>| {
                let claimed = claimed.clone();
                async move {
                    let member = Rc::new(claimed.on_shard(&shard));
                    let way = if claimed.is_direct() { "direct" } else { "cached" };
                    let what = format!("{}, {way}, {}", shard.ring_name(), name.split(':').next().unwrap_or("file"));
                    random_io(&shard, &member, &format!("{what}, reads"), 64, count, false).await;
                    random_io(&shard, &member, &format!("{what}, writes"), 64, count / 4, true).await;
                }
            });
        }
    }
    std::fs::remove_file(&path).expect("removed");
}

#[test]
#[ignore = "measures"]
fn mail_round_trip() {
    for micros in [0, 5, 50] {
        mail_with_spin(Duration::from_micros(micros));
    }
}

fn mail_with_spin(spin: Duration) {
    run(2, &Options { spin, ..Options::default() }, |shard: Shard<u32>| async move {
        let other = ShardIndex(1 - shard.index().0);
        let seen = Rc::new(std::cell::Cell::new(0));
        let came = Rc::new(uraid_block::local::Notify::new());
        let rounds = 100_000;
        shard.on_mail({
            let (shard, seen, came) = (shard.clone(), seen.clone(), came.clone());
            move |number| {
                seen.set(number);
                came.notify_all();
                if number < rounds {
                    shard.post(other, number + 1);
                }
            }
        });
        let start = shard.now();
        if shard.index() == ShardIndex(0) {
            shard.post(other, 1);
        }
        came.wait_for(|| (seen.get() + 1 >= rounds).then_some(())).await;
        let nanos = shard.now().since(start).as_nanos() as f64;
        println!("a message between two shards that wait, spin {spin:?}: {:.0} ns", nanos / f64::from(rounds));
        shard.sleep(Duration::from_millis(50)).await;
    });
}
