//! File systems on a served array.
//! Owns: the way from an export to a mounted file system, trees of files to fill it with. Not here: what is written to it
//! and when (`day`, the tests). Called by `day` and by tests.

pub mod mount;
pub mod tree;
