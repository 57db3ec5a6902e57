//! The levels.
//! Owns: [`Level`], its md number and its spellings. Not here: layouts and their names (`names`).

use std::fmt;

/// How an array spreads its data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// One member after the other.
    Linear,
    /// Striped, without redundancy.
    Raid0,
    /// Every member holds everything.
    Raid1,
    /// Striped copies: near, far, offset.
    Raid10,
    /// Striped, parity on the last member.
    Raid4,
    /// Striped, rotating parity.
    Raid5,
    /// Striped, two rotating parities.
    Raid6,
}

impl Level {
    /// Every level.
    pub const ALL: [Level; 7] =
        [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid10, Level::Raid4, Level::Raid5, Level::Raid6];

    /// From md's number in a superblock; `None` for levels that are not supported (multipath, faulty).
    pub fn from_md(number: i32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.md() == number)
    }

    /// md's number in a superblock.
    pub const fn md(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid10 => 10,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
        }
    }

    /// mdadm's name, as in "raid5".
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid10 => "raid10",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
        }
    }

    /// From any of the spellings that mdadm accepts.
    pub fn parse(text: &str) -> Option<Level> {
        match text {
            "linear" | "-1" => Some(Level::Linear),
            "raid0" | "0" | "stripe" => Some(Level::Raid0),
            "raid1" | "1" | "mirror" => Some(Level::Raid1),
            "raid10" | "10" => Some(Level::Raid10),
            "raid4" | "4" => Some(Level::Raid4),
            "raid5" | "5" => Some(Level::Raid5),
            "raid6" | "6" => Some(Level::Raid6),
            _ => None,
        }
    }

    /// Whether the level has rows with parity (4, 5, 6).
    pub const fn is_parity(self) -> bool {
        match self {
            Level::Raid4 | Level::Raid5 | Level::Raid6 => true,
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10 => false,
        }
    }

    /// Whether each byte is stored redundantly, so that a member may be lost.
    pub const fn is_redundant(self) -> bool {
        match self {
            Level::Linear | Level::Raid0 => false,
            Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6 => true,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_round_trip_through_number_and_name() {
        for level in Level::ALL {
            assert_eq!(Level::from_md(level.md()), Some(level));
            assert_eq!(Level::parse(level.name()), Some(level));
            assert_eq!(Level::parse(&level.md().to_string()), Some(level));
        }
        assert_eq!(Level::from_md(-4), None, "multipath");
        assert_eq!(Level::parse("raid7"), None);
    }
}
