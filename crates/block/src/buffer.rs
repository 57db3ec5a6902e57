//! Buffer leases: memory that a device may read or write on its own time.
//! Owns: [`Arena`], unique [`Lease`]s and read-only [`Shared`] pieces of its blocks, lists of them (`pieces`).
//! Not here: who waits when the arena is full (the caller: "full" is an answer).
//! Invariant: every byte of a block is in at most one `Lease`, or in any number of `Shared`, never both;
//! a block returns to its arena when the last piece of it is dropped. So a dropped future frees nothing that a device
//! still writes, as long as the device keeps the pieces of its operation until it is done.
//!
//! ```text
//!   block of 64 KiB   |-------- lease a --------|-- lease b --|   split_to gives two owners of disjoint bytes
//!                       freeze() -> Shared, cloned to every mirror
//! ```
//!
//! An arena belongs to the thread that made it. There, taking, cutting, cloning and dropping are plain arithmetic: no
//! atomic is changed. Pieces may travel; what other threads do with them is counted apart and is atomic:
//! ```text
//!   pieces of a block = home + abroad       home:   made less dropped by the owner, in a cell
//!                                           abroad: made less dropped by all others, in an atomic; may be negative
//! ```
//! - The owner frees the block when it finds the sum zero, and a plain load of `abroad` is enough for that. Whatever
//!   other threads have done with a piece that came back, or that a piece here was cut from, happened before and is in
//!   the value. Would one of them still hold a piece, it would count in what the owner sees: its making is in `home` or
//!   before it in `abroad`, its end has not come. So where the sum is zero there is no piece left and nothing to race with.
//! - A drop abroad may be the last one while the owner does nothing. So it puts the block into the list `back`, once,
//!   with a bit in `abroad` that says so and that forbids the owner to free it before it has taken the list. The owner
//!   takes the list before it leases: one load while it is empty.

use crate::ReadPieces;
use crate::sync::{AtomicU32, Cell, this_thread};
use std::alloc;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Bytes of a small block: one page, the common small request.
pub const SMALL_BLOCK_BYTES: usize = 4096;
/// Bytes of a large block.
pub const LARGE_BLOCK_BYTES: usize = 64 * 1024;
/// Requests above this take large blocks.
const SMALL_REQUEST_BYTES_MAX: usize = 16 * 1024;
const CLASS_BYTES: [usize; 2] = [SMALL_BLOCK_BYTES, LARGE_BLOCK_BYTES];
const PAGE: usize = 4096;
const NO_BLOCK: u32 = u32::MAX;

/// The arena has no room for so much now. An answer, not a failure: wait and ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the buffer arena has no room for {bytes} bytes now")]
pub struct ArenaFull {
    /// How much was asked for.
    pub bytes: usize,
}

/// In `abroad`: the block is in the list `back`. The count is above it.
const IS_BACK: u32 = 1;
const ONE_ABROAD: u32 = 2;

/// A fixed amount of page-aligned memory, handed out in leases. Clones are handles of the same arena. It stays on the
/// thread that made it; leases may go anywhere. Its memory is given back when the last handle and the last piece are
/// gone; where a piece ends on another thread later than everything here, that memory is never given back.
pub struct Arena(NonNull<Inner>);

struct Inner {
    /// What the allocator gave.
    start: NonNull<u8>,
    memory: alloc::Layout,
    /// The first page in it, and what is handed out from there.
    base: NonNull<u8>,
    bytes: usize,
    counts: [u32; 2],
    blocks: Box<[Block]>,
    /// The thread that made it: cells are touched by no other.
    owner: u64,
    /// The first free block of each class.
    free: [Cell<u32>; 2],
    handles: Cell<u32>,
    /// Blocks that are not free.
    leased: Cell<u32>,
    /// The first of the blocks of which a piece has ended on another thread.
    back: AtomicU32,
}

struct Block {
    /// Pieces that the owner has made, less those it has dropped.
    home: Cell<i32>,
    next_free: Cell<u32>,
    /// The same of all other threads, times [`ONE_ABROAD`]; and [`IS_BACK`].
    abroad: AtomicU32,
    next_back: AtomicU32,
}

impl Block {
    fn pieces(&self, abroad: u32) -> i32 {
        self.home.get() + (abroad.cast_signed() >> 1)
    }
}

impl Inner {
    fn block_class(&self, block: u32) -> usize {
        usize::from(block >= self.counts[0])
    }

    fn block_start(&self, block: u32) -> NonNull<u8> {
        let small = self.counts[0] as usize;
        let block = block as usize;
        let offset = if block < small {
            block * SMALL_BLOCK_BYTES
        } else {
            small * SMALL_BLOCK_BYTES + (block - small) * LARGE_BLOCK_BYTES
        };
        assert!(offset < self.bytes);
        // SAFETY: inside the allocation, by the assert.
        unsafe { self.base.add(offset) }
    }

    fn is_home(&self) -> bool {
        self.owner == this_thread()
    }

    fn pop(&self, class: usize) -> Option<u32> {
        let block = self.free[class].get();
        if block == NO_BLOCK {
            return None;
        }
        self.free[class].set(self.blocks[block as usize].next_free.get());
        self.leased.set(self.leased.get() + 1);
        Some(block)
    }

    fn push(&self, block: u32) {
        let first = &self.free[self.block_class(block)];
        self.blocks[block as usize].next_free.set(first.replace(block));
    }

    /// The owner has found that a block has no pieces left.
    fn free(&self, block: u32, abroad: u32) {
        let one = &self.blocks[block as usize];
        if abroad != 0 {
            one.home.set(0);
            // Nobody else has a piece, so nobody else changes it.
            one.abroad.store(0, Ordering::Relaxed);
        }
        self.push(block);
        self.leased.set(self.leased.get() - 1);
    }

    /// Takes in what other threads have put into the list. By the owner.
    #[inline]
    fn take_back(&self) {
        if self.back.load(Ordering::Relaxed) != NO_BLOCK {
            self.take_list();
        }
    }

    #[cold]
    fn take_list(&self) {
        let mut next = self.back.swap(NO_BLOCK, Ordering::Acquire);
        while next != NO_BLOCK {
            let block = next;
            let one = &self.blocks[block as usize];
            next = one.next_back.load(Ordering::Relaxed);
            // From here on others may put it into the list again.
            let abroad = one.abroad.fetch_and(!IS_BACK, Ordering::AcqRel) & !IS_BACK;
            if one.pieces(abroad) == 0 {
                self.free(block, abroad);
            }
        }
    }

    fn add_piece(&self, block: u32) {
        let one = &self.blocks[block as usize];
        if self.is_home() {
            one.home.set(one.home.get() + 1);
        } else {
            one.abroad.fetch_add(ONE_ABROAD, Ordering::Relaxed);
        }
    }

    /// Ends a piece that the owner has.
    fn drop_here(&self, block: u32) {
        let one = &self.blocks[block as usize];
        one.home.set(one.home.get() - 1);
        // What others did with the block happens before it is handed out again.
        let abroad = one.abroad.load(Ordering::Acquire);
        if abroad & IS_BACK == 0 && one.pieces(abroad) == 0 {
            self.free(block, abroad);
        }
        if self.handles.get() == 0 {
            self.take_back();
        }
    }

    /// Ends a piece that another thread has. What comes after the change of `abroad` touches the block only if this very
    /// call has put it into the list, for then the owner waits for it.
    #[cold]
    fn drop_abroad(&self, block: u32) {
        let one = &self.blocks[block as usize];
        let mut before = one.abroad.load(Ordering::Relaxed);
        loop {
            let after = before.wrapping_sub(ONE_ABROAD) | IS_BACK;
            match one.abroad.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        if before & IS_BACK != 0 {
            return;
        }
        let mut head = self.back.load(Ordering::Relaxed);
        loop {
            one.next_back.store(head, Ordering::Relaxed);
            match self.back.compare_exchange_weak(head, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// Gives everything back if nobody has a handle or a piece. By the owner, who must not use `inner` afterwards then.
#[inline]
fn end_if_unused(inner: NonNull<Inner>) {
    // SAFETY: alive: only this function ends it, for the owner, when nothing refers to it any more.
    let (handles, leased) = unsafe { (inner.as_ref().handles.get(), inner.as_ref().leased.get()) };
    if handles == 0 && leased == 0 {
        // SAFETY: made by `Box::leak` in `Arena::new`; no handle and no piece refers to it.
        let inner = unsafe { Box::from_raw(inner.as_ptr()) };
        // SAFETY: allocated in `Arena::new` with this layout.
        unsafe { alloc::dealloc(inner.start.as_ptr(), inner.memory) }
    }
}

impl Clone for Arena {
    fn clone(&self) -> Arena {
        self.inner().handles.set(self.inner().handles.get() + 1);
        Arena(self.0)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let inner = self.inner();
        inner.handles.set(inner.handles.get() - 1);
        inner.take_back();
        end_if_unused(self.0);
    }
}

impl Arena {
    /// An arena of so many blocks of [`SMALL_BLOCK_BYTES`] and [`LARGE_BLOCK_BYTES`]. The memory is zeroed by the
    /// system on first touch. Panics when the system has no address space for it: this happens at start.
    pub fn new(small_blocks: u32, large_blocks: u32) -> Arena {
        let bytes = small_blocks as usize * SMALL_BLOCK_BYTES + large_blocks as usize * LARGE_BLOCK_BYTES;
        assert!(bytes > 0 && small_blocks < NO_BLOCK / 2 && large_blocks < NO_BLOCK / 2);
        // A page more, and aligned here: asked for page alignment, the allocator would zero, and so touch, every page,
        // while plain zeroed memory comes untouched from the system.
        let memory = alloc::Layout::from_size_align(bytes + PAGE, 16).expect("an arena fits the address space");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc_zeroed(memory) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(memory));
        // SAFETY: less than a page further, and there is a page more than is handed out.
        let base = unsafe { start.add(start.align_offset(PAGE)) };
        let blocks = (0..small_blocks + large_blocks)
            .map(|_| Block {
                home: Cell::new(0),
                next_free: Cell::new(NO_BLOCK),
                abroad: AtomicU32::new(0),
                next_back: AtomicU32::new(NO_BLOCK),
            })
            .collect();
        let inner = Inner {
            start,
            memory,
            base,
            bytes,
            counts: [small_blocks, large_blocks],
            blocks,
            owner: this_thread(),
            free: [Cell::new(NO_BLOCK), Cell::new(NO_BLOCK)],
            handles: Cell::new(1),
            leased: Cell::new(0),
            back: AtomicU32::new(NO_BLOCK),
        };
        for block in (0..small_blocks + large_blocks).rev() {
            inner.push(block);
        }
        Arena(NonNull::from(Box::leak(Box::new(inner))))
    }

    fn inner(&self) -> &Inner {
        // SAFETY: it lives while a handle does.
        unsafe { self.0.as_ref() }
    }

    /// Leases `bytes` bytes of undefined content, as few pieces as the block sizes allow. Panics on zero bytes.
    pub fn take(&self, bytes: usize) -> Result<ReadPieces, ArenaFull> {
        assert!(bytes > 0);
        let inner = self.inner();
        inner.take_back();
        let mut pieces = ReadPieces::new();
        while pieces.bytes() < bytes {
            let left = bytes - pieces.bytes();
            let class = usize::from(left > SMALL_REQUEST_BYTES_MAX);
            let block = inner.pop(class).or_else(|| inner.pop(1 - class)).ok_or(ArenaFull { bytes })?;
            pieces.push(self.lease(block, left.min(CLASS_BYTES[inner.block_class(block)])));
        }
        Ok(pieces)
    }

    /// Leases `bytes` bytes of undefined content in one piece. Panics on zero bytes and above [`LARGE_BLOCK_BYTES`].
    pub fn take_contiguous(&self, bytes: usize) -> Result<Lease, ArenaFull> {
        assert!(bytes > 0 && bytes <= LARGE_BLOCK_BYTES);
        let inner = self.inner();
        inner.take_back();
        let small = if bytes <= SMALL_BLOCK_BYTES { inner.pop(0) } else { None };
        let block = small.or_else(|| inner.pop(1)).ok_or(ArenaFull { bytes })?;
        Ok(self.lease(block, bytes))
    }

    fn lease(&self, block: u32, length: usize) -> Lease {
        let inner = self.inner();
        let before = inner.blocks[block as usize].home.replace(1);
        assert_eq!(before, 0, "a free block has no pieces");
        Lease(RawPiece { arena: self.0, block, start: inner.block_start(block), length })
    }

    /// Leases `bytes` zero bytes.
    pub fn take_zeroed(&self, bytes: usize) -> Result<ReadPieces, ArenaFull> {
        let mut pieces = self.take(bytes)?;
        pieces.fill(0);
        Ok(pieces)
    }

    /// How many pieces of up to [`LARGE_BLOCK_BYTES`] it can lease at the same time.
    pub fn large_blocks(&self) -> usize {
        self.inner().counts[1] as usize
    }

    /// Bytes the arena has in all.
    pub fn capacity_bytes(&self) -> usize {
        self.inner().bytes
    }

    /// Blocks that are leased now.
    pub fn blocks_in_use(&self) -> usize {
        self.inner().take_back();
        self.inner().leased.get() as usize
    }

    /// The arena's memory, for registering it with the kernel: address and bytes. It stays valid while the arena or
    /// a piece of it lives.
    pub fn region(&self) -> (*const u8, usize) {
        (self.inner().base.as_ptr(), self.inner().bytes)
    }
}

struct RawPiece {
    arena: NonNull<Inner>,
    block: u32,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a piece is an owner (unique or read-only) of its bytes; of the arena, threads other than its owner's use only
// what is constant or atomic, and it lives while the piece does.
unsafe impl Send for RawPiece {}
// SAFETY: as above; `&RawPiece` gives no mutable access.
unsafe impl Sync for RawPiece {}

impl Drop for RawPiece {
    fn drop(&mut self) {
        let inner = self.inner();
        if inner.is_home() {
            inner.drop_here(self.block);
            end_if_unused(self.arena);
        } else {
            inner.drop_abroad(self.block);
        }
    }
}

impl RawPiece {
    fn inner(&self) -> &Inner {
        // SAFETY: it lives while a piece of one of its blocks does: the block is leased.
        unsafe { self.arena.as_ref() }
    }

    /// Another piece of the same block, `length` bytes from `offset` of this one.
    fn part(&self, offset: usize, length: usize) -> RawPiece {
        assert!(offset <= self.length && length <= self.length - offset);
        self.inner().add_piece(self.block);
        // SAFETY: inside this piece, by the assert.
        let start = unsafe { self.start.add(offset) };
        RawPiece { arena: self.arena, block: self.block, start, length }
    }

    fn split_to(&mut self, bytes: usize) -> RawPiece {
        let front = self.part(0, bytes);
        // SAFETY: inside this piece: `part` has checked `bytes`.
        self.start = unsafe { self.start.add(bytes) };
        self.length -= bytes;
        front
    }

    fn try_join(&mut self, next: &RawPiece) -> bool {
        let adjoins = self.block == next.block
            && self.arena == next.arena
            && self.start.as_ptr() as usize + self.length == next.start.as_ptr() as usize;
        if adjoins {
            self.length += next.length;
        }
        adjoins
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes lie in a live block (counted) and nobody writes them while this borrow lasts: they are in
        // this Lease alone, or in Shared pieces only, by the module's invariant.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

/// One owner of some bytes of a block. Splitting and freezing keep every byte in one place.
pub struct Lease(RawPiece);

/// Read-only bytes of a block, cheap to clone: the same data on its way to several members.
pub struct Shared(RawPiece);

impl Lease {
    /// Makes the bytes read-only, so that they can be cloned.
    pub fn freeze(self) -> Shared {
        Shared(self.0)
    }
}

impl Deref for Lease {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: a Lease is the only owner of its bytes, by the module's invariant, and it is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.start.as_ptr(), self.0.length) }
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Clone for Shared {
    fn clone(&self) -> Shared {
        Shared(self.0.part(0, self.0.length))
    }
}

impl Shared {
    /// `length` bytes from `offset`. Panics outside.
    pub fn slice(&self, offset: usize, length: usize) -> Shared {
        Shared(self.0.part(offset, length))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What [`Lease`] and [`Shared`] have in common: bytes that can be cut and joined.
pub trait Piece: sealed::Sealed + Deref<Target = [u8]> + Sized {
    /// Takes the first `bytes` bytes off. Panics when there are fewer.
    fn split_to(&mut self, bytes: usize) -> Self;
    /// Takes `next` in if it lies right behind in the same block; gives it back otherwise.
    fn try_join(&mut self, next: Self) -> Option<Self>;
}

macro_rules! piece {
    ($name:ident) => {
        impl sealed::Sealed for $name {}

        impl Piece for $name {
            fn split_to(&mut self, bytes: usize) -> $name {
                $name(self.0.split_to(bytes))
            }
            fn try_join(&mut self, next: $name) -> Option<$name> {
                if self.0.try_join(&next.0) { None } else { Some(next) }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(out, concat!(stringify!($name), "({} bytes)"), self.0.length)
            }
        }
    };
}

piece!(Lease);
piece!(Shared);

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_ends_on_another_thread_comes_back() {
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
}
