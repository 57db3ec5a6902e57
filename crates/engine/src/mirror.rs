//! Writes of levels without parity: linear, raid0, raid1, raid10.
//! Owns: copies to every usable member, discards, zeroes. Not here: rows of parity levels (`row`).
//! Invariant: a write that a member missed is answered only after the superblocks of the others say so.

use crate::World;
use crate::failure::Failure;
use crate::mark::{self, Mark};
use crate::member_io::MemberRun;
use crate::recorded::{NotRecorded, Recorded};
use crate::sabotage;
use crate::shared::Shared;
use crate::verdict::Operation;
use crate::view::View;
use smallvec::SmallVec;
use std::pin::pin;
use std::rc::Rc;
use uraid_block::local::{join_each, join_pair};
use uraid_block::{ArrayRange, Device, ErrorKind, Fua, IoError, WritePieces};
use uraid_layout::{CopyLayout, Plan, Run};

/// Writes of an array without parity, on one shard.
pub(crate) struct Mirror<W: World> {
    shared: Rc<Shared<W>>,
    layout: CopyLayout,
}

/// The copies of a write.
type Places = SmallVec<[MemberRun; 2]>;

/// A write that is one piece on each of its members.
struct OnePiece {
    /// By the view that the places were chosen with.
    recorded: Option<Recorded>,
}

impl<W: World> Mirror<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, layout: CopyLayout) -> Mirror<W> {
        assert!(!shared.layout.level().is_parity(), "rows of parity levels are not copies");
        Mirror { shared, layout }
    }

    /// Writes every copy, all members at once, then records the failed members, then answers.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    pub(crate) fn write(
        &self,
        range: ArrayRange,
        from: WritePieces,
        fua: Fua,
    ) -> impl Future<Output = Result<Recorded, IoError>> {
        async move {
            let mut places = Places::new();
            match self.plan_one_piece(range, &mut places) {
                Some(OnePiece { recorded }) => match &places[..] {
                    [place] => {
                        let outcome = self.shared.write_run(place, from, fua).await;
                        self.settle_places(recorded, range, &[outcome]).await
                    }
                    [first, second] => {
                        // Pinned here, the futures are made where they are driven, and not moved.
                        let first = pin!(self.shared.write_run(first, from.clone(), fua));
                        let second = pin!(self.shared.write_run(second, from, fua));
                        let (first, second) = join_pair(first, second).await;
                        self.settle_places(recorded, range, &[first, second]).await
                    }
                    _ => {
                        let writes = places.iter().map(|place| self.shared.write_run(place, from.clone(), fua));
                        let outcomes: Vec<_> = join_each(writes).await.collect();
                        self.settle_places(recorded, range, &outcomes).await
                    }
                },
                None => Box::pin(self.write_runs(range, &from, fua)).await,
            }
        }
    }

    /// Adds the places of a range to an empty list if it is one piece on each of its members.
    #[inline]
    fn plan_one_piece(&self, range: ArrayRange, places: &mut Places) -> Option<OnePiece> {
        assert!(places.is_empty());
        self.shared.with_view(|view| {
            let is_one_piece = self.layout.places_to_write(range, &view.writable(), |slot, at| {
                places.push(MemberRun::by(view, slot, at, range.length));
                if let Some(second) = view.replacement(slot) {
                    places.push(MemberRun::of(slot, &second, at, range.length));
                }
            });
            (is_one_piece && !sabotage::is_of_mirror_writes()).then(|| OnePiece { recorded: Recorded::by(view) })
        })
    }

    #[inline]
    async fn settle_places(
        &self,
        recorded: Option<Recorded>,
        range: ArrayRange,
        outcomes: &[Result<(), Failure>],
    ) -> Result<Recorded, IoError> {
        match recorded {
            Some(recorded) if outcomes.iter().all(Result::is_ok) => Ok(recorded),
            Some(_) | None => {
                let failures: Vec<Failure> = outcomes.iter().filter_map(|outcome| outcome.err()).collect();
                // Cold path, boxed to keep the request future small.
                Box::pin(self.settle_failures(recorded, range, &failures)).await
            }
        }
    }

    /// A write that is cut by the layout: each run takes its parts of the request.
    async fn write_runs(&self, range: ArrayRange, from: &WritePieces, fua: Fua) -> Result<Recorded, IoError> {
        let view = self.shared.view();
        let plan = self.layout.plan_write(range, &view.writable());
        if !plan.lost.is_empty() {
            return Err(ErrorKind::TooManyLost.into());
        }
        assert!(!plan.runs.is_empty(), "a write that is not empty has runs");
        sabotage::answer_instead!(AnswerEarly, self.shared.settle(&view, &[]).await);
        sabotage::answer_instead!(NeverAnswer, std::future::pending().await);
        let outcomes = join_each(of_members(&view, &plan).map(async |(run, of_member)| {
            sabotage::write_run_instead!(
                &self.shared,
                plan.runs[0].slot,
                run,
                of_member,
                gather(&plan, run, from),
                fua
            );
            self.shared.write_run(&of_member, gather(&plan, run, from), fua).await
        }));
        self.settle_runs(&view, range, outcomes.await).await
    }

    /// Makes the range read as zeroes on every copy, each member by its cheapest operation.
    pub(crate) async fn write_zeroes(&self, range: ArrayRange) -> Result<Recorded, IoError> {
        let view = self.shared.view();
        // A plan does not list stretches without a usable copy. There are none: the steward keeps every view serving.
        assert!(self.shared.layout.can_serve(&view.readable()));
        let plan = self.layout.plan_discard(range, &view.writable());
        assert!(!plan.runs.is_empty(), "zeroes that are not empty have runs");
        let outcomes = join_each(of_members(&view, &plan).map(async |(_, run)| {
            let outcome = self.shared.members.get(run.index).write_zeroes(run.range).await;
            outcome.map_err(|error| run.failure(Operation::Write, error))
        }));
        self.settle_runs(&view, range, outcomes.await).await
    }

    /// Passes the discard on: one member request per contiguous run, of any size. It is advisory: a member that refuses
    /// it stays; one that is gone is failed.
    pub(crate) async fn discard(&self, range: ArrayRange) -> Result<Recorded, IoError> {
        let view = self.shared.view();
        let plan = sabotage::zones_to_discard(&self.layout).plan_discard(range, &view.writable());
        let outcomes = join_each(of_members(&view, &plan).map(async |(_, run)| {
            let outcome = self.shared.members.get(run.index).discard(run.range).await;
            outcome.map_err(|error| run.failure(Operation::Write, error))
        }));
        let is_gone =
            |outcome: &Result<(), Failure>| outcome.is_err_and(|failure| failure.error.kind == ErrorKind::Gone);
        let gone: Vec<Result<(), Failure>> = outcomes.await.filter(is_gone).collect();
        if !gone.is_empty() {
            mark::hit(Mark::DiscardMemberGone);
        }
        self.settle_runs(&view, range, gone).await
    }

    /// Records the failures. The remaining members have the bytes: `can_serve`, which the steward checks, says that
    /// every sector has a copy among them, and each of them was written.
    async fn settle_runs(
        &self,
        view: &View,
        range: ArrayRange,
        outcomes: impl IntoIterator<Item = Result<(), Failure>>,
    ) -> Result<Recorded, IoError> {
        let failures: Vec<Failure> = outcomes.into_iter().filter_map(Result::err).collect();
        self.settle_failures(Recorded::by(view), range, &failures).await
    }

    async fn settle_failures(
        &self,
        recorded: Option<Recorded>,
        range: ArrayRange,
        failures: &[Failure],
    ) -> Result<Recorded, IoError> {
        let outcome = self.shared.settle_planned(recorded, failures).await;
        if matches!(outcome, Err(NotRecorded::Frozen(_))) && self.shared.is_redundant() {
            self.shared.torn.mark_copies(range);
        }
        Ok(outcome?)
    }
}

/// The runs of a plan, each with the members that it goes to.
fn of_members<'a>(view: &'a View, plan: &'a Plan) -> impl Iterator<Item = (&'a Run, MemberRun)> {
    plan.runs.iter().flat_map(|run| {
        view.writers(run.slot).map(move |member| (run, MemberRun::of(run.slot, &member, run.at, run.length)))
    })
}

/// The bytes of one run, in the member's order, sharing the request's memory.
fn gather(plan: &Plan, run: &Run, from: &WritePieces) -> WritePieces {
    let mut whole = WritePieces::new();
    for part in plan.parts_of(run) {
        whole.append(from.slice(part.offset.len_bytes(), part.length.len_bytes()));
    }
    assert_eq!(whole.length(), run.length);
    whole
}
