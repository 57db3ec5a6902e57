//! What the loops of one instruction set compute, and what they are given.
//! Owns: [`Table`], the order of a row's blocks for Horner's rule. Not here: the loops (`portable`, `vector`), the choice
//! among the sets and the checks of arguments (`kernel`).
//! Invariant: the steps of a sum ascend by exponent. Spec: docs/md/address-mapping.md#parity-and-syndrome.

use crate::gf256;
use std::mem::MaybeUninit;

/// A block of a row and its place in the sum of Q.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) block: &'a [u8],
    pub(crate) exponent: u8,
    /// `g^exponent`
    pub(crate) factor: u8,
}

/// The known blocks of a row, the lowest exponent first, each exponent once. Read backwards, this is the order of
/// Horner's rule, where Q is `((D3 * 2 ^ D2) * 2 ^ D1) ...`. The rule multiplies by 2 only; a lost block, or a gap in
/// DDF's exponents, costs one more doubling.
pub(crate) type Steps<'a> = &'a [Step<'a>];

/// How the results of a call are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Into the cache: for results that are read soon.
    Cached,
    /// Past the cache, straight to memory: no line of the target is read first, no useful line is evicted, and the
    /// sources are prefetched. Best if the row does not fit into the cache anyway. Targets that are not aligned to 64
    /// bytes are stored as if cached.
    Streaming,
}

/// What to sum, from which byte of each block, and how to store the results.
#[derive(Clone, Copy)]
pub(crate) struct Sum<'a> {
    pub(crate) steps: Steps<'a>,
    pub(crate) at: usize,
    pub(crate) stores: Stores,
}

impl Sum<'_> {
    /// This sum for the rest of each block, after the first `bytes`.
    pub(crate) fn after(self, bytes: usize) -> Self {
        Sum { at: self.at + bytes, ..self }
    }
}

/// The loops of one instruction set; each is a single pass over its blocks.
///
/// All are `unsafe` because of two promises: the processor has the instructions, and every block is long enough.
/// Targets and plain sources have one length. The steps of a sum, and sources read "from `at`", have at least `at`
/// bytes more.
#[expect(
    clippy::type_complexity,
    reason = "a signature with its argument names reads better here than a row of aliases"
)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// `target = sources[0][at..] ^ sources[1][at..] ^ ...`
    pub(crate) xor: unsafe fn(target: &mut [u8], sources: &[&[u8]], at: usize, stores: Stores),
    /// `target ^= source`
    pub(crate) xor_into: unsafe fn(target: &mut [u8], source: &[u8]),
    /// `p ^= old ^ new`
    pub(crate) update_p: unsafe fn(p: &mut [u8], old: &[u8], new: &[u8]),
    /// `q ^= factor * (old ^ new)`
    pub(crate) update_q: unsafe fn(q: &mut [u8], old: &[u8], new: &[u8], factor: u8),
    /// both of the above
    pub(crate) update_pq: unsafe fn(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8),
    /// `p = Px; q = Qx`, where Px and Qx are those of the sum's steps, also below.
    pub(crate) generate_pq: unsafe fn(p: &mut [u8], q: &mut [u8], sum: Sum<'_>),
    /// `q = Qx`
    pub(crate) generate_q: unsafe fn(q: &mut [u8], sum: Sum<'_>),
    /// `block = factor * (q ^ Qx)`
    pub(crate) recover_by_q: unsafe fn(block: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8),
    /// `block = factor * (q ^ Qx); p = Px ^ block`
    pub(crate) recover_by_q_and_p: unsafe fn(block: &mut [u8], p: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8),
    /// `block = p ^ Px; q = Qx ^ factor * block`
    pub(crate) recover_by_p_and_q: unsafe fn(block: &mut [u8], p: &[u8], q: &mut [u8], sum: Sum<'_>, factor: u8),
    /// `a = by_p * (p ^ Px) ^ by_q * (q ^ Qx); b = p ^ Px ^ a`
    pub(crate) recover_two: unsafe fn(a: &mut [u8], b: &mut [u8], p: &[u8], q: &[u8], sum: Sum<'_>, factors: Factors),
}

/// The two coefficients of a row with two data blocks lost.
#[derive(Clone, Copy)]
pub(crate) struct Factors {
    pub(crate) by_p: u8,
    pub(crate) by_q: u8,
}

/// A row has fewer data blocks than this. Their list is on the stack, and its unused part is not touched.
const STEPS_MAX: usize = 256;

/// Orders the blocks of a sum.
pub(crate) fn with_steps<'a, R>(blocks: impl Iterator<Item = (&'a [u8], u8)>, run: impl FnOnce(Steps<'_>) -> R) -> R {
    // The list is filled in place, with its length in a register: for blocks of a page, a general list costs
    // measurable time.
    let mut room = [const { MaybeUninit::<Step<'a>>::uninit() }; STEPS_MAX];
    let mut count = 0;
    let (mut is_ordered, mut least) = (true, 0);
    blocks.for_each(|(block, exponent)| {
        assert!(exponent < gf256::ORDER, "exponents are below 255");
        room[count].write(Step { block, exponent, factor: gf256::exp(exponent) });
        count += 1;
        is_ordered &= least <= u16::from(exponent);
        least = u16::from(exponent) + 1;
    });
    // SAFETY: all before `count` were written, in order.
    let steps = unsafe { room[..count].assume_init_mut() };
    if !is_ordered {
        steps.sort_unstable_by_key(|step| step.exponent);
        for pair in steps.windows(2) {
            assert_ne!(pair[0].exponent, pair[1].exponent, "exponent {} stands twice in one row", pair[0].exponent);
        }
    }
    run(steps)
}
