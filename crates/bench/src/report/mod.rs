//! How figures are shown: as a table, as JSON, as a picture.
//! Owns: the forms. Not here: the figures (`measure`, `figures`), where text goes (`screen`). Called by `scenario`, `nbd`
//! and `kernels`.

pub mod plot;
pub mod table;
