//! The result of each fault: appended to a file as it arrives, printed as a table at the end.
//! Owns: the file of results, that of the baseline, table and score. Not here: running anything.
//! Invariant: a result belongs to exactly the fault that it names: if an entry's text changes, its result is dropped.

use super::list::Entry;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The result of one fault.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The stage that caught it, and what failed there; none when it survived all.
    pub(crate) caught: Option<(String, String)>,
    /// From the start of the first stage.
    pub(crate) seconds: f64,
}

/// By id.
pub(crate) type Verdicts = BTreeMap<String, Verdict>;

/// Results of an earlier run that still hold for these entries.
pub(crate) fn read(path: &Path, entries: &[Entry]) -> Verdicts {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = |line: &str| {
        let [id, fingerprint, seconds, stage, what] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        let entry = entries.iter().find(|entry| entry.id == id)?;
        let is_same = fingerprint.parse() == Ok(entry.fingerprint());
        let caught = (!stage.is_empty()).then(|| (stage.to_string(), what.to_string()));
        is_same.then_some((id.to_string(), Verdict { caught, seconds: seconds.parse().ok()? }))
    };
    text.lines().filter_map(line).collect()
}

pub(crate) fn append(path: &Path, entry: &Entry, verdict: &Verdict) -> std::io::Result<()> {
    let (stage, what) = verdict.caught.clone().unwrap_or_default();
    let line = format!("{}\t{}\t{:.1}\t{stage}\t{what}\n", entry.id, entry.fingerprint(), verdict.seconds);
    std::fs::OpenOptions::new().create(true).append(true).open(path)?.write_all(line.as_bytes())
}

/// Seconds by stage, of a run without a fault.
pub(crate) fn read_baseline(path: &Path) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pair = |line: &str| {
        let (name, seconds) = line.split_once('\t')?;
        Some((name.to_string(), seconds.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

pub(crate) fn write_baseline(path: &Path, baseline: &BTreeMap<String, f64>) -> std::io::Result<()> {
    let lines: Vec<String> = baseline.iter().map(|(name, seconds)| format!("{name}\t{seconds:.1}\n")).collect();
    std::fs::write(path, lines.concat())
}

/// By fault, the stage that caught it in the run that was kept last, and what failed there.
pub(crate) fn read_caught_by(path: &Path) -> BTreeMap<String, (String, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let fields = |line: &str| {
        let [id, stage, what] = line.split('\t').map(str::to_string).collect::<Vec<_>>().try_into().ok()?;
        Some((id, (stage, what)))
    };
    text.lines().filter_map(fields).collect()
}

/// How many faults each stage caught.
pub(crate) fn finds(caught_by: &BTreeMap<String, (String, String)>) -> BTreeMap<String, u64> {
    let mut finds = BTreeMap::new();
    caught_by.values().for_each(|(stage, _)| *finds.entry(stage.clone()).or_default() += 1);
    finds
}

/// What each stage takes and has caught, those first that find most in a second.
pub(crate) fn stages_table(finds: &BTreeMap<String, u64>, baseline: &BTreeMap<String, f64>) -> String {
    // Programs that take less take most of it to start.
    let seconds = |stage: &str| baseline.get(stage).copied().unwrap_or(0.0).max(0.1);
    let mut rows: Vec<(&str, u64, f64)> =
        finds.iter().map(|(stage, count)| (stage.as_str(), *count, seconds(stage))).collect();
    rows.sort_by(|a, b| (b.1 as f64 / b.2).total_cmp(&(a.1 as f64 / a.2)));
    let line = |(stage, count, seconds): (&str, u64, f64)| {
        format!("| {stage} | {seconds:.1} | {count} | {:.1} |\n", count as f64 / seconds)
    };
    let head = "| stage | seconds | faults it caught | for each second |\n|---|--:|--:|--:|\n".to_string();
    std::iter::once(head).chain(rows.into_iter().map(line)).collect()
}

pub(crate) fn write_caught_by(path: &Path, verdicts: &Verdicts) -> std::io::Result<()> {
    let caught = verdicts.iter().filter_map(|(id, verdict)| Some((id, verdict.caught.as_ref()?)));
    let lines: Vec<String> = caught.map(|(id, (stage, what))| format!("{id}\t{stage}\t{what}\n")).collect();
    std::fs::write(path, lines.concat())
}

/// Counts of a run.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Score {
    /// Faults that some stage caught.
    pub(crate) caught: usize,
    /// Faults that no stage caught, and that are not marked as equivalent.
    pub(crate) survived: usize,
    /// Marked as equivalent in the list.
    pub(crate) equivalent: usize,
}

impl Score {
    /// Without the equivalent ones.
    pub(crate) fn of(entries: &[Entry], verdicts: &Verdicts) -> Score {
        let mut score = Score::default();
        for entry in entries {
            match (&entry.equivalent, verdicts.get(&entry.id)) {
                (Some(_), _) => score.equivalent += 1,
                (None, Some(verdict)) if verdict.caught.is_some() => score.caught += 1,
                (None, Some(_)) => score.survived += 1,
                (None, None) => {}
            }
        }
        score
    }

    /// 1 when all were caught.
    pub(crate) fn share(&self) -> f64 {
        self.caught as f64 / (self.caught + self.survived).max(1) as f64
    }

    /// `130 of 140 caught, 5 equivalent: 0.93`.
    pub(crate) fn line(&self) -> String {
        let all = self.caught + self.survived;
        format!("{} of {all} caught, {} equivalent: {:.2}", self.caught, self.equivalent, self.share())
    }
}

/// Id, crate, stage, seconds, what failed: in the order of the list.
pub(crate) fn table(entries: &[Entry], verdicts: &Verdicts) -> String {
    let mut out = String::new();
    for entry in entries {
        let Some(verdict) = verdicts.get(&entry.id) else { continue };
        let (stage, what) = match (&verdict.caught, &entry.equivalent) {
            (Some((stage, what)), _) => (stage.as_str(), what.as_str()),
            (None, Some(_)) => ("equivalent", ""),
            (None, None) => ("SURVIVED", entry.fault.as_str()),
        };
        out.push_str(&format!(
            "{:<36} {:<10} {:<26} {:>7.1}  {what}\n",
            entry.id, entry.package, stage, verdict.seconds
        ));
    }
    out
}

/// The same for `docs/mutants.md`, with the faults.
pub(crate) fn document(entries: &[Entry], verdicts: &Verdicts) -> String {
    let mut out = format!("{}\n\n", Score::of(entries, verdicts).line());
    out.push_str("| fault | crate | what it does | caught by | seconds |\n|---|---|---|---|---|\n");
    let clean = |text: &str| text.replace('|', "\\|");
    for entry in entries {
        let Some(verdict) = verdicts.get(&entry.id) else { continue };
        let (caught, seconds) = match (&verdict.caught, &entry.equivalent) {
            (Some((stage, what)), _) if what.contains(' ') || what.is_empty() => (stage.clone(), verdict.seconds),
            (Some((stage, what)), _) => (format!("{stage}: `{what}`"), verdict.seconds),
            (None, Some(why)) => (format!("equivalent: {}", clean(why)), verdict.seconds),
            (None, None) => ("**survived**".to_string(), verdict.seconds),
        };
        let fault = clean(&entry.fault);
        out.push_str(&format!("| {} | {} | {fault} | {caught} | {seconds:.0} |\n", entry.id, entry.package));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::list::Kind;

    fn entry(id: &str, equivalent: Option<&str>) -> Entry {
        Entry {
            kind: Kind::Mutant,
            id: id.to_string(),
            package: "engine".to_string(),
            file: "crates/engine/src/a.rs".into(),
            fault: "It is wrong.".to_string(),
            quick: None,
            equivalent: equivalent.map(str::to_string),
            find: "a < b".to_string(),
            part: 0..5,
            with: "true".to_string(),
            place: String::new(),
        }
    }

    fn verdict(stage: Option<&str>) -> Verdict {
        Verdict { caught: stage.map(|stage| (stage.to_string(), "a_test".to_string())), seconds: 1.5 }
    }

    #[test]
    fn equivalent_faults_are_left_out_of_the_score() {
        let entries = [entry("a", None), entry("b", None), entry("c", Some("same")), entry("d", None)];
        let verdicts = Verdicts::from([
            ("a".to_string(), verdict(Some("engine/lib"))),
            ("b".to_string(), verdict(None)),
            ("c".to_string(), verdict(None)),
        ]);
        let score = Score::of(&entries, &verdicts);
        assert_eq!(score, Score { caught: 1, survived: 1, equivalent: 1 });
        assert_eq!(score.line(), "1 of 2 caught, 1 equivalent: 0.50");
        assert_eq!(table(&entries, &verdicts).lines().count(), 3);
    }

    #[test]
    fn what_caught_a_fault_is_read_again() {
        let path = std::env::temp_dir().join(format!("uraid-mutants-caught-{}", std::process::id()));
        let verdicts = Verdicts::from([
            ("a".to_string(), verdict(Some("engine/lib"))),
            ("b".to_string(), verdict(None)),
            ("c".to_string(), verdict(Some("simulator, 400 seeds"))),
        ]);
        write_caught_by(&path, &verdicts).expect("written");
        let read = read_caught_by(&path);
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(read["a"], ("engine/lib".to_string(), "a_test".to_string()));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn stages_that_find_most_in_a_second_come_first() {
        let by = |stage: &str| (stage.to_string(), "a_test".to_string());
        let caught_by = [("a", by("slow")), ("b", by("slow")), ("c", by("quick"))];
        let finds = finds(&caught_by.map(|(id, by)| (id.to_string(), by)).into());
        let baseline = [("slow", 4.0), ("quick", 0.5)].map(|(stage, seconds)| (stage.to_string(), seconds)).into();
        let table = stages_table(&finds, &baseline);
        assert!(table.ends_with("| quick | 0.5 | 1 | 2.0 |\n| slow | 4.0 | 2 | 0.5 |\n"), "{table}");
    }

    #[test]
    fn results_are_reused_only_for_an_unchanged_fault() {
        let path = std::env::temp_dir().join(format!("uraid-mutants-results-{}", std::process::id()));
        let old = entry("a", None);
        for verdict in [verdict(Some("engine/lib")), verdict(None)] {
            append(&path, &old, &verdict).expect("written");
            assert_eq!(read(&path, std::slice::from_ref(&old)).get("a"), Some(&verdict));
        }
        let changed = Entry { with: "false".to_string(), ..old };
        assert_eq!(read(&path, &[changed]), Verdicts::new());
        std::fs::remove_file(&path).expect("removed");
    }
}
