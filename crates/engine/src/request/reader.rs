//! Reads: straight to the members, with retries elsewhere if a member fails.
//! Owns: cutting a request's buffers by the plan, retries on other copies, joining the result. Not here: computing a
//! lost member's bytes (`row`).
//! Invariant: a success holds the right bytes in every sector. A failed piece is read elsewhere or fails the request.

use crate::row::Rows;
use crate::shard::buffers;
use crate::shard::member_io::MemberRun;
use crate::shard::shared::Shared;
use crate::state::view::{Copies, Gate, SlotMember, View};
use crate::words::failure::{ReadError, RequestKind};
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use smallvec::SmallVec;
use std::rc::Rc;
use uraid_block::buffer::Lease;
use uraid_block::local::join_each;
use uraid_block::{
    ArrayRange, Cutter, Device, ErrorKind, IoError, MemberSector, ReadPieces, SECTOR_BYTES, Sectors, Slot, SlotSet,
};
use uraid_layout::{CopyChoice, Part, Plan, Run};

/// A part of the request that is still to be read.
struct Wanted {
    /// From the start of the request.
    offset: Sectors,
    into: ReadPieces,
    tried: Tried,
    /// The copy to read, if that is decided.
    choice: Option<CopyChoice>,
}

/// The members that were asked for a part without success.
#[derive(Clone, Copy)]
struct Tried {
    /// Slots that have failed to read it.
    avoid: SlotSet,
    /// Those of them whose bad-block list named a sector of it. If a write has cleared the list since, their copy is the
    /// canonical one again, but not for this request: it goes on with the next copy, which it could have read before.
    lacking: SlotSet,
    /// The failed read was longer than this part: sectors 23+2 failed, and this is 24, which may be readable.
    is_suspicion: bool,
    /// Slots that do not answer now: read them only if no other has the part.
    late: SlotSet,
}

impl Tried {
    const NONE: Tried =
        Tried { avoid: SlotSet::EMPTY, lacking: SlotSet::EMPTY, is_suspicion: false, late: SlotSet::EMPTY };

    /// `failed`: the slots that have failed to read it now.
    fn without(self, failed: SlotSet) -> Tried {
        Tried { avoid: self.avoid.or(failed), ..self }
    }

    /// For the same request: no copy of this slot becomes the canonical one while it is read.
    fn noting_list(self, failed: &ReadError) -> Tried {
        let listed = if failed.is_listed { SlotSet::EMPTY.with(failed.slot) } else { SlotSet::EMPTY };
        Tried { lacking: self.lacking.or(listed), ..self }
    }
}

impl Wanted {
    fn new(offset: Sectors, into: ReadPieces) -> Wanted {
        Wanted { offset, into, tried: Tried::NONE, choice: None }
    }
}

/// A part of a request that is being read: it begins `base` sectors into the request.
struct Asked {
    range: ArrayRange,
    base: Sectors,
    tried: Tried,
}

/// The one place that has all of a read.
pub(crate) struct OnePlace {
    pub(crate) slot: Slot,
    pub(crate) at: MemberSector,
    pub(crate) member: SlotMember,
    /// The member may not have all writes yet.
    waits: bool,
}

/// A part of the request with its bytes.
struct Got {
    offset: Sectors,
    pieces: ReadPieces,
}

/// The remaining parts of a request, and the results of the others.
struct Work {
    wanted: Vec<Wanted>,
    got: Vec<Got>,
    /// Failed member reads.
    failed: Vec<ReadError>,
}

/// Reads of an array, on one shard.
pub(crate) struct Reader<W: World> {
    shared: Rc<Shared<W>>,
    /// Of parity levels: computes what a lost member held.
    rows: Option<Rc<Rows<W>>>,
}

impl<W: World> Reader<W> {
    pub(crate) fn new(shared: Rc<Shared<W>>, rows: Option<Rc<Rows<W>>>) -> Reader<W> {
        assert_eq!(shared.layout().level().is_parity(), rows.is_some(), "only parity levels have rows");
        Reader { shared, rows }
    }

    /// Reads a range that is not empty. The caller is inside an epoch.
    #[inline]
    pub(crate) async fn read(&self, range: ArrayRange, into: ReadPieces) -> Result<ReadPieces, IoError> {
        // The usual case is one piece on a healthy member: it is submitted at once. All other cases are boxed to keep
        // the future of every read small.
        let outcome = match self.one_place(range) {
            Ok(OnePlace { slot, at, member: place, waits: false }) if !self.shared.balance.is_slow(slot) => {
                let _in_flight = self.shared.balance.begin(slot);
                let of_member = place.range(at, range.length);
                let member = self.shared.members.get(place.index);
                let failed = |error| ReadError { slot, member: place.index, range: of_member, error, is_listed: false };
                if let Err(error) = member.check_read(of_member) {
                    return Box::pin(self.read_around(range, failed(error).listed())).await;
                }
                let begun = member.begin();
                match member.uncounted().read(of_member.start, into).await {
                    Err(error) => {
                        member.end(&begun, RequestKind::Read, of_member, Some(error));
                        Box::pin(self.read_around(range, failed(error))).await
                    }
                    Ok(pieces) => {
                        member.end(&begun, RequestKind::Read, of_member, None);
                        Ok(pieces)
                    }
                }
            }
            Ok(OnePlace { slot, .. }) => Box::pin(self.read_beside(range, into, slot)).await,
            Err(choice) => Box::pin(self.read_pieces(range, into, choice)).await,
        };
        self.shared.count(|counters| counters.reads += 1);
        outcome
    }
    /// The place of the range if one read can fetch all of it; else the copy that was chosen for its parts.
    #[inline]
    pub(crate) fn one_place(&self, range: ArrayRange) -> Result<OnePlace, CopyChoice> {
        self.shared.with_view(|view| {
            let usable = view.readable();
            let choice = self.copy_choice(view, range, &usable);
            let (slot, at) = view.shape.layout().place_to_read(range, &usable, choice).ok_or(choice)?;
            Ok(OnePlace { slot, at, member: view.member(slot), waits: view.read_waits(slot) })
        })
    }

    /// Which copy to read: the best placed if all are equal, else the one that a resync copies from.
    #[inline]
    pub(crate) fn copy_choice(&self, view: &View, range: ArrayRange, usable: &SlotSet) -> CopyChoice {
        if view.copies == Copies::Canonical || self.shared.layout().copies_count() == 1 || range.length.is_zero() {
            return view.canonical();
        }
        CopyChoice::Nth(self.shared.balance.choose(view.shape.layout(), range, usable))
    }

    /// Reads the whole request again, after its only member has failed to read it.
    pub(crate) async fn read_around(&self, range: ArrayRange, failed: ReadError) -> Result<ReadPieces, IoError> {
        mark::hit(Mark::ReadAround);
        if failed.error.kind == ErrorKind::Late {
            let into = buffers::take(&self.shared.world, Pool::Request, range.length).await;
            return self.read_beside(range, into, failed.slot).await;
        }
        if self.is_partly_listed(&self.shared.view(), &failed) {
            let into = buffers::take(&self.shared.world, Pool::Request, range.length).await;
            return self.read_wanted(range, Wanted::new(Sectors::ZERO, into), Vec::new()).await;
        }
        let tried = Tried::NONE.noting_list(&failed);
        self.note_failure(&[range], &failed, tried.lacking).await?;
        let into = buffers::take(&self.shared.world, Pool::Request, range.length).await;
        let tried = tried.without(self.shared.still_of(&failed.failure()));
        self.read_wanted(range, Wanted { tried, ..Wanted::new(Sectors::ZERO, into) }, vec![failed]).await
    }

    /// Reads a request of a member that does not answer now from the others, if these have all of it.
    pub(crate) async fn read_beside(
        &self,
        range: ArrayRange,
        into: ReadPieces,
        late: Slot,
    ) -> Result<ReadPieces, IoError> {
        let tried = Tried { late: SlotSet::EMPTY.with(late), ..Tried::NONE };
        self.read_wanted(range, Wanted { tried, ..Wanted::new(Sectors::ZERO, into) }, Vec::new()).await
    }

    /// Serves a read that is not a single piece on a healthy member.
    pub(crate) async fn read_pieces(
        &self,
        range: ArrayRange,
        into: ReadPieces,
        choice: CopyChoice,
    ) -> Result<ReadPieces, IoError> {
        if let Some(rows) = &self.rows
            && self.is_one_lost(range)
        {
            return rows.read_lost(range, into, SlotSet::EMPTY).await;
        }
        self.read_wanted(range, Wanted { choice: Some(choice), ..Wanted::new(Sectors::ZERO, into) }, Vec::new()).await
    }

    /// Whether a range of a parity level is one piece of a lost member, and no other member is slow.
    fn is_one_lost(&self, range: ArrayRange) -> bool {
        let is_lost = self.shared.with_view(|view| {
            let layout = view.shape.layout();
            let place = layout.place_to_read(range, &SlotSet::first(layout.slots()), CopyChoice::First);
            place.is_some_and(|(slot, _)| !view.readable().contains(slot))
        });
        is_lost && self.shared.balance.slow().is_empty()
    }

    /// Reads all, and reports failed reads to the steward: `failed` from before and those met now.
    async fn read_wanted(&self, range: ArrayRange, all: Wanted, failed: Vec<ReadError>) -> Result<ReadPieces, IoError> {
        let mut work = Work { wanted: vec![all], got: Vec::new(), failed };
        let outcome = self.read_parts(range, &mut work).await;
        let Work { wanted, got, failed } = work;
        // Give the buffers of a failed request back before waiting: other requests need them.
        drop((wanted, got));
        if !failed.is_empty() {
            self.shared.settle_read_errors(failed, outcome.is_ok()).await;
        }
        outcome
    }

    /// Works wanted parts off. It terminates: each round reads a part, adds a slot to those it avoids, halves the part,
    /// or waits for a late member.
    async fn read_parts(&self, range: ArrayRange, work: &mut Work) -> Result<ReadPieces, IoError> {
        while let Some(part) = work.wanted.pop() {
            self.read_part(range, part, work).await?;
        }
        let got = &mut work.got;
        if let [part] = &mut got[..] {
            assert_eq!((part.offset, part.pieces.length()), (Sectors::ZERO, range.length));
            return Ok(std::mem::take(&mut part.pieces));
        }
        got.sort_by_key(|part| part.offset);
        let mut whole = ReadPieces::new();
        for part in got.drain(..) {
            assert_eq!(part.offset, whole.length(), "the parts cover the request without a gap");
            whole.append(part.pieces);
        }
        assert_eq!(whole.length(), range.length);
        Ok(whole)
    }

    async fn read_part(&self, range: ArrayRange, part: Wanted, work: &mut Work) -> Result<(), IoError> {
        let view = self.shared.view();
        let (base, tried) = (part.offset, part.tried);
        let of_part = ArrayRange::new(range.start + base, part.into.length());
        for slot in tried.avoid.iter() {
            // The array may have frozen since that copy failed.
            self.refuse_other_version(of_part, slot, tried.lacking, ErrorKind::Media.into())?;
        }
        let usable = self.in_time(&view, of_part, tried);
        let choice = part.choice.unwrap_or_else(|| self.copy_choice(&view, of_part, &usable));
        let plan = view.shape.layout().plan_read(of_part, &usable, choice);
        if !plan.lost.is_empty() && self.rows.is_none() {
            return halve(part, &mut work.wanted);
        }
        let order = in_order(&plan);
        let (runs, lost) = match &order {
            Some(order) => (carve_in_order(&plan, order, part.into), Vec::new()),
            None => carve(&plan, part.into),
        };
        let turn = match plan.runs.iter().any(|run| view.read_waits(run.slot)) {
            true => Some(self.shared.lock_to_read(of_part).await?),
            false => None,
        };
        let from_members = join_each(plan.runs.iter().zip(runs).map(async |(run, pieces)| {
            let _in_flight = self.shared.balance.begin(run.slot);
            let of_member = MemberRun::by(&view, run.slot, run.at, run.length);
            let member = self.shared.members.get(of_member.index);
            if let Err(error) = member.check_read(of_member.range) {
                return (run, Err(of_member.read_error(error).listed()));
            }
            let begun = member.begin();
            let outcome = member.uncounted().read(of_member.range.start, pieces).await;
            member.end(&begun, RequestKind::Read, of_member.range, outcome.as_ref().err().copied());
            (run, outcome.map_err(|error| of_member.read_error(error)))
        }));
        let outcomes: SmallVec<[(&Run, Result<ReadPieces, ReadError>); 4]> = from_members.await.collect();
        drop(turn);
        if let Some(order) = order
            && outcomes.iter().all(|(_, outcome)| outcome.is_ok())
        {
            let of_runs = outcomes.into_iter().filter_map(|(_, outcome)| outcome.ok());
            work.got.push(Got { offset: base, pieces: weave(&order, of_runs) });
            return Ok(());
        }
        let mut failures = Vec::new();
        for (run, outcome) in outcomes {
            let parts = plan.parts_of(run);
            match outcome {
                Ok(mut pieces) => work.got.extend(parts.iter().map(|of_run| Got {
                    offset: base + of_run.offset,
                    pieces: pieces.split_to(of_run.length.len_bytes()),
                })),
                Err(failed) => failures.push((failed, parts)),
            }
        }
        let whole = Asked { range: of_part, base, tried };
        for (failed, parts) in failures {
            self.want_elsewhere(&whole, &view, failed, parts, work).await?;
        }
        for (of_plan, into) in lost {
            let at = ArrayRange::new(of_part.start + of_plan.offset, of_plan.length);
            let rows = self.rows.as_ref().expect("without rows the part was halved");
            let pieces = rows.read_lost(at, into, view.readable().minus(usable)).await?;
            work.got.push(Got { offset: base + of_plan.offset, pieces });
        }
        Ok(())
    }

    /// Wants what a run did not give from other members, or in smaller pieces. An error ends the request.
    async fn want_elsewhere(
        &self,
        whole: &Asked,
        view: &View,
        failed: ReadError,
        parts: &[Part],
        work: &mut Work,
    ) -> Result<(), IoError> {
        let Asked { range, base, tried } = *whole;
        if self.is_partly_listed(view, &failed) {
            for (offset, length) in pieces_of(parts) {
                let into = buffers::take(&self.shared.world, Pool::Request, length).await;
                work.wanted.push(Wanted { tried, ..Wanted::new(base + offset, into) });
            }
            return Ok(());
        }
        let tried = self.tried_in_vain(range, tried, &failed, parts).await?;
        work.failed.extend((failed.error.kind != ErrorKind::Late).then_some(failed));
        for of_run in parts {
            // This part is shorter than the read that failed here or before.
            let is_of_more = parts.len() > 1 || (!whole.tried.avoid.is_empty() && of_run.length < range.length);
            let is_suspicion = tried.is_suspicion || (is_of_more && failed.error.kind != ErrorKind::Late);
            let into = buffers::take(&self.shared.world, Pool::Request, of_run.length).await;
            let tried = Tried { is_suspicion, ..tried };
            work.wanted.push(Wanted { tried, ..Wanted::new(base + of_run.offset, into) });
        }
        Ok(())
    }

    /// Whether a list kept a read of several sectors from the one copy that is read while copies may differ, and that copy
    /// is still the one for some of them.
    fn is_partly_listed(&self, view: &View, failed: &ReadError) -> bool {
        view.copies == Copies::Canonical
            && failed.is_listed
            && !self.shared.members.get(failed.member).lacks_all(failed.range)
    }

    /// The members that may be read: without late ones if the others have all of the range, or give it by parity. If
    /// copies may differ, a late canonical copy is waited for.
    fn in_time(&self, view: &View, range: ArrayRange, tried: Tried) -> SlotSet {
        let usable = view.readable().minus(tried.avoid);
        let late = tried.late.or(self.shared.balance.slow());
        let others = usable.minus(late);
        let layout = view.shape.layout();
        let is_enough = || match layout.level().is_parity() {
            true => layout.can_serve(&others),
            false => layout.plan_read(range, &others, CopyChoice::First).lost.is_empty(),
        };
        if !late.is_empty() && view.copies == Copies::Any && is_enough() { others } else { usable }
    }

    /// Notes that a member did not give these parts. An error ends the request.
    async fn tried_in_vain(
        &self,
        range: ArrayRange,
        tried: Tried,
        failed: &ReadError,
        parts: &[Part],
    ) -> Result<Tried, IoError> {
        if failed.error.kind == ErrorKind::Late {
            return Ok(Tried { late: tried.late.with(failed.slot), ..tried });
        }
        let of_part = |part: &Part| ArrayRange::new(range.start + part.offset, part.length);
        let ranges: SmallVec<[ArrayRange; 4]> = parts.iter().map(of_part).collect();
        let tried = tried.noting_list(failed);
        self.note_failure(&ranges, failed, tried.lacking).await?;
        Ok(tried.without(self.shared.still_of(&failed.failure())))
    }

    /// Counts a failed read of these ranges. An error ends the request: no other member may answer it.
    async fn note_failure(&self, ranges: &[ArrayRange], failed: &ReadError, lacking: SlotSet) -> Result<(), IoError> {
        // A member that is gone is failed. Then another copy is the canonical one, and may be read.
        let is_failed_first =
            failed.error.kind == ErrorKind::Gone && self.shared.with_view(|view| view.gate == Gate::Open);
        if is_failed_first {
            self.shared.note_read_failure(failed.failure()).await?;
        }
        for range in ranges {
            self.refuse_other_version(*range, failed.slot, lacking, failed.error)?;
        }
        if !is_failed_first {
            self.shared.note_read_failure(failed.failure()).await?;
        }
        Ok(())
    }

    /// If the copies may differ by now and the canonical one failed, another copy could return other bytes than an
    /// earlier read did: refuse that.
    fn refuse_other_version(
        &self,
        range: ArrayRange,
        failed: Slot,
        lacking: SlotSet,
        error: IoError,
    ) -> Result<(), IoError> {
        let view = self.shared.view();
        if view.copies == Copies::Any || view.shape.layout().level().is_parity() || self.shared.config.force {
            return Ok(());
        }
        let mut at = range.start;
        while at < range.end() {
            let copies = view.in_order(view.shape.layout().copies(at));
            let length = view.shape.layout().contiguous(at).min(Sectors(range.end().0 - at.0));
            let is_held = |slot: Slot, at: MemberSector| {
                let member = view.member(slot);
                !lacking.contains(slot) && !self.shared.members.get(member.index).lacks(member.range(at, length))
            };
            // A sector that the list of the first copy names was never read there since: the next one is canonical.
            let mut readable = copies.iter().filter(|(slot, _)| view.readable().contains(*slot));
            let canonical = readable.find(|(slot, at)| is_held(*slot, *at));
            if canonical.is_none_or(|(slot, _)| *slot == failed) {
                return Err(error);
            }
            at = at + length;
        }
        Ok(())
    }
}

/// Halves a part that no copy gives as a whole: each may give some of it. A sector that none gives fails the request.
fn halve(part: Wanted, wanted: &mut Vec<Wanted>) -> Result<(), IoError> {
    if part.tried.avoid.is_empty() {
        return Err(ErrorKind::TooManyLost.into());
    }
    let length = part.into.length();
    if length == Sectors(1) && part.tried.is_suspicion {
        wanted.push(Wanted::new(part.offset, part.into));
        return Ok(());
    }
    if length == Sectors(1) {
        mark::hit(Mark::ReadExhausted);
        return Err(ErrorKind::Media.into());
    }
    mark::hit(Mark::ReadHalved);
    let mut rest = part.into;
    let half = Sectors(length.0 / 2);
    let first = rest.split_to(half.len_bytes());
    wanted.push(Wanted::new(part.offset + half, rest));
    wanted.push(Wanted::new(part.offset, first));
    Ok(())
}

/// Smaller pieces of what a run was to read: its parts, or the halves of its only part.
fn pieces_of(parts: &[Part]) -> Vec<(Sectors, Sectors)> {
    let halves = |part: &Part| {
        let half = Sectors(part.length.0 / 2);
        let cut = parts.len() == 1 && !half.is_zero();
        let first = if cut { half } else { part.length };
        let pieces = [(part.offset, first), (part.offset + first, part.length - first)];
        pieces.into_iter().filter(|(_, length)| !length.is_zero())
    };
    parts.iter().flat_map(halves).collect()
}

/// The parts of a request one after the other: each with its run of the plan and its length.
type Order = SmallVec<[(usize, Sectors); 8]>;

/// The parts in the order of the request, if every run has its parts in that order and all members are there, which is
/// the usual case. `None` if a member holds the end of the array before its beginning and supplies both.
fn in_order(plan: &Plan) -> Option<Order> {
    let of_runs = || (0..).zip(&plan.runs).map(|(at, run)| (at, plan.parts_of(run)));
    if !plan.lost.is_empty() || !of_runs().all(|(_, parts)| parts.is_sorted_by_key(|part| part.offset)) {
        return None;
    }
    let mut parts: SmallVec<[(Sectors, usize, Sectors); 8]> =
        of_runs().flat_map(|(at, parts)| parts.iter().map(move |part| (part.offset, at, part.length))).collect();
    parts.sort_unstable();
    Some(parts.into_iter().map(|(_, at, length)| (at, length)).collect())
}

/// Hands each run its part of the request's buffers.
fn carve_in_order(plan: &Plan, order: &Order, into: ReadPieces) -> Vec<ReadPieces> {
    // At most one piece for each buffer and one more for each cut, divided evenly.
    let room = (into.count() + order.len()).div_ceil(plan.runs.len());
    let mut runs: Vec<ReadPieces> = plan.runs.iter().map(|_| ReadPieces::with_room(room)).collect();
    let mut into = into.cutter();
    for (at, length) in order {
        into.cut(length.len_bytes(), &mut runs[*at]);
    }
    assert!(into.is_empty(), "a plan covers its request");
    runs
}

/// The request's bytes, joined from those of its runs.
fn weave(order: &Order, runs: impl Iterator<Item = ReadPieces>) -> ReadPieces {
    let mut room = 0;
    let count = |pieces: ReadPieces| {
        room += pieces.count();
        pieces.cutter()
    };
    let mut runs: SmallVec<[Cutter<Lease>; 4]> = runs.map(count).collect();
    let mut whole = ReadPieces::with_room(room);
    for (at, length) in order {
        runs[*at].cut(length.len_bytes(), &mut whole);
    }
    assert!(runs.iter().all(Cutter::is_empty), "members give as much as they are asked for");
    whole
}

/// Hands each run its part of the request's buffers, in the member's order. The parts without a member come second.
fn carve(plan: &Plan, mut into: ReadPieces) -> (Vec<ReadPieces>, Vec<(Part, ReadPieces)>) {
    let mut order: Vec<(Part, Option<usize>)> =
        (0..plan.parts.len()).map(|part| (plan.parts[part], Some(part))).collect();
    order.extend(plan.lost.iter().map(|part| (*part, None)));
    order.sort_by_key(|(part, _)| part.offset);
    let mut of_parts: Vec<ReadPieces> = plan.parts.iter().map(|_| ReadPieces::new()).collect();
    let mut lost = Vec::new();
    for (part, of_run) in order {
        let pieces = into.split_to(part.length.len_bytes());
        match of_run {
            Some(part) => of_parts[part] = pieces,
            None => lost.push((part, pieces)),
        }
    }
    assert!(into.is_empty(), "a plan covers its request: {} bytes left", into.bytes() / SECTOR_BYTES);
    let runs = plan.runs.iter().map(|run| {
        let mut whole = ReadPieces::new();
        for part in &mut of_parts[run.parts.start as usize..run.parts.end as usize] {
            whole.append(std::mem::take(part));
        }
        whole
    });
    (runs.collect(), lost)
}
