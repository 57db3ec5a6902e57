//! A shard: one thread with its executor, ring, timers, arenas and mail.
//! Owns: [`run`], [`Shard`], [`Local`]. Not here: settings (`options`), how tasks or I/O are driven.
//! Invariant: mail from one shard to another arrives once and in order.

use crate::executor::Executor;
use crate::executor::timers::Timers;
use crate::mail::door::Door;
use crate::mail::inbox::{Inbox, Post};
use crate::options::{ARENAS, Options};
use crate::process::signals::{self, Signal};
use crate::process::{panic_hook, processors};
use crate::ring::{Buffers, Driver, Holder, Kind, Wait};
use crate::sync::mpsc;
use crate::sync::thread::{self, JoinHandle};
use crate::sys;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};
use uraid_block::{Arena, ShardIndex, Tick};

/// Tasks polled before the shard checks mail, timers and completions again.
const POLLS_PER_TURN: usize = 64;
/// The turn's time is checked after this many polls: the turn ends if it has taken longer than the limit below. A piece
/// of zeroes or a row of parity takes up to a millisecond; 64 of them in a row would delay everything else by 50 ms.
const POLLS_PER_TIME_CHECK: usize = 8;
const TURN_TIME_MAX: Duration = Duration::from_micros(500);
/// The shard stops busy-polling after this many fruitless attempts in a row.
const FRUITLESS_SPINS_MAX: u32 = 16;
/// A shard that has stopped busy-polling makes one attempt per this many turns that brought mail. A fruitless attempt
/// of 50 us costs 3 us of processor time per turn; a successful one resumes busy-polling.
const MAIL_TURNS_PER_SPIN: u32 = 16;
/// How often requests' ages are checked within a member's timeout, at least. A request fails at most one check late.
const AGE_CHECKS_MIN: u32 = 8;
const AGE_CHECK_PERIOD_MIN: Duration = Duration::from_millis(1);
const AGE_CHECK_PERIOD_MAX: Duration = Duration::from_secs(1);
/// How long a closing shard waits until the kernel releases its buffers.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs `main` on `shards` shards, one thread each, and returns their values in shard order.
///
/// A shard ends when its main future has ended: its other tasks are dropped, and mail that still arrives is lost. A
/// panic on any shard is reported on standard error and aborts the process.
pub fn run<M, T, F, Fut>(shards: u16, options: &Options, main: F) -> Vec<T>
where
    M: Send + 'static,
    T: Send,
    F: Fn(Shard<M>) -> Fut + Send + Sync,
    Fut: Future<Output = T>,
{
    assert!(shards > 0);
    signals::ignore_signals_of_writes();
    panic_hook::install();
    let inboxes: Arc<[Arc<Inbox<M>>]> = (0..shards).map(|_| Inbox::new(Door::new())).collect();
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<JoinHandle<()>> = (0..shards)
        .map(|index| {
            let (inboxes, sender, borrowed) = (inboxes.clone(), sender.clone(), Borrowed(&raw const main, options));
            let body = move || {
                let _aborts = panic_hook::abort_on_panic();
                // SAFETY: as `spawn_unchecked` demands, both are used only before the end is sent.
                let (main, options) = unsafe { borrowed.get() };
                let end = run_shard(ShardIndex(index), inboxes, options, main);
                sender.send((index, end)).expect("it is received below");
            };
            let thread = thread::Builder::new().name(format!("uraid-shard-{index}"));
            // SAFETY: a thread uses what it borrows only before it sends its result. This function waits for all
            // results, and nothing unwinds out of it earlier: a panic aborts the process.
            let thread = unsafe { thread.spawn_unchecked(body) };
            thread.unwrap_or_else(|error| end_without(index, shards, &error))
        })
        .collect();
    drop(sender);
    // No result means that a thread has unwound, which cannot happen: a panic aborts.
    let end = || receiver.recv().unwrap_or_else(|_| std::process::abort());
    let ends: BTreeMap<u16, Ended<T>> = threads.iter().map(|_| end()).collect();
    for (thread, (_, left)) in threads.into_iter().zip(ends.values()) {
        // The kernel ends a thread only when all of its requests are answered.
        if left.is_none() {
            thread.join().expect("a panic would have aborted");
        }
    }
    signals::restore_default();
    let (values, left): (Vec<T>, Vec<Option<BTreeSet<String>>>) = ends.into_values().unzip();
    if left.iter().any(Option::is_some) {
        let mut members: Vec<String> = left.into_iter().flatten().flatten().collect();
        members.sort();
        members.dedup();
        if members.is_empty() {
            members.push("a device".to_owned());
        }
        options.left_behind.tell(&members);
    }
    values
}

/// Ends the process: without this shard the others would wait for ever. Arrays are left as after a kill.
fn end_without(index: u16, shards: u16, error: &std::io::Error) -> ! {
    let number = index + 1;
    panic_hook::say(&format!(
        "uraid: thread {number} of {shards} cannot be started: {error}; how many there may be say `ulimit -u` and the \
         pids limit of the container; --shards asks for fewer\n"
    ));
    std::process::exit(1);
}

/// What a shard borrows from [`run`]. Raw pointers, because the kernel may keep the thread longer than `run` lasts, and
/// a reference held by a function must stay valid until that function ends.
struct Borrowed<F>(*const F, *const Options);

// SAFETY: only shared references are made of the addresses, and both types are `Sync`.
unsafe impl<F: Sync> Send for Borrowed<F> {}

impl<F> Borrowed<F> {
    /// # Safety
    /// Both must exist as long as the references are used.
    unsafe fn get<'a>(&self) -> (&'a F, &'a Options) {
        // SAFETY: the caller's promise.
        unsafe { (&*self.0, &*self.1) }
    }
}

/// What a shard's main future returned, and the members that have not answered, if any operation is unanswered.
type Ended<T> = (T, Option<BTreeSet<String>>);

fn run_shard<M, T, F, Fut>(index: ShardIndex, inboxes: Arc<[Arc<Inbox<M>>]>, options: &Options, main: &F) -> Ended<T>
where
    M: Send + 'static,
    F: Fn(Shard<M>) -> Fut,
    Fut: Future<Output = T>,
{
    let door = inboxes[usize::from(index.0)].door().clone();
    let driver = Rc::new(Driver::new(options, &door));
    let machine = Machine {
        index,
        count: inboxes.len() as u16,
        executor: Executor::new(door.clone()),
        timers: driver.timers().clone(),
        driver,
        arenas: options.arenas.map(|blocks| Arena::new(blocks.small, blocks.large)),
        spin: options.spin,
        spins_left: Cell::new(0),
        mail_turns: Cell::new(0),
        turn_began: Cell::new(now()),
    };
    // Pin after the ring was made: the ring's helper threads must not inherit the pinning to one processor.
    if let Some(&processor) = options.processors.get(usize::from(index.0)) {
        processors::pin(processor);
    }
    let local = Local(Rc::new(machine));
    let shard = Shard { local: local.clone(), post: Rc::new(Post::new(inboxes, index)) };
    let machine = &*local.0;
    machine.driver.announce_memory(&machine.arenas);
    let entered = machine.executor.enter();
    if let Some(timeout) = options.member_timeout {
        local.spawn(watch_members(local.clone(), timeout));
    }
    let value = {
        let mut main = pin!(main(shard.clone()));
        loop {
            if let Poll::Ready(value) = machine.executor.poll_main(main.as_mut()) {
                break value;
            }
            turn(machine, &shard.post, &door);
        }
    };
    // Send the last mail, then drop everything that may own the shard: tasks before the ring.
    shard.post.send_all();
    shard.post.close();
    machine.executor.close();
    let left = (!machine.driver.close(CLOSE_TIMEOUT)).then(|| machine.driver.unanswered_members());
    drop(entered);
    (value, left)
}

/// Checks the ages of the members' requests, and fails those that are late, until dropped.
async fn watch_members(local: Local, timeout: Duration) {
    let looks = timeout.as_nanos().div_ceil(AGE_CHECK_PERIOD_MAX.as_nanos());
    let looks = u32::try_from(looks).unwrap_or(u32::MAX).max(AGE_CHECKS_MIN);
    let period = (timeout / looks).clamp(AGE_CHECK_PERIOD_MIN, AGE_CHECK_PERIOD_MAX);
    loop {
        local.sleep(period).await;
        local.driver().check_ages(looks, period);
    }
}

/// One turn: completions, mail, timers, tasks; sleeps if there is nothing to do.
fn turn<M>(machine: &Machine, post: &Post<M>, door: &Door) {
    let began = now();
    machine.turn_began.set(began);
    if door.take_knock() {
        machine.executor.take_remote_wakes();
        if post.fetch() {
            machine.mail_turns.set(machine.mail_turns.get() + 1);
        }
    }
    post.deliver();
    if machine.timers.next().is_some_and(|next| next <= began) {
        machine.timers.fire(began);
    }
    run_tasks(&machine.executor, began);
    post.send_all();
    if machine.executor.is_busy() || post.is_busy() || busy_poll(machine, door) {
        machine.driver.wait(Wait::No);
        return;
    }
    let wait = match machine.timers.next().map(|next| next.since(now())) {
        Some(Duration::ZERO) => Wait::No,
        Some(time) => Wait::For(time),
        None => Wait::Forever,
    };
    machine.driver.wait(if wait != Wait::No && door.prepare_sleep() { wait } else { Wait::No });
    door.end_sleep();
}

/// Polls the tasks that are ready now, and a limited number of those that become ready meanwhile.
fn run_tasks(executor: &Executor, began: Tick) {
    for _ in 0..POLLS_PER_TURN / POLLS_PER_TIME_CHECK {
        if executor.turn(POLLS_PER_TIME_CHECK) < POLLS_PER_TIME_CHECK || now().since(began) > TURN_TIME_MAX {
            return;
        }
    }
}

/// Busy-polls for messages, if busy-polling has found some recently or another attempt is due. Returns whether
/// something arrived.
fn busy_poll(machine: &Machine, door: &Door) -> bool {
    let is_try = machine.spins_left.get() == 0;
    // A worker that hole-punches or flushes for this shard may need this very processor: with two shards on two
    // processors that spin, a worker waited 50 us for one of them to stop.
    if machine.driver.waits_for_workers() {
        return false;
    }
    if machine.spin.is_zero() || (is_try && machine.mail_turns.get() < MAIL_TURNS_PER_SPIN) {
        return false;
    }
    machine.mail_turns.set(0);
    // Submit started requests first.
    machine.driver.wait(Wait::No);
    let end = now() + machine.spin;
    let deadline = machine.timers.next().map_or(end, |next| next.min(end));
    loop {
        for _ in 0..32 {
            if door.is_knocked() {
                machine.spins_left.set(FRUITLESS_SPINS_MAX);
                return true;
            }
            if machine.executor.is_busy() {
                return true;
            }
            std::hint::spin_loop();
        }
        machine.driver.wait(Wait::No);
        std::thread::yield_now();
        if now() >= deadline {
            // A busy-poll that a due timer cut short says nothing about mail.
            if deadline == end {
                machine.spins_left.update(|left| left.saturating_sub(1));
            }
            return machine.executor.is_busy();
        }
    }
}

fn now() -> Tick {
    Tick(sys::monotonic_nanos())
}

struct Machine {
    index: ShardIndex,
    count: u16,
    executor: Executor,
    timers: Rc<Timers>,
    driver: Rc<Driver>,
    arenas: [Arena; ARENAS],
    spin: Duration,
    spins_left: Cell<u32>,
    // Turns that brought mail since the shard last busy-polled.
    mail_turns: Cell<u32>,
    turn_began: Cell<Tick>,
}

/// One shard's machine without its mail, as frontends and members need it. Clones are handles of the same shard.
#[derive(Clone)]
pub struct Local(Rc<Machine>);

struct SignalBell(&'static OwnedFd);

impl AsRawFd for SignalBell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Local {
    /// Its number, from 0.
    pub fn index(&self) -> ShardIndex {
        self.0.index
    }

    /// The number of shards.
    pub fn count(&self) -> u16 {
        self.0.count
    }

    /// The monotonic clock: the same on all shards.
    pub fn now(&self) -> Tick {
        now()
    }

    /// The clock at the start of this turn of the shard; it does not read the clock again.
    pub fn turn_time(&self) -> Tick {
        self.0.turn_began.get()
    }

    /// Seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }

    /// Ends after `time` has passed.
    pub async fn sleep(&self, time: Duration) {
        self.0.timers.sleep_until(now() + time, now).await;
    }

    /// Starts a task on this shard. It is dropped when the shard's main future ends, even if it is not done.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.executor.spawn(task);
    }

    /// The number of tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.0.executor.tasks()
    }

    /// One of the shard's arenas. Panics at or above [`ARENAS`].
    pub fn arena(&self, n: usize) -> &Arena {
        &self.0.arenas[n]
    }

    /// The members that have not answered all requests of this shard.
    pub fn unanswered_members(&self) -> Vec<String> {
        self.0.driver.unanswered_members().into_iter().collect()
    }

    /// How this shard submits I/O: `io_uring` or `threads`.
    pub fn ring_name(&self) -> &'static str {
        self.0.driver.ring_name()
    }

    /// How many bytes of the arenas the kernel has pinned for direct I/O. It grows as they are used, and stays 0 if the
    /// system refuses.
    pub fn registered_bytes(&self) -> usize {
        self.0.driver.registered_bytes()
    }

    /// Waits for SIGTERM, SIGINT, SIGHUP or SIGXCPU. From this call on, not from the first poll, they no longer end the process.
    /// At most one waiter per process; panics on shards other than 0.
    pub fn terminated(&self) -> impl Future<Output = Signal> + 'static {
        assert_eq!(self.index(), ShardIndex(0), "signals come to shard 0");
        let bell: Holder = Rc::new(SignalBell(signals::listen()));
        let driver = self.0.driver.clone();
        async move {
            loop {
                if let Some(signal) = signals::take() {
                    return signal;
                }
                driver.start(Kind::Poll { is_shared: false }, Buffers::None, Some(bell.clone())).await;
            }
        }
    }

    pub(crate) fn driver(&self) -> &Rc<Driver> {
        &self.0.driver
    }
}

/// One shard as its tasks see it: its machine (by `Deref`) and mail to other shards.
pub struct Shard<M> {
    local: Local,
    post: Rc<Post<M>>,
}

impl<M> Clone for Shard<M> {
    fn clone(&self) -> Shard<M> {
        Shard { local: self.local.clone(), post: self.post.clone() }
    }
}

impl<M> Deref for Shard<M> {
    type Target = Local;
    fn deref(&self) -> &Local {
        &self.local
    }
}

impl<M: Send + 'static> Shard<M> {
    /// Sends mail to a shard, possibly this one; it is handled later, in order. A shard that has ended drops it. Panics
    /// if there is no such shard.
    pub fn post(&self, to: ShardIndex, mail: M) {
        self.post.post(to, mail);
    }

    /// Sets the handler of mail, replacing the previous one. Mail that arrived earlier is kept until there is a
    /// handler. The handler is dropped when the shard's main future has ended, so it may own the shard.
    pub fn on_mail(&self, handler: impl Fn(M) + 'static) {
        self.post.on_mail(handler);
    }
}
