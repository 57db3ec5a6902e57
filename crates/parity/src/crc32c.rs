//! CRC-32C by the processor's instruction for it.
//! Owns: whether this processor has it. Not here: the table that does the same without it, what is summed
//! (`uraid_format`).
//! Invariant: the sum of no bytes is the seed. Spec: RFC 3720 B.4.

/// The sum of `bytes`, starting from `seed`. Neither seed nor sum is inverted, so that pieces can be chained. `None`: this
/// processor has no instruction for it.
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the instruction was detected.
        return Some(unsafe { by_instruction(seed, bytes) });
    }
    let _ = (seed, bytes);
    None
}

/// Eight bytes at a time: each instruction waits for the last one, three cycles.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(seed: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(u64::from(seed), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(sum as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}
