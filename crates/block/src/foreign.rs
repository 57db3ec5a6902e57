//! Memory of somebody else that writes take as it is: of a guest, of a driver.
//! Owns: [`ForeignMemory`]. Not here: its pieces (`buffer`), who copies them (the engine, for levels with redundancy).
//! Invariant: `held` is dropped after the last piece, so a device never reads memory that was let go.
//!
//! ```text
//!   guest memory   |-----------------------------------|     held: the mapping
//!                        |-- Shared --|     |- Shared -|     pieces of requests in flight
//! ```
//!
//! A guest can write its buffer while the request is in flight. A single copy then has old or new bytes, as on a disk.
//! Two copies would differ, and parity would be that of bytes that no member has. So who stores more than one copy, or
//! computes anything from the bytes, copies them first ([`WritePieces::may_change`](crate::WritePieces::may_change)).
//!
//! Reads have no such pieces: a frontend reads into an [`Arena`] and copies, so that what the engine compares, corrects
//! or writes back is never in the hands of a guest.

use crate::buffer::{Arena, Shared};
use crate::{SECTOR_BYTES, WritePieces};
use std::any::Any;
use std::ptr::NonNull;

/// Whether the owner of foreign memory can write it while a request uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changes {
    /// It keeps the bytes until the request is answered, as a kernel driver keeps its copy of them.
    Never,
    /// It can write them at any time, as a guest can.
    AnyTime,
}

/// Why a piece of foreign memory cannot be lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LendError {
    /// The bytes are not all inside the memory.
    #[error("{bytes} bytes at {offset} are outside the {size} bytes of this memory")]
    Outside {
        /// From the memory's start.
        offset: usize,
        /// The number of bytes that were requested.
        bytes: usize,
        /// All its bytes.
        size: usize,
    },
    /// The number of bytes is zero, no multiple of a sector, or above 2 GiB.
    #[error(
        "a piece of {bytes} bytes, expected whole sectors of {SECTOR_BYTES} bytes, at most {PIECE_BYTES_MAX} bytes"
    )]
    Length {
        /// The number of bytes that were requested.
        bytes: usize,
    },
    /// Too many pieces are in use. An answer, not a failure: wait and ask again.
    #[error("all {pieces_max} pieces of this memory are in use")]
    Full {
        /// How many there are.
        pieces_max: usize,
    },
}

const PIECE_BYTES_MAX: usize = 1 << 31;
const _: () = assert!(PIECE_BYTES_MAX <= u32::MAX as usize && PIECE_BYTES_MAX.is_multiple_of(SECTOR_BYTES));

/// Memory of somebody else. It stays on the thread that made it; pieces may move to other threads.
pub struct ForeignMemory(Arena);

impl ForeignMemory {
    /// The `bytes` bytes from `start`. At most `pieces_max` pieces can be in use at once. Panics if either is zero.
    ///
    /// `held` keeps the memory: it is dropped with this value, or with the last piece if that is later, on the thread
    /// that made this value. If the very last piece is dropped on another thread, `held` is never dropped.
    ///
    /// # Safety
    ///
    /// All the memory can be read until `held` is dropped. With [`Changes::Never`], nobody writes bytes of a piece while
    /// it exists. With [`Changes::AnyTime`], only other processes, or this thread between two polls of a request, do.
    pub unsafe fn new(
        start: NonNull<u8>,
        bytes: usize,
        pieces_max: u32,
        changes: Changes,
        held: impl Any,
    ) -> ForeignMemory {
        assert!(bytes > 0);
        // SAFETY: as the caller promises.
        ForeignMemory(unsafe { Arena::over((start, bytes), pieces_max, changes == Changes::AnyTime, Box::new(held)) })
    }

    /// A piece for a write: `bytes` bytes, `offset` from the start. Nothing is copied.
    ///
    /// Any address will do; a direct file copies the bytes of one that its device cannot take.
    ///
    /// # Errors
    ///
    /// If it is not inside the memory, is no number of sectors, or too many pieces are in use.
    pub fn lend(&self, offset: usize, bytes: usize) -> Result<Shared, LendError> {
        let size = self.0.capacity_bytes();
        if offset > size || bytes > size - offset {
            return Err(LendError::Outside { offset, bytes, size });
        }
        if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES) || bytes > PIECE_BYTES_MAX {
            return Err(LendError::Length { bytes });
        }
        self.0.piece_at(offset, bytes).ok_or(LendError::Full { pieces_max: self.0.blocks() })
    }

    /// The pieces in use, each counted once, however often it was cut or cloned.
    pub fn pieces_in_use(&self) -> usize {
        self.0.blocks_in_use()
    }
}

impl WritePieces {
    /// Whether somebody else may write some of the bytes at any time.
    #[inline]
    pub fn may_change(&self) -> bool {
        self.iter().any(Shared::may_change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    struct Mapping(Rc<Cell<bool>>, #[allow(dead_code, reason = "kept")] Box<[u8]>);

    impl Drop for Mapping {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    fn memory(bytes: usize, pieces_max: u32, changes: Changes) -> (ForeignMemory, NonNull<u8>, Rc<Cell<bool>>) {
        let let_go = Rc::new(Cell::new(false));
        let mut content: Box<[u8]> = (0..bytes).map(|at| (at / SECTOR_BYTES) as u8).collect();
        let start = NonNull::from(&mut content[..]).cast();
        let held = Mapping(let_go.clone(), content);
        // SAFETY: the box stays where it is, and `held` keeps it.
        (unsafe { ForeignMemory::new(start, bytes, pieces_max, changes, held) }, start, let_go)
    }

    #[test]
    fn pieces_are_the_memory_itself_and_keep_it() {
        let (memory, start, let_go) = memory(8 * SECTOR_BYTES, 2, Changes::Never);
        let mut pieces = WritePieces::new();
        pieces.push(memory.lend(2 * SECTOR_BYTES, 2 * SECTOR_BYTES).expect("inside"));
        assert_eq!(pieces.iter().next().expect("one").as_ptr(), start.as_ptr().wrapping_add(2 * SECTOR_BYTES));
        assert_eq!((pieces.to_vec()[0], pieces.to_vec()[SECTOR_BYTES]), (2, 3));
        assert!(!pieces.may_change());
        let tail = pieces.clone().slice(SECTOR_BYTES, SECTOR_BYTES);
        assert_eq!(memory.pieces_in_use(), 1);
        drop(memory);
        drop(pieces);
        assert!(!let_go.get(), "a cut piece is left");
        assert_eq!(tail.to_vec(), [3; SECTOR_BYTES]);
        drop(tail);
        assert!(let_go.get());
    }

    #[test]
    fn what_cannot_be_lent_is_refused() {
        let (memory, _, let_go) = memory(8 * SECTOR_BYTES, 1, Changes::AnyTime);
        let size = 8 * SECTOR_BYTES;
        for (offset, bytes) in
            [(size, SECTOR_BYTES), (0, size + SECTOR_BYTES), (usize::MAX, SECTOR_BYTES), (1, usize::MAX)]
        {
            assert_eq!(memory.lend(offset, bytes).err(), Some(LendError::Outside { offset, bytes, size }));
        }
        for bytes in [0, 1, SECTOR_BYTES + 1] {
            assert_eq!(memory.lend(0, bytes).err(), Some(LendError::Length { bytes }));
        }
        let one = memory.lend(0, size).expect("inside");
        assert_eq!(memory.lend(0, SECTOR_BYTES).err(), Some(LendError::Full { pieces_max: 1 }));
        drop(one);
        let other = memory.lend(SECTOR_BYTES + 7, SECTOR_BYTES).expect("any address");
        drop((memory, other));
        assert!(let_go.get());
    }

    #[test]
    fn bytes_that_may_change_are_copied_and_never_borrowed() {
        let (memory, start, _) = memory(2 * SECTOR_BYTES, 1, Changes::AnyTime);
        let mut pieces = WritePieces::new();
        pieces.push(memory.lend(0, 2 * SECTOR_BYTES).expect("inside"));
        assert!(pieces.may_change() && pieces.length().0 == 2 && !pieces.is_empty());
        let rest = pieces.slice(SECTOR_BYTES, SECTOR_BYTES);
        // SAFETY: inside the memory; there is no reference to it.
        unsafe { start.as_ptr().write(77) };
        let mut copy = [0; 2 * SECTOR_BYTES];
        pieces.copy_to(&mut copy);
        assert_eq!((copy[0], copy[1], copy[SECTOR_BYTES]), (77, 0, 1));
        assert!(rest.may_change());
        let borrowed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rest.iter().next().map(|piece| piece[0])));
        assert!(borrowed.is_err());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "pieces travel in the mail of shards")]
    fn another_thread_may_drop_a_piece() {
        let (memory, _, let_go) = memory(SECTOR_BYTES, 1, Changes::Never);
        for _ in 0..3 {
            let piece = memory.lend(0, SECTOR_BYTES).expect("the piece before has returned");
            std::thread::spawn(move || assert_eq!(piece[0], 0)).join().expect("equal");
        }
        drop(memory);
        assert!(let_go.get());
    }
}
