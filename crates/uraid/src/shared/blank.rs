//! Whether an array shows no data, so that a new file system may be suggested.
//! Owns: which parts are read, and the rule: both ends of the array are zeroes. Not here: what follows from it
//! (`report::hints`), the formats of marks (`uraid_format::signature`).
//! Invariant: an array is blank only if all these bytes were read from where they are stored, not computed. Nothing is
//! changed.
//!
//! File systems, partition tables, volume managers and swap space have a mark within the first 64 KiB or so, or near the
//! end. Any byte that is not zero counts, so that no format must be known.

use crate::shared::probe;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uraid_arrays::{ArrayIndex, Members};
use uraid_block::{ArrayRange, ArraySector, SECTOR_BYTES, Sectors, SlotSet};
use uraid_control::asking;
use uraid_engine::{Place, StartPlan};
use uraid_format::{Features, MemberFlag};
use uraid_layout::CopyChoice;
use uraid_serve::stack::AssembledStack;

/// What is read at each end of the array.
const END: Sectors = Sectors(1 << 11);
/// The size of one read.
const READ_BYTES_MAX: u64 = 64 << 10;
/// The time limit for a member before its array is served. It is short: the member has just answered a read of its
/// superblock.
const START_TIME_MAX: Duration = Duration::from_secs(1);

/// Where both ends of the array are: bytes of the members, by their index in the plan.
type Places = BTreeMap<usize, Vec<Range<u64>>>;

/// Where both ends are; `None` if the level has no stripes that a file system could align to, or if a part may have to
/// be computed.
fn places(plan: &StartPlan) -> Option<Places> {
    let layout = &plan.layout;
    if layout.stripe().is_zero() {
        return None;
    }
    let mut usable = SlotSet::default();
    let mut by_slot = BTreeMap::new();
    let mut last = SlotSet::default();
    for (index, member) in plan.members.iter().enumerate() {
        if member.superblock.features.contains(Features::BAD_BLOCKS) {
            return None;
        }
        if let Place::Slot(slot) = member.place {
            usable.insert(slot);
            if member.superblock.flags().any(|flag| flag == MemberFlag::WriteMostly) {
                last.insert(slot);
            }
            by_slot.insert(slot, (index, member.superblock.data_offset));
        }
    }
    let mut places = Places::new();
    let size = layout.array_size();
    let end = size.min(END);
    for start in [Sectors::ZERO, size - end] {
        let read = layout.plan_read(ArrayRange::new(ArraySector(start.0), end), &usable, CopyChoice::FirstBut(last));
        if !read.lost.is_empty() {
            return None;
        }
        for run in &read.runs {
            let (index, data_offset) = by_slot[&run.slot];
            let from = (data_offset.0 + run.at.0) * SECTOR_BYTES as u64;
            places.entry(index).or_default().push(from..from + run.length.bytes());
        }
    }
    Some(places)
}

/// Whether all these bytes are zeroes. False if one of them cannot be read.
fn are_zeroes<E>(places: &[Range<u64>], read: impl Fn(u64, &mut [u8]) -> Result<(), E>) -> bool {
    places.iter().all(|place| {
        let mut at = place.start;
        while at < place.end {
            let mut bytes = vec![0; READ_BYTES_MAX.min(place.end - at) as usize];
            if read(at, &mut bytes).is_err() || bytes.iter().any(|&byte| byte != 0) {
                return false;
            }
            at += bytes.len() as u64;
        }
        true
    })
}

fn are_zeroes_of(member: &Path, places: &[Range<u64>]) -> bool {
    probe::open(member).is_ok_and(|it| are_zeroes(places, |at, into| it.read_once_at(at, into)))
}

/// Whether an array that does not run is blank. `names[i]` is candidate `i`.
pub(crate) fn is_blank(plan: &StartPlan, names: &[String], time_max: Option<Duration>) -> bool {
    let Some(places) = places(plan) else { return false };
    places.into_iter().all(|(index, places)| {
        let name = &names[plan.members[index].candidate];
        let path = PathBuf::from(name);
        asking::ask(name, time_max, move || are_zeroes_of(&path, &places)).unwrap_or(false)
    })
}

/// The arrays of a stack that are blank before they are served. Arrays of arrays are not checked, and their members are
/// not blank, because they carry superblocks.
pub(crate) fn of_stack(stack: &AssembledStack) -> Vec<ArrayIndex> {
    stack.tops().into_iter().filter(|&index| is_blank_now(stack, index)).collect()
}

fn is_blank_now(stack: &AssembledStack, index: ArrayIndex) -> bool {
    let array = stack.array(index);
    let Members::Claimed(members) = &array.members else { return false };
    let Some(places) = places(&array.plan) else { return false };
    places.into_iter().all(|(index, places)| {
        let member = members[index].clone();
        let name = member.name().to_owned();
        let look = move || match member.is_direct() {
            true => are_zeroes(&places, |at, into| member.read_at(at, into)),
            false => are_zeroes_of(Path::new(member.name()), &places),
        };
        asking::ask(&name, Some(START_TIME_MAX), look).unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_engine::{AssembleOptions, Candidate, assemble};
    use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
    use uraid_format::{SetName, Version};
    use uraid_layout::{Level, default_layout};

    const DEVICE: Sectors = Sectors(16 << 11);
    const OFFSET: u64 = 1 << 20;

    fn plan(level: Level, slots: u16) -> StartPlan {
        let options = CreateOptions {
            version: Version::V1_2,
            level,
            layout: default_layout(level),
            chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
            raid_disks: slots,
            spare_devices: 0,
            size: None,
            data_offset: Some(Sectors(OFFSET / 512)),
            set_uuid: [7; 16],
            set_name: SetName::new("", "blank").expect("a short name"),
            now_seconds: 1,
            assume_clean: true,
            force: false,
            policy: NewPolicy::Resync,
        };
        let devices: Vec<NewMember> =
            (0..slots).map(|n| NewMember::Device { size: DEVICE, uuid: [n as u8 + 1; 16] }).collect();
        let superblocks = create(&options, &devices).expect("an array").superblocks;
        let candidates: Vec<Candidate> =
            superblocks.into_iter().flatten().map(|superblock| Candidate::new(superblock, DEVICE)).collect();
        assemble(&candidates, &AssembleOptions { run: true, ..AssembleOptions::default() }).expect("it starts")
    }

    /// The first MiB of a raid5 of three: eight rows of two chunks, in which each member has data in two of three.
    #[test]
    fn the_first_and_the_last_mebibyte_are_looked_at_where_they_are_stored() {
        let found = places(&plan(Level::Raid5, 3)).expect("all are there");
        let bytes: u64 = found.values().flatten().map(|place| place.end - place.start).sum();
        assert_eq!(bytes, 2 << 20);
        let first = found.values().flatten().map(|place| place.start).min();
        let last = found.values().flatten().map(|place| place.end).max();
        assert_eq!((first, last), (Some(OFFSET), Some(DEVICE.bytes())));
        assert!(found.values().flatten().all(|place| {
            (OFFSET..OFFSET + (8 << 16)).contains(&place.start) || place.start >= DEVICE.bytes() - (8 << 16)
        }));
    }

    #[test]
    fn what_has_no_stripes_or_must_be_computed_is_not_called_blank() {
        assert!(places(&plan(Level::Raid1, 2)).is_none());
        let mut degraded = plan(Level::Raid5, 3);
        degraded.members.remove(1);
        assert!(places(&degraded).is_none());
    }

    #[test]
    fn one_byte_or_one_error_is_enough() {
        let places = [0..4096, 1 << 20..(1 << 20) + 200_000];
        let holds = |mark: u64| {
            are_zeroes(&places, |at, into: &mut [u8]| {
                if (at..at + into.len() as u64).contains(&mark) {
                    into[(mark - at) as usize] = 1;
                }
                Ok::<(), ()>(())
            })
        };
        for (mark, is_blank) in [(0, false), (4095, false), (4096, true), ((1 << 20) + 199_999, false)] {
            assert_eq!(holds(mark), is_blank, "{mark}");
        }
        assert!(!are_zeroes(&places, |at, _| if at > 1 << 20 { Err(()) } else { Ok(()) }));
    }
}
