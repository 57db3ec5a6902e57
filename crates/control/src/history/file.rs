//! The files of a history.
//! Owns: appending, turning over a full file, reading. Not here: who appends when (`writer`).
//! Invariant: what was appended is durable. A line that a crash has torn stays alone on its line, and is passed over.

use super::{Actor, Entry};
use crate::protocol::CheckRecord;
use crate::state::{self, StateError};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A longer file is turned over.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// A file can be longer by the lines that were appended at once.
const READ_BYTES_MAX: u64 = 4 << 20;
/// The last line is in the last bytes.
const TAIL_BYTES: u64 = 64 << 10;
const CHECKS_BYTES_MAX: u64 = 1 << 20;

/// The file names of an array: its UUID with dashes.
fn path(directory: &Path, uuid: &str, extension: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_hexdigit() { c } else { '-' };
    directory.join(format!("{}.{extension}", uuid.chars().map(plain).collect::<String>()))
}

/// Appends entries of one array, durably, and gives them their numbers.
pub fn append(directory: &Path, uuid: &str, entries: &[Entry]) -> io::Result<()> {
    let path = path(directory, uuid, "history");
    let mut file = open(&path)?;
    let mut number = last_number(&mut file)?;
    let size = file.metadata()?.len();
    if number.is_none() || size > FILE_BYTES_MAX {
        let old = path.with_extension("history.old");
        if size > FILE_BYTES_MAX {
            fs::rename(&path, &old)?;
            file = open(&path)?;
        }
        if number.is_none() && old.exists() {
            number = last_number(&mut open(&old)?)?;
        }
        File::open(directory)?.sync_all()?;
    }
    let mut text = if ends_torn(&mut file)? { "\n".to_owned() } else { String::new() };
    let users = Users::read();
    for (entry, number) in entries.iter().zip(number.unwrap_or(0) + 1..) {
        let mut entry = Entry { number, ..entry.clone() };
        users.name(&mut entry.actor);
        text.push_str(&serde_json::to_string(&entry)?);
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Opens a file for appending, and keeps other processes from it until it is closed.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let mut options = File::options();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    loop {
        let file = options.open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // Another process may have turned it over meanwhile.
        if fs::metadata(path).is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino())) {
            return Ok(file);
        }
    }
}

/// The number of the last whole line; `None`: there is none.
fn last_number(file: &mut File) -> io::Result<Option<u64>> {
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(lines(&tail).last().map(|entry| entry.number))
}

fn ends_torn(file: &mut File) -> io::Result<bool> {
    let size = file.metadata()?.len();
    if size == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(size - 1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// The lines that are entries.
fn lines(content: &[u8]) -> impl Iterator<Item = Entry> {
    content.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// All entries of an array that are kept, in their order.
pub fn read(uuid: &str) -> Result<Vec<Entry>, HistoryError> {
    let Some(directory) = state::find()? else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    for extension in ["history.old", "history"] {
        let path = path(&directory, uuid, extension);
        let content = state::read(&path, READ_BYTES_MAX);
        let content = content.map_err(|source| HistoryError::Read { path, source })?;
        entries.extend(lines(&content.unwrap_or_default()));
    }
    entries.sort_by_key(|entry: &Entry| entry.number);
    Ok(entries)
}

/// The UUIDs of the arrays that have a history.
pub fn arrays() -> Result<Vec<String>, HistoryError> {
    let Some(directory) = state::find()? else { return Ok(Vec::new()) };
    let failed = |source| HistoryError::Read { path: directory.clone(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(uuid) = name.to_str().and_then(|name| name.strip_suffix(".history")) {
            found.push(uuid.replace('-', ":"));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// What is kept of the checks of an array.
pub fn read_checks(uuid: &str) -> Result<CheckRecord, HistoryError> {
    let Some(directory) = state::find()? else { return Ok(CheckRecord::default()) };
    let path = path(&directory, uuid, "checks");
    let content = state::read(&path, CHECKS_BYTES_MAX);
    let content = content.map_err(|source| HistoryError::Read { path: path.clone(), source })?;
    let Some(content) = content else { return Ok(CheckRecord::default()) };
    serde_json::from_slice(&content).map_err(|source| HistoryError::Unknown { path, source })
}

pub(super) fn write_checks(directory: &Path, uuid: &str, record: &CheckRecord) -> io::Result<()> {
    state::replace(&path(directory, uuid, "checks"), serde_json::to_string(record)?.as_bytes())
}

/// Why there is no history to read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is no state directory that may be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file has another form.
    #[error("{} is not what uraid writes: remove it", path.display())]
    Unknown {
        /// Which.
        path: PathBuf,
        /// Where.
        source: serde_json::Error,
    },
}

/// The names of users, as /etc/passwd has them.
struct Users(BTreeMap<u32, String>);

impl Users {
    fn read() -> Users {
        let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = |line: &str| {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next()?, fields.nth(1)?);
            Some((uid.parse().ok()?, name.to_owned()))
        };
        Users(text.lines().filter_map(user).collect())
    }

    fn name(&self, actor: &mut Actor) {
        match actor {
            Actor::Engine => {}
            Actor::Process { uid, user, .. } => *user = self.0.get(uid).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;

    #[test]
    fn entries_are_numbered_over_torn_lines_and_full_files() {
        let folder = std::env::temp_dir().join(format!("uraid-history-{}", std::process::id()));
        fs::create_dir(&folder).expect("the temporary folder is writable");
        let (uuid, other) = ("10111213:14151617:18191a1b:1c1d1e1f", "00000000:14151617:18191a1b:1c1d1e1f");
        let path = path(&folder, uuid, "history");
        let entry = |text: String| Entry::new("home", uuid, Event::Command, Actor::own(), text);
        let add = |text: &str| append(&folder, uuid, &[entry(text.to_owned())]).expect("room");
        let numbers = || -> Vec<u64> { lines(&fs::read(&path).expect("a file")).map(|entry| entry.number).collect() };
        add("one");
        add("two");
        let torn = File::options().append(true).open(&path).and_then(|mut file| file.write_all(b"{\"number\":3,\"ti"));
        torn.expect("room");
        add("three");
        assert_eq!(numbers(), [1, 2, 3]);
        assert!(fs::read_to_string(&path).expect("a file").contains("{\"number\":3,\"ti\n"), "the torn line is alone");
        // Half a MiB at once.
        let many: Vec<Entry> = (0..400).map(|n| entry(format!("{n}{}", "x".repeat(1400)))).collect();
        for _ in 0..5 {
            append(&folder, uuid, &many).expect("room");
        }
        add("last");
        let all: u64 =
            fs::read_dir(&folder).expect("ours").flatten().map(|it| it.metadata().map_or(0, |it| it.len())).sum();
        assert!(all < 4 << 20, "two generations at most: {all}");
        assert_eq!(numbers().last(), Some(&2004));
        append(&folder, other, &[entry("of another".to_owned())]).expect("room");
        assert_eq!(numbers().last(), Some(&2004));
        let long = entry("y".repeat(10_000));
        assert!(long.text.len() < 3000, "{}", long.text.len());
        fs::remove_dir_all(&folder).expect("ours");
    }
}
