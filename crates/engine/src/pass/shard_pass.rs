//! One shard's part of a pass: windows over the rows, or the units of copies, that this shard owns.
//! Owns: [`Pass`], the order of windows, their locks, how far this shard has come. Not here: what is done in a window
//! (`window`, `kinds`), when a pass begins and what follows from its end (`schedule`).
//! Invariant: a window holds the lock of its range, and is inside an epoch. Everything that this shard owns below
//! [`Shared::in_sync_below`] is consistent, so a lower value is always safe.
//!
//! Several windows are in flight, in ascending order, each taken by the next task that is free. The shard has come as
//! far as the lowest window that is not done:
//!
//! ```text
//!   units of shard 0   [done][done][    ][done][    ]  next: here
//!                                  ^ in_sync_below: these two are in flight, whatever was done above
//! ```
//!
//! A window with a sector that could neither be read nor computed holds `in_sync_below` back, and not the pass. A write
//! waits for a window only if it overlaps one that is in flight. A read never does.
//!
//! A recovery of a mirror goes over the sectors of the member, because `recovery_offset` counts these, and locks the
//! array sectors whose copies they are. All other passes go over what they lock.

use crate::pass::holes::{ASK_MAX, Holes};
use crate::pass::pace::PassPace;
use crate::pass::resync::Resync;
use crate::row::io::RowIo;
use crate::shard::mail::Window;
use crate::shard::permit::UNIT;
use crate::shard::shared::Shared;
use crate::state::view::Gate;
use crate::words::findings::Mismatch;
use crate::words::mark::{self, Mark};
use crate::words::progress::{self, PassCounts, PassOrder, PassReport, Steering, WINDOW};
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::{Semaphore, join_all};
use uraid_block::{ArraySector, ErrorKind, IoError, MemberSector, Sectors, ShardIndex, Slot};
use uraid_layout::{CopyLayout, Layout, Row};

/// The most windows that one shard has in flight.
const WINDOWS_AT_ONCE: usize = 16;

/// One shard's part of a pass.
pub(crate) struct Pass<W: World> {
    shared: Rc<Shared<W>>,
    resync: Resync<W>,
    holes: Holes<W>,
    /// The last order that was begun.
    order: Cell<Option<PassOrder>>,
    /// The longest window.
    window: u64,
    /// How many windows are under way at once.
    windows: usize,
    /// Room for as many, which corrections take, too.
    room: Rc<Semaphore>,
    /// Where the next window is looked for.
    next: Cell<u64>,
    /// What this shard owns below this is done.
    below: Cell<u64>,
    /// The starts of the windows that are taken and not done.
    in_flight: RefCell<Vec<u64>>,
    counts: Cell<PassCounts>,
    /// The first window with a sector that could neither be read nor computed.
    unreadable_from: Cell<Option<u64>>,
    is_running: Cell<bool>,
    pace: PassPace,
}

impl<W: World> Pass<W> {
    /// `rows`: of parity levels.
    pub(crate) fn new(
        shared: Rc<Shared<W>>,
        rows: Option<Rc<RowIo<W>>>,
        (windows, room): (usize, Rc<Semaphore>),
    ) -> Pass<W> {
        Pass {
            order: Cell::new(None),
            window: shared.config.pass_window.0.clamp(1, WINDOW),
            windows,
            room,
            resync: Resync::new(shared.clone(), rows, windows),
            holes: Holes::new(shared.clone()),
            next: Cell::new(0),
            below: Cell::new(shared.in_sync_below.get().0),
            shared,
            in_flight: RefCell::default(),
            counts: Cell::default(),
            unreadable_from: Cell::new(None),
            is_running: Cell::new(false),
            pace: PassPace::new(),
        }
    }

    /// Passes over what this shard owns, from where it has come before in this order. Ends early if the array stops or
    /// freezes, or no member is left to recover.
    pub(crate) async fn run(&self, order: PassOrder) {
        assert!(!self.is_running.replace(true), "one pass at a time");
        if self.order.replace(Some(order)).map(|before| before.number) != Some(order.number) {
            self.begin(&order);
        }
        self.next.set(self.below.get());
        self.in_flight.borrow_mut().clear();
        self.pace.restart(&self.shared);
        self.holes.restart();
        let outcomes = join_all((0..self.windows).map(|_| self.pass_windows(&order))).await;
        // A window fails if the array freezes. Then the tasks of the other windows end at the gate, too.
        let has_failed = outcomes.iter().any(Result::is_err);
        assert!(has_failed || self.in_flight.borrow().is_empty(), "every window was passed");
        if self.readable_below() >= order.kind.total(&self.shared.layout()).0 {
            order.kind.end_on_shard(&self.shared);
        }
        self.is_running.set(false);
    }

    fn begin(&self, order: &PassOrder) {
        self.below.set(order.kind.begins_at(&self.shared, order).0);
        self.take_findings();
        self.counts.set(PassCounts::default());
        self.unreadable_from.set(None);
    }

    /// How far it has come.
    pub(crate) fn report(&self) -> PassReport {
        PassReport {
            number: self.order.get().map_or(0, |order| order.number),
            below: Sectors(self.below.get()),
            readable_below: Sectors(self.readable_below()),
            in_sync_below: self.shared.in_sync_below.get(),
            counts: self.counts.get(),
            has_clients: self.pace.has_own_clients(&self.shared),
            client_bytes: self.pace.client_bytes(&self.shared),
        }
    }

    /// What this shard's part of a check or repair has found. Nothing is left.
    pub(crate) fn take_findings(&self) -> Vec<Mismatch> {
        self.resync.findings.borrow_mut().take()
    }

    /// Pauses or ends passes, or sets their speed.
    pub(crate) fn steer(&self, steering: Steering) {
        self.pace.steer(&self.shared, steering);
    }

    fn readable_below(&self) -> u64 {
        self.unreadable_from.get().map_or(self.below.get(), |from| self.below.get().min(from))
    }

    /// Takes one window after the other, while the gate is open.
    async fn pass_windows(&self, order: &PassOrder) -> Result<(), IoError> {
        loop {
            if self.is_at_end(order) {
                return Ok(());
            }
            let turn = self.pace.turn(&self.shared, order.number).await;
            let _room = self.room.acquire(1).await;
            let Some(_inside) = self.shared.admit_pass() else { return Ok(()) };
            if !self.has_member(order) || self.pace.is_ended(order.number) {
                return Ok(());
            }
            if self.skip_hole(order).await {
                continue;
            }
            let Some(window) = self.take_window(order) else { return Ok(()) };
            drop(turn);
            let _lock = self.shared.locks.guard(locked(&self.shared, &window)).await;
            if !self.shared.torn.is_empty() {
                // A write of these rows may have been refused half done while this window waited for its lock.
                return Err(ErrorKind::Frozen.into());
            }
            // A write that a freeze refused half done unlocks after every shard has that view. A vote over it could
            // change what readers see of the canonical copy.
            if order.kind.is_by_command() && self.shared.with_view(|view| view.gate != Gate::Open) {
                return Err(ErrorKind::Frozen.into());
            }
            let since = self.shared.world.now();
            let met = self.resync.resync_window(order, window).await?;
            self.pace.end(&self.shared, since);
            self.end_window(window.at, met);
        }
    }

    /// Goes on behind the holes of all members, if the next window lies in them. The caller has the turn: no window begins
    /// meanwhile, and those in flight are earlier ones.
    async fn skip_hole(&self, order: &PassOrder) -> bool {
        let Some(window) = self.window_from(order, self.next.get()).filter(|window| self.holes.is_due(window.at))
        else {
            return false;
        };
        let total = order.kind.total(&self.shared.layout()).0;
        let is_by_member = order.fills && matches!(&*self.shared.layout(), Layout::Copies(_));
        let end = match is_by_member {
            // Only some of what it would skip is to be recovered.
            true if order.by_bits => return false,
            true => total,
            false => {
                let stretch = order.kind.stretch(&self.shared, order, (window.at, total), ASK_MAX);
                stretch.map_or(window.at, |stretch| stretch.end)
            }
        };
        let Some(length) = self.holes.hole(order, &window, end).await else { return false };
        assert!(length > 0 && window.at + length <= end, "a skip goes on, and no further than the pass");
        self.next.set(window.at + length);
        self.note_progress();
        true
    }

    /// Whether no window is left to begin. Then the pass need not wait for its speed limit.
    fn is_at_end(&self, order: &PassOrder) -> bool {
        let Some(_inside) = self.shared.admit_pass() else { return true };
        let is_over = !self.has_member(order) || self.pace.is_ended(order.number);
        is_over || self.window_from(order, self.next.get()).is_none() && self.take_window(order).is_none()
    }

    /// Whether a member is left that the pass is for.
    fn has_member(&self, order: &PassOrder) -> bool {
        let is_there = |slot: Slot| self.shared.with_view(|view| order.kind.target(view, order, slot).is_some());
        !order.fills || order.recovering.iter().any(is_there)
    }

    /// The next window that this shard owns.
    fn take_window(&self, order: &PassOrder) -> Option<Window> {
        let window = self.window_from(order, self.next.get());
        let total = order.kind.total(&self.shared.layout()).0;
        let next = window.map_or(total, |window| window.at + window.length.0);
        assert!(next >= self.next.get(), "windows ascend");
        self.next.set(next);
        if let Some(window) = window {
            self.in_flight.borrow_mut().push(window.at);
            let (of_member, of_all) = self.moved(order, &window);
            self.pace.begin(&self.shared, of_member, of_all);
        } else {
            self.note_progress();
        }
        window
    }

    /// How much a window reads and writes: of each member, on average, and of all together. A recovery of a mirror goes
    /// at its speed over one member, and reads as much of others.
    fn moved(&self, order: &PassOrder, window: &Window) -> (Sectors, Sectors) {
        let layout = self.shared.layout();
        let slots = u64::from(layout.slots());
        match &*layout {
            Layout::Copies(_) if order.fills => (window.length, Sectors(2 * window.length.0)),
            Layout::Copies(_) => {
                let all = Sectors(window.length.0 * u64::from(layout.copies_count()));
                (Sectors(all.0 / slots), all)
            }
            Layout::Parity(_) => (window.length, Sectors(window.length.0 * slots)),
        }
    }

    fn end_window(&self, at: u64, met: PassCounts) {
        let mut sum = self.counts.get();
        sum.add(met);
        self.counts.set(sum);
        if met.unreadable > 0 {
            self.unreadable_from.set(Some(self.unreadable_from.get().map_or(at, |first| first.min(at))));
        }
        let mut in_flight = self.in_flight.borrow_mut();
        let place = in_flight.iter().position(|start| *start == at).expect("a window ends once");
        in_flight.swap_remove(place);
        drop(in_flight);
        self.note_progress();
    }

    fn note_progress(&self) {
        let below = self.in_flight.borrow().iter().copied().min().unwrap_or(self.next.get());
        assert!(below >= self.below.get(), "a pass only goes on");
        self.below.set(below);
        if let Some(order) = self.order.get() {
            order.kind.note_below(&self.shared, Sectors(self.readable_below()));
        }
    }

    /// The first window at or after this sector that this shard owns: not longer than a block of the pass arena, in one
    /// unit, and within what the members hold contiguously.
    fn window_from(&self, order: &PassOrder, at: u64) -> Option<Window> {
        match &*self.shared.layout() {
            Layout::Copies(layout) if order.fills => self.window_of_member(layout, order, at),
            Layout::Copies(_) | Layout::Parity(_) => self.window_of_units(order, at),
        }
    }

    fn window_of_units(&self, order: &PassOrder, at: u64) -> Option<Window> {
        let shards = u64::from(self.shared.world.shards());
        let (own, chunk) = (self.shared.world.shard(), self.shared.layout().chunk().0);
        let total = progress::total(&self.shared.layout()).0;
        // Alone, a shard owns all rows, and a window may span several.
        let unit = match &*self.shared.layout() {
            Layout::Parity(_) if shards > 1 => chunk,
            Layout::Parity(_) => total,
            Layout::Copies(_) => UNIT,
        };
        let mut at = at;
        while at < total {
            let number = at / unit;
            let end = ((number + 1) * unit).min(total);
            if ShardIndex((number % shards) as u16) != own {
                at = end;
                continue;
            }
            let stretch = order.kind.stretch(&self.shared, order, (at, total), WINDOW)?;
            if stretch.start > at {
                // Another shard may own what comes next.
                mark::hit(Mark::ResyncSkippedClean);
                at = stretch.start;
                continue;
            }
            let end = end.min(stretch.end);
            let longest = match &*self.shared.layout() {
                Layout::Parity(_) => self.window,
                Layout::Copies(_) => self.window.min(self.shared.layout().contiguous(ArraySector(at)).0),
            };
            return Some(Window { at, length: Sectors(longest.min(end - at)), sector: ArraySector(at) });
        }
        None
    }

    /// A window of what one member of a mirror holds.
    fn window_of_member(&self, layout: &CopyLayout, order: &PassOrder, at: u64) -> Option<Window> {
        let slot = order.recovering.iter().next().expect("a recovery of a mirror is of one slot");
        let (shards, own) = (u64::from(self.shared.world.shards()), self.shared.world.shard());
        let total = order.kind.total(&self.shared.layout()).0;
        let mut at = at;
        while at < total {
            let Some(sector) = layout.sector_of_copy(slot, MemberSector(at)) else {
                // A chunk after the last one of the array.
                let chunk = self.shared.layout().chunk().0.max(1);
                at = (at / chunk + 1) * chunk;
                continue;
            };
            let end = sector.0 + self.shared.layout().contiguous(sector).0.min(total - at);
            let run = match order.by_bits {
                true => self.shared.intent.stretch_to_recover(sector.0, end, WINDOW).unwrap_or(end..end),
                false => sector.0..end,
            };
            if run.start > sector.0 {
                mark::hit(Mark::ResyncSkippedClean);
                at += run.start - sector.0;
                continue;
            }
            let unit = sector.0 / UNIT;
            let held = ((unit + 1) * UNIT).min(run.end) - sector.0;
            if ShardIndex((unit % shards) as u16) != own {
                at += held;
                continue;
            }
            return Some(Window { at, length: Sectors(held.min(self.window)), sector });
        }
        None
    }
}

/// What a window locks: sectors of the array, or rows.
pub(crate) fn locked<W: World>(shared: &Shared<W>, window: &Window) -> std::ops::Range<u64> {
    match &*shared.layout() {
        Layout::Parity(layout) => {
            let chunk = layout.chunk().0;
            let rows = window.at / chunk..(window.at + window.length.0).div_ceil(chunk);
            let owner = |row: u64| shared.owner_of(Row(row));
            assert!(rows.clone().all(|row| owner(row) == shared.world.shard()), "a row has one owner");
            rows
        }
        Layout::Copies(_) => {
            let sectors = window.sector.0..window.sector.0 + window.length.0;
            assert_eq!(sectors.start / UNIT, (sectors.end - 1) / UNIT, "a window is in one unit");
            sectors
        }
    }
}

/// The number of windows that the pass arena has room for: those of passes, and of corrections.
pub(crate) fn windows_at_once<W: World>(shared: &Shared<W>) -> usize {
    let blocks = shared.world.arena(Pool::Pass).large_blocks();
    let of_window = usize::from(shared.layout().slots()) + 2;
    let room = blocks / of_window;
    assert!(room > 0, "the pass arena holds one window");
    room.min(WINDOWS_AT_ONCE)
}
