//! A member's superblock, read from its bytes: enough to predict what a start must do.
//! Owns: the places of metadata 1.x, event count and resync position. Not here: what uraid decides by them.
//! Invariant: independent offsets, from the format's description; no code of uraid. Spec: docs/format/superblock-1.md.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u32 = 0xa92b_4efc;
/// Bytes of a superblock with its role table, for tests that destroy one.
pub const BYTES: usize = 4096;

/// Where metadata 1.x keeps a superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// 1.0: at the end, 8 KiB or more before it, on a multiple of 4 KiB.
    End,
    /// 1.1: at the start.
    Start,
    /// 1.2: 4 KiB after the start.
    NearStart,
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 3] = [Place::NearStart, Place::Start, Place::End];

    /// As `--metadata` takes it.
    pub fn metadata(self) -> &'static str {
        match self {
            Place::End => "1.0",
            Place::Start => "1.1",
            Place::NearStart => "1.2",
        }
    }

    /// The first byte, on a member of this many bytes.
    pub fn byte(self, member_bytes: u64) -> u64 {
        match self {
            Place::End => ((member_bytes / 512 - 16) & !7) * 512,
            Place::Start => 0,
            Place::NearStart => 4096,
        }
    }
}

/// The content of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Says {
    /// Its event count.
    pub events: u64,
    /// Whether the array needs a resync.
    pub is_dirty: bool,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

/// Reads a member's superblock; `None` without the magic number.
pub fn read(member: &Path, place: Place) -> io::Result<Option<Says>> {
    let file = File::open(member)?;
    let mut bytes = vec![0; BYTES];
    file.read_exact_at(&mut bytes, place.byte(file.metadata()?.len()))?;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let is_there = number(0) as u32 == MAGIC;
    Ok(is_there.then(|| Says { events: number(200), is_dirty: number(208) != u64::MAX, bytes: bytes.clone() }))
}
