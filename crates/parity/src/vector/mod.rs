//! The kernels over any vector register: one source for all instruction sets.
//! Owns: the order of loads and stores. Not here: instructions (`x86`).
//! Invariant: a block is only touched in whole registers that lie within it; the rest of a block that is no multiple of a
//! register goes to the portable kernel. Spec: docs/md/address-mapping.md#parity-and-syndrome.
//!
//! A kernel works on a row in columns of a few registers. It reads all blocks once, keeps the sums in registers, and
//! computes the lost blocks there. So every kernel is one pass: no byte is read or written twice.
//!
//! Everything is `inline(always)`: the code must end up inside a function that enables the target feature, or each
//! instruction would be a call.

mod register;
mod solve;
mod sums;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use crate::portable;
use crate::table::{Factors, Stores, Sum};
pub(crate) use register::Vector;
use solve::{ByQ, PByQ, QByP, Solve, Sums, Two};
use sums::{Doubled, Few, Known, Multiplied, source};

/// Registers of a column: enough to hide the latency of an addition.
const WIDE: usize = 4;
/// Registers of a column of an unrolled kernel over many blocks. Blocks that start at the same offset of a page compete for
/// the same 8 or 12 lines of the first level cache; the wider the column, the fewer lines are fetched twice.
const WIDER: usize = 8;
/// An unrolled kernel has a loop for each number of known blocks up to this.
const FEW_MAX: usize = 8;

/// Runs the body for every column of `0..$length`, the wide ones first. Returns how many bytes whole registers covered.
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

/// Whether these targets can be streamed to: they must be aligned.
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
    let (to, length) = (target.as_mut_ptr(), target.len());
    let covered = if can_stream::<V>(stores, &[to]) {
        // SAFETY: the caller promises the instructions and the lengths; the target is aligned, and the fence follows.
        unsafe {
            let covered = xor_columns::<V, WIDE, true>(to, length, sources, at);
            V::fence();
            covered
        }
    } else if V::UNROLLS && sources.len() > FEW_MAX {
        // SAFETY: the caller promises the instructions and the lengths.
        unsafe { xor_columns::<V, WIDER, false>(to, length, sources, at) }
    } else {
        // SAFETY: the caller promises the instructions and the lengths.
        unsafe { xor_columns::<V, WIDE, false>(to, length, sources, at) }
    };
    if covered < target.len() {
        portable::xor(&mut target[covered..], sources, at + covered, stores);
    }
}

/// # Safety
/// The processor has the instructions; there are `length` bytes of target, and as many from `at` in each source.
#[inline(always)]
unsafe fn xor_columns<V: Vector, const WIDTH: usize, const STREAM: bool>(
    target: *mut u8,
    length: usize,
    sources: &[&[u8]],
    at: usize,
) -> usize {
    let mut start = 0;
    // SAFETY: promised by the caller; every column ends at or before `length`.
    unsafe {
        while start + WIDTH * V::BYTES <= length {
            xor_column::<V, WIDTH, STREAM>(target.add(start), sources, at + start);
            start += WIDTH * V::BYTES;
        }
        while start + V::BYTES <= length {
            xor_column::<V, 1, STREAM>(target.add(start), sources, at + start);
            start += V::BYTES;
        }
    }
    start
}

/// # Safety
/// The processor has the instructions; there are N registers of target, and as many from `at` in each source.
#[inline(always)]
unsafe fn xor_column<V: Vector, const N: usize, const STREAM: bool>(target: *mut u8, sources: &[&[u8]], at: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        let mut sum = [V::zero(); N];
        for block in sources {
            debug_assert!(at + N * V::BYTES <= block.len());
            let place = block.as_ptr().add(at);
            for (n, sum) in sum.iter_mut().enumerate() {
                *sum = sum.xor(source::<V, STREAM>(place, n));
            }
        }
        put::<V, N, STREAM>(sum, target);
    }
}

/// Where the results of a sum go: `second`, and `first` if the solver has a P.
#[derive(Clone, Copy)]
struct Targets {
    first: *mut u8,
    second: *mut u8,
    length: usize,
}

/// Sums the steps and solves, column by column. Returns how many bytes whole registers covered.
///
/// # Safety
/// The processor has the instructions. `length` bytes may be written at the targets; the steps have as many from `sum.at`,
/// and so have the blocks of the solver.
#[inline(always)]
unsafe fn solve<V: Vector, S: Solve<V>>(targets: Targets, sum: Sum<'_>, solver: S) -> usize {
    let Targets { first, second, .. } = targets;
    // SAFETY: promised by the caller; streamed targets are aligned, and the fence follows.
    unsafe {
        if can_stream::<V>(sum.stores, &[if S::HAS_P { first } else { second }, second]) {
            let covered = if V::MULTIPLIES_AT_ONCE {
                solve_columns::<V, S, _, WIDE, true>(targets, Multiplied(sum), solver)
            } else {
                solve_columns::<V, S, _, WIDE, true>(targets, Doubled(sum), solver)
            };
            V::fence();
            covered
        } else if !V::MULTIPLIES_AT_ONCE {
            solve_columns::<V, S, _, WIDE, false>(targets, Doubled(sum), solver)
        } else if V::UNROLLS && sum.steps.len() <= FEW_MAX {
            solve_few::<V, S>(targets, sum, solver)
        } else if V::UNROLLS {
            solve_columns::<V, S, _, WIDER, false>(targets, Multiplied(sum), solver)
        } else {
            solve_columns::<V, S, _, WIDE, false>(targets, Multiplied(sum), solver)
        }
    }
}

/// The same for at most `FEW_MAX` steps: a loop for each number of them.
///
/// # Safety
/// As of `solve`.
#[inline(always)]
unsafe fn solve_few<V: Vector, S: Solve<V>>(targets: Targets, sum: Sum<'_>, solver: S) -> usize {
    macro_rules! by_count {
        ($($count:literal)*) => {
            $(if let Ok(steps) = <&[_; $count]>::try_from(sum.steps) {
                // SAFETY: promised by the caller.
                return unsafe {
                    let known = Few::new::<V>(steps, sum.at);
                    solve_columns::<V, S, _, WIDE, false>(targets, known, solver)
                };
            })*
        };
    }
    by_count!(0 1 2 3 4 5 6 7 8);
    unreachable!("{} steps are not few", sum.steps.len())
}

/// # Safety
/// As of `solve`; where `STREAM` the targets are aligned.
#[inline(always)]
unsafe fn solve_columns<V: Vector, S: Solve<V>, K: Known<V>, const WIDTH: usize, const STREAM: bool>(
    targets: Targets,
    known: K,
    solver: S,
) -> usize {
    let mut start = 0;
    // SAFETY: promised by the caller; every column ends at or before `length`.
    unsafe {
        while start + WIDTH * V::BYTES <= targets.length {
            solve_column::<V, S, K, WIDTH, STREAM>(targets, start, known, solver);
            start += WIDTH * V::BYTES;
        }
        while start + V::BYTES <= targets.length {
            solve_column::<V, S, K, 1, STREAM>(targets, start, known, solver);
            start += V::BYTES;
        }
    }
    start
}

/// # Safety
/// As of `solve_columns`, of which this is the column of N registers from `start`.
#[inline(always)]
unsafe fn solve_column<V: Vector, S: Solve<V>, K: Known<V>, const N: usize, const STREAM: bool>(
    targets: Targets,
    start: usize,
    known: K,
    solver: S,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let (mut firsts, mut seconds) = known.sums::<N, STREAM>(start, S::HAS_P);
        for n in 0..N {
            // A check for overflow would cost more than the solving.
            let at = start.unchecked_add(n * V::BYTES);
            (firsts[n], seconds[n]) = solver.solve(at, firsts[n], seconds[n]);
        }
        if S::HAS_P {
            put::<V, N, STREAM>(firsts, targets.first.add(start));
        }
        put::<V, N, STREAM>(seconds, targets.second.add(start));
    }
}

#[inline(always)]
pub(crate) unsafe fn generate_pq<V: Vector>(p: &mut [u8], q: &mut [u8], sum: Sum<'_>) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        solve::<V, _>(Targets { first: p.as_mut_ptr(), second: q.as_mut_ptr(), length: p.len() }, sum, Sums::<true>)
    };
    if covered < p.len() {
        portable::generate_pq(&mut p[covered..], &mut q[covered..], sum.after(covered));
    }
}

#[inline(always)]
pub(crate) unsafe fn generate_q<V: Vector>(q: &mut [u8], sum: Sum<'_>) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        solve::<V, _>(
            Targets { first: std::ptr::null_mut(), second: q.as_mut_ptr(), length: q.len() },
            sum,
            Sums::<false>,
        )
    };
    if covered < q.len() {
        portable::generate_q(&mut q[covered..], sum.after(covered));
    }
}

#[inline(always)]
pub(crate) unsafe fn recover_by_q<V: Vector>(block: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8) {
    // SAFETY: the caller promises the instructions and the lengths.
    let covered = unsafe {
        let solver = ByQ { q: q.as_ptr(), factor: V::factor(factor) };
        solve::<V, _>(
            Targets { first: std::ptr::null_mut(), second: block.as_mut_ptr(), length: block.len() },
            sum,
            solver,
        )
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
        solve::<V, _>(Targets { first: p.as_mut_ptr(), second: block.as_mut_ptr(), length: block.len() }, sum, solver)
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
        solve::<V, _>(Targets { first: block.as_mut_ptr(), second: q.as_mut_ptr(), length: block.len() }, sum, solver)
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
        solve::<V, _>(Targets { first: a.as_mut_ptr(), second: b.as_mut_ptr(), length: a.len() }, sum, solver)
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

/// Where the parities to move and the old and the new data lie. An update has no choice of stores: it stores to lines
/// that it has just read into the cache. It reads so few blocks that the processor prefetches them by itself.
#[derive(Clone, Copy)]
struct Update<F> {
    p: *mut u8,
    q: *mut u8,
    old: *const u8,
    new: *const u8,
    factor: F,
}

/// Moves P if `HAS_P` and Q if `HAS_Q`, in place. Returns how many bytes whole registers covered.
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
