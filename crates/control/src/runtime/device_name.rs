//! The device names of running arrays: `md127`, `md126`, ..., as the kernel and mdadm call theirs.
//! Owns: [`DeviceName`]: which number an array gets, and that no other server has it; the map, which remembers it.
//! Not here: names that people give (`names`).
//! Invariant: no two running arrays of this system have one name, whoever serves them, and none has that of an array of
//! the kernel's.
//!
//! A name is taken by binding an abstract socket, `@uraid/md127`: the kernel lets only one process do so, whichever user
//! runs it and wherever its files are, and frees it when the process ends. The map is a file in the runtime directory,
//! with mdadm's lines:
//!
//! ```text
//!   md127 1.2 c9d3d9fb:39864ae6:b6437b7f:7b65dc9f /dev/md/home
//! ```
//!
//! So an array has the same name when it is served again, and its name is left to it meanwhile.

use crate::runtime;
use crate::words::names;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use uraid_format::uuid;

/// The file in the runtime directory.
const MAP: &str = ".map";
/// Numbers in the order in which mdadm gives them.
const MDADM: [std::ops::RangeInclusive<u32>; 2] = [0..=127, 128..=511];
/// The highest that the kernel has.
const NUMBER_MAX: u32 = (1 << 20) - 1;

/// A name that a running array has for as long as this exists.
pub struct DeviceName {
    number: u32,
    /// `None` where the system has no such sockets: then only the map keeps names apart.
    _claim: Option<OwnedFd>,
}

/// What the map says of one array.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    number: u32,
    metadata: String,
    uuid: String,
    path: String,
}

/// An array that is to get a name.
pub struct Named<'a> {
    /// Its name without the host.
    pub name: &'a str,
    /// The version of its superblocks.
    pub metadata: &'static str,
    /// Its UUID.
    pub uuid: [u8; 16],
}

impl DeviceName {
    /// Takes a name: the one that the array had, or the number that is its name, or the next one that is free. Where the
    /// map cannot be read or written, the name is taken all the same, and an error says why the map does not know it.
    pub fn take(array: &Named) -> (DeviceName, Option<io::Error>) {
        match runtime::make() {
            Ok(directory) => DeviceName::take_in(&directory, array, &|number| claim(number)),
            Err(error) => (first_free(&wanted(array, &[]), &|number| claim(number)), Some(io::Error::other(error))),
        }
    }

    /// Records that an array is to have this name (`md5`) when it is served, if it is free then. What is no such name is
    /// not recorded.
    pub fn record(array: &Named, name: &str) -> io::Result<()> {
        let Some(number) = number(name) else { return Ok(()) };
        let directory = runtime::make().map_err(io::Error::other)?;
        let folder = File::open(&directory)?;
        flock(&folder, FlockOperation::LockExclusive)?;
        let path = directory.join(MAP);
        let entries = match read(&path) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        write(&path, &entries, array, number)
    }

    fn take_in(
        directory: &Path,
        array: &Named,
        claim: &dyn Fn(u32) -> Option<DeviceName>,
    ) -> (DeviceName, Option<io::Error>) {
        // Others wait until the map is written.
        let locked = File::open(directory).and_then(|folder| {
            flock(&folder, FlockOperation::LockExclusive)?;
            Ok(folder)
        });
        let path = directory.join(MAP);
        let (entries, unread) = match read(&path) {
            Ok(text) => (parse(&text), None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let name = first_free(&wanted(array, &entries), claim);
        let written = write(&path, &entries, array, name.number);
        let error = locked.err().or(unread).or(written.err());
        (name, error)
    }

    /// `md127`
    pub fn text(&self) -> String {
        text(self.number)
    }
}

/// `md127`
fn text(number: u32) -> String {
    format!("md{number}")
}

/// The number of `md127`.
fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("md")?;
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|number| is_plain && *number <= NUMBER_MAX)
}

/// The numbers for an array, the best first: what a name such as `md0` says, what the map has for it, what a name such as
/// `0` says, those that no other array has had, and then the others.
fn wanted(array: &Named, entries: &[Entry]) -> Vec<u32> {
    let own = uuid::text(&array.uuid);
    let device = number(array.name);
    let recorded = entries.iter().filter(|entry| entry.uuid == own).map(|entry| entry.number);
    let by_name = number(array.name).or_else(|| number(&format!("md{}", array.name)));
    let others: Vec<u32> = entries.iter().filter(|entry| entry.uuid != own).map(|entry| entry.number).collect();
    let all = || MDADM.into_iter().flat_map(Iterator::rev);
    let (left, fresh): (Vec<u32>, Vec<u32>) = all().partition(|number| others.contains(number));
    device
        .into_iter()
        .chain(recorded)
        .chain(by_name.filter(|number| !others.contains(number)))
        .chain(fresh)
        .chain(left)
        .collect()
}

/// The first of these numbers that can be had, or the next one above them.
fn first_free(wanted: &[u32], claim: &dyn Fn(u32) -> Option<DeviceName>) -> DeviceName {
    let more = MDADM[1].end() + 1..=NUMBER_MAX;
    let found = wanted.iter().copied().chain(more).find_map(claim);
    found.expect("a system has fewer arrays than the kernel has numbers")
}

/// Takes a number, if neither the kernel nor another server has it.
fn claim(number: u32) -> Option<DeviceName> {
    if Path::new("/sys/block").join(text(number)).exists() {
        return None;
    }
    let bound = || -> Result<OwnedFd, Errno> {
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        net::bind(&socket, &SocketAddrUnix::new_abstract_name(format!("uraid/{}", text(number)).as_bytes())?)?;
        Ok(socket)
    };
    match bound() {
        Ok(socket) => Some(DeviceName { number, _claim: Some(socket) }),
        Err(Errno::ADDRINUSE) => None,
        Err(_) => Some(DeviceName { number, _claim: None }),
    }
}

/// The map's text. What is no file is not opened: opening a FIFO would wait for its other end.
fn read(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other(NotAFile));
    }
    fs::read_to_string(path)
}

/// Something else has the map's name.
#[derive(Debug, thiserror::Error)]
#[error("{MAP} in the runtime directory is not a file: remove it")]
struct NotAFile;

/// The lines of the map that are good.
fn parse(text: &str) -> Vec<Entry> {
    let entry = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (name, metadata, uuid, path) = (words.next()?, words.next()?, words.next()?, words.next()?);
        uuid::parse(uuid)?;
        Some(Entry { number: number(name)?, metadata: metadata.into(), uuid: uuid.into(), path: path.into() })
    };
    text.lines().filter_map(entry).collect()
}

/// Writes the map with this array's number: a whole new file, then its name. What is no file stays as it is.
fn write(path: &Path, entries: &[Entry], array: &Named, number: u32) -> io::Result<()> {
    let own = uuid::text(&array.uuid);
    let path_of = format!("/dev/md/{}", names::conf_file(&names::printable(array.name)));
    let entry = Entry { number, metadata: array.metadata.to_owned(), uuid: own.clone(), path: path_of };
    if entries.contains(&entry) || fs::metadata(path).is_ok_and(|status| !status.is_file()) {
        return Ok(());
    }
    let others = entries.iter().filter(|other| other.uuid != own && other.number != number);
    let line = |it: &Entry| format!("{} {} {} {}\n", text(it.number), it.metadata, it.uuid, it.path);
    let content: String = others.map(line).chain([line(&entry)]).collect();
    let fresh = path.with_file_name(format!("{MAP}.new"));
    // Only the holder of the lock is here: what is there was left by a crash, or is something that cannot be written to.
    let _ = fs::remove_file(&fresh);
    let written = File::create_new(&fresh).and_then(|mut file| file.write_all(content.as_bytes()));
    written.and_then(|()| fs::rename(&fresh, path)).inspect_err(|_| drop(fs::remove_file(&fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    /// An empty folder, which is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("uraid-device-name-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("room");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn named(name: &str, uuid: u8) -> Named<'_> {
        Named { name, metadata: "1.2", uuid: [uuid; 16] }
    }

    /// A system on which these numbers are taken, and those that are claimed.
    fn system(taken: &[u32]) -> impl Fn(u32) -> Option<DeviceName> {
        let taken = RefCell::new(taken.iter().copied().collect::<BTreeSet<u32>>());
        move |number| taken.borrow_mut().insert(number).then_some(DeviceName { number, _claim: None })
    }

    #[test]
    fn names_are_given_as_by_mdadm_and_kept() {
        let folder = Folder::new("kept");
        let take = |array: &Named, claim: &dyn Fn(u32) -> Option<DeviceName>| {
            let (name, error) = DeviceName::take_in(&folder.0, array, claim);
            assert!(error.is_none(), "{error:?}");
            name.text()
        };
        let now = system(&[126]);
        let names =
            [("home", 1), ("root", 2), ("0", 3), ("md7", 4), ("007", 5)].map(|(it, n)| take(&named(it, n), &now));
        assert_eq!(names, ["md127", "md125", "md0", "md7", "md124"]);
        // All are served again, in another order, and one is new.
        let again = system(&[]);
        let names = [("new", 9), ("md7", 4), ("root", 2), ("home", 1)].map(|(it, n)| take(&named(it, n), &again));
        assert_eq!(names, ["md126", "md7", "md125", "md127"]);
        // Another has taken it meanwhile; it keeps the one that it gets instead.
        assert_eq!(take(&named("home", 1), &system(&[127])), "md123");
        assert_eq!(take(&named("home", 1), &system(&[])), "md123");
        let map = fs::read_to_string(folder.0.join(MAP)).expect("it is written");
        assert_eq!(map.lines().count(), 6, "{map}");
        // One that is called by a device gets that number, whatever it had.
        assert_eq!(take(&named("md9", 1), &system(&[])), "md9");
        assert_eq!(take(&named("home", 1), &system(&[])), "md9");
        assert_eq!(take(&named("home", 1), &system(&[9])), "md127", "free again");
        assert!(map.contains("md123 1.2 01010101:01010101:01010101:01010101 /dev/md/home\n"), "{map}");
    }

    #[test]
    fn a_name_is_had_once_on_this_system() {
        let array = named("device-name-test", 77);
        let folders = ["one", "other"].map(Folder::new);
        let take = |at: usize| DeviceName::take_in(&folders[at].0, &array, &claim).0;
        let (one, other) = (take(0), take(1));
        assert_ne!(one.text(), other.text());
        let before = one.text();
        drop(one);
        assert_eq!(take(0).text(), before, "it is free again, and recorded");
    }

    #[test]
    fn a_map_that_is_no_map_does_no_harm() {
        let folder = Folder::new("bad");
        let content =
            "md127 1.2 zz /dev/md/a\n\nmd0012 1.2 01010101:01010101:01010101:01010101 /x\nmd4294967296 a b c\n";
        fs::write(folder.0.join(MAP), content).expect("room");
        let (name, error) = DeviceName::take_in(&folder.0, &named("home", 1), &system(&[]));
        assert_eq!((name.text().as_str(), error.is_none()), ("md127", true));
        fs::remove_file(folder.0.join(MAP)).expect("it is there");
        let take = || {
            let (name, error) = DeviceName::take_in(&folder.0, &named("home", 1), &system(&[]));
            assert_eq!(name.text(), "md127", "named all the same");
            error.map(|error| error.to_string())
        };
        let refused = Some(NotAFile.to_string());
        fs::create_dir(folder.0.join(MAP)).expect("room");
        assert_eq!(take(), refused);
        fs::remove_dir(folder.0.join(MAP)).expect("it stays");
        let socket = UnixListener::bind(folder.0.join(MAP)).expect("a short path");
        assert_eq!(take(), refused);
        drop(socket);
        fs::remove_file(folder.0.join(MAP)).expect("it stays");
        let fifo = |name: &str| mknodat(CWD, folder.0.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        fifo(MAP).expect("a FIFO");
        assert_eq!(take(), refused, "it does not wait for the other end");
        fs::remove_file(folder.0.join(MAP)).expect("it stays");
        fifo(".map.new").expect("a FIFO");
        assert_eq!(take(), None, "what a crash may leave there does not matter");
        assert_eq!(
            [number("md0"), number("md127"), number("md00"), number("md-1"), number("md")],
            [Some(0), Some(127), None, None, None]
        );
    }
}
