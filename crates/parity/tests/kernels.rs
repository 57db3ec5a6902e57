//! Every kernel against a slow model of the definition: all losses, sizes around the registers, unaligned blocks.
//! Owns: the exhaustive grid. Not here: md's own bytes (`vectors`), the laws of the field (`gf256`).
//! Invariant: what a kernel writes is what the portable one writes, and nothing around it.
//! Spec: docs/md/address-mapping.md#parity-and-syndrome.

use crate::blocks::{Block, random_bytes, say_what_is_lacking};
use uraid_parity::{Kernel, Lost, Row, TooManyLost, gf256};

/// P and Q as the definition has them.
fn model(data: &[Vec<u8>], exponents: &[u8], length: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut p, mut q) = (vec![0; length], vec![0; length]);
    for (block, exponent) in data.iter().zip(exponents) {
        for (index, byte) in block.iter().enumerate() {
            p[index] ^= byte;
            q[index] ^= gf256::mul(gf256::exp(*exponent), *byte);
        }
    }
    (p, q)
}

/// The exponents of md's layouts: in order, permuted (la, ra, the _6 ones), with holes (the DDF ones), and far ones.
fn exponents_of(count: usize) -> [Vec<u8>; 4] {
    let count = count as u8;
    [
        (0..count).collect(),
        (0..count).map(|k| (k + count / 2) % count).collect(),
        (0..count).map(|k| if k < count / 2 { k } else { k + 2 }).collect(),
        (0..count).map(|k| 254 - 14 * k).collect(),
    ]
}

/// Rows of more than eight blocks are summed in columns of up to 512 bytes: whole ones, one register more, a rest.
fn sizes(count: usize) -> Vec<usize> {
    match count {
        0..=8 => (1..=130).chain([255, 256, 257, 512, 513, 1024, 1027, 1536, 2048, 4095, 4096, 4096 + 33]).collect(),
        _ => vec![63, 511, 512, 512 + 64, 512 + 64 + 1, 4096 + 33],
    }
}

struct Case {
    kernel: Kernel,
    length: usize,
    data: Vec<Block>,
    exponents: Vec<u8>,
    p: Block,
    q: Block,
}

fn for_each_case(mut check: impl FnMut(&Case)) {
    say_what_is_lacking("kernels");
    for count in (1..=8).chain([9, 10, 17]) {
        for length in sizes(count) {
            for (kind, exponents) in exponents_of(count).into_iter().enumerate() {
                // Large rows of the unusual kinds would cost most of the time and show nothing new.
                if kind > 0 && (count > 8 || length > 600 && length % 2 == 0) {
                    continue;
                }
                let data: Vec<_> =
                    (0..count).map(|k| random_bytes((k * 7919 + length * 31 + kind) as u64, length)).collect();
                let (p, q) = model(&data, &exponents, length);
                let start = |n: usize| (n * 13 + length * 5) % 67;
                let data: Vec<_> = data.iter().enumerate().map(|(k, bytes)| Block::new(start(k), bytes)).collect();
                for kernel in Kernel::available() {
                    let (p, q) = (Block::new(start(count), &p), Block::new(start(count + 1), &q));
                    check(&Case { kernel, length, data: data.clone(), exponents: exponents.clone(), p, q });
                }
            }
        }
    }
}

impl Case {
    fn what(&self) -> String {
        format!(
            "{}: {} blocks of {} bytes, exponents {:?}",
            self.kernel.name(),
            self.data.len(),
            self.length,
            self.exponents
        )
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.data.iter().map(Block::bytes).collect()
    }

    fn junk(&self, block: &Block) -> Block {
        let mut junk = block.clone();
        junk.bytes_mut().fill(0x5c);
        junk
    }
}

#[test]
fn every_kernel_generates_the_p_and_q_of_the_definition() {
    for_each_case(|case| {
        let (mut p, mut q) = (case.junk(&case.p), case.junk(&case.q));
        case.kernel.generate_pq(p.bytes_mut(), q.bytes_mut(), &case.slices(), &case.exponents);
        p.assert_is(case.p.bytes(), &|| case.what());
        q.assert_is(case.q.bytes(), &|| case.what());

        let (mut p, mut q) = (case.junk(&case.p), case.junk(&case.q));
        case.kernel.generate_p(p.bytes_mut(), &case.slices());
        p.assert_is(case.p.bytes(), &|| case.what());
        case.kernel.generate_q(q.bytes_mut(), &case.slices(), &case.exponents);
        q.assert_is(case.q.bytes(), &|| case.what());
    });
}

#[test]
fn an_update_gives_the_parity_of_the_new_data() {
    for_each_case(|case| {
        for (index, exponent) in case.exponents.iter().enumerate() {
            let new = Block::new(index, &random_bytes(!(index as u64), case.length));
            let mut data: Vec<_> = case.data.iter().map(|block| block.bytes().to_vec()).collect();
            let old = case.data[index].clone();
            data[index] = new.bytes().to_vec();
            let (new_p, new_q) = model(&data, &case.exponents, case.length);

            let (mut p, mut q) = (case.p.clone(), case.q.clone());
            case.kernel.update_pq(p.bytes_mut(), q.bytes_mut(), old.bytes(), new.bytes(), *exponent);
            p.assert_is(&new_p, &|| case.what());
            q.assert_is(&new_q, &|| case.what());

            let (mut p, mut q) = (case.p.clone(), case.q.clone());
            case.kernel.update_p(p.bytes_mut(), old.bytes(), new.bytes());
            p.assert_is(&new_p, &|| case.what());
            case.kernel.update_q(q.bytes_mut(), old.bytes(), new.bytes(), *exponent);
            q.assert_is(&new_q, &|| case.what());

            let mut sum = case.p.clone();
            case.kernel.xor_into(sum.bytes_mut(), old.bytes());
            case.kernel.xor_into(sum.bytes_mut(), new.bytes());
            sum.assert_is(&new_p, &|| case.what());
        }
    });
}

#[test]
fn a_check_passes_the_right_parity_and_sees_one_flipped_bit_in_either_block() {
    for_each_case(|case| {
        let data = case.slices();
        assert!(case.kernel.check_p(case.p.bytes(), &data), "{}", case.what());
        assert!(case.kernel.check_pq(case.p.bytes(), case.q.bytes(), &data, &case.exponents), "{}", case.what());
        for at in [0, case.length / 2, case.length - 1] {
            let (mut p, mut q) = (case.p.clone(), case.q.clone());
            p.bytes_mut()[at] ^= 1;
            assert!(!case.kernel.check_p(p.bytes(), &data), "{}", case.what());
            assert!(!case.kernel.check_pq(p.bytes(), q.bytes(), &data, &case.exponents), "{}", case.what());
            q.bytes_mut()[at] ^= 0x80;
            assert!(!case.kernel.check_pq(case.p.bytes(), q.bytes(), &data, &case.exponents), "{}", case.what());
        }
    });
}

/// All sets of at most two out of the data blocks, P (`count`) and Q (`count + 1`).
fn losses(count: usize) -> Vec<Vec<usize>> {
    let all = count + 2;
    let pairs = (0..all).flat_map(|a| (a + 1..all).map(move |b| vec![a, b]));
    std::iter::once(vec![]).chain((0..all).map(|a| vec![a])).chain(pairs).collect()
}

#[test]
fn every_loss_of_at_most_two_blocks_is_recovered_and_nothing_else_is_written() {
    for_each_case(|case| {
        let count = case.data.len();
        for loss in losses(count) {
            let what = || format!("{}, lost {loss:?}", case.what());
            let is_lost = |index| loss.contains(&index);
            let mut data = case.data.clone();
            let (mut p, mut q) = (case.p.clone(), case.q.clone());
            let lost_data: Vec<_> = loss.iter().copied().filter(|index| *index < count).collect();
            for index in &lost_data {
                data[*index] = case.junk(&data[*index]);
            }
            if is_lost(count) {
                p = case.junk(&p);
            }
            if is_lost(count + 1) {
                q = case.junk(&q);
            }
            let mut places: Vec<_> = data.iter_mut().map(Block::bytes_mut).collect();
            let row =
                Row { data: &mut places, exponents: &case.exponents, p: Some(p.bytes_mut()), q: Some(q.bytes_mut()) };
            let lost = Lost { data: &lost_data, p: is_lost(count), q: is_lost(count + 1) };
            assert_eq!(case.kernel.recover(row, &lost), Ok(()), "{}", what());
            for (block, expected) in data.iter().zip(&case.data) {
                block.assert_is(expected.bytes(), &what);
            }
            p.assert_is(case.p.bytes(), &what);
            q.assert_is(case.q.bytes(), &what);
        }
    });
}

#[test]
fn one_lost_block_is_recovered_from_either_parity_when_the_other_is_not_there() {
    for_each_case(|case| {
        for index in 0..case.data.len() {
            for has_p in [false, true] {
                let mut data = case.data.clone();
                data[index] = case.junk(&data[index]);
                let (mut p, mut q) = (case.p.clone(), case.q.clone());
                let mut places: Vec<_> = data.iter_mut().map(Block::bytes_mut).collect();
                // With P alone the row is one of raid5, which has no exponents.
                let row = Row {
                    data: &mut places,
                    exponents: if has_p { &[] } else { &case.exponents },
                    p: has_p.then_some(p.bytes_mut()),
                    q: (!has_p).then_some(q.bytes_mut()),
                };
                assert_eq!(case.kernel.recover(row, &Lost { data: &[index], p: false, q: false }), Ok(()));
                for (block, expected) in data.iter().zip(&case.data) {
                    block.assert_is(expected.bytes(), &|| case.what());
                }
            }
        }
    });
}

#[test]
fn more_lost_data_than_parity_is_an_error_and_writes_nothing() {
    for kernel in Kernel::available() {
        let data = [[1u8; 40], [2; 40], [3; 40], [4; 40]];
        let (p, q) = ([5u8; 40], [6u8; 40]);
        let refused = |lost: Lost<'_>, has_p: bool, has_q: bool| {
            let (mut places, mut p_place, mut q_place) = (data, p, q);
            let mut blocks: Vec<_> = places.iter_mut().map(|block| &mut block[..]).collect();
            let row = Row {
                data: &mut blocks,
                exponents: &[0, 1, 2, 3],
                p: has_p.then_some(&mut p_place[..]),
                q: has_q.then_some(&mut q_place[..]),
            };
            let error = kernel.recover(row, &lost).expect_err("too many are lost");
            assert_eq!((places, p_place, q_place), (data, p, q));
            error
        };
        let too_many = |found, tolerated| TooManyLost { found, tolerated };
        assert_eq!(refused(Lost { data: &[0, 1, 2], p: false, q: false }, true, true), too_many(3, 2));
        assert_eq!(refused(Lost { data: &[0, 3], p: true, q: false }, true, true), too_many(2, 1));
        assert_eq!(refused(Lost { data: &[0, 3], p: false, q: true }, true, true), too_many(2, 1));
        assert_eq!(refused(Lost { data: &[1, 2], p: false, q: false }, true, false), too_many(2, 1));
        assert_eq!(refused(Lost { data: &[2], p: true, q: true }, true, true), too_many(1, 0));
        assert_eq!(refused(Lost { data: &[2], p: false, q: false }, false, false), too_many(1, 0));
        assert_eq!(too_many(2, 1).to_string(), "2 data blocks of a row are lost, 1 can be recovered");
    }
}

#[test]
fn the_widest_rows_work_too() {
    let data: Vec<_> = (0..255).map(|k| random_bytes(k, 77)).collect();
    let slices: Vec<_> = data.iter().map(|block| &block[..]).collect();
    let exponents: Vec<u8> = (0..255).rev().collect();
    let (expected_p, expected_q) = model(&data, &exponents, 77);
    for kernel in Kernel::available() {
        let (mut p, mut q) = (vec![0; 77], vec![0; 77]);
        kernel.generate_pq(&mut p, &mut q, &slices, &exponents);
        assert_eq!((&p, &q), (&expected_p, &expected_q), "{}", kernel.name());
        let mut damaged = data.clone();
        damaged[3].fill(0);
        damaged[254].fill(0);
        let mut places: Vec<_> = damaged.iter_mut().map(|block| &mut block[..]).collect();
        let row = Row { data: &mut places, exponents: &exponents, p: Some(&mut p), q: Some(&mut q) };
        assert_eq!(kernel.recover(row, &Lost { data: &[3, 254], p: false, q: false }), Ok(()));
        assert_eq!(damaged, data, "{}", kernel.name());
    }
}

#[test]
fn empty_blocks_and_rows_without_data_are_served() {
    for kernel in Kernel::available() {
        let (mut p, mut q) = ([7u8; 100], [7u8; 100]);
        kernel.generate_pq(&mut p, &mut q, &[], &[]);
        assert_eq!((p, q), ([0; 100], [0; 100]));
        kernel.generate_pq(&mut [], &mut [], &[&[], &[]], &[0, 1]);
        assert!(kernel.check_pq(&[], &[], &[&[]], &[0]));
        kernel.update_pq(&mut [], &mut [], &[], &[], 3);
    }
}

#[test]
#[should_panic(expected = "exponent 1 stands twice in one row")]
fn a_row_with_one_exponent_twice_is_our_bug() {
    uraid_parity::generate_pq(&mut [0], &mut [0], &[&[1], &[2]], &[1, 1]);
}

#[test]
#[should_panic(expected = "the blocks of a row have one length")]
fn a_row_with_blocks_of_two_lengths_is_our_bug() {
    uraid_parity::generate_p(&mut [0; 8], &[&[0; 8], &[0; 9]]);
}
