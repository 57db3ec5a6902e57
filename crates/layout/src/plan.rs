//! Plans: a request as few member runs as the layout allows.
//! Owns: [`Plan`] and the merger of pieces into runs. Not here: where a piece lies (the level files).
//! Invariant: the parts of a plan and its lost pieces cover the request; runs of a slot ascend and never touch.
//! Spec: DESIGN section 3, "Planning is pure".

use smallvec::SmallVec;
use std::ops::Range;
use uraid_block::{MemberSector, Sectors, Slot};

/// Which copy a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyChoice {
    /// The canonical one: the first in copy order whose slot is usable (raid1: the lowest usable slot).
    First,
    /// Copy `n` modulo the copies if its slot is usable, else the following ones, wrapping.
    Nth(u16),
}

/// What to do on the members to serve one request.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    /// One I/O each, by slot, then ascending on the member.
    pub runs: SmallVec<[Run; 4]>,
    /// The pieces of the request that make up the runs; empty for discards.
    pub parts: SmallVec<[Part; 8]>,
    /// The pieces of the request that have no place on a usable slot, ascending; always empty for discards.
    pub lost: SmallVec<[Part; 2]>,
}

/// A contiguous stretch of one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// On which member.
    pub slot: Slot,
    /// Its first sector.
    pub at: MemberSector,
    /// How many sectors.
    pub length: Sectors,
    /// Which of [`Plan::parts`] it consists of, in member order; their lengths sum up to `length`. Empty for discards.
    pub parts: Range<u32>,
}

/// A piece of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// From the start of the request.
    pub offset: Sectors,
    /// How many sectors.
    pub length: Sectors,
}

impl Plan {
    /// The pieces of the request that `run` consists of, in member order. `run` must be one of this plan.
    pub fn parts_of(&self, run: &Run) -> &[Part] {
        &self.parts[run.parts.start as usize..run.parts.end as usize]
    }
}
