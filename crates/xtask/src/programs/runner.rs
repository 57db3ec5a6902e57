//! Runs test programs side by side, and prints what failed.
//! Owns: which programs run alone, how many run at once, the log of each, who is tried again. Not here: building them
//! (`test_program`).
//! Invariant: every program that was built runs to its end or to its time limit, and a limit is a failure. No failure is
//! silent: a test that fails beside others and passes alone is shown with what it said, and named at the end.

use crate::programs::stage::{Tally, count_line};
use crate::programs::test_program::TestProgram;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a program needs of the machine while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    /// It runs beside others.
    Beside,
    /// It works on devices and mounts of the system: one of these at a time.
    Root,
    /// It measures: nothing else runs.
    Quiet,
}

/// Programs that do not run just beside all others.
const GROUPS: [(&str, Group); 3] =
    [("blackbox/filesystems", Group::Root), ("host/measure", Group::Quiet), ("uraid/figures", Group::Quiet)];

/// Threads of a program whose tests mostly wait for servers and members; others have one for each processor.
const WAITING: [(&str, usize); 4] =
    [("uraid/suite", 8), ("uraid/hanging", 12), ("uraid/operate", 8), ("blackbox/suite", 4)];

/// Programs that compute all the time. They give way to those that wait for servers, which would be the last ones.
const COMPUTING: [&str; 4] = ["sim/suite", "layout/suite", "engine/suite", "parity/suite"];

/// The longest programs: they begin first, so that none of them is left alone at the end.
const LONG: [&str; 7] = [
    "uraid/suite",
    "sim/suite",
    "uraid/hanging",
    "blackbox/suite",
    "uraid/operate",
    "uraid/ten_minutes",
    "layout/suite",
];

/// A program that takes longer is killed: the longest one takes four minutes, and 15 on a machine that is slow for a
/// while.
const TIME_MAX: Duration = Duration::from_secs(2400);

/// Failed tests are run once more, alone, if they are no more than this. A test that fails for lack of processor time
/// passes then; a mistake of the code fails again.
const AGAIN_MAX: usize = 12;

/// Programs at once. One more than there are processors on a small machine, because some of them mostly wait.
const AT_ONCE: usize = 4;

/// Runs all of them, with these variables set; the logs go into `logs`.
pub(crate) fn run(programs: Vec<TestProgram>, environment: &[(&str, &str)], logs: &Path) -> Tally {
    if let Err(error) = std::fs::create_dir_all(logs) {
        println!("{}: {error}", logs.display());
        return Tally::one(false);
    }
    let (quiet, mut beside): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| group(&program.name) == Group::Quiet);
    beside.sort_by_key(|program| LONG.iter().position(|long| *long == program.name).unwrap_or(LONG.len()));
    let mut results = side_by_side(beside, AT_ONCE, environment, logs);
    results.extend(side_by_side(quiet, 1, environment, logs));
    let mut tally = Tally::default();
    results.iter().for_each(|result| tally.add(result.tally));
    let passed = passed_alone(&results, environment, logs);
    tally.failed -= passed;
    tally.passed += passed;
    tally
}

/// What one program's run came to.
struct Outcome {
    program: TestProgram,
    tally: Tally,
    /// The tests that failed, if it ran to its end and they are all that was wrong with it.
    failed: Vec<String>,
}

/// Runs the failed tests again, one after the other and with nothing beside them. How many passed.
fn passed_alone(results: &[Outcome], environment: &[(&str, &str)], logs: &Path) -> u64 {
    let failed: Vec<(&TestProgram, &String)> =
        results.iter().flat_map(|result| result.failed.iter().map(|test| (&result.program, test))).collect();
    if failed.len() > AGAIN_MAX {
        println!("{} tests failed: too many to run them again", failed.len());
        return 0;
    }
    let mut passed = Vec::new();
    for (program, test) in &failed {
        println!("again, alone: {test}");
        let mut command = program.command();
        command.args(["--exact", test]).envs(environment.iter().copied());
        let log = logs.join(format!("{}-again-{}.txt", program.name, test.replace("::", "-")).replace('/', "-"));
        if run_one(program, command, &log).tally == (Tally { passed: 1, failed: 0 }) {
            passed.push(format!("{} {test}", program.name));
        }
    }
    if !passed.is_empty() {
        println!(
            "\n!!! These tests failed beside others, see above, and passed alone. Each is a mistake to be mended:"
        );
        passed.iter().for_each(|name| println!("!!!   {name}"));
    }
    passed.len() as u64
}

fn side_by_side(programs: Vec<TestProgram>, at_once: usize, environment: &[(&str, &str)], logs: &Path) -> Vec<Outcome> {
    let left = Mutex::new(VecDeque::from(programs));
    let (results, root) = (Mutex::new(Vec::new()), Mutex::new(()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("no thread panics with it").pop_front();
                    let Some(program) = next else { return };
                    let _one = (group(&program.name) == Group::Root).then(|| root.lock());
                    let result = one(&program, environment, logs);
                    results.lock().expect("no thread panics with it").push(result);
                }
            });
        }
    });
    results.into_inner().expect("no thread panics with it")
}

fn group(name: &str) -> Group {
    GROUPS.iter().find(|(of, _)| *of == name).map_or(Group::Beside, |(_, group)| *group)
}

/// Runs one program with what its group needs.
fn one(program: &TestProgram, environment: &[(&str, &str)], logs: &Path) -> Outcome {
    let mut command = program.command();
    if COMPUTING.contains(&program.name.as_str()) {
        command = giving_way(&command);
    }
    command.envs(environment.iter().copied());
    if let Some((_, threads)) = WAITING.iter().find(|(name, _)| *name == program.name) {
        command.env("RUST_TEST_THREADS", threads.to_string());
    }
    run_one(program, command, &logs.join(program.name.replace('/', "-") + ".txt"))
}

/// Runs `command` of this program, and prints a line of it; all that it has said, if it failed.
fn run_one(program: &TestProgram, command: Command, log: &Path) -> Outcome {
    let began = Instant::now();
    let outcome = run_to_log(command, log, TIME_MAX);
    let said = std::fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let mut tally = Tally::default();
    said.lines().for_each(|line| tally.add(count_line(line)));
    // A test that ends the process with code 0 hides all others.
    let has_results = said.lines().any(|line| line.starts_with("test result: "));
    let took = began.elapsed().as_secs_f64();
    let what = match outcome {
        Ok(Some(status)) if status.success() && tally.failed == 0 && has_results => "ok",
        Ok(Some(status)) if status.success() && !has_results => "FAILED: it ended without results",
        Ok(Some(_)) => "FAILED",
        Ok(None) => "FAILED: it was killed, because it did not end in time",
        Err(_) => "FAILED: it could not be started",
    };
    println!("{:<28} {took:>7.1} s {:>5} passed {:>3} failed  {what}", program.name, tally.passed, tally.failed);
    if what != "ok" {
        println!("{said}\n--- {} ({})", program.name, log.display());
        tally.failed = tally.failed.max(1);
    }
    let named = failed_tests(&said);
    let are_all = what == "FAILED" && named.len() as u64 == tally.failed;
    Outcome { program: program.clone(), tally, failed: if are_all { named } else { Vec::new() } }
}

/// The names of the tests that failed, by the list at the end of what a program says.
fn failed_tests(said: &str) -> Vec<String> {
    let Some((_, list)) = said.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(str::to_string).collect()
}

/// The same command with a low priority.
fn giving_way(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "10"]).arg(command.get_program()).args(command.get_args());
    nice.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// The status of a command whose output goes to a file; `None`: it did not end in time, and was killed with all that it
/// started.
fn run_to_log(mut command: Command, log: &Path, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let out = File::create(log)?;
    let mut child = command.stdout(out.try_clone()?).stderr(out).process_group(0).spawn()?;
    let ended = wait(&mut child, limit)?;
    if ended.is_none() {
        // Servers that a test started are in its group.
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        child.wait()?;
    }
    Ok(ended)
}

fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if began.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
            None => return Ok(None),
        }
    }
}

/// Where the logs of a run are.
pub(crate) fn logs() -> PathBuf {
    crate::project::target().join("test-logs")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test program that is a shell script.
    fn script(name: &str, text: &str, folder: &Path) -> TestProgram {
        use std::os::unix::fs::PermissionsExt;
        let executable = folder.join(name.replace('/', "-"));
        std::fs::write(&executable, format!("#!/bin/sh\n{text}\n")).expect("written");
        std::fs::set_permissions(&executable, std::fs::Permissions::from_mode(0o755)).expect("made executable");
        TestProgram { name: name.into(), package: "a".into(), executable, folder: folder.into() }
    }

    #[test]
    fn results_are_summed_and_a_program_without_them_must_succeed() {
        let folder = std::env::temp_dir().join(format!("uraid-runner-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let programs = vec![
            script("a/good", "echo 'test result: ok. 5 passed; 0 failed; 0 ignored'; echo $WORD", &folder),
            script("a/bad", "echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101", &folder),
            script("a/dead", "kill -9 $$", &folder),
            script("a/silent", "echo 'test b ... FAILED'", &folder),
            script("host/measure", "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'", &folder),
        ];
        let tally = run(programs, &[("WORD", "set")], &folder.join("logs"));
        assert_eq!(tally, Tally { passed: 8, failed: 3 });
        let log = std::fs::read_to_string(folder.join("logs/a-good.txt")).expect("a log");
        assert!(log.ends_with("set\n"), "{log}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_test_that_fails_beside_others_only_has_passed_and_no_other() {
        let folder = std::env::temp_dir().join(format!("uraid-runner-again-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let failing = |alone: &str| {
            format!(
                "if [ \"$1\" = --exact ]; then {alone}; fi; printf '\\nfailures:\\n    x::y\\n\\n'; \
                 echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101"
            )
        };
        let passes = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; exit 0";
        let programs = |alone| vec![script("a/test", &failing(alone), &folder)];
        let logs = folder.join("logs");
        assert_eq!(run(programs(passes), &[], &logs), Tally { passed: 3, failed: 0 });
        assert_eq!(
            run(programs("echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101"), &[], &logs).failed,
            1
        );
        assert_eq!(run(programs("exit 0"), &[], &logs).failed, 1, "it ended without results");
        assert_eq!(run(programs("kill -9 $$"), &[], &logs).failed, 1);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let log = std::env::temp_dir().join(format!("uraid-runner-log-{}", std::process::id()));
        let mut sleeps = Command::new("sh");
        sleeps.args(["-c", "sleep 600 & wait"]);
        let began = Instant::now();
        assert!(run_to_log(sleeps, &log, Duration::from_millis(200)).expect("it starts").is_none());
        assert!(began.elapsed() < Duration::from_secs(60));
        std::fs::remove_file(&log).expect("removed");
    }
}
