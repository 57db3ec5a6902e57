//! The tables and sentences, as lines of text.
//! Owns: columns and their words, what an array is said to be. Not here: places and colours (`draw`), samples (`model`).
//! Invariant: no line has a character that a terminal would take for a command.

use super::model::{Shown, View, brief, errors};
use crate::status;
use uraid_block::Sectors;
use uraid_block::sizes;
use uraid_control::names;
use uraid_control::report::{Member, REPLACEMENT, WHOLE_REPLACEMENT};

/// How many slots are drawn as letters.
const SLOTS_DRAWN_MAX: usize = 12;

/// Rows of cells as lines: columns are as wide as their widest cell, numbers stand at the right.
pub(super) fn columns(rows: &[Vec<String>], numbers: &[usize]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if numbers.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        names::printable(cells.collect::<Vec<String>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// The arrays, with a line of titles.
pub(super) fn arrays(view: &View) -> Vec<String> {
    // What a narrow screen cuts off is the least important.
    let titles = ["NAME", "DEVICE", "LEVEL", "SLOTS", "SPARE", "STATE", "READ/s", "WRITE/s", "SIZE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(view.arrays.iter().map(|shown| {
        let report = &shown.report;
        vec![
            report.name.clone(),
            report.device.clone().unwrap_or_default(),
            report.level.clone(),
            slots(shown),
            // How many more may fail.
            report.redundancy_left().to_string(),
            report.state.join(", "),
            shown.rates.read.text(),
            shown.rates.written.text(),
            sizes::binary(Sectors(report.array_sectors)),
        ]
    }));
    let mut lines = columns(&rows, &[4, 6, 7, 8]);
    lines.extend(view.silent.iter().map(|(name, why)| names::printable(&format!("{name}: no answer: {why}"))));
    lines
}

fn slots(shown: &Shown) -> String {
    let letters = shown.report.slots();
    let in_sync = letters.matches('U').count();
    if letters.len() <= SLOTS_DRAWN_MAX { letters } else { format!("{in_sync}/{}", shown.report.raid_devices) }
}

/// The place of that column.
const SLOWEST: usize = 6;
/// Below this width the slowest request has no room beside the paths.
const WIDE: usize = 100;

/// The members of an array, with a line of titles.
pub(super) fn members(shown: &Shown, width: usize) -> Vec<String> {
    let titles = ["NUM", "SLOT", "STATE", "READ/s", "WRITE/s", "REQ/s", "SLOWEST", "WAITS", "ERR", "DEVICE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let dash = || "-".to_owned();
    rows.extend(shown.report.members.iter().zip(&shown.rates.members).map(|(member, rates)| {
        let io = member.io.as_ref();
        vec![
            member.number.map_or_else(dash, |number| number.to_string()),
            member.slot.map_or_else(dash, |slot| slot.to_string()),
            state(member),
            rates.read.text(),
            rates.written.text(),
            rates.requests.text(),
            io.and_then(|io| io.slowest.as_ref()).map_or_else(dash, |slowest| time(slowest.us as f64 / 1e6)),
            io.filter(|io| io.is_silent()).map_or_else(dash, |io| time(io.unanswered_ms as f64 / 1e3)),
            io.map_or_else(dash, |io| errors(io).to_string()),
            member.path.clone().unwrap_or_default(),
        ]
    }));
    if width < WIDE {
        rows.iter_mut().for_each(|row| drop(row.remove(SLOWEST)));
        return columns(&rows, &[0, 1, 3, 4, 5, 6, 7]);
    }
    columns(&rows, &[0, 1, 3, 4, 5, 6, 7, 8])
}

fn state(member: &Member) -> String {
    let word = match member.state.as_str() {
        "active sync" => "in sync",
        "spare rebuilding" => "rebuilding",
        REPLACEMENT | WHOLE_REPLACEMENT => "replacement",
        other => other,
    };
    let mark = if member.flags.is_empty() { String::new() } else { format!(" ({})", member.flags.join(", ")) };
    format!("{word}{mark}")
}

/// `830us`, `12.3ms`, `1.2s`
fn time(seconds: f64) -> String {
    match seconds {
        ..0.001 => format!("{:.0}us", seconds * 1e6),
        ..1.0 => format!("{:.1}ms", seconds * 1e3),
        _ => format!("{seconds:.1}s"),
    }
}

/// What the array is, and what to type next; its pass; its rows by kind. `width`: the sentences are broken there.
pub(super) fn facts(shown: &Shown, width: usize) -> Vec<String> {
    let report = &shown.report;
    let mut lines = Vec::new();
    if let Some(finding) = status::findings_of(report).first() {
        let what = format!("{}: {}", finding.state, finding.meaning);
        lines.extend(broken(&what, width));
        if !finding.action.is_empty() {
            lines.extend(broken(&format!("next: {}", finding.action), width));
        }
    }
    if let Some(pass) = report.pass() {
        let progress = pass.progress;
        let speed = progress
            .sectors_per_second
            .map_or_else(String::new, |speed| format!("  {}/s", brief(speed as f64 * 512.0)));
        let left = match progress.time_left() {
            _ if pass.is_pending => "  waits".to_owned(),
            Some(left) => format!("  {left} left"),
            None => String::new(),
        };
        lines.push(format!("{} {} {}{speed}{left}", pass.word, progress.bar(), progress.percent()));
    }
    let [full, modified, rest, computed] = shown.rates.rows.map(|rate| rate.text());
    if report.counts.is_some() && matches!(report.level.as_str(), "raid4" | "raid5" | "raid6") {
        lines.push(format!(
            "rows/s: {full} whole, {modified} read-modify-write, {rest} reconstruct-write, {computed} computed"
        ));
    }
    lines.iter().map(|line| names::printable(line)).collect()
}

/// A sentence in lines of at most `width` characters.
pub(super) fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// All of it without a screen: for a pipe or a file.
pub(super) fn plain(view: &View) -> String {
    let mut out = format!("{}\n", uraid_control::dates::stamp(view.now));
    let mut add = |lines: Vec<String>, indent: &str| {
        lines.iter().for_each(|line| out.push_str(&format!("{indent}{line}\n")));
    };
    if view.arrays.is_empty() && view.silent.is_empty() {
        add(vec!["no array runs".to_owned()], "");
    } else {
        add(arrays(view), "");
    }
    for shown in &view.arrays {
        add(vec![String::new(), names::printable(&shown.report.name)], "");
        add(facts(shown, usize::MAX), "  ");
        add(members(shown, usize::MAX), "  ");
    }
    out
}
