//! Every set of lost members that a level tolerates, for every row of every layout, in blocks of 1 to 4 sectors.
//! Owns: where P and Q sit, once more from the tables of the Spec. Not here: sizes around the registers (`kernels`).
//! A million vectors and more with `cargo test --release -p uraid-parity --test suite erasures:: -- --nocapture`; a debug build
//! takes fewer members. Spec: docs/md/address-mapping.md#raid4-and-raid5, docs/md/address-mapping.md#raid6.

use uraid_parity::{Kernel, Lost, Row, gf256};

const SECTOR: usize = 512;
const SECTORS_MAX: usize = 4;
const MEMBERS_MAX: usize = if cfg!(debug_assertions) { 7 } else { 20 };

/// The members of one row: their content, the places of P and Q, and the exponent of each data member.
struct Stripe {
    what: String,
    blocks: Vec<Vec<u8>>,
    p: usize,
    q: Option<usize>,
    data: Vec<(usize, u8)>,
}

fn random_bytes(seed: &mut u64) -> Vec<u8> {
    let mut next = || {
        // splitmix64
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (*seed ^ (*seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u8
    };
    (0..SECTORS_MAX * SECTOR).map(|_| next()).collect()
}

impl Stripe {
    /// P and Q by the definition, byte for byte.
    fn new(what: String, members: usize, p: usize, q: Option<usize>, data: Vec<(usize, u8)>) -> Stripe {
        let mut seed = members as u64 * 31 + p as u64;
        let mut blocks: Vec<Vec<u8>> = (0..members).map(|_| random_bytes(&mut seed)).collect();
        blocks[p].fill(0);
        if let Some(q) = q {
            blocks[q].fill(0);
        }
        for &(slot, exponent) in &data {
            let factor = gf256::exp(exponent);
            for (at, byte) in blocks[slot].clone().into_iter().enumerate() {
                blocks[p][at] ^= byte;
                if let Some(q) = q {
                    blocks[q][at] ^= gf256::mul(factor, byte);
                }
            }
        }
        Stripe { what, blocks, p, q, data }
    }

    /// Loses these members in blocks of this many sectors, recovers them, and compares all.
    fn check(&self, kernel: Kernel, scratch: &mut [Vec<u8>], sectors: usize, lost: &[usize]) {
        let length = sectors * SECTOR;
        for &slot in lost {
            scratch[slot][..length].fill(0xee);
        }
        let is_lost = |slot: usize| lost.contains(&slot);
        let lost_data: Vec<usize> = (0..self.data.len()).filter(|&k| is_lost(self.data[k].0)).collect();
        let exponents: Vec<u8> = self.data.iter().map(|(_, exponent)| *exponent).collect();
        let mut places: Vec<Option<&mut [u8]>> = scratch.iter_mut().map(|block| Some(&mut block[..length])).collect();
        let mut data: Vec<&mut [u8]> =
            self.data.iter().map(|(slot, _)| places[*slot].take().expect("a slot is data once")).collect();
        let p = places[self.p].take();
        let q = self.q.and_then(|q| places[q].take());
        let what = Lost { data: &lost_data, p: is_lost(self.p), q: self.q.is_some_and(is_lost) };
        let row = Row { data: &mut data, exponents: &exponents, p, q };
        let name = kernel.name();
        kernel.recover(row, &what).unwrap_or_else(|error| panic!("{name}: {} without {lost:?}: {error}", self.what));
        assert!(scratch == self.blocks, "{name}: {}, {sectors} sectors, without {lost:?}", self.what);
    }

    /// Every tolerated set, also the empty one; returns how many vectors that were.
    fn check_all(&self, kernel: Kernel) -> u64 {
        let (members, mut vectors) = (self.blocks.len(), 0);
        let mut scratch = self.blocks.clone();
        for sectors in 1..=SECTORS_MAX {
            self.check(kernel, &mut scratch, sectors, &[]);
            vectors += 1;
            for first in 0..members {
                self.check(kernel, &mut scratch, sectors, &[first]);
                vectors += 1;
                for second in first + 1..if self.q.is_some() { members } else { 0 } {
                    self.check(kernel, &mut scratch, sectors, &[first, second]);
                    vectors += 1;
                }
            }
        }
        vectors
    }
}

/// P of raid4 and of raid5's layouts; data in the order of slots, which P does not care about.
fn parity_only(members: usize) -> impl Iterator<Item = Stripe> {
    let places = (0..=5usize).flat_map(move |layout| (0..members).map(move |row| (layout, row)));
    places.map(move |(layout, row)| {
        let p = match layout {
            0 | 2 => members - 1 - row % members,
            1 | 3 => row % members,
            4 => 0,
            _ => members - 1,
        };
        let data = (0..members).filter(|&slot| slot != p).zip(0..).collect();
        Stripe::new(format!("raid5 layout {layout} of {members}, row {row}"), members, p, None, data)
    })
}

/// P, Q and the exponents of raid6's layouts, the `_6` and DDF families too.
fn two_parities(members: usize) -> impl Iterator<Item = Stripe> {
    let layouts = (0..=5usize).chain(8..=10).chain(16..=20);
    layouts.flat_map(move |layout| (0..members).map(move |row| (layout, row))).map(move |(layout, row)| {
        let (d, most) = (members, members - 1);
        let p = match layout {
            0 | 2 | 10 => d - 1 - row % d,
            1 | 3 | 8 => row % d,
            4 | 20 => 0,
            5 => d - 2,
            9 => d - 1 - (row + 1) % d,
            16 | 18 => most - 1 - row % most,
            _ => row % most,
        };
        let q = match layout {
            0..=5 | 8 | 9 => (p + 1) % d,
            10 => (p + d - 1) % d,
            _ => d - 1,
        };
        let is_data = |slot: &usize| *slot != p && *slot != q;
        let data = match layout {
            8..=10 => (0..d).filter(is_data).map(|slot| (slot, slot as u8)).collect(),
            _ => (1..d).map(|step| (q + step) % d).filter(is_data).zip(0..).collect(),
        };
        Stripe::new(format!("raid6 layout {layout} of {d}, row {row}"), d, p, Some(q), data)
    })
}

#[test]
fn every_tolerated_loss_of_every_row_is_recovered() {
    for kernel in Kernel::available() {
        every_loss_is_recovered_by(kernel);
    }
}

fn every_loss_is_recovered_by(kernel: Kernel) {
    let p_only: u64 = (2..=MEMBERS_MAX).flat_map(parity_only).map(|stripe| stripe.check_all(kernel)).sum();
    let pq: u64 = (4..=MEMBERS_MAX).flat_map(two_parities).map(|stripe| stripe.check_all(kernel)).sum();
    // The sizes again, as formulas: sizes * layouts * rows * sets.
    let expected_p: u64 = (2..=MEMBERS_MAX as u64).map(|d| 4 * 6 * d * (1 + d)).sum();
    let expected_pq: u64 = (4..=MEMBERS_MAX as u64).map(|d| 4 * 14 * d * (1 + d + d * (d - 1) / 2)).sum();
    println!("{}: {p_only} vectors with P, {pq} with P and Q", kernel.name());
    assert_eq!((p_only, pq), (expected_p, expected_pq));
    assert!(cfg!(debug_assertions) || p_only + pq >= 1_000_000);
}
