//! Which arrays a configuration gives to uraid, among those that are there.
//! Owns: where is looked for which line's arrays, the name that each gets. Not here: starting them (`start`), what a line
//! means (`uraid_config`).
//! Invariant: an array is taken by one line, and only from the places that this line has.

use super::start::{Start, StartOptions};
use crate::serve::search::SearchError;
use crate::serve::search::sets::{self, FoundArray};
use std::time::Duration;
use uraid_config::{Config, Left, Standing, UraidLine};
use uraid_control::names;

/// What one look has found.
#[derive(Default)]
pub(crate) struct Found {
    /// Those that are uraid's.
    pub(crate) ours: Vec<Start>,
    /// Those that are not, by name and UUID, and why.
    pub(crate) left: Vec<(String, [u8; 16], Left)>,
}

/// Looks at all places of the configuration.
pub(crate) fn look(config: &Config, options: StartOptions, time_max: Option<Duration>) -> Result<Found, SearchError> {
    let mut found = Found::default();
    let system = names::homehost(None);
    for line in config.uraid.iter().filter(|line| !line.members.is_empty()) {
        for array in sets::arrays(&line.members, time_max)? {
            // What another line's array has there is that line's, or nobody's.
            if let Standing::Ours { uraid, .. } = config.standing(&array.facts(), &system)
                && uraid.at == line.at
            {
                found.take(start_of(config, &array, Some(uraid), line.members.clone(), options));
            }
        }
    }
    // The DEVICE lines are looked at for those arrays whose line says nothing else.
    if config.uraid.iter().any(|line| line.members.is_empty()) {
        let places = config.device_places();
        for array in sets::arrays(&places, time_max)? {
            match config.standing(&array.facts(), &system) {
                Standing::Ours { uraid, array: listed } if uraid.members.is_empty() => {
                    let own = listed.map(|line| line.devices.clone()).filter(|devices| !devices.is_empty());
                    let places = own.unwrap_or_else(|| places.clone());
                    found.take(start_of(config, &array, Some(uraid), places, options));
                }
                Standing::Ours { .. } => {}
                Standing::Left(left) => {
                    found.left.push((array.set_name.clone(), array.superblock.set_uuid, left));
                }
            }
        }
    }
    Ok(found)
}

/// How an array is started that lies at these places.
pub(crate) fn start_of(
    config: &Config,
    array: &FoundArray,
    line: Option<&UraidLine>,
    places: Vec<String>,
    options: StartOptions,
) -> Start {
    let facts = array.facts();
    let own = names::short_name(&array.set_name, &facts.uuid);
    let label = config.name_of(&facts).map_or_else(|| own.clone(), names::printable);
    // Its own name is what a server calls it anyway.
    let name = (label != own).then(|| label.clone());
    Start { label, name, uuid: Some(facts.uuid), places, line: line.cloned(), options }
}

impl Found {
    fn take(&mut self, start: Start) {
        if self.ours.iter().all(|other| other.uuid != start.uuid) {
            self.ours.push(start);
        }
    }
}
