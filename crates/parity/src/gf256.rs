//! The field GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2: single elements.
//! Owns: the tables and the laws. Not here: whole blocks (the kernels).
//! Invariant: `mul(exp(log(a)), 1) == a` for every a but zero. Spec: docs/md/address-mapping.md#parity-and-syndrome.

/// The order of the generator: exponents are meaningful modulo this.
pub const ORDER: u8 = 255;

/// The polynomial without its x^8: added after a doubling that overflows.
pub(crate) const REDUCTION: u8 = 0x1d;

const EXP: [u8; ORDER as usize] = exponents();
const LOG: [u8; 256] = logarithms();

const fn exponents() -> [u8; ORDER as usize] {
    let mut table = [0; ORDER as usize];
    let mut value = 1;
    let mut n = 0;
    while n < table.len() {
        table[n] = value;
        value = double(value);
        n += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < EXP.len() {
        table[EXP[n] as usize] = n as u8;
        n += 1;
    }
    table
}

/// `2 * a`.
pub const fn double(a: u8) -> u8 {
    // Shifting an i8 right by 7 copies its top bit to all bits: the correction is applied exactly if x^7 was set.
    (a << 1) ^ (((a as i8) >> 7) as u8 & REDUCTION)
}

/// `a * b`.
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    exp_of_sum(LOG[a as usize], LOG[b as usize])
}

/// `1 / a`; zero has no inverse, asking for it is a bug.
pub const fn inv(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    exp_of_sum(ORDER - LOG[a as usize], 0)
}

/// `2^n`, n modulo 255.
pub const fn exp(n: u8) -> u8 {
    EXP[(n % ORDER) as usize]
}

/// The n in 0..255 with `2^n == a`; zero has none, asking for it is a bug.
pub const fn log(a: u8) -> u8 {
    assert!(a != 0, "zero has no logarithm");
    LOG[a as usize]
}

const fn exp_of_sum(a: u8, b: u8) -> u8 {
    EXP[(a as usize + b as usize) % ORDER as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = u8> {
        0..=255
    }

    /// Multiplication as the definition has it: shift, add, reduce.
    fn mul_by_definition(a: u8, b: u8) -> u8 {
        let mut product: u16 = 0;
        for bit in 0..8 {
            if b & (1 << bit) != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..15).rev() {
            if product & (1 << bit) != 0 {
                product ^= 0x11d << (bit - 8);
            }
        }
        product as u8
    }

    #[test]
    fn every_product_is_the_one_of_the_definition() {
        for a in all() {
            assert_eq!(double(a), mul_by_definition(a, 2), "2 * {a}");
            for b in all() {
                assert_eq!(mul(a, b), mul_by_definition(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn multiplication_is_commutative_associative_and_distributive() {
        for a in all() {
            for b in all() {
                assert_eq!(mul(a, b), mul(b, a));
                for c in all() {
                    assert_eq!(mul(a, mul(b, c)), mul(mul(a, b), c), "{a} {b} {c}");
                    assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c), "{a} {b} {c}");
                }
            }
        }
    }

    #[test]
    fn one_is_neutral_and_every_element_but_zero_has_one_inverse() {
        for a in all() {
            assert_eq!(mul(a, 1), a);
            assert_eq!(mul(a, 0), 0);
            if a != 0 {
                assert_eq!(mul(a, inv(a)), 1, "1 / {a}");
                assert_eq!(inv(inv(a)), a);
            }
        }
    }

    #[test]
    fn the_generator_reaches_every_element_but_zero_exactly_once() {
        let mut is_seen = [false; 256];
        for n in 0..ORDER {
            let value = exp(n);
            assert!(!is_seen[usize::from(value)], "2^{n} came before");
            is_seen[usize::from(value)] = true;
            assert_eq!(log(value), n);
        }
        assert!(!is_seen[0]);
        assert_eq!(exp(ORDER), 1);
    }
}
