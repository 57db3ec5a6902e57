//! New superblocks, and changes of them, without a running array: `create`, a member that joins, `update`.
//! Owns: which bytes the members get. Not here: the bytes of each structure (`superblock`, `logs`), changes by a running array
//! (`engine`). Called by no other room.

pub(crate) mod add;
pub mod create;
pub mod update;
