//! The settings of an array, fixed when it is opened.
//! Owns: [`Config`] and its defaults. Not here: what a setting changes.

use crate::words::progress::WINDOW;
use crate::words::verdict::{OnFull, Policy};
use std::time::Duration;
use uraid_block::Sectors;

/// Tunable settings. Every limit is set at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Open for reading only; no member is written.
    pub read_only: bool,
    /// How long an array must be without a write before it is marked clean (md: safe_mode_delay).
    pub clean_after: Duration,
    /// Serve a dirty read-only mirror from another copy if the canonical one cannot be read.
    pub force: bool,
    /// A member with more read errors than this is failed if the array can serve without it (md: max_read_errors). The
    /// count is halved for each hour without an error. 0: never.
    pub read_errors_max: u32,
    /// How long a member's failure is held before it is judged, to collect failures that happen together, such as those
    /// of a controller or a cable. If more members fail than the level tolerates, the array freezes and fails none of
    /// them.
    pub collect_failures: Duration,
    /// What happens to a member that has no room for a write.
    pub on_full: OnFull,
    /// The time between two rounds that clear bits of the bitmap, in place of the one that its header says (md:
    /// daemon_sleep).
    pub clear_bits_after: Option<Duration>,
    /// The longest stretch that a pass locks and reads of a member at once, at least one sector. More than fits one piece
    /// of the pass arena is cut to that.
    pub pass_window: Sectors,
    /// A pass reads nothing where no member stores anything for at least this long.
    pub pass_skip: Sectors,
}

/// md's limit for mirrors. On its parity levels the limit is the number of stripes in the stripe cache.
const READ_ERRORS_MAX: u32 = 20;
const _: () = assert!(READ_ERRORS_MAX > 0, "0 is no limit");

/// A controller that is reset returns the requests of all its disks within about ten milliseconds, and busy shards
/// report them no later than that. A client waits this long once for each failed member; the disk itself took longer to
/// fail.
const COLLECT_FAILURES: Duration = Duration::from_millis(200);

/// 64 MiB. Members are asked for holes by a system call each; reading what is shorter takes no longer.
const PASS_SKIP: Sectors = Sectors(131_072);

impl Default for Config {
    fn default() -> Config {
        Config {
            read_only: false,
            clean_after: Duration::from_millis(200),
            force: false,
            read_errors_max: READ_ERRORS_MAX,
            collect_failures: COLLECT_FAILURES,
            on_full: OnFull::Freeze,
            clear_bits_after: None,
            pass_window: Sectors(WINDOW),
            pass_skip: PASS_SKIP,
        }
    }
}

impl Config {
    /// The inputs of a verdict, for a level with or without redundancy.
    pub(crate) fn policy(&self, is_redundant: bool) -> Policy {
        Policy { is_redundant, on_full: self.on_full }
    }
}
