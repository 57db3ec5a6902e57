//! `uraid add`, `re-add`, `remove`, `replace`, `write-mostly` and `failfast`: asks a running array.
//! Owns: their options and help texts, the call and the line about it. Not here: what the array does (`overseer::membership`).

use crate::arguments::{ARRAY_AND_MEMBERS, AddFlags};
use crate::running::words;
use clap::{Arg, Args, Command};
use serde_json::Value;
use std::path::PathBuf;
use uraid_control::client::{self, Client, ClientError};
use uraid_control::log::print;
use uraid_control::protocol::Method;
use uraid_format::MemberFlag;
use uraid_option_values::usage_error_of;

pub(crate) const ADD: &str = "\
Add devices to a running array as spares. A spare takes the slot of a failed or missing member at once,
or when the resync or recovery that runs has ended, and is recovered while the array serves. Otherwise
it stays a spare until a member fails. All devices of one command are checked before any is changed.

The server opens the devices itself, as its own user. What a device carries - a file system, a member
of another array - is not overwritten without --force. A former member of this array needs no --force,
unless it was used without the array since: it returns to its slot if it lacks only what the
write-intent bitmap records (see `uraid re-add`), else it is a spare that is recovered from the
beginning.

--write-mostly and --failfast hold for the devices listed behind them, for raid1 and raid10. A spare
keeps its flags when it takes a slot; a former member that returns to its slot keeps those that it had,
as far as no option says otherwise.";

pub(crate) const ADD_AFTER: &str = "\
EXAMPLES
  uraid add home disk4
  uraid add home /dev/sdd /dev/sde
  uraid add home disk4 --write-mostly disk5
  uraid fail home disk1 && uraid remove home disk1 && uraid add home disk4
  uraid add --control /tmp/home.ctl disk4";

pub(crate) const RE_ADD: &str = "\
Take former members back into a running array, each into its slot, and copy only what they have missed.
That needs a write-intent bitmap, which records what was written meanwhile (`uraid create
--bitmap=internal`), and that no other member has the slot. Remove a failed member first: `uraid
remove`. A device that has missed more than the bitmap records is refused, as by mdadm: `uraid add`
recovers all of it.

The word `missing` stands for all former members whose device is there: those that were removed, or left
out when the array started.";

pub(crate) const RE_ADD_AFTER: &str = "\
EXAMPLES
  uraid re-add home missing
  uraid remove home disk1 && uraid re-add home disk1
  uraid re-add home disk1 || uraid add home disk1";

pub(crate) const REMOVE: &str = "\
Remove spares and failed members from a running array, and close their devices, so that they can be
unplugged or used for something else. A member that works is refused: `uraid fail` comes first. The
superblock of a removed device stays as it is, as with mdadm: `uraid zero-superblock` wipes it. A spare
that was removed is a spare again if it is given to `uraid serve`.

The word `failed` stands for all failed members, `detached` for members whose device is gone.";

pub(crate) const REMOVE_AFTER: &str = "\
EXAMPLES
  uraid remove home disk1
  uraid remove home failed
  uraid remove home detached
  uraid remove --control /tmp/home.ctl 1";

pub(crate) const REPLACE: &str = "\
Copy members of a running array to spares, which then take their slots. A member works until all of it
is copied, so the array never lacks it: to exchange a disk that begins to fail, or for a larger one.
What it cannot read comes from the other members. At the end it counts as failed, and can be removed.

If it fails before, the spare is recovered from where the copy was. `uraid fail` of the spare ends the
replacement, and the member stays. A stop or crash in between: the next start goes on.";

pub(crate) const REPLACE_AFTER: &str = "\
EXAMPLES
  uraid add home disk4 && uraid replace home disk1
  uraid replace home disk1 --with disk4
  uraid replace home disk1 disk2 --with disk4 disk5
  uraid wait home && uraid remove home disk1";

pub(crate) const WRITE_MOSTLY: &str = "\
Make members of a running raid1 or raid10 write-mostly: they get every write, and are read only where no
other member has the sectors. For a copy that is slow or far away. The superblocks say so, and md does
the same.";

pub(crate) const WRITE_MOSTLY_USAGE: &str = "\
uraid write-mostly [OPTIONS] ARRAY MEMBER...
       uraid write-mostly [OPTIONS] --control SOCK MEMBER...";

pub(crate) const WRITE_MOSTLY_AFTER: &str = "\
EXAMPLES
  uraid write-mostly home disk1
  uraid write-mostly home disk1 --clear";

pub(crate) const FAILFAST: &str = "\
Make members of a running raid1 or raid10 failfast: the first read error fails such a member, if the array can
serve without it. Nothing is written again to correct it, nor listed. The superblocks say so, to md, too.";

pub(crate) const FAILFAST_USAGE: &str = "\
uraid failfast [OPTIONS] ARRAY MEMBER...
       uraid failfast [OPTIONS] --control SOCK MEMBER...";

pub(crate) const FAILFAST_AFTER: &str = "\
EXAMPLES
  uraid failfast home disk0 disk1
  uraid failfast home disk1 --clear";

/// Options of `uraid add`.
#[derive(Args, Debug)]
#[command(override_usage = "uraid add [OPTIONS] ARRAY DEVICE...\n       uraid add [OPTIONS] --control SOCK DEVICE...")]
#[command(mut_arg(ARRAY_AND_MEMBERS, as_devices))]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub flags: AddFlags,
    #[command(flatten)]
    pub named: MembersArgs,
    /// Overwrite what the devices carry
    #[arg(short, long, visible_alias = "run", visible_short_alias = 'R')]
    pub force: bool,
}

/// Options of `uraid re-add`.
#[derive(Args, Debug)]
#[command(override_usage = "uraid re-add ARRAY DEVICE...\n       uraid re-add --control SOCK DEVICE...")]
#[command(mut_arg(ARRAY_AND_MEMBERS, as_devices))]
pub(crate) struct ReAddArgs {
    #[command(flatten)]
    pub named: MembersArgs,
}

/// Options of `uraid remove`.
#[derive(Args, Debug)]
#[command(override_usage = "uraid remove ARRAY MEMBER...\n       uraid remove --control SOCK MEMBER...")]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    pub named: MembersArgs,
}

/// Options of `uraid replace`.
#[derive(Args, Debug)]
#[command(
    override_usage = "uraid replace [OPTIONS] ARRAY MEMBER... [--with SPARE...]\n       uraid replace [OPTIONS] --control SOCK MEMBER... [--with SPARE...]"
)]
#[command(mut_arg(ARRAY_AND_MEMBERS, as_members))]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    pub named: MembersArgs,
    /// The spares to copy them to, in the same order; any spare without this
    #[arg(long, num_args = 1.., value_name = "SPARE")]
    pub with: Vec<String>,
}

/// Options of `uraid write-mostly` and `uraid failfast`.
#[derive(Args, Debug)]
#[command(mut_arg(ARRAY_AND_MEMBERS, as_members))]
pub(crate) struct FlagArgs {
    #[command(flatten)]
    pub named: MembersArgs,
    /// Treat them like the others again
    #[arg(long)]
    pub clear: bool,
}

/// The argument, of commands that take devices only by their paths.
fn as_devices(arg: Arg) -> Arg {
    arg.value_name("ARRAY> <DEVICE").help("The array's name or one of its members, then the paths of the devices")
}

/// The argument, of commands that take members that work.
fn as_members(arg: Arg) -> Arg {
    arg.help("The array's name or one of its members, then the path or slot of each member")
}

/// An array and members.
#[derive(Args, Debug)]
pub(crate) struct MembersArgs {
    /// The control socket of the process that serves the array, in place of ARRAY
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// The array's name or one of its members, then for each member its path, the slot that it had when it failed, or
    /// the word `failed` or `detached`
    #[arg(required = true, num_args = 1.., value_name = "ARRAY> <MEMBER")]
    array_and_members: Vec<String>,
}

impl MembersArgs {
    /// The array, unless --control selects it, and the members. Ends the process with exit code 2, and the usage of the
    /// verb, if one is missing.
    fn array_and_members(&self, verb: Command) -> (Option<&str>, &[String]) {
        match (self.array_and_members.as_slice(), &self.control) {
            ([array, members @ ..], None) if !members.is_empty() => (Some(array), members),
            (members, Some(_)) => (None, members),
            _ => {
                let command = verb.get_name();
                let member = if matches!(command, "remove" | "replace" | "write-mostly" | "failfast") {
                    "MEMBER"
                } else {
                    "DEVICE"
                };
                let text = format!("{command} takes ARRAY {member}..., or --control SOCK {member}...");
                usage_error_of(verb, &text)
            }
        }
    }
}

/// Adds devices to a running array.
pub(crate) fn add(args: &AddArgs) -> Result<(), ClientError> {
    let flags = |members: &[String]| args.flags.0[args.flags.0.len() - members.len()..].to_vec();
    change(AddArgs::augment_args(Command::new("add")), &args.named, "added to", |client, members| {
        client.add(members, &flags(members), args.force)
    })
}

/// Takes back former members.
pub(crate) fn re_add(args: &ReAddArgs) -> Result<(), ClientError> {
    change(ReAddArgs::augment_args(Command::new("re-add")), &args.named, "re-added to", Client::re_add)
}

/// Removes spares and failed members.
pub(crate) fn remove(args: &RemoveArgs) -> Result<(), ClientError> {
    change(RemoveArgs::augment_args(Command::new("remove")), &args.named, "removed from", Client::remove)
}

fn change(
    verb: Command,
    named: &MembersArgs,
    done: &str,
    call: impl FnOnce(&mut Client, &[String]) -> Result<Value, ClientError>,
) -> Result<(), ClientError> {
    let command = verb.get_name().to_owned();
    let (array, members) = named.array_and_members(verb);
    let answer = client::find(array, named.control.as_deref()).and_then(|mut client| call(&mut client, members));
    let answer = answer.map_err(|error| words::explained(&command, array, members, error))?;
    let changed = list(&answer, "members");
    let (array, slots) = (text(answer.get("array")), text(answer.get("slots")));
    match changed.is_empty() {
        // `failed`, `detached` or `missing`.
        true => print(&format!("{array}: no member is {}, {slots}\n", members.join(" or "))),
        false => print(&format!("{}: {done} {array}, {slots}\n", changed.join(", "))),
    }
    Ok(())
}

/// Makes members write-mostly, or no longer.
pub(crate) fn write_mostly(args: &FlagArgs) -> Result<(), ClientError> {
    let done = if args.clear { "read like the others in" } else { "write-mostly in" };
    set_flag(args, MemberFlag::WriteMostly, WRITE_MOSTLY_USAGE, done)
}

/// Makes members failfast, or no longer.
pub(crate) fn failfast(args: &FlagArgs) -> Result<(), ClientError> {
    let done = if args.clear { "not failfast in" } else { "failfast in" };
    set_flag(args, MemberFlag::FailFast, FAILFAST_USAGE, done)
}

fn set_flag(args: &FlagArgs, flag: MemberFlag, usage: &'static str, done: &str) -> Result<(), ClientError> {
    change(Command::new(flag.name()).override_usage(usage), &args.named, done, |client, members| {
        client.call(&Method::set_flag(flag, found_by_server(members), !args.clear))
    })
}

/// Begins to copy members to spares.
pub(crate) fn replace(args: &ReplaceArgs) -> Result<(), ClientError> {
    let (array, members) = args.named.array_and_members(ReplaceArgs::augment_args(Command::new("replace")));
    let control = args.named.control.as_deref();
    let answer = client::find(array, control).and_then(|mut client| {
        client.call(&Method::Replace { members: found_by_server(members), with: found_by_server(&args.with) })
    });
    let answer = answer.map_err(|error| words::explained("replace", array, members, error))?;
    let array = text(answer.get("array"));
    for (member, spare) in list(&answer, "members").into_iter().zip(list(&answer, "with")) {
        print(&format!("{member}: is copied to {spare}; `uraid wait {array}` waits for the end\n"));
    }
    Ok(())
}

fn found_by_server(members: &[String]) -> Vec<String> {
    members.iter().map(|member| client::path_or_slot(member)).collect()
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or("?").to_owned()
}

fn list(answer: &Value, name: &str) -> Vec<String> {
    answer.get(name).and_then(Value::as_array).into_iter().flatten().map(|value| text(Some(value))).collect()
}
