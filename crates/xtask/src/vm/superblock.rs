//! A member's superblock as bytes, read without uraid and without mdadm.
//! Owns: where it is, one field of it. Not here: what must be in it (`ppl::created`, `matrix`, `bitmap`).
//! Spec: docs/format/superblock-1.md.

use super::kernel::Release;
use super::{Lab, at};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes before the table of roles.
const HEAD_BYTES: usize = 256;
const MAX_DEV: Range<usize> = 220..224;
pub(super) const LOGICAL_BLOCK_SIZE: Range<usize> = 224..228;

/// The superblock and its table of roles.
pub(super) fn read(metadata: &str, image: &Path) -> Lab<Vec<u8>> {
    let file = at(image, std::fs::File::open(image))?;
    let sectors = at(image, file.metadata())?.len() / 512;
    let start = match metadata {
        "1.0" => (sectors - 16) / 8 * 8 * 512,
        "1.1" => 0,
        _ => 4096,
    };
    let mut bytes = vec![0; 4096];
    at(image, file.read_exact_at(&mut bytes, start))?;
    let roles = number(&bytes, MAX_DEV) as usize;
    bytes.truncate(HEAD_BYTES + 2 * roles);
    Ok(bytes)
}

/// What each member records as the array's logical block size, as words: "0", or "512, 512, 0" where they differ.
pub(super) fn logical_block_sizes<'a>(metadata: &str, images: impl IntoIterator<Item = &'a Path>) -> Lab<String> {
    let sizes = images.into_iter().map(|image| Ok(number(&read(metadata, image)?, LOGICAL_BLOCK_SIZE)));
    let sizes: Vec<u32> = sizes.collect::<Lab<_>>()?;
    let words: Vec<String> = sizes.iter().map(u32::to_string).collect();
    let is_one = sizes.windows(2).all(|pair| pair[0] == pair[1]);
    Ok(if is_one { words[0].clone() } else { words.join(", ") })
}

/// What the kernel records as the logical block size of an array that has never been started: Linux 6.19 and later write
/// it, and older kernels do not start an array that has it.
pub(super) fn recorded_by(release: Release) -> u32 {
    match release {
        Release::Bookworm | Release::Trixie => 0,
        Release::Sid => 512,
    }
}

fn number(bytes: &[u8], field: Range<usize>) -> u32 {
    bytes[field].try_into().map(u32::from_le_bytes).expect("the field has four bytes")
}
