//! `uraid mount` and `uraid umount`: from members to a mounted file system, and back.
//! Owns: the order of the steps, what is undone when one fails. Not here: the record of a mount and the server in the
//! background (`mount::place`), loop devices and mounts (`mount::system`), the array as a file (`files`).
//! Invariant: nothing stays of a mount that failed. An array that ran before `mount` runs after `umount`. A step of
//! `umount` that was done before, by hand or by an `umount` that was killed, is left out.
//!
//! ```text
//!   mount    the record -> members -> server in the background -> its file -> /dev/loopN -> DIR
//!   umount   DIR -> /dev/loopN -> the server, if `mount` has started it -> the record
//! ```

mod place;
mod system;

use crate::cli::{MountArgs, UmountArgs};
use crate::client::{self, ClientError};
use crate::doctor;
use crate::log::print;
use crate::member_name::{NameError, find_partition, read_table};
use crate::report::Report;
use place::{Disk, Made, Place};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use system::{LoopDevice, Mounts};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_doctor::Content;
use uraid_host::Window;

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
    /// The array or the folder is missing.
    #[error("mount: found one word; expected an array, or its members, and the folder to mount it at")]
    OneWord,
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
    /// mount(8) refused what is not known as a file system.
    #[error("{why}; {array} holds {found}")]
    Holds {
        /// Its name.
        array: String,
        /// What is there.
        found: String,
        /// What mount(8) said.
        why: Box<MountError>,
    },
    /// The partition table is that of a larger disk, or damaged.
    #[error("{array}: partition {number} ends past the {sectors} sectors of the array")]
    PastEnd {
        /// Its name.
        array: String,
        /// The partition.
        number: u32,
        /// The size of the array.
        sectors: u64,
    },
    /// DIR is in use.
    #[error("{}: {} is mounted there by `uraid mount`: `uraid umount` it first", path.display(), device.display())]
    Taken {
        /// The folder.
        path: PathBuf,
        /// The loop device.
        device: PathBuf,
    },
    /// Another process works on the same mount.
    #[error("{}: another `uraid mount` or `umount` is at work on it; try again when that has ended", path.display())]
    AtWork {
        /// The folder.
        path: PathBuf,
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
    let (array, folder) = args.array_and_folder().ok_or(MountError::OneWord)?;
    let folder = whole_folder(&folder)?;
    if let Some(device) = Mounts::read()?.source_at(&folder)
        && place::has_mounted(device, &folder)?
    {
        return Err(MountError::Taken { path: folder, device: device.to_owned() });
    }
    let mut place = Place::new(&folder)?;
    let (report, has_server) = match running(array)? {
        Some(report) => (report, false),
        None => (place.serve(array, args)?, true),
    };
    let file = file_of(&report, args.read_only)?;
    let on_array = OnArray { name: &report.name, file: &file };
    let window = args.partition.map(|number| on_array.window(number)).transpose()?;
    let device = LoopDevice::attach(&file, window, args.read_only)?;
    // After our own is attached: of two `uraid mount` at once, none may miss the other.
    if let Some(device) = system::other_user_of(&file, window, device.path()) {
        let place = Mounts::read()?.place_of(&device).map(Path::to_owned);
        return Err(MountError::InUse { array: report.name, device, place });
    }
    place.set_disk(Disk { device: device.path().to_owned(), file: file.clone() })?;
    system::mount(device.path(), &folder, args).map_err(|why| on_array.why_not(why, args))?;
    let (device, log) = (device.keep(), place.keep());
    let log = if has_server { format!("; its log is {}", log.display()) } else { String::new() };
    print(&format!("{}: mounted at {} by {}{log}\n", report.name, folder.display(), device.display()));
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

/// The file of an array that runs.
struct OnArray<'a> {
    name: &'a str,
    file: &'a Path,
}

impl OnArray<'_> {
    fn file(&self) -> String {
        self.file.to_string_lossy().into_owned()
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(self.file).map_or(0, |status| status.len())
    }

    /// The bytes of a partition.
    fn window(&self, number: u32) -> Result<Window, MountError> {
        let window = find_partition(self.name, &self.file(), number)?;
        let end = window.length.and_then(|length| window.offset.checked_add(length));
        if end.is_some_and(|end| end <= self.bytes()) {
            return Ok(window);
        }
        let sectors = self.bytes() / SECTOR_BYTES as u64;
        Err(MountError::PastEnd { array: self.name.to_owned(), number, sectors })
    }

    /// Why mount(8) refused, with what is there.
    fn why_not(&self, why: MountError, args: &MountArgs) -> MountError {
        let why = Box::new(why);
        match (self.partitions(), args.partition) {
            (Some(numbers), None) => MountError::Whole { array: self.name.to_owned(), numbers, why },
            (_, partition) => match self.content(partition) {
                Some(found) => MountError::Holds { array: self.name.to_owned(), found, why },
                None => *why,
            },
        }
    }

    /// The numbers of its partitions, if it has a table.
    fn partitions(&self) -> Option<String> {
        let table = read_table(self.name, &self.file()).ok()?;
        let numbers: Vec<String> = table.partitions.iter().map(|found| found.number.to_string()).collect();
        (!numbers.is_empty()).then(|| numbers.join(", "))
    }

    /// What it, or a partition of it, holds; `None`: a file system that mount(8) has seen as well, or it is unreadable.
    fn content(&self, partition: Option<u32>) -> Option<String> {
        let whole = Window { offset: 0, length: Some(self.bytes()) };
        let window = partition.map_or(Some(whole), |number| self.window(number).ok())?;
        let sectors = |bytes: u64| bytes / SECTOR_BYTES as u64;
        let (start, length) = (Sector(sectors(window.offset)), Sectors(sectors(window.length?)));
        let file = std::fs::File::open(self.file).ok()?;
        let size = Sectors(sectors(self.bytes()));
        match doctor::content(size, start, length, &mut |at, into| file.read_exact_at(into, at)) {
            Content::Other(text) => Some(text.to_owned()),
            Content::Unknown => Some("nothing that is known; mkfs makes a file system".to_owned()),
            Content::FileSystem(_) | Content::Unreadable(_) => None,
        }
    }
}

/// Unmounts an array.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), MountError> {
    only_root("umount")?;
    let folder = mounted_folder(&args.folder)?;
    let mounts = Mounts::read()?;
    let source = mounts.source_at(&folder);
    let mut made = place::made_at(&folder)?;
    if let Some(source) = source {
        made.retain(|made| made.record.disk.as_ref().is_some_and(|disk| disk.device == source && disk.is_attached()));
        if let Some(other) = mounts.other_place_of(source, &folder).filter(|_| !made.is_empty()) {
            let (path, device, other) = (args.folder.clone(), source.to_owned(), other.to_owned());
            return Err(MountError::MountedTwice { path, device, other });
        }
    }
    if made.is_empty() {
        let what = source.map_or("nothing".to_owned(), |source| source.display().to_string());
        return Err(MountError::NotOurs { path: args.folder.clone(), found: format!("{what} is mounted there") });
    }
    if source.is_some() {
        system::umount(&folder)?;
    }
    for made in made {
        let done = undo(made)?;
        print(&format!("{}: unmounted; {done}\n", folder.display()));
    }
    Ok(())
}

/// Detaches the loop device of a mount, and stops the server that it has started. Says what became of the server.
fn undo(made: Made) -> Result<String, MountError> {
    if let Some(disk) = made.record.disk.as_ref().filter(|disk| disk.is_attached()) {
        system::detach(&disk.device)?;
    }
    let done = match (made.record.has_server, made.array()?) {
        (false, _) => "the array still runs, as before `uraid mount`".to_owned(),
        (true, None) => "the server of the array had ended before".to_owned(),
        (true, Some(report)) => {
            client::find(Some(&report.name), None)?.stop(true, false)?;
            format!("{}: stopped", report.name)
        }
    };
    made.remove();
    Ok(done)
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
