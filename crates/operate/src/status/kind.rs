//! The kinds of states that a status tells apart, and their numbers.
//! Owns: [`Kind`], its number, how bad it is. Not here: when an array is of a kind, the sentences (`findings`).
//! Invariant: a number never gets another meaning. docs/operating/status.md has a section for each number; a test compares
//! them.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is wrong.
    Fine,
    /// Worth knowing; nothing has to be done.
    Note,
    /// Something has to be done, or to end.
    Attention,
    /// One more failure loses data, or clients are not served.
    Critical,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal $severity:ident,)*) => {
        /// What a state is.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl Kind {
            /// All of them, by number.
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self {
                    $(Kind::$kind => Severity::$severity,)*
                }
            }
        }
    };
}

kinds! {
    /// Nothing is wrong.
    Healthy = 1 Fine,
    /// A slot is empty; another member may fail still.
    Degraded = 2 Attention,
    /// A slot is empty, and no other member may fail.
    Exposed = 3 Critical,
    /// A member is being filled.
    Recovering = 4 Attention,
    /// Copies or parity are made to agree after a crash.
    Resync = 5 Attention,
    /// Takes no writes because members are full.
    FrozenFull = 6 Critical,
    /// Takes no writes because of errors.
    FrozenError = 7 Critical,
    /// Takes no writes because somebody said so, or because of its members.
    ReadOnly = 8 Note,
    /// A member has failed, and is still listed.
    FailedMember = 9 Attention,
    /// A slot is empty, and no spare is there for it.
    NoSpare = 10 Attention,
    /// No check has ended for too long.
    CheckOverdue = 11 Note,
    /// A check has found what disagrees, or what cannot be read.
    Mismatches = 12 Attention,
    /// A member lacks sectors.
    BadBlocks = 13 Attention,
    /// A member took seconds for a request.
    SlowMember = 14 Note,
    /// A member does not answer.
    HungMember = 15 Attention,
    /// A crash may damage data that is not being written.
    WriteHole = 16 Note,
    /// A crash is followed by a resync of everything.
    NoBitmap = 17 Note,
    /// The process that serves an array does not answer.
    ServerSilent = 18 Critical,
    /// An array that ran before does not run.
    NotRunning = 19 Attention,
    /// A member's path leads elsewhere.
    MemberPath = 20 Attention,
    /// A device that was given is not used.
    LeftOut = 21 Attention,
    /// A member with many read errors stays because it is needed.
    NeededMember = 22 Critical,
    /// Passes are paused by command.
    PassesPaused = 23 Note,
    /// A check or a repair runs.
    Checking = 24 Note,
    /// No spare starts for a while, by command.
    Maintenance = 25 Note,
    /// What happens is not recorded.
    HistoryBroken = 26 Attention,
    /// It is starting or stopping.
    NotReady = 27 Note,
    /// The level has no redundancy.
    NoRedundancy = 28 Note,
    /// Requests to a member have failed.
    MemberErrors = 29 Attention,
    /// A member is being copied to a spare.
    Replacing = 30 Note,
}

impl Kind {
    /// `URAID-03`
    pub fn number(self) -> String {
        format!("URAID-{:02}", self as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_section_for_each_number_in_order() {
        let page = include_str!("../../../../docs/operating/status.md");
        let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")?.split(':').next()).collect();
        let numbers: Vec<String> = Kind::ALL.iter().map(|kind| kind.number()).collect();
        assert_eq!(sections, numbers);
        for (kind, section) in Kind::ALL.iter().zip(page.split("\n## ").skip(1)) {
            let word = section.split('\n').nth(2).unwrap_or_default();
            let found = ["*Note.*", "*Attention.*", "*Critical.*"].iter().position(|it| word.starts_with(it));
            let severity = [Severity::Note, Severity::Attention, Severity::Critical];
            assert_eq!(found.map_or(Severity::Fine, |at| severity[at]), kind.severity(), "{section}");
        }
    }
}
