//! Buffer leases: memory that a device may use until its I/O has completed.
//! Owns: [`Arena`], unique [`Lease`]s and read-only [`Shared`] pieces of its blocks. Not here: lists of them (`pieces`);
//! memory of somebody else (`foreign`); waiting when the arena is full: [`ArenaFull`] is an answer, and the caller waits.
//! Invariant: every byte of a block is in at most one `Lease`, or in any number of `Shared`, never both. A block
//! returns to its arena when its last piece is dropped. A device keeps the pieces of its operation until the operation
//! is done, so a dropped future frees no memory that the device still writes. Of memory that may change there are only
//! `Shared`, and no reference to their bytes: they are copied, or the kernel gets their address.
//!
//! ```text
//!   block of 64 KiB   |-------- lease a --------|-- lease b --|   split_to gives two owners of disjoint bytes
//!                       freeze() -> Shared, cloned to every mirror
//! ```
//!
//! An arena belongs to the thread that made it. On that thread, taking, cutting, cloning and dropping are plain
//! arithmetic: no atomic is changed. Pieces may be sent to other threads, which count theirs in a separate atomic
//! (biased reference counting):
//! ```text
//!   pieces of a block = local + remote      local:  made minus dropped by the owner, in a cell
//!                                           remote: made minus dropped by all others, in an atomic; may be negative
//! ```
//! - The owner frees the block when the sum is zero; a plain load of `remote` is enough for that, although it may miss
//!   the latest changes of other threads. A piece is cut or cloned from a piece that is not dropped yet, so an owner
//!   that sees the drop of a piece also sees what was cut from it. While a piece is left, that piece or one that it was
//!   cut from is counted: its creation is in the sum, its drop is not. So if the sum is zero, there is no piece left
//!   and no race.
//! - A drop on another thread may be the last one while the owner does nothing. So the dropping thread puts the block
//!   into the list `returned`, once. A bit in `remote` records that, and the owner must not free the block before it has
//!   taken the list. The owner takes the list before it leases: one load while the list is empty.

pub use piece::{Lease, Piece, Shared};

use crate::sync::{AtomicU32, Cell, this_thread};
use piece::RawPiece;
use std::alloc;
use std::any::Any;
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

/// The arena has too little free room now. An answer, not a failure: wait and ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the buffer arena has no room for {bytes} bytes now")]
pub struct ArenaFull {
    /// The number of bytes that were requested.
    pub bytes: usize,
}

/// In `remote`: the block is in the list `returned`. The count is in the bits above it.
const IS_RETURNED: u32 = 1;
const ONE_REMOTE: u32 = 2;

/// A fixed amount of page-aligned memory, handed out in leases. Clones are handles of the same arena. It stays on the
/// thread that made it; leases may move to other threads. Its memory is freed with the last handle and the last piece;
/// if the very last piece is dropped on another thread, the memory is never freed.
pub struct Arena(NonNull<Inner>);

struct Inner {
    /// Freed with it.
    _memory: Memory,
    /// Where the blocks start: in memory of its own the first page boundary.
    base: NonNull<u8>,
    bytes: usize,
    counts: [u32; 2],
    blocks: Box<[Block]>,
    /// The thread that made the arena: only this thread uses the cells.
    owner: u64,
    /// The first free block of each class.
    free: [Cell<u32>; 2],
    handles: Cell<u32>,
    /// Blocks that are not free.
    leased: Cell<u32>,
    /// The first of the blocks of which another thread has dropped a piece.
    returned: AtomicU32,
}

/// Whose memory an arena hands out.
enum Memory {
    /// The allocator's: the address that it returned, and what was asked for.
    Own(NonNull<u8>, alloc::Layout),
    /// Somebody else's: dropping this lets it go.
    Foreign { _held: Box<dyn Any> },
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self {
            // SAFETY: allocated in `Arena::new` with this layout; no handle and no piece refers to it any more.
            Memory::Own(start, layout) => unsafe { alloc::dealloc(start.as_ptr(), *layout) },
            Memory::Foreign { .. } => {}
        }
    }
}

/// On its own cache line: other threads write to `remote`.
#[repr(align(64))]
struct Block {
    inner: NonNull<Inner>,
    /// The same always, except of foreign memory: there it is set when the block is free.
    start: Cell<NonNull<u8>>,
    index: u32,
    /// Whether somebody else may write its bytes at any time.
    may_change: bool,
    /// Pieces made by the owner, minus those it has dropped.
    local: Cell<i32>,
    next_free: Cell<u32>,
    /// Pieces made minus pieces dropped by all other threads, times [`ONE_REMOTE`]; plus [`IS_RETURNED`].
    remote: AtomicU32,
    next_returned: AtomicU32,
}

impl Block {
    #[inline]
    fn pieces(&self, remote: u32) -> i32 {
        self.local.get() + (remote.cast_signed() >> 1)
    }

    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: the list of blocks is the arena's own.
        unsafe { self.inner.as_ref() }
    }

    #[inline]
    fn add_piece(&self) {
        if self.inner().is_owner() {
            self.local.set(self.local.get() + 1);
        } else {
            self.remote.fetch_add(ONE_REMOTE, Ordering::Relaxed);
        }
    }

    /// Drops a piece on the owner's thread.
    #[inline]
    fn drop_local(&self) {
        let inner = self.inner();
        self.local.set(self.local.get() - 1);
        // Acquire: what other threads did with the block happens before it is leased again.
        let remote = self.remote.load(Ordering::Acquire);
        if remote & IS_RETURNED == 0 && self.pieces(remote) == 0 {
            inner.free(self, remote);
        }
        if inner.handles.get() == 0 {
            inner.take_returned();
        }
    }

    /// Drops a piece on another thread. After the change of `remote`, this touches the block only if this very call
    /// puts it into the list: the owner then does not free it before it has taken the list.
    #[cold]
    fn drop_remote(&self) {
        let inner = self.inner();
        let mut before = self.remote.load(Ordering::Relaxed);
        loop {
            let after = before.wrapping_sub(ONE_REMOTE) | IS_RETURNED;
            match self.remote.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => before = now,
            }
        }
        if before & IS_RETURNED != 0 {
            return;
        }
        let mut head = inner.returned.load(Ordering::Relaxed);
        loop {
            self.next_returned.store(head, Ordering::Relaxed);
            match inner.returned.compare_exchange_weak(head, self.index, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

impl Inner {
    #[inline]
    fn block_class(&self, block: u32) -> usize {
        usize::from(block >= self.counts[0])
    }

    #[inline]
    fn is_owner(&self) -> bool {
        self.owner == this_thread()
    }

    #[inline]
    fn pop(&self, class: usize) -> Option<u32> {
        let block = self.free[class].get();
        if block == NO_BLOCK {
            return None;
        }
        self.free[class].set(self.blocks[block as usize].next_free.get());
        self.leased.set(self.leased.get() + 1);
        Some(block)
    }

    #[inline]
    fn push(&self, block: &Block) {
        let first = &self.free[self.block_class(block.index)];
        block.next_free.set(first.replace(block.index));
    }

    /// The owner has found that a block has no pieces left.
    #[inline]
    fn free(&self, block: &Block, remote: u32) {
        if remote != 0 {
            block.local.set(0);
            // No other thread has a piece, so none changes it.
            block.remote.store(0, Ordering::Relaxed);
        }
        self.push(block);
        self.leased.set(self.leased.get() - 1);
    }

    /// Takes the blocks that other threads have put into the list. Owner only.
    #[inline]
    fn take_returned(&self) {
        if self.returned.load(Ordering::Relaxed) != NO_BLOCK {
            self.take_list();
        }
    }

    #[cold]
    fn take_list(&self) {
        let mut next = self.returned.swap(NO_BLOCK, Ordering::Acquire);
        while next != NO_BLOCK {
            let block = &self.blocks[next as usize];
            next = block.next_returned.load(Ordering::Relaxed);
            // From here on, other threads may put the block into the list again.
            let remote = block.remote.fetch_and(!IS_RETURNED, Ordering::AcqRel) & !IS_RETURNED;
            if block.pieces(remote) == 0 {
                self.free(block, remote);
            }
        }
    }
}

/// Frees everything if no handle and no piece is left. Owner only; if it frees, the caller must not use `inner` again.
#[inline]
fn end_if_unused(inner: NonNull<Inner>) {
    // SAFETY: `inner` is alive: only this function frees it, on the owner's thread, when nothing refers to it any more.
    let (handles, leased) = unsafe { (inner.as_ref().handles.get(), inner.as_ref().leased.get()) };
    if handles == 0 && leased == 0 {
        // SAFETY: made by `Box::leak` in `Arena::with_blocks`; no handle and no piece refers to it.
        drop(unsafe { Box::from_raw(inner.as_ptr()) });
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
        inner.take_returned();
        end_if_unused(self.0);
    }
}

impl Arena {
    /// An arena with room for exactly one request of `bytes` bytes. Panics on zero bytes.
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
        // Allocate one page more and align here. If asked for page alignment, the allocator would zero, and so touch,
        // every page; plain zeroed memory comes untouched from the system.
        let memory = alloc::Layout::from_size_align(bytes + PAGE, 16).expect("an arena fits the address space");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc::alloc_zeroed(memory) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(memory));
        // SAFETY: less than a page further, and the allocation has a page more than the blocks need.
        let base = unsafe { start.add(start.align_offset(PAGE)) };
        let block_start = |index: u32| {
            let small = index.min(small_blocks) as usize;
            let offset = small * SMALL_BLOCK_BYTES + (index as usize - small) * LARGE_BLOCK_BYTES;
            assert!(offset < bytes);
            // SAFETY: inside the allocation, by the assert.
            unsafe { base.add(offset) }
        };
        let memory = Memory::Own(start, memory);
        Arena::with_blocks(memory, base, bytes, [small_blocks, large_blocks], false, block_start)
    }

    /// An arena of `bytes` bytes from `base` that belong to `memory`.
    fn with_blocks(
        memory: Memory,
        base: NonNull<u8>,
        bytes: usize,
        counts: [u32; 2],
        may_change: bool,
        block_start: impl Fn(u32) -> NonNull<u8>,
    ) -> Arena {
        let inner = Inner {
            _memory: memory,
            base,
            bytes,
            counts,
            blocks: Box::default(),
            owner: this_thread(),
            free: [Cell::new(NO_BLOCK), Cell::new(NO_BLOCK)],
            handles: Cell::new(1),
            leased: Cell::new(0),
            returned: AtomicU32::new(NO_BLOCK),
        };
        let mut inner = NonNull::from(Box::leak(Box::new(inner)));
        let block = |index: u32| Block {
            inner,
            start: Cell::new(block_start(index)),
            index,
            may_change,
            local: Cell::new(0),
            next_free: Cell::new(NO_BLOCK),
            remote: AtomicU32::new(0),
            next_returned: AtomicU32::new(NO_BLOCK),
        };
        let blocks = (0..counts[0] + counts[1]).map(block).collect();
        // SAFETY: just made, and not shared yet.
        let filled = unsafe { inner.as_mut() };
        filled.blocks = blocks;
        filled.blocks.iter().rev().for_each(|block| filled.push(block));
        Arena(inner)
    }

    /// An arena over `bytes` bytes from `base`, of somebody else, of which it hands out `pieces_max` pieces at once.
    ///
    /// # Safety
    ///
    /// The memory can be read until `held` is dropped. Unless `may_change`, nobody writes it while a piece of it is left.
    pub(crate) unsafe fn over(
        (base, bytes): (NonNull<u8>, usize),
        pieces_max: u32,
        may_change: bool,
        held: Box<dyn Any>,
    ) -> Arena {
        assert!(pieces_max > 0 && pieces_max < NO_BLOCK / 2);
        let memory = Memory::Foreign { _held: held };
        Arena::with_blocks(memory, base, bytes, [pieces_max, 0], may_change, |_| base)
    }

    /// A read-only piece of the memory that [`Arena::over`] was given. `None` if all pieces are out. Panics outside.
    pub(crate) fn piece_at(&self, offset: usize, bytes: usize) -> Option<Shared> {
        let inner = self.inner();
        assert!(matches!(inner._memory, Memory::Foreign { .. }), "own blocks have fixed places");
        assert!(offset <= inner.bytes && bytes <= inner.bytes - offset && bytes > 0);
        let length = u32::try_from(bytes).expect("checked by the caller");
        inner.take_returned();
        let block = &inner.blocks[inner.pop(0)? as usize];
        // SAFETY: inside the memory, by the assert.
        block.start.set(unsafe { inner.base.add(offset) });
        let before = block.local.replace(1);
        assert_eq!(before, 0, "a free block has no pieces");
        Some(Shared(RawPiece { block: NonNull::from(block), offset: 0, length }))
    }

    #[inline]
    fn inner(&self) -> &Inner {
        // SAFETY: it exists as long as a handle does.
        unsafe { self.0.as_ref() }
    }

    /// Leases the first piece of a request of `bytes` bytes: all of it, or as much as one block has. `None` if no block is
    /// free.
    pub(crate) fn take_piece(&self, bytes: usize) -> Option<Lease> {
        let inner = self.inner();
        inner.take_returned();
        let class = usize::from(bytes > SMALL_REQUEST_BYTES_MAX);
        let block = inner.pop(class).or_else(|| inner.pop(1 - class))?;
        Some(self.lease(block, bytes.min(CLASS_BYTES[inner.block_class(block)])))
    }

    /// Leases `bytes` bytes of undefined content in one piece. Panics on zero bytes and above [`LARGE_BLOCK_BYTES`].
    #[inline]
    pub fn take_contiguous(&self, bytes: usize) -> Result<Lease, ArenaFull> {
        assert!(bytes > 0 && bytes <= LARGE_BLOCK_BYTES);
        let small = self.take_small(bytes);
        let large = || self.inner().pop(1).map(|block| self.lease(block, bytes));
        small.or_else(large).ok_or(ArenaFull { bytes })
    }

    /// Leases `bytes` bytes of undefined content in one small block. `None` if they do not fit into one, or none is free.
    /// Panics on zero bytes.
    #[inline]
    pub fn take_small(&self, bytes: usize) -> Option<Lease> {
        assert!(bytes > 0);
        let inner = self.inner();
        inner.take_returned();
        let block = if bytes <= SMALL_BLOCK_BYTES { inner.pop(0) } else { None };
        block.map(|block| self.lease(block, bytes))
    }

    #[inline]
    fn lease(&self, block: u32, length: usize) -> Lease {
        assert!(length <= LARGE_BLOCK_BYTES);
        let block = &self.inner().blocks[block as usize];
        let before = block.local.replace(1);
        assert_eq!(before, 0, "a free block has no pieces");
        Lease(RawPiece { block: NonNull::from(block), offset: 0, length: length as u32 })
    }

    /// How many pieces of [`LARGE_BLOCK_BYTES`] it can lease at the same time.
    pub fn large_blocks(&self) -> usize {
        self.inner().counts[1] as usize
    }

    /// All its memory, free or leased, in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.inner().bytes
    }

    /// The number of blocks of both sizes, free or leased.
    pub fn blocks(&self) -> usize {
        self.inner().blocks.len()
    }

    /// The number of blocks leased now.
    pub fn blocks_in_use(&self) -> usize {
        self.inner().take_returned();
        self.inner().leased.get() as usize
    }

    /// The arena's memory, for registering it with the kernel: address and bytes. It stays valid as long as the arena
    /// or one of its pieces exists.
    pub fn region(&self) -> (*const u8, usize) {
        (self.inner().base.as_ptr(), self.inner().bytes)
    }
}

// With explicit paths, because host's loom tests compile this file from another folder.
#[path = "buffer/piece.rs"]
mod piece;
#[cfg(test)]
#[path = "buffer/tests.rs"]
mod tests;
