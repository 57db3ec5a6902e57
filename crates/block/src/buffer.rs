//! Buffer leases: memory that a device may read or write on its own time.
//! Owns: [`Arena`], unique [`Lease`]s and read-only [`Shared`] pieces of its blocks, lists of them (`pieces`).
//! Not here: waiting when the arena is full (the caller does that: "full" is an answer).
//! Invariant: every byte of a block is in at most one `Lease`, or in any number of `Shared`, never both. A block
//! returns to its arena when its last piece is dropped. A device keeps the pieces of its operation until the operation
//! is done, so a dropped future frees no memory that the device still writes.
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
//! - The owner frees the block when the sum is zero; a plain load of `abroad` is enough for that. Every piece was cut
//!   from another one, so each change by other threads happened before the owner's last change and is in the loaded
//!   value. A piece that another thread still holds is counted in what the owner sees: its making is in the sum, its
//!   end is not. So if the sum is zero, there is no piece left and no race.
//! - A drop abroad may be the last one while the owner does nothing. So the dropping thread puts the block into the
//!   list `back`, once. A bit in `abroad` records that, and the owner must not free the block before it has taken the
//!   list. The owner takes the list before it leases: one load while the list is empty.

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

/// The arena does not have this much room now. An answer, not a failure: wait and ask again.
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
/// thread that made it; leases may move to other threads. Its memory is freed with the last handle and the last piece,
/// but never if the very last piece is dropped on another thread.
pub struct Arena(NonNull<Inner>);

struct Inner {
    /// The address that the allocator returned.
    start: NonNull<u8>,
    memory: alloc::Layout,
    /// The first page boundary in it, where the blocks start.
    base: NonNull<u8>,
    bytes: usize,
    counts: [u32; 2],
    blocks: Box<[Block]>,
    /// The thread that made it: only this thread uses the cells.
    owner: u64,
    /// The first free block of each class.
    free: [Cell<u32>; 2],
    handles: Cell<u32>,
    /// Blocks that are not free.
    leased: Cell<u32>,
    /// The first of the blocks of which another thread has dropped a piece.
    back: AtomicU32,
}

/// On a line of its own: other threads write to `abroad`.
#[repr(align(64))]
struct Block {
    inner: NonNull<Inner>,
    start: NonNull<u8>,
    index: u32,
    /// Pieces that the owner has made, less those it has dropped.
    home: Cell<i32>,
    next_free: Cell<u32>,
    /// The same for all other threads, times [`ONE_ABROAD`]; and [`IS_BACK`].
    abroad: AtomicU32,
    next_back: AtomicU32,
}

impl Block {
    fn pieces(&self, abroad: u32) -> i32 {
        self.home.get() + (abroad.cast_signed() >> 1)
    }

    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: the list of blocks is the arena's own.
        unsafe { self.inner.as_ref() }
    }

    #[inline]
    fn add_piece(&self) {
        if self.inner().is_home() {
            self.home.set(self.home.get() + 1);
        } else {
            self.abroad.fetch_add(ONE_ABROAD, Ordering::Relaxed);
        }
    }

    /// Ends a piece that the owner has.
    #[inline]
    fn drop_here(&self) {
        let inner = self.inner();
        self.home.set(self.home.get() - 1);
        // Acquire: what other threads did with the block happens before it is leased again.
        let abroad = self.abroad.load(Ordering::Acquire);
        if abroad & IS_BACK == 0 && self.pieces(abroad) == 0 {
            inner.free(self, abroad);
        }
        if inner.handles.get() == 0 {
            inner.take_back();
        }
    }

    /// Ends a piece that another thread has. After the change of `abroad`, this touches the block only if this very
    /// call puts it into the list: the owner then waits for it.
    #[cold]
    fn drop_abroad(&self) {
        let inner = self.inner();
        let mut before = self.abroad.load(Ordering::Relaxed);
        loop {
            let after = before.wrapping_sub(ONE_ABROAD) | IS_BACK;
            match self.abroad.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        if before & IS_BACK != 0 {
            return;
        }
        let mut head = inner.back.load(Ordering::Relaxed);
        loop {
            self.next_back.store(head, Ordering::Relaxed);
            match inner.back.compare_exchange_weak(head, self.index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Inner {
    fn block_class(&self, block: u32) -> usize {
        usize::from(block >= self.counts[0])
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

    fn push(&self, block: &Block) {
        let first = &self.free[self.block_class(block.index)];
        block.next_free.set(first.replace(block.index));
    }

    /// The owner has found that a block has no pieces left.
    fn free(&self, block: &Block, abroad: u32) {
        if abroad != 0 {
            block.home.set(0);
            // No other thread has a piece, so none changes it.
            block.abroad.store(0, Ordering::Relaxed);
        }
        self.push(block);
        self.leased.set(self.leased.get() - 1);
    }

    /// Takes the blocks that other threads have put into the list. Owner only.
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
            let block = &self.blocks[next as usize];
            next = block.next_back.load(Ordering::Relaxed);
            // From here on other threads may put it into the list again.
            let abroad = block.abroad.fetch_and(!IS_BACK, Ordering::AcqRel) & !IS_BACK;
            if block.pieces(abroad) == 0 {
                self.free(block, abroad);
            }
        }
    }
}

/// Frees everything if there is no handle and no piece. Owner only; if it frees, the caller must not use `inner` again.
#[inline]
fn end_if_unused(inner: NonNull<Inner>) {
    // SAFETY: alive: only this function frees it, on the owner's thread, when nothing refers to it any more.
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
    /// An arena with room for one request of `bytes` bytes, and no more. Panics on zero bytes.
    pub fn for_one(bytes: usize) -> Arena {
        assert!(bytes > 0);
        if bytes <= SMALL_BLOCK_BYTES {
            Arena::new(1, 0)
        } else {
            Arena::new(0, bytes.div_ceil(LARGE_BLOCK_BYTES) as u32)
        }
    }

    /// An arena with these numbers of blocks of [`SMALL_BLOCK_BYTES`] and [`LARGE_BLOCK_BYTES`]. The system zeroes the
    /// memory on first touch. Panics if the system has no address space for it; arenas are made at start.
    pub fn new(small_blocks: u32, large_blocks: u32) -> Arena {
        let bytes = small_blocks as usize * SMALL_BLOCK_BYTES + large_blocks as usize * LARGE_BLOCK_BYTES;
        assert!(bytes > 0 && small_blocks < NO_BLOCK / 2 && large_blocks < NO_BLOCK / 2);
        // Allocate a page more and align here. If asked for page alignment, the allocator would zero, and so touch,
        // every page; plain zeroed memory comes untouched from the system.
        let memory = alloc::Layout::from_size_align(bytes + PAGE, 16).expect("an arena fits the address space");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc_zeroed(memory) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(memory));
        // SAFETY: less than a page further, and the allocation has a page more than the blocks need.
        let base = unsafe { start.add(start.align_offset(PAGE)) };
        let inner = Inner {
            start,
            memory,
            base,
            bytes,
            counts: [small_blocks, large_blocks],
            blocks: Box::default(),
            owner: this_thread(),
            free: [Cell::new(NO_BLOCK), Cell::new(NO_BLOCK)],
            handles: Cell::new(1),
            leased: Cell::new(0),
            back: AtomicU32::new(NO_BLOCK),
        };
        let mut inner = NonNull::from(Box::leak(Box::new(inner)));
        let block = |index: u32| {
            let small = index.min(small_blocks) as usize;
            let offset = small * SMALL_BLOCK_BYTES + (index as usize - small) * LARGE_BLOCK_BYTES;
            assert!(offset < bytes);
            Block {
                inner,
                // SAFETY: inside the allocation, by the assert.
                start: unsafe { base.add(offset) },
                index,
                home: Cell::new(0),
                next_free: Cell::new(NO_BLOCK),
                abroad: AtomicU32::new(0),
                next_back: AtomicU32::new(NO_BLOCK),
            }
        };
        let blocks = (0..small_blocks + large_blocks).map(block).collect();
        // SAFETY: just made, and not shared yet.
        let filled = unsafe { inner.as_mut() };
        filled.blocks = blocks;
        filled.blocks.iter().rev().for_each(|block| filled.push(block));
        Arena(inner)
    }

    fn inner(&self) -> &Inner {
        // SAFETY: it lives while a handle does.
        unsafe { self.0.as_ref() }
    }

    /// Leases `bytes` bytes of undefined content, in as few pieces as the block sizes allow. Panics on zero bytes.
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
        assert!(length <= LARGE_BLOCK_BYTES);
        let block = &self.inner().blocks[block as usize];
        let before = block.home.replace(1);
        assert_eq!(before, 0, "a free block has no pieces");
        Lease(RawPiece { block: NonNull::from(block), offset: 0, length: length as u32 })
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

    /// Blocks of both sizes that it has.
    pub fn blocks(&self) -> usize {
        self.inner().blocks.len()
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

/// Kept small: a request passes several of these on.
struct RawPiece {
    block: NonNull<Block>,
    /// In bytes, from the block's start.
    offset: u32,
    length: u32,
}

const _: () = assert!(size_of::<RawPiece>() == 16 && LARGE_BLOCK_BYTES <= u32::MAX as usize);

// SAFETY: a piece owns its bytes (uniquely or read-only). Of the arena, other threads than its owner's use only
// constant or atomic fields, and the arena lives while the piece does.
unsafe impl Send for RawPiece {}
// SAFETY: as above; `&RawPiece` gives no mutable access.
unsafe impl Sync for RawPiece {}

impl Drop for RawPiece {
    #[inline]
    fn drop(&mut self) {
        let block = self.block();
        let arena = block.inner;
        if block.inner().is_home() {
            block.drop_here();
            end_if_unused(arena);
        } else {
            block.drop_abroad();
        }
    }
}

impl RawPiece {
    #[inline]
    fn block(&self) -> &Block {
        // SAFETY: the arena lives while a piece of one of its blocks does: the block is leased.
        unsafe { self.block.as_ref() }
    }

    /// Another piece of the same block, `length` bytes from `offset` of this one.
    #[inline]
    fn part(&self, offset: usize, length: usize) -> RawPiece {
        assert!(offset <= self.length() && length <= self.length() - offset);
        self.block().add_piece();
        RawPiece { block: self.block, offset: self.offset + offset as u32, length: length as u32 }
    }

    #[inline]
    fn length(&self) -> usize {
        self.length as usize
    }

    #[inline]
    fn start(&self) -> NonNull<u8> {
        // SAFETY: inside the block: pieces are only cut out of what was leased.
        unsafe { self.block().start.add(self.offset as usize) }
    }

    fn split_to(&mut self, bytes: usize) -> RawPiece {
        let front = self.part(0, bytes);
        self.offset += front.length;
        self.length -= front.length;
        front
    }

    fn try_join(&mut self, next: &RawPiece) -> bool {
        let adjoins = self.block == next.block && self.offset + self.length == next.offset;
        if adjoins {
            self.length += next.length;
        }
        adjoins
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes lie in a live block (counted) and are not written while this borrow lasts: by the module's
        // invariant they are in this Lease alone, or in Shared pieces only.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.length()) }
    }
}

/// The one owner of some bytes of a block. Splitting and freezing keep every byte in one place.
pub struct Lease(RawPiece);

/// Read-only bytes of a block, cheap to clone: the same data is written to several members.
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
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr(), self.0.length()) }
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
        Shared(self.0.part(0, self.0.length()))
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

/// The operations that [`Lease`] and [`Shared`] share: bytes that can be cut and joined.
pub trait Piece: sealed::Sealed + Deref<Target = [u8]> + Sized {
    /// Takes the first `bytes` bytes off. Panics when there are fewer.
    fn split_to(&mut self, bytes: usize) -> Self;
    /// Appends `next` if it directly follows in the same block; gives it back otherwise.
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

// By its path: host's loom tests compile this file from elsewhere.
#[cfg(test)]
#[path = "buffer/tests.rs"]
mod tests;
