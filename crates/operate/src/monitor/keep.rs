//! What the monitor keeps in the state directory: `monitor.json`, its lock, and what people acknowledge.
//! Owns: [`State`], reading and writing it, [`Keep`]. Not here: what is in it of an array (`memory`), of events (`outbox`).
//! Invariant: one monitor at a time reports for a state directory. A file that cannot be understood is put aside, and the
//! monitor starts afresh: it then tells what is so, not what happened before.
//! A state that cannot be written is kept in memory, and written as soon as that works again.

use super::memory::ArrayMemory;
use super::outbox::Outbox;
use super::sharing::Moving;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uraid_control::dates;
use uraid_control::state;

/// The version of the file's form: another one is not understood.
const VERSION: u32 = 1;
const BYTES_MAX: u64 = 64 << 20;
const FILE: &str = "monitor.json";
const LOCK: &str = "monitor.lock";
const ACKNOWLEDGED: &str = "monitor-acknowledged-";

/// All that outlives the monitor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    version: u32,
    /// Tells the ids of this file's events from those of one that was lost.
    epoch: String,
    sequence: u64,
    /// The first look is over: what appears from now on is new.
    #[serde(default)]
    pub has_looked: bool,
    /// By UUID; `name:WORD` for one that was asked for and never seen.
    #[serde(default)]
    pub arrays: BTreeMap<String, ArrayMemory>,
    /// What has not arrived everywhere.
    #[serde(default)]
    pub outbox: Outbox,
    /// A spare on its way from one array to another.
    #[serde(default)]
    pub moving: Option<Moving>,
}

impl State {
    /// One of a monitor that has never looked.
    fn fresh() -> State {
        let epoch = format!("{:x}-{:x}", dates::now(), std::process::id());
        State {
            version: VERSION,
            epoch,
            sequence: 0,
            has_looked: false,
            arrays: BTreeMap::new(),
            outbox: Outbox::default(),
            moving: None,
        }
    }

    /// The id of the next event.
    pub(crate) fn next_id(&mut self) -> String {
        self.sequence += 1;
        format!("{}-{}", self.epoch, self.sequence)
    }

    fn parse(bytes: &[u8]) -> Result<State, Unreadable> {
        #[derive(Deserialize)]
        struct OnlyVersion {
            version: u32,
        }
        let OnlyVersion { version: found } = serde_json::from_slice(bytes).map_err(|_| Unreadable::Damaged)?;
        if found != VERSION {
            return Err(Unreadable::Version { found });
        }
        serde_json::from_slice(bytes).map_err(|_| Unreadable::Damaged)
    }
}

/// Why a state file is not used.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    #[error("is damaged")]
    Damaged,
    #[error("has version {found} of its form, and this uraid knows version {VERSION}")]
    Version { found: u32 },
    #[error("{}", uraid_host::io_text(.0))]
    Io(#[from] io::Error),
}

/// Why there is no state to work with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// Another monitor has it.
    #[error("{}: process {pid} monitors with this state directory already: it tells what happens", path.display())]
    Taken {
        /// The state directory.
        path: PathBuf,
        /// The other monitor.
        pid: String,
    },
    /// The lock cannot be taken.
    #[error("{}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The state directory of a monitor that holds its lock.
pub(crate) struct Keep {
    folder: PathBuf,
    _lock: File,
    written: Option<State>,
    is_failing: bool,
}

impl Keep {
    /// Takes the lock, and reads what the monitor before has left. Gives a sentence if that is of no use.
    pub(crate) fn open(folder: PathBuf) -> Result<(Keep, State, Option<String>), KeepError> {
        let lock = lock(&folder)?;
        let path = folder.join(FILE);
        let parsed = match state::read(&path, BYTES_MAX) {
            Ok(None) => Ok(None),
            Ok(Some(bytes)) => State::parse(&bytes).map(Some),
            Err(error) => Err(Unreadable::from(error)),
        };
        let (state, said) = match parsed {
            Ok(state) => (state, None),
            Err(error) => {
                let aside = path.with_extension("json.unused");
                // If that fails too, it is written over.
                let _ = fs::rename(&path, &aside);
                let said = format!(
                    "{} {error}: it is now {}; the monitor starts afresh, and does not know what happened before",
                    path.display(),
                    aside.display()
                );
                (None, Some(said))
            }
        };
        let keep = Keep { folder, _lock: lock, written: state.clone(), is_failing: false };
        Ok((keep, state.unwrap_or_else(State::fresh), said))
    }

    /// The state directory.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the state if it has changed, durably. Gives a sentence when that begins to fail, and when it works again.
    pub(crate) fn save(&mut self, now: &State) -> Option<String> {
        if self.written.as_ref() == Some(now) {
            return None;
        }
        let text = serde_json::to_vec(now).expect("plain data");
        let path = self.folder.join(FILE);
        match state::replace(&path, &text) {
            Ok(()) => {
                self.written = Some(now.clone());
                let was_failing = std::mem::replace(&mut self.is_failing, false);
                was_failing.then(|| format!("{}: it is written again", path.display()))
            }
            Err(error) => {
                let is_new = !std::mem::replace(&mut self.is_failing, true);
                let error = uraid_host::io_text(&error);
                is_new.then(|| {
                    format!(
                        "{}: {error}: the monitor goes on in memory; should it end before this works again, events are \
                         told twice",
                        path.display()
                    )
                })
            }
        }
    }

    /// The arrays that people have acknowledged since the last time.
    pub(crate) fn acknowledged(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| Some(uuid_of(name.strip_prefix(ACKNOWLEDGED)?))).collect()
    }

    /// These are in the state that was written.
    pub(crate) fn forget_acknowledged(&self, uuids: &[String]) {
        for uuid in uuids {
            let _ = fs::remove_file(self.folder.join(acknowledged_name(uuid)));
        }
    }
}

fn lock(folder: &Path) -> Result<File, KeepError> {
    let path = folder.join(LOCK);
    let failed = |source| KeepError::Lock { path: path.clone(), source };
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        // Its holder may just be writing it.
        let _ = (&file).take(16).read_to_string(&mut pid);
        let pid = Some(pid.trim()).filter(|pid| !pid.is_empty()).unwrap_or("another").to_owned();
        return Err(KeepError::Taken { path: folder.to_owned(), pid });
    }
    // A full disk is no reason not to monitor: then the other one cannot say who has the lock.
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

fn acknowledged_name(uuid: &str) -> String {
    format!("{ACKNOWLEDGED}{}", uuid.replace(':', "-"))
}

fn uuid_of(name: &str) -> String {
    name.replace('-', ":")
}

/// Why nothing was acknowledged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcknowledgeError {
    /// No monitor has looked yet.
    #[error("{}: no monitor has kept anything there", path.display())]
    Nothing {
        /// The state directory.
        path: PathBuf,
    },
    /// The file of the state.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of the state.
    #[error("{} cannot be understood", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
    },
    /// It is not known.
    #[error("the monitor knows no array that is called {word}; it knows {known}")]
    NoArray {
        /// What was asked for.
        word: String,
        /// What there is.
        known: String,
    },
    /// All is well.
    #[error("{word}: nothing is repeated about it: it is not degraded, as far as the monitor knows")]
    NotDegraded {
        /// What was asked for.
        word: String,
    },
}

/// Notes that somebody knows that an array is degraded. The monitor that runs takes it up at once, or the next one that is
/// started. Returns the array's name.
pub(crate) fn acknowledge(folder: &Path, word: &str) -> Result<String, AcknowledgeError> {
    let path = folder.join(FILE);
    let failed = |source| AcknowledgeError::Io { path: path.clone(), source };
    let bytes = state::read(&path, BYTES_MAX).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| AcknowledgeError::Nothing { path: folder.to_owned() })?;
    let state = State::parse(&bytes).map_err(|_| AcknowledgeError::Unreadable { path: path.clone() })?;
    let Some(array) = state.arrays.values().find(|array| array.is_called(word)) else {
        let known: Vec<&str> = state.arrays.values().map(|array| array.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(AcknowledgeError::NoArray { word: word.to_owned(), known });
    };
    if array.degraded.is_none() {
        return Err(AcknowledgeError::NotDegraded { word: word.to_owned() });
    }
    let note = folder.join(acknowledged_name(&array.uuid));
    state::replace(&note, b"").map_err(|source| AcknowledgeError::Io { path: note, source })?;
    Ok(array.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::memory::Reminder;
    use crate::monitor::moment::Moment;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("uraid-keep-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("the temporary folder is writable");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_written_is_read_back_and_a_second_monitor_is_refused() {
        let folder = Folder::new("back");
        let (mut keep, mut state, said) = Keep::open(folder.0.clone()).expect("it is free");
        assert!(said.is_none() && !state.has_looked);
        state.has_looked = true;
        let id = state.next_id();
        assert_eq!(keep.save(&state), None);
        let taken = Keep::open(folder.0.clone()).map(|_| ()).expect_err("one has it").to_string();
        assert!(taken.contains(&format!("process {} monitors", std::process::id())), "{taken}");
        drop(keep);
        let (_keep, mut again, said) = Keep::open(folder.0.clone()).expect("it is free again");
        assert!(said.is_none() && again == state && again.next_id() != id);
    }

    #[test]
    fn what_cannot_be_understood_is_put_aside_with_one_sentence() {
        let folder = Folder::new("aside");
        let other = format!("{{\"version\":{},\"arrays\":7}}", VERSION + 1);
        for (content, expected) in [
            ("", "is damaged"),
            ("{\"version\":1", "is damaged"),
            ("{\"version\":1,\"arrays\":7}", "is damaged"),
            (other.as_str(), "has version 2 of its form"),
        ] {
            fs::write(folder.0.join(FILE), content).expect("room");
            let (_, state, said) = Keep::open(folder.0.clone()).expect("it is free");
            let said = said.expect("a sentence");
            assert!(said.contains(expected) && said.contains("starts afresh") && !state.has_looked, "{said}");
            assert_eq!(fs::read_to_string(folder.0.join("monitor.json.unused")).expect("aside"), content);
        }
    }

    #[test]
    fn a_state_that_cannot_be_written_is_said_once_and_written_later() {
        let folder = Folder::new("full");
        let (mut keep, mut state, _) = Keep::open(folder.0.clone()).expect("it is free");
        // No file can be renamed over a folder.
        fs::create_dir(folder.0.join(FILE)).expect("room");
        assert!(keep.save(&state).is_some_and(|said| said.contains("goes on in memory")));
        state.has_looked = true;
        assert_eq!(keep.save(&state), None);
        fs::remove_dir(folder.0.join(FILE)).expect("ours");
        assert!(keep.save(&state).is_some_and(|said| said.ends_with("it is written again")));
        assert_eq!(keep.save(&state), None);
    }

    #[test]
    fn an_acknowledgement_reaches_the_monitor_that_runs() {
        let folder = Folder::new("acknowledge");
        let refused = |word: &str| acknowledge(&folder.0, word).expect_err("refused").to_string();
        assert!(refused("home").ends_with("no monitor has kept anything there"));
        let (mut keep, mut state, _) = Keep::open(folder.0.clone()).expect("it is free");
        let uuid = "10111213:14151617:18191a1b:1c1d1e1f";
        let home = ArrayMemory { name: "home".into(), uuid: uuid.into(), ..ArrayMemory::default() };
        state.arrays.insert(uuid.to_owned(), home);
        keep.save(&state);
        assert!(refused("other").ends_with("it knows home"));
        assert!(refused("home").contains("it is not degraded"));
        let reminder = Reminder { told: Moment::of("a", 1, 1), is_acknowledged: false };
        state.arrays.get_mut(uuid).expect("it is there").degraded = Some(reminder);
        keep.save(&state);
        for word in ["home", uuid, "10111213141516171819-1a1b1c1d1e1f"] {
            assert_eq!(acknowledge(&folder.0, word).is_ok(), !word.contains('-'), "{word}");
        }
        assert_eq!(keep.acknowledged(), [uuid]);
        keep.forget_acknowledged(&keep.acknowledged());
        assert!(keep.acknowledged().is_empty());
    }
}
