//! One set of kernels behind safe functions, and the choice among the sets.
//! Owns: checking the arguments, ordering a row for Horner's rule, detecting the processor (once).
//! Not here: the loops (`portable`, `vector`), recovery (`recover`).
//! Invariant: a `Kernel` that exists can run on this processor. Spec: md-reference.md 2.6.

use crate::{gf256, portable};
use std::sync::OnceLock;

/// A row for Horner's rule: a block or a hole for every exponent, the highest first.
/// Q is then `((s0 * 2 ^ s1) * 2 ^ s2) ...`, which multiplies by 2 only and serves permuted exponents and DDF's holes alike.
pub(crate) type Steps<'a> = &'a [Option<&'a [u8]>];

/// The loops of one instruction set.
///
/// All are `unsafe` because of two promises: the processor has the instructions, and every block is long enough: targets and
/// plain sources have one length, steps and sources read "from `at`" have at least `at` bytes more.
#[expect(
    clippy::type_complexity,
    reason = "a signature with its argument names reads better here than a row of aliases"
)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// `target = sources[0][at..] ^ sources[1][at..] ^ ...`
    pub(crate) xor: unsafe fn(target: &mut [u8], sources: &[&[u8]], at: usize),
    /// `target ^= source`
    pub(crate) xor_into: unsafe fn(target: &mut [u8], source: &[u8]),
    /// `p ^= old ^ new`
    pub(crate) update_p: unsafe fn(p: &mut [u8], old: &[u8], new: &[u8]),
    /// `q ^= factor * (old ^ new)`
    pub(crate) update_q: unsafe fn(q: &mut [u8], old: &[u8], new: &[u8], factor: u8),
    /// both of the above
    pub(crate) update_pq: unsafe fn(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8),
    /// P and Q of the steps from `at`
    pub(crate) generate_pq: unsafe fn(p: &mut [u8], q: &mut [u8], steps: Steps<'_>, at: usize),
    /// Q of the steps from `at`
    pub(crate) generate_q: unsafe fn(q: &mut [u8], steps: Steps<'_>, at: usize),
    /// `q ^= factor * source`
    pub(crate) multiply_into: unsafe fn(q: &mut [u8], source: &[u8], factor: u8),
    /// `block = factor * (block ^ q)`
    pub(crate) solve_one: unsafe fn(block: &mut [u8], q: &[u8], factor: u8),
    /// With Px in `a` and Qx in `b`: `Da = by_p * (p ^ Px) ^ by_q * (q ^ Qx)` to `a`, `Db = p ^ Px ^ Da` to `b`.
    pub(crate) solve_two: unsafe fn(a: &mut [u8], b: &mut [u8], p: &[u8], q: &[u8], factors: Factors),
}

/// The two coefficients of a row with two data blocks lost.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    pub(crate) by_p: u8,
    pub(crate) by_q: u8,
}

/// A set of kernels that this processor can run; the free functions of the crate use [`Kernel::best`].
#[derive(Clone, Copy)]
pub struct Kernel(&'static Table);

/// Blocks are compared in pieces of this size, which fit on the stack.
const CHECK_BYTES: usize = 1024;

impl Kernel {
    /// The fastest set, chosen at the first call.
    pub fn best() -> Kernel {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| *Kernel::available().last().expect("the portable set is always there"))
    }

    /// Every set this processor can run, the portable one first, the fastest last.
    pub fn available() -> Vec<Kernel> {
        let mut sets = vec![Kernel(&portable::TABLE)];
        #[cfg(target_arch = "x86_64")]
        sets.extend(crate::x86::detected().map(Kernel));
        sets
    }

    /// What to call it in reports: "portable", "avx2", ...
    pub fn name(self) -> &'static str {
        self.0.name
    }

    pub(crate) fn table(self) -> &'static Table {
        self.0
    }

    /// See [`crate::xor_into`].
    pub fn xor_into(self, target: &mut [u8], source: &[u8]) {
        assert_eq!(source.len(), target.len());
        // SAFETY: a kernel that exists can run here; the lengths are equal, see above.
        unsafe { (self.0.xor_into)(target, source) }
    }

    /// See [`crate::generate_p`].
    pub fn generate_p(self, p: &mut [u8], data: &[&[u8]]) {
        assert_lengths(p.len(), data);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above, and `at` is zero.
        unsafe { (self.0.xor)(p, data, 0) }
    }

    /// See [`crate::generate_pq`].
    pub fn generate_pq(self, p: &mut [u8], q: &mut [u8], data: &[&[u8]], exponents: &[u8]) {
        assert_eq!(data.len(), exponents.len());
        assert_eq!(p.len(), q.len());
        assert_lengths(p.len(), data);
        let blocks = data.iter().copied().zip(exponents.iter().copied());
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above, and `at` is zero.
        with_steps(exponents, blocks, |steps| unsafe { (self.0.generate_pq)(p, q, steps, 0) });
    }

    /// See [`crate::generate_q`].
    pub fn generate_q(self, q: &mut [u8], data: &[&[u8]], exponents: &[u8]) {
        assert_eq!(data.len(), exponents.len());
        assert_lengths(q.len(), data);
        let blocks = data.iter().copied().zip(exponents.iter().copied());
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above, and `at` is zero.
        with_steps(exponents, blocks, |steps| unsafe { (self.0.generate_q)(q, steps, 0) });
    }

    /// See [`crate::update_p`].
    pub fn update_p(self, p: &mut [u8], old: &[u8], new: &[u8]) {
        assert_lengths(p.len(), &[old, new]);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above.
        unsafe { (self.0.update_p)(p, old, new) }
    }

    /// See [`crate::update_q`].
    pub fn update_q(self, q: &mut [u8], old: &[u8], new: &[u8], exponent: u8) {
        assert!(exponent < gf256::ORDER);
        assert_lengths(q.len(), &[old, new]);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above.
        unsafe { (self.0.update_q)(q, old, new, gf256::exp(exponent)) }
    }

    /// See [`crate::update_pq`].
    pub fn update_pq(self, p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], exponent: u8) {
        assert!(exponent < gf256::ORDER);
        assert_lengths(p.len(), &[q, old, new]);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above.
        unsafe { (self.0.update_pq)(p, q, old, new, gf256::exp(exponent)) }
    }

    /// See [`crate::check_p`].
    pub fn check_p(self, p: &[u8], data: &[&[u8]]) -> bool {
        assert_lengths(p.len(), data);
        let mut computed = [0; CHECK_BYTES];
        p.chunks(CHECK_BYTES).enumerate().all(|(index, p)| {
            let computed = &mut computed[..p.len()];
            // SAFETY: a kernel that exists can run here; the piece lies within P and so within every block.
            unsafe { (self.0.xor)(computed, data, index * CHECK_BYTES) }
            computed == p
        })
    }

    /// See [`crate::check_pq`].
    pub fn check_pq(self, p: &[u8], q: &[u8], data: &[&[u8]], exponents: &[u8]) -> bool {
        assert_eq!(data.len(), exponents.len());
        assert_eq!(p.len(), q.len());
        assert_lengths(p.len(), data);
        let (mut computed_p, mut computed_q) = ([0; CHECK_BYTES], [0; CHECK_BYTES]);
        let blocks = data.iter().copied().zip(exponents.iter().copied());
        with_steps(exponents, blocks, |steps| {
            p.chunks(CHECK_BYTES).zip(q.chunks(CHECK_BYTES)).enumerate().all(|(index, (p, q))| {
                let (computed_p, computed_q) = (&mut computed_p[..p.len()], &mut computed_q[..q.len()]);
                // SAFETY: a kernel that exists can run here; the piece lies within P and so within every block.
                unsafe { (self.0.generate_pq)(computed_p, computed_q, steps, index * CHECK_BYTES) }
                computed_p == p && computed_q == q
            })
        })
    }
}

pub(crate) fn assert_lengths(length: usize, blocks: &[&[u8]]) {
    for block in blocks {
        assert_eq!(block.len(), length, "the blocks of a row have one length");
    }
}

/// Orders the blocks for Horner's rule. `exponents` are those of the whole row (they bound the highest step); a lost block
/// is simply not among `blocks` and stays a hole.
pub(crate) fn with_steps<'a, R>(
    exponents: &[u8],
    blocks: impl Iterator<Item = (&'a [u8], u8)>,
    run: impl FnOnce(Steps<'_>) -> R,
) -> R {
    // Clearing places for all 255 exponents would cost more than the parity of a small block.
    const FEW: usize = 32;
    let count = exponents.iter().max().map_or(0, |highest| usize::from(*highest) + 1);
    assert!(count <= usize::from(gf256::ORDER), "exponents are below 255");
    if count <= FEW {
        run(order(&mut [None; FEW][..count], blocks))
    } else {
        run(order(&mut [None; gf256::ORDER as usize][..count], blocks))
    }
}

fn order<'s, 'a>(steps: &'s mut [Option<&'a [u8]>], blocks: impl Iterator<Item = (&'a [u8], u8)>) -> Steps<'s>
where
    'a: 's,
{
    let highest = steps.len();
    for (block, exponent) in blocks {
        let previous = steps[highest - 1 - usize::from(exponent)].replace(block);
        assert!(previous.is_none(), "exponent {exponent} stands twice in one row");
    }
    steps
}
