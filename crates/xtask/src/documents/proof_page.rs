//! The regions of `docs/proof.md` that commands write.
//! Owns: their marks, their tables of rows; commit, date and machine of a run. Not here: what is run (`ci`, `deep`).
//! Invariant: nothing outside a region changes, and a row that is not replaced stays.

use crate::project;
use std::path::PathBuf;

/// The machine-written tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Region {
    /// The last run of each part of `deep`.
    Deep,
    /// Each `--record` of `ci` and `test`.
    Ci,
}

impl Region {
    fn name(self) -> &'static str {
        match self {
            Region::Deep => "deep",
            Region::Ci => "ci",
        }
    }

    fn head(self) -> &'static str {
        match self {
            Region::Deep => "| part | date | commit | seconds | result |\n|---|---|---|--:|---|\n",
            Region::Ci => {
                "| command | date | commit | machine | seconds | seconds of each stage |\n|---|---|---|---|--:|---|\n"
            }
        }
    }
}

/// The cells of one row.
pub(crate) type Row = Vec<String>;

fn path() -> PathBuf {
    project::root().join("docs/proof.md")
}

/// The rows of a region.
pub(crate) fn rows(region: Region) -> Vec<Row> {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    parse(&text, region)
}

fn parse(text: &str, region: Region) -> Vec<Row> {
    let (begin, end) = marks(region);
    let inside = text.split_once(&begin).and_then(|(_, rest)| rest.split_once(&end)).map_or("", |(inside, _)| inside);
    let lines = inside.lines().filter(|line| line.starts_with('|') && !region.head().lines().any(|head| head == *line));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
    let mut rows: Vec<Row> = lines.map(cells).collect();
    // A row that somebody has cut short stays, and is shown as never run.
    let width = region.head().lines().next().map_or(0, |head| head.matches('|').count() - 1);
    rows.iter_mut().for_each(|row| row.resize(row.len().max(width), String::new()));
    rows
}

/// Writes the rows of a region.
pub(crate) fn write(region: Region, rows: &[Row]) -> Result<(), String> {
    let path = path();
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(&path).map_err(failed)?;
    let text =
        with_rows(&text, region, rows).ok_or(format!("{}: the marks of {region:?} are not there", path.display()))?;
    std::fs::write(&path, text).map_err(failed)
}

fn with_rows(text: &str, region: Region, rows: &[Row]) -> Option<String> {
    let (begin, end) = marks(region);
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    let lines: Vec<String> = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    Some(format!("{before}{begin}\n\n{}{}\n{end}{after}", region.head(), lines.concat()))
}

fn marks(region: Region) -> (String, String) {
    let name = region.name();
    (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"))
}

/// The commit that is checked out: eight digits, with a `+` if files that are compiled or run differ from it. `None`:
/// this is no clone.
pub(crate) fn commit() -> Option<String> {
    let commit = project::git(&["rev-parse", "--short=8", "HEAD"])?;
    let changed =
        project::git(&["status", "--porcelain", "--", "crates", "fuzz", "tests", "Cargo.toml", "Cargo.lock"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}+") })
}

/// Whether nothing that is compiled or run has changed since a commit.
pub(crate) fn is_same_code(commit: &str) -> bool {
    let words = ["diff", "--quiet", commit, "--", "crates", "fuzz", "tests", "Cargo.toml", "Cargo.lock"];
    !commit.ends_with('+') && project::git(&words).is_some()
}

/// Today in UTC: `2026-11-28`.
pub(crate) fn today() -> String {
    let seconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    date_of(seconds / 86_400)
}

/// The date of a day after 1970-01-01, in the Gregorian calendar.
fn date_of(day: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

/// Processor, cores and memory; no name.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let model = value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| std::env::consts::ARCH.to_string());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = value(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
    let kibibytes: u64 = memory.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
    format!("{model}, {cores} cores, {} GiB", kibibytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_written_and_read_again_and_the_rest_stays() {
        let row = |part: &str, date: &str| [part, date, "", "", ""].map(str::to_string).to_vec();
        let text = "# A\n\n<!-- deep: begin -->\n<!-- deep: end -->\n\nend\n";
        let rows = vec![row("loom", "2026-11-28"), row("fuzz", "-")];
        let with = with_rows(text, Region::Deep, &rows).expect("marks");
        assert_eq!(parse(&with, Region::Deep), rows);
        assert!(
            with.starts_with("# A\n\n<!-- deep: begin -->\n\n| part |")
                && with.ends_with("<!-- deep: end -->\n\nend\n")
        );
        assert_eq!(with_rows(&with, Region::Deep, &rows).as_ref(), Some(&with), "written twice, it is the same");
        assert_eq!(with_rows(text, Region::Ci, &rows), None);
        let damaged = "<!-- deep: begin -->\n| loom |\n| fuzz | - | | | |\n<!-- deep: end -->";
        assert_eq!(parse(damaged, Region::Deep), [row("loom", ""), row("fuzz", "-")], "no head, and a short row");
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(date_of(0), "1970-01-01");
        assert_eq!(date_of(11_016), "2000-02-29");
        assert_eq!(date_of(20_785), "2026-11-28");
    }
}
