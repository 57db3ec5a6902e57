//! mdadm's words that stand for members.
//! Owns: the words. Not here: which members they mean now (`serve`).

/// All failed members.
pub const FAILED: &str = "failed";
/// All members whose device is gone.
pub const DETACHED: &str = "detached";
/// All former members whose device is there.
pub const MISSING: &str = "missing";
