//! The partial parity log of a raid5 that starts: what it makes good, and whether a resync is needed all the same.
//! Owns: [`PplPlan`], what an entry says of the rows it names. Not here: reading logs (`uraid_format::ppl`, the caller),
//! making good what they name, and writing them (`ppl`).
//! Invariant: a log is relied upon only if every member with a slot has one that says that it is complete, or, for an
//! array that lacks a member, if md has written them.
//! Spec: docs/format/ppl.md.

use super::choose::Chosen;
use super::{Candidate, Forced};
use crate::words::mark::{self, Mark};
use uraid_block::{ArrayRange, MemberSector, SECTOR_BYTES, Sectors, Slot};
use uraid_format::ppl::{LoggedStretch, PPL_HEADER_SECTORS, PPL_PARITY_MAX, PplLog, PplState};
use uraid_format::{Features, Superblock, update};
use uraid_layout::{Layout, Level, ParityLayout};

/// The partial parity log that an array starts with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PplPlan {
    /// What is made good before the array opens.
    pub replays: Vec<PplReplay>,
    /// Every row that no entry names is consistent. If not, a resync follows.
    pub is_complete: bool,
    /// The most partial parity that one log write of any member has room for.
    pub room: Sectors,
}

/// A stretch of a row that was being written: its parity is the xor of these data blocks, as they are now, and of the
/// partial parity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PplReplay {
    /// The slot of the parity.
    pub parity_slot: Slot,
    /// Where the stretch begins, on every member.
    pub at: MemberSector,
    /// How long it is.
    pub length: Sectors,
    /// The slots of the data that was to be written.
    pub written: Vec<Slot>,
    /// The xor of the data that was not to be written; empty if all of the row's was.
    pub parity: Vec<u8>,
}

/// What the logs of an array say.
pub(super) struct Logs {
    replays: Vec<PplReplay>,
    states: Vec<PplState>,
    room: Sectors,
    is_one_history: bool,
}

/// The superblock of a member as the freshest one has it: an update of a stopped array that was cut short may have given
/// the array a log, or taken it, before it reached this member, and a spare may have missed the update.
pub(super) fn followed(superblock: &Superblock, template: &Superblock) -> Superblock {
    let is_behind = superblock.events < template.events || superblock.own_role().slot().is_none();
    if is_behind { update::with_log_of(superblock, template) } else { superblock.clone() }
}

/// Whether these features say that the array has a log.
pub(super) fn has_log(features: Features) -> bool {
    features.intersects(Features::PPL.with(Features::MULTIPLE_PPLS))
}

impl Logs {
    /// `None` if the array has no log, or one that cannot be kept up to date.
    pub(super) fn of(candidates: &[Candidate], chosen: &Chosen, layout: &Layout, forced: &Forced) -> Option<Logs> {
        let is_raid5 = layout.level() == Level::Raid5;
        let Layout::Parity(layout) = layout else { return None };
        if !is_raid5 || !has_log(chosen.features) || chosen.features.contains(Features::BITMAP_OFFSET) {
            return None;
        }
        let longest = layout.chunk().min(LONGEST);
        let mut logs = Logs {
            replays: Vec::new(),
            states: Vec::new(),
            room: PPL_PARITY_MAX,
            is_one_history: forced.raised.is_empty() && !forced.is_split_brain,
        };
        let with_slot = chosen.slots.iter().chain(&chosen.recovering).map(|(slot, at)| (Some(*slot), *at));
        for (slot, at) in with_slot.chain(chosen.replacing.values().map(|at| (None, *at))) {
            let superblock = followed(&candidates[at].superblock, &chosen.template);
            let room = log_room(&superblock, candidates[at].device_size).filter(|room| *room >= longest)?;
            logs.room = logs.room.min(room);
            if !has_log(candidates[at].superblock.features) {
                // It has missed the superblocks that named the log first.
                logs.states.push(PplState::Damaged);
                continue;
            }
            let log = candidates[at].ppl.as_ref()?;
            // A log on a member that another one is being copied to is that other one's.
            if let Some(slot) = slot {
                logs.add(layout, slot, log);
            }
        }
        Some(logs)
    }

    fn add(&mut self, layout: &ParityLayout, slot: Slot, log: &PplLog) {
        let replays: Option<Vec<_>> = log.stretches.iter().map(|stretch| replays_of(layout, slot, stretch)).collect();
        match replays {
            Some(replays) => {
                self.states.push(log.state);
                self.replays.extend(replays.into_iter().flatten());
            }
            None => self.states.push(PplState::Damaged),
        }
    }

    /// Whether a row that no entry names is consistent.
    fn are_complete(&self) -> bool {
        self.is_one_history && self.states.iter().all(|state| *state == PplState::Complete)
    }

    /// Whether an array that was not stopped, and lacks a member, may start: what the logs do not name was not being
    /// written. md's logs do not tell whether a resync was under way; md starts with them.
    pub(super) fn make_good(&self) -> bool {
        let are_good = self.states.iter().all(|state| *state != PplState::Damaged);
        let has_one = self.states.iter().any(|state| matches!(state, PplState::Complete | PplState::Entries));
        self.are_complete() || self.is_one_history && are_good && has_one
    }

    /// `is_degraded`: blocks of missing members will be computed.
    pub(super) fn into_plan(self, is_dirty: bool, is_degraded: bool) -> PplPlan {
        let is_complete = !is_dirty || self.are_complete() || is_degraded && self.make_good();
        if is_dirty && is_complete {
            mark::hit(Mark::LogComplete);
        }
        let is_used = is_dirty && self.is_one_history;
        PplPlan { replays: if is_used { self.replays } else { Vec::new() }, is_complete, room: self.room }
    }
}

/// The longest stretch of a row that is written at once without covering all of its data (see `RowIo::partial_max`).
const LONGEST: Sectors = Sectors((uraid_block::buffer::LARGE_BLOCK_BYTES / SECTOR_BYTES) as u64);

/// The room for partial parity behind the log's header, which follows the first header.
fn log_room(superblock: &Superblock, device_size: Sectors) -> Option<Sectors> {
    let area = superblock.ppl_room()?;
    let is_inside = area.start.0 + area.length.0 <= device_size.0;
    area.length.0.checked_sub(2 * PPL_HEADER_SECTORS.0).filter(|_| is_inside).map(Sectors)
}

/// What an entry says, by md's rules; `None` if it does not fit the array.
///
/// ```text
///   less parity than a chunk    data_bytes / parity_bytes chunks, each from the first sector's place in its chunk on
///   none                        all chunks of the row, each an equal part of data_bytes
///   a chunk of parity           whole chunks, and perhaps a part of one more
/// ```
fn replays_of(layout: &ParityLayout, slot: Slot, stretch: &LoggedStretch) -> Option<Vec<PplReplay>> {
    let entry = &stretch.entry;
    let in_sectors = |bytes: u32| {
        let bytes = u64::from(bytes);
        bytes.is_multiple_of(SECTOR_BYTES as u64).then(|| bytes / SECTOR_BYTES as u64)
    };
    let (data, parity) = (in_sectors(entry.data_bytes)?, in_sectors(entry.parity_bytes)?);
    let (chunk, across) = (layout.chunk().0, layout.stripe().0 / layout.chunk().0);
    let end = entry.data_sector.0.checked_add(1).filter(|end| *end <= layout.rows_count() * layout.stripe().0)?;
    let first = ArrayRange::new(entry.data_sector, Sectors(end - entry.data_sector.0));
    let part = layout.rows(first).next()?;
    let map = layout.row(part.row);
    let (index, start) = (part.start.0 / chunk, part.start.0 % chunk);
    // The end of the data is `beyond` sectors behind its first sector, counted through the row.
    let (strip, beyond) = match parity {
        0 => (data / across, (across - 1) * chunk + data / across),
        parity if parity < chunk => (parity, (data / parity).checked_sub(1)? * chunk + parity),
        _ => (chunk, data),
    };
    let is_of_row = map.parity == slot && u32::from(slot.0) == entry.parity_slot && start + strip <= chunk;
    if !is_of_row || strip == 0 || parity > chunk {
        return None;
    }
    let chunks_at = |offset: u64| beyond.checked_sub(offset + 1).map_or(0, |left| left / chunk + 1);
    let edge = beyond % chunk;
    let mut replays = Vec::new();
    for (from, to) in [(0, edge.min(strip)), (edge.min(strip), strip)] {
        let count = if from < to { chunks_at(from) } else { 0 };
        if count == 0 {
            continue;
        }
        let written = map.data.get(index as usize..(index + count) as usize)?.to_vec();
        let bytes = |at: u64| at as usize * SECTOR_BYTES;
        let parity = if parity == 0 { Vec::new() } else { stretch.parity[bytes(from)..bytes(to)].to_vec() };
        let at = map.start + Sectors(start + from);
        replays.push(PplReplay { parity_slot: slot, at, length: Sectors(to - from), written, parity });
    }
    Some(replays)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::ArraySector;
    use uraid_format::ppl::PplEntry;
    use uraid_layout::Spec;

    fn layout() -> ParityLayout {
        let (level, chunk, size) = (Level::Raid5, Sectors(16), Sectors(160));
        let spec = Spec { level, layout: 2, chunk, raid_disks: 4, size, member_sizes: Vec::new() };
        let Ok(Layout::Parity(layout)) = Layout::new(&spec) else { panic!("a raid5") };
        layout
    }

    /// Each replay as place, length, written slots and first byte of its parity.
    type Told = (u64, u64, Vec<u16>, Option<u8>);

    fn told(sector: u64, data: u32, parity: u32, slot: u16) -> Option<Vec<Told>> {
        let bytes: Vec<u8> = (0..parity).flat_map(|sector| [sector as u8; SECTOR_BYTES]).collect();
        let entry = PplEntry {
            data_sector: ArraySector(sector),
            parity_bytes: parity * 512,
            data_bytes: data * 512,
            parity_slot: slot.into(),
            checksum: 0,
        };
        let replays = replays_of(&layout(), Slot(slot), &LoggedStretch { entry, parity: bytes })?;
        let told = |one: PplReplay| {
            let written = one.written.iter().map(|slot| slot.0).collect();
            (one.at.0, one.length.0, written, one.parity.first().copied())
        };
        Some(replays.into_iter().map(told).collect())
    }

    #[test]
    fn an_entry_names_rows_as_mds_do() {
        // Row 0 of left-symmetric: data on slots 0, 1, 2, parity on 3; row 1: data on 3, 0, 1, parity on 2.
        assert_eq!(told(4, 8, 8, 3), Some(vec![(4, 8, vec![0], Some(0))]), "a part of one chunk");
        assert_eq!(told(20, 16, 8, 3), Some(vec![(4, 8, vec![1, 2], Some(0))]), "of two chunks, from the second on");
        assert_eq!(told(48 + 2, 3, 3, 2), Some(vec![(18, 3, vec![3], Some(0))]), "the next row");
        assert_eq!(told(4, 24, 0, 3), Some(vec![(4, 8, vec![0, 1, 2], None)]), "all chunks");
        assert_eq!(told(0, 48, 0, 3), Some(vec![(0, 16, vec![0, 1, 2], None)]), "the whole row");
        assert_eq!(told(0, 16, 16, 3), Some(vec![(0, 16, vec![0], Some(0))]), "a whole chunk");
        assert_eq!(told(16, 32, 16, 3), Some(vec![(0, 16, vec![1, 2], Some(0))]), "two whole chunks");
        let and_a_part = Some(vec![(0, 4, vec![0, 1], Some(0)), (4, 12, vec![0], Some(4))]);
        assert_eq!(told(0, 20, 16, 3), and_a_part, "a whole chunk and a part of the next");
        assert_eq!(told(4, 8, 8, 2), None, "parity is elsewhere");
        assert_eq!(told(480, 8, 8, 3), None, "behind the end");
        // Row 9, the last one: data on 3, 0, 1, parity on 2.
        assert_eq!(told(478, 1, 1, 2), Some(vec![(158, 1, vec![1], Some(0))]), "the last sector but one");
        assert_eq!(told(479, 1, 1, 2), Some(vec![(159, 1, vec![1], Some(0))]), "the last sector");
        assert_eq!(told(480, 1, 1, 2), None, "behind it");
        assert_eq!(told(12, 8, 8, 3), None, "more than the chunk has");
        assert_eq!(told(32, 16, 8, 3), None, "more chunks than the row has");
        assert_eq!(told(4, 4, 8, 3), None, "less data than parity");
    }

    /// md's rule, sector by sector: the place in the strip, the slots of the data that is read.
    fn as_md_says(layout: &ParityLayout, entry: &PplEntry) -> Vec<(u64, Vec<Slot>)> {
        let (chunk, data_disks) = (layout.chunk().0, layout.stripe().0 / layout.chunk().0);
        let (data, parity) = (u64::from(entry.data_bytes), u64::from(entry.parity_bytes));
        let first = entry.data_sector.0;
        let (disks, strip, last) = if parity / 512 < chunk {
            let (disks, strip) = match data.checked_div(parity) {
                Some(disks) => (disks, parity / 512),
                None => (data_disks, data / 512 / data_disks),
            };
            (disks, strip, first + (disks.max(1) - 1) * chunk + strip)
        } else {
            (data_disks, chunk, first + data / 512)
        };
        let mut rows = Vec::new();
        for at in 0..strip {
            let sectors = (0..disks).map(|disk| first + at + disk * chunk).filter(|sector| *sector < last);
            let slots: Vec<Slot> = sectors
                .map(|sector| {
                    let part =
                        layout.rows(ArrayRange::new(uraid_block::ArraySector(sector), Sectors(1))).next().unwrap();
                    layout.row(part.row).data[(part.start.0 / chunk) as usize]
                })
                .collect();
            if !slots.is_empty() {
                rows.push((at, slots));
            }
        }
        rows
    }

    /// Whatever an entry says, it names what md takes it for, or nothing.
    #[test]
    fn no_entry_names_what_md_would_not_make_good() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut named = 0;
        for _ in 0..20_000 {
            let chunk = [8, 16, 128, 1024][random(4) as usize];
            let raid_disks = [2, 3, 4, 5, 64][random(5) as usize];
            let spec = Spec {
                level: Level::Raid5,
                layout: random(4) as u32,
                chunk: Sectors(chunk),
                raid_disks,
                size: Sectors(chunk * 3),
                member_sizes: Vec::new(),
            };
            let Ok(Layout::Parity(layout)) = Layout::new(&spec) else { panic!("a raid5") };
            let end = chunk * 3 * u64::from(raid_disks - 1);
            let is_wild = random(20) == 0;
            let parity = if is_wild {
                random(u64::from(u32::MAX))
            } else {
                [0, 512, 4096, chunk * 512, random(chunk + 2) * 512][random(5) as usize]
            };
            let times = 1 + random(u64::from(raid_disks));
            let data = match random(4) {
                0 => random(u64::from(u32::MAX)),
                1 => random(chunk * 3) * 512,
                2 => (1 + random(chunk)) * 512 * u64::from(raid_disks - 1),
                _ => parity * times,
            };
            let sector = if random(50) == 0 { u64::MAX - random(3) } else { random(end + 4) };
            let slot = Slot(random(u64::from(raid_disks)) as u16);
            let entry = PplEntry {
                data_sector: ArraySector(sector),
                parity_bytes: parity.min(16 << 20) as u32,
                data_bytes: data.min(u64::from(u32::MAX)) as u32,
                parity_slot: if random(20) == 0 { random(1 << 32) as u32 } else { slot.0.into() },
                checksum: 0,
            };
            let stretch = LoggedStretch { entry, parity: vec![7; entry.parity_bytes as usize] };
            let Some(replays) = replays_of(&layout, slot, &stretch) else { continue };
            named += 1;
            let chunk_start = |replay: &PplReplay| replay.at.0 % chunk;
            let start = sector % chunk;
            let mut found: Vec<(u64, Vec<Slot>)> = Vec::new();
            for replay in &replays {
                assert!(replay.parity.is_empty() || replay.parity.len() == replay.length.len_bytes());
                assert!(replay.at.0 + replay.length.0 <= chunk * 3 && replay.parity_slot == slot);
                let from = chunk_start(replay) - start;
                found.extend((from..from + replay.length.0).map(|at| (at, replay.written.clone())));
            }
            assert_eq!(found, as_md_says(&layout, &entry), "{entry:?}, chunk {chunk}, of {raid_disks}");
        }
        assert!(named > 100, "{named}");
    }
}
