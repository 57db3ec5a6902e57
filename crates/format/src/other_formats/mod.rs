//! What is on a device that is not md's: partition tables, file systems, and what else has a signature.
//! Owns: their bytes, as far as uraid reads them. Not here: md's own. Called by no other room.

pub mod file_system;
pub mod partition;
pub mod signature;
