//! Pseudo-random numbers and the contents of written sectors.
//! Owns: splitmix64, the tag of a sector. Not here: what a sector may hold now (`model`).
//! Invariant: tags are unique and not linear: no xor of tags is a tag, so a wrong reconstruction cannot look right.

/// Bytes of one sector.
pub const SECTOR: usize = 512;

/// One step of splitmix64, as a function of its state.
pub fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A generator with a seed, for choices and for incompressible bytes.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        self.number() % bound
    }

    /// True with probability 1 / `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.number().to_le_bytes()[..piece.len()]);
        }
    }
}

/// Writes the tag of operation `operation` for sector `sector`: the two numbers, so that a failure can report what it
/// found, and random bytes that depend on both.
pub fn fill_tag(sector: u64, operation: u64, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), SECTOR);
    bytes[..8].copy_from_slice(&sector.to_le_bytes());
    bytes[8..16].copy_from_slice(&operation.to_le_bytes());
    Random(mix(sector) ^ mix(operation).rotate_left(32)).fill(&mut bytes[16..]);
}

/// The sector and the operation that a tag claims to be from.
pub fn claim_of_tag(bytes: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    (number(0), number(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_xor_of_tags_of_two_operations_differs_from_sector_to_sector() {
        let tag = |sector, operation| {
            let mut bytes = [0; SECTOR];
            fill_tag(sector, operation, &mut bytes);
            bytes
        };
        let delta = |sector| -> Vec<u8> { tag(sector, 1).iter().zip(tag(sector, 2)).map(|(a, b)| a ^ b).collect() };
        assert_ne!(delta(7)[16..], delta(8)[16..]);
        assert_eq!(claim_of_tag(&tag(7, 2)), (7, 2));
    }
}
