//! A member's partial parity log, as it is found at a start.
//! Owns: which header of an area is the last one, whether the log is complete. Not here: the codec of a header (the
//! parent), what is done with the entries (`engine`).
//! Spec: docs/format/ppl.md.
//!
//! ```text
//!   uraid   | first header: complete | header n | partial parity |     always these two places
//!   md      | header n-1 | parity | header n | parity | header n-2 ...  a ring; the highest generation is the last
//! ```

use super::{PPL_HEADER_BYTES, PPL_HEADER_SECTORS, PplEntry, PplHeader};
use crate::Superblock;
use uraid_block::SECTOR_BYTES;

/// What a log says about an array that was not stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PplState {
    /// uraid wrote it: since the array was last consistent, every write of rows with parity on this member was logged
    /// here first. Rows that the last header does not name are consistent.
    Complete,
    /// md wrote it, and its last header has entries. It does not say whether a resync was under way.
    Entries,
    /// md's empty header.
    Empty,
    /// There is no valid header, or an entry of md's last one is damaged.
    Damaged,
}

/// An entry of a log's last header, with its partial parity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoggedStretch {
    /// The entry.
    pub entry: PplEntry,
    /// As long as the entry says, and with its checksum.
    pub parity: Vec<u8>,
}

/// What a member's log says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PplLog {
    /// What it is worth.
    pub state: PplState,
    /// The entries whose partial parity is whole. Of a torn log some may be missing: its rows were not begun.
    pub stretches: Vec<LoggedStretch>,
}

impl PplLog {
    /// Reads the log beside a superblock. `read` fills a buffer from a byte of the device on, and says whether it could.
    /// `None`: the superblock has no log.
    pub fn read_beside(superblock: &Superblock, mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<PplLog> {
        let area = superblock.ppl_extent()?;
        let start = area.start.0 * SECTOR_BYTES as u64;
        Some(PplLog::read(area.length.len_bytes() as u64, &superblock.set_uuid, |at, into| read(start + at, into)))
    }

    /// The last header of the log beside a superblock: the one that counts. `None`: there is no log, or no good header at
    /// its start.
    pub fn last_header_beside(
        superblock: &Superblock,
        mut read: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<PplHeader> {
        let area = superblock.ppl_extent()?;
        let start = area.start.0 * SECTOR_BYTES as u64;
        let last = last_header(area.length.len_bytes() as u64, &superblock.set_uuid, |at, into| read(start + at, into));
        last.map(|last| last.header)
    }

    /// Reads a log in an area of so many bytes. `read` counts from its start.
    fn read(area: u64, set_uuid: &[u8; 16], mut read: impl FnMut(u64, &mut [u8]) -> bool) -> PplLog {
        let Some(last) = last_header(area, set_uuid, &mut read) else {
            return PplLog { state: PplState::Damaged, stretches: Vec::new() };
        };
        let LastHeader { at, header, is_complete } = last;
        let mut stretches = Vec::with_capacity(header.entries.len());
        let mut at = at + PPL_HEADER_SECTORS.len_bytes() as u64;
        for entry in &header.entries {
            let end = at + u64::from(entry.parity_bytes);
            let mut parity = vec![0; if end <= area { entry.parity_bytes as usize } else { 0 }];
            if (parity.is_empty() || read(at, &mut parity)) && entry.matches(&parity) {
                stretches.push(LoggedStretch { entry: *entry, parity });
            }
            at = end;
        }
        let state = match header.entries.len() {
            _ if is_complete => PplState::Complete,
            0 => PplState::Empty,
            count if count == stretches.len() => PplState::Entries,
            _ => PplState::Damaged,
        };
        PplLog { state, stretches }
    }
}

/// The header of a log that counts.
struct LastHeader {
    /// Where it is in the area, in bytes.
    at: u64,
    header: PplHeader,
    /// Whether the first header says that the log is complete.
    is_complete: bool,
}

fn last_header(area: u64, set_uuid: &[u8; 16], mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<LastHeader> {
    let mut last: Option<(u64, PplHeader)> = None;
    let mut is_complete = false;
    let mut at = 0;
    while at + (PPL_HEADER_BYTES as u64) < area {
        let mut bytes = [0; PPL_HEADER_BYTES];
        let header = read(at, &mut bytes).then(|| PplHeader::parse(&bytes, set_uuid).ok()).flatten();
        let falls = |header: &PplHeader| last.as_ref().is_some_and(|last| last.1.generation > header.generation);
        let Some(header) = header.filter(|header| !falls(header)) else { break };
        is_complete |= at == 0 && header.is_complete();
        let next = at + header.log_bytes();
        last = Some((at, header));
        if is_complete && at > 0 {
            // What is behind it is partial parity, or what md has left.
            break;
        }
        at = next;
    }
    last.map(|(at, header)| LastHeader { at, header, is_complete })
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::ArraySector;

    const ARRAY: [u8; 16] = [7; 16];

    fn entry(sector: u64, parity: &[u8]) -> PplEntry {
        PplEntry {
            data_sector: ArraySector(sector),
            parity_bytes: parity.len() as u32,
            data_bytes: 4096,
            parity_slot: 1,
            checksum: super::super::parity_checksum(parity),
        }
    }

    fn header(generation: u64, sectors: &[u64]) -> Vec<u8> {
        let parity = [generation as u8; 512];
        let entries = sectors.iter().map(|sector| entry(*sector, &parity)).collect();
        let header = PplHeader { generation, entries, ..PplHeader::empty(&ARRAY) };
        [&header.encode()[..], &parity.repeat(sectors.len())].concat()
    }

    fn found(area: &[&[u8]]) -> (PplState, Vec<u64>) {
        let mut bytes = area.concat();
        bytes.resize(32768, 0);
        let log = PplLog::read(bytes.len() as u64, &ARRAY, |at, into| {
            let from = bytes.get(at as usize..at as usize + into.len());
            from.inspect(|from| into.copy_from_slice(from)).is_some()
        });
        (log.state, log.stretches.iter().map(|one| one.entry.data_sector.0).collect())
    }

    #[test]
    fn the_last_header_counts_and_the_first_says_whether_the_log_is_complete() {
        let complete = &PplHeader::complete(&ARRAY).encode()[..];
        let empty = &PplHeader::empty(&ARRAY).encode()[..];
        let mut damaged = header(9, &[5, 6]);
        *damaged.last_mut().expect("it has parity") ^= 1;
        assert_eq!(found(&[complete]), (PplState::Complete, vec![]));
        assert_eq!(found(&[complete, &header(2, &[5, 6])]), (PplState::Complete, vec![5, 6]));
        assert_eq!(found(&[complete, &header(0, &[5])]), (PplState::Complete, vec![]), "older than the first");
        assert_eq!(found(&[complete, &damaged]), (PplState::Complete, vec![5]), "torn: its rows were not begun");
        let ring = [complete, &header(2, &[5]), &header(1000, &[6])];
        assert_eq!(found(&ring), (PplState::Complete, vec![5]), "md has left the third one");
        assert_eq!(found(&[empty]), (PplState::Empty, vec![]));
        assert_eq!(found(&[&header(3, &[1]), &header(4, &[2]), &header(2, &[3])]), (PplState::Entries, vec![2]));
        assert_eq!(found(&[&header(3, &[1]), &damaged]), (PplState::Damaged, vec![5]));
        assert_eq!(found(&[&[0; 4096], &header(3, &[1])]), (PplState::Damaged, vec![]));
        assert_eq!(found(&[&header(1, &[1])]), (PplState::Entries, vec![1]), "md counts from 1");
    }

    /// What lies behind the end of the area is not the log's, whatever it looks like.
    #[test]
    fn a_log_ends_with_its_area() {
        let read = |area: u64, bytes: &[u8]| {
            let log = PplLog::read(area, &ARRAY, |at, into| {
                into.copy_from_slice(&bytes[at as usize..at as usize + into.len()]);
                true
            });
            (log.state, log.stretches.iter().map(|one| one.entry.data_sector.0).collect::<Vec<_>>())
        };
        // The parity of sector 5 ends at byte 4608, that of 6 at 5120.
        let two = [&header(2, &[5, 6])[..], &[0; 8192]].concat();
        for (area, state, found) in [
            (4096, PplState::Damaged, vec![]),
            (4607, PplState::Damaged, vec![]),
            (4608, PplState::Damaged, vec![5]),
            (4609, PplState::Damaged, vec![5]),
            (5119, PplState::Damaged, vec![5]),
            (5120, PplState::Entries, vec![5, 6]),
            (5121, PplState::Entries, vec![5, 6]),
        ] {
            assert_eq!(read(area, &two), (state, found), "{area} bytes");
        }
        // No parity could follow a header in the last 4096 bytes, so there is none.
        let later = [&header(3, &[])[..], &header(4, &[2]), &[0; 8192]].concat();
        for (area, state, found) in [
            (8191, PplState::Empty, vec![]),
            (8192, PplState::Empty, vec![]),
            (8193, PplState::Damaged, vec![]),
            (8704, PplState::Entries, vec![2]),
        ] {
            assert_eq!(read(area, &later), (state, found), "{area} bytes");
        }
    }
}
