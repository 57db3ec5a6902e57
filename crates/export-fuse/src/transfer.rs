//! Reads, writes and zeroes of one file, at any byte.
//! Owns: [`OpenFile`]: what happens at the file's end, whole and ragged ranges. Not here: who runs beside whom (`turns`),
//! the messages (`server`).
//! Invariant: a device gets whole blocks only. Bytes that a write does not name stay what they are. A range is zeroes
//! when `zero` has ended, whatever its ends.
//!
//! ```text
//!   blocks    |........|........|........|        a write of the bytes ==
//!                  =================              reads the first and the last block, and writes all three
//! ```

use crate::common::FileState;
use crate::errors::errno;
use crate::folder::File;
use crate::memory::Memory;
use uraid_block::local::yield_now;
use uraid_block::{Device, Fua, ReadPieces, SECTOR_BYTES, Sector, Sectors};
use uraid_fuse::words::fallocate;
use uraid_fuse::{Errno, Range};

/// The longest piece of zeroes that may have to be written: other requests get their turn behind each.
const ZEROES_BYTES_MAX: u64 = 4 << 20;
/// The longest piece of zeroes that move no data: a loop device asks for at most 4 GiB, and each member gets its part of
/// that as one request.
const FAST_BYTES_MAX: u64 = 4 << 30;

/// One file, with what its requests need.
pub(crate) struct OpenFile<'a, D> {
    pub(crate) file: &'a File,
    pub(crate) state: &'a FileState,
    pub(crate) device: &'a D,
    pub(crate) memory: &'a Memory,
}

fn sector(byte: u64) -> Sector {
    assert!(byte.is_multiple_of(SECTOR_BYTES as u64));
    Sector(byte / SECTOR_BYTES as u64)
}

impl<D: Device> OpenFile<'_, D> {
    /// The bytes of the range that the file has, which may be none.
    pub(crate) async fn read(&self, range: Range) -> Result<ReadPieces, Errno> {
        let (start, end) = self.clip(range);
        if start == end {
            return Ok(ReadPieces::new());
        }
        let (first, last) = self.cover(start, end);
        let into = self.memory.take((last - first) as usize).await;
        let mut data = self.device.read(sector(first), into).await.map_err(errno)?;
        drop(data.split_to((start - first) as usize));
        Ok(data.split_to((end - start) as usize))
    }

    /// Writes as many of the bytes as the file has room for, and returns how many. As with a block device, that is
    /// ENOSPC if there is room for none.
    pub(crate) async fn write(&self, offset: u64, mut data: ReadPieces) -> Result<u32, Errno> {
        self.check_writable()?;
        if data.is_empty() {
            return Ok(0);
        }
        let (start, end) = self.clip(Range { offset, length: data.bytes() as u64 });
        if start == end {
            return Err(Errno::NoSpc);
        }
        let bytes = (end - start) as usize;
        let data = if bytes < data.bytes() { data.split_to(bytes) } else { data };
        if self.cover(start, end) == (start, end) {
            let _turn = self.state.turns.whole().await;
            self.device.write(sector(start), data.freeze(), Fua::No).await.map_err(errno)?;
        } else {
            self.write_ragged(start, &data).await?;
        }
        Ok(bytes as u32)
    }

    /// Makes the range zeroes, exactly. It must begin in the file. `mode` is that of fallocate(2): with KEEP_SIZE bytes
    /// behind the file's end are left out, with PUNCH_HOLE the members give space back. Holes that would have to be
    /// written are refused: a loop device punches where a file system only discards, and mkfs would write zeroes for hours.
    pub(crate) async fn zero(&self, range: Range, mode: u32) -> Result<(), Errno> {
        self.check_writable()?;
        let (may_exceed, punches) = (mode & fallocate::KEEP_SIZE != 0, mode & fallocate::PUNCH_HOLE != 0);
        let (start, end) = self.clip(range);
        if start == end || (end - start < range.length && !may_exceed) {
            return Err(Errno::Inval);
        }
        let geometry = self.device.geometry();
        if punches && !geometry.fast_holes {
            return Err(Errno::OpNotSupp);
        }
        let block = self.file.block;
        let (whole_start, whole_end) = (start.next_multiple_of(block), end / block * block);
        if whole_start >= whole_end {
            // Inside one block, or the end of one and the beginning of the next.
            let middle = whole_start.clamp(start, end);
            self.zero_ragged(start, middle).await?;
            return self.zero_ragged(middle, end).await;
        }
        self.zero_ragged(start, whole_start).await?;
        let longest = if punches || geometry.fast_zeroes { FAST_BYTES_MAX } else { ZEROES_BYTES_MAX };
        let mut at = whole_start;
        while at < whole_end {
            let piece = self.piece_end(at, whole_end, longest);
            let range = uraid_block::Range::between(sector(at), sector(piece));
            {
                let _turn = self.state.turns.whole().await;
                let zeroed = match punches {
                    true => self.device.punch_hole(range).await,
                    false => self.device.write_zeroes(range).await,
                };
                zeroed.map_err(errno)?;
            }
            at = piece;
            yield_now().await;
        }
        self.zero_ragged(whole_end, end).await
    }

    /// The file's data are everything: the next data, or the next hole, from `offset`.
    pub(crate) fn seek(&self, offset: u64, is_hole: bool) -> Result<u64, Errno> {
        let size = self.size();
        match offset < size {
            true => Ok(if is_hole { size } else { offset }),
            false => Err(Errno::NxIo),
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Errno> {
        if self.file.export.read_only || self.device.is_read_only() { Err(Errno::RoFs) } else { Ok(()) }
    }

    /// The first byte of the range, and the byte behind its last one, inside the file.
    fn clip(&self, range: Range) -> (u64, u64) {
        let size = self.size();
        let start = range.offset.min(size);
        (start, range.offset.saturating_add(range.length).min(size))
    }

    /// The size of the file at this moment.
    fn size(&self) -> u64 {
        self.file.size(&self.device.geometry())
    }

    /// The same in whole blocks. A file has whole blocks, so they are inside it; the device refuses them if it has become
    /// smaller since.
    fn cover(&self, start: u64, end: u64) -> (u64, u64) {
        let block = self.file.block;
        (start / block * block, end.next_multiple_of(block))
    }

    /// The end of the piece at `at`, of about `longest` bytes: at the end of a stripe if a piece has one, because the
    /// parity of a stripe that is cut is computed twice.
    fn piece_end(&self, at: u64, end: u64, longest: u64) -> u64 {
        let furthest = end.min(at + longest);
        let stripe = self.device.geometry().stripe.bytes();
        let aligned = furthest.checked_rem(stripe).map_or(furthest, |beyond| furthest - beyond);
        if furthest < end && aligned > at && aligned.is_multiple_of(self.file.block) { aligned } else { furthest }
    }

    async fn zero_ragged(&self, start: u64, end: u64) -> Result<(), Errno> {
        if start == end {
            return Ok(());
        }
        let mut zeroes = self.memory.take((end - start) as usize).await;
        zeroes.fill(0);
        self.write_ragged(start, &zeroes).await
    }

    /// Writes bytes of which the first or the last block is not whole.
    async fn write_ragged(&self, start: u64, data: &ReadPieces) -> Result<(), Errno> {
        let (block, end) = (self.file.block, start + data.bytes() as u64);
        let (first, last) = self.cover(start, end);
        // Before the turn: a write that waits for its turn may hold the memory that this one waits for.
        let mut rest = self.memory.take((last - first) as usize).await;
        let _turn = self.state.turns.ragged().await;
        let mut blocks = rest.split_to(block as usize);
        let has_tail = last - first > block;
        if start > first || (!has_tail && end < last) {
            blocks = self.device.read(sector(first), blocks).await.map_err(errno)?;
        }
        if has_tail {
            let middle = rest.bytes() - block as usize;
            blocks.append(rest.split_to(middle));
            if end < last {
                rest = self.device.read(sector(last - block), rest).await.map_err(errno)?;
            }
            blocks.append(rest);
        }
        let mut front = blocks.split_to((start - first) as usize);
        let mut changed = blocks.split_to(data.bytes());
        changed.copy_from_pieces(data);
        front.append(changed);
        front.append(blocks);
        assert_eq!(front.length(), Sectors((last - first) / SECTOR_BYTES as u64));
        self.device.write(sector(first), front.freeze(), Fua::No).await.map_err(errno)
    }
}
