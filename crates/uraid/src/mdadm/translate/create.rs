//! `mdadm --create` as `uraid create`, and what is served afterwards.
//! Owns: [`NewArray`], names that mdadm gives a new array, values that only mdadm's arrays may have. Not here: making and
//! serving it (`start`).

use super::super::line::{Line, Refusal};
use super::super::options::Opt;
use uraid_option_values::MISSING;

/// An array that is to be made and served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::mdadm) struct NewArray {
    /// The words behind `uraid`.
    pub words: Vec<String>,
    /// The array as the line calls it.
    pub array: String,
    /// Its name in the superblocks.
    pub name: String,
    /// Its UUID, if the line has one.
    pub uuid: Option<String>,
    /// What stands behind `uraid serve --background`.
    pub served: Vec<String>,
}

/// The option of `uraid create` with which --force leaves alone what members carry, as mdadm's does.
pub(in crate::mdadm) const NO_OVERWRITE: &str = "--no-overwrite";

/// What it takes.
pub(super) const OPTIONS: &[Opt] = &[
    Opt::Create,
    Opt::AssumeClean,
    Opt::Auto,
    Opt::Bitmap,
    Opt::BitmapChunk,
    Opt::Chunk,
    Opt::Config,
    Opt::ConsistencyPolicy,
    Opt::DataOffset,
    Opt::Failfast,
    Opt::Force,
    Opt::Layout,
    Opt::Level,
    Opt::Metadata,
    Opt::Name,
    Opt::RaidDevices,
    Opt::Readonly,
    Opt::Run,
    Opt::Size,
    Opt::SpareDevices,
    Opt::Symlinks,
    Opt::Uuid,
    Opt::WriteBehind,
    Opt::WriteMostly,
];

/// Those that `uraid create` has, too, in the order in which they are passed on.
const PASSED_ON: [Opt; 17] = [
    Opt::Level,
    Opt::RaidDevices,
    Opt::SpareDevices,
    Opt::Chunk,
    Opt::Layout,
    Opt::Size,
    Opt::Metadata,
    Opt::Bitmap,
    Opt::BitmapChunk,
    Opt::ConsistencyPolicy,
    Opt::WriteBehind,
    Opt::DataOffset,
    Opt::Homehost,
    Opt::Config,
    Opt::AssumeClean,
    Opt::Run,
    Opt::Force,
];

pub(super) fn plan(line: &Line) -> Result<NewArray, Refusal> {
    let (array, members) = line.array()?;
    let own_name = name_of(array)?;
    check_values(line)?;
    let mut words = vec!["create".to_owned()];
    for option in PASSED_ON.into_iter().filter(|option| line.has(*option)) {
        words.push(match line.value(option) {
            Some(value) => format!("--{}={}", option.name(), of_uraid(option, value)),
            None => format!("--{}", option.name()),
        });
    }
    let name = line.value(Opt::Name).unwrap_or(own_name).to_owned();
    if !line.has(Opt::Run) {
        words.push(NO_OVERWRITE.to_owned());
    }
    words.push(format!("--name={name}"));
    let (mut is_write_mostly, mut failfast) = (false, None);
    for member in members {
        if member.is_write_mostly && !is_write_mostly {
            words.push("--write-mostly".to_owned());
        }
        if member.failfast == Some(true) && failfast != Some(true) {
            words.push("--failfast".to_owned());
        }
        (is_write_mostly, failfast) = (member.is_write_mostly, member.failfast);
        words.push(member.word.clone());
    }
    let read_only = line.has(Opt::Readonly).then(|| "--read-only".to_owned());
    let present = members.iter().filter(|member| member.word != MISSING).map(|member| member.word.clone());
    Ok(NewArray {
        words,
        array: array.to_owned(),
        name,
        uuid: line.value(Opt::Uuid).map(str::to_owned),
        served: read_only.into_iter().chain(present).collect(),
    })
}

/// A value in uraid's words.
fn of_uraid(option: Opt, value: &str) -> &str {
    match (option, value) {
        (Opt::Metadata, "1" | "default") => "1.2",
        (Opt::Homehost, "<none>") => "none",
        _ => value,
    }
}

/// The name that mdadm gives an array which the line calls so: 0 for /dev/md0.
fn name_of(array: &str) -> Result<&str, Refusal> {
    let name = match (array.strip_prefix("/dev/md/"), array.strip_prefix("/dev/md")) {
        (Some(name), _) => Some(name),
        (None, Some(number)) => number.bytes().all(|digit| digit.is_ascii_digit()).then_some(number),
        (None, None) => Some(array),
    };
    name.filter(|name| !name.is_empty() && !name.contains('/')).ok_or_else(|| {
        Refusal::Wrong(format!(
            "{array}: is no name for an array: /dev/mdN, /dev/md/NAME or NAME comes before the members"
        ))
    })
}

fn check_values(line: &Line) -> Result<(), Refusal> {
    let missing = |text: String| Err(Refusal::Missing(text));
    match line.value(Opt::Metadata) {
        Some(kind @ ("imsm" | "ddf")) => {
            return missing(format!(
                "--metadata={kind}: uraid has no arrays of firmware (IMSM, DDF): 1.0, 1.1 and 1.2 are"
            ));
        }
        Some(kind @ ("0" | "0.90" | "0.9")) => {
            return missing(format!(
                "--metadata={kind}: uraid reads superblocks of version 0.90 and writes none: use 1.0, at \
                                    the end of a member as they are"
            ));
        }
        Some(_) | None => {}
    }
    match line.value(Opt::Level) {
        Some(level @ ("container" | "-c")) => {
            return missing(format!(
                "--level={level}: uraid has no arrays of firmware (IMSM, DDF), whose containers these are"
            ));
        }
        Some(level @ ("multipath" | "mp" | "faulty" | "-4" | "-5")) => {
            return missing(format!("--level={level}: uraid has no such level, and Linux has none since 6.8"));
        }
        Some(_) => {}
        None => return Err(Refusal::Wrong("--level: which RAID level? Such as --level=1".to_owned())),
    }
    if !line.has(Opt::RaidDevices) {
        return Err(Refusal::Wrong("--raid-devices: how many members are active? Such as --raid-devices=2".to_owned()));
    }
    let bitmap = line.value(Opt::Bitmap);
    match bitmap {
        Some("clustered") => {
            return missing(
                "--bitmap=clustered: uraid has no clusters of hosts that share an array: use --bitmap=internal".into(),
            );
        }
        Some("lockless") => {
            return missing("--bitmap=lockless: uraid makes no lockless bitmaps: use --bitmap=internal".into());
        }
        Some(file) if file.contains('/') => {
            return missing(format!(
                "--bitmap={file}: uraid keeps no bitmaps in files, as Linux no longer does: use --bitmap=internal"
            ));
        }
        Some(_) | None => {}
    }
    if line.value(Opt::ConsistencyPolicy) == Some("journal") {
        return missing(
            "--consistency-policy=journal: uraid has no journal: --consistency-policy=ppl leaves a raid5 no write hole"
                .into(),
        );
    }
    if line.value(Opt::DataOffset) == Some("variable") {
        return missing("--data-offset=variable: uraid has one offset for all members: use --data-offset=SIZE".into());
    }
    let has_bitmap = bitmap == Some("internal") || line.value(Opt::ConsistencyPolicy) == Some("bitmap");
    if line.has(Opt::WriteBehind) && !has_bitmap {
        return Err(Refusal::Wrong("--write-behind: needs a bitmap: add --bitmap=internal".to_owned()));
    }
    Ok(())
}
