//! The runtime directory: where the sockets of running arrays are, and the logs of servers in the background.
//! Owns: which directory it is, making it, which directories are looked through, and which are refused. Not here: the
//! names of the files in it (`names`), servers elsewhere (`elsewhere`).
//! Invariant: only this user and root can change what is in a directory that is used: every directory and symbolic link
//! on the way to it is theirs, and nobody else may write to these directories.
//!
//! ```text
//!   $URAID_RUNTIME_DIR       if it is set
//!   $RUNTIME_DIRECTORY       what systemd has made for a service: of several the one whose last part is `uraid`
//!   /run/uraid               root
//!   $XDG_RUNTIME_DIR/uraid   if XDG_RUNTIME_DIR is a directory of this user
//!   /run/user/UID/uraid      if /run/user/UID is one
//!   /tmp/uraid-UID           otherwise, with mode 700: outside a login session, as in cron jobs and containers
//! ```

pub mod device_name;
mod elsewhere;
pub mod service_manager;
pub(crate) mod walk;

pub use elsewhere::say_not_shown;

use rustix::fs::Stat;
use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use walk::{Absent, Unfit, walk};

/// The runtime directory, or what is on the way to it, could be changed by others, or could not be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "the runtime directory {} is not used: {reason}; expected one that only user {own} can write to: name it with \
     URAID_RUNTIME_DIR",
    path.display()
)]
pub struct RuntimeError {
    path: PathBuf,
    reason: Unfit,
    own: u32,
}

/// One place for the runtime directory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    path: PathBuf,
    /// It lies where every user can make directories: nobody else may even look into it.
    is_private: bool,
}

impl Place {
    fn new(path: impl Into<PathBuf>) -> Place {
        Place { path: path.into(), is_private: false }
    }

    /// Whether it can be used; `None`: it does not exist.
    fn check(&self, absent: Absent) -> Result<Option<Stat>, RuntimeError> {
        let own = own_user();
        let outcome = walk(&self.path, absent).and_then(|status| match status {
            Some(status) if self.is_private && (status.st_uid != own || status.st_mode & 0o077 != 0) => {
                Err(Unfit::NotPrivate { path: self.path.clone(), owner: status.st_uid, mode: status.st_mode & 0o7777 })
            }
            status => Ok(status),
        });
        outcome.map_err(|reason| RuntimeError { path: self.path.clone(), reason, own })
    }
}

/// The directory for the sockets of this process; makes it.
pub fn make() -> Result<PathBuf, RuntimeError> {
    let place = places().remove(0);
    place.check(Absent::Make)?;
    Ok(place.path)
}

/// The directories in which this user's running arrays may be: a process that was started outside a login session has its
/// sockets elsewhere than one inside it.
pub fn looked_through() -> Result<Vec<PathBuf>, RuntimeError> {
    let mut found: Vec<(PathBuf, Stat)> = Vec::new();
    for (nth, place) in places().into_iter().enumerate() {
        match place.check(Absent::Leave) {
            Ok(Some(status)) => {
                let is_new = |(_, other): &(_, Stat)| (other.st_dev, other.st_ino) != (status.st_dev, status.st_ino);
                if found.iter().all(is_new) {
                    found.push((place.path, status));
                }
            }
            Ok(None) => {}
            // No server of this user uses a directory that is refused. Where it would be the one, the user has to know.
            Err(error) if nth == 0 => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found.into_iter().map(|(path, _)| path).collect())
}

/// The places, in this order; the first one is for new sockets.
fn places() -> Vec<Place> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = own_user();
    if let Some(path) = set("URAID_RUNTIME_DIR") {
        return vec![Place::new(path)];
    }
    if let Some(path) = service_manager::runtime_directory() {
        return vec![Place::new(path)];
    }
    if own == 0 {
        return vec![Place::new("/run/uraid")];
    }
    let of_session = [set("XDG_RUNTIME_DIR"), Some(PathBuf::from(format!("/run/user/{own}")))];
    // One of this user's that others could change is refused, not passed over: the check says why.
    let is_own = |path: &PathBuf| {
        path.is_absolute() && std::fs::metadata(path).is_ok_and(|status| status.is_dir() && status.uid() == own)
    };
    let of_session = of_session.into_iter().flatten().filter(is_own);
    let mut places: Vec<Place> = of_session.map(|path| Place::new(path.join("uraid"))).collect();
    places.push(Place { path: Path::new("/tmp").join(format!("uraid-{own}")), is_private: true });
    places
}

fn own_user() -> u32 {
    geteuid().as_raw()
}
