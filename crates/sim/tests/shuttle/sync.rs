//! shuttle's threads, locks and atomics under the names of the host's `src/sync.rs`, which can be sabotaged.
//! Owns: [`MachineSabotage`]. Not here: the scenarios. shuttle runs all threads on one system thread, in an order of its
//! own, never two at once. Memory orders weaker than sequential consistency are modelled in the host's `tests/loom`.
//! Invariant: unless sabotaged, each does what the standard library's does.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};

pub(crate) use self::shuttles_thread_local as thread_local;
pub(crate) use shuttle::sync::atomic::{AtomicBool, fence};
pub(crate) use shuttle::sync::{Mutex, MutexGuard, mpsc};

/// A mistake of the machine that a scenario must detect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MachineSabotage {
    Not,
    /// `Door::knock` does not wake a shard that sleeps.
    SilentBell,
    /// A condition variable wakes no thread.
    LostNotify,
}

std::thread_local! {
    // One system thread explores, and runs all threads of the scenario.
    static SABOTAGE: Cell<MachineSabotage> = const { Cell::new(MachineSabotage::Not) };
}

pub(crate) fn set_sabotage(how: MachineSabotage) {
    SABOTAGE.set(how);
}

pub(crate) fn is_sabotaged(how: MachineSabotage) -> bool {
    SABOTAGE.get() == how
}

pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar(shuttle::sync::Condvar::new())
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(guard)
    }

    pub(crate) fn notify_one(&self) {
        if !is_sabotaged(MachineSabotage::LostNotify) {
            self.0.notify_one();
        }
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock for the table of doors, which outlives an execution; shuttle's own locks must not. A reader gets a copy, so
/// that no lock is held while other threads run.
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

/// A reader's copy.
pub(crate) struct Copied<T>(T);

impl<T> Deref for Copied<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> RwLock<T> {
    pub(crate) const fn new(value: T) -> RwLock<T> {
        RwLock(std::sync::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> LockResult<Copied<T>> {
        Ok(Copied(self.0.read().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    /// The holder must not reach a scheduling point.
    pub(crate) fn write(&self) -> LockResult<impl DerefMut<Target = T> + '_> {
        self.0.write()
    }
}

/// shuttle's thread-local key with the methods of the standard library's.
pub(crate) struct LocalKey<T: 'static>(pub(crate) &'static shuttle::thread::LocalKey<T>);

impl<T> LocalKey<T> {
    pub(crate) fn try_with<R>(&self, work: impl FnOnce(&T) -> R) -> Result<R, shuttle::thread::AccessError> {
        self.0.try_with(work)
    }
}

impl<T> LocalKey<Cell<T>> {
    pub(crate) fn set(&self, value: T) {
        self.0.with(|cell| cell.set(value));
    }

    pub(crate) fn replace(&self, value: T) -> T {
        self.0.with(|cell| cell.replace(value))
    }
}

macro_rules! shuttles_thread_local {
    (static $name:ident: $value:ty = const { $first:expr };) => {
        static $name: $crate::sync::LocalKey<$value> = {
            shuttle::thread_local! { static KEY: $value = const { $first }; }
            $crate::sync::LocalKey(&KEY)
        };
    };
}
pub(crate) use shuttles_thread_local;

/// Threads under the standard library's names.
pub(crate) mod thread {
    pub(crate) use shuttle::thread::JoinHandle;
    use std::io;

    pub(crate) struct Builder(shuttle::thread::Builder);

    impl Builder {
        pub(crate) fn new() -> Builder {
            Builder(shuttle::thread::Builder::new())
        }

        pub(crate) fn name(self, name: String) -> Builder {
            Builder(self.0.name(name))
        }

        pub(crate) fn spawn<T: Send + 'static>(
            self,
            body: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            self.0.spawn(body)
        }

        /// # Safety
        /// What the body borrows lives until its last use of it.
        pub(crate) unsafe fn spawn_unchecked<'a>(self, body: impl FnOnce() + Send + 'a) -> io::Result<JoinHandle<()>> {
            let body: Box<dyn FnOnce() + Send + 'a> = Box::new(body);
            // SAFETY: only the lifetime changes, for which the caller is responsible.
            let body: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(body) };
            self.0.spawn(body)
        }
    }
}
