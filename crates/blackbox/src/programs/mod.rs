//! The programs that are run: uraid and those of others.
//! Owns: finding them, one command, a server from its start to its end. Not here: speaking with a server (`nbd`). Called by
//! all rooms above.

pub mod binary;
pub mod foreign;
pub mod server;
