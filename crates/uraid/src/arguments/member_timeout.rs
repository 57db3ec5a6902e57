//! `--member-timeout` of the verbs that look at members.
//! Owns: [`MemberTimeout`]. Not here: that of `serve`, which fails members.

use clap::Args;
use std::time::Duration;
use uraid_option_values::{MEMBER_TIMEOUT_TEXT, parse_member_timeout};

/// How long members are waited for.
#[derive(Args, Debug)]
pub(crate) struct MemberTimeout {
    /// How long a member may take to answer; after that it counts as unreadable. 100ms to 1440m, a bare number is in
    /// seconds, or 0: no limit
    #[arg(long, value_name = "TIME", value_parser = parse_member_timeout, default_value = MEMBER_TIMEOUT_TEXT)]
    member_timeout: Duration,
}

impl MemberTimeout {
    /// `None`: for ever.
    pub(crate) fn limit(&self) -> Option<Duration> {
        (!self.member_timeout.is_zero()).then_some(self.member_timeout)
    }
}
