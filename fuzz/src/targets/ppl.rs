//! The header of a partial parity log.
//! Owns: parse, write, parse. Input: 1 (bit 0: keep signature and checksum as they are), then the bytes.

use super::crc32c;
use crate::input::Input;
use uraid_format::ppl::{PPL_HEADER_BYTES, PplHeader};

const SET: [u8; 16] = [7; 16];

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let keeps = input.byte() & 1 != 0;
    let mut bytes: [u8; PPL_HEADER_BYTES] = input.array();
    if !keeps {
        // docs/format/ppl.md: the signature behind 512 reserved bytes, the checksum at 532.
        bytes[512..516].copy_from_slice(&(!crc32c(!0, &SET)).to_le_bytes());
        bytes[532..536].fill(0);
        let sum = !crc32c(!0, &bytes);
        bytes[532..536].copy_from_slice(&sum.to_le_bytes());
    }
    match PplHeader::parse(&bytes, &SET) {
        Ok(header) => {
            assert!(header.log_bytes() >= PPL_HEADER_BYTES as u64);
            assert_eq!(PplHeader::parse(&header.encode(), &SET), Ok(header));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
