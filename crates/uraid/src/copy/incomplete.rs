//! What is left of a raid0 or linear array that lacks members.
//! Owns: stand-ins for what is gone: a device of bad sectors for a missing member, bad sectors after the end of a short
//! one. Not here: which members are missing (`engine::assemble`), reading around bad sectors (`copy_reader`).
//! Invariant: a stand-in has no readable sector, so what is gone is listed in the map, and never copied as data.
//!
//! ```text
//!   raid0 of three, m1 is missing, m2 is cut short          in the copy:
//!     m0  ▓▓▓▓▓▓▓▓     given
//!     m1  ░░░░░░░░     null device, all sectors bad          ▓ data   ░ zeroes, `-` in the map
//!     m2  ▓▓▓▓▓░░░     given, lengthened by bad sectors
//! ```

use std::collections::BTreeSet;
use uraid_block::sizes;
use uraid_block::{Range, Sector, Sectors, Slot};
use uraid_engine::{AssembleError, AssembleOptions, Candidate, Refusal, Refused, assemble};
use uraid_format::Superblock;
use uraid_host::{Access, BadSectors, Claimed, Target};
use uraid_layout::Level;
use uraid_serve::log::warn;
use uraid_serve::names;
use uraid_serve::opening::Opened;

/// Completes a raid0 or linear array that lacks members, if `options` allow it. `size`: how much data a missing
/// member held, if the user knows.
pub(super) fn complete(opened: &mut Opened, options: &AssembleOptions, size: Option<Sectors>) {
    let Err(AssembleError::TooFewMembers { level, missing, refused, .. }) = assemble(&opened.candidates, options)
    else {
        return;
    };
    if ![Level::Raid0, Level::Linear].iter().any(|unprotected| unprotected.name() == level) {
        return;
    }
    let Some(freshest) = freshest(&opened.candidates, &refused) else { return };
    let name = names::short_name(&freshest.set_name.as_str(), &freshest.set_uuid);
    if !options.run && !options.force {
        return warn(&format!("{name}: --run copies what is left of a {level} that lacks members"));
    }
    lengthen_short(opened, &refused);
    let filled: BTreeSet<Slot> =
        opened.candidates.iter().filter_map(|candidate| candidate.superblock.own_role().slot()).collect();
    let empty: Vec<Slot> = missing.iter().filter(|slot| !filled.contains(slot)).collect();
    if empty.is_empty() {
        return;
    }
    let Some(size) = size.or_else(|| size_of_others(&name, &opened.candidates, &empty)) else { return };
    for (at, &slot) in empty.iter().enumerate() {
        let Some(superblock) = superblock(&freshest, slot, size) else { return };
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

/// The superblock with the most events among members that are not refused.
fn freshest(candidates: &[Candidate], refused: &[Refused]) -> Option<Superblock> {
    let is_refused = |at: usize| refused.iter().any(|refused| refused.candidate == at);
    let used = candidates.iter().enumerate().filter(|(at, _)| !is_refused(*at));
    used.map(|(_, candidate)| &candidate.superblock).max_by_key(|superblock| superblock.events).cloned()
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
fn stand_in(slot: Slot, size: Sectors) -> Claimed {
    let target = Target {
        name: format!("{slot} (missing)"),
        path: format!("null:{}", size.bytes()).into(),
        window: None,
        bad: BadSectors::new([Range::new(Sector(0), size)]),
    };
    Claimed::open_target(&target, Access::ReadOnly).expect("a null device needs nothing of the system")
}
