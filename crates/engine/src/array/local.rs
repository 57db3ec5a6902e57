//! A [`World`] of one shard whose caller is its event loop: for embedders, and for tests.
//! Owns: [`LocalWorld`]: a clock that the caller sets, its timers, tasks, mail and buffers; [`LocalArray`]: an array in one.
//! Not here: threads, I/O, a clock that moves by itself; arrays over several shards (`uraid-host` with `uraid-arrays`).
//! Invariant: tasks are polled in the order in which they were started, each only after its waker was called. The same
//! calls on devices that answer alike have the same course.
//!
//! ```text
//!   run(future)     for devices that answer at once: when nothing is ready, the clock goes on to the next timer
//!   turn(now)       for a program with its own event loop: polls what is ready, says when the next timer is due
//! ```

#[cfg(test)]
mod tests;

use crate::{Array, Config, Mail, Pool, StartPlan, World};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use uraid_block::{Arena, Device, ShardIndex, Tick};

/// Blocks of each pool: of 4 KiB, and of 64 KiB at least. Memory that is not used is not touched.
const SMALL_BLOCKS: u32 = 16;
const LARGE_BLOCKS_MIN: u32 = 64;

/// The world of one array on one thread, with members of type `D`. Clones are handles of the same one.
pub struct LocalWorld<D> {
    inside: Rc<Inside>,
    members: PhantomData<fn() -> D>,
}

struct Inside {
    now: Cell<Tick>,
    /// What [`World::unix_seconds`] says when the clock is at zero.
    unix_seconds: u64,
    arenas: [Arena; Pool::COUNT],
    tasks: RefCell<Vec<Task>>,
    mail: RefCell<VecDeque<Mail>>,
    /// By the time at which they are due, then in the order in which they were set.
    timers: RefCell<BTreeMap<(Tick, u64), Waker>>,
    timers_set: Cell<u64>,
}

struct Task {
    work: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

/// A device may call a waker on another thread.
struct Woken(AtomicBool);

impl Woken {
    /// Polled first without a call.
    fn new() -> Arc<Woken> {
        Arc::new(Woken(AtomicBool::new(true)))
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Acquire)
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl<D> Clone for LocalWorld<D> {
    fn clone(&self) -> LocalWorld<D> {
        LocalWorld { inside: self.inside.clone(), members: PhantomData }
    }
}

impl<D> LocalWorld<D> {
    /// A world with buffers for this array, and its clock at zero. `unix_seconds`: the seconds since 1970 at that moment,
    /// for the update time of superblocks.
    pub fn new(plan: &StartPlan, unix_seconds: u64) -> LocalWorld<D> {
        // A row takes a block of each member, and some for its parity.
        let large_blocks = LARGE_BLOCKS_MIN.max(4 * (u32::from(plan.layout.slots()) + 2));
        let inside = Inside {
            now: Cell::new(Tick(0)),
            unix_seconds,
            arenas: std::array::from_fn(|_| Arena::new(SMALL_BLOCKS, large_blocks)),
            tasks: RefCell::default(),
            mail: RefCell::default(),
            timers: RefCell::default(),
            timers_set: Cell::new(0),
        };
        LocalWorld { inside: Rc::new(inside), members: PhantomData }
    }
}

impl Inside {
    fn set_clock(&self, now: Tick) {
        assert!(self.now.replace(now) <= now, "the clock is monotonic");
        loop {
            let mut timers = self.timers.borrow_mut();
            let Some(first) = timers.first_entry().filter(|first| first.key().0 <= now) else { break };
            let waker = first.remove();
            drop(timers);
            waker.wake();
        }
    }

    fn next_timer(&self) -> Option<Tick> {
        self.timers.borrow().first_key_value().map(|((at, _), _)| *at)
    }

    /// Polls each task that was woken once. False if none was.
    fn poll_tasks(&self) -> bool {
        let mut is_any = false;
        // They may start others.
        let mut tasks = self.tasks.take();
        tasks.retain_mut(|task| {
            if !task.woken.take() {
                return true;
            }
            is_any = true;
            let waker = Waker::from(task.woken.clone());
            task.work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
        });
        let started = self.tasks.replace(tasks);
        self.tasks.borrow_mut().extend(started);
        is_any
    }
}

/// The future of [`World::sleep`].
struct Sleep {
    inside: Rc<Inside>,
    /// When it is due, and its number.
    timer: (Tick, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.inside.now.get() >= self.timer.0 {
            return Poll::Ready(());
        }
        self.inside.timers.borrow_mut().insert(self.timer, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.inside.timers.borrow_mut().remove(&self.timer);
    }
}

impl<D: Device + 'static> World for LocalWorld<D> {
    type Member = D;

    fn now(&self) -> Tick {
        self.inside.now.get()
    }

    fn unix_seconds(&self) -> u64 {
        self.inside.unix_seconds.saturating_add(self.now().since(Tick(0)).as_secs())
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        let number = self.inside.timers_set.replace(self.inside.timers_set.get() + 1);
        Sleep { inside: self.inside.clone(), timer: (self.now() + time, number) }
    }

    fn shard(&self) -> ShardIndex {
        ShardIndex(0)
    }

    fn shards(&self) -> u16 {
        1
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.inside.tasks.borrow_mut().push(Task { work: Box::pin(task), woken: Woken::new() });
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        assert_eq!(to, ShardIndex(0), "there is one shard");
        self.inside.mail.borrow_mut().push_back(mail);
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.inside.arenas[pool.index()]
    }
}

/// An array, and the loop that drives it. It frees both when it is dropped; an array that was written and not stopped then
/// stays marked dirty, as after a crash.
pub struct LocalArray<D: Device + 'static> {
    world: LocalWorld<D>,
    array: Rc<Array<LocalWorld<D>>>,
}

impl<D: Device + 'static> LocalArray<D> {
    /// The array of `plan`; `members[i]` drives `plan.members[i]`. Nothing is read or written yet: requests wait until
    /// [`Array::start`]. Panics if `members` does not fit the plan. A world is for one array.
    pub fn new(world: LocalWorld<D>, plan: &StartPlan, members: Vec<D>, config: Config) -> LocalArray<D> {
        let array = Array::new(world.clone(), plan, members, config);
        LocalArray { world, array }
    }

    /// The array: its requests and commands are futures for [`LocalArray::run`], or for a task ([`World::spawn`]).
    pub fn array(&self) -> &Rc<Array<LocalWorld<D>>> {
        &self.array
    }

    /// Its world.
    pub fn world(&self) -> &LocalWorld<D> {
        &self.world
    }

    /// Sets the clock, and polls until nothing is ready. Returns when the next timer is due, if there is one: call again
    /// then, or when a device has called a waker. Panics if `now` is before the last call's.
    pub fn turn(&self, now: Tick) -> Option<Tick> {
        let inside = &self.world.inside;
        inside.set_clock(now);
        loop {
            let is_mail = self.deliver();
            if !inside.poll_tasks() && !is_mail {
                return inside.next_timer();
            }
        }
    }

    /// Drives the array and `work` to the end of `work`. When nothing is ready, the clock goes on to the next timer: what
    /// takes seconds takes no time. Panics if there is none: `work` then waits for a device that answers later, which is
    /// for [`LocalArray::turn`].
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let woken = Woken::new();
        let waker = Waker::from(woken.clone());
        let mut now = self.world.now();
        loop {
            if woken.take()
                && let Poll::Ready(value) = work.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return value;
            }
            let next = self.turn(now);
            if !woken.is_set() {
                now = next.expect("the work waits for what neither the array nor the clock will bring");
            }
        }
    }

    fn deliver(&self) -> bool {
        let mut is_any = false;
        loop {
            let first = self.world.inside.mail.borrow_mut().pop_front();
            let Some(mail) = first else { return is_any };
            self.array.deliver(mail);
            is_any = true;
        }
    }
}

/// Tasks hold the array, which holds the world, which holds the tasks.
impl<D: Device + 'static> Drop for LocalArray<D> {
    fn drop(&mut self) {
        drop(self.world.inside.tasks.take());
    }
}
