//! What a partial parity log makes good, for an array that is only read.
//! Owns: the parity that a start for writing would write, laid over the members in memory. Not here: which stretches
//! (`engine::assemble`), the same on the members (`engine::ppl`), the logs (`uraid_format::ppl`).
//! Invariant: nothing is written. What cannot be made good stays in the plan, and the array is not read without
//! `--force`.

use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors, Slot};
use uraid_engine::{MemberPlan, Place, PplReplay, StartPlan};
use uraid_host::{Access, Claimed, Overlay};

/// Lays what the logs name over the members of the plan, by candidate. If something in it cannot be read, it stays in the
/// plan.
pub(super) fn lay_over(plan: &mut StartPlan, members: &[Claimed]) {
    let Some(ppl) = plan.ppl.as_mut().filter(|ppl| plan.read_only.is_some() && !ppl.replays.is_empty()) else { return };
    let with_slot = plan.members.iter().filter(|member| member.place != Place::Spare);
    if with_slot.clone().any(|member| members[member.candidate].access() != Access::ReadOnly) {
        return;
    }
    let replays = std::mem::take(&mut ppl.replays);
    let mut overlays: Vec<Overlay> = plan.members.iter().map(|_| Overlay::default()).collect();
    let mut left = Vec::new();
    for replay in replays {
        let row = Row { members: &plan.members, claimed: members, replay: &replay };
        match row.parity() {
            Some(parity) => parity.into_iter().for_each(|(member, at, bytes)| overlays[member].insert(at, &bytes)),
            None => left.push(replay),
        }
    }
    for (member, overlay) in plan.members.iter().zip(overlays).filter(|(_, overlay)| !overlay.is_empty()) {
        members[member.candidate].lay_over(overlay);
    }
    plan.ppl.as_mut().expect("it was there").replays = left;
}

/// A stretch of a row that was being written.
struct Row<'a> {
    members: &'a [MemberPlan],
    claimed: &'a [Claimed],
    replay: &'a PplReplay,
}

/// A member, a sector of its device, and what belongs there.
type Laid = (usize, Sector, Vec<u8>);

impl Row<'_> {
    /// The parity of each sector that can be made good. Without the member of the parity, or of data that was being
    /// written, it stays as the crash left it: only what was being written depends on that. `None`: a member that is
    /// there could not be read.
    fn parity(&self) -> Option<Vec<Laid>> {
        let PplReplay { parity_slot, written, length, .. } = self.replay;
        let Some(parity_member) = self.member(*parity_slot) else { return Some(Vec::new()) };
        let Some(data) = written.iter().map(|slot| self.member(*slot)).collect::<Option<Vec<usize>>>() else {
            return Some(Vec::new());
        };
        let sectors = (0..length.0).filter(|sector| !data.iter().any(|member| self.lists(*member, *sector)));
        sectors.map(|sector| self.sector(sector, parity_member, &data)).collect()
    }

    fn sector(&self, sector: u64, parity_member: usize, data: &[usize]) -> Option<Laid> {
        let mut parity = match self.replay.parity.as_slice() {
            [] => vec![0; SECTOR_BYTES],
            known => known[sector as usize * SECTOR_BYTES..][..SECTOR_BYTES].to_vec(),
        };
        let mut block = vec![0; SECTOR_BYTES];
        for member in data {
            let at = self.place(*member, sector).start.0 * SECTOR_BYTES as u64;
            self.claimed[self.members[*member].candidate].read_at(at, &mut block).ok()?;
            parity.iter_mut().zip(&block).for_each(|(sum, byte)| *sum ^= byte);
        }
        Some((parity_member, self.place(parity_member, sector).start, parity))
    }

    /// The member that holds the stretch of a slot.
    fn member(&self, slot: Slot) -> Option<usize> {
        let end = self.replay.at.0 + self.replay.length.0;
        self.members.iter().position(|member| match member.place {
            Place::Slot(of) => of == slot,
            Place::Recovering { slot: of, below } => of == slot && end <= below.0,
            Place::Replacing { .. } | Place::Spare => false,
        })
    }

    fn place(&self, member: usize, sector: u64) -> Range {
        let start = self.members[member].superblock.data_offset + Sectors(self.replay.at.0 + sector);
        Range::new(start, Sectors(1))
    }

    /// Whether the member's list names a sector: that one is computed by the parity as it is.
    fn lists(&self, member: usize, sector: u64) -> bool {
        let place = self.place(member, sector);
        let ranges = &self.members[member].bad_blocks.ranges;
        ranges.iter().any(|bad| Range::new(bad.start, bad.length).overlaps(place))
    }
}
