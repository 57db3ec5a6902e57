//! `mdadm --incremental` as `uraid incremental`.
//! Owns: which options are passed on. Not here: what they do (`serve::incremental`).

use super::super::line::{Line, Refusal};
use super::super::options::Opt;
use super::{Step, Steps};

/// What it takes. The place of a device that has gone, `--path`, is for slots that mdadm remembers.
pub(super) const OPTIONS: &[Opt] = &[
    Opt::Incremental,
    Opt::Auto,
    Opt::Config,
    Opt::Fail,
    Opt::Metadata,
    Opt::Path,
    Opt::RebuildMap,
    Opt::Run,
    Opt::Scan,
];

pub(super) fn plan(line: &Line) -> Result<Steps, Refusal> {
    if line.has(Opt::RebuildMap) {
        let text = "uraid keeps the map of its arrays itself, and writes it when one is started";
        return Err(Refusal::Missing(format!("--rebuild-map: {text}")));
    }
    if line.devices.is_empty() && !line.has(Opt::Scan) {
        return Err(Refusal::Wrong("--incremental: which device? It comes behind it".to_owned()));
    }
    if line.has(Opt::Scan) && !line.has(Opt::Run) {
        return Err(Refusal::Wrong("--scan: means nothing with --incremental without --run".to_owned()));
    }
    let mut words = vec!["incremental".to_owned()];
    let flags = [Opt::Run, Opt::Scan, Opt::Fail, Opt::Export];
    words.extend(flags.into_iter().filter(|flag| line.has(*flag)).map(|flag| format!("--{}", flag.name())));
    words.extend(line.value(Opt::Config).map(|file| format!("--config={file}")));
    words.extend(line.words());
    Ok(Steps { steps: vec![Step::Verb(words)], ..Steps::default() })
}
