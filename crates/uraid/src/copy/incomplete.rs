//! What is left of an array that lacks more members than its level can.
//! Owns: stand-ins for what is gone: a device of bad sectors for a missing member, bad sectors after the end of a short
//! one, or of one that was not recovered to its end. Not here: which members are missing (`engine::assemble`), reading
//! around bad sectors (`copy_reader`).
//! Invariant: a stand-in has no readable sector, so what is gone is listed in the map, and never copied as data.
//!
//! ```text
//!   raid0 of three, m1 is missing, m2 is cut short          in the copy:
//!     m0  ▓▓▓▓▓▓▓▓     given
//!     m1  ░░░░░░░░     null device, all sectors bad          ▓ data   ░ zeroes, `-` in the map
//!     m2  ▓▓▓▓▓░░░     given, lengthened by bad sectors
//!
//!   raid5 of four, m0 is missing, m2 was being recovered    in the copy:
//!     m0  ░░░░░░░░     null device                           below m2's position all; above it the chunks of m1 and m3
//!     m2  ▓▓▓▓░░░░     given, bad from its position on
//! ```

use std::collections::BTreeSet;
use uraid_block::sizes;
use uraid_block::{Range, Sector, Sectors, Slot, SlotSet};
use uraid_control::log::warn;
use uraid_control::names;
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Refusal, Refused, assemble, assemble_half_reshaped};
use uraid_format::{Features, Role, Superblock};
use uraid_host::{Access, BadSectors, Claimed, Target};
use uraid_layout::{Level, layout_name};
use uraid_serve::opening::Opened;

/// Completes an array that lacks members, if `options` allow it. `size`: how much data a missing member of a raid0 or
/// linear array held, if the user knows. Whether it has this meaning.
pub(super) fn complete(opened: &mut Opened, options: &AssembleOptions, size: Option<Sectors>) -> bool {
    let Some(AssembleError::TooFewMembers { level, missing, refused, .. }) = outcome(opened, options) else {
        return false;
    };
    let Some(freshest) = freshest(&opened.candidates, &refused) else { return false };
    let name = names::short_name(&freshest.set_name.as_str(), &freshest.set_uuid);
    if [Level::Raid0, Level::Linear].iter().any(|unprotected| unprotected.name() == level) {
        if !options.run && !options.force {
            warn(&format!("{name}: --run copies what is left of a {level} that lacks members"));
            return true;
        }
        lengthen_short(opened, &refused);
        complete_unprotected(opened, &freshest, (&name, level), &missing, size);
        return true;
    }
    if options.force {
        use_flagged_roles(opened, &freshest, &refused, &missing);
        use_partly_recovered(opened, &freshest, &missing, |below, size| below >= size);
    }
    let forced = AssembleOptions { force: true, ..*options };
    let Some(AssembleError::TooFewMembers { missing, .. }) = outcome(opened, &forced) else { return false };
    if !options.force || !options.run {
        let is_whole = |superblock: &Superblock| {
            let has_mark = superblock.features.contains(Features::RECOVERY_OFFSET);
            has_mark && superblock.recovery_offset >= superblock.size.0 && is_of(superblock, &freshest)
        };
        let whole = opened.candidates.iter().zip(&opened.members).filter(|(other, _)| is_whole(&other.superblock));
        for (_, member) in whole.filter(|_| !options.force) {
            warn(&format!(
                "{}: is being recovered, and its recovery offset is past its end: --force reads it as a whole member",
                member.name()
            ));
        }
        if opened.has_unknown() {
            warn(&assumed(opened, &freshest, (&name, level)));
        }
        warn(&format!(
            "{name}: --run --force copies what is left of a {level} that lacks members, and zeroes for the rest"
        ));
        return false;
    }
    use_partly_recovered(opened, &freshest, &missing, |below, _| !below.is_zero());
    if let Some(AssembleError::TooFewMembers { missing, .. }) = outcome(opened, options) {
        complete_redundant(opened, &freshest, (&name, level), &missing);
    }
    false
}

/// The command that reads an array by its geometry, for members whose superblock is lost.
fn assumed(opened: &Opened, freshest: &Superblock, (name, level): (&str, &str)) -> String {
    let of_slot = |slot: u32| {
        let is_it = |other: &Candidate| {
            is_of(&other.superblock, freshest)
                && other.superblock.own_role().slot().is_some_and(|own| u32::from(own.0) == slot)
        };
        let known = opened.candidates.iter().zip(&opened.members).find(|(other, _)| is_it(other));
        known.map_or_else(|| format!("MEMBER{slot}"), |(_, member)| member.name().to_owned())
    };
    let members: Vec<String> = (0..freshest.raid_disks).map(of_slot).collect();
    let layout =
        freshest.level_layout().map(|(level, layout)| layout_name(level, layout)).filter(|name| !name.is_empty());
    let layout = layout.map(|layout| format!(" --layout {layout}")).unwrap_or_default();
    let chunk =
        if freshest.chunk.is_zero() { String::new() } else { format!(" --chunk {}", sizes::chunk(freshest.chunk)) };
    format!(
        "{name}: if a member's data is there and only its superblock is lost, all of the array can be read: uraid copy \
         --assume --metadata {} --level {level} --raid-devices {}{chunk}{layout} --data-offset {}K --size {}K {} OUT, with that \
         member in its slot, and the word missing in a slot whose member is gone",
        freshest.version,
        freshest.raid_disks,
        freshest.data_offset.0 / 2,
        freshest.size.0 / 2,
        members.join(" "),
    )
}

/// Why the array does not start.
fn outcome(opened: &Opened, options: &AssembleOptions) -> Option<AssembleError> {
    match assemble_half_reshaped(&opened.candidates, options) {
        Some(outcome) => outcome.err(),
        None => assemble(&opened.candidates, options).err(),
    }
}

/// Gives members whose role has a vendor's flag the slot that it names without, if that has no other member.
fn use_flagged_roles(opened: &mut Opened, freshest: &Superblock, refused: &[Refused], missing: &SlotSet) {
    for Refused { candidate, reason } in refused {
        let Some(slot) = reason.flagged_slot().filter(|slot| missing.contains(*slot)) else { continue };
        let number = opened.candidates[*candidate].superblock.dev_number as usize;
        for (at, other) in opened.candidates.iter_mut().enumerate() {
            let is_fresh = is_of(&other.superblock, freshest) && other.superblock.events == freshest.events;
            let is_asked = at == *candidate || is_fresh;
            if let Some(role) = other.superblock.roles.get_mut(number).filter(|_| is_asked) {
                *role = Role::Slot(slot);
            }
        }
        warn(&format!("{}: is taken as {slot}, its role without bit 15", opened.members[*candidate].name()));
    }
}

/// Takes members whose recovery has not ended for as much as they hold, in slots that have no other member. `is_enough`:
/// by how much that is, and the size of a member.
fn use_partly_recovered(
    opened: &mut Opened,
    freshest: &Superblock,
    missing: &SlotSet,
    is_enough: fn(Sectors, Sectors) -> bool,
) {
    let Opened { members, candidates, .. } = opened;
    for (member, Candidate { superblock, .. }) in members.iter_mut().zip(candidates) {
        let is_missed = superblock.own_role().slot().is_some_and(|slot| missing.iter().any(|of| of == slot));
        // One that left in the middle of its recovery has missed what was written since.
        let is_current = is_of(superblock, freshest) && superblock.events.saturating_add(1) >= freshest.events;
        let shown = Features::RECOVERY_OFFSET.with(Features::REPLACEMENT).with(Features::RECOVERY_BITMAP);
        let is_recovered = superblock.features.without(shown) != superblock.features;
        let is_plain = !superblock.features.intersects(Features::RESHAPE_ACTIVE.with(Features::RECOVERY_BITMAP));
        let below = Sectors(superblock.recovery_offset.min(superblock.size.0));
        if !is_missed || !is_current || !is_recovered || !is_plain || !is_enough(below, superblock.size) {
            continue;
        }
        superblock.features = superblock.features.without(shown);
        let (start, size) = (superblock.data_offset, superblock.size);
        if below < size {
            member.add_bad(BadSectors::new([Range::new(start + below, size - below)]));
        }
        let name = member.name();
        let percent = u128::from(below.0) * 100 / u128::from(size.0.max(1));
        warn(&if below < size {
            format!(
                "{name}: was recovered to {percent} %, and is read that far; what it lacks comes from the others, or is \
                 zeroes in the copy"
            )
        } else {
            format!("{name}: is being recovered, and its recovery offset is past its end: it is read as a whole member")
        });
    }
}

/// Gives each slot without a member one of which no sector can be read. The freshest superblocks list it.
fn complete_redundant(opened: &mut Opened, freshest: &Superblock, (name, level): (&str, &str), missing: &SlotSet) {
    let mut freshest = freshest.clone();
    for slot in missing.iter() {
        let own = opened.candidates.iter().filter(|other| is_of(&other.superblock, &freshest));
        let in_use: BTreeSet<u32> = own.map(|other| other.superblock.dev_number).collect();
        let free = |number: &usize| !in_use.contains(&(*number as u32));
        let listed = (0..freshest.roles.len()).filter(free).find(|at| freshest.roles[*at].slot() == Some(slot));
        let empty = (0..freshest.roles.len()).filter(free).find(|at| freshest.roles[*at].slot().is_none());
        let number = listed.or(empty).unwrap_or(freshest.roles.len());
        let tables = opened.candidates.iter_mut().map(|other| &mut other.superblock);
        for own in tables.filter(|own| is_of(own, &freshest) && own.events == freshest.events) {
            list(&mut own.roles, number, slot);
        }
        list(&mut freshest.roles, number, slot);
        let Some(mut superblock) = superblock(&freshest, slot, freshest.data_size) else { return };
        let shown = Features::RECOVERY_OFFSET.with(Features::REPLACEMENT).with(Features::RECOVERY_BITMAP);
        superblock.features = superblock.features.without(shown);
        let device_size = Sectors(superblock.data_offset.0) + superblock.data_size.max(superblock.size);
        warn(&format!("{name}: {level} is copied without {slot}: what only it held is zeroes in the copy"));
        opened.candidates.push(Candidate::new(superblock, device_size));
        opened.members.push(stand_in(slot, device_size));
    }
}

/// Whether a superblock is of the same array.
fn is_of(one: &Superblock, array: &Superblock) -> bool {
    one.set_uuid == array.set_uuid
}

/// Lists a device in a slot.
fn list(roles: &mut Vec<Role>, number: usize, slot: Slot) {
    roles.resize(roles.len().max(number + 1), Role::Spare);
    roles[number] = Role::Slot(slot);
}

fn complete_unprotected(
    opened: &mut Opened,
    freshest: &Superblock,
    (name, level): (&str, &str),
    missing: &SlotSet,
    size: Option<Sectors>,
) {
    let filled: BTreeSet<Slot> =
        opened.candidates.iter().filter_map(|candidate| candidate.superblock.own_role().slot()).collect();
    let empty: Vec<Slot> = missing.iter().filter(|slot| !filled.contains(slot)).collect();
    if empty.is_empty() {
        return;
    }
    let Some(size) = size.or_else(|| size_of_others(name, &opened.candidates, &empty)) else { return };
    for (at, &slot) in empty.iter().enumerate() {
        let Some(superblock) = superblock(freshest, slot, size) else { return };
        let device_size = Sectors(superblock.data_offset.0) + size;
        // If one slot is empty and one member has no readable superblock, that member belongs in the slot.
        let readable = opened.unreadable.pop_if(|_| at == 0 && empty.len() == 1);
        let member = match readable {
            Some(mut member) => {
                if member.size() < device_size {
                    member.lengthen(device_size);
                }
                warn(&format!("{}: is taken as {slot} of {name}, the only one without a member", member.name()));
                member
            }
            None => {
                warn(&format!("{name}: {level} is copied without {slot}: what it held is zeroes in the copy"));
                stand_in(slot, device_size)
            }
        };
        opened.candidates.push(Candidate::new(superblock, device_size));
        opened.members.push(member);
    }
}

/// The superblock with the most events among members with a slot that are not refused.
fn freshest(candidates: &[Candidate], refused: &[Refused]) -> Option<Superblock> {
    let is_refused = |at: usize| refused.iter().any(|refused| refused.candidate == at);
    let used = candidates.iter().enumerate().filter(|(at, _)| !is_refused(*at));
    let superblocks = used.map(|(_, candidate)| &candidate.superblock);
    superblocks
        .filter(|superblock| superblock.own_role().slot().is_some())
        .max_by_key(|superblock| superblock.events)
        .cloned()
}

/// Lengthens members that are shorter than their data by bad sectors.
fn lengthen_short(opened: &mut Opened, refused: &[Refused]) {
    for Refused { candidate, reason } in refused {
        let &Refusal::Shrank { found, expected } = reason else { continue };
        let member = &mut opened.members[*candidate];
        member.lengthen(expected);
        opened.candidates[*candidate].device_size = expected;
        let (found, expected) = (sizes::binary(found), sizes::binary(expected));
        warn(&format!(
            "{}: has {found}, its data needs {expected}: what is past its end is zeroes in the copy",
            member.name()
        ));
    }
}

/// The data size to assume for missing members, because no superblock records another member's size: the size that all
/// given members have. `None` if they differ.
fn size_of_others(name: &str, candidates: &[Candidate], empty: &[Slot]) -> Option<Sectors> {
    let sizes: BTreeSet<Sectors> = candidates.iter().map(|candidate| candidate.superblock.data_size).collect();
    let slots = empty.iter().map(Slot::to_string).collect::<Vec<_>>().join(", ");
    if sizes.len() > 1 {
        let texts = sizes.iter().map(|&size| sizes::binary(size)).collect::<Vec<_>>().join(", ");
        warn(&format!(
            "{name}: how much data {slots} held is not known: the others differ ({texts}), and it is not recorded; \
             --size SIZE says it"
        ));
        return None;
    }
    let size = sizes.into_iter().next()?;
    let text = sizes::binary(size);
    warn(&format!(
        "{name}: {slots} is taken to have held as much data as each of the others, {text}; --size says otherwise"
    ));
    Some(size)
}

/// The superblock that the member of a slot would carry. `None` if the freshest superblock lists no device in that
/// slot.
fn superblock(freshest: &Superblock, slot: Slot, data_size: Sectors) -> Option<Superblock> {
    let number = freshest.roles.iter().position(|role| role.slot() == Some(slot))?;
    let mut device_uuid = freshest.device_uuid;
    // No member and no other stand-in has this UUID.
    device_uuid.iter_mut().zip(slot.0.to_le_bytes()).for_each(|(byte, of_slot)| *byte ^= of_slot ^ 0x5a);
    let dev_number = u32::try_from(number).ok()?;
    Some(Superblock { dev_number, device_uuid, data_size, ..freshest.clone() })
}

/// A device of which no sector can be read.
pub(super) fn stand_in(slot: Slot, size: Sectors) -> Claimed {
    let target = Target {
        name: format!("{slot} (missing)"),
        path: format!("null:{}", size.bytes()).into(),
        window: None,
        bad: BadSectors::new([Range::new(Sector(0), size)]),
    };
    Claimed::open_target(&target, Access::ReadOnly).expect("a null device needs nothing of the system")
}
