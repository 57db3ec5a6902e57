//! The bytes that clients write: each sector says which write it is of.
//! Owns: [`tag`], comparing and describing tags. Not here: which of them are legal (`oracle`).
//! Invariant: the first words name sector, write and array, so two tags are never equal; no xor of several is a tag.

use crate::random::rng::mix;
use uraid_block::SECTOR_BYTES;

/// Every tag starts with it.
const MAGIC: u64 = 0x5552_4149_4453_494d;

/// The words of a tag.
const TAG_WORDS: usize = SECTOR_BYTES / 8;

/// The 512 bytes that one write stores in one sector: self-describing, and not linear under xor.
pub fn tag(array: u64, lba: u64, op: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    let (words, _) = bytes.as_chunks_mut();
    for (word, value) in words.iter_mut().zip(tag_words(array, lba, op)) {
        *word = value.to_le_bytes();
    }
    bytes
}

/// The words of a tag, computed apart from each other, which a processor does side by side.
fn tag_words(array: u64, lba: u64, op: u64) -> impl Iterator<Item = u64> {
    let first = [MAGIC, lba, op, array];
    let seed = mix(mix(lba) ^ mix(op).rotate_left(20) ^ mix(array).rotate_left(40));
    let more = (first.len()..TAG_WORDS).map(move |index| {
        let index = index as u64;
        mix(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    });
    first.into_iter().chain(more)
}

/// Whether the bytes of a sector are this tag.
pub(super) fn is_tag(bytes: &[u8], array: u64, lba: u64, op: u64) -> bool {
    let (words, _) = bytes.as_chunks();
    let wrong = words.iter().zip(tag_words(array, lba, op)).fold(0, |wrong, (word, tag)| {
        // No exit at the first wrong word: most tags are right, and without branches they are computed side by side.
        wrong | (u64::from_le_bytes(*word) ^ tag)
    });
    bytes.len() == SECTOR_BYTES && wrong == 0
}

/// These bytes as text, for a report.
pub fn describe(bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == 0) {
        return "zeroes".to_string();
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    if word(0) != MAGIC {
        return format!("rubbish {:016x} {:016x}", word(0), word(1));
    }
    let (lba, op, array) = (word(1), word(2), word(3));
    let state = if bytes == tag(array, lba, op) { "" } else { ", damaged" };
    format!("the bytes of sector {lba} op {op}{state}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_of_a_tag_counts() {
        let mut bytes = tag(7, 300, 12);
        assert!(is_tag(&bytes, 7, 300, 12));
        assert!(!is_tag(&bytes, 6, 300, 12) && !is_tag(&bytes, 7, 301, 12) && !is_tag(&bytes, 7, 300, 13));
        assert!(!is_tag(&bytes[..504], 7, 300, 12));
        for bit in 0..SECTOR_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_tag(&bytes, 7, 300, 12), "bit {bit} was flipped");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
