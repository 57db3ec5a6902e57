//! The members of an array, looked for by its UUID: what a unit of systemd names once, whatever becomes of its disks.
//! Owns: which of them are the array's, waiting for members that are late. Not here: what is at a place (`places`), whether
//! an array starts (`engine::assemble`), the claims (`opening`).
//! Invariant: nothing is written, and nothing is claimed. What has no superblock, or that of another array, is not the
//! array's: it is left out without a word. What may be a member and cannot be read is named.

mod places;
pub(crate) mod sets;

use super::args::ServeArgs;
use crate::shared::block_devices::{NotListed, block_devices};
use crate::shared::probe::Probe;
use places::{Left, Looks};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};
use uraid_block::SlotSet;
use uraid_config::PARTITIONS;
use uraid_control::log::warn;
use uraid_engine::{AssembleError, AssembleOptions, Candidate, StartPlan, assemble};
use uraid_format::uuid;

/// How often it looks for members that are late.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The shortest time between two looks.
const LOOK_LEAST: Duration = Duration::from_millis(10);

/// Why nothing is started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    /// Nothing that was looked at is a member.
    #[error("no member of the array {uuid} among {places}")]
    None {
        /// The array.
        uuid: String,
        /// What was looked at.
        places: String,
    },
    /// There is no list of what to look at.
    #[error(transparent)]
    NotListed(#[from] NotListed),
    /// The command that waited for this server was told to end.
    #[error("the command that started this server has ended, so nothing is started")]
    NotAwaited,
    /// The system has no more threads.
    #[error("cannot start the thread that looks for members: {}", uraid_host::io_text(.0))]
    Thread(io::Error),
    /// A pattern cannot be read.
    #[error("{pattern}: {source}")]
    Pattern {
        /// The word.
        pattern: String,
        /// What is wrong.
        source: glob::PatternError,
    },
}

/// What is looked for, and where.
pub(crate) struct Search<'a> {
    pub(crate) uuid: [u8; 16],
    /// Files, devices, folders and patterns; none: all block devices.
    pub(crate) places: &'a [String],
    /// How long members are waited for; then the array is started without them.
    pub(crate) run_after: Option<Duration>,
    /// How long places that do not answer are waited for without `run_after`.
    pub(crate) time_max: Option<Duration>,
}

/// The members that were found, and whether the array is to start without the others.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) names: Vec<String>,
    pub(crate) run: bool,
}

impl Search<'_> {
    /// What --uuid looks for. `time_max`: how long a place may take to answer without --run-after.
    pub(crate) fn of(args: &ServeArgs, time_max: Option<Duration>) -> Option<Search<'_>> {
        let uuid = args.uuid?;
        Some(Search { uuid, places: &args.members, run_after: args.run_after, time_max })
    }

    /// Looks until all members are there and all places have answered, or `run_after` is over.
    /// `is_awaited`: whether the result is still wanted.
    pub(crate) fn run(&self, options: &AssembleOptions, is_awaited: impl Fn() -> bool) -> Result<Members, SearchError> {
        let began = Instant::now();
        let (mut is_said, mut looks) = (false, Looks::default());
        loop {
            if !is_awaited() {
                return Err(SearchError::NotAwaited);
            }
            let found = look(self.places, Some(self.uuid), &mut looks)?;
            let candidates: Vec<Candidate> = found.values().map(candidate).collect();
            let is_waiting = looks.is_waiting(began, self.run_after.or(self.time_max));
            match (self.run_after, awaited(assemble(&candidates, options), found.len())) {
                (None, _) | (Some(_), Awaited::Nothing) if is_waiting => {}
                (None, _) | (Some(_), Awaited::Nothing) => return self.named(found, false, looks),
                (Some(time), Awaited::Members { .. }) if began.elapsed() >= time && !is_waiting => {
                    return self.named(found, true, looks);
                }
                (Some(time), Awaited::Members { there, missing }) => {
                    if !is_said {
                        self.say_missing(there, missing, time);
                    }
                    is_said = true;
                }
            }
            let left = self.run_after.map_or(LOOK_EVERY, |time| time.saturating_sub(began.elapsed()));
            std::thread::sleep(left.clamp(LOOK_LEAST, LOOK_EVERY));
        }
    }

    fn say_missing(&self, there: usize, missing: SlotSet, time: Duration) {
        let there = match there {
            0 => "no member is".to_owned(),
            1 => "one member is".to_owned(),
            count => format!("{count} members are"),
        };
        let missing: Vec<String> = missing.iter().map(|slot| slot.to_string()).collect();
        let slots = if missing.is_empty() { String::new() } else { format!(", not {}", missing.join(", ")) };
        let uuid = uuid::text(&self.uuid);
        warn(&format!("{uuid}: {there} there yet{slots}; it is started without the others in {time:?} (--run-after)"));
    }

    fn named(&self, found: BTreeMap<String, Probe>, run: bool, looks: Looks) -> Result<Members, SearchError> {
        looks.say_what_is_left_out();
        if found.is_empty() {
            let places = match self.places {
                [] => "all block devices of this system".to_owned(),
                places => places.join(", "),
            };
            return Err(SearchError::None { uuid: uuid::text(&self.uuid), places });
        }
        Ok(Members { names: found.into_keys().collect(), run })
    }
}

/// The members that are there now and have answered, by name; `uuid`: those of this array only.
fn look(places: &[String], uuid: Option<[u8; 16]>, looks: &mut Looks) -> Result<BTreeMap<String, Probe>, SearchError> {
    looks.begin();
    let mut found: BTreeMap<String, Probe> = BTreeMap::new();
    // One device with several names is one: /dev/disk/by-id has a link by its model and one by its number.
    let mut known = BTreeSet::new();
    for (name, is_given) in names(places, looks)? {
        let seen = looks.see(&name, uuid).map_err(SearchError::Thread)?;
        let Some(seen) = seen.filter(|seen| seen.identity.is_none_or(|identity| known.insert(identity))) else {
            continue;
        };
        let probed = match seen.probed {
            Ok(probed) => probed,
            Err(error) => {
                let is_any = places.is_empty() || !is_given && places.iter().any(|place| place == PARTITIONS);
                let of = Left { is_own: seen.is_own, is_given, is_any };
                looks.leave_out(&name, &error, of);
                continue;
            }
        };
        if uuid.is_some_and(|uuid| probed.superblock.set_uuid != uuid) {
            continue;
        }
        // A superblock at the end of a partition that ends with its disk is found on both: the partition is meant. Of
        // two copies of one size, only the user knows which one is meant: the start says so.
        let own = |other: &Probe| {
            let (one, two) = (&other.superblock, &probed.superblock);
            let is_same = one.set_uuid == two.set_uuid && one.device_uuid == two.device_uuid;
            is_same && one.dev_number == two.dev_number && other.size != probed.size
        };
        let twin = found.iter().find(|(_, other)| own(other)).map(|(name, other)| (name.clone(), other.size));
        match twin {
            Some((_, size)) if size <= probed.size => continue,
            Some((name, _)) => drop(found.remove(&name)),
            None => {}
        }
        found.insert(name, probed);
    }
    Ok(found)
}

/// Everything that may be a member, and whether the user names it so.
fn names(places: &[String], looks: &mut Looks) -> Result<BTreeMap<String, bool>, SearchError> {
    let devices = || -> Result<Vec<String>, SearchError> {
        Ok(block_devices()?.iter().map(|path| path.display().to_string()).collect())
    };
    if places.is_empty() {
        return Ok(devices()?.into_iter().map(|path| (path, false)).collect());
    }
    let mut all = BTreeMap::new();
    for place in places {
        if place == PARTITIONS {
            all.extend(devices()?.into_iter().map(|path| (path, false)));
            continue;
        }
        let found = looks.names(place).map_err(SearchError::Thread)?;
        let pattern = |source| SearchError::Pattern { pattern: place.clone(), source };
        let (names, is_given) = found.map_err(pattern)?;
        for name in names {
            *all.entry(name).or_default() |= is_given;
        }
    }
    Ok(all)
}

/// What a start waits for.
enum Awaited {
    /// All that the superblocks count are there, or what is there can never be started together.
    Nothing,
    /// Some are missing.
    Members {
        /// How many are in sync.
        there: usize,
        /// The slots that should have a member, too; empty if they are not known.
        missing: SlotSet,
    },
}

/// `found`: how many members there are, in sync or not.
fn awaited(outcome: Result<StartPlan, AssembleError>, found: usize) -> Awaited {
    let members = |there, missing| Awaited::Members { there, missing };
    match outcome {
        // Members that the superblocks record as gone are not waited for.
        Ok(_) => Awaited::Nothing,
        Err(AssembleError::NeedsRun { found, missing, .. } | AssembleError::TooFewMembers { found, missing, .. }) => {
            members(found, missing)
        }
        Err(AssembleError::DirtyDegraded { missing, .. }) => members(found, missing),
        Err(AssembleError::NoCandidates | AssembleError::OnlySpares { .. }) => members(0, SlotSet::EMPTY),
        // One that is fresher may come, with which those that are there agree.
        Err(AssembleError::Mismatch { .. }) => members(found, SlotSet::EMPTY),
        Err(
            AssembleError::SeveralArrays { .. }
            | AssembleError::Duplicate { .. }
            | AssembleError::SplitBrain { .. }
            | AssembleError::Unsupported(_)
            | AssembleError::TooManySlots { .. }
            | AssembleError::Layout(_),
        ) => Awaited::Nothing,
    }
}

/// A member as the engine judges it.
pub(in crate::serve) fn candidate(probe: &Probe) -> Candidate {
    Candidate {
        superblock: probe.superblock.clone(),
        device_size: probe.size,
        bad_blocks: Some(probe.bad_blocks.clone()),
        ppl: probe.ppl.clone(),
    }
}
