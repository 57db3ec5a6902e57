//! `uraid update`: changes the superblocks of a stopped array.
//! Owns: which arrays may be changed, the order of the writes. Not here: what a change is (`uraid_format::update`), which
//! members make up the array (`engine::assemble`).
//! Invariant: every member is claimed and checked before any is changed. At every moment the members make up the array
//! as it was, or as it is to be.
//!
//! ```text
//!   members one round behind   the freshest superblock -> sync                      none is two rounds behind afterwards
//!   every member               the log's header, empty; or none, before a resync -> sync
//!   the first member           its superblock, with one event more -> sync          from here on the change holds
//!   the others, one by one     their superblocks -> sync
//! ```
//!
//! After a crash between the last two steps the first member is the freshest, and the others lag one event behind it:
//! assembly takes the policy and the dirty mark from the freshest. What does not concern other members, a name or a list
//! of bad blocks, costs no event: a bitmap would count as out of date.

use crate::assembly::{self, NamedError};
use crate::cli::{UpdateArgs, UpdateWhat};
use crate::create::steps::{Step, What, carry_out};
use crate::metadata::{ClaimError, MetadataError};
use crate::names::{self, printable};
use crate::opening::{self, Opened, ServeError, Timeouts};
use crate::print;
use uraid_engine::{AssembleOptions, Place, StartPlan};
use uraid_format::ppl::{PPL_HEADER_BYTES, PplHeader};
use uraid_format::update::{Change, UpdateError, changed};
use uraid_format::{NameTooLong, SetName, Superblock, Version};
use uraid_host::{Access, Claimed};

/// Why nothing was changed, or not all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpdateRefusal {
    /// A member could not be claimed.
    #[error("nothing was changed")]
    Claim(#[from] ClaimError),
    /// The members could not be read.
    #[error("nothing was changed")]
    Open(#[source] Box<ServeError>),
    /// The members make up no array.
    #[error("nothing was changed")]
    Assemble(#[from] NamedError),
    /// Named members are not of the array, or cannot be read.
    #[error("{count} of the members cannot be used, see above: name all members of one array; nothing was changed")]
    LeftOut { count: usize },
    /// A slot has no member in sync.
    #[error(
        "{array}: {missing} of its {slots} slots have no member in sync: name all of its members, or serve it until it is whole; nothing was changed"
    )]
    Degraded { array: String, missing: usize, slots: u16 },
    /// It was not stopped, or is new.
    #[error("{array}: is dirty: serve it until it is consistent, and stop it; nothing was changed")]
    Dirty { array: String },
    /// A member is being copied to a second one of its slot.
    #[error("{array}: a member is being replaced: serve it until that has ended, and stop it; nothing was changed")]
    Replacing { array: String },
    /// 0.90 is not written.
    #[error("{array}: its superblocks are of version 0.90, which uraid does not write; nothing was changed")]
    Old { array: String },
    /// Its event count leaves no room.
    #[error("{array}: its superblocks count {found} events, which uraid does not write; nothing was changed")]
    Events { array: String, found: u64 },
    /// The new name does not fit.
    #[error("nothing was changed")]
    Name(#[from] NameTooLong),
    /// A member cannot be changed so.
    #[error("{member}: {source}; nothing was changed")]
    Member { member: String, source: UpdateError },
    /// A write failed.
    #[error(
        "not all superblocks were changed: the array starts without the change or with it; the same command goes on"
    )]
    Write(#[source] MetadataError),
}

/// Changes the superblocks.
pub(crate) fn run(args: &UpdateArgs) -> Result<(), UpdateRefusal> {
    let new_names = args.new_names();
    let opened = opening::open(&args.members, Access::ReadWrite, &Timeouts::begin());
    let opened = opened.map_err(|error| {
        if let ServeError::Claim(error) = error {
            return UpdateRefusal::Claim(error);
        }
        UpdateRefusal::Open(Box::new(error))
    })?;
    let Opened { members, candidates, .. } = &opened;
    if members.len() < args.members.len() {
        return Err(UpdateRefusal::LeftOut { count: args.members.len() - members.len() });
    }
    // Members that are missing are named below: there is no --run to offer.
    let options = AssembleOptions { run: true, ..AssembleOptions::default() };
    let plan = assembly::decide(candidates, &opened.names(), &options)?;
    let array = names::short_name(&plan.template.set_name.as_str(), &plan.template.set_uuid);
    check(&plan, &array)?;
    let change = change(args.what, new_names, &plan.template.set_name)?;
    let devices: Vec<&Claimed> = plan.members.iter().map(|member| &members[member.candidate]).collect();
    let steps = steps(&plan, &change)
        .map_err(|(at, source)| UpdateRefusal::Member { member: devices[at].name().to_owned(), source })?;
    let is_nothing = steps.is_empty();
    carry_out(&steps, &devices).map_err(|(at, source)| {
        let member = devices[steps[at].member].name().to_owned();
        UpdateRefusal::Write(MetadataError::Io { member, action: steps[at].action(), source })
    })?;
    let told = told(&change);
    print(&format!("{}: {told}{}\n", printable(&array), if is_nothing { " already" } else { "" }));
    Ok(())
}

fn told(change: &Change) -> String {
    match change {
        Change::Ppl => "consistency policy: ppl".to_owned(),
        Change::NoPpl => "consistency policy: no ppl".to_owned(),
        Change::Resync => "dirty: its next start resyncs all of it".to_owned(),
        Change::Name(name) => format!("name: {}", printable(&name.as_str())),
        Change::NoBadBlocks => "bad-block lists: none".to_owned(),
    }
}

fn check(plan: &StartPlan, array: &str) -> Result<(), UpdateRefusal> {
    let array = || printable(array);
    let found = plan.events;
    if !plan.refused.is_empty() {
        Err(UpdateRefusal::LeftOut { count: plan.refused.len() })
    } else if plan.template.version == Version::V0_90 {
        Err(UpdateRefusal::Old { array: array() })
    } else if !plan.missing.is_empty() {
        Err(UpdateRefusal::Degraded { array: array(), missing: plan.missing.count(), slots: plan.layout.slots() })
    } else if plan.is_dirty {
        Err(UpdateRefusal::Dirty { array: array() })
    } else if plan.members.iter().any(|member| matches!(member.place, Place::Replacing { .. })) {
        Err(UpdateRefusal::Replacing { array: array() })
    } else if found >= Superblock::EVENTS_WRITE_END {
        Err(UpdateRefusal::Events { array: array(), found })
    } else {
        Ok(())
    }
}

fn change(what: UpdateWhat, names: (Option<&str>, Option<&str>), now: &SetName) -> Result<Change, NameTooLong> {
    let renamed = |name: Option<&str>, host: Option<&str>| {
        let host = host.map_or_else(|| now.host().unwrap_or_default(), |host| names::homehost(Some(host)));
        SetName::new(&host, &name.map_or_else(|| now.name(), str::to_owned)).map(Change::Name)
    };
    match what {
        UpdateWhat::Ppl => Ok(Change::Ppl),
        UpdateWhat::NoPpl => Ok(Change::NoPpl),
        UpdateWhat::Resync => Ok(Change::Resync),
        UpdateWhat::NoBbl => Ok(Change::NoBadBlocks),
        UpdateWhat::Name | UpdateWhat::Homehost => renamed(names.0, names.1),
    }
}

/// All writes and syncs, in order; none if nothing changes. The error names a member by its index in the plan.
fn steps(plan: &StartPlan, change: &Change) -> Result<Vec<Step>, (usize, UpdateError)> {
    // What the freshest superblock says to all; each member's own facts stay.
    let current = |superblock: &Superblock| Superblock {
        events: plan.events,
        updated: plan.template.updated,
        resync_offset: plan.template.resync_offset,
        roles: plan.template.roles.clone(),
        ..superblock.clone()
    };
    let before: Vec<Superblock> = plan.members.iter().map(|member| current(&member.superblock)).collect();
    let after: Result<Vec<Superblock>, _> = before
        .iter()
        .enumerate()
        .map(|(at, superblock)| changed(superblock, change).map_err(|error| (at, error)))
        .collect();
    let mut after = after?;
    let mut steps = Vec::new();
    let superblock = |member: usize, superblock: &Superblock| {
        let bytes = superblock.encode()[..superblock.written_bytes()].to_vec();
        written(member, superblock.super_offset, bytes)
    };
    for at in plan.lagging() {
        steps.extend(superblock(at, &before[at]));
    }
    if before == after {
        return Ok(steps);
    }
    for (at, own) in after.iter().enumerate() {
        let header = match change {
            Change::Ppl => PplHeader::empty(&own.set_uuid).encode(),
            // Its log would say that only the rows which it names need a resync.
            Change::Resync => Box::new([0; PPL_HEADER_BYTES]),
            Change::NoPpl | Change::Name(_) | Change::NoBadBlocks => continue,
        };
        let Some(log) = own.ppl_extent() else { continue };
        // What an older log of this array has left behind the header would be read as its continuation.
        let bytes = [&header[..], &[0; PPL_HEADER_BYTES]].concat();
        steps.extend(written(at, log.start, bytes));
    }
    if matches!(change, Change::Ppl | Change::NoPpl | Change::Resync) {
        after.iter_mut().for_each(|superblock| superblock.events += 1);
    }
    for (at, own) in after.iter().enumerate() {
        steps.extend(superblock(at, own));
    }
    Ok(steps)
}

fn written(member: usize, at: uraid_block::Sector, bytes: Vec<u8>) -> [Step; 2] {
    [What::Write(at, bytes), What::Sync].map(|what| Step { member, what, is_wipe: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{SECTOR_BYTES, Sectors};
    use uraid_engine::{Candidate, assemble};
    use uraid_format::Features;
    use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create, writes};
    use uraid_format::ppl::PplLog;
    use uraid_layout::{Level, default_layout};

    const DEVICE: Sectors = Sectors(16_384);

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
            set_uuid: [5; 16],
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

    fn plan(disks: &Disks) -> StartPlan {
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
        let candidates: Vec<Candidate> = disks.iter().map(candidate).collect();
        assemble(&candidates, &AssembleOptions::default()).expect("it starts")
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
            let steps = steps(&plan(&before), &change).expect("it can be changed");
            let mut changed_at = None;
            for (durable, survives) in (0..=steps.len()).flat_map(|durable| [(durable, false), (durable, true)]) {
                let what = format!("{change:?} after {durable} of {} steps, {survives}", steps.len());
                let disks = cut(&before, &steps, durable, survives);
                let started = plan(&disks);
                expect_whole(&started, &what);
                let is_changed = match change {
                    Change::Resync => started.is_dirty,
                    Change::Ppl | Change::NoPpl | Change::Name(_) | Change::NoBadBlocks => started.ppl.is_some() != has,
                };
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
                    let again = super::steps(&started, &change).expect("it goes on");
                    let whole = plan(&cut(&disks, &again, again.len(), false));
                    expect_whole(&whole, &what);
                    assert_eq!(whole.lagging().count(), 0, "{what}");
                    let is_done = match change {
                        Change::Resync => whole.is_dirty,
                        Change::Ppl | Change::NoPpl | Change::Name(_) | Change::NoBadBlocks => {
                            whole.ppl.is_some() != has
                        }
                    };
                    assert!(is_done, "{what}");
                }
            }
            assert!(changed_at.is_some_and(|at| at > 0), "{change:?} is a change");
        }
    }

    #[test]
    fn no_superblock_names_a_log_before_every_log_is_begun() {
        let steps = steps(&plan(&array(Level::Raid5, NewPolicy::Resync)), &Change::Ppl).expect("room");
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
        let steps = steps(&old, &name).expect("a name");
        let new = plan(&cut(&before, &steps, steps.len(), false));
        assert_eq!((new.events, new.template.set_name.name()), (old.events, "other".to_owned()));
        assert!(new.template.features.contains(Features::BITMAP_OFFSET));
        assert!(super::steps(&new, &name).expect("a name").is_empty(), "a second time");
    }
}
