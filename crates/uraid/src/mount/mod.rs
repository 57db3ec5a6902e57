//! `uraid mount` and `uraid umount`: from members to a mounted file system, and back.
//! Owns: the order of the steps, what is undone when one fails, the way that is taken. Not here: the record of a mount
//! and the server in the background (`mount::place`), the block device (`mount::disk`), mounts (`mount::system`), what an
//! array holds (`mount::content`).
//! Invariant: nothing stays of a mount that failed. An array that ran before `mount` runs after `umount`. A step of
//! `umount` that was done before, by hand or by an `umount` that was killed, is left out.
//!
//! ```text
//!   mount    the record -> members -> server in the background -> its file -> /dev/loopN -> DIR
//!                                                              or its socket -> /dev/nbdN
//!   umount   DIR -> the device -> the server, if `mount` has started it -> the record
//! ```

pub(crate) mod args;
mod content;
mod disk;
mod loop_device;
mod nbd;
mod place;
mod system;

use crate::shared::program::ProgramError;
use args::{MountArgs, UmountArgs};
use content::ArrayContent;
use disk::{Attached, Disk};
use place::{Made, Place};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use system::Mounts;
use uraid_control::client::{self, ClientError};
use uraid_control::log::{print, print_or_warn};
use uraid_control::member_name::NameError;
use uraid_control::report::Report;
use uraid_control::runtime::RuntimeError;
use uraid_host::Window;
use uraid_serve::background::BackgroundError;

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
    #[error(
        "{array}: runs without --fuse, so there is no file for a loop device, and no NBD driver either (nbd-client, the \
         module nbd): stop it, or serve it with --fuse FOLDER"
    )]
    NoFile {
        /// Its name.
        array: String,
    },
    /// Neither FUSE nor NBD.
    #[error(
        "this kernel has neither /dev/fuse (module fuse) nor an NBD driver with its client (module nbd, package \
         nbd-client); expected one of them"
    )]
    NoWay,
    /// --nbd without what it needs.
    #[error(
        "--nbd: found no NBD driver in this kernel, or no nbd-client; expected the module nbd and the package nbd-client"
    )]
    NoNbd,
    /// Clients that may write are connected. Two file systems on the same bytes would destroy each other.
    #[error("{array}: {} to the server by NBD, too, and may use the array: disconnect first", clients_text(*count))]
    Clients {
        /// Its name.
        array: String,
        /// How many others.
        count: u64,
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
    #[error(transparent)]
    Program(#[from] ProgramError),
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
    /// mount(8) refused, and there is nothing that is known.
    #[error(
        "{array} holds no file system that is known. To make one: `uraid serve --background --fuse FOLDER MEMBER...`, \
         `losetup --find --show --direct-io=on FOLDER/{array}`, mkfs on that loop device, `losetup --detach` it, \
         `uraid stop {array}` ({why})"
    )]
    NoFileSystem {
        /// Its name.
        array: String,
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
    Runtime(#[from] RuntimeError),
    /// The server could not be started.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// A running array could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

fn clients_text(count: u64) -> String {
    if count == 1 { "another client is connected".to_owned() } else { format!("{count} other clients are connected") }
}

fn used_at(place: Option<&Path>) -> String {
    match place {
        Some(place) => format!(", mounted at {}: unmount that first, or use it there (mount --bind)", place.display()),
        None => ": mount that one, or detach it with losetup -d".to_owned(),
    }
}

/// How an array becomes a block device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// A file of `--fuse`, and a loop device on it.
    Files,
    /// The kernel's NBD driver.
    Nbd,
}

impl Way {
    /// The one that the operator wants, or the array allows, or the kernel has.
    fn choose(running: Option<&Report>, args: &MountArgs) -> Result<Way, MountError> {
        let has_file = |report: &Report| {
            report.server.iter().flat_map(|server| &server.exports).any(|export| export.file.is_some())
        };
        match running {
            _ if args.nbd && nbd::is_available() => Ok(Way::Nbd),
            _ if args.nbd => Err(MountError::NoNbd),
            Some(report) if has_file(report) => Ok(Way::Files),
            Some(_) if nbd::is_available() => Ok(Way::Nbd),
            Some(report) => Err(MountError::NoFile { array: report.name.clone() }),
            None if File::open("/dev/fuse").is_ok() => Ok(Way::Files),
            None if nbd::is_available() => Ok(Way::Nbd),
            None => Err(MountError::NoWay),
        }
    }
}

/// Mounts an array.
pub(crate) fn mount(args: &MountArgs) -> Result<(), MountError> {
    only_root("mount")?;
    let (array, folder) = args.array_and_folder().ok_or(MountError::OneWord)?;
    let folder = whole_folder(&folder).map_err(|error| in_order(array, error))?;
    let mut place = Place::new(&folder)?;
    if let Some(device) = Mounts::read()?.source_at(&folder)
        && place::has_mounted(device, &folder)?
    {
        return Err(MountError::Taken { path: folder, device: device.to_owned() });
    }
    let running = running(array)?;
    let way = Way::choose(running.as_ref(), args)?;
    let (report, has_server) = match running {
        Some(report) => (report, false),
        None => (place.serve(array, way, args)?, true),
    };
    let (disk, content) = match way {
        Way::Files => by_file(&report, &mut place, args)?,
        Way::Nbd => by_nbd(&report, has_server, args)?,
    };
    place.set_disk(disk.disk().clone())?;
    let device = disk.disk().mounted.clone();
    system::mount(&device, &folder, args).map_err(|why| content.why_not(why, args))?;
    disk.keep();
    let log = place.keep();
    let log = if has_server { format!("; its log is {}", log.display()) } else { String::new() };
    print_or_warn(&format!("{}: mounted at {} by {}{log}\n", report.name, folder.display(), device.display()));
    Ok(())
}

/// A loop device on the array's file.
fn by_file(report: &Report, place: &mut Place, args: &MountArgs) -> Result<(Attached, ArrayContent), MountError> {
    let file = file_of(report, args.read_only)?;
    let content = ArrayContent { name: report.name.clone(), path: file.clone() };
    let window = args.partition.map(|number| content.window(number)).transpose()?;
    let disk = Disk::attach_loop(&file, window, args.read_only, |disk| place.set_disk(disk))?;
    // After our own is attached: of two `uraid mount` at once, none may miss the other.
    not_in_use(report, &file, window, &disk.disk().device)?;
    no_other_clients(report, 0)?;
    Ok((disk, content))
}

/// A device of the kernel's NBD driver. A server that this process has started has its default memory.
fn by_nbd(report: &Report, has_server: bool, args: &MountArgs) -> Result<(Attached, ArrayContent), MountError> {
    let array = report.name.clone();
    let server = report.server.as_ref();
    let (uris, exports) = server.map(|server| (&*server.uris, &*server.exports)).unwrap_or_default();
    if !args.read_only && exports.iter().any(|export| export.read_only) {
        return Err(MountError::ReadOnly { array });
    }
    let Some(uri) = uris.iter().find(|uri| uri.starts_with("nbd+unix:")).or(uris.first()) else {
        return Err(MountError::NoFile { array });
    };
    let mut disk = Disk::attach_nbd(uri, args.read_only, has_server)?;
    // As above.
    for file in exports.iter().filter_map(|export| export.file.as_ref()) {
        not_in_use(report, Path::new(file), None, &disk.disk().device)?;
    }
    no_other_clients(report, 1)?;
    let content = ArrayContent { name: array, path: disk.disk().device.clone() };
    if let Some(number) = args.partition {
        content.window(number)?;
        disk.take_partition(number)?;
    }
    Ok((disk, content))
}

/// Refuses an array of which more NBD clients are connected than our own: one may have a file system on it. Clients of a
/// server with several arrays cannot be told apart.
fn no_other_clients(report: &Report, own: u64) -> Result<(), MountError> {
    let now = client::find(Some(&report.own_word()), None)?.status()?;
    let clients = now.clients.filter(|clients| clients.exports == 1);
    let count = clients.map_or(0, |clients| clients.connected.saturating_sub(own));
    if count > 0 { Err(MountError::Clients { array: report.name.clone(), count }) } else { Ok(()) }
}

/// Refuses bytes that another loop device has.
fn not_in_use(report: &Report, file: &Path, window: Option<Window>, own: &Path) -> Result<(), MountError> {
    let Some(device) = loop_device::other_user_of(file, window, own)? else { return Ok(()) };
    let place = Mounts::read()?.place_of(&device).map(Path::to_owned);
    Err(MountError::InUse { array: report.name.clone(), device, place })
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

/// Unmounts an array.
pub(crate) fn umount(args: &UmountArgs) -> Result<(), MountError> {
    only_root("umount")?;
    let folder = mounted_folder(&args.folder)?;
    let mounts = Mounts::read()?;
    let source = mounts.source_at(&folder);
    let mut made = place::made_at(&folder)?;
    if let Some(source) = source {
        made.retain(|made| made.record.disk.as_ref().is_some_and(|disk| disk.mounted == source && disk.is_attached()));
    }
    // Elsewhere, also by hand, when nothing is mounted here any more.
    for disk in made.iter().filter_map(|made| made.record.disk.as_ref()).filter(|disk| disk.is_attached()) {
        if let Some(other) = mounts.other_place_of(&disk.mounted, &folder) {
            let (path, device, other) = (args.folder.clone(), disk.mounted.clone(), other.to_owned());
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

/// Detaches the device of a mount, and stops the server that it has started. Says what became of the server.
fn undo(mut made: Made) -> Result<String, MountError> {
    if let Some(disk) = made.record.disk.as_ref().filter(|disk| disk.is_attached()) {
        disk.detach()?;
    }
    let owner = made.owner();
    let done = match (made.record.has_server, made.array()?) {
        (false, _) => match owner {
            // The mount that has started the server is gone, and left it for this one.
            Some(owner) if owner.other_users()?.is_empty() => undo(owner)?,
            Some(_) | None => "the array still runs, as before `uraid mount`".to_owned(),
        },
        (true, None) => "the server of the array had ended before".to_owned(),
        (true, Some(report)) => {
            if let Some(other) = made.other_users()?.first() {
                made.unmounted()?;
                return Ok(format!("{} runs on for {}", report.name, other.display()));
            }
            client::find(Some(&report.own_word()), None)?.stop(true, false)?;
            format!("{}: stopped", report.name)
        }
    };
    made.remove();
    Ok(done)
}

fn only_root(command: &'static str) -> Result<(), MountError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(MountError::NotRoot { command }) }
}

/// The same error, and where the folder belongs if one of the other words is one.
fn in_order(others: &[String], error: MountError) -> MountError {
    match (others.iter().find(|other| Path::new(other).is_dir()), error) {
        (Some(folder), MountError::NoFolder { path, text }) => {
            let text = format!("{text}, and {folder} is one: the folder comes last");
            MountError::NoFolder { path, text }
        }
        (_, error) => error,
    }
}

fn whole_folder(path: &Path) -> Result<PathBuf, MountError> {
    let failed = |text: String| MountError::NoFolder { path: path.to_owned(), text };
    let whole = std::fs::canonicalize(path).map_err(|error| failed(uraid_host::io_text(&error)))?;
    match std::fs::metadata(&whole) {
        Ok(status) if status.is_dir() => Ok(whole),
        Ok(_) => Err(failed("is not a folder".to_owned())),
        Err(error) => Err(failed(format!(
            "{}; if a file system without its disk is mounted there, unmount it",
            uraid_host::io_text(&error)
        ))),
    }
}

/// A folder of which the file system may have lost its disk: it is not looked into.
fn mounted_folder(path: &Path) -> Result<PathBuf, MountError> {
    let above = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    match (std::fs::canonicalize(path), above, path.file_name()) {
        (Ok(whole), ..) => Ok(whole),
        (Err(error), Some(above), Some(name)) if error.kind() != io::ErrorKind::NotFound => {
            Ok(whole_folder(above)?.join(name))
        }
        (Err(error), ..) => Err(MountError::NoFolder { path: path.to_owned(), text: uraid_host::io_text(&error) }),
    }
}
