//! `uraid incremental`: takes in devices one by one, as udev finds them, and starts an array when it has its members.
//! Owns: the order of the tests that a device must pass, when its array starts, what happens to a device of an array that
//! runs. Not here: whose an array is (`uraid_config`), the start (`assemble::start`), what was taken in before
//! (`remembered`).
//! Invariant: an array is looked at and started by one process at a time, which holds its [`Remembered`].

pub(crate) mod args;
mod outcome;
mod remembered;

use super::assemble::configuration;
use super::assemble::found::start_of;
use super::assemble::start::{Start, StartOptions, running};
use super::search::{self, sets::FoundArray};
use crate::shared::probe::{Probe, ProbeError, probe};
use args::IncrementalArgs;
use outcome::{Outcome, Started};
use remembered::{RememberError, Remembered};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use uraid_config::{ArrayLine, Config, Left, PARTITIONS, Standing, UraidLine};
use uraid_control::client::{self, ClientError};
use uraid_control::log::{complain, print, warn};
use uraid_control::names;
use uraid_control::report::Report;
use uraid_engine::{AssembleError, AssembleOptions, Candidate, assemble};
use uraid_format::{FlagChange, Role, uuid};

/// mdadm's code for an array that could not be started.
const NOT_STARTED: u8 = 2;
/// How long a process that waits for members may take to start an array that has all of them.
const WAITER_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why a device is not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IncrementalError {
    /// The configuration does not let it be a member.
    #[error("{device}: no DEVICE line and no members= of {array} names it")]
    NotAdmitted {
        /// The device.
        device: String,
        /// The array, or any.
        array: String,
    },
    /// It has no superblock, or cannot be read.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Its array is not uraid's.
    #[error("{device} is a member of {name} ({uuid}), which is left alone: {left}")]
    Left {
        /// The device.
        device: String,
        /// The array's name.
        name: String,
        /// Its UUID.
        uuid: String,
        /// Why.
        left: Left,
    },
    /// The others are not known.
    #[error(transparent)]
    Remember(#[from] RememberError),
    /// Which arrays run is not known, or one refuses the device.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// No array has it.
    #[error("{device}: no running array has it as a member, and none waits for it")]
    NoMember {
        /// The device.
        device: String,
    },
    /// A server could not be started.
    #[error("cannot start a server")]
    Start(#[source] io::Error),
}

/// Takes a device in, or out.
pub(crate) fn run(args: &IncrementalArgs) -> Result<ExitCode, IncrementalError> {
    let config = configuration(args.config.as_deref());
    match &args.device {
        None => start_all(args, &config),
        Some(device) if args.fail => take_out(device, &args.aliases),
        Some(device) => take_in(device, args, &config),
    }
}

fn take_in(device: &str, args: &IncrementalArgs, config: &Config) -> Result<ExitCode, IncrementalError> {
    let names: Vec<&str> = [device].into_iter().chain(args.aliases.iter().map(String::as_str)).collect();
    let is_any = is_device_line(config, &names) || config.uraid.iter().any(|line| is_of_line(line, &names));
    let refused = |array: &str| IncrementalError::NotAdmitted { device: device.to_owned(), array: array.to_owned() };
    if !is_any {
        return Err(refused("any URAID line"));
    }
    let probed = probe(device, args.member_timeout.limit())?;
    let array = found(device, &probed);
    let system = names::homehost(None);
    let (line, listed) = match config.standing(&array.facts(), &system) {
        Standing::Ours { uraid, array } => (uraid, array),
        Standing::Left(left) => {
            let uuid = array.superblock.set_uuid;
            let name = names::short_name(&array.set_name, &uuid);
            return Err(IncrementalError::Left { device: device.to_owned(), name, uuid: uuid::text(&uuid), left });
        }
    };
    match take_in_ours(device, args, config, &array, &probed, (line, listed)) {
        Ok(code) if code == ExitCode::SUCCESS || !args.export => Ok(code),
        // udev reads nothing of a program that fails, and then mdadm's rules would give the device to the kernel.
        failed if args.export => {
            if let Err(error) = failed {
                complain(&error);
            }
            let is_foreign = !config.homehost.is_local(&array.set_name, &system);
            let uuid = array.superblock.set_uuid;
            let name = names::short_name(&array.set_name, &uuid);
            report(&Outcome { name, uuid, is_foreign, started: Started::No }, args, device, 0, 0);
            Ok(ExitCode::SUCCESS)
        }
        failed => failed,
    }
}

/// The same, of an array that is uraid's.
fn take_in_ours(
    device: &str,
    args: &IncrementalArgs,
    config: &Config,
    array: &FoundArray,
    probed: &Probe,
    (line, listed): (&UraidLine, Option<&ArrayLine>),
) -> Result<ExitCode, IncrementalError> {
    let names: Vec<&str> = [device].into_iter().chain(args.aliases.iter().map(String::as_str)).collect();
    let refused = |array: &str| IncrementalError::NotAdmitted { device: device.to_owned(), array: array.to_owned() };
    let start = start_of(config, array, Some(line), places(config, line, listed), StartOptions::default());
    let by_devices = || {
        is_device_line(config, &names) && listed.is_none_or(|line| names.iter().any(|name| line.admits_member(name)))
    };
    let is_admitted = is_of_line(line, &names) || (line.members.is_empty() && by_devices());
    if !is_admitted {
        return Err(refused(&start.label));
    }
    let uuid = array.superblock.set_uuid;
    let is_foreign = !config.homehost.is_local(&array.set_name, &names::homehost(None));
    let outcome = |started| Outcome { name: start.label.clone(), uuid, is_foreign, started };
    let mut remembered = Remembered::of(uuid)?;
    let path = client::member_path(device);
    if let Some(name) = running()?.get(&uuid) {
        remembered.forget();
        join(name, &path, probed)?;
        report(&outcome(Started::Already), args, device, 0, 0);
        return Ok(ExitCode::SUCCESS);
    }
    remembered.add(&path);
    let there = look(&mut remembered, args.member_timeout.limit());
    remembered.save()?;
    let (count, slots) = (there.len(), array.superblock.raid_disks);
    let started = match readiness(&there, args.run) {
        Readiness::Missing => Started::No,
        Readiness::Degraded if args.no_start => Started::Unsafe,
        Readiness::Degraded => {
            if let Some(time) = args.run_after {
                wait_in_background(&mut remembered, &start, time)?;
            }
            Started::Unsafe
        }
        Readiness::Complete if args.no_start => Started::Nothing,
        Readiness::Complete => {
            if !start_now(&remembered, &start, args)? {
                warn(&format!("{}: not started, see above", start.label));
                return Ok(ExitCode::from(NOT_STARTED));
            }
            Started::Yes
        }
    };
    report(&outcome(started), args, device, count, slots);
    Ok(ExitCode::SUCCESS)
}

/// `--run --scan`: starts every array that waits.
fn start_all(args: &IncrementalArgs, config: &Config) -> Result<ExitCode, IncrementalError> {
    let system = names::homehost(None);
    let mut is_good = true;
    for uuid in Remembered::arrays()? {
        let mut remembered = Remembered::of(uuid)?;
        let there = look(&mut remembered, args.member_timeout.limit());
        let Some((name, probed)) = there.first() else {
            remembered.forget();
            continue;
        };
        let array = found(name, probed);
        let Standing::Ours { uraid: line, array: listed } = config.standing(&array.facts(), &system) else { continue };
        if running()?.contains_key(&uuid) {
            remembered.forget();
            continue;
        }
        let start = start_of(config, &array, Some(line), places(config, line, listed), StartOptions::default());
        is_good &= match readiness(&there, true) {
            Readiness::Complete | Readiness::Degraded => start_now(&remembered, &start, args)?,
            Readiness::Missing => {
                let slots = array.superblock.raid_disks;
                warn(&format!(
                    "{}: has {} of {slots} members, which are too few to start it",
                    start.label,
                    there.len()
                ));
                false
            }
        };
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(NOT_STARTED) })
}

/// `--fail`: a device has gone.
fn take_out(device: &str, aliases: &[String]) -> Result<ExitCode, IncrementalError> {
    let paths: Vec<String> = [device].into_iter().chain(aliases.iter().map(String::as_str)).flat_map(both).collect();
    let is_it = |name: &String| paths.contains(name);
    let mut is_known = false;
    for uuid in Remembered::arrays()? {
        let mut remembered = Remembered::of(uuid)?;
        if remembered.members().iter().any(is_it) {
            is_known = true;
            remembered.keep(|name| !is_it(name));
            match remembered.members() {
                [] => remembered.forget(),
                [..] => remembered.save()?,
            }
        }
    }
    let all = client::ask_all(WAITER_TIME_MAX)?;
    all.silent.iter().for_each(|silent| complain(&silent.error));
    for report in &all.reports {
        for (path, is_faulty) in paths_in(report, &paths) {
            is_known = true;
            let mut client = client::find(Some(&report.name), None)?;
            let members = [path.clone()];
            // A member that cannot be spared stays, and the array goes on as far as it can. The array may have failed the
            // device meanwhile, and then it only has to go.
            let failed = if is_faulty { Ok(()) } else { client.fail(&members).map(drop) };
            client.remove(&members).map_err(|error| failed.err().unwrap_or(error))?;
            warn(&format!("{}: {path} has gone: it is failed and removed", report.name));
        }
    }
    if is_known { Ok(ExitCode::SUCCESS) } else { Err(IncrementalError::NoMember { device: device.to_owned() }) }
}

/// A name as it is, and as servers report it.
fn both(name: &str) -> [String; 2] {
    [name.to_owned(), client::member_path(name)]
}

/// The members of an array that have one of these paths, and whether each has failed.
fn paths_in(report: &Report, paths: &[String]) -> Vec<(String, bool)> {
    let its = report.members.iter().filter(|member| paths.iter().any(|path| member.is_called(path)));
    its.filter_map(|member| Some((member.path.clone()?, member.state.contains("faulty")))).collect()
}

/// What was found on one device.
fn found(device: &str, probed: &Probe) -> FoundArray {
    FoundArray {
        superblock: probed.superblock.clone(),
        members: vec![device.to_owned()],
        set_name: probed.superblock.set_name.as_str().into_owned(),
    }
}

/// Where members that are not there yet are looked for.
fn places(config: &Config, line: &UraidLine, listed: Option<&ArrayLine>) -> Vec<String> {
    let listed = listed.map(|line| line.devices.clone()).unwrap_or_default();
    let all = [line.members.clone(), listed, config.device_places()];
    all.into_iter().find(|places| !places.is_empty()).unwrap_or_default()
}

/// Whether a DEVICE line names the device: without one, every block device is meant.
fn is_device_line(config: &Config, names: &[&str]) -> bool {
    let places = config.device_places();
    let is_block = || names.iter().any(|name| std::fs::metadata(name).is_ok_and(|it| it.file_type().is_block_device()));
    let is_it = |place: &String| {
        let matches = |pattern: glob::Pattern| names.iter().any(|name| pattern.matches(name));
        (place == PARTITIONS && is_block()) || glob::Pattern::new(place).is_ok_and(matches)
    };
    (places.is_empty() && is_block()) || places.iter().any(is_it)
}

fn is_of_line(line: &UraidLine, names: &[&str]) -> bool {
    names.iter().any(|name| line.admits_member(name))
}

/// Reads the superblocks of the devices that were taken in, and forgets those that are no members any more.
fn look(remembered: &mut Remembered, time_max: Option<Duration>) -> Vec<(String, Probe)> {
    let uuid = remembered.uuid;
    let probed = |name: &String| Some((name.clone(), probe(name, time_max).ok()?));
    let there: Vec<(String, Probe)> = remembered
        .members()
        .iter()
        .filter_map(probed)
        .filter(|(_, probed)| probed.superblock.set_uuid == uuid)
        .collect();
    remembered.keep(|name| there.iter().any(|(other, _)| other == name));
    there
}

/// Whether an array can be started from what is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Readiness {
    /// Too few members.
    Missing,
    /// Members are missing that the superblocks expect, and the level can do without them.
    Degraded,
    /// None is missing, or that does not matter.
    Complete,
}

fn readiness(there: &[(String, Probe)], run: bool) -> Readiness {
    let candidates: Vec<Candidate> = there.iter().map(|(_, probed)| search::candidate(probed)).collect();
    match assemble(&candidates, &AssembleOptions { run, ..AssembleOptions::default() }) {
        Ok(_) => Readiness::Complete,
        Err(AssembleError::NeedsRun { .. }) => Readiness::Degraded,
        // A server says what is wrong with them; here, a device may come that decides it.
        Err(
            AssembleError::NoCandidates
            | AssembleError::OnlySpares { .. }
            | AssembleError::TooFewMembers { .. }
            | AssembleError::DirtyDegraded { .. }
            | AssembleError::SeveralArrays { .. }
            | AssembleError::Duplicate { .. }
            | AssembleError::Mismatch { .. }
            | AssembleError::SplitBrain { .. }
            | AssembleError::Unsupported(_)
            | AssembleError::TooManySlots { .. }
            | AssembleError::Layout(_),
        ) => Readiness::Missing,
    }
}

/// Gives a device to the array that runs.
fn join(name: &str, path: &str, probed: &Probe) -> Result<(), ClientError> {
    let mut client = client::find(Some(name), None)?;
    if client.status()?.members.iter().any(|member| member.is_called(path)) {
        return Ok(());
    }
    let members = [path.to_owned()];
    let superblock = &probed.superblock;
    match superblock.role_of(superblock.dev_number) {
        Role::Spare => client.add(&members, &[FlagChange::default()], false)?,
        // What it has missed must be known; else the operator decides, as with mdadm.
        Role::Slot(_) | Role::BeyondSlots(_) | Role::Faulty | Role::Journal | Role::Reserved(_) => {
            client.re_add(&members)?
        }
    };
    Ok(())
}

/// Starts the array; whether it runs.
fn start_now(remembered: &Remembered, start: &Start, args: &IncrementalArgs) -> Result<bool, IncrementalError> {
    if let Some(pid) = remembered.waiting() {
        warn(&format!("{}: process {pid}, which waits for its members, starts it", start.label));
        let began = Instant::now();
        while remembered.waiting().is_some() && began.elapsed() < WAITER_TIME_MAX {
            std::thread::sleep(LOOK_EVERY);
        }
        if running()?.contains_key(&remembered.uuid) {
            remembered.forget();
            return Ok(true);
        }
    }
    let options = StartOptions { run: args.run, ..start.options };
    let places = remembered.members().to_vec();
    let mut command = server(&Start { places, options, ..start.clone() }, &[])?;
    // udev takes what is printed for its own.
    command.stdout(if args.export { Stdio::null() } else { Stdio::inherit() });
    let status = command.status().map_err(IncrementalError::Start)?;
    if status.success() {
        remembered.forget();
    }
    Ok(status.success())
}

/// Leaves a process behind that starts the array when its members are there, or without them after this time.
fn wait_in_background(remembered: &mut Remembered, start: &Start, time: Duration) -> Result<(), IncrementalError> {
    if remembered.waiting().is_none() {
        let mut command = server(start, &[format!("--run-after={}ms", time.as_millis())])?;
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(IncrementalError::Start)?;
        remembered.set_waiting(child.id());
        remembered.save()?;
    }
    Ok(())
}

fn server(start: &Start, more: &[String]) -> Result<Command, IncrementalError> {
    let mut command = Command::new(std::env::current_exe().map_err(IncrementalError::Start)?);
    command.arg("serve").args(more).args(start.words()).stdin(Stdio::null());
    Ok(command)
}

fn report(outcome: &Outcome, args: &IncrementalArgs, device: &str, there: usize, slots: u32) {
    if args.export {
        print(&outcome.exported());
    } else {
        warn(&outcome.said(device, there, slots));
    }
}
