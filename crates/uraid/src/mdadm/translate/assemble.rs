//! `mdadm --assemble` as `uraid assemble`, after `uraid update` if the line changes superblocks.
//! Owns: which words of the line are whose. Not here: finding members (`serve::assemble`).

use super::super::line::{Line, Refusal};
use super::super::options::Opt;
use super::{Step, Steps};

/// What it takes.
pub(super) const OPTIONS: &[Opt] = &[
    Opt::Assemble,
    Opt::Auto,
    Opt::Config,
    Opt::Force,
    Opt::Name,
    Opt::NoDegraded,
    Opt::Readonly,
    Opt::Run,
    Opt::Scan,
    Opt::SuperMinor,
    Opt::Symlinks,
    Opt::Update,
    Opt::Uuid,
];

/// Options of `uraid assemble` without a value.
const FLAGS: [(Opt, &str); 5] = [
    (Opt::Run, "--run"),
    (Opt::NoDegraded, "--no-degraded"),
    (Opt::Force, "--force"),
    (Opt::Readonly, "--read-only"),
    (Opt::Verbose, "--verbose"),
];

pub(super) fn plan(line: &Line) -> Result<Steps, Refusal> {
    if line.has(Opt::SuperMinor) {
        let text = "uraid finds members by the UUID or name of their array: --uuid=UUID or --name=NAME";
        return Err(Refusal::Missing(format!("--super-minor: {text}")));
    }
    let update = line.value(Opt::Update);
    // With an identity, one array is meant.
    let has_identity = update.is_none() && (line.has(Opt::Uuid) || line.has(Opt::Name));
    let is_scan = line.has(Opt::Scan) && !has_identity;
    if !is_scan && !has_identity {
        line.array()?;
    }
    if is_scan && update.is_some() {
        return Err(Refusal::Wrong(
            "--update: is for one array, whose members are given, and not for --scan".to_owned(),
        ));
    }
    let mut steps = Vec::new();
    if let Some(what) = update {
        steps.push(changed(line, what)?);
    }
    let mut words = vec!["assemble".to_owned()];
    if is_scan {
        words.push("--scan".to_owned());
    }
    words.extend(FLAGS.iter().filter(|(option, _)| line.has(*option)).map(|(_, word)| (*word).to_owned()));
    let of = |option: Opt| line.value(option).map(|value| format!("--{}={value}", option.name()));
    words.extend(of(Opt::Config));
    if has_identity {
        words.extend([of(Opt::Uuid), of(Opt::Name)].into_iter().flatten());
    }
    words.extend(line.words());
    steps.push(Step::Verb(words));
    let arrays = if is_scan { line.words() } else { line.words().into_iter().take(1).collect() };
    Ok(Steps { steps, stops_at_failure: true, arrays, ..Steps::default() })
}

/// `--update=WHAT`.
fn changed(line: &Line, what: &str) -> Result<Step, Refusal> {
    let (array, members) = line.array()?;
    if members.is_empty() {
        return Err(Refusal::Wrong(format!(
            "{array}: which are its members? They come behind it, as --update changes them all"
        )));
    }
    let of = |option: Opt| line.value(option).map(|value| format!("--{}={value}", option.name()));
    let options = match what {
        "name" => [of(Opt::Name), of(Opt::Homehost)],
        "homehost" => [of(Opt::Homehost), None],
        "uuid" => [of(Opt::Uuid), None],
        _ => [None, None],
    };
    let words = ["update".to_owned(), what.to_owned()].into_iter().chain(options.into_iter().flatten());
    Ok(Step::Verb(words.chain(members.iter().map(|member| member.word.clone())).collect()))
}
