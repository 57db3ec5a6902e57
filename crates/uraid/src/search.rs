//! The members of an array, looked for by its UUID: what a unit of systemd names once, whatever becomes of its disks.
//! Owns: which files and devices are looked at, waiting for members that are late. Not here: whether an array starts
//! (`engine::assemble`), the claims (`opening`).
//! Invariant: nothing is written, and nothing is claimed. What has no superblock, or that of another array, is not the
//! array's: it is left out without a word. One that may not be read is named.

use crate::probe::{Probe, ProbeError, probe};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};
use uraid_block::SlotSet;
use uraid_engine::{AssembleError, AssembleOptions, Candidate, StartPlan, assemble};
use uraid_format::uuid;
use uraid_serve::log::{warn, with_causes};

/// How often it looks for members that are late.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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
    /// How long a member may take to answer.
    pub(crate) time_max: Option<Duration>,
}

/// The members that were found, and whether the array is to start without the others.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) names: Vec<String>,
    pub(crate) run: bool,
}

impl Search<'_> {
    /// Looks until all members are there, or `run_after` is over.
    pub(crate) fn run(&self, options: &AssembleOptions) -> Result<Members, SearchError> {
        let began = Instant::now();
        let (mut is_said, mut denied) = (false, BTreeSet::new());
        loop {
            let found = self.look(&mut denied)?;
            let candidates: Vec<Candidate> = found.values().map(candidate).collect();
            let Some(time) = self.run_after else {
                return self.named(found, false);
            };
            let (there, missing) = match awaited(assemble(&candidates, options), found.len()) {
                Awaited::Nothing => return self.named(found, false),
                Awaited::Members { there, missing } => (there, missing),
            };
            if began.elapsed() >= time {
                return self.named(found, true);
            }
            if !is_said {
                is_said = true;
                let there = match there {
                    0 => "no member is".to_owned(),
                    1 => "one member is".to_owned(),
                    count => format!("{count} members are"),
                };
                let missing: Vec<String> = missing.iter().map(|slot| slot.to_string()).collect();
                let slots = if missing.is_empty() { String::new() } else { format!(", not {}", missing.join(", ")) };
                let uuid = uuid::text(&self.uuid);
                warn(&format!(
                    "{uuid}: {there} there yet{slots}; it is started without the others in {time:?} (--run-after)"
                ));
            }
            std::thread::sleep(LOOK_EVERY.min(time - began.elapsed().min(time)));
        }
    }

    fn named(&self, found: BTreeMap<String, Probe>, run: bool) -> Result<Members, SearchError> {
        if found.is_empty() {
            let places = match self.places {
                [] => "all block devices of this system".to_owned(),
                places => places.join(", "),
            };
            return Err(SearchError::None { uuid: uuid::text(&self.uuid), places });
        }
        Ok(Members { names: found.into_keys().collect(), run })
    }

    /// The members that are there now, by name. `denied`: those that this user may not read, and that were mentioned.
    fn look(&self, denied: &mut BTreeSet<String>) -> Result<BTreeMap<String, Probe>, SearchError> {
        let mut found: BTreeMap<String, Probe> = BTreeMap::new();
        for name in self.names()? {
            let probed = match probe(&name, self.time_max) {
                Ok(probed) => probed,
                Err(error) => {
                    // Of all the devices of a system, an ordinary user may read few.
                    if is_denied(&error) && !self.places.is_empty() && denied.insert(name) {
                        warn(&format!("{}: whether it is a member is not known", with_causes(&error)));
                    }
                    continue;
                }
            };
            if probed.superblock.set_uuid != self.uuid {
                continue;
            }
            // A superblock at the end of a partition that ends with its disk is found on both: the partition is meant. Of
            // two copies of one size, only the user knows which one is meant: the start says so.
            let own = |other: &Probe| {
                let (one, two) = (&other.superblock, &probed.superblock);
                one.device_uuid == two.device_uuid && one.dev_number == two.dev_number && other.size != probed.size
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

    /// Everything that may be a member.
    fn names(&self) -> Result<Vec<String>, SearchError> {
        if self.places.is_empty() {
            return Ok(block_devices().iter().map(|path| path.display().to_string()).collect());
        }
        let mut names = Vec::new();
        for place in self.places {
            let is_pattern = place.contains(['*', '?', '[']) && !Path::new(place).exists();
            if is_pattern {
                // As a shell does it: no star stands for the dot of a hidden file.
                let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
                let paths = glob::glob_with(place, options);
                let paths = paths.map_err(|source| SearchError::Pattern { pattern: place.clone(), source })?;
                // A folder that cannot be read has no member.
                names.extend(paths.flatten().map(|path| path.display().to_string()));
            } else if Path::new(place).is_dir() {
                names.extend(files_in(Path::new(place)));
            } else {
                names.push(place.clone());
            }
        }
        names.sort();
        // One device with several names is one: /dev/disk/by-id has a link by its model and one by its number.
        let mut known = BTreeSet::new();
        names.retain(|name| fs::metadata(name).map_or(true, |status| known.insert(identity(&status))));
        Ok(names)
    }
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

/// What is the same for all names of a file or device.
fn identity(status: &fs::Metadata) -> (u64, u64) {
    if status.file_type().is_block_device() { (status.rdev(), 0) } else { (status.dev(), status.ino()) }
}

fn is_denied(error: &ProbeError) -> bool {
    matches!(error, ProbeError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

fn candidate(probe: &Probe) -> Candidate {
    Candidate {
        superblock: probe.superblock.clone(),
        device_size: probe.size,
        bad_blocks: Some(probe.bad_blocks.clone()),
        ppl: probe.ppl.clone(),
    }
}

/// The files and block devices in a folder that are not hidden.
fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let is_storage =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.is_file() || it.file_type().is_block_device());
    let paths = entries.map(|entry| entry.path()).filter(|path| !is_hidden(path)).filter(is_storage);
    paths.map(|path| path.display().to_string()).collect()
}

/// The block devices of this system, as mdadm finds them.
pub(crate) fn block_devices() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/partitions").unwrap_or_default();
    // major minor #blocks name; behind a head and an empty line.
    let name = |line: &str| line.split_whitespace().nth(3).map(str::to_owned);
    let names = text.lines().skip(2).filter_map(name);
    // A name's slash is an exclamation mark in sysfs.
    names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}
