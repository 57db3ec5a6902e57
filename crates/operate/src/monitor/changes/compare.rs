//! The events that follow from comparing a report with what is remembered, as mdadm does: for an array without history,
//! and for what its history does not say.
//! Owns: differences, their order. Not here: when they count (the parent).
//! Invariant: where nothing differs, applying changes nothing.

use crate::monitor::event::News;
use crate::monitor::memory::ArrayMemory;
use crate::monitor::moment::Moment;
use crate::monitor::sight::{Happening, Sight, What};

/// One difference that is an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Difference {
    Appeared,
    PassEnded,
    PassBegan(String),
    Frozen,
    Slot(u16, Slot),
    SpareFailed(String),
}

/// In this order for one slot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Slot {
    Lost(String),
    Filled(String),
}

/// Whether there is one.
pub(super) fn differs(memory: &ArrayMemory, sight: &Sight) -> bool {
    !differences(memory, sight).is_empty()
}

/// Tells them all.
pub(super) fn apply(memory: &mut ArrayMemory, sight: &Sight, now: &Moment) -> Vec<News> {
    let mut news = Vec::new();
    for difference in differences(memory, sight) {
        news.extend(match difference {
            Difference::Appeared => memory.record_now(&What::Started, now),
            Difference::PassEnded => memory.see_end(&end_of(memory, sight)),
            Difference::PassBegan(word) => memory.begin_pass(&word),
            Difference::Frozen => memory.freeze(sight.frozen.as_deref().unwrap_or_default()),
            Difference::Slot(_, Slot::Lost(path)) => memory.fail(&path, false, None, now),
            Difference::Slot(slot, Slot::Filled(path)) => memory.activate(&path, Some(slot)),
            Difference::SpareFailed(path) => memory.fail(&path, true, None, now),
        });
    }
    news
}

impl ArrayMemory {
    fn record_now(&mut self, what: &What, now: &Moment) -> Vec<News> {
        let happening = Happening { time: now.wall(), is_in_maintenance: false, what: what.clone() };
        self.record(&happening, now)
    }
}

fn differences(memory: &ArrayMemory, sight: &Sight) -> Vec<Difference> {
    let mut found = Vec::new();
    if !memory.is_present {
        found.push(Difference::Appeared);
    }
    let (told, now) = (memory.pass.as_ref().map(|pass| pass.word.as_str()), sight.pass.as_ref());
    let now = now.map(|(word, _)| word.as_str());
    if told.is_some() && told != now {
        found.push(Difference::PassEnded);
    }
    if let Some(word) = now.filter(|_| told != now) {
        found.push(Difference::PassBegan(word.to_owned()));
    }
    if sight.frozen.is_some() && !memory.is_frozen {
        found.push(Difference::Frozen);
    }
    let mut slots = Vec::new();
    for (path, slot) in memory.in_sync.iter().filter(|(path, _)| !sight.in_sync.contains_key(*path)) {
        if sight.faulty.contains(path) || renamed_to(memory, sight, *slot).is_none() {
            slots.push(Difference::Slot(*slot, Slot::Lost(path.clone())));
        }
    }
    for (path, slot) in sight.in_sync.iter().filter(|(path, _)| !memory.in_sync.contains_key(*path)) {
        let before = memory.in_sync.iter().find(|(_, own)| *own == slot).map(|(path, _)| path);
        let is_renamed = before.is_some_and(|before| {
            !sight.faulty.contains(before) && renamed_to(memory, sight, *slot).is_some_and(|found| found == path)
        });
        if !is_renamed {
            slots.push(Difference::Slot(*slot, Slot::Filled(path.clone())));
        }
    }
    slots.sort();
    found.extend(slots);
    let is_new_failure = |path: &&String| memory.spares.contains(*path) && !memory.in_sync.contains_key(*path);
    found.extend(sight.faulty.iter().filter(is_new_failure).cloned().map(Difference::SpareFailed));
    found
}

/// A slot's member that has another path now, as disks have after a boot: it was neither a spare nor elsewhere before.
fn renamed_to<'a>(memory: &ArrayMemory, sight: &'a Sight, slot: u16) -> Option<&'a String> {
    let (path, _) = sight.in_sync.iter().find(|(_, own)| **own == slot)?;
    (!memory.spares.contains(path) && !memory.in_sync.contains_key(path)).then_some(path)
}

/// How a pass ended that no longer runs.
fn end_of(memory: &ArrayMemory, sight: &Sight) -> What {
    let word = memory.pass.as_ref().map(|pass| pass.word.clone()).unwrap_or_default();
    let last = sight.last_check.as_ref().filter(|last| last.kind == word);
    let (is_complete, why) = match (word.as_str(), last) {
        ("check" | "repair", Some(last)) => (last.end == "complete", Some(last.end.clone())),
        ("check" | "repair", None) => (false, None),
        ("recovery", _) => (!sight.is_degraded(), None),
        _ => (sight.frozen.is_none(), None),
    };
    let mismatched = last.map_or(0, |last| last.mismatched);
    What::PassEnded { word, is_complete, why, mismatched, places: Vec::new() }
}
