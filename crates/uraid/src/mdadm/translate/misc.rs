//! `mdadm --misc`, also without the word: what is shown of a device, or done to it alone.
//! Owns: which of these a line asks for, and its verb. Not here: what the verbs do (`running`, `offline`).

use super::super::line::{Line, Refusal};
use super::super::options::Opt;
use super::{Step, Steps, verb};

/// What it takes.
pub(super) const OPTIONS: &[Opt] = &[
    Opt::Action,
    Opt::Config,
    Opt::Detail,
    Opt::Examine,
    Opt::ExamineBadblocks,
    Opt::ExamineBitmap,
    Opt::Force,
    Opt::Metadata,
    Opt::Query,
    Opt::Readonly,
    Opt::Readwrite,
    Opt::Run,
    Opt::Scan,
    Opt::Stop,
    Opt::Test,
    Opt::Wait,
    Opt::WaitClean,
    Opt::ZeroSuperblock,
];

/// What can be asked for; of several, the first here counts, as `--query --detail` is `--detail`.
const ACTIONS: [Opt; 13] = [
    Opt::Detail,
    Opt::Examine,
    Opt::ExamineBitmap,
    Opt::ExamineBadblocks,
    Opt::ZeroSuperblock,
    Opt::Action,
    Opt::Stop,
    Opt::Wait,
    Opt::WaitClean,
    Opt::Readonly,
    Opt::Readwrite,
    Opt::Run,
    Opt::Query,
];

pub(super) fn plan(line: &Line) -> Result<Steps, Refusal> {
    // A line of nothing but devices asks what they are.
    let action = ACTIONS.into_iter().find(|action| line.has(*action)).unwrap_or(Opt::Query);
    let devices = line.words();
    let is_scan = line.has(Opt::Scan);
    let takes_scan = [Opt::Detail, Opt::Examine, Opt::Stop, Opt::WaitClean].contains(&action);
    if devices.is_empty() && !(is_scan && takes_scan) {
        let scan = if takes_scan { ", or --scan for all" } else { "" };
        return Err(Refusal::Wrong(format!("--{}: of which device? It comes behind it{scan}", action.name())));
    }
    let each = |name: &str| -> Vec<Step> { devices.iter().map(|device| verb(&[name, device])).collect() };
    let shows_members = [Opt::ExamineBitmap, Opt::ExamineBadblocks, Opt::ZeroSuperblock].contains(&action);
    let steps = if action == Opt::Detail {
        detail(line, &devices, is_scan)
    } else if action == Opt::Examine {
        vec![examine(line, &devices, is_scan)]
    } else if shows_members {
        of_members(line, action, &devices)
    } else if action == Opt::Action {
        each(pass(line.value(Opt::Action).unwrap_or_default())?)
    } else if action == Opt::Stop && devices.is_empty() {
        vec![verb(&["stop", "--scan"])]
    } else if [Opt::WaitClean, Opt::Run].contains(&action) {
        // uraid marks idle arrays clean by itself, and starts no array in part.
        devices.iter().cloned().map(Step::MustRun).collect()
    } else if action == Opt::Query {
        devices.iter().map(|device| verb(&["detail", "--query", device])).collect()
    } else {
        each(action.name())
    };
    let is_of_members = shows_members || action == Opt::Examine;
    let arrays = if is_of_members { Vec::new() } else { devices };
    Ok(Steps { steps, arrays, ..Steps::default() })
}

/// The verb of `--action=`.
fn pass(action: &str) -> Result<&str, Refusal> {
    match action {
        "check" | "repair" | "idle" => Ok(action),
        "frozen" => Ok("freeze"),
        other => Err(Refusal::Wrong(format!("--action={other}: expected check, repair, idle or frozen"))),
    }
}

fn detail(line: &Line, devices: &[String], is_scan: bool) -> Vec<Step> {
    let mut words = vec!["detail"];
    let mut pass_on = |option: Opt, word: &'static str| {
        if line.has(option) {
            words.push(word);
        }
    };
    pass_on(Opt::Test, "--test");
    pass_on(Opt::Export, "--export");
    if line.has(Opt::Export) {
        pass_on(Opt::NoDevices, "--no-devices");
    }
    if !line.has(Opt::Export) {
        pass_on(Opt::Brief, "--brief");
    }
    if devices.is_empty() {
        words.push("--scan");
    } else if is_scan && !line.has(Opt::Brief) && !line.has(Opt::Export) {
        words.push("--brief");
    }
    let is_brief = words.contains(&"--brief") || words.contains(&"--scan");
    if line.has(Opt::Verbose) && is_brief {
        words.push("--verbose");
    }
    let one =
        |device: &[String]| Step::Verb(words.iter().map(|word| (*word).to_owned()).chain(device.to_vec()).collect());
    // Of several arrays, the highest code of --test counts: one command knows it.
    if devices.is_empty() || line.has(Opt::Test) { vec![one(devices)] } else { devices.chunks(1).map(one).collect() }
}

fn examine(line: &Line, devices: &[String], is_scan: bool) -> Step {
    let mut words = vec!["examine"];
    let is_brief = is_scan || line.has(Opt::Brief);
    match (line.has(Opt::Export), is_scan, line.has(Opt::Brief)) {
        (true, ..) => words.push("--export"),
        (false, true, _) => words.push("--scan"),
        (false, false, true) => words.push("--brief"),
        (false, false, false) => {}
    }
    if line.has(Opt::Verbose) && is_brief && !line.has(Opt::Export) {
        words.push("--verbose");
    }
    let config = line.value(Opt::Config).filter(|_| is_scan && !line.has(Opt::Export));
    let config = config.map(|file| format!("--config={file}"));
    Step::Verb(words.into_iter().map(str::to_owned).chain(config).chain(devices.to_vec()).collect())
}

/// One step for each member: what is wrong with one keeps none of the others from it.
fn of_members(line: &Line, action: Opt, devices: &[String]) -> Vec<Step> {
    let words: &[&str] = match (action, line.has(Opt::Force)) {
        (Opt::ExamineBitmap, _) => &["examine", "--bitmap"],
        (Opt::ExamineBadblocks, _) => &["examine", "--bad-blocks"],
        (_, true) => &["zero-superblock", "--force"],
        (_, false) => &["zero-superblock"],
    };
    let one =
        |device: &String| Step::Verb(words.iter().map(|word| (*word).to_owned()).chain([device.clone()]).collect());
    devices.iter().map(one).collect()
}
