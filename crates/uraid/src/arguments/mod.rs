//! What several verbs take on the command line: numbers, times, processors, geometries, arrays and flags of members.
//! Owns: how these words are read, and the messages about others. Not here: what one verb alone takes (the rooms of the
//! verbs), the verbs (`cli`). Called by the rooms of verbs and by `cli`; it calls none of them.

mod arrays;
mod bitmap;
mod geometry;
mod member_flags;
mod member_timeout;
mod number;
mod one_array;
mod policy;
mod processors;
mod time;
mod usage;

pub(crate) use arrays::MemberArrays;
pub(crate) use bitmap::{BitmapPlace, bitmap_place, write_behind};
pub(crate) use geometry::{chunk_size, layout_number, level};
pub(crate) use member_flags::{ARRAY_AND_MEMBERS, AddFlags, CreateFlags, MISSING};
pub(crate) use member_timeout::MemberTimeout;
pub(crate) use number::number;
pub(crate) use one_array::OneArray;
pub(crate) use policy::{Policy, consistency_policy};
pub(crate) use processors::{Processors, parse_processors};
pub(crate) use time::{MEMBER_TIMEOUT_TEXT, SPIN_TEXT, parse_member_timeout, parse_spin, parse_time, parse_wait};
#[cfg(test)]
pub(crate) use usage::usage_text;
pub(crate) use usage::{usage_error, usage_error_of};
