//! What is measured: each work once with our kernels and once with ISA-L, on the same blocks.
//! Owns: the blocks of a row in memory, the two calls of each work, that both give the same bytes. Not here: clocks (`main`).

use crate::isal::Isal;
use smallvec::SmallVec;
use std::ffi::{c_int, c_void};
use uraid_parity::{Kernel, Lost, Row, gf256};

const BLOCKS_MAX: usize = 32;
const EXPONENTS: [u8; BLOCKS_MAX] = exponents();

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Xor,
    Pq,
    UpdateP,
    UpdatePq,
    /// One data block from Q, there is no P.
    RecoverByQ,
    /// One data block and Q from P.
    RecoverAndQ,
    /// Two data blocks from P and Q.
    RecoverTwo,
}

#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) kind: Kind,
    /// Data blocks of the row; for an update two: the old and the new content.
    pub(crate) data: usize,
    /// Bytes.
    pub(crate) size: usize,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self.kind {
            Kind::Xor => "xor",
            Kind::Pq => "p+q",
            Kind::UpdateP => "update p",
            Kind::UpdatePq => "update p+q",
            Kind::RecoverByQ => "recover d by q",
            Kind::RecoverAndQ => "recover d, q",
            Kind::RecoverTwo => "recover d, d",
        }
    }

    /// Blocks of the row that the work touches, parity included.
    pub(crate) fn blocks(self) -> usize {
        match self.kind {
            Kind::Xor | Kind::UpdateP | Kind::RecoverByQ => self.data + 1,
            Kind::Pq | Kind::UpdatePq | Kind::RecoverAndQ | Kind::RecoverTwo => self.data + 2,
        }
    }
}

/// The blocks of one row: data, then P and Q where there are any.
pub(crate) struct Blocks<'m> {
    at: [*mut u8; BLOCKS_MAX],
    count: usize,
    size: usize,
    /// The data blocks of a work that only reads them, as slices: a caller has them, as one of ISA-L has pointers.
    data: Vec<&'m [u8]>,
    memory: std::marker::PhantomData<&'m mut [u8]>,
}

impl<'m> Blocks<'m> {
    pub(crate) fn new(memory: &'m mut [u8], work: Work) -> Blocks<'m> {
        let (count, size) = (work.blocks(), work.size);
        assert!(count <= BLOCKS_MAX && memory.len() == count * size);
        let mut at = [std::ptr::null_mut(); BLOCKS_MAX];
        for (at, block) in at.iter_mut().zip(memory.chunks_mut(size)) {
            *at = block.as_mut_ptr();
        }
        let data = match work.kind {
            Kind::Xor | Kind::Pq | Kind::UpdateP | Kind::UpdatePq => {
                // SAFETY: the blocks are disjoint parts of memory borrowed for as long; these are not written by the work.
                at[..work.data].iter().map(|at| unsafe { std::slice::from_raw_parts(*at, size) }).collect()
            }
            Kind::RecoverByQ | Kind::RecoverAndQ | Kind::RecoverTwo => Vec::new(),
        };
        Blocks { at, count, size, data, memory: std::marker::PhantomData }
    }

    /// The blocks from the one with this index to be written; behind the last there are empty ones.
    fn writable<const N: usize>(&mut self, first: usize) -> [&'m mut [u8]; N] {
        std::array::from_fn(|index| match self.at.get(first + index) {
            // SAFETY: the blocks are disjoint parts of the borrowed memory; a work makes these slices once and drops them
            // before it ends, and no other slice of a block that the work writes is there.
            Some(at) if !at.is_null() => unsafe { std::slice::from_raw_parts_mut(*at, self.size) },
            Some(_) | None => &mut [],
        })
    }

    pub(crate) fn ours(&mut self, kernel: Kernel, work: Work) {
        let n = work.data;
        let [p, q] = match work.kind {
            Kind::RecoverByQ | Kind::RecoverAndQ | Kind::RecoverTwo => [&mut [][..], &mut []],
            Kind::Xor | Kind::Pq | Kind::UpdateP | Kind::UpdatePq => self.writable(n),
        };
        let data = &self.data[..];
        match work.kind {
            Kind::Xor => kernel.generate_p(p, data),
            Kind::Pq => kernel.generate_pq(p, q, data, &EXPONENTS[..n]),
            Kind::UpdateP => kernel.update_p(p, data[0], data[1]),
            Kind::UpdatePq => kernel.update_pq(p, q, data[0], data[1], 5),
            Kind::RecoverByQ => self.recover(kernel, n, false, &Lost { data: &[1], p: false, q: false }),
            Kind::RecoverAndQ => self.recover(kernel, n, true, &Lost { data: &[1], p: false, q: true }),
            Kind::RecoverTwo => self.recover(kernel, n, true, &Lost { data: &[0, 1], p: false, q: false }),
        }
    }

    fn recover(&mut self, kernel: Kernel, n: usize, has_p: bool, lost: &Lost<'_>) {
        let mut blocks: SmallVec<[&mut [u8]; BLOCKS_MAX]> = SmallVec::new();
        // SAFETY: as in `writable`; these are all the slices there are.
        self.at[..self.count]
            .iter()
            .for_each(|at| unsafe { blocks.push(std::slice::from_raw_parts_mut(*at, self.size)) });
        let (data, parity) = blocks.split_at_mut(n);
        let (p, q) = match parity {
            [q] if !has_p => (None, Some(&mut **q)),
            [p, q] if has_p => (Some(&mut **p), Some(&mut **q)),
            _ => unreachable!("a row has its data and one or two parities"),
        };
        kernel
            .recover(Row { data, exponents: &EXPONENTS[..n], p, q }, lost)
            .expect("the level tolerates this many losses");
    }

    /// The same by ISA-L; `scratch` is a block of its own for what it cannot do in one pass.
    pub(crate) fn isal(&mut self, isal: &Isal, work: Work, prepared: &Prepared, scratch: *mut u8) {
        let (n, length, count) = (work.data as c_int, self.size as c_int, self.count as c_int);
        let at = |index: usize| self.at[index];
        let all = self.at.as_ptr();
        let generate_at = all.cast::<*mut c_void>();
        // SAFETY: every pointer is a block of `length` bytes that `self` borrows, aligned to 64 as pq_gen wants it; the
        // tables were made for these numbers of sources and targets.
        unsafe {
            match work.kind {
                Kind::Xor => assert_eq!((isal.xor_gen)(count, length, generate_at), 0),
                Kind::Pq => assert_eq!((isal.pq_gen)(count, length, generate_at), 0),
                Kind::UpdateP => {
                    let list = [at(0), at(1), at(2), at(2)];
                    assert_eq!((isal.xor_gen)(4, length, list.as_ptr().cast()), 0);
                }
                Kind::UpdatePq => {
                    let (tables, targets) = (prepared.tables.as_ptr(), [at(2), at(3)]);
                    if prepared.has_delta {
                        let list = [at(0), at(1), scratch];
                        assert_eq!((isal.xor_gen)(3, length, list.as_ptr().cast()), 0);
                        (isal.ec_encode_data_update)(length, 1, 2, 0, tables, scratch, targets.as_ptr());
                    } else {
                        (isal.ec_encode_data_update)(length, 1, 2, 0, tables, at(0), targets.as_ptr());
                        (isal.ec_encode_data_update)(length, 1, 2, 0, tables, at(1), targets.as_ptr());
                    }
                }
                Kind::RecoverByQ => {
                    let (sources, targets) = (self.without(&[1]), [at(1)]);
                    let tables = prepared.tables.as_ptr();
                    (isal.ec_encode_data)(length, n, 1, tables, sources.as_ptr(), targets.as_ptr());
                }
                Kind::RecoverAndQ => {
                    let (sources, targets) = (self.without(&[1, work.data + 1]), [at(1), at(work.data + 1)]);
                    let tables = prepared.tables.as_ptr();
                    (isal.ec_encode_data)(length, n, 2, tables, sources.as_ptr(), targets.as_ptr());
                }
                Kind::RecoverTwo => {
                    let (sources, targets) = (self.without(&[0, 1]), [at(0), at(1)]);
                    let tables = prepared.tables.as_ptr();
                    (isal.ec_encode_data)(length, n, 2, tables, sources.as_ptr(), targets.as_ptr());
                }
            }
        }
    }

    fn without(&self, lost: &[usize]) -> [*mut u8; BLOCKS_MAX] {
        let mut left = [std::ptr::null_mut(); BLOCKS_MAX];
        let blocks = self.at[..self.count].iter().enumerate().filter(|(index, _)| !lost.contains(index));
        left.iter_mut().zip(blocks).for_each(|(place, (_, block))| *place = *block);
        left
    }

    /// Both do the work on rows of the same bytes and leave the same bytes.
    pub(crate) fn assert_same(isal: &Isal, kernel: Kernel, work: Work, prepared: &Prepared) {
        let mut state = 1u64;
        let mut ours: Vec<u8> = (0..work.blocks() * work.size + 64).map(|_| random_byte(&mut state)).collect();
        let (mut theirs, mut scratch) = (ours.clone(), vec![0; work.size + 64]);
        let aligned = |bytes: &[u8]| bytes.as_ptr().align_offset(64);
        let length = work.blocks() * work.size;
        let (our_start, their_start, scratch_start) = (aligned(&ours), aligned(&theirs), aligned(&scratch));
        theirs.copy_within(..length, their_start);
        ours.copy_within(..length, our_start);
        let (ours, theirs) = (&mut ours[our_start..][..length], &mut theirs[their_start..][..length]);
        assert_eq!(ours, theirs);
        Blocks::new(ours, work).ours(kernel, work);
        Blocks::new(theirs, work).isal(isal, work, prepared, scratch[scratch_start..].as_mut_ptr());
        assert!(ours == theirs, "{} of {} differs from ISA-L", work.name(), kernel.name());
    }
}

/// What ISA-L wants to have computed before, and which of its two ways to update is the faster one here.
#[derive(Clone)]
pub(crate) struct Prepared {
    pub(crate) tables: Vec<u8>,
    pub(crate) has_delta: bool,
}

impl Prepared {
    pub(crate) fn new(isal: &Isal, work: Work) -> Prepared {
        let n = work.data;
        let power = |index: usize| gf256::exp(index as u8);
        let tables = match work.kind {
            Kind::Xor | Kind::Pq | Kind::UpdateP => Vec::new(),
            Kind::UpdatePq => isal.tables(1, &[1, gf256::exp(5)]),
            Kind::RecoverByQ => {
                // D1 = (Q ^ Q of the others) / g
                let by = gf256::inv(power(1));
                let others = (0..n).filter(|index| *index != 1).map(|index| gf256::mul(by, power(index)));
                isal.tables(n, &others.chain([by]).collect::<Vec<_>>())
            }
            Kind::RecoverAndQ => {
                // D1 = P ^ the others; Q = Q of the others ^ g * D1
                let others = (0..n).filter(|index| *index != 1).map(|index| power(index) ^ power(1));
                let to_q: Vec<u8> = others.chain([power(1)]).collect();
                isal.tables(n, &[vec![1; n], to_q].concat())
            }
            Kind::RecoverTwo => {
                // D0 = (dQ ^ g * dP) / (1 ^ g), D1 = D0 ^ dP, where dP and dQ lack the others.
                let by_q = gf256::inv(power(0) ^ power(1));
                let by_p = gf256::mul(power(1), by_q);
                let others = (2..n).map(|index| by_p ^ gf256::mul(by_q, power(index)));
                let first: Vec<u8> = others.chain([by_p, by_q]).collect();
                let mut second: Vec<u8> = first.iter().map(|factor| factor ^ 1).collect();
                second[n - 1] = by_q;
                isal.tables(n, &[first, second].concat())
            }
        };
        Prepared { tables, has_delta: true }
    }
}

const fn exponents() -> [u8; BLOCKS_MAX] {
    let mut all = [0; BLOCKS_MAX];
    let mut k = 0;
    while k < BLOCKS_MAX {
        all[k] = k as u8;
        k += 1;
    }
    all
}

fn random_byte(state: &mut u64) -> u8 {
    // splitmix64
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)) as u8
}
