//! `cargo xtask prove`: measures the figures of every proof on this machine.
//! Owns: the parts, how the time is split among them, the table, the line of JSON. Not here: any proof.
//! Invariant: a part that did not run, or counted nothing, is an error and never a zero; with an error there is no JSON.
//!
//! Parts that end by themselves run first; time-bound ones share the remaining time. Builds do not count. Each part is a
//! program whose last line of output is a flat JSON object, or a test that prints its counts.

use crate::mutants::canaries;
use crate::project::{SUITE, cargo, target};
use crate::proofs::fuzz;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Without `--time`.
const SECONDS: u64 = 300;
/// Kills that every form makes.
const KILLS_MIN: u64 = 60;
/// The least time of a time-bound part, even if the earlier parts used up all the time.
const SECONDS_MIN: u64 = 5;

/// What `--json` prints, in this order; every one of them has to be measured.
const KEYS: [&str; 14] = [
    "seeds",
    "simulated_seconds",
    "operations",
    "crash_images",
    "faults",
    "violations",
    "museum_found",
    "museum_total",
    "marks_hit",
    "marks_total",
    "layout_cases",
    "erasure_vectors",
    "kill_cycles",
    "lost_bytes",
];

/// Figures that must be zero.
const ZERO_IS_GOOD: [&str; 2] = ["violations", "lost_bytes"];

type Figures = BTreeMap<String, u64>;

/// A proof: what it runs, what it must count, and how its output is read.
struct Part {
    name: &'static str,
    counts: &'static [&'static str],
    command: fn(&Run) -> Command,
    read: fn(&[String]) -> Option<Figures>,
}

/// In the order in which they run.
const PARTS: [Part; 6] = [
    Part { name: "erasures", counts: &["erasure_vectors"], command: erasures, read: read_erasures },
    Part { name: "layouts", counts: &["layout_cases"], command: layouts, read: read_layouts },
    Part { name: "museum", counts: &["museum_found", "museum_total"], command: museum, read: read_museum },
    Part { name: "kills", counts: &["kill_cycles", "lost_bytes", "violations"], command: kills, read: read_json },
    Part { name: "crash images", counts: &["crash_images", "violations"], command: images, read: read_json },
    Part { name: "swarm", counts: &SWARM, command: swarm, read: read_json },
];

const SWARM: [&str; 7] =
    ["seeds", "simulated_seconds", "operations", "faults", "violations", "marks_hit", "marks_total"];

/// One run of `prove`.
struct Run {
    /// Where the programs are.
    built: PathBuf,
    seconds: u64,
    began: Instant,
}

impl Run {
    /// This percentage of the remaining seconds.
    fn share(&self, percent: u64) -> u64 {
        let left = self.seconds.saturating_sub(self.began.elapsed().as_secs());
        (left * percent / 100).max(SECONDS_MIN)
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.built.join(name));
        command.env("URAID_BIN", self.built.join("uraid"));
        command
    }
}

/// `[--time 5m] [--json]`. Whether every part ran and nothing was found.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some((seconds, is_json)) = parse(words) else {
        eprintln!("cargo xtask prove [--time 5m] [--json]");
        return false;
    };
    let (failures, sum) = prove(seconds);
    if is_json && KEYS.iter().all(|key| sum.contains_key(*key)) {
        println!("{}", json(&sum));
    }
    failures.is_empty()
}

/// Runs for that time: whether nothing was found, and what was counted, in words.
pub(crate) fn counted(seconds: u64) -> (bool, String) {
    let (failures, sum) = prove(seconds);
    let told = sum.iter().filter(|(key, _)| key.as_str() != "simulated_seconds");
    let told: Vec<String> = told.map(|(key, count)| format!("{} {}", grouped(*count), key.replace('_', " "))).collect();
    (failures.is_empty(), told.join(", "))
}

/// All parts: what failed, and the figures.
fn prove(seconds: u64) -> (Vec<String>, Figures) {
    let started = Instant::now();
    if let Err(what) = build() {
        eprintln!("prove: {what}");
        return (vec![what], Figures::new());
    }
    println!("prove: built in {:.0} s; {seconds} s of proofs", started.elapsed().as_secs_f64());
    let run = Run { built: target().join("release"), seconds, began: Instant::now() };
    let mut sum = Figures::new();
    let mut failures = Vec::new();
    for part in &PARTS {
        match measure(part, &run) {
            Ok((figures, is_good)) => {
                add(&mut sum, &figures);
                if !is_good {
                    failures.push(format!("{}: it failed, see above", part.name));
                }
            }
            Err(what) => failures.push(format!("{}: {what}", part.name)),
        }
    }
    failures.extend(judge(&sum));
    print!("{}", table(&sum, run.began.elapsed()));
    failures.iter().for_each(|failure| println!("prove: {failure}"));
    (failures, sum)
}

fn parse(words: &[&str]) -> Option<(u64, bool)> {
    let (mut seconds, mut is_json) = (SECONDS, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--time" => seconds = fuzz::seconds(words.next()?)?,
            "--json" => is_json = true,
            _ => return None,
        }
    }
    Some((seconds, is_json))
}

// ---- commands

fn build_release(words: &[&str]) -> Result<(), String> {
    let is_good = cargo(words).status().is_ok_and(|status| status.success());
    if is_good { Ok(()) } else { Err(format!("cargo {} failed", words.join(" "))) }
}

/// Builds everything in release. The simulator counts marks. The binary that is killed does not, so another command builds
/// it: all that one command builds shares features. The museum needs an engine with mistakes.
fn build() -> Result<(), String> {
    canaries::build()?;
    build_release(&["build", "--release", "--quiet", "-p", "uraid-sim", "--features", "marks"])?;
    build_release(&["build", "--release", "--quiet", "-p", "uraid", "-p", "uraid-blackbox", "--bins"])?;
    build_release(&["test", "--release", "--quiet", "--no-run", "-p", "uraid-layout", "--test", SUITE])?;
    build_release(&["test", "--release", "--quiet", "--no-run", "-p", "uraid-parity", "--test", SUITE])
}

fn erasures(_: &Run) -> Command {
    cargo(&["test", "--release", "--quiet", "-p", "uraid-parity", "--test", SUITE, "erasures::", "--", "--nocapture"])
}

fn layouts(_: &Run) -> Command {
    let words = ["-p", "uraid-layout", "--test", SUITE, "three_stripes", "--", "--nocapture"];
    cargo(&[&["test", "--release", "--quiet"][..], &words].concat())
}

fn kills(run: &Run) -> Command {
    let mut command = run.program("uraid-storm");
    command.args(["--json", "--kills", &KILLS_MIN.to_string(), "--time", &format!("{}s", run.share(15))]);
    command
}

fn images(run: &Run) -> Command {
    let mut command = run.program("uraid-sim");
    command.args(["--crash-images", "--json", "--time", &format!("{}s", run.share(45))]);
    command
}

fn museum(_: &Run) -> Command {
    canaries::self_check("museum")
}

fn swarm(run: &Run) -> Command {
    let mut command = run.program("uraid-sim");
    command.args(["--prove", &run.share(100).to_string()]);
    command
}

/// Runs one part: its figures, and whether it passed.
fn measure(part: &Part, run: &Run) -> Result<(Figures, bool), String> {
    println!("prove: {} ...", part.name);
    let started = Instant::now();
    let (lines, is_good) = output(&mut (part.command)(run))?;
    let read = (part.read)(&lines).ok_or("it did not say what it counted")?;
    let took = started.elapsed().as_secs_f64();
    let mut figures = Figures::new();
    for key in part.counts {
        let count = read.get(*key).ok_or(format!("it did not count {key}"))?;
        figures.insert((*key).to_string(), *count);
    }
    let told: Vec<String> = figures.iter().map(|(key, count)| format!("{key} {count}")).collect();
    println!("prove: {} took {took:.1} s: {}", part.name, told.join(", "));
    let _ = std::io::stdout().flush();
    Ok((figures, is_good))
}

/// The lines that a command writes to its output, passed through, and whether it succeeded.
fn output(command: &mut Command) -> Result<(Vec<String>, bool), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("{name}: {error}"))?;
    let piped = child.stdout.take().expect("stdout is piped");
    let mut lines = Vec::new();
    for line in BufReader::new(piped).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        println!("  {line}");
        lines.push(line);
    }
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    Ok((lines, status.success()))
}

// ---- parsing the counts

/// The last line that is a flat JSON object; what is no number in it is left out.
fn read_json(lines: &[String]) -> Option<Figures> {
    let last = lines.iter().rev().find(|line| line.starts_with('{') && line.ends_with('}'))?;
    let pairs = last[1..last.len() - 1].split(',').filter_map(|pair| pair.split_once(':'));
    let figures = pairs.filter_map(|(key, number)| {
        let key = key.trim().strip_prefix('"')?.strip_suffix('"')?;
        Some((key.to_string(), number.trim().parse().ok()?))
    });
    Some(figures.collect())
}

/// `checks: 14 passed, 0 failed`.
fn read_museum(lines: &[String]) -> Option<Figures> {
    let told = lines.iter().rev().find_map(|line| line.strip_prefix("checks: ")?.strip_suffix(" failed"))?;
    let (passed, failed) = told.split_once(" passed, ")?;
    let (found, missed): (u64, u64) = (passed.parse().ok()?, failed.parse().ok()?);
    Some(Figures::from([("museum_found".to_string(), found), ("museum_total".to_string(), found + missed)]))
}

/// `1234 vectors with P, 5678 with P and Q`.
fn read_erasures(lines: &[String]) -> Option<Figures> {
    let line = lines.iter().find(|line| line.contains(" vectors with P"))?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    Some(Figures::from([("erasure_vectors".to_string(), numbers.iter().sum())]))
}

/// The column `cases` of each table's line `all`.
fn read_layouts(lines: &[String]) -> Option<Figures> {
    let mut sum = None;
    let mut column = None;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first() {
            Some(&"level") => column = words.iter().position(|word| *word == "cases"),
            Some(&"all") => {
                let count: u64 = words.get(column?)?.parse().ok()?;
                sum = Some(sum.unwrap_or(0) + count);
            }
            Some(_) | None => {}
        }
    }
    Some(Figures::from([("layout_cases".to_string(), sum?)]))
}

fn add(sum: &mut Figures, figures: &Figures) {
    for (key, count) in figures {
        *sum.entry(key.clone()).or_default() += count;
    }
}

/// The errors of the total.
fn judge(sum: &Figures) -> Vec<String> {
    let mut wrong = Vec::new();
    for key in KEYS {
        match (sum.get(key), ZERO_IS_GOOD.contains(&key)) {
            (None, _) => wrong.push(format!("{key} was not measured")),
            (Some(0), false) => wrong.push(format!("{key} is 0: nothing was proved")),
            (Some(count @ 1..), true) => wrong.push(format!("{key} is {count}")),
            (Some(_), _) => {}
        }
    }
    if sum.get("museum_found") != sum.get("museum_total") {
        wrong.push("a mistake of the museum was not found".to_string());
    }
    if sum.get("kill_cycles").is_some_and(|count| *count < KILLS_MIN) {
        wrong.push(format!("fewer than {KILLS_MIN} kills"));
    }
    wrong
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn table(sum: &Figures, took: Duration) -> String {
    let mut text = format!("\n{:<20} {:>16}\n", "figure", "measured");
    for key in KEYS {
        let count = sum.get(key).map_or_else(|| "did not run".to_string(), |count| grouped(*count));
        text.push_str(&format!("{:<20} {count:>16}\n", key.replace('_', " ")));
    }
    text.push_str(&format!("{:<20} {:>16.0}\n\n", "seconds", took.as_secs_f64()));
    text
}

fn json(sum: &Figures) -> String {
    let pairs: Vec<String> = KEYS.iter().map(|key| format!("\"{key}\": {}", sum[*key])).collect();
    format!("{{{}}}", pairs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(String::from).collect()
    }

    fn whole() -> Figures {
        KEYS.iter().map(|key| (key.to_string(), if ZERO_IS_GOOD.contains(key) { 0 } else { 60 })).collect()
    }

    #[test]
    fn every_figure_is_counted_by_some_part() {
        for key in KEYS {
            assert!(PARTS.iter().any(|part| part.counts.contains(&key)), "{key}");
        }
        assert!(PARTS.iter().flat_map(|part| part.counts).all(|key| KEYS.contains(key)));
    }

    #[test]
    fn what_the_parts_print_is_read() {
        let figures = read_json(&lines("12 seeds\n{\"seeds\": 12, \"faults\": 3, \"level\": \"raid5\"}\n"));
        assert_eq!(figures, Some(Figures::from([("seeds".into(), 12), ("faults".into(), 3)])));
        assert_eq!(read_json(&lines("12 seeds\n")), None);
        let museum = read_museum(&lines("R1: seed 4\nFAILED: R2: not found\nchecks: 13 passed, 1 failed\n"));
        assert_eq!(museum, Some(Figures::from([("museum_found".into(), 13), ("museum_total".into(), 14)])));
        assert_eq!(read_museum(&lines("R1: seed 4\n")), None);
        let erasures = read_erasures(&lines("running 1 test\n6864 vectors with P, 1410000 with P and Q\n."));
        assert_eq!(erasures, Some(Figures::from([("erasure_vectors".into(), 1_416_864)])));
        let table = "level  geometries  reads  cases  plans\nraid5  1  2  3  4\nall  1  2  30  4\n";
        assert_eq!(read_layouts(&lines(table)), Some(Figures::from([("layout_cases".into(), 30)])));
        assert_eq!(read_layouts(&lines(&table.repeat(2))), Some(Figures::from([("layout_cases".into(), 60)])));
        assert_eq!(read_layouts(&lines("running 3 tests")), None);
    }

    #[test]
    fn a_part_that_did_not_run_is_an_error_and_never_a_zero() {
        assert!(judge(&whole()).is_empty());
        for key in KEYS {
            let mut without = whole();
            without.remove(key);
            assert!(judge(&without).iter().any(|wrong| wrong.starts_with(key)), "{key}");
            let mut other = whole();
            other.insert(key.to_string(), if ZERO_IS_GOOD.contains(&key) { 1 } else { 0 });
            assert!(judge(&other).iter().any(|wrong| wrong.starts_with(key)), "{key}");
        }
        let mut missed = whole();
        missed.insert("museum_found".to_string(), 59);
        assert!(!judge(&missed).is_empty());
        assert!(output(&mut Command::new("/no/such/program")).is_err());
    }

    #[test]
    fn a_part_must_report_its_promised_counts() {
        let run = Run { built: "/no/such/folder".into(), seconds: 100, began: Instant::now() };
        let shell = |_: &Run| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo some words; echo '{\"kill_cycles\": 61, \"lost_bytes\": 512}'; exit 1"]);
            shell
        };
        let part = |counts| Part { name: "a storm", counts, command: shell, read: read_json };
        let counted = Figures::from([("kill_cycles".into(), 61), ("lost_bytes".into(), 512)]);
        // It ran, and its findings are counted; keep the fact that it failed.
        assert_eq!(measure(&part(&["kill_cycles", "lost_bytes"]), &run), Ok((counted, false)));
        assert_eq!(measure(&part(&["violations"]), &run), Err("it did not count violations".to_string()));
        let storm = PARTS.iter().find(|part| part.name == "kills").expect("it is a part");
        assert!(measure(storm, &run).is_err_and(|what| what.contains("uraid-storm")));
        assert_eq!((run.share(50), run.share(1)), (50, SECONDS_MIN));
    }

    #[test]
    fn the_json_is_one_flat_object_with_the_keys_in_order() {
        let text = json(&whole());
        assert!(text.starts_with("{\"seeds\": 60, \"simulated_seconds\": 60,") && text.ends_with("\"lost_bytes\": 0}"));
        assert_eq!(read_json(&[text]), Some(whole()));
        assert_eq!((grouped(7), grouped(1234), grouped(1_234_567)), ("7".into(), "1,234".into(), "1,234,567".into()));
    }

    #[test]
    fn the_command_line_accepts_a_time_and_json() {
        assert_eq!(parse(&[]), Some((300, false)));
        assert_eq!(parse(&["--time", "90s", "--json"]), Some((90, true)));
        assert_eq!(parse(&["--tim"]), None);
    }
}
