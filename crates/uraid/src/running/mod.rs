//! Verbs for arrays that run: each asks the process that serves the array, and prints its answer.
//! Owns: the list of these verbs, their options and help texts, the calls, the lines and tables about the answers, waiting,
//! exit codes. Not here: what the array does (`uraid_serve::overseer`), the list of all verbs (`cli`). Called by `main`;
//! `doctor` takes the report of an array from `detail`.
//!
//! ```text
//!   access       readonly, readwrite             membership   add, re-add, remove, replace, write-mostly, failfast
//!   check        check, repair                   passes       idle, freeze, unfreeze, speed
//! ```
//!
//! Each other verb is in the file of its name. `detail` reads members, too, if their array does not run: `cli` lists it.

mod access;
mod bitmap;
mod check;
pub(crate) mod detail;
mod fail;
mod list;
mod mdstat;
mod membership;
mod passes;
mod stop;
mod wait;
mod words;

use crate::arguments::OneArray;
use bitmap::BitmapArgs;
use check::CheckArgs;
use clap::Subcommand;
use fail::FailArgs;
use list::ListArgs;
use mdstat::MdstatArgs;
use membership::{AddArgs, FlagArgs, ReAddArgs, RemoveArgs, ReplaceArgs};
use passes::SpeedArgs;
use std::error::Error;
use std::process::ExitCode;
use stop::StopArgs;
use uraid_control::protocol::Method;
use wait::WaitArgs;

/// Verbs that change an array that runs. A verb that `uraid --help` does not place stands there behind the one before it
/// here.
#[derive(Subcommand, Debug)]
pub(crate) enum Change {
    /// Declare members of a running array failed
    #[command(long_about = fail::FAIL, after_long_help = fail::FAIL_AFTER)]
    Fail(FailArgs),
    /// Add devices to a running array as spares
    #[command(long_about = membership::ADD, after_long_help = membership::ADD_AFTER)]
    Add(AddArgs),
    /// Take former members back, copy only what they missed
    #[command(long_about = membership::RE_ADD, after_long_help = membership::RE_ADD_AFTER)]
    ReAdd(ReAddArgs),
    /// Remove spares and failed members
    #[command(long_about = membership::REMOVE, after_long_help = membership::REMOVE_AFTER)]
    Remove(RemoveArgs),
    /// Copy members to spares, which then take their slots
    #[command(long_about = membership::REPLACE, after_long_help = membership::REPLACE_AFTER)]
    Replace(ReplaceArgs),
    /// Read members only where no other has the sectors
    #[command(long_about = membership::WRITE_MOSTLY, after_long_help = membership::WRITE_MOSTLY_AFTER)]
    #[command(override_usage = membership::WRITE_MOSTLY_USAGE)]
    WriteMostly(FlagArgs),
    /// Fail members at the first read error of their devices
    #[command(long_about = membership::FAILFAST, after_long_help = membership::FAILFAST_AFTER)]
    #[command(override_usage = membership::FAILFAST_USAGE)]
    Failfast(FlagArgs),
    /// Give an array a write-intent bitmap, or take it away
    #[command(long_about = bitmap::BITMAP, after_long_help = bitmap::BITMAP_AFTER)]
    Bitmap(BitmapArgs),
    /// Compare copies, or parity with data; list differences
    #[command(long_about = check::CHECK, after_long_help = check::CHECK_AFTER)]
    Check(CheckArgs),
    /// Compare as `check` does, and make what differs agree
    #[command(long_about = check::REPAIR, after_long_help = check::REPAIR_AFTER)]
    Repair(CheckArgs),
    /// End a check or repair, continue what `freeze` paused
    #[command(long_about = passes::IDLE, after_long_help = passes::IDLE_AFTER)]
    Idle(OneArray),
    /// Pause the resync, recovery, check or repair
    #[command(long_about = passes::FREEZE, after_long_help = passes::FREEZE_AFTER)]
    Freeze(OneArray),
    /// Continue what `freeze` paused
    #[command(after_long_help = passes::UNFREEZE_AFTER)]
    Unfreeze(OneArray),
    /// Show or set the speed limits of resync, check, ...
    #[command(long_about = passes::SPEED, after_long_help = passes::SPEED_AFTER)]
    Speed(SpeedArgs),
    /// Let a running array take no more writes
    #[command(long_about = access::READONLY, after_long_help = access::READONLY_AFTER)]
    Readonly(OneArray),
    /// Let an array take writes again after `readonly`
    #[command(long_about = access::READWRITE, after_long_help = access::READWRITE_AFTER)]
    Readwrite(OneArray),
    /// Stop a running array: flush it, mark it clean
    #[command(long_about = stop::STOP, after_long_help = stop::STOP_AFTER)]
    Stop(StopArgs),
}

/// Verbs that look at arrays that run, or wait for them. What is said of [`Change`] holds here, too.
#[derive(Subcommand, Debug)]
pub(crate) enum Look {
    /// Wait until no resync, recovery, check or repair runs
    #[command(long_about = wait::WAIT, after_long_help = wait::WAIT_AFTER)]
    Wait(WaitArgs),
    /// Show the arrays that run now
    #[command(after_long_help = list::LIST_AFTER)]
    List(ListArgs),
    /// Show the arrays that run, as /proc/mdstat does
    #[command(long_about = mdstat::MDSTAT, after_long_help = mdstat::MDSTAT_AFTER)]
    Mdstat(MdstatArgs),
}

impl Change {
    /// Asks the array.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        match self {
            Change::Fail(args) => fail::run(args)?,
            Change::Add(args) => membership::add(args)?,
            Change::ReAdd(args) => membership::re_add(args)?,
            Change::Remove(args) => membership::remove(args)?,
            Change::Replace(args) => membership::replace(args)?,
            Change::WriteMostly(args) => membership::write_mostly(args)?,
            Change::Failfast(args) => membership::failfast(args)?,
            Change::Bitmap(args) => bitmap::run(args)?,
            Change::Check(args) => return Ok(check::run(args, "check", &Method::Check { resume: false })?),
            Change::Repair(args) => return Ok(check::run(args, "repair", &Method::Repair {})?),
            Change::Idle(args) => passes::idle(args)?,
            Change::Freeze(args) => passes::freeze(args)?,
            Change::Unfreeze(args) => passes::unfreeze(args)?,
            Change::Speed(args) => passes::speed(args)?,
            Change::Readonly(args) => access::run(args, true)?,
            Change::Readwrite(args) => access::run(args, false)?,
            Change::Stop(args) => stop::run(args)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Look {
    /// Asks the arrays.
    pub(crate) fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        let is_complete = match self {
            Look::Wait(args) => return Ok(wait::run(args)),
            Look::List(args) => list::run(args.json)?,
            Look::Mdstat(args) => mdstat::run(args.json)?,
        };
        Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
