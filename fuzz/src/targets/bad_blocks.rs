//! The bad-block log of a member.
//! Owns: parse, write, parse. Input: shift 1, then the log's bytes; the rest is filled with end marks.

use crate::input::Input;
use uraid_format::bad_blocks::{BAD_BLOCKS_BYTES, BadBlockLog};

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shift = input.byte();
    let mut log = [0xff; BAD_BLOCKS_BYTES];
    let front = input.bytes(BAD_BLOCKS_BYTES);
    log[..front.len()].copy_from_slice(front);
    match BadBlockLog::parse(&log, shift) {
        Ok(list) => {
            let written = list.encode().expect("what was read can be written");
            assert_eq!(BadBlockLog::parse(&written[..], shift), Ok(list));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
