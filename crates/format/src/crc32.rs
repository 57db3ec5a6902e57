//! The two 32-bit checksums: CRC-32C of partial parity logs and journals, CRC-32 of GUID partition tables.
//! Owns: chaining from a seed, which way a sum is computed. Not here: polynomials and tables (the crate `crc`), the
//! instruction (`uraid_parity`), which bytes are summed.
//! Invariant: the sum of no bytes is the seed. Both ways give the same sum.
//! Spec: RFC 3720 B.4 has examples of CRC-32C; CRC-32 is that of zlib and Ethernet.

use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, Crc, Table};

/// One of the checksums.
pub(crate) struct Crc32 {
    table: Crc<u32, Table<16>>,
    /// `None`: this processor has no instruction for it.
    by_instruction: fn(u32, &[u8]) -> Option<u32>,
}

/// Polynomial 0x1edc6f41.
pub(crate) static CASTAGNOLI: Crc32 =
    Crc32 { table: Crc::<u32, Table<16>>::new(&CRC_32_ISCSI), by_instruction: uraid_parity::crc32c };

/// Polynomial 0x04c11db7.
pub(crate) static ETHERNET: Crc32 =
    Crc32 { table: Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC), by_instruction: |_, _| None };

impl Crc32 {
    /// The sum of `bytes`, starting from a seed. Neither seed nor sum is inverted, so that pieces can be chained.
    pub(crate) fn raw(&self, seed: u32, bytes: &[u8]) -> u32 {
        (self.by_instruction)(seed, bytes).unwrap_or_else(|| self.by_table(seed, bytes))
    }

    fn by_table(&self, seed: u32, bytes: &[u8]) -> u32 {
        // The crate takes the seed in the order of the polynomial's bits, and inverts the sum.
        let mut digest = self.table.digest_with_initial(seed.reverse_bits());
        digest.update(bytes);
        !digest.finalize()
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
    fn the_instruction_and_the_table_give_the_same_sums() {
        let bytes: Vec<u8> = (0..5000u32).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
        for (start, length) in
            (0..9).flat_map(|start| [0, 1, 7, 8, 9, 15, 16, 17, 535, 4096].map(|length| (start, length)))
        {
            let part = &bytes[start..start + length];
            for seed in [0, !0, 0x1234_5678] {
                assert_eq!(CASTAGNOLI.raw(seed, part), CASTAGNOLI.by_table(seed, part), "{length} bytes from {start}");
            }
        }
    }

    #[test]
    fn the_sum_of_no_bytes_is_the_seed() {
        for seed in [0, 1, !0, 0x1234_5678] {
            assert_eq!((CASTAGNOLI.raw(seed, &[]), ETHERNET.raw(seed, &[])), (seed, seed));
        }
    }

    #[test]
    fn the_crc32_of_partition_tables_matches_the_check_value() {
        assert_eq!(ETHERNET.standard(b"123456789"), 0xcbf4_3926);
        assert_eq!(!ETHERNET.raw(ETHERNET.raw(!0, b"1234"), b"56789"), 0xcbf4_3926);
    }
}
