//! The registers of x86-64: AVX2, and AVX-512 with GFNI.
//! Owns: the instructions, and detecting them. Not here: the loops (`vector`).
//! Invariant: a table leaves this file only after its instructions were detected. Spec: md-reference.md 2.6.

use crate::gf256;
use crate::kernel::{Factors, Steps, Table};
use crate::vector::{self, Vector};
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

/// The tables that this processor can run, the fastest last.
pub(crate) fn detected() -> impl Iterator<Item = &'static Table> {
    let avx2 = is_x86_feature_detected!("avx2").then_some(&avx2::TABLE);
    // GFNI's own multiplication has another polynomial; its affine transformation multiplies by a constant modulo any.
    let has_avx512 =
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("gfni");
    avx2.into_iter().chain(has_avx512.then_some(&avx512::TABLE))
}

#[derive(Clone, Copy)]
struct Ymm(__m256i);

impl Vector for Ymm {
    const BYTES: usize = 32;
    /// The products of the factor with every low and with every high half of a byte.
    type Factor = (__m256i, __m256i);

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: promised by the caller; the load takes any alignment.
        Ymm(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: promised by the caller; the store takes any alignment.
        unsafe { _mm256_storeu_si256(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises AVX2.
        Ymm(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller promises AVX2.
        Ymm(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promises AVX2.
        unsafe {
            // A byte below zero has its x^7 set: it overflows and is corrected.
            let overflows = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let correction = _mm256_and_si256(overflows, _mm256_set1_epi8(gf256::REDUCTION as i8));
            Ymm(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), correction))
        }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let (low, high) = half_byte_products(factor);
        // SAFETY: the caller promises AVX2; both tables are 16 bytes.
        unsafe {
            let low = _mm_loadu_si128(low.as_ptr().cast());
            let high = _mm_loadu_si128(high.as_ptr().cast());
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    unsafe fn multiply(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller promises AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, mask));
            let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), mask));
            Ymm(_mm256_xor_si256(of_low, of_high))
        }
    }
}

fn half_byte_products(factor: u8) -> ([u8; 16], [u8; 16]) {
    let low = std::array::from_fn(|half| gf256::mul(factor, half as u8));
    let high = std::array::from_fn(|half| gf256::mul(factor, (half as u8) << 4));
    (low, high)
}

#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Vector for Zmm {
    const BYTES: usize = 64;
    /// The factor as an 8 x 8 matrix of bits, once per 64-bit lane.
    type Factor = __m512i;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: promised by the caller; the load takes any alignment.
        Zmm(unsafe { _mm512_loadu_si512(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: promised by the caller; the store takes any alignment.
        unsafe { _mm512_storeu_si512(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller promises AVX-512.
        Zmm(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller promises AVX-512.
        Zmm(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        const TWO: i64 = matrix(2) as i64;
        // SAFETY: the caller promises AVX-512 and GFNI.
        Zmm(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, _mm512_set1_epi64(TWO)) })
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller promises AVX-512.
        unsafe { _mm512_set1_epi64(matrix(factor) as i64) }
    }

    #[inline(always)]
    unsafe fn multiply(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller promises AVX-512 and GFNI.
        Zmm(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

/// Multiplication by a constant as the bit matrix of `vgf2p8affineqb`: byte 7 - i says which bits of the operand
/// are summed to bit i of the product. Bit i of `c * x` sums the bits j of x where bit i of `c * 2^j` is set.
const fn matrix(factor: u8) -> u64 {
    let mut rows = [0u8; 8];
    let mut from = 0;
    while from < 8 {
        let product = gf256::mul(factor, 1 << from);
        let mut to = 0;
        while to < 8 {
            rows[7 - to] |= ((product >> to) & 1) << from;
            to += 1;
        }
        from += 1;
    }
    u64::from_le_bytes(rows)
}

const _: () = assert!(matrix(1) == 0x0102_0408_1020_4080);
const _: () = assert!(matrix(2) == 0x8001_8284_8810_2040);

/// The loops of `vector` once more, inside functions that carry the target feature.
macro_rules! table {
    ($module:ident, $name:literal, $features:literal, $register:ident) => {
        mod $module {
            use super::*;

            pub(crate) static TABLE: Table = Table {
                name: $name,
                xor,
                xor_into,
                update_p,
                update_q,
                update_pq,
                generate_pq,
                generate_q,
                multiply_into,
                solve_one,
                solve_two,
            };

            table!($features, $register, {
                fn xor(target: &mut [u8], sources: &[&[u8]], at: usize);
                fn xor_into(target: &mut [u8], source: &[u8]);
                fn update_p(p: &mut [u8], old: &[u8], new: &[u8]);
                fn update_q(q: &mut [u8], old: &[u8], new: &[u8], factor: u8);
                fn update_pq(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8);
                fn generate_pq(p: &mut [u8], q: &mut [u8], steps: Steps<'_>, at: usize);
                fn generate_q(q: &mut [u8], steps: Steps<'_>, at: usize);
                fn multiply_into(q: &mut [u8], source: &[u8], factor: u8);
                fn solve_one(block: &mut [u8], q: &[u8], factor: u8);
                fn solve_two(a: &mut [u8], b: &mut [u8], p: &[u8], q: &[u8], factors: Factors);
            });
        }
    };
    ($features:literal, $register:ident, { $(fn $kernel:ident($($argument:ident: $type:ty),*);)* }) => {
        $(
            #[target_feature(enable = $features)]
            unsafe fn $kernel($($argument: $type),*) {
                // SAFETY: the promises are handed on: the instructions were detected, the caller checked the lengths.
                unsafe { vector::$kernel::<$register>($($argument),*) }
            }
        )*
    };
}

table!(avx2, "avx2", "avx2", Ymm);
table!(avx512, "avx512+gfni", "avx512f,avx512bw,gfni", Zmm);
