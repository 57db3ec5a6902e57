//! How other threads reach a shard: they wake a task, and ring the bell if the shard sleeps.
//! Owns: [`Door`], the table from executor numbers to doors. Not here: the messages themselves.
//! Invariant: what a thread stores before [`Door::knock`] is seen by the shard before it sleeps again.

use crate::bell::Bell;
use crate::sync::{AtomicBool, Mutex, RwLock, fence};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// One shard's door.
pub(crate) struct Door {
    bell: Bell,
    // The sleeping shard sets one flag and reads the other; a knocking thread does it the other way round. Each has a
    // SeqCst fence in between, so at least one of them sees the other, however many threads knock. If the knocker's
    // fence comes first, the sleeper reads its `true`, or its own later `answer`, after which it has checked its
    // queues. If the sleeper's fence comes first, the knocker reads that the shard sleeps, or that the sleep has been
    // ended since: by another knocker, which rings, or by the shard itself, which is awake.
    something_came: AtomicBool,
    is_sleeping: AtomicBool,
    wakes: Mutex<Vec<u32>>,
}

impl Door {
    pub(crate) fn new() -> Arc<Door> {
        Arc::new(Door {
            bell: Bell::new(),
            something_came: AtomicBool::new(false),
            is_sleeping: AtomicBool::new(false),
            wakes: Mutex::default(),
        })
    }

    /// The bell that a ring waits for while the shard sleeps.
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Tells the shard that something was stored for it. From any thread.
    pub(crate) fn knock(&self) {
        self.something_came.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        // The thread that ends the sleep rings, once. Do not overwrite the state of a shard that is awake or sleeps
        // again.
        let ends_sleep =
            || self.is_sleeping.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if self.is_sleeping.load(Ordering::Relaxed) && ends_sleep() {
            self.bell.ring();
        }
    }

    /// Whether a thread has knocked. It does not reset the flag: [`Door::answer`] will return the same.
    pub(crate) fn is_knocked(&self) -> bool {
        self.something_came.load(Ordering::Relaxed)
    }

    /// Whether a thread has knocked since the last call. Shard only.
    pub(crate) fn answer(&self) -> bool {
        self.something_came.load(Ordering::Relaxed) && self.something_came.swap(false, Ordering::AcqRel)
    }

    /// Announces sleep. False: a thread has knocked, do not sleep. Shard only.
    pub(crate) fn may_sleep(&self) -> bool {
        self.is_sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !self.something_came.load(Ordering::Acquire);
        if !may {
            self.is_sleeping.store(false, Ordering::Relaxed);
        }
        may
    }

    /// Ends what [`Door::may_sleep`] announced.
    pub(crate) fn is_awake(&self) {
        self.is_sleeping.store(false, Ordering::Relaxed);
    }

    /// Stores a task's index to be woken, and knocks.
    pub(crate) fn wake(&self, task: u32) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        self.knock();
    }

    /// Takes the tasks to wake.
    pub(crate) fn take_wakes(&self, into: &mut Vec<u32>) {
        assert!(into.is_empty());
        std::mem::swap(&mut *self.wakes.lock().unwrap_or_else(PoisonError::into_inner), into);
    }
}

static DOORS: RwLock<Vec<Option<Arc<Door>>>> = RwLock::new(Vec::new());

/// Gives the door a number that wakers carry. Numbers are reused: a waker that outlived its executor then wakes another
/// task, and every task must tolerate spurious wakes anyway.
pub(crate) fn register(door: Arc<Door>) -> u32 {
    let mut doors = DOORS.write().unwrap_or_else(PoisonError::into_inner);
    let number = doors.iter().position(Option::is_none).unwrap_or(doors.len());
    if number == doors.len() {
        doors.push(None);
    }
    doors[number] = Some(door);
    u32::try_from(number).expect("fewer than 2^32 executors live at once")
}

/// Frees the number.
pub(crate) fn unregister(number: u32) {
    DOORS.write().unwrap_or_else(PoisonError::into_inner)[number as usize] = None;
}

/// Wakes a task of the executor with this number, if it lives.
pub(crate) fn wake(number: u32, task: u32) {
    let doors = DOORS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some(door)) = doors.get(number as usize) {
        door.wake(task);
    }
}
