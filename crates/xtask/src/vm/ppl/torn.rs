//! Rows that a crash leaves half written: how many there are, and more of them.
//! Owns: the parity of all rows, which rows uraid's logs name. Not here: crashes (the parent).
//! Spec: docs/format/ppl.md.

use crate::vm::writers::CHUNK_BYTES;
use crate::vm::{Lab, at, lab_error, output_of};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 4096;
const ENTRIES_AT: usize = 536;
const ENTRY_BYTES: usize = 24;
const ENTRIES_MAX: usize = 148;

/// Where the areas of a member are, in bytes.
struct Places {
    data: u64,
    size: usize,
    log: u64,
}

impl Places {
    fn of(uraid: &Path, member: &Path) -> Lab<Places> {
        let text = output_of(Command::new(uraid).args(["examine", "--json"]).arg(member))?;
        let told: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let number = |name: &str| told.as_ref().and_then(|told| told[0].pointer(name)?.as_i64());
        let places = || {
            let log = number("/super_offset")? + number("/ppl/offset")?;
            Some(Places {
                data: number("/data_offset")? as u64 * SECTOR_BYTES as u64,
                size: number("/used_dev_size")? as usize * SECTOR_BYTES,
                log: log as u64 * SECTOR_BYTES as u64,
            })
        };
        places().map_or_else(|| lab_error(format!("uraid examine tells no places: {text}")), Ok)
    }
}

/// How many sectors have parity that is not that of the data: the xor of all members is zero where it is.
pub(super) fn torn_sectors(uraid: &Path, members: &[PathBuf]) -> Lab<usize> {
    let places = Places::of(uraid, &members[0])?;
    let mut sum = vec![0; places.size];
    for member in members {
        let mut bytes = vec![0; sum.len()];
        at(member, at(member, std::fs::File::open(member))?.read_exact_at(&mut bytes, places.data))?;
        sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
    }
    Ok(sum.chunks(SECTOR_BYTES).filter(|sector| sector.iter().any(|byte| *byte != 0)).count())
}

/// Spoils the parity of rows that uraid's logs name, as if it had not been written: a killed process hands its writes to
/// the kernel so fast that hardly one is missing. Leaves out what cannot be made good without the lost member. The number of
/// sectors.
pub(in crate::vm) fn spoil(uraid: &Path, members: &[PathBuf], is_symmetric: bool, lost: Option<usize>) -> Lab<usize> {
    let mut sectors = 0;
    for (slot, member) in members.iter().enumerate().filter(|(slot, _)| Some(*slot) != lost) {
        let places = Places::of(uraid, member)?;
        let file = at(member, std::fs::OpenOptions::new().read(true).write(true).open(member))?;
        let mut header = [0; HEADER_BYTES];
        // uraid's second header, behind the one without entries.
        at(member, file.read_exact_at(&mut header, places.log + HEADER_BYTES as u64))?;
        for entry in entries(&header).filter(|entry| entry.parity_slot == slot) {
            if lost != Some(entry.written_slot(members.len(), is_symmetric)) {
                let stretch = entry.stretch(members.len());
                at(member, file.write_all_at(&vec![0x5a; stretch.len()], places.data + stretch.start as u64))?;
                sectors += stretch.len() / SECTOR_BYTES;
            }
        }
    }
    Ok(sectors)
}

/// A part of one chunk that was to be written.
struct Entry {
    sector: usize,
    bytes: usize,
    parity_slot: usize,
}

/// Those of a header that name one chunk.
fn entries(header: &[u8; HEADER_BYTES]) -> impl Iterator<Item = Entry> {
    let number = |at: usize| header[at..at + 4].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let count = number(528).min(ENTRIES_MAX);
    let all = (0..count).map(move |entry| ENTRIES_AT + entry * ENTRY_BYTES);
    let is_of_one_chunk = move |entry: &usize| number(entry + 8) == number(entry + 12);
    all.filter(is_of_one_chunk).map(move |entry| Entry {
        sector: number(entry),
        bytes: number(entry + 8),
        parity_slot: number(entry + 16),
    })
}

impl Entry {
    /// Where its parity is, from the start of the data on.
    fn stretch(&self, slots: usize) -> Range<usize> {
        let start = self.sector * SECTOR_BYTES;
        let at = start / (CHUNK_BYTES * (slots - 1)) * CHUNK_BYTES + start % CHUNK_BYTES;
        at..at + self.bytes
    }

    /// The slot of the data: it follows the parity in symmetric layouts, and leaves it out in the others.
    fn written_slot(&self, slots: usize, is_symmetric: bool) -> usize {
        let index = self.sector * SECTOR_BYTES / CHUNK_BYTES % (slots - 1);
        match is_symmetric {
            true => (self.parity_slot + 1 + index) % slots,
            false => index + usize::from(index >= self.parity_slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_parity_in_its_row_and_its_data_beside_it() {
        // Row 1 of left-symmetric with 4 slots: data on 3, 0, 1, parity on 2; of left-asymmetric: on 0, 1, 3.
        let entry = Entry { sector: 3 * 128 + 128 + 5, bytes: 512, parity_slot: 2 };
        assert_eq!(entry.stretch(4), CHUNK_BYTES + 5 * 512..CHUNK_BYTES + 6 * 512);
        assert_eq!((entry.written_slot(4, true), entry.written_slot(4, false)), (0, 1));
        assert_eq!(Entry { sector: 3 * 128 + 256, ..entry }.written_slot(4, false), 3);
    }
}
