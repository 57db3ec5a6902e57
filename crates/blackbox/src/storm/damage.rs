//! Damage to members while no server uses them.
//! Owns: the file operations. Not here: which is legal when, and what must follow (`episode`).
//! Invariant: no member is touched while another process holds it.

use crate::members::superblock::{self, Place};
use crate::random::{Random, mix};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The members of a killed server stay locked until the kernel has completed the process's requests in flight. On a
/// busy machine that takes longer than the process exists.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Extension of a member that was taken away.
pub(super) const AWAY: &str = "away";

/// A way to lose a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// The file is moved away; it may be given again later, stale.
    Away,
    /// The whole file is zeroes.
    Zeroed,
    /// The superblock is noise.
    Noise,
    /// One bit of the superblock is wrong.
    Bit,
    /// The file ends in the middle of the data.
    Cut,
}

impl Loss {
    pub(super) const ALL: [Loss; 5] = [Loss::Away, Loss::Zeroed, Loss::Noise, Loss::Bit, Loss::Cut];
}

fn done<T>(path: &Path, result: std::io::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn open(path: &Path) -> File {
    done(path, OpenOptions::new().read(true).write(true).open(path))
}

/// Waits until no other process holds the members. Panics after a minute.
pub(super) fn wait_until_free<'a>(members: impl IntoIterator<Item = &'a Path>) {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    for path in members {
        // Dropping the file releases the lock.
        while let Err(error) = open(path).try_lock() {
            match error {
                TryLockError::WouldBlock => {}
                TryLockError::Error(error) => panic!("{}: {error}", path.display()),
            }
            assert!(Instant::now() < deadline, "{} is still locked", path.display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Damages the member, or moves it to the returned path.
pub(super) fn lose(path: &Path, how: Loss, place: Place, random: &mut Random) -> PathBuf {
    let file = open(path);
    let bytes = done(path, file.metadata()).len();
    let at = place.byte(bytes);
    match how {
        Loss::Away => {
            let away = path.with_extension(AWAY);
            done(path, fs::rename(path, &away));
            return away;
        }
        Loss::Zeroed => {
            done(path, file.set_len(0));
            done(path, file.set_len(bytes));
        }
        Loss::Noise => {
            let mut noise = [0; superblock::BYTES];
            random.fill(&mut noise);
            done(path, file.write_all_at(&noise, at));
        }
        Loss::Bit => {
            // The checksum covers the first 256 bytes; its own four are not changed, so that only data is wrong.
            let bit = random.below(216 * 8);
            let mut byte = [0];
            done(path, file.read_exact_at(&mut byte, at + bit / 8));
            byte[0] ^= 1 << (bit % 8);
            done(path, file.write_all_at(&byte, at + bit / 8));
        }
        Loss::Cut => done(path, file.set_len(bytes / 2)),
    }
    path.to_path_buf()
}

/// A copy beside the member.
pub(super) fn copy(path: &Path, extension: &str) -> PathBuf {
    let to = path.with_extension(extension);
    done(path, fs::copy(path, &to));
    to
}

/// Swaps the names of the two files.
pub(super) fn swap(one: &Path, other: &Path) {
    let between = one.with_extension("between");
    done(one, fs::rename(one, &between));
    done(other, fs::rename(other, one));
    done(&between, fs::rename(&between, other));
}

/// The files that a refused or read-only start must not change.
pub(super) struct Untouched {
    members: Vec<PathBuf>,
    before: Vec<Facts>,
}

#[derive(PartialEq, Eq, Debug)]
struct Facts {
    bytes: u64,
    sum: u64,
    modified: (i64, i64),
}

impl Untouched {
    pub(super) fn of(members: &[PathBuf]) -> Untouched {
        Untouched { members: members.to_vec(), before: members.iter().map(|path| Facts::of(path)).collect() }
    }

    /// A member whose bytes have changed. The modification time is ignored, because opening a member for writing may
    /// try whether holes can be punched after its end.
    pub(super) fn changes(&self) -> Option<String> {
        self.difference(|facts| (facts.bytes, facts.sum))
    }

    /// The same, including the modification time: there must have been no write at all.
    pub(super) fn traces(&self) -> Option<String> {
        self.difference(|facts| (facts.bytes, facts.sum, facts.modified))
    }

    fn difference<T: PartialEq>(&self, of: impl Fn(&Facts) -> T) -> Option<String> {
        let now = self.members.iter().map(|path| (path, Facts::of(path)));
        let (before, (path, now)) = self.before.iter().zip(now).find(|(before, (_, now))| of(before) != of(now))?;
        Some(format!("{}: {before:?} to {now:?}", path.display()))
    }
}

impl Facts {
    fn of(path: &Path) -> Facts {
        let file = done(path, fs::metadata(path));
        let bytes = done(path, fs::read(path));
        let (words, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty(), "a member is whole sectors");
        let sum = words.iter().fold(0, |sum, word| mix(sum ^ u64::from_le_bytes(*word)));
        Facts { bytes: file.len(), sum, modified: (file.mtime(), file.mtime_nsec()) }
    }
}
