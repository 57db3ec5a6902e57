//! What goes through the whole array beside the requests: resync, recovery, replacement, check and repair.
//! Owns: when a pass runs, each shard's part of it, one window, what its end changes. Not here: the locks and the I/O
//! of a row (`row`). Called by `command` and `array`.

pub(crate) mod corrector;
pub(crate) mod pace;
pub(crate) mod passes;
pub(crate) mod resync;
pub(crate) mod shard_pass;
pub(crate) mod torn_resync;
