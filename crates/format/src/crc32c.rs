//! CRC-32C, the sum of partial parity logs and journals.
//! Owns: the table and the loop. Not here: which bytes are summed.
//! Invariant: the empty sum of a seed is the seed. A table of our own: a few lines, for blocks of 4 KiB now and then,
//! do not pay for a dependency.
//! Spec: RFC 3720 B.4 has the polynomial and examples.

/// The polynomial 0x1edc6f41 with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut sum = at as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 != 0 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
}

/// The sum of `bytes` over a seed, inverted neither before nor after: this is how pieces are chained.
pub(crate) fn raw(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |sum, byte| sum >> 8 ^ TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize])
}

/// The usual sum: from all ones, inverted at the end.
pub(crate) fn standard(bytes: &[u8]) -> u32 {
    !raw(!0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_the_rfc() {
        assert_eq!(standard(b"123456789"), 0xe306_9283);
        assert_eq!(standard(&[0; 32]), 0x8a91_36aa);
        assert_eq!(standard(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(standard(&std::array::from_fn::<u8, 32, _>(|n| n as u8)), 0x46dd_794e);
        assert_eq!(!raw(raw(!0, b"12345"), b"6789"), 0xe306_9283);
    }
}
