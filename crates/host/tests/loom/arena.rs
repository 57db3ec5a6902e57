//! Blocks of an arena that several threads take and give back.
//! Owns: the models of `block::buffer`. Each block has a cell beside it that its owner touches: loom reports two owners
//! at once, and an owner that does not see the last one's end. Shown: that, for two blocks and two threads.
//! Not shown: the arithmetic of pieces, more blocks or threads, that leaked pieces keep their block.

use crate::buffer::{Arena, Lease, SMALL_BLOCK_BYTES};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

struct Blocks {
    arena: Arena,
    cells: [UnsafeCell<u32>; 2],
}

// SAFETY: loom's cells watch who touches them; that is what the models are about.
unsafe impl Sync for Blocks {}
// SAFETY: as above.
unsafe impl Send for Blocks {}

impl Blocks {
    fn new(count: u32) -> Arc<Blocks> {
        Arc::new(Blocks { arena: Arena::new(count, 0), cells: [UnsafeCell::new(0), UnsafeCell::new(0)] })
    }

    /// A block, if one is free, touched as its owner does.
    fn take(&self) -> Option<Lease> {
        let lease = self.arena.take_contiguous(SMALL_BLOCK_BYTES).ok()?;
        self.cell(&lease).with_mut(|cell| {
            // SAFETY: loom checks that nobody else does.
            unsafe { *cell += 1 }
        });
        Some(lease)
    }

    fn cell(&self, bytes: &[u8]) -> &UnsafeCell<u32> {
        let offset = bytes.as_ptr() as usize - self.arena.region().0 as usize;
        &self.cells[offset / SMALL_BLOCK_BYTES]
    }
}

/// One thread takes two blocks, gives the first back and takes again, while the other takes one: the order in which the list
/// of free blocks looks as it did before, and is not.
pub(crate) fn one_owner() {
    let blocks = Blocks::new(2);
    let other = blocks.clone();
    let thread = thread::spawn(move || {
        let first = other.take();
        let second = other.take();
        drop(first);
        let third = other.take();
        drop((second, third));
    });
    drop(blocks.take());
    thread.join().expect("no block has two owners");
    assert_eq!(blocks.arena.blocks_in_use(), 0);
}

/// Two readers of one block, whoever ends last; then it is written again.
pub(crate) fn last_reader() {
    let blocks = Blocks::new(1);
    let mine = blocks.take().expect("it is free").freeze();
    let (theirs, other) = (mine.clone(), blocks.clone());
    let thread = thread::spawn(move || {
        // SAFETY: loom checks that nobody writes it.
        other.cell(&theirs).with(|cell| unsafe { assert_eq!(*cell, 1) });
        drop(theirs);
    });
    drop(mine);
    drop(blocks.take());
    thread.join().expect("the reader saw what was written");
    assert_eq!(blocks.arena.blocks_in_use(), 0);
}
