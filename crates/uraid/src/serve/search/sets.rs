//! All arrays of which members are at some places.
//! Owns: what one look finds, by array. Not here: which of them are started (`assemble`), whether one can be (the server).
//! Invariant: nothing is written, and nothing is claimed.

use super::places::Looks;
use super::{LOOK_EVERY, SearchError, look};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use uraid_format::Superblock;

/// An array of which members were found.
#[derive(Debug)]
pub(crate) struct FoundArray {
    /// The freshest of its superblocks.
    pub(crate) superblock: Superblock,
    /// The names of its members.
    pub(crate) members: Vec<String>,
    /// `host:name`
    pub(crate) set_name: String,
}

impl FoundArray {
    /// What a configuration compares with its lines.
    pub(crate) fn facts(&self) -> uraid_config::ArrayFacts<'_> {
        let superblock = &self.superblock;
        uraid_config::ArrayFacts {
            uuid: superblock.set_uuid,
            set_name: &self.set_name,
            metadata: superblock.version.name(),
            // Version 0.90 has one, which the common form of superblocks does not.
            super_minor: None,
            level: superblock.known_level().map_or("", |level| level.name()),
            raid_devices: superblock.raid_disks,
            members: self.members.iter().map(String::as_str).collect(),
        }
    }
}

/// The arrays with members at these places: files, devices, folders and patterns, or `partitions`; none: all block
/// devices. A place that does not answer within `time_max` is named, and left out.
pub(crate) fn arrays(places: &[String], time_max: Option<Duration>) -> Result<Vec<FoundArray>, SearchError> {
    let (began, mut looks) = (Instant::now(), Looks::default());
    let found = loop {
        let found = look(places, None, &mut looks)?;
        if !looks.is_waiting(began, time_max) {
            break found;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    looks.say_what_is_left_out();
    let mut arrays: BTreeMap<[u8; 16], FoundArray> = BTreeMap::new();
    for (name, probe) in found {
        let fresh = || FoundArray {
            set_name: probe.superblock.set_name.as_str().into_owned(),
            superblock: probe.superblock.clone(),
            members: Vec::new(),
        };
        let array = arrays.entry(probe.superblock.set_uuid).or_insert_with(fresh);
        array.members.push(name);
        if probe.superblock.events > array.superblock.events {
            *array = FoundArray { members: std::mem::take(&mut array.members), ..fresh() };
        }
    }
    Ok(arrays.into_values().collect())
}
