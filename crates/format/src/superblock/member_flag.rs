//! md's flags of members: write-mostly and failfast.
//! Owns: their bits in `devflags`, their names, the levels on which they mean something, changes of them. Not here: what an
//! array does with them (`engine`), where `devflags` is on disk (`superblock`).
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
    pub fn check_level(self, level: Level) -> Result<(), NoCopies> {
        match level {
            Level::Raid1 | Level::Raid10 => Ok(()),
            Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                Err(NoCopies { level, flag: self })
            }
        }
    }

    /// These flags with this one set, or cleared.
    pub fn put(self, devflags: u8, is_set: bool) -> u8 {
        if is_set { devflags | self.bit() } else { devflags & !self.bit() }
    }
}

/// The level does not choose which copy to read. mdadm sets the flags there as well, and md ignores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} has no copies, which {} is about: only raid1 and raid10 have", level.name(), flag.name())]
pub struct NoCopies {
    /// The level.
    pub level: Level,
    /// The flag.
    pub flag: MemberFlag,
}

/// The flags that a member gets and those that it loses; it keeps the others as they are.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlagChange {
    /// The bits to set.
    set: u8,
    /// The bits to clear, none of `set`.
    clear: u8,
}

impl FlagChange {
    /// This change, in which the member also gets or loses `flag`, whatever this one says of it.
    #[must_use]
    pub fn with(self, flag: MemberFlag, is_set: bool) -> FlagChange {
        FlagChange { set: flag.put(self.set, is_set), clear: flag.put(self.clear, !is_set) }
    }

    /// Whether the member gets the flag (`true`) or loses it; `None`: it keeps what it has.
    pub fn of(self, flag: MemberFlag) -> Option<bool> {
        let is_in = |bits: u8| bits & flag.bit() != 0;
        assert!(!(is_in(self.set) && is_in(self.clear)), "one of them at most");
        if is_in(self.set) { Some(true) } else { is_in(self.clear).then_some(false) }
    }

    /// The flags that the member gets.
    pub fn given(self) -> impl Iterator<Item = MemberFlag> {
        MemberFlag::ALL.into_iter().filter(move |flag| self.of(*flag) == Some(true))
    }

    /// `devflags` after the change.
    pub fn apply(self, devflags: u8) -> u8 {
        devflags & !self.clear | self.set
    }

    /// Whether members of an array of this level can have the flags that it gives.
    pub fn check_level(self, level: Level) -> Result<(), NoCopies> {
        self.given().try_for_each(|flag| flag.check_level(level))
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

#[cfg(test)]
mod tests {
    use super::*;
    use MemberFlag::{FailFast, WriteMostly};

    #[test]
    fn the_last_word_about_a_flag_holds_and_others_are_kept() {
        let change = FlagChange::default().with(WriteMostly, true).with(FailFast, true).with(FailFast, false);
        assert_eq!((change.of(WriteMostly), change.of(FailFast)), (Some(true), Some(false)));
        assert_eq!(change.given().collect::<Vec<_>>(), [WriteMostly]);
        for (before, after) in [(0, 1), (2, 1), (3, 1), (0x82, 0x81)] {
            assert_eq!(change.apply(before), after);
            assert_eq!(FlagChange::default().apply(before), before);
        }
        assert_eq!(FlagChange::default().with(FailFast, true).of(WriteMostly), None);
    }

    #[test]
    fn only_levels_with_copies_have_flags() {
        for level in Level::ALL {
            let expected = matches!(level, Level::Raid1 | Level::Raid10);
            for flag in MemberFlag::ALL {
                let change = FlagChange::default().with(flag, true);
                assert_eq!(change.check_level(level).is_ok(), expected, "{level:?}");
                assert_eq!(flag.check_level(level).is_ok(), expected, "{level:?}");
                assert_eq!(FlagChange::default().with(flag, false).check_level(level), Ok(()), "it is taken away");
            }
        }
    }
}
