//! All clients of a server: which are admitted, which are connected, which are cut.
//! Owns: decisions over more than one connection. Not here: one connection (`connection`), accepting and stopping
//! (`server`). Called by `job` and `server`.

pub(crate) mod admission;
pub(crate) mod connections;
pub(crate) mod watchdog;
