//! Loop devices of the kernel, by losetup.
//! Owns: attaching one to an array's file, detaching it, finding those that share bytes. Not here: when (`mount`).
//! Spec: losetup(8), the kernel's loop/ attributes in sysfs.

use super::MountError;
use crate::shared::program::{ProgramError, run};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use uraid_host::Window;

/// How often another process may take the device that was free.
const TRIES: usize = 20;

/// Attaches one to this file, or a window of it. Its requests bypass the page cache of the file: the array has one
/// user then. `before` is told of the device before that has the file.
pub(super) fn attach(
    file: &Path,
    window: Option<Window>,
    read_only: bool,
    mut before: impl FnMut(&Path) -> Result<(), MountError>,
) -> Result<PathBuf, MountError> {
    for _ in 0..TRIES {
        let device = PathBuf::from(run(Command::new("losetup").arg("--find"))?.trim_end());
        before(&device)?;
        match attach_to(&device, file, window, read_only) {
            Err(_) if backing_file(&device).is_some() => {}
            outcome => return outcome.map(|()| device),
        }
    }
    let text = "another process takes each free loop device first".to_owned();
    Err(ProgramError { program: "losetup".to_owned(), text }.into())
}

fn attach_to(device: &Path, file: &Path, window: Option<Window>, read_only: bool) -> Result<(), MountError> {
    let mut command = Command::new("losetup");
    command.arg("--direct-io=on").args(read_only.then_some("--read-only"));
    if let Some(Window { offset, length }) = window {
        command.arg(format!("--offset={offset}"));
        command.args(length.map(|length| format!("--sizelimit={length}")));
    }
    run(command.arg(device).arg(file))?;
    Ok(())
}

/// Begins to detach it: its last user may delay that.
pub(super) fn detach(device: &Path) -> Result<(), MountError> {
    run(Command::new("losetup").arg("--detach").arg(device))?;
    Ok(())
}

/// The file of a loop device. `None`: it is none, or has no file.
pub(super) fn backing_file(device: &Path) -> Option<PathBuf> {
    let attribute = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    let mut text = fs::read(attribute).ok()?;
    text.truncate(text.trim_ascii_end().len());
    Some(OsString::from_vec(text).into())
}

/// Which attachment of a loop device this is: the kernel counts on with each. `None`: it does not, before Linux 5.15.
pub(super) fn sequence_of(device: &Path) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/sys/block").join(device.file_name()?).join("diskseq")).ok()?;
    text.trim().parse().ok()
}

/// A loop device, not `own`, that has a part of this window of the file, or of the whole file.
pub(super) fn other_user_of(file: &Path, window: Option<Window>, own: &Path) -> Result<Option<PathBuf>, MountError> {
    let failed = |source| MountError::Place { path: file.to_owned(), source };
    let status = fs::metadata(file).map_err(failed)?;
    let (inode, device) = (status.ino(), status.dev());
    // By its inode: a loop device may have the file by another path, as of `mount --bind`.
    let its = format!("{inode} {}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let all =
        run(Command::new("losetup").args(["--list", "--noheadings", "--raw", "--output=NAME,BACK-INO,BACK-MAJ:MIN"]))?;
    // util-linux 2.38 pads the numbers, and writes each space of that as `\x20`.
    let all = all.replace("\\x20", "");
    let mut users = all.lines().filter_map(|line| line.split_once(' ')).filter(|(_, of)| *of == its);
    let device = users.find(|(device, _)| {
        let device = Path::new(device);
        device != own && window_of(device).is_none_or(|theirs| overlap(theirs, window))
    });
    Ok(device.map(|(device, _)| PathBuf::from(device)))
}

/// The part of its file that a loop device has.
fn window_of(device: &Path) -> Option<Window> {
    let folder = Path::new("/sys/block").join(device.file_name()?).join("loop");
    let number = |attribute| fs::read_to_string(folder.join(attribute)).ok()?.trim().parse::<u64>().ok();
    // 0 is no limit.
    let length = number("sizelimit")?;
    Some(Window { offset: number("offset")?, length: (length > 0).then_some(length) })
}

fn overlap(one: Window, other: Option<Window>) -> bool {
    let end = |window: Window| window.length.map_or(u64::MAX, |length| window.offset.saturating_add(length));
    let other = other.unwrap_or(Window { offset: 0, length: None });
    one.offset < end(other) && other.offset < end(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_overlap_where_they_share_a_byte() {
        let window = |offset, length| Window { offset, length };
        assert!(overlap(window(0, None), None) && overlap(window(5, Some(1)), None));
        let theirs = window(100, Some(50));
        let shares = [(0, Some(101)), (0, None), (149, Some(1)), (120, None)];
        assert!(shares.iter().all(|(offset, length)| overlap(theirs, Some(window(*offset, *length)))));
        let apart = [(0, Some(100)), (150, Some(9)), (150, None)];
        assert!(!apart.iter().any(|(offset, length)| overlap(theirs, Some(window(*offset, *length)))));
    }
}
