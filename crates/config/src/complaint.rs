//! What is wrong with a configuration.
//! Owns: the place and the sentence of each fault. Not here: who prints them (the callers).
//! Invariant: no word of a file reaches a terminal unescaped: words are shown quoted, and control characters escaped.

use std::fmt;
use std::path::PathBuf;

/// A line of a file, or all of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1 on; `None`: the file as a whole.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}", self.file.display()),
            None => write!(out, "{}", self.file.display()),
        }
    }
}

/// A fault of a configuration, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct Complaint {
    /// Where.
    pub at: Place,
    /// What.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// The first word of a line is no keyword.
    #[error("{word:?} is no keyword of mdadm.conf: the line is skipped")]
    Keyword {
        /// The word.
        word: String,
    },
    /// A keyword without its words.
    #[error("{keyword} has no words: the line is skipped")]
    Empty {
        /// The keyword.
        keyword: &'static str,
    },
    /// A word that the keyword does not take.
    #[error("{keyword} does not take {word:?}: the word is skipped")]
    Word {
        /// The keyword.
        keyword: &'static str,
        /// The word.
        word: String,
    },
    /// A tag whose value cannot be read.
    #[error("{word:?} is not understood, expected {expected}: the word is skipped")]
    Value {
        /// The whole word.
        word: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// An ARRAY or URAID line with two names.
    #[error("one line names one array, found {first:?} and {second:?}: the line is skipped")]
    TwoNames {
        /// The first one.
        first: String,
        /// The second one.
        second: String,
    },
    /// A name that no array can have.
    #[error(
        "{name:?} cannot name an array, expected /dev/mdN, /dev/md/NAME or NAME, without a control character: the line is \
         skipped"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// An ARRAY line that tells nothing by which its array is found.
    #[error("ARRAY {name} has no identity information (UUID=, super-minor= or devices=): the line is skipped")]
    NoIdentity {
        /// The name, as it is written.
        name: String,
    },
    /// A URAID line without a name, a UUID or `all`.
    #[error("URAID names no array, expected a name, uuid= or `all` behind it: the line is skipped")]
    NoArray,
    /// A URAID line of all arrays says what can hold for one only.
    #[error("{word:?} needs an array of its own, not `all`: the word is skipped")]
    OfOne {
        /// The word.
        word: String,
    },
    /// Two lines give one name to two arrays, or one array is listed twice.
    #[error("{what} has a line already, {first}: this line is skipped")]
    Twice {
        /// The name or UUID.
        what: String,
        /// The line that stays.
        first: Place,
    },
    /// A keyword that may come only once.
    #[error("there is a {keyword} line already: this one is skipped")]
    Second {
        /// The keyword.
        keyword: &'static str,
    },
    /// A quote without its end.
    #[error("a quote is not closed: it ends with the line")]
    Unclosed,
    /// Bytes that are no text.
    #[error("the line has bytes that are not UTF-8 text: it is skipped")]
    NotText,
    /// A file that is too large.
    #[error("has {bytes} bytes, more than {max} that a configuration may have: it is not read")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The most.
        max: u64,
    },
    /// A file that is none, such as a FIFO.
    #[error("is no regular file: it is not read")]
    NotAFile,
    /// A file that cannot be read.
    #[error("cannot be read ({reason}): it is skipped")]
    Read {
        /// The system's word.
        reason: String,
    },
    /// A file or folder of another user.
    #[error("belongs to user {owner}, expected user {own} or root: it is not read")]
    Owner {
        /// Whose it is.
        owner: u32,
        /// Who runs this.
        own: u32,
    },
    /// A file or folder that others may write.
    #[error("others may write it (mode {mode:04o}): it is not read; `chmod go-w` ends that")]
    Writable {
        /// Its permissions.
        mode: u32,
    },
    /// More files than a folder may have.
    #[error("has more than {max} files: the others are not read")]
    TooManyFiles {
        /// The most.
        max: usize,
    },
    /// More faults than are told.
    #[error("has more faults: only the first {max} are told")]
    More {
        /// How many were told.
        max: usize,
    },
}
