//! `serve --scan`: the array that the configuration means, in this process.
//! Owns: which one, waiting until one of its members is there, the options that its URAID line gives. Not here: which
//! arrays are uraid's (`assemble::found`), its members (`search`).
//! Invariant: an option of the command line counts before that of the line.

use super::args::ServeArgs;
use super::assemble::found;
use super::assemble::start::{Start, StartOptions};
use super::assemble::{configuration, is_meant};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use uraid_block::sizes::parse_size;
use uraid_control::log::with_causes;
use uraid_option_values::{MEMBER_TIMEOUT_TEXT, parse_member_timeout};
use uraid_serve::opening::ServeError;

/// How often it looks for an array of which no member is there yet.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The same options, with the array's UUID, places and those of its line.
pub(super) fn array_of(args: &ServeArgs) -> Result<ServeArgs, ServeError> {
    let config = configuration(args.config.as_deref());
    let began = Instant::now();
    let time_max = (!args.member_timeout.is_zero()).then_some(args.member_timeout);
    let refused = |text: String| ServeError::Search(text);
    loop {
        let found = found::look(&config, StartOptions::default(), time_max);
        let mut ours = found.map_err(|error| refused(with_causes(&error)))?.ours;
        ours.retain(|start| args.members.is_empty() || args.members.iter().any(|word| is_meant(word, start)));
        match &ours[..] {
            [start] => return with_line(args, start).map_err(refused),
            [] if args.run_after.is_some_and(|time| began.elapsed() < time) => std::thread::sleep(LOOK_EVERY),
            [] => {
                let what = if args.members.is_empty() { "an array".to_owned() } else { args.members.join(", ") };
                return Err(refused(format!(
                    "no member of {what} is found that a URAID line takes: `uraid assemble --scan \
                                            --verbose` says what there is"
                )));
            }
            [_, _, ..] => {
                let names: Vec<&str> = ours.iter().map(|start| start.label.as_str()).collect();
                return Err(refused(format!(
                    "--scan means {} arrays, {}: name one of them; `uraid assemble --scan` starts all",
                    names.len(),
                    names.join(", ")
                )));
            }
        }
    }
}

fn with_line(args: &ServeArgs, start: &Start) -> Result<ServeArgs, String> {
    let mut own = args.clone();
    (own.scan, own.uuid, own.name) = (false, start.uuid, start.name.clone());
    own.members.clone_from(&start.places);
    let start = start.with_folder().map_err(|error| with_causes(&error))?;
    let Some(line) = &start.line else { return Ok(own) };
    own.run |= line.is_run;
    own.read_only |= line.is_read_only;
    own.insecure |= line.is_insecure;
    own.mlock |= line.is_locked;
    own.nbd = own.nbd.or_else(|| line.nbd.clone());
    own.export_name = own.export_name.or_else(|| line.export_name.clone());
    own.fuse = own.fuse.or_else(|| line.fuse.as_ref().map(PathBuf::from));
    if own.cpus.is_none() {
        own.shards = own.shards.or(line.shards);
    }
    let wrong = |word: &str, value: &str, error: String| format!("{}: {word}={value}: {error}", line.at);
    if let Some(limit) = line.memory_limit.as_deref().filter(|_| own.memory_limit.is_none()) {
        let parsed = parse_size(limit).map_err(|error| wrong("memory-limit", limit, error.to_string()))?;
        own.memory_limit = Some(parsed);
    }
    let default = parse_member_timeout(MEMBER_TIMEOUT_TEXT).ok();
    if let Some(time) = line.member_timeout.as_deref().filter(|_| Some(own.member_timeout) == default) {
        own.member_timeout =
            parse_member_timeout(time).map_err(|error| wrong("member-timeout", time, error.to_string()))?;
    }
    Ok(own)
}
