//! Why a geometry is refused.
//! Owns: [`LayoutError`]. Not here: what to do about it (`engine`, `uraid`).

use crate::Level;
use uraid_block::{Sectors, Slot};

/// A geometry that is impossible, or that md accepts although it would damage data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// Fewer slots than the level needs.
    #[error("{level} with {found} members, needs at least {expected}")]
    TooFewMembers {
        /// The requested level.
        level: Level,
        /// The requested number of slots.
        found: u16,
        /// The smallest allowed.
        expected: u16,
    },
    /// More slots than the level, or a slot set, can hold.
    #[error("{level} with {found} members, at most {expected} are possible")]
    TooManyMembers {
        /// The requested level.
        level: Level,
        /// The requested number of slots.
        found: u16,
        /// The largest allowed.
        expected: u16,
    },
    /// The chunk is zero, or no power of two where the level needs one.
    #[error("chunk of {}, {level} needs {expected}", found.size())]
    Chunk {
        /// The requested level.
        level: Level,
        /// The requested chunk.
        found: Sectors,
        /// The chunks that the level allows, in words.
        expected: &'static str,
    },
    /// A layout number that the level does not know.
    #[error("layout number {found:#x} is not known for {level}")]
    UnknownLayout {
        /// The requested level.
        level: Level,
        /// The number found.
        found: u32,
    },
    /// linear and raid0 need the size of every member.
    #[error("{found} member sizes for {expected} members")]
    MemberSizes {
        /// Sizes given.
        found: usize,
        /// The requested number of slots.
        expected: u16,
    },
    /// A member of linear or raid0 cannot hold one chunk.
    #[error("{slot} has {} of data, needs at least {}", found.size(), expected.size())]
    MemberTooSmall {
        /// Which member.
        slot: Slot,
        /// Its size.
        found: Sectors,
        /// The smallest allowed.
        expected: Sectors,
    },
    /// The size used of each member cannot hold one chunk (of every copy).
    #[error("{} used per member, needs at least {}", found.size(), expected.size())]
    SizeTooSmall {
        /// The size per member.
        found: Sectors,
        /// The smallest allowed.
        expected: Sectors,
    },
    /// The array, or a member, would be larger than a signed 64-bit byte count.
    #[error("the array is larger than {}", limit.size())]
    TooLarge {
        /// The largest array possible.
        limit: Sectors,
    },
    /// A raid0 whose members differ in size maps its later zones by layout 1 or 2, and neither is recorded.
    #[error(
        "a raid0 of {zones} zones, made before Linux 5.4, records layout {found}: its later zones have layout 1 (original) or \
         2 (alternate), and md does not guess either. `uraid copy --assume -l 0 -p original`, and `-p alternate`, show what \
         each gives; `uraid update layout-original MEMBER...` or `layout-alternate` records the right one"
    )]
    ZonesWithoutLayout {
        /// How many zones the members make.
        zones: usize,
        /// The layout number found.
        found: u32,
    },
    /// raid10 needs at least two copies, and a member for each.
    #[error("raid10 with {found} copies on {members} members, needs 2 to {members} copies")]
    CopiesCount {
        /// Near times far copies.
        found: u32,
        /// The requested number of slots.
        members: u16,
    },
    /// raid10: the layout puts two array sectors on one place, so writing one would destroy the other.
    #[error("raid10 layout {found:#x} on {members} members puts two chunks on the same place")]
    NotInjective {
        /// The layout number.
        found: u32,
        /// The requested number of slots.
        members: u16,
    },
    /// raid10: the layout puts two copies of a sector on one member, so losing it would lose both.
    #[error("raid10 layout {found:#x} on {members} members puts two copies of a chunk on the same member")]
    CopiesShareMember {
        /// The layout number.
        found: u32,
        /// The requested number of slots.
        members: u16,
    },
}

impl LayoutError {
    /// The slot of the member that it is about, if it is about one.
    pub fn slot(&self) -> Option<Slot> {
        match *self {
            LayoutError::MemberTooSmall { slot, .. } => Some(slot),
            LayoutError::TooFewMembers { .. }
            | LayoutError::TooManyMembers { .. }
            | LayoutError::Chunk { .. }
            | LayoutError::UnknownLayout { .. }
            | LayoutError::MemberSizes { .. }
            | LayoutError::SizeTooSmall { .. }
            | LayoutError::TooLarge { .. }
            | LayoutError::ZonesWithoutLayout { .. }
            | LayoutError::CopiesCount { .. }
            | LayoutError::NotInjective { .. }
            | LayoutError::CopiesShareMember { .. } => None,
        }
    }
}
