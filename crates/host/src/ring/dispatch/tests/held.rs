//! Requests that are held for one in flight: for how long, and that none is held twice.
//! Owns: tests of holding, step by step. Not here: merging (`tests`), whether everything ends (there, with an unruly disk).

use super::*;

/// The start of fragments that continue a request in flight.
const P: u64 = 1 << 20;

/// Completes the requests in flight one by one, the oldest first.
fn one_by_one() -> Rig {
    slow_rig(&[], 1)
}

impl Rig {
    /// Submits what is due, and completes nothing.
    fn send(&self) -> Vec<(&'static str, u64, u64)> {
        self.driver.send_waiting(Which::Due);
        self.seen()
    }

    fn end_oldest(&self) {
        self.driver.wait(Wait::No);
        assert!(self.seen().is_empty(), "nothing was due before the end");
    }
}

/// Two requests in flight, the older one ending at `P + 1024`, the other at `P`, and a fragment held for each.
fn two_held(rig: &Rig) -> Vec<Operation<'_>> {
    let mut all = vec![rig.read(P + 1024 - 8192, 8192)];
    assert_eq!(rig.send().len(), 1);
    all.push(rig.read(P - 8192, 8192));
    assert_eq!(rig.send().len(), 1);
    all.extend([rig.read(P, 512), rig.read(P + 1024, 512)]);
    assert_eq!(rig.send(), [], "both are held");
    all
}

#[test]
fn a_fragment_whose_request_ended_is_submitted_with_its_held_neighbours() {
    // The request that joins the two fragments arrives after the older request has ended, or before.
    for comes_later in [true, false] {
        let rig = one_by_one();
        let mut all = two_held(&rig);
        if comes_later {
            rig.end_oldest();
            all.push(rig.read(P + 512, 512));
        } else {
            all.push(rig.read(P + 512, 512));
            assert_eq!(rig.send(), [], "all three are held");
            rig.end_oldest();
        }
        assert_eq!(rig.send(), [("read", P, 1536)], "comes later: {comes_later}");
        assert_eq!(rig.results(all, 3), [8192, 8192, 512, 512, 512]);
    }
}

#[test]
fn each_of_two_fragments_waits_for_its_own_request() {
    let rig = one_by_one();
    let all = two_held(&rig);
    rig.end_oldest();
    assert_eq!(rig.send(), [("read", P + 1024, 512)]);
    rig.end_oldest();
    assert_eq!(rig.send(), [("read", P, 512)]);
    assert_eq!(rig.results(all, 3), [8192, 8192, 512, 512]);
}

#[test]
fn a_fragment_is_not_held_for_a_second_request_that_ends_where_it_begins() {
    let rig = one_by_one();
    // Both end at P. The fragment is held for one of them only.
    let mut all = vec![rig.read(P - 8192, 8192), rig.read(P - 4096, 4096)];
    assert_eq!(rig.send().len(), 2);
    all.push(rig.read(P, 512));
    assert_eq!(rig.send(), []);
    rig.end_oldest();
    assert_eq!(rig.send(), [("read", P, 512)]);
    assert_eq!(rig.results(all, 2), [8192, 4096, 512]);
}

#[test]
fn a_fragment_is_not_held_for_another_request_in_the_slot_of_the_first() {
    let rig = one_by_one();
    let mut first = rig.read(P - 8192, 8192);
    rig.send();
    let fragment = rig.read(P, 512);
    assert_eq!(rig.send(), []);
    rig.end_oldest();
    let token = first.token;
    assert!(pin!(&mut first).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    let other = rig.read(0, 8192);
    assert_eq!(other.token, token, "the slot is used again");
    assert_eq!(rig.send(), [("read", 0, 8192), ("read", P, 512)]);
    assert_eq!(rig.results(vec![fragment, other], 2), [512, 8192]);
}

#[test]
fn a_fragment_that_gets_a_neighbour_in_front_stays_held_for_the_same_request() {
    let rig = one_by_one();
    let mut all = vec![rig.read(P - 8192, 8192)];
    rig.send();
    all.push(rig.read(P, 512));
    assert_eq!(rig.send(), []);
    all.push(rig.read(P - 512, 512));
    assert_eq!(rig.send(), [], "together they are a fragment still");
    rig.end_oldest();
    assert_eq!(rig.send(), [("read", P - 512, 1024)]);
    assert_eq!(rig.results(all, 1), [8192, 512, 512]);
}

#[test]
fn what_continues_a_fragment_and_is_too_long_to_be_merged_with_it_is_submitted_after_it() {
    let rig = one_by_one();
    let mut all = vec![rig.read(P - 8192, 8192)];
    rig.send();
    all.push(rig.read(P, 512));
    assert_eq!(rig.send(), []);
    all.push(rig.read(P + 512, 32 << 10));
    assert_eq!(rig.send(), [], "it has as many segments as a request of the lane may have");
    rig.end_oldest();
    assert_eq!(rig.send(), [("read", P, 512), ("read", P + 512, 32 << 10)]);
    assert_eq!(rig.results(all, 2), [8192, 512, 32 << 10]);
}

#[test]
fn a_write_that_overlaps_a_held_one_is_submitted_after_it() {
    let rig = one_by_one();
    let page = || rig.arena.take(8192).expect("room").freeze();
    let mut all = vec![rig.write(P - 8192, page(), false)];
    rig.send();
    all.extend((0..3).map(|n| rig.write(n << 16, page(), false)));
    all.push(rig.write(P, page().slice(0, 1024), false));
    assert_eq!(rig.send().len(), 3, "the last one is held");
    all.push(rig.write(P, page().slice(0, 512), false));
    assert_eq!(rig.send(), [("write", P, 1024), ("write", P, 512)]);
    assert_eq!(rig.results(all, 6), [8192, 8192, 8192, 8192, 1024, 512]);
}

#[test]
fn held_requests_are_submitted_before_any_flush_and_when_the_driver_closes() {
    let rig = one_by_one();
    let other = Rc::new(Lane::new(Rc::new(NoFile), 0, Limits { bytes_max: 64 << 10, segments_max: 8 }, None));
    let page = || rig.arena.take(8192).expect("room").freeze();
    let mut all = vec![rig.write(P - 8192, page(), false)];
    rig.send();
    all.push(rig.write(P, page().slice(0, 512), false));
    assert_eq!(rig.send(), []);
    all.push(rig.driver.start_with(&other, other.clone(), Kind::Sync, Buffers::None));
    assert_eq!(rig.seen(), [("write", P, 512), ("flush", 0, 0)]);
    all.push(rig.write(2 * P - 8192, page(), true));
    rig.send();
    all.push(rig.write(2 * P, page().slice(0, 512), true));
    assert_eq!(rig.send(), []);
    all.iter_mut().for_each(|operation| drop(pin!(operation).poll(&mut Context::from_waker(Waker::noop()))));
    assert!(rig.driver.close(std::time::Duration::from_secs(60)));
    assert_eq!(rig.seen(), [("durable", 2 * P, 512)]);
    assert_eq!(rig.results(all, 0), [8192, 512, 0, 8192, 512]);
}
