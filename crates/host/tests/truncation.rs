//! A member file that another program truncates: gone for good, on every shard, and never made longer again by us.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{Device, ErrorKind, Fua, IoError, Range, Sector, Sectors, ShardIndex};
use uraid_host::{Access, Claimed, Member, Options, RingChoice, Shard, run};

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];
const MIB: u64 = 1 << 20;
const BYTES: u64 = 4 * MIB + 100;

/// A file, deleted with the test. The second location is tmpfs, where it exists.
struct Scratch(PathBuf);

impl Scratch {
    fn everywhere(name: &str) -> Vec<Scratch> {
        [std::env::temp_dir(), "/dev/shm".into()]
            .into_iter()
            .filter(|directory| directory.is_dir())
            .map(|directory| Scratch(directory.join(format!("uraid-truncation-{}-{name}", std::process::id()))))
            .inspect(|scratch| File::create(&scratch.0).expect("a file").set_len(BYTES).expect("room"))
            .collect()
    }

    fn set_len(&self, bytes: u64) {
        OpenOptions::new().write(true).open(&self.0).expect("there").set_len(bytes).expect("truncated");
    }

    fn len(&self) -> u64 {
        std::fs::metadata(&self.0).expect("there").len()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options(ring: RingChoice) -> Options {
    Options { ring, ..Options::default() }
}

async fn write(shard: &Shard<()>, member: &Member, at: u64, fua: Fua) -> Result<(), IoError> {
    let mut pieces = shard.arena(0).take(4096).expect("room");
    pieces.copy_from(&[7; 4096]);
    member.write(Sector(at), pieces.freeze(), fua).await
}

async fn read(shard: &Shard<()>, member: &Member, at: u64) -> Result<(), IoError> {
    member.read(Sector(at), shard.arena(1).take(4096).expect("room")).await.map(drop)
}

fn last_mib() -> Range {
    Range::new(Sector(3 * 2048), Sectors(2048))
}

/// Every operation, also on sectors that are still there.
async fn assert_gone(shard: &Shard<()>, claimed: &Claimed) {
    let member = claimed.on_shard(shard);
    let gone = Err(ErrorKind::Gone);
    let kind = |result: Result<(), IoError>| result.map_err(|error| error.kind);
    assert_eq!(kind(read(shard, &member, 0).await), gone);
    assert_eq!(kind(write(shard, &member, 0, Fua::No).await), gone);
    assert_eq!(kind(write(shard, &member, 0, Fua::Yes).await), gone);
    assert_eq!(kind(member.write_zeroes(last_mib()).await), gone);
    assert_eq!(kind(member.punch_hole(last_mib()).await), gone);
    assert_eq!(kind(member.discard(last_mib()).await), gone);
    assert_eq!(kind(member.flush().await), gone);
    assert_eq!(kind(claimed.read_at(0, &mut [0; 512])), gone);
    assert_eq!(kind(claimed.write_at(0, &[0; 512])), gone);
    assert_eq!(kind(claimed.sync()), gone);
}

/// Truncates a member, lets `first` be the first operation after that, and checks that nothing works any more.
fn gone_after(name: &str, first: impl AsyncFn(&Shard<()>, &Member) -> Result<(), IoError> + Sync) {
    for ring in RINGS {
        for scratch in Scratch::everywhere(name) {
            let claimed = Claimed::open(&scratch.0, Access::ReadWrite).expect("claimed");
            run(1, &options(ring), async |shard: Shard<()>| {
                let member = claimed.on_shard(&shard);
                write(&shard, &member, 0, Fua::Yes).await.expect("whole");
                scratch.set_len(MIB);
                assert_eq!(first(&shard, &member).await.expect_err("short").kind, ErrorKind::Gone);
                assert_eq!(scratch.len(), MIB, "{name} must not make it longer");
                // Sectors that read as zeroes now have lost their data, whatever the file's length is.
                scratch.set_len(BYTES);
                assert_gone(&shard, &claimed).await;
            });
        }
    }
}

#[test]
fn a_write_past_the_new_end_finds_it_gone() {
    gone_after("write", async |shard, member| write(shard, member, 8000, Fua::No).await);
}

#[test]
fn a_durable_write_before_the_new_end_finds_it_gone() {
    gone_after("fua", async |shard, member| write(shard, member, 8, Fua::Yes).await);
}

#[test]
fn a_read_past_the_new_end_finds_it_gone() {
    gone_after("read", async |shard, member| read(shard, member, 8000).await);
}

#[test]
fn zeroes_and_discards_find_it_gone() {
    gone_after("zeroes", async |_, member| member.write_zeroes(last_mib()).await);
    gone_after("hole", async |_, member| member.punch_hole(last_mib()).await);
    gone_after("discard", async |_, member| member.discard(last_mib()).await);
}

#[test]
fn a_blocking_write_finds_it_gone() {
    for scratch in Scratch::everywhere("blocking") {
        let claimed = Claimed::open(&scratch.0, Access::ReadWrite).expect("claimed");
        scratch.set_len(MIB);
        assert_eq!(claimed.write_at(3 * MIB, &[1; 512]).expect_err("short").kind, ErrorKind::Gone);
        assert_eq!(scratch.len(), MIB);
        scratch.set_len(BYTES);
        assert_eq!(claimed.read_at(0, &mut [0; 512]).expect_err("for good").kind, ErrorKind::Gone);
    }
}

#[test]
fn losing_a_partial_sector_at_the_end_is_harmless() {
    for scratch in Scratch::everywhere("rest") {
        let claimed = Claimed::open(&scratch.0, Access::ReadWrite).expect("claimed");
        scratch.set_len(4 * MIB);
        run(1, &options(RingChoice::Auto), async |shard: Shard<()>| {
            write(&shard, &claimed.on_shard(&shard), 8184, Fua::No).await.expect("the member is whole");
        });
    }
}

#[test]
fn a_file_found_gone_by_one_shard_is_gone_for_all() {
    for scratch in Scratch::everywhere("shards") {
        let claimed = Claimed::open(&scratch.0, Access::ReadWrite).expect("claimed");
        run(2, &options(RingChoice::Auto), async |shard: Shard<()>| {
            let member = claimed.on_shard(&shard);
            if shard.index() == ShardIndex(0) {
                scratch.set_len(MIB);
                assert_eq!(write(&shard, &member, 8000, Fua::No).await.expect_err("short").kind, ErrorKind::Gone);
                scratch.set_len(BYTES);
                return;
            }
            while read(&shard, &member, 0).await.is_ok() {
                shard.sleep(Duration::from_millis(1)).await;
            }
            assert_gone(&shard, &claimed).await;
        });
    }
}

#[test]
fn a_file_that_shrinks_under_writes_in_flight_is_gone_for_good() {
    for ring in RINGS {
        for scratch in Scratch::everywhere("in-flight") {
            let claimed = Claimed::open(&scratch.0, Access::ReadWrite).expect("claimed");
            run(1, &options(ring), async |shard: Shard<()>| {
                let member = &claimed.on_shard(&shard);
                let writers = (0..32u64).map(|task| {
                    let shard = &shard;
                    async move {
                        for round in 0.. {
                            // Never the last sectors: see the head of `member/watch.rs`.
                            let at = (task * 977 + round * 131) % 1000 * 8;
                            if let Err(error) = write(shard, member, at, Fua::No).await {
                                return error.kind;
                            }
                        }
                        unreachable!("the file is truncated before the last round");
                    }
                });
                let truncation = {
                    let path = scratch.0.clone();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(5));
                        OpenOptions::new().write(true).open(path).expect("there").set_len(MIB).expect("truncated");
                    })
                };
                for kind in join_all(writers).await {
                    assert_eq!(kind, ErrorKind::Gone);
                }
                truncation.join().expect("truncated");
                // Even if a write in flight has made the file longer again, none of it is read.
                assert_gone(&shard, &claimed).await;
            });
        }
    }
}
