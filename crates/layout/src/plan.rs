//! Plans: a request as the fewest member runs that the layout allows.
//! Owns: [`Plan`] and the merger of pieces into runs. Not here: where a piece lies (the level files).
//! Invariant: the parts of a plan and its lost pieces cover the request; runs of a slot ascend and never touch.

use smallvec::SmallVec;
use std::ops::Range;
use uraid_block::{MemberSector, Sectors, Slot, SlotSet};

/// Every place of one sector, in copy order.
pub type Copies = SmallVec<[(Slot, MemberSector); 4]>;

/// Which copy a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyChoice {
    /// The canonical one: the first in copy order whose slot is usable (raid1: the lowest usable slot).
    First,
    /// As `First`, but copies on these slots come after all others: one of them is read only where no other is usable.
    FirstBut(SlotSet),
    /// The same with several sets, each after all that come before it. Hardly any array needs it, and one that does
    /// keeps it until its end: so a choice stays small, and is copied freely.
    FirstOf(&'static [SlotSet]),
    /// Copy `n` modulo the number of copies if its slot is usable, else the following ones, wrapping.
    Nth(u16),
}

/// The I/O on the members for one request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// One I/O each, by slot, then ascending on the member.
    pub runs: SmallVec<[Run; 4]>,
    /// The pieces of the request in the runs; empty for discards.
    pub parts: SmallVec<[Part; 8]>,
    /// The pieces of the request that have no place on a usable slot, ascending; always empty for discards.
    pub lost: SmallVec<[Part; 2]>,
}

/// A contiguous stretch of one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// On which member.
    pub slot: Slot,
    /// Its first sector.
    pub at: MemberSector,
    /// How many sectors.
    pub length: Sectors,
    /// The range of [`Plan::parts`] in it, in member order; their lengths add up to `length`. Empty for discards.
    pub parts: Range<u32>,
}

/// A piece of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// From the start of the request.
    pub offset: Sectors,
    /// How many sectors.
    pub length: Sectors,
}

impl Plan {
    /// The pieces of the request in `run`, in member order. `run` must be one of this plan.
    pub fn parts_of(&self, run: &Run) -> &[Part] {
        &self.parts[run.parts.start as usize..run.parts.end as usize]
    }
}

/// One place on a member, in plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) slot: u16,
    pub(crate) at: u64,
}

/// The place of an array sector's first copy, and for how many sectors all its copies are contiguous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) first: Place,
    pub(crate) length: u64,
}

/// A level, as the merger sees it.
pub(crate) trait Places {
    /// How many copies every sector has.
    fn copies_count(&self) -> u16;
    /// The stretch that starts at an array sector.
    fn stretch(&self, at: u64) -> Stretch;
    /// Copy `n` of the data whose first copy is at `first`.
    fn copy(&self, first: Place, n: u16) -> Place;
}

/// A level that can compute a whole range's extents on one member, without walking it.
pub(crate) trait Images: Places {
    /// Calls `image` with the (start, end) of every extent that array sectors `from..to` have on `slot`, ascending.
    fn images(&self, slot: Slot, from: u64, to: u64, image: &mut impl FnMut(u64, u64));
}

/// Every place of a sector, in copy order.
pub(crate) fn copies(map: &impl Places, at: u64) -> Copies {
    let first = map.stretch(at).first;
    let places = (0..map.copies_count()).map(|n| map.copy(first, n));
    places.map(|place| (Slot(place.slot), MemberSector(place.at))).collect()
}

/// The slot of copy `n` of a sector.
#[inline]
pub(crate) fn slot_of_copy(map: &impl Places, at: u64, n: u16) -> Slot {
    Slot(map.copy(map.stretch(at).first, n).slot)
}

/// A stretch of the request at one place.
#[derive(Clone, Copy)]
struct Piece {
    place: Place,
    offset: u64,
    length: u64,
}

/// Collects pieces in the order of the request.
#[derive(Default)]
struct Pieces {
    pieces: SmallVec<[Piece; 16]>,
    lost: SmallVec<[Part; 2]>,
}

impl Plan {
    /// The plan of a request that is a single piece on a single member: the fast path of small requests.
    #[inline]
    fn one(place: Place, length: u64) -> Plan {
        let mut plan = Plan::default();
        plan.parts.push(Part { offset: Sectors::ZERO, length: Sectors(length) });
        plan.runs.push(Run {
            slot: Slot(place.slot),
            at: MemberSector(place.at),
            length: Sectors(length),
            parts: 0..1,
        });
        plan
    }
}

/// The copy to read.
#[inline]
fn readable(map: &impl Places, first: Place, choice: CopyChoice, usable: &SlotSet) -> Option<Place> {
    match choice {
        CopyChoice::First => readable_from(map, first, 0, usable),
        CopyChoice::FirstBut(last) => {
            readable_from(map, first, 0, &usable.minus(last)).or_else(|| readable_from(map, first, 0, usable))
        }
        CopyChoice::FirstOf(later) => {
            let after = |nth: usize| later[nth..].iter().fold(*usable, |left, set| left.minus(*set));
            (0..=later.len()).find_map(|nth| readable_from(map, first, 0, &after(nth)))
        }
        CopyChoice::Nth(n) if n < map.copies_count() => readable_from(map, first, n, usable),
        CopyChoice::Nth(n) => readable_from(map, first, n % map.copies_count(), usable),
    }
}

/// Copy `first_choice`, or the next one whose slot is usable.
#[inline]
fn readable_from(map: &impl Places, first: Place, first_choice: u16, usable: &SlotSet) -> Option<Place> {
    let count = map.copies_count();
    (0..count)
        .map(|n| map.copy(first, if n < count - first_choice { first_choice + n } else { first_choice + n - count }))
        .find(|place| usable.contains(Slot(place.slot)))
}

/// The one place to read `from..to` from: the fast path of small requests.
#[inline]
pub(crate) fn place_to_read(
    map: &impl Places,
    from: u64,
    to: u64,
    usable: &SlotSet,
    choice: CopyChoice,
) -> Option<Place> {
    let stretch = map.stretch(from);
    if stretch.length < to - from {
        return None;
    }
    readable(map, stretch.first, choice, usable)
}

/// The plan of reading `from..to`.
pub(crate) fn read(map: &impl Places, from: u64, to: u64, usable: &SlotSet, choice: CopyChoice) -> Plan {
    if from == to {
        return Plan::default();
    }
    match place_to_read(map, from, to, usable, choice) {
        Some(place) => Plan::one(place, to - from),
        None => read_pieces(map, from, to, usable, choice),
    }
}

fn read_pieces(map: &impl Places, from: u64, to: u64, usable: &SlotSet, choice: CopyChoice) -> Plan {
    let mut pieces = Pieces::default();
    let mut at = from;
    while at < to {
        let stretch = map.stretch(at);
        let length = stretch.length.min(to - at);
        assert!(length > 0, "the map ends inside the request");
        match readable(map, stretch.first, choice, usable) {
            Some(place) => pieces.push(place, at - from, length),
            None => pieces.push_lost(at - from, length),
        }
        at += length;
    }
    pieces.merge()
}

/// The fast path of small writes: if `from..to` is a single piece in each of its copies, calls `place_found` with the
/// place of each, in copy order.
#[inline]
pub(crate) fn places_to_write(
    map: &impl Places,
    (from, to): (u64, u64),
    usable: &SlotSet,
    mut place_found: impl FnMut(Slot, MemberSector),
) -> bool {
    let stretch = map.stretch(from);
    if stretch.length < to - from {
        return false;
    }
    let mut has_place = false;
    for n in 0..map.copies_count() {
        let place = map.copy(stretch.first, n);
        if usable.contains(Slot(place.slot)) {
            place_found(Slot(place.slot), MemberSector(place.at));
            has_place = true;
        }
    }
    has_place
}

/// The plan of writing `from..to`: every copy that has a usable slot.
#[inline]
pub(crate) fn write(map: &impl Places, from: u64, to: u64, usable: &SlotSet) -> Plan {
    if from == to {
        return Plan::default();
    }
    let stretch = map.stretch(from);
    if stretch.length >= to - from {
        write_one(map, stretch.first, to - from, usable)
    } else {
        write_pieces(map, from, to, usable)
    }
}

/// A write that is a single piece in each of its copies. The copies are on different members, so each is a run.
#[inline]
fn write_one(map: &impl Places, first: Place, length: u64, usable: &SlotSet) -> Plan {
    let mut plan = Plan::default();
    let whole = Part { offset: Sectors::ZERO, length: Sectors(length) };
    for n in 0..map.copies_count() {
        let place = map.copy(first, n);
        if usable.contains(Slot(place.slot)) {
            // Few copies, mostly in order: insert a new run before those of higher slots.
            let index = plan.runs.iter().rposition(|run| run.slot < Slot(place.slot)).map_or(0, |before| before + 1);
            let run = Run { slot: Slot(place.slot), at: MemberSector(place.at), length: Sectors(length), parts: 0..0 };
            plan.runs.insert(index, run);
            plan.parts.push(whole);
        }
    }
    for (index, run) in (0..).zip(&mut plan.runs) {
        run.parts = index..index + 1;
    }
    if plan.runs.is_empty() {
        plan.lost.push(whole);
    }
    plan
}

fn write_pieces(map: &impl Places, from: u64, to: u64, usable: &SlotSet) -> Plan {
    let mut pieces = Pieces::default();
    let mut at = from;
    while at < to {
        let stretch = map.stretch(at);
        let length = stretch.length.min(to - at);
        assert!(length > 0, "the map ends inside the request");
        let mut is_lost = true;
        for n in 0..map.copies_count() {
            let place = map.copy(stretch.first, n);
            if usable.contains(Slot(place.slot)) {
                pieces.push(place, at - from, length);
                is_lost = false;
            }
        }
        if is_lost {
            pieces.push_lost(at - from, length);
        }
        at += length;
    }
    pieces.merge()
}

/// The plan of discarding `from..to`: the runs of the write plan, found member by member.
pub(crate) fn discard(map: &impl Images, from: u64, to: u64, slots: u16, usable: &SlotSet) -> Plan {
    let mut plan = Plan::default();
    if from == to {
        return plan;
    }
    for slot in (0..slots).map(Slot).filter(|&slot| usable.contains(slot)) {
        map.images(slot, from, to, &mut |start, end| {
            plan.push_run(Place { slot: slot.0, at: start }, end - start);
        });
    }
    plan
}

impl Pieces {
    #[inline]
    fn push(&mut self, place: Place, offset: u64, length: u64) {
        self.pieces.push(Piece { place, offset, length });
    }

    fn push_lost(&mut self, offset: u64, length: u64) {
        match self.lost.last_mut() {
            Some(last) if last.offset.0 + last.length.0 == offset => last.length.0 += length,
            Some(_) | None => self.lost.push(Part { offset: Sectors(offset), length: Sectors(length) }),
        }
    }

    /// Orders the pieces by member, joins those that touch there, and joins parts that also follow in the request.
    fn merge(&mut self) -> Plan {
        self.pieces.sort_unstable_by_key(|piece| (piece.place.slot, piece.place.at));
        let mut plan = Plan { lost: std::mem::take(&mut self.lost), ..Plan::default() };
        for piece in &self.pieces {
            let joins = plan.push_run(piece.place, piece.length);
            let last = plan.parts.last_mut().filter(|last| joins && last.offset.0 + last.length.0 == piece.offset);
            match last {
                Some(last) => last.length.0 += piece.length,
                None => plan.parts.push(Part { offset: Sectors(piece.offset), length: Sectors(piece.length) }),
            }
            let parts_count = u32::try_from(plan.parts.len()).expect("a request has fewer than 2^32 parts");
            plan.runs.last_mut().expect("a run was just pushed").parts.end = parts_count;
        }
        plan
    }
}

impl Plan {
    /// Adds a piece on the same member, or on a later one; returns whether it joined the last run.
    fn push_run(&mut self, place: Place, length: u64) -> bool {
        let (slot, at) = (Slot(place.slot), MemberSector(place.at));
        if let Some(last) = self.runs.last_mut()
            && last.slot == slot
        {
            let end = last.at + last.length;
            assert!(end <= at, "two pieces of a request share a place");
            if end == at {
                last.length.0 += length;
                return true;
            }
        }
        let start = self.parts.len() as u32;
        self.runs.push(Run { slot, at, length: Sectors(length), parts: start..start });
        false
    }
}
