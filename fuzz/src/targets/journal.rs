//! A meta block of a raid5 journal.
//! Owns: parse, encode, parse again. Input: 1 byte (bit 0: keep the checksum), then the block's bytes.

use super::crc32c;
use crate::input::Input;
use uraid_format::journal::{JOURNAL_BLOCK_BYTES, JournalBlock, JournalEntry};

const SET: [u8; 16] = [7; 16];

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let keeps = input.byte() & 1 != 0;
    let mut bytes: [u8; JOURNAL_BLOCK_BYTES] = input.array();
    if !keeps {
        bytes[4..8].fill(0);
        let sum = crc32c(crc32c(!0, &SET), &bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    match JournalBlock::parse(&bytes, &SET) {
        Ok(block) => {
            let blocks: usize = block.entries.iter().map(JournalEntry::blocks).sum();
            assert_eq!(block.log_length().0, 8 * (1 + blocks as u64));
            assert_eq!(JournalBlock::parse(&block.encode(&SET), &SET), Ok(block));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
