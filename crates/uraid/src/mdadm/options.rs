//! The options of mdadm's command line, and which letter is which option in which mode.
//! Owns: their names, whether they take a value, that a long name may be cut short. Not here: words in a row (`line`), what
//! an option makes uraid do (`translate`).
//! Invariant: a name belongs to one option; a letter to one option of a mode.
//! Spec: mdadm(8).

/// What a line does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Assemble,
    AutoDetect,
    Build,
    Create,
    Grow,
    Incremental,
    Manage,
    Misc,
    Monitor,
}

impl Mode {
    /// The option that chooses it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Mode::Assemble => "--assemble",
            Mode::AutoDetect => "--auto-detect",
            Mode::Build => "--build",
            Mode::Create => "--create",
            Mode::Grow => "--grow",
            Mode::Incremental => "--incremental",
            Mode::Manage => "--manage",
            Mode::Misc => "--misc",
            Mode::Monitor => "--monitor",
        }
    }
}

/// An option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Action,
    Add,
    AddJournal,
    AddSpare,
    ArraySize,
    Assemble,
    AssumeClean,
    Auto,
    AutoDetect,
    BackupFile,
    Bitmap,
    BitmapChunk,
    Brief,
    Build,
    Chunk,
    ClusterConfirm,
    Config,
    ConsistencyPolicy,
    Continue,
    Create,
    Daemonise,
    DataOffset,
    Delay,
    Detail,
    DetailPlatform,
    Dump,
    Examine,
    ExamineBadblocks,
    ExamineBitmap,
    Export,
    Fail,
    Failfast,
    Force,
    FreezeReshape,
    Grow,
    Help,
    HomeCluster,
    Homehost,
    Increment,
    Incremental,
    InvalidBackup,
    KillSubarray,
    Layout,
    Level,
    LogicalBlockSize,
    Mail,
    Manage,
    Metadata,
    Misc,
    Monitor,
    Name,
    NoDegraded,
    NoDevices,
    Nodes,
    NoFailfast,
    NoSharing,
    Offroot,
    Oneshot,
    Path,
    PidFile,
    Prefer,
    Program,
    Query,
    Quiet,
    RaidDevices,
    ReAdd,
    Readonly,
    Readwrite,
    RebuildMap,
    Remove,
    Replace,
    Restore,
    Run,
    Scan,
    Size,
    SpareDevices,
    Sparc22,
    Stop,
    SuperMinor,
    Symlinks,
    Syslog,
    Test,
    UdevRules,
    Update,
    UpdateSubarray,
    Uuid,
    Verbose,
    Version,
    Wait,
    WaitClean,
    With,
    WriteBehind,
    WriteJournal,
    WriteMostly,
    WriteZeroes,
    ZeroSuperblock,
}

/// Whether a value belongs to an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Takes {
    Nothing,
    Value,
    /// Only behind `=`.
    Maybe,
}

use Takes::{Maybe, Nothing, Value};

/// The first name of an option is the one that messages have.
const LONG: &[(&str, Opt, Takes)] = &[
    ("action", Opt::Action, Value),
    ("add", Opt::Add, Nothing),
    ("add-journal", Opt::AddJournal, Nothing),
    ("add-spare", Opt::AddSpare, Nothing),
    ("array-size", Opt::ArraySize, Value),
    ("assemble", Opt::Assemble, Nothing),
    ("assume-clean", Opt::AssumeClean, Nothing),
    ("auto", Opt::Auto, Value),
    ("auto-detect", Opt::AutoDetect, Nothing),
    ("backup-file", Opt::BackupFile, Value),
    ("bitmap", Opt::Bitmap, Value),
    ("bitmap-chunk", Opt::BitmapChunk, Value),
    ("brief", Opt::Brief, Nothing),
    ("build", Opt::Build, Nothing),
    ("chunk", Opt::Chunk, Value),
    ("rounding", Opt::Chunk, Value),
    ("cluster-confirm", Opt::ClusterConfirm, Nothing),
    ("config", Opt::Config, Value),
    ("consistency-policy", Opt::ConsistencyPolicy, Value),
    ("continue", Opt::Continue, Nothing),
    ("create", Opt::Create, Nothing),
    ("daemonise", Opt::Daemonise, Nothing),
    ("daemonize", Opt::Daemonise, Nothing),
    ("data-offset", Opt::DataOffset, Value),
    ("delay", Opt::Delay, Value),
    ("detail", Opt::Detail, Nothing),
    ("detail-platform", Opt::DetailPlatform, Nothing),
    ("dump", Opt::Dump, Value),
    ("examine", Opt::Examine, Nothing),
    ("examine-badblocks", Opt::ExamineBadblocks, Nothing),
    ("examine-bitmap", Opt::ExamineBitmap, Nothing),
    ("export", Opt::Export, Nothing),
    ("fail", Opt::Fail, Nothing),
    ("set-faulty", Opt::Fail, Nothing),
    ("failfast", Opt::Failfast, Nothing),
    ("force", Opt::Force, Nothing),
    ("freeze-reshape", Opt::FreezeReshape, Nothing),
    ("grow", Opt::Grow, Nothing),
    ("help", Opt::Help, Nothing),
    ("help-options", Opt::Help, Nothing),
    ("home-cluster", Opt::HomeCluster, Value),
    ("homehost", Opt::Homehost, Value),
    ("increment", Opt::Increment, Value),
    ("incremental", Opt::Incremental, Nothing),
    ("invalid-backup", Opt::InvalidBackup, Nothing),
    ("kill-subarray", Opt::KillSubarray, Value),
    ("layout", Opt::Layout, Value),
    ("parity", Opt::Layout, Value),
    ("level", Opt::Level, Value),
    ("logical-block-size", Opt::LogicalBlockSize, Value),
    ("mail", Opt::Mail, Value),
    ("manage", Opt::Manage, Nothing),
    ("metadata", Opt::Metadata, Value),
    ("misc", Opt::Misc, Nothing),
    ("monitor", Opt::Monitor, Nothing),
    ("follow", Opt::Monitor, Nothing),
    ("name", Opt::Name, Value),
    ("no-degraded", Opt::NoDegraded, Nothing),
    ("no-devices", Opt::NoDevices, Nothing),
    ("no-sharing", Opt::NoSharing, Nothing),
    ("nodes", Opt::Nodes, Value),
    ("nofailfast", Opt::NoFailfast, Nothing),
    ("offroot", Opt::Offroot, Nothing),
    ("oneshot", Opt::Oneshot, Nothing),
    ("path", Opt::Path, Value),
    ("pid-file", Opt::PidFile, Value),
    ("prefer", Opt::Prefer, Value),
    ("program", Opt::Program, Value),
    ("alert", Opt::Program, Value),
    ("query", Opt::Query, Nothing),
    ("quiet", Opt::Quiet, Nothing),
    ("raid-devices", Opt::RaidDevices, Value),
    ("raid-disks", Opt::RaidDevices, Value),
    ("re-add", Opt::ReAdd, Nothing),
    ("readonly", Opt::Readonly, Nothing),
    ("readwrite", Opt::Readwrite, Nothing),
    ("rebuild-map", Opt::RebuildMap, Nothing),
    ("remove", Opt::Remove, Nothing),
    ("replace", Opt::Replace, Nothing),
    ("restore", Opt::Restore, Value),
    ("run", Opt::Run, Nothing),
    ("scan", Opt::Scan, Nothing),
    ("size", Opt::Size, Value),
    ("spare-devices", Opt::SpareDevices, Value),
    ("spare-disks", Opt::SpareDevices, Value),
    ("sparc2.2", Opt::Sparc22, Nothing),
    ("stop", Opt::Stop, Nothing),
    ("super-minor", Opt::SuperMinor, Value),
    ("symlinks", Opt::Symlinks, Value),
    ("syslog", Opt::Syslog, Nothing),
    ("test", Opt::Test, Nothing),
    ("udev-rules", Opt::UdevRules, Maybe),
    ("update", Opt::Update, Value),
    ("update-subarray", Opt::UpdateSubarray, Value),
    ("uuid", Opt::Uuid, Value),
    ("verbose", Opt::Verbose, Nothing),
    ("version", Opt::Version, Nothing),
    ("wait", Opt::Wait, Nothing),
    ("wait-clean", Opt::WaitClean, Nothing),
    ("with", Opt::With, Nothing),
    ("write-behind", Opt::WriteBehind, Maybe),
    ("write-journal", Opt::WriteJournal, Value),
    ("write-mostly", Opt::WriteMostly, Nothing),
    ("write-zeroes", Opt::WriteZeroes, Nothing),
    ("zero-superblock", Opt::ZeroSuperblock, Nothing),
];

impl Opt {
    /// Its long name, without dashes.
    pub(super) fn name(self) -> &'static str {
        let row = LONG.iter().find(|(_, option, _)| *option == self);
        row.map(|(name, ..)| *name).expect("every option has a name: tested")
    }

    /// Whether it takes a value.
    pub(super) fn takes(self) -> Takes {
        let row = LONG.iter().find(|(_, option, _)| *option == self);
        row.map(|(.., takes)| *takes).expect("every option has a name: tested")
    }

    /// The mode that it chooses, whatever else the line says.
    pub(super) fn mode(self) -> Option<Mode> {
        const MODES: [(Opt, Mode); 18] = [
            (Opt::Assemble, Mode::Assemble),
            (Opt::AutoDetect, Mode::AutoDetect),
            (Opt::Build, Mode::Build),
            (Opt::Create, Mode::Create),
            (Opt::Grow, Mode::Grow),
            (Opt::Incremental, Mode::Incremental),
            (Opt::Manage, Mode::Manage),
            (Opt::Monitor, Mode::Monitor),
            (Opt::NoSharing, Mode::Monitor),
            (Opt::Misc, Mode::Misc),
            (Opt::Action, Mode::Misc),
            (Opt::Detail, Mode::Misc),
            (Opt::Dump, Mode::Misc),
            (Opt::Examine, Mode::Misc),
            (Opt::ExamineBadblocks, Mode::Misc),
            (Opt::ExamineBitmap, Mode::Misc),
            (Opt::Query, Mode::Misc),
            (Opt::Restore, Mode::Misc),
        ];
        MODES.iter().find(|(option, _)| *option == self).map(|(_, mode)| *mode)
    }

    /// Whether it says what becomes of the members behind it: of a line without a mode, that is `--manage`.
    pub(super) fn is_managing(self) -> bool {
        const MANAGING: [Opt; 9] = [
            Opt::Add,
            Opt::AddJournal,
            Opt::AddSpare,
            Opt::ClusterConfirm,
            Opt::Fail,
            Opt::ReAdd,
            Opt::Remove,
            Opt::Replace,
            Opt::With,
        ];
        MANAGING.contains(&self)
    }

    /// Whether it is done to each device of a line that has no other mode.
    pub(super) fn is_misc(self) -> bool {
        const MISC: [Opt; 11] = [
            Opt::DetailPlatform,
            Opt::KillSubarray,
            Opt::Readonly,
            Opt::Readwrite,
            Opt::Run,
            Opt::Stop,
            Opt::UdevRules,
            Opt::UpdateSubarray,
            Opt::Wait,
            Opt::WaitClean,
            Opt::ZeroSuperblock,
        ];
        MISC.contains(&self)
    }
}

/// What a long name means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Named {
    One(Opt),
    /// It is the start of several.
    Several(Vec<&'static str>),
    None,
}

/// The option of a long name, or of its start if only one has it.
pub(super) fn long(name: &str) -> Named {
    if let Some((_, option, _)) = LONG.iter().find(|(whole, ..)| *whole == name) {
        return Named::One(*option);
    }
    let with_start: Vec<_> = LONG.iter().filter(|(whole, ..)| !name.is_empty() && whole.starts_with(name)).collect();
    match with_start.as_slice() {
        [] => Named::None,
        [(_, first, _), others @ ..] if others.iter().all(|(_, other, _)| other == first) => Named::One(*first),
        several => Named::Several(several.iter().map(|(name, ..)| *name).collect()),
    }
}

/// The option of a letter. `None` as the mode: it is not known yet.
pub(super) fn short(letter: char, mode: Option<Mode>) -> Option<Opt> {
    let is = |modes: &[Mode]| mode.is_some_and(|mode| modes.contains(&mode));
    let makes = is(&[Mode::Create, Mode::Build]);
    let starts = makes || is(&[Mode::Assemble, Mode::Incremental]);
    let monitors = is(&[Mode::Monitor]);
    let option = match letter {
        '1' => Opt::Oneshot,
        'A' => Opt::Assemble,
        'B' => Opt::Build,
        'C' => Opt::Create,
        'D' => Opt::Detail,
        'E' => Opt::Examine,
        'F' => Opt::Monitor,
        'G' => Opt::Grow,
        'I' => Opt::Incremental,
        'N' => Opt::Name,
        'Q' => Opt::Query,
        'R' => Opt::Run,
        'S' => Opt::Stop,
        'U' => Opt::Update,
        'V' => Opt::Version,
        'W' if makes || is(&[Mode::Manage]) => Opt::WriteMostly,
        'W' => Opt::Wait,
        'X' => Opt::ExamineBitmap,
        'Y' => Opt::Export,
        'Z' => Opt::ArraySize,
        'a' if starts => Opt::Auto,
        'a' => Opt::Add,
        'b' if starts || is(&[Mode::Grow, Mode::Manage]) => Opt::Bitmap,
        'b' => Opt::Brief,
        'c' if makes || is(&[Mode::Grow]) => Opt::Chunk,
        'c' => Opt::Config,
        'd' => Opt::Delay,
        'e' => Opt::Metadata,
        'f' if mode.is_none() || is(&[Mode::Manage, Mode::Incremental]) => Opt::Fail,
        'f' if monitors => Opt::Daemonise,
        'f' => Opt::Force,
        'h' => Opt::Help,
        'i' => Opt::PidFile,
        'k' => Opt::ConsistencyPolicy,
        'l' => Opt::Level,
        'm' if monitors => Opt::Mail,
        'm' => Opt::SuperMinor,
        'n' => Opt::RaidDevices,
        'o' => Opt::Readonly,
        'p' if monitors => Opt::Program,
        'p' => Opt::Layout,
        'q' => Opt::Quiet,
        'r' if monitors => Opt::Increment,
        'r' if is(&[Mode::Incremental]) => Opt::RebuildMap,
        'r' => Opt::Remove,
        's' => Opt::Scan,
        't' => Opt::Test,
        'u' => Opt::Uuid,
        'v' => Opt::Verbose,
        'w' => Opt::Readwrite,
        'x' => Opt::SpareDevices,
        'y' => Opt::Syslog,
        'z' => Opt::Size,
        _ => return None,
    };
    Some(option)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_letters_lead_to_named_options() {
        let names: BTreeSet<&str> = LONG.iter().map(|(name, ..)| *name).collect();
        assert_eq!(names.len(), LONG.len());
        let modes = [Mode::Assemble, Mode::Create, Mode::Grow, Mode::Incremental, Mode::Manage, Mode::Monitor];
        for letter in '0'..='z' {
            for mode in modes.map(Some).into_iter().chain([None, Some(Mode::Misc)]) {
                if let Some(option) = short(letter, mode) {
                    assert_eq!(long(option.name()), Named::One(option), "{letter}");
                }
            }
        }
    }

    #[test]
    fn a_name_may_be_cut_short_where_one_option_is_left() {
        for (start, expected) in [
            ("assem", Named::One(Opt::Assemble)),
            ("fai", Named::Several(vec!["fail", "failfast"])),
            ("fail", Named::One(Opt::Fail)),
            ("rai", Named::One(Opt::RaidDevices)),
            ("daemoni", Named::One(Opt::Daemonise)),
            ("zero", Named::One(Opt::ZeroSuperblock)),
            ("add", Named::One(Opt::Add)),
            ("verison", Named::None),
            ("", Named::None),
        ] {
            assert_eq!(long(start), expected, "{start}");
        }
    }

    #[test]
    fn a_letter_means_what_the_mode_makes_of_it() {
        for (letter, mode, expected) in [
            ('f', Mode::Manage, Opt::Fail),
            ('f', Mode::Create, Opt::Force),
            ('f', Mode::Monitor, Opt::Daemonise),
            ('a', Mode::Manage, Opt::Add),
            ('a', Mode::Create, Opt::Auto),
            ('b', Mode::Create, Opt::Bitmap),
            ('b', Mode::Misc, Opt::Brief),
            ('c', Mode::Create, Opt::Chunk),
            ('c', Mode::Assemble, Opt::Config),
            ('W', Mode::Create, Opt::WriteMostly),
            ('W', Mode::Misc, Opt::Wait),
            ('r', Mode::Manage, Opt::Remove),
            ('r', Mode::Incremental, Opt::RebuildMap),
            ('m', Mode::Monitor, Opt::Mail),
        ] {
            assert_eq!(short(letter, Some(mode)), Some(expected), "-{letter} {mode:?}");
        }
    }
}
