//! Members of arrays, as files.
//! Owns: a test's folder with its members, what their superblocks say. Not here: serving them (`programs`). Called by `day`,
//! `storm` and by tests.

pub mod scratch;
pub mod superblock;
