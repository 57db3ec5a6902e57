//! What a person can type.
//! Owns: the subcommands; their options and help texts are in the files beside this one. Not here: what they do.
//! Invariant: an option that mdadm also has is spelled the same and means the same.
//! Spec: mdadm(8); docs/md/behaviour.md#mdadms-command-line.

mod access;
mod arrays;
mod bench;
mod bitmap;
mod copy;
mod create;
mod doctor;
mod manage;
mod mdadm;
mod member_flags;
mod membership;
mod mount;
mod number;
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
use clap::{ArgMatches, CommandFactory, Parser, Subcommand};
pub(crate) use copy::CopyArgs;
pub(crate) use create::{BitmapPlace, CreateArgs, Policy, ZeroArgs, chunk_size, layout_number};
pub(crate) use doctor::DoctorArgs;
pub(crate) use manage::{FailArgs, StopArgs, WaitArgs};
pub(crate) use membership::{AddArgs, FlagArgs, MembersArgs, ReAddArgs, RemoveArgs, ReplaceArgs};
pub(crate) use mount::{MountArgs, UmountArgs};
pub(crate) use passes::{CheckArgs, PassArgs, SpeedArgs};
pub(crate) use processors::Processors;
pub(crate) use serve::ServeArgs;
pub(crate) use show::{DetailArgs, ExamineArgs, GeometryArgs, ListArgs, MdstatArgs};
use std::io::Write;
pub(crate) use update::{UpdateArgs, What as UpdateWhat};

const OVERVIEW: &str = "\
Linux software RAID (md) in user space: creates arrays over files and block devices, keeps them
redundant and serves them over NBD, from one unprivileged process. The bytes on the members are
those of the kernel's md and of mdadm.

An ARRAY is a name (as `uraid list` shows it), one or more of its members, or `--control SOCK`.
A MEMBER is a file or a block device, or a part of one:
  PATH@OFFSET[+LENGTH]  from byte OFFSET on, LENGTH bytes or up to the end; K, M, G, T are powers of 1024
  PATH@pN               partition N of the GPT or MBR inside
A file whose own name looks like this, such as `disk@p2`, is taken as that file. Parts that do not
overlap may be members at the same time, of one array or of several. A part of a block device is
locked against other uraid processes only: the system can still mount it.";

const OVERVIEW_AFTER: &str = "\
EXAMPLES
  truncate -s 1G disk0 disk1 disk2 disk3
  uraid create --level 6 --raid-devices 4 --name backup disk0 disk1 disk2 disk3
  uraid serve disk0 disk1 disk2 disk3
  uraid detail backup
  uraid fail backup disk2
  uraid remove backup disk2
  uraid add backup disk4
  uraid stop backup

TESTING
  bad:SECTOR[+COUNT][,SECTOR[+COUNT]...]:MEMBER
      a MEMBER whose reads and writes of these sectors fail as on a broken disk. SECTOR and COUNT are in
      sectors of 512 bytes, counted from the start of MEMBER
  mem:SIZE, null:SIZE
      memory, gone when the process ends; or no storage at all: reads give arbitrary bytes, writes are dropped.
      SIZE is in bytes, or has K, M, G or T, powers of 1024; so is that of bandwidth=SIZE
  mem:SIZE,request=TIME[,bandwidth=SIZE]
      the same, or null:, with a simulated cost: the member works on one request at a time. A request takes
      TIME (20us, 1ms), and with bandwidth=SIZE also the time that its bytes need at SIZE a second
  mem:SIZE,completion=deferred
      the same, or null:, but no read or write completes at once: others begin before, so that several
      are in flight

EXIT CODES
  0  done
  1  refused, or failed; the reason is on stderr
  2  the command line is wrong
  `detail --test` has mdadm's codes, `wait` adds 4 to mdadm's, `check --wait` and `repair --wait` have 3 for
  what disagrees: see their --help.

FILES
  $XDG_RUNTIME_DIR/uraid/NAME.nbd   where a running array is served (root: /run/uraid; $URAID_RUNTIME_DIR wins)
  $XDG_RUNTIME_DIR/uraid/NAME.ctl   where the other commands reach it: JSON-RPC 2.0, one object per line";

/// The whole command line.
#[derive(Parser, Debug)]
#[command(name = "uraid", version = env!("URAID_VERSION"), about = "Linux md RAID in user space")]
#[command(long_about = OVERVIEW)]
#[command(after_long_help = OVERVIEW_AFTER, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Make a new array: choose its geometry and write the members' superblocks
    #[command(long_about = create::CREATE, after_long_help = create::CREATE_AFTER)]
    Create(CreateArgs),
    /// Assemble an array from its members and serve it over NBD until told to stop
    #[command(long_about = serve::SERVE, after_long_help = serve::SERVE_AFTER)]
    Serve(ServeArgs),
    /// Copy the bytes of an array to a file, a block device or a pipe, without changing a member
    #[command(long_about = copy::COPY, after_long_help = copy::COPY_AFTER)]
    Copy(CopyArgs),
    /// Show what the superblock of each member says
    #[command(long_about = show::EXAMINE, after_long_help = show::EXAMINE_AFTER)]
    Examine(ExamineArgs),
    /// Show the state of an array, running or not
    #[command(long_about = show::DETAIL, after_long_help = show::DETAIL_AFTER)]
    Detail(DetailArgs),
    /// Say what of an array, or of a file on it, costs I/O or safety, and what helps
    #[command(long_about = doctor::DOCTOR, after_long_help = doctor::DOCTOR_AFTER)]
    Doctor(DoctorArgs),
    /// Declare members of a running array failed: they are not read or written any more
    #[command(long_about = manage::FAIL, after_long_help = manage::FAIL_AFTER)]
    Fail(FailArgs),
    /// Add devices to a running array as spares
    #[command(long_about = membership::ADD, after_long_help = membership::ADD_AFTER)]
    Add(AddArgs),
    /// Take former members back into a running array, and copy only what they have missed
    #[command(long_about = membership::RE_ADD, after_long_help = membership::RE_ADD_AFTER)]
    ReAdd(ReAddArgs),
    /// Remove spares and failed members from a running array
    #[command(long_about = membership::REMOVE, after_long_help = membership::REMOVE_AFTER)]
    Remove(RemoveArgs),
    /// Copy members of a running array to spares, which then take their slots
    #[command(long_about = membership::REPLACE, after_long_help = membership::REPLACE_AFTER)]
    Replace(ReplaceArgs),
    /// Read members of a running array only where no other has the sectors
    #[command(long_about = membership::WRITE_MOSTLY, after_long_help = membership::WRITE_MOSTLY_AFTER)]
    #[command(override_usage = membership::WRITE_MOSTLY_USAGE)]
    WriteMostly(FlagArgs),
    /// Fail members of a running array at the first read error of their devices
    #[command(long_about = membership::FAILFAST, after_long_help = membership::FAILFAST_AFTER)]
    #[command(override_usage = membership::FAILFAST_USAGE)]
    Failfast(FlagArgs),
    /// Give a running array a write-intent bitmap, or take it away
    #[command(long_about = bitmap::BITMAP, after_long_help = bitmap::BITMAP_AFTER)]
    Bitmap(BitmapArgs),
    /// Compare all copies, or parity with data, of a running array, and list what disagrees
    #[command(long_about = passes::CHECK, after_long_help = passes::CHECK_AFTER)]
    Check(CheckArgs),
    /// Compare as `check` does, and make what disagrees agree
    #[command(long_about = passes::REPAIR, after_long_help = passes::REPAIR_AFTER)]
    Repair(CheckArgs),
    /// End the check or repair of a running array, and continue what `freeze` paused
    #[command(after_long_help = passes::IDLE_AFTER)]
    Idle(PassArgs),
    /// Pause the resync, recovery, check or repair of a running array
    #[command(after_long_help = passes::FREEZE_AFTER)]
    Freeze(PassArgs),
    /// Continue what `freeze` paused
    #[command(after_long_help = passes::UNFREEZE_AFTER)]
    Unfreeze(PassArgs),
    /// Show or set the speed limits of resync, recovery, check and repair
    #[command(long_about = passes::SPEED, after_long_help = passes::SPEED_AFTER)]
    Speed(SpeedArgs),
    /// Let a running array take no more writes: end those under way, flush, mark it clean
    #[command(long_about = access::READONLY, after_long_help = access::READONLY_AFTER)]
    Readonly(AccessArgs),
    /// Let an array take writes again after `readonly`
    #[command(long_about = access::READWRITE, after_long_help = access::READWRITE_AFTER)]
    Readwrite(AccessArgs),
    /// Stop a running array: answer what is in flight, flush, mark it clean
    #[command(after_long_help = manage::STOP_AFTER)]
    Stop(StopArgs),
    /// Mount the file system of an array: from its members to a folder in one command
    #[command(long_about = mount::MOUNT, after_long_help = mount::MOUNT_AFTER)]
    Mount(MountArgs),
    /// Unmount the file system of an array, and stop the array if `mount` has started it
    #[command(long_about = mount::UMOUNT, after_long_help = mount::UMOUNT_AFTER)]
    Umount(UmountArgs),
    /// Wait until no resync, recovery, check or repair of these arrays runs
    #[command(long_about = manage::WAIT, after_long_help = manage::WAIT_AFTER)]
    Wait(WaitArgs),
    /// Show the arrays that run now
    #[command(after_long_help = show::LIST_AFTER)]
    List(ListArgs),
    /// Show the arrays that run now in the format of /proc/mdstat, with progress and speed
    #[command(long_about = show::MDSTAT, after_long_help = show::MDSTAT_AFTER)]
    Mdstat(MdstatArgs),
    /// Measure an array, and in the same run what its members give without it
    #[command(long_about = bench::BENCH, after_long_help = bench::BENCH_AFTER)]
    Bench(BenchArgs),
    /// Change the superblocks of a stopped array: its consistency policy, its name, a resync at its next start
    #[command(long_about = update::UPDATE, after_long_help = update::UPDATE_AFTER)]
    Update(UpdateArgs),
    /// Wipe the superblock of members, so that nothing assembles them any more
    #[command(long_about = create::ZERO, after_long_help = create::ZERO_AFTER)]
    ZeroSuperblock(ZeroArgs),
}

impl Cli {
    /// The command line of this process. Ends the process with exit code 2 if it is wrong.
    pub(crate) fn read() -> Cli {
        let line = match mdadm::with_subcommand(std::env::args_os().collect()) {
            Ok(line) => line,
            Err(text) => refuse(&text),
        };
        if let Some(text) = mdadm::instead_of_update(&line) {
            refuse(&text);
        }
        let first = line.get(1).cloned();
        if let Some(text) = first.and_then(|word| mdadm::instead_of_mode(word.to_str()?)) {
            refuse(&text);
        }
        // Check first for options that `kernels` and `nbd` do not take: clap would only report other options as
        // missing.
        let as_far_as_it_goes = Cli::command().ignore_errors(true).get_matches_from(&line);
        if let Some(text) = not_taken(&as_far_as_it_goes) {
            usage_error(&text);
        }
        Cli::try_parse_from(&line).unwrap_or_else(|error| match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) if error.kind() == ErrorKind::UnknownArgument => {
                let subcommand = as_far_as_it_goes.subcommand_name().unwrap_or_default();
                match mdadm::why_not_here(&Cli::command(), subcommand, option) {
                    Some(text) => refuse(&text),
                    None => error.exit(),
                }
            }
            Some(_) | None => error.exit(),
        })
    }
}

/// Ends the process with the exit code of a wrong command line.
fn refuse(text: &str) -> ! {
    let _ = writeln!(std::io::stderr().lock(), "error: {text}");
    std::process::exit(2);
}

fn not_taken(given: &ArgMatches) -> Option<String> {
    let bench = given.subcommand_matches("bench")?;
    bench::not_taken(Cli::command().find_subcommand("bench")?, bench)
}

/// Ends the process as clap does when the command line is wrong: exit code 2.
pub(crate) fn usage_error(text: &str) -> ! {
    Cli::command().error(ErrorKind::InvalidValue, text).exit()
}

/// The same, with the usage line of a subcommand.
fn usage_error_of(subcommand: &str, text: &str) -> ! {
    let mut all = Cli::command();
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
        Cli::command().debug_assert();
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
        for subcommand in Cli::command().get_subcommands_mut() {
            let help = subcommand.render_long_help().to_string();
            assert!(help.contains("EXAMPLES\n  "), "{help}");
        }
    }
}
