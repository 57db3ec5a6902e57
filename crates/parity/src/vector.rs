//! The kernels over any vector register: one text for all instruction sets.
//! Owns: the order of loads and stores. Not here: instructions (`x86`).
//! Invariant: a block is only touched in whole registers that lie within it; the rest of a block that is no multiple of a
//! register goes to the portable kernel. Spec: docs/md/address-mapping.md#parity-and-syndrome.
//!
//! A row is worked on in columns of a few registers: all blocks are read once, the sums stay in registers, and what is to
//! be solved for is solved there. So every kernel is one pass: no byte is read or written twice.
//!
//! Everything is `inline(always)`: it has to end up inside a function that carries the target feature, or each
//! instruction would be a call.

use crate::kernel::{Factors, Stores, Sum};
use crate::portable;

/// A register, and the few operations a row needs.
///
/// # Safety
/// Of every method: the processor has the instructions. `load`, `store` and `stream`: `BYTES` bytes at the address may be
/// read or written; for `stream` it is a multiple of `BYTES`, and `fence` follows before anyone else may look.
pub(crate) trait Vector: Copy {
    const BYTES: usize;
    /// Whether multiplying by any factor costs no more than doubling. Then every step is multiplied by its own factor,
    /// which waits for nothing; Horner's rule would have each step wait for the one before.
    const MULTIPLIES_AT_ONCE: bool;
    /// A factor, prepared for `multiply`.
    type Factor: Copy;
    unsafe fn load(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut u8);
    /// A store past the cache.
    unsafe fn stream(self, at: *mut u8);
    /// Orders what was streamed before all later stores.
    unsafe fn fence();
    /// Has the line at this address on its way; any address will do.
    unsafe fn prefetch(at: *const u8);
    unsafe fn zero() -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn double(self) -> Self;
    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn multiply(self, factor: Self::Factor) -> Self;
}

/// Registers worked on at once where a kernel sums over many blocks: enough to hide the latency of an addition.
const WIDE: usize = 4;
/// How far ahead of the column a row outside the caches is asked for, in bytes of each block: the next column. Measured from
/// memory with 8 and with 16 blocks; 512 is a hundredth slower, 1 KiB and more are some hundredths.
const AHEAD: usize = 256;

/// Runs the body for every column of `0..$length`, first the wide ones; gives how much whole registers covered.
macro_rules! each_column {
    ($vector:ty, $length:expr, |$n:ident, $start:ident| $body:block) => {{
        let length: usize = $length;
        let mut $start = 0;
        while $start + WIDE * <$vector>::BYTES <= length {
            const $n: usize = WIDE;
            $body
            $start += WIDE * <$vector>::BYTES;
        }
        while $start + <$vector>::BYTES <= length {
            const $n: usize = 1;
            $body
            $start += <$vector>::BYTES;
        }
        $start
    }};
}

/// Whether these targets can be streamed to, which takes their alignment.
#[inline(always)]
fn can_stream<V: Vector>(stores: Stores, targets: &[*mut u8]) -> bool {
    stores == Stores::Streaming && targets.iter().all(|target| target.addr() % V::BYTES == 0)
}

/// # Safety
/// As of `store`, and of `stream` where `STREAM`.
#[inline(always)]
unsafe fn put<V: Vector, const N: usize, const STREAM: bool>(values: [V; N], target: *mut u8) {
    for (n, value) in values.into_iter().enumerate() {
        // SAFETY: promised by the caller.
        unsafe {
            let target = target.add(n * V::BYTES);
            if STREAM { value.stream(target) } else { value.store(target) }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn xor<V: Vector>(target: &mut [u8], sources: &[&[u8]], at: usize, stores: Stores) {
    let to = target.as_mut_ptr();
    let covered = if can_stream::<V>(stores, &[to]) {
        // SAFETY: the caller promises the instructions and the lengths; the target is aligned, and the fence follows.
        unsafe {
            let covered = xor_columns::<V, true>(to, target.len(), sources, at);
            V::fence();
            covered
        }
    } else {
        // SAFETY: the caller promises the instructions and the lengths.
        unsafe { xor_columns::<V, false>(to, target.len(), sources, at) }
    };
    if covered < target.len() {
        portable::xor(&mut target[covered..], sources, at + covered, stores);
    }
}

#[inline(always)]
unsafe fn xor_columns<V: Vector, const STREAM: bool>(
    target: *mut u8,
    length: usize,
    sources: &[&[u8]],
    at: usize,
) -> usize {
    each_column!(V, length, |N, start| {
        // SAFETY: the caller promises the instructions, `length` bytes of target, and as many from `at` in each source.
        unsafe {
            let mut sum = [V::zero(); N];
            for block in sources {
                for (n, sum) in sum.iter_mut().enumerate() {
                    *sum = sum.xor(source::<V, N, STREAM>(block, at + start, n));
                }
            }
            put::<V, N, STREAM>(sum, target.add(start));
        }
    })
}

/// What becomes of the sums of a column: the contents of the two targets.
trait Solve<V>: Copy {
    /// Whether there is a P to sum and a first target. Without, the first value is of no use.
    const HAS_P: bool;
    /// # Safety
    /// The processor has the instructions; the known blocks have a register at `start`.
    unsafe fn solve(self, start: usize, p_sum: V, q_sum: V) -> (V, V);
}

/// The sums themselves: P and Q, or Q alone.
#[derive(Clone, Copy)]
struct Sums<const HAS_P: bool>;

impl<V: Vector, const HAS_P: bool> Solve<V> for Sums<HAS_P> {
    const HAS_P: bool = HAS_P;

    #[inline(always)]
    unsafe fn solve(self, _: usize, p_sum: V, q_sum: V) -> (V, V) {
        (p_sum, q_sum)
    }
}

/// The lost block, from Q.
#[derive(Clone, Copy)]
struct ByQ<F> {
    q: *const u8,
    factor: F,
}

impl<V: Vector> Solve<V> for ByQ<V::Factor> {
    const HAS_P: bool = false;

    #[inline(always)]
    unsafe fn solve(self, start: usize, p_sum: V, q_sum: V) -> (V, V) {
        // SAFETY: promised by the caller.
        unsafe { (p_sum, q_sum.xor(V::load(self.q.add(start))).multiply(self.factor)) }
    }
}

/// P and the lost block, from Q.
#[derive(Clone, Copy)]
struct PByQ<F>(ByQ<F>);

impl<V: Vector> Solve<V> for PByQ<V::Factor> {
    const HAS_P: bool = true;

    #[inline(always)]
    unsafe fn solve(self, start: usize, p_sum: V, q_sum: V) -> (V, V) {
        // SAFETY: promised by the caller.
        unsafe {
            let (p_sum, block) = self.0.solve(start, p_sum, q_sum);
            (p_sum.xor(block), block)
        }
    }
}

/// The lost block from P, and Q.
#[derive(Clone, Copy)]
struct QByP<F> {
    p: *const u8,
    factor: F,
}

impl<V: Vector> Solve<V> for QByP<V::Factor> {
    const HAS_P: bool = true;

    #[inline(always)]
    unsafe fn solve(self, start: usize, p_sum: V, q_sum: V) -> (V, V) {
        // SAFETY: promised by the caller.
        unsafe {
            let block = p_sum.xor(V::load(self.p.add(start)));
            (block, q_sum.xor(block.multiply(self.factor)))
        }
    }
}

/// Both lost blocks.
#[derive(Clone, Copy)]
struct Two<F> {
    p: *const u8,
    q: *const u8,
    by_p: F,
    by_q: F,
}

impl<V: Vector> Solve<V> for Two<V::Factor> {
    const HAS_P: bool = true;

    #[inline(always)]
    unsafe fn solve(self, start: usize, p_sum: V, q_sum: V) -> (V, V) {
        // SAFETY: promised by the caller.
        unsafe {
            let p_delta = p_sum.xor(V::load(self.p.add(start)));
            let q_delta = q_sum.xor(V::load(self.q.add(start)));
            let first = p_delta.multiply(self.by_p).xor(q_delta.multiply(self.by_q));
            (first, first.xor(p_delta))
        }
    }
}

/// Sums the steps and solves, column by column; gives how much whole registers covered.
///
/// # Safety
/// The processor has the instructions. `length` bytes may be written at `second`, and at `first` where the solver has a P;
/// the steps have as many from `sum.at`, and so have the blocks of the solver.
#[inline(always)]
unsafe fn solve<V: Vector, S: Solve<V>>(
    first: *mut u8,
    second: *mut u8,
    length: usize,
    sum: Sum<'_>,
    solver: S,
) -> usize {
    let targets = [if S::HAS_P { first } else { second }, second];
    if can_stream::<V>(sum.stores, &targets) {
        // SAFETY: promised by the caller; the targets are aligned, and the fence follows.
        unsafe {
            let covered = solve_columns::<V, S, true>(first, second, length, sum, solver);
            V::fence();
            covered
        }
    } else {
        // SAFETY: promised by the caller.
        unsafe { solve_columns::<V, S, false>(first, second, length, sum, solver) }
    }
}

#[inline(always)]
unsafe fn solve_columns<V: Vector, S: Solve<V>, const STREAM: bool>(
    first: *mut u8,
    second: *mut u8,
    length: usize,
    sum: Sum<'_>,
    solver: S,
) -> usize {
    each_column!(V, length, |N, start| {
        // SAFETY: promised by the caller; the column ends at or before `length`.
        unsafe {
            let (mut firsts, mut seconds) = sums::<V, N, STREAM>(sum, start, S::HAS_P);
            for n in 0..N {
                // Checking this sum would cost more than solving.
                let at = start.unchecked_add(n * V::BYTES);
                (firsts[n], seconds[n]) = solver.solve(at, firsts[n], seconds[n]);
            }
            if S::HAS_P {
                put::<V, N, STREAM>(firsts, first.add(start));
            }
            put::<V, N, STREAM>(seconds, second.add(start));
        }
    })
}

/// N registers of P, where there is one, and of Q.
///
/// # Safety
/// The processor has the instructions; every step has N registers at `sum.at + start`.
#[inline(always)]
unsafe fn sums<V: Vector, const N: usize, const STREAM: bool>(
    sum: Sum<'_>,
    start: usize,
    has_p: bool,
) -> ([V; N], [V; N]) {
    let at = sum.at + start;
    // SAFETY: promised by the caller.
    unsafe {
        let (mut p_sum, mut q_sum) = ([V::zero(); N], [V::zero(); N]);
        if V::MULTIPLIES_AT_ONCE {
            // Two steps at a time, so that two products are added in one instruction, where there is one.
            let (pairs, last) = sum.steps.as_chunks::<2>();
            for [one, other] in pairs {
                let (by_one, by_other) = (V::factor(one.factor), V::factor(other.factor));
                for n in 0..N {
                    let one = source::<V, N, STREAM>(one.block, at, n);
                    let other = source::<V, N, STREAM>(other.block, at, n);
                    if has_p {
                        p_sum[n] = p_sum[n].xor(one.xor(other));
                    }
                    q_sum[n] = q_sum[n].xor(one.multiply(by_one).xor(other.multiply(by_other)));
                }
            }
            for step in last {
                let factor = V::factor(step.factor);
                for n in 0..N {
                    let value = source::<V, N, STREAM>(step.block, at, n);
                    if has_p {
                        p_sum[n] = p_sum[n].xor(value);
                    }
                    q_sum[n] = q_sum[n].xor(value.multiply(factor));
                }
            }
        } else {
            let mut exponent = sum.steps.last().map_or(0, |highest| highest.exponent);
            for step in sum.steps.iter().rev() {
                q_sum = doubled(q_sum, exponent - step.exponent);
                exponent = step.exponent;
                for n in 0..N {
                    let value = source::<V, N, STREAM>(step.block, at, n);
                    if has_p {
                        p_sum[n] = p_sum[n].xor(value);
                    }
                    q_sum[n] = q_sum[n].xor(value);
                }
            }
            q_sum = doubled(q_sum, exponent);
        }
        (p_sum, q_sum)
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

/// Register `n` of N of a block.
///
/// # Safety
/// The processor has the instructions; the block has N registers from `at`.
#[inline(always)]
unsafe fn source<V: Vector, const N: usize, const STREAM: bool>(block: &[u8], at: usize, n: usize) -> V {
    debug_assert!(at + N * V::BYTES <= block.len());
    // SAFETY: promised by the caller.
    unsafe {
        let place = block.as_ptr().add(at).add(n * V::BYTES);
        if STREAM {
            V::prefetch(place.wrapping_add(AHEAD));
        }
        V::load(place)
    }
}

#[inline(always)]
pub(crate) unsafe fn generate_pq<V: Vector>(p: &mut [u8], q: &mut [u8], sum: Sum<'_>) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe { solve::<V, _>(p.as_mut_ptr(), q.as_mut_ptr(), p.len(), sum, Sums::<true>) };
    if covered < p.len() {
        portable::generate_pq(&mut p[covered..], &mut q[covered..], sum.after(covered));
    }
}

#[inline(always)]
pub(crate) unsafe fn generate_q<V: Vector>(q: &mut [u8], sum: Sum<'_>) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe { solve::<V, _>(std::ptr::null_mut(), q.as_mut_ptr(), q.len(), sum, Sums::<false>) };
    if covered < q.len() {
        portable::generate_q(&mut q[covered..], sum.after(covered));
    }
}

#[inline(always)]
pub(crate) unsafe fn recover_by_q<V: Vector>(block: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        let solver = ByQ { q: q.as_ptr(), factor: V::factor(factor) };
        solve::<V, _>(std::ptr::null_mut(), block.as_mut_ptr(), block.len(), sum, solver)
    };
    if covered < block.len() {
        portable::recover_by_q(&mut block[covered..], &q[covered..], sum.after(covered), factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn recover_by_q_and_p<V: Vector>(block: &mut [u8], p: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        let solver = PByQ(ByQ { q: q.as_ptr(), factor: V::factor(factor) });
        solve::<V, _>(p.as_mut_ptr(), block.as_mut_ptr(), block.len(), sum, solver)
    };
    if covered < block.len() {
        let (block, p) = (&mut block[covered..], &mut p[covered..]);
        portable::recover_by_q_and_p(block, p, &q[covered..], sum.after(covered), factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn recover_by_p_and_q<V: Vector>(block: &mut [u8], p: &[u8], q: &mut [u8], sum: Sum<'_>, factor: u8) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        let solver = QByP { p: p.as_ptr(), factor: V::factor(factor) };
        solve::<V, _>(block.as_mut_ptr(), q.as_mut_ptr(), block.len(), sum, solver)
    };
    if covered < block.len() {
        let (block, q) = (&mut block[covered..], &mut q[covered..]);
        portable::recover_by_p_and_q(block, &p[covered..], q, sum.after(covered), factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn recover_two<V: Vector>(
    a: &mut [u8],
    b: &mut [u8],
    p: &[u8],
    q: &[u8],
    sum: Sum<'_>,
    factors: Factors,
) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        let (by_p, by_q) = (V::factor(factors.by_p), V::factor(factors.by_q));
        let solver = Two { p: p.as_ptr(), q: q.as_ptr(), by_p, by_q };
        solve::<V, _>(a.as_mut_ptr(), b.as_mut_ptr(), a.len(), sum, solver)
    };
    if covered < a.len() {
        let (a, b) = (&mut a[covered..], &mut b[covered..]);
        portable::recover_two(a, b, &p[covered..], &q[covered..], sum.after(covered), factors);
    }
}

#[inline(always)]
pub(crate) unsafe fn xor_into<V: Vector>(target: &mut [u8], source: &[u8]) {
    let (to, from) = (target.as_mut_ptr(), source.as_ptr());
    let covered = each_column!(V, target.len(), |N, start| {
        for n in 0..N {
            // SAFETY: the column ends within the target; the caller promises equal lengths and the instructions.
            unsafe {
                let at = start.unchecked_add(n * V::BYTES);
                V::load(to.add(at)).xor(V::load(from.add(at))).store(to.add(at));
            }
        }
    });
    portable::xor_into(&mut target[covered..], &source[covered..]);
}

/// Where the parities to move and the old and the new data lie. There are no kinds of stores here: what an update stores it
/// has just read, the line is in the cache; and it reads so few blocks that the processor asks ahead by itself.
#[derive(Clone, Copy)]
struct Update<F> {
    p: *mut u8,
    q: *mut u8,
    old: *const u8,
    new: *const u8,
    factor: F,
}

/// Moves P where `HAS_P` and Q where `HAS_Q`, in place; gives how much whole registers covered.
///
/// # Safety
/// The processor has the instructions; the blocks have `length` bytes.
#[inline(always)]
unsafe fn update<V: Vector, const HAS_P: bool, const HAS_Q: bool>(length: usize, blocks: Update<V::Factor>) -> usize {
    let Update { p, q, old, new, factor } = blocks;
    each_column!(V, length, |N, start| {
        for n in 0..N {
            // SAFETY: promised by the caller; the column ends at or before `length`.
            unsafe {
                let at = start.unchecked_add(n * V::BYTES);
                let delta = V::load(old.add(at)).xor(V::load(new.add(at)));
                if HAS_P {
                    V::load(p.add(at)).xor(delta).store(p.add(at));
                }
                if HAS_Q {
                    V::load(q.add(at)).xor(delta.multiply(factor)).store(q.add(at));
                }
            }
        }
    })
}

#[inline(always)]
pub(crate) unsafe fn update_p<V: Vector>(p: &mut [u8], old: &[u8], new: &[u8]) {
    // SAFETY: the caller promises the instructions and equal lengths; there is no Q to touch.
    let covered = unsafe {
        let (q, factor) = (std::ptr::null_mut(), V::factor(1));
        let blocks = Update { p: p.as_mut_ptr(), q, old: old.as_ptr(), new: new.as_ptr(), factor };
        update::<V, true, false>(p.len(), blocks)
    };
    portable::update_p(&mut p[covered..], &old[covered..], &new[covered..]);
}

#[inline(always)]
pub(crate) unsafe fn update_q<V: Vector>(q: &mut [u8], old: &[u8], new: &[u8], factor: u8) {
    // SAFETY: the caller promises the instructions and equal lengths; there is no P to touch.
    let covered = unsafe {
        let (p, prepared) = (std::ptr::null_mut(), V::factor(factor));
        let blocks = Update { p, q: q.as_mut_ptr(), old: old.as_ptr(), new: new.as_ptr(), factor: prepared };
        update::<V, false, true>(q.len(), blocks)
    };
    if covered < q.len() {
        portable::update_q(&mut q[covered..], &old[covered..], &new[covered..], factor);
    }
}

#[inline(always)]
pub(crate) unsafe fn update_pq<V: Vector>(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8) {
    // SAFETY: the caller promises the instructions and equal lengths.
    let covered = unsafe {
        let (to_p, to_q, prepared) = (p.as_mut_ptr(), q.as_mut_ptr(), V::factor(factor));
        let blocks = Update { p: to_p, q: to_q, old: old.as_ptr(), new: new.as_ptr(), factor: prepared };
        update::<V, true, true>(p.len(), blocks)
    };
    if covered < p.len() {
        portable::update_pq(&mut p[covered..], &mut q[covered..], &old[covered..], &new[covered..], factor);
    }
}

#[cfg(test)]
mod tests;
