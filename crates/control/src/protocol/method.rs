//! The methods of a running array.
//! Owns: [`Method`], its form in JSON, in both directions, and how long its answer may take. Not here: ids, versions and
//! errors of the protocol (`protocol`), what the methods do (`serve`).
//! Invariant: a parameter that a method does not know is refused, because the caller counts on it.
//! Spec: docs/control-protocol.md.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;
use uraid_format::bitmap::WRITE_BEHIND_MAX;
use uraid_format::{FlagChange, MemberFlag};

/// The time limit for a status. It leaves a full server time to drop idle callers, one after the other.
pub(crate) const STATUS_TIME_MAX: Duration = Duration::from_secs(10);

/// The time limit for `fail`. Meanwhile the server writes the superblocks of the other members. If one of those hangs
/// too, the server fails it after `serve --member-timeout`.
pub(crate) const FAIL_TIME_MAX: Duration = Duration::from_secs(60);

/// What a running array is asked or told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "method", content = "params", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Method {
    /// Returns the array's report.
    Status {},
    /// Declares members failed.
    Fail {
        /// The path or slot of each.
        #[serde(deserialize_with = "some")]
        members: Vec<String>,
    },
    /// Adds devices as spares.
    Add(NewDevices),
    /// Takes back devices that were members.
    ReAdd {
        /// The path of each.
        #[serde(deserialize_with = "some")]
        members: Vec<String>,
    },
    /// Removes spares and failed members.
    Remove {
        /// The path of each, the slot that it had, `failed` or `detached`.
        #[serde(deserialize_with = "some")]
        members: Vec<String>,
    },
    /// Copies members to spares, which then take their slots.
    Replace {
        /// The path or slot of each.
        #[serde(deserialize_with = "some")]
        members: Vec<String>,
        /// The path of the spare for each, in the same order; any for those behind the last.
        #[serde(default)]
        with: Vec<String>,
    },
    /// Gives members the flag write-mostly, or takes it away.
    WriteMostly {
        /// The path or slot of each.
        #[serde(deserialize_with = "some")]
        members: Vec<String>,
        /// Whether they get it.
        #[serde(default = "yes")]
        set: bool,
    },
    /// Gives members the flag failfast, or takes it away.
    Failfast {
        /// The path or slot of each.
        #[serde(deserialize_with = "some")]
        members: Vec<String>,
        /// Whether they get it.
        #[serde(default = "yes")]
        set: bool,
    },
    /// Changes the write-intent bitmap.
    Bitmap(BitmapCall),
    /// Begins a check.
    Check {
        /// Where the last one has ended before its end; else at the beginning.
        #[serde(default, skip_serializing_if = "is_no")]
        resume: bool,
    },
    /// Begins a repair.
    Repair {},
    /// Ends a check or repair, and continues paused passes.
    Idle {},
    /// Pauses every pass.
    Freeze {},
    /// Continues them.
    Unfreeze {},
    /// Changes the limits that are given, in KiB a second of each member; 0: as an array starts.
    Speed {
        /// What a pass may have beside clients.
        min: Option<u64>,
        /// What it has at most.
        max: Option<u64>,
        /// What it takes of the members while clients are active, in percent; 0: as its kind takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        share: Option<u8>,
    },
    /// Returns the result of the last check or repair.
    Mismatches {},
    /// No spare starts for a while.
    Maintenance {
        /// For how long from now on, in seconds; 0: it ends.
        seconds: u64,
    },
    /// Takes no more writes.
    #[serde(rename = "readonly")]
    ReadOnly {},
    /// Takes writes again.
    #[serde(rename = "readwrite")]
    ReadWrite {},
    /// Stops the array: drain, flush, mark clean, release the members.
    Stop {
        /// Also stop the other arrays of the same process.
        #[serde(default)]
        all: bool,
        /// Stop even if clients are connected that may write.
        #[serde(default)]
        force: bool,
    },
}

impl Method {
    /// Gives members a flag, or takes it away.
    pub fn set_flag(flag: MemberFlag, members: Vec<String>, set: bool) -> Method {
        match flag {
            MemberFlag::WriteMostly => Method::WriteMostly { members, set },
            MemberFlag::FailFast => Method::Failfast { members, set },
        }
    }

    /// Whether it can change something of the array or its passes.
    pub fn is_change(&self) -> bool {
        match self {
            Method::Status {} | Method::Mismatches {} | Method::Speed { min: None, max: None, share: None } => false,
            Method::Fail { .. }
            | Method::Add(_)
            | Method::ReAdd { .. }
            | Method::Remove { .. }
            | Method::Replace { .. }
            | Method::WriteMostly { .. }
            | Method::Failfast { .. }
            | Method::Bitmap(_)
            | Method::Check { .. }
            | Method::Repair {}
            | Method::Idle {}
            | Method::Freeze {}
            | Method::Unfreeze {}
            | Method::Speed { .. }
            | Method::Maintenance { .. }
            | Method::ReadOnly {}
            | Method::ReadWrite {}
            | Method::Stop { .. } => true,
        }
    }

    /// How long each part of the answer may take; `None`: as long as the array needs.
    pub fn answer_time_max(&self) -> Option<Duration> {
        match self {
            Method::ReadOnly {} | Method::ReadWrite {} | Method::Stop { .. } => None,
            Method::Status {}
            | Method::Check { .. }
            | Method::Repair {}
            | Method::Idle {}
            | Method::Freeze {}
            | Method::Unfreeze {}
            | Method::Speed { .. }
            | Method::Mismatches {}
            | Method::Maintenance { .. } => Some(STATUS_TIME_MAX),
            Method::Fail { .. }
            | Method::Add(_)
            | Method::ReAdd { .. }
            | Method::Remove { .. }
            | Method::Replace { .. }
            | Method::WriteMostly { .. }
            | Method::Failfast { .. }
            | Method::Bitmap(_) => Some(FAIL_TIME_MAX),
        }
    }
}

/// Devices to add.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Additions", into = "Additions")]
pub struct NewDevices {
    /// In this order.
    pub members: Vec<NewDevice>,
    /// What they carry may be lost.
    pub force: bool,
}

/// A device to add.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDevice {
    /// Its path, absolute.
    pub path: String,
    /// The flags that it gets. A former member that returns to its slot keeps those that this does not name.
    pub flags: FlagChange,
}

/// [`NewDevices`] in JSON: the flags are a list beside the paths.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Additions {
    #[serde(deserialize_with = "some")]
    members: Vec<String>,
    #[serde(default)]
    flags: Option<Vec<Flags>>,
    #[serde(default)]
    force: bool,
}

/// What is said of a device's flags.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flags {
    #[serde(default, rename = "write-mostly", skip_serializing_if = "Option::is_none")]
    write_mostly: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failfast: Option<bool>,
}

impl TryFrom<Additions> for NewDevices {
    type Error = String;

    fn try_from(Additions { members, flags, force }: Additions) -> Result<NewDevices, String> {
        let flags = flags.unwrap_or_else(|| vec![Flags::default(); members.len()]);
        if flags.len() != members.len() {
            return Err(format!("{} flags for {} members, expected one for each", flags.len(), members.len()));
        }
        let device = |(path, flags): (String, Flags)| {
            let said = [(MemberFlag::WriteMostly, flags.write_mostly), (MemberFlag::FailFast, flags.failfast)];
            let said = said.into_iter().filter_map(|(flag, is_set)| Some((flag, is_set?)));
            let flags = said.fold(FlagChange::default(), |change, (flag, is_set)| change.with(flag, is_set));
            NewDevice { path, flags }
        };
        Ok(NewDevices { members: members.into_iter().zip(flags).map(device).collect(), force })
    }
}

impl From<NewDevices> for Additions {
    fn from(NewDevices { members, force }: NewDevices) -> Additions {
        let flags = |device: &NewDevice| Flags {
            write_mostly: device.flags.of(MemberFlag::WriteMostly),
            failfast: device.flags.of(MemberFlag::FailFast),
        };
        let flags = Some(members.iter().map(flags).collect());
        Additions { members: members.into_iter().map(|device| device.path).collect(), flags, force }
    }
}

/// A change of the write-intent bitmap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "bitmap", deny_unknown_fields)]
pub enum BitmapCall {
    /// The array gets one beside each superblock.
    #[serde(rename = "internal")]
    Add {
        /// What a bit stands for; `None`: as mdadm chooses.
        chunk_sectors: Option<u64>,
        /// How many writes may be behind; 0: none.
        #[serde(default, deserialize_with = "write_behind")]
        write_behind: u32,
    },
    /// The array loses it.
    #[serde(rename = "none")]
    Remove {},
}

/// A list with at least one member.
fn some<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let members = Vec::deserialize(from)?;
    if members.is_empty() { Err(D::Error::custom("no member is named")) } else { Ok(members) }
}

fn write_behind<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let found = u32::deserialize(from)?;
    let wrong = || D::Error::custom(format!("write_behind is {found}, expected at most {WRITE_BEHIND_MAX}"));
    if found <= WRITE_BEHIND_MAX { Ok(found) } else { Err(wrong()) }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_no(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Call, call_line, parse_call};
    use serde_json::json;

    /// Every method, as a program sends it: the examples of docs/control-protocol.md, in their order.
    #[test]
    fn the_documented_examples_are_what_is_sent_and_understood() {
        let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
        let device = |path: &str, flags| NewDevice { path: path.to_owned(), flags };
        let flags = FlagChange::default().with(MemberFlag::WriteMostly, true).with(MemberFlag::FailFast, false);
        let members = vec![device("/dev/sdb", flags), device("/dev/sdc", FlagChange::default())];
        let set_flag = |flag, is_set| Method::set_flag(flag, text(&["1"]), is_set);
        let sent = [
            Method::Status {},
            Method::Fail { members: text(&["/dev/sdb", "3"]) },
            Method::Add(NewDevices { members, force: false }),
            Method::ReAdd { members: text(&["/dev/sdb"]) },
            Method::Remove { members: text(&["failed"]) },
            Method::Replace { members: text(&["0"]), with: text(&["/dev/sdd"]) },
            set_flag(MemberFlag::WriteMostly, true),
            set_flag(MemberFlag::FailFast, false),
            Method::Bitmap(BitmapCall::Add { chunk_sectors: Some(131_072), write_behind: 0 }),
            Method::Bitmap(BitmapCall::Remove {}),
            Method::Check { resume: false },
            Method::Check { resume: true },
            Method::Repair {},
            Method::Idle {},
            Method::Freeze {},
            Method::Unfreeze {},
            Method::Speed { min: Some(1000), max: None, share: None },
            Method::Speed { min: None, max: None, share: Some(25) },
            Method::Mismatches {},
            Method::Maintenance { seconds: 3600 },
            Method::ReadOnly {},
            Method::ReadWrite {},
            Method::Stop { all: false, force: false },
        ];
        let page = include_str!("../../../../docs/control-protocol.md");
        let documented: Vec<&str> =
            page.lines().filter(|line| line.starts_with("{\"id\":1,\"jsonrpc\":\"2.0\",\"method\"")).collect();
        let lines: Vec<String> = sent.iter().map(|method| call_line(method).trim_end().to_owned()).collect();
        assert_eq!(lines, documented);
        for (line, method) in lines.iter().zip(sent) {
            assert_eq!(parse_call(line.as_bytes()), Ok(Call { id: json!(1), method }), "{line}");
        }
    }
}
