//! Holds a row for the rest of a write that arrives in pieces, in any order and by any shard.
//! Owns: [`Pieces`], what one shard knows of the rows that it owns. Not here: streams of writes that one shard
//! receives (`gather`), what is done with the writes of a row (`row`).
//! Invariant: a row is held only after rows before it have come in pieces that no client can have sent one after the
//! other: the second came while the first was being written. A hold that was in vain makes the next one rarer.
//!
//! ```text
//!   a client writes 1280 KiB and waits         its kernel makes two requests of it, and two shards receive them
//!   shard 0: 1 MiB   -- row 0 whole, 60 % of row 1 --+
//!                                                    +--> the owner of row 1: whole, if it waits for the second
//!   shard 1: 256 KiB -- 40 % of row 1 ---------------+
//! ```
//!
//! The short piece is received sooner than the long one, so often the end of a row comes first.

use crate::World;
use crate::row::table::Visit;
use crate::shard::stream_ends::hash_index;
use std::cell::Cell;
use std::time::Duration;
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::{Either, race};
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_layout::Row;

/// A row counts only if one of its pieces has this length: the reads that a hold saves for shorter ones are cheaper than
/// the hold.
const PIECE_MIN: Sectors = Sectors((LARGE_BLOCK_BYTES / SECTOR_BYTES) as u64);
/// The longest hold of a row.
const HOLD_MAX: Duration = Duration::from_millis(1);
/// How many rows must have come in pieces before one is held.
const MET_MIN: u32 = 2;
/// The same after many holds in vain.
const MET_MAX: u32 = 64;
/// How many rows are remembered that were written in part.
const PARTS: usize = 16;

/// A row that was written in part.
#[derive(Clone, Copy, Default)]
struct Part {
    row: Row,
    /// How much of it; none: this is no row.
    written: Sectors,
    /// The length of its first piece, and of its longest one.
    first: Sectors,
    longest: Sectors,
}

/// How a write came to its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// No other task had the row or waited for it.
    Alone,
    /// While another one had it: its client has not waited for that one.
    Joined,
}

/// What was seen of rows whose first piece is long, or short.
struct Seen {
    /// How many came in pieces since a hold was in vain.
    met: Cell<u32>,
    /// From how many on a row is held.
    needed: Cell<u32>,
}

impl Seen {
    fn new() -> Seen {
        Seen { met: Cell::new(0), needed: Cell::new(MET_MIN) }
    }
}

/// The rows of one shard that come in pieces.
pub(crate) struct Pieces {
    long: Seen,
    /// Apart, so that the short writes of other clients are not held for the sake of long ones.
    short: Seen,
    parts: [Cell<Part>; PARTS],
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        Pieces { long: Seen::new(), short: Seen::new(), parts: std::array::from_fn(|_| Cell::default()) }
    }

    fn seen(&self, first: Sectors) -> &Seen {
        if first >= PIECE_MIN { &self.long } else { &self.short }
    }

    /// Whether a write of this length matters. One that fills its row comes in no pieces; short ones matter only beside
    /// long ones.
    #[inline]
    pub(crate) fn concern(&self, length: Sectors, stripe: Sectors) -> bool {
        length < stripe && (length >= PIECE_MIN || self.long.met.get() > 0 || self.short.met.get() > 0)
    }

    /// Called by the row's holder before it writes what waits: waits for the rest of the row if it is due, and remembers
    /// how the row came.
    pub(crate) async fn hold<W: World>(
        &self,
        world: &W,
        row: Row,
        arrival: Arrival,
        visit: &Visit<'_>,
        stripe: Sectors,
    ) {
        self.wait_for_rest(world, row, arrival, visit, stripe).await;
        self.note(row, arrival, visit, stripe);
    }

    async fn wait_for_rest<W: World>(&self, world: &W, row: Row, arrival: Arrival, visit: &Visit<'_>, stripe: Sectors) {
        // A part of it has been written: what waits for the row cannot make it whole any more.
        let part = self.part(row).get();
        let is_rest = arrival == Arrival::Joined && part.row == row && !part.written.is_zero();
        let seen = self.seen(visit.first_waiting());
        if seen.met.get() < seen.needed.get() || is_rest || visit.waiting_length() >= stripe {
            return;
        }
        let end = world.now() + HOLD_MAX;
        while visit.waiting_length() < stripe && !visit.must_not_wait() {
            let left = end.since(world.now());
            if let Either::Right(()) = race(visit.another_arrives(), world.sleep(left)).await {
                seen.met.set(0);
                seen.needed.set((seen.needed.get() * 2).min(MET_MAX));
                return;
            }
        }
        if visit.waiting_length() >= stripe {
            seen.needed.set(MET_MIN);
        }
    }

    fn note(&self, row: Row, arrival: Arrival, visit: &Visit<'_>, stripe: Sectors) {
        let place = self.part(row);
        let before = Some(place.get()).filter(|part| part.row == row && arrival == Arrival::Joined).unwrap_or_default();
        let written = before.written + visit.waiting_length();
        let first = if before.written.is_zero() { visit.first_waiting() } else { before.first };
        let longest = before.longest.max(visit.longest_waiting());
        if written < stripe {
            place.set(Part { row, written, first, longest });
            return;
        }
        place.set(Part::default());
        if longest >= PIECE_MIN {
            let met = &self.seen(first).met;
            met.set(met.get().saturating_add(1));
        }
    }

    fn part(&self, row: Row) -> &Cell<Part> {
        &self.parts[hash_index(row.0, PARTS)]
    }
}
