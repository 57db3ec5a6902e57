//! What goes through the whole array beside the requests: resync, recovery, replacement, check and repair.
//! Owns: when a pass runs (`schedule`), each shard's part of it (`shard_pass`), one window (`window`), what distinguishes
//! the kinds of passes (`kinds`). Not here: the locks and the I/O of a row (`row`). Called by `command` and `array`.

pub(crate) mod corrector;
pub(crate) mod holes;
pub(crate) mod kinds;
pub(crate) mod pace;
pub(crate) mod passes;
pub(crate) mod resync;
pub(crate) mod schedule;
pub(crate) mod shard_pass;
pub(crate) mod torn_resync;
pub(crate) mod window;
