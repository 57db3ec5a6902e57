//! The 4096 bytes of a 0.90 superblock, field by field.
//! Owns: the offsets, checked at compile time. Not here: what the numbers mean (`old`).
//! Spec: docs/format/superblock-0.90.md; docs/md/formats.md#version-090.

use std::mem::offset_of;
use zerocopy::little_endian::{I32, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Descriptors in the table.
pub(super) const DISKS: usize = 27;

/// One device, as the superblock knows it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawDisk {
    pub(super) number: U32,
    pub(super) major: U32,
    pub(super) minor: U32,
    pub(super) raid_disk: U32,
    pub(super) state: U32,
    pub(super) reserved: [u8; 27 * 4],
}

/// The fields have the byte order of the host that wrote them; this type reads the little-endian ones.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawOld {
    pub(super) magic: U32,
    pub(super) major_version: U32,
    pub(super) minor_version: U32,
    pub(super) patch_version: U32,
    pub(super) valid_words: U32,
    pub(super) set_uuid_0: U32,
    pub(super) ctime: U32,
    pub(super) level: I32,
    pub(super) size: U32,
    pub(super) nr_disks: U32,
    pub(super) raid_disks: U32,
    pub(super) md_minor: U32,
    pub(super) not_persistent: U32,
    pub(super) set_uuid_1_3: [U32; 3],
    pub(super) reserved_16: [u8; 16 * 4],
    pub(super) utime: U32,
    pub(super) state: U32,
    pub(super) active_disks: U32,
    pub(super) working_disks: U32,
    pub(super) failed_disks: U32,
    pub(super) spare_disks: U32,
    pub(super) checksum: U32,
    pub(super) events: U64,
    pub(super) cp_events: U64,
    pub(super) recovery_cp: U32,
    pub(super) reshape_position: U64,
    pub(super) new_level: U32,
    pub(super) delta_disks: I32,
    pub(super) new_layout: U32,
    pub(super) new_chunk: U32,
    pub(super) reserved_50: [u8; 14 * 4],
    pub(super) layout: U32,
    pub(super) chunk_size: U32,
    pub(super) reserved_66: [u8; 62 * 4],
    pub(super) disks: [RawDisk; DISKS],
    pub(super) this_disk: RawDisk,
}

/// Where the checksum is: the only word that the checksum leaves out.
pub(super) const CHECKSUM_AT: usize = offset_of!(RawOld, checksum);

const _: () = assert!(size_of::<RawOld>() == 4096);
const _: () = assert!(size_of::<RawDisk>() == 32 * 4);
const _: () = assert!(offset_of!(RawOld, ctime) == 6 * 4);
const _: () = assert!(offset_of!(RawOld, set_uuid_1_3) == 13 * 4);
const _: () = assert!(offset_of!(RawOld, utime) == 32 * 4);
const _: () = assert!(CHECKSUM_AT == 38 * 4);
const _: () = assert!(offset_of!(RawOld, cp_events) == 41 * 4);
const _: () = assert!(offset_of!(RawOld, reshape_position) == 44 * 4);
const _: () = assert!(offset_of!(RawOld, layout) == 64 * 4);
const _: () = assert!(offset_of!(RawOld, disks) == 128 * 4);
const _: () = assert!(offset_of!(RawOld, this_disk) == 992 * 4);
