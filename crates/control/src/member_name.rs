//! The meaning of a MEMBER on the command line: a file or device, a window of one, one with bad sectors.
//! Owns: the syntax, finding a partition's bytes. Not here: opening (`uraid_host`), partition tables (`uraid_format`).
//! Invariant: a file that exists under the whole name is that file, whatever its name looks like.

use crate::log::warn;
use crate::words::names;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use uraid_format::partition::{self, Table, TableError};
use uraid_host::{BadSectors, Target, Window};

/// The most partitions that a message names.
const NAMED_MAX: usize = 8;

/// Why a name is not a member's.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The list of bad sectors is invalid.
    #[error("{name}: expected bad:SECTOR[+COUNT][,SECTOR[+COUNT]...]:MEMBER")]
    BadList {
        /// The name.
        name: String,
    },
    /// The text after the `@` is not a window.
    #[error("{name}: @{found} is not a window, expected @OFFSET[+LENGTH] in bytes, or @pN for a partition")]
    Window {
        /// The name.
        name: String,
        /// The text after the `@`.
        found: String,
    },
    /// The disk or image could not be opened to look for its partition table.
    #[error("{name}: the partition table cannot be read")]
    Unreadable {
        /// The name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// There is no partition table, or a broken one.
    #[error("{name}: {path}")]
    Table {
        /// The name.
        name: String,
        /// Where it was looked for.
        path: String,
        /// What is wrong.
        source: TableError<io::Error>,
    },
    /// The table has other partitions.
    #[error("{name}: there is no partition {number}, found {}", list(found))]
    NoPartition {
        /// The name.
        name: String,
        /// The number in it.
        number: u32,
        /// The numbers that there are.
        found: Vec<u32>,
    },
}

impl NameError {
    /// Whether the member could not be read, such as a failed disk; otherwise the name is wrong.
    pub fn is_absent(&self) -> bool {
        match self {
            NameError::Unreadable { .. } => true,
            NameError::Table { source, .. } => match source {
                TableError::Read { .. } => true,
                TableError::None | TableError::Gpt { .. } => false,
            },
            NameError::BadList { .. } | NameError::Window { .. } | NameError::NoPartition { .. } => false,
        }
    }
}

fn list(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return "none".to_owned();
    }
    numbers.iter().map(u32::to_string).collect::<Vec<String>>().join(", ")
}

/// The meaning of the text after the last `@`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Window(Window),
    Partition(u32),
}

/// Resolves a name. Reads the partition table if one is needed, and opens nothing else.
pub fn resolve(name: &str) -> Result<Target, NameError> {
    let (bad, rest) = match name.strip_prefix("bad:") {
        None => (BadSectors::default(), name),
        Some(rest) => BadSectors::split(rest).ok_or_else(|| NameError::BadList { name: name.to_owned() })?,
    };
    let target = |path: &str, window| Target { name: name.to_owned(), path: path.into(), window, bad };
    let Some((path, part)) = cut(rest) else { return Ok(target(rest, None)) };
    match parse(part) {
        Some(Part::Window(window)) => Ok(target(path, Some(window))),
        Some(Part::Partition(number)) => Ok(target(path, Some(find_partition(name, path, number)?))),
        // If it is not a window, it may be the name of a missing file.
        None if Path::new(path).exists() => {
            Err(NameError::Window { name: name.to_owned(), found: names::printable(part) })
        }
        None => Ok(target(rest, None)),
    }
}

/// The path, and the text after its `@`; `None` if the name is that of a whole file or of no file at all.
fn cut(name: &str) -> Option<(&str, &str)> {
    if name.starts_with("mem:") || name.starts_with("null:") || Path::new(name).symlink_metadata().is_ok() {
        return None;
    }
    name.rsplit_once('@').filter(|(path, _)| !path.is_empty())
}

fn without_bad_list(name: &str) -> &str {
    name.strip_prefix("bad:").and_then(BadSectors::split).map_or(name, |(_, rest)| rest)
}

/// Whether the file of the name exists, without its window.
pub fn exists(name: &str) -> bool {
    let rest = without_bad_list(name);
    Path::new(rest).exists() || cut(rest).is_some_and(|(path, _)| Path::new(path).exists())
}

/// The name with its path made absolute, for processes in another directory. Links are not resolved: the system is not
/// asked about the path, because its file server may hang.
pub fn as_written(name: &str) -> String {
    if name.starts_with("mem:") || name.starts_with("null:") {
        return name.to_owned();
    }
    if let Some((_, rest)) = name.strip_prefix("bad:").and_then(BadSectors::split) {
        return format!("{}{}", &name[..name.len() - rest.len()], as_written(rest));
    }
    std::path::absolute(name).map_or_else(|_| name.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// The name with its path made absolute and links resolved.
pub fn absolute(name: &str) -> String {
    if name.starts_with("mem:") || name.starts_with("null:") {
        return name.to_owned();
    }
    if let Some((_, rest)) = name.strip_prefix("bad:").and_then(BadSectors::split) {
        return format!("{}{}", &name[..name.len() - rest.len()], absolute(rest));
    }
    let cut = cut(name).filter(|(path, _)| Path::new(path).exists());
    let path = cut.map_or(name, |(path, _)| path);
    let found = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    let found = found.map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned());
    // `disk@` is no name of the file `disk`.
    cut.map_or(found.clone(), |(_, part)| format!("{found}@{part}"))
}

fn parse(part: &str) -> Option<Part> {
    if let Some(number) = part.strip_prefix('p') {
        return number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?.map(Part::Partition);
    }
    let (offset, length) = match part.split_once('+') {
        Some((offset, length)) => (offset, Some(bytes(length)?)),
        None => (part, None),
    };
    Some(Part::Window(Window { offset: bytes(offset)?, length }))
}

/// `1048576`, `1M`: bytes, or a number of KiB, MiB, GiB, TiB.
fn bytes(text: &str) -> Option<u64> {
    let digits_end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let unit: u64 = match unit {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        "T" | "t" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Whether it is a memory or null member, also behind a bad list: `bad:8:mem:64M`.
pub fn is_fleeting(name: &str) -> bool {
    let inner = name.strip_prefix("bad:").and_then(|rest| rest.split_once(':')).map_or(name, |(_, inner)| inner);
    inner.starts_with("mem:") || inner.starts_with("null:")
}

/// Whether the name is that of a whole file or device, not of a part.
pub fn is_whole(name: &str) -> bool {
    cut(without_bad_list(name)).is_none()
}

/// The names of the partitions in a member of this many bytes, for a message. `None` if it has no partitions, or if
/// they cannot be named because the member is itself a part of a disk.
pub fn partitions<E>(name: &str, bytes: u64, read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Option<String> {
    if !is_whole(name) {
        return None;
    }
    let table = partition::read(bytes, read).ok()?;
    let mut names: Vec<String> = table.partitions.iter().map(|found| format!("{name}@p{}", found.number)).collect();
    if names.len() > NAMED_MAX {
        names.truncate(NAMED_MAX);
        names.push("...".to_owned());
    }
    (!names.is_empty()).then(|| names.join(", "))
}

/// The partition table of a disk or an image.
pub fn read_table(name: &str, path: &str) -> Result<Table, NameError> {
    let unreadable = |source| NameError::Unreadable { name: name.to_owned(), source };
    let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        // Do not open it: a FIFO would block.
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a block device")));
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let size = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    partition::read(size, |at, into| file.read_exact_at(into, at)).map_err(|source| NameError::Table {
        name: name.to_owned(),
        path: path.to_owned(),
        source,
    })
}

/// The bytes of a partition of a disk or an image.
pub fn find_partition(name: &str, path: &str, number: u32) -> Result<Window, NameError> {
    let table = read_table(name, path)?;
    if let Some(damage) = table.damage {
        warn(&format!("{path}: {damage}"));
    }
    let found = table.partitions.iter().find(|partition| partition.number == number);
    let partition = found.ok_or_else(|| NameError::NoPartition {
        name: name.to_owned(),
        number,
        found: table.partitions.iter().map(|partition| partition.number).collect(),
    })?;
    // A sector number whose byte offset overflows is outside of any file: the claim reports that.
    let byte = |sectors: u64| sectors.saturating_mul(uraid_block::SECTOR_BYTES as u64);
    Ok(Window { offset: byte(partition.start.0), length: Some(byte(partition.length.0)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(offset: u64, length: Option<u64>) -> Option<Part> {
        Some(Part::Window(Window { offset, length }))
    }

    #[test]
    fn a_window_is_bytes_with_units_and_a_partition_a_number() {
        assert_eq!(parse("0"), window(0, None));
        assert_eq!(parse("1M+4G"), window(1 << 20, Some(4 << 30)));
        assert_eq!(parse("1000+7k"), window(1000, Some(7 << 10)));
        assert_eq!(parse("p12"), Some(Part::Partition(12)));
        for nonsense in ["", "M", "-1", "1.5M", "1M+", "+1M", "1M+1M+1M", "p", "p-1", "px", "1Mi", "99999999T", "1é"] {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_name_as_it_is_written_is_absolute_and_nothing_is_looked_at() {
        let here = std::env::current_dir().expect("a directory");
        let in_here = |name: &str| here.join(name).to_str().expect("utf-8").to_owned();
        assert_eq!(as_written("./nowhere//disk@1M+4K"), in_here("nowhere/disk@1M+4K"));
        assert_eq!(as_written("bad:1+2:disk"), format!("bad:1+2:{}", in_here("disk")));
        for name in ["/a/../b", "mem:1M:a", "null:1T", "bad:1:mem:1M"] {
            assert_eq!(as_written(name), name);
        }
    }

    #[test]
    fn a_file_that_exists_under_the_whole_name_is_that_file() {
        let path = std::env::temp_dir().join(format!("uraid-name-{}@1M", std::process::id()));
        let name = path.to_str().expect("utf-8");
        let expected = Window { offset: 1 << 20, length: None };
        let target = resolve(name).expect("a window of what is not there");
        assert_eq!((target.window, target.name.as_str()), (Some(expected), name));
        std::fs::write(&path, "").expect("room");
        assert_eq!(resolve(name).expect("a file").window, None);
        let deeper = format!("{name}@512+512");
        let expected = Window { offset: 512, length: Some(512) };
        let target = resolve(&deeper).expect("a window of the file");
        assert_eq!((target.window, target.path.as_path()), (Some(expected), path.as_path()));
        assert!(exists(&deeper) && exists(&format!("bad:1:{deeper}")) && !exists("/nowhere@1"));
        assert!(matches!(resolve(&format!("{name}@12Q")), Err(NameError::Window { .. })));
        assert!(matches!(resolve(&format!("{name}@p1")), Err(NameError::Table { source: TableError::None, .. })));
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(resolve("/nowhere/12@Q").expect("a missing file").window, None);
        assert_eq!(resolve("mem:1M:a@1").expect("memory").window, None);
    }
}
