//! Which events arise between what is remembered of an array and what is seen of it.
//! Owns: the order of events, what is told at first sight, what is told again. Not here: records of the history
//! (`records`), what can be seen without one (`compare`), requests of members (`health`), who gets an event (`outbox`).
//! Invariant: pure: the same memory, sight, records and rules give the same events. An event arises only by a change of the
//! memory, so whichever source shows it first, it is told once.
//! Spec: mdadm(8), MONITOR MODE.
//!
//! ```text
//!   history   what happened, in order, also what came and went between two looks
//!   report    what is so now: degraded, spares, percentages, counts; and what the history does not say: a process that
//!             was killed has recorded no end, a disk that is full no line. Such a difference is told when it has lasted
//!             for five seconds, because the history may only be late.
//! ```

mod compare;
mod health;
mod records;
#[cfg(test)]
mod tests;

use super::event::{EventKind, News};
use super::memory::{ArrayMemory, PassMemory, Reminder};
use super::moment::Moment;
use super::sight::{Happening, Seen, Sight};

/// A day, less an hour: a timer that runs once a day is not always on time.
const REPEAT_SECONDS: u64 = 23 * 3600;

/// How long what only a report shows waits for the history to say it.
const LATE_SECONDS: u64 = 5;

/// What the monitor was asked to do.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Percentages that are told are multiples of it.
    pub increment: u8,
    /// Arrays that appear are told: not at the first look of all.
    pub tells_new: bool,
    /// When this look is.
    pub now: Moment,
}

/// The events of one array since the look before. `happenings`: the records since then; `None`: it has no history.
pub(crate) fn changes(
    memory: &mut ArrayMemory,
    seen: &Seen,
    happenings: Option<&[Happening]>,
    rules: &Rules,
) -> Vec<News> {
    match seen {
        Seen::Running(sight) => {
            let mut news = running(memory, sight, happenings, rules);
            // A record says itself whether it was.
            let seen = news.iter_mut().filter(|news| news.time.is_none());
            seen.for_each(|news| news.is_in_maintenance = sight.is_in_maintenance);
            news
        }
        Seen::Silent => silent(memory, &rules.now),
        Seen::Absent => absent(memory, happenings, rules),
    }
}

fn running(memory: &mut ArrayMemory, sight: &Sight, happenings: Option<&[Happening]>, rules: &Rules) -> Vec<News> {
    let mut news = Vec::new();
    let is_first = memory.is_new();
    memory.identify(sight);
    memory.is_silent = false;
    if is_first {
        memory.adopt(sight);
        news.extend(rules.tells_new.then(|| News::of(EventKind::NewArray)));
    }
    memory.forget_what_is_over(sight);
    news.extend(memory.shortages(sight, is_first, rules));
    for happening in happenings.unwrap_or_default() {
        news.extend(memory.record(happening, &rules.now));
    }
    // The history may only be late.
    let is_certain = is_first || memory.is_certain(happenings, &rules.now);
    let differs = compare::differs(memory, sight);
    memory.doubt_if(differs && !is_certain, &rules.now);
    if differs && is_certain {
        news.extend(compare::apply(memory, sight, &rules.now));
    }
    if !differs || is_certain {
        memory.settle(sight);
    }
    news.extend(memory.percentage(sight, rules.increment));
    news.extend(health::of(memory, sight, &rules.now));
    if sight.is_degraded() && memory.doubt.is_none() {
        news.extend(memory.degradation(rules));
    }
    news
}

/// A process that does not answer is asked again before that is told: it may just be busy.
fn silent(memory: &mut ArrayMemory, now: &Moment) -> Vec<News> {
    let is_told = !memory.is_silent && memory.is_certain(Some(&[]), now);
    memory.doubt_if(!memory.is_silent && !is_told, now);
    memory.is_silent |= is_told;
    let text = "its process does not answer; clients may wait, too";
    is_told.then(|| News::of(EventKind::NotAnswering).saying(text)).into_iter().collect()
}

fn absent(memory: &mut ArrayMemory, happenings: Option<&[Happening]>, rules: &Rules) -> Vec<News> {
    let mut news: Vec<News> =
        happenings.unwrap_or_default().iter().flat_map(|happening| memory.record(happening, &rules.now)).collect();
    memory.is_silent = false;
    let is_certain = memory.is_certain(happenings, &rules.now);
    memory.doubt_if(memory.is_present && !is_certain, &rules.now);
    if memory.is_present && is_certain {
        memory.disappear(&rules.now);
        news.push(News::of(EventKind::DeviceDisappeared));
    }
    news
}

/// An array that is to be watched and was never seen.
pub(crate) fn never_seen(memory: &mut ArrayMemory, now: &Moment) -> Vec<News> {
    memory.disappear(now);
    vec![News::of(EventKind::DeviceDisappeared)]
}

impl ArrayMemory {
    /// Whether what differs now counts: there is no history, or it is quiet and has had its time.
    fn is_certain(&self, happenings: Option<&[Happening]>, now: &Moment) -> bool {
        let is_quiet = |happenings: &[Happening]| happenings.is_empty();
        let is_late = || self.doubt.as_ref().is_some_and(|since| since.is_over(LATE_SECONDS, now));
        happenings.is_none_or(|happenings| is_quiet(happenings) && is_late())
    }

    fn doubt_if(&mut self, is_doubtful: bool, now: &Moment) {
        self.doubt = is_doubtful.then(|| self.doubt.take().unwrap_or_else(|| now.clone()));
    }

    fn identify(&mut self, sight: &Sight) {
        self.name.clone_from(&sight.name);
        self.device.clone_from(&sight.device);
        self.aliases.clone_from(&sight.aliases);
        self.uuid.clone_from(&sight.uuid);
        self.level.clone_from(&sight.level);
        self.has_redundancy = sight.has_redundancy;
    }

    /// At first sight things are as they are.
    fn adopt(&mut self, sight: &Sight) {
        self.is_present = true;
        self.gone_since = None;
        self.in_sync.clone_from(&sight.in_sync);
        self.spares.clone_from(&sight.spares);
        self.faulty.clone_from(&sight.faulty);
    }

    /// What is no event of its own, where sight and memory agree on the rest.
    fn settle(&mut self, sight: &Sight) {
        self.in_sync.clone_from(&sight.in_sync);
        self.spares.clone_from(&sight.spares);
        self.faulty.clone_from(&sight.faulty);
    }

    fn disappear(&mut self, now: &Moment) {
        self.is_present = false;
        self.gone_since = Some(now.clone());
        self.pass = None;
        self.is_frozen = false;
    }

    /// What is told again if it comes again.
    fn forget_what_is_over(&mut self, sight: &Sight) {
        if !sight.is_degraded() {
            self.degraded = None;
        }
        if sight.frozen.is_none() {
            self.is_frozen = false;
        }
    }

    /// What is told before all else: at first sight that the array is degraded; and that it lacks spares.
    fn shortages(&mut self, sight: &Sight, is_first: bool, rules: &Rules) -> Vec<News> {
        let mut news = Vec::new();
        if is_first && sight.is_degraded() {
            news.extend(self.degradation(rules));
        }
        let lacks_spares = sight.spares_wanted.is_some_and(|wanted| (sight.spares.len() as u64) < u64::from(wanted));
        if lacks_spares && !self.lacks_spares {
            let (found, wanted) = (sight.spares.len(), sight.spares_wanted.unwrap_or_default());
            news.push(News::of(EventKind::SparesMissing).saying(format!("{found} of {wanted} spares are there")));
        }
        self.lacks_spares = lacks_spares;
        let was_unchecked = std::mem::replace(&mut self.is_unchecked, sight.unchecked_days.is_some());
        if let Some(days) = sight.unchecked_days.filter(|_| !was_unchecked) {
            let text = format!("no complete check for {days} days; `uraid scrub` checks");
            news.push(News::of(EventKind::CheckOverdue).saying(text));
        }
        news
    }

    /// An array that is degraded: told if it is not yet, and every day until somebody acknowledges it.
    fn degradation(&mut self, rules: &Rules) -> Option<News> {
        let is_repeat = match &self.degraded {
            None => false,
            Some(reminder) if reminder.is_acknowledged => return None,
            Some(reminder) if reminder.told.is_over(REPEAT_SECONDS, &rules.now) => true,
            Some(_) => return None,
        };
        self.degraded = Some(Reminder { told: rules.now.clone(), is_acknowledged: false });
        Some(News { is_repeat, ..News::of(EventKind::DegradedArray) })
    }

    /// A failure was told, which says that the array is degraded.
    fn note_degraded(&mut self, now: &Moment) {
        if self.has_redundancy && self.degraded.is_none() {
            self.degraded = Some(Reminder { told: now.clone(), is_acknowledged: false });
        }
    }

    /// The highest percentage that was passed since the last one told.
    fn percentage(&mut self, sight: &Sight, increment: u8) -> Option<News> {
        let PassMemory { word, told } = self.pass.as_mut()?;
        let (of_sight, percent) = sight.pass.as_ref()?;
        let reached = percent / increment.max(1) * increment.max(1);
        if of_sight != word || reached <= *told || reached >= 100 {
            return None;
        }
        *told = reached;
        Some(News::of(EventKind::Rebuild(reached)).saying(word.clone()))
    }
}
