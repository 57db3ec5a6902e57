//! The feature map of a version-1 superblock.
//! Owns: the bits and their names. Not here: what an array with such a bit may be used for (`engine::assemble`).
//! Invariant: unknown bits are kept, so that no feature of a newer md is silently dropped.
//! Spec: docs/format/superblock-1.md#feature-bits; docs/md/formats.md#feature-bits.

use std::fmt;

/// The feature bits of a superblock. Unknown bits are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u32);

impl Features {
    /// An internal write-intent bitmap exists.
    pub const BITMAP_OFFSET: Features = Features(1);
    /// This member has a slot and is not yet in sync; `recovery_offset` is valid.
    pub const RECOVERY_OFFSET: Features = Features(1 << 1);
    /// A reshape has begun and not ended.
    pub const RESHAPE_ACTIVE: Features = Features(1 << 2);
    /// This member's bad-block list is not empty.
    pub const BAD_BLOCKS: Features = Features(1 << 3);
    /// This member is, or becomes, the second device of its slot.
    pub const REPLACEMENT: Features = Features(1 << 4);
    /// The reshape runs from the end.
    pub const RESHAPE_BACKWARDS: Features = Features(1 << 5);
    /// The new data offset differs on this member.
    pub const NEW_OFFSET: Features = Features(1 << 6);
    /// The recovery of this member is guided by the bitmap.
    pub const RECOVERY_BITMAP: Features = Features(1 << 7);
    /// The bitmap is shared by several hosts.
    pub const CLUSTERED: Features = Features(1 << 8);
    /// The array has a raid456 journal device.
    pub const JOURNAL: Features = Features(1 << 9);
    /// A partial parity log with one slot.
    pub const PPL: Features = Features(1 << 10);
    /// A partial parity log with several slots.
    pub const MULTIPLE_PPLS: Features = Features(1 << 11);
    /// The layout field of a raid0 is valid.
    pub const RAID0_LAYOUT: Features = Features(1 << 12);

    /// Every bit that md defines.
    pub const KNOWN: Features = Features(0x1fff);

    const NAMES: [(Features, &'static str); 13] = [
        (Features::BITMAP_OFFSET, "bitmap"),
        (Features::RECOVERY_OFFSET, "recovery-offset"),
        (Features::RESHAPE_ACTIVE, "reshape-active"),
        (Features::BAD_BLOCKS, "bad-blocks"),
        (Features::REPLACEMENT, "replacement"),
        (Features::RESHAPE_BACKWARDS, "reshape-backwards"),
        (Features::NEW_OFFSET, "new-offset"),
        (Features::RECOVERY_BITMAP, "recovery-bitmap"),
        (Features::CLUSTERED, "clustered"),
        (Features::JOURNAL, "journal"),
        (Features::PPL, "ppl"),
        (Features::MULTIPLE_PPLS, "multiple-ppls"),
        (Features::RAID0_LAYOUT, "raid0-layout"),
    ];

    /// Whether every bit of `other` is set here.
    pub const fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether at least one bit of `other` is set here.
    pub const fn intersects(self, other: Features) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits that md does not define.
    pub const fn unknown(self) -> Features {
        Features(self.0 & !Features::KNOWN.0)
    }

    /// These bits and those.
    pub const fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// These bits without those.
    pub const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    /// Whether no bit is set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Names separated by commas, unknown bits in hex: `bitmap,journal,0x2000`; `none` for no bit.
impl fmt::Display for Features {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return out.write_str("none");
        }
        let mut separator = "";
        for (bit, name) in Features::NAMES {
            if self.contains(bit) {
                write!(out, "{separator}{name}")?;
                separator = ",";
            }
        }
        if !self.unknown().is_empty() {
            write!(out, "{separator}{:#x}", self.unknown().0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Features({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_shown_by_name_and_unknown_ones_in_hex() {
        assert_eq!(Features(0).to_string(), "none");
        assert_eq!(Features(1 | 1 << 9 | 1 << 13).to_string(), "bitmap,journal,0x2000");
        assert_eq!(Features(1 << 31).unknown(), Features(1 << 31));
        let all = Features::NAMES.iter().fold(Features(0), |sum, (bit, _)| sum.with(*bit));
        assert_eq!(all, Features::KNOWN);
    }
}
