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

use crate::ReadPieces;
use crate::sync::{AtomicU32, AtomicU64, fence};
use std::alloc;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
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

/// A fixed amount of page-aligned memory, handed out in leases. Clones are handles of the same arena.
#[derive(Clone)]
pub struct Arena(Arc<Inner>);

struct Inner {
    /// What the allocator gave.
    start: NonNull<u8>,
    memory: alloc::Layout,
    /// The first page in it, and what is handed out from there.
    base: NonNull<u8>,
    bytes: usize,
    counts: [u32; 2],
    blocks: Box<[Block]>,
    // Free blocks per class as a stack of indexes. The upper half counts changes, so that a pop which was overtaken by
    // pop, pop, push of the same block (ABA) fails its compare-exchange.
    free: [AtomicU64; 2],
}

struct Block {
    pieces: AtomicU32,
    next_free: AtomicU32,
}

// SAFETY: the memory behind `base` is only reached through Lease and Shared, whose disjointness is the module's
// invariant; everything else in here is atomic or constant.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: allocated in Arena::new with this layout; no piece is left, each holds an Arc of this.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.memory) }
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

    fn pop(&self, class: usize) -> Option<u32> {
        let mut head = self.free[class].load(Ordering::Acquire);
        loop {
            let block = head as u32;
            if block == NO_BLOCK {
                return None;
            }
            let next = self.blocks[block as usize].next_free.load(Ordering::Relaxed);
            let new = ((head >> 32).wrapping_add(1) << 32) | u64::from(next);
            match self.free[class].compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(block),
                Err(now) => head = now,
            }
        }
    }

    fn push(&self, block: u32) {
        let class = self.block_class(block);
        let mut head = self.free[class].load(Ordering::Relaxed);
        loop {
            self.blocks[block as usize].next_free.store(head as u32, Ordering::Relaxed);
            let new = ((head >> 32).wrapping_add(1) << 32) | u64::from(block);
            match self.free[class].compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    fn add_piece(&self, block: u32) {
        let before = self.blocks[block as usize].pieces.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0 && before < u32::MAX / 2);
    }

    fn drop_piece(&self, block: u32) {
        let before = self.blocks[block as usize].pieces.fetch_sub(1, Ordering::Release);
        assert!(before > 0);
        if before == 1 {
            // Everything other owners did with the block happens before it is handed out again.
            fence(Ordering::Acquire);
            self.push(block);
        }
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
            .map(|_| Block { pieces: AtomicU32::new(0), next_free: AtomicU32::new(NO_BLOCK) })
            .collect();
        let free = [AtomicU64::new(u64::from(NO_BLOCK)), AtomicU64::new(u64::from(NO_BLOCK))];
        let inner = Inner { start, base, bytes, memory, counts: [small_blocks, large_blocks], blocks, free };
        for block in (0..small_blocks + large_blocks).rev() {
            inner.push(block);
        }
        Arena(Arc::new(inner))
    }

    /// Leases `bytes` bytes of undefined content, as few pieces as the block sizes allow. Panics on zero bytes.
    pub fn take(&self, bytes: usize) -> Result<ReadPieces, ArenaFull> {
        assert!(bytes > 0);
        let mut pieces = ReadPieces::new();
        while pieces.bytes() < bytes {
            let left = bytes - pieces.bytes();
            let class = usize::from(left > SMALL_REQUEST_BYTES_MAX);
            let block = self.0.pop(class).or_else(|| self.0.pop(1 - class)).ok_or(ArenaFull { bytes })?;
            pieces.push(self.lease(block, left.min(CLASS_BYTES[self.0.block_class(block)])));
        }
        Ok(pieces)
    }

    /// Leases `bytes` bytes of undefined content in one piece. Panics on zero bytes and above [`LARGE_BLOCK_BYTES`].
    pub fn take_contiguous(&self, bytes: usize) -> Result<Lease, ArenaFull> {
        assert!(bytes > 0 && bytes <= LARGE_BLOCK_BYTES);
        let small = if bytes <= SMALL_BLOCK_BYTES { self.0.pop(0) } else { None };
        let block = small.or_else(|| self.0.pop(1)).ok_or(ArenaFull { bytes })?;
        Ok(self.lease(block, bytes))
    }

    fn lease(&self, block: u32, length: usize) -> Lease {
        let before = self.0.blocks[block as usize].pieces.swap(1, Ordering::Relaxed);
        assert_eq!(before, 0, "a free block has no pieces");
        Lease(RawPiece { arena: self.0.clone(), block, start: self.0.block_start(block), length })
    }

    /// Leases `bytes` zero bytes.
    pub fn take_zeroed(&self, bytes: usize) -> Result<ReadPieces, ArenaFull> {
        let mut pieces = self.take(bytes)?;
        pieces.fill(0);
        Ok(pieces)
    }

    /// How many pieces of up to [`LARGE_BLOCK_BYTES`] it can lease at the same time.
    pub fn large_blocks(&self) -> usize {
        self.0.counts[1] as usize
    }

    /// Bytes the arena has in all.
    pub fn capacity_bytes(&self) -> usize {
        self.0.bytes
    }

    /// Blocks that are leased now, by counting: for tests and reports, not for hot paths.
    pub fn blocks_in_use(&self) -> usize {
        self.0.blocks.iter().filter(|block| block.pieces.load(Ordering::Relaxed) > 0).count()
    }

    /// The arena's memory, for registering it with the kernel: address and bytes. It stays valid while the arena or
    /// a piece of it lives.
    pub fn region(&self) -> (*const u8, usize) {
        (self.0.base.as_ptr(), self.0.bytes)
    }
}

struct RawPiece {
    arena: Arc<Inner>,
    block: u32,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a piece is an owner (unique or read-only) of its bytes, and the block count behind it is atomic.
unsafe impl Send for RawPiece {}
// SAFETY: as above; `&RawPiece` gives no mutable access.
unsafe impl Sync for RawPiece {}

impl Drop for RawPiece {
    fn drop(&mut self) {
        self.arena.drop_piece(self.block);
    }
}

impl RawPiece {
    /// Another piece of the same block, `length` bytes from `offset` of this one.
    fn part(&self, offset: usize, length: usize) -> RawPiece {
        assert!(offset <= self.length && length <= self.length - offset);
        self.arena.add_piece(self.block);
        // SAFETY: inside this piece, by the assert.
        let start = unsafe { self.start.add(offset) };
        RawPiece { arena: self.arena.clone(), block: self.block, start, length }
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
            && Arc::ptr_eq(&self.arena, &next.arena)
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
    fn two_threads_never_get_the_same_block() {
        let arena = Arena::new(8, 0);
        std::thread::scope(|scope| {
            for mark in 1..=2u8 {
                let arena = arena.clone();
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let mut pieces = arena.take(3 * SMALL_BLOCK_BYTES).expect("6 of 8 blocks at most");
                        for piece in pieces.iter_mut() {
                            piece[0] = mark;
                        }
                        assert!(pieces.iter().all(|piece| piece[0] == mark));
                    }
                });
            }
        });
        assert_eq!(arena.blocks_in_use(), 0);
    }
}
