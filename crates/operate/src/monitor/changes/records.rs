//! The events that follow from the records of an array's history.
//! Owns: one record. Not here: what no record says (`compare`).
//! Invariant: a record of what was told already gives no event.

use crate::monitor::event::{EventKind, News};
use crate::monitor::memory::{ArrayMemory, PassMemory};
use crate::monitor::moment::Moment;
use crate::monitor::sight::{Happening, Sight, What};

/// How many places of mismatches an event lists.
const PLACES_MAX: usize = 16;

impl ArrayMemory {
    /// The events of a record.
    pub(super) fn record(&mut self, happening: &Happening, now: &Moment) -> Vec<News> {
        let Happening { time, is_in_maintenance, what } = happening;
        let news = match what {
            What::Started => self.start(),
            What::Stopped => self.stop(now),
            What::Failed { path, was_spare, reason } => self.fail(path, *was_spare, reason.as_deref(), now),
            What::Active { path, slot } => self.activate(path, *slot),
            What::Added { path } => {
                self.spares.insert(path.clone());
                self.faulty.remove(path);
                Vec::new()
            }
            What::Removed { path } => {
                // It failed and was removed at once.
                let news = if self.in_sync.contains_key(path) { self.fail(path, false, None, now) } else { Vec::new() };
                self.spares.remove(path);
                self.faulty.remove(path);
                news
            }
            What::Replaced { path } => {
                self.in_sync.remove(path);
                self.faulty.insert(path.clone());
                Vec::new()
            }
            What::PassStarted { word } => self.begin_pass(word),
            What::PassEnded { .. } => self.record_end(what),
            What::Frozen { reason } => self.freeze(reason),
            What::WriteHole { text } => vec![News::of(EventKind::WriteHole).saying(text.clone())],
        };
        news.into_iter().map(|news| News { time: Some(*time), is_in_maintenance: *is_in_maintenance, ..news }).collect()
    }

    fn start(&mut self) -> Vec<News> {
        if self.is_present {
            return Vec::new();
        }
        (self.is_present, self.gone_since) = (true, None);
        vec![News::of(EventKind::NewArray)]
    }

    fn stop(&mut self, now: &Moment) -> Vec<News> {
        if !self.is_present {
            return Vec::new();
        }
        self.disappear(now);
        vec![News::of(EventKind::DeviceDisappeared)]
    }

    pub(super) fn fail(&mut self, path: &str, was_spare: bool, reason: Option<&str>, now: &Moment) -> Vec<News> {
        let was_in_sync = self.in_sync.remove(path).is_some();
        let was_known = self.spares.remove(path) || was_in_sync;
        if !self.faulty.insert(path.to_owned()) && !was_known {
            return Vec::new();
        }
        let is_fail = was_in_sync || (!was_known && !was_spare);
        let kind = if is_fail { EventKind::Fail } else { EventKind::FailSpare };
        if is_fail {
            self.note_degraded(now);
        }
        vec![News { description: reason.map(str::to_owned), ..News::about(kind, path) }]
    }

    pub(super) fn activate(&mut self, path: &str, slot: Option<u16>) -> Vec<News> {
        self.spares.remove(path);
        self.faulty.remove(path);
        let was_in_sync = self.in_sync.insert(path.to_owned(), slot.unwrap_or(u16::MAX)).is_some();
        (!was_in_sync).then(|| News::about(EventKind::SpareActive, path)).into_iter().collect()
    }

    pub(super) fn begin_pass(&mut self, word: &str) -> Vec<News> {
        if self.pass.as_ref().is_some_and(|pass| pass.word == word) {
            return Vec::new();
        }
        self.pass = Some(PassMemory { word: word.to_owned(), told: 0 });
        self.end_was_seen = false;
        vec![News::of(EventKind::RebuildStarted).saying(word)]
    }

    /// One that was so short that nobody saw its beginning is told, too.
    fn record_end(&mut self, ended: &What) -> Vec<News> {
        let was_seen = std::mem::take(&mut self.end_was_seen);
        if was_seen { Vec::new() } else { self.end_pass(ended) }
    }

    /// Its end is seen, and not recorded yet.
    pub(super) fn see_end(&mut self, ended: &What) -> Vec<News> {
        self.end_was_seen = true;
        self.end_pass(ended)
    }

    fn end_pass(&mut self, ended: &What) -> Vec<News> {
        let What::PassEnded { word, is_complete, why, mismatched, places } = ended else { return Vec::new() };
        self.pass = None;
        // By `uraid idle`, or by `uraid scrub` in the morning.
        if !is_complete && word == "check" && why.as_deref() == Some("ended") {
            return vec![News::of(EventKind::RebuildPaused).saying("check, by a command; the next one goes on there")];
        }
        if !is_complete {
            let why = why.as_ref().map_or_else(|| word.clone(), |why| format!("{word} {why}"));
            return vec![News::of(EventKind::RebuildAborted).saying(why)];
        }
        let mismatches = Sight::mismatches(&self.level, *mismatched);
        let mut news = vec![News { description: mismatches, ..News::of(EventKind::RebuildFinished) }];
        if *mismatched > 0 {
            let first = places.first().map(|place| format!("; the first at sector {} of the array", place.sector));
            let text = format!("{mismatched} sectors of a member disagree{}", first.unwrap_or_default());
            let places = places.iter().take(PLACES_MAX).cloned().collect();
            news.push(News { places, ..News::of(EventKind::MismatchesFound).saying(text) });
        }
        news
    }

    pub(super) fn freeze(&mut self, reason: &str) -> Vec<News> {
        let is_new = !std::mem::replace(&mut self.is_frozen, true);
        is_new.then(|| News::of(EventKind::ArrayFrozen).saying(reason)).into_iter().collect()
    }
}
