//! Which superblock is the freshest, and which candidates hold what it describes.
//! Owns: the set, the histories, every refusal that depends on one candidate only. Not here: whether the remaining
//! candidates are enough (`start`).
//! Invariant: a role comes from the freshest superblock's table, never from the candidate's own.
//!
//! ```text
//!   events   table (dev 0 1 2 3)          a round that failed dev 3 reached dev 0 only:
//!   dev 0  8    0 1 2 -       freshest
//!   dev 1  7    0 1 2 3       one behind, the freshest lists it: taken
//!   dev 2  7    0 1 2 3       the same
//!   dev 3  7    0 1 2 3       one behind, the freshest does not list it: refused
//! ```

use super::error::{AssembleError, Duplicate, SetCount, Unsupported};
use super::history::{Freshest, Table, could_run, freshest_history, split_brain, table};
use super::{Candidate, Refusal, Refused};
use crate::words::mark::{self, Mark};
use std::collections::BTreeMap;
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::{Features, Role, Superblock, Version};
use uraid_layout::Level;

pub(super) struct Chosen {
    /// The freshest superblock.
    pub(super) template: Superblock,
    /// The member in sync of each slot.
    pub(super) slots: BTreeMap<Slot, usize>,
    /// The member of each other slot that is being recovered.
    pub(super) recovering: BTreeMap<Slot, usize>,
    /// The second member of each slot to which the first is being copied.
    pub(super) replacing: BTreeMap<Slot, usize>,
    /// The spares, by dev_number.
    pub(super) spares: BTreeMap<u32, usize>,
    /// All other candidates.
    pub(super) refused: Vec<Refused>,
    /// The feature bits of all members in use, combined.
    pub(super) features: Features,
    /// Several histories exclude each other, and `--force` chose one.
    pub(super) is_split_brain: bool,
}

impl Chosen {
    /// Gives members that hold everything the slot of the member that was copied to them, if that one is not there.
    fn promote_copied(&mut self, candidates: &[Candidate]) {
        let Chosen { slots, replacing, .. } = self;
        replacing.retain(|slot, candidate| {
            let takes_slot = !slots.contains_key(slot) && is_copied(&candidates[*candidate].superblock);
            if takes_slot {
                slots.insert(*slot, *candidate);
            }
            !takes_slot
        });
    }

    /// Members that do not hold everything are recovered if the member that was copied to them is not there.
    pub(super) fn recover_without_first(&mut self) {
        let Chosen { slots, recovering, replacing, refused, .. } = self;
        replacing.retain(|slot, candidate| {
            if slots.contains_key(slot) {
                return true;
            }
            if recovering.contains_key(slot) {
                refused.push(Refused { candidate: *candidate, reason: Refusal::NoRole });
            } else {
                mark::hit(Mark::ReplacingRecovers);
                recovering.insert(*slot, *candidate);
            }
            false
        });
    }

    /// Leaves out members that are being recovered for a slot that has a member in sync.
    pub(super) fn refuse_recovering(&mut self, candidates: &[Candidate]) {
        let Chosen { slots, recovering, refused, .. } = self;
        recovering.retain(|slot, candidate| {
            let is_wanted = !slots.contains_key(slot);
            if !is_wanted {
                let superblock = &candidates[*candidate].superblock;
                let (found, expected) = (recovered_below(superblock), superblock.size);
                refused.push(Refused {
                    candidate: *candidate,
                    reason: Refusal::NotInSync { slot: *slot, found, expected },
                });
            }
            is_wanted
        });
    }
}

/// How far a member was recovered. It is zero for a member that md recovers by its bitmap: a start without the bitmap
/// cannot rely on any of its data.
pub(super) fn recovered_below(superblock: &Superblock) -> Sectors {
    let features = superblock.features;
    let is_recorded = features.contains(Features::RECOVERY_OFFSET) && !features.contains(Features::RECOVERY_BITMAP);
    let has_slot = superblock.own_role().slot().is_some();
    if is_recorded && has_slot { Sectors(superblock.recovery_offset.min(superblock.size.0)) } else { Sectors::ZERO }
}

/// Whether a second member of a slot holds everything.
fn is_copied(superblock: &Superblock) -> bool {
    superblock.features.contains(Features::REPLACEMENT) && !superblock.features.contains(Features::RECOVERY_OFFSET)
}

/// How far the member of a slot was copied to a second one.
pub(super) fn copied_below(superblock: &Superblock) -> Sectors {
    if is_copied(superblock) { superblock.size } else { recovered_below(superblock) }
}

pub(super) fn choose(candidates: &[Candidate], is_forced: bool) -> Result<Chosen, AssembleError> {
    let (set, mut refused) = own_set(candidates)?;
    assert_eq!(set.len() + refused.len(), candidates.len(), "a candidate is of the array or foreign");
    refuse_copies(candidates, &set)?;
    let mut contenders = Vec::new();
    let mut waiting = Vec::new();
    for candidate in set {
        let superblock = &candidates[candidate].superblock;
        match superblock.own_role() {
            Role::Slot(slot) if u32::from(slot.0) < superblock.raid_disks => contenders.push(candidate),
            Role::Spare if (superblock.dev_number as usize) < superblock.roles.len() => waiting.push(candidate),
            role @ (Role::Slot(_) | Role::BeyondSlots(_)) => {
                let reason = Refusal::NoSlot { found: role.raw(), slots: superblock.raid_disks };
                refused.push(Refused { candidate, reason });
            }
            Role::Journal => refused.push(Refused { candidate, reason: Refusal::Journal }),
            Role::Spare | Role::Faulty | Role::Reserved(_) => {
                refused.push(Refused { candidate, reason: Refusal::NoRole });
            }
        }
    }
    assert_eq!(contenders.len() + waiting.len() + refused.len(), candidates.len());
    let Some(events) = contenders.iter().map(|at| candidates[*at].superblock.events).max() else {
        return Err(AssembleError::OnlySpares { found: waiting.len() });
    };
    let (freshest, others): (Vec<usize>, Vec<usize>) =
        contenders.into_iter().partition(|at| candidates[*at].superblock.events == events);
    assert!(!freshest.is_empty(), "a candidate has the most events");
    let Freshest { table, winners, losers, is_disputed } = freshest_history(candidates, &freshest, is_forced);
    if is_disputed {
        assert!(!losers.is_empty(), "a history does not dispute itself");
    }
    if is_disputed && !is_forced {
        let all = [&winners[..], &losers[..]].concat();
        return Err(split_brain(candidates, &all));
    }
    let mut sorter = Sorter::new(candidates, (&winners, table), refused, is_forced)?;
    for candidate in winners {
        sorter.admit(candidate)?;
    }
    for candidate in losers {
        let found = candidates[candidate].superblock.events;
        let reason = match is_disputed {
            true => Refusal::SplitBrain { found, expected: events },
            false => {
                mark::hit(Mark::HistorySuperseded);
                Refusal::Faulty { found, recorded: events }
            }
        };
        sorter.refuse(candidate, reason);
    }
    for candidate in others {
        sorter.sort_older(candidate)?;
    }
    sorter.refuse_other_histories()?;
    for candidate in waiting {
        sorter.sort_spare(candidate)?;
    }
    sorter.chosen.is_split_brain |= is_disputed;
    let mut chosen = sorter.chosen;
    chosen.promote_copied(candidates);
    chosen.refuse_recovering(candidates);
    let placed = chosen.slots.len() + chosen.recovering.len() + chosen.replacing.len() + chosen.spares.len();
    assert_eq!(placed + chosen.refused.len(), candidates.len(), "each candidate is taken or refused, with a reason");
    if chosen.is_split_brain {
        assert!(is_forced, "only force chooses a history");
    }
    Ok(chosen)
}

/// Splits the candidates: those of the array to which more than half of them belong, and the others as refused. The
/// order of the result does not depend on the order of the list.
fn own_set(candidates: &[Candidate]) -> Result<(Vec<usize>, Vec<Refused>), AssembleError> {
    let mut sets: BTreeMap<[u8; 16], Vec<usize>> = BTreeMap::new();
    for (at, candidate) in candidates.iter().enumerate() {
        sets.entry(candidate.superblock.set_uuid).or_default().push(at);
    }
    let Some((&expected, own)) = sets.iter().max_by_key(|(_, members)| members.len()) else {
        return Err(AssembleError::NoCandidates);
    };
    if own.len() * 2 <= candidates.len() {
        let sets = sets.into_iter().map(|(set_uuid, members)| SetCount {
            set_uuid,
            name: candidates[members[0]].superblock.set_name.as_str().into_owned(),
            candidates: members,
        });
        return Err(AssembleError::SeveralArrays { sets: sets.collect() });
    }
    assert!(!own.is_empty(), "a set has the candidate that it was found with");
    let mut own = own.clone();
    own.sort_by_key(|at| {
        let superblock = &candidates[*at].superblock;
        (superblock.dev_number, superblock.device_uuid, superblock.events)
    });
    let foreign = candidates.iter().enumerate().filter(|(_, other)| other.superblock.set_uuid != expected);
    let foreign = foreign.map(|(candidate, other)| Refused {
        candidate,
        reason: Refusal::Foreign { found: other.superblock.set_uuid, expected },
    });
    Ok((own, foreign.collect()))
}

/// Refuses two devices with one id: one is a copy of the other, and their superblocks do not tell which.
fn refuse_copies(candidates: &[Candidate], set: &[usize]) -> Result<(), AssembleError> {
    let mut seen: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for at in set {
        if let Some(other) = seen.insert(candidates[*at].superblock.device_uuid, *at) {
            return Err(duplicate(Duplicate::DeviceUuid, other, *at));
        }
    }
    assert_eq!(seen.len(), set.len(), "each has an id of its own");
    Ok(())
}

fn duplicate(what: Duplicate, one: usize, other: usize) -> AssembleError {
    assert_ne!(one, other, "a candidate is no duplicate of itself");
    AssembleError::Duplicate { what, candidates: [one.min(other), one.max(other)] }
}

/// The first shared field in which a superblock differs from the freshest one: name, found, expected.
pub(super) fn mismatch(found: &Superblock, expected: &Superblock) -> Option<(&'static str, i128, i128)> {
    let layout = |superblock: &Superblock| superblock.level_layout().map_or(superblock.layout, |(_, layout)| layout);
    let minor = |superblock: &Superblock| match superblock.version {
        Version::V0_90 => 90,
        Version::V1_0 => 0,
        Version::V1_1 => 1,
        Version::V1_2 => 2,
    };
    let fields = [
        ("minor version", minor(found), minor(expected)),
        ("creation time", i128::from(found.created), i128::from(expected.created)),
        ("level", i128::from(found.level), i128::from(expected.level)),
        ("layout", i128::from(layout(found)), i128::from(layout(expected))),
        ("chunk", i128::from(found.chunk.0), i128::from(expected.chunk.0)),
        ("slot count", i128::from(found.raid_disks), i128::from(expected.raid_disks)),
        ("used size", i128::from(found.size.0), i128::from(expected.size.0)),
    ];
    fields.into_iter().find(|(_, found, expected)| found != expected)
}

/// Where a member's data ends on its device: the used size, or for linear and raid0 the member's whole data size.
pub(super) fn data_end(superblock: &Superblock) -> Sectors {
    let is_all_used = match superblock.known_level() {
        Some(Level::Linear | Level::Raid0) => true,
        Some(Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6) | None => false,
    };
    let used = if is_all_used || superblock.size.is_zero() { superblock.data_size } else { superblock.size };
    Sectors(superblock.data_offset.0) + used
}

/// What a member in use announces. One that missed the last superblocks may still name a bitmap, or a partial parity log,
/// that the array has no more.
pub(super) fn announced(superblock: &Superblock, template: &Superblock) -> Features {
    let policy = Features::BITMAP_OFFSET.with(Features::PPL).with(Features::MULTIPLE_PPLS);
    let is_behind = superblock.events < template.events;
    if is_behind { superblock.features.without(policy) } else { superblock.features }
}

/// Refuses features that would make even reading wrong. With force, an array is read without its journal.
fn check_features(superblock: &Superblock, is_forced: bool) -> Result<(), AssembleError> {
    let features = superblock.features;
    let reshape = Features::RESHAPE_ACTIVE.with(Features::RESHAPE_BACKWARDS).with(Features::NEW_OFFSET);
    let unsupported = if !features.unknown().is_empty() {
        Unsupported::Features(features.unknown().0)
    } else if features.intersects(reshape) {
        superblock.reshape_plan().map_or_else(Unsupported::ReshapeFields, |_| Unsupported::Reshape)
    } else if features.contains(Features::JOURNAL) && !is_forced {
        Unsupported::Journal
    } else if features.contains(Features::CLUSTERED) {
        Unsupported::Clustered
    } else {
        return Ok(());
    };
    Err(AssembleError::Unsupported(unsupported))
}

/// Assigns candidates, one after the other, to the places that the freshest superblock lists.
struct Sorter<'a> {
    candidates: &'a [Candidate],
    table: Table,
    chosen: Chosen,
    is_forced: bool,
}

impl<'a> Sorter<'a> {
    fn new(
        candidates: &'a [Candidate],
        (winners, table): (&[usize], Table),
        refused: Vec<Refused>,
        is_forced: bool,
    ) -> Result<Sorter<'a>, AssembleError> {
        assert!(!winners.is_empty(), "the freshest superblock is that of a candidate");
        let mut template = candidates[winners[0]].superblock.clone();
        // Superblocks with equal events should agree on the resync offset. If they do not, take the lowest, which is
        // safe.
        let resync = winners.iter().map(|at| candidates[*at].superblock.resync_offset).min();
        template.resync_offset = resync.expect("a history has a member");
        check_features(&template, is_forced)?;
        if template.known_level().is_none() {
            return Err(AssembleError::Unsupported(Unsupported::Level(template.level)));
        }
        let maximum = u32::from(SlotSet::SLOTS_MAX);
        if template.raid_disks > maximum {
            return Err(AssembleError::TooManySlots { found: template.raid_disks, maximum });
        }
        // What the tables of several histories that are one list is listed.
        for (number, slot) in &table {
            if let Some(role) = template.roles.get_mut(*number as usize) {
                *role = Role::Slot(*slot);
            }
        }
        let features = template.features;
        let chosen = Chosen {
            template,
            slots: BTreeMap::new(),
            recovering: BTreeMap::new(),
            replacing: BTreeMap::new(),
            spares: BTreeMap::new(),
            refused,
            features,
            is_split_brain: false,
        };
        Ok(Sorter { candidates, table, chosen, is_forced })
    }

    fn refuse(&mut self, candidate: usize, reason: Refusal) {
        assert!(candidate < self.candidates.len());
        assert!(!self.chosen.slots.values().any(|at| *at == candidate), "a member in a slot is not refused as well");
        self.chosen.refused.push(Refused { candidate, reason });
    }

    /// Decides about a candidate that is not fresher than the freshest one, by its event count and the freshest table.
    fn sort_older(&mut self, candidate: usize) -> Result<(), AssembleError> {
        let superblock = &self.candidates[candidate].superblock;
        let (found, expected) = (superblock.events, self.chosen.template.events);
        assert!(found < expected, "one that is as fresh as the freshest is of a history with as many events");
        let own = superblock.own_role().slot().expect("a contender has a slot");
        if found.saturating_add(1) < expected {
            mark::hit(Mark::StaleRefused);
            self.refuse(candidate, Refusal::Stale { found, expected });
            return Ok(());
        }
        match self.table.get(&superblock.dev_number).copied() {
            None => {
                mark::hit(Mark::FaultyRefused);
                self.refuse(candidate, Refusal::Faulty { found, recorded: expected });
            }
            Some(slot) if slot != own => self.refuse(candidate, Refusal::Moved { found: own, expected: slot }),
            Some(_) => {
                mark::hit(Mark::LaggingTaken);
                return self.admit(candidate);
            }
        }
        Ok(())
    }

    /// Admits a candidate that the freshest table lists in its own slot, if it is usable as it is.
    fn admit(&mut self, candidate: usize) -> Result<(), AssembleError> {
        let Candidate { superblock, device_size, .. } = &self.candidates[candidate];
        let slot = self.table[&superblock.dev_number];
        if let Some((field, found, expected)) = mismatch(superblock, &self.chosen.template) {
            return Err(AssembleError::Mismatch { candidate, field, found, expected });
        }
        assert!(u32::from(slot.0) < self.chosen.template.raid_disks, "a contender's slot is in the array");
        assert_eq!(superblock.own_role().slot(), Some(slot), "its data belongs to the slot that it is given");
        check_features(superblock, self.is_forced)?;
        self.chosen.features = self.chosen.features.with(announced(superblock, &self.chosen.template));
        let data_end = data_end(superblock);
        if *device_size < data_end {
            mark::hit(Mark::ShrunkRefused);
            self.refuse(candidate, Refusal::Shrank { found: *device_size, expected: data_end });
        } else if superblock.features.contains(Features::REPLACEMENT) {
            return self.admit_replacing(candidate, slot);
        } else if superblock.features.contains(Features::RECOVERY_OFFSET) {
            return self.admit_recovering(candidate, slot);
        } else if let Some(other) = self.chosen.slots.insert(slot, candidate) {
            let is_same_number = self.candidates[other].superblock.dev_number == superblock.dev_number;
            let what = if is_same_number { Duplicate::DevNumber(superblock.dev_number) } else { Duplicate::Slot(slot) };
            return Err(duplicate(what, other, candidate));
        }
        Ok(())
    }

    /// Admits a member that has the slot and does not hold everything yet.
    fn admit_recovering(&mut self, candidate: usize, slot: Slot) -> Result<(), AssembleError> {
        mark::hit(Mark::RecoveringTaken);
        match self.chosen.recovering.insert(slot, candidate) {
            Some(other) => Err(duplicate(Duplicate::Slot(slot), other, candidate)),
            None => Ok(()),
        }
    }

    /// Admits a member to which that of the slot is being copied. A level without redundancy has none.
    fn admit_replacing(&mut self, candidate: usize, slot: Slot) -> Result<(), AssembleError> {
        if !self.chosen.template.known_level().is_some_and(Level::is_redundant) {
            self.refuse(candidate, Refusal::NoRole);
            return Ok(());
        }
        mark::hit(Mark::ReplacingTaken);
        match self.chosen.replacing.insert(slot, candidate) {
            Some(other) => Err(duplicate(Duplicate::Slot(slot), other, candidate)),
            None => Ok(()),
        }
    }

    /// Finds refused members whose own table shares no member with the freshest table: they have run without the
    /// members of the freshest table, if both tables have enough members to run, and one of these is of the array's
    /// first ones. Otherwise all first members were
    /// replaced, one after the other, and a refused one is old. Nor has one run apart whose table lists a first member of
    /// the freshest table as a spare: it was there, and was recovered since. With `--force` the freshest history is taken,
    /// and these members are refused as split brain.
    fn refuse_other_histories(&mut self) -> Result<(), AssembleError> {
        let mut apart = Vec::new();
        // Spares and members that are added get the numbers behind those of the slots.
        let has_first_member = self.table.keys().any(|number| *number < self.chosen.template.raid_disks);
        let may_dispute = has_first_member && could_run(&self.chosen.template, &self.table);
        for (at, refused) in self.chosen.refused.iter().enumerate() {
            let superblock = &self.candidates[refused.candidate].superblock;
            let is_left_out = matches!(refused.reason, Refusal::Stale { .. } | Refusal::Faulty { .. });
            let own = table(superblock);
            let was_there = |number: &u32| {
                let is_spare = *number < superblock.raid_disks && superblock.role_of(*number) == Role::Spare;
                is_spare || own.contains_key(number)
            };
            let is_apart = !self.table.keys().any(was_there) && could_run(superblock, &own);
            if is_left_out && is_apart && may_dispute && superblock.created == self.chosen.template.created {
                apart.push(at);
            }
        }
        if apart.is_empty() {
            return Ok(());
        }
        if !self.is_forced {
            let theirs = apart.iter().map(|at| self.chosen.refused[*at].candidate);
            let both: Vec<usize> = self.chosen.slots.values().copied().chain(theirs).collect();
            return Err(split_brain(self.candidates, &both));
        }
        let expected = self.chosen.template.events;
        assert!(self.is_forced);
        for at in apart {
            let found = self.candidates[self.chosen.refused[at].candidate].superblock.events;
            self.chosen.refused[at].reason = Refusal::SplitBrain { found, expected };
        }
        self.chosen.is_split_brain = true;
        Ok(())
    }

    /// A spare may have any event count, but it must fit the array and its dev_number must be unique. If it failed, or is
    /// a first member that was away, the freshest table says so.
    fn sort_spare(&mut self, candidate: usize) -> Result<(), AssembleError> {
        let Candidate { superblock, device_size, .. } = &self.candidates[candidate];
        let number = superblock.dev_number;
        assert_eq!(superblock.own_role(), Role::Spare, "a member with a slot is sorted by its events");
        let template = &self.chosen.template;
        let (found, expected) = (superblock.events, template.events);
        let same_number = |at: &&usize| self.candidates[**at].superblock.dev_number == number;
        let in_slots = self.chosen.slots.values().chain(self.chosen.recovering.values());
        let in_slots = in_slots.chain(self.chosen.replacing.values());
        let holder = in_slots.copied().find(|at| same_number(&at)).or(self.chosen.spares.get(&number).copied());
        let data_end = Sectors(superblock.data_offset.0) + template.size;
        if let Some((field, found, expected)) = mismatch(superblock, template) {
            self.refuse(candidate, Refusal::Mismatch { field, found, expected });
        } else if number as usize >= template.roles.len() {
            // The spare's own table may be longer: while a spare is being added, a crash can come after its superblock
            // is written and before those of the other members are. Every round writes the freshest table, which has no
            // entry for it.
            self.refuse(candidate, Refusal::NoRole);
        } else if template.role_of(number) == Role::Faulty && found < expected {
            // It failed while it was being recovered, or as a spare, and its own superblock was not written again.
            self.refuse(candidate, Refusal::Faulty { found, recorded: expected });
        } else if *device_size < data_end || superblock.data_size < template.size {
            self.refuse(candidate, Refusal::Shrank { found: *device_size, expected: data_end });
        } else if let Some(other) = holder {
            if found.saturating_add(1) >= expected {
                return Err(duplicate(Duplicate::DevNumber(number), other, candidate));
            }
            self.refuse(candidate, Refusal::Stale { found, expected });
        } else if let Some(slot) = self.table.get(&number).copied() {
            if u32::from(slot.0) >= template.raid_disks {
                self.refuse(candidate, Refusal::NoRole);
                return Ok(());
            }
            // The round that gave the spare its slot did not reach the spare, so its recovery has not begun, or the copy
            // of the member that is there.
            check_features(superblock, self.is_forced)?;
            self.chosen.features = self.chosen.features.with(announced(superblock, &self.chosen.template));
            if self.chosen.slots.contains_key(&slot) {
                return self.admit_replacing(candidate, slot);
            }
            return self.admit_recovering(candidate, slot);
        } else {
            check_features(superblock, self.is_forced)?;
            self.chosen.spares.insert(number, candidate);
        }
        Ok(())
    }
}
