//! Pieces of an arena's blocks that end on other threads than the arena's own.
//! Owns: the models of `block::buffer`. The block has a cell beside it that its owner touches: loom reports two owners
//! at once, and an owner that does not see the last one's end; the arena's own cells are loom's too. Shown: that, for one
//! block and three threads. Not shown: the arithmetic of pieces, more blocks or threads, an arena that ends first.

use crate::buffer::{Arena, Lease, SMALL_BLOCK_BYTES};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

/// What stands in the block.
struct Content(UnsafeCell<u32>);

// SAFETY: loom's cells watch who touches them; that is what the models are about.
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

/// The block, if it is free, written as its owner does.
fn take(arena: &Arena, content: &Content) -> Option<Lease> {
    let lease = arena.take_contiguous(SMALL_BLOCK_BYTES).ok()?;
    content.write();
    Some(lease)
}

/// Another thread writes the block and ends it, while the arena's own looks for a free one.
pub(crate) fn one_owner() {
    let (arena, content) = (Arena::new(1, 0), Content::new());
    let (lease, other) = (take(&arena, &content).expect("it is free"), content.clone());
    let thread = thread::spawn(move || {
        other.write();
        drop(lease);
    });
    // Without it loom tries no other order than the one in which this thread comes first.
    thread::yield_now();
    drop(take(&arena, &content));
    drop(take(&arena, &content));
    thread.join().expect("the block has one owner");
    drop(take(&arena, &content).expect("it came back"));
    assert_eq!(arena.blocks_in_use(), 0);
}

/// Readers on three threads, one of which makes one more; whichever ends last, it is written again.
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

/// A piece that was made and read elsewhere comes back and ends here: that it is the last is found without the list.
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
