//! What a person can type.
//! Owns: the subcommands; their options and help texts are in the files beside this one. Not here: what they do. The
//! verbs import it, and it imports none of them.
//! Invariant: an option that mdadm also has is spelled the same and means the same.
//! Spec: mdadm(8); docs/md/behaviour.md#mdadms-command-line.

mod access;
mod arrays;
mod bench;
mod bitmap;
mod copy;
mod create;
mod device_first;
mod doctor;
mod manage;
mod mdadm;
mod meaning;
mod member_flags;
mod membership;
mod mount;
mod number;
mod overview;
mod passes;
mod processors;
mod serve;
mod show;
mod spare_groups;
mod time;
mod update;

pub(crate) use access::AccessArgs;
pub(crate) use bench::BenchArgs;
pub(crate) use bitmap::BitmapArgs;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
pub(crate) use copy::CopyArgs;
pub(crate) use create::{BitmapPlace, CreateArgs, Policy, ZeroArgs, chunk_size, layout_number};
pub(crate) use doctor::DoctorArgs;
pub(crate) use manage::{FailArgs, StopArgs, WaitArgs};
pub(crate) use member_flags::MISSING;
pub(crate) use membership::{AddArgs, FlagArgs, MembersArgs, ReAddArgs, RemoveArgs, ReplaceArgs};
pub(crate) use mount::{MountArgs, UmountArgs};
pub(crate) use passes::{CheckArgs, PassArgs, SpeedArgs};
pub(crate) use processors::Processors;
pub(crate) use serve::ServeArgs;
pub(crate) use show::{DetailArgs, ExamineArgs, GeometryArgs, ListArgs, MdstatArgs, ROWS_MAX};
use std::ffi::OsString;
use std::io::Write;
pub(crate) use update::{UpdateArgs, What as UpdateWhat};

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "uraid", version = env!("URAID_VERSION"), about = "Linux md RAID in user space")]
#[command(max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// First words that clap answers.
const CLAPS_OWN: [&str; 5] = ["help", "-h", "--help", "-V", "--version"];

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Make a new array: write its members' superblocks
    #[command(long_about = create::CREATE, after_long_help = create::CREATE_AFTER)]
    Create(CreateArgs),
    /// Assemble arrays from their members and serve them
    #[command(long_about = serve::SERVE, after_long_help = serve::SERVE_AFTER)]
    Serve(ServeArgs),
    /// Copy the bytes of an array, without changing a member
    #[command(long_about = copy::COPY, after_long_help = copy::COPY_AFTER)]
    Copy(CopyArgs),
    /// Show what the superblocks of members say
    #[command(long_about = show::EXAMINE, after_long_help = show::EXAMINE_AFTER)]
    Examine(ExamineArgs),
    /// Show the state of an array, running or not
    #[command(long_about = show::DETAIL, after_long_help = show::DETAIL_AFTER)]
    Detail(DetailArgs),
    /// Say what of an array costs I/O or safety
    #[command(long_about = doctor::DOCTOR, after_long_help = doctor::DOCTOR_AFTER)]
    Doctor(DoctorArgs),
    /// Declare members of a running array failed
    #[command(long_about = manage::FAIL, after_long_help = manage::FAIL_AFTER)]
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
    #[command(long_about = passes::CHECK, after_long_help = passes::CHECK_AFTER)]
    Check(CheckArgs),
    /// Compare as `check` does, and make what differs agree
    #[command(long_about = passes::REPAIR, after_long_help = passes::REPAIR_AFTER)]
    Repair(CheckArgs),
    /// End a check or repair, continue what `freeze` paused
    #[command(long_about = passes::IDLE, after_long_help = passes::IDLE_AFTER)]
    Idle(PassArgs),
    /// Pause the resync, recovery, check or repair
    #[command(long_about = passes::FREEZE, after_long_help = passes::FREEZE_AFTER)]
    Freeze(PassArgs),
    /// Continue what `freeze` paused
    #[command(after_long_help = passes::UNFREEZE_AFTER)]
    Unfreeze(PassArgs),
    /// Show or set the speed limits of resync, check, ...
    #[command(long_about = passes::SPEED, after_long_help = passes::SPEED_AFTER)]
    Speed(SpeedArgs),
    /// Let a running array take no more writes
    #[command(long_about = access::READONLY, after_long_help = access::READONLY_AFTER)]
    Readonly(AccessArgs),
    /// Let an array take writes again after `readonly`
    #[command(long_about = access::READWRITE, after_long_help = access::READWRITE_AFTER)]
    Readwrite(AccessArgs),
    /// Stop a running array: flush it, mark it clean
    #[command(long_about = manage::STOP, after_long_help = manage::STOP_AFTER)]
    Stop(StopArgs),
    /// Serve an array and mount its file system
    #[command(long_about = mount::MOUNT, after_long_help = mount::MOUNT_AFTER)]
    Mount(MountArgs),
    /// Unmount it, stop the array if `mount` has started it
    #[command(long_about = mount::UMOUNT, after_long_help = mount::UMOUNT_AFTER)]
    Umount(UmountArgs),
    /// Wait until no resync, recovery, check or repair runs
    #[command(long_about = manage::WAIT, after_long_help = manage::WAIT_AFTER)]
    Wait(WaitArgs),
    /// Show the arrays that run now
    #[command(after_long_help = show::LIST_AFTER)]
    List(ListArgs),
    /// Show the arrays that run, as /proc/mdstat does
    #[command(long_about = show::MDSTAT, after_long_help = show::MDSTAT_AFTER)]
    Mdstat(MdstatArgs),
    /// Measure an array, and its members without it
    #[command(long_about = bench::BENCH, after_long_help = bench::BENCH_AFTER)]
    Bench(BenchArgs),
    /// Change a stopped array: its name, UUID, policy, ...
    #[command(long_about = update::UPDATE, after_long_help = update::UPDATE_AFTER)]
    Update(UpdateArgs),
    /// Wipe superblocks, so that nothing assembles them
    #[command(long_about = create::ZERO, after_long_help = create::ZERO_AFTER)]
    ZeroSuperblock(ZeroArgs),
}

impl Cli {
    /// The command line of this process. Ends the process with exit code 2 if it is wrong, and with 0 after a help text.
    pub(crate) fn read() -> Cli {
        let words = match mdadm::with_subcommand(std::env::args_os().collect()) {
            Ok(words) => words,
            Err(text) => refuse(&text),
        };
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

/// What to type instead of a line of mdadm, or one whose first word is no verb.
fn instead_of(words: &[OsString]) -> Option<String> {
    let first = words.get(1)?.to_str()?;
    if line().find_subcommand(first).is_some() || CLAPS_OWN.contains(&first) {
        return None;
    }
    let texts: Vec<&str> = words.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let of_mdadm = mdadm::instead_of_update(words).or_else(|| device_first::instead_of_line(&texts));
    of_mdadm.or_else(|| meaning::instead_of_word(first)).or_else(|| device_first::instead_of_device(&texts))
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

/// Ends the process as clap does when the command line is wrong: exit code 2.
pub(crate) fn usage_error(text: &str) -> ! {
    line().error(ErrorKind::InvalidValue, text).exit()
}

/// The same, with the usage line of a subcommand.
fn usage_error_of(subcommand: &str, text: &str) -> ! {
    let mut all = line();
    all.build();
    let of = all.find_subcommand_mut(subcommand).expect("it is called for one that exists");
    of.error(ErrorKind::InvalidValue, text).exit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sectors;
    use uraid_block::sizes::MemberSize;
    use uraid_layout::Level;

    #[test]
    fn the_definitions_hold_together() {
        line().debug_assert();
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
