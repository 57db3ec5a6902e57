//! Writes of levels without parity: linear, raid0, raid1, raid10.
//! Owns: copies to every usable member, discards, zeroes. Not here: rows of parity levels (`row`).
//! Invariant: a write that a member missed is answered only after the superblocks of the others say so.

use crate::World;
use crate::shard::behind_place::BehindPlace;
use crate::shard::member_io::{MemberRun, Zeroing};
use crate::shard::permit::WritePermit;
use crate::shard::shared::Shared;
use crate::state::recorded::Recorded;
use crate::state::view::View;
use crate::words::failure::Failure;
use crate::words::mark::{self, Mark};
use crate::words::verdict::Operation;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use uraid_block::buffer::Arena;
use uraid_block::local::{join_each, join_pair};
use uraid_block::{ArrayRange, Device, ErrorKind, Fua, IoError, WritePieces};
use uraid_layout::{Plan, Run};

/// Writes of an array without parity, on one shard.
pub(crate) struct Mirror<W: World> {
    shared: Rc<Shared<W>>,
}

/// The copies of a write.
type Places = SmallVec<[MemberRun; 2]>;

/// A write that is one piece on each of its members.
struct OnePiece {
    /// By the view that the places were chosen with.
    recorded: Option<Recorded>,
}

impl<W: World> Mirror<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>) -> Mirror<W> {
        assert!(!shared.layout().level().is_parity(), "rows of parity levels are not copies");
        Mirror { shared }
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
            let is_one_piece = view.shape.copies().places_to_write(range, &view.writable(), |slot, at| {
                places.push(MemberRun::by(view, slot, at, range.length));
                if let Some(second) = view.replacement(slot) {
                    places.push(MemberRun::of(slot, &second, at, range.length));
                }
            });
            is_one_piece.then(|| OnePiece { recorded: Recorded::by(view) })
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
        let plan = view.shape.copies().plan_write(range, &view.writable());
        if !plan.lost.is_empty() {
            return Err(ErrorKind::TooManyLost.into());
        }
        assert!(!plan.runs.is_empty(), "a write that is not empty has runs");
        let outcomes = join_each(
            of_members(&view, &plan)
                .map(async |(run, of_member)| self.shared.write_run(&of_member, gather(&plan, run, from), fua).await),
        );
        self.settle_runs(&view, range, outcomes.await).await
    }

    /// Writes every copy, and answers when all members have it but those that may be behind. `place` and `permit` are
    /// given back when these have it, too, or their failure is recorded. If another member fails the write, or is gone by
    /// then, there may be no other copy: then the write waits for all members, as usual.
    pub(crate) async fn write_behind(
        &self,
        range: ArrayRange,
        from: WritePieces,
        permit: WritePermit<'_, W>,
        place: BehindPlace<W>,
    ) -> Result<Recorded, IoError> {
        let shared = &self.shared;
        let (mut in_time, mut behind) = (Places::new(), Places::new());
        let recorded = shared.with_view(|view| {
            let may_wait = view.behind.expect("the place was taken by this view").slots;
            let is_one_piece = view.shape.copies().places_to_write(range, &view.writable(), |slot, at| {
                let runs = if may_wait.contains(slot) { &mut behind } else { &mut in_time };
                runs.extend(view.writers(slot).map(|member| MemberRun::of(slot, &member, at, range.length)));
            });
            assert!(is_one_piece && !in_time.is_empty() && !behind.is_empty(), "a mirror has all of it on each member");
            Recorded::by(view)
        });
        // The request's memory is given back with the answer, so that a slow member does not take it from other requests.
        let mut late = Box::pin(write_late(shared.clone(), behind, copy_of(&from)));
        let mut late_failures = None;
        let outcomes: Vec<Result<(), Failure>> = {
            let mut writes = pin!(join_each(in_time.iter().map(|run| shared.write_run(run, from.clone(), Fua::No))));
            poll_fn(|context| {
                if late_failures.is_none()
                    && let Poll::Ready(failures) = late.as_mut().poll(context)
                {
                    late_failures = Some(failures);
                }
                writes.as_mut().poll(context)
            })
            .await
            .collect()
        };
        let failures: Vec<Failure> = outcomes.into_iter().filter_map(Result::err).collect();
        let has_copy = failures.is_empty() && self.is_readable(&in_time);
        match (late_failures, recorded) {
            (None, Some(recorded)) if has_copy => {
                mark::hit(Mark::Behind);
                let held = permit.into_owned(shared);
                let task = shared.clone();
                shared.world.spawn(async move {
                    task.end_behind(range, &late.await).await;
                    drop((held, place));
                });
                Ok(recorded)
            }
            (late_failures, recorded) => {
                if late_failures.is_none() {
                    mark::hit(Mark::BehindNeeded);
                }
                let late_failures = match late_failures {
                    Some(failures) => failures,
                    None => late.await,
                };
                let all: Vec<Failure> = failures.into_iter().chain(late_failures).collect();
                self.settle_failures(recorded, range, &all).await
            }
        }
    }

    /// Whether one of these members still has its slot and is read.
    fn is_readable(&self, runs: &[MemberRun]) -> bool {
        self.shared.with_view(|view| {
            runs.iter().any(|run| view.readable().contains(run.slot) && view.member(run.slot).index == run.index)
        })
    }

    /// Makes the range read as zeroes on every copy, each member by its cheapest operation.
    pub(crate) async fn zero(&self, range: ArrayRange, how: Zeroing) -> Result<Recorded, IoError> {
        let view = self.shared.view();
        // A plan does not list stretches without a usable copy. There are none: the steward keeps every view serving.
        assert!(view.shape.layout().can_serve(&view.readable()));
        let plan = view.shape.copies().plan_discard(range, &view.writable());
        assert!(!plan.runs.is_empty(), "zeroes that are not empty have runs");
        let outcomes = join_each(of_members(&view, &plan).map(async |(_, run)| how.run(&self.shared, &run).await));
        self.settle_runs(&view, range, outcomes.await).await
    }

    /// Passes the discard on: one member request per contiguous run, of any size. It is advisory: a member that refuses
    /// it stays; one that is gone is failed.
    pub(crate) async fn discard(&self, range: ArrayRange) -> Result<Recorded, IoError> {
        let view = self.shared.view();
        let plan = view.shape.copies().plan_discard(range, &view.writable());
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
        self.shared.settle_copies(recorded, range, failures).await
    }
}

/// Writes these runs. Returns those that failed.
async fn write_late<W: World>(shared: Rc<Shared<W>>, runs: Places, from: WritePieces) -> Vec<Failure> {
    let outcomes = join_each(runs.iter().map(|run| shared.write_run(run, from.clone(), Fua::No))).await;
    outcomes.filter_map(Result::err).collect()
}

/// The bytes in memory of their own.
fn copy_of(from: &WritePieces) -> WritePieces {
    let mut copy = Arena::for_one(from.bytes()).take(from.bytes()).expect("it was made for this");
    copy.copy_from_pieces(from);
    copy.freeze()
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
