//! Lists of buffer pieces: one vectored I/O.
//! Owns: [`Pieces`], [`Cutter`]; cutting, joining and copying across piece boundaries. Not here: the memory (`buffer`).
//! Invariant: no piece is empty, and pieces that are adjacent in memory are joined.

use crate::buffer::{Arena, ArenaFull, Lease, Piece, Shared};
use crate::{SECTOR_BYTES, Sectors};
use smallvec::SmallVec;

/// Bytes in several pieces, in order: one vectored I/O. Pieces that are adjacent in memory are joined.
///
/// Aligned for two reasons: it is moved as two words of 16 bytes, and a `Result` stores the error beside it instead of
/// overlapping it. Without the alignment, one load would cover several smaller stores and would have to wait for all of
/// them (no store forwarding).
#[derive(Debug)]
#[repr(align(16))]
pub struct Pieces<P> {
    list: SmallVec<[P; 1]>,
    bytes: usize,
}

/// Buffers for a read: each byte has one owner.
pub type ReadPieces = Pieces<Lease>;
/// Buffers for a write: read-only, cheap to clone.
pub type WritePieces = Pieces<Shared>;

impl<P: Piece> Default for Pieces<P> {
    fn default() -> Pieces<P> {
        Pieces::new()
    }
}

impl<P: Piece> Pieces<P> {
    /// An empty list. The first piece is stored inline, without an allocation.
    pub fn new() -> Pieces<P> {
        Pieces { list: SmallVec::new(), bytes: 0 }
    }

    /// The total length of all pieces in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The total length in sectors. Panics if it is not a whole number of sectors; device I/O always is.
    pub fn length(&self) -> Sectors {
        assert!(self.bytes.is_multiple_of(SECTOR_BYTES));
        Sectors((self.bytes / SECTOR_BYTES) as u64)
    }

    /// The pieces, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, P> {
        self.list.iter()
    }

    /// The number of pieces.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The only piece; the list itself if it has none, or several.
    #[inline]
    pub fn into_only(mut self) -> Result<P, Pieces<P>> {
        match self.list.pop() {
            Some(only) if self.list.is_empty() => Ok(only),
            last => {
                self.list.extend(last);
                Err(self)
            }
        }
    }

    /// Appends a piece; ignores an empty one.
    pub fn push(&mut self, piece: P) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        let rest = match self.list.last_mut() {
            Some(last) => last.try_join(piece),
            None => Some(piece),
        };
        if let Some(piece) = rest {
            self.list.push(piece);
        }
    }

    /// Appends all pieces of `other`.
    pub fn append(&mut self, other: Pieces<P>) {
        for piece in other.list {
            self.push(piece);
        }
    }

    /// An empty list with room for this many pieces.
    pub fn with_room(pieces: usize) -> Pieces<P> {
        Pieces { list: SmallVec::with_capacity(pieces), bytes: 0 }
    }

    /// A cutter that moves all bytes on in order, in parts of any length.
    pub fn cutter(self) -> Cutter<P> {
        Cutter { rest: None, list: self.list.into_iter() }
    }

    /// Splits off the first `bytes` bytes. Panics if there are fewer.
    pub fn split_to(&mut self, bytes: usize) -> Pieces<P> {
        assert!(bytes <= self.bytes);
        let mut front = Pieces::new();
        let mut whole = 0;
        for piece in &mut self.list {
            let wanted = bytes - front.bytes;
            if wanted == 0 || piece.len() > wanted {
                if wanted > 0 {
                    let part = piece.split_to(wanted);
                    front.bytes += part.len();
                    front.list.push(part);
                }
                break;
            }
            front.bytes += piece.len();
            whole += 1;
        }
        if whole > 0 {
            let tail = self.list.drain(whole..).collect();
            let part = front.list;
            front.list = std::mem::replace(&mut self.list, tail);
            front.list.extend(part);
        }
        self.bytes -= bytes;
        front
    }

    /// Copies all bytes into `target`. Panics if the lengths differ.
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(self.bytes, target.len());
        let mut at = 0;
        for piece in &self.list {
            piece.copy_to(&mut target[at..at + piece.len()]);
            at += piece.len();
        }
    }

    /// All bytes in one vector: for metadata and tests, not for hot paths.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.bytes];
        self.copy_to(&mut all);
        all
    }
}

/// Moves pieces on in order. Each piece is moved once, however many parts are cut.
pub struct Cutter<P> {
    /// The rest of a piece that was cut.
    rest: Option<P>,
    list: smallvec::IntoIter<[P; 1]>,
}

impl<P: Piece> Cutter<P> {
    /// Moves the next `bytes` bytes to the end of `to`. Panics if there are fewer.
    pub fn cut(&mut self, bytes: usize, to: &mut Pieces<P>) {
        let mut wanted = bytes;
        while wanted > 0 {
            let mut piece = self.rest.take().or_else(|| self.list.next()).expect("as many bytes as are wanted");
            if piece.len() > wanted {
                to.push(piece.split_to(wanted));
                self.rest = Some(piece);
                return;
            }
            wanted -= piece.len();
            to.push(piece);
        }
    }

    /// Whether all bytes were moved on.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none() && self.list.len() == 0
    }
}

impl ReadPieces {
    /// The pieces, in order, mutable.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Lease> {
        self.list.iter_mut()
    }

    /// Sets every byte.
    pub fn fill(&mut self, byte: u8) {
        for piece in &mut self.list {
            piece.fill(byte);
        }
    }

    /// Copies `source` into the buffers. Panics if the lengths differ.
    pub fn copy_from(&mut self, source: &[u8]) {
        assert_eq!(self.bytes, source.len());
        let mut at = 0;
        for piece in &mut self.list {
            let length = piece.len();
            piece.copy_from_slice(&source[at..at + length]);
            at += length;
        }
    }

    /// Copies `source`, whose pieces may have other boundaries, into the buffers. Panics if the lengths differ.
    pub fn copy_from_pieces<P: Piece>(&mut self, source: &Pieces<P>) {
        assert_eq!(self.bytes, source.bytes);
        let mut from = source.list.iter();
        let (mut piece, mut at) = (from.next(), 0);
        for target in &mut self.list {
            let mut filled = 0;
            while filled < target.len() {
                let now = piece.expect("the lengths are equal");
                let length = (now.len() - at).min(target.len() - filled);
                now.copy_part_to(at, &mut target[filled..filled + length]);
                (filled, at) = (filled + length, at + length);
                if at == now.len() {
                    (piece, at) = (from.next(), 0);
                }
            }
        }
    }

    /// Makes all bytes read-only.
    #[inline]
    pub fn freeze(mut self) -> WritePieces {
        let mut list = SmallVec::new();
        // One piece is the usual case. It is moved without the iterator, which costs a write of 4 KiB 10 ns.
        match self.list.pop() {
            Some(only) if self.list.is_empty() => list.push(only.freeze()),
            last => list.extend(self.list.into_iter().chain(last).map(Lease::freeze)),
        }
        Pieces { bytes: self.bytes, list }
    }
}

impl Arena {
    /// Leases `bytes` bytes of undefined content, in as few pieces as the block sizes allow. Panics on zero bytes.
    pub fn take(&self, bytes: usize) -> Result<ReadPieces, ArenaFull> {
        assert!(bytes > 0);
        let mut pieces = ReadPieces::new();
        while pieces.bytes() < bytes {
            pieces.push(self.take_piece(bytes - pieces.bytes()).ok_or(ArenaFull { bytes })?);
        }
        Ok(pieces)
    }

    /// Leases `bytes` zero bytes.
    pub fn take_zeroed(&self, bytes: usize) -> Result<ReadPieces, ArenaFull> {
        let mut pieces = self.take(bytes)?;
        pieces.fill(0);
        Ok(pieces)
    }
}

impl Clone for WritePieces {
    #[inline]
    fn clone(&self) -> WritePieces {
        let mut list = SmallVec::new();
        match &self.list[..] {
            // As in `freeze`.
            [only] => list.push(only.clone()),
            all => list.extend(all.iter().cloned()),
        }
        Pieces { list, bytes: self.bytes }
    }
}

impl WritePieces {
    /// `length` bytes from `offset`, sharing the memory. Panics if they exceed the list.
    pub fn slice(&self, offset: usize, length: usize) -> WritePieces {
        assert!(offset <= self.bytes && length <= self.bytes - offset);
        let mut part = Pieces::new();
        let mut at = 0;
        for piece in &self.list {
            let from = offset.max(at);
            let to = (offset + length).min(at + piece.len());
            if from < to {
                part.push(piece.slice(from - at, to - from));
            }
            at += piece.len();
        }
        part
    }
}

impl<P> IntoIterator for Pieces<P> {
    type Item = P;
    type IntoIter = smallvec::IntoIter<[P; 1]>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}
