//! Which words of a caller name an array, or a member of it.
//! Owns: comparing words with a report. Not here: finding the array (`client`), what a path means (`member_name`).

use super::Report;
use crate::member_name;
use crate::words::names;
use uraid_format::uuid;

/// How a word names an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// The number of its device.
    Number,
    /// Its name, with or without its host, or the file that mdadm has for that.
    Name,
    /// Its UUID.
    Uuid,
}

impl Report {
    /// Whether the array has a member of this path, as the server or the caller writes it.
    pub fn has_member(&self, path: &str) -> bool {
        self.members.iter().any(|member| member.is_called(path))
    }

    /// Whether a word of a caller names the array, or is a member's path.
    pub fn is_named_by(&self, word: &str) -> bool {
        self.is_called(word) || self.has_member(&member_name::as_written(word))
    }

    /// Whether a word is one of the array's names: `home`, `box:home`, `/dev/md/home`, `md127`, `/dev/md127`, its UUID.
    pub fn is_called(&self, word: &str) -> bool {
        self.fit(word).is_some()
    }

    /// How a word names the array. `/dev/md127` is a number, `/dev/md/md127` a name; `md127` may be either. A host before
    /// the name must be the array's.
    pub fn fit(&self, word: &str) -> Option<Fit> {
        let is_device = |word: &str| self.device.as_deref() == Some(word);
        if let Some(below) = word.strip_prefix("/dev/") {
            return match below.strip_prefix("md/") {
                Some(file) => self.is_file(file).then_some(Fit::Name),
                None => is_device(below).then_some(Fit::Number),
            };
        }
        let is_uuid = || uuid::parse(word).is_some_and(|found| uuid::parse(&self.uuid) == Some(found));
        let is_name = || self.names().any(|name| word == name || word == names::printable(name));
        match () {
            () if is_device(word) => Some(Fit::Number),
            () if is_name() || word == self.set_name => Some(Fit::Name),
            () if is_uuid() => Some(Fit::Uuid),
            () => None,
        }
    }

    /// Its name here, and that in its superblocks, without the host: they differ where two arrays of one process have one.
    fn names(&self) -> impl Iterator<Item = &str> {
        let both = [&*self.name, names::without_host(&self.set_name)];
        both.into_iter().filter(|name| !name.is_empty())
    }

    /// Whether this is a file that mdadm makes for the array below /dev/md.
    fn is_file(&self, file: &str) -> bool {
        let host = self.set_name.split_once(':').map(|(host, _)| host);
        self.names()
            .map(names::conf_file)
            .any(|name| file == name || file.split_once(':').is_some_and(|(of, rest)| host == Some(of) && rest == name))
    }

    /// The name in its superblocks, with its host; where they have none, the name that it has here.
    pub fn full_name(&self) -> &str {
        if names::without_host(&self.set_name).is_empty() { &self.name } else { &self.set_name }
    }

    /// The word that names this running array and no other.
    pub fn own_word(&self) -> String {
        self.device.as_ref().map_or_else(|| self.uuid.clone(), |device| format!("/dev/{device}"))
    }

    /// `/dev/md/home`, or `/dev/md0` if it is called by its number: what mdadm calls the array.
    pub fn dev_path(&self) -> String {
        if self.device.as_ref() == Some(&self.name) {
            return format!("/dev/{}", self.name);
        }
        format!("/dev/md/{}", names::conf_file(&names::printable(&self.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;

    #[test]
    fn an_array_has_all_the_names_that_mdadm_and_people_have_for_it() {
        let mut report = degraded();
        report.device = Some("md127".to_owned());
        let uuid = "10111213:14151617:18191a1b:1c1d1e1f";
        let words = [
            "home",
            "box:home",
            "/dev/md/home",
            "/dev/md/box:home",
            "md127",
            "/dev/md127",
            uuid,
            &uuid.replace(':', ""),
        ];
        for word in words {
            assert!(report.is_named_by(word), "{word}");
        }
        for word in [
            "bogus:home",
            ":home",
            "box:",
            "/dev/md/bogus:home",
            "/dev/md/md127",
            "md/home",
            "/md/home",
            "md12",
            "/dev/home",
            "/dev/md126",
            "127",
            "",
            &uuid.replace("10", "11"),
        ] {
            assert!(!report.is_named_by(word), "{word}");
        }
        // The second array of one name in one process.
        report.name = "10111213".to_owned();
        assert!(report.is_named_by("home") && report.is_named_by("box:home") && report.is_named_by("10111213"));
        (report.name, report.set_name) = ("my array".to_owned(), "my array".to_owned());
        assert!(!report.is_named_by(":my array"));
        assert!(report.is_named_by("/dev/md/my_array") && report.dev_path() == "/dev/md/my_array");
    }
}
