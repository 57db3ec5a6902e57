//! Which words of a caller name an array, or a member of it.
//! Owns: comparing words with a report. Not here: finding the array (`client`), what a path means (`member_name`).

use super::Report;
use crate::{member_name, names};

impl Report {
    /// Whether the array has a member of this path, as the server or the caller writes it.
    pub(crate) fn has_member(&self, path: &str) -> bool {
        self.members.iter().any(|member| member.is_called(path))
    }

    /// Whether a word of a caller is the array's name, with or without its host, or a member's path.
    pub fn is_named_by(&self, word: &str) -> bool {
        names::without_host(word) == names::without_host(&self.name) || self.has_member(&member_name::as_written(word))
    }
}
