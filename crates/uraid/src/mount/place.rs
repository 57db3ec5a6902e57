//! What is kept of a mount: its folder in the runtime directory, with the record, and the server in the background.
//! Owns: [`Place`], [`Record`]. Not here: the order of the steps (`mount`), how the server serves (`serve`).
//! Invariant: a folder belongs to one `uraid mount`, and is gone if that fails. So `umount` knows what it may undo.
//!
//! ```text
//!   RUNTIME/mount-PID/record   what was mounted where
//!   RUNTIME/mount-PID/log      what the server says, if `mount` has started one
//!   RUNTIME/mount-PID/files/   its --fuse folder
//! ```

use super::MountError;
use crate::cli::MountArgs;
use crate::report::Report;
use crate::{client, names, warn};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PREFIX: &str = "mount-";
const RECORD: &str = "record";
const LOG: &str = "log";
const FILES: &str = "files";

/// What `mount` has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// Where the file system is mounted.
    pub folder: PathBuf,
    /// The loop device.
    pub device: PathBuf,
    /// The array's file.
    pub file: PathBuf,
    /// Whether the array was started for this mount.
    pub has_server: bool,
}

/// The folder of a mount. Without [`Place::keep`] it is removed, and the server stopped, when this is dropped.
pub(super) struct Place {
    folder: PathBuf,
    server: Option<Child>,
    stays: bool,
}

impl Place {
    pub(super) fn new() -> Result<Place, MountError> {
        let folder = names::runtime_directory()?.join(format!("{PREFIX}{}", std::process::id()));
        // From a process with this number that was killed.
        remove(&folder);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed(&folder))?;
        // As the server and the kernel name what is in it.
        let folder = fs::canonicalize(&folder).map_err(failed(&folder))?;
        Ok(Place { folder, server: None, stays: false })
    }

    /// Serves the array of these members. Returns when it is ready.
    pub(super) fn serve(&mut self, members: &[String], args: &MountArgs) -> Result<Report, MountError> {
        let (files, log) = (self.folder.join(FILES), self.folder.join(LOG));
        fs::create_dir(&files).map_err(failed(&files))?;
        let stderr = File::create(&log).map_err(failed(&log))?;
        let own = Path::new("/proc/self/exe");
        let mut command = Command::new(std::env::current_exe().map_err(failed(own))?);
        command.arg("serve").arg("--fuse").arg(&files);
        command.args(args.read_only.then_some("--read-only")).args(args.run.then_some("--run")).arg("--").args(members);
        // Ctrl-C at the terminal is for what runs there.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let server = self.server.insert(command.spawn().map_err(failed(own))?);
        let stdout = server.stdout.take().expect("piped");
        // It names its sockets first, then its files; otherwise it has ended.
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let is_ready = lines.any(|line| Path::new(&line).starts_with(&files));
        let said = fs::read_to_string(&log).unwrap_or_default();
        let mut said: Vec<&str> = said.lines().map(|line| line.trim_start_matches("uraid: ")).collect();
        let reason = if is_ready { None } else { Some(said.pop().unwrap_or("the server ended without a word")) };
        said.into_iter().for_each(warn);
        if let Some(reason) = reason {
            return Err(MountError::NotServed { text: reason.to_owned() });
        }
        let gone = || MountError::NotServed { text: "the server ended after it was ready".to_owned() };
        array_with_file_in(&files)?.ok_or_else(gone)
    }

    pub(super) fn has_server(&self) -> bool {
        self.server.is_some()
    }

    pub(super) fn write(&self, record: &Record) -> Result<(), MountError> {
        let path = self.folder.join(RECORD);
        let text = serde_json::to_string(record).map_err(io::Error::from);
        text.and_then(|text| fs::write(&path, text)).map_err(failed(&path))
    }

    /// Lets it stay; returns the server's log.
    pub(super) fn keep(mut self) -> Option<PathBuf> {
        self.stays = true;
        self.server.is_some().then(|| self.folder.join(LOG))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Some(mut server) = self.server.take() {
            // It stops the array. If it has ended already, this does nothing.
            let process = rustix::process::Pid::from_child(&server);
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
            let _ = server.wait();
        }
        remove(&self.folder);
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> MountError {
    let path = path.to_owned();
    |source| MountError::Place { path, source }
}

/// The record of which this is so, and its folder. One that cannot be read is of an `uraid mount` that was killed.
pub(super) fn find(is_it: impl Fn(&Record) -> bool) -> Result<Option<(PathBuf, Record)>, MountError> {
    let runtime = names::runtime_directory()?;
    let entries = match fs::read_dir(&runtime) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&runtime)(error)),
    };
    let is_place = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    let places = entries.flatten().map(|entry| entry.path()).filter(is_place);
    let mut records = places.filter_map(|place| {
        let text = fs::read(place.join(RECORD)).ok()?;
        Some((place, serde_json::from_slice(&text).ok()?))
    });
    Ok(records.find(|(_, record)| is_it(record)))
}

/// The running array whose file is in this folder.
pub(super) fn array_with_file_in(files: &Path) -> Result<Option<Report>, MountError> {
    let has_it = |report: &Report| {
        let exports = report.server.iter().flat_map(|server| &server.exports);
        exports.filter_map(|export| export.file.as_ref()).any(|file| Path::new(file).parent() == Some(files))
    };
    Ok(client::running()?.reports.into_iter().find(has_it))
}

/// Removes the folder of a mount that is no more. What is mounted in it stays.
pub(super) fn remove(folder: &Path) {
    let _ = fs::remove_dir(folder.join(FILES));
    for name in [LOG, RECORD] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _ = fs::remove_dir(folder);
}
