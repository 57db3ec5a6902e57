//! Where a file of a local file system lies on its device.
//! Owns: [`file_extents`], FIEMAP's list and its flags. Not here: which device that is, what follows from it (the
//! caller).
//! Spec: the kernel's Documentation/filesystems/fiemap.rst.

use crate::sys;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// How many extents one call asks for.
const AT_ONCE: usize = 256;
/// The most extents of a file that are taken.
const EXTENTS_MAX: usize = 1 << 22;

/// A stretch of a file that lies in one piece. All numbers are bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// From the start of the file.
    pub file: u64,
    /// From the start of the device, as the file system counts.
    pub device: u64,
    /// Its length.
    pub length: u64,
    /// What the file system says of it.
    pub flags: ExtentState,
}

/// What the file system says of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentState(u32);

impl ExtentState {
    /// It has no place yet, or not one of its own: `device` means nothing.
    pub fn has_no_place(self) -> bool {
        const UNKNOWN: u32 = 0x2;
        const DELALLOC: u32 = 0x4;
        const ENCODED: u32 = 0x8;
        const INLINE: u32 = 0x200;
        const TAIL: u32 = 0x400;
        self.0 & (UNKNOWN | DELALLOC | ENCODED | INLINE | TAIL) != 0
    }

    /// Allocated, and reads as zeroes.
    pub fn is_unwritten(self) -> bool {
        self.0 & 0x800 != 0
    }

    /// Shared with another file.
    pub fn is_shared(self) -> bool {
        self.0 & 0x2000 != 0
    }

    fn is_last(self) -> bool {
        self.0 & 0x1 != 0
    }
}

/// All extents of a file, ascending, after its data has been written to the device. EOPNOTSUPP: the file system does not
/// tell.
pub fn file_extents(file: &File) -> io::Result<Vec<FileExtent>> {
    let mut extents = Vec::new();
    let mut next = 0;
    loop {
        let some =
            sys::fiemap(file.as_raw_fd(), next, AT_ONCE).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        let Some(last) = some.last() else { return Ok(extents) };
        let extent = |[file, device, length, flags]: &[u64; 4]| FileExtent {
            file: *file,
            device: *device,
            length: *length,
            flags: ExtentState(*flags as u32),
        };
        let last = extent(last);
        extents.extend(some.iter().map(extent));
        let end = last.file.saturating_add(last.length);
        if last.flags.is_last() || end <= next {
            return Ok(extents);
        }
        if extents.len() > EXTENTS_MAX {
            return Err(io::Error::other(format!("more than {EXTENTS_MAX} extents")));
        }
        next = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// More extents than one call returns: every other block of a file.
    #[test]
    fn a_file_with_holes_has_an_extent_for_each_piece_between_them() {
        const PIECES: u64 = 700;
        let path = std::env::temp_dir().join(format!("uraid-extents-{}", std::process::id()));
        let file = File::create_new(&path).expect("a new file");
        for piece in 0..PIECES {
            file.write_all_at(&[1; 4096], piece * 8192).expect("room");
        }
        let found = file_extents(&file);
        std::fs::remove_file(&path).expect("it is there");
        let found = match found {
            Ok(found) => found,
            // A file system without FIEMAP: tmpfs, overlayfs on it.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return,
            Err(error) => panic!("{error}"),
        };
        let starts: Vec<u64> = found.iter().map(|extent| extent.file).collect();
        assert_eq!(starts, (0..PIECES).map(|piece| piece * 8192).collect::<Vec<u64>>());
        assert!(found.iter().all(|extent| extent.length == 4096 && !extent.flags.has_no_place()));
    }
}
