//! A folder of reactions: one executable for each kind of event.
//! Owns: which file an event runs, how often a file is run. Not here: its arguments and environment (`program`).
//! Invariant: a file runs at most so often a minute, whatever happens; what was left out is counted and said.

use super::program::run_for;
use super::{Channel, Filter, Job, NotTold, Told};
use crate::monitor::trusted::{self, Kind};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// In which time a file is run at most `a_minute` times.
const MINUTE: Duration = Duration::from_secs(60);
/// How long one may take.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A folder of reactions.
pub(crate) struct Reactions {
    folder: PathBuf,
    a_minute: usize,
    runs: BTreeMap<&'static str, Runs>,
}

/// When one file was run in the last minute, and how often it was not since.
#[derive(Default)]
struct Runs {
    begun: VecDeque<Instant>,
    left_out: u64,
}

impl Runs {
    /// Whether it may run now.
    fn admit(&mut self, a_minute: usize, now: Instant) -> bool {
        while self.begun.front().is_some_and(|begun| now.saturating_duration_since(*begun) >= MINUTE) {
            self.begun.pop_front();
        }
        let is_admitted = self.begun.len() < a_minute;
        if is_admitted {
            self.begun.push_back(now);
        } else {
            self.left_out += 1;
        }
        is_admitted
    }
}

impl Reactions {
    /// Of this folder, each file at most so often a minute.
    pub(crate) fn new(folder: PathBuf, a_minute: usize) -> Reactions {
        Reactions { folder, a_minute, runs: BTreeMap::new() }
    }

    fn run(&mut self, path: &Path, job: &Job) -> Result<Told, NotTold> {
        let (name, a_minute) = (job.event.kind.file(), self.a_minute);
        let runs = self.runs.entry(name).or_default();
        if !runs.admit(a_minute, Instant::now()) {
            let first = runs.left_out == 1;
            let text = format!("{name}: {} is run at most {a_minute} times a minute: left out", path.display());
            return Ok(if first { Told::DoneSaying(text) } else { Told::Done });
        }
        let left_out = std::mem::take(&mut runs.left_out);
        let said = |text: String| format!("{text}; {left_out} events before it were left out");
        match run_for(path, job, TIME_MAX)? {
            Told::Done if left_out > 0 => Ok(Told::DoneSaying(said(format!("{name}: {} has run", path.display())))),
            Told::Done => Ok(Told::Done),
            Told::DoneSaying(text) if left_out > 0 => Ok(Told::DoneSaying(said(text))),
            Told::DoneSaying(text) => Ok(Told::DoneSaying(text)),
        }
    }
}

impl Channel for Reactions {
    fn name(&self) -> &'static str {
        "reactions"
    }

    fn filter(&self) -> Filter {
        Filter::Folder(self.folder.clone())
    }

    fn tell(&mut self, job: &Job) -> Result<Told, NotTold> {
        let name = job.event.kind.file();
        let folder = trusted::trusted(&self.folder, Kind::Folder);
        folder.map_err(|error| NotTold::new(format!("no reaction to {name}: {error}")))?;
        // It was there when the event arose, and may be gone.
        if !self.filter().admits(&job.event) {
            return Ok(Told::Done);
        }
        self.run(&self.folder.join(name), job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_runs_at_most_so_often_a_minute_and_what_is_left_out_is_counted() {
        let (mut runs, began) = (Runs::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let admitted: Vec<bool> = [0, 1, 2, 59, 60, 61, 62].map(|time| runs.admit(2, at(time))).into();
        assert_eq!(admitted, [true, true, false, false, true, true, false]);
        assert_eq!(runs.left_out, 3);
    }
}
