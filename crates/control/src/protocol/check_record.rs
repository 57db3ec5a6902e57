//! What is kept of checks beyond the run of an array: the last one that was complete, and how far the next one is.
//! Owns: [`CheckRecord`], [`CheckFact`], how a check that goes on later is added up. Not here: the file (`history`), the
//! result of one run (`check_result`).
//! Invariant: a check that ended before its end replaces no complete one.

use super::check_result::{CheckResult, Mismatch};
use serde::{Deserialize, Serialize};

/// How many places are kept.
const PLACES_MAX: usize = 100;

/// What is kept of the checks of one array.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct CheckRecord {
    /// The last one that went over everything: a check, or a repair, which compares as well.
    #[serde(default)]
    pub complete: Option<CheckFact>,
    /// A check that has not come to its end: it runs, or can go on.
    #[serde(default)]
    pub partial: Option<CheckFact>,
}

/// One check. Times in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckFact {
    /// When it began.
    pub began: u64,
    /// When it ended, or how late it is known to have run.
    pub ended: u64,
    /// How long it ran; pauses between its parts do not count.
    pub seconds: u64,
    /// How far it came, and what it found. Lists at most the first 100 places.
    pub result: CheckResult,
}

impl CheckFact {
    /// This part of a check, after the parts before it.
    #[must_use]
    pub fn after(self, before: Option<&CheckFact>) -> CheckFact {
        let mut whole = self;
        if let Some(before) = before {
            let (sum, old) = (&mut whole.result, &before.result);
            sum.mismatched += old.mismatched;
            sum.corrected += old.corrected;
            sum.healed += old.healed;
            sum.lacking += old.lacking;
            sum.skipped += old.skipped;
            sum.unreadable += old.unreadable;
            let places: Vec<Mismatch> = old.mismatches.iter().chain(&sum.mismatches).cloned().collect();
            sum.mismatches = places;
            (whole.began, whole.seconds) = (before.began, whole.seconds + before.seconds);
        }
        whole.result.mismatches.truncate(PLACES_MAX);
        whole
    }

    /// Whether something has to be looked at.
    pub fn has_findings(&self) -> bool {
        let CheckResult { mismatched, lacking, unreadable, .. } = self.result;
        mismatched + lacking + unreadable > 0
    }
}

impl CheckRecord {
    /// The part of a check that a check of `total` sectors can continue.
    pub fn to_resume(&self, total: u64) -> Option<&CheckFact> {
        let is_usable = |it: &&CheckFact| {
            it.result.kind == "check" && it.result.total == total && (1..total).contains(&it.result.done)
        };
        self.partial.as_ref().filter(is_usable)
    }

    /// Adds what has become of a check or repair.
    pub fn note(&mut self, fact: CheckFact) {
        if fact.result.end == "complete" {
            *self = CheckRecord { complete: Some(fact), partial: None };
        } else if fact.result.kind == "check" {
            self.partial = Some(fact);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(kind: &str, end: &str, done: u64, mismatched: u64) -> CheckFact {
        let result = CheckResult {
            array: "home".to_owned(),
            kind: kind.to_owned(),
            end: end.to_owned(),
            done,
            total: 100,
            mismatched,
            corrected: 0,
            healed: 0,
            lacking: 0,
            skipped: 0,
            unreadable: 0,
            mismatches: Vec::new(),
        };
        CheckFact { began: 10 + done, ended: 20 + done, seconds: 5, result }
    }

    #[test]
    fn parts_add_up_and_only_a_complete_one_replaces_a_complete_one() {
        let mut record = CheckRecord::default();
        assert!(record.to_resume(100).is_none());
        record.note(fact("check", "stopped", 40, 2));
        assert_eq!(record.to_resume(100).map(|it| it.result.done), Some(40));
        assert!(record.to_resume(99).is_none(), "the array has another size now");
        let whole = fact("check", "complete", 100, 1).after(record.to_resume(100));
        assert_eq!((whole.began, whole.seconds, whole.result.mismatched), (50, 10, 3));
        record.note(whole.clone());
        assert_eq!((record.partial.is_none(), record.complete.as_ref()), (true, Some(&whole)));
        record.note(fact("repair", "ended", 10, 0));
        assert!(record.partial.is_none(), "a repair does not go on later");
        record.note(fact("check", "ended", 0, 0));
        assert!(record.to_resume(100).is_none(), "it has not begun");
        assert_eq!(record.complete, Some(whole));
    }
}
