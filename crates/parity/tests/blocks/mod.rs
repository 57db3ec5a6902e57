//! Blocks at chosen addresses with guards around them, for the tests of kernels.
//! Owns: seeing a byte written outside. Not here: what a kernel has to write.

use std::io::Write;
use uraid_parity::Kernel;

/// Bytes around every block that no kernel may touch.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xa5;
/// Every kernel's registers are at most this long.
const REGISTER_BYTES: usize = 64;

/// A block in the middle of a larger buffer.
pub(crate) struct Block {
    buffer: Vec<u8>,
    start: usize,
    length: usize,
    pub(crate) misalignment: usize,
}

impl Block {
    /// `misalignment` is the address modulo the longest register.
    pub(crate) fn new(misalignment: usize, bytes: &[u8]) -> Block {
        let misalignment = misalignment % REGISTER_BYTES;
        let mut buffer = vec![UNTOUCHED; 2 * REGISTER_BYTES + bytes.len() + GUARD];
        let start = buffer.as_ptr().align_offset(REGISTER_BYTES) + misalignment;
        buffer[start..start + bytes.len()].copy_from_slice(bytes);
        Block { buffer, start, length: bytes.len(), misalignment }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.length]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.length]
    }

    pub(crate) fn assert_is(&self, expected: &[u8], what: &dyn Fn() -> String) {
        assert!(self.bytes() == expected, "{}: other bytes", what());
        let (before, after) = (&self.buffer[..self.start], &self.buffer[self.start + self.length..]);
        let is_untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == UNTOUCHED);
        assert!(is_untouched(before) && is_untouched(after), "{}: bytes around the block were written", what());
    }
}

/// A copy has its own address, with the same misalignment.
impl Clone for Block {
    fn clone(&self) -> Block {
        Block::new(self.misalignment, self.bytes())
    }
}

pub(crate) fn random_bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// What the processor lacks is not tested; this is said where the test runner hides nothing.
#[expect(clippy::disallowed_methods, reason = "the captured streams of a test show only its failure")]
pub(crate) fn say_what_is_lacking(test: &str) {
    for name in Kernel::lacking() {
        writeln!(std::io::stderr(), "{test}: kernel {name} is not tested, this processor lacks its instructions")
            .expect("stderr is open");
    }
}
