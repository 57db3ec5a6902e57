//! `uraid detail --query`: what each word is, in one line.
//! Owns: the lines, for arrays and members, running or not. Not here: what there is to know of them (the parent).
//! Invariant: each word has exactly one line, on stdout, or on stderr if it is nothing that uraid knows.
//! Spec: mdadm(8), `--query`.

use super::members::Told;
use super::{DetailError, members};
use crate::shared::probe::ProbeError;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;
use uraid_block::Sectors;
use uraid_block::sizes::{counted, exact};
use uraid_control::client::{self, ClientError};
use uraid_control::log::{complain, print};
use uraid_control::member_name;
use uraid_control::report::{Member, Report};

/// Prints the lines. Failure: a word is neither an array that runs nor a file or device that can be read.
pub(super) fn run(words: &[String], time_max: Option<Duration>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for word in words {
        match line(word, time_max) {
            Ok(line) => print(&format!("{word}: {line}\n")),
            Err(error) => {
                complain(error.as_ref());
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn line(word: &str, time_max: Option<Duration>) -> Result<String, Box<dyn std::error::Error>> {
    let found = client::find_within(Some(word), None, time_max).and_then(|mut client| client.status());
    match found {
        Ok(report) if report.is_called(word) => Ok(of_array(&report)),
        Ok(report) => Ok(of_member(&report, word, &format!("running array {}", report.name))),
        Err(error) if error.leaves_members() => of_file(word, error, time_max),
        Err(error) => Err(error.into()),
    }
}

/// A file or device, read. `error`: why no running array is meant.
fn of_file(word: &str, error: ClientError, time_max: Option<Duration>) -> Result<String, Box<dyn std::error::Error>> {
    match members::tell(&[word.to_owned()], time_max) {
        Ok(Told { reports, .. }) => match reports.first() {
            Some(report) => Ok(of_member(report, word, &format!("array {} that does not run", report.name))),
            None => Err(error.into()),
        },
        Err(DetailError::Probe(
            ProbeError::Superblock { .. } | ProbeError::Partitioned { .. } | ProbeError::Short { .. },
        )) => Ok("is neither a running array nor a member of one".to_owned()),
        Err(DetailError::Probe(ProbeError::Read { source, .. })) if source.kind() == ErrorKind::NotFound => {
            Err(error.into())
        }
        Err(other) => Err(other.into()),
    }
}

fn of_array(report: &Report) -> String {
    let spares = report.members.iter().filter(|member| member.state == "spare").count() as u64;
    format!(
        "{} {} {}, {}. Use `uraid detail {}` for more detail.",
        exact(Sectors(report.array_sectors)),
        report.level,
        counted(report.raid_devices.into(), "device", "devices"),
        counted(spares, "spare", "spares"),
        report.name
    )
}

fn of_member(report: &Report, word: &str, array: &str) -> String {
    let (written, path) = (member_name::as_written(word), client::member_path(word));
    let is_it = |member: &&Member| member.is_called(&written) || member.path.as_deref() == Some(path.as_str());
    let device = match report.members.iter().find(is_it) {
        Some(Member { slot: Some(slot), .. }) => format!("device {slot}"),
        Some(Member { state, .. }) => state.clone(),
        None => "member".to_owned(),
    };
    let devices = report.raid_devices;
    format!("{device} in {devices} device {} {array}. Use `uraid examine {word}` for more detail.", report.level)
}
