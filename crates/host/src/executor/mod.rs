//! The shard's executor: one thread, one run queue, futures stored in reused slots.
//! Owns: [`Executor`], task storage, wakers. Not here: sleeping, timers, I/O (`shard`, `ring`).
//! Invariant: a future never moves once spawned, and is dropped exactly once: when it ends, or with the executor.
//!
//! ```text
//!   waker = one word:  | executor 20 | task 20 | generation 24 |     no count, no pointer: clone and drop are free
//!   slots:             small 512 B | large 4 KiB | boxed (larger), each with its own free list
//! ```
//! A waker that outlived its task finds another generation and does nothing. If the 24 bits have wrapped around, it
//! causes one spurious poll.

pub(crate) mod timers;

use crate::mail::door::{self, Door};
use crate::sync::thread_local;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

pub(crate) const SMALL_BYTES: usize = 512;
pub(crate) const LARGE_BYTES: usize = 4096;
const SLOT_ALIGN: usize = 64;
const SMALL_PER_CHUNK: usize = 64;
const LARGE_PER_CHUNK: usize = 16;
const TASK_BITS: u32 = 20;
const GENERATION_BITS: u32 = 24;
const EXECUTOR_BITS: u32 = 64 - TASK_BITS - GENERATION_BITS;
/// The task number of the future that [`Executor::poll_main`] drives; it has no slot.
const MAIN: u32 = (1 << TASK_BITS) - 1;

const _: () = assert!(size_of::<usize>() == 8, "a waker is one 64-bit word");
const _: () = assert!(size_of::<Task>() <= 40);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Small,
    Large,
    Boxed,
}

const fn class_of(layout: Layout) -> Class {
    if layout.align() > SLOT_ALIGN || layout.size() > LARGE_BYTES {
        Class::Boxed
    } else if layout.size() > SMALL_BYTES {
        Class::Large
    } else {
        Class::Small
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The slot holds no future.
    Free,
    /// Waits for a wake.
    Idle,
    /// In the run queue.
    Queued,
    /// Being polled, or being spawned or dropped.
    Busy,
    /// Being polled, and woken since the poll began.
    BusyWoken,
}

#[derive(Clone, Copy)]
struct Task {
    generation: u32,
    state: State,
    class: Class,
    storage: NonNull<u8>,
    poll: unsafe fn(NonNull<u8>, &mut Context<'_>) -> Poll<()>,
    drop: unsafe fn(NonNull<u8>),
}

/// # Safety
/// `at` holds a live, pinned `F`, and nothing else uses it during the call.
unsafe fn poll_in_place<F: Future<Output = ()>>(at: NonNull<u8>, context: &mut Context<'_>) -> Poll<()> {
    // SAFETY: the caller's promise; slots never move, so the pin holds.
    unsafe { Pin::new_unchecked(at.cast::<F>().as_mut()) }.poll(context)
}

/// # Safety
/// `at` holds a live `F` that is not used again.
unsafe fn drop_in_place<F>(at: NonNull<u8>) {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<F>().drop_in_place() }
}

/// # Safety
/// `at` came from `Box::<F>::into_raw` and is not used again.
unsafe fn drop_boxed<F>(at: NonNull<u8>) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(at.cast::<F>().as_ptr()) });
}

/// # Safety
/// Never called: free slots hold it.
unsafe fn poll_nothing(_: NonNull<u8>, _: &mut Context<'_>) -> Poll<()> {
    panic!("a free slot was polled")
}

/// # Safety
/// Never called: free slots hold it.
unsafe fn drop_nothing(_: NonNull<u8>) {
    panic!("a free slot was dropped")
}

struct Core {
    number: u32,
    door: Arc<Door>,
    main_is_woken: Cell<bool>,
    is_closing: Cell<bool>,
    queue: RefCell<VecDeque<u32>>,
    tasks: RefCell<Vec<Task>>,
    free: RefCell<[Vec<u32>; 3]>,
    chunks: RefCell<Vec<(NonNull<u8>, Layout)>>,
    remote: RefCell<Vec<u32>>,
    live: Cell<usize>,
}

thread_local! {
    static CURRENT: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// A single-threaded executor.
pub(crate) struct Executor(Box<Core>);

/// While this guard lives, wakes on this thread go straight to the executor's queue.
pub(crate) struct Entered<'a> {
    before: *const Core,
    _executor: &'a Executor,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

impl Executor {
    pub(crate) fn new(door: Arc<Door>) -> Executor {
        let number = door::register(door.clone());
        assert!(number < 1 << EXECUTOR_BITS, "fewer than a million executors live at once");
        Executor(Box::new(Core {
            number,
            door,
            main_is_woken: Cell::new(true),
            is_closing: Cell::new(false),
            queue: RefCell::default(),
            tasks: RefCell::default(),
            free: RefCell::default(),
            chunks: RefCell::default(),
            remote: RefCell::default(),
            live: Cell::new(0),
        }))
    }

    /// Makes this the thread's executor until the guard is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        Entered { before: CURRENT.replace(&raw const *self.0), _executor: self }
    }

    /// Puts a future into a slot and its task into the run queue. If the executor is closing, the future is dropped.
    pub(crate) fn spawn<F: Future<Output = ()> + 'static>(&self, future: F) {
        let core = &*self.0;
        if core.is_closing.get() {
            return;
        }
        let class = class_of(Layout::new::<F>());
        let index = core.take_slot(class);
        let mut tasks = core.tasks.borrow_mut();
        let task = &mut tasks[index as usize];
        assert_eq!((task.state, task.class), (State::Free, class));
        match class {
            Class::Small | Class::Large => {
                // SAFETY: the slot is free, large enough and aligned: `class_of` has compared both.
                unsafe { task.storage.cast::<F>().write(future) };
                task.drop = drop_in_place::<F>;
            }
            Class::Boxed => {
                task.storage = NonNull::from(Box::leak(Box::new(future))).cast();
                task.drop = drop_boxed::<F>;
            }
        }
        task.poll = poll_in_place::<F>;
        task.state = State::Queued;
        core.queue.borrow_mut().push_back(index);
        core.live.set(core.live.get() + 1);
    }

    /// Polls up to `polls_max` woken tasks and returns how many. A task's panic propagates to the caller.
    pub(crate) fn turn(&self, polls_max: usize) -> usize {
        let core = &*self.0;
        let mut polls = 0;
        while polls < polls_max {
            let Some(index) = core.queue.borrow_mut().pop_front() else { break };
            polls += usize::from(core.poll_task(index));
        }
        polls
    }

    /// Queues the wakes that other threads have left at the door.
    pub(crate) fn take_remote_wakes(&self) {
        let core = &*self.0;
        let mut remote = core.remote.borrow_mut();
        core.door.take_wakes(&mut remote);
        for index in remote.drain(..) {
            core.wake_local(index, None);
        }
    }

    /// Polls the main future if it was woken since the last poll.
    pub(crate) fn poll_main<F: Future>(&self, main: Pin<&mut F>) -> Poll<F::Output> {
        if !self.0.main_is_woken.replace(false) {
            return Poll::Pending;
        }
        let waker = waker(self.0.number, MAIN, 0);
        main.poll(&mut Context::from_waker(&waker))
    }

    /// Whether any task, or the main future, is ready to be polled.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.main_is_woken.get() || !self.0.queue.borrow().is_empty()
    }

    /// The number of tasks that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.0.live.get()
    }

    /// Drops all tasks, in slot order. A task that is spawned by such a drop is dropped at once.
    pub(crate) fn close(&self) {
        let core = &*self.0;
        core.is_closing.set(true);
        let count = core.tasks.borrow().len() as u32;
        for index in 0..count {
            let state = core.tasks.borrow()[index as usize].state;
            match state {
                State::Free => {}
                // A busy task is one whose poll has panicked. Its future may be dropped, as after any unwinding.
                State::Idle | State::Queued | State::Busy | State::BusyWoken => core.end_task(index),
            }
        }
        core.queue.borrow_mut().clear();
        assert_eq!(core.live.get(), 0);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.close();
        door::unregister(self.0.number);
        for (chunk, layout) in self.0.chunks.borrow_mut().drain(..) {
            // SAFETY: allocated with this layout in `add_chunk`; no future is left in it.
            unsafe { dealloc(chunk.as_ptr(), layout) };
        }
    }
}

impl Core {
    fn take_slot(&self, class: Class) -> u32 {
        if let Some(index) = self.free.borrow_mut()[class as usize].pop() {
            return index;
        }
        self.add_chunk(class);
        self.free.borrow_mut()[class as usize].pop().expect("a chunk has slots")
    }

    fn add_chunk(&self, class: Class) {
        let (count, bytes) = match class {
            Class::Small => (SMALL_PER_CHUNK, SMALL_BYTES),
            Class::Large => (LARGE_PER_CHUNK, LARGE_BYTES),
            Class::Boxed => (1, 0),
        };
        let mut start = NonNull::dangling();
        if bytes > 0 {
            let layout = Layout::from_size_align(count * bytes, SLOT_ALIGN).expect("a chunk is small");
            // SAFETY: the size is not zero.
            start = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
            self.chunks.borrow_mut().push((start, layout));
        }
        let mut tasks = self.tasks.borrow_mut();
        let first = tasks.len();
        assert!(first + count < MAIN as usize, "a million tasks on one shard: something spawns without a bound");
        for n in 0..count {
            // SAFETY: n * bytes lies inside the chunk.
            let storage = unsafe { start.add(n * bytes) };
            let (poll, drop) = (poll_nothing as _, drop_nothing as _);
            tasks.push(Task { generation: 0, state: State::Free, class, storage, poll, drop });
        }
        self.free.borrow_mut()[class as usize].extend((first..first + count).rev().map(|index| index as u32));
    }

    /// Returns false if the queue entry was stale.
    fn poll_task(&self, index: u32) -> bool {
        let task = {
            let task = &mut self.tasks.borrow_mut()[index as usize];
            if task.state != State::Queued {
                return false;
            }
            task.state = State::Busy;
            *task
        };
        let waker = waker(self.number, index, task.generation);
        // SAFETY: the state was Queued, so the slot holds a live future; Busy excludes every other user.
        match unsafe { (task.poll)(task.storage, &mut Context::from_waker(&waker)) } {
            Poll::Ready(()) => self.end_task(index),
            Poll::Pending => {
                let task = &mut self.tasks.borrow_mut()[index as usize];
                if task.state == State::BusyWoken {
                    task.state = State::Queued;
                    self.queue.borrow_mut().push_back(index);
                } else {
                    task.state = State::Idle;
                }
            }
        }
        true
    }

    fn end_task(&self, index: u32) {
        let task = {
            let task = &mut self.tasks.borrow_mut()[index as usize];
            assert_ne!(task.state, State::Free);
            task.state = State::Busy;
            let before = *task;
            // Wakes of the old generation are ignored from here on, including those from the future's own drop.
            task.generation = (task.generation + 1) & ((1 << GENERATION_BITS) - 1);
            before
        };
        // SAFETY: the slot held a live future, and the new generation and Busy exclude every other user.
        unsafe { (task.drop)(task.storage) };
        let mut tasks = self.tasks.borrow_mut();
        let task = &mut tasks[index as usize];
        task.state = State::Free;
        task.poll = poll_nothing;
        task.drop = drop_nothing;
        self.free.borrow_mut()[task.class as usize].push(index);
        self.live.set(self.live.get() - 1);
    }

    fn wake_local(&self, index: u32, generation: Option<u32>) {
        if index == MAIN {
            self.main_is_woken.set(true);
            return;
        }
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(index as usize) else { return };
        if generation.is_some_and(|generation| generation != task.generation) {
            return;
        }
        match task.state {
            State::Idle => {
                task.state = State::Queued;
                self.queue.borrow_mut().push_back(index);
            }
            State::Busy => task.state = State::BusyWoken,
            State::Free | State::Queued | State::BusyWoken => {}
        }
    }
}

fn waker(executor: u32, task: u32, generation: u32) -> Waker {
    let word = (u64::from(executor) << (TASK_BITS + GENERATION_BITS))
        | (u64::from(task) << GENERATION_BITS)
        | u64::from(generation);
    let data = std::ptr::without_provenance(word as usize);
    // SAFETY: the word is plain data, never a pointer. The table's functions may be called any number of times, in any
    // order, on any thread, and they keep RawWaker's contract: all they do is wake.
    unsafe { Waker::from_raw(RawWaker::new(data, &WAKER)) }
}

static WAKER: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &WAKER), wake, wake, |_| {});

fn wake(data: *const ()) {
    let word = data.addr() as u64;
    let executor = (word >> (TASK_BITS + GENERATION_BITS)) as u32;
    let task = (word >> GENERATION_BITS) as u32 & MAIN;
    let generation = word as u32 & ((1 << GENERATION_BITS) - 1);
    let current = CURRENT.try_with(Cell::get).unwrap_or(std::ptr::null());
    // SAFETY: not null only while an `Entered` guard of that executor lives on this very thread.
    if let Some(core) = unsafe { current.as_ref() }
        && core.number == executor
    {
        core.wake_local(task, Some(generation));
    } else {
        door::wake(executor, task);
    }
}

#[cfg(test)]
mod tests;
