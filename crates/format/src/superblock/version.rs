//! The versions of md's superblock, and the place of each on a device.
//! Owns: names, places. Not here: the bytes (`superblock`), trying all places (`find`).
//! Invariant: a version's place depends on nothing but the size of the device.
//! Spec: docs/format/superblock-1.md; docs/md/formats.md#places-of-the-superblock.

use uraid_block::{Sector, Sectors};

/// A device below this holds no md superblock of any version.
pub(crate) const DEVICE_SECTORS_MIN: u64 = 24;

/// A version of the superblock; those of major version 1 differ in the place only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// The old one, near the end of the device.
    V0_90,
    /// Near the end of the device, the data in front of it.
    V1_0,
    /// At the start of the device.
    V1_1,
    /// 4 KiB into the device; the default.
    V1_2,
}

impl Version {
    /// All, in the order in which mdadm looks for them.
    pub const ALL: [Version; 4] = [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2];

    /// mdadm's name.
    pub const fn name(self) -> &'static str {
        match self {
            Version::V0_90 => "0.90",
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V1_2 => "1.2",
        }
    }

    /// Parses the value of `--metadata`: a name, `0` for 0.90, `1` or `default` for 1.2.
    pub fn parse(text: &str) -> Option<Version> {
        match text {
            "0" => Some(Version::V0_90),
            "1" | "default" => Some(Version::V1_2),
            _ => Version::ALL.into_iter().find(|version| version.name() == text),
        }
    }

    /// Where the superblock sits on a device of this size; `None` where the device is too small for one.
    ///
    /// On a device of 1003 sectors: 0.90 at 768 (the last whole 64 KiB), 1.0 at 984 (8 to 12 KiB before the end).
    pub fn location(self, device_size: Sectors) -> Option<Sector> {
        if device_size.0 < DEVICE_SECTORS_MIN {
            return None;
        }
        match self {
            Version::V0_90 => (device_size.0 & !127).checked_sub(128).map(Sector),
            Version::V1_0 => Some(Sector((device_size.0 - 16) & !7)),
            Version::V1_1 => Some(Sector(0)),
            Version::V1_2 => Some(Sector(8)),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_its_name_and_place() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.name()), Some(version));
            assert_eq!(version.location(Sectors(23)), None);
        }
        assert_eq!(Version::parse("default"), Some(Version::V1_2));
        assert_eq!((Version::parse("0"), Version::parse("1.3")), (Some(Version::V0_90), None));
        let places = Version::ALL.map(|version| version.location(Sectors(1003)));
        assert_eq!(places, [Some(Sector(768)), Some(Sector(984)), Some(Sector(0)), Some(Sector(8))]);
        assert_eq!(Version::V0_90.location(Sectors(127)), None);
    }
}
