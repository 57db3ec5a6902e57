//! `uraid update` on the command line.
//! Owns: its options and help texts. Not here: what it does (the parent).

use clap::{Args, Command};
use uraid_control::names::{parse_uuid, valid_host, valid_name};
use uraid_option_values::usage_error_of;

pub(crate) const UPDATE: &str = "\
Change the superblocks of a stopped array, as `mdadm --assemble --update=WHAT` does. The array is not
started. All members must be named, and must work: a running, degraded or dirty array is refused.

Every member is checked before any is changed. If it is interrupted, the array starts as it was
before, or with all of the change; for uuid, see there.";

pub(crate) const UPDATE_AFTER: &str = "\
WHAT
  ppl       give a raid5 a partial parity log: then a crash needs no resync
  no-ppl    take it away: after a crash all of the array is resynced
  resync    mark the array dirty: its next start makes all of its copies or parity agree
  name      give the array the name of --name, and the host of --homehost if it is given
  homehost  give the array's name the host of --homehost
  no-bbl    take the lists of bad blocks away, if they are empty
  bbl       give members without one an empty list of bad blocks, if there is room for it
  uuid      give the array the UUID of --uuid, or a random one; its bitmap, which keeps its bits, and its partial
            parity logs get it as well. If that is interrupted, the members may name two arrays, and not start: the
            same command with the --uuid that is printed first goes on
  devicesize
            of members whose devices have become larger: count all of it as room for data (version 1.1 and 1.2); the
            array stays as large as it is
  logical-block-size
            take away the block size that kernels since 6.19 record when they start an array first: older kernels
            refuse to start it with that. Also of an array that is dirty or lacks members
  layout-original, layout-alternate
            of a raid0 with members of several sizes, made before Linux 5.4, which does not say which layout it has:
            record it. Nothing is moved, so the other one can be recorded again. `uraid copy --assume -l 0 -p original ...`
            shows what each gives

EXAMPLES
  uraid update ppl disk0 disk1 disk2
  uraid update name --name home disk0 disk1
  uraid update uuid --uuid 1234abcd-1234-1234-1234-1234567890ab copy0 copy1
  uraid serve disk0 disk1 disk2";

/// What is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Ppl,
    NoPpl,
    Resync,
    Name,
    Homehost,
    NoBbl,
    Bbl,
    Uuid,
    DeviceSize,
    LogicalBlockSize,
    LayoutOriginal,
    LayoutAlternate,
}

/// Options of `uraid update`.
#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    /// `ppl`, `no-ppl`, `resync`, `name`, `homehost`, `no-bbl`, `bbl`, `uuid`, ...: see WHAT
    #[arg(value_name = "WHAT", value_parser = what)]
    pub what: What,
    /// With `name`: the new name
    #[arg(short = 'N', long, value_name = "NAME", value_parser = valid_name)]
    name: Option<String>,
    /// With `name` and `homehost`: the host that the name is prefixed with; `none` for no prefix [default: as it is]
    #[arg(long, value_name = "HOST", value_parser = valid_host)]
    homehost: Option<String>,
    /// With `uuid`: the new UUID, 32 hex digits, separators as you like [default: random]
    #[arg(short, long, value_name = "UUID", value_parser = parse_uuid)]
    pub uuid: Option<[u8; 16]>,
    /// All members of the array, in any order
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
}

impl UpdateArgs {
    /// The new name and the new host. Ends the process with exit code 2 if one is missing or means nothing.
    pub(crate) fn new_names(&self) -> (Option<&str>, Option<&str>) {
        let (name, host) = (self.name.as_deref(), self.homehost.as_deref());
        let takes_names = match self.what {
            What::Name | What::Homehost => true,
            What::Ppl
            | What::NoPpl
            | What::Resync
            | What::NoBbl
            | What::Bbl
            | What::Uuid
            | What::DeviceSize
            | What::LogicalBlockSize
            | What::LayoutOriginal
            | What::LayoutAlternate => false,
        };
        let wrong = match (self.what, name, host) {
            _ if self.uuid.is_some() && self.what != What::Uuid => "--uuid is for update uuid",
            (What::Name, None, _) => "update name takes --name NAME",
            (What::Homehost, Some(_), _) => "--name is for update name",
            (What::Homehost, None, None) => "update homehost takes --homehost HOST",
            (_, Some(_), _) | (_, _, Some(_)) if !takes_names => {
                "--name and --homehost are for update name and update homehost"
            }
            (_, _, _) => return (name, host),
        };
        usage_error_of(UpdateArgs::augment_args(Command::new("update").bin_name("uraid update")), wrong)
    }
}

fn what(text: &str) -> Result<What, String> {
    const EXPECTED: &str = "expected ppl, no-ppl, resync, name, homehost, no-bbl, bbl, uuid, devicesize, \
                            logical-block-size, layout-original or layout-alternate";
    match text {
        "ppl" => Ok(What::Ppl),
        "no-ppl" => Ok(What::NoPpl),
        "resync" => Ok(What::Resync),
        "name" => Ok(What::Name),
        "homehost" => Ok(What::Homehost),
        "no-bbl" => Ok(What::NoBbl),
        "bbl" => Ok(What::Bbl),
        "uuid" => Ok(What::Uuid),
        "devicesize" => Ok(What::DeviceSize),
        "logical-block-size" => Ok(What::LogicalBlockSize),
        "layout-original" => Ok(What::LayoutOriginal),
        "layout-alternate" => Ok(What::LayoutAlternate),
        "no-bitmap" => Err("start the array and use `uraid bitmap ARRAY none`".to_owned()),
        "force-no-bbl" => Err(format!(
            "a list that names bad blocks is not dropped: they would be read as if they were good; {EXPECTED}"
        )),
        "home-cluster" | "nodes" | "summaries" | "super-minor" | "byteorder" | "sparc2.2" | "metadata"
        | "revert-reshape" | "layout-unspecified" => {
            Err(format!("uraid does not change that: use mdadm, or {EXPECTED}"))
        }
        _ => Err(EXPECTED.to_owned()),
    }
}
