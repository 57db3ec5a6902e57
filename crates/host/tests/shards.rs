//! Shards as a whole: mail, timers, wakes, their end.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uraid_block::ShardIndex;
use uraid_block::local::{Either, Notify, join_all, race, yield_now};
use uraid_host::{ArenaBlocks, Options, RingChoice, Shard, run};

fn options(ring: RingChoice) -> Options {
    Options { ring, arenas: [ArenaBlocks { small: 16, large: 2 }; 5], ..Options::default() }
}

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];

struct Message {
    from: ShardIndex,
    number: u64,
}

async fn exchange(shard: Shard<Message>, messages: u64) -> u64 {
    let count = shard.count();
    let last = Rc::new(RefCell::new(vec![0; usize::from(count)]));
    let came = Rc::new(Notify::new());
    shard.on_mail({
        let (last, came) = (last.clone(), came.clone());
        move |message: Message| {
            let last = &mut last.borrow_mut()[usize::from(message.from.0)];
            assert_eq!(message.number, *last + 1, "in order, each once");
            *last = message.number;
            came.notify_all();
        }
    });
    let from = shard.index();
    for number in 1..=messages {
        for to in 0..count {
            shard.post(ShardIndex(to), Message { from, number });
        }
        if number % 7 == 0 {
            shard.sleep(Duration::from_micros(number % 3 * 20)).await;
        }
    }
    came.wait_for(|| last.borrow().iter().all(|&number| number == messages).then_some(())).await;
    messages * u64::from(count)
}

#[test]
fn mail_arrives_once_and_in_order_between_all_shards() {
    for ring in RINGS {
        for shards in [1, 2, 4] {
            let values = run(shards, &options(ring), |shard| exchange(shard, 2000));
            assert_eq!(values, vec![2000 * u64::from(shards); usize::from(shards)]);
        }
    }
}

#[test]
fn timers_and_completions_are_served_between_a_few_long_polls() {
    for ring in RINGS {
        run::<(), _, _, _>(1, &options(ring), async |shard| {
            let polls = Rc::new(Cell::new(0));
            for _ in 0..32 {
                let polls = polls.clone();
                shard.spawn(async move {
                    loop {
                        std::thread::sleep(Duration::from_millis(1));
                        polls.set(polls.get() + 1);
                        yield_now().await;
                    }
                });
            }
            shard.sleep(Duration::from_millis(1)).await;
            let before = polls.get();
            shard.sleep(Duration::from_millis(1)).await;
            assert!(polls.get() - before <= 16, "{} polls before a timer of 1 ms", polls.get() - before);
        });
    }
}

#[test]
fn a_message_wakes_a_shard_that_sleeps() {
    for ring in RINGS {
        let rounds = 2000u32;
        run(2, &options(ring), |shard: Shard<u32>| async move {
            let other = ShardIndex(1 - shard.index().0);
            let seen = Rc::new(Cell::new(0));
            let came = Rc::new(Notify::new());
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
            if shard.index() == ShardIndex(0) {
                shard.post(other, 1);
            }
            came.wait_for(|| (seen.get() + 1 >= rounds).then_some(())).await;
        });
    }
}

#[test]
fn a_message_to_the_own_shard_is_handled_later() {
    run(1, &options(RingChoice::Auto), |shard: Shard<u32>| async move {
        let seen = Rc::new(RefCell::new(Vec::new()));
        shard.post(ShardIndex(0), 1);
        shard.on_mail({
            let (seen, shard) = (seen.clone(), shard.clone());
            move |number| {
                seen.borrow_mut().push(number);
                if number == 1 {
                    shard.post(ShardIndex(0), 2);
                    seen.borrow_mut().push(100);
                }
            }
        });
        assert!(seen.borrow().is_empty());
        shard.sleep(Duration::from_millis(2)).await;
        assert_eq!(*seen.borrow(), [1, 100, 2]);
    });
}

#[test]
fn timers_fire_in_order_and_not_early() {
    for ring in RINGS {
        run(1, &options(ring), |shard: Shard<()>| async move {
            let order = RefCell::new(Vec::new());
            let start = Instant::now();
            join_all([30u64, 10, 20, 0].into_iter().map(|millis| {
                let (shard, order) = (&shard, &order);
                async move {
                    let before = shard.now();
                    shard.sleep(Duration::from_millis(millis)).await;
                    assert!(shard.now().since(before) >= Duration::from_millis(millis));
                    order.borrow_mut().push(millis);
                }
            }))
            .await;
            assert_eq!(*order.borrow(), [0, 10, 20, 30]);
            assert!(start.elapsed() < Duration::from_millis(500), "a sleeping shard wakes for its timers");
        });
    }
}

#[test]
fn tasks_end_with_the_main_future_and_drop_what_they_hold() {
    struct Counted<'a>(&'a AtomicU64);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    static DROPPED: AtomicU64 = AtomicU64::new(0);
    run(2, &options(RingChoice::Auto), |shard: Shard<()>| async move {
        for _ in 0..100 {
            let holds = (Counted(&DROPPED), shard.clone());
            shard.spawn(async move {
                let (_counted, shard) = holds;
                loop {
                    shard.sleep(Duration::from_secs(3600)).await;
                }
            });
        }
        shard.on_mail({
            let holds = (Counted(&DROPPED), shard.clone());
            move |()| drop(holds.1.clone())
        });
        shard.sleep(Duration::from_millis(1)).await;
        assert_eq!(shard.tasks(), 100);
    });
    assert_eq!(DROPPED.load(Ordering::Relaxed), 202);
}

#[test]
fn run_returns_the_values_in_shard_order_and_lets_shards_borrow() {
    let outside = [10, 20, 30];
    let values = run(3, &options(RingChoice::Auto), |shard: Shard<()>| {
        let outside = &outside;
        async move { outside[usize::from(shard.index().0)] }
    });
    assert_eq!(values, outside);
}

#[test]
fn a_shard_does_not_sleep_while_tasks_are_ready() {
    for ring in RINGS {
        run(1, &options(ring), |shard: Shard<()>| async move {
            let (left, ended) = (Rc::new(Cell::new(1000)), Rc::new(Notify::new()));
            for _ in 0..left.get() {
                let (left, ended) = (left.clone(), ended.clone());
                shard.spawn(async move {
                    for _ in 0..3 {
                        yield_now().await;
                    }
                    left.set(left.get() - 1);
                    ended.notify_all();
                });
            }
            let all = ended.wait_for(|| (left.get() == 0).then_some(()));
            // A shard that sleeps while tasks are ready is only woken by this timer.
            assert!(matches!(race(all, shard.sleep(Duration::from_secs(20))).await, Either::Left(())));
        });
    }
}
