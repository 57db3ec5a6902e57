//! Writes of levels without parity: linear, raid0, raid1, raid10.
//! Owns: copies to every usable member, discards, zeroes. Not here: rows of parity levels (`row`).
//! Invariant: a write that a member missed is answered only after the superblocks of the others say so.

use crate::World;
use crate::failure::{Failure, RequestKind};
use crate::mark::{self, Mark};
use crate::recorded::Recorded;
use crate::sabotage;
use crate::shared::Shared;
use crate::verdict::Operation;
use crate::view::View;
use smallvec::SmallVec;
use std::pin::pin;
use std::rc::Rc;
use uraid_block::local::{join_each, join_pair};
use uraid_block::{ArrayRange, Device, ErrorKind, Fua, IoError, Range, Slot, WritePieces};
use uraid_layout::{CopyLayout, Plan, Run};

/// Writes of an array without parity, on one shard.
pub(crate) struct Mirror<W: World> {
    shared: Rc<Shared<W>>,
    layout: CopyLayout,
}

/// One copy of a write.
struct PlaceToWrite {
    slot: Slot,
    /// The member's index in the start plan.
    index: usize,
    /// On its device.
    range: Range,
}

type Places = SmallVec<[PlaceToWrite; 2]>;

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
                        let outcome = self.write_place(place, from, fua).await;
                        self.settle_places(recorded, range, &[outcome]).await
                    }
                    [first, second] => {
                        // Pinned here, the futures are made where they are driven, and not moved.
                        let first = pin!(self.write_place(first, from.clone(), fua));
                        let second = pin!(self.write_place(second, from, fua));
                        let (first, second) = join_pair(first, second).await;
                        self.settle_places(recorded, range, &[first, second]).await
                    }
                    _ => {
                        let writes = places.iter().map(|place| self.write_place(place, from.clone(), fua));
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
                let member = view.member(slot);
                places.push(PlaceToWrite { slot, index: member.index, range: member.range(at, range.length) });
            });
            (is_one_piece && !sabotage::is_of_mirror_writes()).then(|| OnePiece { recorded: Recorded::by(view) })
        })
    }

    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    #[inline]
    fn write_place(
        &self,
        place: &PlaceToWrite,
        from: WritePieces,
        fua: Fua,
    ) -> impl Future<Output = Result<(), Failure>> {
        async move {
            let member = self.shared.members.get(place.index);
            let begun = member.begin();
            let outcome = member.uncounted().write(place.range.start, from, fua).await;
            member.end(&begun, RequestKind::Write, place.range, outcome.err());
            outcome.map_err(|error| Failure::new(place.slot, Operation::Write, error))
        }
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
        let outcomes = join_each(plan.runs.iter().map(async |run| {
            sabotage::write_run_instead!(&self.shared, plan.runs[0].slot, run, gather(&plan, run, from), fua);
            let (member, of_member) = self.shared.run_on_device(run.slot, run.at, run.length);
            let begun = member.begin();
            let outcome = member.uncounted().write(of_member.start, gather(&plan, run, from), fua).await;
            member.end(&begun, RequestKind::Write, of_member, outcome.err());
            (run, outcome)
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
        let outcomes = join_each(plan.runs.iter().map(async |run| {
            let (member, of_member) = self.shared.run_on_device(run.slot, run.at, run.length);
            (run, member.write_zeroes(of_member).await)
        }));
        self.settle_runs(&view, range, outcomes.await).await
    }

    /// Passes the discard on: one member request per contiguous run, of any size. It is advisory: a member that refuses
    /// it stays; one that is gone is failed.
    pub(crate) async fn discard(&self, range: ArrayRange) -> Result<Recorded, IoError> {
        let view = self.shared.view();
        let plan = sabotage::zones_to_discard(&self.layout).plan_discard(range, &view.writable());
        let outcomes = join_each(plan.runs.iter().map(async |run| {
            let (member, of_member) = self.shared.run_on_device(run.slot, run.at, run.length);
            (run, member.discard(of_member).await)
        }));
        let gone: Vec<_> =
            outcomes.await.filter(|(_, outcome)| outcome.is_err_and(|error| error.kind == ErrorKind::Gone)).collect();
        if !gone.is_empty() {
            mark::hit(Mark::DiscardMemberGone);
        }
        self.settle_runs(&view, range, gone).await
    }

    /// Records the failures. The remaining members have the bytes: `can_serve`, which the steward checks, says that
    /// every sector has a copy among them, and each of them was written.
    async fn settle_runs<'a>(
        &self,
        view: &View,
        range: ArrayRange,
        outcomes: impl IntoIterator<Item = (&'a Run, Result<(), IoError>)>,
    ) -> Result<Recorded, IoError> {
        let mut failures: Vec<Failure> = Vec::new();
        for (run, outcome) in outcomes {
            if let Err(error) = outcome {
                failures.push(Failure::new(run.slot, Operation::Write, error));
            }
        }
        self.settle_failures(Recorded::by(view), range, &failures).await
    }

    async fn settle_failures(
        &self,
        recorded: Option<Recorded>,
        range: ArrayRange,
        failures: &[Failure],
    ) -> Result<Recorded, IoError> {
        let outcome = self.shared.settle_planned(recorded, failures).await;
        if outcome.is_err() && self.shared.is_redundant() {
            self.shared.torn.mark_copies(range);
        }
        outcome
    }
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
