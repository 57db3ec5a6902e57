//! Options that several verbs have: arrays, flags of members, bitmaps, how long members are waited for.
//! Owns: these options, and the messages about them. Not here: plain values (`uraid_option_values`), what one verb alone
//! takes (the rooms of the verbs), the verbs (`cli`). Called by the rooms of verbs and by `cli`; it calls none of them.

mod arrays;
mod bitmap;
mod member_flags;
mod member_timeout;
mod one_array;

pub(crate) use arrays::MemberArrays;
pub(crate) use bitmap::{BitmapPlace, bitmap_place, write_behind};
pub(crate) use member_flags::{ARRAY_AND_MEMBERS, AddFlags, CreateFlags};
pub(crate) use member_timeout::MemberTimeout;
pub(crate) use one_array::OneArray;
