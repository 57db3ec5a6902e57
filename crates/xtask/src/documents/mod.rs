//! The documents: what must hold of them, and what commands write into them.
//! Owns: citations, walks, indexes, width, the page of messages, the page of proofs. Not here: what is measured (`proofs`,
//! `bench`). Called by `checks`, `mutants`, `vm` and `runs`.

pub(crate) mod citations;
pub(crate) mod indexes;
pub(crate) mod messages;
pub(crate) mod proof_page;
pub(crate) mod walks;
pub(crate) mod wrap;
