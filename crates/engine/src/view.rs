//! The array as every shard sees it at one moment: immutable, replaced whole.
//! Owns: [`View`], [`Gate`], the epoch counters of one shard. Not here: when views change (`steward`).
//! Invariant: a request runs in the epoch of the view it entered with, and is counted there until it leaves.
//!
//! ```text
//!   epoch      7        8        9          a shard counts its own requests per epoch, in plain integers
//!   count      2        0        5          drain(9): answered when 7 and 8 are empty
//! ```

use std::cell::{Cell, RefCell};
use uraid_block::local::Notify;
use uraid_block::{ErrorKind, IoError, SlotSet};

/// The number of a view; each change makes a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// Which requests are admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// None yet: the array is starting or stopping. Requests wait.
    Closed,
    /// Reads and writes.
    Open,
    /// Reads only, by choice or because a feature of the metadata is not supported for writing yet.
    ReadOnly,
    /// Reads only, after an error that the array could not survive as a change of its members.
    Frozen(ErrorKind),
    /// None any more: requests are refused.
    Stopped,
}

/// Which copy a read may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// All copies hold the same: any will do.
    Any,
    /// Copies may differ (dirty and not yet resynced, or frozen in mid-write): only the one a resync would copy from,
    /// so that two reads of one sector agree.
    Canonical,
}

/// What a shard needs to know to serve a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Its number; later views have higher ones.
    pub epoch: Epoch,
    /// Slots whose member may be read and must be written.
    pub usable: SlotSet,
    /// Which requests are admitted.
    pub gate: Gate,
    /// Whether the dirty mark is durable, so that writes may be submitted. Always true for levels without a dirty mark.
    pub takes_writes: bool,
    /// Which copy a read may use.
    pub copies: Copies,
    /// Whether the superblocks already record the members that are not in `usable`. Until then no write or flush that
    /// left out a member may be answered.
    pub is_recorded: bool,
}

/// What a request wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Read,
    Write,
}

/// The answer of the view to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Enter,
    WaitForGate,
    NeedsDirtyMark,
    Refused(IoError),
}

impl View {
    pub(crate) fn admit(&self, wish: Wish) -> Admission {
        match (self.gate, wish) {
            (Gate::Closed, _) => Admission::WaitForGate,
            (Gate::Stopped, _) => Admission::Refused(ErrorKind::Stopping.into()),
            (Gate::Open, Wish::Read) | (Gate::ReadOnly, Wish::Read) | (Gate::Frozen(_), Wish::Read) => Admission::Enter,
            (Gate::Open, Wish::Write) if self.takes_writes => Admission::Enter,
            (Gate::Open, Wish::Write) => Admission::NeedsDirtyMark,
            (Gate::ReadOnly, Wish::Write) => Admission::Refused(ErrorKind::ReadOnly.into()),
            (Gate::Frozen(kind), Wish::Write) => Admission::Refused(frozen_error(kind)),
        }
    }
}

/// The error for writes to an array that froze over this one.
pub(crate) fn frozen_error(kind: ErrorKind) -> IoError {
    if kind == ErrorKind::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Frozen }.into()
}

/// Requests in flight on this shard, per epoch.
pub(crate) struct Epochs {
    current: Cell<Epoch>,
    /// Requests of the current epoch.
    count: Cell<u64>,
    /// Earlier epochs that still have requests, ascending.
    older: RefCell<Vec<(Epoch, u64)>>,
    drained: Notify,
}

impl Epochs {
    pub(crate) fn new(first: Epoch) -> Epochs {
        Epochs { current: Cell::new(first), count: Cell::new(0), older: RefCell::default(), drained: Notify::new() }
    }

    /// From now on requests enter `epoch`.
    pub(crate) fn switch(&self, epoch: Epoch) {
        let before = self.current.replace(epoch);
        assert!(epoch > before, "views arrive in order");
        let count = self.count.replace(0);
        if count > 0 {
            self.older.borrow_mut().push((before, count));
        }
        self.drained.notify_all();
    }

    #[inline]
    pub(crate) fn enter(&self) -> Epoch {
        self.count.set(self.count.get() + 1);
        self.current.get()
    }

    #[inline]
    pub(crate) fn leave(&self, epoch: Epoch) {
        if epoch == self.current.get() {
            let count = self.count.get();
            assert!(count > 0, "a request leaves its epoch once");
            self.count.set(count - 1);
        } else {
            self.leave_older(epoch);
        }
    }

    #[cold]
    fn leave_older(&self, epoch: Epoch) {
        let mut older = self.older.borrow_mut();
        let at = older.iter().position(|(of, _)| *of == epoch).expect("a request leaves its epoch once");
        older[at].1 -= 1;
        if older[at].1 == 0 {
            older.remove(at);
            drop(older);
            self.drained.notify_all();
        }
    }

    /// Waits until no request of an epoch before `epoch` is in flight here.
    pub(crate) async fn drain(&self, epoch: Epoch) {
        assert!(epoch <= self.current.get(), "a drain follows its view");
        self.drained.wait_for(|| self.older.borrow().iter().all(|(of, _)| *of >= epoch).then_some(())).await;
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.count.get() + self.older.borrow().iter().map(|(_, count)| count).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_drain_waits_for_older_epochs_only() {
        let epochs = Epochs::new(Epoch(0));
        let old = epochs.enter();
        epochs.switch(Epoch(1));
        let new = epochs.enter();
        let mut drain = pin!(epochs.drain(Epoch(1)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(drain.as_mut().poll(&mut context).is_pending());
        epochs.leave(old);
        assert!(drain.as_mut().poll(&mut context).is_ready());
        assert_eq!(epochs.in_flight(), 1);
        epochs.leave(new);
    }

    #[test]
    fn every_gate_answers_every_wish() {
        let gates = [Gate::Closed, Gate::Open, Gate::ReadOnly, Gate::Frozen(ErrorKind::Media), Gate::Stopped];
        let answers = gates.map(|gate| {
            let view = View {
                epoch: Epoch(1),
                usable: SlotSet::first(2),
                gate,
                takes_writes: false,
                copies: Copies::Any,
                is_recorded: true,
            };
            (view.admit(Wish::Read), view.admit(Wish::Write))
        });
        let refused = |kind: ErrorKind| Admission::Refused(kind.into());
        assert_eq!(answers[0], (Admission::WaitForGate, Admission::WaitForGate));
        assert_eq!(answers[1], (Admission::Enter, Admission::NeedsDirtyMark));
        assert_eq!(answers[2], (Admission::Enter, refused(ErrorKind::ReadOnly)));
        assert_eq!(answers[3], (Admission::Enter, refused(ErrorKind::Frozen)));
        assert_eq!(answers[4], (refused(ErrorKind::Stopping), refused(ErrorKind::Stopping)));
    }
}
