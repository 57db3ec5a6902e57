//! The places in which `serve --uuid` looks, and what is there.
//! Owns: asking each place on a thread of its own, what is said of those that are left out. Not here: folders and patterns
//! (`shared::places`), which members are waited for (`search`).
//! Invariant: no place delays the others. What may be a member and is left out is said, in one line.

use crate::shared::places::{Place, expand};
use crate::shared::probe::{self, Probe, ProbeError};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};
use uraid_control::asking::{self, Questions};
use uraid_control::log::{warn, with_causes};
use uraid_format::{SUPERBLOCK_BYTES, Superblock, SuperblockError};

/// All looks of one search.
#[derive(Default)]
pub(super) struct Looks {
    places: Questions<Result<Place, glob::PatternError>>,
    files: Questions<Seen>,
    /// Of the last look: what is left out, and why.
    notes: BTreeMap<String, String>,
}

/// What a file or device is.
pub(super) struct Seen {
    /// What is the same for all of its names.
    pub(super) identity: Option<(u64, u64)>,
    pub(super) probed: Result<Probe, ProbeError>,
    /// It cannot be used, but is a member of the array that is looked for.
    pub(super) is_own: bool,
}

/// What is known of a file or device that is left out.
#[derive(Clone, Copy)]
pub(super) struct Left {
    /// It is a member of the array that is looked for.
    pub(super) is_own: bool,
    /// The user named it, not its folder.
    pub(super) is_given: bool,
    /// All devices of the system are looked at.
    pub(super) is_any: bool,
}

impl Looks {
    /// Begins a look.
    pub(super) fn begin(&mut self) {
        self.notes.clear();
    }

    /// The names at a place, and whether the user gave them; none if it does not answer.
    pub(super) fn names(&mut self, place: &str) -> io::Result<Result<(Vec<String>, bool), glob::PatternError>> {
        let own = place.to_owned();
        let Some(found) = self.places.ask(place, move || expand(&own))? else { return Ok(Ok((Vec::new(), false))) };
        Ok(found.map(|place| {
            self.notes.extend(place.notes);
            (place.names, place.is_given)
        }))
    }

    /// What a file or device is; `None` if it does not answer.
    /// `uuid`: the array that is looked for.
    pub(super) fn see(&mut self, name: &str, uuid: Option<[u8; 16]>) -> io::Result<Option<Seen>> {
        let own = name.to_owned();
        self.files.ask(name, move || {
            let identity = fs::metadata(&own).ok().map(|status| identity(&status));
            let probed = probe::probe_now(Path::new(&own));
            let is_of = |uuid| probed.as_ref().is_err_and(|error| is_own(Path::new(&own), error, uuid));
            let is_own = uuid.is_some_and(is_of);
            Seen { identity, probed, is_own }
        })
    }

    /// Notes why this one is left out, if the user has to know.
    pub(super) fn leave_out(&mut self, name: &str, error: &ProbeError, of: Left) {
        let text = with_causes(error);
        // Of all the devices of a system, an ordinary user may read few, and some have no medium.
        let is_of_interest = |source: &io::Error| match source.kind() == io::ErrorKind::NotFound {
            true => of.is_given,
            false => !of.is_any || source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()),
        };
        let note = match error {
            ProbeError::Superblock { .. } | ProbeError::BadBlocks { .. } | ProbeError::BadBlocksRead { .. }
                if of.is_own =>
            {
                format!("{text}: it is a member of this array, and is left out")
            }
            ProbeError::Read { source, .. } if is_of_interest(source) => {
                format!("{text}: whether it is a member is not known")
            }
            ProbeError::Name(_) | ProbeError::Kind { .. } | ProbeError::Window { .. } if of.is_given => text,
            ProbeError::Read { .. }
            | ProbeError::Name(_)
            | ProbeError::Kind { .. }
            | ProbeError::Window { .. }
            | ProbeError::Silent(_)
            | ProbeError::Short { .. }
            | ProbeError::BadBlocks { .. }
            | ProbeError::BadBlocksRead { .. }
            | ProbeError::Superblock { .. }
            | ProbeError::Partitioned { .. } => return,
        };
        self.notes.insert(name.to_owned(), note);
    }

    /// Whether places that have not answered are waited for still, in a search that began then. Names those that take long.
    pub(super) fn is_waiting(&mut self, began: Instant, bound: Option<Duration>) -> bool {
        let text = bound.map_or("without a limit".to_owned(), |time| format!("for up to {time:?}"));
        self.places.name_late(&text);
        self.files.name_late(&text);
        // What answers at all has the time after which it would be named.
        let is_new = |waits: Duration| waits < asking::NAMED_AFTER;
        let waits = self.places.waits().into_iter().chain(self.files.waits()).min();
        waits.is_some_and(|waits| is_new(waits) || bound.is_none_or(|bound| began.elapsed() < bound))
    }

    /// Ends the search.
    pub(super) fn say_what_is_left_out(self) {
        self.notes.values().for_each(|note| warn(note));
        for silent in self.places.give_up().into_iter().chain(self.files.give_up()) {
            warn(&format!("{silent}; the search goes on without it"));
        }
    }
}

/// What is the same for all names of a file or device.
fn identity(status: &fs::Metadata) -> (u64, u64) {
    if status.file_type().is_block_device() { (status.rdev(), 0) } else { (status.dev(), status.ino()) }
}

/// Whether what cannot be used is a member of this array all the same, by what can be read of its superblock.
fn is_own(name: &Path, error: &ProbeError, uuid: [u8; 16]) -> bool {
    let Ok(member) = probe::open(name) else { return false };
    let found = match error {
        ProbeError::Superblock { at, source: SuperblockError::Checksum { .. }, .. } => {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            let read = member.read_at(at.0 * uraid_block::SECTOR_BYTES as u64, &mut bytes).is_ok();
            let parsed = Superblock::parse_damaged(&bytes, *at, member.size()).ok();
            parsed.filter(|_| read).map(|(superblock, _)| superblock.set_uuid)
        }
        ProbeError::BadBlocks { .. } | ProbeError::BadBlocksRead { .. } => {
            member.find_superblock().ok().map(|found| found.superblock.set_uuid)
        }
        ProbeError::Superblock { .. }
        | ProbeError::Name(_)
        | ProbeError::Read { .. }
        | ProbeError::Kind { .. }
        | ProbeError::Window { .. }
        | ProbeError::Silent(_)
        | ProbeError::Short { .. }
        | ProbeError::Partitioned { .. } => None,
    };
    found == Some(uuid)
}
