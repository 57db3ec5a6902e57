//! Merged requests over a ring whose results the test controls.
//! Owns: tests of `dispatch`. Not here: what may be merged (`merge`), real rings (`tests/merging.rs`).

mod held;

use super::super::merge::Limits;
use super::super::{Completion, Ring, TraceCounts};
use super::*;
use crate::Options;
use std::cell::RefCell;
use std::future::Future;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use uraid_block::{Arena, WritePieces};

/// The operations given to a scripted ring: kind, first byte, bytes.
type Seen = Rc<RefCell<Vec<(&'static str, u64, u64)>>>;

/// Completes each operation with the next result of its list, or with all its bytes once the list is used up.
struct Scripted {
    seen: Seen,
    results: Vec<i32>,
    started: Vec<Completion>,
    /// How many operations complete in each wait, the oldest first.
    ends: usize,
}

impl Ring for Scripted {
    unsafe fn start(&mut self, token: u32, request: *mut Request) {
        // SAFETY: the caller's promise: the ring owns the operation until the completion.
        let request = unsafe { &*request };
        let bytes = bytes(&request.segments);
        let (what, at) = match &request.kind {
            Kind::Read { at } => ("read", *at),
            Kind::Write { at, sync: false } => ("write", *at),
            Kind::Write { at, sync: true } => ("durable", *at),
            Kind::Sync => ("flush", 0),
            Kind::Allocate { at, .. } => ("allocate", *at),
            Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } | Kind::Call(_) => panic!("not asked for"),
        };
        self.seen.borrow_mut().push((what, at, bytes));
        let result = if self.results.is_empty() { bytes as i32 } else { self.results.remove(0) };
        self.started.push(Completion { token, result });
    }

    fn cancel(&mut self, _token: u32) {
        panic!("nothing of a member is cancelled");
    }

    fn wait(&mut self, _wait: Wait, completions: &mut Vec<Completion>) {
        completions.extend(self.started.drain(..self.ends.min(self.started.len())));
    }

    fn name(&self) -> &'static str {
        "scripted"
    }
}

struct NoFile;

impl AsRawFd for NoFile {
    fn as_raw_fd(&self) -> RawFd {
        -1
    }
}

struct Rig {
    driver: Driver,
    lane: Rc<Lane>,
    arena: Arena,
    seen: Seen,
}

fn rig(results: &[i32]) -> Rig {
    slow_rig(results, usize::MAX)
}

fn slow_rig(results: &[i32], ends: usize) -> Rig {
    let seen = Seen::default();
    let ring = Scripted { seen: seen.clone(), results: results.to_vec(), started: Vec::new(), ends };
    let limits = Limits { bytes_max: 64 << 10, segments_max: 8 };
    let lane = Rc::new(Lane::new(Rc::new(NoFile), 0, limits, None).traced(true));
    let driver = Driver::with_ring(Box::new(ring), &Options::default());
    Rig { driver, lane, arena: Arena::new(64, 0), seen }
}

impl Rig {
    fn read(&self, at: u64, bytes: usize) -> Operation<'_> {
        let into = self.arena.take(bytes).expect("room");
        self.driver.start_on(&self.lane, Kind::Read { at }, Buffers::Read(into))
    }

    fn write(&self, at: u64, from: WritePieces, sync: bool) -> Operation<'_> {
        self.driver.start_on(&self.lane, Kind::Write { at, sync }, Buffers::Write(from))
    }

    /// The results of all operations, after at most this many turns.
    fn results(&self, operations: Vec<Operation<'_>>, turns: u32) -> Vec<i32> {
        for _ in 0..turns {
            self.driver.wait(Wait::No);
        }
        assert_eq!(self.driver.in_flight(), 0);
        let result = |operation: Operation<'_>| match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready((_, result)) => result,
            Poll::Pending => panic!("it has not ended"),
        };
        operations.into_iter().map(result).collect()
    }

    fn seen(&self) -> Vec<(&'static str, u64, u64)> {
        self.seen.take()
    }
}

#[test]
fn adjacent_requests_of_a_turn_are_merged_and_each_gets_its_own_result() {
    let rig = rig(&[]);
    let reads = [(8192, 4096), (0, 8192), (20480, 512), (12288, 4096)].map(|(at, bytes)| rig.read(at, bytes));
    assert!(rig.seen().is_empty(), "the turn has not ended");
    assert_eq!(rig.results(reads.into(), 1), [4096, 8192, 512, 4096]);
    assert_eq!(rig.seen(), [("read", 0, 16384), ("read", 20480, 512)]);
    let counts = rig.lane.trace().expect("traced").counts();
    assert_eq!((counts.of(TracedKind::Read), counts.merged, counts.descending), (2, 2, 0));
}

/// How often its waker was used.
#[derive(Default)]
struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counted {
    fn new() -> (Arc<Counted>, Waker) {
        let counted = Arc::new(Counted::default());
        (counted.clone(), Waker::from(counted))
    }

    fn wakes(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn a_completion_wakes_the_task_that_polled_last_also_if_merged() {
    let rig = rig(&[]);
    let mut all = [rig.read(0, 4096), rig.read(4096, 4096), rig.read(1 << 20, 4096)];
    let (old, old_waker) = Counted::new();
    let counts = [(); 3].map(|()| Counted::new());
    for (operation, (_, waker)) in all.iter_mut().zip(&counts) {
        for waker in [&old_waker, waker] {
            assert!(pin!(&mut *operation).poll(&mut Context::from_waker(waker)).is_pending());
        }
    }
    rig.driver.wait(Wait::No);
    assert_eq!(rig.seen(), [("read", 0, 8192), ("read", 1 << 20, 4096)]);
    assert_eq!((counts.each_ref().map(|(counted, _)| counted.wakes()), old.wakes()), ([1; 3], 0));
    assert_eq!(rig.results(all.into(), 0), [4096; 3]);
}

#[test]
fn a_flush_submits_all_waiting_requests_first() {
    let rig = rig(&[]);
    let page = || rig.arena.take(4096).expect("room").freeze();
    let mut all = vec![rig.write(4096, page(), false), rig.write(0, page(), false)];
    all.push(rig.driver.start_with(&rig.lane, rig.lane.clone(), Kind::Sync, Buffers::None));
    all.extend([rig.write(8192, page(), false), rig.write(12288, page(), true), rig.write(16384, page(), true)]);
    assert_eq!(rig.results(all, 1), [4096, 4096, 0, 4096, 4096, 4096]);
    let expected = [("write", 0, 8192), ("flush", 0, 0), ("write", 8192, 4096), ("durable", 12288, 8192)];
    assert_eq!(rig.seen(), expected);
}

#[test]
fn writes_that_overlap_keep_their_order() {
    let rig = rig(&[]);
    let page = || rig.arena.take(4096).expect("room").freeze();
    let all = vec![rig.write(4096, page(), false), rig.write(2048, page(), false), rig.read(0, 2048)];
    assert_eq!(rig.results(all, 1), [4096, 4096, 2048]);
    assert_eq!(rig.seen(), [("write", 4096, 4096), ("write", 2048, 4096), ("read", 0, 2048)]);
}

#[test]
fn after_a_merged_request_failed_its_parts_are_submitted_one_by_one() {
    let rig = rig(&[-libc::EIO, 4096, -libc::EIO, 4096]);
    let reads = [0, 4096, 8192].map(|at| rig.read(at, 4096));
    assert_eq!(rig.results(reads.into(), 2), [4096, -libc::EIO, 4096]);
    let seen = [("read", 0, 12288), ("read", 0, 4096), ("read", 4096, 4096), ("read", 8192, 4096)];
    assert_eq!(rig.seen(), seen);
    let counts = rig.lane.trace().expect("traced").counts();
    assert_eq!((counts.of(TracedKind::Read), counts.merged, counts.parted), (4, 2, 3));
}

#[test]
fn complete_parts_of_a_short_merged_request_have_ended() {
    for (count, whole) in [(0, 0), (511, 0), (4095, 0), (4096, 1), (4608, 1), (8192, 2), (12287, 2)] {
        let rig = rig(&[count]);
        let reads = [0, 4096, 8192].map(|at| rig.read(at, 4096));
        assert_eq!(rig.results(reads.into(), 2), [4096; 3]);
        let mut expected = vec![("read", 0, 12288)];
        expected.extend((whole..3).map(|n| ("read", n * 4096, 4096)));
        assert_eq!(rig.seen(), expected, "{count}");
    }
}

#[test]
fn a_part_whose_future_was_dropped_still_completes_and_frees_its_buffers() {
    let rig = rig(&[-libc::EIO]);
    drop(rig.write(0, rig.arena.take(4096).expect("room").freeze(), false));
    let other = rig.write(4096, rig.arena.take(4096).expect("room").freeze(), false);
    drop(rig.write(8192, rig.arena.take(4096).expect("room").freeze(), false));
    assert_eq!(rig.results(vec![other], 2), [4096]);
    assert_eq!(rig.seen(), [("write", 0, 12288), ("write", 0, 4096), ("write", 4096, 4096), ("write", 8192, 4096)]);
    assert!(rig.arena.take(64 * 4096).is_ok(), "all of it");
}

#[test]
fn a_fragment_that_continues_a_request_in_flight_is_held_until_that_ends() {
    let rig = slow_rig(&[], 1);
    let turn = || rig.driver.wait(Wait::No);
    let mut all = vec![rig.read(0, 4096), rig.read(1 << 20, 8192), rig.read((1 << 20) + 8192, 4096)];
    turn();
    assert_eq!(rig.seen(), [("read", 0, 4096), ("read", 1 << 20, 12288)]);
    // The largest part of the merged one is 8192 bytes. A request as large as the part that it continues is not held.
    all.push(rig.read(4096, 4096));
    rig.driver.send_waiting(Which::Due);
    assert_eq!(rig.seen(), [("read", 4096, 4096)]);
    all.push(rig.read((1 << 20) + 12288, 4096));
    all.push(rig.read(1 << 21, 512));
    rig.driver.send_waiting(Which::Due);
    assert_eq!(rig.seen(), [("read", 1 << 21, 512)], "the fragment is held");
    rig.driver.send_waiting(Which::Due);
    assert!(rig.seen().is_empty());
    turn();
    turn();
    assert_eq!(rig.seen(), [("read", (1 << 20) + 12288, 4096)], "the request it was held for has ended");
    assert_eq!(rig.results(all, 4), [4096, 8192, 4096, 4096, 4096, 512]);
}

#[test]
fn a_held_fragment_is_submitted_when_it_has_grown_or_before_a_flush() {
    let page = |rig: &Rig| rig.arena.take(4096).expect("room").freeze();
    let large = |rig: &Rig| rig.arena.take(8192).expect("room").freeze();
    let rig = slow_rig(&[], 0);
    let mut all = vec![rig.write(0, large(&rig), false)];
    rig.driver.wait(Wait::No);
    all.push(rig.write(8192, page(&rig), false));
    rig.driver.wait(Wait::No);
    assert_eq!(rig.seen(), [("write", 0, 8192)]);
    all.push(rig.write(12288, page(&rig), false));
    rig.driver.wait(Wait::No);
    assert_eq!(rig.seen(), [("write", 8192, 8192)]);
    all.push(rig.write(16384, page(&rig).slice(0, 2048), false));
    rig.driver.wait(Wait::No);
    assert!(rig.seen().is_empty(), "held for the request in flight");
    // An overlapping request is submitted after it.
    all.push(rig.write(17408, page(&rig), false));
    rig.driver.wait(Wait::No);
    assert_eq!(rig.seen(), [("write", 16384, 2048), ("write", 17408, 4096)]);
    all.push(rig.write(21504, page(&rig).slice(0, 512), false));
    rig.driver.wait(Wait::No);
    assert!(rig.seen().is_empty());
    all.push(rig.driver.start_with(&rig.lane, rig.lane.clone(), Kind::Sync, Buffers::None));
    assert_eq!(rig.seen(), [("write", 21504, 512), ("flush", 0, 0)]);
    std::mem::forget(all);
}

#[test]
fn a_merged_request_is_at_most_as_large_as_the_member_accepts() {
    let rig = rig(&[]);
    let reads = (0..20).map(|n| rig.read(n * 4096, 4096)).collect();
    assert_eq!(rig.results(reads, 1), [4096; 20]);
    // Pages of an arena are adjacent in memory only by chance: each is a separate segment.
    assert_eq!(rig.seen(), [("read", 0, 32768), ("read", 32768, 32768), ("read", 65536, 16384)]);
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn measure_a_lane() {
    const TURNS: u64 = 20_000;
    let limits = Limits { bytes_max: 64 << 10, segments_max: 8 };
    let rig = Rig { lane: Rc::new(Lane::new(Rc::new(NoFile), 0, limits, None)), ..rig(&[]) };
    let mut leases: Vec<_> = (0..64).map(|_| Some(rig.arena.take(4096).expect("room"))).collect();
    let mut measure = |what: &str, in_lane: bool, at_once: u64, spread: u64| {
        // Measure the best turn, because other processes use the machine too.
        let mut best = u64::MAX;
        for turn in 0..TURNS {
            let start = sys::monotonic_nanos();
            let mut operations = smallvec::SmallVec::<[_; 64]>::new();
            for n in 0..at_once {
                let kind = Kind::Read { at: (turn * 31 + n * spread) % 64 * 8192 };
                let into = Buffers::Read(leases[n as usize].take().expect("given back"));
                operations.push(match in_lane {
                    true => rig.driver.start_on(&rig.lane, kind, into),
                    false => rig.driver.start(kind, into, Some(rig.lane.clone())),
                });
            }
            rig.driver.wait(Wait::No);
            for (n, operation) in operations.into_iter().enumerate() {
                let Poll::Ready((Buffers::Read(into), _)) =
                    pin!(operation).poll(&mut Context::from_waker(Waker::noop()))
                else {
                    panic!("it has ended")
                };
                leases[n] = Some(into);
            }
            best = best.min(sys::monotonic_nanos() - start);
            rig.seen.borrow_mut().clear();
        }
        println!("{what}: {:.1} ns each", best as f64 / at_once as f64);
    };
    for _ in 0..3 {
        measure("alone, straight to the ring", false, 1, 0);
        measure("alone, in a lane", true, 1, 0);
        measure("64 at once, straight to the ring", false, 64, 29);
        measure("64 at once, in a lane, no neighbours, random", true, 64, 29);
        measure("64 at once, in a lane, no neighbours, ascending", true, 64, 1);
    }
}

#[test]
fn without_merging_requests_are_submitted_at_once_and_unchanged() {
    let seen = Seen::default();
    let ring = Scripted { seen: seen.clone(), results: Vec::new(), started: Vec::new(), ends: usize::MAX };
    let driver = Driver::with_ring(Box::new(ring), &Options { merging: false, ..Options::default() });
    let rig = Rig { driver, seen, ..rig(&[]) };
    let reads = vec![rig.read(4096, 4096), rig.read(0, 4096)];
    assert_eq!(rig.seen(), [("read", 4096, 4096), ("read", 0, 4096)]);
    assert_eq!(rig.results(reads, 1), [4096; 2]);
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A disk that completes its operations in any order, some of them partly or not at all.
struct Unruly {
    disk: Rc<RefCell<Vec<u8>>>,
    started: Vec<(u32, *mut Request)>,
    random: Random,
}

impl Unruly {
    /// Performs the first bytes of the request, or fails.
    fn end(&mut self, request: &Request) -> i32 {
        let all = bytes(&request.segments);
        let count = match self.random.below(8) {
            0 => return -libc::EIO,
            1 => self.random.below(all + 1),
            _ => all,
        };
        let (Kind::Read { at } | Kind::Write { at, .. }) = request.kind else { return 0 };
        let disk = &mut self.disk.borrow_mut()[at as usize..(at + count) as usize];
        let mut done = 0;
        for segment in &request.segments {
            let part = segment.iov_len.min(disk.len() - done);
            let (memory, place) = (segment.iov_base.cast::<u8>(), disk[done..].as_mut_ptr());
            if matches!(request.kind, Kind::Read { .. }) {
                // SAFETY: the segment describes a live buffer of the operation, the place is inside the disk.
                unsafe { memory.copy_from_nonoverlapping(place, part) }
            } else {
                // SAFETY: as above.
                unsafe { place.copy_from_nonoverlapping(memory, part) }
            }
            done += part;
        }
        count as i32
    }
}

impl Ring for Unruly {
    unsafe fn start(&mut self, token: u32, request: *mut Request) {
        assert!(self.started.iter().all(|(other, _)| *other != token), "it is already in flight");
        self.started.push((token, request));
    }

    fn cancel(&mut self, _token: u32) {
        panic!("nothing of a member is cancelled");
    }

    fn wait(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        let count = self.started.len() as u64;
        for _ in 0..if wait == Wait::Forever { count } else { self.random.below(count + 1) } {
            let place = self.random.below(self.started.len() as u64) as usize;
            let (token, request) = self.started.swap_remove(place);
            // SAFETY: in flight, so it exists and belongs to the ring.
            completions.push(Completion { token, result: self.end(unsafe { &*request }) });
        }
    }

    fn name(&self) -> &'static str {
        "unruly"
    }
}

/// An operation that was started, and what a read should find or a write should leave.
struct Started<'a> {
    operation: Option<Operation<'a>>,
    range: std::ops::Range<usize>,
    written: Option<u8>,
}

impl Started<'_> {
    /// Whether the operation has ended. If so, checks that it has transferred as many bytes as it reports, and the
    /// right ones. The rest of a short write is arbitrary.
    fn has_ended(&mut self, disk: &[u8]) -> bool {
        let Some(operation) = &mut self.operation else { return false };
        let Poll::Ready((buffers, result)) = pin!(operation).poll(&mut Context::from_waker(Waker::noop())) else {
            return false;
        };
        let count = usize::try_from(result).unwrap_or(0);
        assert!(result == -libc::EIO || count <= self.range.len());
        let place = &disk[self.range.clone()][..count];
        match (self.written, buffers) {
            (Some(byte), _) => assert!(place.iter().all(|found| *found == byte)),
            (None, Buffers::Read(into)) => assert!(into.to_vec()[..count] == *place),
            (None, Buffers::None | Buffers::Write(_) | Buffers::Lease(_)) => panic!("a read gives its buffers back"),
        }
        self.operation = None;
        true
    }
}

fn unruly_turns(seed: u64) -> TraceCounts {
    const DISK: usize = 1 << 16;
    let disk = Rc::new(RefCell::new(vec![0; DISK]));
    let ring = Unruly { disk: disk.clone(), started: Vec::new(), random: Random(!seed) };
    let rig = Rig { driver: Driver::with_ring(Box::new(ring), &Options::default()), ..rig(&[]) };
    let (mut random, mut all, mut behind) = (Random(seed), Vec::<Started<'_>>::new(), 0);
    for turn in 0..3000 {
        for _ in 0..random.below(6) {
            let start = if random.below(3) == 0 { random.below(DISK as u64 / 512) as usize * 512 } else { behind };
            let range = start..(start + (random.below(8) as usize + 1) * 512).min(DISK);
            behind = range.end % DISK;
            if all.iter().any(|one| one.range.start < range.end && range.start < one.range.end) {
                continue;
            }
            let Ok(mut buffer) = rig.arena.take(range.len()) else { continue };
            let written = (random.below(2) == 0).then(|| random.below(256) as u8);
            let operation = match written {
                None => rig.read(range.start as u64, range.len()),
                Some(byte) => {
                    buffer.fill(byte);
                    rig.write(range.start as u64, buffer.freeze(), random.below(4) == 0)
                }
            };
            let operation = (random.below(16) > 0).then_some(operation);
            all.push(Started { operation, range, written });
        }
        if random.below(50) == 0 {
            drop(rig.driver.start_with(&rig.lane, rig.lane.clone(), Kind::Sync, Buffers::None));
        }
        if turn % 100 == 99 {
            // All held requests are submitted within the next completions, and each resubmitted part may fail only
            // once.
            for _ in 0..4 {
                rig.driver.wait(Wait::Forever);
            }
            assert_eq!(rig.driver.in_flight(), 0, "seed {seed}, turn {turn}");
        }
        rig.driver.wait(Wait::No);
        all.retain_mut(|one| !one.has_ended(&disk.borrow()));
        if rig.driver.in_flight() == 0 {
            assert!(all.iter().all(|one| one.operation.is_none()), "seed {seed}, turn {turn}");
            all.clear();
            assert_eq!(rig.arena.blocks_in_use(), 0);
        }
    }
    drop(all);
    rig.lane.trace().expect("traced").counts()
}

#[test]
fn every_request_gets_its_own_result_in_any_order_of_full_and_short_completions() {
    for seed in 0..20 {
        let counts = unruly_turns(seed);
        assert!(counts.merged > 500 && counts.parted > 100, "{counts:?}");
    }
}
