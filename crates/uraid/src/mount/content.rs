//! What the bytes of a running array hold: its partitions, and what is there instead of a file system.
//! Owns: the window of a partition, the words for a mount that mount(8) refused. Not here: tables and superblocks
//! (`uraid_format`, by `member_name` and `doctor`).

use super::MountError;
use super::args::MountArgs;
use crate::doctor;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_control::member_name::{find_partition, read_table};
use uraid_doctor::Content;
use uraid_format::file_system::FileSystemKind;
use uraid_host::Window;

/// An array as a file or a block device.
pub(super) struct ArrayContent {
    /// The array's name.
    pub name: String,
    /// The file or device with its bytes.
    pub path: PathBuf,
}

impl ArrayContent {
    fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    fn bytes(&self) -> u64 {
        File::open(&self.path).and_then(|mut file| file.seek(SeekFrom::End(0))).unwrap_or(0)
    }

    /// The bytes of a partition.
    pub(super) fn window(&self, number: u32) -> Result<Window, MountError> {
        let window = find_partition(&self.name, &self.path(), number)?;
        let end = window.length.and_then(|length| window.offset.checked_add(length));
        if end.is_some_and(|end| end <= self.bytes()) {
            return Ok(window);
        }
        let sectors = self.bytes() / SECTOR_BYTES as u64;
        Err(MountError::PastEnd { array: self.name.clone(), number, sectors })
    }

    /// Why mount(8) refused, with what is there.
    pub(super) fn why_not(&self, why: MountError, args: &MountArgs) -> MountError {
        let why = Box::new(why);
        match (self.partitions(), args.partition) {
            (Some(numbers), None) => MountError::Whole { array: self.name.clone(), numbers, why },
            (_, partition) => {
                let array = self.name.clone();
                let holds = |found: &str, why| MountError::Holds { array, found: found.to_owned(), why };
                match self.content(partition) {
                    Some(Content::Other(text)) => holds(text, why),
                    Some(Content::Unknown) => MountError::NoFileSystem { array: self.name.clone(), why },
                    Some(Content::FileSystem(found)) if args.read_only => holds(unclean(found.kind), why),
                    Some(Content::FileSystem(_) | Content::Unreadable(_) | Content::BadTable(_)) | None => *why,
                }
            }
        }
    }

    /// The numbers of its partitions, if it has a table.
    fn partitions(&self) -> Option<String> {
        let table = read_table(&self.name, &self.path()).ok()?;
        let numbers: Vec<String> = table.partitions.iter().map(|found| found.number.to_string()).collect();
        (!numbers.is_empty()).then(|| numbers.join(", "))
    }

    /// What it, or a partition of it, holds; `None`: it cannot be opened.
    fn content(&self, partition: Option<u32>) -> Option<Content> {
        let whole = Window { offset: 0, length: Some(self.bytes()) };
        let window = partition.map_or(Some(whole), |number| self.window(number).ok())?;
        let sectors = |bytes: u64| bytes / SECTOR_BYTES as u64;
        let (start, length) = (Sector(sectors(window.offset)), Sectors(sectors(window.length?)));
        let file = File::open(&self.path).ok()?;
        let size = Sectors(sectors(self.bytes()));
        Some(doctor::content(size, start, length, &mut |at, into| file.read_exact_at(into, at)))
    }
}

/// Why a file system may not be mounted read-only, although it is one.
fn unclean(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Xfs => "XFS; if it was not unmounted, `-o norecovery` mounts it without its log",
        FileSystemKind::Ext => "ext4; if it was not unmounted, `-o noload` mounts it without its journal",
        FileSystemKind::Btrfs => "Btrfs; if it was not unmounted, `-o rescue=nologreplay` mounts it without its log",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_may_take_the_last_sector_of_its_array_and_none_behind_it() {
        const SECTORS: u64 = 64;
        const START: u64 = 8;
        let path = std::env::temp_dir().join(format!("uraid-content-{}", std::process::id()));
        let array = ArrayContent { name: "home".to_owned(), path: path.clone() };
        for length in [SECTORS - START - 1, SECTORS - START, SECTORS - START + 1] {
            // The first entry of an MBR.
            let mut bytes = vec![0; SECTORS as usize * SECTOR_BYTES];
            bytes[450] = 0x83;
            bytes[454..458].copy_from_slice(&(START as u32).to_le_bytes());
            bytes[458..462].copy_from_slice(&(length as u32).to_le_bytes());
            bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
            std::fs::write(&path, bytes).expect("room");
            match array.window(1) {
                Ok(found) if START + length <= SECTORS => {
                    let expected = Window { offset: START * 512, length: Some(length * 512) };
                    assert_eq!(found, expected);
                }
                Err(MountError::PastEnd { number: 1, sectors: SECTORS, .. }) if START + length > SECTORS => {}
                other => panic!("{length} sectors: {other:?}"),
            }
        }
        std::fs::remove_file(path).expect("it is there");
    }
}
