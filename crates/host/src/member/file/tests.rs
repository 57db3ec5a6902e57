//! A file over a fake ring: refused durable writes, files that shrink during an operation.
//! Owns: tests of `file`. Not here: the ring (`fake_ring`), whole members (`device`).

use super::*;
use crate::member::fake_ring::{Answer, Disk, drive, poll_once};
use crate::ring::Limits;
use crate::{Options, RingChoice, Shard, run, sys};
use uraid_block::ErrorKind;
use uraid_block::local::join_all;

struct Owned(std::fs::File);

impl AsRawFd for Owned {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

#[test]
fn a_short_transfer_continues_at_a_sector_boundary() {
    let mut progress = Progress::default();
    assert_eq!(progress.step(4096, 4096), Ok(4096));
    assert_eq!(progress.step(1000, 4096), Ok(512));
    assert_eq!(progress.step(-libc::EINTR, 4096), Err(Stop::Failed(libc::EINTR)));
    assert_eq!(progress.step(-libc::EIO, 4096), Err(Stop::Failed(libc::EIO)));
    assert_eq!(progress.step(100, 4096), Ok(0), "one more attempt");
    assert_eq!(progress.step(100, 4096), Err(Stop::Ended));
    assert_eq!(Progress::default().step(0, 512), Err(Stop::Ended));
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn measure_a_cached_read() {
    let path = std::env::temp_dir().join(format!("uraid-cached-{}", std::process::id()));
    std::fs::write(&path, vec![7; 64 << 20]).expect("room");
    for ring in [RingChoice::IoUring, RingChoice::Threads] {
        let path = &path;
        run(1, &Options { ring, ..Options::default() }, |shard: Shard<()>| async move {
            let owned = Rc::new(Owned(std::fs::File::open(path).expect("there")));
            let limits = Limits { bytes_max: 1 << 30, segments_max: SEGMENTS_MAX };
            let lane = Lane::new(owned.clone(), 0, limits, None);
            let io = &FileIo::new(shard.driver().clone(), lane, owned, Arc::default(), Way::Cached);
            let thread_nanos = || {
                let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
                text.split(' ').next().and_then(|text| text.parse::<u64>().ok()).expect("a number")
            };
            let count = 640_000u64;
            let (cpu, wall) = (thread_nanos(), sys::monotonic_nanos());
            join_all((0..64).map(|task| {
                let mut pieces = shard.arena(0).take(4096).expect("room");
                async move {
                    let mut state = task * 2 + 1u64;
                    for _ in 0..count / 64 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        pieces = io.read((state >> 33) % (16 << 10) * 4096, pieces).await.expect("readable");
                    }
                }
            }))
            .await;
            let (cpu, wall) = (thread_nanos() - cpu, sys::monotonic_nanos() - wall);
            let each = |nanos: u64| nanos / count;
            println!("{}, cached 4 KiB: {} ns of CPU, {} ns", shard.ring_name(), each(cpu), each(wall));
        });
    }
    std::fs::remove_file(&path).expect("removed");
}

/// Truncates or extends a file.
fn set_len(fd: i32, bytes: u64) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::ftruncate(fd, bytes as i64) }, 0);
}

/// How a file's bytes can move through the ring.
const WAYS: [Way; 4] = [Way::Cached, Way::InMemory, Way::Direct { memory_align: 4 }, Way::Direct { memory_align: 512 }];

/// An anonymous file of this many bytes on a fake ring over `disk`. Small transfers bypass the ring.
fn file_on(disk: &Rc<Disk>, way: Way, bytes: u64) -> FileIo {
    let file = Rc::new(Owned(sys::memory_file(bytes).expect("a file").into()));
    let limits = Limits { bytes_max: 1 << 30, segments_max: SEGMENTS_MAX };
    let watch = Arc::new(Watch::regular_file(bytes));
    FileIo::new(disk.driver(), Lane::new(file.clone(), 0, limits, None), file, watch, way)
}

/// This many bytes in pieces of 512 bytes or of blocks. Pieces of 512 do not suit direct I/O with page alignment.
fn pieces(bytes: usize, in_sectors: bool) -> WritePieces {
    let block = bounce(bytes).freeze();
    if !in_sectors {
        return block;
    }
    let mut all = WritePieces::new();
    (0..bytes / 512).for_each(|n| all.append(block.slice(n * 512, 512)));
    all
}

#[test]
fn a_durable_write_is_stable_when_answered_for_every_short_or_refused_call() {
    use Answer::{All, Bytes, Interrupted};
    const ANSWERS: [Answer; 4] = [All, Bytes(512), Bytes(100), Interrupted];
    let scripts = ANSWERS.iter().flat_map(|first| ANSWERS.iter().map(move |second| [*first, *second]));
    for (script, way) in scripts.flat_map(|script| WAYS.map(|way| (script, way))) {
        // Less than a piece, several pieces, and more pieces than one call takes. All are larger than transfers that
        // bypass the ring.
        for (bytes, in_sectors) in [(20 << 10, false), (20 << 10, true), (SEGMENTS_MAX * 512 + 4096, true)] {
            if script == [Bytes(100); 2] {
                // A file that ends inside a sector twice has shrunk.
                continue;
            }
            for refused_from in [0, 1, 2, u32::MAX] {
                let disk = Disk::new(2 * bytes);
                disk.refuse_durable_writes_from(refused_from);
                disk.answer(&script);
                let file = file_on(&disk, way, 2 * bytes as u64);
                let case = format!("{script:?}, {way:?}, {bytes} bytes, refused from {refused_from}");
                for at in [0, bytes] {
                    let written = drive(&file.driver, file.write(at as u64, pieces(bytes, in_sectors), true));
                    assert_eq!(written, Ok(()), "{case}");
                    assert!(disk.is_stable(at..at + bytes), "{case}, at {at}");
                }
                assert_eq!(disk.syncs() > 0, disk.refusals() > 0, "{case}");
                assert!(disk.refusals() <= 1, "{case}: a refused durable write was tried again");
            }
        }
    }
}

#[test]
fn a_failed_sync_fails_a_write_whose_durable_form_was_refused() {
    for way in WAYS {
        let disk = Disk::new(64 << 10);
        disk.refuse_durable_writes_from(0);
        disk.fail_syncs(libc::EIO);
        let file = file_on(&disk, way, 64 << 10);
        let written = drive(&file.driver, file.write(0, pieces(20 << 10, false), true));
        assert_eq!(written, Err(IoError { kind: ErrorKind::Media, os: libc::EIO }));
        // Data that a failed sync has lost is not flushed again.
        disk.fail_syncs(0);
        assert!(drive(&file.driver, file.write(0, pieces(20 << 10, false), true)).is_err());
        assert!(drive(&file.driver, file.flush()).is_err());
    }
}

#[test]
fn a_plain_write_does_no_sync() {
    for way in WAYS {
        let disk = Disk::new(64 << 10);
        let file = file_on(&disk, way, 64 << 10);
        assert_eq!(drive(&file.driver, file.write(0, pieces(20 << 10, false), false)), Ok(()));
        assert!(disk.syncs() == 0 && !disk.is_stable(0..512));
        assert_eq!(drive(&file.driver, file.flush()), Ok(()));
        assert!(disk.syncs() == 1 && disk.is_stable(0..20 << 10));
    }
}

#[test]
fn direct_io_transfers_any_number_of_sectors() {
    for memory_align in [1, 4, 512] {
        for bytes in [512, 4608, 64 << 10, (64 << 10) + 512, SEGMENTS_MAX * 512 + 512] {
            let disk = Disk::new(bytes);
            let file = file_on(&disk, Way::Direct { memory_align }, bytes as u64);
            for in_sectors in [false, true] {
                assert_eq!(drive(&file.driver, file.write(0, pieces(bytes, in_sectors), true)), Ok(()));
                assert!(disk.is_stable(0..bytes), "{memory_align}, {bytes}");
            }
            let read = drive(&file.driver, file.read(0, bounce(bytes))).expect("readable");
            assert_eq!(read.bytes(), bytes);
        }
    }
}

#[test]
fn direct_io_is_aligned_in_memory_and_in_whole_sectors() {
    let disk = Disk::new(0);
    for memory_align in [4usize, 512] {
        let file = file_on(&disk, Way::Direct { memory_align }, 512);
        let page = || bounce(4096).freeze();
        assert!(file.suits(&page()) && file.suits(&page().slice(0, 512)));
        assert!(file.suits(&page().slice(512, 512)));
        assert!(!file.suits(&page().slice(2, 512)));
        assert!(!file.suits(&page().slice(0, 508)));
    }
}

const GONE: Result<(), IoError> = Err(IoError { kind: ErrorKind::Gone, os: 0 });

#[test]
fn a_file_that_shrinks_during_a_write_is_gone_before_the_answer() {
    let bytes = 1 << 20;
    for (way, in_sectors) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        for sync in [false, true] {
            let disk = Disk::new(bytes);
            let file = file_on(&disk, way, bytes as u64);
            let length = if in_sectors { SEGMENTS_MAX * 512 + 4096 } else { 20 << 10 };
            // One size check is enough within a turn, but not for later turns.
            for _ in 0..3 {
                assert_eq!(drive(&file.driver, file.write(0, pieces(length, in_sectors), sync)), Ok(()));
            }
            disk.at_next_end(file.lane.as_raw_fd(), move |fd| set_len(fd, bytes as u64 - 1));
            assert_eq!(drive(&file.driver, file.write(0, pieces(length, in_sectors), sync)), GONE, "{way:?}");
            assert_eq!(drive(&file.driver, file.write(0, pieces(length, in_sectors), sync)), GONE, "for good");
        }
    }
}

#[test]
fn a_short_file_is_not_written_and_a_short_write_in_it_does_not_continue() {
    for (way, in_sectors) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let length = if in_sectors { SEGMENTS_MAX * 512 + 4096 } else { 20 << 10 };
        let disk = Disk::new(1 << 20);
        let file = file_on(&disk, way, 1 << 20);
        set_len(file.lane.as_raw_fd(), 4096);
        assert_eq!(drive(&file.driver, file.write(0, pieces(length, in_sectors), false)), GONE);
        assert_eq!(disk.writes(), 0, "{way:?}: a write would make it longer again");
        let disk = Disk::new(1 << 20);
        let file = file_on(&disk, way, 1 << 20);
        disk.answer(&[Answer::Bytes(512)]);
        disk.at_next_end(file.lane.as_raw_fd(), |fd| set_len(fd, 4096));
        assert_eq!(drive(&file.driver, file.write(0, pieces(length, in_sectors), false)), GONE);
        assert_eq!(disk.writes(), 1, "{way:?}: the rest of a short write is not written");
    }
}

#[test]
fn writes_of_one_turn_share_a_size_check_and_all_fail_if_the_file_shrank() {
    let disk = Disk::new(1 << 20);
    let file = file_on(&disk, Way::Cached, 1 << 20);
    let write = |n: u64| file.write(n * (64 << 10), pieces(20 << 10, false), false);
    for result in drive(&file.driver, join_all((0..4).map(write))) {
        assert_eq!(result, Ok(()));
    }
    disk.at_next_end(file.lane.as_raw_fd(), |fd| set_len(fd, 4096));
    for result in drive(&file.driver, join_all((0..4).map(write))) {
        assert_eq!(result, GONE);
    }
}

#[test]
fn a_read_returns_no_bytes_if_the_file_is_found_gone_meanwhile() {
    for way in WAYS {
        for (bytes, in_sectors) in [(20 << 10, false), ((SEGMENTS_MAX + 1) * 512, true)] {
            let disk = Disk::new(1 << 20);
            let file = file_on(&disk, way, 1 << 20);
            let mut into = bounce(bytes);
            if in_sectors {
                let mut sectors = ReadPieces::new();
                while !into.is_empty() {
                    sectors.append(into.split_to(512));
                }
                into = sectors;
            }
            let watch = file.watch.clone();
            disk.at_next_end(-1, move |_| assert_eq!(watch.lost().kind, ErrorKind::Gone));
            let read = drive(&file.driver, file.read(0, into)).map(drop);
            assert_eq!(read, GONE, "{way:?}, {bytes} bytes");
        }
    }
}

#[test]
fn a_file_in_memory_that_shrinks_between_size_check_and_write_is_gone_before_the_answer() {
    for is_slow in [false, true] {
        let disk = Disk::new(0);
        let file = file_on(&disk, Way::InMemory, 64 << 10);
        let write = async || match is_slow {
            true => file.write_slowly(0, pieces(4096, false), false, 0, Progress::default()).await,
            false => file.write(0, pieces(4096, false), false).await,
        };
        // Now and then a write yields to other tasks between its size check and its transfer.
        let waiting = (0..1000).find_map(|_| {
            let mut write = Box::pin(write());
            poll_once(write.as_mut()).is_pending().then_some(write)
        });
        set_len(file.lane.as_raw_fd(), 8192);
        assert_eq!(drive(&file.driver, waiting.expect("it yields now and then")), GONE, "slowly: {is_slow}");
    }
}

#[test]
fn a_read_of_more_pieces_than_one_call_takes_fills_each_with_its_own_bytes() {
    const SECTORS: usize = 2 * SEGMENTS_MAX + 3;
    let path = std::env::temp_dir().join(format!("uraid-many-pieces-{}", std::process::id()));
    let stamp = |sector: usize| [(sector % 251) as u8; SECTOR_BYTES];
    std::fs::write(&path, (0..SECTORS).flat_map(stamp).collect::<Vec<u8>>()).expect("room");
    for ring in [RingChoice::Auto, RingChoice::Threads] {
        let path = &path;
        run(1, &Options { ring, ..Options::default() }, |shard: Shard<()>| async move {
            for way in [Way::Cached, Way::InMemory] {
                let owned = Rc::new(Owned(std::fs::File::open(path).expect("there")));
                let limits = Limits { bytes_max: 1 << 30, segments_max: SEGMENTS_MAX };
                let lane = Lane::new(owned.clone(), 0, limits, None);
                let io = FileIo::new(shard.driver().clone(), lane, owned, Arc::default(), way);
                for (first, count) in [(0, SECTORS), (1, SEGMENTS_MAX + 1), (2, SECTORS - 2), (5, 3)] {
                    // Each in its own block, because adjacent pieces are merged into one.
                    let arena = Arena::new(count as u32, 0);
                    let mut into = ReadPieces::new();
                    (0..count).for_each(|_| into.append(arena.take(SECTOR_BYTES).expect("room")));
                    assert_eq!(into.count(), count);
                    let read = io.read((first * SECTOR_BYTES) as u64, into).await.expect("readable").to_vec();
                    let expected: Vec<u8> = (first..first + count).flat_map(stamp).collect();
                    assert!(read == expected, "{way:?}, {first}+{count}");
                }
            }
        });
    }
    std::fs::remove_file(&path).expect("removed");
}

/// Errnos of the system's current state.
const TRANSIENT: [i32; 4] = [libc::EINTR, libc::EAGAIN, libc::ENOMEM, libc::ENOBUFS];

#[test]
fn transient_errors_are_retried() {
    const BYTES: usize = 20 << 10;
    for (way, os) in WAYS.into_iter().flat_map(|way| TRANSIENT.map(|os| (way, os))) {
        let disk = Disk::new(2 * BYTES);
        let file = file_on(&disk, way, 2 * BYTES as u64);
        let case = format!("{way:?}, errno {os}");
        disk.fail_next([os; 3]);
        let read = drive(&file.driver, file.read(0, bounce(BYTES)));
        assert_eq!(read.map(|pieces| pieces.bytes()), Ok(BYTES), "{case}");
        for sync in [false, true] {
            disk.fail_next([os; 3]);
            assert_eq!(drive(&file.driver, file.write(0, pieces(BYTES, false), sync)), Ok(()), "{case}, {sync}");
            assert_eq!(disk.is_stable(0..BYTES), sync, "{case}");
        }
        disk.fail_next([os; 3]);
        let allocated = drive(&file.driver, file.call(|| Kind::Allocate { mode: 0, at: 0, length: 512 }));
        assert_eq!(allocated, 0, "{case}");
        disk.fail_next([libc::EINTR; 3]);
        assert_eq!(drive(&file.driver, file.flush()), Ok(()), "{case}");
    }
}

#[test]
fn a_transient_error_that_persists_is_reported_after_the_last_retry() {
    const BYTES: usize = 20 << 10;
    for os in TRANSIENT {
        let disk = Disk::new(BYTES);
        let file = file_on(&disk, Way::Cached, BYTES as u64);
        disk.fail_next([os; 1000]);
        let read = drive(&file.driver, file.read(0, bounce(BYTES)));
        assert_eq!(read.map(|_| ()).map_err(|error| error.os), Err(os));
        assert_eq!(disk.operations(), 1 + Retries::TRIES_MAX);
        assert_eq!(drive(&file.driver, file.write(0, pieces(BYTES, false), false)).map_err(|error| error.os), Err(os));
        assert_eq!(disk.operations(), 2 + 2 * Retries::TRIES_MAX);
    }
    for os in [libc::EIO, libc::ENOSPC, libc::ENODEV] {
        let disk = Disk::new(BYTES);
        let file = file_on(&disk, Way::Cached, BYTES as u64);
        disk.fail_next([os; 1000]);
        assert!(drive(&file.driver, file.read(0, bounce(BYTES))).is_err());
        assert_eq!(disk.operations(), 1, "errno {os}");
    }
}

/// The page cache reports a lost write once, with the device's errno: a second flush would succeed. A flush of a device
/// reports nothing about pages.
#[test]
fn a_flush_that_may_have_reported_lost_writes_is_not_retried() {
    for (way, os) in WAYS.into_iter().flat_map(|way| [libc::EIO, libc::ENOMEM, libc::EAGAIN].map(|os| (way, os))) {
        let disk = Disk::new(4096);
        let file = file_on(&disk, way, 4096);
        disk.fail_next([os]);
        let is_repeated = matches!(way, Way::Direct { .. }) && os != libc::EIO;
        assert_eq!(drive(&file.driver, file.flush()).is_ok(), is_repeated, "{way:?}, errno {os}");
        assert_eq!(disk.operations(), 1 + u32::from(is_repeated), "{way:?}, errno {os}");
    }
}
