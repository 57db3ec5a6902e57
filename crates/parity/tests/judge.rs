//! Every kernel this processor has against the portable judge: rows of 1 to 30 data blocks of 1 to 4 sectors, every loss of
//! at most two blocks, aligned and not, with either kind of store.
//! Owns: the widths of real arrays. Not here: odd sizes (`kernels`), md's own bytes (`vectors`). A debug build takes fewer
//! widths; all with `cargo test --release -p uraid-parity --test suite judge::`.
//! Spec: docs/md/address-mapping.md#parity-and-syndrome.

use crate::blocks::{Block, random_bytes, say_what_is_lacking};
use uraid_parity::{Kernel, Lost, Row, Stores};

const SECTOR: usize = 512;

fn widths() -> impl Iterator<Item = usize> {
    (1..=30).filter(|width| !cfg!(debug_assertions) || [1, 2, 3, 4, 6, 8, 13, 22, 30].contains(width))
}

/// A whole row: data, P, Q.
struct Stripe {
    blocks: Vec<Block>,
    exponents: Vec<u8>,
}

impl Stripe {
    /// The judge makes P and Q.
    fn new(judge: Kernel, width: usize, sectors: usize, misalignment: usize) -> Stripe {
        let place = |index: usize| misalignment * (index + 1);
        let bytes = |index: usize| random_bytes((width * 64 + index) as u64, sectors * SECTOR);
        let mut blocks: Vec<Block> = (0..width + 2).map(|index| Block::new(place(index), &bytes(index))).collect();
        // In order, permuted, with holes.
        let exponents: Vec<u8> = match width % 3 {
            0 => (0..width as u8).collect(),
            1 => (0..width as u8).map(|k| (k + width as u8 / 2) % width as u8).collect(),
            _ => (0..width as u8).map(|k| 254 - 8 * k).collect(),
        };
        let (data, parity) = blocks.split_at_mut(width);
        let data: Vec<&[u8]> = data.iter().map(Block::bytes).collect();
        let [p, q] = parity else { unreachable!("P and Q come after the data") };
        judge.generate_pq(p.bytes_mut(), q.bytes_mut(), &data, &exponents);
        Stripe { blocks, exponents }
    }

    fn width(&self) -> usize {
        self.exponents.len()
    }

    fn data(&self) -> Vec<&[u8]> {
        self.blocks[..self.width()].iter().map(Block::bytes).collect()
    }

    fn p(&self) -> &Block {
        &self.blocks[self.width()]
    }

    fn q(&self) -> &Block {
        &self.blocks[self.width() + 1]
    }

    /// Every set of at most two blocks.
    fn losses(&self) -> Vec<Vec<usize>> {
        let all = self.blocks.len();
        let pairs = (0..all).flat_map(|a| (a + 1..all).map(move |b| vec![a, b]));
        (0..all).map(|a| vec![a]).chain(pairs).collect()
    }
}

/// Calls with every kernel but the judge, with every width, size, placing and kind of store.
fn for_each_stripe(test: &str, mut check: impl FnMut(Kernel, &Stripe, &dyn Fn() -> String)) {
    say_what_is_lacking(test);
    let kernels = Kernel::available();
    let (judge, others) = kernels.split_first().expect("the portable set is always there");
    assert_eq!(judge.name(), "portable");
    for width in widths() {
        for sectors in 1..=4 {
            for misalignment in [0, 1, 40] {
                let stripe = Stripe::new(*judge, width, sectors, misalignment);
                for kernel in others {
                    for stores in [Stores::Cached, Stores::Streaming] {
                        let name = kernel.name();
                        check(kernel.with_stores(stores), &stripe, &|| {
                            format!(
                                "{name}, {stores:?}: {width} blocks of {sectors} sectors, {misalignment} misaligned"
                            )
                        });
                    }
                }
            }
        }
    }
}

#[test]
fn every_kernel_generates_and_checks_as_the_judge() {
    for_each_stripe("generate", |kernel, stripe, what| {
        let (data, exponents) = (stripe.data(), &stripe.exponents);
        let junk =
            || [stripe.p(), stripe.q()].map(|block| Block::new(block.misalignment, &vec![7; block.bytes().len()]));
        let [mut p, mut q] = junk();
        kernel.generate_pq(p.bytes_mut(), q.bytes_mut(), &data, exponents);
        p.assert_is(stripe.p().bytes(), what);
        q.assert_is(stripe.q().bytes(), what);
        let [mut p, mut q] = junk();
        kernel.generate_p(p.bytes_mut(), &data);
        p.assert_is(stripe.p().bytes(), what);
        kernel.generate_q(q.bytes_mut(), &data, exponents);
        q.assert_is(stripe.q().bytes(), what);
        assert!(
            kernel.check_p(p.bytes(), &data) && kernel.check_pq(p.bytes(), q.bytes(), &data, exponents),
            "{}",
            what()
        );
    });
}

#[test]
fn every_kernel_recovers_every_loss_as_the_judge() {
    for_each_stripe("recover", |kernel, stripe, what| {
        let width = stripe.width();
        let mut row = stripe.blocks.clone();
        for loss in stripe.losses() {
            let what = || format!("{}, lost {loss:?}", what());
            loss.iter().for_each(|index| row[*index].bytes_mut().fill(0xee));
            let lost_data: Vec<usize> = loss.iter().copied().filter(|index| *index < width).collect();
            let mut places: Vec<&mut [u8]> = row.iter_mut().map(Block::bytes_mut).collect();
            let (data, parity) = places.split_at_mut(width);
            let [p, q] = parity else { unreachable!("P and Q come after the data") };
            let lost = Lost { data: &lost_data, p: loss.contains(&width), q: loss.contains(&(width + 1)) };
            let given = Row { data, exponents: &stripe.exponents, p: Some(p), q: Some(q) };
            assert_eq!(kernel.recover(given, &lost), Ok(()), "{}", what());
            loss.iter().for_each(|index| row[*index].assert_is(stripe.blocks[*index].bytes(), &what));
        }
        // The other blocks are unchanged.
        row.iter().zip(&stripe.blocks).for_each(|(block, expected)| block.assert_is(expected.bytes(), what));
    });
}

#[test]
fn every_kernel_recovers_by_q_where_there_is_no_p() {
    for_each_stripe("recover without p", |kernel, stripe, what| {
        let width = stripe.width();
        let mut row = stripe.blocks.clone();
        for index in 0..width {
            row[index].bytes_mut().fill(0xee);
            let mut places: Vec<&mut [u8]> = row.iter_mut().map(Block::bytes_mut).collect();
            let (data, parity) = places.split_at_mut(width);
            let given = Row { data, exponents: &stripe.exponents, p: None, q: Some(&mut *parity[1]) };
            assert_eq!(kernel.recover(given, &Lost { data: &[index], p: false, q: false }), Ok(()), "{}", what());
            row[index].assert_is(stripe.blocks[index].bytes(), what);
        }
    });
}

#[test]
fn every_kernel_updates_as_the_judge() {
    let judge = Kernel::available()[0];
    for_each_stripe("update", |kernel, stripe, what| {
        let old = stripe.blocks[0].bytes();
        let new = Block::new(stripe.blocks[0].misalignment + 3, &random_bytes(99, old.len()));
        for exponent in [stripe.exponents[0], 0, 1, 7, 254] {
            let (mut p, mut q) = (stripe.p().clone(), stripe.q().clone());
            judge.update_pq(p.bytes_mut(), q.bytes_mut(), old, new.bytes(), exponent);
            let (expected_p, expected_q) = (p, q);
            let (mut p, mut q) = (stripe.p().clone(), stripe.q().clone());
            kernel.update_pq(p.bytes_mut(), q.bytes_mut(), old, new.bytes(), exponent);
            p.assert_is(expected_p.bytes(), what);
            q.assert_is(expected_q.bytes(), what);
            let (mut p, mut q) = (stripe.p().clone(), stripe.q().clone());
            kernel.update_p(p.bytes_mut(), old, new.bytes());
            p.assert_is(expected_p.bytes(), what);
            kernel.update_q(q.bytes_mut(), old, new.bytes(), exponent);
            q.assert_is(expected_q.bytes(), what);
        }
    });
}
