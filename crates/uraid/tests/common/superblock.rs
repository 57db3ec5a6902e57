//! Superblocks of version 1 as raw bytes, for tests to modify.
//! Owns: the place, single fields, the checksum, the bad-block list. Not here: any of the project's own code.
//! Spec: docs/format/superblock-1.md, docs/format/bad-blocks.md.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const FEATURES: usize = 8;
pub const SIZE: usize = 80;
pub const DATA_OFFSET: usize = 128;
pub const DATA_SIZE: usize = 136;
pub const UPDATED: usize = 192;
pub const EVENTS: usize = 200;
pub const BAD_BLOCK_SHIFT: usize = 185;
pub const BAD_BLOCK_SECTORS: usize = 186;
pub const BAD_BLOCK_OFFSET: usize = 188;
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const CHECKSUM: usize = 216;
const MAX_DEV: usize = 220;
const HAS_BAD_BLOCKS: u32 = 8;

/// The superblock of a member, and where it was found.
pub struct Raw {
    path: PathBuf,
    at: u64,
    bytes: Vec<u8>,
}

impl Raw {
    /// Looks at the places of 1.2, 1.1 and 1.0.
    #[track_caller]
    pub fn read(path: &Path) -> Raw {
        let sectors = fs::metadata(path).expect("a member").len() / 512;
        let file = File::open(path).expect("a member");
        for at in [4096, 0, ((sectors - 16) & !7) * 512] {
            let mut bytes = vec![0; 4096];
            file.read_exact_at(&mut bytes, at).expect("a member");
            if bytes[..4] == MAGIC {
                return Raw { path: path.to_owned(), at, bytes };
            }
        }
        panic!("{} has no superblock", path.display());
    }

    pub fn u32(&self, field: usize) -> u32 {
        u32::from_le_bytes(self.bytes[field..field + 4].try_into().expect("four bytes"))
    }

    pub fn u64(&self, field: usize) -> u64 {
        u64::from_le_bytes(self.bytes[field..field + 8].try_into().expect("eight bytes"))
    }

    pub fn set(&mut self, field: usize, bytes: &[u8]) {
        self.bytes[field..field + bytes.len()].copy_from_slice(bytes);
    }

    /// The first byte of it on the member.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Writes it back as it is.
    pub fn write_unsealed(&self) {
        let file = File::options().write(true).open(&self.path).expect("a member");
        file.write_all_at(&self.bytes, self.at).expect("a member");
    }

    /// Writes it back with the checksum that it should have.
    pub fn write(&mut self) {
        self.set(CHECKSUM, &[0; 4]);
        // A test may set any number of roles.
        let covered = (256 + 2 * self.u32(MAX_DEV) as usize).min(self.bytes.len());
        let words = self.bytes[..covered].chunks(4);
        let sum: u64 = words.map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))).sum();
        let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
        self.set(CHECKSUM, &folded.to_le_bytes());
        write_at(&self.path, self.at, &self.bytes);
    }

    /// Puts this list of bad blocks on the member: first sector, counted from the start of the data, and length, both in
    /// sectors.
    pub fn list_bad(&mut self, ranges: &[(u64, u64)]) {
        let shift = self.bytes[BAD_BLOCK_SHIFT];
        let data_offset = self.u64(DATA_OFFSET);
        let mut list = vec![0xff; 4096];
        for ((start, length), entry) in ranges.iter().zip(list.chunks_exact_mut(8)) {
            let (block, blocks) = ((data_offset + start) >> shift, length >> shift);
            entry.copy_from_slice(&(block << 10 | blocks).to_le_bytes());
        }
        let distance = i64::from(self.u32(BAD_BLOCK_OFFSET).cast_signed());
        let at = self.at.checked_add_signed(distance * 512).expect("a list on the member");
        let room = usize::from(u16::from_le_bytes([self.bytes[BAD_BLOCK_SECTORS], self.bytes[BAD_BLOCK_SECTORS + 1]]));
        write_at(&self.path, at, &list[..room.min(8) * 512]);
        self.set(FEATURES, &(self.u32(FEATURES) | HAS_BAD_BLOCKS).to_le_bytes());
        self.write();
    }

    /// Overwrites these sectors of the data with bytes that no client wrote.
    pub fn spoil(&self, ranges: &[(u64, u64)]) {
        for (start, length) in ranges {
            write_at(&self.path, (self.u64(DATA_OFFSET) + start) * 512, &vec![0xee; *length as usize * 512]);
        }
    }
}

pub fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).and_then(|file| file.write_all_at(bytes, at)).expect("a file");
}
