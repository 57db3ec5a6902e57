//! The geometry of an array at one moment: a part of its view.
//! Owns: [`Shape`]: the layout and the size; [`NewShape`]. Not here: the data offset of each member (`SlotMember` of `view`), what
//! clients are told (`limits`), how it changes (`reshaper`).
//! Invariant: nothing else keeps a layout. Who needs one asks the view, and asks again after an await. It changes only
//! while no request is inside, so that a request has one shape from its admission to its answer. The level, the slots and
//! the number of shards stay the same while an array runs.

use std::sync::Arc;
use uraid_block::{Sector, Sectors};
use uraid_layout::{CopyLayout, Layout, ParityLayout};

/// Which sector of an array lies where, and how many it has.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Counted where a view is made or dropped: who looks at it only borrows it.
    layout: Arc<Layout>,
}

/// Another shape of an array.
#[derive(Clone, Debug)]
pub struct NewShape {
    /// The layout: of the same level and number within it, and of as many members.
    pub layout: Layout,
    /// The first data sector of the member in each slot.
    pub data_offsets: Vec<Sector>,
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        Arc::ptr_eq(&self.layout, &other.layout) || self.layout.spec() == other.layout.spec()
    }
}

impl Eq for Shape {}

impl Shape {
    /// The shape by this layout.
    pub(crate) fn new(layout: Layout) -> Shape {
        Shape { layout: Arc::new(layout) }
    }

    /// Where every sector lies on its member.
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The layout, for who keeps it longer than the view.
    pub(crate) fn share(&self) -> Arc<Layout> {
        self.layout.clone()
    }

    /// Sectors that a client sees.
    pub(crate) fn size(&self) -> Sectors {
        self.layout.array_size()
    }

    /// The layout of a level with copies. Panics for a parity level.
    #[inline]
    pub(crate) fn copies(&self) -> &CopyLayout {
        match &*self.layout {
            Layout::Copies(layout) => layout,
            Layout::Parity(_) => panic!("rows of parity levels are not copies"),
        }
    }

    /// The layout of a parity level. Panics for a level with copies.
    #[inline]
    pub(crate) fn rows(&self) -> &ParityLayout {
        match &*self.layout {
            Layout::Parity(layout) => layout,
            Layout::Copies(_) => panic!("only parity levels have rows"),
        }
    }
}
