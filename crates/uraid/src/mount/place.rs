//! What is kept of a mount: its folder in the runtime directory, with the record, and the server in the background.
//! Owns: [`Place`], [`Record`]. Not here: the order of the steps (`mount`), how the server is started (`background`).
//! Invariant: the record says what may have to be undone before that is done. So `umount` undoes a mount of which any
//! step was done, also one that was killed. A record of which nothing is left is removed by the next `mount`.
//!
//! ```text
//!   RUNTIME/mount-PID/record   what was mounted where
//!   RUNTIME/mount-PID/log      what the server says, if `mount` has started one
//!   RUNTIME/mount-PID/files/   its --fuse folder
//!   RUNTIME/mount-PID/nbd      its socket, without --fuse
//! ```
//!
//! A command holds the flock of `mount-PID/` while it works on it, and that of RUNTIME while it makes or removes one.

use super::args::MountArgs;
use super::disk::Disk;
use super::system::{self, Mounts};
use super::{MountError, Way};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use uraid_control::client;
use uraid_control::log::warn;
use uraid_control::names;
use uraid_control::report::Report;
use uraid_control::runtime;
use uraid_serve::background::Background;

const PREFIX: &str = "mount-";
const RECORD: &str = "record";
/// A record before it takes its name.
const NEW_RECORD: &str = "record.new";
const LOG: &str = "log";
const FILES: &str = "files";
const NBD: &str = "nbd";

/// What `mount` has done, or is about to do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// Where the file system is mounted.
    pub folder: PathBuf,
    /// Whether the array is started for this mount.
    pub has_server: bool,
    /// What is mounted.
    pub disk: Option<Disk>,
}

/// The folder of a mount that this process makes. Without [`Place::keep`] it is removed, and the server stopped, when
/// this is dropped.
pub(super) struct Place {
    folder: PathBuf,
    record: Record,
    server: Option<Background>,
    stays: bool,
    _lock: File,
}

impl Place {
    /// One for a mount at this folder, after the records of which nothing is left were removed.
    pub(super) fn new(mounted_at: &Path) -> Result<Place, MountError> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        let runtime = whole(runtime::make()?);
        let all = File::open(&runtime).map_err(failed(&runtime))?;
        all.lock().map_err(failed(&runtime))?;
        remove_dead(&runtime)?;
        // Two at once would lie on top of each other.
        for place in places(&runtime)? {
            let is_here = record_of(&place).is_some_and(|record| record.folder == mounted_at);
            if is_here && try_lock(&place).map_err(failed(&place))?.is_none() {
                return Err(MountError::AtWork { path: mounted_at.to_owned() });
            }
        }
        // The mount of an earlier process with this number may be in use.
        let name = |nth: u32| {
            format!("{PREFIX}{}{}", std::process::id(), if nth == 0 { String::new() } else { format!("-{nth}") })
        };
        let mut free = (0..).map(|nth| runtime.join(name(nth))).filter(|folder| !folder.exists());
        let folder = free.next().expect("numbers do not end");
        builder.create(&folder).map_err(failed(&folder))?;
        let lock = try_lock(&folder).map_err(failed(&folder))?.expect("it is new, and the runtime directory is locked");
        let record = Record { folder: mounted_at.to_owned(), has_server: false, disk: None };
        let place = Place { folder, record, server: None, stays: false, _lock: lock };
        place.write()?;
        Ok(place)
    }

    /// Serves the array of these members. Returns when it is ready.
    pub(super) fn serve(&mut self, members: &[String], way: Way, args: &MountArgs) -> Result<Report, MountError> {
        let (files, log) = (self.folder.join(FILES), self.folder.join(LOG));
        self.record.has_server = true;
        self.write()?;
        let mut words = Vec::<OsString>::new();
        match way {
            Way::Files => {
                fs::create_dir(&files).map_err(failed(&files))?;
                words.extend(["--fuse".into(), files.into()]);
            }
            Way::Nbd => {
                let socket = format!("unix:{}", self.folder.join(NBD).display());
                words.extend(["--mlock".into(), "--nbd".into(), socket.into()]);
            }
        }
        words.extend(args.read_only.then(|| "--read-only".into()));
        words.extend(args.run.then(|| "--run".into()));
        words.push("--".into());
        words.extend(members.iter().map(OsString::from));
        let server = self.server.insert(Background::start(words, log)?);
        let mut said = Vec::new();
        let is_ready = !server.wait(|block| said.extend_from_slice(block))?.is_empty();
        let said = String::from_utf8_lossy(&said);
        let mut said: Vec<&str> = said.lines().map(|line| line.trim_start_matches("uraid: ")).collect();
        let reason = if is_ready { None } else { Some(said.pop().unwrap_or("the server ended without a word")) };
        said.into_iter().for_each(warn);
        if let Some(reason) = reason {
            return Err(MountError::NotServed { text: reason.to_owned() });
        }
        let gone = || MountError::NotServed { text: "the server ended after it was ready".to_owned() };
        array_served_in(&self.folder)?.ok_or_else(gone)
    }

    /// Notes what is attached, and mounted, before it is.
    pub(super) fn set_disk(&mut self, disk: Disk) -> Result<(), MountError> {
        self.record.disk = Some(disk);
        self.write()
    }

    fn write(&self) -> Result<(), MountError> {
        write(&self.folder, &self.record)
    }

    /// Lets it stay; returns the file with what the server says.
    pub(super) fn keep(mut self) -> PathBuf {
        self.stays = true;
        self.folder.join(LOG)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Some(mut server) = self.server.take() {
            // It stops the array. If it has ended already, this does nothing.
            let process = rustix::process::Pid::from_child(&server.child);
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
            let _ = server.child.wait();
        }
        remove(&self.folder);
    }
}

fn write(place: &Path, record: &Record) -> Result<(), MountError> {
    let (new, path) = (place.join(NEW_RECORD), place.join(RECORD));
    let text = serde_json::to_string(record).map_err(io::Error::from);
    text.and_then(|text| fs::write(&new, text)).and_then(|()| fs::rename(&new, &path)).map_err(failed(&path))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> MountError {
    let path = path.to_owned();
    |source| MountError::Place { path, source }
}

/// A mount that was made, locked for this process.
pub(super) struct Made {
    pub record: Record,
    place: PathBuf,
    _lock: File,
}

impl Made {
    /// The array that this mount has started. `None`: it has started none, or that does not run.
    pub(super) fn array(&self) -> Result<Option<Report>, MountError> {
        if self.record.has_server { array_served_in(&self.place) } else { Ok(None) }
    }

    /// Notes that nothing is mounted any more, only the server is left.
    pub(super) fn unmounted(&mut self) -> Result<(), MountError> {
        self.record.disk = None;
        write(&self.place, &self.record)
    }

    /// Where others are mounted that use the file of this one's server.
    pub(super) fn other_users(&self) -> Result<Vec<PathBuf>, MountError> {
        let files = self.place.join(FILES);
        let uses = |record: &Record| {
            let disk = record.disk.as_ref().filter(|disk| disk.is_attached());
            disk.and_then(Disk::file).and_then(Path::parent) == Some(&files)
        };
        let others = all_places()?.into_iter().filter(|place| *place != self.place);
        Ok(others.filter_map(|place| record_of(&place)).filter(uses).map(|record| record.folder).collect())
    }

    /// The mount whose server has this one's file, if nothing else is left of it.
    pub(super) fn owner(&self) -> Option<Made> {
        let files = self.record.disk.as_ref()?.file()?.parent()?;
        let place = files.parent().filter(|place| *place != self.place)?.to_owned();
        let record = record_of(&place).filter(|record| record.has_server && record.disk.is_none())?;
        Some(Made { record, _lock: try_lock(&place).ok()??, place })
    }

    /// Forgets it.
    pub(super) fn remove(self) {
        remove(&self.place);
    }
}

/// The mounts that were made at this folder.
pub(super) fn made_at(mounted_at: &Path) -> Result<Vec<Made>, MountError> {
    let mut found = Vec::new();
    for place in all_places()? {
        let Some(record) = record_of(&place).filter(|record| record.folder == mounted_at) else { continue };
        let Some(lock) = try_lock(&place).map_err(failed(&place))? else {
            return Err(MountError::AtWork { path: mounted_at.to_owned() });
        };
        // It may have been removed, or have changed, before it was locked.
        if record_of(&place).as_ref() == Some(&record) {
            found.push(Made { record, place, _lock: lock });
        }
    }
    Ok(found)
}

/// Whether `uraid mount` has mounted this device at this folder.
pub(super) fn has_mounted(source: &Path, mounted_at: &Path) -> Result<bool, MountError> {
    let mut records = all_places()?.into_iter().filter_map(|place| record_of(&place));
    Ok(records.any(|record| {
        record.folder == mounted_at && record.disk.is_some_and(|disk| disk.mounted == source && disk.is_attached())
    }))
}

/// The runtime directory, as the server and the kernel name what is in it.
fn whole(runtime: PathBuf) -> PathBuf {
    fs::canonicalize(&runtime).unwrap_or(runtime)
}

/// The folders of all mounts.
fn all_places() -> Result<Vec<PathBuf>, MountError> {
    let mut all = Vec::new();
    for runtime in runtime::looked_through()? {
        all.extend(places(&whole(runtime))?);
    }
    Ok(all)
}

/// The folders of mounts.
fn places(runtime: &Path) -> Result<Vec<PathBuf>, MountError> {
    let entries = match fs::read_dir(runtime) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(runtime)(error)),
    };
    let is_place = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_place).collect())
}

fn record_of(place: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(place.join(RECORD)).ok()?).ok()
}

/// The flock of a folder. `None`: another command holds it.
fn try_lock(folder: &Path) -> io::Result<Option<File>> {
    let file = match File::open(folder) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes each mount of which no loop device and no server is left, and on which no command works.
fn remove_dead(runtime: &Path) -> Result<(), MountError> {
    for place in places(runtime)? {
        let Some(_lock) = try_lock(&place).map_err(failed(&place))? else { continue };
        let disk = record_of(&place).and_then(|record| record.disk);
        if !disk.is_some_and(|disk| disk.is_attached()) && array_served_in(&place)?.is_none() {
            remove(&place);
        }
    }
    Ok(())
}

/// The running array that is served in the folder of a mount: its file or its socket is there.
fn array_served_in(place: &Path) -> Result<Option<Report>, MountError> {
    let (files, socket) = (place.join(FILES), place.join(NBD));
    let has_it = |report: &Report| {
        report.server.iter().any(|server| {
            server.exports.iter().any(|export| {
                let file = export.file.as_ref().map(Path::new);
                file.is_some_and(|file| file.parent() == Some(&files))
                    || server.uris.contains(&names::unix_uri(&export.name, &socket))
            })
        })
    };
    Ok(client::running()?.reports.into_iter().find(has_it))
}

/// Removes the folder of a mount that is no more, and has no server.
fn remove(folder: &Path) {
    let files = folder.join(FILES);
    // If the server and the child that unmounts were both killed, its mount is still there.
    if Mounts::read().is_ok_and(|mounts| mounts.source_at(&files).is_some()) {
        let _ = system::umount_dead(&files);
    }
    let _ = fs::remove_dir(&files);
    for name in [LOG, NBD, NEW_RECORD, RECORD] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir(folder);
}
