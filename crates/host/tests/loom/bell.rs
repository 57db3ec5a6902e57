//! A bell whose waiters loom can see, in place of `src/bell.rs`.
//! Owns: [`Bell`]. Invariant: as there: once rung it is heard by its one listener, who may also wake for nothing.

use loom::sync::Notify;

pub(crate) struct Bell(Notify);

impl Bell {
    pub(crate) fn new() -> Bell {
        Bell(Notify::new())
    }

    pub(crate) fn ring(&self) {
        self.0.notify();
    }

    /// What a ring does while the shard sleeps, and silences the bell.
    pub(crate) fn wait(&self) {
        self.0.wait();
    }
}
