//! Pieces of an arena's blocks that are dropped on other threads than the arena's own.
//! Owns: the models of `block::buffer`. A loom cell stands beside each block, and the block's owner accesses it: loom
//! fails the test if a block has two owners at once, or if an owner does not see the previous owner's accesses. The
//! arena's own cells are loom's too.
//! Covered: one block and three threads. Not covered: the arithmetic of pieces, more blocks or threads, an arena that
//! is dropped before its pieces.

use crate::buffer::{Arena, Lease, SMALL_BLOCK_BYTES};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// Stands for the block's content.
struct Content(UnsafeCell<u32>);

// SAFETY: loom checks who accesses its cells; that is the purpose of the models.
unsafe impl Sync for Content {}
// SAFETY: as above.
unsafe impl Send for Content {}

impl Content {
    fn new() -> Arc<Content> {
        Arc::new(Content(UnsafeCell::new(0)))
    }

    fn write(&self) {
        // SAFETY: loom checks that no other thread touches it.
        self.0.with_mut(|cell| unsafe { *cell += 1 });
    }

    fn read(&self) {
        // SAFETY: loom checks that no thread writes it.
        self.0.with(|cell| unsafe { assert!(*cell > 0) });
    }
}

/// Takes the block if it is free, and writes it as its owner does.
fn take(arena: &Arena, content: &Content) -> Option<Lease> {
    let lease = arena.take_contiguous(SMALL_BLOCK_BYTES).ok()?;
    content.write();
    Some(lease)
}

/// Another thread writes the block and drops it, while the arena's thread looks for a free one.
pub(crate) fn one_owner() {
    let (arena, content) = (Arena::new(1, 0), Content::new());
    let (lease, other) = (take(&arena, &content).expect("it is free"), content.clone());
    let thread = thread::spawn(move || {
        other.write();
        drop(lease);
    });
    // Without the yield, loom only tries the order in which this thread comes first.
    thread::yield_now();
    drop(take(&arena, &content));
    drop(take(&arena, &content));
    thread.join().expect("the block has one owner");
    drop(take(&arena, &content).expect("it came back"));
    assert_eq!(arena.blocks_in_use(), 0);
}

/// Readers on three threads, one of which clones its piece. Whichever is dropped last, the block is then written again.
pub(crate) fn last_reader() {
    let (arena, content) = (Arena::new(1, 0), Content::new());
    let mine = take(&arena, &content).expect("it is free").freeze();
    let threads = [true, false].map(|clones| {
        let (theirs, content) = (mine.clone(), content.clone());
        thread::spawn(move || {
            let mut last = theirs;
            if clones {
                last = last.clone();
            }
            content.read();
            drop(last);
        })
    });
    content.read();
    drop(mine);
    drop(take(&arena, &content));
    for thread in threads {
        thread.join().expect("the reader saw what was written");
    }
    drop(take(&arena, &content).expect("it came back"));
    assert_eq!(arena.blocks_in_use(), 0);
}

/// A piece that was shared and read on another thread is dropped here. This drop may find by itself, without the list
/// `returned`, that it was the last one.
pub(crate) fn back_and_forth() {
    let (arena, content) = (Arena::new(1, 0), Content::new());
    let (mine, other) = (take(&arena, &content).expect("it is free").freeze(), content.clone());
    let thread = thread::spawn(move || {
        let clone = mine.clone();
        drop(mine);
        other.read();
        clone
    });
    thread::yield_now();
    assert!(take(&arena, &content).is_none(), "a reader holds it");
    drop(thread.join().expect("the reader saw what was written"));
    drop(take(&arena, &content).expect("it is free"));
    assert_eq!(arena.blocks_in_use(), 0);
}
