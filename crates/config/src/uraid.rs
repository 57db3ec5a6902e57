//! The URAID line, which mdadm skips with one message: which arrays are uraid's, and how they are served.
//! Owns: its tags. Not here: what they become (`uraid`'s assemble).
//! Invariant: a tag that holds for one array only is not taken for all.
//!
//! ```text
//!   URAID home members=/disks/*.img fuse=/mnt/arrays     the array home, by its ARRAY line or the name on its members
//!   URAID uuid=c9d3d9fb:39864ae6:b6437b7f:7b65dc9f       any array by its UUID
//!   URAID all                                            every array that the ARRAY and AUTO lines allow
//! ```

use crate::array::{array_name, is_array_path, matches_path};
use crate::complaint::{Place, Problem};
use uraid_format::uuid;

/// Which arrays a line is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UraidOf {
    /// All that ARRAY and AUTO allow.
    All,
    /// One; at least one of these is known.
    One {
        /// Its short name.
        name: Option<String>,
        /// Its UUID.
        uuid: Option<[u8; 16]>,
    },
}

/// One URAID line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UraidLine {
    /// Where it is.
    pub at: Place,
    /// Which arrays.
    pub of: UraidOf,
    /// members=: where members may be, as files, devices, patterns and folders. None: where the DEVICE lines say.
    pub members: Vec<String>,
    /// nbd=
    pub nbd: Option<String>,
    /// insecure: `nbd=` may be an address of TCP.
    pub is_insecure: bool,
    /// export-name=
    pub export_name: Option<String>,
    /// fuse=
    pub fuse: Option<String>,
    /// mount=
    pub mount: Option<String>,
    /// read-only
    pub is_read_only: bool,
    /// run: it is started although members are missing.
    pub is_run: bool,
    /// mlock
    pub is_locked: bool,
    /// shards=
    pub shards: Option<u16>,
    /// memory-limit=, as `serve` takes it.
    pub memory_limit: Option<String>,
    /// member-timeout=, as `serve` takes it.
    pub member_timeout: Option<String>,
}

const KEYWORD: &str = "URAID";

impl UraidLine {
    pub(crate) fn of(words: &[String], at: Place, tell: &mut dyn FnMut(Problem)) -> Result<UraidLine, Problem> {
        let mut line = UraidLine {
            at,
            of: UraidOf::One { name: None, uuid: None },
            members: Vec::new(),
            nbd: None,
            is_insecure: false,
            export_name: None,
            fuse: None,
            mount: None,
            is_read_only: false,
            is_run: false,
            is_locked: false,
            shards: None,
            memory_limit: None,
            member_timeout: None,
        };
        let (names, tags): (Vec<_>, Vec<_>) = words.iter().enumerate().partition(|(at, word)| is_name(*at, word));
        let mut name = None;
        for (_, word) in names {
            if let Some(first) = name.replace(word) {
                return Err(Problem::TwoNames { first: first.clone(), second: word.clone() });
            }
        }
        let mut uuid = None;
        for (_, word) in &tags {
            if let Some((tag, value)) = word.split_once('=')
                && lower(tag) == "uuid"
            {
                uuid = Some(uuid::parse(value).ok_or(Problem::NoArray)?);
            }
        }
        line.of = match (name, uuid) {
            (None, None) => return Err(Problem::NoArray),
            (Some(word), None) if word.eq_ignore_ascii_case("all") => UraidOf::All,
            (Some(word), _) if !is_array_path(word) => return Err(Problem::Name { name: word.clone() }),
            (name, uuid) => UraidOf::One { name: name.map(|word| array_name(word).to_owned()), uuid },
        };
        for (_, word) in tags {
            line.tag(word).unwrap_or_else(&mut *tell);
        }
        Ok(line)
    }

    fn tag(&mut self, word: &str) -> Result<(), Problem> {
        let unknown = || Problem::Word { keyword: KEYWORD, word: word.to_owned() };
        let of_one = || match self.of {
            UraidOf::All => Err(Problem::OfOne { word: word.to_owned() }),
            UraidOf::One { .. } => Ok(()),
        };
        let Some((tag, value)) = word.split_once('=') else {
            match lower(word).as_str() {
                "read-only" | "readonly" => self.is_read_only = true,
                "run" => self.is_run = true,
                "insecure" => self.is_insecure = true,
                "mlock" => self.is_locked = true,
                _ => return Err(unknown()),
            }
            return Ok(());
        };
        let path = || whole_path(word, value);
        match lower(tag).as_str() {
            "uuid" => {}
            "members" => self.members.push(path()?),
            "nbd" => {
                of_one()?;
                self.nbd = Some(value.to_owned());
            }
            "export-name" => {
                of_one()?;
                self.export_name = Some(value.to_owned());
            }
            "fuse" => {
                of_one()?;
                self.fuse = Some(path()?);
            }
            "mount" => {
                of_one()?;
                self.mount = Some(path()?);
            }
            "shards" => {
                let number = value.parse().ok().filter(|count| (1..=64).contains(count));
                self.shards = Some(number.ok_or(Problem::Value { word: word.to_owned(), expected: "1 to 64" })?);
            }
            "memory-limit" => self.memory_limit = Some(value.to_owned()),
            "member-timeout" => self.member_timeout = Some(value.to_owned()),
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Whether the line names this array: by its UUID if it gives one, by its name otherwise.
    pub fn names(&self, uuid: [u8; 16], name: &str) -> bool {
        match &self.of {
            UraidOf::All => false,
            UraidOf::One { uuid: Some(own), .. } => *own == uuid,
            UraidOf::One { uuid: None, name: own } => own.as_deref() == Some(name),
        }
    }

    /// What the array is to be called.
    pub fn name(&self) -> Option<&str> {
        match &self.of {
            UraidOf::All => None,
            UraidOf::One { name, .. } => name.as_deref(),
        }
    }

    /// Whether a file or device of this path may be a member by this line: one of its places is the path, a pattern for it,
    /// or a folder that it is in. Without places, none.
    pub fn admits_member(&self, path: &str) -> bool {
        let folder = path.rsplit_once('/').map(|(folder, _)| folder);
        let is_in = |place: &String| {
            matches_path(place, path) || folder.is_some_and(|folder| matches_path(place.trim_end_matches('/'), folder))
        };
        self.members.iter().any(is_in)
    }
}

fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// Whether a word is a name, not a tag or a flag. The first word is always one if it has no `=`.
fn is_name(at: usize, word: &str) -> bool {
    let is_flag = matches!(lower(word).as_str(), "read-only" | "readonly" | "run" | "insecure" | "mlock");
    !word.contains('=') && (at == 0 || !is_flag)
}

fn whole_path(word: &str, value: &str) -> Result<String, Problem> {
    let is_whole = value.starts_with('/') && !value.chars().any(char::is_control);
    let wrong = || Problem::Value { word: word.to_owned(), expected: "a path that begins with /" };
    is_whole.then(|| value.to_owned()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn read(text: &str) -> (Result<UraidLine, Problem>, Vec<Problem>) {
        let mut told = Vec::new();
        let at = Place { file: PathBuf::from("c"), line: Some(1) };
        let line = UraidLine::of(&crate::words(text), at, &mut |problem| told.push(problem));
        (line, told)
    }

    #[track_caller]
    fn good(text: &str) -> UraidLine {
        let (line, told) = read(text);
        assert_eq!(told, []);
        line.expect("it is a good line")
    }

    const UUID: [u8; 16] = [0x11; 16];

    #[test]
    fn all_tags_are_read() {
        let line = good(
            "home members=/d/*.img members=/e nbd=unix:/run/x fuse=/mnt/a mount=/m read-only shards=2 memory-limit=200M \
             member-timeout=5s insecure mlock run export-name=x",
        );
        assert_eq!(line.members, ["/d/*.img", "/e"]);
        assert_eq!((line.name(), line.shards, line.mount.as_deref()), (Some("home"), Some(2), Some("/m")));
        assert!(line.is_read_only && line.is_insecure && line.is_locked && line.is_run);
    }

    #[test]
    fn a_uuid_counts_more_than_a_name() {
        let text = uuid::text(&UUID);
        let line = good(&format!("/dev/md/home UUID={text}"));
        assert!(line.names(UUID, "other") && !line.names([0; 16], "home"));
        let line = good("home");
        assert!(line.names(UUID, "home") && !line.names(UUID, "other"));
        assert!(good(&format!("uuid={text}")).names(UUID, ""));
        assert!(!good("all").names(UUID, "all"));
        assert_eq!(good("ALL").of, UraidOf::All);
    }

    #[test]
    fn a_line_is_about_one_array_or_all() {
        assert_eq!(read("").0, Err(Problem::NoArray));
        assert_eq!(read("nbd=unix:/x").0, Err(Problem::NoArray));
        assert_eq!(read("uuid=12").0, Err(Problem::NoArray));
        assert!(matches!(read("a b").0, Err(Problem::TwoNames { .. })));
        assert!(matches!(read("/home").0, Err(Problem::Name { .. })));
        assert!(matches!(read("all nbd=unix:/x").1[..], [Problem::OfOne { .. }]));
        assert!(matches!(read("all mount=/x").1[..], [Problem::OfOne { .. }]));
        assert_eq!(good("all shards=2 members=/d").members, ["/d"]);
    }

    #[test]
    fn wrong_words_are_told_and_skipped() {
        let (line, told) = read("home members=disks/* shards=0 color=red shards=2 fuse=x");
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(line.expect("it names an array").shards, Some(2));
    }

    #[test]
    fn members_are_files_patterns_and_what_is_in_folders() {
        let line = good("home members=/d/*.img members=/folder/ members=/b/one");
        for (path, is_one) in [
            ("/d/a.img", true),
            ("/d/a", false),
            ("/folder/x", true),
            ("/folder", false),
            ("/b/one", true),
            ("/b/two", false),
        ] {
            assert_eq!(line.admits_member(path), is_one, "{path}");
        }
        assert!(!good("home").admits_member("/d/a.img"));
    }
}
