//! Which files a configuration has, and reading them.
//! Owns: the places, `.d` folders, who may write the files, how large they may be. Not here: what they say (`reader`).
//! Invariant: a file that others could have written is not read, and no file keeps the others from being read.
//!
//! ```text
//!   root            /etc/mdadm.conf, else /etc/mdadm/mdadm.conf; then /etc/mdadm.conf.d/*.conf, else /etc/mdadm/mdadm.conf.d/*.conf
//!   another user    $XDG_CONFIG_HOME/uraid/mdadm.conf, else ~/.config/uraid/mdadm.conf; then its mdadm.conf.d/*.conf
//!   --config        a file; a folder, all of its *.conf; `partitions`: no file, all block devices; `none`: no file
//! ```

use crate::Config;
use crate::complaint::{Complaint, Place, Problem};
use crate::reader::{Reader, Seen};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The most bytes of a file.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The most files of a folder.
const FILES_MAX: usize = 1000;
/// What only the owner should be able to change.
const WRITABLE: u32 = 0o022;

/// What is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The files of this user.
    Default,
    /// This file, or the files of this folder.
    Path(PathBuf),
    /// No file, and all block devices.
    Partitions,
    /// No file.
    None,
}

impl Choice {
    /// By the value of `--config`; without one, by `URAID_CONFIG` in the environment.
    pub fn of(option: Option<&OsStr>) -> Choice {
        let variable = std::env::var_os("URAID_CONFIG").filter(|value| !value.is_empty());
        match option.or(variable.as_deref()) {
            None => Choice::Default,
            Some(word) if word == "partitions" => Choice::Partitions,
            Some(word) if word == "none" => Choice::None,
            Some(path) => Choice::Path(path.into()),
        }
    }
}

/// Reads the configuration. It always gives one: what cannot be read is in its complaints.
pub fn read(choice: &Choice) -> Config {
    let mut config = Config::default();
    let mut seen = Seen::default();
    for (file, must_be) in files(choice, &mut config.complaints) {
        match text(&file) {
            Ok(Some(text)) => {
                config.files.push(file.clone());
                Reader::new(&mut config, &file, &mut seen).read(&text);
            }
            Ok(None) if must_be => {
                let reason = "not found".to_owned();
                config.complaints.push(whole(&file, Problem::Read { reason }));
            }
            Ok(None) => {}
            Err(problem) => config.complaints.push(whole(&file, problem)),
        }
    }
    if let Some(line) = std::env::var_os("MDADM_CONF_AUTO") {
        config.put_auto_in_front(&line.to_string_lossy());
    }
    if *choice == Choice::Partitions {
        config.devices = vec!["partitions".to_owned()];
    }
    config
}

impl Config {
    fn put_auto_in_front(&mut self, line: &str) {
        let mut problems = Vec::new();
        let first = crate::Auto::of(&crate::words(line), &mut |problem| problems.push(problem));
        let of = Path::new("$MDADM_CONF_AUTO");
        self.complaints.extend(problems.into_iter().map(|problem| whole(of, problem)));
        self.auto = std::mem::take(&mut self.auto).behind(first);
    }
}

fn whole(file: &Path, problem: Problem) -> Complaint {
    Complaint { at: Place { file: file.to_owned(), line: None }, problem }
}

/// The files in their order, and whether it is a fault that one is missing.
fn files(choice: &Choice, complaints: &mut Vec<Complaint>) -> Vec<(PathBuf, bool)> {
    let (candidates, must_be) = match choice {
        Choice::Partitions | Choice::None => return Vec::new(),
        Choice::Path(path) if path.is_dir() => return in_folder(path, complaints),
        Choice::Path(path) => return vec![(path.clone(), true)],
        Choice::Default => (default_files(), false),
    };
    // What cannot be looked at is not passed over: reading it tells why.
    let is_there = |path: &&PathBuf| !path.symlink_metadata().is_err_and(|error| is_missing(&error));
    let mut found: Vec<(PathBuf, bool)> =
        candidates.iter().find(is_there).map(|file| (file.clone(), must_be)).into_iter().collect();
    let folders: Vec<PathBuf> = candidates.iter().map(|file| file.with_extension("conf.d")).collect();
    if let Some(folder) = folders.iter().find(is_there) {
        found.extend(in_folder(folder, complaints));
    }
    found
}

fn default_files() -> Vec<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return vec![PathBuf::from("/etc/mdadm.conf"), PathBuf::from("/etc/mdadm/mdadm.conf")];
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder =
        set("XDG_CONFIG_HOME").filter(|path| path.is_absolute()).or_else(|| Some(set("HOME")?.join(".config")));
    folder.map(|folder| folder.join("uraid/mdadm.conf")).into_iter().collect()
}

/// The files of a folder that end in `.conf`, in the order of their names.
fn in_folder(folder: &Path, complaints: &mut Vec<Complaint>) -> Vec<(PathBuf, bool)> {
    let entries = fs::metadata(folder).map_err(read_problem).and_then(|status| {
        may_be_read(&status)?;
        fs::read_dir(folder).map_err(read_problem)
    });
    let entries = match entries {
        Ok(entries) => entries,
        Err(problem) => {
            complaints.push(whole(folder, problem));
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.ends_with(b".conf") && !name.starts_with(b".") {
            files.push(entry.path());
        }
    }
    files.sort();
    if files.len() > FILES_MAX {
        complaints.push(whole(folder, Problem::TooManyFiles { max: FILES_MAX }));
        files.truncate(FILES_MAX);
    }
    files.into_iter().map(|file| (file, true)).collect()
}

/// The text of a file; `None`: there is none.
fn text(path: &Path) -> Result<Option<String>, Problem> {
    if path == Path::new("/dev/null") {
        return Ok(Some(String::new()));
    }
    // A FIFO would keep this process waiting for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) if path.symlink_metadata().is_err() => return Ok(None),
        Err(errno) => return Err(read_problem(errno.into())),
    };
    let status = file.metadata().map_err(read_problem)?;
    let kind = status.file_type();
    if kind.is_fifo() || kind.is_socket() || !kind.is_file() {
        return Err(Problem::NotAFile);
    }
    may_be_read(&status)?;
    let large = |bytes| Problem::TooLarge { bytes, max: FILE_BYTES_MAX };
    if status.len() > FILE_BYTES_MAX {
        return Err(large(status.len()));
    }
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let count = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(read_problem)? as u64;
    if count > FILE_BYTES_MAX {
        return Err(large(count));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Only its owner may have written it, and that is this user or root.
fn may_be_read(status: &Metadata) -> Result<(), Problem> {
    let own = rustix::process::geteuid().as_raw();
    if status.uid() != own && status.uid() != 0 {
        return Err(Problem::Owner { owner: status.uid(), own });
    }
    let mode = status.mode() & 0o7777;
    if mode & WRITABLE != 0 {
        return Err(Problem::Writable { mode });
    }
    Ok(())
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn read_problem(error: io::Error) -> Problem {
    let reason = match error.raw_os_error() {
        // Without the number that the system's text ends with.
        Some(number) => error.to_string().replace(&format!(" (os error {number})"), "").to_lowercase(),
        None => error.to_string(),
    };
    Problem::Read { reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Folder {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("uraid-config-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("room");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
            Folder(path)
        }

        fn write(&self, name: &str, text: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).expect("room");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn problems(config: &Config) -> Vec<&Problem> {
        config.complaints.iter().map(|complaint| &complaint.problem).collect()
    }

    #[test]
    fn the_files_of_a_folder_are_read_in_the_order_of_their_names() {
        let folder = Folder::new();
        folder.write("20.conf", b"MAILADDR second\nDEVICE b\n");
        folder.write("10.conf", b"MAILADDR first\nDEVICE a\n");
        folder.write(".30.conf", b"DEVICE hidden\n");
        folder.write("40.conf~", b"DEVICE backup\n");
        let config = read(&Choice::Path(folder.0.clone()));
        assert_eq!(config.devices, ["a", "b"]);
        assert_eq!(config.mail_address.as_deref(), Some("first"));
        assert_eq!(problems(&config), [&Problem::Second { keyword: "MAILADDR" }]);
        assert_eq!(config.files.len(), 2);
    }

    #[test]
    fn a_file_that_cannot_be_read_keeps_no_other_from_being_read() {
        let folder = Folder::new();
        let loops = folder.0.join("10.conf");
        symlink(&loops, &loops).expect("room");
        symlink(folder.0.join("nowhere"), folder.0.join("20.conf")).expect("room");
        let made = std::process::Command::new("mkfifo").arg(folder.0.join("30.conf")).status().expect("mkfifo");
        assert!(made.success());
        fs::create_dir(folder.0.join("40.conf")).expect("room");
        let large = folder.write("50.conf", b"");
        File::options().write(true).open(&large).and_then(|file| file.set_len(FILE_BYTES_MAX + 1)).expect("sparse");
        let open = folder.write("60.conf", b"DEVICE x\n");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o664)).expect("ours");
        folder.write("70.conf", b"DEVICE \xff\xfe\nDEVICE a # \xff\n");
        folder.write("80.conf", b"DEVICE b\n");
        let config = read(&Choice::Path(folder.0.clone()));
        assert_eq!(config.devices, ["a", "b"]);
        let found = problems(&config);
        assert!(matches!(found[0], Problem::Read { reason } if reason.contains("symbolic links")), "{found:?}");
        assert!(matches!(found[1], Problem::Read { reason } if reason.contains("no such file")), "{found:?}");
        assert_eq!(found[2..4], [&Problem::NotAFile; 2]);
        assert!(matches!(found[4], Problem::TooLarge { .. }), "{found:?}");
        assert_eq!(found[5..], [&Problem::Writable { mode: 0o664 }, &Problem::NotText]);
    }

    #[test]
    fn a_named_file_must_be_there_and_none_needs_none() {
        let folder = Folder::new();
        let config = read(&Choice::Path(folder.0.join("missing")));
        assert_eq!(problems(&config), [&Problem::Read { reason: "not found".to_owned() }]);
        for choice in [Choice::None, Choice::Path("/dev/null".into())] {
            assert_eq!(read(&choice).complaints, []);
        }
        assert_eq!(read(&Choice::Partitions).devices, ["partitions"]);
    }

    #[test]
    fn the_option_names_a_file_or_none() {
        for (word, choice) in
            [("none", Choice::None), ("partitions", Choice::Partitions), ("/x", Choice::Path("/x".into()))]
        {
            assert_eq!(Choice::of(Some(OsStr::new(word))), choice);
        }
    }
}
