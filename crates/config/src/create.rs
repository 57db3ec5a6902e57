//! CREATE and SYSFS.
//! Owns: their words. Not here: making arrays, setting what they say.

use crate::complaint::{Place, Problem};
use uraid_format::uuid;

/// What new arrays get unless their command says something else. Later lines count.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Create {
    /// owner=: of the device node.
    pub owner: Option<String>,
    /// group=
    pub group: Option<String>,
    /// mode=
    pub mode: Option<u32>,
    /// metadata=
    pub metadata: Option<String>,
    /// names=: whether the device's name is the array's.
    pub names: Option<bool>,
    /// bbl=: whether members get a list of bad blocks.
    pub bad_block_list: Option<bool>,
}

impl Create {
    pub(crate) fn add(&mut self, words: &[String], tell: &mut dyn FnMut(Problem)) {
        for word in words {
            self.tag(word).unwrap_or_else(&mut *tell);
        }
    }

    fn tag(&mut self, word: &str) -> Result<(), Problem> {
        let unknown = || Problem::Word { keyword: "CREATE", word: word.to_owned() };
        let wrong = |expected| Problem::Value { word: word.to_owned(), expected };
        let (tag, value) = word.split_once('=').ok_or_else(unknown)?;
        let is_yes = || match value.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(wrong("yes or no")),
        };
        match tag.to_ascii_lowercase().as_str() {
            "owner" => self.owner = Some(value.to_owned()),
            "group" => self.group = Some(value.to_owned()),
            "mode" => {
                let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o777);
                self.mode = Some(mode.ok_or_else(|| wrong("permissions such as 0660"))?);
            }
            "metadata" => self.metadata = Some(value.to_owned()),
            "names" => self.names = Some(is_yes()?),
            "bbl" => self.bad_block_list = Some(is_yes()?),
            // Of devfs.
            "auto" => {}
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

/// Of which array a SYSFS line is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SysfsOf {
    /// By its UUID.
    Uuid([u8; 16]),
    /// By its name.
    Name(String),
}

/// One SYSFS line: what is set after the array is assembled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SysfsLine {
    /// Where it is.
    pub at: Place,
    /// Of which array.
    pub of: SysfsOf,
    /// Attributes of md's sysfs and their values, in the order of the line. mdadm writes them from the last to the first.
    pub attributes: Vec<(String, String)>,
}

impl SysfsLine {
    pub(crate) fn of(words: &[String], at: Place, tell: &mut dyn FnMut(Problem)) -> Option<SysfsLine> {
        let (mut of, mut attributes) = (None, Vec::new());
        for word in words {
            let Some((tag, value)) = word.split_once('=') else {
                tell(Problem::Word { keyword: "SYSFS", word: word.clone() });
                continue;
            };
            match tag.to_ascii_lowercase().as_str() {
                "uuid" => match uuid::parse(value) {
                    Some(uuid) => of = Some(SysfsOf::Uuid(uuid)),
                    None => tell(Problem::Value { word: word.clone(), expected: "32 hex digits" }),
                },
                "name" => of = Some(SysfsOf::Name(value.to_owned())),
                _ => attributes.push((tag.to_owned(), value.to_owned())),
            }
        }
        if of.is_none() {
            tell(Problem::Value { word: words.join(" "), expected: "uuid= or name= of an array" });
        }
        Some(SysfsLine { at, of: of?, attributes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn later_create_lines_count() {
        let (mut create, mut told) = (Create::default(), Vec::new());
        for line in ["owner=root mode=0660 metadata=1.0 bbl=no", "metadata=1.2 auto=yes names=yes", "mode=9 x=y z"] {
            create.add(&crate::words(line), &mut |problem| told.push(problem));
        }
        assert_eq!((create.mode, create.metadata.as_deref()), (Some(0o660), Some("1.2")));
        assert_eq!((create.bad_block_list, create.names), (Some(false), Some(true)));
        assert_eq!(told.len(), 3, "{told:?}");
    }

    #[test]
    fn sysfs_lines_name_an_array_and_keep_their_order() {
        let at = Place { file: PathBuf::new(), line: Some(3) };
        let read = |line: &str| SysfsLine::of(&crate::words(line), at.clone(), &mut |_| ());
        let line = read("name=home group_thread_cnt=4 sync_speed_max=1000000").expect("it names an array");
        assert_eq!(line.of, SysfsOf::Name("home".to_owned()));
        assert_eq!(line.attributes[1], ("sync_speed_max".to_owned(), "1000000".to_owned()));
        assert_eq!(read("group_thread_cnt=4"), None);
    }
}
