//! How many more members an array can lose, and what the loss of one more would cost.
//! Owns: [`Redundancy`], from the report's geometry and members. Not here: whether an array can serve (`uraid_layout`),
//! which member fails (`engine`), what a status says of it.
//! Invariant: it never promises more than the layout keeps: where members are not alike, the worst choice counts.

use super::{Report, WHOLE_REPLACEMENT};
use uraid_block::{ArraySector, Sectors, Slot, SlotSet};
use uraid_layout::{Layout, Level, Spec};

/// What is between the array's data and their loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Redundancy {
    /// How many more members may fail, whichever they are, without loss.
    pub left: u16,
    /// How many may fail if all members are there and in sync.
    pub full: u16,
    /// Bytes of the array that are lost, or cannot be trusted, after the failure of the one member that costs most.
    pub exposed_bytes: u64,
}

impl Report {
    /// `None`: the geometry is not known.
    pub fn redundancy(&self) -> Option<Redundancy> {
        let layout = self.layout_of_geometry()?;
        let usable: SlotSet = (0..layout.slots()).filter(|slot| self.is_in_sync(*slot)).map(Slot).collect();
        let size = layout.array_size().bytes();
        if !layout.can_serve(&usable) {
            return Some(Redundancy { left: 0, full: layout.tolerates(), exposed_bytes: size });
        }
        let is_parity = layout.level().is_parity();
        let (left, part) = if is_parity { rows(&layout, &usable) } else { copies(&layout, &usable) };
        let exposed = Part::of(size, part);
        let exposed_bytes = match (&self.resync, &self.recovery) {
            // Until its parity is computed, a row cannot give back what a member held.
            (Some(resync), _) if is_parity => exposed.max(Part::of(size, left_of(resync.done, resync.total))),
            // What the pass has copied is no longer exposed.
            (None, Some(recovery)) => Part::of(exposed, left_of(recovery.done, recovery.total)),
            (Some(_) | None, Some(_) | None) => exposed,
        };
        Some(Redundancy { left, full: layout.tolerates(), exposed_bytes })
    }

    /// How many more members may fail, whichever they are, before data is lost. Members that are being recovered do not
    /// count yet. On raid10 the worst case is that the members which fail have the same data.
    pub fn redundancy_left(&self) -> u16 {
        self.redundancy().map_or_else(|| self.redundancy_by_level(), |redundancy| redundancy.left)
    }

    /// Whether the level has copies or parity.
    pub fn is_redundant(&self) -> bool {
        !matches!(self.level.as_str(), "raid0" | "linear")
    }

    /// [`Report::redundancy_left`] where the geometry is not known.
    fn redundancy_by_level(&self) -> u16 {
        let missing = self.slots().chars().filter(|&letter| letter == '_').count();
        let missing = u16::try_from(missing).unwrap_or(u16::MAX);
        let at_most: u16 = match self.level.as_str() {
            "raid1" => self.raid_devices.saturating_sub(1),
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            "raid10" => self.copies_by_name().saturating_sub(1),
            _ => 0,
        };
        at_most.saturating_sub(missing)
    }

    /// The copies of each sector on raid10, from `near=2, far=2`.
    fn copies_by_name(&self) -> u16 {
        let layout = self.layout.as_deref().unwrap_or_default();
        let of_parts = layout.split(", ").filter_map(|part| part.split_once('=')?.1.parse::<u16>().ok());
        of_parts.fold(1, u16::saturating_mul)
    }

    fn layout_of_geometry(&self) -> Option<Layout> {
        let geometry = self.geometry.as_ref()?;
        let spec = Spec {
            level: Level::parse(&self.level)?,
            layout: geometry.layout,
            chunk: Sectors(geometry.chunk),
            raid_disks: self.raid_devices,
            size: Sectors(geometry.size),
            member_sizes: geometry.member_sizes.iter().copied().map(Sectors).collect(),
        };
        Layout::new(&spec).ok()
    }

    fn is_in_sync(&self, slot: u16) -> bool {
        let holds_all = |state: &str| state == "active sync" || state == WHOLE_REPLACEMENT;
        self.members.iter().any(|member| member.slot == Some(slot) && holds_all(&member.state))
    }
}

/// A part of a whole: `of` of `all`.
#[derive(Clone, Copy)]
struct Part {
    of: u64,
    all: u64,
}

impl Part {
    /// So much of `whole`, rounded up.
    fn of(whole: u64, part: Part) -> u64 {
        if part.all == 0 {
            return 0;
        }
        let product = u128::from(whole) * u128::from(part.of.min(part.all));
        u64::try_from(product.div_ceil(u128::from(part.all))).expect("a part is at most the whole")
    }
}

fn left_of(done: u64, total: u64) -> Part {
    Part { of: total.saturating_sub(done), all: total }
}

/// With parity, all rows lack the same members.
fn rows(layout: &Layout, usable: &SlotSet) -> (u16, Part) {
    let missing = usize::from(layout.slots()) - usable.count();
    let left = usize::from(layout.tolerates()) - missing;
    (u16::try_from(left).expect("at most what a level tolerates"), Part { of: u64::from(left == 0), all: 1 })
}

/// With copies, the chunk that has the fewest of them counts; what one member costs is the chunks that it alone has.
fn copies(layout: &Layout, usable: &SlotSet) -> (u16, Part) {
    // Which slots hold a chunk is repeated after as many chunks as there are slots.
    let (chunk, size) = (layout.chunk().0, layout.array_size().0);
    let starts: Vec<u64> = match chunk {
        0 => vec![0],
        chunk => (0..u64::from(layout.slots())).map(|nth| nth * chunk).filter(|start| *start < size).collect(),
    };
    let (mut fewest, mut alone_on) = (usize::from(layout.copies_count()), vec![0_u64; usize::from(layout.slots())]);
    for start in &starts {
        let holders: SlotSet = layout.copies(ArraySector(*start)).iter().map(|(slot, _)| *slot).collect();
        let holders = holders.and(*usable);
        fewest = fewest.min(holders.count());
        if let (1, Some(slot)) = (holders.count(), holders.iter().next()) {
            alone_on[slot.index()] += 1;
        }
    }
    // Of linear, whose chunks are not alike, the whole counts.
    let most =
        if layout.level() == Level::Linear { starts.len() as u64 } else { alone_on.into_iter().max().unwrap_or(0) };
    let left = u16::try_from(fewest.saturating_sub(1)).expect("fewer than there are slots");
    (left, Part { of: most, all: starts.len() as u64 })
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;
    use super::super::{Geometry, Member, PassProgress};
    use super::*;

    const MEMBER_SECTORS: u64 = 1 << 20;

    /// An array with so many slots, of which these are empty.
    fn array(level: &str, layout: u32, slots: u16, empty: &[u16]) -> Report {
        let in_slot = |slot: u16| Member {
            number: Some(slot.into()),
            state: "active sync".to_owned(),
            path: Some(format!("/disks/m{slot}")),
            ..Member::removed(slot)
        };
        let member = |slot| if empty.contains(&slot) { Member::removed(slot) } else { in_slot(slot) };
        let is_striped = matches!(level, "raid0" | "linear");
        let geometry = Geometry {
            layout,
            chunk: if level == "raid1" { 0 } else { 128 },
            size: if is_striped { 0 } else { MEMBER_SECTORS },
            member_sizes: if is_striped { vec![MEMBER_SECTORS; slots.into()] } else { Vec::new() },
        };
        Report {
            level: level.to_owned(),
            raid_devices: slots,
            members: (0..slots).map(member).collect(),
            geometry: Some(geometry),
            ..degraded()
        }
    }

    /// How many are left, and the exposed bytes in members' worth of data.
    fn of(report: &Report) -> (u16, f64) {
        let found = report.redundancy().expect("a good geometry");
        assert!(found.left <= found.full, "{found:?}");
        (found.left, found.exposed_bytes as f64 / (MEMBER_SECTORS * 512) as f64)
    }

    #[test]
    fn each_level_says_how_many_members_may_still_go() {
        let near_2 = 0x102;
        for (level, layout, slots, empty, expected) in [
            ("raid1", 0, 3, &[][..], (2, 0.0)),
            ("raid1", 0, 3, &[1], (1, 0.0)),
            ("raid1", 0, 2, &[0], (0, 1.0)),
            ("raid5", 2, 4, &[], (1, 0.0)),
            ("raid5", 2, 4, &[3], (0, 3.0)),
            ("raid5", 2, 4, &[2, 3], (0, 3.0)),
            ("raid6", 2, 5, &[], (2, 0.0)),
            ("raid6", 2, 5, &[0], (1, 0.0)),
            ("raid6", 2, 5, &[0, 4], (0, 3.0)),
            ("raid10", near_2, 4, &[], (1, 0.0)),
            // The chunks of the missing member are alone on its neighbour.
            ("raid10", near_2, 4, &[3], (0, 1.0)),
            ("raid10", near_2, 4, &[0, 3], (0, 1.0)),
            ("raid0", 2, 3, &[], (0, 1.0)),
            ("linear", 0, 3, &[], (0, 3.0)),
        ] {
            assert_eq!(of(&array(level, layout, slots, empty)), expected, "{level} {layout:#x} {slots} {empty:?}");
        }
    }

    #[test]
    fn a_pass_takes_away_what_it_has_done_from_what_is_exposed() {
        let half = || Some(PassProgress { done: 100, total: 200, sectors_per_second: None, seconds_left: None });
        let mut report = array("raid5", 2, 4, &[3]);
        report.recovery = half();
        assert_eq!(of(&report), (0, 1.5));
        let mut report = array("raid6", 2, 5, &[]);
        report.resync = half();
        assert_eq!(of(&report), (2, 1.5), "parity that is not computed yet");
        let mut report = array("raid1", 0, 2, &[]);
        report.resync = half();
        assert_eq!(of(&report), (1, 0.0), "each copy is whole");
        report.geometry = None;
        assert_eq!(report.redundancy(), None);
    }

    #[test]
    fn each_level_says_how_many_may_go_in_the_worst_case() {
        // One of three is gone.
        let left = |level: &str, layout: &str| {
            let report = Report {
                level: level.to_owned(),
                layout: Some(layout.to_owned()).filter(|it| !it.is_empty()),
                ..degraded()
            };
            report.redundancy_left()
        };
        assert_eq!([left("raid1", ""), left("raid5", "left-symmetric"), left("raid6", "left-symmetric")], [1, 0, 1]);
        assert_eq!([left("raid10", "near=2"), left("raid10", "near=3"), left("raid10", "near=2, far=2")], [0, 1, 2]);
        assert_eq!([left("raid0", "original"), left("linear", "")], [0, 0]);
    }
}
