//! Mounts of the kernel.
//! Owns: [`Mounts`], the calls of mount and umount. Not here: block devices (`mount::disk`).
//! Spec: mount(8), proc_pid_mountinfo(5).

use super::MountError;
use super::args::MountArgs;
use crate::shared::program::run;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// How long a file system may stay busy that is to be unmounted.
const BUSY_TIME_MAX: Duration = Duration::from_secs(1);

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
    run(command.arg("--").arg(device).arg(folder))?;
    Ok(())
}

/// Unmounts the folder. The kernel calls it busy for a moment longer than a program has it open, so this tries for a
/// second, as `stop` does.
pub(super) fn umount(folder: &Path) -> Result<(), MountError> {
    let began = Instant::now();
    loop {
        let outcome = run(Command::new("umount").arg("--").arg(folder)).map(drop).map_err(MountError::from);
        if outcome.is_ok() || began.elapsed() >= BUSY_TIME_MAX {
            return outcome;
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

/// Unmounts what has no server any more.
pub(super) fn umount_dead(folder: &Path) -> Result<(), MountError> {
    run(Command::new("umount").args(["--lazy", "--"]).arg(folder))?;
    Ok(())
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
