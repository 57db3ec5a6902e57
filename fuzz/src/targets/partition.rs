//! Partition tables on a disk of any size.
//! Owns: what a table may say, and how much is read for it. Not here: whether a partition is inside the disk (who opens it).
//! Input: disk bytes 8, flags 1 (1: right checksums, 2: the last block is a header too, 4: some reads fail), the start.

use crate::input::Input;
use uraid_format::partition::read;

const IMAGE_BYTES: usize = 34 * 512;
/// Two sizes of blocks, two headers each, 1024 entries of up to 4096 bytes read at most twice.
const READS_MAX: usize = 20_000;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (disk_bytes, flags) = (input.u64(), input.byte());
    let mut image = vec![0; IMAGE_BYTES];
    let front = input.bytes(IMAGE_BYTES);
    image[..front.len()].copy_from_slice(front);
    if flags & 1 != 0 {
        seal(&mut image);
    }
    let last = disk_bytes.saturating_sub(512);
    let mut reads = 0;
    let table = read(disk_bytes, |at, into| {
        reads += 1;
        let end = at.checked_add(into.len() as u64).expect("a read ends on the disk");
        assert!(into.len() <= 4096 && end <= disk_bytes, "{} bytes at {at} of {disk_bytes}", into.len());
        if flags & 4 != 0 && at % 7 == 3 {
            return Err(());
        }
        let from = if at == last && flags & 2 != 0 { 1024 } else { at };
        for (byte, at) in into.iter_mut().zip(from..) {
            *byte = usize::try_from(at).ok().and_then(|at| image.get(at)).copied().unwrap_or(0);
        }
        Ok(())
    });
    assert!(reads <= READS_MAX, "{reads} reads");
    if let Ok(table) = table {
        assert!(table.partitions.iter().all(|partition| partition.length.0 > 0 && partition.number > 0));
        assert!(table.partitions.is_sorted_by(|a, b| a.number < b.number));
    }
}

/// Makes the checksums of a GPT in blocks of 512 bytes right, entries first; UEFI Specification, table 5-5.
fn seal(image: &mut [u8]) {
    let word = |image: &[u8], at: usize| u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes")) as usize;
    let start = word(image, 512 + 72).saturating_mul(512);
    let bytes = word(image, 512 + 80).saturating_mul(word(image, 512 + 84));
    if let Some(entries) = start.checked_add(bytes).and_then(|end| image.get(start..end)) {
        let sum = crc32(entries).to_le_bytes();
        image[512 + 88..512 + 92].copy_from_slice(&sum);
    }
    let header_bytes = word(image, 512 + 12).min(512);
    image[512 + 16..512 + 20].fill(0);
    let sum = crc32(&image[512..512 + header_bytes]).to_le_bytes();
    image[512 + 16..512 + 20].copy_from_slice(&sum);
}

fn crc32(bytes: &[u8]) -> u32 {
    !super::crc(0xedb8_8320, !0, bytes)
}
