//! Members that never answer, or answer an hour later, and members that the array has failed.
//! Owns: [`Hang`], unanswered requests. Not here: which members hang (`scenario::plan`).
//! Invariant: an unanswered write may be performed until an hour has passed, the round ends or power fails, whichever is
//! first, and also long after its error was returned. The host behaves in the same way: see its `ring::answers`.

use super::{Access, Disk, ErrorKind, Fate, IoError, Op};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::Tick;
use uraid_block::local::{Either, Notify, Receiver, race};

/// The host's default timeout of a member.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);

/// The state of one member.
#[derive(Default)]
pub(super) struct Hang {
    is_under_way: Cell<bool>,
    /// When the first request that it has not answered is too old. A read that was cut counts, too: the host still waits
    /// for it.
    late_at: Cell<Option<Tick>>,
    /// It did not answer in time and has not answered since.
    is_late: Cell<bool>,
    /// Requests wait until the array fails the member, without [`MEMBER_TIMEOUT`].
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

    /// Records a write that may still be performed.
    pub(super) fn note_unanswered(&self, number: u64) {
        self.writes.borrow_mut().push(number);
    }

    /// The array has failed the member: no request waits for it any more.
    pub(super) fn mark_dead(&self) {
        self.is_dead.set(true);
        self.changed.notify_all();
    }

    /// Cuts the reads in flight: another copy will serve them.
    pub(super) fn cut_reads(&self) {
        self.cuts.set(self.cuts.get() + 1);
        self.changed.notify_all();
    }

    /// Whether a new request fails at once.
    pub(super) fn refuses(&self) -> bool {
        self.is_dead.get() || self.is_late.get()
    }

    /// The member answers again, and no request is unanswered.
    pub(super) fn forget(&self) {
        self.is_under_way.set(false);
        self.is_late.set(false);
        self.late_at.set(None);
        self.has_no_deadline.set(false);
        self.is_dead.set(false);
        self.writes.borrow_mut().clear();
    }
}

/// One request in flight; its future may be dropped.
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

    /// The member answers again, starting with the unanswered operations: each such write is either performed or not.
    pub fn end_hang(self: &Rc<Self>) {
        let owed = self.hang.writes.take();
        for number in owed {
            let has_effect = self.executor.random(|rng| rng.chance(1, 2));
            self.medium.borrow_mut().abandon(number, has_effect);
        }
        self.hang.is_under_way.set(false);
        self.hang.is_late.set(false);
        self.hang.late_at.set(None);
        self.hang.has_no_deadline.set(false);
        self.hang.changed.notify_all();
    }

    /// Another process uses the member: unanswered operations of the previous process do not concern it.
    pub fn change_process(self: &Rc<Self>) {
        self.end_hang();
        self.hang.is_dead.set(false);
    }

    /// Reports the failure of a request that is refused without being submitted.
    pub(super) fn report_refusal(&self, op: Op, at: u64, length: u64) {
        let watch = self.watch.borrow().clone();
        if let Some(watch) = watch {
            watch.failed(Access { disk: self.index, op, at, length }, ErrorKind::Gone);
        }
    }

    /// The result of a request to a member that hangs.
    pub(super) async fn never_answer(self: &Rc<Self>, op: Op, at: u64, length: u64) -> IoError {
        let hang = &self.hang;
        let counted = Counted(self);
        let is_over = || hang.is_dead.get() || hang.is_late.get() || !hang.is_under_way.get();
        let over = hang.changed.wait_for(|| is_over().then_some(()));
        let now = self.executor.now();
        let late_at = hang.late_at.get().unwrap_or(now + MEMBER_TIMEOUT);
        if hang.has_no_deadline.get() {
            over.await;
        } else {
            hang.late_at.set(Some(late_at));
            if matches!(race(over, self.executor.sleep(late_at.since(now))).await, Either::Right(())) {
                hang.is_late.set(true);
                hang.changed.notify_all();
                let (disk, wait) =
                    (self.clone(), Duration::from_secs(self.executor.random(|rng| rng.between(1, 3600))));
                self.executor.after(wait, move || disk.end_hang());
            }
        }
        // `end` counts the end of this request.
        std::mem::forget(counted);
        let outcome = self.end(op, at, length, Fate::Error { kind: ErrorKind::Gone, has_effect: false });
        outcome.expect_err("it was told to fail").0
    }

    /// The result of a read, unless reads are cut first. The disk performs the read in any case.
    pub(super) async fn unless_cut<T>(&self, read: impl Future<Output = Result<T, IoError>>) -> Result<T, IoError> {
        let before = self.hang.cuts.get();
        let cut = self.hang.changed.wait_for(|| (self.hang.cuts.get() > before).then_some(()));
        match race(read, cut).await {
            Either::Left(outcome) => outcome,
            Either::Right(()) => Err(ErrorKind::Late.into()),
        }
    }

    /// The result of a request, unless the array fails the member first. The disk performs the request in any case.
    pub(super) async fn unless_dead<T>(&self, answer: Receiver<Result<T, IoError>>) -> Result<T, IoError> {
        let dead = self.hang.changed.wait_for(|| self.hang.is_dead.get().then_some(()));
        match race(answer, dead).await {
            Either::Left(answer) => answer.unwrap_or(Err(ErrorKind::Gone.into())),
            Either::Right(()) => Err(ErrorKind::Gone.into()),
        }
    }
}
