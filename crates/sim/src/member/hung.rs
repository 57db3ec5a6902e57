//! Members that never answer, or answer an hour later, and members that the array has given up.
//! Owns: [`Hang`], requests that are owed. Not here: which members hang (`faults`, `scenario`).
//! Invariant: an unanswered write may land until an hour has passed, the round ends or the power fails, whichever is
//! first; also long after its error was returned. The host behaves in the same way: see its `ring::answers`.

use super::{Access, Disk, ErrorKind, Fate, IoError, Op};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, Receiver, race};

/// What the host gives a member by default.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);

/// Of one member.
#[derive(Default)]
pub(super) struct Hang {
    is_under_way: Cell<bool>,
    /// It did not answer in time and has not answered since.
    is_late: Cell<bool>,
    /// Requests wait until the array fails the member; otherwise for [`MEMBER_TIMEOUT`] at most.
    has_no_deadline: Cell<bool>,
    is_dead: Cell<bool>,
    writes: RefCell<Vec<u64>>,
    /// How often reads were cut.
    cuts: Cell<u64>,
    changed: Notify,
}

impl Hang {
    /// The member stops answering.
    pub(super) fn begin(&self) {
        self.is_under_way.set(true);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way.get()
    }

    /// Notes a write that may still land.
    pub(super) fn owe(&self, number: u64) {
        self.writes.borrow_mut().push(number);
    }

    /// The array has failed it: nothing is waited for any more.
    pub(super) fn mark_dead(&self) {
        self.is_dead.set(true);
        self.changed.notify_all();
    }

    /// Reads that are under way are to be served from elsewhere.
    pub(super) fn cut_reads(&self) {
        self.cuts.set(self.cuts.get() + 1);
        self.changed.notify_all();
    }

    /// Whether a new request fails at once.
    pub(super) fn refuses(&self) -> bool {
        self.is_dead.get() || self.is_late.get()
    }

    /// It answers again, and nothing is owed.
    pub(super) fn forget(&self) {
        self.is_under_way.set(false);
        self.is_late.set(false);
        self.has_no_deadline.set(false);
        self.is_dead.set(false);
        self.writes.borrow_mut().clear();
    }
}

/// One request in flight; its asker may leave it.
struct Counted<'a>(&'a Disk);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get().saturating_sub(1));
    }
}

impl Disk {
    /// The member stops answering, and requests have no timeout.
    pub fn hang_without_deadline(&self) {
        self.hang.has_no_deadline.set(true);
        self.hang.begin();
    }

    /// Answers again, starting with the unanswered operations: each such write is either done or not.
    pub fn end_hang(self: &Rc<Self>) {
        let owed = self.hang.writes.take();
        for number in owed {
            let has_effect = self.executor.luck(|rng| rng.chance(1, 2));
            self.medium.borrow_mut().abandon(number, has_effect);
        }
        self.hang.is_under_way.set(false);
        self.hang.is_late.set(false);
        self.hang.has_no_deadline.set(false);
        self.hang.changed.notify_all();
    }

    /// Another process drives it: operations that the last process gave up do not concern it.
    pub fn begin_anew(self: &Rc<Self>) {
        self.end_hang();
        self.hang.is_dead.set(false);
    }

    /// A request that does not even go down has failed all the same.
    pub(super) fn say_refused(&self, op: Op, at: u64, length: u64) {
        let watch = self.watch.borrow().clone();
        if let Some(watch) = watch {
            watch.failed(Access { disk: self.index, op, at, length }, ErrorKind::Gone);
        }
    }

    /// What a request to a member that hangs gets, and when.
    pub(super) async fn never_answer(self: &Rc<Self>, op: Op, at: u64, length: u64) -> IoError {
        let hang = &self.hang;
        let counted = Counted(self);
        let is_over = || hang.is_dead.get() || hang.is_late.get() || !hang.is_under_way.get();
        let over = hang.changed.wait_for(|| is_over().then_some(()));
        if hang.has_no_deadline.get() {
            over.await;
        } else if matches!(race(over, self.executor.sleep(MEMBER_TIMEOUT)).await, Either::Right(())) {
            hang.is_late.set(true);
            hang.changed.notify_all();
            let (disk, wait) = (self.clone(), Duration::from_secs(self.executor.luck(|rng| rng.between(1, 3600))));
            self.executor.after(wait, move || disk.end_hang());
        }
        // It is counted out there.
        std::mem::forget(counted);
        let outcome = self.end(op, at, length, Fate::Error { kind: ErrorKind::Gone, has_effect: false });
        outcome.expect_err("it was told to fail").0
    }

    /// What a read gets, unless reads are cut before. The disk is at it all the same.
    pub(super) async fn unless_cut<T>(&self, read: impl Future<Output = Result<T, IoError>>) -> Result<T, IoError> {
        let before = self.hang.cuts.get();
        let cut = self.hang.changed.wait_for(|| (self.hang.cuts.get() > before).then_some(()));
        match race(read, cut).await {
            Either::Left(outcome) => outcome,
            Either::Right(()) => Err(ErrorKind::Late.into()),
        }
    }

    /// What a request gets that is answered, unless the array gives the member up before: then it is done all the same.
    pub(super) async fn unless_dead<T>(&self, answer: Receiver<Result<T, IoError>>) -> Result<T, IoError> {
        let dead = self.hang.changed.wait_for(|| self.hang.is_dead.get().then_some(()));
        match race(answer, dead).await {
            Either::Left(answer) => answer.unwrap_or(Err(ErrorKind::Gone.into())),
            Either::Right(()) => Err(ErrorKind::Gone.into()),
        }
    }
}
