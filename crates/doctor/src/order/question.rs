//! The input of a search: geometries, and members with unknown slots.
//! Owns: [`Question`], its bounds, why one is refused. Not here: the answer (`ranking`).

use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_layout::{Layout, Level};

/// More slots would have too many orders.
const SLOTS_MAX: usize = 8;

/// Reads members.
pub trait Members {
    /// Reads one sector of member `index`, counted from the member's start; false when that is not possible.
    fn read(&mut self, index: usize, at: Sector, into: &mut [u8; SECTOR_BYTES]) -> bool;

    /// Progress of the search: `_done` geometries of `_of`.
    fn progress(&mut self, _done: usize, _of: usize) {}
}

/// A geometry in question.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its addresses, with the members in the order in which they are numbered.
    pub layout: Layout,
    /// Where data starts on each member.
    pub data_offset: Sector,
    /// The size of each member's data area, by its number. Used for linear and raid0, whose addresses depend on it.
    pub member_sizes: Vec<Sectors>,
}

/// The input of a search.
#[derive(Clone, Debug)]
pub struct Question {
    /// The geometries in question, the likeliest first, all of one level and number of slots.
    pub trials: Vec<Trial>,
    /// How many members there are, at most as many as slots; the other slots are missing.
    pub members: usize,
}

/// Why there is no ranking.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SearchError {
    /// Too many orders.
    #[error("{found} slots have too many orders, at most {maximum} slots are searched")]
    Slots {
        /// Slots.
        found: usize,
        /// The largest number that is searched.
        maximum: usize,
    },
    /// More members are missing than the level tolerates.
    #[error("{found} members are too few for {slots} slots of {level}")]
    TooFew {
        /// Members.
        found: usize,
        /// Slots.
        slots: usize,
        /// The level.
        level: &'static str,
    },
}

impl Trial {
    /// Fails if this geometry cannot be searched with this many members.
    pub(crate) fn check(&self, members: usize) -> Result<(), SearchError> {
        let (level, slots) = (self.layout.level(), usize::from(self.layout.slots()));
        // The members of a raid1 are alike: it has one order.
        if slots > SLOTS_MAX && level != Level::Raid1 {
            return Err(SearchError::Slots { found: slots, maximum: SLOTS_MAX });
        }
        // A raid10 may survive more than `tolerates`: its orders are checked one by one.
        let is_enough = match level {
            Level::Raid10 => members > 0,
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                members + usize::from(self.layout.tolerates()) >= slots
            }
        };
        if members > slots || !is_enough { Err(self.too_few(members)) } else { Ok(()) }
    }

    pub(crate) fn too_few(&self, found: usize) -> SearchError {
        let layout = &self.layout;
        SearchError::TooFew { found, slots: usize::from(layout.slots()), level: layout.level().name() }
    }

    /// The layout for this order. It differs from `layout` if members of different sizes change places. `None` if there
    /// is no such array.
    pub(crate) fn layout_in(&self, order: &[Option<usize>]) -> Option<std::borrow::Cow<'_, Layout>> {
        use std::borrow::Cow;
        let is_by_size = matches!(self.layout.level(), Level::Linear | Level::Raid0);
        if !is_by_size || self.member_sizes.windows(2).all(|two| two[0] == two[1]) {
            return Some(Cow::Borrowed(&self.layout));
        }
        let mut spec = self.layout.spec().clone();
        let size = |member: &Option<usize>| self.member_sizes.get((*member)?).copied();
        spec.member_sizes = order.iter().map(size).collect::<Option<_>>()?;
        Layout::new(&spec).ok().map(Cow::Owned)
    }
}
