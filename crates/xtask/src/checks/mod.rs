//! Rules of the sources that neither clippy nor rustfmt checks, and figures about the sources.
//! Owns: imports between crates and among files, lengths and heads. Not here: rules of documents (`documents`), which
//! `tidy` checks with its own. Called by `runs` and `mutants`.

pub(crate) mod figures;
pub(crate) mod floors;
pub(crate) mod imports;
pub(crate) mod rooms;
pub(crate) mod tidy;
