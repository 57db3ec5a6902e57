//! Every address computation of every level: which member sectors hold which array sectors.
//! Owns: levels and layouts with their names, the map of each level, plans of member runs, rows of the parity levels.
//! Not here: bytes on disk (`format`), the choice of members and the I/O itself (`engine`).
//! Invariant: a plan covers exactly its range, never leaves it, and no two array sectors share a place.
//! Spec: docs/md/address-mapping.md; docs/md/behaviour.md#when-an-array-starts, docs/md/behaviour.md#discard.

mod copies;
mod error;
mod grid;
mod level;
mod linear;
mod map;
mod names;
mod plan;
mod raid0;
mod raid1;
mod raid10;
mod raid456;
mod rows;
mod spec;

pub use copies::CopyLayout;
pub use error::LayoutError;
pub use level::Level;
pub use map::Layout;
pub use names::{default_chunk, default_layout, layout_name, parse_layout};
pub use plan::{Copies, CopyChoice, Part, Plan, Run};
pub use raid456::ParityLayout;
pub use rows::{Row, RowBlock, RowMap, RowPart};
pub use spec::Spec;
