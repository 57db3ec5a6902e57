//! What is run against a fault: test programs of the copy, the simulator, crash images, kill -9.
//! Owns: building them, choosing and ordering those of a crate, running one with a time limit. Not here: the results
//! (`mutants`).
//! Invariant: a test program runs in the folder of its package, as cargo runs it; every stage has a temporary folder
//! of its own, which is removed after it.

use crate::checks::floors;
use crate::programs::test_program::TestProgram;
use crate::project;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Tests that are not used as stages, and why.
const LEFT_OUT: [(&str, &str); 2] =
    [("blackbox/filesystems", "needs root, loop devices and mounts"), ("uraid/bench", "measures speed")];

/// Programs in release, and their words: short forms, which run early, and long ones.
const PROGRAMS: [(&str, &str, &str); 8] = [
    ("simulator, 400 seeds", "uraid-sim", "--seeds 0..400"),
    ("simulator, 40 long seeds", "uraid-sim", "--swarm --seeds 0..40"),
    ("crash images, short", "uraid-sim", "--crash-images --short --time 60s"),
    ("kill -9, 20 times", "uraid-storm", "--kills 20 --time 15s"),
    ("simulator, 6000 seeds", "uraid-sim", "--seeds 400..6400"),
    ("simulator, 400 long seeds", "uraid-sim", "--swarm --seeds 40..440"),
    ("crash images", "uraid-sim", "--crash-images --time 90s"),
    ("simulator, marks", "uraid-sim", "--self-check marks"),
];

/// Which stages run before a fault counts as not caught.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Depth {
    /// Test programs that are not slow, without a release build.
    Tests,
    /// All but the long programs.
    Short,
    #[default]
    Full,
}

/// Release programs that run for minutes.
const LONG: [&str; 4] = ["simulator, marks", "simulator, 6000 seeds", "simulator, 400 long seeds", "crash images"];

/// Tests above the crate of a fault that take longer are left out of [`Depth::Tests`].
const SLOW_MILLIS: u64 = 10_000;

/// A program of the simulator that takes less is tried with the tests of the fault's crate.
const QUICK_MILLIS: u64 = 3_000;

/// One program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// `engine/requests`, or what a release program does.
    pub(crate) name: String,
    /// The package of the tests; `None` for programs in release.
    package: Option<String>,
    executable: PathBuf,
    words: Vec<String>,
    /// Where it runs.
    folder: PathBuf,
}

impl Stage {
    fn of(program: TestProgram) -> Stage {
        let TestProgram { name, package, executable, folder } = program;
        Stage { name, package: Some(package), executable, words: Vec::new(), folder }
    }

    /// The same, with the one test only that failed in it, if its name is known.
    pub(crate) fn narrowed_to(&self, what: &str) -> Stage {
        let test = what.rsplit("::").next().filter(|name| !name.contains(' ') && !name.is_empty());
        match test.filter(|_| self.package.is_some()) {
            Some(test) => Stage { words: vec![test.to_string()], ..self.clone() },
            None => self.clone(),
        }
    }
}

/// The result of one run of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It found nothing.
    Passed,
    /// It failed: the first test that failed, or its last line.
    Failed(String),
    /// It did not end in time.
    Hung,
}

/// The copy and where it is built.
pub(crate) struct CopiedTree {
    /// The copy of the workspace.
    pub(crate) tree: PathBuf,
    /// Its target folder.
    pub(crate) target: PathBuf,
}

impl CopiedTree {
    /// Builds the tests that the quick list needs: `names` are stages such as `engine/requests`.
    pub(crate) fn build_quick(&self, names: &BTreeSet<&str>) -> Result<Vec<Stage>, String> {
        let mut chosen: BTreeSet<String> = BTreeSet::new();
        for name in names {
            let (package, target) =
                name.split_once('/').ok_or(format!("{name} is no stage such as engine/requests"))?;
            chosen.insert(format!("--package={}", cargo_name(package)));
            let folder = self.tree.join("crates").join(package);
            let has_target = |program: &String| project::modules(&folder, program).iter().any(|file| file == target);
            let program = project::programs(&folder).into_iter().find(has_target).unwrap_or(target.to_string());
            chosen.insert(if target == "lib" { "--lib".to_string() } else { format!("--test={program}") });
        }
        let mut stages = self.tests(&chosen.into_iter().collect::<Vec<_>>())?;
        stages.retain(|stage| names.contains(stage.name.as_str()));
        match names.iter().find(|name| stages.iter().all(|stage| stage.name != **name)) {
            Some(name) => Err(format!("there is no stage {name}")),
            None => Ok(stages),
        }
    }

    /// Type-checks the crates that have faults.
    pub(crate) fn check(&self, packages: &BTreeSet<&str>) -> Result<(), String> {
        let named = packages.iter().flat_map(|package| ["-p".to_string(), cargo_name(package)]);
        self.cargo(&["check".to_string(), "--keep-going".to_string()].into_iter().chain(named).collect::<Vec<_>>())
    }

    /// Builds everything, and returns the list of stages.
    pub(crate) fn build(&self, depth: Depth) -> Result<Vec<Stage>, String> {
        let words = |text: &str| text.split_whitespace().map(str::to_string).collect::<Vec<_>>();
        let mut stages = self.tests(&words("--workspace --exclude xtask"))?;
        if depth == Depth::Tests {
            return Ok(stages);
        }
        // What one command builds shares its features, so the binary under kills is built apart from the simulator.
        self.cargo(&words("build --release -p uraid -p uraid-blackbox --bins"))?;
        self.cargo(&words("build --release -p uraid-sim --features marks --bins"))?;
        stages.extend(PROGRAMS.map(|(name, program, arguments)| Stage {
            name: name.to_string(),
            package: None,
            executable: self.target.join("release").join(program),
            words: words(arguments),
            folder: self.tree.clone(),
        }));
        Ok(stages)
    }

    /// Runs `cargo test --no-run` and reads where the programs are.
    fn tests(&self, words: &[String]) -> Result<Vec<Stage>, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        println!("mutants: cargo test {}", words.join(" "));
        let programs = TestProgram::build(self.command(), &words)?;
        let mut stages: Vec<Stage> = programs.into_iter().map(Stage::of).flat_map(by_file).collect();
        stages.sort_by(|a, b| a.name.cmp(&b.name));
        stages.retain(|stage| LEFT_OUT.iter().all(|(name, _)| *name != stage.name));
        Ok(stages)
    }

    /// Cargo in the copy.
    pub(crate) fn command(&self) -> Command {
        let mut command = project::cargo(&[]);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    fn cargo(&self, words: &[String]) -> Result<(), String> {
        println!("mutants: cargo {}", words.join(" "));
        match self.command().args(words).arg("--quiet").stdin(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err("the copy does not build: a replacement in the list may be wrong, see above".to_string()),
            Err(error) => Err(format!("cargo: {error}")),
        }
    }

    /// Runs one stage with a fault, or without. What it prints goes to `log`.
    pub(crate) fn run(&self, stage: &Stage, number: Option<u32>, limit: Duration, log: &Path) -> (Outcome, Duration) {
        static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let run = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // Short: sockets lie in it, and their paths have 108 bytes.
        let scratch = std::env::temp_dir().join(format!("mutants-{}-{run}", std::process::id()));
        let began = Instant::now();
        let outcome = match self.start(stage, number, &scratch, log) {
            Ok(child) => wait(child, limit, log),
            Err(error) => Outcome::Failed(format!("{}: {error}", stage.executable.display())),
        };
        let took = began.elapsed();
        // Clean up what a killed server left behind.
        let _ = std::fs::remove_dir_all(&scratch);
        (outcome, took)
    }

    fn start(
        &self,
        stage: &Stage,
        number: Option<u32>,
        scratch: &Path,
        log: &Path,
    ) -> std::io::Result<std::process::Child> {
        std::fs::create_dir_all(scratch)?;
        let out = File::create(log)?;
        // A fault may allocate without bound.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -v 16000000; exec \"$0\" \"$@\""]).arg(&stage.executable).args(&stage.words);
        let profile = if stage.package.is_some() { "debug" } else { "release" };
        command
            .current_dir(&stage.folder)
            .env("CARGO_MANIFEST_DIR", &stage.folder)
            .env("URAID_BIN", self.target.join(profile).join("uraid"))
            .env("TMPDIR", scratch)
            .env_remove("RUST_BACKTRACE")
            // Set even without a fault, so that both kinds of run take the same code path.
            .env("URAID_MUTANT", number.unwrap_or(1).to_string())
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0);
        command.spawn()
    }
}

/// A stage of each file that a test program names with `mod`, and of each file below those, so that a fault ends at a
/// small one; any other stage is as it is.
fn by_file(stage: Stage) -> Vec<Stage> {
    let (package, program) = stage.name.split_once('/').expect("a package and its program");
    let of = |path: &str, skipped: &[String]| Stage {
        name: format!("{package}/{path}"),
        words: std::iter::once(format!("{path}::"))
            .chain(skipped.iter().flat_map(|path| ["--skip".to_string(), format!("{path}::")]))
            .collect(),
        ..stage.clone()
    };
    let mut stages = Vec::new();
    for file in project::modules(&stage.folder, program) {
        let (below, has_tests) = project::modules_below(&stage.folder, &file);
        let below: Vec<String> = below.iter().map(|name| format!("{file}::{name}")).collect();
        stages.extend(below.iter().map(|path| of(path, &[])));
        stages.extend(has_tests.then(|| of(&file, &below)));
    }
    if stages.is_empty() { vec![stage] } else { stages }
}

/// The package of a folder below `crates/`.
fn cargo_name(folder: &str) -> String {
    if folder == "uraid" { folder.to_string() } else { format!("uraid-{folder}") }
}

fn wait(mut child: std::process::Child, limit: Duration, log: &Path) -> Outcome {
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            Ok(None) => break None,
            Err(error) => return Outcome::Failed(format!("it cannot be waited for: {error}")),
        }
    };
    // Servers that a test started are in its group, and stay when a test ends badly.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    match status {
        Some(status) if status.success() => Outcome::Passed,
        Some(status) => {
            let signal = status.signal().map(|signal| format!("signal {signal}"));
            Outcome::Failed(failure_line(&std::fs::read(log).unwrap_or_default(), signal))
        }
        None => {
            let _ = child.wait();
            Outcome::Hung
        }
    }
}

/// The first test that failed, or the last line of a program's output.
fn failure_line(output: &[u8], signal: Option<String>) -> String {
    let text = String::from_utf8_lossy(output);
    let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    let last = || text.lines().rev().find(|line| !line.trim().is_empty());
    let line = failed.map(str::to_string).or(signal).or_else(|| last().map(str::to_string)).unwrap_or_default();
    line.replace(['\t', '|'], " ").trim().chars().take(120).collect()
}

/// For each crate, the packages whose tests run its code: those that depend on it, directly or through others.
pub(crate) fn reached_from(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let packages = project::packages(root);
    let imports = |folder: &Path| {
        let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml")).unwrap_or_default();
        floors::imports(&manifest)
    };
    let mut known: BTreeMap<String, BTreeSet<String>> =
        packages.iter().map(|(name, folder)| (name.clone(), imports(folder))).collect();
    // It runs the binary.
    known.entry("blackbox".to_string()).or_default().insert("uraid".to_string());
    let mut reached = BTreeMap::new();
    for (name, _) in &packages {
        let mut all = BTreeSet::from([name.clone()]);
        while let Some(next) =
            known.iter().find(|(other, used)| !all.contains(*other) && used.iter().any(|used| all.contains(used)))
        {
            all.insert(next.0.clone());
        }
        reached.insert(name.clone(), all);
    }
    reached
}

/// The stages for a fault in `package`: its own tests and the simulator's short programs, then all others of the simulator,
/// then the tests of crates above; within each group first those that find most in a second: `finds` has how many faults of
/// the list each stage caught last.
pub(crate) fn in_order<'a>(
    stages: &'a [Stage],
    depth: Depth,
    package: &str,
    reached: &BTreeMap<String, BTreeSet<String>>,
    baseline: &BTreeMap<String, f64>,
    finds: &BTreeMap<String, u64>,
) -> Vec<&'a Stage> {
    let above = reached.get(package).cloned().unwrap_or_default();
    let is_reached = |stage: &&Stage| match &stage.package {
        Some(tests) => above.contains(tests),
        // The simulator holds the engine and what is below it; the storm runs the binary.
        None if stage.executable.ends_with("uraid-storm") => above.contains("uraid"),
        None => above.contains("sim"),
    };
    let millis = |stage: &Stage| baseline.get(&stage.name).map_or(0, |seconds| (seconds * 1000.0) as u64);
    // A stage that caught nothing yet counts as if it would be the next to do so.
    let millis_per_find = |stage: &Stage| millis(stage) / (finds.get(&stage.name).copied().unwrap_or(0) + 1);
    let group = |stage: &Stage| match &stage.package {
        Some(tests) if tests == package => 0,
        None if millis(stage) < QUICK_MILLIS => 0,
        Some(tests) if tests == "sim" => 1,
        // Faults that these do not see are rarely seen by tests of the binary, which take longer together.
        None => 1,
        Some(_) => 2,
    };
    let rank = |stage: &Stage| (group(stage), millis_per_find(stage));
    let is_worth_it = |stage: &&Stage| match depth {
        Depth::Tests => group(stage) == 0 || millis(stage) < SLOW_MILLIS,
        Depth::Short => !LONG.contains(&stage.name.as_str()),
        Depth::Full => true,
    };
    let mut chosen: Vec<&Stage> = stages.iter().filter(is_reached).filter(is_worth_it).collect();
    chosen.sort_by_key(|stage| rank(stage));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_a_stage_of_each_of_its_files() {
        let stage = |name: &str| Stage {
            name: name.to_string(),
            package: Some("export-nbd".to_string()),
            executable: PathBuf::from("/t/x"),
            words: Vec::new(),
            folder: project::root().join("crates/export-nbd"),
        };
        let files = by_file(stage("export-nbd/suite"));
        let session = files.iter().find(|stage| stage.name == "export-nbd/session").expect("tests/session.rs");
        assert_eq!(session.words, ["session::"]);
        assert!(files.iter().all(|stage| stage.name != "export-nbd/common"), "it has no tests");
        let sim = Stage { folder: project::root().join("crates/sim"), ..stage("sim/suite") };
        let words = |name: &str| by_file(sim.clone()).into_iter().find(|stage| stage.name == name).map(|it| it.words);
        assert_eq!(words("sim/directed::frozen"), Some(vec!["directed::frozen::".to_string()]));
        let rest = words("sim/directed").expect("it has tests itself");
        assert!(rest.windows(2).any(|words| words == ["--skip", "directed::frozen::"]), "{rest:?}");
        assert!(words("sim/swarm").is_some());
        assert_eq!(by_file(stage("export-nbd/no_allocation"))[0].words, Vec::<String>::new());
    }

    #[test]
    fn stages_run_from_the_faults_crate_upwards_and_quick_ones_first() {
        let stage = |name: &str, package: Option<&str>| Stage {
            name: name.to_string(),
            package: package.map(str::to_string),
            executable: PathBuf::from(if package.is_none() { "/t/uraid-sim" } else { "/t/x" }),
            words: Vec::new(),
            folder: PathBuf::new(),
        };
        let stages = [
            stage("crash images", None),
            stage("simulator, 400 seeds", None),
            stage("sim/slow", Some("sim")),
            stage("sim/quick", Some("sim")),
            stage("engine/b", Some("engine")),
            stage("engine/a", Some("engine")),
            stage("nbd/lib", Some("nbd")),
            stage("uraid/life", Some("uraid")),
        ];
        let reached = BTreeMap::from([("engine".to_string(), ["engine", "sim", "uraid"].map(str::to_string).into())]);
        let times = [
            ("sim/slow", 20.0),
            ("sim/quick", 1.0),
            ("crash images", 4.0),
            ("simulator, 400 seeds", 0.5),
            ("engine/b", 2.0),
            ("engine/a", 1.0),
        ];
        let baseline = times.into_iter().map(|(name, seconds)| (name.to_string(), seconds)).collect();
        let names = |finds: &[(&str, u64)]| -> Vec<&str> {
            let finds = finds.iter().map(|(name, count)| (name.to_string(), *count)).collect();
            let ordered = in_order(&stages, Depth::Full, "engine", &reached, &baseline, &finds);
            ordered.iter().map(|stage| stage.name.as_str()).collect()
        };
        assert_eq!(
            names(&[]),
            ["simulator, 400 seeds", "engine/a", "engine/b", "sim/quick", "crash images", "sim/slow", "uraid/life"]
        );
        // 20 s for 39 finds are fewer for each than 1 s for one.
        assert_eq!(
            names(&[("sim/slow", 39), ("engine/b", 9)]),
            ["engine/b", "simulator, 400 seeds", "engine/a", "sim/slow", "sim/quick", "crash images", "uraid/life"]
        );
        let again = |stage: &Stage, what: &str| stage.narrowed_to(what).words;
        assert_eq!(again(&stages[4], "wide::a_row_is_whole"), ["a_row_is_whole"]);
        assert_eq!(again(&stages[4], "it did not end in time"), Vec::<String>::new());
        assert_eq!(again(&stages[0], "lost"), Vec::<String>::new(), "no test program");
    }

    #[test]
    fn the_failure_is_the_first_failed_test_or_the_last_line() {
        let output =
            b"running 2 tests\ntest a ... ok\ntest b::c ... FAILED\n\ntest result: FAILED. 1 passed; 1 failed;\n";
        assert_eq!(failure_line(output, None), "b::c");
        assert_eq!(failure_line(b"seed 7: lost\n\n", None), "seed 7: lost");
        assert_eq!(failure_line(b"thread panicked\n", Some("signal 6".to_string())), "signal 6");
    }
}
