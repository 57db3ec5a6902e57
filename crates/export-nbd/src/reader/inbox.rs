//! Bytes that were received and not used yet.
//! Owns: [`Inbox`]. Not here: the meaning of the bytes, the socket.
//! Invariant: bytes leave in the order they arrived. If a failed receive loses the block, the connection ends.
//!
//! ```text
//!   block   | used | unread (start..end) | room |
//! ```

use uraid_block::Lease;
use uraid_block::buffer::{LARGE_BLOCK_BYTES, Piece, SMALL_BLOCK_BYTES};

/// One block of memory that is received into.
pub(crate) struct Inbox {
    block: Option<Lease>,
    start: usize,
    end: usize,
    last_received: usize,
    is_filled: bool,
}

impl Inbox {
    pub(crate) fn new(block: Lease) -> Inbox {
        Inbox { block: Some(block), start: 0, end: 0, last_received: 0, is_filled: false }
    }

    /// The block size that fits the last receives: large if they filled the small block to its end, small if the small
    /// block would have held them all. `None`: keep the current one.
    pub(crate) fn better_size(&self) -> Option<usize> {
        let has = self.block.as_ref()?.len();
        match has <= SMALL_BLOCK_BYTES {
            true => self.is_filled.then_some(LARGE_BLOCK_BYTES),
            false => (self.last_received <= SMALL_BLOCK_BYTES).then_some(SMALL_BLOCK_BYTES),
        }
    }

    /// Moves to another block. Panics when the unread bytes do not fit.
    pub(crate) fn move_to(&mut self, mut block: Lease) {
        let count = self.copy_to(&mut block);
        assert_eq!(self.unread().len(), 0);
        *self = Inbox { end: count, ..Inbox::new(block) };
    }

    /// What was received and not used yet.
    pub(crate) fn unread(&self) -> &[u8] {
        match &self.block {
            Some(block) => &block[self.start..self.end],
            None => &[],
        }
    }

    /// Marks the first bytes as used. Panics if there are fewer.
    pub(crate) fn consume(&mut self, bytes: usize) {
        assert!(self.start <= self.end);
        assert!(bytes <= self.end - self.start);
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Copies the unread bytes that fit into `target`; returns how many.
    pub(crate) fn copy_to(&mut self, target: &mut [u8]) -> usize {
        let unread = self.unread();
        let count = unread.len().min(target.len());
        target[..count].copy_from_slice(&unread[..count]);
        self.consume(count);
        count
    }

    /// The room after the unread bytes, at most `bytes_max`, to receive into; call [`Inbox::received`] if something
    /// arrived. `None` if an earlier receive has failed.
    pub(crate) fn room(&mut self, bytes_max: usize) -> Option<&mut [u8]> {
        self.make_room();
        let room = &mut self.block.as_mut()?[self.end..];
        let length = bytes_max.min(room.len());
        Some(&mut room[..length])
    }

    /// Records that `bytes` bytes were received into the room. Panics if the room is smaller.
    pub(crate) fn received(&mut self, bytes: usize) {
        let size = self.block.as_ref().map_or(0, |block| block.len());
        assert!(bytes <= size - self.end);
        self.end += bytes;
        self.last_received = bytes;
        self.is_filled = self.end == size;
    }

    /// Moves the unread bytes to the front. Panics if they fill the block: no message header is that long, and a
    /// receive without room would return 0 bytes, as if the peer had closed.
    fn make_room(&mut self) {
        let Some(block) = &mut self.block else { return };
        if self.start > 0 {
            block.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        assert!(self.end < block.len());
    }

    /// Takes the room after the unread bytes, at most `bytes_max`, to receive into. `None` if an earlier receive has
    /// failed.
    pub(crate) fn take_room(&mut self, bytes_max: usize) -> Option<Room> {
        self.make_room();
        let mut block = self.block.take()?;
        let front = (self.end > 0).then(|| block.split_to(self.end));
        let room = bytes_max.min(block.len());
        let (room, rest) = if room < block.len() { (block.split_to(room), Some(block)) } else { (block, None) };
        Some(Room { front, room, rest })
    }

    /// Joins the block again after `received` bytes arrived in the room.
    pub(crate) fn give_back(&mut self, front: Option<Lease>, room: Lease, rest: Option<Lease>, received: usize) {
        assert!(self.block.is_none(), "the room was taken");
        assert!(received <= room.len());
        let mut block = match front {
            Some(mut front) => {
                let left_over = front.try_join(room);
                assert!(left_over.is_none(), "the room lies behind the front");
                front
            }
            None => room,
        };
        if let Some(rest) = rest {
            let left_over = block.try_join(rest);
            assert!(left_over.is_none(), "the rest lies behind the room");
        }
        self.block = Some(block);
        self.received(received);
    }
}

/// The block of an inbox, split into three leases while the middle one is received into.
pub(crate) struct Room {
    pub(crate) front: Option<Lease>,
    pub(crate) room: Lease,
    pub(crate) rest: Option<Lease>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Arena;

    #[test]
    fn bytes_leave_in_the_order_they_came_however_they_are_received() {
        let arena = Arena::new(1, 0);
        let block = arena.take(4096).expect("room").into_iter().next().expect("one piece");
        let mut inbox = Inbox::new(block);
        let (mut next_in, mut next_out) = (0u32, 0u32);
        for step in 0..5000usize {
            let Room { front, mut room, rest } = inbox.take_room([28, 4096, 100][step % 3]).expect("not lost");
            let received = room.len().min(step * 37 % 400 + 1);
            for byte in &mut room[..received] {
                *byte = (next_in % 251) as u8;
                next_in += 1;
            }
            inbox.give_back(front, room, rest, received);
            // Leave less than a header unread, as the reader of requests does.
            while inbox.unread().len() >= 28 {
                let mut target = [0; 28];
                let count = inbox.copy_to(&mut target[..step % 28 + 1]);
                for byte in &target[..count] {
                    assert_eq!(*byte, (next_out % 251) as u8);
                    next_out += 1;
                }
            }
        }
        assert!(next_out > 100_000);
        drop(inbox);
        assert_eq!(arena.blocks_in_use(), 0);
    }
}
