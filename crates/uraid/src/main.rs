//! The command line: one binary, one subcommand each for what a person does with an array.
//! Owns: dispatch, exit codes, how errors are printed. Not here: any decision about arrays (`engine`), any byte on
//! disk (`format`). Invariant: exit code 0 means done, 1 refused or failed with the reason on stderr, 2 wrong usage.
//! `detail --test` and `wait` have mdadm's codes, `check --wait` and `repair --wait` have 3 besides.

mod access;
mod asking;
mod assembly;
mod background;
mod bench;
mod bitmap;
mod blank;
mod check;
mod cli;
mod client;
mod clients;
mod control;
mod copy;
mod create;
mod create_over;
mod dates;
mod detail;
mod doctor;
mod draw;
mod examine;
mod files;
mod frontends;
mod frozen;
mod list;
mod log;
mod mdstat;
mod member_errors;
mod member_name;
mod memory;
mod message;
mod metadata;
mod mount;
mod names;
mod nested;
mod one_shot;
mod opening;
mod overseer;
mod pace;
mod pass_calls;
mod paths;
mod probe;
mod program;
mod progress;
mod report;
mod roster;
mod rpc;
mod runtime;
mod serve;
mod session;
mod silence;
mod spare_groups;
mod stack;
mod update;
mod wait;
mod watch;
mod zero;

use cli::Command;
use log::print;
use pass_calls::PassCall;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Some output could not be printed.
static PRINT_FAILED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let outcome = run(&cli::Cli::read().command);
    if let Err(error) = &outcome {
        complain(&**error);
    }
    for path in asking::unanswered() {
        warn(&format!("{path}: it has not answered: the kernel may keep this process until it does"));
    }
    log::finish();
    match outcome {
        // A command whose output could not be printed has failed.
        Ok(_) if PRINT_FAILED.load(Ordering::Relaxed) => ExitCode::FAILURE,
        Ok(code) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(command: &Command) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Create(args) => create::run(args)?,
        Command::Serve(args) => return Ok(serve::run(args)?),
        Command::Copy(args) => copy::run(args)?,
        Command::Examine(args) => {
            return Ok(if examine::run(args) { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Detail(args) => return Ok(detail::detail(args)?),
        Command::Doctor(args) => return Ok(doctor::run(args)?),
        Command::Fail(args) => detail::fail(args)?,
        Command::Add(args) => detail::add(args)?,
        Command::ReAdd(args) => detail::re_add(args)?,
        Command::Replace(args) => detail::replace(args)?,
        Command::WriteMostly(args) => detail::write_mostly(args)?,
        Command::Failfast(args) => detail::failfast(args)?,
        Command::Remove(args) => detail::remove(args)?,
        Command::Bitmap(args) => bitmap::run(args)?,
        Command::Check(args) => return Ok(check::check(args, PassCall::Check)?),
        Command::Repair(args) => return Ok(check::check(args, PassCall::Repair)?),
        Command::Idle(args) => check::steer(args, PassCall::Idle)?,
        Command::Freeze(args) => check::steer(args, PassCall::Freeze)?,
        Command::Unfreeze(args) => check::steer(args, PassCall::Unfreeze)?,
        Command::Speed(args) => check::speed(args)?,
        Command::Readonly(args) => access::run(args, true)?,
        Command::Readwrite(args) => access::run(args, false)?,
        Command::Stop(args) => detail::stop(args)?,
        Command::Mount(args) => mount::mount(args)?,
        Command::Umount(args) => mount::umount(args)?,
        Command::List(args) => {
            return Ok(if list::run(args.json)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Mdstat(args) => {
            return Ok(if mdstat::run(args.json)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::Wait(args) => return Ok(wait::run(args)),
        Command::Bench(args) => bench::run(args)?,
        Command::Update(args) => update::run(args)?,
        Command::ZeroSuperblock(args) => zero::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints an error and its causes in one line: `uraid: cannot claim a.img: no such file`.
fn complain(error: &dyn Error) {
    warn(&with_causes(error));
}

/// `cannot claim a.img: no such file`
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Prints a line to stderr, with unprintable characters in names replaced. While `serve` runs it goes to the log, which
/// no thread waits for.
fn warn(text: &str) {
    log::line(&names::printable(text));
}
