//! Values of options as people type them: numbers, times, processors, levels, policies.
//! Owns: how they are read, the messages about others. Not here: options themselves, which the verbs have (`uraid`,
//! `bench-command`).
//! Invariant: one kind of value is read the same way by all verbs.

mod geometry;
mod number;
mod policy;
mod processors;
mod time;
mod usage;

pub use geometry::{chunk_size, layout_number, level};
pub use number::number;
pub use policy::{Policy, consistency_policy};
pub use processors::{Processors, parse_processors};
pub use time::{MEMBER_TIMEOUT_TEXT, SPIN_TEXT, parse_member_timeout, parse_spin, parse_time, parse_wait};
pub use usage::{usage_error, usage_error_of, usage_text};

/// A slot without a member, in a list of members, as in mdadm.
pub const MISSING: &str = "missing";
