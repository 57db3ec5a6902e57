//! Checks the members from outside the engine.
//! Owns: [`Judge`]: the answers that clients received, and what the members' bytes must then be. Not here: the requests
//! (`life`). Where a sector lies comes from the simulator's independent `model`; who is in, from the engine's assembly.
//! Invariant: a check has no scheduling point, so it sees a single moment.

use crate::disk::Disk;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use uraid_block::{ErrorKind, Fua, IoError, ReadPieces, SECTOR_BYTES, Sector, Sectors, Slot, SlotSet};
use uraid_engine::{AssembleOptions, Candidate, Place, StartPlan, Status, StopError, assemble};
use uraid_format::Superblock;
use uraid_sim::image::areas::SUPER_AT;
use uraid_sim::random::rng::mix;
use uraid_sim::reference::model::{Model, Place as OnMember};
use uraid_sim::setup::Setup;

type Bytes = [u8; SECTOR_BYTES];

/// Which of a member's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Current,
    Durable,
}

/// A write of a sector. Moments are counted, not timed: each request and each answer is one.
#[derive(Clone, Copy, Debug)]
struct Write {
    number: u64,
    asked: u64,
    /// `None`: not answered, or answered with an error: it may have had an effect, now or later.
    answered: Option<u64>,
    is_zero: bool,
}

impl Write {
    fn content(&self, sector: u64) -> Bytes {
        if self.is_zero { [0; SECTOR_BYTES] } else { content(sector, self.number) }
    }
}

/// What a sector must at least contain.
#[derive(Clone, Copy, Debug)]
enum AtLeast {
    /// Everything that was answered before this moment.
    AnsweredBefore(u64),
    /// This write.
    Write(u64),
}

impl AtLeast {
    fn has(self, write: &Write) -> bool {
        match self {
            AtLeast::AnsweredBefore(moment) => write.answered.is_some_and(|answered| answered < moment),
            AtLeast::Write(number) => write.number == number,
        }
    }
}

struct History {
    /// Per array sector the writes to it; write 0, of zeroes, precedes all others.
    writes: Vec<Vec<Write>>,
    last_write: u64,
    moment: u64,
    asked: u64,
    answered: u64,
    is_stopped: bool,
    /// When the last successful flush began.
    flushed: u64,
    /// The slot that was failed by command and could not be recorded on all members.
    unrecorded: Option<Slot>,
}

impl History {
    fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// The writes that a sector may contain: all except those superseded by a write of `least`.
    fn candidates(&self, sector: u64, least: AtLeast) -> Vec<Write> {
        let writes = &self.writes[sector as usize];
        let is_over = |write: &&Write| {
            let began_after = |other: &Write| write.answered.is_some_and(|answered| other.asked > answered);
            writes.iter().any(|other| least.has(other) && began_after(other))
        };
        writes.iter().filter(|write| !is_over(write)).copied().collect()
    }

    /// Panics if the sector must not contain these bytes.
    fn check(&self, sector: u64, bytes: &Bytes, least: AtLeast, whose: &dyn Fn() -> String) {
        let candidates = self.candidates(sector, least);
        if candidates.iter().any(|write| *bytes == write.content(sector)) {
            return;
        }
        let found = self.writes[sector as usize].iter().find(|write| *bytes == write.content(sector));
        let found = found.map_or("none of all writes".to_string(), |write| format!("write {}", write.number));
        let candidates: Vec<u64> = candidates.iter().map(|write| write.number).collect();
        panic!("{}: sector {sector} shows {found}, not one of {candidates:?}", whose());
    }
}

/// The checks of one execution.
pub(crate) struct Judge {
    pub(crate) model: Arc<Model>,
    pub(crate) disks: Vec<Arc<Disk>>,
    setup: Setup,
    is_over_budget: bool,
    history: Mutex<History>,
}

/// The content that the write of this number stores in a sector.
pub(crate) fn content(sector: u64, write: u64) -> Bytes {
    let mut bytes = [0; SECTOR_BYTES];
    for (n, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(mix(write << 32 | sector).wrapping_add(n as u64)).to_le_bytes());
    }
    bytes
}

impl Judge {
    /// Members as `create` leaves them, with all data zero; if dirty, as after a power cut during that.
    /// `is_over_budget`: more members may fail than the level survives.
    pub(crate) fn new(model: Arc<Model>, starts_dirty: bool, is_over_budget: bool) -> Judge {
        let setup = Setup { starts_dirty, ..Setup::plain(model.shape.clone()) };
        let make = |slot: u16| {
            let sectors = setup.data_offsets[usize::from(slot)] + setup.data_sizes[usize::from(slot)];
            let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
            let start = SUPER_AT as usize * SECTOR_BYTES;
            bytes[start..start + 4096].copy_from_slice(&setup.superblock(slot).encode()[..]);
            Disk::new(bytes)
        };
        let disks = (0..setup.shape.slots).map(make).collect();
        let zeroes = vec![Write { number: 0, asked: 0, answered: Some(0), is_zero: true }];
        let writes = vec![zeroes; model.array_size() as usize];
        let history = History {
            writes,
            last_write: 0,
            moment: 0,
            asked: 0,
            answered: 0,
            is_stopped: false,
            flushed: 0,
            unrecorded: None,
        };
        let judge = Judge { model, disks, setup, is_over_budget, history: Mutex::new(history) };
        if starts_dirty {
            judge.corrupt_redundancy();
        }
        judge
    }

    /// As after a power cut: only the first copies, and the data of parity levels, are right.
    fn corrupt_redundancy(&self) {
        let copies = self.model.copies.iter().flat_map(|places| &places[1..]);
        let parity = self.model.rows.iter().flat_map(|row| std::iter::once(&row.p).chain(&row.q));
        for &place in copies.chain(parity) {
            self.disks[usize::from(place.slot)].medium().replace(self.byte_of(place), &Self::rubbish(place));
        }
    }

    /// What a place with redundancy holds when the array starts dirty.
    fn rubbish(place: OnMember) -> Bytes {
        content(place.sector, u64::from(place.slot) + (1 << 24))
    }

    fn byte_of(&self, place: OnMember) -> usize {
        (self.setup.data_offsets[usize::from(place.slot)] + place.sector) as usize * SECTOR_BYTES
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan that the superblocks lead to after a power cut now.
    pub(crate) fn plan(&self, force: bool) -> StartPlan {
        let candidates: Vec<Candidate> = (self.disks.iter())
            .map(|disk| {
                let medium = disk.medium();
                let start = SUPER_AT as usize * SECTOR_BYTES;
                let bytes: &[u8; 4096] = medium.durable[start..start + 4096].try_into().expect("4096 bytes");
                let size = Sectors((medium.durable.len() / SECTOR_BYTES) as u64);
                let superblock = Superblock::parse(bytes, Sector(SUPER_AT), size).expect("a whole superblock");
                Candidate::new(superblock, size)
            })
            .collect();
        let options = AssembleOptions { force, run: true, read_only: false };
        assemble(&candidates, &options).expect("the array can be assembled at any moment")
    }

    /// Slots that have a member in the plan.
    fn slots_in(plan: &StartPlan) -> BTreeSet<u16> {
        let slots = plan.members.iter().filter_map(|member| match member.place {
            Place::Slot(slot) => Some(slot.0),
            Place::Recovering { .. } | Place::Replacing { .. } | Place::Spare => None,
        });
        slots.collect()
    }

    fn on_member(&self, place: OnMember, kept: Kept) -> Bytes {
        let start = self.byte_of(place);
        let medium = self.disks[usize::from(place.slot)].medium();
        let bytes = match kept {
            Kept::Current => &medium.current,
            Kept::Durable => &medium.durable,
        };
        bytes[start..start + SECTOR_BYTES].try_into().expect("a sector")
    }

    /// A read or a flush begins; returns the moment.
    pub(crate) fn ask(&self) -> u64 {
        let mut history = self.history();
        history.asked += 1;
        history.next_moment()
    }

    /// A write begins; returns its number.
    pub(crate) fn ask_write(&self, sectors: &Range<u64>, is_zero: bool) -> u64 {
        let asked = self.ask();
        let mut history = self.history();
        history.last_write += 1;
        let number = history.last_write;
        for x in sectors.clone() {
            history.writes[x as usize].push(Write { number, asked, answered: None, is_zero });
        }
        number
    }

    /// A request was answered. As long as no more fails than the level survives, only a stop justifies an error.
    fn answered<T>(&self, what: &str, outcome: &Result<T, IoError>) {
        let mut history = self.history();
        history.answered += 1;
        match outcome {
            Ok(_) => assert!(!history.is_stopped, "a {what} succeeds after the stop has returned"),
            Err(error) => {
                assert!(error.kind == ErrorKind::Stopping || self.is_over_budget, "a {what} fails: {error:?}");
            }
        }
    }

    /// The number of answered requests.
    pub(crate) fn answers(&self) -> u64 {
        self.history().answered
    }

    /// A read from sector `start`, which began at moment `asked`, was answered.
    pub(crate) fn was_read(&self, start: u64, asked: u64, outcome: Result<ReadPieces, IoError>) {
        self.answered("read", &outcome);
        let Ok(pieces) = outcome else { return };
        let history = self.history();
        let least = AtLeast::AnsweredBefore(asked);
        for (x, sector) in (start..).zip(pieces.to_vec().chunks_exact(SECTOR_BYTES)) {
            history.check(x, sector.try_into().expect("a sector"), least, &|| "a read".to_string());
        }
    }

    /// A write was answered. If it succeeded, it is on all members that would be in after a power cut now, and their
    /// superblocks say dirty. One that was refused was never admitted.
    pub(crate) fn was_written(&self, sectors: &Range<u64>, number: u64, fua: Fua, outcome: Result<(), IoError>) {
        self.answered("write", &outcome);
        let moment = self.history().next_moment();
        for x in sectors.clone() {
            let mut history = self.history();
            let writes = &mut history.writes[x as usize];
            let at = writes.iter().position(|write| write.number == number).expect("it was asked");
            match outcome {
                Ok(()) => writes[at].answered = Some(moment),
                Err(error) if error.kind == ErrorKind::Stopping => drop(writes.remove(at)),
                Err(_) => {}
            }
        }
        if outcome.is_err() {
            return;
        }
        let plan = self.plan(true);
        // A single copy has no other to differ from.
        let may_differ = self.model.is_parity() || Self::slots_in(&plan).len() > 1;
        assert!(plan.is_dirty || !may_differ, "write {number} is answered, and the superblocks say clean");
        let now = self.history().next_moment();
        self.is_on_members(sectors.clone(), Kept::Current, AtLeast::AnsweredBefore(now), &plan);
        match fua {
            // Later writes may be there instead, and need not be durable.
            Fua::Yes => self.is_on_members(sectors.clone(), Kept::Durable, AtLeast::Write(number), &plan),
            Fua::No => {}
        }
    }

    /// A flush that began at this moment was answered: what was answered before it is durable.
    pub(crate) fn was_flushed(&self, asked: u64, outcome: Result<(), IoError>) {
        self.answered("flush", &outcome);
        if outcome.is_ok() {
            let flushed = self.history().flushed.max(asked);
            self.history().flushed = flushed;
            let least = AtLeast::AnsweredBefore(asked);
            self.is_on_members(0..self.model.array_size(), Kept::Durable, least, &self.plan(true));
        }
    }

    fn is_on_members(&self, sectors: Range<u64>, kept: Kept, least: AtLeast, plan: &StartPlan) {
        let (inside, history) = (Self::slots_in(plan), self.history());
        for x in sectors {
            let copies = &self.model.copies[x as usize];
            for &place in copies.iter().filter(|place| inside.contains(&place.slot)) {
                let bytes = self.on_member(place, kept);
                // The resync has not been here, and no write that counts.
                let is_untouched = || history.candidates(x, least).iter().any(|write| write.number == 0);
                if self.setup.starts_dirty && place != copies[0] && bytes == Self::rubbish(place) && is_untouched() {
                    continue;
                }
                let whose = || format!("{kept:?} bytes of the member of slot {}, which is in", place.slot);
                history.check(x, &bytes, least, &whose);
            }
        }
    }

    /// The operator was told that the member of this slot is failed.
    pub(crate) fn was_failed(&self, slot: Slot) {
        let inside = Self::slots_in(&self.plan(true));
        assert!(!inside.contains(&slot.0), "slot {} was failed by hand, and its member is in", slot.0);
    }

    /// The operator was told that this failure could not be recorded because too many other members failed.
    pub(crate) fn was_not_recorded(&self, slot: Slot) {
        self.history().unrecorded = Some(slot);
    }

    /// The stop has returned: no more accesses to members. The superblocks say clean, unless the stop came before the
    /// start had ended, or before the end of the resync.
    pub(crate) fn was_stopped(&self, outcome: Result<(), StopError>, may_be_dirty: bool, status: &Status) {
        let is_clean = match outcome {
            Ok(()) => status.pass.is_none_or(|progress| progress.done == progress.total),
            Err(StopError::NotClean(_)) if may_be_dirty => false,
            Err(StopError::NotClean(_) | StopError::Frozen(_) | StopError::FrozenPlain(_)) if self.is_over_budget => {
                false
            }
            Err(error) => panic!("the stop leaves the array dirty: {error:?}"),
        };
        self.history().is_stopped = true;
        self.disks.iter().for_each(|disk| disk.release());
        if is_clean || !self.is_over_budget {
            self.is_true(is_clean, &status.usable);
        } else {
            // What members lack was answered with an error, and flushed data is there when they come back.
            let least = AtLeast::AnsweredBefore(self.history().flushed);
            self.is_on_members(0..self.model.array_size(), Kept::Durable, least, &self.plan(true));
        }
    }

    /// Whether the stop has returned.
    pub(crate) fn is_stopped(&self) -> bool {
        self.history().is_stopped
    }

    /// After a stop: the superblocks list the same members as the array, and are correct.
    fn is_true(&self, is_clean: bool, usable: &SlotSet) {
        let plan = self.plan(false);
        assert_eq!(!plan.is_dirty, is_clean, "the superblocks say clean, and the stop said so");
        let inside = Self::slots_in(&plan);
        let mut worked: BTreeSet<u16> = usable.iter().map(|slot| slot.0).collect();
        // A command failed a member after the stop had made the array clean. Then too many other members failed for a
        // whole round to record that. The operator was told so, and the superblocks may still list the member, which
        // has all bytes.
        let unrecorded = self.history().unrecorded.filter(|slot| is_clean && inside.contains(&slot.0));
        worked.extend(unrecorded.map(|slot| slot.0));
        assert_eq!(inside, worked, "who is in by the superblocks, and who worked until the stop");
        let get = |place: OnMember| inside.contains(&place.slot).then(|| self.on_member(place, Kept::Durable));
        if let Some(lie) = self.model.find_mismatch(&get, &|_| false).filter(|_| is_clean) {
            panic!("after the stop: {lie}");
        }
        let now = AtLeast::AnsweredBefore(self.history().next_moment());
        let history = self.history();
        for x in 0..self.model.array_size() {
            let found = self.model.read(x, &get);
            assert!(!found.is_empty(), "sector {x} is lost");
            // While copies may differ, the first one is served.
            let found = if is_clean { &found[..] } else { &found[..1] };
            found.iter().for_each(|bytes| history.check(x, bytes, now, &|| "after the stop".to_string()));
        }
    }

    /// The execution is over.
    pub(crate) fn is_over(&self) {
        let history = self.history();
        assert!(history.is_stopped);
        assert_eq!(history.asked, history.answered, "requests asked and answered");
    }
}
