//! Write-behind in the state of an array: which members may have a write after its answer.
//! Owns: that decision. Not here: the writes (`crate::shard::behind`), when a flag of a member changes (`membership`).
//! Invariant: a member that may be behind has its flag in its superblock, durably: the next start then copies from others.

use super::Master;
use crate::state::view::WriteBehind;
use crate::state::view::{Gate, SlotMap};
use uraid_layout::Level;

impl Master {
    /// The members that may be behind: those that are write-mostly and hold everything, while another member does, too. One
    /// that is being copied is not among them: its writes go to two members.
    pub(super) fn behind(&self, slots: &SlotMap) -> Option<WriteBehind> {
        let writes_max = self.bitmap.map_or(0, |bitmap| bitmap.write_behind);
        let is_on = writes_max > 0
            && self.lists_bitmap()
            && Level::from_md(self.template.level) == Some(Level::Raid1)
            && !self.holds_behind
            && self.gate == Gate::Open;
        if !is_on || slots.readable().minus(slots.write_mostly()).is_empty() {
            return None;
        }
        let is_copied = |slot| slots.replacements().any(|copied| copied == slot);
        let slots = slots.readable().and(slots.write_mostly()).iter().filter(|slot| !is_copied(*slot)).collect();
        let behind = WriteBehind { slots, writes_max };
        (!behind.slots.is_empty()).then_some(behind)
    }
}
