//! Whose an array is: uraid's by a URAID line, or left to mdadm.
//! Owns: that decision, with its reason; what an array is called. Not here: finding its members.
//! Invariant: an array that no URAID line takes is not started, and `<ignore>` counts before everything else.

use crate::array::{ArrayFacts, ArrayLine};
use crate::complaint::Place;
use crate::uraid::{UraidLine, UraidOf};
use crate::{Config, HomehostName};

/// The word of a DEVICE line that stands for all block devices.
pub const PARTITIONS: &str = "partitions";

/// Whether an array is uraid's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing<'a> {
    /// It is started.
    Ours {
        /// The line that takes it: its own, or `URAID all`.
        uraid: &'a UraidLine,
        /// Its ARRAY line.
        array: Option<&'a ArrayLine>,
    },
    /// It is not.
    Left(Left),
}

/// Why an array is left alone.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Left {
    /// `ARRAY <ignore>`
    #[error("{at} says <ignore>")]
    Ignored {
        /// That line.
        at: Place,
    },
    /// No URAID line takes it.
    #[error("no URAID line names it, so it is mdadm's")]
    NotNamed,
    /// Only listed arrays are started.
    #[error(
        "there are ARRAY lines, and none is about it: then only listed arrays are started; give it one, or a URAID line"
    )]
    NotListed,
    /// AUTO forbids it.
    #[error("no ARRAY line is about it, and AUTO forbids its metadata {metadata}")]
    Auto {
        /// `1.2`
        metadata: String,
    },
    /// Nothing tells that it is of this host.
    #[error("no ARRAY line is about it, and HOMEHOST <none> leaves no array to this host")]
    NoHomehost,
}

impl Config {
    /// Whether an array is uraid's, `system` being the name of this host.
    pub fn standing(&self, array: &ArrayFacts<'_>, system: &str) -> Standing<'_> {
        let line = self.array_line(array);
        if let Some(ignoring) = line.filter(|line| line.is_ignored()) {
            return Standing::Left(Left::Ignored { at: ignoring.at.clone() });
        }
        if let Some(uraid) = self.uraid_line(array) {
            return Standing::Ours { uraid, array: line };
        }
        let Some(uraid) = self.uraid.iter().find(|line| line.of == UraidOf::All) else {
            return Standing::Left(Left::NotNamed);
        };
        if line.is_some() {
            return Standing::Ours { uraid, array: line };
        }
        let is_local = self.homehost.is_local(array.set_name, system);
        if self.has_listed_arrays() {
            Standing::Left(Left::NotListed)
        } else if !self.auto.allows(array.metadata, is_local) {
            Standing::Left(Left::Auto { metadata: array.metadata.to_owned() })
        } else if self.homehost.name == HomehostName::None {
            Standing::Left(Left::NoHomehost)
        } else {
            Standing::Ours { uraid, array: None }
        }
    }

    /// The first ARRAY line about an array; one that says `<ignore>` before the others.
    pub fn array_line(&self, array: &ArrayFacts<'_>) -> Option<&ArrayLine> {
        let matching = || self.arrays.iter().filter(|line| line.matches(array));
        matching().find(|line| line.is_ignored()).or_else(|| matching().next())
    }

    /// The URAID line that names an array: by its UUID, by the name that its ARRAY line gives it, or by its own.
    pub fn uraid_line(&self, array: &ArrayFacts<'_>) -> Option<&UraidLine> {
        let listed = self.array_line(array).and_then(ArrayLine::name_of_array);
        // A name that an ARRAY line gives to one array is no other array's.
        let is_taken = |name: &str| self.arrays.iter().any(|line| line.name_of_array() == Some(name));
        let own = Some(array.name()).filter(|name| !name.is_empty() && !is_taken(name));
        let mut lines = self.uraid.iter();
        lines.find(|line| [listed, own].into_iter().flatten().chain([""]).any(|name| line.names(array.uuid, name)))
    }

    /// Where the DEVICE lines say that members are: paths, patterns, folders, and `partitions` for all block devices. Empty:
    /// all block devices, and nothing else.
    pub fn device_places(&self) -> Vec<String> {
        let is = |word: &str, other: &str| word.eq_ignore_ascii_case(other);
        let places = self.devices.iter().filter(|word| !is(word, "containers"));
        let places: Vec<String> =
            places.map(|word| if is(word, PARTITIONS) { PARTITIONS.into() } else { word.clone() }).collect();
        if places.iter().all(|place| place == PARTITIONS) { Vec::new() } else { places }
    }

    /// Whether an ARRAY line lists an array to start: then only listed ones are, as with mdadm.
    pub fn has_listed_arrays(&self) -> bool {
        self.arrays.iter().any(|line| !line.is_ignored())
    }

    /// What an array is called: as its URAID line says, else as its ARRAY line does, else by its own name.
    pub fn name_of<'a>(&'a self, array: &'a ArrayFacts<'_>) -> Option<&'a str> {
        let listed = self.array_line(array).and_then(ArrayLine::name_of_array);
        let own = Some(array.name()).filter(|name| !name.is_empty());
        self.uraid_line(array).and_then(UraidLine::name).or(listed).or(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::{Reader, Seen};
    use std::path::Path;
    use uraid_format::uuid;

    const ONE: &str = "10111213:14151617:18191a1b:1c1d1e1f";
    const OTHER: &str = "20111213:14151617:18191a1b:1c1d1e1f";

    fn config(text: &str) -> Config {
        let mut config = Config::default();
        Reader::new(&mut config, Path::new("c"), &mut Seen::default()).read(text);
        assert_eq!(config.complaints, []);
        config
    }

    fn facts(set_name: &str) -> ArrayFacts<'_> {
        let uuid = uuid::parse(ONE).expect("a uuid");
        ArrayFacts {
            uuid,
            set_name,
            metadata: "1.2",
            super_minor: None,
            level: "raid1",
            raid_devices: 2,
            members: Vec::new(),
        }
    }

    /// `None`: it is ours.
    fn left(text: &str, set_name: &str) -> Option<Left> {
        match config(text).standing(&facts(set_name), "here") {
            Standing::Ours { .. } => None,
            Standing::Left(left) => Some(left),
        }
    }

    #[test]
    fn an_array_is_ours_only_if_a_line_takes_it() {
        assert_eq!(left("", "home"), Some(Left::NotNamed));
        assert_eq!(left(&format!("ARRAY home UUID={ONE}\n"), "home"), Some(Left::NotNamed));
        assert_eq!(
            left(&format!("ARRAY <ignore> UUID={ONE}\nURAID all\n"), "home").map(|it| it.to_string()).as_deref(),
            Some("c:1 says <ignore>")
        );
        assert_eq!(left("URAID home\n", "here:home"), None);
        assert_eq!(left("URAID all\n", "there:home"), None);
        assert_eq!(left(&format!("URAID uuid={ONE}\n"), ""), None);
        assert_eq!(left(&format!("ARRAY /dev/md/other UUID={ONE}\nURAID other\n"), "home"), None);
        assert_eq!(left("URAID all\nHOMEHOST <none>\n", "home"), Some(Left::NoHomehost));
        assert_eq!(left("URAID all\nAUTO -1.2\n", "home"), Some(Left::Auto { metadata: "1.2".to_owned() }));
        assert_eq!(left("URAID all\nAUTO homehost -all\n", "here:home"), None);
    }

    #[test]
    fn one_array_line_hides_the_arrays_that_have_none() {
        assert_eq!(left(&format!("ARRAY other UUID={OTHER}\nURAID all\n"), "home"), Some(Left::NotListed));
        assert_eq!(left(&format!("ARRAY other UUID={OTHER}\nURAID all\nURAID home\n"), "home"), None);
        assert_eq!(left(&format!("ARRAY <ignore> UUID={OTHER}\nURAID all\n"), "home"), None);
    }

    #[test]
    fn a_name_belongs_to_the_array_that_a_line_gives_it_to() {
        let text = format!("ARRAY home UUID={OTHER}\nURAID home\n");
        assert_eq!(left(&text, "home"), Some(Left::NotNamed), "home is the other one's name");
    }

    #[test]
    fn devices_are_looked_for_where_the_lines_say() {
        for (text, places) in [
            ("", &[][..]),
            ("DEVICE partitions containers\n", &[]),
            ("DEVICE containers\n", &[]),
            ("DEVICE /d/*\nDEVICE Partitions\n", &["/d/*", "partitions"]),
        ] {
            assert_eq!(config(text).device_places(), places, "{text}");
        }
    }

    #[test]
    fn an_array_is_called_as_its_lines_say() {
        for (text, name) in [
            (String::new(), "home"),
            (format!("ARRAY /dev/md/data UUID={ONE}\n"), "data"),
            (format!("ARRAY /dev/md7 UUID={ONE}\n"), "md7"),
            (format!("ARRAY /dev/md/data UUID={ONE}\nURAID attic UUID={ONE}\n"), "attic"),
            (format!("ARRAY UUID={ONE}\n"), "home"),
        ] {
            assert_eq!(config(&text).name_of(&facts("here:home")), Some(name), "{text}");
        }
    }
}
