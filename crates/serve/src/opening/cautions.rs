//! What else lives on a device that carries a superblock: the array of that superblock may be long gone.
//! Owns: how it is found, its words. Not here: the formats (`uraid_format`), several superblocks of one device (`metadata`),
//! when it is said (the callers).
//! Invariant: nothing is written. What cannot be read is not mentioned.
//!
//! ```text
//!   disk0     |table|--- p1: a member of today's array ------------------|   [1.0 of an array of years ago]
//!             a start of the old array would write over the table, and over the partition
//! ```

use crate::opening::metadata;
use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors};
use uraid_control::dates;
use uraid_control::member_name;
use uraid_control::names;
use uraid_format::partition;
use uraid_format::signature::{self, Kind, Signature};
use uraid_format::{Superblock, find, uuid};

/// What to know before the array of this superblock is started in spite of something: one sentence each, without the name
/// of the member. `read` fills bytes from a byte on, and says whether it could.
pub fn of(
    name: &str,
    size: Sectors,
    superblock: &Superblock,
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
) -> Vec<String> {
    let byte = |at: Sector| at.0 * SECTOR_BYTES as u64;
    let places = find(size, |at, block| if read(byte(at), &mut block[..]) { Ok(()) } else { Err(()) });
    let mut found = places.map(|found| metadata::two_arrays(&found)).unwrap_or_default();
    found.extend(in_partitions(name, size, superblock, &mut read));
    let data = Range::new(superblock.data_offset, superblock.data_size);
    for mark in marks(Range::new(Sector(0), size), &mut read) {
        let at = Sector(mark.at / SECTOR_BYTES as u64);
        // What lies in the data is the array's.
        let is_data = data.start <= at && at < data.end();
        if is_other(mark.kind) && !is_data {
            found.push(format!(
                "carries {mark}, outside of the array's data: from before the array was made, or put there since"
            ));
        }
    }
    found
}

/// Whether a mark is of something that is not md's, and no partition table.
fn is_other(kind: Kind) -> bool {
    !kind.is_md() && kind != Kind::Gpt && kind != Kind::Mbr
}

/// Members of other arrays in partitions of the device.
fn in_partitions(
    name: &str,
    size: Sectors,
    own: &Superblock,
    read: &mut impl FnMut(u64, &mut [u8]) -> bool,
) -> Vec<String> {
    // A window, or a partition, has no names for its parts.
    if !member_name::is_whole(name) {
        return Vec::new();
    }
    let table = partition::read(size.bytes(), |at, into| if read(at, into) { Ok(()) } else { Err(()) });
    let Ok(table) = table else { return Vec::new() };
    let mut found = Vec::new();
    for part in table.partitions.iter().filter(|part| part.start.0 + part.length.0 <= size.0) {
        let at = |sector: Sector| (part.start.0 + sector.0) * SECTOR_BYTES as u64;
        let other = find(part.length, |sector, bytes| if read(at(sector), &mut bytes[..]) { Ok(()) } else { Err(()) });
        let Ok(other) = other else { continue };
        let other = other.superblock;
        if other.set_uuid == own.set_uuid {
            continue;
        }
        let age = match other.updated_seconds().cmp(&own.updated_seconds()) {
            std::cmp::Ordering::Greater => "later than this superblock",
            std::cmp::Ordering::Equal => "at the same time as this superblock",
            std::cmp::Ordering::Less => "earlier than this superblock",
        };
        found.push(format!(
            "has a partition table, and its partition {name}@p{} is a member of another array, {} ({}), updated {}, {age}: \
             to start the array of the whole disk would write over both; `uraid zero-superblock {name}` takes only the \
             superblock of the whole disk away",
            part.number,
            names::printable(&names::short_name(&other.set_name.as_str(), &other.set_uuid)),
            uuid::text(&other.set_uuid),
            dates::utc(other.updated_seconds()),
        ));
    }
    found
}

fn marks(all: Range, read: &mut impl FnMut(u64, &mut [u8]) -> bool) -> Vec<Signature> {
    let window = Sectors((signature::WINDOW_BYTES / SECTOR_BYTES) as u64).min(all.length);
    let mut part = |from: Sector| {
        let mut bytes = vec![0; window.len_bytes()];
        if read(from.0 * SECTOR_BYTES as u64, &mut bytes) { bytes } else { Vec::new() }
    };
    let (head, tail) = (part(all.start), part(Sector(all.end().0 - window.0)));
    signature::detect_all(&head, &tail, all.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_format::create::{CreateOptions, NewMember, create};
    use uraid_layout::Level;

    const DISK: Sectors = Sectors(8192);
    const START: Sector = Sector(2048);

    fn member(size: Sectors, set_uuid: [u8; 16]) -> Superblock {
        let options = CreateOptions { assume_clean: true, ..CreateOptions::new(Level::Raid1, 2, set_uuid) };
        let made = create(&options, &[NewMember::Device { size, uuid: [3; 16] }, NewMember::Missing])
            .expect("it is large enough");
        made.superblocks.into_iter().flatten().next().expect("its superblock")
    }

    /// A partition that ends one sector before its disk, with it, and behind it. What is behind the disk is not looked at.
    #[test]
    fn a_member_in_a_partition_up_to_the_last_sector_of_a_disk_is_told() {
        let whole = DISK.0 - START.0;
        for (length, is_told) in [(whole - 1, true), (whole, true), (whole + 1, false)] {
            let mut disk = vec![0; DISK.len_bytes()];
            disk[450] = 0xfd;
            disk[454..458].copy_from_slice(&(START.0 as u32).to_le_bytes());
            disk[458..462].copy_from_slice(&(length as u32).to_le_bytes());
            disk[510..512].copy_from_slice(&[0x55, 0xaa]);
            let inside = member(Sectors(length), [1; 16]);
            let at = Sectors(START.0 + inside.super_offset.0).len_bytes();
            disk[at..at + uraid_format::SUPERBLOCK_BYTES].copy_from_slice(&inside.encode()[..]);
            let read = |at: u64, into: &mut [u8]| {
                let found = disk.get(at as usize..at as usize + into.len());
                found.map(|found| into.copy_from_slice(found)).is_some()
            };
            let told = of("disk", DISK, &member(DISK, [2; 16]), read);
            let is_named = told.iter().any(|caution| caution.contains("its partition disk@p1 is a member"));
            assert_eq!((is_named, told.len()), (is_told, usize::from(is_told)), "of {length} sectors: {told:?}");
        }
    }
}
