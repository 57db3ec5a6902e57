//! What a running array is told: start, stop, members that join and leave, `fail`, a bitmap, read-only and back.
//! Owns: which commands are refused, and the order of what each one does. Not here: the state (`state`), what only
//! happens by itself (`pass`, `steward`). Called by `array` alone.

pub(crate) mod bitmap_changer;
pub(crate) mod fail;
pub(crate) mod lifecycle;
pub(crate) mod membership;
pub(crate) mod read_only;
pub(crate) mod reshaper;
