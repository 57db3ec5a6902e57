//! Tests of the executor by itself: slots, wakes, the end of tasks.
//! Owns: the tests of `executor`. Not here: whole shards (`tests/shards.rs`).

use super::*;
use std::rc::Rc;
use std::sync::Mutex;
use uraid_block::local::yield_now;

/// Stores its waker and waits until the waker was used once.
async fn wait_once(waker: Rc<RefCell<Option<Waker>>>) {
    let mut has_waited = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        *waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
}

struct DropLog(Rc<RefCell<Vec<u32>>>, u32);

impl Drop for DropLog {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

#[test]
fn tasks_of_every_size_complete_and_their_slots_are_reused() {
    let executor = Executor::new(Door::new());
    let _entered = executor.enter();
    let ended = Rc::new(Cell::new(0usize));
    for round in 0..10 {
        for n in 0..1000usize {
            let ended = ended.clone();
            let end = async move { ended.set(ended.get() + 1) };
            match n % 10 {
                0 => {
                    let ballast = [n as u8; 2000];
                    executor.spawn(async move {
                        yield_now().await;
                        assert!(ballast.iter().all(|&byte| byte == n as u8));
                        end.await;
                    });
                }
                1 => {
                    let ballast = [n as u8; 9000];
                    executor.spawn(async move {
                        yield_now().await;
                        assert!(ballast.iter().all(|&byte| byte == n as u8));
                        end.await;
                    });
                }
                _ => executor.spawn(async move {
                    yield_now().await;
                    end.await;
                }),
            }
        }
        assert_eq!(executor.tasks(), 1000);
        assert_eq!(executor.turn(usize::MAX), 2000);
        assert_eq!((executor.tasks(), ended.get()), (0, 1000 * (round + 1)));
    }
    assert!(executor.0.tasks.borrow().len() <= 1200, "slots are reused");
    assert_eq!(executor.0.chunks.borrow().len(), 800usize.div_ceil(SMALL_PER_CHUNK) + 100usize.div_ceil(16));
}

#[test]
fn the_size_of_a_future_selects_its_slot_class() {
    assert_eq!(class_of(Layout::from_size_align(512, 64).expect("sane")), Class::Small);
    assert_eq!(class_of(Layout::from_size_align(513, 8).expect("sane")), Class::Large);
    assert_eq!(class_of(Layout::from_size_align(4096, 8).expect("sane")), Class::Large);
    assert_eq!(class_of(Layout::from_size_align(4097, 8).expect("sane")), Class::Boxed);
    assert_eq!(class_of(Layout::from_size_align(128, 128).expect("sane")), Class::Boxed);
}

#[test]
fn close_drops_the_remaining_tasks_once_in_slot_order_and_ignores_what_they_spawn() {
    struct SpawnsOnDrop(Rc<Executor>, Rc<RefCell<Vec<u32>>>);
    impl Drop for SpawnsOnDrop {
        fn drop(&mut self) {
            let told = DropLog(self.1.clone(), 99);
            self.0.spawn(async move { drop(told) });
        }
    }
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let executor = Rc::new(Executor::new(Door::new()));
    for n in 0..5 {
        let told = DropLog(dropped.clone(), n);
        executor.spawn(async move {
            let _told = told;
            std::future::pending::<()>().await;
        });
    }
    let spawns = SpawnsOnDrop(executor.clone(), dropped.clone());
    executor.spawn(async move {
        let _spawns = spawns;
        std::future::pending::<()>().await;
    });
    executor.turn(usize::MAX);
    executor.close();
    assert_eq!(*dropped.borrow(), [0, 1, 2, 3, 4, 99]);
    assert_eq!((executor.tasks(), Rc::strong_count(&executor)), (0, 1));
}

#[test]
fn a_wake_from_another_thread_arrives() {
    let door = Door::new();
    let executor = Executor::new(door.clone());
    let _entered = executor.enter();
    let wakers = Arc::new(Mutex::new(Vec::new()));
    let ended = Rc::new(Cell::new(0));
    for _ in 0..100 {
        let (wakers, ended) = (wakers.clone(), ended.clone());
        executor.spawn(async move {
            let waker = Rc::new(RefCell::new(None));
            let mut wait = std::pin::pin!(wait_once(waker.clone()));
            std::future::poll_fn(|context| {
                let poll = wait.as_mut().poll(context);
                wakers.lock().expect("no panics").extend(waker.take());
                poll
            })
            .await;
            ended.set(ended.get() + 1);
        });
    }
    executor.turn(usize::MAX);
    assert!(!executor.is_busy() || executor.0.main_is_woken.get());
    let taken = std::mem::take(&mut *wakers.lock().expect("no panics"));
    let other = std::thread::spawn(move || taken.into_iter().for_each(Waker::wake));
    while ended.get() < 100 {
        if door.take_knock() {
            executor.take_remote_wakes();
        }
        executor.turn(usize::MAX);
    }
    other.join().expect("no panics");
}

#[test]
fn a_waker_that_outlived_its_task_wakes_no_task() {
    let executor = Executor::new(Door::new());
    let entered = executor.enter();
    let waker = Rc::new(RefCell::new(None));
    executor.spawn(wait_once(waker.clone()));
    executor.turn(usize::MAX);
    let old = waker.take().expect("polled");
    old.wake_by_ref();
    executor.turn(usize::MAX);
    assert_eq!(executor.tasks(), 0);
    // The slot is reused.
    executor.spawn(wait_once(waker.clone()));
    executor.turn(usize::MAX);
    assert!(!waker.borrow().as_ref().expect("polled").will_wake(&old));
    old.wake_by_ref();
    assert_eq!(executor.turn(usize::MAX), 0);
    drop(entered);
    drop(executor);
    old.wake();
}

#[test]
fn a_panic_of_a_task_propagates_to_the_caller_of_turn() {
    let executor = Executor::new(Door::new());
    let _entered = executor.enter();
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let told = DropLog(dropped.clone(), 7);
    executor.spawn(async move {
        let _told = told;
        yield_now().await;
        panic!("on purpose");
    });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.turn(usize::MAX)));
    assert!(caught.is_err());
    executor.close();
    assert_eq!(*dropped.borrow(), [7], "dropped once");
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn what_a_task_costs() {
    let executor = Executor::new(Door::new());
    let _entered = executor.enter();
    let count = 2_000_000u32;
    for (what, yields) in [("spawn and end", 0), ("spawn, one wake, end", 1)] {
        for _ in 0..2 {
            let start = crate::sys::monotonic_nanos();
            for _ in 0..count / 64 {
                for _ in 0..64 {
                    executor.spawn(async move {
                        for _ in 0..yields {
                            yield_now().await;
                        }
                    });
                }
                executor.turn(usize::MAX);
            }
            let nanos = crate::sys::monotonic_nanos() - start;
            println!("{what}: {:.1} ns per task", nanos as f64 / f64::from(count));
        }
    }
}
