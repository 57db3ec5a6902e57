//! The bytes of md: stripes of every raid6 layout, and the table of the field.
//! Owns: reading the vectors, and the exponents of each layout once more, from the table of the Spec.
//! Not here: the grid of sizes (`kernels`). Spec: docs/md/address-mapping.md#raid6; the files come from a model of its
//! formulas that was compared with mdadm's own `test_stripe`.

use serde_json::Value;
use uraid_parity::{Kernel, Lost, Row, gf256};

fn numbers(value: &Value) -> Vec<u8> {
    let list = value.as_array().expect("a list");
    list.iter().map(|number| u8::try_from(number.as_u64().expect("a number")).expect("a byte")).collect()
}

#[test]
fn the_field_is_the_one_of_md() {
    let file: Value = serde_json::from_str(include_str!("vectors/gf256.json")).expect("valid JSON");
    assert_eq!(file["poly"], "0x11d");
    let exp = numbers(&file["exp"]);
    assert_eq!(exp.len(), 255);
    for (n, expected) in (0..255).zip(exp) {
        assert_eq!(gf256::exp(n), expected, "2^{n}");
        assert_eq!(gf256::log(expected), n);
    }
    for sample in file["mul_samples"].as_array().expect("a list") {
        let [a, b, product] = numbers(sample)[..] else { panic!("three numbers") };
        assert_eq!(gf256::mul(a, b), product, "{a} * {b}");
    }
    for sample in file["inv_samples"].as_array().expect("a list") {
        let [a, inverse] = numbers(sample)[..] else { panic!("two numbers") };
        assert_eq!(gf256::inv(a), inverse, "1 / {a}");
    }
}

/// The data slots of a row in ascending order, and the exponent of each: the last column of
/// docs/md/address-mapping.md#raid6.
fn exponents_by_slot(layout: u64, disks: usize, p: usize, q: usize) -> Vec<(usize, u8)> {
    let is_data = |slot: &usize| *slot != p && *slot != q;
    let mut exponents: Vec<_> = match layout {
        // DDF: the exponent is the slot's own number, P and Q leave holes.
        8..=10 => (0..disks).filter(is_data).map(|slot| (slot, slot as u8)).collect(),
        // All others: the walk begins after Q and wraps.
        _ => (1..disks).map(|step| (q + step) % disks).filter(is_data).zip(0..).collect(),
    };
    exponents.sort_unstable();
    exponents
}

struct Stripe {
    what: String,
    blocks: Vec<Vec<u8>>,
    p: usize,
    q: usize,
    exponents: Vec<(usize, u8)>,
}

fn stripes() -> Vec<Stripe> {
    let file: Value = serde_json::from_str(include_str!("vectors/raid6_pq.json")).expect("valid JSON");
    let cases = file["cases"].as_array().expect("a list");
    let index = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("a slot");
    cases
        .iter()
        .map(|case| {
            let blocks: Vec<_> = case["blocks"].as_array().expect("a list").iter().map(bytes_of).collect();
            let (p, q) = (index(&case["p"]), index(&case["q"]));
            assert_eq!(blocks.len(), index(&case["disks"]));
            let layout = case["layout"].as_u64().expect("a number");
            let what = format!("{} of {} members, stripe {}", case["name"], case["disks"], case["stripe"]);
            Stripe { what, p, q, exponents: exponents_by_slot(layout, blocks.len(), p, q), blocks }
        })
        .collect()
}

fn bytes_of(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("a string").as_bytes();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit") as u8;
    text.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[test]
fn every_stripe_of_md_has_our_p_and_q() {
    let stripes = stripes();
    assert!(stripes.len() > 100, "{} stripes", stripes.len());
    for Stripe { what, blocks, p, q, exponents } in &stripes {
        let data: Vec<_> = exponents.iter().map(|(slot, _)| &blocks[*slot][..]).collect();
        let exponents: Vec<_> = exponents.iter().map(|(_, exponent)| *exponent).collect();
        for kernel in Kernel::available() {
            let mut computed = (vec![0; blocks[*p].len()], vec![0; blocks[*q].len()]);
            kernel.generate_pq(&mut computed.0, &mut computed.1, &data, &exponents);
            assert_eq!(computed.0, blocks[*p], "P of {what} by {}", kernel.name());
            assert_eq!(computed.1, blocks[*q], "Q of {what} by {}", kernel.name());
            assert!(kernel.check_pq(&blocks[*p], &blocks[*q], &data, &exponents), "{what}");
        }
    }
}

#[test]
fn every_stripe_of_md_survives_the_loss_of_any_two_members() {
    for Stripe { what, blocks, p, q, exponents } in &stripes() {
        for first in 0..blocks.len() {
            for second in first + 1..blocks.len() {
                let mut members = blocks.clone();
                members[first].fill(0xee);
                members[second].fill(0xee);
                let is_lost = |slot: usize| slot == first || slot == second;
                let lost_data: Vec<_> = (0..exponents.len()).filter(|k| is_lost(exponents[*k].0)).collect();
                let lost = Lost { data: &lost_data, p: is_lost(*p), q: is_lost(*q) };
                for kernel in Kernel::available() {
                    let mut members = members.clone();
                    recover_members(kernel, &mut members, (*p, *q), exponents, &lost);
                    assert_eq!(&members, blocks, "{what} without {first} and {second} by {}", kernel.name());
                }
            }
        }
    }
}

fn recover_members(
    kernel: Kernel,
    members: &mut [Vec<u8>],
    (p, q): (usize, usize),
    exponents: &[(usize, u8)],
    lost: &Lost<'_>,
) {
    let (mut data, mut p_block, mut q_block) = (Vec::new(), None, None);
    for (slot, block) in members.iter_mut().enumerate() {
        match slot {
            _ if slot == p => p_block = Some(&mut block[..]),
            _ if slot == q => q_block = Some(&mut block[..]),
            _ => data.push(&mut block[..]),
        }
    }
    let exponents: Vec<_> = exponents.iter().map(|(_, exponent)| *exponent).collect();
    let row = Row { data: &mut data, exponents: &exponents, p: p_block, q: q_block };
    kernel.recover(row, lost).expect("two lost members are tolerated");
}
