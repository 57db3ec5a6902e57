//! The parity arithmetic of an interval of a row, on buffers of the row pool.
//! Owns: [`OldBytes`], [`NewParity`], generating, modifying and recovering. Not here: which of them is done (`row::plan`),
//! reading and writing the blocks (`row::io`), the kernels (`uraid_parity`).

use crate::row::plan::Interval;
use crate::shard::buffers;
use crate::shard::slices::{self, Slices};
use crate::shard::world::{Pool, World};
use smallvec::SmallVec;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::{Lease, ReadPieces, Sectors, WritePieces};
use uraid_layout::RowMap;
use uraid_parity::{Lost, generate_p, generate_pq, recover, update_p, update_pq, update_q, xor_into};

/// Old bytes of a row's blocks that were read.
#[derive(Default)]
pub(crate) struct OldBytes {
    /// By data chunk; one entry for each data chunk of the row.
    pub(crate) data: SmallVec<[Option<Lease>; 8]>,
    pub(crate) p: Option<Lease>,
    pub(crate) q: Option<Lease>,
}

/// New parity, ready to be written.
#[derive(Default)]
pub(crate) struct NewParity {
    pub(crate) p: Option<ReadPieces>,
    pub(crate) q: Option<ReadPieces>,
}

/// Computes the parity of a row in which the new bytes have replaced the old ones.
pub(crate) async fn generate<'a, W: World>(
    world: &W,
    map: &RowMap,
    interval: &'a Interval,
    old: &'a OldBytes,
) -> NewParity {
    assert_eq!(old.data.len(), map.data.len(), "one entry for each data block");
    let mut new = interval.new.iter().peekable();
    let source = |(data, old): (usize, &'a Option<Lease>)| match (new.next_if(|new| new.data == data), old) {
        (Some(new), _) => Slices::of_pieces(&new.from),
        (None, Some(old)) => Slices::of_bytes(old),
        (None, None) => unreachable!("a plan that generates parity knows every data block"),
    };
    let mut sources: Vec<Slices<'_>> = old.data.iter().enumerate().map(source).collect();
    assert!(new.peek().is_none(), "the parity is of all new bytes");
    let mut parity = NewParity { p: Some(ReadPieces::new()), q: map.syndrome.map(|_| ReadPieces::new()) };
    let mut left = interval.length.len_bytes();
    while left > 0 {
        let bytes = left.min(LARGE_BLOCK_BYTES);
        let length = Sectors::from_bytes_floor(bytes as u64);
        let mut p = buffers::take_contiguous(world, Pool::Row, length).await;
        let mut q = match map.syndrome {
            Some(_) => Some(buffers::take_contiguous(world, Pool::Row, length).await),
            None => None,
        };
        slices::walk(&mut sources, bytes, |at, data| match &mut q {
            Some(q) => {
                let range = at..at + data[0].len();
                generate_pq(&mut p[range.clone()], &mut q[range], data, &map.exponents);
            }
            None => generate_p(&mut p[at..at + data[0].len()], data),
        });
        parity.p.as_mut().expect("P is made").push(p);
        if let (Some(pieces), Some(q)) = (&mut parity.q, q) {
            pieces.push(q);
        }
        left -= bytes;
    }
    assert!(parity.p.as_ref().is_some_and(|p| p.length() == interval.length));
    assert_eq!(parity.q.is_some(), map.syndrome.is_some());
    parity
}

/// Computes the data blocks that were not read, from those that were.
pub(crate) async fn recover_blocks<W: World>(
    world: &W,
    map: &RowMap,
    old: OldBytes,
    length: Sectors,
    pool: Pool,
) -> OldBytes {
    let OldBytes { data, mut p, mut q } = old;
    let lost: SmallVec<[usize; 2]> =
        data.iter().enumerate().filter(|(_, block)| block.is_none()).map(|(index, _)| index).collect();
    assert_eq!(data.len(), map.data.len(), "one entry for each data block");
    assert!(lost.len() <= usize::from(p.is_some()) + usize::from(q.is_some()), "each lost block needs a parity");
    let mut all = Vec::with_capacity(data.len());
    for block in data {
        all.push(match block {
            Some(block) => block,
            None => buffers::take_contiguous(world, pool, length).await,
        });
    }
    {
        let mut blocks: Vec<&mut [u8]> = all.iter_mut().map(|block| &mut block[..]).collect();
        let row = uraid_parity::Row {
            data: &mut blocks,
            exponents: &map.exponents,
            p: p.as_deref_mut(),
            q: q.as_deref_mut(),
        };
        recover(row, &Lost { data: &lost, p: false, q: false }).expect("the plan counted what is lost");
    }
    OldBytes { data: all.into_iter().map(Some).collect(), p, q }
}

/// Updates the old parity by the difference between old and new data: read-modify-write.
pub(crate) fn modify(map: &RowMap, interval: &Interval, old: OldBytes) -> NewParity {
    let OldBytes { data, mut p, mut q } = old;
    for new in &interval.new {
        let before = data[new.data].as_ref().expect("the old bytes of what is written were read");
        let exponent = map.exponents[new.data];
        let mut at = 0;
        for piece in new.from.iter() {
            let range = at..at + piece.len();
            match (&mut p, &mut q) {
                (Some(p), Some(q)) => {
                    update_pq(&mut p[range.clone()], &mut q[range.clone()], &before[range], piece, exponent);
                }
                (Some(p), None) => update_p(&mut p[range.clone()], &before[range], piece),
                (None, Some(q)) => update_q(&mut q[range.clone()], &before[range], piece, exponent),
                (None, None) => unreachable!("a row without parity is not modified"),
            }
            at += piece.len();
        }
        assert_eq!(at, interval.length.len_bytes(), "all of the parity is updated");
    }
    NewParity { p: p.map(buffers::one_piece), q: q.map(buffers::one_piece) }
}

/// Updates P by the difference between the old and the new bytes of one data block.
pub(crate) fn modify_p(p: &mut [u8], before: &[u8], new: &WritePieces) {
    assert!(p.len() == before.len() && before.len() == new.bytes(), "P is updated where the data changes");
    let mut at = 0;
    for piece in new.iter() {
        let range = at..at + piece.len();
        update_p(&mut p[range.clone()], &before[range], piece);
        at += piece.len();
    }
}

/// The same for P and Q.
pub(crate) fn modify_pq(p: &mut [u8], q: &mut [u8], before: &[u8], new: &WritePieces, exponent: u8) {
    assert!(p.len() == before.len() && q.len() == before.len(), "P and Q are updated where the data changes");
    assert_eq!(before.len(), new.bytes(), "new data is as long as old data");
    let mut at = 0;
    for piece in new.iter() {
        let range = at..at + piece.len();
        update_pq(&mut p[range.clone()], &mut q[range.clone()], &before[range], piece, exponent);
        at += piece.len();
    }
}

/// Takes one data block out of a sum of several.
pub(crate) fn take_out(sum: &mut [u8], block: &WritePieces) {
    assert_eq!(sum.len(), block.bytes(), "what is taken out is as long as the sum");
    let mut at = 0;
    for piece in block.iter() {
        xor_into(&mut sum[at..at + piece.len()], piece);
        at += piece.len();
    }
}

/// Whether P and Q, as they were read, belong to these blocks, one of which was computed from P.
pub(crate) fn parities_agree(map: &RowMap, all: &OldBytes) -> bool {
    let data: Vec<&[u8]> = all.data.iter().map(|block| &block.as_ref().expect("all data is known")[..]).collect();
    let (p, q) = parity_of(map, &data);
    let is_right = |found: &Option<Lease>, right: &[u8]| found.as_ref().is_some_and(|found| found[..] == right[..]);
    is_right(&all.p, &p) && is_right(&all.q, &q)
}

/// P and Q of a row's data blocks; Q is empty where the level has none.
pub(crate) fn parity_of(map: &RowMap, data: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
    let length = data.first().expect("a row has data").len();
    assert_eq!(data.len(), map.data.len());
    assert!(data.iter().all(|block| block.len() == length), "blocks of one length");
    let mut p = vec![0; length];
    let mut q = vec![0; if map.syndrome.is_some() { length } else { 0 }];
    match map.syndrome {
        Some(_) => generate_pq(&mut p, &mut q, data, &map.exponents),
        None => generate_p(&mut p, data),
    }
    (p, q)
}
