//! What several verbs use: looking at members without a claim, whether an array is blank, programs of the system.
//! Owns: these helpers. Not here: what one verb alone needs, decisions. Called by the rooms of verbs; it calls none of
//! them, and does not know the command line.

pub(crate) mod blank;
pub(crate) mod block_devices;
pub(crate) mod places;
pub(crate) mod probe;
pub(crate) mod program;
