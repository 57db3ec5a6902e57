//! Tests of arenas, leases and shared pieces.
//! Owns: tests with one and with two threads. Not here: every order of a few events (host's `tests/loom`).

use super::*;
use crate::ReadPieces;

#[test]
fn blocks_come_back_when_the_last_piece_is_dropped() {
    let arena = Arena::new(4, 2);
    let mut pieces = arena.take(70_000).expect("room");
    assert_eq!(pieces.count(), 3, "one large block and two pages");
    pieces.fill(7);
    let front = pieces.split_to(1000);
    assert_eq!((front.bytes(), pieces.bytes()), (1000, 69_000));
    let shared = front.freeze();
    let copy = shared.clone();
    drop(shared);
    drop(pieces);
    assert_eq!(arena.blocks_in_use(), 1, "a clone holds the large block");
    assert!(copy.to_vec().iter().all(|&byte| byte == 7));
    drop(copy);
    assert_eq!(arena.blocks_in_use(), 0);
}

#[test]
fn full_is_an_answer_and_nothing_leaks() {
    let arena = Arena::new(1, 1);
    let held = arena.take(LARGE_BLOCK_BYTES).expect("room");
    assert_eq!(arena.take(2 * SMALL_BLOCK_BYTES).err(), Some(ArenaFull { bytes: 8192 }));
    drop(held);
    assert_eq!(arena.blocks_in_use(), 0);
    assert!(arena.take(LARGE_BLOCK_BYTES + SMALL_BLOCK_BYTES).is_ok());
}

#[test]
fn pieces_cut_anywhere_join_to_the_same_bytes() {
    let arena = Arena::new(8, 1);
    let bytes: Vec<u8> = (0..12_288u32).map(|n| ((n * 31) >> 3) as u8).collect();
    for cut in [0, 1, 511, 512, 4095, 4096, 4097, 8192, 12_288] {
        let mut pieces = arena.take(bytes.len()).expect("room");
        pieces.copy_from(&bytes);
        let mut front = pieces.split_to(cut);
        assert_eq!(front.to_vec(), bytes[..cut]);
        assert_eq!(pieces.to_vec(), bytes[cut..]);
        front.append(pieces);
        assert_eq!(front.count(), 3, "adjoining pieces are joined");
        let shared = front.freeze();
        assert_eq!(shared.slice(cut / 2, bytes.len() - cut).to_vec(), bytes[cut / 2..bytes.len() - cut + cut / 2]);
        let mut copy = arena.take(bytes.len()).expect("room");
        copy.copy_from_pieces(&shared);
        assert_eq!(copy.to_vec(), bytes);
    }
    assert_eq!(arena.blocks_in_use(), 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about two threads")]
fn a_piece_dropped_on_another_thread_frees_its_block() {
    let arena = Arena::new(8, 0);
    for round in 0..200u8 {
        let mut pieces = arena.take(3 * SMALL_BLOCK_BYTES).expect("what went away has come back");
        pieces.fill(round);
        let here = pieces.split_to(SMALL_BLOCK_BYTES + 100).freeze();
        let there = here.clone();
        let clones = std::thread::scope(|scope| {
            let other = scope.spawn(move || {
                assert!(there.to_vec().iter().all(|&byte| byte == round));
                let clones = [there.slice(0, 5), there.slice(4096, 50)];
                drop((there, pieces));
                clones
            });
            drop(here);
            other.join().expect("it has found its bytes")
        });
        assert!(clones.iter().all(|clone| clone.to_vec().iter().all(|&byte| byte == round)));
        assert_eq!(arena.blocks_in_use(), 2, "the clones came back");
        drop(clones);
        assert_eq!(arena.blocks_in_use(), 0);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about two threads")]
fn pieces_outlive_their_arena_on_any_thread() {
    for ends_there in [true, false] {
        let arena = Arena::new(1, 1);
        let mut pieces = arena.take(SMALL_BLOCK_BYTES).expect("room");
        drop(arena);
        pieces.fill(7);
        let shared = pieces.freeze();
        let there = shared.clone();
        let other = std::thread::spawn(move || {
            assert!(there.to_vec().iter().all(|&byte| byte == 7));
            (!ends_there).then_some(there)
        });
        drop((other.join().expect("it has found its bytes"), shared));
    }
}

#[test]
fn one_that_takes_small_blocks_leaves_the_large_ones() {
    let arena = Arena::new(2, 1);
    let held = [arena.take_small(1), arena.take_small(SMALL_BLOCK_BYTES)].map(|block| block.expect("room"));
    assert!(arena.take_small(1).is_none(), "only a large one is free");
    assert!(arena.take_small(SMALL_BLOCK_BYTES + 1).is_none());
    let large = arena.take_contiguous(1).expect("the large one");
    assert_eq!(arena.blocks_in_use(), 3);
    drop((held, large));
    assert_eq!(arena.blocks_in_use(), 0);
}

/// Pieces of these lengths, each from its own block.
fn apart(arena: &Arena, lengths: &[usize]) -> ReadPieces {
    let mut pieces = ReadPieces::new();
    lengths.iter().for_each(|length| pieces.push(arena.take_contiguous(*length).expect("room")));
    assert_eq!(pieces.count(), lengths.len(), "blocks are not joined");
    pieces
}

/// The total length of some pieces, none of which is empty.
fn sum<'a, P: Piece + 'a>(pieces: impl Iterator<Item = &'a P>) -> usize {
    pieces.inspect(|piece| assert!(!piece.is_empty())).map(|piece| piece.len()).sum()
}

#[test]
fn no_split_leaves_an_empty_piece() {
    let arena = Arena::new(8, 0);
    const LENGTHS: [usize; 3] = [3, 1, 2];
    for cut in 0..=6 {
        let mut rest = apart(&arena, &LENGTHS);
        let front = rest.split_to(cut);
        assert_eq!((sum(front.iter()), sum(rest.iter())), (cut, 6 - cut));
        for second in cut..=6 {
            let mut cutter = apart(&arena, &LENGTHS).cutter();
            for part in [cut, second - cut, 6 - second] {
                let mut to = ReadPieces::new();
                cutter.cut(part, &mut to);
                assert_eq!(sum(to.iter()), part);
            }
            assert!(cutter.is_empty());
        }
        let whole = apart(&arena, &LENGTHS).freeze();
        (0..=6 - cut).for_each(|length| assert_eq!(sum(whole.slice(cut, length).iter()), length));
    }
    assert_eq!(arena.blocks_in_use(), 0);
}

#[test]
fn only_adjacent_pieces_of_one_block_are_joined() {
    let arena = Arena::new(2, 0);
    let mut blocks = [arena.take_contiguous(1024), arena.take_contiguous(1024)].map(|block| block.expect("room"));
    let [first, other] = blocks.each_mut().map(|block| block.split_to(512));
    let [behind_first, behind_other] = blocks;
    let mut pieces = ReadPieces::new();
    pieces.push(first);
    pieces.push(behind_other);
    assert_eq!(pieces.count(), 2, "another block's bytes are at the same offset");
    pieces.push(behind_first);
    pieces.push(other);
    assert_eq!(pieces.count(), 4, "these follow each other in no block");
}

#[test]
fn a_request_of_up_to_four_pages_takes_pages_and_a_longer_one_a_large_block() {
    for (bytes, blocks) in [(1, 1), (SMALL_REQUEST_BYTES_MAX, 4), (SMALL_REQUEST_BYTES_MAX + 1, 1)] {
        let arena = Arena::new(8, 1);
        let held = arena.take(bytes).expect("room");
        assert_eq!((held.count(), arena.blocks_in_use()), (blocks, blocks), "{bytes}");
    }
}
