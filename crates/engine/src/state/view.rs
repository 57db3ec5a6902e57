//! The array as every shard sees it at one moment: immutable, replaced whole.
//! Owns: [`View`]: the member and the access of each slot, [`Gate`], which requests are admitted. Not here: when views
//! change (`steward`), what they are derived from (`master`), counting requests per epoch (`epochs`).
//! Invariant: a request runs in the epoch of the view it entered with. A slot gets another member only when the failure
//! of the one before is recorded, and its recovery begins after a drain; or the member that was copied beside it, which
//! every write has gone to.

use crate::state::bits::{BitsRound, BitsShape};
use crate::state::shape::Shape;
use crate::words::bad_blocks::BadBlockList;
use uraid_block::{ErrorKind, IoError, MemberSector, Range, Sector, Sectors, Slot, SlotSet};
use uraid_format::{MemberFlag, Superblock};
use uraid_layout::CopyChoice;

/// Which members may be behind, by a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteBehind {
    /// The slots of these members.
    pub(crate) slots: SlotSet,
    /// How many writes may be behind at once, on all shards together.
    pub(crate) writes_max: u32,
}

/// The number of a view; each change makes a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// Which requests are admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gate {
    /// None yet: the array is starting or stopping. Requests wait.
    Closed,
    /// Reads and writes.
    Open,
    /// Reads only, while the array becomes read-only by command, or takes writes again: the writes that were admitted
    /// end, and superblocks are written.
    NoNewWrites,
    /// Reads only, by choice or because a feature of the metadata is not supported for writing yet.
    ReadOnly,
    /// Reads only, after an error that the array could not survive as a change of its members.
    Frozen(ErrorKind),
    /// None any more: requests are refused.
    Stopped,
}

impl Gate {
    /// Whether writes may be under way, and what follows from them may be recorded: behind a closed gate, those that were
    /// admitted before go on.
    pub(crate) fn lets_writes_end(self) -> bool {
        match self {
            Gate::Open | Gate::Closed | Gate::NoNewWrites => true,
            Gate::ReadOnly | Gate::Frozen(_) | Gate::Stopped => false,
        }
    }
}

/// Which copy a read may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// All copies hold the same: any will do.
    Any,
    /// Copies may differ (dirty and not yet resynced, or frozen in mid-write): only the one a resync would copy from,
    /// so that two reads of one sector agree.
    Canonical,
}

/// What requests may do with the member in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Nothing: the slot is empty, or its member has failed.
    None,
    /// Every write goes to it, reads do not: it does not hold everything yet.
    WriteOnly,
    /// Reads and writes.
    ReadWrite,
}

/// The member in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotMember {
    /// Its index in the start plan.
    pub(crate) index: usize,
    /// Its first data sector.
    pub(crate) data_offset: Sector,
    pub(crate) access: Access,
}

impl SlotMember {
    /// Where a run on the member lies on its device.
    #[inline]
    pub(crate) fn range(&self, at: MemberSector, length: Sectors) -> Range {
        Range::new(self.data_offset + Sectors(at.0), length)
    }
}

/// The slots of the members that have a flag.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Flagged {
    /// They are read only where no other has the sectors.
    pub(crate) write_mostly: SlotSet,
    /// The first read error of their device fails them.
    pub(crate) failfast: SlotSet,
}

impl Flagged {
    /// Notes the flags of the member in a slot.
    pub(crate) fn note(&mut self, slot: Slot, superblock: &Superblock) {
        for flag in superblock.flags() {
            match flag {
                MemberFlag::WriteMostly => self.write_mostly.insert(slot),
                MemberFlag::FailFast => self.failfast.insert(slot),
            }
        }
    }
}

/// The members of all slots. `None`: the slot was empty when the array was assembled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SlotMap {
    members: Vec<Option<SlotMember>>,
    /// Second members of slots, to which the first ones are being copied: every write of the slot goes to both.
    replacements: Vec<(Slot, SlotMember)>,
    flagged: Flagged,
    readable: SlotSet,
    writable: SlotSet,
}

impl SlotMap {
    pub(crate) fn readable(&self) -> SlotSet {
        self.readable
    }

    pub(crate) fn writable(&self) -> SlotSet {
        self.writable
    }

    pub(crate) fn write_mostly(&self) -> SlotSet {
        self.flagged.write_mostly
    }

    /// Whether the member in a slot is this one, and failfast.
    pub(crate) fn is_failfast(&self, slot: Slot, member: usize) -> bool {
        let of_slot = self.members[slot.index()];
        self.flagged.failfast.contains(slot) && of_slot.is_some_and(|of_slot| of_slot.index == member)
    }

    pub(crate) fn new(
        members: Vec<Option<SlotMember>>,
        replacements: Vec<(Slot, SlotMember)>,
        flagged: Flagged,
    ) -> SlotMap {
        let having = |is_wanted: fn(Access) -> bool| -> SlotSet {
            let slots = (0..).map(Slot).zip(&members);
            let wanted = slots.filter(|(_, member)| member.is_some_and(|member| is_wanted(member.access)));
            wanted.map(|(slot, _)| slot).collect()
        };
        let readable = having(|access| access == Access::ReadWrite);
        let writable = having(|access| access != Access::None);
        assert!(readable.is_within(writable), "a member that misses writes is not read");
        assert!(members.len() <= usize::from(SlotSet::SLOTS_MAX), "a set holds all slots");
        for (slot, replacement) in &replacements {
            assert!(readable.contains(*slot), "a member that is copied is in sync");
            assert_eq!(replacement.access, Access::WriteOnly);
        }
        SlotMap { members, replacements, flagged, readable, writable }
    }

    /// The slots whose member is being copied to another one.
    pub(crate) fn replacements(&self) -> impl Iterator<Item = Slot> {
        self.replacements.iter().map(|(slot, _)| *slot)
    }

    /// The members of all slots that have one.
    pub(crate) fn members(&self) -> impl Iterator<Item = &SlotMember> {
        self.members.iter().flatten().chain(self.replacements.iter().map(|(_, member)| member))
    }
}

/// What a shard needs to know to serve a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Its number; later views have higher ones.
    pub epoch: Epoch,
    /// Which sector lies where. A request of this epoch is planned, served and answered by it.
    pub(crate) shape: Shape,
    /// The member of each slot, with its data offset, and what requests may do with it.
    pub(crate) slots: SlotMap,
    /// Which requests are admitted.
    pub gate: Gate,
    /// Whether the dirty mark is durable, so that writes may be submitted. Always true for levels without a dirty mark.
    pub takes_writes: bool,
    /// Which copy a read may use.
    pub copies: Copies,
    /// Bits of the bitmap that a shard learned in an earlier round may be cleared.
    pub bits_round: BitsRound,
    /// What the bits stand for, if the array has a bitmap.
    pub(crate) bits: Option<BitsShape>,
    /// Slots whose copies come after all others, each set after those before it: of members that were taken by force
    /// although fresher ones hold some of their chunks.
    pub(crate) older: &'static [SlotSet],
    /// Which members may have a write after its answer.
    pub(crate) behind: Option<WriteBehind>,
    /// Whether some could have, by this view or an earlier one.
    pub(crate) has_behind: bool,
    /// The sectors that members lack, by the index of the member; without those that lack none.
    pub(crate) bad_blocks: Vec<(usize, BadBlockList)>,
    /// Whether the superblocks already record the members that take no writes. Until then no write or flush that left
    /// out a member may be answered.
    pub is_recorded: bool,
}

/// What a request wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Read,
    Write,
}

/// The answer of the view to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Enter,
    WaitForGate,
    NeedsDirtyMark,
    Refused(IoError),
}

impl View {
    /// Slots whose member may be read.
    #[inline]
    pub fn readable(&self) -> SlotSet {
        self.slots.readable
    }

    /// Slots whose member every write goes to.
    #[inline]
    pub fn writable(&self) -> SlotSet {
        self.slots.writable
    }

    /// The member in a slot. Panics for a slot that was empty when the array was assembled: no request is planned for
    /// it.
    #[inline]
    pub(crate) fn member(&self, slot: Slot) -> SlotMember {
        self.slots.members[slot.index()].expect("a request is planned for slots with a member")
    }

    /// The member to which this slot's member is being copied.
    #[inline]
    pub(crate) fn replacement(&self, slot: Slot) -> Option<SlotMember> {
        if self.slots.replacements.is_empty() {
            return None;
        }
        self.slots.replacements.iter().find(|(of, _)| *of == slot).map(|(_, member)| *member)
    }

    /// Whether a member is being copied to another.
    #[inline]
    pub(crate) fn has_replacement(&self) -> bool {
        !self.slots.replacements.is_empty()
    }

    /// The members that a write of this slot goes to. Panics like [`View::member`].
    #[inline]
    pub(crate) fn writers(&self, slot: Slot) -> impl Iterator<Item = SlotMember> {
        std::iter::once(self.member(slot)).chain(self.replacement(slot))
    }

    /// Slots whose copies come last wherever one copy counts. The order of copies is fixed while they may differ: the flag
    /// of a member does not change then ([`FlagError::NotInSync`](crate::FlagError)).
    #[inline]
    pub fn last_copies(&self) -> SlotSet {
        self.slots.write_mostly()
    }

    /// The canonical copy, as a choice of what to read. It is the first that [`View::in_order`] gives and that is usable.
    #[inline]
    pub(crate) fn canonical(&self) -> CopyChoice {
        if !self.older.is_empty() {
            return CopyChoice::FirstOf(self.older);
        }
        let last = self.last_copies();
        if last.is_empty() { CopyChoice::First } else { CopyChoice::FirstBut(last) }
    }

    /// All copies of a sector in the order in which they count: as the layout gives them, but those on write-mostly
    /// members last. A crash may leave these older than what was answered.
    pub(crate) fn in_order(&self, mut copies: uraid_layout::Copies) -> uraid_layout::Copies {
        if !self.older.is_empty() {
            copies.sort_by_key(|(slot, _)| {
                self.older.iter().position(|set| set.contains(*slot)).map_or(0, |nth| nth + 1)
            });
            return copies;
        }
        let last = self.last_copies();
        if !last.is_empty() {
            copies.sort_by_key(|(slot, _)| last.contains(*slot));
        }
        copies
    }

    /// Whether a read of the member in this slot waits for writes that it may not have yet. Once an array had a write that
    /// was behind, this stays so until its stop.
    #[inline]
    pub(crate) fn read_waits(&self, slot: Slot) -> bool {
        self.has_behind && self.slots.write_mostly().contains(slot)
    }

    /// Whether all that members lack may be written again from the others: these are known to be right.
    pub(crate) fn takes_corrections(&self) -> bool {
        self.gate == Gate::Open && self.copies == Copies::Any
    }

    /// Whether the slot has a member, failed or not.
    pub(crate) fn has_member(&self, slot: Slot) -> bool {
        self.slots.members[slot.index()].is_some()
    }

    #[inline]
    pub(crate) fn admit(&self, wish: Wish) -> Admission {
        match (self.gate, wish) {
            (Gate::Closed, _) => Admission::WaitForGate,
            (Gate::Stopped, _) => Admission::Refused(ErrorKind::Stopping.into()),
            (Gate::Open | Gate::NoNewWrites | Gate::ReadOnly | Gate::Frozen(_), Wish::Read) => Admission::Enter,
            (Gate::Open, Wish::Write) if self.takes_writes => Admission::Enter,
            (Gate::Open, Wish::Write) => Admission::NeedsDirtyMark,
            (Gate::NoNewWrites | Gate::ReadOnly, Wish::Write) => Admission::Refused(ErrorKind::ReadOnly.into()),
            (Gate::Frozen(kind), Wish::Write) => Admission::Refused(frozen_error(kind)),
        }
    }
}

/// The error for writes to an array that froze over this one.
pub(crate) fn frozen_error(kind: ErrorKind) -> IoError {
    if kind == ErrorKind::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Frozen }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::{ArrayRange, ArraySector};
    use uraid_layout::{Layout, Level, Spec};

    fn slots(access: &[Access]) -> SlotMap {
        let member = |(index, access): (usize, &Access)| SlotMember { index, data_offset: Sector(8), access: *access };
        SlotMap::new(
            access.iter().enumerate().map(|of_slot| Some(member(of_slot))).collect(),
            Vec::new(),
            Flagged::default(),
        )
    }

    #[test]
    fn a_member_that_does_not_hold_everything_is_written_and_not_read() {
        let map = slots(&[Access::ReadWrite, Access::WriteOnly, Access::None]);
        assert_eq!(map.readable, SlotSet::first(1));
        assert_eq!(map.writable, SlotSet::first(2));
    }

    fn mirror() -> Layout {
        let spec = Spec {
            level: Level::Raid1,
            layout: 0,
            chunk: Sectors::ZERO,
            raid_disks: 2,
            size: Sectors(8),
            member_sizes: Vec::new(),
        };
        Layout::new(&spec).expect("a mirror")
    }

    fn view(slots: SlotMap, gate: Gate) -> View {
        View {
            epoch: Epoch(1),
            shape: Shape::new(mirror()),
            slots,
            gate,
            takes_writes: false,
            copies: Copies::Any,
            older: &[],
            bits_round: BitsRound::default(),
            bits: None,
            behind: None,
            has_behind: false,
            bad_blocks: Vec::new(),
            is_recorded: true,
        }
    }

    #[test]
    fn the_choice_of_a_read_is_the_first_usable_copy_in_order() {
        let spec = Spec {
            level: Level::Raid10,
            layout: 0x102,
            chunk: Sectors(2),
            raid_disks: 5,
            size: Sectors(8),
            member_sizes: Vec::new(),
        };
        for level in [Level::Raid1, Level::Raid10] {
            let layout =
                Layout::new(&Spec { level, layout: spec.layout * u32::from(level == Level::Raid10), ..spec.clone() });
            let layout = layout.expect("five members");
            let sets = || (0..32u16).map(|bits| (0..5).map(Slot).filter(|slot| bits >> slot.0 & 1 == 1).collect());
            for (write_mostly, usable) in sets().flat_map(|last: SlotSet| sets().map(move |usable| (last, usable))) {
                let flagged = Flagged { write_mostly, ..Flagged::default() };
                let view = View {
                    slots: SlotMap { flagged, ..slots(&[Access::ReadWrite; 5]) },
                    ..view(slots(&[]), Gate::Open)
                };
                for at in (0..layout.array_size().0).map(ArraySector) {
                    let of_sector = ArrayRange::new(at, Sectors(1));
                    let chosen = layout.place_to_read(of_sector, &usable, view.canonical());
                    let mut in_order = view.in_order(layout.copies(at)).into_iter();
                    assert_eq!(
                        chosen,
                        in_order.find(|(slot, _)| usable.contains(*slot)),
                        "{at:?} {write_mostly:?} {usable:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn copies_of_members_taken_by_force_come_last_the_freshest_of_them_first() {
        let layout = Spec {
            level: Level::Raid10,
            layout: 0x103,
            chunk: Sectors(2),
            raid_disks: 4,
            size: Sectors(8),
            member_sizes: Vec::new(),
        };
        let layout = Layout::new(&layout).expect("four members");
        let set = |slots: &[u16]| slots.iter().map(|slot| Slot(*slot)).collect::<SlotSet>();
        let older: &[SlotSet] = Vec::leak(vec![set(&[2]), set(&[0])]);
        let view = View { older, ..view(slots(&[Access::ReadWrite; 4]), Gate::Open) };
        for (at, usable, expected) in [
            (0, set(&[0, 1, 2, 3]), 1),
            (0, set(&[0, 2]), 2),
            (0, set(&[0]), 0),
            (2, set(&[0, 1, 2, 3]), 3),
            (2, set(&[0, 1, 2]), 1),
        ] {
            let at = ArraySector(at);
            let chosen = layout.place_to_read(ArrayRange::new(at, Sectors(1)), &usable, view.canonical());
            let first = view.in_order(layout.copies(at)).into_iter().find(|(slot, _)| usable.contains(*slot));
            assert_eq!(chosen, first, "{at:?} {usable:?}");
            assert_eq!(chosen.map(|(slot, _)| slot.0), Some(expected), "{at:?} {usable:?}");
        }
    }

    #[test]
    fn every_gate_answers_every_wish() {
        let frozen = Gate::Frozen(ErrorKind::Media);
        let gates = [Gate::Closed, Gate::Open, Gate::ReadOnly, frozen, Gate::Stopped, Gate::NoNewWrites];
        let answers = gates.map(|gate| {
            let view = view(slots(&[Access::ReadWrite; 2]), gate);
            (view.admit(Wish::Read), view.admit(Wish::Write))
        });
        let refused = |kind: ErrorKind| Admission::Refused(kind.into());
        assert_eq!(answers[0], (Admission::WaitForGate, Admission::WaitForGate));
        assert_eq!(answers[1], (Admission::Enter, Admission::NeedsDirtyMark));
        assert_eq!(answers[2], (Admission::Enter, refused(ErrorKind::ReadOnly)));
        assert_eq!(answers[3], (Admission::Enter, refused(ErrorKind::Frozen)));
        assert_eq!(answers[4], (refused(ErrorKind::Stopping), refused(ErrorKind::Stopping)));
        assert_eq!(answers[5], answers[2], "what was admitted before goes on");
    }
}
