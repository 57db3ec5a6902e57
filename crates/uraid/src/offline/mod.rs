//! Verbs for the members of arrays that do not run: what their superblocks say, and how it is changed.
//! Owns: the order of checks and writes of `update` and `zero-superblock`, the forms of `examine`. Not here: new arrays
//! (`create`), the bytes of an array (`copy`), the bytes of superblocks (`uraid_format`). Called by `main` alone.

pub(crate) mod examine;
pub(crate) mod update;
pub(crate) mod zero;
