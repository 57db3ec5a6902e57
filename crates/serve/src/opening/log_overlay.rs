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

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::ArraySector;
    use uraid_engine::{AssembleOptions, Candidate, assemble};
    use uraid_format::Superblock;
    use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
    use uraid_format::ppl::{PPL_HEADER_BYTES, PplEntry, PplHeader, PplLog, parity_checksum};
    use uraid_layout::Level;

    const SLOTS: u16 = 4;
    const CHUNK: u64 = 16;
    const DEVICE: Sectors = Sectors(8192);
    /// What one write of the log takes: a header, and the parity of a page.
    const STEP: u64 = 2 * PPL_HEADER_BYTES as u64;
    const PAGE: usize = 4096;

    fn superblocks() -> Vec<Superblock> {
        let options = CreateOptions {
            layout: 2,
            chunk: Sectors(CHUNK),
            size: Some(Sectors(CHUNK * 4)),
            policy: NewPolicy::Ppl,
            ..CreateOptions::new(Level::Raid5, SLOTS, [7; 16])
        };
        let device = |n: u16| NewMember::Device { size: DEVICE, uuid: [n as u8 + 1; 16] };
        let made = create(&options, &(0..SLOTS).map(device).collect::<Vec<_>>()).expect("an array");
        made.superblocks.into_iter().flatten().collect()
    }

    fn page(seed: u8) -> Vec<u8> {
        (0..PAGE).map(|at| (at as u8).wrapping_mul(seed | 1) ^ seed).collect()
    }

    fn xor(blocks: &[&[u8]]) -> Vec<u8> {
        (0..PAGE).map(|at| blocks.iter().fold(0, |sum, block| sum ^ block[at])).collect()
    }

    fn written(claimed: &Claimed, at: u64, bytes: &[u8]) {
        claimed.write_at(at, bytes).expect("memory");
    }

    /// Row 0 of a raid5 of four: data on 0, 1, 2, parity on 3. A write of slot `torn` was cut short after its data; md's log
    /// on slot 3 names it, at this place of the ring, behind older headers.
    fn members(torn: u16, position: u64, name: &str) -> (Vec<Superblock>, Vec<Vec<u8>>) {
        let superblocks = superblocks();
        let old: Vec<Vec<u8>> = (0..3).map(|slot| page(slot * 40 + 3)).collect();
        let new = page(200);
        let others: Vec<&[u8]> = (0..3).filter(|slot| *slot != torn).map(|slot| &old[usize::from(slot)][..]).collect();
        let partial = xor(&others);
        for (slot, superblock) in (0..).zip(&superblocks) {
            let claimed = Claimed::open(format!("mem:{}:{name}{slot}", DEVICE.bytes()), Access::ReadWrite);
            let claimed = claimed.expect("memory");
            let data = superblock.data_offset.0 * 512;
            match slot {
                3 => written(&claimed, data, &xor(&[&old[0], &old[1], &old[2]])),
                slot if slot == torn => written(&claimed, data, &new),
                slot => written(&claimed, data, &old[usize::from(slot)]),
            }
            let log = superblock.ppl_extent().expect("it has a log").start.0 * 512;
            if slot != 3 {
                written(&claimed, log, &PplHeader::empty(&[7; 16]).encode()[..]);
                continue;
            }
            for step in 0..=position {
                let is_last = step == position;
                let parity = if is_last { partial.clone() } else { page(step as u8) };
                let entry = PplEntry {
                    data_sector: ArraySector(if is_last { u64::from(torn) * CHUNK } else { 7 * CHUNK }),
                    parity_bytes: PAGE as u32,
                    data_bytes: PAGE as u32,
                    parity_slot: 3,
                    checksum: parity_checksum(&parity),
                };
                let header = PplHeader { generation: step + 1, entries: vec![entry], ..PplHeader::empty(&[7; 16]) };
                written(&claimed, log + step * STEP, &[&header.encode()[..], &parity].concat());
            }
        }
        let mut all = old;
        all[usize::from(torn)] = new;
        (superblocks, all)
    }

    #[test]
    fn wherever_in_the_ring_the_last_entry_is_the_missing_block_is_computed_rightly() {
        let area = superblocks()[3].ppl_extent().expect("it has a log").length.bytes();
        let positions = area / STEP - 1;
        assert!(positions > 100, "{positions}");
        for torn in 0..3 {
            for position in 0..positions {
                let name = format!("ring-{torn}-{position}-");
                let (superblocks, data) = members(torn, position, &name);
                for lost in (0..3).filter(|slot| *slot != torn) {
                    let left: Vec<u16> = (0..SLOTS).filter(|slot| *slot != lost).collect();
                    let open =
                        |slot: &u16| Claimed::open(format!("mem:{}:{name}{slot}", DEVICE.bytes()), Access::ReadOnly);
                    let claimed: Vec<Claimed> = left.iter().map(|slot| open(slot).expect("memory")).collect();
                    let candidates: Vec<Candidate> = left
                        .iter()
                        .zip(&claimed)
                        .map(|(slot, claimed)| {
                            let superblock = Superblock { resync_offset: 0, ..superblocks[usize::from(*slot)].clone() };
                            let ppl = PplLog::read_beside(&superblock, |at, into| claimed.read_at(at, into).is_ok());
                            Candidate { ppl, ..Candidate::new(superblock, DEVICE) }
                        })
                        .collect();
                    let options = AssembleOptions { run: true, read_only: true, ..AssembleOptions::default() };
                    let mut plan = assemble(&candidates, &options).expect("its log makes it good");
                    assert!(plan.must_write_to_read(), "torn {torn}, position {position}");
                    lay_over(&mut plan, &claimed);
                    assert!(!plan.must_write_to_read());
                    let blocks: Vec<Vec<u8>> = plan
                        .members
                        .iter()
                        .map(|member| {
                            let mut block = vec![0; PAGE];
                            let at = member.superblock.data_offset.0 * 512;
                            claimed[member.candidate].read_at(at, &mut block).expect("memory");
                            block
                        })
                        .collect();
                    let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
                    assert!(
                        xor(&blocks) == data[usize::from(lost)],
                        "torn {torn}, position {position}, without {lost}"
                    );
                }
            }
        }
    }
}
