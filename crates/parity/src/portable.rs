//! The kernels in plain Rust, shaped so that the compiler vectorises them. All other kernels are tested against them.
//! Owns: the meaning of every entry of `Table`. Not here: instructions of one processor (`vector`, `x86`).
//! Invariant: no `unsafe`; a wrong length panics. Spec: docs/md/address-mapping.md#parity-and-syndrome.

use crate::gf256;
use crate::table::{Factors, Stores, Sum, Table};

pub(crate) static TABLE: Table = Table {
    name: "portable",
    xor,
    xor_into,
    update_p,
    update_q,
    update_pq,
    generate_pq,
    generate_q,
    recover_by_q,
    recover_by_q_and_p,
    recover_by_p_and_q,
    recover_two,
};

/// Sums are kept for this many bytes at a time: four 16-byte registers for P and four for Q.
const COLUMN: usize = 64;

pub(crate) fn xor(target: &mut [u8], sources: &[&[u8]], at: usize, _: Stores) {
    for_each_column(target.len(), |start, length| {
        let mut sum = [0; COLUMN];
        for source in sources {
            add(&mut sum, &source[at + start..][..length]);
        }
        target[start..][..length].copy_from_slice(&sum[..length]);
    });
}

pub(crate) fn xor_into(target: &mut [u8], source: &[u8]) {
    assert_eq!(source.len(), target.len());
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}

pub(crate) fn update_p(p: &mut [u8], old: &[u8], new: &[u8]) {
    assert!(old.len() == p.len() && new.len() == p.len());
    for ((p, old), new) in p.iter_mut().zip(old).zip(new) {
        *p ^= old ^ new;
    }
}

pub(crate) fn update_q(q: &mut [u8], old: &[u8], new: &[u8], factor: u8) {
    assert!(old.len() == q.len() && new.len() == q.len());
    let bits = bits_of(factor);
    for ((q, old), new) in q.iter_mut().zip(old).zip(new) {
        *q ^= multiply(old ^ new, bits);
    }
}

pub(crate) fn update_pq(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], factor: u8) {
    assert!(q.len() == p.len() && old.len() == p.len() && new.len() == p.len());
    let bits = bits_of(factor);
    for (((p, q), old), new) in p.iter_mut().zip(q).zip(old).zip(new) {
        let delta = old ^ new;
        *p ^= delta;
        *q ^= multiply(delta, bits);
    }
}

pub(crate) fn generate_pq(p: &mut [u8], q: &mut [u8], sum: Sum<'_>) {
    assert_eq!(p.len(), q.len());
    for_each_column(p.len(), |start, length| {
        let (p_sum, q_sum) = sums(sum, start, length);
        p[start..][..length].copy_from_slice(&p_sum[..length]);
        q[start..][..length].copy_from_slice(&q_sum[..length]);
    });
}

pub(crate) fn generate_q(q: &mut [u8], sum: Sum<'_>) {
    for_each_column(q.len(), |start, length| {
        let (_, q_sum) = sums(sum, start, length);
        q[start..][..length].copy_from_slice(&q_sum[..length]);
    });
}

pub(crate) fn recover_by_q(block: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8) {
    assert_eq!(q.len(), block.len());
    let bits = bits_of(factor);
    for_each_column(block.len(), |start, length| {
        let (_, mut q_sum) = sums(sum, start, length);
        add(&mut q_sum, &q[start..][..length]);
        let solved = q_sum.map(|delta| multiply(delta, bits));
        block[start..][..length].copy_from_slice(&solved[..length]);
    });
}

pub(crate) fn recover_by_q_and_p(block: &mut [u8], p: &mut [u8], q: &[u8], sum: Sum<'_>, factor: u8) {
    assert!(p.len() == block.len() && q.len() == block.len());
    let bits = bits_of(factor);
    for_each_column(block.len(), |start, length| {
        let (mut p_sum, mut q_sum) = sums(sum, start, length);
        add(&mut q_sum, &q[start..][..length]);
        let solved = q_sum.map(|delta| multiply(delta, bits));
        add(&mut p_sum, &solved);
        block[start..][..length].copy_from_slice(&solved[..length]);
        p[start..][..length].copy_from_slice(&p_sum[..length]);
    });
}

pub(crate) fn recover_by_p_and_q(block: &mut [u8], p: &[u8], q: &mut [u8], sum: Sum<'_>, factor: u8) {
    assert!(p.len() == block.len() && q.len() == block.len());
    let bits = bits_of(factor);
    for_each_column(block.len(), |start, length| {
        let (mut solved, mut q_sum) = sums(sum, start, length);
        add(&mut solved, &p[start..][..length]);
        add(&mut q_sum, &solved.map(|byte| multiply(byte, bits)));
        block[start..][..length].copy_from_slice(&solved[..length]);
        q[start..][..length].copy_from_slice(&q_sum[..length]);
    });
}

pub(crate) fn recover_two(a: &mut [u8], b: &mut [u8], p: &[u8], q: &[u8], sum: Sum<'_>, factors: Factors) {
    assert!(b.len() == a.len() && p.len() == a.len() && q.len() == a.len());
    let (by_p, by_q) = (bits_of(factors.by_p), bits_of(factors.by_q));
    for_each_column(a.len(), |start, length| {
        let (mut p_delta, mut q_delta) = sums(sum, start, length);
        add(&mut p_delta, &p[start..][..length]);
        add(&mut q_delta, &q[start..][..length]);
        let mut solved = p_delta.map(|delta| multiply(delta, by_p));
        add(&mut solved, &q_delta.map(|delta| multiply(delta, by_q)));
        a[start..][..length].copy_from_slice(&solved[..length]);
        add(&mut solved, &p_delta);
        b[start..][..length].copy_from_slice(&solved[..length]);
    });
}

/// P and Q of one column of the steps, by Horner's rule.
#[inline(always)]
fn sums(sum: Sum<'_>, start: usize, length: usize) -> ([u8; COLUMN], [u8; COLUMN]) {
    let (mut p_sum, mut q_sum) = ([0; COLUMN], [0; COLUMN]);
    let mut exponent = sum.steps.last().map_or(0, |highest| highest.exponent);
    for step in sum.steps.iter().rev() {
        for _ in step.exponent..exponent {
            double(&mut q_sum);
        }
        exponent = step.exponent;
        let block = &step.block[sum.at + start..][..length];
        add(&mut p_sum, block);
        add(&mut q_sum, block);
    }
    for _ in 0..exponent {
        double(&mut q_sum);
    }
    (p_sum, q_sum)
}

/// Calls with the start and length of every column; only the last can be shorter than `COLUMN`.
fn for_each_column(length: usize, mut run: impl FnMut(usize, usize)) {
    let mut start = 0;
    while start + COLUMN <= length {
        run(start, COLUMN);
        start += COLUMN;
    }
    if start < length {
        run(start, length - start);
    }
}

#[inline(always)]
fn add(sum: &mut [u8; COLUMN], block: &[u8]) {
    // The whole column has its own branch: with the length known the loop becomes four instructions.
    if let Ok(block) = <&[u8; COLUMN]>::try_from(block) {
        for (sum, byte) in sum.iter_mut().zip(block) {
            *sum ^= byte;
        }
    } else {
        for (sum, byte) in sum.iter_mut().zip(block) {
            *sum ^= byte;
        }
    }
}

#[inline(always)]
fn double(sum: &mut [u8; COLUMN]) {
    for byte in sum {
        *byte = gf256::double(*byte);
    }
}

/// The bits of a factor as masks: 0xff where `factor` has x^n.
fn bits_of(factor: u8) -> [u8; 8] {
    std::array::from_fn(|n| if factor & (1 << n) != 0 { 0xff } else { 0 })
}

/// `value * factor` without a table, so that it vectorises: the sum of `value * x^n` over the bits of the factor.
#[inline(always)]
fn multiply(value: u8, bits: [u8; 8]) -> u8 {
    let mut power = value;
    let mut product = 0;
    for mask in bits {
        product ^= power & mask;
        power = gf256::double(power);
    }
    product
}
