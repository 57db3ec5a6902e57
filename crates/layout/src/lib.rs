//! Every address computation of every level: which member sectors hold which array sectors.
//! Owns: levels and layouts with their names, the map of each level, plans of member runs, rows of the parity levels.
//! Not here: bytes on disk (`format`), the choice of members and the I/O itself (`engine`).
//! Invariant: a plan covers exactly its range, never leaves it, and no two array sectors share a place.
//! Spec: docs/md/address-mapping.md; docs/md/behaviour.md#when-an-array-starts, docs/md/behaviour.md#discard.

mod levels;
mod map;
mod plan;
mod rows;
mod spec;

pub use levels::copies::CopyLayout;
pub use levels::raid456::ParityLayout;
pub use map::Layout;
pub use plan::{Copies, CopyChoice, Part, Plan, Run};
pub use rows::{Row, RowBlock, RowMap, RowPart};
pub use spec::Spec;
pub use spec::error::LayoutError;
pub use spec::level::Level;
pub use spec::names::{default_chunk, default_layout, layout_name, parse_layout};
