//! md's bytes on disk: superblocks, bitmaps, logs, what `--create` chooses, signatures of other owners of a device.
//! Owns: every offset of every on-disk field. Not here: reading or writing a device (`host`), trust in members
//! (`engine`).
//! Invariant: a [`Superblock`] that exists was checked; encoding it gives the bytes that md itself would write.
//! Spec: docs/format; docs/md/formats.md.

mod change;
mod crc32;
mod logs;
mod other_formats;
mod superblock;

pub use change::add::{
    Joining, ROLES_MAX, TooSmall, returned_superblock, roles_with, superblock as added_superblock, writes_before,
};
pub use change::{create, update};
pub use logs::{bad_blocks, bitmap, journal, ppl};
pub use other_formats::{file_system, partition, signature};
pub use superblock::features::Features;
pub use superblock::find::{FindError, Found, OtherPlace, Standing, find};
pub use superblock::member_flag::{FlagChange, MemberFlag, NoCopies};
pub use superblock::set_name::{NameTooLong, SetName};
pub use superblock::uuid;
pub use superblock::version::Version;
pub use superblock::{
    BadBlocks, Checksum, Disk090, Reshape, ReshapeError, ReshapePlan, ReshapeShape, Role, SUPERBLOCK_BYTES, Superblock,
    Superblock090, SuperblockError, TIME_SECONDS_MASK, location_v12,
};
