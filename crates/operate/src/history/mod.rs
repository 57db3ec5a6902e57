//! `uraid history`: what happened to arrays, who did it, and when.
//! Owns: its options and help texts, which entries are shown, their lines, following. Not here: the files
//! (`uraid_control::history`), what is noted (`serve`), moments as people type them (`since`).
//! Invariant: the entries of one array are shown in the order of their numbers, whatever the clock did.

mod since;

use clap::Args;
use serde_json::json;
use since::Since;
pub(crate) use since::duration;
#[cfg(test)]
pub(crate) use since::parse_date;
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use uraid_control::client;
use uraid_control::history::{self, Entry, HistoryError};
use uraid_control::log::{print, print_failed};
use uraid_control::{dates, names};

/// Of `uraid history`.
pub const HISTORY: &str = "\
Show what happened to arrays: every command with who gave it, and every event, such as a member that
failed, a spare that took its slot, the end of a check. Also of arrays that do not run.

The history is in the state directory: $URAID_STATE_DIR, or /var/lib/uraid for root, or
$XDG_STATE_HOME/uraid, or ~/.local/state/uraid. It keeps at least the last MiB of each array.";

/// Of `uraid history`.
pub const HISTORY_AFTER: &str = "\
EXAMPLES
  uraid history
  uraid history home --since 2h
  uraid history home --since 2026-11-30
  uraid history --follow                 until it is ended
  uraid history --json | jq -r .event    a JSON object a line";

/// How often the files are looked at.
const PERIOD: Duration = Duration::from_millis(300);

/// Options of `uraid history`.
#[derive(Args, Debug)]
pub struct HistoryArgs {
    /// The array: its name or its UUID, of a running one also its number or a member; all, if none is given
    #[arg(value_name = "ARRAY")]
    pub array: Option<String>,
    /// Go on, and show what happens
    #[arg(short, long)]
    pub follow: bool,
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Only what happened since then: a time back from now (90s, 30m, 2h, 7d), or a date (2026-11-30, 2026-11-30T18:00:00Z),
    /// in UTC
    #[arg(long, value_name = "TIME", value_parser = since::parse)]
    pub since: Option<Since>,
}

/// No history has that name.
#[derive(Debug, thiserror::Error)]
#[error("no history has an array {array}: `uraid history` shows all that there are")]
pub(crate) struct NoArray {
    /// That name.
    pub(crate) array: String,
}

/// Prints the entries.
pub fn run(args: &HistoryArgs) -> Result<ExitCode, Box<dyn Error>> {
    let since = args.since.map_or(0, |since| since.seconds(dates::now()));
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    let is_shown = |entry: &Entry| entry.time >= since;
    let word = match &args.array {
        Some(word) if histories(Some(word))?.is_empty() => Some(own_word(word)),
        other => other.clone(),
    };
    let all = histories(word.as_deref())?;
    if let (true, Some(array)) = (all.is_empty() && !args.follow, &args.array) {
        return Err(Box::new(NoArray { array: array.clone() }));
    }
    show(args.json, all, &mut shown, is_shown);
    while args.follow && !print_failed() {
        std::thread::sleep(PERIOD);
        show(args.json, histories(word.as_deref())?, &mut shown, is_shown);
    }
    Ok(ExitCode::SUCCESS)
}

/// The UUID of the running array that this word means in every verb: `md127`, `box:home`, a member. Else the word.
fn own_word(word: &str) -> String {
    let running = client::find(Some(word), None).and_then(|mut client| client.status());
    running.map_or_else(|_| word.to_owned(), |report| report.uuid)
}

/// The entries of each array that has or had this name, or this UUID; of all, if there is none.
pub(crate) fn histories(word: Option<&str>) -> Result<Vec<Vec<Entry>>, HistoryError> {
    let mut found = Vec::new();
    for uuid in history::arrays()? {
        let entries = history::read(&uuid)?;
        let is_called = |word: &str| {
            let name = word.strip_prefix("/dev/md/").unwrap_or(word);
            uuid == word || entries.iter().rev().any(|entry| entry.array == name)
        };
        if !entries.is_empty() && word.is_none_or(is_called) {
            found.push(entries);
        }
    }
    Ok(found)
}

/// Prints what was not shown yet, and notes it.
fn show(is_json: bool, all: Vec<Vec<Entry>>, shown: &mut BTreeMap<String, u64>, is_shown: impl Fn(&Entry) -> bool) {
    let fresh = |entries: Vec<Entry>| {
        let last = entries.first().and_then(|entry| shown.get(&entry.uuid)).copied().unwrap_or(0);
        entries.into_iter().filter(|entry| entry.number > last).collect::<Vec<Entry>>()
    };
    let merged = merge(all.into_iter().map(fresh).collect());
    let mut out = String::new();
    for entry in &merged {
        shown.insert(entry.uuid.clone(), entry.number);
        if !is_shown(entry) {
            continue;
        }
        out.push_str(&if is_json { format!("{}\n", json!(entry)) } else { line(entry) });
    }
    print(&out);
}

/// The entries of several arrays by time; those of one array stay in their order.
fn merge(arrays: Vec<Vec<Entry>>) -> Vec<Entry> {
    let mut queues: Vec<_> = arrays.into_iter().map(|entries| entries.into_iter().peekable()).collect();
    let mut out = Vec::new();
    loop {
        let heads = queues.iter_mut().enumerate().filter_map(|(at, queue)| Some((queue.peek()?.time, at)));
        let Some((_, first)) = heads.min() else { return out };
        out.extend(queues[first].next());
    }
}

/// `2026-11-30T18:41:14Z home 12 member-failed engine: member ...`
fn line(entry: &Entry) -> String {
    let Entry { number, time, array, event, actor, text, maintenance, .. } = entry;
    let mark = if *maintenance { " (maintenance)" } else { "" };
    let (time, actor) = (dates::stamp(*time), actor.text());
    let line = format!("{time} {array} {number} {event}{mark}, {actor}: {text}");
    format!("{}\n", names::printable(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_control::history::{Actor, Event};

    fn entry(array: &str, number: u64, time: u64) -> Entry {
        Entry { number, time, ..Entry::new(array, array, Event::Started, Actor::Engine, "text") }
    }

    #[test]
    fn arrays_are_merged_by_time_and_each_keeps_its_order() {
        let one = vec![entry("a", 1, 10), entry("a", 2, 5), entry("a", 3, 30)];
        let other = vec![entry("b", 1, 7), entry("b", 2, 20)];
        let order: Vec<(String, u64)> = merge(vec![one, other]).into_iter().map(|it| (it.array, it.number)).collect();
        let expected = [("b", 1), ("a", 1), ("a", 2), ("b", 2), ("a", 3)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(order, expected, "the clock of a stepped back");
    }

    #[test]
    fn a_line_has_all_and_cannot_be_broken() {
        let mut entry = entry("home", 12, 1_700_000_000);
        entry.text = "one\ntwo".to_owned();
        entry.maintenance = true;
        let expected = "2023-11-14T22:13:20Z home 12 started (maintenance), engine: one_two\n";
        assert_eq!(line(&entry), expected);
    }

    #[test]
    fn the_page_names_each_event_once() {
        let page = include_str!("../../../../docs/operating/history.md");
        let table: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let first = table.iter().filter_map(|line| line.split('|').nth(1));
        let named: Vec<&str> =
            first.flat_map(|cell| cell.split(',').map(|word| word.trim().trim_matches('`'))).collect();
        let mut expected: Vec<&str> = Event::ALL.iter().map(|event| event.name()).collect();
        let mut found = named;
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}
