//! Reading and writing fields in the machine's byte order.
//! Owns: [`Cursor`], [`Fields`]. Not here: any message. Invariant: the cursor never reads out of bounds and never panics.

use crate::WireError;

/// The bytes of a message that are not read yet.
pub(crate) struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (front, rest) =
            self.0.split_first_chunk::<N>().ok_or(WireError::Truncated { found: self.0.len(), expected: N })?;
        self.0 = rest;
        Ok(*front)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A name that ends with a zero byte, without it.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], WireError> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(WireError::Name { found: self.0.len() })?;
        Ok(&self.0[..end])
    }
}

/// A message that is filled from its first field to its last.
pub(crate) struct Fields<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    pub(crate) fn new() -> Fields<N> {
        Fields { bytes: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> Fields<N> {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    pub(crate) fn u16(self, value: u16) -> Fields<N> {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Fields<N> {
        self.put(&value.to_ne_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Fields<N> {
        self.put(&value.to_ne_bytes())
    }

    /// Fields of zeroes.
    pub(crate) fn zeroes(mut self, bytes: usize) -> Fields<N> {
        self.at += bytes;
        self
    }

    pub(crate) fn put_all(self, fields: &[u8]) -> Fields<N> {
        self.put(fields)
    }

    /// The bytes. Panics if a field is missing: the message is our own.
    pub(crate) fn done(self) -> [u8; N] {
        assert_eq!(self.at, N, "a message has all of its fields");
        self.bytes
    }
}
