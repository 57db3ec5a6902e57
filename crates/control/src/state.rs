//! The state directory: what outlives a process and a boot, such as the history of each array.
//! Owns: which directory it is, making it, replacing a file in it as a whole. Not here: what is in the files (`history`),
//! files that go with the process (`runtime`).
//! Invariant: only this user and root can change what is in it, as for the runtime directory. A file that was replaced has
//! all of its old or all of its new content, also after a crash.
//!
//! ```text
//!   $URAID_STATE_DIR         if it is set
//!   $STATE_DIRECTORY         what systemd has made for a service: of several the one whose last part is `uraid`
//!   /var/lib/uraid           root
//!   $XDG_STATE_HOME/uraid    if XDG_STATE_HOME is an absolute path
//!   ~/.local/state/uraid     otherwise
//! ```

use crate::runtime::service_manager;
use crate::runtime::walk::{Absent, Unfit, walk};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The state directory, or what is on the way to it, could be changed by others, or could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is not used.
    #[error(
        "the state directory {} is not used: {reason}; expected one that only user {own} can write to: name it with \
         URAID_STATE_DIR",
        path.display()
    )]
    Unfit {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: StateReason,
        /// The user of this process.
        own: u32,
    },
    /// This user has no home.
    #[error("there is no place for the state directory: HOME is no absolute path: name one with URAID_STATE_DIR")]
    NoHome,
}

/// Why a state directory is not used.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct StateReason(Unfit);

/// What is there is not a file, or longer than it may be.
#[derive(Debug, thiserror::Error)]
enum WrongFile {
    #[error("is not a file: remove it")]
    NotAFile,
    #[error("has more than {max} bytes: remove it")]
    TooLong { max: u64 },
}

/// The directory; makes it.
pub fn make() -> Result<PathBuf, StateError> {
    let path = place()?;
    walk(&path, Absent::Make).map_err(|reason| unfit(&path, reason))?;
    Ok(path)
}

/// The directory, if there is one.
pub fn find() -> Result<Option<PathBuf>, StateError> {
    let path = place()?;
    let found = walk(&path, Absent::Leave).map_err(|reason| unfit(&path, reason))?;
    Ok(found.map(|_| path))
}

fn unfit(path: &Path, reason: Unfit) -> StateError {
    StateError::Unfit { path: path.to_owned(), reason: StateReason(reason), own: geteuid().as_raw() }
}

fn place() -> Result<PathBuf, StateError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("URAID_STATE_DIR") {
        return Ok(path);
    }
    if let Some(path) = service_manager::state_directory() {
        return Ok(path);
    }
    if geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/uraid"));
    }
    let of_user = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let of_home = || set("HOME").filter(|path| path.is_absolute()).map(|home| home.join(".local/state"));
    of_user.or_else(of_home).map(|path| path.join("uraid")).ok_or(StateError::NoHome)
}

/// The content of a file of at most `bytes_max`; `None`: it does not exist. What is no file is not opened for long: opening
/// a FIFO would wait for its other end.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        outcome => outcome?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(WrongFile::NotAFile));
    }
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        return Err(io::Error::other(WrongFile::TooLong { max: bytes_max }));
    }
    Ok(Some(content))
}

/// Gives a file in the state directory this content, durably: a whole new file, then its name. Others that replace a file
/// of the same directory wait meanwhile.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = File::open(path.parent().unwrap_or(Path::new(".")))?;
    flock(&folder, FlockOperation::LockExclusive)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let fresh = path.with_file_name(name);
    // Only the holder of the lock is here: what is there was left by a crash.
    let _ = fs::remove_file(&fresh);
    let mode = (Mode::RUSR | Mode::WUSR).bits();
    let written = File::options().write(true).create_new(true).mode(mode).open(&fresh).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    let outcome = written.and_then(|()| fs::rename(&fresh, path)).and_then(|()| folder.sync_all());
    if outcome.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_read_within_bounds() {
        let folder = std::env::temp_dir().join(format!("uraid-state-{}", std::process::id()));
        fs::create_dir(&folder).expect("the temporary folder is writable");
        let path = folder.join("it");
        assert!(matches!(read(&path, 8), Ok(None)));
        // A crash has left the beginning of another one.
        fs::write(folder.join("it.new"), "torn").expect("room");
        for content in ["one", "two", ""] {
            replace(&path, content.as_bytes()).expect("room");
            assert_eq!(read(&path, 3).expect("it is there"), Some(content.as_bytes().to_vec()));
        }
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).expect("ours").count(), 1, "nothing else is left");
        replace(&path, b"four").expect("room");
        assert_eq!(read(&path, 3).expect_err("refused").to_string(), "has more than 3 bytes: remove it");
        assert_eq!(read(&folder, 3).expect_err("refused").to_string(), "is not a file: remove it");
        fs::remove_dir_all(&folder).expect("ours");
    }
}
