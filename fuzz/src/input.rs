//! Values out of an input's bytes.
//! Owns: the reader; it never fails. Not here: what the values mean (the targets).
//! Invariant: after the end of the input all bytes are zero.

/// Reads from the front.
pub struct Input<'a> {
    left: &'a [u8],
}

impl<'a> Input<'a> {
    /// From the first byte on.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { left: bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// At most this many bytes, fewer at the end.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (front, left) = self.left.split_at(count.min(self.left.len()));
        self.left = left;
        front
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// Exactly this many bytes, filled up.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let front = self.bytes(N);
        array[..front.len()].copy_from_slice(front);
        array
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Little-endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Little-endian.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Little-endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number of any magnitude from three bytes: small ones and those beside powers of two come up often.
    pub fn number(&mut self) -> u64 {
        let (shift, low) = (self.byte(), u64::from(self.u16()));
        match shift >> 6 {
            0 => low,
            1 => low.wrapping_shl(u32::from(shift & 63)),
            2 => (1u64 << (shift & 63)).wrapping_add(low),
            _ => (1u64 << (shift & 63)).wrapping_sub(low),
        }
    }

    /// One of some values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }
}
