//! Whether a member is in use, asked without claiming it.
//! Owns: the query of locks, of the kernel and of /proc/locks; the same for a file that is no member. Not here: claims
//! (`open`, `locks`), what the system says of its own uses (`system_use`).
//! Invariant: nothing stays locked or claimed. The answer is about this moment only.

use super::error::Access;
use super::locks;
use super::origin::Origin;
use super::registration::Identity;
use super::system_use::{hidden_use, system_use};
use super::target::{Target, Window};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Who uses a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Holder {
    /// A process that has claimed it.
    Process(u32),
    /// An unknown process, or the kernel: a mount, md.
    Unknown,
}

/// Who has claimed the member or a part of it, also for reading only; `None`: it is free. Claims of this process count too.
///
/// A block device is opened with O_EXCL for a moment, which meets mounts and md; not for a window, because the rest of
/// the disk may be in use.
pub fn holder(target: &Target) -> io::Result<Option<Holder>> {
    let path = target.path.to_string_lossy();
    if path.starts_with("mem:") || path.starts_with("null:") {
        return Ok(None);
    }
    // Check the type before opening: opening a FIFO would wait.
    let status = std::fs::metadata(&target.path)?;
    let is_block_device = status.file_type().is_block_device();
    if !is_block_device && !status.file_type().is_file() {
        return Ok(None);
    }
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags | libc::O_NOCTTY).open(&target.path);
    let file = open(0)?;
    if let Some(holder) = holder_by_locks(&file, target.window)? {
        return Ok(Some(holder));
    }
    let bytes = target.window.map_or(0..u64::MAX, |window| window.offset..window.end().unwrap_or(u64::MAX));
    if let Some((under, window)) = Origin::of(&target.path, &status, bytes).open_under(Access::ReadOnly)
        && let Some(holder) = holder_by_locks(&under, window)?
    {
        return Ok(Some(holder));
    }
    if is_block_device && target.window.is_none() {
        return match open(libc::O_EXCL) {
            Ok(_) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(Some(Holder::Unknown)),
            Err(error) => Err(error),
        };
    }
    Ok(None)
}

/// What the system itself uses a file or device for, and how to end that, in words: `is swap space: swapoff /swap`. No
/// lock tells of such a use. `None`: of nothing, or it does not say.
pub fn used_by_system(path: &Path) -> Option<String> {
    let status = std::fs::metadata(path).ok()?;
    let origin = Origin::of(path, &status, 0..u64::MAX);
    let own = status.file_type().is_block_device().then(|| status.rdev());
    let hidden = || hidden_use(origin.identity, &origin.bytes, own);
    system_use(origin.identity, &origin.bytes).or_else(hidden)
}

fn holder_by_locks(file: &File, window: Option<Window>) -> io::Result<Option<Holder>> {
    let is_taken = locks::are_taken(file, window).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    if !is_taken {
        return Ok(None);
    }
    let listed = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    Ok(Some(only_process(&listed, inode(&file.metadata()?)).map_or(Holder::Unknown, Holder::Process)))
}

/// The inode whose locks are listed; for a block device, that of its node.
fn inode(status: &Metadata) -> Identity {
    Identity { device: status.dev(), inode: status.ino() }
}

/// The process with the only flock on an inode. (A lock of bytes belongs to an open file and names no process.) `None`
/// if there is no flock, or more than one, as for windows of one file.
///
/// `3: FLOCK  ADVISORY  WRITE 4711 fd:00:9978085 0 EOF`
fn only_process(locks: &str, of: Identity) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{}", libc::major(of.device), libc::minor(of.device), of.inode);
    let mut holders = locks.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[_, "FLOCK", _, _, pid, at, ..] = &words[..] else { return None };
        (at == place).then(|| pid.parse::<u32>().ok()).flatten()
    });
    let first = holders.next()?;
    holders.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::claimed::Claimed;
    use super::*;
    use std::path::PathBuf;

    fn target(path: &std::path::Path, window: Option<Window>) -> Target {
        let name = path.to_string_lossy().into_owned();
        Target { name, path: path.to_owned(), window, bad: Default::default() }
    }

    #[test]
    fn a_claim_of_any_kind_is_seen_and_asking_leaves_none() {
        let path = std::env::temp_dir().join(format!("uraid-in-use-{}", std::process::id()));
        std::fs::write(&path, vec![0; 1 << 20]).expect("room");
        let own = Holder::Process(std::process::id());
        let part = |offset, length| Some(Window { offset, length: Some(length) });
        for access in [Access::ReadWrite, Access::ReadOnly] {
            assert_eq!(holder(&target(&path, None)).expect("there"), None);
            let claimed = Claimed::open(&path, access).expect("nothing has it");
            for window in [None, part(4096, 8192)] {
                assert_eq!(holder(&target(&path, window)).expect("there"), Some(own), "{access:?} {window:?}");
            }
            drop(claimed);
            let claimed = Claimed::open_target(&target(&path, part(0, 65_536)), access).expect("nothing has it");
            assert_eq!(holder(&target(&path, None)).expect("there"), Some(own), "{access:?}");
            assert_eq!(holder(&target(&path, part(65_536, 4096))).expect("there"), None, "{access:?}");
            drop(claimed);
        }
        std::fs::remove_file(&path).expect("removed");
        assert!(holder(&target(&path, None)).is_err());
        assert_eq!(holder(&target(&PathBuf::from("mem:1M"), None)).expect("memory"), None);
    }

    #[test]
    fn a_process_is_named_only_where_it_is_the_only_one() {
        let of = Identity { device: libc::makedev(0xfd, 0), inode: 99 };
        let flock = "1: FLOCK  ADVISORY  WRITE 4711 fd:00:99 0 EOF\n";
        let others = "2: OFDLCK ADVISORY  WRITE -1 fd:00:99 0 EOF\n3: FLOCK  ADVISORY  WRITE 12 fd:01:99 0 EOF\n";
        assert_eq!(only_process(&format!("{others}{flock}"), of), Some(4711));
        assert_eq!(only_process(&format!("{flock}{}", flock.replace("4711", "4712")), of), None);
        for nonsense in ["", others, "FLOCK", "1: FLOCK a b c fd:00:99", "1: -> FLOCK ADVISORY WRITE 5 fd:00:99 0 EOF"]
        {
            assert_eq!(only_process(nonsense, of), None, "{nonsense}");
        }
    }
}
