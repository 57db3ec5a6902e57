//! md's bytes on disk: superblocks, bitmaps, logs, what `--create` chooses, signatures of other owners of a device.
//! Owns: every offset of every on-disk field. Not here: reading or writing a device (`host`), trust in members
//! (`engine`).
//! Invariant: a [`Superblock`] that exists was checked; encoding it gives the bytes that md itself would write.
//! Spec: docs/format; docs/md/formats.md.

mod add;
pub mod bad_blocks;
pub mod bitmap;
mod crc32;
pub mod create;
mod features;
pub mod file_system;
mod find;
pub mod journal;
mod member_flag;
mod name;
pub mod partition;
pub mod ppl;
pub mod signature;
mod superblock;
pub mod update;
pub mod uuid;
mod version;

pub use add::{
    Joining, ROLES_MAX, TooSmall, returned_superblock, roles_with, superblock as added_superblock, writes_before,
};
pub use features::Features;
pub use find::{FindError, Found, OtherPlace, Standing, find};
pub use member_flag::{FlagChange, MemberFlag, NoCopies};
pub use name::{NameTooLong, SetName};
pub use superblock::{
    BadBlocks, Checksum, Disk090, Reshape, ReshapeError, ReshapePlan, ReshapeShape, Role, SUPERBLOCK_BYTES, Superblock,
    Superblock090, SuperblockError, TIME_SECONDS_MASK, location_v12,
};
pub use version::Version;
