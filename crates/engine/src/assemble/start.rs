//! Whether the chosen members are enough to start, and in which state.
//! Owns: the degraded rules, dirty and degraded, what `--run` and `--force` allow. Not here: which members are current
//! (`choose`). Spec: docs/md/behaviour.md#when-an-array-starts.

use super::choose::{Chosen, announced, copied_below, data_end, mismatch, recovered_below};
use super::error::{AssembleError, Duplicate, PartlyRecovered};
use super::ppl::{self, Logs, followed};
use super::{AssembleOptions, Candidate, Forced, MemberPlan, Place, ReadOnlyReason, Refusal, Refused, StartPlan};
use crate::words::mark::{self, Mark};
use std::collections::{BTreeMap, BTreeSet};
use uraid_block::{Sectors, Slot, SlotSet};
use uraid_format::{Features, Superblock, Version};
use uraid_layout::{Layout, Level, Row, Spec};

pub(super) fn start(
    candidates: &[Candidate],
    mut chosen: Chosen,
    options: &AssembleOptions,
) -> Result<StartPlan, AssembleError> {
    let (level, layout_number) = chosen.template.level_layout().expect("choose refused unknown levels");
    let slot_count = u16::try_from(chosen.template.raid_disks).expect("choose bounded the slots");
    let (chunk, size) = (chosen.template.chunk, chosen.template.size);
    let mut spec = Spec { level, layout: layout_number, chunk, raid_disks: slot_count, size, member_sizes: Vec::new() };
    let is_sized_by_member = matches!(level, Level::Linear | Level::Raid0);
    // The sizes of the members determine linear and raid0: there is no layout until all members are there.
    let early = if is_sized_by_member { None } else { Some(Layout::new(&spec).map_err(AssembleError::Layout)?) };
    let is_enough = |slots: &SlotSet| match &early {
        None => slots.count() == usize::from(slot_count),
        Some(layout) => layout.can_serve(slots),
    };
    let mut forced = Forced { is_split_brain: chosen.is_split_brain, ..Forced::default() };
    if options.force {
        (forced.raised, forced.older) = raise(candidates, &mut chosen, early.as_ref(), &is_enough)?;
        chosen.refuse_recovering(candidates);
    }
    chosen.recover_without_first();
    let usable: SlotSet = chosen.slots.keys().copied().collect();
    chosen.refused.sort_by_key(|refused| refused.candidate);
    if !is_enough(&usable) {
        return Err(too_few(candidates, &chosen, &spec, early.as_ref()));
    }
    let layout = match early {
        Some(layout) => layout,
        None => {
            spec.member_sizes = chosen.slots.values().map(|at| candidates[*at].superblock.data_size).collect();
            Layout::new(&spec).map_err(AssembleError::Layout)?
        }
    };
    assert!(layout.can_serve(&usable), "an array starts with every sector");
    if !options.run && !options.force {
        check_recorded(candidates, &chosen, &usable)?;
    }
    let missing: SlotSet = (0..slot_count).map(Slot).filter(|slot| !usable.contains(*slot)).collect();
    let is_dirty = is_dirty(&chosen, level, &forced);
    let guessed = guessed_slots(&layout, &missing);
    let is_degraded = !guessed.is_empty();
    let logs = Logs::of(candidates, &chosen, &layout, &forced);
    let read_only_besides = read_only_besides(candidates, &chosen, options, logs.is_some());
    let read_only = read_only(&chosen, read_only_besides);
    if is_dirty && is_degraded && !logs.as_ref().is_some_and(Logs::make_good) {
        if !options.force {
            mark::hit(Mark::DirtyDegradedRefused);
            let recovering = partly_recovered(candidates, &chosen, guessed);
            let (level, refused) = (level.name(), chosen.refused);
            return Err(AssembleError::DirtyDegraded { level, missing: guessed, recovering, refused });
        }
        mark::hit(Mark::DirtyDegradedForced);
        forced.is_dirty_degraded = true;
    }
    let members = members(candidates, &chosen, &forced);
    let Chosen { mut template, refused, .. } = chosen;
    if !is_sized_by_member {
        template.resync_offset = resync_offset(&template, is_dirty, &forced);
    }
    Ok(StartPlan {
        layout,
        members,
        missing,
        refused,
        events: template.events,
        template,
        is_dirty,
        read_only,
        read_only_besides,
        bitmap: None,
        ppl: logs.map(|logs| logs.into_plan(is_dirty, is_degraded)),
        forced,
    })
}

fn members(candidates: &[Candidate], chosen: &Chosen, forced: &Forced) -> Vec<MemberPlan> {
    let Chosen { slots, recovering, replacing, spares, template, .. } = chosen;
    let plan = |at: usize, place| MemberPlan {
        candidate: at,
        place,
        superblock: followed(&candidates[at].superblock, template),
        bad_blocks: candidates[at].bad_blocks.clone().unwrap_or_default(),
    };
    let in_slots = slots.iter().map(|(slot, at)| plan(*at, Place::Slot(*slot)));
    let below = |at: usize| recovered_below(&candidates[at].superblock);
    let recovering =
        recovering.iter().map(|(slot, at)| plan(*at, Place::Recovering { slot: *slot, below: below(*at) }));
    let differ = may_differ(template, forced);
    let copied = |at: usize| if differ { Sectors::ZERO } else { copied_below(&candidates[at].superblock) };
    let replacing = replacing.iter().map(|(slot, at)| plan(*at, Place::Replacing { slot: *slot, below: copied(*at) }));
    let spares = spares.values().map(|at| plan(*at, Place::Spare));
    let members: Vec<MemberPlan> = in_slots.chain(recovering).chain(replacing).chain(spares).collect();
    assert!(members.is_sorted_by_key(|member| member.place), "slots, then recovering, then replacing, then spares");
    members
}

/// Takes stale members until there are enough: of one event count at a time, the freshest first, each in its own slot.
/// One of whose chunks fresher members hold all is not taken. Returns [`Forced::raised`] and [`Forced::older`]; nobody is
/// taken if that would still not be enough.
fn raise(
    candidates: &[Candidate],
    chosen: &mut Chosen,
    layout: Option<&Layout>,
    is_enough: &dyn Fn(&SlotSet) -> bool,
) -> Result<(Vec<usize>, Vec<SlotSet>), AssembleError> {
    let current: SlotSet = chosen.slots.keys().copied().collect();
    let mut usable = current;
    let mut generations: BTreeMap<u64, Vec<(Slot, usize)>> = BTreeMap::new();
    for refused in &chosen.refused {
        if let Some(slot) = raisable(&candidates[refused.candidate], refused, &chosen.template) {
            let events = candidates[refused.candidate].superblock.events;
            generations.entry(events).or_default().push((slot, refused.candidate));
        }
    }
    let mut taken: BTreeMap<Slot, usize> = BTreeMap::new();
    let number_of = |candidate: usize| candidates[candidate].superblock.dev_number;
    let members = chosen.slots.values().chain(chosen.recovering.values());
    let members = members.chain(chosen.replacing.values()).chain(chosen.spares.values());
    let in_use: BTreeSet<u32> = members.map(|at| number_of(*at)).collect();
    while !is_enough(&usable) {
        let Some((_, generation)) = generations.pop_last() else {
            return Ok((Vec::new(), Vec::new()));
        };
        let fresher = usable;
        let fits = |slot: Slot, candidate: usize| {
            !fresher.contains(slot) && is_needed(layout, fresher, slot) && !in_use.contains(&number_of(candidate))
        };
        for (slot, candidate) in generation.into_iter().filter(|(slot, candidate)| fits(*slot, *candidate)) {
            if let Some(other) = taken.values().copied().find(|other| number_of(*other) == number_of(candidate)) {
                let candidates = [other.min(candidate), other.max(candidate)];
                return Err(AssembleError::Duplicate { what: Duplicate::DevNumber(number_of(candidate)), candidates });
            }
            assert!(!chosen.slots.contains_key(&slot), "a current member keeps its slot");
            if let Some(other) = taken.insert(slot, candidate) {
                let candidates = [other.min(candidate), other.max(candidate)];
                return Err(AssembleError::Duplicate { what: Duplicate::Slot(slot), candidates });
            }
            usable.insert(slot);
        }
    }
    let mut raised: Vec<usize> = taken.values().copied().collect();
    raised.sort_unstable();
    for candidate in &raised {
        chosen.features = chosen.features.with(announced(&candidates[*candidate].superblock, &chosen.template));
    }
    let refused_before = chosen.refused.len();
    chosen.refused.retain(|refused| !raised.contains(&refused.candidate));
    assert_eq!(chosen.refused.len() + raised.len(), refused_before, "one that is taken was refused before");
    chosen.slots.extend(taken);
    assert_eq!(chosen.slots.len(), usable.count());
    let older = older(candidates, &raised, current, layout);
    Ok((raised, older))
}

/// Whether some chunk has a copy in this slot, and none on fresher members. Where parity is what is left of a row, all of
/// one event count are needed: it cannot be said which of their blocks are the older ones.
fn is_needed(layout: Option<&Layout>, fresher: SlotSet, slot: Slot) -> bool {
    match layout {
        Some(Layout::Copies(layout)) => {
            layout.copy_groups().into_iter().any(|group| group.contains(slot) && group.and(fresher).is_empty())
        }
        Some(Layout::Parity(_)) | None => true,
    }
}

/// The slots of the members that were taken, for [`Forced::older`].
fn older(candidates: &[Candidate], raised: &[usize], current: SlotSet, layout: Option<&Layout>) -> Vec<SlotSet> {
    let Some(Layout::Copies(layout)) = layout else { return Vec::new() };
    let mut of_counts: BTreeMap<u64, SlotSet> = BTreeMap::new();
    for superblock in raised.iter().map(|at| &candidates[*at].superblock) {
        let slot = superblock.own_role().slot().expect("one that is taken has a slot");
        of_counts.entry(superblock.events).or_insert(SlotSet::EMPTY).insert(slot);
    }
    let older: Vec<SlotSet> = of_counts.into_values().rev().collect();
    let has_several = |group: &SlotSet| {
        let counts = std::iter::once(&current).chain(&older);
        counts.filter(|slots| !group.and(**slots).is_empty()).count() > 1
    };
    if layout.copy_groups().iter().any(has_several) { older } else { Vec::new() }
}

/// The slot that a refused candidate could fill if its missed changes were ignored.
fn raisable(candidate: &Candidate, refused: &Refused, template: &Superblock) -> Option<Slot> {
    let Candidate { superblock, device_size, .. } = candidate;
    let is_behind = matches!(refused.reason, Refusal::Stale { .. } | Refusal::Faulty { .. });
    let is_whole = !superblock.features.intersects(Features::RECOVERY_OFFSET.with(Features::REPLACEMENT));
    let is_alike = mismatch(superblock, template).is_none() && superblock.features.unknown().is_empty();
    let fits = *device_size >= data_end(superblock);
    let slot = superblock.own_role().slot()?;
    let has_entry = (superblock.dev_number as usize) < template.roles.len();
    let is_inside = u32::from(slot.0) < template.raid_disks;
    (is_behind && is_whole && is_alike && fits && has_entry && is_inside).then_some(slot)
}

fn too_few(candidates: &[Candidate], chosen: &Chosen, spec: &Spec, layout: Option<&Layout>) -> AssembleError {
    let usable: SlotSet = chosen.slots.keys().copied().collect();
    let missing: SlotSet = (0..spec.raid_disks).map(Slot).filter(|slot| !usable.contains(*slot)).collect();
    assert!(!missing.is_empty(), "all slots together are enough");
    let expected = match layout {
        None => spec.raid_disks,
        Some(layout) if spec.level == Level::Raid10 => spec.raid_disks.div_ceil(layout.copies_count().max(1)),
        Some(layout) => spec.raid_disks.saturating_sub(layout.tolerates()),
    };
    let could_fill = |refused: &Refused| raisable(&candidates[refused.candidate], refused, &chosen.template).is_some();
    AssembleError::TooFewMembers {
        level: spec.level.name(),
        found: chosen.slots.len(),
        slots: spec.raid_disks,
        expected: usize::from(expected),
        missing,
        recovering: partly_recovered(candidates, chosen, missing).into_boxed_slice(),
        refused: chosen.refused.clone(),
        can_force: chosen.refused.iter().any(could_fill),
    }
}

/// Checks that every device that the freshest superblock lists in a slot is here.
/// This is stricter than "every slot is filled": a slot whose device is being replaced has two devices.
fn check_recorded(candidates: &[Candidate], chosen: &Chosen, usable: &SlotSet) -> Result<(), AssembleError> {
    let in_use = chosen.slots.values().chain(chosen.recovering.values()).chain(chosen.replacing.values()).copied();
    let in_the_making = chosen.refused.iter().filter(|refused| matches!(refused.reason, Refusal::NotInSync { .. }));
    let here = in_use.chain(in_the_making.map(|refused| refused.candidate));
    let here: BTreeSet<u32> = here.map(|at| candidates[at].superblock.dev_number).collect();
    let slot_count = chosen.template.raid_disks;
    let slots = (0u32..).zip(&chosen.template.roles).filter_map(|(number, role)| Some((number, role.slot()?)));
    let listed: Vec<(u32, Slot)> = slots.filter(|(_, slot)| u32::from(slot.0) < slot_count).collect();
    let missing: SlotSet = listed.iter().filter(|(number, _)| !here.contains(number)).map(|(_, slot)| *slot).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(AssembleError::NeedsRun {
        found: usable.count(),
        expected: listed.len(),
        missing,
        refused: chosen.refused.clone(),
    })
}

/// Whether members may differ where they should not: after a crash, or because one was taken by force.
fn may_differ(template: &Superblock, forced: &Forced) -> bool {
    template.is_dirty() || !forced.raised.is_empty() || forced.is_split_brain
}

/// Whether redundancy has to be made consistent. A member that was raised or chosen by force may differ from the rest.
/// A raid1 with one member left has nothing to compare. One that is recovering holds a copy of what comes before its
/// offset.
fn is_dirty(chosen: &Chosen, level: Level, forced: &Forced) -> bool {
    let is_recorded = may_differ(&chosen.template, forced);
    match level {
        Level::Linear | Level::Raid0 => false,
        Level::Raid1 => is_recorded && chosen.slots.len() + chosen.recovering.len() > 1,
        Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => is_recorded,
    }
}

/// Where the resync begins that makes redundancy consistent.
fn resync_offset(template: &Superblock, is_dirty: bool, forced: &Forced) -> u64 {
    match (is_dirty, template.is_dirty()) {
        (false, _) => Superblock::CLEAN,
        // A member that missed changes may differ anywhere.
        (true, true) if forced.raised.is_empty() && !forced.is_split_brain => template.resync_offset,
        (true, _) => 0,
    }
}

/// The missing slots of a parity level that hold data in some row: wrong parity would reconstruct wrong data for them.
fn guessed_slots(layout: &Layout, missing: &SlotSet) -> SlotSet {
    let Layout::Parity(layout) = layout else { return SlotSet::EMPTY };
    // Layouts repeat after at most as many rows as there are slots.
    let rows = layout.rows_count().min(u64::from(layout.slots()));
    let holds_data = |slot: &Slot| (0..rows).any(|row| layout.row(Row(row)).data.contains(slot));
    let guessed: SlotSet = missing.iter().filter(holds_data).collect();
    assert!(guessed.is_within(*missing), "a member that is there gives its own data");
    guessed
}

/// The members of these slots that are being recovered.
fn partly_recovered(candidates: &[Candidate], chosen: &Chosen, slots: SlotSet) -> Vec<PartlyRecovered> {
    let in_slots = chosen.recovering.iter().filter(|(slot, _)| slots.contains(**slot));
    let members = in_slots.map(|(&slot, &candidate)| {
        let superblock = &candidates[candidate].superblock;
        PartlyRecovered { candidate, slot, found: recovered_below(superblock), expected: superblock.size }
    });
    members.collect()
}

fn read_only(chosen: &Chosen, besides: Option<ReadOnlyReason>) -> Option<ReadOnlyReason> {
    assert!(chosen.features.contains(chosen.template.features), "the freshest superblock's features are in use");
    let has_bitmap = chosen.features.contains(Features::BITMAP_OFFSET);
    let is_old = besides == Some(ReadOnlyReason::OldSuperblock);
    if has_bitmap && !is_old { Some(ReadOnlyReason::Bitmap) } else { besides }
}

/// Why it may only be read, but for its bitmap.
fn read_only_besides(
    candidates: &[Candidate],
    chosen: &Chosen,
    options: &AssembleOptions,
    keeps_log: bool,
) -> Option<ReadOnlyReason> {
    let mut with_slot = chosen.slots.values().chain(chosen.recovering.values()).chain(chosen.replacing.values());
    if chosen.template.version == Version::V0_90 {
        Some(ReadOnlyReason::OldSuperblock)
    } else if chosen.features.contains(Features::JOURNAL) {
        Some(ReadOnlyReason::Journal)
    } else if ppl::has_log(chosen.features) && !keeps_log {
        Some(ReadOnlyReason::Ppl)
    } else if with_slot.any(|at| !candidates[*at].keeps_list()) {
        Some(ReadOnlyReason::BadBlocks)
    } else if chosen.template.events >= Superblock::EVENTS_WRITE_END {
        Some(ReadOnlyReason::Events { found: chosen.template.events })
    } else if has_two_members(&chosen.refused) && !options.run && !options.force {
        Some(ReadOnlyReason::TwoMembers)
    } else {
        options.read_only.then_some(ReadOnlyReason::Requested)
    }
}

/// Whether a second member of a slot is left out: the first round of superblocks would record it as failed.
fn has_two_members(refused: &[Refused]) -> bool {
    refused.iter().any(|refused| matches!(refused.reason, Refusal::NotInSync { .. }))
}
