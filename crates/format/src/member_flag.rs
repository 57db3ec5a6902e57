//! md's flags of members: write-mostly and failfast.
//! Owns: their bits in `devflags`, their names, the levels on which they mean something. Not here: what an array does with
//! them (`engine`), where `devflags` is on disk (`superblock`).
//! Spec: docs/md/behaviour.md#mdadms-command-line.

use crate::Superblock;
use uraid_layout::Level;

/// A flag of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberFlag {
    /// It is read only where no other member has the sectors.
    WriteMostly,
    /// It is failed at the first error of its device, also of a read, if another member has the sectors.
    FailFast,
}

impl MemberFlag {
    /// All of them, in the order in which mdadm shows them.
    pub const ALL: [MemberFlag; 2] = [MemberFlag::WriteMostly, MemberFlag::FailFast];

    /// Its bit in [`Superblock::devflags`].
    pub fn bit(self) -> u8 {
        match self {
            MemberFlag::WriteMostly => 1,
            MemberFlag::FailFast => 2,
        }
    }

    /// The name of mdadm's option for it.
    pub fn name(self) -> &'static str {
        match self {
            MemberFlag::WriteMostly => "write-mostly",
            MemberFlag::FailFast => "failfast",
        }
    }

    /// Whether an array of this level has copies, which is what both flags are about.
    pub fn is_for(self, level: Level) -> bool {
        match level {
            Level::Raid1 | Level::Raid10 => true,
            Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => false,
        }
    }

    /// These flags with this one set, or cleared.
    pub fn put(self, devflags: u8, is_set: bool) -> u8 {
        if is_set { devflags | self.bit() } else { devflags & !self.bit() }
    }
}

impl Superblock {
    /// Whether the member has this flag.
    pub fn has_flag(&self, flag: MemberFlag) -> bool {
        self.devflags & flag.bit() != 0
    }

    /// The flags that the member has.
    pub fn flags(&self) -> impl Iterator<Item = MemberFlag> {
        MemberFlag::ALL.into_iter().filter(|flag| self.has_flag(*flag))
    }
}
