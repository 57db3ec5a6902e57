//! The writes of `uraid update`, in order.
//! Owns: what is durable before what. Not here: what a change is (`uraid_format::update`), which arrays may be changed
//! (the parent), carrying the writes out (`create::steps`).
//! Invariant: at every moment the members make up the array as it was, or as it is to be; of a new id, see below.
//!
//! ```text
//!   members one round behind   the freshest superblock -> sync                      none is two rounds behind afterwards
//!   every member               the log's header, empty; or none, before a resync -> sync
//!   the first member           its superblock, with one event more -> sync          from here on the change holds
//!   the others, one by one     their superblocks -> sync
//! ```
//!
//! After a crash between the last two steps the first member is the freshest, and the others lag one event behind it:
//! assembly takes the policy and the dirty mark from the freshest. What does not concern other members, a name, a list of
//! bad blocks or the size of a device, costs no event: a bitmap would count as out of date.
//!
//! The id of an array is the exception to the invariant: members with the old one and with the new one are two arrays, and
//! each lacks the members of the other. Neither starts without `--run`. The same command with the new id goes on.
//!
//! ```text
//!   step                                                          a crash after it: the array
//!   one member after the other, the first of them:
//!     the header of its bitmap -> sync, of its log -> sync        starts as it was, with the bits of the others
//!     its superblock -> sync                                      does not start until the command goes on
//!   the last of them: its superblock -> sync                      starts, with all bits
//! ```
//!
//! So the bitmap of one member at most names another array than its superblock does. A start believes those of the others,
//! and writes this one again. (md reads the bitmap of one member only, and may refuse to start: uraid, or the same command,
//! mends it.) A log that names another array counts for nothing, and a clean array needs none.

use crate::create::steps::{Step, What};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_engine::StartPlan;
use uraid_format::bitmap::BitmapImage;
use uraid_format::ppl::{PPL_HEADER_BYTES, PplHeader};
use uraid_format::update::{Change, Surroundings, UpdateError, changed};
use uraid_format::{Superblock, bad_blocks};

/// What a change of a member depends on besides its superblock.
pub(super) struct Beside {
    /// The size of its device.
    pub device_size: Sectors,
    /// Of a member with a slot, if the array has one, and the change depends on it (see [`needs_bitmaps`]).
    pub bitmap: Option<BitmapImage>,
}

/// Whether a change depends on the bitmaps: on where they end, or on what their headers say.
pub(super) fn needs_bitmaps(change: &Change) -> bool {
    match change {
        Change::BadBlocks | Change::Uuid(_) => true,
        Change::Ppl | Change::NoPpl | Change::Resync | Change::Name(_) | Change::NoBadBlocks | Change::DeviceSize => {
            false
        }
    }
}

/// All writes and syncs, in order; none if nothing changes. The error names a member by its index in the plan.
pub(super) fn steps(plan: &StartPlan, besides: &[Beside], change: &Change) -> Result<Vec<Step>, (usize, UpdateError)> {
    // What the freshest superblock says to all; each member's own facts stay.
    let current = |superblock: &Superblock| Superblock {
        events: plan.events,
        updated: plan.template.updated,
        resync_offset: plan.template.resync_offset,
        roles: plan.template.roles.clone(),
        ..superblock.clone()
    };
    let before: Vec<Superblock> = plan.members.iter().map(|member| current(&member.superblock)).collect();
    // A spare has no bitmap yet, and gets one of the same length.
    let bitmaps = besides.iter().filter_map(|beside| Some(beside.bitmap.as_ref()?.header().area_bytes()));
    let bitmap = Sectors(bitmaps.max().unwrap_or(0).div_ceil(SECTOR_BYTES as u64));
    let next = |(at, superblock): (usize, &Superblock)| {
        let surroundings = Surroundings { device_size: besides[at].device_size, bitmap };
        changed(superblock, change, &surroundings).map_err(|error| (at, error))
    };
    let mut after = before.iter().enumerate().map(next).collect::<Result<Vec<Superblock>, _>>()?;
    let mut steps = Vec::new();
    for at in plan.lagging() {
        steps.extend(superblock_step(at, &before[at]));
    }
    if matches!(change, Change::Uuid(_)) {
        let ids = after.iter().enumerate();
        let ids = ids.flat_map(|(at, own)| id_steps(at, own, &before[at], besides[at].bitmap.as_ref()));
        steps.extend(ids);
        return Ok(steps);
    }
    if before == after {
        return Ok(steps);
    }
    for (at, own) in after.iter().enumerate() {
        steps.extend(area_step(at, own, &before[at], change).into_iter().flatten());
    }
    if matches!(change, Change::Ppl | Change::NoPpl | Change::Resync) {
        after.iter_mut().for_each(|superblock| superblock.events += 1);
    }
    for (at, own) in after.iter().enumerate() {
        steps.extend(superblock_step(at, own));
    }
    Ok(steps)
}

/// What a superblock points to is written before it.
fn area_step(at: usize, own: &Superblock, before: &Superblock, change: &Change) -> Option<[Step; 2]> {
    let header = match change {
        Change::Ppl => PplHeader::empty(&own.set_uuid).encode(),
        // Its log would say that only the rows which it names need a resync.
        Change::Resync => Box::new([0; PPL_HEADER_BYTES]),
        Change::BadBlocks if own.bad_blocks != before.bad_blocks => {
            let list = own.bad_blocks_extent()?;
            return Some(written(at, list.start, bad_blocks::empty(list.length)));
        }
        Change::BadBlocks
        | Change::NoPpl
        | Change::Name(_)
        | Change::NoBadBlocks
        | Change::DeviceSize
        | Change::Uuid(_) => return None,
    };
    // What an older log of this array has left behind the header would be read as its continuation.
    Some(written(at, own.ppl_extent()?.start, [&header[..], &[0; PPL_HEADER_BYTES]].concat()))
}

/// The id on one member: the headers that name the array, then the superblock. The bits of the bitmap stay. The log names
/// no row: the array is clean.
fn id_steps(at: usize, own: &Superblock, before: &Superblock, bitmap: Option<&BitmapImage>) -> Vec<Step> {
    let mut steps = Vec::new();
    let is_changed = own != before;
    if let Some((start, bitmap)) = own.bitmap_start().zip(bitmap)
        && (is_changed || bitmap.header().set_uuid != own.set_uuid)
    {
        let mut bitmap = bitmap.clone();
        bitmap.change_header(|header| header.set_uuid = own.set_uuid);
        steps.extend(written(at, start, bitmap.page(0, Sectors(1)).to_vec()));
    }
    if is_changed {
        let header = PplHeader::complete(&own.set_uuid).encode();
        let log = own.ppl_extent().map(|log| written(at, log.start, [&header[..], &[0; PPL_HEADER_BYTES]].concat()));
        steps.extend(log.into_iter().flatten());
        steps.extend(superblock_step(at, own));
    }
    steps
}

fn superblock_step(at: usize, superblock: &Superblock) -> [Step; 2] {
    let bytes = superblock.encode()[..superblock.written_bytes()].to_vec();
    written(at, superblock.super_offset, bytes)
}

fn written(member: usize, at: Sector, bytes: Vec<u8>) -> [Step; 2] {
    [What::Write(at, bytes), What::Sync].map(|what| Step { member, what, is_wipe: false })
}

#[cfg(test)]
mod tests {
    use super::super::{UpdateRefusal, unite};
    use super::*;
    use std::collections::BTreeSet;
    use uraid_engine::{AssembleOptions, Candidate, MemberPlan, Place, assemble};
    use uraid_format::bitmap::BitmapUnusable;
    use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create, writes};
    use uraid_format::ppl::PplLog;
    use uraid_format::{Features, SetName, Version};
    use uraid_layout::{Level, default_layout};

    const DEVICE: Sectors = Sectors(16_384);
    /// Ids of the array, before and after.
    const OLD: [u8; 16] = [5; 16];
    const NEW: [u8; 16] = [6; 16];

    /// The bytes of each member.
    type Disks = Vec<Vec<u8>>;

    fn array(level: Level, policy: NewPolicy) -> Disks {
        let options = CreateOptions {
            version: Version::V1_2,
            level,
            layout: default_layout(level),
            chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
            raid_disks: 3,
            spare_devices: 1,
            size: None,
            data_offset: None,
            set_uuid: OLD,
            set_name: SetName::new("", "test").expect("a short name"),
            now_seconds: 1_700_000_000,
            assume_clean: true,
            force: false,
            policy,
        };
        let device = |n: u8| NewMember::Device { size: DEVICE, uuid: [n; 16] };
        let creation = create(&options, &[1, 2, 3, 4].map(device)).expect("an array");
        let disk = |superblock: &Superblock| {
            let mut bytes = vec![0; DEVICE.len_bytes()];
            for (at, part) in writes(superblock, creation.bitmap.as_ref()) {
                put(&mut bytes, at, &part);
            }
            // As a stop leaves it: every row is consistent.
            if let Some(log) = superblock.ppl_extent() {
                put(&mut bytes, log.start, &PplHeader::complete(&superblock.set_uuid).encode()[..]);
            }
            bytes
        };
        creation.superblocks.iter().flatten().map(disk).collect()
    }

    fn put(disk: &mut [u8], at: uraid_block::Sector, part: &[u8]) {
        let at = at.0 as usize * SECTOR_BYTES;
        disk[at..at + part.len()].copy_from_slice(part);
    }

    fn candidates(disks: &Disks) -> Vec<Candidate> {
        let candidate = |bytes: &Vec<u8>| {
            let superblock = uraid_format::find(DEVICE, |at, block| {
                *block = *bytes[at.0 as usize * SECTOR_BYTES..].first_chunk().expect("a place on the device");
                Ok::<(), ()>(())
            });
            let superblock = superblock.expect("a good one").superblock;
            let ppl = PplLog::read_beside(&superblock, |at, into| {
                into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
                true
            });
            Candidate { ppl, ..Candidate::new(superblock, DEVICE) }
        };
        disks.iter().map(candidate).collect()
    }

    /// As a start decides, with the bitmaps.
    fn plan(disks: &Disks) -> StartPlan {
        let found = candidates(disks);
        let mut plan = assemble(&found, &AssembleOptions::default()).expect("it starts");
        plan.take_bitmaps(|at| bitmap(&found[at].superblock, &disks[at]));
        plan
    }

    /// The bitmap beside this superblock.
    fn bitmap(superblock: &Superblock, bytes: &[u8]) -> Result<BitmapImage, BitmapUnusable> {
        BitmapImage::read_beside(superblock, |at, into| {
            into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
            true
        })
    }

    fn steps_of(disks: &Disks, plan: &StartPlan, change: &Change) -> Vec<Step> {
        let beside = |member: &MemberPlan| {
            let has_bitmap = member.superblock.bitmap_start().is_some() && member.place != Place::Spare;
            let is_needed = has_bitmap && needs_bitmaps(change);
            let image = is_needed.then(|| bitmap(&member.superblock, &disks[member.candidate]).expect("a good one"));
            Beside { device_size: DEVICE, bitmap: image }
        };
        let besides: Vec<Beside> = plan.members.iter().map(beside).collect();
        steps(plan, &besides, change).expect("it can be changed")
    }

    /// The members as a power cut leaves them: the first `durable` steps are on them, of the writes behind these any.
    fn cut(before: &Disks, steps: &[Step], durable: usize, survives: bool) -> Disks {
        let mut disks = before.clone();
        let mut unsynced = Vec::new();
        for (at, step) in steps.iter().enumerate().take(durable) {
            match &step.what {
                What::Write(sector, bytes) => unsynced.push((at, step.member, *sector, bytes)),
                What::Sync => unsynced.retain(|(_, member, sector, bytes)| {
                    let is_kept = *member == step.member;
                    if is_kept {
                        put(&mut disks[*member], *sector, bytes);
                    }
                    !is_kept
                }),
                What::Wipe(_) => panic!("nothing is wiped"),
            }
        }
        if survives {
            unsynced.into_iter().for_each(|(_, member, sector, bytes)| put(&mut disks[member], sector, bytes));
        }
        disks
    }

    fn expect_whole(plan: &StartPlan, what: &str) {
        let places: Vec<bool> = plan.members.iter().map(|member| matches!(member.place, Place::Slot(_))).collect();
        assert_eq!(places, [true, true, true, false], "{what}: all members work, and the spare waits");
        assert_eq!((plan.refused.len(), plan.read_only), (0, None), "{what}");
    }

    #[test]
    fn wherever_power_is_cut_the_array_is_whole_and_has_the_old_policy_or_the_new_one() {
        for (has, change) in
            [(false, Change::Ppl), (true, Change::NoPpl), (true, Change::Resync), (false, Change::Resync)]
        {
            let before = array(Level::Raid5, if has { NewPolicy::Ppl } else { NewPolicy::Resync });
            let steps = steps_of(&before, &plan(&before), &change);
            let holds = |plan: &StartPlan| match change {
                Change::Resync => plan.is_dirty,
                Change::Ppl
                | Change::NoPpl
                | Change::Name(_)
                | Change::NoBadBlocks
                | Change::BadBlocks
                | Change::DeviceSize
                | Change::Uuid(_) => plan.ppl.is_some() != has,
            };
            let mut changed_at = None;
            for (durable, survives) in (0..=steps.len()).flat_map(|durable| [(durable, false), (durable, true)]) {
                let what = format!("{change:?} after {durable} of {} steps, {survives}", steps.len());
                let disks = cut(&before, &steps, durable, survives);
                let started = plan(&disks);
                expect_whole(&started, &what);
                let is_changed = holds(&started);
                changed_at = changed_at.or(is_changed.then_some(durable));
                assert_eq!(is_changed, changed_at.is_some(), "{what}: it holds from one moment on");
                if started.is_dirty && has {
                    let ppl = started.ppl.as_ref().expect("it keeps its log");
                    assert!(!ppl.is_complete, "{what}: all is resynced, not only what the log names");
                }
                if !started.is_dirty {
                    // What every member is told at a start, and by a second update.
                    for member in &started.members {
                        let has_log = member.superblock.ppl_room().is_some();
                        assert_eq!(has_log, started.ppl.is_some(), "{what}");
                    }
                    let again = steps_of(&disks, &started, &change);
                    let whole = plan(&cut(&disks, &again, again.len(), false));
                    expect_whole(&whole, &what);
                    assert_eq!(whole.lagging().count(), 0, "{what}");
                    assert!(holds(&whole), "{what}");
                }
            }
            assert!(changed_at.is_some_and(|at| at > 0), "{change:?} is a change");
        }
    }

    #[test]
    fn no_superblock_names_a_log_before_every_log_is_begun() {
        let before = array(Level::Raid5, NewPolicy::Resync);
        let steps = steps_of(&before, &plan(&before), &Change::Ppl);
        let is_superblock = |step: &Step| matches!(&step.what, What::Write(at, _) if at.0 == 8);
        let first = steps.iter().position(is_superblock).expect("it is written");
        let (logs, superblocks) = steps.split_at(first);
        for (part, length) in [(logs, 2 * PPL_HEADER_BYTES), (superblocks, 512)] {
            assert_eq!(part.len(), 4 * 2, "the spare's too");
            for (member, pair) in part.chunks(2).enumerate() {
                let [Step { what: What::Write(_, bytes), .. }, Step { what: What::Sync, .. }] = pair else {
                    panic!("a write, and a sync behind it")
                };
                assert!(pair.iter().all(|step| step.member == member) && bytes.len() == length, "{}", bytes.len());
            }
        }
    }

    #[test]
    fn a_name_costs_no_event_so_that_a_bitmap_stays_current() {
        let before = array(Level::Raid1, NewPolicy::Bitmap { chunk: None, write_behind: 0 });
        let old = plan(&before);
        let name = Change::Name(SetName::new("", "other").expect("a short name"));
        let steps = steps_of(&before, &old, &name);
        let after = cut(&before, &steps, steps.len(), false);
        let new = plan(&after);
        assert_eq!((new.events, new.template.set_name.name()), (old.events, "other".to_owned()));
        assert!(new.template.features.contains(Features::BITMAP_OFFSET));
        assert!(steps_of(&after, &new, &name).is_empty(), "a second time");
    }

    /// The array as a start finds it, with its bitmap. It must be as it was before the id was changed, or after that.
    fn expect_started(disks: &Disks, has_bitmap: bool, what: &str) {
        let started = plan(disks);
        let places: Vec<Place> = started.members.iter().map(|member| member.place).collect();
        assert!(started.missing.is_empty() && !started.is_dirty && started.read_only.is_none(), "{what}: {places:?}");
        assert_eq!(started.bitmap.is_some(), has_bitmap, "{what}");
        if let Some(bitmap) = started.bitmap {
            assert!(!bitmap.is_out_of_date && bitmap.image.count() > 0, "{what}: the bits stay");
            assert!(bitmap.behind.len() <= 1, "{what}: {:?}", bitmap.behind);
        }
    }

    #[test]
    fn an_interrupted_change_of_the_id_starts_no_part_of_the_array_and_goes_on() {
        for (level, policy) in
            [(Level::Raid5, NewPolicy::Ppl), (Level::Raid1, NewPolicy::Bitmap { chunk: None, write_behind: 0 })]
        {
            let (before, has_bitmap) = (array(level, policy), level == Level::Raid1);
            let change = Change::Uuid(NEW);
            let steps = steps_of(&before, &plan(&before), &change);
            assert!(steps.len() >= 4 * 4 - 2, "a header and a superblock of each, each with its sync");
            for (durable, survives) in (0..=steps.len()).flat_map(|durable| [(durable, false), (durable, true)]) {
                let what = format!("{} after {durable} of {} steps, {survives}", level.name(), steps.len());
                let disks = cut(&before, &steps, durable, survives);
                let found = candidates(&disks);
                let ids: BTreeSet<[u8; 16]> = found.iter().map(|candidate| candidate.superblock.set_uuid).collect();
                if assemble(&found, &AssembleOptions::default()).is_ok() {
                    expect_started(&disks, has_bitmap, &what);
                } else {
                    assert_eq!(ids.len(), 2, "{what}");
                    let refused = unite(&mut found.clone(), None);
                    assert!(matches!(refused, Err(UpdateRefusal::Interrupted { .. })), "{what}");
                }
                for wanted in [NEW, OLD] {
                    let what = format!("{what}, to {wanted:?}");
                    let mut found = found.clone();
                    unite(&mut found, Some(wanted)).expect("one array");
                    let options = AssembleOptions { run: true, ..AssembleOptions::default() };
                    let started = assemble(&found, &options).expect("it can be updated");
                    let again = steps_of(&disks, &started, &Change::Uuid(wanted));
                    let after = cut(&disks, &again, again.len(), false);
                    let whole = plan(&after);
                    expect_whole(&whole, &what);
                    assert_eq!((whole.template.set_uuid, whole.events), (wanted, started.events), "{what}");
                    expect_started(&after, has_bitmap, &what);
                    for member in whole.members.iter().filter(|member| has_bitmap && member.place != Place::Spare) {
                        let bitmap = bitmap(&member.superblock, &after[member.candidate]).expect("a bitmap");
                        assert_eq!(bitmap.header().set_uuid, wanted, "{what}");
                    }
                    // A log that names the new array already stays with the old one, which is clean.
                    let mut ends = candidates(&after).into_iter();
                    assert!(
                        wanted == OLD || ends.all(|one| one.superblock.ppl_extent().is_some() == one.ppl.is_some()),
                        "{what}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_change_of_the_id_that_only_reached_a_bitmap_can_be_taken_back() {
        let before = array(Level::Raid1, NewPolicy::Bitmap { chunk: None, write_behind: 0 });
        let steps = steps_of(&before, &plan(&before), &Change::Uuid(NEW));
        let disks = cut(&before, &steps, 2, false);
        assert!(disks != before && candidates(&disks).iter().all(|one| one.superblock.set_uuid == OLD));
        let back = steps_of(&disks, &plan(&disks), &Change::Uuid(OLD));
        assert!(cut(&disks, &back, back.len(), false) == before);
        assert!(steps_of(&before, &plan(&before), &Change::Uuid(OLD)).is_empty(), "a second time");
    }

    #[test]
    fn members_of_two_arrays_are_not_taken_for_one() {
        let disks = array(Level::Raid1, NewPolicy::Resync);
        let mut found = candidates(&disks);
        found[1].superblock.set_uuid = [6; 16];
        found[1].superblock.created += 1;
        unite(&mut found, Some([6; 16])).expect("assembly refuses them");
        assert_eq!(found[1].superblock.set_uuid, [6; 16]);
    }

    #[test]
    fn a_list_is_empty_before_a_superblock_names_it() {
        let before = array(Level::Raid1, NewPolicy::Resync);
        let bare = steps_of(&before, &plan(&before), &Change::NoBadBlocks);
        let bare = cut(&before, &bare, bare.len(), false);
        // What lies there is no list.
        let dirty: Disks = bare
            .iter()
            .map(|disk| {
                let mut disk = disk.clone();
                let data = usize::try_from(plan(&bare).template.data_offset.0).expect("a small number") * SECTOR_BYTES;
                disk[data - 4096..data].fill(7);
                disk
            })
            .collect();
        let steps = steps_of(&dirty, &plan(&dirty), &Change::BadBlocks);
        for (durable, survives) in (0..=steps.len()).flat_map(|durable| [(durable, false), (durable, true)]) {
            let disks = cut(&dirty, &steps, durable, survives);
            for (candidate, disk) in candidates(&disks).iter().zip(&disks) {
                if let Some(list) = candidate.superblock.bad_blocks_extent() {
                    let at = list.start.0 as usize * SECTOR_BYTES;
                    assert!(disk[at..at + list.length.len_bytes()].iter().all(|byte| *byte == 0xff), "{durable}");
                }
            }
            expect_whole(&plan(&disks), "a list");
        }
        let after = cut(&dirty, &steps, steps.len(), false);
        assert!(candidates(&after).iter().all(|one| one.superblock.bad_blocks_extent().is_some()));
        assert!(steps_of(&after, &plan(&after), &Change::BadBlocks).is_empty(), "a second time");
    }
}
