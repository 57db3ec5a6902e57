//! `uraid check`, `repair`, `idle`, `freeze`, `unfreeze` and `speed` on the command line.
//! Owns: their options and help texts. Not here: what they do (`running::check`, `running::passes`).

use clap::Args;
use std::path::PathBuf;
use uraid_block::sizes::{SizeError, parse_size_or_zero};

pub(super) const CHECK: &str = "\
Compare all copies, or parity with data, while clients are served, and count what disagrees. A check
writes only sectors that a member cannot read: it writes them again from the other members, as md
does. `uraid detail --mismatches` lists what it has found, with addresses.

One check or repair runs at a time; a resync or recovery that becomes due ends it. A stop ends it,
too: the next start does not continue it.

On raid1 and raid10, copies may differ without harm where a sector was discarded, or was changed in
memory while the kernel's md wrote it. md counts these, too.";

pub(super) const CHECK_AFTER: &str = "\
EXAMPLES
  uraid check home
  uraid check --wait home && echo all agrees
  uraid check --wait --json home
  uraid detail --mismatches home

EXIT CODES
  0  begun; with --wait: complete, and all agrees
  1  refused, or with --wait: it ended before it was complete
  2  the command line is wrong
  3  with --wait: complete, and sectors disagree that were not corrected, or could not be read or compared";

pub(super) const REPAIR: &str = "\
Compare as `uraid check` does, and make what disagrees agree:

  mirrors of three or more  what most copies say counts, sector by sector; the others are named as wrong
  mirrors of two            it cannot be known which copy is wrong: that of the first member counts
  raid6                     P and Q find a single wrong member of a row: it is named and corrected
  raid4, raid5              it cannot be known what is wrong: parity is computed from the data

Where no majority and no single wrong member is found, uraid does what md does: the first copy counts,
or parity is computed from the data. A repair does not mark the array dirty: a crash leaves a sector as
it was, or right.";

pub(super) const REPAIR_AFTER: &str = "\
EXAMPLES
  uraid repair home
  uraid repair --wait home
  uraid repair --wait --json home

EXIT CODES
  as those of `uraid check`; what was corrected counts as agreeing";

/// Options of `uraid check` and `uraid repair`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// Wait until it has ended, with its progress on a terminal, and print what it has found
    #[arg(short = 'W', long)]
    pub wait: bool,
    /// With --wait: print the result as JSON
    #[arg(long, requires = "wait")]
    pub json: bool,
    /// The array's name, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Option<String>,
}

pub(super) const IDLE: &str = "End the check or repair of a running array, and continue what `freeze` paused.";

pub(super) const IDLE_AFTER: &str = "\
EXAMPLES
  uraid idle home

A check or repair ends where it is; what it has found until then is kept. A resync or recovery
continues, also one that `uraid freeze` has paused, as with md's `idle`.";

pub(super) const FREEZE: &str = "Pause the resync, recovery, check or repair of a running array.";

pub(super) const FREEZE_AFTER: &str = "\
EXAMPLES
  uraid freeze home; uraid unfreeze home

This pauses only resync, recovery, check and repair: the one that runs waits where it is, and none
begins, until `uraid unfreeze` or `uraid idle`. Clients are served meanwhile, and the next start of the
array is not paused. md's `frozen` ends a check; uraid continues it after `uraid unfreeze`.

An array whose state is `frozen` in `uraid detail` is something else: see `uraid unfreeze --help`.";

pub(super) const UNFREEZE_AFTER: &str = "\
EXAMPLES
  uraid unfreeze home

This continues a resync, recovery, check or repair that `uraid freeze` has paused.

An array whose state is `frozen` in `uraid detail` takes no more writes because of an error. `uraid
unfreeze` does not help there: `uraid detail` shows the reason, `uraid fail --help` what helps.";

/// Options of the commands that take only an array.
#[derive(Args, Debug)]
pub(crate) struct PassArgs {
    /// The control socket of the process that serves the array
    #[arg(long, value_name = "SOCK", conflicts_with = "array")]
    pub control: Option<PathBuf>,
    /// The array's name, or one of its members
    #[arg(required_unless_present = "control", value_name = "ARRAY")]
    pub array: Option<String>,
}

pub(super) const SPEED: &str = "\
Show or set the speed limits of resync, recovery, check and repair of a running array, in KiB a second
of each member, as md's sync_speed_min and sync_speed_max. A pass (any of these) is never faster than
--max. While clients are active, a pass that is faster than --min takes at most a tenth of the time.
While they are quiet, it is as fast as the members are.

A limit that is not given stays as it is. An array starts with a minimum of 1000, as md does, and
without a maximum; md's is 200000. The limits last until the array is stopped.";

pub(super) const SPEED_AFTER: &str = "\
EXAMPLES
  uraid speed home
  uraid speed home --min 1000 --max 200000
  uraid speed home --max 200M                  200 MiB a second
  uraid speed home --min 0 --max 0             the limits of an array that starts
  uraid speed home --min 1000000000            never wait for clients";

/// Options of `uraid speed`.
#[derive(Args, Debug)]
pub(crate) struct SpeedArgs {
    /// The array.
    #[command(flatten)]
    pub of: PassArgs,
    /// Above this speed, take at most a tenth of the time while clients are active: KiB a second of each member, or with
    /// K, M, G; 0: 1000, as an array starts
    #[arg(long, value_name = "SPEED", value_parser = parse_speed)]
    pub min: Option<u64>,
    /// Never be faster: KiB a second of each member, or with K, M, G; 0: no limit
    #[arg(long, value_name = "SPEED", value_parser = parse_speed)]
    pub max: Option<u64>,
}

/// KiB a second, from the text of a size.
fn parse_speed(text: &str) -> Result<u64, SizeError> {
    let sectors = parse_size_or_zero(text)?;
    // Less than a KiB is not no limit.
    Ok(sectors.0.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_takes_the_units_of_a_size() {
        assert_eq!(parse_speed("10M"), Ok(10_240));
        assert_eq!(parse_speed("1000"), Ok(1000));
        assert_eq!((parse_speed("0"), parse_speed("1s")), (Ok(0), Ok(1)));
        let error = parse_speed("fast").unwrap_err().to_string();
        assert!(error.starts_with("\"fast\" is not a size, expected a number with K, M, G"), "{error}");
    }
}
