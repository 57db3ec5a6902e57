//! Pieces of an arena's blocks: the owner of some bytes, or one of their readers.
//! Owns: [`Lease`], [`Shared`], what both can do ([`Piece`]). Not here: blocks, and when one is free (`buffer`).
//! Invariant: of bytes that somebody else may write there is never a reference.

use super::{Block, LARGE_BLOCK_BYTES, end_if_unused};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Kept small: a request moves several of these.
pub(super) struct RawPiece {
    pub(super) block: NonNull<Block>,
    /// In bytes, from the block's start.
    pub(super) offset: u32,
    pub(super) length: u32,
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
        if block.inner().is_owner() {
            block.drop_local();
            end_if_unused(arena);
        } else {
            block.drop_remote();
        }
    }
}

impl RawPiece {
    #[inline]
    fn block(&self) -> &Block {
        // SAFETY: the block is leased, so its arena exists as long as this piece does.
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
        unsafe { self.block().start.get().add(self.offset as usize) }
    }

    #[inline]
    fn split_to(&mut self, bytes: usize) -> RawPiece {
        let front = self.part(0, bytes);
        self.offset += front.length;
        self.length -= front.length;
        front
    }

    #[inline]
    fn try_join(&mut self, next: &RawPiece) -> bool {
        let adjoins = self.block == next.block && self.offset + self.length == next.offset;
        if adjoins {
            self.length += next.length;
        }
        adjoins
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        assert!(!self.block().may_change, "bytes that may change are copied before they are looked at");
        // SAFETY: the bytes lie in a live block (counted) and are not written while this borrow lasts: by the module's
        // invariant they are in this Lease alone, or in Shared pieces only; by the assert nobody else writes them.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.length()) }
    }
}

/// The only owner of some bytes of a block. Splitting and freezing keep each byte in one place.
pub struct Lease(pub(super) RawPiece);

/// Read-only bytes of a block, cheap to clone: the same data is written to several members.
pub struct Shared(pub(super) RawPiece);

impl Lease {
    /// Makes the bytes read-only, so that they can be cloned.
    #[inline]
    pub fn freeze(self) -> Shared {
        Shared(self.0)
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: a Lease is the only owner of its bytes, by the module's invariant, and it is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.0.start().as_ptr(), self.0.length()) }
    }
}

impl Deref for Shared {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Clone for Shared {
    #[inline]
    fn clone(&self) -> Shared {
        Shared(self.0.part(0, self.0.length()))
    }
}

impl Shared {
    /// Whether somebody else may write the bytes at any time. Then they cannot be borrowed as a slice.
    #[inline]
    pub fn may_change(&self) -> bool {
        self.0.block().may_change
    }

    /// `length` bytes from `offset`. Panics outside the piece.
    #[inline]
    pub fn slice(&self, offset: usize, length: usize) -> Shared {
        Shared(self.0.part(offset, length))
    }
}

mod sealed {
    pub trait Sealed {}
}

/// The operations that [`Lease`] and [`Shared`] share: bytes that can be cut and joined.
pub trait Piece: sealed::Sealed + Deref<Target = [u8]> + Sized {
    /// Its length in bytes.
    fn len(&self) -> usize;
    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Where its bytes are, for those who give the address to the kernel. Valid as long as the piece exists.
    fn address(&self) -> *const u8;
    /// Copies its bytes from `offset` on, also those that may change meanwhile. Panics if `target` is longer.
    #[inline]
    fn copy_part_to(&self, offset: usize, target: &mut [u8]) {
        assert!(offset <= self.len() && target.len() <= self.len() - offset);
        // SAFETY: both are valid for the length, by the assert, and distinct, because `target` is borrowed mutably. No
        // reference to the piece's bytes is made.
        unsafe { std::ptr::copy_nonoverlapping(self.address().add(offset), target.as_mut_ptr(), target.len()) }
    }
    /// Copies all its bytes. Panics if the lengths differ.
    #[inline]
    fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(self.len(), target.len());
        self.copy_part_to(0, target);
    }
    /// Splits off the first `bytes` bytes. Panics if there are fewer.
    fn split_to(&mut self, bytes: usize) -> Self;
    /// Appends `next` if it directly follows in the same block; otherwise returns it.
    fn try_join(&mut self, next: Self) -> Option<Self>;
}

macro_rules! piece {
    ($name:ident) => {
        impl sealed::Sealed for $name {}

        #[allow(clippy::len_without_is_empty, reason = "no piece is empty")]
        impl $name {
            /// Its length in bytes.
            #[inline]
            pub fn len(&self) -> usize {
                self.0.length()
            }
        }

        impl Piece for $name {
            #[inline]
            fn len(&self) -> usize {
                self.0.length()
            }
            #[inline]
            fn address(&self) -> *const u8 {
                self.0.start().as_ptr()
            }
            #[inline]
            fn split_to(&mut self, bytes: usize) -> $name {
                $name(self.0.split_to(bytes))
            }
            #[inline]
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
