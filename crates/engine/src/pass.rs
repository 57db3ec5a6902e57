//! One shard's part of a pass: windows over the rows, or the units of copies, that this shard owns.
//! Owns: [`Pass`], the order of windows, their locks, how far this shard has come. Not here: what is done in a window
//! (`resync`), when a pass begins and what follows from its end (`passes`).
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

use crate::permit::UNIT;
use crate::progress::{self, PassCounts, PassReport, WINDOW};
use crate::resync::Resync;
use crate::row_io::RowIo;
use crate::sabotage::{self, Sabotage};
use crate::shared::Shared;
use crate::{Pool, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uraid_block::local::join_all;
use uraid_block::{ArraySector, ErrorKind, IoError, Sectors, ShardIndex};
use uraid_layout::{Layout, Row};

/// The most windows that one shard has in flight.
const WINDOWS_AT_ONCE: usize = 16;

/// One shard's part of a pass.
pub(crate) struct Pass<W: World> {
    shared: Rc<Shared<W>>,
    resync: Resync<W>,
    total: u64,
    /// The longest window.
    window: u64,
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
}

impl<W: World> Pass<W> {
    /// `rows`: of parity levels.
    pub(crate) fn new(shared: Rc<Shared<W>>, rows: Option<Rc<RowIo<W>>>) -> Pass<W> {
        Pass {
            total: progress::total(&shared.layout).0,
            window: shared.config.pass_window.0.clamp(1, WINDOW),
            resync: Resync::new(shared.clone(), rows),
            next: Cell::new(0),
            below: Cell::new(shared.in_sync_below.get().0),
            shared,
            in_flight: RefCell::default(),
            counts: Cell::default(),
            unreadable_from: Cell::new(None),
            is_running: Cell::new(false),
        }
    }

    /// Passes over what this shard owns, from where it has come before. Ends early if the array stops or freezes.
    pub(crate) async fn run(&self) {
        assert!(!self.is_running.replace(true), "one pass at a time");
        self.next.set(self.below.get());
        self.in_flight.borrow_mut().clear();
        let outcomes = join_all((0..self.windows_at_once()).map(|_| self.pass_windows())).await;
        // A window fails if the array freezes: the others have seen that at the gate.
        let has_failed = outcomes.iter().any(Result::is_err);
        assert!(has_failed || self.in_flight.borrow().is_empty(), "every window was passed");
        self.is_running.set(false);
    }

    /// How far it has come.
    pub(crate) fn report(&self) -> PassReport {
        let (below, readable_below) = (Sectors(self.below.get()), self.shared.in_sync_below.get());
        PassReport { below, readable_below, counts: self.counts.get() }
    }

    /// Takes one window after the other, while the gate is open.
    async fn pass_windows(&self) -> Result<(), IoError> {
        loop {
            let Some(_inside) = self.shared.admit_pass().await else { return Ok(()) };
            let Some((at, length)) = self.take_window() else { return Ok(()) };
            let _lock = if sabotage::is(Sabotage::PassUnlocked) {
                None
            } else {
                Some(self.shared.locks.guard(self.locked(at, length)).await)
            };
            if !self.shared.torn.is_empty() {
                // A write of these rows may have been refused half done while this window waited for its lock.
                return Err(ErrorKind::Frozen.into());
            }
            let met = self.resync.resync_window(at, length).await?;
            self.end_window(at, met);
        }
    }

    /// The next window that this shard owns.
    fn take_window(&self) -> Option<(u64, Sectors)> {
        let window = self.window_from(self.next.get());
        let next = window.map_or(self.total, |(at, length)| at + length.0);
        assert!(next >= self.next.get(), "windows ascend");
        self.next.set(next);
        if let Some((at, _)) = window {
            self.in_flight.borrow_mut().push(at);
        } else {
            self.note_progress();
        }
        window
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
        let in_sync = self.unreadable_from.get().map_or(below, |from| below.min(from));
        assert!(in_sync >= self.shared.in_sync_below.get().0, "what is consistent stays so");
        self.shared.in_sync_below.set(Sectors(in_sync));
    }

    /// The first window at or after this sector that this shard owns: not longer than a block of the pass arena, in one
    /// unit, and within what the members hold contiguously.
    fn window_from(&self, at: u64) -> Option<(u64, Sectors)> {
        let shards = u64::from(self.shared.world.shards());
        let (own, chunk) = (self.shared.world.shard(), self.shared.layout.chunk().0);
        // Alone, a shard owns all rows, and a window may span several.
        let unit = match &self.shared.layout {
            Layout::Parity(_) if shards > 1 => chunk,
            Layout::Parity(_) => self.total,
            Layout::Copies(_) => UNIT,
        };
        let mut at = at;
        while at < self.total {
            let number = at / unit;
            let end = ((number + 1) * unit).min(self.total);
            if ShardIndex((number % shards) as u16) != own {
                at = end;
                continue;
            }
            let longest = match &self.shared.layout {
                Layout::Parity(_) => self.window,
                Layout::Copies(_) => self.window.min(self.shared.layout.contiguous(ArraySector(at)).0),
            };
            return Some((at, Sectors(longest.min(end - at))));
        }
        None
    }

    /// What a window locks: sectors of the array, or rows.
    fn locked(&self, at: u64, length: Sectors) -> std::ops::Range<u64> {
        let end = at + length.0;
        match &self.shared.layout {
            Layout::Parity(layout) => {
                let chunk = layout.chunk().0;
                let rows = at / chunk..end.div_ceil(chunk);
                let owner = |row: u64| self.shared.owner_of(Row(row));
                assert!(rows.clone().all(|row| owner(row) == self.shared.world.shard()), "a row has one owner");
                rows
            }
            Layout::Copies(_) => {
                assert_eq!(at / UNIT, (end - 1) / UNIT, "a window is in one unit");
                at..end
            }
        }
    }

    /// The number of windows that the pass arena has room for.
    fn windows_at_once(&self) -> usize {
        let blocks = self.shared.world.arena(Pool::Pass).large_blocks();
        let of_window = usize::from(self.shared.layout.slots()) + 2;
        let room = blocks / of_window;
        assert!(room > 0, "the pass arena holds one window");
        room.min(WINDOWS_AT_ONCE)
    }
}
