//! Stages of a check run: each is timed and counted; one table at the end shows all.
//! Owns: running commands with their output passed through, counting test results. Not here: which stages (`runs::ci`).
//! Invariant: a stage that fails makes at least one failure in the sum.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Passed and failed checks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    /// Checks that held.
    pub(crate) passed: u64,
    /// Checks that did not.
    pub(crate) failed: u64,
}

impl Tally {
    /// One check.
    pub(crate) fn one(holds: bool) -> Tally {
        Tally { passed: u64::from(holds), failed: u64::from(!holds) }
    }

    /// Adds another's checks.
    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

struct Stage {
    name: String,
    took: Duration,
    tally: Tally,
}

/// What ran so far.
#[derive(Default)]
pub(crate) struct Report {
    stages: Vec<Stage>,
}

impl Report {
    /// Runs `work` as the stage `name`; what it returns is added to the sum.
    pub(crate) fn stage(&mut self, name: &str, work: impl FnOnce() -> Tally) {
        println!("=== {name}");
        let start = Instant::now();
        let tally = work();
        let took = start.elapsed();
        println!("--- {name}: {} in {:.1} s", verdict(tally), took.as_secs_f64());
        self.stages.push(Stage { name: name.to_string(), took, tally });
    }

    /// A stage that is one command. Test results in its output are counted; without any, the command is one check.
    pub(crate) fn command(&mut self, name: &str, mut command: Command) {
        self.stage(name, || run_counted(&mut command));
    }

    /// The stages and their seconds, in order.
    pub(crate) fn seconds(&self) -> Vec<(&str, f64)> {
        self.stages.iter().map(|stage| (stage.name.as_str(), stage.took.as_secs_f64())).collect()
    }

    /// Prints the table and, as the very last line, the sum. Whether nothing failed.
    pub(crate) fn finish(&self) -> bool {
        let mut sum = Tally::default();
        println!("\n{:<28} {:>9} {:>8} {:>8}", "stage", "seconds", "passed", "failed");
        for stage in &self.stages {
            let Tally { passed, failed } = stage.tally;
            println!("{:<28} {:>9.1} {passed:>8} {failed:>8}", stage.name, stage.took.as_secs_f64());
            sum.add(stage.tally);
        }
        let took: Duration = self.stages.iter().map(|stage| stage.took).sum();
        println!("{:<28} {:>9.1} {:>8} {:>8}\n", "all", took.as_secs_f64(), sum.passed, sum.failed);
        println!("{} passed, {} failed", sum.passed, sum.failed);
        sum.failed == 0
    }
}

fn verdict(tally: Tally) -> String {
    if tally.failed == 0 {
        "ok".to_string()
    } else {
        format!("FAILED ({} of {})", tally.failed, tally.passed + tally.failed)
    }
}

/// Runs a command with its output passed through line by line, and counts the results in its lines.
pub(crate) fn run_counted(command: &mut Command) -> Tally {
    let mut tally = Tally::default();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("cannot run {}: {error}", command.get_program().to_string_lossy());
            return Tally::one(false);
        }
    };
    let output = child.stdout.take().expect("stdout is piped");
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.add(count_line(&line));
    }
    let _ = std::io::stdout().flush();
    let is_good = child.wait().is_ok_and(|status| status.success());
    match (is_good, tally) {
        // A command that fails without a failed test in it is itself the failure.
        (false, Tally { failed: 0, .. }) => tally.failed = 1,
        (true, Tally { passed: 0, failed: 0 }) => tally.passed = 1,
        (_, _) => {}
    }
    tally
}

/// The results in one line of output: `test result: ok. 5 passed; 0 failed; ...` of a test program, or a tool's
/// `checks: 5 passed, 0 failed`.
pub(crate) fn count_line(line: &str) -> Tally {
    let Some(rest) = line.strip_prefix("test result: ").or_else(|| line.strip_prefix("checks: ")) else {
        return Tally::default();
    };
    let number_before = |word: &str| {
        let before = rest.split(word).next().filter(|before| before.len() < rest.len())?;
        before.split_whitespace().next_back()?.parse().ok()
    };
    Tally { passed: number_before(" passed").unwrap_or(0), failed: number_before(" failed").unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_cargo_test_and_of_our_tools_are_counted() {
        let cargo =
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        assert_eq!(count_line(cargo), Tally { passed: 12, failed: 3 });
        assert_eq!(count_line("checks: 47 passed, 0 failed"), Tally { passed: 47, failed: 0 });
        assert_eq!(count_line("test a_thing ... ok"), Tally::default());
    }

    #[test]
    fn a_command_that_fails_without_a_failed_test_is_one_failure() {
        assert_eq!(run_counted(Command::new("sh").args(["-c", "exit 3"])), Tally { passed: 0, failed: 1 });
        let command = &mut Command::new("sh");
        assert_eq!(
            run_counted(command.args(["-c", "echo checks: 2 passed, 1 failed"])),
            Tally { passed: 2, failed: 1 }
        );
        assert_eq!(run_counted(&mut Command::new("true")), Tally { passed: 1, failed: 0 });
        assert_eq!(run_counted(&mut Command::new("/no/such/program")), Tally { passed: 0, failed: 1 });
    }
}
