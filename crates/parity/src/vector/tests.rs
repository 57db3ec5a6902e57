//! The loops over a register of plain bytes, so that an interpreter can watch every access:
//! `cargo +nightly miri test -p uraid-parity --lib vector`.
//! Owns: blocks of their exact length. Not here: real registers (`tests/`), wide rows.

use super::*;
use crate::{gf256, table};

/// Sixteen bytes that need no instruction set.
#[derive(Clone, Copy)]
struct Plain<const AT_ONCE: bool, const UNROLLS: bool>([u8; 16]);

impl<const AT_ONCE: bool, const UNROLLS: bool> Vector for Plain<AT_ONCE, UNROLLS> {
    const BYTES: usize = 16;
    const MULTIPLIES_AT_ONCE: bool = AT_ONCE;
    const UNROLLS: bool = UNROLLS;
    type Factor = u8;

    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: promised by the caller; an array of bytes has no alignment.
        unsafe { Plain(*at.cast()) }
    }

    unsafe fn store(self, at: *mut u8) {
        // SAFETY: promised by the caller; an array of bytes has no alignment.
        unsafe { *at.cast() = self.0 }
    }

    unsafe fn stream(self, at: *mut u8) {
        assert_eq!(at.addr() % Self::BYTES, 0);
        // SAFETY: promised by the caller.
        unsafe { self.store(at) }
    }

    unsafe fn fence() {}

    unsafe fn prefetch(_: *const u8) {}

    unsafe fn zero() -> Self {
        Plain([0; 16])
    }

    unsafe fn xor(self, other: Self) -> Self {
        Plain(std::array::from_fn(|n| self.0[n] ^ other.0[n]))
    }

    unsafe fn double(self) -> Self {
        Plain(self.0.map(gf256::double))
    }

    unsafe fn factor(factor: u8) -> u8 {
        factor
    }

    unsafe fn multiply(self, factor: u8) -> Self {
        Plain(self.0.map(|byte| gf256::mul(byte, factor)))
    }
}

/// Blocks of exactly this length, each its own allocation, so that an access one byte too far is outside of it.
fn blocks<const N: usize>(length: usize) -> [Box<[u8]>; N] {
    std::array::from_fn(|block| (0..length).map(|at| (at * 37 + block * 101 + 11) as u8).collect())
}

/// In registers: none and no rest; a rest alone; 1 and a rest; 4 + 1 and a rest; 8 + 4 + 1 and a rest.
const LENGTHS: [usize; 5] = [0, 15, 17, 81, 213];
const STORES: [Stores; 2] = [Stores::Cached, Stores::Streaming];
const FACTORS: Factors = Factors { by_p: 0x1d, by_q: 0x8e };

/// Calls with each length, the sum of up to ten blocks with a hole, and how to store; `at` is not zero where there is room.
fn for_each_sum(mut check: impl FnMut(usize, Sum<'_>)) {
    for length in LENGTHS {
        for at in [0, 5] {
            let data: [Box<[u8]>; 10] = blocks(at + length);
            for count in 0..=data.len() {
                let of_row = data[..count].iter().map(|block| &**block).zip([0, 1, 3, 4, 5, 6, 7, 8, 9, 10]);
                table::with_steps(of_row, |steps| {
                    STORES.into_iter().for_each(|stores| check(length, Sum { steps, at, stores }));
                });
            }
        }
    }
}

#[test]
fn sums_stay_inside_their_blocks() {
    check_sums::<Plain<true, true>>();
    check_sums::<Plain<true, false>>();
    check_sums::<Plain<false, false>>();
}

fn check_sums<V: Vector>() {
    for_each_sum(|length, sum| {
        let [mut p, mut q, mut expected_p, mut expected_q] = blocks(length);
        portable::generate_pq(&mut expected_p, &mut expected_q, sum);
        // SAFETY: plain bytes need no instructions; the blocks have the lengths promised, also below.
        unsafe { generate_pq::<V>(&mut p, &mut q, sum) };
        assert_eq!((&p, &q), (&expected_p, &expected_q));
        q.fill(1);
        // SAFETY: as above.
        unsafe { generate_q::<V>(&mut q, sum) };
        assert_eq!(q, expected_q);
        let sources: Vec<&[u8]> = sum.steps.iter().map(|step| step.block).collect();
        p.fill(1);
        // SAFETY: as above.
        unsafe { xor::<V>(&mut p, &sources, sum.at, sum.stores) };
        assert_eq!(p, expected_p);
    });
}

#[test]
fn solving_stays_inside_its_blocks() {
    check_solving::<Plain<true, true>>();
    check_solving::<Plain<true, false>>();
    check_solving::<Plain<false, false>>();
}

fn check_solving<V: Vector>() {
    for_each_sum(|length, sum| {
        let [known_p, known_q, mut a, mut b, mut expected_a, mut expected_b] = blocks(length);
        portable::recover_two(&mut expected_a, &mut expected_b, &known_p, &known_q, sum, FACTORS);
        // SAFETY: plain bytes need no instructions; the blocks have the lengths promised, also below.
        unsafe { recover_two::<V>(&mut a, &mut b, &known_p, &known_q, sum, FACTORS) };
        assert_eq!((&a, &b), (&expected_a, &expected_b));
        portable::recover_by_q_and_p(&mut expected_a, &mut expected_b, &known_q, sum, 0x53);
        // SAFETY: as above.
        unsafe { recover_by_q_and_p::<V>(&mut a, &mut b, &known_q, sum, 0x53) };
        assert_eq!((&a, &b), (&expected_a, &expected_b));
        b.fill(1);
        // SAFETY: as above.
        unsafe { recover_by_q::<V>(&mut b, &known_q, sum, 0x53) };
        assert_eq!(b, expected_a);
        portable::recover_by_p_and_q(&mut expected_a, &known_p, &mut expected_b, sum, 0x53);
        // SAFETY: as above.
        unsafe { recover_by_p_and_q::<V>(&mut a, &known_p, &mut b, sum, 0x53) };
        assert_eq!((&a, &b), (&expected_a, &expected_b));
    });
}

#[test]
fn updates_stay_inside_their_blocks() {
    for length in LENGTHS {
        let [mut p, mut q, old, new] = blocks(length);
        let (mut expected_p, mut expected_q) = (p.clone(), q.clone());
        portable::update_pq(&mut expected_p, &mut expected_q, &old, &new, 0x53);
        // SAFETY: plain bytes need no instructions; the blocks have one length, also below.
        unsafe { update_pq::<Plain<true, false>>(&mut p, &mut q, &old, &new, 0x53) };
        assert_eq!((&p, &q), (&expected_p, &expected_q));
        // SAFETY: as above. The same once more takes it back.
        unsafe {
            update_p::<Plain<true, false>>(&mut p, &old, &new);
            update_q::<Plain<true, false>>(&mut q, &old, &new, 0x53);
            xor_into::<Plain<true, false>>(&mut p, &old);
        }
        let [mut before_p, before_q, _, _] = blocks(length);
        portable::xor_into(&mut before_p, &old);
        assert_eq!((p, q), (before_p, before_q));
    }
}
