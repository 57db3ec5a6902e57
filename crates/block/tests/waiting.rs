//! Waiting on one shard, in every order of polls and drops: no wake is lost, and permits are granted in order and
//! returned.

mod every_order;

use every_order::{Bounds, Program, Task, explore, step};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use uraid_block::local::{Either, Notify, Receiver, Semaphore, Sender, join_all, join_each, oneshot, race, yield_now};

/// A model of a semaphore: which tasks wait for permits, and how many permits are held.
struct Model {
    semaphore: Rc<Semaphore>,
    permits: usize,
    held: Cell<usize>,
    waiting: RefCell<Vec<u32>>,
    names: Cell<u32>,
}

/// A task in the model; removed on drop.
struct ModelTask {
    model: Rc<Model>,
    name: u32,
    held: usize,
}

impl Drop for ModelTask {
    fn drop(&mut self) {
        self.model.waiting.borrow_mut().retain(|name| *name != self.name);
        self.model.held.set(self.model.held.get() - self.held);
    }
}

impl Model {
    fn new(permits: usize) -> Rc<Model> {
        let semaphore = Semaphore::new(permits);
        Rc::new(Model { semaphore, permits, held: Cell::new(0), waiting: RefCell::default(), names: Cell::new(0) })
    }

    fn line(self: &Rc<Self>) -> ModelTask {
        let name = self.names.get();
        self.names.set(name + 1);
        self.waiting.borrow_mut().push(name);
        ModelTask { model: self.clone(), name, held: 0 }
    }

    /// Acquires permits, holds them for one turn, returns them.
    async fn hold(self: Rc<Self>, amount: usize) {
        let mut line = self.line();
        let permit = self.semaphore.acquire(amount).await;
        step();
        line.granted(amount);
        yield_now().await;
        step();
        drop(line);
        drop(permit);
    }

    /// Takes permits only if that needs no waiting.
    async fn try_to_hold(self: Rc<Self>, amount: usize) {
        let is_waited_for = !self.waiting.borrow().is_empty();
        let permit = self.semaphore.try_acquire(amount);
        assert!(permit.is_none() || !is_waited_for, "taken before those that wait");
        if permit.is_some() {
            let mut line = self.line();
            line.granted(amount);
            yield_now().await;
        }
    }

    fn program(self: Rc<Self>, tasks: Vec<Task>) -> Program {
        let at_end = move || {
            assert_eq!(self.semaphore.free(), self.permits, "all permits come back");
            assert!(self.semaphore.try_acquire(self.permits).is_some(), "a waiter was left behind");
        };
        Program { tasks, at_end: Box::new(at_end) }
    }
}

impl ModelTask {
    fn granted(&mut self, amount: usize) {
        let first = self.model.waiting.borrow_mut().remove(0);
        assert_eq!(first, self.name, "permits are given in the order in which they were asked for");
        self.held = amount;
        self.model.held.set(self.model.held.get() + amount);
        assert!(self.model.held.get() <= self.model.permits, "more permits than there are");
        assert_eq!(self.model.semaphore.free(), self.model.permits - self.model.held.get());
    }
}

fn bounds(drops_max: u32, spurious_max: u32) -> Bounds {
    Bounds { drops_max, spurious_max }
}

#[test]
fn a_waiter_is_woken_when_its_permits_are_free_and_no_permit_is_lost() {
    for (permits, amounts) in
        [(1, &[1, 1, 1][..]), (2, &[1, 1, 1]), (2, &[2, 1, 1]), (2, &[1, 2, 1]), (2, &[1, 1, 2]), (3, &[2, 2, 1])]
    {
        let runs = explore(&format!("{permits} permits, {amounts:?}"), bounds(2, 1), || {
            let model = Model::new(permits);
            let tasks = amounts.iter().map(|&amount| Box::pin(model.clone().hold(amount)) as Task).collect();
            model.program(tasks)
        });
        assert!(runs > 1000, "{runs}");
    }
}

#[test]
fn two_small_waiters_get_the_permits_of_a_large_one() {
    let runs = explore("one large, two small, one that tries", bounds(1, 1), || {
        let model = Model::new(2);
        let tasks: Vec<Task> = vec![
            Box::pin(model.clone().hold(2)),
            Box::pin(model.clone().hold(1)),
            Box::pin(model.clone().hold(1)),
            Box::pin(model.clone().try_to_hold(1)),
        ];
        model.program(tasks)
    });
    assert!(runs > 1000, "{runs}");
}

#[test]
fn a_granted_permit_wakes_the_next_waiter_while_permits_remain() {
    explore("two that hold one permit each at the same time", bounds(0, 1), || {
        let (model, notify, holding) = (Model::new(2), Rc::new(Notify::new()), Rc::new(Cell::new(0)));
        let meets = || -> Task {
            let (model, notify, holding) = (model.clone(), notify.clone(), holding.clone());
            Box::pin(async move {
                let _permit = model.semaphore.acquire(1).await;
                step();
                holding.set(holding.get() + 1);
                notify.notify_all();
                notify.wait_for(|| (holding.get() == 2).then_some(())).await;
                step();
            })
        };
        let (first, second) = (meets(), meets());
        let all = model.semaphore.try_acquire(2).expect("free");
        let gives_back: Task = Box::pin(async move { drop(all) });
        model.program(vec![first, second, gives_back])
    });
}

#[test]
fn a_dropped_waiter_lets_the_ones_behind_it_continue() {
    explore("a large waiter loses a race", bounds(1, 1), || {
        let (model, notify, is_over) = (Model::new(2), Rc::new(Notify::new()), Rc::new(Cell::new(false)));
        let (ends, over) = (notify.clone(), is_over.clone());
        let (waits, waits_over, large) = (notify, is_over, model.clone());
        let tasks: Vec<Task> = vec![
            Box::pin(model.clone().hold(1)),
            Box::pin(async move {
                let over = waits.wait_for(|| waits_over.get().then_some(()));
                match race(large.hold(2), over).await {
                    Either::Left(()) | Either::Right(()) => step(),
                }
            }),
            Box::pin(model.clone().hold(1)),
            Box::pin(async move {
                over.set(true);
                ends.notify_all();
            }),
        ];
        model.program(tasks)
    });
}

#[test]
fn a_task_that_waits_for_several_things_is_woken_by_each() {
    explore("two permits of one task", bounds(1, 1), || {
        let model = Model::new(2);
        let (one, two) = (model.clone(), model.clone());
        let tasks: Vec<Task> = vec![
            Box::pin(model.clone().hold(2)),
            Box::pin(async move {
                join_all([one.clone().hold(1), one.hold(1)]).await;
                step();
            }),
            Box::pin(async move {
                assert_eq!(join_each([two.hold(1)]).await.count(), 1);
                step();
            }),
        ];
        model.program(tasks)
    });
}

fn ends_well(tasks: Vec<Task>) -> Program {
    Program { tasks, at_end: Box::new(|| ()) }
}

#[test]
fn every_waiter_is_woken_by_a_change() {
    explore("three waiters, two changes", bounds(2, 1), || {
        let (notify, level) = (Rc::new(Notify::new()), Rc::new(Cell::new(0)));
        let waiter = |wanted: u32| -> Task {
            let (notify, level) = (notify.clone(), level.clone());
            Box::pin(async move {
                let found = notify.wait_for(|| (level.get() >= wanted).then(|| level.get())).await;
                assert!(found >= wanted);
                step();
            })
        };
        let mut tasks = vec![waiter(1), waiter(2), waiter(1)];
        tasks.push(Box::pin(async move {
            for _ in 0..2 {
                level.set(level.get() + 1);
                notify.notify_all();
                yield_now().await;
                step();
            }
        }));
        ends_well(tasks)
    });
}

#[test]
fn a_value_or_a_dropped_sender_wakes_the_receiver() {
    let sends = |sender: Sender<u32>| -> Task {
        Box::pin(async move {
            yield_now().await;
            step();
            sender.send(7);
        })
    };
    let receives = |receiver: Receiver<u32>, may_be_none: bool| -> Task {
        Box::pin(async move {
            let value = receiver.await;
            assert!(value == Some(7) || (may_be_none && value.is_none()));
            step();
        })
    };
    explore("one value", bounds(0, 2), || {
        let (sender, receiver) = oneshot();
        ends_well(vec![sends(sender), receives(receiver, false)])
    });
    explore("one value, or none", bounds(1, 2), || {
        let (sender, receiver) = oneshot();
        ends_well(vec![sends(sender), receives(receiver, true)])
    });
    explore("a sender that is dropped", bounds(1, 2), || {
        let (sender, receiver) = oneshot::<u32>();
        let drops: Task = Box::pin(async move {
            yield_now().await;
            step();
            drop(sender);
        });
        let receives: Task = Box::pin(async move {
            assert_eq!(receiver.await, None);
            step();
        });
        ends_well(vec![drops, receives])
    });
}

#[test]
fn a_race_or_join_continues_whichever_part_ends_first() {
    for is_joined in [false, true] {
        explore(&format!("two senders, joined: {is_joined}"), bounds(1, 1), || {
            let ((left, from_left), (right, from_right)) = (oneshot(), oneshot());
            let sends = |sender: Sender<u32>, value| -> Task {
                Box::pin(async move {
                    yield_now().await;
                    step();
                    sender.send(value);
                })
            };
            let receives: Task = Box::pin(async move {
                if is_joined {
                    let values = join_all([from_left, from_right]).await;
                    assert!(matches!(values[..], [Some(1) | None, Some(2) | None]), "in order: {values:?}");
                } else {
                    match race(from_left, from_right).await {
                        Either::Left(value) => assert!(matches!(value, Some(1) | None)),
                        Either::Right(value) => assert!(matches!(value, Some(2) | None)),
                    }
                }
                step();
            });
            ends_well(vec![receives, sends(left, 1), sends(right, 2)])
        });
    }
}

#[test]
fn a_part_of_a_join_may_wait_for_a_later_part_and_a_race_for_either_side() {
    explore("the first part waits for the second", bounds(0, 1), || {
        let (sender, receiver) = oneshot();
        let mut sender = Some(sender);
        let mut receiver = Some(receiver);
        let parts = [true, false].map(|is_first| {
            let (sends, receives) = if is_first { (None, receiver.take()) } else { (sender.take(), None) };
            async move {
                if let Some(receives) = receives {
                    assert_eq!(receives.await, Some(7));
                }
                if let Some(sends) = sends {
                    sends.send(7);
                }
            }
        });
        ends_well(vec![Box::pin(async move { drop(join_all(parts).await) })])
    });
    for is_left in [false, true] {
        explore(&format!("one side never ends, left: {is_left}"), bounds(0, 1), || {
            let (sender, receiver) = oneshot();
            let never = std::future::pending::<Option<u32>>();
            let receives: Task = if is_left {
                Box::pin(async move { assert!(matches!(race(never, receiver).await, Either::Right(Some(7)))) })
            } else {
                Box::pin(async move { assert!(matches!(race(receiver, never).await, Either::Left(Some(7)))) })
            };
            let sends: Task = Box::pin(async move {
                yield_now().await;
                sender.send(7);
            });
            ends_well(vec![receives, sends])
        });
    }
    let mut both = pin!(race(std::future::ready(1), std::future::ready(2)));
    assert!(matches!(every_order::poll_once(both.as_mut()), Poll::Ready(Either::Left(1))), "the left one wins a tie");
}

struct Counted(AtomicU32);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waiter_that_is_polled_repeatedly_queues_once() {
    let (notify, is_open) = (Notify::new(), Cell::new(false));
    let counted = Arc::new(Counted(AtomicU32::new(0)));
    let waker = Waker::from(counted.clone());
    let mut wait = pin!(notify.wait_for(|| is_open.get().then_some(())));
    for _ in 0..100 {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    notify.notify_all();
    assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    notify.notify_all();
    assert_eq!(counted.0.load(Ordering::Relaxed), 1, "it has not asked again");
    is_open.set(true);
    assert_eq!(wait.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(()));
}

#[test]
fn only_the_first_waiter_is_woken_and_only_if_enough_permits_are_free() {
    let semaphore = Semaphore::new(2);
    let (one, other) = (semaphore.try_acquire(1).expect("free"), semaphore.try_acquire(1).expect("free"));
    let counted = [(); 2].map(|()| Arc::new(Counted(AtomicU32::new(0))));
    let wakes = || counted.each_ref().map(|counted| counted.0.load(Ordering::Relaxed));
    let mut first = Box::pin(semaphore.acquire(2));
    let mut second = Box::pin(semaphore.acquire(1));
    let wakers = counted.each_ref().map(|counted| Waker::from(counted.clone()));
    assert!(first.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    drop(one);
    assert_eq!(wakes(), [0, 0], "one permit is not two");
    drop(other);
    assert_eq!(wakes(), [1, 0]);
    drop(first);
    assert_eq!(wakes(), [1, 1], "the second one is the first now");
}
