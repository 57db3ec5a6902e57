//! A healthy read costs no allocation, on any level, and a small write of copies neither: counted, on members in memory
//! that answer at once.

#[path = "../../block/tests/counting/mod.rs"]
mod counting;
mod machine;

use counting::allocations;
use machine::started;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use uraid_block::{Arena, Device, Fua, Sector};
use uraid_layout::Level;

#[test]
fn a_healthy_read_allocates_nothing() {
    let levels = [
        (Level::Linear, 2),
        (Level::Raid0, 4),
        (Level::Raid1, 3),
        (Level::Raid10, 4),
        (Level::Raid4, 4),
        (Level::Raid5, 5),
        (Level::Raid6, 8),
    ];
    for (level, members) in levels {
        let (_machine, array) = started(level, members, Duration::ZERO);
        let arena = Arena::new(4, 0);
        let mut context = Context::from_waker(Waker::noop());
        let before = allocations();
        for at in (0..10_000).step_by(8) {
            let into = arena.take(4096).expect("the last read gave its buffer back");
            let mut read = pin!(array.read(Sector(at), into));
            match read.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => assert_eq!(outcome.expect("the member is healthy").bytes(), 4096),
                Poll::Pending => panic!("a request to members that answer at once does not wait"),
            }
        }
        assert_eq!(allocations() - before, 0, "{}", level.name());
    }
}

#[test]
fn a_small_write_of_copies_allocates_nothing() {
    for (level, members) in [(Level::Linear, 2), (Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid10, 4)] {
        let (machine, array) = started(level, members, Duration::ZERO);
        let arena = Arena::new(4, 0);
        let mut context = Context::from_waker(Waker::noop());
        // The first write waits for the dirty mark, and makes the lists that later writes use again.
        let (first, bytes) = (array.clone(), arena.take_zeroed(4096).expect("nothing is taken"));
        let write = async move { first.write(Sector(0), bytes.freeze(), Fua::No).await.expect("written") };
        machine.run(vec![Box::pin(write)]);
        let before = allocations();
        for at in (0..10_000).step_by(8) {
            let from = arena.take_zeroed(4096).expect("the last write gave its buffer back").freeze();
            let mut write = pin!(array.write(Sector(at), from, Fua::No));
            match write.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => outcome.expect("the members are healthy"),
                Poll::Pending => panic!("a request to members that answer at once does not wait"),
            }
        }
        assert_eq!(allocations() - before, 0, "{}", level.name());
    }
}
