//! `uraid assemble`: finds arrays, and starts each as a server in the background.
//! Owns: which arrays a command line means, the rounds of --scan, exit codes. Not here: the configuration
//! (`uraid_config`), which found arrays it gives to uraid (`found`), one start (`start`).
//! Invariant: nothing is written here, and no array is started that runs.

pub(crate) mod args;
mod foreground;
pub(crate) mod found;
pub(crate) mod start;

use super::search::SearchError;
use super::search::sets::{self, FoundArray};
use args::AssembleArgs;
use found::Found;
use start::{Start, StartOptions, running};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use uraid_config::{Choice, Config, Left};
use uraid_control::client::ClientError;
use uraid_control::log::{complain, print, warn};
use uraid_control::names;
use uraid_format::uuid;
use uraid_serve::background::BackgroundError;

/// How often --scan looks again, after arrays were started, for arrays that are made of them.
const ROUNDS_MAX: usize = 16;
/// mdadm's code for "no array was found".
const NONE: u8 = 2;

/// Why nothing is assembled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AssembleVerbError {
    /// Members could not be looked for.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// Which arrays run is not known.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A server could not be started.
    #[error(transparent)]
    Background(#[from] BackgroundError),
    /// No line of the configuration is about it.
    #[error("{array}: no ARRAY or URAID line of {files} names it: give its members, --uuid or --name, or such a line")]
    NotListed {
        /// What the user calls it.
        array: String,
        /// The files that were read.
        files: String,
    },
    /// There is no such array.
    #[error("no member of {what} among {places}")]
    None {
        /// Which array was looked for.
        what: String,
        /// Where.
        places: String,
    },
    /// There are several, and the command is about one.
    #[error("{what} is found {count} times: {arrays}; --uuid names one of them")]
    Several {
        /// Which array was looked for.
        what: String,
        /// How many.
        count: usize,
        /// Their names and UUIDs.
        arrays: String,
    },
    /// This process could not become a server.
    #[error("cannot start the server")]
    Become {
        /// Why.
        source: std::io::Error,
    },
    /// The first word is no name.
    #[error("{word}: expected what the array is to be called, NAME, /dev/md/NAME or /dev/mdN, before its members")]
    Name {
        /// The word.
        word: String,
    },
}

/// Reads the configuration, and says what is wrong with it.
pub(crate) fn configuration(option: Option<&std::ffi::OsStr>) -> Config {
    let config = uraid_config::read(&Choice::of(option));
    config.complaints.iter().for_each(|complaint| complain(complaint));
    config
}

/// Starts what the command line means.
pub(crate) fn run(args: &AssembleArgs) -> Result<ExitCode, AssembleVerbError> {
    let config = configuration(args.config.as_deref());
    if args.scan {
        return scan(args, &config);
    }
    if args.foreground {
        match foreground::run(args, &config)? {}
    }
    let start = one(args, &config)?;
    let mut tally = Tally::default();
    tally.start(&start, args.dry_run)?;
    Ok(tally.code())
}

/// What became of the arrays of a command.
#[derive(Default)]
struct Tally {
    run: usize,
    failed: usize,
    missing: usize,
}

impl Tally {
    fn start(&mut self, start: &Start, is_dry: bool) -> Result<(), AssembleVerbError> {
        let running = running()?;
        if let Some(name) = start.uuid.and_then(|uuid| running.get(&uuid)) {
            warn(&format!("{name}: runs already"));
            self.run += 1;
            return Ok(());
        }
        let start = called_apart(start, running.values());
        if is_dry {
            print(&format!("uraid serve {}\n", start.words().join(" ")));
            self.run += 1;
        } else if start.start()? == ExitCode::SUCCESS && start.mount()? {
            self.run += 1;
        } else {
            warn(&format!("{}: not started or not mounted, see above", start.label));
            self.failed += 1;
        }
        Ok(())
    }

    fn code(&self) -> ExitCode {
        match (self.failed, self.missing, self.run) {
            (1.., ..) => ExitCode::FAILURE,
            (0, 1.., _) | (0, 0, 0) => ExitCode::from(NONE),
            (0, 0, 1..) => ExitCode::SUCCESS,
        }
    }
}

fn scan(args: &AssembleArgs, config: &Config) -> Result<ExitCode, AssembleVerbError> {
    let options = options(args, !args.no_degraded);
    let wanted: Vec<&String> = args.array.iter().chain(&args.members).collect();
    if config.uraid.is_empty() {
        warn(&format!("no URAID line in {}: without one, all arrays are mdadm's", files(config)));
        return Ok(ExitCode::from(NONE));
    }
    let (mut tally, mut tried, mut is_first) = (Tally::default(), BTreeSet::new(), true);
    for _ in 0..ROUNDS_MAX {
        let Found { ours, left } = found::look(config, options, args.member_timeout.limit())?;
        if is_first {
            say_left(&left, args.verbose);
        }
        let mut is_new = false;
        let is_wanted = |start: &&Start| wanted.is_empty() || wanted.iter().any(|word| is_meant(word, start));
        for start in ours.iter().filter(is_wanted) {
            if start.uuid.is_some_and(|uuid| tried.insert(uuid)) {
                is_new = true;
                tally.start(start, args.dry_run)?;
            }
        }
        if is_first {
            tally.missing = say_missing(config, &ours, &wanted);
        }
        is_first = false;
        if !is_new || args.dry_run {
            break;
        }
    }
    if tally.run + tally.failed == 0 {
        warn(&format!("no array was found that a URAID line of {} takes", files(config)));
    }
    Ok(tally.code())
}

/// The same array, called `NAME_0` if another one that runs is called NAME, as mdadm calls one of another host. A name that
/// a line of the configuration gives is not changed: then the server refuses it.
fn called_apart<'a>(start: &Start, taken: impl Iterator<Item = &'a String>) -> Start {
    let taken: BTreeSet<&String> = taken.collect();
    if start.uuid.is_none() || start.name.is_some() || !taken.contains(&start.label) {
        return start.clone();
    }
    let name = (0..).map(|number| format!("{}_{number}", start.label)).find(|name| !taken.contains(name));
    let label = name.clone().unwrap_or_else(|| start.label.clone());
    warn(&format!("another array that is called {} runs: this one is called {label}", start.label));
    Start { label, name, ..start.clone() }
}

/// Whether a word of the command line means this array.
pub(super) fn is_meant(word: &str, start: &Start) -> bool {
    let name = names::without_host(word.strip_prefix("/dev/md/").or(word.strip_prefix("/dev/")).unwrap_or(word));
    start.label == name || uuid::parse(word).is_some_and(|uuid| start.uuid == Some(uuid))
}

/// Says which arrays are left alone: those that a trap hides always, the others with --verbose.
fn say_left(left: &[(String, [u8; 16], Left)], is_verbose: bool) {
    for (set_name, array, why) in left {
        let is_trap = matches!(why, Left::NotListed | Left::NoHomehost);
        if is_trap || is_verbose {
            let name = names::short_name(set_name, array);
            warn(&format!("{name} ({}): not started: {why}", uuid::text(array)));
        }
    }
}

/// How many arrays that a URAID line names are not there; says which.
fn say_missing(config: &Config, ours: &[Start], wanted: &[&String]) -> usize {
    let is_there =
        |at: &uraid_config::Place| ours.iter().any(|start| start.line.as_ref().is_some_and(|line| line.at == *at));
    let mut missing = 0;
    for line in config.uraid.iter().filter(|line| line.of != uraid_config::UraidOf::All && !is_there(&line.at)) {
        let name = line.name().unwrap_or_default();
        if wanted.is_empty() || wanted.iter().any(|word| word.ends_with(name)) {
            let places = if line.members.is_empty() { config.device_places() } else { line.members.clone() };
            warn(&format!("{}: no member of {name} among {}", line.at, places_text(&places)));
            missing += 1;
        }
    }
    missing
}

fn options(args: &AssembleArgs, run: bool) -> StartOptions {
    StartOptions { run, force: args.force, read_only: args.read_only }
}

/// The one array that a command line without --scan means.
fn one(args: &AssembleArgs, config: &Config) -> Result<Start, AssembleVerbError> {
    let options = options(args, args.run);
    let is_told = args.uuid.is_some() || args.name.is_some();
    let mut members = args.members.clone();
    let mut called = None;
    if let Some(word) = &args.array {
        // A folder called `home` is not what is meant where the configuration has an array of that name.
        match array_name(word).or_else(|| listed_name(config, word)) {
            Some(name) => called = Some(name),
            None if is_told => members.insert(0, word.clone()),
            None => return Err(AssembleVerbError::Name { word: word.clone() }),
        }
    }
    // Files and devices that are all of one array: the server says what is wrong with one.
    let are_plain = !members.is_empty() && members.iter().all(|member| is_plain(member));
    if are_plain && !is_told {
        let label = called.clone().unwrap_or_else(|| members.join(" "));
        return Ok(Start { label, name: called, uuid: None, places: members, line: None, options });
    }
    let line = called.as_deref().and_then(|name| config.uraid.iter().find(|line| line.name() == Some(name)));
    let own = line.map(|line| line.members.clone()).unwrap_or_default();
    let places =
        [members, own, config.device_places()].into_iter().find(|places| !places.is_empty()).unwrap_or_default();
    let is_listed = !args.members.is_empty() || is_told;
    let found = sets::arrays(&places, args.member_timeout.limit())?;
    let is_it = |array: &&FoundArray| {
        let facts = array.facts();
        let is_name = |name: &String| facts.name() == name || facts.set_name == name;
        let by_line = || called.as_deref() == config.name_of(&facts) && is_in_config(config, array);
        args.uuid.is_none_or(|uuid| uuid == facts.uuid)
            && args.name.as_ref().is_none_or(is_name)
            && (is_listed || by_line())
    };
    let what = what(args);
    let found: Vec<&FoundArray> = found.iter().filter(is_it).collect();
    match found[..] {
        [array] => {
            let line = line.or_else(|| config.uraid_line(&array.facts()));
            let start = found::start_of(config, array, line, places, options);
            let label = called.clone().unwrap_or_else(|| start.label.clone());
            Ok(Start { label, name: called.or(start.name.clone()), ..start })
        }
        [] if !is_listed && !is_named_in(config, &what) => {
            Err(AssembleVerbError::NotListed { array: what, files: files(config) })
        }
        [] => Err(AssembleVerbError::None { what, places: places_text(&places) }),
        [_, _, ..] => {
            let text = |array: &&FoundArray| {
                let uuid = array.superblock.set_uuid;
                format!("{} ({})", names::short_name(&array.set_name, &uuid), uuid::text(&uuid))
            };
            let arrays = found.iter().map(text).collect::<Vec<_>>().join(", ");
            Err(AssembleVerbError::Several { what, count: found.len(), arrays })
        }
    }
}

/// What a command line without --scan looks for.
fn what(args: &AssembleArgs) -> String {
    let uuid = args.uuid.map(|uuid| uuid::text(&uuid));
    uuid.or_else(|| args.name.clone()).or_else(|| args.array.clone()).unwrap_or_else(|| "an array".to_owned())
}

fn is_in_config(config: &Config, array: &FoundArray) -> bool {
    config.array_line(&array.facts()).is_some() || config.uraid_line(&array.facts()).is_some()
}

fn is_named_in(config: &Config, word: &str) -> bool {
    array_name(word).is_some_and(|name| listed_name(config, &name).is_some()) || listed_name(config, word).is_some()
}

/// The word, if a line of the configuration gives an array this name.
fn listed_name(config: &Config, word: &str) -> Option<String> {
    let listed = config.arrays.iter().filter_map(|line| line.name_of_array());
    let mut names = listed.chain(config.uraid.iter().filter_map(|line| line.name()));
    names.find(|name| *name == word).map(str::to_owned)
}

/// `home` for `home` and `/dev/md/home`, `md0` for `/dev/md0`; `None`: the word is a path of something else.
fn array_name(word: &str) -> Option<String> {
    let name =
        word.strip_prefix("/dev/md/").or_else(|| word.strip_prefix("/dev/").filter(|name| name.starts_with("md")));
    let name = name.unwrap_or(word);
    let is_member = word == name && (word.contains(['/', '*', '?', '[', '@']) || Path::new(word).exists());
    (!is_member).then(|| names::valid_name(names::without_host(name)).ok()).flatten()
}

/// Whether a member is named, not a folder or a pattern of them.
fn is_plain(member: &str) -> bool {
    let path = Path::new(member);
    !path.is_dir() && (path.exists() || !member.contains(['*', '?', '[']))
}

fn places_text(places: &[String]) -> String {
    if places.is_empty() { "all block devices of this system".to_owned() } else { places.join(", ") }
}

fn files(config: &Config) -> String {
    let files: Vec<String> = config.files.iter().map(|file| file.display().to_string()).collect();
    if files.is_empty() { "the configuration, which has no file".to_owned() } else { files.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_a_name_unless_it_is_a_path() {
        for (word, name) in [
            ("home", Some("home")),
            ("/dev/md/home", Some("home")),
            ("/dev/md0", Some("md0")),
            ("box:home", Some("home")),
        ] {
            assert_eq!(array_name(word).as_deref(), name, "{word}");
        }
        for word in ["/dev/sda", "disks/*", "/", "a@p1", "Cargo.toml", ".x", ""] {
            assert_eq!(array_name(word), None, "{word}");
        }
    }

    #[test]
    fn the_exit_code_is_mdadms() {
        let code = |failed, missing, run| Tally { run, failed, missing }.code();
        assert_eq!(code(0, 0, 2), ExitCode::SUCCESS);
        assert_eq!(code(0, 0, 0), ExitCode::from(NONE));
        assert_eq!(code(0, 1, 1), ExitCode::from(NONE));
        assert_eq!(code(1, 1, 1), ExitCode::FAILURE);
    }
}
