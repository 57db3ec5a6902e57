//! Where on a simulated member its superblock, bitmap and logs lie, one behind the other.
//! Owns: the first sector of each and how many it takes. Not here: what is in them (`bits`, `logs`, `ppl`), where the
//! data begins, which each seed draws (`setup`), a partial parity log's size, which its chunk decides (`ppl`).

/// The place of a 1.2 superblock.
pub const SUPER_AT: u64 = 8;
/// The sectors reserved for the superblock.
pub const SUPER_SECTORS: u64 = 8;
/// Where the bitmap begins: behind the superblock, as mdadm puts it.
pub const BITMAP_AT: u64 = SUPER_AT + SUPER_SECTORS;
/// Sectors reserved for it: one page, which holds 30720 bits.
pub const BITMAP_SECTORS: u64 = 8;
/// Where a bad-block log begins: behind the bitmap.
pub const LOG_AT: u64 = BITMAP_AT + BITMAP_SECTORS;
/// The sectors of a bad-block log.
pub const LOG_SECTORS: u64 = 8;
/// Where a partial parity log begins: behind the bad-block log.
pub const PPL_AT: u64 = LOG_AT + LOG_SECTORS;
