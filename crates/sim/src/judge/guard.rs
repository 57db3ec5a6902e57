//! Checks every member I/O and every superblock of the engine.
//! Owns: [`Guard`]: I8 (nothing outside the client's range and its parity), I9 (data in the data area, superblocks in
//! their place), M1 (events never step back, checksums are right). Not here: what bytes are right (`oracle`).
//! Invariant: judges from the model and the raw bytes alone.
//! Spec: I8, I9 and M1 of docs/reliability.md; docs/md/formats.md#version-1-superblock, docs/md/formats.md#checksums.

use crate::image::areas::{BITMAP_AT, BITMAP_SECTORS, LOG_AT, LOG_SECTORS, SUPER_AT, SUPER_SECTORS};
use crate::image::logs;
use crate::judge::Judge;
use crate::judge::bits_check::BitsCheck;
use crate::judge::claims::Claims;
use crate::machine::member::{Access, Disk, Op, Watch};
use crate::reference::model::{Model, Place};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use uraid_block::ErrorKind;

/// Checks the accesses to all members of one array; member n is in slot n.
pub struct Guard {
    model: Rc<Model>,
    data_offsets: Vec<u64>,
    used: Vec<u64>,
    // How many running client operations may write each place: by slot, then by sector.
    open: RefCell<Vec<Vec<u32>>>,
    // Places that refused operations may have left half written.
    torn: RefCell<BTreeSet<Place>>,
    // Operations may be answered before a member has them: then one that fails is torn, too.
    has_behind: Cell<bool>,
    bits: RefCell<Option<BitsCheck>>,
    claims: RefCell<Option<Claims>>,
    // Members with bad-block logs; empty if they have none.
    with_logs: RefCell<Vec<Rc<Disk>>>,
    /// The area of the partial parity logs, if the members have them.
    ppl: RefCell<Option<std::ops::Range<u64>>>,
    is_pass_running: Cell<bool>,
    // Sectors of the members, the same on all, with an operation that began while a pass ran: it may write what it had to
    // compute of the row, also when the pass has ended.
    begun_in_pass: RefCell<BTreeSet<u64>>,
    is_read_only: Cell<bool>,
    events: RefCell<Vec<u64>>,
    superblocks: Cell<u64>,
    // Members whose superblock is being written.
    super_writes: RefCell<BTreeSet<u16>>,
    /// Members that the array has failed and uses no more.
    given_up: RefCell<BTreeSet<u16>>,
    failures: RefCell<Vec<(Access, ErrorKind)>>,
    // Places that a member failed to read or write: they may be written again from other members at any time.
    failed_places: RefCell<BTreeSet<Place>>,
    on_failure: RefCell<Option<Rc<dyn Fn()>>>,
    on_corruption: RefCell<Option<OnCorruption>>,
}

type OnCorruption = Rc<dyn Fn(u16, u64, u64)>;

/// The fields of a superblock that the guard needs, read without `format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawFacts {
    /// The event count.
    pub events: u64,
    /// All ones: clean.
    pub resync_offset: u64,
}

/// Checks magic, version and checksum, and reads the fields.
pub fn raw_facts(bytes: &[u8]) -> Result<RawFacts, String> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if u32_at(0) != 0xa92b_4efc || u32_at(4) != 1 {
        return Err(format!("magic {:#x}, version {}", u32_at(0), u32_at(4)));
    }
    let roles = u32_at(220) as usize;
    if roles > 1920 {
        return Err(format!("{roles} roles"));
    }
    let length = 256 + 2 * roles;
    let words = |at: usize| if at == 216 { 0 } else { u64::from(u32_at(at)) };
    let mut sum: u64 = (0..length / 4).map(|word| words(word * 4)).sum();
    if length % 4 == 2 {
        sum += u64::from(u16::from_le_bytes([bytes[length - 2], bytes[length - 1]]));
    }
    let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
    if sum != u32_at(216) {
        return Err(format!("checksum {:#x}, computed {sum:#x}", u32_at(216)));
    }
    if u64_at(144) != SUPER_AT {
        return Err(format!("super_offset {}", u64_at(144)));
    }
    Ok(RawFacts { events: u64_at(200), resync_offset: u64_at(208) })
}

impl Guard {
    /// A guard for members whose data starts at these sectors.
    pub fn new(model: Rc<Model>, data_offsets: Vec<u64>) -> Guard {
        let mut used = vec![0; data_offsets.len()];
        let rows = model.rows.iter().flat_map(|row| row.q.into_iter().chain([row.p]));
        for place in model.copies.iter().flatten().copied().chain(rows) {
            let end = &mut used[usize::from(place.slot)];
            *end = (*end).max(place.sector + 1);
        }
        Guard {
            model,
            events: RefCell::new(vec![1; data_offsets.len()]),
            data_offsets,
            open: RefCell::new(used.iter().map(|used| vec![0; *used as usize]).collect()),
            used,
            torn: RefCell::default(),
            has_behind: Cell::default(),
            bits: RefCell::default(),
            claims: RefCell::default(),
            with_logs: RefCell::default(),
            ppl: RefCell::default(),
            is_pass_running: Cell::new(false),
            begun_in_pass: RefCell::default(),
            is_read_only: Cell::new(false),
            superblocks: Cell::new(0),
            super_writes: RefCell::default(),
            given_up: RefCell::default(),
            failures: RefCell::default(),
            failed_places: RefCell::default(),
            on_failure: RefCell::default(),
            on_corruption: RefCell::default(),
        }
    }

    /// The array has a bitmap: no data goes to a member before its bit, unless a resync or recovery writes it.
    pub fn check_bits(&self, bits: BitsCheck) {
        *self.bits.borrow_mut() = Some(bits);
    }

    /// Nothing may say more than is durable on the members.
    pub(crate) fn check_claims(&self, judge: &Rc<Judge>) {
        *self.claims.borrow_mut() = Some(Claims::new(judge.clone()));
    }

    /// Sets whether a repair by command runs.
    pub(crate) fn set_repairing(&self, is_repairing: bool) {
        if let Some(claims) = &*self.claims.borrow() {
            claims.set_repairing(is_repairing);
        }
    }

    /// A repair has said that it is complete.
    pub(crate) fn check_repair(&self) -> Result<(), String> {
        let (claims, given_up) = (self.claims.borrow(), self.given_up.borrow());
        claims.as_ref().map_or(Ok(()), |claims| claims.check_repair(&given_up, &|place| self.has_failed(place)))
    }

    /// Whether the member has failed to read or write the place, so that it may be written again from other members.
    fn has_failed(&self, place: Place) -> bool {
        let disks = self.with_logs.borrow();
        let disk = disks.get(usize::from(place.slot));
        let data = self.data_offsets[usize::from(place.slot)];
        self.failed_places.borrow().contains(&place)
            || disk.is_some_and(|disk| logs::is_listed(disk.medium().current(), data + place.sector))
    }

    /// The members have bad-block logs: these may be written, and so may what they list, from other members.
    pub fn allow_logs(&self, disks: &[Rc<Disk>]) {
        *self.with_logs.borrow_mut() = disks.to_vec();
    }

    /// The members have partial parity logs here.
    pub fn allow_ppl(&self, area: std::ops::Range<u64>) {
        *self.ppl.borrow_mut() = Some(area);
    }

    /// Sets an action for every failed operation of a member.
    pub fn on_failure(&self, action: impl Fn() + 'static) {
        *self.on_failure.borrow_mut() = Some(Rc::new(action));
    }

    /// Sets an action for silent corruption of data: member, first sector from the start of its data, sectors.
    pub fn on_corruption(&self, action: impl Fn(u16, u64, u64) + 'static) {
        *self.on_corruption.borrow_mut() = Some(Rc::new(action));
    }

    /// How many data sectors of a member the array uses.
    pub fn used(&self, disk: u16) -> u64 {
        self.used[usize::from(disk)]
    }

    /// A client operation starts that may change this range.
    pub fn open_range(&self, at: u64, length: u64) {
        let mut open = self.open.borrow_mut();
        let places = self.model.image_of(at..at + length);
        for Place { slot, sector } in &places {
            open[usize::from(*slot)][*sector as usize] += 1;
        }
        if let Some(claims) = &*self.claims.borrow() {
            claims.note_client(places);
        }
    }

    /// The operation is answered.
    pub fn close_range(&self, at: u64, length: u64) {
        let mut open = self.open.borrow_mut();
        for Place { slot, sector } in self.model.image_of(at..at + length) {
            let count = &mut open[usize::from(slot)][sector as usize];
            *count = count.checked_sub(1).expect("opened before");
        }
        let is_open =
            |sector: &u64| open.iter().any(|of_slot| of_slot.get(*sector as usize).is_some_and(|open| *open > 0));
        self.begun_in_pass.borrow_mut().retain(is_open);
    }

    /// The operation was refused because the array froze. Some members may have its data and others not, and `fail` may
    /// later write it to the others.
    pub fn leave_torn(&self, at: u64, length: u64) {
        self.torn.borrow_mut().extend(self.model.image_of(at..at + length));
    }

    /// An answered write may fail on a member of this mirror. If the array freezes over that, `fail` makes it whole.
    pub(crate) fn allow_behind(&self) {
        self.has_behind.set(true);
    }

    /// Sets whether a resync runs, or read errors are repaired: then any data may be written.
    pub fn set_pass_running(&self, is_running: bool) {
        if self.is_pass_running.replace(is_running) && !is_running {
            let open = self.open.borrow();
            let sectors = open.iter().flat_map(|of_slot| (0..).zip(of_slot).filter(|(_, open)| **open > 0));
            self.begun_in_pass.borrow_mut().extend(sectors.map(|(sector, _)| sector));
        }
    }

    /// Sets whether nothing may be written at all (M8).
    pub fn set_read_only(&self, is_read_only: bool) {
        self.is_read_only.set(is_read_only);
    }

    /// The array is gone: no operation is open.
    pub fn reset(&self) {
        self.open.borrow_mut().iter_mut().for_each(|of_slot| of_slot.fill(0));
        self.torn.borrow_mut().clear();
        self.is_pass_running.set(false);
        self.begun_in_pass.borrow_mut().clear();
        self.is_read_only.set(false);
        self.super_writes.borrow_mut().clear();
        self.given_up.borrow_mut().clear();
        self.failures.borrow_mut().clear();
        self.failed_places.borrow_mut().clear();
        if let Some(claims) = &*self.claims.borrow() {
            claims.forget();
        }
    }

    /// The number of superblocks checked.
    pub fn superblocks(&self) -> u64 {
        self.superblocks.get()
    }

    /// The last event count in each member's superblock.
    pub fn events(&self) -> Vec<u64> {
        self.events.borrow().clone()
    }

    /// Sets a member's event count after a power cut or a change by hand.
    pub fn reset_events(&self, disk: u16, events: u64) {
        self.events.borrow_mut()[usize::from(disk)] = events;
    }

    /// Failed operations since the start of the round.
    pub fn failures(&self) -> Vec<(Access, ErrorKind)> {
        self.failures.borrow().clone()
    }

    /// How many operations failed since the start of the round.
    pub fn failures_count(&self) -> usize {
        self.failures.borrow().len()
    }

    /// M2: a power cut may tear every superblock that is being written. One of those with the newest state must be
    /// whole.
    fn begin_super_write(&self, disk: u16) -> Result<(), String> {
        let mut writes = self.super_writes.borrow_mut();
        writes.insert(disk);
        let events = self.events.borrow();
        let of_slots = &events[..usize::from(self.model.shape.slots)];
        let newest = of_slots.iter().max().copied().unwrap_or_default();
        let given_up = self.given_up.borrow();
        let current = (0..).zip(of_slots).filter(|(_, events)| **events + 1 >= newest).map(|(slot, _)| slot);
        // A write to a failed member may be in flight for ever: the others must do without it.
        let mut current = current.filter(|slot| !given_up.contains(slot) || !writes.contains(slot));
        if current.clone().count() > 1 && current.all(|slot: u16| writes.contains(&slot)) {
            return Err(format!("M2: the superblocks of all current members are written at once: {writes:?}"));
        }
        Ok(())
    }

    fn check_write(&self, access: Access) -> Result<(), String> {
        if self.is_read_only.get() {
            return Err(format!("M8: {access:?} while the array is stopped or open for reading only"));
        }
        let slot = access.disk;
        let data = self.data_offsets[usize::from(slot)];
        let end = access.at + access.length;
        if access.at < data {
            let bitmap = BITMAP_AT..BITMAP_AT + BITMAP_SECTORS;
            if self.bits.borrow().is_some() && bitmap.contains(&access.at) && end <= bitmap.end {
                return Ok(());
            }
            let is_log = access.at == LOG_AT && end <= LOG_AT + LOG_SECTORS;
            if is_log && !self.with_logs.borrow().is_empty() {
                return Ok(());
            }
            if self.ppl.borrow().as_ref().is_some_and(|area| area.contains(&access.at) && end <= area.end) {
                return Ok(());
            }
            let is_superblock = access.at == SUPER_AT && end <= SUPER_AT + SUPER_SECTORS;
            let is_write = matches!(access.op, Op::Write { .. });
            if is_superblock && is_write {
                return self.begin_super_write(slot);
            }
            return Err(format!("I9: {access:?} lies in the metadata and is no superblock"));
        }
        let used = self.used[usize::from(slot)];
        if end - data > used {
            return Err(format!("I9: {access:?} reaches past the {used} data sectors from {data}"));
        }
        let is_failed = |sector: u64| self.has_failed(Place { slot, sector });
        if self.is_pass_running.get() || (access.at - data..end - data).all(is_failed) {
            return Ok(());
        }
        if let Some(bits) = &*self.bits.borrow() {
            (access.at - data..end - data).try_for_each(|sector| bits.check(Place { slot, sector }))?;
        }
        let (open, torn, begun_in_pass) = (self.open.borrow(), self.torn.borrow(), self.begun_in_pass.borrow());
        let is_open = |sector: u64| {
            let place = Place { slot, sector };
            open[usize::from(slot)][sector as usize] > 0 || torn.contains(&place) || begun_in_pass.contains(&sector)
        };
        match (access.at - data..end - data).find(|&sector| !is_open(sector)) {
            None => Ok(()),
            Some(sector) => Err(format!("I8: {access:?} touches data sector {sector}, which no request may change")),
        }
    }
}

impl Watch for Guard {
    fn submitted(&self, access: Access) -> Result<(), String> {
        match access.op {
            Op::Read | Op::Flush => Ok(()),
            Op::Write { .. } | Op::Discard | Op::Zeroes => self.check_write(access),
        }
    }

    fn superblock_submitted(&self, disk: u16, bytes: &[u8]) -> Result<(), String> {
        let claims = self.claims.borrow();
        let Some(claims) = claims.as_ref() else { return Ok(()) };
        let mut whole = [0; 4096];
        let length = bytes.len().min(whole.len());
        whole[..length].copy_from_slice(&bytes[..length]);
        claims.check_areas(disk, &whole)?;
        if disk >= self.model.shape.slots {
            return Ok(());
        }
        let open = self.open.borrow();
        let is_open =
            |place: Place| open[usize::from(place.slot)].get(place.sector as usize).is_some_and(|open| *open > 0);
        claims.check(disk, &whole, &is_open, &|place| self.has_failed(place))
    }

    fn superblock(&self, disk: u16, bytes: &[u8]) -> Result<(), String> {
        let facts = raw_facts(bytes).map_err(|found| format!("M1: superblock of disk {disk}: {found}"))?;
        let mut events = self.events.borrow_mut();
        let last = &mut events[usize::from(disk)];
        // The events of a spare say nothing: it may have had a round that all other members failed.
        let is_spare = disk >= self.model.shape.slots;
        if facts.events < *last && !is_spare {
            return Err(format!("M1: events of disk {disk} step back from {last} to {}", facts.events));
        }
        *last = facts.events;
        self.super_writes.borrow_mut().remove(&disk);
        self.superblocks.set(self.superblocks.get() + 1);
        Ok(())
    }

    fn corrupted(&self, disk: u16, at: u64, length: u64) {
        let action = self.on_corruption.borrow().clone();
        if let Some(action) = action {
            action(disk, at - self.data_offsets[usize::from(disk)], length);
        }
    }

    fn given_up(&self, disk: u16) {
        self.given_up.borrow_mut().insert(disk);
    }

    fn failed(&self, access: Access, error: ErrorKind) {
        self.failures.borrow_mut().push((access, error));
        let data = self.data_offsets[usize::from(access.disk)];
        if access.op != Op::Flush && access.at >= data {
            let sectors = access.at - data..access.at + access.length - data;
            let places = sectors.map(|sector| Place { slot: access.disk, sector });
            self.failed_places.borrow_mut().extend(places);
            if self.has_behind.get() && matches!(access.op, Op::Write { .. }) {
                self.leave_torn(access.at - data, access.length);
            }
        }
        if access.at == SUPER_AT && access.op != Op::Flush {
            self.super_writes.borrow_mut().remove(&access.disk);
        }
        let action = self.on_failure.borrow().clone();
        if let Some(action) = action {
            action();
        }
    }
}
