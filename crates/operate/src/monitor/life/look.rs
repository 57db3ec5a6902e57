//! One look at all arrays that are watched.
//! Owns: asking them, which are watched, spares on their way, test messages. Not here: the events (`changes`).

use super::Life;
use crate::monitor::changes::{self, Rules};
use crate::monitor::channel::{Job, Told};
use crate::monitor::event::{Event, EventKind, News};
use crate::monitor::memory::ArrayMemory;
use crate::monitor::moment::Moment;
use crate::monitor::past;
use crate::monitor::settings::Settings;
use crate::monitor::sharing::{self, Moving, Step};
use crate::monitor::sight::{Seen, Sight};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::{Duration, Instant};
use uraid_control::client::{self, AllAsked};
use uraid_control::log::{warn, with_causes};
use uraid_control::report::{Report, mdstat};
use uraid_control::{dates, names};

/// How long servers are waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(4);
/// An array that is gone for so long is forgotten: 90 days.
const FORGOTTEN_SECONDS: u64 = 90 * 86_400;
/// How long a move of a spare that has failed is not tried.
const REFUSED_FOR: Duration = Duration::from_secs(60);

impl Life {
    /// Asks all arrays, and puts the events on their way.
    pub(super) fn look(&mut self) -> Result<(), Box<dyn Error>> {
        let AllAsked { reports, silent } = match client::ask_all(ANSWER_TIME_MAX) {
            Ok(asked) => asked,
            Err(error) if self.has_looked => {
                // It worked before: another look may work again.
                self.say_once(with_causes(&error));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.say_once(silent.iter().map(|unasked| with_causes(&unasked.error)).collect::<Vec<_>>().join("; "));
        let silent: BTreeSet<String> = silent.into_iter().map(|unasked| unasked.name).collect();
        let watched: BTreeMap<String, Report> = reports
            .into_iter()
            .filter(|report| is_watched(&self.settings, report))
            .map(|report| (report.uuid.clone(), report))
            .collect();
        let acknowledged = self.take_acknowledged();
        if self.settings.is_test && !self.has_looked {
            self.test_messages(&watched);
        }
        self.arrays(&watched, &silent);
        self.missing(&watched);
        let has_redundancy = |report: &Report| Sight::of(report, None).has_redundancy;
        self.has_no_redundancy = !self.settings.is_scan && !watched.values().any(has_redundancy);
        if self.has_no_redundancy && !self.settings.is_oneshot {
            warn("No array with redundancy detected, stopping");
        }
        self.reports = watched.into_values().collect();
        let now = Moment::now();
        let is_kept =
            |array: &ArrayMemory| !array.gone_since.as_ref().is_some_and(|gone| gone.is_over(FORGOTTEN_SECONDS, &now));
        self.state.arrays.retain(|_, array| is_kept(array));
        (self.has_looked, self.state.has_looked) = (true, true);
        self.save();
        self.keep.forget_acknowledged(&acknowledged);
        if self.settings.is_sharing {
            self.share();
        }
        Ok(())
    }

    fn say_once(&mut self, text: String) {
        if !text.is_empty() && text != self.said {
            warn(&text);
        }
        self.said = text;
    }

    fn take_acknowledged(&mut self) -> Vec<String> {
        let acknowledged = self.keep.acknowledged();
        for uuid in &acknowledged {
            if let Some(reminder) = self.state.arrays.get_mut(uuid).and_then(|array| array.degraded.as_mut()) {
                reminder.is_acknowledged = true;
            }
        }
        acknowledged
    }

    fn rules(&self) -> Rules {
        let tells_new = self.state.has_looked && self.settings.is_scan;
        Rules { increment: self.settings.increment, tells_new, now: Moment::now() }
    }

    /// The events of all arrays that are known or seen.
    fn arrays(&mut self, watched: &BTreeMap<String, Report>, silent: &BTreeSet<String>) {
        let rules = self.rules();
        let known = self.state.arrays.iter().filter(|(_, array)| is_remembered(&self.settings, array));
        let keys: BTreeSet<String> = known.map(|(key, _)| key).chain(watched.keys()).cloned().collect();
        for key in keys.into_iter().filter(|key| !key.starts_with(NAMED)) {
            let array = self.state.arrays.entry(key.clone()).or_default();
            let seen = match watched.get(&key) {
                Some(report) => Seen::Running(Box::new(Sight::of(report, self.settings.spares_of(report)))),
                None if silent.contains(&names::file_name(&array.name)) => Seen::Silent,
                None => Seen::Absent,
            };
            // Read behind the report, so that it knows all that the report shows.
            let past = past::since(&key, array.order);
            let happenings = past.as_ref().map(|(records, _)| if array.is_new() { &[][..] } else { &records[..] });
            let news = changes::changes(array, &seen, happenings, &rules);
            if let Some((_, last)) = past {
                array.order = last;
            }
            news.into_iter().for_each(|news| self.tell(&key, news));
        }
    }

    /// Arrays that were asked for, and that nobody has seen.
    fn missing(&mut self, watched: &BTreeMap<String, Report>) {
        if self.settings.is_scan {
            for (uuid, name) in self.settings.listed() {
                if !self.state.arrays.contains_key(&uuid) {
                    let device = format!("/dev/md/{name}");
                    self.never_seen(&uuid, ArrayMemory { name, device, uuid: uuid.clone(), ..ArrayMemory::default() });
                }
            }
        }
        for word in self.settings.arrays.clone() {
            let key = format!("{NAMED}{word}");
            let is_seen = watched.values().any(|report| report.is_named_by(&word))
                || self.state.arrays.iter().any(|(key, array)| !key.starts_with(NAMED) && array.is_called(&word));
            if is_seen {
                self.state.arrays.remove(&key);
            } else if !self.state.arrays.contains_key(&key) {
                let device = if word.starts_with('/') { word.clone() } else { format!("/dev/md/{word}") };
                self.never_seen(&key, ArrayMemory { name: word, device, ..ArrayMemory::default() });
            }
        }
    }

    fn never_seen(&mut self, key: &str, mut array: ArrayMemory) {
        let news = changes::never_seen(&mut array, &Moment::now());
        self.state.arrays.insert(key.to_owned(), array);
        news.into_iter().for_each(|news| self.tell(key, news));
    }

    fn test_messages(&mut self, watched: &BTreeMap<String, Report>) {
        for (key, report) in watched {
            let array = self.state.arrays.entry(key.clone()).or_default();
            let is_new = array.is_new();
            let before = array.clone();
            // The event has the array's names, and its first sight comes behind.
            (array.name, array.device, array.uuid) = (report.name.clone(), report.dev_path(), report.uuid.clone());
            self.tell(key, News::of(EventKind::TestMessage));
            if is_new {
                self.state.arrays.insert(key.clone(), before);
            }
        }
    }

    /// Moves a spare, if one is due.
    fn share(&mut self) {
        self.refused.retain(|_, until| *until > Instant::now());
        if self.state.moving.is_none() {
            let is_refused = |moving: &Moving| self.refused.contains_key(&moving.spare);
            let may_share = |from: &Report, to: &Report, spare: &str| self.settings.may_share(from, to, spare);
            self.state.moving = sharing::due(&self.reports, may_share, is_refused);
        }
        let Some(mut moving) = self.state.moving.clone() else { return };
        self.save();
        let device = |uuid: &str| self.state.arrays.get(uuid).map_or(uuid.to_owned(), |array| array.device.clone());
        let (from, to) = (device(&moving.from), device(&moving.to));
        match sharing::advance(&mut moving, &self.reports) {
            Step::Arrived => {
                let news = News::about(EventKind::MoveSpare, &from).saying(format!("the spare {}", moving.spare));
                self.state.moving = None;
                self.tell(&moving.to.clone(), news);
            }
            Step::Kept(why) => {
                warn(&format!("{to}: lacks a spare: {from}: {why}"));
                self.refused.insert(moving.spare.clone(), Instant::now() + REFUSED_FOR);
                self.state.moving = None;
            }
            Step::Waits(why) => {
                self.say_once(why);
                self.state.moving = Some(moving);
            }
        }
        self.save();
    }
}

/// What the keys of arrays begin with that were never seen.
const NAMED: &str = "name:";

fn is_watched(settings: &Settings, report: &Report) -> bool {
    settings.is_scan || settings.arrays.iter().any(|word| report.is_named_by(word))
}

fn is_remembered(settings: &Settings, array: &ArrayMemory) -> bool {
    settings.is_scan || settings.arrays.iter().any(|word| array.is_called(word))
}

/// A TestMessage for each array, at once, by all channels.
pub(super) fn test_messages(mut settings: Settings) -> Result<(), Box<dyn Error>> {
    let AllAsked { reports, .. } = client::ask_all(ANSWER_TIME_MAX)?;
    let (picture, now) = (mdstat(&reports), dates::now());
    let watched: Vec<&Report> = reports.iter().filter(|report| is_watched(&settings, report)).collect();
    for (nth, report) in watched.into_iter().enumerate() {
        let event = Event {
            id: format!("test-{now:x}-{}-{nth}", std::process::id()),
            kind: EventKind::TestMessage,
            device: report.dev_path(),
            array: report.name.clone(),
            uuid: report.uuid.clone(),
            component: None,
            description: None,
            places: Vec::new(),
            time: now,
            is_repeat: false,
            is_in_maintenance: false,
        };
        for channel in settings.channels.iter_mut().filter(|channel| channel.filter().admits(&event)) {
            let job = Job { event: event.clone(), is_again: false, mdstat: picture.clone() };
            match channel.tell(&job) {
                Ok(Told::Done) => {}
                Ok(Told::DoneSaying(text)) => warn(&text),
                Err(error) => warn(&error.to_string()),
            }
        }
    }
    Ok(())
}
