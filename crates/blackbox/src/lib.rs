//! The black box: what a user's machine does to uraid, done to the real binary over the real socket.
//! Owns: starting and killing the binary, an independent NBD client, a model of what every sector may hold.
//! Not here: anything of uraid's own code - a fault shared by both ends must not hide itself (no import of another crate).
//! Invariant: leaves no process, mount or file behind. Spec: docs/operating/errors.md; the NBD protocol.

pub mod book;
pub mod day;
pub mod filesystem;
pub mod members;
pub mod nbd;
pub mod programs;
pub mod random;
pub mod sectors;
pub mod storm;
