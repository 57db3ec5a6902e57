//! The map of each level, one file a level, and the arithmetic that they share.
//! Owns: the formulas. Not here: what all levels have in common (`map`), the merger of pieces (`plan`). Called by `map`.

pub(crate) mod copies;
pub(crate) mod grid;
pub(crate) mod linear;
pub(crate) mod raid0;
pub(crate) mod raid1;
pub(crate) mod raid10;
pub(crate) mod raid456;
