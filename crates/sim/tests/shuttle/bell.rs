//! A bell whose waiters shuttle can see, in place of the host's `src/mail/bell.rs`.
//! Owns: [`Bell`], finding it by its descriptor. Not here: when it is rung (`door`), waiting for it (`sys::poll`).
//! Invariant: as there: once rung, it wakes its one waiter until it is silenced.

use crate::sync::{MachineSabotage, is_sabotaged};
use shuttle::sync::{Condvar, Mutex};
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

#[derive(Default)]
struct Rung {
    is_rung: Mutex<bool>,
    came: Condvar,
}

pub(crate) struct Bell {
    rung: Arc<Rung>,
    descriptor: RawFd,
}

std::thread_local! {
    // Indexed by descriptor. Thread-local is enough: one system thread runs all threads of an execution.
    static BELLS: RefCell<Vec<Weak<Rung>>> = const { RefCell::new(Vec::new()) };
}

/// Call it at the start of an execution: drops the bells of the previous one.
pub(crate) fn forget_all() {
    BELLS.take();
}

impl Bell {
    pub(crate) fn new() -> Bell {
        let rung = Arc::new(Rung::default());
        let descriptor = BELLS.with_borrow_mut(|bells| {
            bells.push(Arc::downgrade(&rung));
            bells.len() - 1
        });
        Bell { rung, descriptor: descriptor as RawFd }
    }

    pub(crate) fn ring(&self) {
        if !is_sabotaged(MachineSabotage::SilentBell) {
            *self.rung.is_rung.lock().expect("no thread panics while it holds the lock") = true;
            self.rung.came.notify_one();
        }
    }

    pub(crate) fn silence(&self) {
        *self.rung.is_rung.lock().expect("no thread panics while it holds the lock") = false;
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor
    }
}

fn find(descriptor: RawFd) -> Arc<Rung> {
    let index = usize::try_from(descriptor).expect("the descriptor of a bell");
    BELLS.with_borrow(|bells| bells[index].upgrade()).expect("who waits for a bell has it")
}

/// Whether the bell was rung and not silenced since.
pub(crate) fn is_rung(descriptor: RawFd) -> bool {
    *find(descriptor).is_rung.lock().expect("no thread panics while it holds the lock")
}

/// Waits until the bell is rung. shuttle detects a task that waits for ever.
pub(crate) fn wait(descriptor: RawFd) {
    let rung = find(descriptor);
    let guard = rung.is_rung.lock().expect("no thread panics while it holds the lock");
    drop(rung.came.wait_while(guard, |is_rung| !*is_rung).expect("no thread panics while it holds the lock"));
}
