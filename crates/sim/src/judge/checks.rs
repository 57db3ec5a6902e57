//! The end-of-run checks, one per file.
//! Owns: the list. Not here: I1 to I3 of running reads (`oracle`, called by `client`), I8, I9, M1, M8 of every access
//! (`guard`), L1 and L3 (`rig`).

mod content_after_cut;
mod content_at_rest;
mod dirty_degraded;
pub(crate) mod mdadm_force;
mod redundancy;
pub(crate) mod unreadable_stays_dirty;
mod who_is_in;
