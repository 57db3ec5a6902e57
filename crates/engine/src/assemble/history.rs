//! Tables of members that were left at different moments: which of them are one history, and which exclude each other.
//! Owns: tables, the histories of members with the same event count, which wins, the split-brain error. Not here: the
//! other members (`choose`).
//! Invariant: the result does not depend on the order of the candidates. A table with which the array could not run
//! stands for nothing that was written.

use super::Candidate;
use super::error::{AssembleError, History};
use std::collections::{BTreeMap, BTreeSet};
use uraid_block::{Slot, SlotSet};
use uraid_format::Superblock;
use uraid_layout::{Layout, Level, Spec};

/// The slots in a role table, by dev_number.
pub(super) type Table = BTreeMap<u32, Slot>;

/// The history that an array starts with, among members with the most events.
pub(super) struct Freshest {
    pub(super) table: Table,
    /// Its members; the first one's superblock stands for it.
    pub(super) winners: Vec<usize>,
    /// The others.
    pub(super) losers: Vec<usize>,
    /// They exclude each other.
    pub(super) is_disputed: bool,
}

pub(super) fn table(superblock: &Superblock) -> Table {
    (0u32..).zip(&superblock.roles).filter_map(|(number, role)| Some((number, role.slot()?))).collect()
}

/// Whether an array with members in the slots of this table could serve: only then can it have run, and been written. md
/// writes to the mirrors that are left of a raid10 although others are lost.
pub(super) fn could_run(superblock: &Superblock, table: &Table) -> bool {
    let slots: SlotSet = table.values().copied().collect();
    let raid_disks = superblock.raid_disks.min(SlotSet::SLOTS_MAX.into()) as u16;
    match superblock.level_layout() {
        Some((Level::Raid1 | Level::Raid10, _)) => true,
        Some((Level::Linear | Level::Raid0, _)) => slots.count() >= usize::from(raid_disks),
        Some((level, layout)) => {
            let (chunk, size) = (superblock.chunk, superblock.size);
            Layout::new(&Spec { level, layout, chunk, raid_disks, size, member_sizes: Vec::new() })
                .is_ok_and(|layout| layout.can_serve(&slots))
        }
        None => true,
    }
}

/// Whether all entries of the first table are in the second, which has more.
fn is_part(one: &Table, of: &Table) -> bool {
    one.len() < of.len() && one.iter().all(|(number, slot)| of.get(number) == Some(slot))
}

/// Makes one history of tables that are parts of one another: when members fail one after the other within moments, each
/// is left with the table of its moment. A table that is too small to have run stands for nothing: its members belong to
/// the next larger one. Of the others the smallest one is the last. The members of the larger ones that it lists belong
/// to it, and the others have failed.
///
/// ```text
///   raid6 of 6    0 1 2 3 4 5    1 and 2 have this one
///                 0 1 2 3 4 -    0 has it: the last with which the array could run
///                 0 - - 3 4 -    3 and 4 have it: nothing was written with it
/// ```
fn join_nested(candidates: &[Candidate], histories: &mut Vec<(Table, Vec<usize>)>) {
    let too_small = |(table, members): &(Table, Vec<usize>)| !could_run(&candidates[members[0]].superblock, table);
    // Each step removes one.
    while let Some(small) = (0..histories.len())
        .find(|at| too_small(&histories[*at]) && histories.iter().any(|(table, _)| is_part(&histories[*at].0, table)))
    {
        let (table, members) = histories.remove(small);
        let larger = histories.iter_mut().filter(|(other, _)| is_part(&table, other));
        larger.min_by_key(|(other, _)| other.len()).expect("there is one").1.extend(members);
    }
    histories.sort_by_key(|(table, _)| table.len());
    for last in 0..histories.len() {
        let (before, after) = histories.split_at_mut(last + 1);
        let (table, own) = &mut before[last];
        for (_, members) in after.iter_mut().filter(|(larger, _)| is_part(table, larger)) {
            let listed = |at: &mut usize| table.contains_key(&candidates[*at].superblock.dev_number);
            own.extend(members.extract_if(.., listed));
        }
    }
    histories.retain(|(_, members)| !members.is_empty());
    // The first member's superblock stands for the history: it must have its table.
    let number = |at: &usize| candidates[*at].superblock.dev_number;
    for (table_of_all, members) in histories.iter_mut() {
        members.sort_by_key(|at| (table(&candidates[*at].superblock) != *table_of_all, number(at)));
    }
    histories.sort_by_key(|(_, members)| members.iter().map(number).min());
}

/// Splits candidates with the same event count: those whose table wins, and the rest. Also returns whether the choice
/// is disputed.
///
/// Members that ran together have the same table. Suppose that table A leaves out every member that has table B, and B
/// lists some of A's members. Then A wins: its members never received B with this count, so the round that wrote B was
/// cut short, and no request was answered after it. (md's events also step back when an array becomes clean, so a
/// member that was lost right before can show the count of the round that recorded its loss.) Every other case is a
/// dispute. Then the history with the most members is listed first; of equal histories, the one with the lowest
/// dev_number.
///
/// With force, histories that do not exclude each other are one: each lists all members of the other, or none of them has
/// enough members to have run. Its table has all their entries.
pub(super) fn freshest_history(candidates: &[Candidate], freshest: &[usize], is_forced: bool) -> Freshest {
    assert!(!freshest.is_empty());
    let mut histories: Vec<(Table, Vec<usize>)> = Vec::new();
    for at in freshest {
        let own = table(&candidates[*at].superblock);
        match histories.iter_mut().find(|(table, _)| *table == own) {
            Some((_, members)) => members.push(*at),
            None => histories.push((own, vec![*at])),
        }
    }
    join_nested(candidates, &mut histories);
    if is_forced {
        join_undisputed(candidates, &mut histories);
    }
    let lists = |table: &Table, members: &[usize]| {
        members.iter().filter(|at| table.contains_key(&candidates[**at].superblock.dev_number)).count()
    };
    let supersedes = |one: &(Table, Vec<usize>), other: &(Table, Vec<usize>)| {
        lists(&one.0, &other.1) == 0 && lists(&other.0, &one.1) > 0
    };
    let beats_all =
        |one: usize| (0..histories.len()).all(|other| one == other || supersedes(&histories[one], &histories[other]));
    let clear = (0..histories.len()).find(|one| beats_all(*one));
    // Histories are in the order of their lowest dev_number, and the first of several maxima must win.
    let largest = (0..histories.len()).rev().max_by_key(|at| histories[*at].1.len());
    let winner = clear.or(largest).expect("the freshest candidates are at least one");
    let (table, winners) = histories.remove(winner);
    let losers: Vec<usize> = histories.into_iter().flat_map(|(_, members)| members).collect();
    assert!(!winners.is_empty(), "a history has the member that it was found on");
    assert_eq!(winners.len() + losers.len(), freshest.len());
    Freshest { table, winners, losers, is_disputed: clear.is_none() }
}

/// Makes one history of those that do not exclude each other, as members that failed within moments leave them.
///
/// ```text
///   raid5 of 4, one event count    0 1 - -    0 and 1 have this one, 2 and 3 the other: with two of four nothing ran,
///                                  - - 2 3    so nothing was written since all four were there
/// ```
fn join_undisputed(candidates: &[Candidate], histories: &mut Vec<(Table, Vec<usize>)>) {
    let number = |at: &usize| candidates[*at].superblock.dev_number;
    let too_small = |(table, members): &(Table, Vec<usize>)| !could_run(&candidates[members[0]].superblock, table);
    let lists_all = |one: &(Table, Vec<usize>), other: &(Table, Vec<usize>)| {
        other.1.iter().all(|at| one.0.get(&number(at)).copied() == candidates[*at].superblock.own_role().slot())
    };
    let may_join = |one: &(Table, Vec<usize>), other: &(Table, Vec<usize>)| {
        let is_undisputed = lists_all(one, other) && lists_all(other, one) || too_small(one) && too_small(other);
        is_undisputed && united(&one.0, &other.0).is_some()
    };
    let pair = |histories: &[(Table, Vec<usize>)]| {
        let mut pairs = (0..histories.len()).flat_map(|one| (one + 1..histories.len()).map(move |other| (one, other)));
        pairs.find(|(one, other)| may_join(&histories[*one], &histories[*other]))
    };
    // Each step removes one.
    while let Some((one, other)) = pair(histories) {
        let (table, members) = histories.remove(other);
        histories[one].0 = united(&histories[one].0, &table).expect("it was tried");
        histories[one].1.extend(members);
        histories[one].1.sort_by_key(number);
    }
}

/// Both tables in one; `None` if they give a device two slots, or a slot two devices.
fn united(one: &Table, other: &Table) -> Option<Table> {
    let mut table = one.clone();
    for (number, slot) in other {
        if table.insert(*number, *slot).is_some_and(|before| before != *slot) {
            return None;
        }
    }
    let slots: BTreeSet<&Slot> = table.values().collect();
    (slots.len() == table.len()).then_some(table)
}

/// The split-brain error for these candidates, with their histories, freshest first.
pub(super) fn split_brain(candidates: &[Candidate], members: &[usize]) -> AssembleError {
    assert!(!members.is_empty(), "a history has a member");
    let mut histories: Vec<(Table, History)> = Vec::new();
    for at in members {
        let superblock = &candidates[*at].superblock;
        let own = table(superblock);
        let events = superblock.events;
        let updated = superblock.updated_seconds();
        match histories.iter_mut().find(|(table, history)| *table == own && history.events == events) {
            Some((_, history)) => {
                history.candidates.push(*at);
                history.updated_seconds = history.updated_seconds.max(updated);
            }
            None => {
                let slots = own.values().copied().collect::<BTreeSet<_>>().into_iter().collect();
                let history = History { candidates: vec![*at], events, updated_seconds: updated, slots };
                histories.push((own, history));
            }
        }
    }
    let mut histories: Vec<History> = histories.into_iter().map(|(_, history)| history).collect();
    for history in &mut histories {
        history.candidates.sort_unstable();
    }
    histories.sort_by_key(|history| std::cmp::Reverse(history.events));
    let named: usize = histories.iter().map(|history| history.candidates.len()).sum();
    assert_eq!(named, members.len(), "each is of one history");
    AssembleError::SplitBrain { histories }
}
