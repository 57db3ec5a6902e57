//! The first 256 bytes of a version-1 superblock, field by field.
//! Owns: the offsets, checked at compile time. Not here: what the numbers mean (the parent).
//! Spec: docs/format/superblock-1.md; docs/md/formats.md#version-1-superblock.

use std::mem::offset_of;
use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// All fields are little-endian; the role table follows at byte 256.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawSuperblock {
    pub(super) magic: U32,
    pub(super) major_version: U32,
    pub(super) feature_map: U32,
    pub(super) pad0: U32,
    pub(super) set_uuid: [u8; 16],
    pub(super) set_name: [u8; 32],
    pub(super) ctime: U64,
    pub(super) level: I32,
    pub(super) layout: U32,
    pub(super) size: U64,
    pub(super) chunk_size: U32,
    pub(super) raid_disks: U32,
    pub(super) bitmap_offset: I32,
    pub(super) new_level: U32,
    pub(super) reshape_position: U64,
    pub(super) delta_disks: I32,
    pub(super) new_layout: U32,
    pub(super) new_chunk: U32,
    pub(super) new_offset: I32,
    pub(super) data_offset: U64,
    pub(super) data_size: U64,
    pub(super) super_offset: U64,
    pub(super) recovery_offset: U64,
    pub(super) dev_number: U32,
    pub(super) corrected_reads: U32,
    pub(super) device_uuid: [u8; 16],
    pub(super) devflags: u8,
    pub(super) bblog_shift: u8,
    pub(super) bblog_size: U16,
    pub(super) bblog_offset: I32,
    pub(super) utime: U64,
    pub(super) events: U64,
    pub(super) resync_offset: U64,
    pub(super) checksum: U32,
    pub(super) max_dev: U32,
    pub(super) logical_block_size: U32,
    pub(super) pad3: [u8; 28],
}

/// Where the checksum is: the only field that the checksum leaves out.
pub(super) const CHECKSUM_AT: usize = offset_of!(RawSuperblock, checksum);

const _: () = assert!(size_of::<RawSuperblock>() == 256);
const _: () = assert!(offset_of!(RawSuperblock, set_uuid) == 16);
const _: () = assert!(offset_of!(RawSuperblock, set_name) == 32);
const _: () = assert!(offset_of!(RawSuperblock, ctime) == 64);
const _: () = assert!(offset_of!(RawSuperblock, size) == 80);
const _: () = assert!(offset_of!(RawSuperblock, bitmap_offset) == 96);
const _: () = assert!(offset_of!(RawSuperblock, reshape_position) == 104);
const _: () = assert!(offset_of!(RawSuperblock, new_offset) == 124);
const _: () = assert!(offset_of!(RawSuperblock, data_offset) == 128);
const _: () = assert!(offset_of!(RawSuperblock, recovery_offset) == 152);
const _: () = assert!(offset_of!(RawSuperblock, dev_number) == 160);
const _: () = assert!(offset_of!(RawSuperblock, device_uuid) == 168);
const _: () = assert!(offset_of!(RawSuperblock, bblog_size) == 186);
const _: () = assert!(offset_of!(RawSuperblock, utime) == 192);
const _: () = assert!(offset_of!(RawSuperblock, resync_offset) == 208);
const _: () = assert!(CHECKSUM_AT == 216 && CHECKSUM_AT.is_multiple_of(4));
const _: () = assert!(offset_of!(RawSuperblock, max_dev) == 220);
const _: () = assert!(offset_of!(RawSuperblock, logical_block_size) == 224);
const _: () = assert!(offset_of!(RawSuperblock, pad3) == 228);
