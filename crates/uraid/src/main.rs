//! The command line: one binary, one subcommand each for what a person does with an array.
//! Owns: dispatch, exit codes. Not here: arrays that run (`serve`), any decision about arrays (`engine`), any byte on disk
//! (`format`). Invariant: exit code 0 means done, 1 refused or failed with the reason on stderr, 2 wrong usage.
//! `detail --test` and `wait` have mdadm's codes, `check --wait` and `repair --wait` have 3 besides.

mod arguments;
mod bench;
mod cli;
mod copy;
mod create;
mod doctor;
mod mdadm;
mod mount;
#[cfg(test)]
mod mutated_tests;
mod offline;
mod running;
mod serve;
mod shared;

use cli::{Command, no_member};
use offline::{examine, update, zero};
use running::detail;
use serve::{assemble, incremental};
use std::error::Error;
use std::process::ExitCode;
use uraid_control::asking;
use uraid_control::history;
use uraid_control::log::{self, complain, warn};

/// Where it is exhausted, the process says so.
#[global_allocator]
static HEAP: uraid_host::Heap = uraid_host::Heap;

fn main() -> ExitCode {
    uraid_host::share_heap_under_a_limit();
    uraid_host::with_stack(command)
}

fn command() -> ExitCode {
    // A write beyond the limit on file sizes is an error that is told.
    uraid_host::ignore_signals_of_writes();
    let command = cli::Cli::read().command;
    let outcome = run(&command);
    if let Err(error) = &outcome {
        complain(&**error);
    }
    if !matches!(outcome, Ok(ExitCode::SUCCESS)) {
        no_member::explain(&command);
    }
    for path in asking::unanswered() {
        warn(&format!("{path}: it has not answered: the kernel may keep this process until it does"));
    }
    history::finish();
    log::finish();
    match outcome {
        // A command whose output could not be printed has failed.
        Ok(_) if log::print_failed() => ExitCode::FAILURE,
        Ok(code) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Carries out the line of these words behind `uraid`.
fn run_words(words: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let line = cli::Cli::of_words(words).map_err(mdadm::WrongWords)?;
    run(&line.command)
}

fn run(command: &Command) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Create(args) => create::run(args)?,
        Command::Serve(args) => return Ok(serve::run(args)?),
        Command::Assemble(args) => return Ok(assemble::run(args)?),
        Command::Incremental(args) => return Ok(incremental::run(args)?),
        Command::Copy(args) => copy::run(args)?,
        Command::Examine(args) => {
            return Ok(if examine::run(args) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Detail(args) => return Ok(detail::run(args)?),
        Command::Doctor(args) => return Ok(doctor::run(args)?),
        Command::Change(verb) => return verb.run(),
        Command::Look(verb) => return verb.run(),
        Command::Operate(verb) => return verb.run(),
        Command::Mount(args) => mount::mount(args)?,
        Command::Umount(args) => mount::umount(args)?,
        Command::Bench(args) => bench::run(args)?,
        Command::Update(args) => update::run(args)?,
        Command::ZeroSuperblock(args) => zero::run(args)?,
        Command::Mdadm(args) => return Ok(mdadm::run(args, &run_words, cli::mdadm::why_not)),
    }
    Ok(ExitCode::SUCCESS)
}
