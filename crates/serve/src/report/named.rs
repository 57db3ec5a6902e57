//! Which words of a caller name an array, or a member of it.
//! Owns: comparing words with a report. Not here: finding the array (`client`), what a path means (`member_name`).

use super::Report;
use crate::{member_name, names};
use uraid_format::uuid;

impl Report {
    /// Whether the array has a member of this path, as the server or the caller writes it.
    pub(crate) fn has_member(&self, path: &str) -> bool {
        self.members.iter().any(|member| member.is_called(path))
    }

    /// Whether a word of a caller names the array, or is a member's path.
    pub fn is_named_by(&self, word: &str) -> bool {
        self.is_called(word) || self.has_member(&member_name::as_written(word))
    }

    /// Whether a word is one of the array's names: `home`, `box:home`, `/dev/md/home`, `md127`, `/dev/md127`, its UUID.
    pub fn is_called(&self, word: &str) -> bool {
        let below_dev = word.strip_prefix("/dev/").unwrap_or(word);
        let is_device = || self.device.as_deref() == Some(below_dev);
        let is_file = || below_dev != word && below_dev.strip_prefix("md/") == Some(&names::conf_file(&self.name));
        let is_uuid = || uuid::parse(word).is_some_and(|found| uuid::parse(&self.uuid) == Some(found));
        names::without_host(word) == names::without_host(&self.name) || is_device() || is_file() || is_uuid()
    }

    /// `/dev/md/home`: what mdadm calls the array.
    pub fn dev_path(&self) -> String {
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
        let words = ["home", "box:home", "/dev/md/home", "md127", "/dev/md127", uuid, &uuid.replace(':', "")];
        for word in words {
            assert!(report.is_named_by(word), "{word}");
        }
        for word in ["md/home", "/md/home", "md12", "/dev/home", "/dev/md126", "127", "", &uuid.replace("10", "11")] {
            assert!(!report.is_named_by(word), "{word}");
        }
        report.name = "my array".to_owned();
        assert!(report.is_named_by("/dev/md/my_array") && report.dev_path() == "/dev/md/my_array");
    }
}
