//! What md stores beside the superblock: write-intent bitmap, bad-block log, partial parity log, journal.
//! Owns: their bytes. Not here: their places among other things on a member (`change`), when they are written (`engine`).
//! Called by `change`.

pub mod bad_blocks;
pub mod bitmap;
pub mod journal;
pub mod ppl;
