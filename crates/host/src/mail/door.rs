//! How other threads reach a shard: they wake one of its tasks, and ring its bell if the shard sleeps.
//! Owns: [`Door`], the table from executor numbers to doors. Not here: the messages themselves.
//! Invariant: what a thread stores before [`Door::knock`] is seen by the shard before it sleeps again.

use crate::mail::bell::Bell;
use crate::sync::{AtomicBool, Mutex, RwLock, fence};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

pub(crate) struct Door {
    bell: Bell,
    // A Dekker-style handshake: the sleeping shard stores that it sleeps and reads `knocked`; a knocking thread stores
    // `knocked` and reads whether the shard sleeps. Each has a SeqCst fence in between, so at least one of them sees
    // the other's store, however many threads knock. If the knocker's fence comes first, the shard reads `true`; or it
    // reads the value of its own later `take_knock`, after which it has checked its queues. If the shard's fence comes
    // first, the knocker reads that the shard sleeps, or that the sleep has ended since. Then either another knocker
    // has ended the sleep and rings, or the shard itself has, and is awake.
    knocked: AtomicBool,
    is_sleeping: AtomicBool,
    wakes: Mutex<Vec<u32>>,
}

impl Door {
    pub(crate) fn new() -> Arc<Door> {
        Arc::new(Door {
            bell: Bell::new(),
            knocked: AtomicBool::new(false),
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
        self.knocked.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        // The thread that ends the sleep rings, once. The exchange does not overwrite the state of a shard that is
        // awake or sleeps again.
        let ends_sleep =
            || self.is_sleeping.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if self.is_sleeping.load(Ordering::Relaxed) && ends_sleep() {
            self.bell.ring();
        }
    }

    /// Whether a thread has knocked. Does not reset the flag: [`Door::take_knock`] will still return true.
    pub(crate) fn is_knocked(&self) -> bool {
        self.knocked.load(Ordering::Relaxed)
    }

    /// Whether a thread has knocked since the last call; resets the flag. Shard only.
    pub(crate) fn take_knock(&self) -> bool {
        self.knocked.load(Ordering::Relaxed) && self.knocked.swap(false, Ordering::AcqRel)
    }

    /// Announces sleep. Returns false if a thread has knocked: do not sleep then. Shard only.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.is_sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = !self.knocked.load(Ordering::Acquire);
        if !may {
            self.is_sleeping.store(false, Ordering::Relaxed);
        }
        may
    }

    /// Ends the sleep that [`Door::prepare_sleep`] announced.
    pub(crate) fn end_sleep(&self) {
        self.is_sleeping.store(false, Ordering::Relaxed);
    }

    /// Queues a task's index to be woken, and knocks.
    pub(crate) fn wake(&self, task: u32) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        self.knock();
    }

    pub(crate) fn take_wakes(&self, into: &mut Vec<u32>) {
        assert!(into.is_empty());
        std::mem::swap(&mut *self.wakes.lock().unwrap_or_else(PoisonError::into_inner), into);
    }
}

static DOORS: RwLock<Vec<Option<Arc<Door>>>> = RwLock::new(Vec::new());

/// Gives the door a number that wakers carry. Numbers are reused: a waker that outlived its executor may wake a task of
/// another one, which is harmless because every task tolerates spurious wakes.
pub(crate) fn register(door: Arc<Door>) -> u32 {
    let mut doors = DOORS.write().unwrap_or_else(PoisonError::into_inner);
    let number = doors.iter().position(Option::is_none).unwrap_or(doors.len());
    if number == doors.len() {
        doors.push(None);
    }
    doors[number] = Some(door);
    u32::try_from(number).expect("fewer than 2^32 executors live at once")
}

pub(crate) fn unregister(number: u32) {
    DOORS.write().unwrap_or_else(PoisonError::into_inner)[number as usize] = None;
}

/// Wakes a task of the executor with this number; no effect if that executor is gone.
pub(crate) fn wake(number: u32, task: u32) {
    let doors = DOORS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(Some(door)) = doors.get(number as usize) {
        door.wake(task);
    }
}
