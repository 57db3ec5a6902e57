//! The two 32-bit checksums: CRC-32C of partial parity logs and journals, CRC-32 of GUID partition tables.
//! Owns: tables and the loop. Not here: which bytes are summed.
//! Invariant: the sum of no bytes is the seed. No dependency, because it is a few lines, used for occasional blocks of
//! 4 KiB.
//! Spec: RFC 3720 B.4 has the polynomial of CRC-32C and examples; CRC-32 is that of zlib and Ethernet.

/// A polynomial, as a table of the effect of each byte on a sum.
pub(crate) struct Crc32([u32; 256]);

/// Polynomial 0x1edc6f41.
pub(crate) static CASTAGNOLI: Crc32 = Crc32::new(0x82f6_3b78);

/// Polynomial 0x04c11db7.
pub(crate) static ETHERNET: Crc32 = Crc32::new(0xedb8_8320);

impl Crc32 {
    /// From the polynomial with its bits reversed.
    const fn new(polynomial: u32) -> Crc32 {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut sum = at as u32;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 != 0 { sum >> 1 ^ polynomial } else { sum >> 1 };
                bit += 1;
            }
            table[at] = sum;
            at += 1;
        }
        Crc32(table)
    }

    /// The sum of `bytes` starting from a seed, inverted neither before nor after, so that pieces can be chained.
    pub(crate) fn raw(&self, seed: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(seed, |sum, byte| sum >> 8 ^ self.0[((sum ^ u32::from(*byte)) & 0xff) as usize])
    }

    /// The usual sum: from all ones, inverted at the end.
    pub(crate) fn standard(&self, bytes: &[u8]) -> u32 {
        !self.raw(!0, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_are_those_of_the_rfc() {
        assert_eq!(CASTAGNOLI.standard(b"123456789"), 0xe306_9283);
        assert_eq!(CASTAGNOLI.standard(&[0; 32]), 0x8a91_36aa);
        assert_eq!(CASTAGNOLI.standard(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(CASTAGNOLI.standard(&std::array::from_fn::<u8, 32, _>(|n| n as u8)), 0x46dd_794e);
        assert_eq!(!CASTAGNOLI.raw(CASTAGNOLI.raw(!0, b"12345"), b"6789"), 0xe306_9283);
    }

    #[test]
    fn the_crc32_of_partition_tables_matches_the_check_value() {
        assert_eq!(ETHERNET.standard(b"123456789"), 0xcbf4_3926);
        assert_eq!(!ETHERNET.raw(ETHERNET.raw(!0, b"1234"), b"56789"), 0xcbf4_3926);
    }
}
