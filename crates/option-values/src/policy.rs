//! How an array is made consistent after a crash, as mdadm's `--consistency-policy` says it.
//! Owns: [`Policy`], its words. Not here: which levels can have it (`uraid_format`).

use std::fmt;

/// How an array is made consistent after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// By a resync of everything.
    Resync,
    /// By a write-intent bitmap.
    Bitmap,
    /// By a partial parity log.
    Ppl,
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Policy::Resync => "resync",
            Policy::Bitmap => "bitmap",
            Policy::Ppl => "ppl",
        })
    }
}

/// Reads a policy; one that uraid does not have is refused with the others.
pub fn consistency_policy(text: &str) -> Result<Policy, String> {
    match text {
        "resync" => Ok(Policy::Resync),
        "bitmap" => Ok(Policy::Bitmap),
        "ppl" => Ok(Policy::Ppl),
        "journal" => Err("uraid makes no arrays with a journal, expected resync, bitmap or ppl".to_owned()),
        other => Err(format!("no such policy: {other}, expected resync, bitmap or ppl")),
    }
}
