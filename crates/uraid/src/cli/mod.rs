//! What a person can type.
//! Owns: the list of the verbs, mdadm's spellings, the overview. Not here: the verbs' options and help texts, and what they
//! do, which are in the rooms of the verbs.
//! Invariant: an option that mdadm also has is spelled the same and means the same.
//! Spec: mdadm(8); docs/md/behaviour.md#mdadms-command-line.

mod device_first;
pub(crate) mod mdadm;
mod meaning;
pub(crate) mod no_member;
mod overview;
mod pages;
mod word_order;

use crate::copy::args::{self as copy, CopyArgs};
use crate::create::args::{self as create, CreateArgs};
use crate::doctor::args::{self as doctor, DoctorArgs};
use crate::mdadm::{self as of_mdadm, MdadmArgs};
use crate::mount::args::{self as mount, MountArgs, UmountArgs};
use crate::offline::examine::args::{self as examine, ExamineArgs};
use crate::offline::update::args::{self as update, UpdateArgs};
use crate::offline::zero::{self, ZeroArgs};
use crate::running::detail::args::{self as detail, DetailArgs};
pub(crate) use crate::running::{Change, Look};
use crate::serve::args::{self as serve, ServeArgs};
use crate::serve::assemble::args::{self as assemble, AssembleArgs};
use crate::serve::incremental::args::{self as incremental, IncrementalArgs};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use uraid_bench_command::{self as bench, BenchArgs};
use uraid_operate::Operate;
use uraid_option_values::usage_error;

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "uraid", version = env!("URAID_VERSION"), long_version = LONG_VERSION, about = "Linux md RAID in user space")]
#[command(max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What `--version` says; `-V` says the first line.
const LONG_VERSION: &str = concat!(
    env!("URAID_VERSION"),
    "\nbuilt for ",
    env!("URAID_BUILD"),
    "\nlevels: linear raid0 raid1 raid4 raid5 raid6 raid10\
     \nmetadata: 1.0 1.1 1.2, 0.90 read only\
     \nfrontends: nbd fuse\
     \nmembers: io_uring, threads\
     \nservices: systemd (notify, watchdog, journal), udev"
);

/// First words that clap answers.
const CLAPS_OWN: [&str; 5] = ["help", "-h", "--help", "-V", "--version"];
/// Words with which mdadm explains itself.
const MDADMS_HELP: [&str; 3] = ["-h", "--help", "--help-options"];

/// The verbs, in the order in which messages name them.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Make a new array: write its members' superblocks
    #[command(long_about = create::CREATE, after_long_help = create::CREATE_AFTER)]
    Create(CreateArgs),
    /// Assemble arrays from their members and serve them
    #[command(long_about = serve::SERVE, after_long_help = serve::SERVE_AFTER)]
    Serve(ServeArgs),
    /// Find arrays and start them in the background
    #[command(long_about = assemble::ASSEMBLE, after_long_help = assemble::ASSEMBLE_AFTER)]
    Assemble(AssembleArgs),
    /// Take in one device; start its array when it is complete
    #[command(long_about = incremental::INCREMENTAL, after_long_help = incremental::INCREMENTAL_AFTER)]
    Incremental(IncrementalArgs),
    /// Copy the bytes of an array, without changing a member
    #[command(long_about = copy::COPY, after_long_help = copy::COPY_AFTER)]
    Copy(CopyArgs),
    /// Show what the superblocks of members say
    #[command(long_about = examine::EXAMINE, after_long_help = examine::EXAMINE_AFTER)]
    Examine(ExamineArgs),
    /// Show the state of an array, running or not
    #[command(long_about = detail::DETAIL, after_long_help = detail::DETAIL_AFTER)]
    Detail(DetailArgs),
    /// Say what of an array costs I/O or safety
    #[command(long_about = doctor::DOCTOR, after_long_help = doctor::DOCTOR_AFTER)]
    Doctor(DoctorArgs),
    /// Verbs that change an array that runs.
    #[command(flatten)]
    Change(Change),
    /// Serve an array and mount its file system
    #[command(long_about = mount::MOUNT, after_long_help = mount::MOUNT_AFTER)]
    Mount(MountArgs),
    /// Unmount it, stop the array if `mount` has started it
    #[command(long_about = mount::UMOUNT, after_long_help = mount::UMOUNT_AFTER)]
    Umount(UmountArgs),
    /// Verbs that look at arrays that run.
    #[command(flatten)]
    Look(Look),
    /// Verbs for those who operate arrays.
    #[command(flatten)]
    Operate(Operate),
    /// Measure an array, and its members without it
    #[command(long_about = bench::BENCH, after_long_help = bench::BENCH_AFTER)]
    Bench(BenchArgs),
    /// Change a stopped array: its name, UUID, policy, ...
    #[command(long_about = update::UPDATE, after_long_help = update::UPDATE_AFTER)]
    Update(UpdateArgs),
    /// Wipe superblocks, so that nothing assembles them
    #[command(long_about = zero::ZERO, after_long_help = zero::ZERO_AFTER)]
    ZeroSuperblock(ZeroArgs),
    /// Take a line of mdadm as it is
    #[command(long_about = of_mdadm::MDADM, after_long_help = of_mdadm::MDADM_AFTER)]
    Mdadm(MdadmArgs),
}

impl Cli {
    /// The command line of this process. Ends the process with exit code 2 if it is wrong, and with 0 after a help text.
    pub(crate) fn read() -> Cli {
        let words: Vec<OsString> = std::env::args_os().collect();
        if let Some(behind) = behind_mdadm(&words) {
            return Cli::of_mdadm(behind);
        }
        if let [_, verb, folder] = words.as_slice()
            && verb == "write-pages"
        {
            write_pages(Path::new(folder));
        }
        if let Some(text) = topic_of(&words) {
            uraid_control::log::print(&text);
            std::process::exit(i32::from(uraid_control::log::print_failed()));
        }
        if let Some(text) = instead_of(&words) {
            refuse(&text);
        }
        // Check first for options that `kernels` and `nbd` do not take: clap would only report other options as
        // missing.
        let as_far_as_it_goes = line().ignore_errors(true).get_matches_from(&words);
        if let Some(text) = not_taken(&as_far_as_it_goes) {
            usage_error(&text);
        }
        let parsed = line().try_get_matches_from(&words).and_then(|given| Cli::from_arg_matches(&given));
        parsed.unwrap_or_else(|error| match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
                let subcommand = as_far_as_it_goes.subcommand_name().unwrap_or_default();
                match mdadm::why_not_here(&line(), subcommand, option) {
                    Some(text) => refuse(&text),
                    None => error.exit(),
                }
            }
            Some(_) | None => error.exit(),
        })
    }
}

impl Cli {
    /// A line of mdadm. Ends the process after a help text.
    fn of_mdadm(behind: &[OsString]) -> Cli {
        if behind.iter().any(|word| MDADMS_HELP.iter().any(|help| word == help)) {
            let help = line().get_matches_from(["uraid", "mdadm", "--help"]);
            debug_assert!(help.subcommand_name().is_none(), "it has ended the process");
        }
        Cli { command: Command::Mdadm(MdadmArgs { words: behind.to_vec() }) }
    }

    /// The line of these words behind the program's name, to which one of mdadm was translated. The error is a sentence.
    pub(crate) fn of_words(words: &[String]) -> Result<Cli, String> {
        let words = ["uraid"].into_iter().chain(words.iter().map(String::as_str));
        let parsed = line().try_get_matches_from(words).and_then(|given| Cli::from_arg_matches(&given));
        parsed.map_err(|error| sentence(&error))
    }
}

/// The words behind mdadm, if the line is mdadm's: if the binary or the first word is called so, or if the words say what
/// to do in mdadm's way.
fn behind_mdadm(words: &[OsString]) -> Option<&[OsString]> {
    let (program, rest) = words.split_first()?;
    // A server or monitor in the background has this program's file for a name, whatever that is.
    let is_own = rest.get(1).is_some_and(|word| word == "--detached");
    if Path::new(program).file_name().is_some_and(|name| name == "mdadm") && !is_own {
        return Some(rest);
    }
    let (first, behind) = rest.split_first()?;
    if first == "mdadm" {
        return Some(behind);
    }
    let first = first.to_str()?;
    if line().find_subcommand(first).is_some() || CLAPS_OWN.contains(&first) {
        return None;
    }
    let texts: Vec<String> = rest.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_mdadms =
        if first.starts_with('-') { crate::mdadm::is_option(first) } else { crate::mdadm::has_mode(&texts) };
    is_mdadms.then_some(rest)
}

/// What clap says of a line, without its advice: `--size 3X: ...`.
fn sentence(error: &clap::Error) -> String {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        Some(_) | None => None,
    };
    let (option, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    if let (Some(option), Some(value), Some(cause)) = (option, value, error.source()) {
        return format!("{} {value}: {cause}", option.split(' ').next().unwrap_or_default());
    }
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let text = lines.join(" ");
    text.strip_prefix("error: ").map_or(text.clone(), str::to_owned)
}

/// The definition of the command line, with its help texts.
fn line() -> clap::Command {
    let line = Cli::command().mut_subcommands(|verb| {
        let own = verb.get_after_long_help().map_or_else(String::new, |text| format!("{text}\n\n"));
        verb.after_long_help(format!("{own}{}", overview::SEE_ALSO))
    });
    let screen = overview::screen(&line);
    line.override_help(screen)
}

/// The text of `uraid help TOPIC`.
fn topic_of(words: &[OsString]) -> Option<String> {
    match words {
        [_, help, topic] if help == "help" => overview::topic(topic.to_str()?),
        _ => None,
    }
}

/// Writes man pages and completions, for packages, and ends the process.
fn write_pages(folder: &Path) -> ! {
    let topics = [("ARRAYS AND MEMBERS", "members"), ("FILES", "files"), ("EXIT STATUS", "exit-codes")];
    let topics = topics.map(|(heading, topic)| (heading, overview::topic(topic).unwrap_or_default()));
    let whole = pages::Whole { version: env!("URAID_VERSION"), topics: &topics };
    match pages::write(&mut line(), &whole, folder) {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            uraid_control::log::warn(&format!("{}: {}", folder.display(), uraid_host::io_text(&error)));
            std::process::exit(1)
        }
    }
}

/// What to type instead of a line whose first word is no verb, or whose words come in another order.
fn instead_of(words: &[OsString]) -> Option<String> {
    let first = words.get(1)?.to_str()?;
    let texts: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    if let Some(text) = word_order::instead_of_order(&texts) {
        return Some(text);
    }
    if line().find_subcommand(first).is_some() || CLAPS_OWN.contains(&first) {
        return None;
    }
    let of_mdadm = mdadm::instead_of_mode(first);
    of_mdadm.or_else(|| meaning::instead_of_word(first)).or_else(|| device_first::instead_of_device(first))
}

/// Ends the process with the exit code of a wrong command line.
fn refuse(text: &str) -> ! {
    let _ = writeln!(std::io::stderr().lock(), "error: {text}");
    std::process::exit(2);
}

fn not_taken(given: &ArgMatches) -> Option<String> {
    let bench = given.subcommand_matches("bench")?;
    bench::not_taken(line().find_subcommand("bench")?, bench)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sectors;
    use uraid_block::sizes::MemberSize;
    use uraid_layout::Level;
    use uraid_option_values::usage_text;

    #[test]
    fn the_definitions_hold_together() {
        line().debug_assert();
    }

    #[test]
    fn a_verb_refuses_a_line_with_the_usage_of_the_whole() {
        let whole = line().error(ErrorKind::InvalidValue, "wrong").render().ansi().to_string();
        let of_verbs = usage_text("wrong").render().ansi().to_string();
        assert_eq!(of_verbs, whole);
    }

    #[test]
    fn mdadm_spellings_are_understood() {
        let line = "uraid create -l raid5 -n 3 -x 1 -c 64 -p ls -z max -N home -R a b missing d";
        let Command::Create(create) = Cli::parse_from(line.split(' ')).command else { panic!("not create") };
        assert_eq!((create.level, create.raid_devices, create.spare_devices), (Level::Raid5, 3, 1));
        assert_eq!(create.chunk, Some(Sectors(128)));
        assert_eq!(create.size, Some(MemberSize::Max));
        assert_eq!(create.members, ["a", "b", "missing", "d"]);
        let line = "uraid create --level -1 --raid-devices=2 a b";
        let Command::Create(create) = Cli::parse_from(line.split(' ')).command else { panic!("not create") };
        assert_eq!(create.level, Level::Linear);
    }

    #[test]
    fn every_subcommand_shows_examples() {
        for subcommand in line().get_subcommands_mut() {
            let help = subcommand.render_long_help().to_string();
            assert!(help.contains("EXAMPLES\n  ") && help.contains("\nSEE ALSO\n  "), "{help}");
            // How a server fails, for those who test: only `bench` explains it.
            assert_eq!(help.contains("\nTESTING\n"), subcommand.get_name() == "bench", "{help}");
        }
    }
}
