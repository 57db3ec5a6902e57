//! Which one data block of a raid6 row is wrong, by how P and Q differ from what the data gives.
//! Owns: [`locate`]. Not here: what is done about it (`engine`), the kernels.
//! Invariant: a block is named only if its being wrong explains every byte of both differences.
//! Spec: docs/md/address-mapping.md#parity-and-syndrome.
//!
//! If only block z is wrong, by `e`, then P differs by `e`, and Q by `g^z * e`: at every byte of the sector the two
//! differences have the same quotient. Other damage gives it by chance at one byte in 255, and hardly ever at all of
//! them.
//!
//! ```text
//!   difference of P   00 03 00 41        Q / P = g^1 everywhere: the block with exponent 1 is wrong, and its right
//!   difference of Q   00 06 00 82        bytes are its bytes ^ the difference of P
//! ```

use crate::gf256;

/// The index in `exponents` of the one data block that is wrong. `p_difference` is P as stored ^ P as computed from the
/// data, `q_difference` the same for Q; both have the same length. `None`: P and Q differ in a way that no single data
/// block explains, or do not both differ.
pub fn locate(p_difference: &[u8], q_difference: &[u8], exponents: &[u8]) -> Option<usize> {
    assert_eq!(p_difference.len(), q_difference.len(), "of the same sector");
    let first = p_difference.iter().position(|byte| *byte != 0)?;
    let (p, q) = (p_difference[first], q_difference[first]);
    if q == 0 {
        return None;
    }
    let quotient = gf256::mul(q, gf256::inv(p));
    let explains = |(p, q): (&u8, &u8)| gf256::mul(quotient, *p) == *q;
    if !p_difference.iter().zip(q_difference).all(explains) {
        return None;
    }
    let exponent = gf256::log(quotient);
    exponents.iter().position(|of_block| *of_block == exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The differences that an error `e` in the block with this exponent leaves.
    fn differences(e: &[u8], exponent: u8) -> (Vec<u8>, Vec<u8>) {
        (e.to_vec(), e.iter().map(|byte| gf256::mul(gf256::exp(exponent), *byte)).collect())
    }

    #[test]
    fn every_error_of_one_byte_in_every_block_is_found() {
        let exponents: Vec<u8> = (0..gf256::ORDER).collect();
        for exponent in 0..gf256::ORDER {
            for e in 1..=255 {
                let (p, q) = differences(&[0, e, 0], exponent);
                assert_eq!(locate(&p, &q, &exponents), Some(usize::from(exponent)), "{e} by {exponent}");
            }
        }
    }

    #[test]
    fn an_exponent_that_no_block_has_names_none() {
        // DDF leaves gaps.
        let (p, q) = differences(&[7, 0, 200], 2);
        assert_eq!(locate(&p, &q, &[0, 3, 2, 5]), Some(2));
        assert_eq!(locate(&p, &q, &[0, 3, 1, 5]), None);
    }

    #[test]
    fn a_difference_of_one_parity_or_of_two_blocks_names_none() {
        let exponents: Vec<u8> = (0..8).collect();
        assert_eq!(locate(&[0, 0], &[0, 0], &exponents), None, "nothing differs");
        assert_eq!(locate(&[0, 9], &[0, 0], &exponents), None, "P is wrong");
        assert_eq!(locate(&[0, 0], &[0, 9], &exponents), None, "Q is wrong");
        for one in 0..8u8 {
            for other in (0..8u8).filter(|other| *other != one) {
                // Wrong in one block at the first byte, in another at the second.
                let ((p1, q1), (p2, q2)) = (differences(&[5, 0], one), differences(&[0, 77], other));
                let sum = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect::<Vec<u8>>();
                assert_eq!(locate(&sum(&p1, &p2), &sum(&q1, &q2), &exponents), None, "{one} and {other}");
            }
        }
    }
}
