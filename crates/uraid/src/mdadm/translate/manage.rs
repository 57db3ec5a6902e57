//! `mdadm --manage`, also without the word, and what of `--grow` changes no geometry.
//! Owns: the order of what is done to an array and its members. Not here: what the verbs do (`running`).
//! Spec: mdadm(8): read-only comes first, then the members in order, then read-write, run, stop.

use super::super::line::{Device, Line, Refusal};
use super::super::options::{Mode, Opt};
use super::{Step, Steps, verb, verb_on};

/// What it takes.
pub(super) const OPTIONS: &[Opt] = &[
    Opt::Add,
    Opt::AddSpare,
    Opt::Fail,
    Opt::Failfast,
    Opt::Force,
    Opt::NoFailfast,
    Opt::ReAdd,
    Opt::Readonly,
    Opt::Readwrite,
    Opt::Remove,
    Opt::Replace,
    Opt::Run,
    Opt::Stop,
    Opt::Test,
    Opt::With,
    Opt::WriteMostly,
];

/// What `--grow` takes.
pub(super) const GROW_OPTIONS: &[Opt] = &[Opt::Grow, Opt::Bitmap, Opt::BitmapChunk, Opt::WriteBehind, Opt::Force];

/// The operations that take members.
const OPERATIONS: [Opt; 7] = [Opt::Add, Opt::AddSpare, Opt::Fail, Opt::ReAdd, Opt::Remove, Opt::Replace, Opt::With];

pub(super) fn plan(line: &Line) -> Result<Steps, Refusal> {
    let (array, members) = line.array()?;
    let mut steps = Vec::new();
    if line.has(Opt::Readonly) {
        steps.push(verb(&["readonly", array]));
    }
    if let Some(given) = line.options.iter().find(|given| OPERATIONS.contains(&given.option))
        && members.is_empty()
    {
        return Err(Refusal::Wrong(format!("{}: which members? They come behind it", given.word)));
    }
    if line.has(Opt::Readwrite) && !members.is_empty() {
        return Err(Refusal::Missing(
            "--readwrite: before members, it takes write-mostly from them: `uraid write-mostly ARRAY MEMBER... --clear`"
                .to_owned(),
        ));
    }
    let mut rest = members;
    while let Some(first) = rest.first() {
        let kind = kind(first)?;
        let count = rest.iter().take_while(|member| kind_is(member, kind)).count();
        let (these, others) = rest.split_at(count);
        steps.extend(steps_of(line, array, kind, these)?);
        rest = others;
    }
    if line.has(Opt::Readwrite) {
        steps.push(verb(&["readwrite", array]));
    }
    if line.has(Opt::Run) {
        steps.push(Step::MustRun(array.to_owned()));
    }
    if line.has(Opt::Stop) {
        steps.push(verb(&["stop", array]));
    }
    if steps.is_empty() {
        return Err(Refusal::Wrong(format!(
            "{array}: what is to be done with it? --add, --fail, --remove, --stop, ..."
        )));
    }
    let tests_change = line.has(Opt::Test) && !members.is_empty();
    Ok(Steps { steps, stops_at_failure: true, tests_change, arrays: vec![array.to_owned()] })
}

/// `--replace a --with b` is one operation.
fn kind(member: &Device) -> Result<Opt, Refusal> {
    let operation = member.operation.map(|option| if option == Opt::With { Opt::Replace } else { option });
    operation.ok_or_else(|| {
        Refusal::Wrong(format!(
            "{}: what is to be done with it? --add, --fail or --remove comes before it",
            member.word
        ))
    })
}

fn kind_is(member: &Device, kind: Opt) -> bool {
    member.operation == Some(kind) || kind == Opt::Replace && member.operation == Some(Opt::With)
}

fn steps_of(line: &Line, array: &str, kind: Opt, members: &[Device]) -> Result<Vec<Step>, Refusal> {
    let words = || members.iter().map(|member| member.word.clone());
    if let Some(member) = members.iter().find(|member| member.word.starts_with("set-")) {
        let text = "uraid has no word for half of a raid10: `uraid fail ARRAY MEMBER...` names its members";
        return Err(Refusal::Missing(format!("{}: {text}", member.word)));
    }
    let has = |word: &str| members.iter().any(|member| member.word == word);
    if [Opt::Add, Opt::AddSpare].contains(&kind) {
        return Ok(vec![add(line, array, members)]);
    }
    if kind == Opt::Replace {
        return replace(array, members).map(|step| vec![step]);
    }
    if kind == Opt::ReAdd && has("faulty") {
        return Ok(vec![verb(&["remove", array, "failed"]), verb(&["re-add", array, "missing"])]);
    }
    // A word that stands for several members is alone in uraid's line. mdadm's `faulty` is `failed`, too.
    if ["failed", "faulty", "detached", "missing"].into_iter().any(has) {
        let own = |word: String| if word == "faulty" { "failed".to_owned() } else { word };
        return Ok(words().map(|word| verb_on(kind.name(), array, [own(word)])).collect());
    }
    Ok(vec![verb_on(kind.name(), array, words())])
}

fn add(line: &Line, array: &str, members: &[Device]) -> Step {
    let mut words = vec!["add".to_owned()];
    if line.has(Opt::Force) {
        words.push("--force".to_owned());
    }
    words.push(array.to_owned());
    let (mut is_write_mostly, mut failfast) = (false, None);
    for member in members {
        if member.is_write_mostly && !is_write_mostly {
            words.push("--write-mostly".to_owned());
        }
        if member.failfast != failfast {
            words.push(if member.failfast == Some(true) { "--failfast" } else { "--nofailfast" }.to_owned());
        }
        (is_write_mostly, failfast) = (member.is_write_mostly, member.failfast);
        words.push(member.word.clone());
    }
    Step::Verb(words)
}

fn replace(array: &str, members: &[Device]) -> Result<Step, Refusal> {
    let of = |operation: Opt| -> Vec<String> {
        members.iter().filter(|member| member.operation == Some(operation)).map(|member| member.word.clone()).collect()
    };
    let (old, new) = (of(Opt::Replace), of(Opt::With));
    if !new.is_empty() && new.len() != old.len() {
        let text = format!("--with: {} spares for {} members: one for each --replace", new.len(), old.len());
        return Err(Refusal::Wrong(text));
    }
    let with = if new.is_empty() { None } else { Some("--with".to_owned()) };
    Ok(verb_on("replace", array, old.into_iter().chain(with).chain(new)))
}

/// `--grow`: what is not about the bitmap is refused. `refuse`: how.
pub(super) fn grow(line: &Line, refuse: impl Fn() -> Refusal) -> Result<Steps, Refusal> {
    debug_assert!(line.mode == Mode::Grow, "another mode");
    let (array, members) = line.array()?;
    let Some(place) = line.value(Opt::Bitmap).filter(|_| members.is_empty()) else { return Err(refuse()) };
    if !["internal", "none"].contains(&place) {
        return Err(Refusal::Missing(format!(
            "--bitmap={place}: uraid has bitmaps beside superblocks, or none: internal or \
                                             none"
        )));
    }
    let mut words = vec!["bitmap".to_owned(), array.to_owned(), place.to_owned()];
    if let Some(size) = line.value(Opt::BitmapChunk) {
        words.push(format!("--bitmap-chunk={size}"));
    }
    if line.has(Opt::WriteBehind) {
        words.push(line.value(Opt::WriteBehind).map_or("--write-behind".into(), |n| format!("--write-behind={n}")));
    }
    Ok(Steps { steps: vec![Step::Verb(words)], arrays: vec![array.to_owned()], ..Steps::default() })
}
