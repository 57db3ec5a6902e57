//! Members changed at random: the arrays, the changes.
//! Owns: [`ARRAYS`], [`Random`], [`mutate`]: the same changes for each seed. Not here: what is done with the members.

use super::superblock::Raw;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub const MEMBER_BYTES: u64 = 5 << 19;

/// The words of `create`, the number of members.
pub const ARRAYS: [(&str, usize); 9] = [
    ("-l 1 -n 2 --bitmap internal", 2),
    ("-l 5 -n 3 -c 64K --assume-clean", 3),
    ("-l 5 -n 3 -c 64K --consistency-policy ppl", 3),
    ("-l 6 -n 4 -c 64K -e 1.1 --assume-clean", 4),
    ("-l 10 -n 4 -p f2 -c 64K --assume-clean", 4),
    ("-l 0 -n 3 -c 64K", 3),
    ("-l linear -n 2 -e 1.0", 2),
    ("-l 1 -n 3 -e 1.0 --assume-clean", 3),
    ("-l 4 -n 3 -x 1 -c 64K --assume-clean", 4),
];

/// The same sequence for each seed.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number as a field might hold it: small, huge, at the border of what is allowed, or any.
    fn field(&mut self) -> u64 {
        const BORDERS: [u64; 15] =
            [0, 1, 2, 7, 255, 256, 0xfeff, 0xff00, 0xfffd, 0xfffe, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 54, u64::MAX];
        match self.below(4) {
            0 => self.next(),
            1 => self.below(1 << 16),
            _ => BORDERS[self.below(BORDERS.len() as u64) as usize],
        }
    }
}

/// Changes some fields of a member, and makes the checksum right most of the time.
pub fn mutate(path: &Path, random: &mut Random) {
    let mut raw = Raw::read(path);
    for _ in 0..=random.below(4) {
        // The first 256 bytes are the fields, the rest is the table of roles.
        let area = if random.below(3) > 0 { 256 } else { 512 };
        let width = [1, 2, 4, 8][random.below(4) as usize];
        let at = random.below(area - width) & !(width - 1);
        // Without its magic number it is no superblock, which others test.
        if at >= 4 {
            raw.set(at as usize, &random.field().to_le_bytes()[..width as usize]);
        }
    }
    if random.below(8) > 0 {
        raw.write();
    } else {
        raw.write_unsealed();
    }
    // Lists, bitmaps and logs lie around the superblock.
    let file = File::options().write(true).open(path).expect("ours");
    for _ in 0..random.below(8) {
        let at = (raw.at() + 4096 + random.below(128 << 10)).min(MEMBER_BYTES - 8) & !7;
        file.write_all_at(&random.field().to_le_bytes(), at).expect("room");
    }
}
