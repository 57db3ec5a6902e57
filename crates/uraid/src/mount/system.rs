//! Loop devices and mounts of the kernel, by the programs of util-linux.
//! Owns: [`LoopDevice`], [`Mounts`], the calls of losetup, mount and umount. Not here: their order (`mount`).
//! Spec: losetup(8), mount(8), proc_pid_mountinfo(5).

use super::MountError;
use crate::cli::MountArgs;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use uraid_host::Window;

/// How long the kernel may take to let a loop device go.
const DETACH_TIME_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How long a file system may stay busy that is to be unmounted.
const BUSY_TIME_MAX: Duration = Duration::from_secs(1);

/// A loop device that is detached when this is dropped.
pub(super) struct LoopDevice {
    /// `None`: it stays.
    path: Option<PathBuf>,
}

impl LoopDevice {
    /// Attaches one to this file, or a window of it. Its requests bypass the page cache of the file: the array has one
    /// user then.
    pub(super) fn attach(file: &Path, window: Option<Window>, read_only: bool) -> Result<LoopDevice, MountError> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on"]).args(read_only.then_some("--read-only"));
        if let Some(Window { offset, length }) = window {
            command.arg(format!("--offset={offset}"));
            command.args(length.map(|length| format!("--sizelimit={length}")));
        }
        command.arg(file);
        let said = run(&mut command)?;
        Ok(LoopDevice { path: Some(PathBuf::from(said.trim_end())) })
    }

    pub(super) fn path(&self) -> &Path {
        self.path.as_deref().expect("until it is kept")
    }

    pub(super) fn keep(mut self) -> PathBuf {
        self.path.take().expect("until now")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.path.take().map(|path| detach(&path)) {
            crate::complain(&error);
        }
    }
}

/// Detaches a loop device. Returns when its file is closed.
pub(super) fn detach(device: &Path) -> Result<(), MountError> {
    run(Command::new("losetup").arg("--detach").arg(device))?;
    let end = Instant::now() + DETACH_TIME_MAX;
    while backing_file(device).is_some() {
        if Instant::now() > end {
            let text = format!("{} is still in use by another program", device.display());
            return Err(MountError::Program { program: "losetup --detach".to_owned(), text });
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
    Ok(())
}

/// The file of a loop device. `None`: it is none, or has no file.
pub(super) fn backing_file(device: &Path) -> Option<PathBuf> {
    let attribute = Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file");
    let mut text = fs::read(attribute).ok()?;
    text.truncate(text.trim_ascii_end().len());
    Some(OsString::from_vec(text).into())
}

/// A loop device, not `own`, that has a part of this window of the file, or of the whole file.
pub(super) fn other_user_of(file: &Path, window: Option<Window>, own: &Path) -> Option<PathBuf> {
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut devices = entries.map(|entry| Path::new("/dev").join(entry.file_name()));
    devices.find(|device| {
        device != own
            && backing_file(device).is_some_and(|backing| backing == file)
            && window_of(device).is_none_or(|theirs| overlap(theirs, window))
    })
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

pub(super) fn mount(device: &Path, folder: &Path, args: &MountArgs) -> Result<(), MountError> {
    let mut command = Command::new("mount");
    if let Some(kind) = &args.kind {
        command.args(["-t", kind]);
    }
    let read_only = args.read_only.then_some("ro".to_owned());
    let options: Vec<String> = read_only.into_iter().chain(args.options.clone()).collect();
    if !options.is_empty() {
        command.args(["-o", &options.join(",")]);
    }
    run(command.arg("--").arg(device).arg(folder)).map(drop)
}

/// Unmounts the folder. The kernel calls it busy for a moment longer than a program has it open, so this tries for a
/// second, as `stop` does.
pub(super) fn umount(folder: &Path) -> Result<(), MountError> {
    let began = Instant::now();
    loop {
        let outcome = run(Command::new("umount").arg("--").arg(folder)).map(drop);
        if outcome.is_ok() || began.elapsed() >= BUSY_TIME_MAX {
            return outcome;
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

/// What the program printed.
fn run(command: &mut Command) -> Result<String, MountError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |text: String| MountError::Program { program: program.clone(), text };
    let done = command.stdin(Stdio::null()).output().map_err(|error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        failed(if is_missing {
            "not found: it is in the package util-linux, or mount".to_owned()
        } else {
            error.to_string()
        })
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let prefix = format!("{program}: ");
        let lines: Vec<&str> =
            said.lines().map(str::trim).map(|line| line.strip_prefix(&*prefix).unwrap_or(line)).collect();
        return Err(failed(if lines.is_empty() { done.status.to_string() } else { lines.join("; ") }));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The mounts that this process sees, the latest last.
pub(super) struct Mounts(Vec<Mount>);

struct Mount {
    place: PathBuf,
    source: PathBuf,
}

impl Mounts {
    pub(super) fn read() -> Result<Mounts, MountError> {
        let path = Path::new("/proc/self/mountinfo");
        let text = fs::read(path).map_err(|source| MountError::Place { path: path.to_owned(), source })?;
        Ok(Mounts(text.split(|byte| *byte == b'\n').filter_map(mount_of_line).collect()))
    }

    /// The device that is mounted at this folder, on top.
    pub(super) fn source_at(&self, folder: &Path) -> Option<&Path> {
        self.0.iter().rfind(|mount| mount.place == folder).map(|mount| &*mount.source)
    }

    /// Where this device is mounted.
    pub(super) fn place_of(&self, source: &Path) -> Option<&Path> {
        self.0.iter().find(|mount| mount.source == source).map(|mount| &*mount.place)
    }

    /// Where else this device is mounted.
    pub(super) fn other_place_of(&self, source: &Path, than: &Path) -> Option<&Path> {
        self.0.iter().find(|mount| mount.source == source && mount.place != than).map(|mount| &*mount.place)
    }
}

/// `36 35 98:0 / /mnt/a\040b rw,noatime shared:1 - ext4 /dev/loop3 rw`
fn mount_of_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = unescaped(words.nth(4)?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    Some(Mount { place, source: unescaped(rest.nth(1)?) })
}

/// The kernel writes a space, a tab, a newline and a backslash as `\` and three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let (mut bytes, mut at) = (Vec::new(), 0);
    while at < word.len() {
        let digits = word.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| word[at] == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(word[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read_with_their_escapes_and_optional_fields() {
        let lines = [
            (&b"36 35 98:0 / /mnt rw shared:1 master:2 - xfs /dev/loop3 rw,attr2"[..], "/mnt", "/dev/loop3"),
            (b"36 35 0:31 / /a\\040b\\134 rw - fuse.uraid uraid rw", "/a b\\", "uraid"),
        ];
        for (line, place, source) in lines {
            let mount = mount_of_line(line).expect("a line");
            assert_eq!((mount.place, mount.source), (place.into(), source.into()));
        }
        for line in [&b""[..], b"36 35", b"36 35 0:31 / /mnt rw shared:1", b"36 35 0:31 / /mnt rw -", b"1 2 3 4 5 - x"]
        {
            assert!(mount_of_line(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
    }

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

    #[test]
    fn the_mount_on_top_counts() {
        let mount = |(place, source): (&str, &str)| Mount { place: place.into(), source: source.into() };
        let mounts = [("/mnt", "/dev/sda1"), ("/other", "/dev/loop0"), ("/mnt", "/dev/loop0")];
        let mounts = Mounts(mounts.map(mount).into());
        assert_eq!(mounts.source_at(Path::new("/mnt")), Some(Path::new("/dev/loop0")));
        assert_eq!(mounts.source_at(Path::new("/mnt/a")), None);
        let other = |source: &str, than: &str| mounts.other_place_of(Path::new(source), Path::new(than));
        assert_eq!(other("/dev/loop0", "/mnt"), Some(Path::new("/other")));
        assert_eq!(other("/dev/sda1", "/mnt"), None);
    }
}
