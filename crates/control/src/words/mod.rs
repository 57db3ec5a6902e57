//! Names, dates and words as people write and read them.
//! Owns: names of arrays and of their files, dates as text, mdadm's words for members. Not here: names of members
//! (`member_name`). Called by all rooms above; it calls no one.

pub mod dates;
pub mod member_words;
pub mod names;
