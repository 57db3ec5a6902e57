//! `cargo xtask bench --beside PROGRAM`: every row of the scenarios, by this tree's program and by an older one in turn.
//! Owns: the turns, pairing rows of both programs, the two tables. Not here: any measurement (`uraid bench`).
//! Invariant: a difference or a ratio is between two runs that followed each other. The programs take turns in going
//! first. A row that only one of them has is named.

use super::{ROUNDS_MIN, Run, build, number, succeed};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The options of both programs. A scenario takes seconds with them.
const OPTIONS: [&str; 7] = ["--rounds", "1", "--gtod-reduce", "--json", "--cycles", "10000", "--runtime"];
/// The wanted confidence of an interval, as in `uraid bench`.
const WANTED: f64 = 0.95;

/// Rows of scenarios that an older program does not know, as works that it knows.
const WORKS: [(&str, &str); 6] = [
    ("random-read", "-l 10 -n 4 -c 64K --rw randread null:1T"),
    ("random-write", "-l 0 -n 4 -c 64K --rw randwrite null:1T"),
    ("random-write", "-l 1 -n 2 --rw randwrite null:1T"),
    ("random-write", "-l 1 -n 2 --rw randwrite --shards 2 null:1T"),
    ("random-write", "-l 10 -n 4 -c 64K --rw randwrite null:1T"),
    ("random-write", "-l 10 -n 4 -c 64K --rw randwrite --shards 2 null:1T"),
];

/// What one call of a program measures.
struct Go {
    scenario: String,
    /// The words that select it.
    words: Vec<String>,
}

/// One row of one program.
#[derive(Clone, Copy)]
struct Figure {
    /// What the engine adds to the member I/O, ns of CPU per request; `None` for a row without replay.
    added: Option<f64>,
    /// The figure in the row's unit.
    array: f64,
    /// Whether less of it is better.
    is_cost: bool,
}

/// By scenario and work, the rounds of each program: the older one first.
type Rounds = BTreeMap<(String, String), [Vec<Figure>; 2]>;

/// The command, without `bench`: `--beside PROGRAM [--rounds N] [--seconds N] [SCENARIO]...`.
pub(super) fn run(words: &[&str]) -> Result<(), String> {
    let (mut older, mut rounds, mut seconds, mut wanted) = (None, ROUNDS_MIN, 1, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--beside" => older = Some(PathBuf::from(words.next().ok_or("--beside wants a program")?)),
            "--rounds" => rounds = number(word, words.next())?.max(ROUNDS_MIN),
            "--seconds" => seconds = number(word, words.next())?,
            name => wanted.push(name.to_owned()),
        }
    }
    let programs = [older.ok_or("--beside wants a program")?, build()?];
    let known = [scenarios(&programs[0])?, scenarios(&programs[1])?];
    if let Some(other) = wanted.iter().find(|name| !known[1].contains(name)) {
        return Err(format!("found {other:?}, expected --rounds N, --seconds N, or of {}", known[1].join(", ")));
    }
    let gos = gos(&known, &wanted);
    let millis = super::scenario_millis(&Run { uraid: programs[1].clone(), rounds, seconds });
    let mut found = Rounds::new();
    for go in &gos {
        for round in 0..rounds as usize {
            for turn in 0..2 {
                let which = (round + turn) % 2;
                eprintln!("{}, round {} of {rounds}, {}", go.words.join(" "), round + 1, programs[which].display());
                take(&mut found, go, which, &measure(&programs[which], go, millis)?)?;
            }
        }
    }
    let (tables, alone) = tables(&found);
    println!("{tables}");
    for name in known[1].iter().filter(|name| !known[0].contains(name)) {
        println!("the older program does not know --scenario {name}");
    }
    alone.iter().for_each(|row| println!("only one program has {row}"));
    Ok(())
}

/// The scenarios of a program, except `all`.
fn scenarios(program: &Path) -> Result<Vec<String>, String> {
    let help = succeed(Command::new(program).args(["bench", "-h"]))?;
    let line = help.lines().find(|line| line.trim_start().starts_with("--scenario"));
    let list = line.and_then(|line| line.split_once("[possible values: all, ")?.1.strip_suffix(']'));
    let list = list.ok_or_else(|| format!("{}: its `bench -h` names no scenarios", program.display()))?;
    Ok(list.split(", ").map(str::to_owned).collect())
}

/// What both can measure.
fn gos(known: &[Vec<String>; 2], wanted: &[String]) -> Vec<Go> {
    let names = known[1].iter().filter(|name| wanted.is_empty() || wanted.contains(name));
    let of = |name: &String| {
        let go = |words: &str| Go { scenario: name.clone(), words: words.split(' ').map(str::to_owned).collect() };
        match known[0].contains(name) {
            true => vec![go(&format!("--scenario {name}"))],
            false => WORKS.iter().filter(|(of, _)| of == name).map(|(_, words)| go(words)).collect(),
        }
    };
    names.flat_map(of).collect()
}

fn measure(program: &Path, go: &Go, millis: u64) -> Result<Value, String> {
    let is_drains = go.scenario == "drain-cycles";
    let options = OPTIONS.iter().copied().map(str::to_owned).chain([format!("{millis}ms")]);
    // Only the scenario of drains takes their number.
    let options = options.filter(|word| is_drains || !["--cycles", "10000"].contains(&word.as_str()));
    let text = succeed(Command::new(program).arg("bench").args(&go.words).args(options))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", program.display()))
}

/// Adds the rows of one run. Those that follow from others are left out: `ideal`, and two shards beside one.
fn take(found: &mut Rounds, go: &Go, which: usize, rows: &Value) -> Result<(), String> {
    for row in rows.as_array().ok_or("found no list of rows")? {
        let text = |field: &str| row[field].as_str().ok_or_else(|| format!("no {field} in {row}"));
        let (work, against, unit) = (text("work")?, text("against")?, text("unit")?);
        if ["ideal", "one shard"].contains(&against) {
            continue;
        }
        let added = row["cpu_ns_more"].as_f64().filter(|_| against == "replay");
        let array = row["array"].as_f64().ok_or_else(|| format!("no figure in {row}"))?;
        let figure = Figure { added, array, is_cost: ["ns", "requests"].contains(&unit) };
        found.entry((go.scenario.clone(), work.to_owned())).or_default()[which].push(figure);
    }
    Ok(())
}

/// Both tables, and the rows that only one program has.
fn tables(found: &Rounds) -> (String, Vec<String>) {
    let mut added = "| scenario | work | + before | + now | now - before | |\n|---|---|--:|--:|--:|---|\n".to_owned();
    let mut others = "| scenario | work | before | now | better by | |\n|---|---|--:|--:|--:|---|\n".to_owned();
    let mut alone = Vec::new();
    for ((scenario, work), [before, now]) in found {
        if before.len() != now.len() {
            alone.push(format!("{scenario}: {work}"));
            continue;
        }
        let nanos = |figures: &[Figure]| figures.iter().map(|figure| figure.added).collect::<Option<Vec<f64>>>();
        if let (Some(before), Some(now)) = (nanos(before), nanos(now)) {
            let more: Vec<f64> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
            let (low, middle, high) = interval(&more);
            let (before, now) = (interval(&before).1, interval(&now).1);
            let verdict = verdict(low > 0.0, high < 0.0);
            added += &format!(
                "| {scenario} | {work} | {before:.0} ns | {now:.0} ns | {middle:+.0} ({low:+.0}..{high:+.0}) | {verdict} |\n"
            );
            continue;
        }
        let better = |(now, before): (&Figure, &Figure)| match now.is_cost {
            true => before.array / now.array,
            false => now.array / before.array,
        };
        let (low, middle, high) = interval(&now.iter().zip(before).map(better).collect::<Vec<f64>>());
        let array = |figures: &[Figure]| interval(&figures.iter().map(|figure| figure.array).collect::<Vec<f64>>()).1;
        let verdict = verdict(high < 1.0, low > 1.0);
        others += &format!(
            "| {scenario} | {work} | {:.4} | {:.4} | {middle:.2} ({low:.2}..{high:.2}) | {verdict} |\n",
            array(before),
            array(now)
        );
    }
    (format!("{added}\n{others}"), alone)
}

fn verdict(is_slower: bool, is_faster: bool) -> &'static str {
    match (is_slower, is_faster) {
        (true, _) => "**slower**",
        (false, true) => "faster",
        (false, false) => "",
    }
}

/// The median of the values and its interval's ends, by order statistics: leaves out as many values at each end as the
/// wanted confidence allows.
fn interval(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let (mut probability, mut outside, mut left_out) = (0.5f64.powi(count as i32), 0.0, 0);
    loop {
        outside += probability;
        probability *= (count - left_out) as f64 / (left_out + 1) as f64;
        if 1.0 - 2.0 * (outside + probability) < WANTED || 2 * (left_out + 1) >= count {
            break;
        }
        left_out += 1;
    }
    let middle = f64::midpoint(sorted[count / 2], sorted[(count - 1) / 2]);
    (sorted[left_out], middle, sorted[count - 1 - left_out])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(before: &[f64], now: &[f64], against: &str, unit: &str) -> Rounds {
        let mut found = Rounds::new();
        let go = Go { scenario: "s".to_owned(), words: Vec::new() };
        for (which, values) in [before, now].into_iter().enumerate() {
            for value in values {
                let row = json!({"work": "w", "against": against, "unit": unit, "array": value, "cpu_ns_more": value});
                take(&mut found, &go, which, &json!([row])).expect("a row");
            }
        }
        found
    }

    #[test]
    fn a_row_is_slower_if_the_whole_interval_is() {
        let slower = |before: &[f64], now: &[f64], against, unit| {
            let text = tables(&found(before, now, against, unit)).0;
            (text.contains("slower"), text.contains("faster"))
        };
        let (base, more) = ([10.0, 12.0, 11.0, 10.0, 12.0, 11.0], [15.0, 16.0, 15.0, 16.0, 15.0, 16.0]);
        let mixed = [9.0, 16.0, 15.0, 16.0, 15.0, 16.0];
        assert_eq!(slower(&base, &more, "replay", "IOPS"), (true, false), "ns added, whatever the unit of the row is");
        assert_eq!(slower(&more, &base, "replay", "IOPS"), (false, true));
        assert_eq!(slower(&base, &mixed, "replay", "IOPS"), (false, false));
        assert_eq!(slower(&base, &more, "nothing", "ns"), (true, false));
        assert_eq!(slower(&base, &more, "bare reads of a member", "GB/s"), (false, true));
        assert!(found(&base, &more, "ideal", "IOPS").is_empty());
    }

    #[test]
    fn a_row_that_one_program_lacks_is_named() {
        assert_eq!(tables(&found(&[], &[1.0], "replay", "IOPS")).1, ["s: w"]);
    }

    #[test]
    fn an_interval_leaves_out_what_95_percent_allow() {
        let values = |count: u32| (0..count).map(f64::from).collect::<Vec<f64>>();
        assert_eq!(interval(&values(6)), (0.0, 2.5, 5.0));
        assert_eq!(interval(&values(9)), (1.0, 4.0, 7.0), "96.1 %");
        assert_eq!(interval(&values(12)), (2.0, 5.5, 9.0), "96.1 %");
        assert_eq!(interval(&[3.0]), (3.0, 3.0, 3.0));
    }

    #[test]
    fn a_scenario_that_only_one_program_knows_becomes_works() {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let known = [list(&["resync"]), list(&["resync", "random-write", "random-read"])];
        let words =
            |wanted: &[&str]| gos(&known, &list(wanted)).iter().map(|go| go.words.join(" ")).collect::<Vec<_>>();
        assert_eq!(words(&[]).len(), 7);
        assert_eq!(words(&["resync"]), ["--scenario resync"]);
        assert_eq!(words(&["random-read"]), [WORKS[0].1]);
    }
}
