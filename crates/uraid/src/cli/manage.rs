//! `uraid fail` and `uraid stop` on the command line.
//! Owns: their options and help texts. Not here: what they do (`crate::detail`).

use super::usage_error;
use clap::Args;
use std::path::PathBuf;

pub(super) const FAIL: &str = "\
Declare a member of a running array failed: it is not read or written any more, and the
superblocks of the others say so before this returns. Refused when the array could not be served
without the member, and in an array that is frozen: stop it and start it again.";

pub(super) const FAIL_AFTER: &str = "\
EXAMPLES
  uraid fail home disk1
  uraid fail home 1
  uraid fail --control /tmp/home.ctl disk1";

/// Options of `uraid fail`.
#[derive(Args, Debug)]
pub struct FailArgs {
    /// The control socket of the process that serves the array, in place of ARRAY
    #[arg(long, value_name = "SOCK")]
    pub control: Option<PathBuf>,
    /// The array's name or one of its members, then the member's path or slot
    #[arg(required = true, num_args = 1..=2, value_names = ["ARRAY", "MEMBER"])]
    array_and_member: Vec<String>,
}

impl FailArgs {
    /// The array, where the control socket does not say it, and the member. Ends the process when the words do not
    /// fit, as other wrong command lines do.
    pub fn array_and_member(&self) -> (Option<&str>, &str) {
        match (self.array_and_member.as_slice(), &self.control) {
            ([array, member], None) => (Some(array), member),
            ([member], Some(_)) => (None, member),
            _ => usage_error("fail takes ARRAY MEMBER, or --control SOCK MEMBER"),
        }
    }
}

pub(super) const STOP_AFTER: &str = "\
EXAMPLES
  uraid stop home
  uraid stop --control /tmp/home.ctl
  uraid stop --all home

It returns when the array is stopped and its members can be used by others; one that does not answer
keeps the process, but not the array. Arrays that were given to
one `uraid serve` end together, and are stopped only with --all. An array of arrays takes those along that
it is made of.";

/// Options of `uraid stop`.
#[derive(Args, Debug)]
pub struct StopArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// Also the other arrays that the same process serves
    #[arg(long)]
    pub all: bool,
    /// The array's name, or its members: one is enough
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Vec<String>,
}
