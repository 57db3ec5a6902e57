//! Filling the lost blocks of a row from those that are left.
//! Owns: which equation gives which block, for every tolerated loss.
//! Not here: who is lost (`engine`), the loops (the kernels).
//! Invariant: a block that is not lost is never written. Spec: docs/md/address-mapping.md#recovery.

use crate::gf256;
use crate::kernel::Kernel;
use crate::table::{Factors, Stores, Sum, Table, with_steps};
use smallvec::SmallVec;
use thiserror::Error;

/// The blocks of one row, all of one length in bytes.
pub struct Row<'a, 'b> {
    /// The data blocks in data order; lost ones are given too, as the place to fill.
    pub data: &'a mut [&'b mut [u8]],
    /// The Q exponent of each data block; may be empty where there is no Q.
    pub exponents: &'a [u8],
    /// P; `None` is a P that is neither there nor wanted.
    pub p: Option<&'a mut [u8]>,
    /// Q; `None` on raid4 and raid5, or a Q that is neither there nor wanted.
    pub q: Option<&'a mut [u8]>,
}

/// Which blocks of a row have no valid content and are to be filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost<'a> {
    /// Indexes into `Row::data`, ascending, each once.
    pub data: &'a [usize],
    /// P is to be filled.
    pub p: bool,
    /// Q is to be filled.
    pub q: bool,
}

/// More data blocks are lost than there are parity blocks left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{found} data blocks of a row are lost, {tolerated} can be recovered")]
pub struct TooManyLost {
    /// Data blocks lost.
    pub found: usize,
    /// Parity blocks left.
    pub tolerated: usize,
}

/// Fills the lost blocks of a row in place.
///
/// Recovers at most as many lost data blocks as parity blocks are left (given, and not lost themselves), so at most
/// two. Lost P and Q are filled, too, if they are given. On an error, nothing was written.
pub fn recover(row: Row<'_, '_>, lost: &Lost<'_>) -> Result<(), TooManyLost> {
    Kernel::best().recover(row, lost)
}

impl Kernel {
    /// See [`crate::recover()`].
    pub fn recover(self, row: Row<'_, '_>, lost: &Lost<'_>) -> Result<(), TooManyLost> {
        let stores = self.stores(row.blocks(), assert_row(&row, lost));
        let Row { data, exponents, p, q } = row;
        let (p, q) = (Parity::of(p, lost.p), Parity::of(q, lost.q));
        let tolerated = usize::from(p.is_good()) + usize::from(q.is_good());
        let too_many = TooManyLost { found: lost.data.len(), tolerated };
        let table = self.table();
        match *lost.data {
            [] => {
                let blocks = data.iter().map(|block| &**block);
                fill_parity(table, stores, blocks, exponents, p.wanted(), q.wanted());
            }
            [only] => {
                let (before, rest) = data.split_at_mut(only);
                let (block, after) = rest.split_first_mut().expect("the index was checked against the row");
                let row = OneOfRow { table, stores, block, before, after, exponents };
                match (p, q) {
                    (Parity::Good(p), Parity::Wanted(q)) => row.solve_by_p_and_fill_q(p, q),
                    (Parity::Good(p), Parity::Good(_) | Parity::Absent) => row.solve_by_p(p),
                    (Parity::Wanted(p), Parity::Good(q)) => row.solve_by_q_and_fill_p(p, q),
                    (Parity::Absent, Parity::Good(q)) => row.solve_by_q(q),
                    (Parity::Wanted(_) | Parity::Absent, Parity::Wanted(_) | Parity::Absent) => return Err(too_many),
                }
            }
            [first, second] => {
                let (Parity::Good(p), Parity::Good(q)) = (p, q) else { return Err(too_many) };
                let (before, rest) = data.split_at_mut(first);
                let (a, rest) = rest.split_first_mut().expect("the index was checked against the row");
                let (between, rest) = rest.split_at_mut(second - first - 1);
                let (b, after) = rest.split_first_mut().expect("the index was checked against the row");
                let factors = factors(exponents[first], exponents[second]);
                let known = with_exponents(before, exponents)
                    .chain(with_exponents(between, &exponents[first + 1..]))
                    .chain(with_exponents(after, &exponents[second + 1..]));
                with_steps(known, |steps| {
                    let sum = Sum { steps, at: 0, stores };
                    // SAFETY: a kernel that exists can run here; all blocks of a row have one length, and `at` is zero.
                    unsafe { (table.recover_two)(a, b, p, q, sum, factors) }
                });
            }
            [_, _, _, ..] => return Err(too_many),
        }
        Ok(())
    }
}

/// One parity block of a row, as recovery sees it.
enum Parity<'b> {
    Good(&'b [u8]),
    Wanted(&'b mut [u8]),
    Absent,
}

impl<'b> Parity<'b> {
    fn of(block: Option<&'b mut [u8]>, is_lost: bool) -> Parity<'b> {
        match (block, is_lost) {
            (Some(block), true) => Parity::Wanted(block),
            (Some(block), false) => Parity::Good(block),
            (None, _) => Parity::Absent,
        }
    }

    fn is_good(&self) -> bool {
        matches!(self, Parity::Good(_))
    }

    fn wanted(self) -> Option<&'b mut [u8]> {
        match self {
            Parity::Wanted(block) => Some(block),
            Parity::Good(_) | Parity::Absent => None,
        }
    }
}

/// A row with one data block lost: the place to fill, and the blocks before and behind it in data order.
struct OneOfRow<'s, 'b> {
    table: &'s Table,
    stores: Stores,
    block: &'s mut [u8],
    before: &'s [&'b mut [u8]],
    after: &'s [&'b mut [u8]],
    exponents: &'s [u8],
}

impl OneOfRow<'_, '_> {
    /// `D = P ^ Px`.
    fn solve_by_p(self, p: &[u8]) {
        let (table, stores, block) = (self.table, self.stores, self.block);
        let others = self.before.iter().chain(self.after).map(|block| &**block);
        // SAFETY: a kernel that exists can run here; all blocks of a row have one length, and `at` is zero.
        with_sources(others.chain([p]), |sources| unsafe { (table.xor)(block, sources, 0, stores) });
    }

    /// `D = P ^ Px`, then `Q = Qx ^ g^e * D`.
    fn solve_by_p_and_fill_q(self, p: &[u8], q: &mut [u8]) {
        let table = self.table;
        self.with_sum(|block, exponent, sum| {
            // SAFETY: a kernel that exists can run here; all blocks of a row have one length, and `at` is zero.
            unsafe { (table.recover_by_p_and_q)(block, p, q, sum, gf256::exp(exponent)) }
        });
    }

    /// `D = (Q ^ Qx) / g^e`.
    fn solve_by_q(self, q: &[u8]) {
        let table = self.table;
        self.with_sum(|block, exponent, sum| {
            // SAFETY: a kernel that exists can run here; all blocks of a row have one length, and `at` is zero.
            unsafe { (table.recover_by_q)(block, q, sum, gf256::inv(gf256::exp(exponent))) }
        });
    }

    /// `D = (Q ^ Qx) / g^e`, then `P = Px ^ D`.
    fn solve_by_q_and_fill_p(self, p: &mut [u8], q: &[u8]) {
        let table = self.table;
        self.with_sum(|block, exponent, sum| {
            // SAFETY: a kernel that exists can run here; all blocks of a row have one length, and `at` is zero.
            unsafe { (table.recover_by_q_and_p)(block, p, q, sum, gf256::inv(gf256::exp(exponent))) }
        });
    }

    /// Runs with the place to fill, its exponent and the sum of the others.
    fn with_sum(self, run: impl FnOnce(&mut [u8], u8, Sum<'_>)) {
        let OneOfRow { stores, block, before, after, exponents, .. } = self;
        let only = before.len();
        let known = with_exponents(before, exponents).chain(with_exponents(after, &exponents[only + 1..]));
        with_steps(known, |steps| run(block, exponents[only], Sum { steps, at: 0, stores }));
    }
}

/// Each block with the exponent at its place; more exponents may follow.
fn with_exponents<'a>(blocks: &'a [&mut [u8]], exponents: &'a [u8]) -> impl Iterator<Item = (&'a [u8], u8)> {
    blocks.iter().map(|block| &**block).zip(exponents.iter().copied())
}

/// The parity blocks of a row whose data is all there.
fn fill_parity<'a>(
    table: &Table,
    stores: Stores,
    blocks: impl Iterator<Item = &'a [u8]>,
    exponents: &[u8],
    p: Option<&mut [u8]>,
    q: Option<&mut [u8]>,
) {
    let with_sum = |blocks, run: &mut dyn FnMut(Sum<'_>)| {
        let blocks = Iterator::zip(blocks, exponents.iter().copied());
        with_steps(blocks, |steps| run(Sum { steps, at: 0, stores }));
    };
    // SAFETY (all three): a kernel that exists can run here; all blocks of a row have one length, and `at` is zero.
    match (p, q) {
        (Some(p), Some(q)) => {
            // SAFETY: see above.
            with_sum(blocks, &mut |sum| unsafe { (table.generate_pq)(p, q, sum) });
        }
        (None, Some(q)) => {
            // SAFETY: see above.
            with_sum(blocks, &mut |sum| unsafe { (table.generate_q)(q, sum) });
        }
        (Some(p), None) => {
            // SAFETY: see above.
            with_sources(blocks, |sources| unsafe { (table.xor)(p, sources, 0, stores) });
        }
        (None, None) => {}
    }
}

/// `Da = (dQ ^ g^eb*dP) / (g^ea ^ g^eb)` as the coefficients of dP and dQ.
fn factors(first: u8, second: u8) -> Factors {
    assert_ne!(first, second, "the exponents of a row are distinct");
    let (a, b) = (gf256::exp(first), gf256::exp(second));
    let by_q = gf256::inv(a ^ b);
    Factors { by_p: gf256::mul(b, by_q), by_q }
}

impl Row<'_, '_> {
    fn blocks(&self) -> usize {
        self.data.len() + usize::from(self.p.is_some()) + usize::from(self.q.is_some())
    }
}

/// Returns the length of every block.
fn assert_row(row: &Row<'_, '_>, lost: &Lost<'_>) -> usize {
    let parity = [row.p.as_deref(), row.q.as_deref()];
    let length =
        row.data.first().map(|block| block.len()).or_else(|| parity.iter().flatten().map(|block| block.len()).next());
    for block in row.data.iter().map(|block| &**block).chain(parity.into_iter().flatten()) {
        assert_eq!(Some(block.len()), length, "the blocks of a row have one length");
    }
    if row.q.is_some() {
        assert_eq!(row.data.len(), row.exponents.len());
    }
    assert!(lost.data.is_sorted_by(|a, b| a < b), "lost blocks are named ascending, each once");
    assert!(lost.data.last().is_none_or(|last| *last < row.data.len()), "a lost block is one of the row");
    length.unwrap_or(0)
}

/// Gathers the blocks of an xor in a list on the stack. The unused part of the list is not touched.
fn with_sources<'a, R>(blocks: impl Iterator<Item = &'a [u8]>, run: impl FnOnce(&[&[u8]]) -> R) -> R {
    let mut sources: SmallVec<[&[u8]; 256]> = SmallVec::new();
    blocks.for_each(|block| sources.push(block));
    run(&sources)
}
