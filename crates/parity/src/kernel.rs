//! One set of kernels behind safe functions, and the choice among the sets.
//! Owns: checking the arguments, detecting the processor (once). Not here: the loops (`portable`, `vector`) and what they
//! are given (`table`), recovery (`recover`).
//! Invariant: a `Kernel` that exists can run on this processor. Spec: docs/md/address-mapping.md#parity-and-syndrome.

use crate::table::{Stores, Sum, Table, with_steps};
use crate::{gf256, portable};
use std::sync::OnceLock;

/// A set of kernels that this processor can run; the free functions of the crate use [`Kernel::best`].
#[derive(Clone, Copy)]
pub struct Kernel {
    table: &'static Table,
    /// `None`: decide by the size of the row.
    stores: Option<Stores>,
}

/// From this many bytes on, parity included, a row is stored past the cache. Measured with a second-level cache of 2
/// MiB and the same row repeatedly, which is the best case for the cache: at 1.9 MB, storing into the cache is 1.1
/// times as fast; at 2.5 MB, storing past it is 1.15 times as fast. For smaller rows, only the caller can know that a
/// row is cold.
pub const STREAMING_ROW_BYTES: usize = 2 << 20;

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
        let of_processor = tables().into_iter().filter_map(|(is_there, table)| is_there.then_some(table));
        std::iter::once(&portable::TABLE).chain(of_processor).map(|table| Kernel { table, stores: None }).collect()
    }

    /// The names of the sets that need instructions which this processor lacks.
    pub fn lacking() -> Vec<&'static str> {
        tables().into_iter().filter_map(|(is_there, table)| (!is_there).then_some(table.name)).collect()
    }

    /// Its name in reports: "portable", "avx2", ...
    pub fn name(self) -> &'static str {
        self.table.name
    }

    /// The same kernels with this kind of store, whatever the size of a row. Updates in place always store into the
    /// cache, because reading has just loaded the lines.
    pub fn with_stores(self, stores: Stores) -> Kernel {
        Kernel { stores: Some(stores), ..self }
    }

    pub(crate) fn table(self) -> &'static Table {
        self.table
    }

    /// How to store the results for a row of `blocks` blocks of `length` bytes.
    pub(crate) fn stores(self, blocks: usize, length: usize) -> Stores {
        let by_size =
            if blocks.saturating_mul(length) >= STREAMING_ROW_BYTES { Stores::Streaming } else { Stores::Cached };
        self.stores.unwrap_or(by_size)
    }

    /// See [`crate::xor_into`].
    pub fn xor_into(self, target: &mut [u8], source: &[u8]) {
        assert_eq!(source.len(), target.len());
        // SAFETY: a kernel that exists can run here; the lengths are equal, see above.
        unsafe { (self.table.xor_into)(target, source) }
    }

    /// See [`crate::generate_p`].
    pub fn generate_p(self, p: &mut [u8], data: &[&[u8]]) {
        assert_lengths(p.len(), data);
        let stores = self.stores(data.len() + 1, p.len());
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above, and `at` is zero.
        unsafe { (self.table.xor)(p, data, 0, stores) }
    }

    /// See [`crate::generate_pq`].
    pub fn generate_pq(self, p: &mut [u8], q: &mut [u8], data: &[&[u8]], exponents: &[u8]) {
        assert_eq!(data.len(), exponents.len());
        assert_eq!(p.len(), q.len());
        assert_lengths(p.len(), data);
        let blocks = data.iter().copied().zip(exponents.iter().copied());
        let stores = self.stores(data.len() + 2, p.len());
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above, and `at` is zero.
        with_steps(blocks, |steps| unsafe { (self.table.generate_pq)(p, q, Sum { steps, at: 0, stores }) });
    }

    /// See [`crate::generate_q`].
    pub fn generate_q(self, q: &mut [u8], data: &[&[u8]], exponents: &[u8]) {
        assert_eq!(data.len(), exponents.len());
        assert_lengths(q.len(), data);
        let blocks = data.iter().copied().zip(exponents.iter().copied());
        let stores = self.stores(data.len() + 1, q.len());
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above, and `at` is zero.
        with_steps(blocks, |steps| unsafe { (self.table.generate_q)(q, Sum { steps, at: 0, stores }) });
    }

    /// See [`crate::update_p`].
    pub fn update_p(self, p: &mut [u8], old: &[u8], new: &[u8]) {
        assert_lengths(p.len(), &[old, new]);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above.
        unsafe { (self.table.update_p)(p, old, new) }
    }

    /// See [`crate::update_q`].
    pub fn update_q(self, q: &mut [u8], old: &[u8], new: &[u8], exponent: u8) {
        assert!(exponent < gf256::ORDER);
        assert_lengths(q.len(), &[old, new]);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above.
        unsafe { (self.table.update_q)(q, old, new, gf256::exp(exponent)) }
    }

    /// See [`crate::update_pq`].
    pub fn update_pq(self, p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], exponent: u8) {
        assert!(exponent < gf256::ORDER);
        assert_lengths(p.len(), &[q, old, new]);
        // SAFETY: a kernel that exists can run here; all lengths are equal, see above.
        unsafe { (self.table.update_pq)(p, q, old, new, gf256::exp(exponent)) }
    }

    /// See [`crate::check_p`].
    pub fn check_p(self, p: &[u8], data: &[&[u8]]) -> bool {
        assert_lengths(p.len(), data);
        let mut computed = [0; CHECK_BYTES];
        p.chunks(CHECK_BYTES).enumerate().all(|(index, p)| {
            let computed = &mut computed[..p.len()];
            // SAFETY: a kernel that exists can run here; the piece lies within P and so within every block.
            unsafe { (self.table.xor)(computed, data, index * CHECK_BYTES, Stores::Cached) }
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
        with_steps(blocks, |steps| {
            p.chunks(CHECK_BYTES).zip(q.chunks(CHECK_BYTES)).enumerate().all(|(index, (p, q))| {
                let (computed_p, computed_q) = (&mut computed_p[..p.len()], &mut computed_q[..q.len()]);
                let sum = Sum { steps, at: index * CHECK_BYTES, stores: Stores::Cached };
                // SAFETY: a kernel that exists can run here; the piece lies within P and so within every block.
                unsafe { (self.table.generate_pq)(computed_p, computed_q, sum) }
                computed_p == p && computed_q == q
            })
        })
    }
}

/// The sets besides the portable one, the fastest last, and whether this processor can run each.
fn tables() -> impl IntoIterator<Item = (bool, &'static Table)> {
    #[cfg(target_arch = "x86_64")]
    return crate::vector::x86::tables();
    #[cfg(not(target_arch = "x86_64"))]
    return [];
}

pub(crate) fn assert_lengths(length: usize, blocks: &[&[u8]]) {
    for block in blocks {
        assert_eq!(block.len(), length, "the blocks of a row have one length");
    }
}
