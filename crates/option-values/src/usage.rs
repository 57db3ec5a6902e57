//! Lines that clap has taken, and that mean nothing.
//! Owns: how a verb refuses one: as clap refuses others, with the usage. Not here: exit codes of what has begun (`uraid`).

use clap::error::ErrorKind;
use clap::{Command, Error};

/// Ends the process as clap does when the command line is wrong: exit code 2.
pub fn usage_error(text: &str) -> ! {
    usage_text(text).exit()
}

/// Its text, with the usage of the whole command line, which names no verb.
pub fn usage_text(text: &str) -> Error {
    let mut whole = Command::new("uraid").subcommand_required(true).subcommand(Command::new("verb"));
    whole.error(ErrorKind::InvalidValue, text)
}

/// The same, with the usage of this verb.
pub fn usage_error_of(mut verb: Command, text: &str) -> ! {
    verb.error(ErrorKind::InvalidValue, text).exit()
}
