//! Members that answer on the test's command, or never.
//! Owns: tests of `answers`. Not here: real files that hang (`crates/uraid/tests/hung.rs`).

use super::super::merge::Limits;
use super::super::{Buffers, Completion, Kind, Operation, Request, Ring, Wait};
use super::*;
use crate::Options;
use std::future::Future;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use uraid_block::Arena;

const CHECKS_MAX: u32 = 8;
const PERIOD: Duration = Duration::from_secs(1);

/// The operations that the system has, oldest first, and those that it has completed.
#[derive(Default)]
struct System {
    has: RefCell<VecDeque<(u32, i32)>>,
    ended: RefCell<Vec<Completion>>,
}

impl System {
    /// Completes the oldest ones successfully.
    fn end(&self, count: usize) {
        let ended = self.has.borrow_mut().drain(..count).map(|(token, result)| Completion { token, result }).collect();
        *self.ended.borrow_mut() = ended;
    }

    /// Completes the oldest one as if it had transferred only `bytes` bytes.
    fn end_short(&self, bytes: i32) {
        let (token, _) = self.has.borrow_mut().pop_front().expect("the system has one");
        *self.ended.borrow_mut() = vec![Completion { token, result: bytes }];
    }

    fn count(&self) -> usize {
        self.has.borrow().len()
    }
}

struct Stubborn(Rc<System>);

impl Ring for Stubborn {
    unsafe fn start(&mut self, token: u32, request: *mut Request) {
        // SAFETY: the caller's promise: the ring owns the operation until the completion.
        let bytes = unsafe { &*request }.segments.iter().map(|segment| segment.iov_len as i32).sum();
        self.0.has.borrow_mut().push_back((token, bytes));
    }

    fn cancel(&mut self, _token: u32) {
        panic!("nothing of a member is cancelled");
    }

    fn wait(&mut self, _wait: Wait, completions: &mut Vec<Completion>) {
        completions.append(&mut self.0.ended.borrow_mut());
    }

    fn name(&self) -> &'static str {
        "stubborn"
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
    lanes: [Rc<Lane>; 2],
    arena: Arena,
    system: Rc<System>,
}

fn rig(depth: Depth, pages: u32) -> Rig {
    rig_sharing(depth, pages, &[Arc::default(), Arc::default()])
}

/// A rig with counts of unanswered changes that other shards' lanes share.
fn rig_sharing(depth: Depth, pages: u32, unanswered_changes: &[Arc<AtomicUsize>; 2]) -> Rig {
    let system = Rc::new(System::default());
    let driver = Driver::with_ring(Box::new(Stubborn(system.clone())), &Options::default());
    let lanes = unanswered_changes.each_ref().map(|unanswered_changes| {
        let limits = Limits { bytes_max: 64 << 10, segments_max: 8 };
        driver.add_lane(Lane::new(Rc::new(NoFile), 0, limits, None).sharing(unanswered_changes.clone()), depth)
    });
    Rig { driver, lanes, arena: Arena::new(pages, 0), system }
}

impl Rig {
    /// One page, `n` pages from the start.
    fn read(&self, lane: usize, n: u64) -> Operation<'_> {
        let into = self.arena.take(4096).expect("room");
        self.driver.start_on(&self.lanes[lane], Kind::Read { at: n * 4096 }, Buffers::Read(into))
    }

    fn write(&self, lane: usize, n: u64) -> Operation<'_> {
        let from = self.arena.take(4096).expect("room").freeze();
        self.driver.start_on(&self.lanes[lane], Kind::Write { at: n * 4096, sync: false }, Buffers::Write(from))
    }

    fn flush(&self, lane: usize) -> Operation<'_> {
        self.driver.start_with(&self.lanes[lane], Rc::new(NoFile), Kind::Sync, Buffers::None)
    }

    fn check_ages(&self, times: u32) {
        (0..times).for_each(|_| self.driver.check_ages(CHECKS_MAX, PERIOD));
    }

    fn turn(&self) {
        self.driver.wait(Wait::No);
    }
}

/// The result, and whether the buffers came with it.
fn result(operation: &mut Operation<'_>) -> Option<(i32, bool)> {
    match Pin::new(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready((buffers, result)) => Some((result, matches!(buffers, Buffers::Read(_)))),
        Poll::Pending => None,
    }
}

#[test]
fn a_late_read_fails_alone_and_its_buffer_is_freed_at_its_completion() {
    let rig = rig(Depth::CACHED, 3);
    let (mut late, mut other) = (rig.read(0, 0), rig.read(1, 0));
    rig.turn();
    rig.check_ages(CHECKS_MAX);
    assert_eq!((result(&mut late), result(&mut other)), (None, None), "not yet");
    rig.system.end(2);
    rig.turn();
    assert_eq!((result(&mut late), result(&mut other)), (Some((4096, true)), Some((4096, true))));

    let mut late = rig.read(0, 0);
    rig.turn();
    rig.check_ages(CHECKS_MAX - 1);
    let mut other = rig.read(1, 0);
    rig.turn();
    rig.check_ages(2);
    assert_eq!((result(&mut late), result(&mut other)), (Some((-libc::ETIMEDOUT, false)), None));
    drop(late);
    assert!(rig.arena.take(2 * 4096).is_err(), "the device may still write to it");
    let mut refused = rig.read(0, 8);
    assert_eq!(
        result(&mut refused),
        Some((-libc::ETIMEDOUT, true)),
        "nothing is submitted while a request is unanswered"
    );
    drop(refused);
    assert_eq!((rig.system.count(), rig.driver.in_flight()), (2, 2));
    rig.system.end(2);
    rig.turn();
    assert_eq!((result(&mut other), rig.driver.in_flight()), (Some((4096, true)), 0));
    drop(other);
    assert!(rig.arena.take(3 * 4096).is_ok(), "all buffers are back");
    let mut after = rig.read(0, 0);
    rig.turn();
    rig.system.end(1);
    rig.turn();
    assert_eq!(result(&mut after), Some((4096, true)), "it answers again");
}

#[test]
fn the_age_of_the_oldest_unanswered_request_is_known_until_it_completes() {
    let rig = rig(Depth::CACHED, 3);
    let ages = || [0, 1].map(|lane| rig.driver.unanswered_for(&rig.lanes[lane]).as_secs());
    let _old = rig.read(0, 0);
    rig.turn();
    rig.check_ages(3);
    let _new = rig.read(0, 8);
    let _of_the_other = rig.read(1, 0);
    rig.turn();
    rig.check_ages(1);
    assert_eq!(ages(), [4, 1], "it is as old as its first read");
    rig.check_ages(CHECKS_MAX);
    assert_eq!(ages(), [4, 1].map(|age| age + u64::from(CHECKS_MAX)), "even after that read has failed");
    rig.system.end(3);
    rig.turn();
    rig.check_ages(1);
    assert_eq!(ages(), [0, 0]);
}

#[test]
fn a_flush_may_take_four_times_as_long() {
    let rig = rig(Depth::CACHED, 1);
    let mut flush = rig.flush(0);
    rig.check_ages(CHECKS_MAX * LONG);
    assert_eq!(result(&mut flush), None);
    rig.check_ages(1);
    assert_eq!(result(&mut flush), Some((-libc::ETIMEDOUT, false)));
    rig.system.end(1);
    rig.turn();
    assert_eq!(rig.driver.in_flight(), 0);
}

#[test]
fn all_requests_of_a_dead_member_end_at_once_and_no_more_are_submitted() {
    let rig = rig(Depth(2), 10);
    // Two merged requests, one alone, one queued, one that waits for the end of the turn; and one on another lane.
    let mut of_dead = vec![rig.read(0, 0), rig.read(0, 1), rig.read(0, 5), rig.read(0, 7)];
    let mut elsewhere = rig.read(1, 0);
    rig.turn();
    assert_eq!(rig.system.count(), 3);
    of_dead.push(rig.read(0, 9));
    of_dead.push(rig.flush(0));
    of_dead.push(rig.read(0, 6));
    rig.driver.mark_dead(&rig.lanes[0], libc::ENODEV);
    for operation in &mut of_dead {
        assert_eq!(result(operation).map(|(result, _)| result), Some(-libc::ENODEV));
    }
    assert_eq!(result(&mut rig.read(0, 3)), Some((-libc::ENODEV, true)));
    rig.check_ages(10 * CHECKS_MAX);
    rig.turn();
    assert_eq!(rig.system.count(), 3, "nothing more was submitted");
    assert_eq!(result(&mut elsewhere), Some((-libc::ETIMEDOUT, false)));
    drop((of_dead, elsewhere));
    rig.system.end(3);
    rig.turn();
    assert_eq!(rig.driver.in_flight(), 0);
    assert!(rig.arena.take(10 * 4096).is_ok(), "all buffers are back");
    assert_eq!(result(&mut rig.read(0, 3)), Some((-libc::ENODEV, true)), "it stays dead");
}

#[test]
fn a_short_merged_request_of_a_dead_member_is_not_resubmitted_in_parts() {
    let rig = rig(Depth::CACHED, 3);
    let parts = [0, 1, 2].map(|n| rig.read(0, n));
    rig.turn();
    assert_eq!(rig.system.count(), 1, "they are merged");
    rig.driver.mark_dead(&rig.lanes[0], libc::ENODEV);
    rig.system.end_short(4096);
    rig.turn();
    assert_eq!((rig.system.count(), rig.driver.in_flight()), (0, 0));
    drop(parts);
    assert!(rig.arena.take(3 * 4096).is_ok(), "all buffers are back");
}

#[test]
fn a_completion_between_the_cut_and_the_poll_is_ignored() {
    let rig = rig(Depth::CACHED, 1);
    let mut late = rig.read(0, 0);
    rig.turn();
    rig.check_ages(CHECKS_MAX + 1);
    rig.system.end(1);
    rig.turn();
    assert_eq!(result(&mut late), Some((4096, true)));
    assert_eq!(rig.driver.in_flight(), 0);
}

#[test]
fn a_cut_request_whose_future_was_dropped_leaves_nothing_behind() {
    let rig = rig(Depth::CACHED, 1);
    let late = rig.read(0, 0);
    rig.turn();
    rig.check_ages(CHECKS_MAX + 1);
    drop(late);
    rig.system.end(1);
    rig.turn();
    assert_eq!(rig.driver.in_flight(), 0);
    assert!(rig.arena.take(4096).is_ok());
}

#[test]
fn at_most_depth_requests_are_submitted_and_the_others_follow_in_order() {
    let rig = rig(Depth(3), 10);
    // Not adjacent, so they are not merged.
    let mut reads: Vec<_> = (0..5).map(|n| rig.read(0, 2 * n)).collect();
    let mut elsewhere = rig.read(1, 0);
    rig.turn();
    assert_eq!(rig.system.count(), 3 + 1);
    rig.system.end(2);
    rig.turn();
    assert_eq!(rig.system.count(), 2 + 2, "two have ended, and two more were submitted");
    assert!(result(&mut reads[0]).is_some() && result(&mut reads[1]).is_some() && result(&mut reads[2]).is_none());
    rig.system.end(4);
    rig.turn();
    assert_eq!(rig.driver.in_flight(), 0);
    assert!(reads[2..].iter_mut().chain([&mut elsewhere]).all(|read| result(read) == Some((4096, true))));
}

#[test]
fn time_in_the_queue_does_not_count_against_the_member() {
    let rig = rig(Depth(1), 4);
    // The second one is merged with the third.
    let mut reads = [rig.read(0, 0), rig.read(0, 7), rig.read(0, 8)];
    rig.turn();
    rig.check_ages(CHECKS_MAX);
    rig.system.end(1);
    rig.turn();
    assert_eq!(rig.system.count(), 1, "merged into one");
    rig.check_ages(CHECKS_MAX);
    assert_eq!([0, 1, 2].map(|n| result(&mut reads[n])), [Some((4096, true)), None, None]);
    rig.check_ages(1);
    assert_eq!([1, 2].map(|n| result(&mut reads[n])), [Some((-libc::ETIMEDOUT, false)); 2]);
}

#[test]
fn no_shard_changes_a_member_while_a_change_of_another_shard_is_unanswered() {
    let shared = [Arc::default(), Arc::default()];
    let (one, other) = (rig_sharing(Depth::CACHED, 4, &shared), rig_sharing(Depth::CACHED, 4, &shared));
    let mut late = [one.write(0, 0), one.write(0, 1), one.read(0, 3)];
    one.turn();
    one.check_ages(CHECKS_MAX + 1);
    assert_eq!(result(&mut late[1]).map(|(result, _)| result), Some(-libc::ETIMEDOUT));
    // The client's retry on another shard. Reads, flushes and other members continue.
    let mut retry = other.write(0, 1);
    assert_eq!(result(&mut retry).map(|(result, _)| result), Some(-libc::ETIMEDOUT));
    let mut others = [other.read(0, 1), other.flush(0), other.write(1, 1)];
    other.turn();
    other.system.end(3);
    other.turn();
    assert!(others.iter_mut().all(|one| result(one).is_some_and(|(result, _)| result >= 0)));
    one.system.end(2);
    one.turn();
    let mut retry = other.write(0, 1);
    other.turn();
    other.system.end(1);
    other.turn();
    assert_eq!(result(&mut retry).map(|(result, _)| result), Some(4096), "the late write has completed");
}

#[test]
fn closing_does_not_wait_for_unanswered_requests_or_merged_ones() {
    let rig = rig(Depth::CACHED, 3);
    let parts = [rig.read(0, 0), rig.read(0, 1), rig.flush(0)];
    rig.turn();
    rig.driver.mark_dead(&rig.lanes[0], libc::ENODEV);
    assert_eq!(
        (rig.driver.unanswered_count(), rig.driver.in_flight()),
        (4, 4),
        "three, and the merged one that carries two of them"
    );
    drop(parts);
    assert_eq!((rig.driver.unanswered_count(), rig.driver.in_flight()), (4, 4));
}

#[test]
fn cut_reads_do_not_count_against_the_member_and_writes_continue() {
    let rig = rig(Depth::CACHED, 6);
    let mut reads = [rig.read(0, 0), rig.read(0, 1), rig.read(1, 0)];
    let mut write = rig.write(0, 3);
    rig.turn();
    rig.driver.cut_reads(&rig.lanes[0], libc::ERESTART);
    assert_eq!(
        [0, 1, 2].map(|n| result(&mut reads[n])),
        [Some((-libc::ERESTART, false)), Some((-libc::ERESTART, false)), None]
    );
    assert_eq!(result(&mut write), None);
    rig.check_ages(CHECKS_MAX + 1);
    assert_eq!(result(&mut write).map(|(result, _)| result), Some(-libc::ETIMEDOUT), "writes are still timed");
    rig.system.end(3);
    rig.turn();
    let mut after = rig.read(0, 5);
    rig.turn();
    rig.driver.cut_reads(&rig.lanes[0], libc::ERESTART);
    let mut next = rig.write(0, 7);
    rig.turn();
    rig.system.end(2);
    rig.turn();
    assert_eq!((result(&mut after), result(&mut next)), (Some((4096, true)), Some((4096, false))), "no refusal");
    assert_eq!(rig.driver.in_flight(), 0);
}

#[test]
fn a_member_that_never_answers_a_cut_read_is_late() {
    let rig = rig(Depth::CACHED, 6);
    let mut left = rig.read(0, 0);
    rig.turn();
    rig.driver.cut_reads(&rig.lanes[0], libc::ERESTART);
    assert_eq!(result(&mut left), Some((-libc::ERESTART, false)));
    rig.check_ages(CHECKS_MAX);
    // Otherwise new requests, such as the probes of whether the member answers again, could be submitted for ever.
    let mut probe = rig.read(0, 2);
    rig.turn();
    rig.check_ages(1);
    let mut next = rig.read(0, 4);
    assert_eq!((result(&mut probe), result(&mut next)), (None, Some((-libc::ETIMEDOUT, true))));
    let mut of_another = rig.read(1, 0);
    rig.turn();
    rig.system.end(3);
    rig.turn();
    assert_eq!((result(&mut probe), result(&mut of_another)), (Some((4096, true)), Some((4096, true))));
    let mut after = rig.read(0, 0);
    rig.turn();
    rig.system.end(1);
    rig.turn();
    assert_eq!(result(&mut after), Some((4096, true)), "it answers again");
    drop((left, next));
    assert_eq!(rig.driver.in_flight(), 0);
}
