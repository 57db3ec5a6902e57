//! Waiting on one shard: primitives for futures of one thread that wait for each other.
//! Owns: [`Notify`], [`oneshot`], [`Semaphore`], [`join_all`], [`join_each`], [`join_pair`], [`race`], [`yield_now`].
//! Not here: executors, timers, threads.
//! Invariant: a waiter is woken when its condition may have changed. A dropped waiter leaves nothing behind.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes all tasks that wait for a condition; each then checks it again.
#[derive(Default)]
pub struct Notify {
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// No task waits for it yet.
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes all waiting tasks.
    pub fn notify_all(&self) {
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits until `ready` returns a value. `ready` is called at once and after every notification.
    pub async fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        std::future::poll_fn(|context| match ready() {
            Some(value) => Poll::Ready(value),
            None => {
                let mut waiting = self.waiting.borrow_mut();
                if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                    waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
        })
        .await
    }
}

struct OneshotState<T> {
    value: Cell<Option<T>>,
    sender_gone: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// The sending half of a [`oneshot`].
pub struct Sender<T>(Rc<OneshotState<T>>);

/// The receiving half of a [`oneshot`]. Its future yields `None` if the sender was dropped without a value.
pub struct Receiver<T>(Rc<OneshotState<T>>);

/// A channel for one value between two tasks of the same shard.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let state = Rc::new(OneshotState { value: Cell::new(None), sender_gone: Cell::new(false), waker: Cell::new(None) });
    (Sender(state.clone()), Receiver(state))
}

impl<T> Sender<T> {
    /// Sends the value and wakes the receiver. No effect if the receiver was dropped.
    pub fn send(self, value: T) {
        self.0.value.set(Some(value));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.sender_gone.set(true);
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        if let Some(value) = self.0.value.take() {
            return Poll::Ready(Some(value));
        }
        if self.0.sender_gone.get() {
            return Poll::Ready(None);
        }
        self.0.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

struct Waiter {
    ticket: u64,
    amount: usize,
    waker: Waker,
}

/// A fixed number of permits, granted in the order of the calls.
pub struct Semaphore {
    free: Cell<usize>,
    tickets: Cell<u64>,
    queue: RefCell<VecDeque<Waiter>>,
}

/// Permits of a [`Semaphore`], given back on drop.
pub struct Permit {
    of: Rc<Semaphore>,
    amount: usize,
}

impl Semaphore {
    /// A semaphore with `permits` free.
    pub fn new(permits: usize) -> Rc<Semaphore> {
        Rc::new(Semaphore { free: Cell::new(permits), tickets: Cell::new(0), queue: RefCell::default() })
    }

    /// How many permits are free now.
    pub fn free(&self) -> usize {
        self.free.get()
    }

    /// How many permits the first waiter needs; `None` if there is no waiter.
    pub fn first_wanted(&self) -> Option<usize> {
        self.queue.borrow().front().map(|first| first.amount)
    }

    /// Waits for `amount` permits, after all earlier waiters. Waits for ever if `amount` is larger than the semaphore.
    pub async fn acquire(self: &Rc<Self>, amount: usize) -> Permit {
        let mut wait = AcquireGuard { of: self, ticket: None };
        std::future::poll_fn(|context| self.poll_acquire(&mut wait.ticket, amount, context)).await
    }

    /// Takes `amount` permits if they are free and no task waits.
    pub fn try_acquire(self: &Rc<Self>, amount: usize) -> Option<Permit> {
        if !self.queue.borrow().is_empty() || self.free.get() < amount {
            return None;
        }
        self.free.set(self.free.get() - amount);
        Some(Permit { of: self.clone(), amount })
    }

    fn poll_acquire(
        self: &Rc<Self>,
        ticket: &mut Option<u64>,
        amount: usize,
        context: &mut Context<'_>,
    ) -> Poll<Permit> {
        let mut queue = self.queue.borrow_mut();
        let is_first = match *ticket {
            None => queue.is_empty(),
            Some(mine) => queue.front().is_some_and(|first| first.ticket == mine),
        };
        if is_first && self.free.get() >= amount {
            if ticket.take().is_some() {
                queue.pop_front();
            }
            self.free.set(self.free.get() - amount);
            drop(queue);
            self.wake_first();
            return Poll::Ready(Permit { of: self.clone(), amount });
        }
        match *ticket {
            None => {
                let mine = self.tickets.get();
                self.tickets.set(mine + 1);
                *ticket = Some(mine);
                queue.push_back(Waiter { ticket: mine, amount, waker: context.waker().clone() });
            }
            Some(mine) => {
                let waiter = queue.iter_mut().find(|waiter| waiter.ticket == mine).expect("a ticket is in the queue");
                waiter.waker.clone_from(context.waker());
            }
        }
        Poll::Pending
    }

    fn wake_first(&self) {
        if let Some(first) = self.queue.borrow().front()
            && first.amount <= self.free.get()
        {
            first.waker.wake_by_ref();
        }
    }
}

struct AcquireGuard<'a> {
    of: &'a Rc<Semaphore>,
    ticket: Option<u64>,
}

impl Drop for AcquireGuard<'_> {
    fn drop(&mut self) {
        if let Some(mine) = self.ticket {
            self.of.queue.borrow_mut().retain(|waiter| waiter.ticket != mine);
            self.of.wake_first();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.free.set(self.of.free.get() + self.amount);
        self.of.wake_first();
    }
}

/// The state of one of several futures, kept in place until all have ended.
enum Stage<F: Future> {
    Running(F),
    Done(F::Output),
    Taken,
}

/// Runs all futures to their end and returns their values in order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    join_each(futures).await.collect()
}

/// As [`join_all`], but without a list of the values: one allocation holds everything. The futures are created by this
/// call and driven by awaiting the result.
pub fn join_each<F: Future>(futures: impl IntoIterator<Item = F>) -> JoinEach<F> {
    JoinEach { stages: futures.into_iter().map(Stage::Running).collect() }
}

/// The future that [`join_each`] returns.
pub struct JoinEach<F: Future> {
    stages: Vec<Stage<F>>,
}

/// The values of futures that have all ended, in the order of the futures.
pub struct Joined<F: Future>(std::vec::IntoIter<Stage<F>>);

impl<F: Future> Future for JoinEach<F> {
    type Output = Joined<F>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Joined<F>> {
        let mut pending = false;
        for stage in &mut self.stages {
            // SAFETY: the list does not grow, so its memory stays where it is.
            pending |= !unsafe { stage.poll(context) };
        }
        if pending { Poll::Pending } else { Poll::Ready(Joined(std::mem::take(&mut self.stages).into_iter())) }
    }
}

// The futures are behind the list's pointer: moving the list does not move them.
impl<F: Future> Unpin for JoinEach<F> {}

impl<F: Future> Iterator for Joined<F> {
    type Item = F::Output;
    fn next(&mut self) -> Option<F::Output> {
        self.0.next().map(|mut stage| stage.take())
    }
}

/// [`join_all`] of two futures, without an allocation.
pub fn join_pair<A: Future, B: Future>(first: A, second: B) -> JoinPair<A, B> {
    JoinPair { first: Stage::Running(first), second: Stage::Running(second) }
}

/// The future that [`join_pair`] returns.
pub struct JoinPair<A: Future, B: Future> {
    first: Stage<A>,
    second: Stage<B>,
}

impl<F: Future> Stage<F> {
    /// Drives the future if it has not ended. Returns whether it has.
    ///
    /// # Safety
    /// The stage stays where it is until it is dropped.
    unsafe fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let Stage::Running(future) = self else { return true };
        // SAFETY: the caller does not move the stage. A future in it is only polled and dropped in place.
        match unsafe { Pin::new_unchecked(future) }.poll(context) {
            Poll::Ready(output) => {
                *self = Stage::Done(output);
                true
            }
            Poll::Pending => false,
        }
    }

    /// The value of a future that has ended; it can be taken once.
    fn take(&mut self) -> F::Output {
        match std::mem::replace(self, Stage::Taken) {
            Stage::Done(output) => output,
            Stage::Running(_) | Stage::Taken => unreachable!("it has ended, and was not polled since"),
        }
    }
}

impl<A: Future, B: Future> Future for JoinPair<A, B> {
    type Output = (A::Output, B::Output);
    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(A::Output, B::Output)> {
        // SAFETY: nothing is moved out of the pair but the values of futures that have ended.
        let pair = unsafe { self.get_unchecked_mut() };
        // SAFETY: the pair is pinned, and the stages with it.
        let has_ended = unsafe { (pair.first.poll(context), pair.second.poll(context)) };
        if has_ended == (true, true) { Poll::Ready((pair.first.take(), pair.second.take())) } else { Poll::Pending }
    }
}

/// The first of two futures to end, with its value.
pub enum Either<A, B> {
    /// The left future ended first.
    Left(A),
    /// The right future ended first.
    Right(B),
}

/// Lets every task that is ready now run first.
pub async fn yield_now() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Drives both until one ends, and drops the other. If both are ready, the left one wins.
pub async fn race<A: Future, B: Future>(left: A, right: B) -> Either<A::Output, B::Output> {
    let mut left = pin!(left);
    let mut right = pin!(right);
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = left.as_mut().poll(context) {
            return Poll::Ready(Either::Left(value));
        }
        match right.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Either::Right(value)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn permits_are_granted_in_order_even_if_a_waiter_is_dropped() {
        let semaphore = Semaphore::new(2);
        let first = semaphore.try_acquire(2).expect("free");
        let mut big = Box::pin(semaphore.acquire(2));
        let mut small = Box::pin(semaphore.acquire(1));
        assert!(poll(big.as_mut()).is_pending());
        assert!(poll(small.as_mut()).is_pending());
        assert!(semaphore.try_acquire(1).is_none());
        drop(first);
        assert!(poll(small.as_mut()).is_pending(), "the big one was first");
        drop(big);
        assert!(poll(small.as_mut()).is_ready());
        assert_eq!(semaphore.free(), 2, "the permit was dropped with the poll's value");
    }

    #[test]
    fn a_dropped_sender_ends_the_wait() {
        let (sender, receiver) = oneshot::<u32>();
        let mut receiver = pin!(receiver);
        assert!(poll(receiver.as_mut()).is_pending());
        drop(sender);
        assert_eq!(poll(receiver.as_mut()), Poll::Ready(None));
    }

    #[test]
    fn join_gives_values_in_order() {
        let notify = Notify::new();
        let open = Cell::new(false);
        let mut all = Box::pin(join_all((0..3).map(|n| {
            let (notify, open) = (&notify, &open);
            async move {
                if n == 0 {
                    notify.wait_for(|| open.get().then_some(())).await;
                }
                n
            }
        })));
        assert!(poll(all.as_mut()).is_pending());
        open.set(true);
        assert_eq!(poll(all.as_mut()), Poll::Ready(vec![0, 1, 2]));
    }
}
