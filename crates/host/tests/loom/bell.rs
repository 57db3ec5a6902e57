//! A bell whose waiters loom can see, in place of `src/mail/bell.rs`.
//! Owns: [`Bell`]. Invariant: the same as there: once rung, it wakes its one waiter, which may also wake spuriously.

use loom::sync::Notify;

pub(crate) struct Bell(Notify);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(Notify::new())
    }

    pub(crate) fn ring(&self) {
        self.0.notify();
    }

    /// What a ring does while the shard sleeps: waits for the bell and silences it.
    pub(crate) fn wait(&self) {
        self.0.wait();
    }
}
