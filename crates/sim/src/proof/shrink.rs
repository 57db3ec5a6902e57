//! Shrinks a failing run to the choices that are needed for the failure.
//! Owns: [`shrink`], when two findings are the same, the result as a test. Not here: tapes (`tape`), runs (`scenario`).
//! Invariant: every step keeps the finding and makes the run smaller. The returned run was executed.
//!
//! ```text
//!   all but lane 0   drawn anew                            the same array, and another course that is shorter
//!   lanes            cleared, halved, pieces cut out       removes a client's operation, a round, a fault
//!   values           to 0, halved, one less                fewer members, shorter requests, no delays
//!   accepted         the same checker, and (client operations + 4 a fault, weight of the tape) is less
//! ```

use crate::random::rng::Rng;
use crate::random::tape::{FIRST, Path, Tape};
use crate::scenario::{Options, Outcome, Source, run_recorded};
use std::time::{Duration, Instant};

/// Values are lowered one by one in lanes of at most this many choices.
const LOWERED_MAX: usize = 400;

/// New courses are drawn until this many in a row were no smaller.
const REDRAWS_MAX: u64 = 200;

/// The result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The choices of the smallest run.
    pub tape: Tape,
    /// The result, including its event log.
    pub outcome: Outcome,
    /// Runs that were tried.
    pub runs: u64,
}

/// The checker that reported the finding: the text up to the first colon, or the start of a panic's text, without
/// numbers.
pub fn checker(failure: &str) -> String {
    let line = failure.lines().next().unwrap_or_default();
    let kind = match line.strip_prefix("panic: ") {
        Some(text) => format!("panic {}", text.chars().take(50).collect::<String>()),
        None => line.split(':').next().unwrap_or_default().to_string(),
    };
    kind.chars().filter(|letter| !letter.is_ascii_digit() || line.starts_with(['I', 'M', 'L', 'C'])).collect()
}

struct Shrinker {
    options: Options,
    wanted: String,
    best: Tape,
    outcome: Outcome,
    runs: u64,
    deadline: Instant,
}

fn size(outcome: &Outcome, tape: &Tape) -> (u64, u64) {
    (outcome.tally.operations + 4 * outcome.tally.faults, tape.weight())
}

/// Shrinks the failing run of `source` for at most `budget`; `None` if it does not fail.
pub fn shrink(source: Source, options: Options, budget: Duration) -> Option<Shrunk> {
    let (outcome, tape) = run_recorded(source, options);
    let wanted = checker(outcome.failure.as_ref()?);
    let deadline = Instant::now() + budget;
    let mut shrinker = Shrinker { options, wanted, best: tape, outcome, runs: 1, deadline };
    while shrinker.pass() && !shrinker.is_over() {}
    Some(Shrunk { tape: shrinker.best, outcome: shrinker.outcome, runs: shrinker.runs })
}

impl Shrinker {
    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Runs these choices, and keeps them if they fail in the same way and are smaller.
    fn keep_if_smaller(&mut self, source: Source) -> bool {
        self.runs += 1;
        let (outcome, used) = run_recorded(source, self.options);
        let is_same = outcome.failure.as_ref().is_some_and(|found| checker(found) == self.wanted);
        if !is_same || size(&outcome, &used) >= size(&self.outcome, &self.best) {
            return false;
        }
        (self.best, self.outcome) = (used, outcome);
        true
    }

    /// The same for a tape, unless it is the best one.
    fn attempt(&mut self, candidate: Tape) -> bool {
        let candidate = candidate.trimmed();
        if self.is_over() || candidate == self.best {
            return false;
        }
        self.keep_if_smaller(Source::Tape(candidate))
    }

    fn with(&self, path: &Path, change: impl FnOnce(&mut Vec<u64>)) -> Tape {
        let mut tape = self.best.clone();
        change(tape.lanes.entry(path.clone()).or_default());
        tape
    }

    fn length(&self, path: &Path) -> usize {
        self.best.lanes.get(path).map_or(0, Vec::len)
    }

    /// Tries every kind of step once; returns whether any helped.
    fn pass(&mut self) -> bool {
        let before = size(&self.outcome, &self.best);
        // Before the array becomes simple: one with many faults and slow members has more findings.
        self.redraw();
        // The array and its clients first: if they are smaller, every later run is shorter.
        self.change_pieces(&FIRST.to_vec(), 1, |values, from, to| values[from..to].fill(0));
        let mut lanes: Vec<Path> = self.best.lanes.keys().cloned().collect();
        lanes.sort_by_key(|path| std::cmp::Reverse(self.length(path)));
        for path in &lanes {
            self.cut_end(path);
        }
        for path in &lanes {
            self.change_pieces(path, 512, |values, from, to| drop(values.drain(from..to)));
        }
        for path in &lanes {
            self.change_pieces(path, 512, |values, from, to| values[from..to].fill(0));
        }
        lanes.retain(|path| self.length(path) <= LOWERED_MAX);
        for path in &lanes {
            self.lower_values(path);
        }
        size(&self.outcome, &self.best) < before
    }

    /// Gives the same array, or one with a smaller choice, another course. A cut moves everything behind it to another
    /// time. So no cut shortens a long run whose finding depends on the time, but among new courses are short ones.
    fn redraw(&mut self) {
        let first = FIRST.to_vec();
        let mut in_vain = 0;
        while in_vain < REDRAWS_MAX && !self.is_over() {
            let mut rng = Rng::new(self.runs);
            let at = rng.below(self.length(&first) as u64 + 1) as usize;
            let candidate = self.with(&first, |values| {
                if let Some(value) = values.get_mut(at).filter(|value| **value > 0) {
                    *value = rng.below(*value);
                }
            });
            in_vain = if self.keep_if_smaller(Source::Redrawn(candidate, rng.next())) { 0 } else { in_vain + 1 };
        }
    }

    /// Removes a whole lane, or else as much of its end as possible.
    fn cut_end(&mut self, path: &Path) {
        if self.attempt(self.with(path, Vec::clear)) {
            return;
        }
        let mut step = self.length(path) / 2;
        while step > 0 && !self.is_over() {
            let keep = self.length(path).saturating_sub(step);
            if !self.attempt(self.with(path, |values| values.truncate(keep))) {
                step /= 2;
            }
        }
    }

    /// Removes ever smaller pieces of a lane, from the end to the start.
    fn change_pieces(&mut self, path: &Path, largest: usize, change: impl Fn(&mut Vec<u64>, usize, usize)) {
        let mut piece = self.length(path).div_ceil(2).min(largest);
        while piece > 0 && !self.is_over() {
            let mut end = self.length(path);
            while end > 0 && !self.is_over() {
                let from = end.saturating_sub(piece);
                self.attempt(self.with(path, |values| change(values, from, end)));
                end = from.min(self.length(path));
            }
            piece /= 2;
        }
    }

    fn lower_values(&mut self, path: &Path) {
        for at in 0..self.length(path) {
            while let Some(&value) = self.best.lanes.get(path).and_then(|values| values.get(at)) {
                let candidates = [value / 2, value.saturating_sub(1)];
                let is_lower = candidates
                    .into_iter()
                    .any(|lower| lower < value && self.attempt(self.with(path, |values| values[at] = lower)));
                if !is_lower {
                    break;
                }
            }
        }
    }
}

impl Shrunk {
    /// The run as the source of a test, which passes when the engine is right.
    pub fn as_test(&self, name: &str) -> String {
        let found = self.outcome.failure.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
        let log: String = self.outcome.log.lines().map(|line| format!("/// {line}\n")).collect();
        let text = self.tape.to_string();
        let letters: Vec<char> = text.chars().collect();
        let lines: Vec<String> =
            letters.chunks(100).map(|line| format!("         {}\\\n", line.iter().collect::<String>())).collect();
        format!(
            "/// {found}\n///\n/// ```text\n{log}/// ```\n#[test]\nfn {name}() {{\n    nothing_is_found(\n        \"\\\n{}        \",\n    );\n}}\n",
            lines.concat()
        )
    }
}
