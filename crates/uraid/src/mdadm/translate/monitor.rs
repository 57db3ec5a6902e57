//! `mdadm --monitor` as `uraid monitor`.
//! Owns: which options are passed on. Not here: what they do (`uraid_operate::monitor`).

use super::super::line::{Line, Refusal};
use super::super::options::Opt;
use super::{Step, Steps};

/// What it takes.
pub(super) const OPTIONS: &[Opt] = &[
    Opt::Monitor,
    Opt::Config,
    Opt::Daemonise,
    Opt::Delay,
    Opt::Increment,
    Opt::Mail,
    Opt::NoSharing,
    Opt::Oneshot,
    Opt::PidFile,
    Opt::Program,
    Opt::Scan,
    Opt::Syslog,
    Opt::Test,
];

/// In the order in which they are passed on; uraid has the same names.
const PASSED_ON: [Opt; 12] = [
    Opt::Mail,
    Opt::Program,
    Opt::Delay,
    Opt::Increment,
    Opt::PidFile,
    Opt::Config,
    Opt::Scan,
    Opt::Syslog,
    Opt::Daemonise,
    Opt::Oneshot,
    Opt::Test,
    Opt::NoSharing,
];

pub(super) fn plan(line: &Line) -> Result<Steps, Refusal> {
    let arrays = line.words();
    if arrays.is_empty() && !line.has(Opt::Scan) {
        return Err(Refusal::Wrong("--monitor: which arrays? They come behind it, or --scan for all".to_owned()));
    }
    let mut words = vec!["monitor".to_owned()];
    for option in PASSED_ON.into_iter().filter(|option| line.has(*option)) {
        words.push(match line.value(option) {
            Some(value) => format!("--{}={value}", option.name()),
            None => format!("--{}", option.name()),
        });
    }
    words.extend(arrays.iter().cloned());
    Ok(Steps { steps: vec![Step::Verb(words)], arrays, ..Steps::default() })
}
