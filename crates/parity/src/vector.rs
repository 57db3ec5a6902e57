//! The kernels over any vector register: one text for all instruction sets.
//! Owns: the order of loads and stores. Not here: instructions (`x86`).
//! Invariant: a block is only touched in whole registers that lie within it; the rest of a block that is no multiple of a
//! register goes to the portable kernel. Spec: md-reference.md 2.6.
//!
//! Everything is `inline(always)`: it has to end up inside a function that carries the target feature, or each
//! instruction would be a call.

use crate::kernel::{Factors, Steps};
use crate::portable;

/// A register, and the few operations a row needs.
///
/// # Safety
/// Of every method: the processor has the instructions. `load` and `store`: `BYTES` bytes at the address may be read or written.
pub(crate) trait Vector: Copy {
    const BYTES: usize;
    /// A factor, prepared for `multiply`.
    type Factor: Copy;
    unsafe fn load(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut u8);
    unsafe fn zero() -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn double(self) -> Self;
    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn multiply(self, factor: Self::Factor) -> Self;
}

/// Registers worked on at once where a kernel sums over many blocks: enough to hide the latency of an addition.
const WIDE: usize = 4;

/// How much of a block whole registers cover.
#[inline(always)]
fn covered<V: Vector>(length: usize) -> usize {
    length - length % V::BYTES
}

/// Calls `$body` with `$at` at the start of each register of `0..$covered`.
macro_rules! each_register {
    ($vector:ty, $covered:expr, |$at:ident| $body:block) => {
        let mut $at = 0;
        while $at < $covered {
            $body
            $at += <$vector>::BYTES;
        }
    };
}

#[inline(always)]
pub(crate) unsafe fn xor<V: Vector>(target: &mut [u8], sources: &[&[u8]], at: usize) {
    let covered = covered::<V>(target.len());
    let mut start = 0;
    // SAFETY (both): the column ends at or before `covered`; the caller promises the length of the sources and the instructions.
    while start + WIDE * V::BYTES <= covered {
        // SAFETY: see above.
        unsafe { xor_column::<V, WIDE>(target, sources, at, start) };
        start += WIDE * V::BYTES;
    }
    while start < covered {
        // SAFETY: see above.
        unsafe { xor_column::<V, 1>(target, sources, at, start) };
        start += V::BYTES;
    }
    if covered < target.len() {
        portable::xor(&mut target[covered..], sources, at + covered);
    }
}

#[inline(always)]
unsafe fn xor_column<V: Vector, const N: usize>(target: &mut [u8], sources: &[&[u8]], at: usize, start: usize) {
    debug_assert!(start + N * V::BYTES <= target.len());
    // SAFETY: the caller promises the instructions, N registers from `start` in the target and from `at + start` in each source.
    unsafe {
        let mut sum = [V::zero(); N];
        for source in sources {
            debug_assert!(at + start + N * V::BYTES <= source.len());
            let source = source.as_ptr().add(at + start);
            for (n, sum) in sum.iter_mut().enumerate() {
                *sum = sum.xor(V::load(source.add(n * V::BYTES)));
            }
        }
        let target = target.as_mut_ptr().add(start);
        for (n, sum) in sum.iter().enumerate() {
            sum.store(target.add(n * V::BYTES));
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn generate_pq<V: Vector>(p: &mut [u8], q: &mut [u8], steps: Steps<'_>, at: usize) {
    let covered = covered::<V>(p.len());
    let mut start = 0;
    // SAFETY (both): the column ends at or before `covered`; the caller promises the other lengths and the instructions.
    while start + WIDE * V::BYTES <= covered {
        // SAFETY: see above.
        unsafe { pq_column::<V, WIDE, true>(Some(&mut *p), q, steps, at, start) };
        start += WIDE * V::BYTES;
    }
    while start < covered {
        // SAFETY: see above.
        unsafe { pq_column::<V, 1, true>(Some(&mut *p), q, steps, at, start) };
        start += V::BYTES;
    }
    if covered < p.len() {
        portable::generate_pq(&mut p[covered..], &mut q[covered..], steps, at + covered);
    }
}

#[inline(always)]
pub(crate) unsafe fn generate_q<V: Vector>(q: &mut [u8], steps: Steps<'_>, at: usize) {
    let covered = covered::<V>(q.len());
    let mut start = 0;
    // SAFETY (both): the column ends at or before `covered`; the caller promises the other lengths and the instructions.
    while start + WIDE * V::BYTES <= covered {
        // SAFETY: see above.
        unsafe { pq_column::<V, WIDE, false>(None, q, steps, at, start) };
        start += WIDE * V::BYTES;
    }
    while start < covered {
        // SAFETY: see above.
        unsafe { pq_column::<V, 1, false>(None, q, steps, at, start) };
        start += V::BYTES;
    }
    if covered < q.len() {
        portable::generate_q(&mut q[covered..], steps, at + covered);
    }
}

/// N registers of Q, and of P where `HAS_P`, by Horner's rule.
#[inline(always)]
unsafe fn pq_column<V: Vector, const N: usize, const HAS_P: bool>(
    p: Option<&mut [u8]>,
    q: &mut [u8],
    steps: Steps<'_>,
    at: usize,
    start: usize,
) {
    debug_assert!(start + N * V::BYTES <= q.len());
    // SAFETY: the caller promises the instructions, N registers from `start` in P and Q and from `at + start` in each step.
    unsafe {
        let (mut p_sum, mut q_sum) = ([V::zero(); N], [V::zero(); N]);
        for step in steps {
            for q_sum in &mut q_sum {
                *q_sum = q_sum.double();
            }
            let Some(block) = step else { continue };
            debug_assert!(at + start + N * V::BYTES <= block.len());
            let block = block.as_ptr().add(at + start);
            for n in 0..N {
                let value = V::load(block.add(n * V::BYTES));
                if HAS_P {
                    p_sum[n] = p_sum[n].xor(value);
                }
                q_sum[n] = q_sum[n].xor(value);
            }
        }
        for (n, q_sum) in q_sum.iter().enumerate() {
            q_sum.store(q.as_mut_ptr().add(start + n * V::BYTES));
        }
        if let Some(p) = p {
            debug_assert!(start + N * V::BYTES <= p.len());
            for (n, p_sum) in p_sum.iter().enumerate() {
                p_sum.store(p.as_mut_ptr().add(start + n * V::BYTES));
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn xor_into<V: Vector>(target: &mut [u8], source: &[u8]) {
    let covered = covered::<V>(target.len());
    let (to, from) = (target.as_mut_ptr(), source.as_ptr());
    // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
    each_register!(V, covered, |at| { unsafe { V::load(to.add(at)).xor(V::load(from.add(at))).store(to.add(at)) } });
    portable::xor_into(&mut target[covered..], &source[covered..]);
}

#[inline(always)]
pub(crate) unsafe fn update_p<V: Vector>(p: &mut [u8], old: &[u8], new: &[u8]) {
    let covered = covered::<V>(p.len());
    let (to, from, into) = (p.as_mut_ptr(), old.as_ptr(), new.as_ptr());
    each_register!(V, covered, |at| {
        // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
        unsafe {
            let delta = V::load(from.add(at)).xor(V::load(into.add(at)));
            V::load(to.add(at)).xor(delta).store(to.add(at));
        }
    });
    portable::update_p(&mut p[covered..], &old[covered..], &new[covered..]);
}

#[inline(always)]
pub(crate) unsafe fn update_q<V: Vector>(q: &mut [u8], old: &[u8], new: &[u8], factor: u8) {
    let covered = covered::<V>(q.len());
    let (to, from, into) = (q.as_mut_ptr(), old.as_ptr(), new.as_ptr());
    // SAFETY: the caller promises the instructions.
    let prepared = unsafe { V::factor(factor) };
    each_register!(V, covered, |at| {
        // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
        unsafe {
            let delta = V::load(from.add(at)).xor(V::load(into.add(at)));
            V::load(to.add(at)).xor(delta.multiply(prepared)).store(to.add(at));
        }
    });
    if covered < q.len() {
        portable::update_q(&mut q[covered..], &old[covered..], &new[covered..], factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn update_pq<V: Vector>(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8) {
    let covered = covered::<V>(p.len());
    let (p_to, q_to, from, into) = (p.as_mut_ptr(), q.as_mut_ptr(), old.as_ptr(), new.as_ptr());
    // SAFETY: the caller promises the instructions.
    let prepared = unsafe { V::factor(factor) };
    each_register!(V, covered, |at| {
        // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
        unsafe {
            let delta = V::load(from.add(at)).xor(V::load(into.add(at)));
            V::load(p_to.add(at)).xor(delta).store(p_to.add(at));
            V::load(q_to.add(at)).xor(delta.multiply(prepared)).store(q_to.add(at));
        }
    });
    if covered < p.len() {
        portable::update_pq(&mut p[covered..], &mut q[covered..], &old[covered..], &new[covered..], factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn multiply_into<V: Vector>(q: &mut [u8], source: &[u8], factor: u8) {
    let covered = covered::<V>(q.len());
    let (to, from) = (q.as_mut_ptr(), source.as_ptr());
    // SAFETY: the caller promises the instructions.
    let prepared = unsafe { V::factor(factor) };
    each_register!(V, covered, |at| {
        // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
        unsafe { V::load(to.add(at)).xor(V::load(from.add(at)).multiply(prepared)).store(to.add(at)) }
    });
    if covered < q.len() {
        portable::multiply_into(&mut q[covered..], &source[covered..], factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn solve_one<V: Vector>(block: &mut [u8], q: &[u8], factor: u8) {
    let covered = covered::<V>(block.len());
    let (to, from) = (block.as_mut_ptr(), q.as_ptr());
    // SAFETY: the caller promises the instructions.
    let prepared = unsafe { V::factor(factor) };
    each_register!(V, covered, |at| {
        // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
        unsafe { V::load(to.add(at)).xor(V::load(from.add(at))).multiply(prepared).store(to.add(at)) }
    });
    if covered < block.len() {
        portable::solve_one(&mut block[covered..], &q[covered..], factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn solve_two<V: Vector>(a: &mut [u8], b: &mut [u8], p: &[u8], q: &[u8], factors: Factors) {
    let covered = covered::<V>(a.len());
    let (a_to, b_to, p_from, q_from) = (a.as_mut_ptr(), b.as_mut_ptr(), p.as_ptr(), q.as_ptr());
    // SAFETY: the caller promises the instructions.
    let (by_p, by_q) = unsafe { (V::factor(factors.by_p), V::factor(factors.by_q)) };
    each_register!(V, covered, |at| {
        // SAFETY: the register ends at or before `covered`; the caller promises equal lengths and the instructions.
        unsafe {
            let p_delta = V::load(a_to.add(at)).xor(V::load(p_from.add(at)));
            let q_delta = V::load(b_to.add(at)).xor(V::load(q_from.add(at)));
            let value = p_delta.multiply(by_p).xor(q_delta.multiply(by_q));
            value.store(a_to.add(at));
            value.xor(p_delta).store(b_to.add(at));
        }
    });
    if covered < a.len() {
        portable::solve_two(&mut a[covered..], &mut b[covered..], &p[covered..], &q[covered..], factors);
    }
}
