//! The registers of x86-64: AVX2 and AVX-512, each with and without GFNI.
//! Owns: the instructions, detecting them, and which set is the fastest. Not here: the loops (`vector`).
//! Invariant: a table is offered only after its instructions were detected.
//! Spec: docs/md/address-mapping.md#parity-and-syndrome.

use crate::gf256;
use crate::table::{Factors, Stores, Sum, Table};
use crate::vector::{self, Vector};
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

/// Every table, the fastest last, and whether this processor can run it.
pub(crate) fn tables() -> [(bool, &'static Table); 5] {
    let has_avx2 = is_x86_feature_detected!("avx2");
    let has_avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    // GFNI's own multiplication has another polynomial. Its affine transformation multiplies by a constant, modulo any
    // polynomial.
    let has_gfni = is_x86_feature_detected!("gfni");
    // Unrolled loops are the fastest on Zen 4, where they were measured. Intel's processors use the loops that were
    // measured to be the fastest on them.
    let (last_but_one, last) = if is_amd() {
        (&avx512_gfni::TABLE, &avx512_gfni_unrolled::TABLE)
    } else {
        (&avx512_gfni_unrolled::TABLE, &avx512_gfni::TABLE)
    };
    [
        (has_avx2, &avx2::TABLE),
        (has_avx2 && has_gfni, &avx2_gfni::TABLE),
        (has_avx512, &avx512::TABLE),
        (has_avx512 && has_gfni, last_but_one),
        (has_avx512 && has_gfni, last),
    ]
}

fn is_amd() -> bool {
    let vendor = __cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
}

/// What a register does without GF(2^8): the methods of `Vector` that only name an instruction.
macro_rules! plain_methods {
    ($load:ident, $store:ident, $stream:ident, $zero:ident, $xor:ident) => {
        #[inline(always)]
        unsafe fn load(at: *const u8) -> Self {
            // SAFETY: promised by the caller; the load takes any alignment.
            Self(unsafe { $load(at.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, at: *mut u8) {
            // SAFETY: promised by the caller; the store takes any alignment.
            unsafe { $store(at.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, at: *mut u8) {
            // SAFETY: promised by the caller, the alignment too.
            unsafe { $stream(at.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn fence() {
            // SAFETY: x86-64 has SSE.
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            // SAFETY: a prefetch has no effect but on time, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller promises the instructions.
            Self(unsafe { $zero() })
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller promises the instructions.
            Self(unsafe { $xor(self.0, other.0) })
        }
    };
}

macro_rules! plain_methods_of_256 {
    () => {
        plain_methods!(
            _mm256_loadu_si256,
            _mm256_storeu_si256,
            _mm256_stream_si256,
            _mm256_setzero_si256,
            _mm256_xor_si256
        );
    };
}

macro_rules! plain_methods_of_512 {
    () => {
        plain_methods!(
            _mm512_loadu_si512,
            _mm512_storeu_si512,
            _mm512_stream_si512,
            _mm512_setzero_si512,
            _mm512_xor_si512
        );
    };
}

/// AVX2: products come from tables of 16, one for each half of a byte.
#[derive(Clone, Copy)]
struct Ymm(__m256i);

impl Vector for Ymm {
    const BYTES: usize = 32;
    const MULTIPLIES_AT_ONCE: bool = false;
    const UNROLLS: bool = false;
    /// The products of the factor with every low and with every high half of a byte.
    type Factor = (__m256i, __m256i);

    plain_methods_of_256!();

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

/// AVX2 with GFNI: the small cores and the newer desktop cores have these.
#[derive(Clone, Copy)]
struct YmmGfni(__m256i);

impl Vector for YmmGfni {
    const BYTES: usize = 32;
    const MULTIPLIES_AT_ONCE: bool = true;
    const UNROLLS: bool = false;
    /// The factor as an 8 x 8 matrix of bits, once per 64-bit lane.
    type Factor = __m256i;

    plain_methods_of_256!();

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promises AVX2 and GFNI.
        unsafe { self.multiply(_mm256_set1_epi64x(TWO)) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller promises AVX2.
        unsafe { _mm256_set1_epi64x(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn multiply(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller promises AVX2 and GFNI.
        YmmGfni(unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

/// AVX-512 without GFNI: as AVX2, in registers twice as wide.
#[derive(Clone, Copy)]
struct Zmm(__m512i);

impl Vector for Zmm {
    const BYTES: usize = 64;
    const MULTIPLIES_AT_ONCE: bool = false;
    const UNROLLS: bool = false;
    /// The products of the factor with every low and with every high half of a byte.
    type Factor = (__m512i, __m512i);

    plain_methods_of_512!();

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promises AVX-512.
        unsafe {
            let overflows = _mm512_movepi8_mask(self.0);
            let correction = _mm512_maskz_mov_epi8(overflows, _mm512_set1_epi8(gf256::REDUCTION as i8));
            Zmm(_mm512_xor_si512(_mm512_add_epi8(self.0, self.0), correction))
        }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        let (low, high) = half_byte_products(factor);
        // SAFETY: the caller promises AVX-512; both tables are 16 bytes.
        unsafe {
            let low = _mm_loadu_si128(low.as_ptr().cast());
            let high = _mm_loadu_si128(high.as_ptr().cast());
            (_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high))
        }
    }

    #[inline(always)]
    unsafe fn multiply(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the caller promises AVX-512.
        unsafe {
            let mask = _mm512_set1_epi8(0x0f);
            let of_low = _mm512_shuffle_epi8(low, _mm512_and_si512(self.0, mask));
            let of_high = _mm512_shuffle_epi8(high, _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), mask));
            Zmm(_mm512_xor_si512(of_low, of_high))
        }
    }
}

/// AVX-512 with GFNI.
#[derive(Clone, Copy)]
struct ZmmGfni<const UNROLLS: bool>(__m512i);

impl<const UNROLLS: bool> Vector for ZmmGfni<UNROLLS> {
    const BYTES: usize = 64;
    const MULTIPLIES_AT_ONCE: bool = true;
    const UNROLLS: bool = UNROLLS;
    /// The factor as an 8 x 8 matrix of bits, once per 64-bit lane.
    type Factor = __m512i;

    plain_methods_of_512!();

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller promises AVX-512 and GFNI.
        unsafe { self.multiply(_mm512_set1_epi64(TWO)) }
    }

    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        // SAFETY: the caller promises AVX-512.
        unsafe { _mm512_set1_epi64(MATRICES[usize::from(factor)] as i64) }
    }

    #[inline(always)]
    unsafe fn multiply(self, factor: Self::Factor) -> Self {
        // SAFETY: the caller promises AVX-512 and GFNI.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}

fn half_byte_products(factor: u8) -> ([u8; 16], [u8; 16]) {
    let low = std::array::from_fn(|half| gf256::mul(factor, half as u8));
    let high = std::array::from_fn(|half| gf256::mul(factor, (half as u8) << 4));
    (low, high)
}

/// The matrix of every factor.
static MATRICES: [u64; 256] = {
    let mut all = [0; 256];
    let mut factor = 0;
    while factor < all.len() {
        all[factor] = matrix(factor as u8);
        factor += 1;
    }
    all
};
const TWO: i64 = matrix(2) as i64;

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
    ($module:ident, $name:literal, $features:literal, $register:ty) => {
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
                recover_by_q,
                recover_by_q_and_p,
                recover_by_p_and_q,
                recover_two,
            };

            table!($features, $register, {
                fn xor(target: &mut [u8], sources: &[&[u8]], at: usize, stores: Stores);
                fn xor_into(target: &mut [u8], source: &[u8]);
                fn update_p(p: &mut [u8], old: &[u8], new: &[u8]);
                fn update_q(q: &mut [u8], old: &[u8], new: &[u8], factor: u8);
                fn update_pq(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8);
                fn generate_pq(p: &mut [u8], q: &mut [u8], sum: Sum<'_>);
                fn generate_q(q: &mut [u8], sum: Sum<'_>);
                fn recover_by_q(block: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8);
                fn recover_by_q_and_p(block: &mut [u8], p: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8);
                fn recover_by_p_and_q(block: &mut [u8], p: &[u8], q: &mut [u8], sum: Sum<'_>, factor: u8);
                fn recover_two(a: &mut [u8], b: &mut [u8], p: &[u8], q: &[u8], sum: Sum<'_>, factors: Factors);
            });
        }
    };
    ($features:literal, $register:ty, { $(fn $kernel:ident($($argument:ident: $type:ty),*);)* }) => {
        $(
            #[target_feature(enable = $features)]
            unsafe fn $kernel($($argument: $type),*) {
                // SAFETY: the caller keeps the same promises: the instructions were detected and the lengths checked.
                unsafe { vector::$kernel::<$register>($($argument),*) }
            }
        )*
    };
}

table!(avx2, "avx2", "avx2", Ymm);
table!(avx2_gfni, "avx2+gfni", "avx2,gfni", YmmGfni);
table!(avx512, "avx512", "avx512f,avx512bw", Zmm);
table!(avx512_gfni, "avx512+gfni", "avx512f,avx512bw,gfni", ZmmGfni<false>);
table!(avx512_gfni_unrolled, "avx512+gfni-unrolled", "avx512f,avx512bw,gfni", ZmmGfni<true>);
