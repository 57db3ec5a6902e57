//! The conditions that every plan must meet.
//! Owns: coverage, containment, order and the minimal number of runs of reads, writes and discards; which sets can serve.
//! Not here: writes and discards by row (`parity`), bounds as numbers (`runs`).
//! If runs of a member ascend with gaps between them, and cover exactly the right places, their number is minimal.

use super::domain::Case;
use super::model::Model;
use super::parity::{self, Places};
use super::runs;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::LazyLock;
use uraid_block::{ArrayRange, ArraySector, MemberSector, Sectors, Slot, SlotSet};
use uraid_layout::{CopyChoice, CopyLayout, Layout, Level, Plan};

/// How thoroughly to check a geometry.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Effort {
    /// Every range with all members, some copy choices.
    Healthy,
    /// ... with every set of missing members that leaves each sector a copy, or its row enough; every copy choice.
    ToleratedSets,
    /// ... with every set of usable members, including the empty one.
    EverySet,
}

/// What was checked. A case is a set of usable members, a start, a length and a kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Cases {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) discards: u64,
    /// A read is planned once for each choice of copy.
    pub(crate) plans: u64,
}

impl Cases {
    pub(crate) fn total(&self) -> u64 {
        self.reads + self.writes + self.discards
    }
}

impl AddAssign for Cases {
    fn add_assign(&mut self, other: Cases) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.discards += other.discards;
        self.plans += other.plans;
    }
}

/// Checks a geometry; returns how many cases it took.
pub(crate) fn check(case: &Case, effort: Effort) -> Cases {
    let Case { layout, model } = case;
    assert_eq!(layout.array_size().0, model.size(), "{:?}", layout.spec());
    assert_eq!(u64::from(layout.slots()), model.members);
    assert_eq!(usize::from(layout.copies_count()), model.copies);
    assert_eq!(usize::from(layout.tolerates()), model.tolerates);
    assert!(!model.collides(), "{:?}", layout.spec());
    check_places(layout, model);
    if let Layout::Parity(layout) = layout {
        parity::check_rows(layout, model);
    }
    let mut cases = Cases::default();
    for usable in every_set(layout) {
        check_service(layout, model, &usable);
        if is_asked(model, &usable, effort) {
            cases += check_ranges(layout, model, &usable, effort);
        }
    }
    cases
}

/// Every set of members that can be there.
fn every_set(layout: &Layout) -> impl Iterator<Item = SlotSet> + use<> {
    let slots = layout.slots();
    (0..1u64 << slots).map(move |bits| (0..slots).filter(|slot| bits >> slot & 1 == 1).map(Slot).collect())
}

fn is_asked(model: &Model, usable: &SlotSet, effort: Effort) -> bool {
    match effort {
        Effort::Healthy => usable.count() as u64 == model.members,
        Effort::ToleratedSets => model_serves(model, usable),
        Effort::EverySet => true,
    }
}

/// Copies of every sector; they stay together as far as `contiguous` says, and inside the member.
fn check_places(layout: &Layout, model: &Model) {
    for x in 0..model.size() {
        let copies = layout.copies(ArraySector(x));
        let found: Vec<(u64, u64)> = copies.iter().map(|(slot, at)| (slot.0.into(), at.0)).collect();
        assert_eq!(found, model.copies_of(x), "sector {x} of {:?}", layout.spec());
        for (slot, at) in copies {
            assert!(at.0 < layout.member_used(slot).0);
        }
        let together = layout.contiguous(ArraySector(x)).0;
        assert!(together > 0 && x + together <= model.size());
        let chunk = layout.chunk().0.max(1);
        assert!(together >= (chunk - x % chunk).min(model.size() - x), "at least to the chunk's end");
        for (n, &(member, at)) in model.copies_of(x).iter().enumerate() {
            let last = model.copies_of(x + together - 1)[n];
            assert_eq!(last, (member, at + together - 1), "sector {x} of {:?}", layout.spec());
        }
    }
    if let Layout::Copies(copies) = layout {
        check_sectors_of_copies(copies, layout, model);
    }
}

/// Where a member holds a copy, its sector is found; elsewhere, none.
fn check_sectors_of_copies(copies: &CopyLayout, layout: &Layout, model: &Model) {
    let mut held = BTreeMap::new();
    if matches!(layout.level(), Level::Raid1 | Level::Raid10) {
        for x in 0..model.size() {
            held.extend(model.copies_of(x).iter().map(|place| (*place, ArraySector(x))));
        }
    }
    for slot in 0..layout.slots() {
        for at in 0..layout.member_used(Slot(slot)).0 + layout.chunk().0 {
            let found = copies.sector_of_copy(Slot(slot), MemberSector(at));
            assert_eq!(found, held.get(&(slot.into(), at)).copied(), "{at} of {slot} of {:?}", layout.spec());
        }
    }
    check_sectors_around(copies, layout, &held);
}

/// Each copy in a stretch of members is of one of the sectors around it, and a chunk is always in one stretch.
fn check_sectors_around(copies: &CopyLayout, layout: &Layout, held: &BTreeMap<(u64, u64), ArraySector>) {
    let used = layout.member_used(Slot(0)).0;
    let has_copies = !held.is_empty();
    for at in 0..used {
        let lengths = [1, 2, 3, 5, layout.chunk().0 + 1, used / 2, used - at];
        for length in lengths.into_iter().filter(|length| (1..=used - at).contains(length)) {
            let around = copies.sectors_around(MemberSector(at), Sectors(length));
            let slots = 0..u64::from(layout.slots());
            let mut found =
                slots.flat_map(|slot| held.range((slot, at)..(slot, at + length))).map(|(_, sector)| *sector);
            match around {
                Some(around) => {
                    assert!(has_copies && around.end().0 <= layout.array_size().0);
                    let is_in = |sector: ArraySector| around.start <= sector && sector < around.end();
                    assert!(found.all(is_in), "{length} from {at} of {:?}", layout.spec());
                }
                None => assert!(length > 1 || found.next().is_none(), "{at} of {:?}", layout.spec()),
            }
        }
    }
}

/// `can_serve` is true exactly when every sector can be read or reconstructed.
fn check_service(layout: &Layout, model: &Model, usable: &SlotSet) {
    assert_eq!(layout.can_serve(usable), model_serves(model, usable), "{usable:?} of {:?}", layout.spec());
}

fn model_serves(model: &Model, usable: &SlotSet) -> bool {
    model.serves(usable.iter().fold(0, |there, slot| there | 1 << slot.0))
}

/// Every start and every length, including empty ranges.
fn check_ranges(layout: &Layout, model: &Model, usable: &SlotSet, effort: Effort) -> Cases {
    let mut choices = vec![CopyChoice::First];
    // The first members of an array, and every other one: sets that leave some sectors without another copy.
    let every_other = (0..layout.slots()).step_by(2).map(Slot).collect();
    choices.extend([SlotSet::first(layout.slots() / 2), every_other].map(CopyChoice::FirstBut));
    if effort != Effort::Healthy {
        choices.push(CopyChoice::FirstOf(LATER.as_slice()));
    }
    let nth_max = if effort == Effort::Healthy { model.copies.min(2) } else { model.copies + 1 };
    choices.extend((1..nth_max).map(|n| CopyChoice::Nth(n as u16)));
    let wanted: Vec<Vec<Option<(u64, u64)>>> =
        choices.iter().map(|&choice| (0..model.size()).map(|x| chosen(model, x, usable, choice)).collect()).collect();
    let mut places = Places::new(model);
    let mut cases = Cases::default();
    for from in 0..model.size() {
        for to in from..=model.size() {
            let range = ArrayRange::between(ArraySector(from), ArraySector(to));
            let fail =
                |why: &str, plan: &Plan| -> ! { panic!("{why}: {range:?} {usable:?} {:?} {plan:?}", layout.spec()) };
            for (&choice, wanted) in choices.iter().zip(&wanted) {
                let plan = layout.plan_read(range, usable, choice);
                check_read(&plan, &wanted[from as usize..to as usize]).unwrap_or_else(|why| fail(why, &plan));
                if choice == CopyChoice::First {
                    runs::check_read(layout, range, usable, &plan).unwrap_or_else(|why| fail(why, &plan));
                }
                cases.plans += 1;
            }
            match layout {
                Layout::Parity(layout) => {
                    parity::check_write(layout, model, (from, to), usable, &mut places);
                    parity::check_discard(layout, model, (from, to), usable, &mut places);
                }
                Layout::Copies(copies) => {
                    let plan = copies.plan_write(range, usable);
                    check_write(&plan, from, to, model, &places, usable).unwrap_or_else(|why| fail(why, &plan));
                    check_places_to_write(layout, copies, range, usable, &plan).unwrap_or_else(|why| fail(why, &plan));
                    let discard = copies.plan_discard(range, usable);
                    check_discard(&discard, &plan).unwrap_or_else(|why| fail(why, &discard));
                    runs::check_changes(layout, range, &plan, &discard).unwrap_or_else(|why| fail(why, &discard));
                }
            }
            cases += Cases { reads: 1, writes: 1, discards: 1, plans: 2 };
        }
    }
    cases
}

/// The fast path of a write must give the same places as the plan, and must serve every write inside one chunk.
fn check_places_to_write(
    layout: &Layout,
    copies: &CopyLayout,
    range: ArrayRange,
    usable: &SlotSet,
    plan: &Plan,
) -> Result<(), &'static str> {
    let mut places = Vec::new();
    if !copies.places_to_write(range, usable, |slot, at| places.push((slot, at))) {
        let is_piece = !range.length.is_zero() && layout.contiguous(range.start) >= range.length;
        return if is_piece && plan.lost.is_empty() { Err("a write of one piece has no fast path") } else { Ok(()) };
    }
    places.sort_unstable();
    if !plan.runs.iter().map(|run| (run.slot, run.at)).eq(places)
        || plan.runs.iter().any(|run| run.length != range.length)
    {
        return Err("the fast path of a write goes elsewhere than its plan");
    }
    Ok(())
}

/// Two sets of slots, of which the second comes last. The slots before, between and behind them come first.
static LATER: LazyLock<[SlotSet; 2]> =
    LazyLock::new(|| [[1, 4], [0, 3]].map(|slots| slots.into_iter().map(Slot).collect()));

/// The copy that a read must take.
fn chosen(model: &Model, x: u64, usable: &SlotSet, choice: CopyChoice) -> Option<(u64, u64)> {
    let copies = model.copies_of(x);
    let is_usable = |place: &&(u64, u64)| usable.contains(Slot(place.0 as u16));
    let first = match choice {
        CopyChoice::First => 0,
        CopyChoice::FirstBut(last) => {
            let is_wanted = |place: &&(u64, u64)| is_usable(place) && !last.contains(Slot(place.0 as u16));
            return copies.iter().find(is_wanted).or_else(|| copies.iter().find(is_usable)).copied();
        }
        CopyChoice::FirstOf(later) => {
            let rank = |place: &&(u64, u64)| later.iter().position(|set| set.contains(Slot(place.0 as u16)));
            return copies.iter().filter(is_usable).min_by_key(|place| rank(place).map_or(0, |nth| nth + 1)).copied();
        }
        CopyChoice::Nth(n) => usize::from(n) % copies.len(),
    };
    let mut order = copies[first..].iter().chain(&copies[..first]);
    order.find(is_usable).copied()
}

/// `Err`: the condition that does not hold.
pub(crate) type Verdict = Result<(), &'static str>;

pub(crate) fn ensure(is_so: bool, why: &'static str) -> Verdict {
    if is_so { Ok(()) } else { Err(why) }
}

/// Runs by slot, then ascending with a gap; parts that make them up, in order, and could not be fewer.
fn check_shape(plan: &Plan, has_parts: bool) -> Verdict {
    for pair in plan.runs.windows(2) {
        let ascends = pair[0].slot < pair[1].slot
            || pair[0].slot == pair[1].slot && pair[0].at.0 + pair[0].length.0 < pair[1].at.0;
        ensure(ascends, "runs do not ascend with a gap")?;
    }
    let mut next = 0;
    for run in &plan.runs {
        ensure(run.length.0 > 0, "an empty run")?;
        if has_parts {
            ensure(run.parts.start == next && run.parts.end > next, "runs do not own their parts in order")?;
            next = run.parts.end;
            let parts = plan.parts_of(run);
            ensure(parts.iter().map(|part| part.length.0).sum::<u64>() == run.length.0, "parts and run differ")?;
            let joined = parts.windows(2).any(|pair| pair[0].offset + pair[0].length == pair[1].offset);
            ensure(!joined, "two parts could be one")?;
        } else {
            ensure(run.parts.is_empty(), "a discard with parts")?;
        }
    }
    ensure(next as usize == plan.parts.len(), "a part without a run")?;
    let joined = plan.lost.windows(2).any(|pair| pair[0].offset + pair[0].length >= pair[1].offset);
    ensure(!joined, "lost pieces do not ascend with a gap")
}

/// `wanted`: the place of each sector of the range.
fn check_read(plan: &Plan, wanted: &[Option<(u64, u64)>]) -> Verdict {
    check_shape(plan, true)?;
    let mut covered = 0;
    for run in &plan.runs {
        let mut at = run.at.0;
        for part in plan.parts_of(run) {
            for offset in part.offset.0..part.offset.0 + part.length.0 {
                let place = wanted.get(offset as usize).copied().flatten();
                ensure(place == Some((run.slot.0.into(), at)), "a sector is read from the wrong place")?;
                at += 1;
                covered += 1;
            }
        }
    }
    for lost in &plan.lost {
        for offset in lost.offset.0..lost.offset.0 + lost.length.0 {
            ensure(wanted.get(offset as usize) == Some(&None), "a sector is given up that has a place")?;
            covered += 1;
        }
    }
    // The runs share no place, so no sector can have been counted twice.
    ensure(covered == wanted.len(), "the range is not covered")?;
    let is_small = plan.runs.len() <= 1 && plan.parts.len() <= 1;
    let spilled = plan.runs.spilled() || plan.parts.spilled() || plan.lost.spilled();
    ensure(!(is_small && spilled), "a plan of one run allocates")
}

fn check_write(plan: &Plan, from: u64, to: u64, model: &Model, places: &Places, usable: &SlotSet) -> Verdict {
    check_shape(plan, true)?;
    let mut covered = 0;
    for run in &plan.runs {
        ensure(usable.contains(run.slot), "a write to a member that is not usable")?;
        let mut at = run.at.0;
        for part in plan.parts_of(run) {
            for offset in part.offset.0..part.offset.0 + part.length.0 {
                let x = places.sector(run.slot.0.into(), at);
                ensure(x == from + offset && x < to, "a place is written that is not the sector's")?;
                at += 1;
                covered += 1;
            }
        }
    }
    let there = |x: u64| model.copies_of(x).iter().filter(|place| usable.contains(Slot(place.0 as u16))).count();
    ensure(covered == (from..to).map(there).sum::<usize>(), "a copy is not written")?;
    let lost: u64 = plan.lost.iter().map(|part| part.length.0).sum();
    ensure(lost as usize == (from..to).filter(|&x| there(x) == 0).count(), "the lost pieces are wrong")?;
    let given_up = |part: &uraid_layout::Part| {
        (part.offset.0..part.offset.0 + part.length.0).all(|offset| there(from + offset) == 0)
    };
    ensure(plan.lost.iter().all(given_up), "a sector is given up that has a place")
}

/// A discard is the write, whose runs are already proved, without its parts.
fn check_discard(discard: &Plan, write: &Plan) -> Verdict {
    check_shape(discard, false)?;
    ensure(discard.parts.is_empty() && discard.lost.is_empty(), "a discard with parts")?;
    ensure(discard.runs.len() == write.runs.len(), "a discard with another number of runs than the write")?;
    let same = |(a, b): (&uraid_layout::Run, &uraid_layout::Run)| (a.slot, a.at, a.length) == (b.slot, b.at, b.length);
    ensure(discard.runs.iter().zip(&write.runs).all(same), "a discard elsewhere than the write")
}
