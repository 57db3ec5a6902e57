//! Why 4096 bytes are not a superblock that uraid can use.
//! Owns: [`SuperblockError`]. Not here: what is missing from a set of good superblocks (`engine::assemble`).

use uraid_block::Sectors;

/// What is wrong with the bytes. Sectors count from the start of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    /// There is no md superblock here.
    #[error("no md superblock: magic is {found:#010x}, expected 0xa92b4efc")]
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// md's, but of another format.
    #[error("superblock has major version {found}, expected 0 or 1")]
    Version {
        /// The version in the superblock.
        found: u32,
    },
    /// A 0.90 superblock of a host with the other byte order.
    #[error("superblock 0.90 is in big-endian byte order, expected little-endian")]
    ByteOrder,
    /// A 0.90 superblock with an unknown minor version.
    #[error("superblock has version 0.{found}, expected 0.90 or 0.91")]
    MinorVersion {
        /// The minor version in the superblock.
        found: u32,
    },
    /// An impossible chunk of 0.90, which counts bytes.
    #[error("superblock has a chunk of {found} bytes, expected a multiple of 512")]
    ChunkBytes {
        /// The value in the superblock.
        found: u32,
    },
    /// An impossible slot in a descriptor of 0.90.
    #[error("superblock puts device {number} in slot {found}, expected at most {maximum}")]
    DiskSlot {
        /// The device's number.
        number: usize,
        /// The slot in its descriptor.
        found: u32,
        /// The highest possible slot.
        maximum: u32,
    },
    /// A superblock at a place that no version has.
    #[error("superblock at sector {found_at}, where no version has its place on a device of this size")]
    NoPlace {
        /// Where it is.
        found_at: u64,
    },
    /// Bytes are damaged, or a write was torn.
    #[error("superblock checksum is {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// The sum in the superblock.
        found: u32,
        /// The sum of its bytes.
        computed: u32,
    },
    /// The table is longer than possible.
    #[error("superblock counts {found} role entries, at most {maximum} fit")]
    TooManyRoles {
        /// The value in the superblock.
        found: u32,
        /// The largest that fits in 4096 bytes.
        maximum: u32,
    },
    /// The superblock belongs elsewhere: it was read from a partition through its whole disk, or is a copy.
    #[error("superblock found at sector {found}, but it says that it belongs at sector {expected}")]
    Place {
        /// Where it was found.
        found: u64,
        /// The place that it records.
        expected: u64,
    },
    /// No md superblock fits on such a device.
    #[error("device has {found}, at least {minimum} are needed")]
    DeviceTooSmall {
        /// The device's size.
        found: Sectors,
        /// The least size.
        minimum: Sectors,
    },
    /// Data would overlap the superblock, or start outside.
    #[error("superblock puts the data at sector {found}, expected at least {minimum} and below 2^54")]
    DataOffset {
        /// The value in the superblock.
        found: u64,
        /// The first sector behind the superblock.
        minimum: u64,
    },
    /// No room for data, or more than can be addressed.
    #[error("superblock gives {found} sectors to the data, expected at least {minimum} and below 2^54")]
    DataSize {
        /// The value in the superblock.
        found: u64,
        /// The least size.
        minimum: u64,
    },
    /// Data would overlap a superblock after it.
    #[error("superblock lets the data end at sector {found}, it must end before the superblock at {maximum}")]
    DataEnd {
        /// Where the superblock says the data ends.
        found: u64,
        /// The sector of the superblock.
        maximum: u64,
    },
    /// More of the member is used than it has.
    #[error("superblock uses {found} sectors of each member, this one has only {maximum} for data")]
    Size {
        /// The sectors used, by the superblock.
        found: u64,
        /// The sectors of this member's data area, by the superblock.
        maximum: u64,
    },
    /// Bytes that must be zero are not: a newer format.
    #[error("superblock byte {at} is not zero, expected zero: written by something newer than this program knows")]
    Padding {
        /// The offset of the byte.
        at: usize,
    },
    /// The recorded logical block size is invalid.
    #[error("superblock records a logical block size of {found}, expected a power of two from 512 to 65536")]
    LogicalBlockSize {
        /// The value in the superblock.
        found: u32,
    },
    /// An event count that no array reaches.
    #[error("superblock counts {found} events, expected below 2^62")]
    Events {
        /// The value in the superblock.
        found: u64,
    },
    /// The array would have no slots, or more than a table can name.
    #[error("superblock counts {found} slots, expected 1 to {maximum}")]
    RaidDisks {
        /// The value in the superblock.
        found: u32,
        /// The largest number of slots in a table.
        maximum: u32,
    },
}
