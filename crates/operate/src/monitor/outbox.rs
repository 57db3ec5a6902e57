//! Events on their way to those who are told.
//! Owns: which event waits for which channel, in which order, what is kept of that in the state file; when a failed one is
//! tried again. Not here: the channels (`channel`), the file (`keep`).
//! Invariant: a channel gets its events in their order, one at a time. That one is begun is in the file before it begins,
//! and that it has arrived before the next one begins: after a crash at most one event of each channel may arrive twice, and
//! it says so.

use super::event::Event;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// How many events may wait for one channel. A mail server that is away for weeks must not fill the state file.
const WAITING_MAX: usize = 1000;
/// Between two tries: doubled each time, from and up to this.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));

/// All events that have not arrived everywhere.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Outbox(VecDeque<Pending>);

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Pending {
    event: Event,
    /// The channels that it has not reached, and whether each has begun.
    waiting: BTreeMap<String, bool>,
}

impl Outbox {
    /// An event for these channels. Returns those for which an older one was dropped.
    pub(crate) fn push(&mut self, event: Event, channels: impl IntoIterator<Item = &'static str>) -> Vec<&'static str> {
        let channels: Vec<&'static str> = channels.into_iter().collect();
        let waiting: BTreeMap<String, bool> = channels.iter().map(|name| ((*name).to_owned(), false)).collect();
        if waiting.is_empty() {
            return Vec::new();
        }
        self.0.push_back(Pending { event, waiting });
        channels.into_iter().filter(|channel| self.drop_oldest(channel)).collect()
    }

    fn drop_oldest(&mut self, channel: &str) -> bool {
        let is_full = self.0.iter().filter(|pending| pending.waiting.contains_key(channel)).count() > WAITING_MAX;
        let oldest = self.0.iter_mut().find(|pending| pending.waiting.get(channel) == Some(&false));
        let dropped = oldest.filter(|_| is_full).and_then(|pending| pending.waiting.remove(channel)).is_some();
        self.clear();
        dropped
    }

    fn clear(&mut self) {
        self.0.retain(|pending| !pending.waiting.is_empty());
    }

    /// Forgets what waits for channels that are not used any more.
    pub(crate) fn keep_only(&mut self, channels: &[&'static str]) {
        for pending in &mut self.0 {
            pending.waiting.retain(|name, _| channels.contains(&name.as_str()));
        }
        self.clear();
    }

    /// The next event of a channel, and whether it may have arrived already. It is noted as begun.
    pub(crate) fn begin(&mut self, channel: &str) -> Option<(Event, bool)> {
        self.0.iter_mut().find_map(|pending| {
            let is_begun = pending.waiting.get_mut(channel)?;
            Some((pending.event.clone(), std::mem::replace(is_begun, true)))
        })
    }

    /// Whether something waits for a channel.
    pub(crate) fn waits(&self, channel: &str) -> bool {
        self.0.iter().any(|pending| pending.waiting.contains_key(channel))
    }

    /// The first event of this channel has arrived.
    pub(crate) fn done(&mut self, channel: &str, id: &str) {
        for pending in self.0.iter_mut().filter(|pending| pending.event.id == id) {
            pending.waiting.remove(channel);
        }
        self.clear();
    }

    /// It has not, or perhaps.
    pub(crate) fn failed(&mut self, channel: &str, id: &str, may_have_arrived: bool) {
        for pending in self.0.iter_mut().filter(|pending| pending.event.id == id) {
            if let Some(is_begun) = pending.waiting.get_mut(channel) {
                *is_begun = may_have_arrived;
            }
        }
    }
}

/// When a channel may be tried, and what was said about it.
#[derive(Default)]
pub(crate) struct Patience {
    /// An event is on its way.
    pub is_busy: bool,
    failures: u32,
    not_before: Option<Instant>,
    said: String,
}

impl Patience {
    /// When it may be tried; `None`: now.
    pub(crate) fn not_before(&self) -> Option<Instant> {
        self.not_before
    }

    /// Whether it failed at its last try.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// It worked.
    pub(crate) fn succeed(&mut self) {
        *self = Patience::default();
    }

    /// It failed. Returns whether this is to be said: not again, as long as it fails in the same way.
    pub(crate) fn fail(&mut self, text: &str, now: Instant) -> bool {
        self.is_busy = false;
        self.not_before = Some(now + RETRY.1.min(RETRY.0 * 2_u32.saturating_pow(self.failures.min(20))));
        self.failures += 1;
        std::mem::replace(&mut self.said, text.to_owned()) != text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::event::EventKind;
    use crate::monitor::event::tests::event;

    fn numbered(n: usize) -> Event {
        Event { id: format!("e-{n}"), ..event(EventKind::Fail, None) }
    }

    fn begin(outbox: &mut Outbox, channel: &str) -> Option<(String, bool)> {
        outbox.begin(channel).map(|(event, is_again)| (event.id, is_again))
    }

    #[test]
    fn each_channel_goes_through_the_events_in_order_and_at_its_own_pace() {
        let mut outbox = Outbox::default();
        for n in 0..3 {
            assert!(outbox.push(numbered(n), ["mail", "program"]).is_empty());
        }
        assert!(outbox.push(numbered(9), []).is_empty());
        assert_eq!(begin(&mut outbox, "mail"), Some(("e-0".to_owned(), false)));
        assert_eq!(begin(&mut outbox, "program"), Some(("e-0".to_owned(), false)));
        outbox.done("program", "e-0");
        assert_eq!(begin(&mut outbox, "program"), Some(("e-1".to_owned(), false)));
        // A crash: what was begun may have arrived.
        let text = serde_json::to_string(&outbox).expect("plain data");
        let mut outbox: Outbox = serde_json::from_str(&text).expect("what was written");
        assert_eq!(begin(&mut outbox, "mail"), Some(("e-0".to_owned(), true)));
        outbox.failed("mail", "e-0", false);
        assert_eq!(begin(&mut outbox, "mail"), Some(("e-0".to_owned(), false)));
        outbox.keep_only(&["program"]);
        assert_eq!(begin(&mut outbox, "mail"), None);
        assert_eq!(begin(&mut outbox, "program"), Some(("e-1".to_owned(), true)));
        outbox.done("program", "e-1");
        outbox.done("program", "e-2");
        assert_eq!(outbox, Outbox::default());
    }

    #[test]
    fn the_oldest_is_dropped_when_too_many_wait_but_not_one_on_its_way() {
        let mut outbox = Outbox::default();
        for n in 0..WAITING_MAX {
            assert!(outbox.push(numbered(n), ["mail"]).is_empty());
        }
        assert!(begin(&mut outbox, "mail").is_some());
        assert_eq!(outbox.push(numbered(WAITING_MAX), ["mail", "program"]), ["mail"]);
        outbox.done("mail", "e-0");
        assert_eq!(begin(&mut outbox, "mail"), Some(("e-2".to_owned(), false)));
    }

    #[test]
    fn a_channel_that_fails_is_tried_ever_more_rarely_and_named_once() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        let waits = |patience: &Patience| patience.not_before().expect("it failed") - now;
        assert!(patience.fail("away", now) && waits(&patience) == RETRY.0);
        assert!(!patience.fail("away", now) && waits(&patience) == RETRY.0 * 2);
        assert!(patience.fail("other", now));
        for _ in 0..40 {
            patience.fail("other", now);
        }
        assert_eq!(waits(&patience), RETRY.1);
        patience.succeed();
        assert!(patience.not_before().is_none() && !patience.has_failed());
    }
}
