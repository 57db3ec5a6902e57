//! Merging on real members: every request gets the result that it would have alone.

use std::fs::OpenOptions;
use std::path::PathBuf;
use uraid_block::local::join_all;
use uraid_block::{Device, ErrorKind, Fua, Range, ReadPieces, Sector, Sectors};
use uraid_host::{Access, ArenaBlocks, Claimed, Member, Options, RingChoice, Shard, Target, TracedKind, Window, run};

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];
const SECTOR: usize = 512;

fn options(ring: RingChoice) -> Options {
    Options { ring, trace: true, arenas: [ArenaBlocks { small: 1024, large: 64 }; 5], ..Options::default() }
}

/// A file, deleted with the test, filled by `byte_at`.
struct Image(PathBuf);

impl Image {
    fn new(name: &str, bytes: usize) -> Image {
        let path = std::env::temp_dir().join(format!("uraid-merging-{}-{name}", std::process::id()));
        let content: Vec<u8> = (0..bytes).map(byte_at).collect();
        std::fs::write(&path, content).expect("room");
        Image(path)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn byte_at(at: usize) -> u8 {
    (at / SECTOR).wrapping_mul(167) as u8 ^ at as u8
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

enum Work {
    Read(Range),
    Write(Range, u8, Fua),
    Flush,
    Zero(Range),
}

impl Work {
    fn range(&self) -> Range {
        match self {
            Work::Read(range) | Work::Write(range, _, _) | Work::Zero(range) => *range,
            Work::Flush => Range::new(Sector(0), Sectors::ZERO),
        }
    }

    /// Applies it to plain bytes; a read returns them.
    fn model(&self, disk: &mut [u8]) -> Option<Vec<u8>> {
        let range = self.range();
        let bytes = &mut disk[range.start.0 as usize * SECTOR..range.end().0 as usize * SECTOR];
        match self {
            Work::Read(_) => return Some(bytes.to_vec()),
            Work::Write(_, byte, _) => bytes.fill(*byte),
            Work::Flush => {}
            Work::Zero(_) => bytes.fill(0),
        }
        None
    }

    async fn on_member(&self, shard: &Shard<()>, member: &Member) -> Option<Vec<u8>> {
        let take = |range: Range| shard.arena(0).take(range.length.len_bytes()).expect("room");
        match *self {
            Work::Read(range) => {
                return Some(member.read(range.start, take(range)).await.expect("readable").to_vec());
            }
            Work::Write(range, byte, fua) => {
                let mut from = take(range);
                from.fill(byte);
                member.write(range.start, from.freeze(), fua).await.expect("writable");
            }
            Work::Flush => member.flush().await.expect("flushed"),
            Work::Zero(range) => member.write_zeroes(range).await.expect("zeroed"),
        }
        None
    }
}

/// One turn's requests: short, often adjacent stretches of a disk with this many sectors.
fn a_turn(random: &mut Random, sectors: u64, may_overlap: bool) -> Vec<Work> {
    let mut work: Vec<Work> = Vec::new();
    let (mut behind, mut kind) = (random.below(sectors), random.below(20));
    for _ in 0..random.below(24) + 1 {
        let start = if random.below(4) == 0 { random.below(sectors) } else { behind };
        let length = (random.below(9) + 1).min(sectors.saturating_sub(start));
        let range = Range::new(Sector(start), Sectors(length));
        behind = if random.below(8) == 0 { range.start.0.saturating_sub(length) } else { range.end().0 };
        if length == 0 || !may_overlap && work.iter().any(|other| other.range().overlaps(range)) {
            continue;
        }
        let fua = if random.below(4) == 0 { Fua::Yes } else { Fua::No };
        // Usually the same kind as the one before.
        kind = if random.below(3) == 0 { random.below(20) } else { kind };
        work.push(match kind {
            0 => Work::Flush,
            1 => Work::Zero(range),
            2..=9 => Work::Write(range, random.below(255) as u8 + 1, fua),
            _ => Work::Read(range),
        });
    }
    work
}

async fn random_turns(shard: Shard<()>, claimed: Claimed, seed: u64, turns: u32, is_in_order: bool) {
    let member = claimed.on_shard(&shard);
    let mut disk: Vec<u8> = vec![0; member.geometry().size.len_bytes()];
    claimed.write_at(0, &disk).expect("writable");
    let mut random = Random(seed);
    for turn in 0..turns {
        let work = a_turn(&mut random, member.geometry().size.0, is_in_order);
        let expected: Vec<_> = work.iter().map(|one| one.model(&mut disk)).collect();
        let found = join_all(work.iter().map(|one| one.on_member(&shard, &member))).await;
        assert!(found == expected, "seed {seed}, turn {turn}");
    }
    let mut found = vec![0; disk.len()];
    claimed.read_at(0, &mut found).expect("readable");
    assert!(found == disk, "seed {seed}");
    let counts = member.trace().expect("traced").counts();
    assert!(counts.merged > u64::from(turns), "it was about merging: {counts:?}");
}

/// A member with a simulated cost serves one request after the other, so the result must look as if requests had never
/// been reordered, even if they overlap. A file may serve them at the same time: there, no requests overlap.
#[test]
fn random_turns_leave_the_same_content_as_a_plain_disk() {
    let image = Image::new("model", 200 * SECTOR);
    for ring in RINGS {
        // Flushes of a file are slow: fewer turns.
        let file = image.0.to_str().expect("utf-8");
        for (name, turns, is_in_order) in [("mem:100K,request=1ns", 400, true), (file, 40, false)] {
            for seed in 0..4 {
                let claimed = Claimed::open(name, Access::ReadWrite).expect("claimed");
                run(1, &options(ring), |shard| random_turns(shard, claimed.clone(), seed, turns, is_in_order));
            }
        }
    }
}

#[test]
fn only_the_requests_with_bad_sectors_fail_in_a_merged_one() {
    let claimed = Claimed::open("bad:21,40+2:mem:1M,request=1us", Access::ReadWrite).expect("claimed");
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| {
        let claimed = claimed.clone();
        async move {
            let member = claimed.on_shard(&shard);
            let (shard, member) = (&shard, &member);
            let read =
                |n: u64| async move { member.read(Sector(8 * n), shard.arena(0).take(4096).expect("room")).await };
            let ends = join_all((0..8).map(read)).await;
            let write = |n: u64| async move {
                member.write(Sector(8 * n), shard.arena(0).take(4096).expect("room").freeze(), Fua::No).await
            };
            let written = join_all((0..8).map(write)).await;
            for (n, (read, written)) in ends.iter().zip(&written).enumerate() {
                let expected = [2, 5].contains(&n).then_some(ErrorKind::Media);
                assert_eq!(read.as_ref().err().map(|error| error.kind), expected, "read {n}");
                assert_eq!(written.as_ref().err().map(|error| error.kind), expected, "write {n}");
            }
            let counts = member.trace().expect("traced").counts();
            assert_eq!((counts.of(TracedKind::Read), counts.of(TracedKind::Write)), (9, 9));
            assert_eq!((counts.merged, counts.parted), (14, 16));
        }
    });
}

/// Merged reads across the end of a file that has shrunk: reads before the end succeed, all others fail.
#[test]
fn a_short_merged_read_succeeds_for_its_complete_parts() {
    for ring in RINGS {
        let image = Image::new("short", 64 << 10);
        let claimed = Claimed::open(&image.0, Access::ReadWrite).expect("claimed");
        run(1, &options(ring), |shard: Shard<()>| {
            let (claimed, path) = (claimed.clone(), image.0.clone());
            async move {
                let member = claimed.on_shard(&shard);
                let (shard, member) = (&shard, &member);
                let read = |n: u64| async move {
                    let into = shard.arena(0).take(4096).expect("room");
                    member.read(Sector(8 * n), into).await.map(|pieces| pieces.to_vec())
                };
                let whole = join_all((0..16).map(read)).await;
                for (n, found) in whole.into_iter().enumerate() {
                    let expected: Vec<u8> = (n * 4096..(n + 1) * 4096).map(byte_at).collect();
                    assert!(found.expect("readable") == expected);
                }
                OpenOptions::new().write(true).open(path).expect("there").set_len(20_000).expect("shrunk");
                let ends = join_all((0..16).map(read)).await;
                // Tasks that check after the first detection fail as well.
                assert!(ends[4..].iter().all(|end| end.as_ref().is_err_and(|error| error.kind == ErrorKind::Gone)));
                for (n, end) in ends.iter().enumerate().take(4) {
                    let expected: Vec<u8> = (n * 4096..(n + 1) * 4096).map(byte_at).collect();
                    assert!(end.as_ref().map_or(true, |found| *found == expected), "{n}");
                }
            }
        });
    }
}

#[test]
fn requests_are_merged_up_to_256_kib() {
    let image = Image::new("many", 2048 * SECTOR);
    let claimed = Claimed::open(&image.0, Access::ReadWrite).expect("claimed");
    let options = Options { arenas: [ArenaBlocks { small: 2048, large: 0 }; 5], ..options(RingChoice::Auto) };
    run(1, &options, |shard: Shard<()>| {
        let claimed = claimed.clone();
        async move {
            let member = claimed.on_shard(&shard);
            let mut all: Vec<Option<ReadPieces>> = (0..2048)
                .map(|_| {
                    let mut page = shard.arena(0).take(4096).expect("room");
                    Some(page.split_to(SECTOR))
                })
                .collect();
            let member = &member;
            let reads = all.iter_mut().enumerate().rev().map(|(n, into)| {
                let into = into.take().expect("each once");
                async move { (n, member.read(Sector(n as u64), into).await.expect("readable").to_vec()) }
            });
            for (n, found) in join_all(reads).await {
                assert!(found.iter().enumerate().all(|(at, byte)| *byte == byte_at(n * SECTOR + at)), "{n}");
            }
            let counts = member.trace().expect("traced").counts();
            assert_eq!((counts.of(TracedKind::Read), counts.merged, counts.descending), (4, 2044, 0));
        }
    });
}

/// Windows of one file are separate members: requests that are adjacent in the file are not merged.
#[test]
fn windows_of_one_file_are_not_merged_with_each_other() {
    let image = Image::new("windows", 64 << 10);
    let claim = |offset| {
        let window = Some(Window { offset, length: Some(32 << 10) });
        let target = Target { window, ..Target::whole(&image.0).expect("a name") };
        Claimed::open_target(&target, Access::ReadWrite).expect("claimed")
    };
    let (left, right) = (claim(0), claim(32 << 10));
    run(1, &options(RingChoice::Auto), |shard: Shard<()>| {
        let members = [left.on_shard(&shard), right.on_shard(&shard)];
        async move {
            let read = |at: usize| {
                let (member, into) = (&members[at / 64], shard.arena(0).take(4096).expect("room"));
                async move { member.read(Sector(at as u64 % 64), into).await.expect("readable").to_vec() }
            };
            for (n, found) in join_all([48, 56, 64, 72].map(read)).await.into_iter().enumerate() {
                let start = (48 + 8 * n) * SECTOR;
                assert!(found == (start..start + 4096).map(byte_at).collect::<Vec<u8>>(), "{n}");
            }
            for (member, start) in members.iter().zip([48, 0]) {
                let trace = member.trace().expect("traced");
                assert_eq!(trace.log()[0].range, Range::new(Sector(start), Sectors(16)));
                assert_eq!(trace.counts().of(TracedKind::Read), 1);
            }
        }
    });
}
