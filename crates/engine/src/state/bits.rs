//! What a view says of the write-intent bitmap.
//! Owns: [`BitsRound`], [`BitsShape`]. Not here: which bits a shard knows (`intent`), setting and clearing (`bitmap`).

use uraid_format::bitmap::BitmapHeader;

/// How many times the shards have forgotten their bits. A bit that was learned in an earlier round is no longer known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct BitsRound(pub u64);

/// What the bits of a bitmap stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BitsShape {
    /// A chunk of the bitmap is `1 << shift` sectors.
    pub(crate) shift: u32,
    pub(crate) chunks: u64,
}

impl BitsShape {
    pub(crate) fn of(header: &BitmapHeader) -> BitsShape {
        BitsShape { shift: header.chunk().0.trailing_zeros(), chunks: header.chunks() }
    }
}
