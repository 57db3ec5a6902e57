//! `--force` over all of them: every layout of two to six members, every order in which they left in three generations,
//! every set of those that are given.
//! Owns: a small model of which copies are how old. Not here: single situations (tests/assemble.rs), what superblocks say
//! while a forced array is made consistent (`src/state/master/forced.rs`).
//! Invariant checked: nothing that a start without `--force` answers changes, and what is answered is the newest given.
//!
//! ```text
//!   phase 0        phase 1        phase 2        a member's copies are of the last phase in which it was there
//!   A B C D   ->   A B C -   ->   A - - -        A: 2   B, C: 1   D: 0
//! ```

use super::candidates::{FORCE, array, start};
use std::collections::BTreeSet;
use uraid_block::{ArraySector, Slot, SlotSet};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Place, StartPlan, assemble};
use uraid_format::{Features, Role, Superblock};
use uraid_layout::{Layout, Level};

const GENERATIONS: u8 = 3;

/// All layouts of so many members of which one is enough for each of some kind.
fn layouts(members: u16) -> Vec<(Level, u32)> {
    let parity = [(Level::Raid4, 0, 3), (Level::Raid5, 2, 3), (Level::Raid6, 2, 4), (Level::Raid6, 18, 4)];
    let parity = parity.into_iter().filter(|(_, _, least)| members >= *least).map(|(level, layout, _)| (level, layout));
    let copies = |near: u32, far: u32| (near * far >= 2 && near * far <= members.into()).then_some(near | far << 8);
    let words = (1..=6).flat_map(|near| (1..=6).filter_map(move |far| copies(near, far)));
    // Far copies in the next chunk, and in sets of members.
    let words = words.flat_map(|word| [word, word | 0x1_0000, word | 0x4_0000]).filter(|word| {
        let far = word >> 8 & 0xff;
        far > 1 || word >> 16 == 0
    });
    parity.chain([(Level::Raid1, 0)]).chain(words.map(|word| (Level::Raid10, word))).collect()
}

/// Members that left in these generations, 0 for those that never did.
fn left(whole: &[Candidate], generations: &[u8], spacing: u64, is_dirty: bool) -> Vec<Candidate> {
    let member = |(at, candidate): (usize, &Candidate)| {
        let own = generations[at];
        let mut superblock = candidate.superblock.clone();
        superblock.events = 100 - spacing * u64::from(own);
        for (role, other) in superblock.roles.iter_mut().zip(generations) {
            if *other > own {
                *role = Role::Faulty;
            }
        }
        superblock.resync_offset = if is_dirty { 0 } else { Superblock::CLEAN };
        Candidate { superblock, ..candidate.clone() }
    };
    whole.iter().enumerate().map(member).collect()
}

fn usable(plan: &StartPlan) -> Vec<(Slot, usize)> {
    let in_slot = plan.members.iter().filter_map(|member| match member.place {
        Place::Slot(slot) => Some((slot, member.candidate)),
        Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
    });
    in_slot.collect()
}

/// The phase of what is answered for each chunk, until the pattern repeats. `age_of`: of a slot's member.
fn answered(plan: &StartPlan, age_of: impl Fn(Slot) -> u8) -> Vec<u8> {
    let slots: SlotSet = usable(plan).into_iter().map(|(slot, _)| slot).collect();
    let rank = |slot: Slot| plan.forced.older.iter().position(|set| set.contains(slot)).map_or(0, |nth| nth + 1);
    chunks(&plan.layout)
        .map(|at| {
            let mut copies = plan.layout.copies(at);
            copies.sort_by_key(|(slot, _)| rank(*slot));
            age_of(copies.iter().find(|(slot, _)| slots.contains(*slot)).expect("every chunk is served").0)
        })
        .collect()
}

fn chunks(layout: &Layout) -> impl Iterator<Item = ArraySector> {
    let chunk = layout.chunk().0.max(1);
    let count = (layout.array_size().0 / chunk).min(u64::from(layout.slots()));
    (0..count).map(move |nth| ArraySector(nth * chunk))
}

/// Checks one set of given members; `ages`: the generation of each of them, by its slot.
fn check(given: &[Candidate], ages: &[Option<u8>], case: &dyn Fn() -> String) -> bool {
    let normal = assemble(given, &AssembleOptions { run: true, ..AssembleOptions::default() });
    let forced = assemble(given, &FORCE);
    let age = |slot: Slot| ages[slot.index()].expect("only given members are used");
    let forced = match (normal, forced) {
        (Ok(normal), Ok(forced)) => {
            assert!(forced.forced.raised.is_empty() && usable(&normal) == usable(&forced), "{}", case());
            forced
        }
        (Ok(_), Err(error)) => panic!("{}: it starts without --force, and with it: {error}", case()),
        (Err(AssembleError::TooFewMembers { .. } | AssembleError::DirtyDegraded { .. }), Ok(forced)) => forced,
        (Err(_), Err(AssembleError::TooFewMembers { .. })) => {
            expect_too_few(given, ages, case);
            return false;
        }
        (normal, forced) => panic!("{}: {normal:?}, {forced:?}", case()),
    };
    assert!(forced.is_dirty || forced.forced.raised.is_empty() || is_alone(&forced), "{}: a resync follows", case());
    match &forced.layout {
        Layout::Copies(layout) => {
            let is_needed = |slot: Slot| {
                let fresher: SlotSet = usable(&forced)
                    .into_iter()
                    .map(|(other, _)| other)
                    .filter(|other| age(*other) < age(slot))
                    .collect();
                layout.copy_groups().into_iter().any(|group| group.contains(slot) && group.and(fresher).is_empty())
            };
            let mut raised = usable(&forced).into_iter().filter(|(_, at)| forced.forced.raised.contains(at));
            assert!(raised.all(|(slot, _)| is_needed(slot)), "{}: fresher ones hold all of one's chunks", case());
            let newest = chunks(&forced.layout).map(|at| {
                let copies = forced.layout.copies(at);
                copies.iter().filter_map(|(slot, _)| ages[slot.index()]).min().expect("a copy is given")
            });
            assert_eq!(answered(&forced, age), newest.collect::<Vec<_>>(), "{}: {:?}", case(), forced.forced);
        }
        Layout::Parity(_) => check_parity(&forced, ages, &age, case),
    }
    true
}

/// The only member of a mirror is equal to itself.
fn is_alone(plan: &StartPlan) -> bool {
    plan.layout.level() == Level::Raid1 && usable(plan).len() == 1
}

/// Whole generations, no older one than is needed.
fn check_parity(plan: &StartPlan, ages: &[Option<u8>], age: &dyn Fn(Slot) -> u8, case: &dyn Fn() -> String) {
    let used = usable(plan);
    let oldest = used.iter().map(|(slot, _)| age(*slot)).max().expect("a member is used");
    let up_to = |most: u8| (0..).map(Slot).zip(ages).filter(move |(_, age)| age.is_some_and(|age| age <= most));
    assert_eq!(up_to(oldest).count(), used.len(), "{}: a generation is whole", case());
    if let Some(fresher) = oldest.checked_sub(1).filter(|_| !plan.forced.raised.is_empty()) {
        let slots: SlotSet = up_to(fresher).map(|(slot, _)| slot).collect();
        assert!(!plan.layout.can_serve(&slots), "{}: the fresher ones were enough", case());
    }
}

fn expect_too_few(given: &[Candidate], ages: &[Option<u8>], case: &dyn Fn() -> String) {
    let mut whole = given.to_vec();
    let events = whole.iter().map(|one| one.superblock.events).max().expect("a member is given");
    for candidate in &mut whole {
        candidate.superblock.events = events;
        (0..).map(Slot).zip(&mut candidate.superblock.roles).take(ages.len()).for_each(|(slot, role)| {
            *role = Role::Slot(slot);
        });
    }
    let error = assemble(&whole, &FORCE).map(|plan| usable(&plan));
    assert!(matches!(error, Err(AssembleError::TooFewMembers { .. })), "{}: they are enough: {error:?}", case());
}

#[test]
fn force_costs_nothing_current_and_answers_the_newest_that_is_given() {
    let (mut started, mut refused, mut seen) = (0u64, 0u64, BTreeSet::new());
    for members in 2..=6u16 {
        let count = usize::from(members);
        for (level, layout) in layouts(members) {
            let mut whole = array(level, members, 0);
            whole.iter_mut().for_each(|candidate| candidate.superblock.layout = layout);
            let Ok(StartPlan { layout: of_whole, .. }) = start(&whole) else { continue };
            // Far and offset layouts differ only in where on a member a copy lies.
            let slots = |at| of_whole.copies(at).into_iter().map(|(slot, _)| slot).collect();
            let copies: Vec<Vec<Slot>> = chunks(&of_whole).map(slots).collect();
            if !seen.insert((level.name(), copies)) {
                continue;
            }
            // What does not change which members are taken is varied where there are few of them.
            let kinds: &[(u64, bool, bool)] = match members {
                2..=4 => &[(1, true, false), (10, false, true), (1, false, false), (10, true, true)],
                _ => &[(10, true, false)],
            };
            for (generations, &(spacing, is_dirty, has_bitmap)) in
                all_generations(count).flat_map(|generations| kinds.iter().map(move |kind| (generations.clone(), kind)))
            {
                let mut all = left(&whole, &generations, spacing, is_dirty);
                if has_bitmap {
                    for candidate in &mut all {
                        candidate.superblock.features = Features::BITMAP_OFFSET;
                        candidate.superblock.bitmap_offset = 8;
                    }
                }
                for set in 1..1u32 << count {
                    let is_given = |at: usize| set >> at & 1 == 1;
                    let given: Vec<Candidate> =
                        all.iter().enumerate().filter(|(at, _)| is_given(*at)).map(|(_, one)| one.clone()).collect();
                    let ages: Vec<Option<u8>> = (0..count).map(|at| is_given(at).then_some(generations[at])).collect();
                    let case = || format!("{level:?} {layout:#x} {ages:?}, {spacing} events apart, dirty {is_dirty}");
                    if check(&given, &ages, &case) { started += 1 } else { refused += 1 }
                }
            }
        }
    }
    println!("{started} started, {refused} refused");
    assert!(started > 100_000 && refused > 10_000, "{started} started, {refused} refused");
}

/// Every generation of each member, one of them the first.
fn all_generations(members: usize) -> impl Iterator<Item = Vec<u8>> {
    let all = usize::from(GENERATIONS).pow(members as u32);
    let digits = move |mut nth: usize| -> Vec<u8> {
        let mut digit = || {
            let digit = nth % usize::from(GENERATIONS);
            nth /= usize::from(GENERATIONS);
            digit as u8
        };
        (0..members).map(|_| digit()).collect()
    };
    (0..all).map(digits).filter(|generations| generations.contains(&0))
}
