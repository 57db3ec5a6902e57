//! The shape in the state of an array.
//! Owns: what follows from the layout for the state. Not here: addresses (`uraid_layout`).

use super::Master;
use crate::words::progress;
use uraid_block::Sectors;
use uraid_layout::Level;

impl Master {
    pub(super) fn slots(&self) -> u16 {
        self.shape.layout().slots()
    }

    pub(super) fn is_redundant(&self) -> bool {
        self.shape.layout().level().is_redundant()
    }

    pub(super) fn is_mirror(&self) -> bool {
        matches!(self.shape.layout().level(), Level::Raid1 | Level::Raid10)
    }

    /// What a resync goes through.
    pub(super) fn resync_end(&self) -> Sectors {
        progress::total(self.shape.layout())
    }
}
