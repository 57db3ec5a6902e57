//! `uraid mount` and `uraid umount`: from members to a mounted file system, and back.
//! Owns: the order of the steps, what is undone when one fails. Not here: the record of a mount and the server in the
//! background (`mount::place`), loop devices and mounts (`mount::system`), the array as a file (`files`).
//! Invariant: nothing stays of a mount that failed. An array that ran before `mount` runs after `umount`. A step of
//! `umount` that was done before, by hand or by an `umount` that was killed, is left out.
//!
//! ```text
//!   mount    members -> server in the background -> its file -> /dev/loopN -> the record -> DIR
//!   umount   DIR -> /dev/loopN -> the server, if `mount` has started it -> the record
//! ```

mod place;
mod system;

use crate::cli::{MountArgs, UmountArgs};
use crate::client::{self, ClientError};
use crate::log::print;
use crate::member_name::{NameError, find_partition, read_table};
use crate::report::Report;
use place::{Place, Record};
use std::io;
use std::path::{Path, PathBuf};
use system::{LoopDevice, Mounts};

/// Why nothing was mounted, or unmounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    /// Of another user.
    #[error(
        "{command}: loop devices and mounts are root's; other users read and write the file of `uraid serve --fuse`"
    )]
    NotRoot {
        /// `mount` or `umount`.
        command: &'static str,
    },
    /// DIR is not there, or is no folder.
    #[error("{}: {text}; expected a folder to mount at", path.display())]
    NoFolder {
        /// As given.
        path: PathBuf,
        /// What is wrong.
        text: String,
    },
    /// The array runs without a file.
    #[error("{array}: runs without --fuse, so no file of it can be mounted: stop it, or serve it with --fuse FOLDER")]
    NoFile {
        /// Its name.
        array: String,
    },
    /// The array is served read-only.
    #[error("{array}: runs read-only: mount it with --read-only")]
    ReadOnly {
        /// Its name.
        array: String,
    },
    /// The process that should serve the array ended.
    #[error("nothing is mounted: {text}")]
    NotServed {
        /// The last line of its log.
        text: String,
    },
    /// A file or folder could not be made, or read.
    #[error("{}", path.display())]
    Place {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program is not installed, or refused.
    #[error("{program}: {text}")]
    Program {
        /// Its name.
        program: String,
        /// What it said.
        text: String,
    },
    /// DIR was not mounted by `uraid mount`.
    #[error("{}: {found}; expected a mount that `uraid mount` has made", path.display())]
    NotOurs {
        /// As given.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// The same loop device is mounted elsewhere.
    #[error("{}: {} is mounted at {}, too: unmount that first", path.display(), device.display(), other.display())]
    MountedTwice {
        /// As given.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
        /// The other place.
        other: PathBuf,
    },
    /// Another loop device has the same bytes. Two file systems on them would destroy each other.
    #[error("{array}: {} has it already{}", device.display(), used_at(place.as_deref()))]
    InUse {
        /// Its name.
        array: String,
        /// The loop device.
        device: PathBuf,
        /// Where that is mounted.
        place: Option<PathBuf>,
    },
    /// The array could not be mounted as one file system, and has partitions.
    #[error("{why}; {array} has the partitions {numbers}: --partition NUMBER mounts one")]
    Whole {
        /// Its name.
        array: String,
        /// The numbers of its partitions.
        numbers: String,
        /// What mount(8) said.
        why: Box<MountError>,
    },
    /// There is no such partition, or no table.
    #[error(transparent)]
    Partition(#[from] NameError),
    /// There is no runtime directory.
    #[error(transparent)]
    Runtime(#[from] crate::names::NoRuntimeDirectory),
    /// A running array could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

fn used_at(place: Option<&Path>) -> String {
    match place {
        Some(place) => format!(", mounted at {}: unmount that first, or use it there (mount --bind)", place.display()),
        None => ": mount that one, or detach it with losetup -d".to_owned(),
    }
}

/// Mounts an array.
pub(crate) fn mount(args: &MountArgs) -> Result<(), MountError> {
    only_root("mount")?;
    let (array, folder) = args.array_and_folder();
    let folder = whole_folder(&folder)?;
    let mut place = Place::new()?;
    let report = match running(array)? {
        Some(report) => report,
        None => place.serve(array, args)?,
    };
    let file = file_of(&report, args.read_only)?;
    let in_file = file.to_string_lossy().into_owned();
    let window = args.partition.map(|number| find_partition(&report.name, &in_file, number)).transpose()?;
    let device = LoopDevice::attach(&file, window, args.read_only)?;
    // After our own is attached: of two `uraid mount` at once, none may miss the other.
    if let Some(device) = system::other_user_of(&file, window, device.path()) {
        let place = Mounts::read()?.place_of(&device).map(Path::to_owned);
        return Err(MountError::InUse { array: report.name, device, place });
    }
    let record = Record { folder, device: device.path().to_owned(), file, has_server: place.has_server() };
    place.write(&record)?;
    system::mount(&record.device, &record.folder, args).map_err(|error| {
        match partitions_of(&report.name, &in_file) {
            Some(numbers) if args.partition.is_none() => {
                MountError::Whole { array: report.name.clone(), numbers, why: Box::new(error) }
            }
            Some(_) | None => error,
        }
    })?;
    device.keep();
    let (name, folder, device) = (report.name, record.folder.display(), record.device.display());
    let log = place.keep().map_or_else(String::new, |log| format!("; its log is {}", log.display()));
    print(&format!("{name}: mounted at {folder} by {device}{log}\n"));
    Ok(())
}

/// The array that these words name, if it runs.
fn running(array: &[String]) -> Result<Option<Report>, MountError> {
    match client::find(array.first().map(String::as_str), None) {
        Ok(mut client) => {
            let report = client.status()?;
            client::check_words(&report, array)?;
            Ok(Some(report))
        }
        Err(ClientError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The array's file; without --read-only, one that can be written.
fn file_of(report: &Report, read_only: bool) -> Result<PathBuf, MountError> {
    let exports = report.server.iter().flat_map(|server| &server.exports);
    let mut files = exports.filter_map(|export| Some((export.file.clone()?, export.read_only)));
    match files.next() {
        None => Err(MountError::NoFile { array: report.name.clone() }),
        Some((_, true)) if !read_only => Err(MountError::ReadOnly { array: report.name.clone() }),
        Some((file, _)) => Ok(file.into()),
    }
}

/// The numbers of the partitions in the array's file, if it has a table.
fn partitions_of(array: &str, file: &str) -> Option<String> {
    let table = read_table(array, file).ok()?;
    let numbers: Vec<String> = table.partitions.iter().map(|found| found.number.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(", "))
}

/// Unmounts an array.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), MountError> {
    only_root("umount")?;
    let folder = mounted_folder(&args.folder)?;
    let mounts = Mounts::read()?;
    let source = mounts.source_at(&folder);
    let is_it = |record: &Record| record.folder == folder && source.is_none_or(|source| source == record.device);
    let Some((place, record)) = place::find(is_it)? else {
        let what = source.map_or("nothing".to_owned(), |source| source.display().to_string());
        return Err(MountError::NotOurs { path: args.folder.clone(), found: format!("{what} is mounted there") });
    };
    if let Some(other) = mounts.other_place_of(&record.device, &folder).filter(|_| source.is_some()) {
        let (path, device, other) = (args.folder.clone(), record.device, other.to_owned());
        return Err(MountError::MountedTwice { path, device, other });
    }
    if source.is_some() {
        system::umount(&folder)?;
    }
    if system::backing_file(&record.device).is_some_and(|file| is_of(&file, &record.file)) {
        system::detach(&record.device)?;
    }
    let done = match (record.has_server, stop_server_of(&record)?) {
        (false, _) => "the array still runs, as before `uraid mount`".to_owned(),
        (true, Some(name)) => format!("{name}: stopped"),
        (true, None) => "the server of the array had ended before".to_owned(),
    };
    place::remove(&place);
    print(&format!("{}: unmounted; {done}\n", folder.display()));
    Ok(())
}

/// Whether the kernel's path of a loop device's file is that of an array. When the server has ended, its mount is gone,
/// and the path begins there: `/home` for `/run/uraid/mount-5/files/home`.
fn is_of(backing: &Path, file: &Path) -> bool {
    backing == file || backing.parent() == Some(Path::new("/")) && backing.file_name() == file.file_name()
}

/// Stops the array, if `mount` has started its server. Its name; `None`: it does not run.
fn stop_server_of(record: &Record) -> Result<Option<String>, MountError> {
    if !record.has_server {
        return Ok(None);
    }
    let Some(report) = place::array_with_file_in(record.file.parent().unwrap_or(&record.file))? else {
        return Ok(None);
    };
    client::find(Some(&report.name), None)?.stop(true, false)?;
    Ok(Some(report.name))
}

fn only_root(command: &'static str) -> Result<(), MountError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(MountError::NotRoot { command }) }
}

fn whole_folder(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |text: String| MountError::NoFolder { path: path.to_owned(), text };
    let whole = std::fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
    if whole.is_dir() { Ok(whole) } else { Err(failed("is not a folder".to_owned())) }
}

/// A folder of which the file system may have lost its disk: it is not looked into.
fn mounted_folder(path: &Path) -> Result<PathBuf, MountError> {
    let above = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    match (std::fs::canonicalize(path), above, path.file_name()) {
        (Ok(whole), ..) => Ok(whole),
        (Err(error), Some(above), Some(name)) if error.kind() != io::ErrorKind::NotFound => {
            Ok(whole_folder(above)?.join(name))
        }
        (Err(error), ..) => Err(MountError::NoFolder { path: path.to_owned(), text: error.to_string() }),
    }
}
