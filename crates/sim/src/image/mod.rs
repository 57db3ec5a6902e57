//! What lies on a member beside its data.
//! Owns: where that is, new bitmaps and logs, reading them back from a member's bytes. Not here: what is drawn of them
//! (`setup`), which bytes are right (`judge`). Called by all rooms above.

pub mod areas;
pub mod bits;
pub mod logs;
pub mod ppl;
