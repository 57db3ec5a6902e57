//! The command line: one binary, one subcommand each for what a person does with an array.
//! Owns: dispatch, exit codes, how errors are printed. Not here: any decision about arrays (`engine`), any byte on
//! disk (`format`). Invariant: exit code 0 means done, 1 refused or failed with the reason on stderr, 2 wrong usage.

#![allow(unreachable_pub, reason = "a binary has no outside: here `pub` means that other modules use it")]

mod cli;
mod client;
mod dates;
mod names;
mod progress;
mod report;
mod rpc;
mod sizes;
mod world;

use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let _ = cli::Cli::parse();
    ExitCode::SUCCESS
}

/// Prints an error and what caused it in one line: `uraid: cannot claim a.img: no such file`.
fn complain(error: &(dyn Error + 'static)) {
    let mut text = format!("uraid: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    // A closed stderr leaves the exit code to speak.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints to stdout. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
