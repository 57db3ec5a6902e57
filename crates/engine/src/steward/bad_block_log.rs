//! Sectors that a member could not write, or could not be given: listed instead of failing the member.
//! Owns: which failed writes are listed, the order in which a list changes. Not here: the list (`bad_blocks`), its state
//! (`master::bad_blocks`), writing logs (`recorder`), what else an error means (`verdict`, `judge`).
//! Invariant: a sector is listed only if others have its content, or none has it. It is read again only after the member
//! has taken it durably. A write that no member has is answered with an error.
//!
//! ```text
//!   a write fails on a member, and others have all of it
//!        list it -> publish: no shard reads it there -> the log, then the superblock, of that member -> answer
//!   a crash before the log is durable      the write was not answered; the resync makes the copies agree
//!
//!   others would have it, but list some of it themselves
//!        the same, and the write is answered with an error: what was there is lost on all of them
//!
//!   no member could give a sector to one that is recovered
//!        list it -> publish -> the log, then the superblock -> the recovery goes on
//!
//!   a write to listed sectors succeeds (FUA, so it is durable there)
//!        take it off the list -> publish -> the log, then the superblock -> answer
//!   a crash before that                    the sector is listed, and is read from others
//!
//!   a freeze before that                   the list is as it was, as after a crash -> the write is refused
//! ```
//!
//! The write holds the lock of its range until its answer, so no other write of these sectors comes between.

use crate::World;
use crate::state::master::{BadBlocks, Change, MemberState};
use crate::state::view::Gate;
use crate::steward::recorder::Recorder;
use crate::words::failure::{Failure, ReadError};
use crate::words::mark::{self, Mark};
use crate::words::verdict::Operation;
use uraid_block::{ErrorKind, IoError, MemberSector, Range, Sector, Sectors, Slot, SlotSet};
use uraid_format::MemberFlag;
use uraid_layout::{CopyLayout, Layout};

impl<W: World> Recorder<W> {
    /// Lists the sectors that members failed to write, where others have them. When this returns, no shard reads them
    /// there. Returns the failures that are to fail their members instead.
    pub(crate) async fn list_unwritten(&self, failures: &[Failure]) -> Vec<Failure> {
        let (fresh, others) = self.list(failures, Others::MayListIt).await;
        for failure in fresh {
            let Failure { slot, member, error, .. } = failure;
            let range = failure.range.expect("it is listed");
            // In smaller pieces, some of it may be written.
            self.steward.shared.want_correction(&ReadError { slot, member, range, error, is_listed: false });
        }
        others
    }

    /// Returns the failures that are listed for the first time, and those that are not listed.
    async fn list(&self, failures: &[Failure], of_others: Others) -> (Vec<Failure>, Vec<Failure>) {
        let (unwritten, others): (Vec<Failure>, Vec<Failure>) =
            failures.iter().partition(|failure| self.may_list(failure));
        let others_have = |failure: &Failure| self.others_have(failure, of_others, &unwritten, &others);
        if unwritten.is_empty() || !unwritten.iter().all(others_have) {
            return (Vec::new(), failures.to_vec());
        }
        let ranges: Vec<(usize, Range)> = unwritten.iter().filter_map(|one| Some((one.member, one.range?))).collect();
        if !self.steward.master().has_room_to_list(&ranges) {
            return (Vec::new(), failures.to_vec());
        }
        mark::hit(Mark::BadBlockListed);
        let place = |failure: &Failure| (failure.member, failure.range.expect("it may be listed"));
        let fresh: Vec<Failure> = {
            let master = self.steward.master();
            let is_new = |(member, range): (usize, Range)| !master.bad_blocks(member).contains(range);
            unwritten.into_iter().filter(|failure| is_new(place(failure))).collect()
        };
        if !fresh.is_empty() {
            let places: Vec<(usize, Range)> = fresh.iter().map(place).collect();
            self.steward.publish(Change::BadBlocks(BadBlocks::List(&places))).await;
        }
        (fresh, others)
    }

    /// Lists what a member cannot read although it was written again, if its log has room and others have it. Returns
    /// whether the superblocks say so.
    pub(crate) async fn list_unreadable(&self, error: &ReadError) -> Result<bool, IoError> {
        let failure = Failure {
            range: Some(error.range),
            ..Failure::new((error.slot, error.member), Operation::Write, error.error)
        };
        let (_, others) = self.list(&[failure], Others::HaveIt).await;
        if !others.is_empty() {
            return Ok(false);
        }
        let version = self.steward.master().version();
        self.record_up_to(version).await.map(|()| true)
    }

    /// Lists sectors of members that are recovered or copied to, which no member could give them. Returns whether the
    /// superblocks say so; not if a log has no room.
    pub(crate) async fn list_lacking(&self, lacking: &[(usize, Range)]) -> Result<bool, IoError> {
        {
            let master = self.steward.master();
            let is_incomplete = |member: usize| {
                matches!(master.members()[member], MemberState::Recovering { .. } | MemberState::Replacing { .. })
            };
            let may_list = lacking.iter().all(|(member, _)| is_incomplete(*member)) && master.has_room_to_list(lacking);
            if !master.gate().lets_writes_end() || !may_list {
                return Ok(false);
            }
        }
        mark::hit(Mark::BadBlockLacking);
        self.steward.publish(Change::BadBlocks(BadBlocks::List(lacking))).await;
        let version = self.steward.master().version();
        self.record_up_to(version).await.map(|()| true)
    }

    /// A write of sectors that were listed has become durable on the member: takes them off the list.
    pub(crate) async fn clear_listed(&self, member: usize, range: Range) {
        let is_listed = {
            let master = self.steward.master();
            master.members()[member].written_slot().is_some()
                && master.gate().lets_writes_end()
                && master.frozen().is_none()
                && master.bad_blocks(member).overlaps(range)
                && master.has_room_without(member, range)
        };
        if !is_listed {
            return;
        }
        mark::hit(Mark::BadBlockCleared);
        self.steward.publish(Change::BadBlocks(BadBlocks::Clear(member, range))).await;
        let version = self.steward.master().version();
        // If this fails, the array freezes, and the sectors are listed as before: they are read from others.
        let _ = self.record_up_to(version).await;
    }

    /// The array has frozen, and no round of superblocks is under way: lists that changed since are as they are on their
    /// members, before the requests that changed them are answered. Readers of the frozen array then see what the next
    /// start will find.
    pub(crate) async fn forget_unwritten_lists(&self) {
        {
            let master = self.steward.master();
            assert!(master.frozen().is_some(), "else they are written");
            if master.gate() == Gate::Stopped || !master.has_unwritten_lists() {
                return;
            }
        }
        mark::hit(Mark::BadBlockForgotten);
        self.steward.publish(Change::BadBlocks(BadBlocks::AsWritten)).await;
    }

    /// Whether a failure is of a write of some sectors only, and the member's log has room for these. A member that
    /// fails more and more writes is not kept for it.
    fn may_list(&self, failure: &Failure) -> bool {
        let master = self.steward.master();
        let Some(range) = failure.range else { return false };
        let is_of_sectors = failure.operation == Operation::Write && failure.error.kind == ErrorKind::Media;
        let has_slot = match master.members()[failure.member] {
            MemberState::Active(slot) | MemberState::Recovering { slot, .. } => slot == failure.slot,
            MemberState::Replacing { .. } | MemberState::Spare | MemberState::Removed | MemberState::Faulty { .. } => {
                false
            }
        };
        // What is listed already needs no record: so it is of no account whether the array has frozen meanwhile.
        let is_known = master.bad_blocks(failure.member).contains(range);
        let is_possible = is_of_sectors && has_slot && (is_known || master.gate().lets_writes_end());
        if !is_possible || !master.has_room_to_list(&[(failure.member, range)]) {
            return false;
        }
        let is_failed = self.is_failed_fast(failure) || self.is_over_limit(failure.member, range);
        is_known || !is_failed || master.others_list(failure.member)
    }

    /// Whether the first error fails the member: it is failfast, and the array can serve without it.
    fn is_failed_fast(&self, failure: &Failure) -> bool {
        let master = self.steward.master();
        let others = master.readable().without(failure.slot);
        master.flags(failure.member).contains(&MemberFlag::FailFast) && self.steward.shared.layout().can_serve(&others)
    }

    /// Whether a member has failed more writes than the limit, as for reads.
    fn is_over_limit(&self, member: usize, range: Range) -> bool {
        let (now, limit) = (self.steward.shared.world.now(), self.steward.shared.config.read_errors_max);
        let count = self.write_errors.borrow_mut().entry(member).or_default().note(now, range);
        limit > 0 && count > limit
    }

    /// Whether members that took the write have all of what this one failed to write.
    fn others_have(&self, failure: &Failure, of_others: Others, unwritten: &[Failure], others: &[Failure]) -> bool {
        let master = self.steward.master();
        // A replacement that failed takes nothing away from the member that it was to replace.
        let is_of_slot = |other: &&Failure| !matches!(master.members()[other.member], MemberState::Replacing { .. });
        let lost: SlotSet = others.iter().filter(is_of_slot).map(|other| other.slot).collect();
        let lost = lost.or(self.judge.collected()).with(failure.slot);
        // A member that failed to write some of the range has none of it.
        let failed = |slot: Slot, range: Range| {
            let is_of = |other: &Failure| other.slot == slot && other.range.is_none_or(|other| other.overlaps(range));
            unwritten.iter().any(is_of)
        };
        let lists = |slot: Slot, range: Range| of_others == Others::HaveIt && self.lists(slot, range);
        self.is_held(failure, master.readable().minus(lost), |slot, range| failed(slot, range) || lists(slot, range))
    }

    /// The error of a failed write of which no member has all sectors, now that everything is recorded: each lists some
    /// of them, or was failed.
    pub(crate) fn unwritten(&self, failures: &[Failure]) -> Option<IoError> {
        let readable = self.steward.master().readable();
        let is_lost = |failure: &&Failure| {
            let is_of_data = failure.operation == Operation::Write && failure.range.is_some();
            is_of_data && !self.is_held(failure, readable, |slot, range| self.lists(slot, range))
        };
        let lost = failures.iter().find(is_lost)?;
        mark::hit(Mark::BadBlockUnwritten);
        Some(lost.error)
    }

    /// Whether the list of the member in a slot has a sector of this range of it.
    fn lists(&self, slot: Slot, range: Range) -> bool {
        let member = self.steward.shared.with_view(|view| view.member(slot));
        self.steward.master().bad_blocks(member.index).overlaps(range)
    }

    /// Whether the members of `readable` have what was to be written where this failure was. `lacks`: whether the member
    /// of a slot lacks a sector of a range.
    fn is_held(&self, failure: &Failure, readable: SlotSet, lacks: impl Fn(Slot, Range) -> bool) -> bool {
        let range = failure.range.expect("it was of a stretch of data");
        let shared = &self.steward.shared;
        let at = MemberSector(range.start.0 - self.steward.master().data_offset(failure.member).0);
        let range_of = |slot, at, length| shared.with_view(|view| view.member(slot)).range(at, length);
        let has = |slot, at, length| !lacks(slot, range_of(slot, at, length));
        let is_held_in = |places: &[(Slot, MemberSector)], length: Sectors| {
            // No list begins or ends between two edges.
            let readable = || places.iter().filter(|(slot, _)| readable.contains(*slot));
            let mut edges = vec![0, length.0];
            for (slot, at) in readable() {
                edges.extend(self.list_edges(*slot, range_of(*slot, *at, length)));
            }
            edges.sort_unstable();
            edges.dedup();
            edges.windows(2).all(|edges| {
                let (offset, length) = (Sectors(edges[0]), Sectors(edges[1] - edges[0]));
                let mut having = readable().filter(|(slot, at)| has(*slot, *at + offset, length));
                match &*shared.layout() {
                    Layout::Parity(_) => shared.layout().can_serve(&having.map(|(slot, _)| *slot).collect()),
                    Layout::Copies(_) => having.next().is_some(),
                }
            })
        };
        match &*shared.layout() {
            Layout::Parity(_) => {
                let row: Vec<_> = SlotSet::first(shared.layout().slots()).iter().map(|slot| (slot, at)).collect();
                is_held_in(&row, range.length)
            }
            Layout::Copies(layout) => stretches(&shared.layout(), layout, failure.slot, at, range.length)
                .all(|(copies, length)| is_held_in(&copies, length)),
        }
    }

    /// Where the list of the member in a slot begins or ends within a range of it: sectors from its start.
    fn list_edges(&self, slot: Slot, range: Range) -> Vec<u64> {
        let member = self.steward.shared.with_view(|view| view.member(slot));
        let master = self.steward.master();
        let edges = master.bad_blocks(member.index).ranges().iter().flat_map(|listed| [listed.start, listed.end()]);
        let is_within = |edge: &Sector| range.start < *edge && *edge < range.end();
        edges.filter(is_within).map(|edge| (edge - range.start).0).collect()
    }
}

/// What is asked of other members before a sector is listed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// That they have it.
    HaveIt,
    /// That they would have it, but for their own lists: one bad sector more is still no reason to fail a member.
    MayListIt,
}

/// The copies of a stretch of a member's data, in pieces that every member holds contiguously.
fn stretches<'a>(
    layout: &'a Layout,
    copies: &'a CopyLayout,
    slot: Slot,
    at: MemberSector,
    length: Sectors,
) -> impl Iterator<Item = (Vec<(Slot, MemberSector)>, Sectors)> + 'a {
    let end = at.0 + length.0;
    let mut next = at.0;
    std::iter::from_fn(move || {
        let at = (next < end).then_some(next)?;
        // No sector: a chunk after the last one of the array.
        let sector = copies.sector_of_copy(slot, MemberSector(at))?;
        let length = layout.contiguous(sector).0.min(end - at);
        next = at + length;
        Some((layout.copies(sector).to_vec(), Sectors(length)))
    })
}
