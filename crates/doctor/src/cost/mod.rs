//! What an array, a file system on it or a file costs in I/O or safety.
//! Owns: the facts that are asked for, the findings that follow from them, the price of writing a file. Not here: members
//! whose superblocks are lost (`order`), plans of writes (`engine`). It knows nothing of `order`, and `order` nothing of it.

pub(crate) mod extents;
pub(crate) mod facts;
pub(crate) mod findings;
pub(crate) mod healthy;
