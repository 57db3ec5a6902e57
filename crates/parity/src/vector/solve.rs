//! Computes the lost blocks from the sums of a column: one rule for each kind of loss.
//! Owns: solving for the two targets. Not here: the sums (`sums`), which equation gives which block (`recover`).
//! Spec: docs/md/address-mapping.md#recovery.

use super::register::Vector;

/// Computes the contents of the two targets from the sums of a column.
pub(super) trait Solve<V>: Copy {
    /// Whether there are a P to sum and a first target. If not, the first value is not used.
    const HAS_P: bool;
    /// # Safety
    /// The processor has the instructions; the known blocks have a register at `start`.
    unsafe fn solve(self, start: usize, p_sum: V, q_sum: V) -> (V, V);
}

/// The sums themselves: P and Q, or Q alone.
#[derive(Clone, Copy)]
pub(super) struct Sums<const HAS_P: bool>;

impl<V: Vector, const HAS_P: bool> Solve<V> for Sums<HAS_P> {
    const HAS_P: bool = HAS_P;

    #[inline(always)]
    unsafe fn solve(self, _: usize, p_sum: V, q_sum: V) -> (V, V) {
        (p_sum, q_sum)
    }
}

/// The lost block, from Q.
#[derive(Clone, Copy)]
pub(super) struct ByQ<F> {
    pub(super) q: *const u8,
    pub(super) factor: F,
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
pub(super) struct PByQ<F>(pub(super) ByQ<F>);

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
pub(super) struct QByP<F> {
    pub(super) p: *const u8,
    pub(super) factor: F,
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
pub(super) struct Two<F> {
    pub(super) p: *const u8,
    pub(super) q: *const u8,
    pub(super) by_p: F,
    pub(super) by_q: F,
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
