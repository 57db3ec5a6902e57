//! Reading big-endian fields from the front of some bytes.
//! Owns: [`Cursor`]. Not here: any message. Invariant: it never reads out of bounds and never panics.

use crate::{NAME_BYTES_MAX, WireError};

/// The bytes of a message that are not read yet.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor(bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (front, rest) =
            self.0.split_at_checked(count).ok_or(WireError::Truncated { found: self.0.len(), expected: count })?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (front, rest) =
            self.0.split_first_chunk::<N>().ok_or(WireError::Truncated { found: self.0.len(), expected: N })?;
        self.0 = rest;
        Ok(*front)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string of an announced length, valid by the protocol's rules.
    pub(crate) fn string(&mut self, count: usize) -> Result<&'a str, WireError> {
        string(self.bytes(count)?)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Succeeds when nothing is left.
    pub(crate) fn end(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Excess { found: self.0.len() }) }
    }
}

/// The bytes as one of the protocol's strings: at most 4096 bytes of UTF-8 without zero bytes.
pub(crate) fn string(bytes: &[u8]) -> Result<&str, WireError> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(WireError::StringTooLong { found: bytes.len() });
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        return Err(WireError::StringInvalid { at });
    }
    std::str::from_utf8(bytes).map_err(|error| WireError::StringInvalid { at: error.valid_up_to() })
}

/// The longest prefix of `text` that has at most `bytes_max` bytes and ends with a whole character.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
