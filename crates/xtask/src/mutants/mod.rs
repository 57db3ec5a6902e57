//! `cargo xtask mutants`: puts each of a list of faults into the code; some stage must catch it.
//! Owns: the options, baseline, the run over the list, the score. Not here: the list (`list`), the copy of the
//! workspace that holds the faults (`instrument`), what is run (`stages`), results (`results`). Called by the program and by
//! `runs`. Mistakes that the simulator must find are in a copy of their own (`canaries`).
//! Invariant: the copy passes every stage without a fault before a failure counts as a catch; sources are never changed.
//!
//! The copy is built once: it contains every fault beside the original text, and `URAID_MUTANT` selects one at run
//! time.

pub(crate) mod canaries;
mod instrument;
mod list;
mod results;
mod stages;

use crate::documents::proof_page;
use crate::project;
use list::{Entry, Kind};
use results::{Score, Verdict, Verdicts};
use stages::{CopiedTree, Depth, Outcome, Stage};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const USAGE: &str =
    "cargo xtask mutants [--check | --stages | --quick | --tests | --short] [--resume] [--jobs N] [--only ID...]";

/// A full run with a lower score fails.
const SCORE_MIN: f64 = 0.98;

/// What caught each fault last: tried first. Written by a run of the whole list.
const CAUGHT_BY: &str = "tests/mutants/caught_by.tsv";

/// A stage counts as hung if it takes longer than this many times its baseline, and longer than the seconds below.
const LIMIT_FACTOR: f64 = 4.0;
const LIMIT_SECONDS_MIN: f64 = 60.0;

#[derive(Default, PartialEq, Eq, Debug)]
struct Options {
    /// Runs nothing; checks only that the list fits the sources and that the copy builds.
    only_checks: bool,
    /// Runs nothing; prints which stages found most in a second, by what is kept of the last run.
    shows_stages: bool,
    is_quick: bool,
    /// A fault that has not survived all stages yet has no verdict: `--resume` continues with it.
    depth: Depth,
    resumes: bool,
    jobs: usize,
    only: Vec<String>,
}

/// The paths of a run.
struct Run {
    tree: CopiedTree,
    folder: PathBuf,
    stages: Vec<Stage>,
    reached: BTreeMap<String, BTreeSet<String>>,
    baseline: BTreeMap<String, f64>,
    caught_by: BTreeMap<String, (String, String)>,
}

/// Returns whether enough faults were caught: all of the quick list, or the required share of a full run.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(options) = parse(words) else {
        eprintln!("{USAGE}");
        return false;
    };
    match run_list(&options) {
        Ok(is_good) => is_good,
        Err(wrong) => {
            wrong.iter().for_each(|what| eprintln!("mutants: {what}"));
            false
        }
    }
}

/// The whole list, as a part of `deep`: whether enough faults were caught, and how many. A run of the same code that was
/// interrupted goes on.
pub(crate) fn whole() -> (bool, String) {
    let path = project::target().join("mutants/commit.txt");
    let commit = proof_page::commit().unwrap_or_default();
    let resumes = std::fs::read_to_string(&path).is_ok_and(|earlier| earlier == commit) && !commit.ends_with('+');
    let options = Options { jobs: 2, resumes, ..Options::default() };
    let noted = std::fs::create_dir_all(path.parent().expect("it is below the target folder"));
    if let Err(error) = noted.and_then(|()| std::fs::write(&path, &commit)) {
        return (false, format!("{}: {error}", path.display()));
    }
    match judged(&options) {
        Ok((entries, verdicts)) => {
            let score = Score::of(&entries, &verdicts);
            let path = project::root().join(CAUGHT_BY);
            if let Err(error) = results::write_caught_by(&path, &verdicts) {
                return (false, format!("{}: {error}", path.display()));
            }
            (score.share() >= SCORE_MIN, score.line())
        }
        Err(wrong) => (false, wrong.join("; ")),
    }
}

fn parse(words: &[&str]) -> Option<Options> {
    let mut options = Options { jobs: 1, ..Options::default() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--check" => options.only_checks = true,
            "--stages" => options.shows_stages = true,
            "--quick" => options.is_quick = true,
            "--tests" => options.depth = Depth::Tests,
            "--short" => options.depth = Depth::Short,
            "--resume" => options.resumes = true,
            "--jobs" => options.jobs = words.next()?.parse().ok().filter(|jobs| (1..=16).contains(jobs))?,
            "--only" => options.only.extend(words.by_ref().map(|id| (*id).to_string())),
            _ => return None,
        }
    }
    Some(options)
}

fn run_list(options: &Options) -> Result<bool, Vec<String>> {
    if options.only_checks {
        let (run, entries) = copy_tree(options)?;
        run.tree.check(&entries.iter().map(|entry| entry.package.as_str()).collect()).map_err(|what| vec![what])?;
        println!("mutants: {} faults, and the copy builds", entries.len());
        return Ok(true);
    }
    if options.shows_stages {
        let finds = results::finds(&results::read_caught_by(&project::root().join(CAUGHT_BY)));
        let baseline = results::read_baseline(&project::target().join("mutants/baseline.txt"));
        print!("{}", results::stages_table(&finds, &baseline));
        return Ok(true);
    }
    let (entries, verdicts) = judged(options)?;
    let score = Score::of(&entries, &verdicts);
    println!("{}", score.line());
    let is_partial = options.is_quick || !options.only.is_empty();
    Ok(if is_partial { score.survived == 0 } else { score.share() >= SCORE_MIN })
}

/// Runs the chosen faults, and prints their table; one with the faults' texts is in `target/mutants/table.md`.
fn judged(options: &Options) -> Result<(Vec<Entry>, Verdicts), Vec<String>> {
    let (run, entries) = prepare(options)?;
    let path = run.folder.join("results.txt");
    let is_fresh = !options.resumes && options.only.is_empty() && !options.is_quick;
    if is_fresh {
        let _ = std::fs::remove_file(&path);
    }
    let known = if options.resumes { results::read(&path, &entries) } else { Verdicts::new() };
    let verdicts = run.all(options, &entries, known);
    print!("\n{}", results::table(&entries, &verdicts));
    let table = run.folder.join("table.md");
    let kept = std::fs::write(&table, results::document(&entries, &verdicts));
    kept.map_err(|error| vec![format!("{}: {error}", table.display())])?;
    Ok((entries, verdicts))
}

/// The list and the copy.
fn copy_tree(options: &Options) -> Result<(Run, Vec<Entry>), Vec<String>> {
    let root = project::root();
    let all = list::read(&root, Kind::Mutant)?;
    let entries = chosen(&all, options)?;
    let target = project::target();
    let folder = target.join("mutants");
    let tree = folder.join("tree");
    instrument::copy(&root, &tree, Kind::Mutant, &all)?;
    std::fs::create_dir_all(folder.join("logs")).map_err(|error| vec![error.to_string()])?;
    let run = Run {
        // The quick build builds only tests of libraries. So it can share already built foreign crates, and leaves no
        // program with faults in the shared target folder.
        tree: CopiedTree { tree, target: if options.is_quick { target } else { folder.join("build") } },
        folder,
        stages: Vec::new(),
        reached: stages::reached_from(&root),
        baseline: BTreeMap::new(),
        caught_by: results::read_caught_by(&root.join(CAUGHT_BY)),
    };
    Ok((run, entries))
}

/// The list, the copy, the build, the baseline.
fn prepare(options: &Options) -> Result<(Run, Vec<Entry>), Vec<String>> {
    let began = Instant::now();
    let (mut run, entries) = copy_tree(options)?;
    let built = if options.is_quick {
        run.tree.build_quick(&entries.iter().filter_map(|entry| entry.quick.as_deref()).collect())
    } else {
        run.tree.build(options.depth)
    };
    run.stages = built.map_err(|what| vec![what])?;
    println!("mutants: {} stages built in {:.0} s", run.stages.len(), began.elapsed().as_secs_f64());
    run.measure_baseline(options)?;
    Ok((run, entries))
}

/// The selected entries: in the order of the list, or of the command line.
fn chosen(all: &[Entry], options: &Options) -> Result<Vec<Entry>, Vec<String>> {
    let unknown = options.only.iter().filter(|id| all.iter().all(|entry| entry.id != **id));
    let unknown: Vec<String> = unknown.map(|id| format!("there is no fault {id}")).collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let is_wanted = |entry: &&Entry| {
        (options.only.is_empty() || options.only.contains(&entry.id)) && (!options.is_quick || entry.quick.is_some())
    };
    let mut wanted: Vec<Entry> = all.iter().filter(is_wanted).cloned().collect();
    wanted.sort_by_key(|entry| options.only.iter().position(|id| *id == entry.id));
    Ok(wanted)
}

impl Run {
    /// Runs every stage once without a fault. A stage that fails is run once more before it counts, because the machine
    /// may be busy.
    fn measure_baseline(&mut self, options: &Options) -> Result<(), Vec<String>> {
        let path = self.folder.join("baseline.txt");
        let is_kept = !options.is_quick;
        let takes_known = is_kept && (options.resumes || !options.only.is_empty());
        let known = if takes_known { results::read_baseline(&path) } else { BTreeMap::new() };
        let mut wrong = Vec::new();
        for stage in &self.stages {
            if let Some(seconds) = known.get(&stage.name) {
                self.baseline.insert(stage.name.clone(), *seconds);
                continue;
            }
            let log = self.folder.join("logs/baseline.txt");
            let once = || self.tree.run(stage, None, Duration::from_secs(900), &log);
            let (outcome, took) = match once() {
                (Outcome::Passed, took) => (Outcome::Passed, took),
                (Outcome::Failed(_) | Outcome::Hung, _) => once(),
            };
            println!("mutants: baseline of {}: {:.1} s", stage.name, took.as_secs_f64());
            match outcome {
                Outcome::Passed => {
                    self.baseline.insert(stage.name.clone(), took.as_secs_f64());
                }
                Outcome::Failed(what) => wrong.push(format!("{} fails without a fault: {what}", stage.name)),
                Outcome::Hung => wrong.push(format!("{} does not end without a fault", stage.name)),
            }
        }
        // What has passed is kept also if another stage fails: `--resume` goes on from there.
        if is_kept {
            results::write_baseline(&path, &self.baseline).map_err(|error| vec![error.to_string()])?;
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Runs every entry that has no verdict yet.
    fn all(&self, options: &Options, entries: &[Entry], known: Verdicts) -> Verdicts {
        let left: Vec<&Entry> = entries.iter().filter(|entry| !known.contains_key(&entry.id)).rev().collect();
        println!("mutants: {} faults, {} known already", left.len(), known.len());
        let left = Mutex::new(left);
        let verdicts = Mutex::new(known);
        std::thread::scope(|scope| {
            for _ in 0..options.jobs {
                scope.spawn(|| {
                    loop {
                        let next = left.lock().expect("no thread panics with it").pop();
                        let Some(entry) = next else { return };
                        let verdict = self.judge(entry, options);
                        self.report(entry, &verdict, options);
                        verdicts.lock().expect("no thread panics with it").insert(entry.id.clone(), verdict);
                    }
                });
            }
        });
        verdicts.into_inner().expect("no thread panics with it")
    }

    fn report(&self, entry: &Entry, verdict: &Verdict, options: &Options) {
        let told = match &verdict.caught {
            Some((stage, what)) => format!("{stage}: {what}"),
            None => format!("SURVIVED: {}", entry.fault),
        };
        println!("{:<36} {:>7.1}  {told}", entry.id, verdict.seconds);
        // Each entry of the quick list names its own stage.
        if options.is_quick || (options.depth != Depth::Full && verdict.caught.is_none()) {
            return;
        }
        if let Err(error) = results::append(&self.folder.join("results.txt"), entry, verdict) {
            println!("mutants: the result is not kept: {error}");
        }
    }

    /// The stages of one fault, until one fails.
    fn judge(&self, entry: &Entry, options: &Options) -> Verdict {
        let began = Instant::now();
        let log = self.folder.join("logs").join(format!("{}.txt", entry.id));
        let ordered: Vec<Stage> = if options.is_quick {
            self.stages.iter().filter(|stage| entry.quick.as_deref() == Some(&stage.name)).cloned().collect()
        } else {
            let finds = results::finds(&self.caught_by);
            let others =
                stages::in_order(&self.stages, options.depth, &entry.package, &self.reached, &self.baseline, &finds);
            let last = self.caught_by.get(&entry.id);
            let last =
                last.and_then(|(name, what)| Some(others.iter().find(|stage| stage.name == *name)?.narrowed_to(what)));
            last.into_iter().chain(others.into_iter().cloned()).collect()
        };
        for stage in &ordered {
            let limit = (self.baseline[&stage.name] * LIMIT_FACTOR).max(LIMIT_SECONDS_MIN);
            let limit = Duration::from_secs_f64(limit);
            let run = |stage: &Stage, number| self.tree.run(stage, number, limit, &log).0;
            let what = match run(stage, Some(entry.number())) {
                Outcome::Passed => continue,
                Outcome::Failed(what) => what,
                Outcome::Hung => "it did not end in time".to_string(),
            };
            // A busy machine makes tests fail and hang, too. So what failed must fail again with the fault, and pass
            // without it: now, or in the run that is kept, where the same test failed.
            let log_of_catch = std::fs::read(&log).unwrap_or_default();
            let is_known =
                self.caught_by.get(&entry.id).is_some_and(|last| *last == (stage.name.clone(), what.clone()));
            let again = stage.narrowed_to(&what);
            let is_caught = is_known
                || run(&again, None) == Outcome::Passed && run(&again, Some(entry.number())) != Outcome::Passed;
            if !is_caught {
                println!("mutants: {} in {}: {what}: it did not happen again", entry.id, stage.name);
                continue;
            }
            let _ = std::fs::write(&log, log_of_catch);
            return Verdict { caught: Some((stage.name.clone(), what)), seconds: began.elapsed().as_secs_f64() };
        }
        Verdict { caught: None, seconds: began.elapsed().as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_of_the_command_are_parsed() {
        let options = parse(&["--jobs", "2", "--resume", "--only", "a", "b"]).expect("good words");
        assert_eq!((options.jobs, options.resumes, options.only.len()), (2, true, 2));
        assert_eq!(parse(&[]).expect("none").jobs, 1);
        assert!(parse(&["--jobs", "0"]).is_none());
        assert!(parse(&["--keep"]).is_none());
    }

    #[test]
    fn the_lists_are_valid_and_every_quote_is_in_its_file_once() {
        let root = project::root();
        for kind in [Kind::Mutant, Kind::Canary] {
            let entries = list::read(&root, kind).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
            let folder = std::env::temp_dir().join(format!("uraid-{}-list-{}", kind.module(), std::process::id()));
            let copied = instrument::copy(&root, &folder, kind, &entries);
            std::fs::remove_dir_all(&folder).expect("removed");
            assert_eq!(copied, Ok(()));
        }
    }
}
