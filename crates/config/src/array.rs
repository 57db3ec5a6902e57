//! ARRAY lines.
//! Owns: their tags, which array and which member they match. Not here: what follows from it (`standing`).
//! Invariant: a line matches an array only if every identity that it gives is the array's.

use crate::complaint::{Place, Problem};
use uraid_format::uuid;

/// What an ARRAY line calls its array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrayDevice {
    /// `<ignore>`: nothing starts this array.
    Ignore,
    /// The word as it is written: `/dev/md127`, `/dev/md/home`, `home`.
    Path(String),
}

/// One ARRAY line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayLine {
    /// Where it is.
    pub at: Place,
    /// What it calls the array, if it does.
    pub device: Option<ArrayDevice>,
    /// uuid=
    pub uuid: Option<[u8; 16]>,
    /// super-minor=: of a superblock of version 0.90.
    pub super_minor: Option<u32>,
    /// devices=: patterns, one of which every member must match.
    pub devices: Vec<String>,
    /// level=
    pub level: Option<String>,
    /// num-devices= or disks=
    pub raid_devices: Option<u32>,
    /// spares=: how many a monitor expects.
    pub spares: Option<u32>,
    /// spare-group=
    pub spare_group: Option<String>,
    /// bitmap=: of a file that holds a bitmap.
    pub bitmap: Option<String>,
    /// metadata=
    pub metadata: Option<String>,
    /// container=: the array is part of one of a firmware.
    pub container: Option<String>,
    /// member=
    pub member: Option<String>,
}

/// What is known of an array by its superblocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayFacts<'a> {
    /// The array's.
    pub uuid: [u8; 16],
    /// `host:name` or `name`.
    pub set_name: &'a str,
    /// `1.2`
    pub metadata: &'a str,
    /// Of version 0.90.
    pub super_minor: Option<u32>,
    /// `raid5`
    pub level: &'a str,
    /// How many slots.
    pub raid_devices: u32,
    /// The paths of those of its members that are known.
    pub members: Vec<&'a str>,
}

impl ArrayFacts<'_> {
    /// The name without the host.
    pub fn name(&self) -> &str {
        self.set_name.split_once(':').map_or(self.set_name, |(_, name)| name)
    }

    /// The host that the array was created on, if its name says so.
    pub fn host(&self) -> Option<&str> {
        self.set_name.split_once(':').map(|(host, _)| host).filter(|host| !host.is_empty())
    }
}

const TAG: &str = "ARRAY";

impl ArrayLine {
    /// Reads the words behind ARRAY; `tell` gets those that are skipped. `Err`: the line cannot be used.
    pub(crate) fn of(words: &[String], at: Place, tell: &mut dyn FnMut(Problem)) -> Result<ArrayLine, Problem> {
        let mut line = ArrayLine {
            at,
            device: None,
            uuid: None,
            super_minor: None,
            devices: Vec::new(),
            level: None,
            raid_devices: None,
            spares: None,
            spare_group: None,
            bitmap: None,
            metadata: None,
            container: None,
            member: None,
        };
        for word in words {
            match word.split_once('=').filter(|_| !word.starts_with('/')) {
                None => line.name(word)?,
                Some((tag, value)) => line.tag(word, tag, value).unwrap_or_else(&mut *tell),
            }
        }
        let of_firmware = line.container.is_some() || line.member.is_some();
        let is_known = line.uuid.is_some() || line.super_minor.is_some() || !line.devices.is_empty() || of_firmware;
        if !is_known {
            return Err(Problem::NoIdentity { name: line.written().unwrap_or_default().to_owned() });
        }
        Ok(line)
    }

    fn name(&mut self, word: &str) -> Result<(), Problem> {
        if let Some(first) = self.written() {
            return Err(Problem::TwoNames { first: first.to_owned(), second: word.to_owned() });
        }
        self.device = Some(match word {
            "<ignore>" => ArrayDevice::Ignore,
            path if is_array_path(path) => ArrayDevice::Path(path.to_owned()),
            _ => return Err(Problem::Name { name: word.to_owned() }),
        });
        Ok(())
    }

    fn tag(&mut self, word: &str, tag: &str, value: &str) -> Result<(), Problem> {
        let wrong = |expected| Problem::Value { word: word.to_owned(), expected };
        let number = || value.parse::<u32>().map_err(|_| wrong("a number"));
        match tag.to_ascii_lowercase().as_str() {
            "uuid" => self.uuid = Some(uuid::parse(value).ok_or_else(|| wrong("32 hex digits"))?),
            "super-minor" => self.super_minor = Some(number()?),
            "devices" => self.devices.extend(value.split(',').filter(|it| !it.is_empty()).map(str::to_owned)),
            "level" => self.level = Some(value.to_owned()),
            "num-devices" | "disks" => self.raid_devices = Some(number()?),
            "spares" => self.spares = Some(number()?),
            "spare-group" => self.spare_group = Some(value.to_owned()),
            "bitmap" => self.bitmap = Some(value.to_owned()),
            "metadata" => self.metadata = Some(value.to_owned()),
            "container" => self.container = Some(value.to_owned()),
            "member" => self.member = Some(value.to_owned()),
            // mdadm writes the first until 4.2 and no longer reads it; the second is of devfs.
            "name" | "auto" => {}
            _ => return Err(Problem::Word { keyword: TAG, word: word.to_owned() }),
        }
        Ok(())
    }

    /// The first word, as it is written.
    pub fn written(&self) -> Option<&str> {
        match self.device.as_ref()? {
            ArrayDevice::Ignore => Some("<ignore>"),
            ArrayDevice::Path(path) => Some(path),
        }
    }

    /// Whether nothing may start this array.
    pub fn is_ignored(&self) -> bool {
        self.device == Some(ArrayDevice::Ignore)
    }

    /// What the array is to be called: `home` for `/dev/md/home`, `md127` for `/dev/md127`.
    pub fn name_of_array(&self) -> Option<&str> {
        match self.device.as_ref()? {
            ArrayDevice::Ignore => None,
            ArrayDevice::Path(path) => Some(array_name(path)),
        }
    }

    /// Whether this line is about the array.
    pub fn matches(&self, array: &ArrayFacts<'_>) -> bool {
        // A part of a firmware's container is never one of ours.
        let of_firmware = self.container.is_some() || self.member.is_some();
        !of_firmware
            && self.uuid.is_none_or(|uuid| uuid == array.uuid)
            && self.super_minor.is_none_or(|minor| array.super_minor == Some(minor))
            && self.level.as_deref().is_none_or(|level| level_number(level) == level_number(array.level))
            && self.raid_devices.is_none_or(|count| count == array.raid_devices)
            && self.metadata.as_deref().is_none_or(|name| metadata_matches(name, array.metadata))
            && (self.devices.is_empty() || array.members.iter().any(|path| self.admits_member(path)))
    }

    /// Whether a device of this path may be a member of the array: what `devices=` says.
    pub fn admits_member(&self, path: &str) -> bool {
        self.devices.is_empty() || self.devices.iter().any(|pattern| matches_path(pattern, path))
    }
}

/// Whether a shell's pattern stands for the path: no star stands for a slash. What is no pattern stands for itself.
pub(crate) fn matches_path(pattern: &str, path: &str) -> bool {
    let options = glob::MatchOptions { require_literal_separator: true, ..Default::default() };
    pattern == path || glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_with(path, options))
}

/// `/dev/mdN`, `/dev/md_dN`, `/dev/md/NAME`, `mdN`, `NAME`.
pub(crate) fn is_array_path(word: &str) -> bool {
    let rest = match word.strip_prefix("/dev/") {
        Some(device) => match device.strip_prefix("md/") {
            Some(name) => name,
            None => {
                let digits = device.strip_prefix("md_d").or_else(|| device.strip_prefix("md")).unwrap_or_default();
                return !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            }
        },
        None => word,
    };
    let is_plain = !rest.contains('/') && !rest.starts_with('.') && !rest.chars().any(char::is_control);
    !rest.is_empty() && is_plain
}

/// `home` for `/dev/md/home`, `md127` for `/dev/md127`, and everything else as it is.
pub(crate) fn array_name(path: &str) -> &str {
    let short = path.strip_prefix("/dev/").unwrap_or(path);
    short.strip_prefix("md/").unwrap_or(short)
}

/// `raid5`, `5`: 5.
fn level_number(word: &str) -> String {
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "stripe" => "0".to_owned(),
        "mirror" => "1".to_owned(),
        "linear" | "-1" => "linear".to_owned(),
        _ => lower.strip_prefix("raid").unwrap_or(&lower).to_owned(),
    }
}

/// `1` and `1.x` stand for every 1.N, `default` for 1.2, `0` for 0.90.
pub(crate) fn metadata_matches(word: &str, metadata: &str) -> bool {
    match word {
        "1" | "1.x" => metadata.starts_with("1."),
        "default" => metadata.starts_with("1."),
        "0" | "0.9" | "00.90.00" => metadata.starts_with("0."),
        _ => word == metadata,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn read(text: &str) -> (Result<ArrayLine, Problem>, Vec<Problem>) {
        let mut told = Vec::new();
        let at = Place { file: PathBuf::from("c"), line: Some(1) };
        let line = ArrayLine::of(&crate::words(text), at, &mut |problem| told.push(problem));
        (line, told)
    }

    #[track_caller]
    fn good(text: &str) -> ArrayLine {
        let (line, told) = read(text);
        assert_eq!(told, []);
        line.expect("it is a good line")
    }

    const UUID: &str = "10111213:14151617:18191a1b:1c1d1e1f";

    fn facts() -> ArrayFacts<'static> {
        let uuid = uuid::parse(UUID).expect("a uuid");
        let (set_name, metadata, level) = ("here:home", "1.2", "raid5");
        ArrayFacts { uuid, set_name, metadata, super_minor: None, level, raid_devices: 3, members: Vec::new() }
    }

    #[test]
    fn all_tags_are_read_and_all_must_match() {
        let line = good(&format!(
            "/dev/md/home level=raid5 METADATA=1.2 num-devices=3 UUID={UUID} name=x:y spares=1 spare-group=g bitmap=/b \
             auto=yes devices=/dev/sd*,/dev/vda"
        ));
        assert_eq!(
            (line.spares, line.spare_group.as_deref(), line.name_of_array()),
            (Some(1), Some("g"), Some("home"))
        );
        assert!(line.matches(&ArrayFacts { members: vec!["/dev/sdz"], ..facts() }));
        assert!(!line.matches(&ArrayFacts { members: vec!["/dev/vdb"], ..facts() }), "none is among devices=");
        assert!(line.admits_member("/dev/sdb1") && line.admits_member("/dev/vda") && !line.admits_member("/dev/vdb"));
        for other in ["level=6", "num-devices=4", "metadata=1.0", "super-minor=3", "container=x"] {
            let line = good(&format!("home UUID={UUID} {other}"));
            assert!(!line.matches(&facts()), "{other}");
        }
        for same in ["level=5", "disks=3", "metadata=1", "metadata=1.x"] {
            assert!(good(&format!("home UUID={UUID} {same}")).matches(&facts()), "{same}");
        }
        assert!(!good("home UUID=00000000000000000000000000000000").matches(&facts()));
    }

    #[test]
    fn a_line_needs_an_identity_and_one_name() {
        assert_eq!(read("/dev/md0 name=x").0, Err(Problem::NoIdentity { name: "/dev/md0".to_owned() }));
        assert!(matches!(read("a b UUID=0").0, Err(Problem::TwoNames { .. })));
        assert!(good(&format!("<ignore> UUID={UUID}")).is_ignored());
        assert_eq!(good(&format!("UUID={UUID}")).name_of_array(), None);
        assert_eq!(good("/dev/md0 devices=/dev/sda").name_of_array(), Some("md0"));
    }

    #[test]
    fn what_is_wrong_in_a_line_costs_only_its_word() {
        let (line, told) = read(&format!("home UUID={UUID} color=red spares=many uuid=12"));
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(line.expect("it has an identity").uuid, Some(facts().uuid));
    }

    #[test]
    fn names_are_those_of_arrays() {
        for name in ["/dev/md0", "/dev/md_d3", "/dev/md/home", "home", "md127", "5", "/dev/md/5", "a b", "ö"] {
            assert!(is_array_path(name), "{name}");
        }
        for name in
            ["/dev/sda", "/dev/md", "/dev/mdx", "/home", "a/b", "/dev/md/", "", ".x", "/dev/md/..", "a\u{1b}[1m"]
        {
            assert!(!is_array_path(name), "{name}");
        }
    }
}
