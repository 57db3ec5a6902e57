//! The copies of a mirror: after concurrent writes of the same sectors, and before they were ever synchronized.
//! Owns: comparing the bytes of the members. Not here: crashes (`kill_storm`).
//! Reason: if the copies of a clean array differ, two reads of one sector may differ for ever.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::nbd::{Connection, Options, Request};
use uraid_blackbox::programs::binary::uraid;
use uraid_blackbox::programs::server::Server;
use uraid_blackbox::random::Random;
use uraid_blackbox::sectors::model::{Span, content};

const RAID1: Shape = Shape { level: "raid1", layout: "", members: 2, tolerates: 1, chunk: "", member_mib: 8 };

/// A length in `examine`'s output, in bytes.
fn data_offset(member: &Path) -> usize {
    let said = uraid(["examine".as_ref(), member.as_os_str()]).expect_done();
    let line = said.out.lines().find_map(|line| line.trim().strip_prefix("Data Offset : "));
    let sectors = line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<usize>().ok());
    sectors.unwrap_or_else(|| panic!("no data offset in {}", said.out)) * 512
}

/// Two connections write overlapping ranges of a few sectors, many at a time; afterwards both members hold the same bytes.
fn overlap(shards: &str, with_zeroes: bool) {
    let scratch = Scratch::new();
    let members = create(&scratch, "mirror", &RAID1);
    let server = Server::start(scratch.path(), &members, &["--shards", shards]);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let address = server.address();
            scope.spawn(move || {
                let mut connection = Connection::open(address, &Options::default()).expect("a server");
                let mut random = Random(writer);
                for round in 0..100u64 {
                    for n in 0..16u64 {
                        let span = Span { first: random.below(24), count: 1 + random.below(8) };
                        let operation = (writer << 32) + round * 16 + n;
                        let request = if with_zeroes && random.one_in(3) {
                            Request::WriteZeroes { at: span.byte(), length: span.bytes(), no_hole: false }
                        } else {
                            Request::Write { at: span.byte(), data: content(span, operation), fua: false }
                        };
                        connection.submit(&request).expect("a server");
                    }
                    for _ in 0..16 {
                        connection.receive().expect("a server").result.expect("a write succeeds");
                    }
                }
            });
        }
    });
    server.stop();
    let bytes: Vec<_> = members.iter().map(|member| fs::read(member).expect("it is our file")).collect();
    let start = data_offset(&members[0]);
    let differ: Vec<_> = (0..32)
        .filter(|n| {
            let sector = start + n * 512..start + (n + 1) * 512;
            bytes[0][sector.clone()] != bytes[1][sector]
        })
        .collect();
    assert!(differ.is_empty(), "the copies of a clean mirror differ in sectors {differ:?}");
}

#[test]
fn one_shard_keeps_the_copies_equal_under_overlapping_writes() {
    overlap("1", false);
}

#[test]
fn two_shards_keep_the_copies_equal_under_overlapping_writes() {
    overlap("2", false);
}

#[test]
fn overlapping_zeroes_and_writes_leave_the_copies_equal() {
    overlap("2", true);
}

/// The first byte of the array, as these members show it.
fn first_byte(scratch: &Scratch, members: &[PathBuf], extra: &[&str]) -> u8 {
    let server = Server::start(scratch.path(), members, extra);
    server.wait_until_consistent();
    let mut connection = Connection::open(server.address(), &Options::default()).expect("a server");
    let bytes = connection.read(0, 512).expect("a read succeeds");
    drop(connection);
    server.stop();
    bytes[0]
}

/// What a storm may expect of a mirror that was killed: a read-only start shows the first copy and decides nothing,
/// because the next start may have to do without it; a start for writing resyncs the copies, and from then on any of
/// them is enough.
#[test]
fn differing_copies_stay_after_a_read_only_start_and_are_resynced_by_a_normal_one() {
    let scratch = Scratch::new();
    // New and not said to be clean: as after a crash.
    let members = create(&scratch, "mirror", &Shape { tolerates: 0, ..RAID1 });
    for (member, byte) in members.iter().zip([1, 2]) {
        let file = fs::OpenOptions::new().write(true).open(member).expect("it is our file");
        file.write_all_at(&[byte; 512], data_offset(member) as u64).expect("it is our file");
    }
    let (both, second) = (&members[..], &members[1..]);
    assert_eq!(first_byte(&scratch, both, &["--read-only"]), 1);
    assert_eq!(first_byte(&scratch, second, &["--read-only", "--run"]), 2);
    assert_eq!(first_byte(&scratch, both, &[]), 1);
    assert_eq!(first_byte(&scratch, second, &["--read-only", "--run"]), 1);
}
