//! The sums over the known blocks of a row: P, and Q, for which each block is multiplied by its own factor.
//! Owns: in which order the blocks of a column are read and multiplied. Not here: what is computed from the sums
//! (`solve`).
//! Invariant: a sum does not depend on how the blocks are listed. Spec: docs/md/address-mapping.md#parity-and-syndrome.

use super::register::Vector;
use crate::table::{Step, Sum};

/// How far ahead of the column a row outside the caches is prefetched, in bytes of each block: the next column.
/// Measured from memory with 8 and with 16 blocks: 512 is 1 % slower, 1 KiB and more are a few percent slower.
const AHEAD: usize = 256;

/// The known blocks of a row.
pub(super) trait Known<V: Vector>: Copy {
    /// N registers of P, which is of use only where `has_p`, and of Q.
    ///
    /// # Safety
    /// The processor has the instructions; every block has N registers at `start`, counted from the sum's own start.
    unsafe fn sums<const N: usize, const STREAM: bool>(self, start: usize, has_p: bool) -> ([V; N], [V; N]);
}

/// Few blocks: all addresses and factors are in registers, and a column is a sequence of instructions without a branch.
#[derive(Clone, Copy)]
pub(super) struct Few<F, const COUNT: usize> {
    blocks: [*const u8; COUNT],
    factors: [F; COUNT],
}

impl<F: Copy, const COUNT: usize> Few<F, COUNT> {
    /// # Safety
    /// The processor has the instructions; every step has a byte at `at`, or there is none to read.
    #[inline(always)]
    pub(super) unsafe fn new<V: Vector<Factor = F>>(steps: &[Step<'_>; COUNT], at: usize) -> Few<F, COUNT> {
        // SAFETY: promised by the caller.
        unsafe {
            let blocks = std::array::from_fn(|k| steps[k].block.as_ptr().add(at));
            Few { blocks, factors: std::array::from_fn(|k| V::factor(steps[k].factor)) }
        }
    }
}

impl<V: Vector, const COUNT: usize> Known<V> for Few<V::Factor, COUNT> {
    #[inline(always)]
    unsafe fn sums<const N: usize, const STREAM: bool>(self, start: usize, has_p: bool) -> ([V; N], [V; N]) {
        // SAFETY: promised by the caller.
        unsafe {
            let (mut p_sum, mut q_sum) = ([V::zero(); N], [V::zero(); N]);
            for k in 0..COUNT / 2 {
                let pair = [2 * k, 2 * k + 1];
                let places = pair.map(|k| self.blocks[k].add(start));
                add_two::<V, N, STREAM>(&mut p_sum, &mut q_sum, places, pair.map(|k| self.factors[k]), has_p);
            }
            if COUNT % 2 == 1 {
                let place = self.blocks[COUNT - 1].add(start);
                add_one::<V, N, STREAM>(&mut p_sum, &mut q_sum, place, self.factors[COUNT - 1], has_p);
            }
            (p_sum, q_sum)
        }
    }
}

/// Any number of blocks, each multiplied by its own factor.
#[derive(Clone, Copy)]
pub(super) struct Multiplied<'a>(pub(super) Sum<'a>);

impl<V: Vector> Known<V> for Multiplied<'_> {
    #[inline(always)]
    unsafe fn sums<const N: usize, const STREAM: bool>(self, start: usize, has_p: bool) -> ([V; N], [V; N]) {
        let at = self.0.at + start;
        // SAFETY: promised by the caller.
        unsafe {
            let (mut p_sum, mut q_sum) = ([V::zero(); N], [V::zero(); N]);
            let (pairs, last) = self.0.steps.as_chunks::<2>();
            for pair in pairs {
                let places = [place::<V, N>(&pair[0], at), place::<V, N>(&pair[1], at)];
                let factors = [V::factor(pair[0].factor), V::factor(pair[1].factor)];
                add_two::<V, N, STREAM>(&mut p_sum, &mut q_sum, places, factors, has_p);
            }
            for step in last {
                let (place, factor) = (place::<V, N>(step, at), V::factor(step.factor));
                add_one::<V, N, STREAM>(&mut p_sum, &mut q_sum, place, factor, has_p);
            }
            (p_sum, q_sum)
        }
    }
}

/// Any number of blocks, by Horner's rule.
#[derive(Clone, Copy)]
pub(super) struct Doubled<'a>(pub(super) Sum<'a>);

impl<V: Vector> Known<V> for Doubled<'_> {
    #[inline(always)]
    unsafe fn sums<const N: usize, const STREAM: bool>(self, start: usize, has_p: bool) -> ([V; N], [V; N]) {
        let at = self.0.at + start;
        // SAFETY: promised by the caller.
        unsafe {
            let (mut p_sum, mut q_sum) = ([V::zero(); N], [V::zero(); N]);
            let mut exponent = self.0.steps.last().map_or(0, |highest| highest.exponent);
            for step in self.0.steps.iter().rev() {
                q_sum = doubled(q_sum, exponent - step.exponent);
                exponent = step.exponent;
                let place = place::<V, N>(step, at);
                for n in 0..N {
                    let value = source::<V, STREAM>(place, n);
                    if has_p {
                        p_sum[n] = p_sum[n].xor(value);
                    }
                    q_sum[n] = q_sum[n].xor(value);
                }
            }
            (p_sum, doubled(q_sum, exponent))
        }
    }
}

/// Adds two blocks at a time, so that one instruction adds both products, if the processor has such an instruction.
///
/// # Safety
/// The processor has the instructions; there are N registers at both places.
#[inline(always)]
unsafe fn add_two<V: Vector, const N: usize, const STREAM: bool>(
    p_sum: &mut [V; N],
    q_sum: &mut [V; N],
    [one, other]: [*const u8; 2],
    [by_one, by_other]: [V::Factor; 2],
    has_p: bool,
) {
    for n in 0..N {
        // SAFETY: promised by the caller.
        unsafe {
            let (one, other) = (source::<V, STREAM>(one, n), source::<V, STREAM>(other, n));
            if has_p {
                p_sum[n] = p_sum[n].xor(one.xor(other));
            }
            q_sum[n] = q_sum[n].xor(one.multiply(by_one).xor(other.multiply(by_other)));
        }
    }
}

/// # Safety
/// The processor has the instructions; there are N registers at the place.
#[inline(always)]
unsafe fn add_one<V: Vector, const N: usize, const STREAM: bool>(
    p_sum: &mut [V; N],
    q_sum: &mut [V; N],
    place: *const u8,
    factor: V::Factor,
    has_p: bool,
) {
    for n in 0..N {
        // SAFETY: promised by the caller.
        unsafe {
            let value = source::<V, STREAM>(place, n);
            if has_p {
                p_sum[n] = p_sum[n].xor(value);
            }
            q_sum[n] = q_sum[n].xor(value.multiply(factor));
        }
    }
}

/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn doubled<V: Vector, const N: usize>(mut values: [V; N], times: u8) -> [V; N] {
    for _ in 0..times {
        for value in &mut values {
            // SAFETY: promised by the caller.
            *value = unsafe { value.double() };
        }
    }
    values
}

/// Where the column begins in a block.
///
/// # Safety
/// The block has N registers from `at`.
#[inline(always)]
unsafe fn place<V: Vector, const N: usize>(step: &Step<'_>, at: usize) -> *const u8 {
    debug_assert!(at + N * V::BYTES <= step.block.len());
    // SAFETY: promised by the caller.
    unsafe { step.block.as_ptr().add(at) }
}

/// Register `n` of the column.
///
/// # Safety
/// The processor has the instructions; the register lies within the block.
#[inline(always)]
pub(super) unsafe fn source<V: Vector, const STREAM: bool>(place: *const u8, n: usize) -> V {
    // SAFETY: promised by the caller.
    unsafe {
        let place = place.add(n * V::BYTES);
        if STREAM {
            V::prefetch(place.wrapping_add(AHEAD));
        }
        V::load(place)
    }
}
