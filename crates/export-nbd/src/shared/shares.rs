//! The clients' memory for one array: how much of it each connection may hold, and which request is next when memory is
//! short.
//! Owns: [`Shares`], [`Account`], [`Hold`]. Not here: the blocks (`block::buffer`), cutting a client that gives nothing
//! back (`watchdog`).
//! Invariant: all requests together hold at most the common part and the spare part of the arena. A connection that
//! holds nothing gets its next request's memory after at most one request of each other waiting connection.
//!
//! ```text
//!   arena   | common: first come, first served, one request of each connection at a time | spare | not given out |
//! ```
//! A connection starts with a small limit, which grows by the bytes that the connection gives back. A client that takes
//! no replies gives nothing back: eight such clients hold at most half of the common part, however much they request.
//! While a request waits, no connection gets more than an equal share.
//!
//! Writes hold at most half of the common part. A member that does not answer delays each write for as long as the
//! member is in the array, but a read for at most half a second, because another copy has the bytes. So reads continue
//! beside any number of writes that wait for such a member.

use std::cell::Cell;
use std::rc::Rc;
use uraid_block::buffer::{LARGE_BLOCK_BYTES, SMALL_BLOCK_BYTES};
use uraid_block::local::{Either, Notify, Permit, Semaphore, race};

/// The largest request that a connection may have in the spare part.
const SPARE_REQUEST_BYTES_MAX: usize = LARGE_BLOCK_BYTES;
/// A new connection may hold 1/N of the common memory, or [`START_BYTES_MIN`] if that is more, but at most a quarter.
const START_PART: usize = 16;
const START_BYTES_MIN: usize = 1 << 20;
/// Requests up to this size take small blocks.
const SMALL_REQUEST_BYTES_MAX: usize = 16 << 10;

/// Whether a request reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What one connection holds of the clients' memory.
pub(crate) struct Account {
    held: Cell<usize>,
    /// The part of `held` that writes hold in the common part.
    written: Cell<usize>,
    /// The most bytes that the connection may hold. A single request may be larger.
    limit: Cell<usize>,
    limit_max: usize,
    /// How many accounts of the server hold memory.
    holders: Rc<Cell<usize>>,
    changed: Notify,
}

impl Account {
    /// Bytes that it holds.
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    fn enter(self: &Rc<Self>, bytes: usize, write: Option<Permit>) -> Entry {
        if self.held.get() == 0 {
            self.holders.set(self.holders.get() + 1);
        }
        self.held.set(self.held.get() + bytes);
        if write.is_some() {
            self.written.set(self.written.get() + bytes);
        }
        assert!(self.written.get() <= self.held.get(), "what writes hold is part of it");
        Entry { account: self.clone(), bytes, write }
    }
}

/// Bytes that one request holds in its connection's account, until this is dropped.
struct Entry {
    account: Rc<Account>,
    bytes: usize,
    /// For a write in the common part: its permit of the bytes that writes may hold.
    write: Option<Permit>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let account = &self.account;
        assert!(account.held.get() >= self.bytes && account.holders.get() > 0, "what is given back was held");
        account.held.set(account.held.get() - self.bytes);
        if self.write.is_some() {
            assert!(account.written.get() >= self.bytes);
            account.written.set(account.written.get() - self.bytes);
        }
        if account.held.get() == 0 {
            account.holders.set(account.holders.get() - 1);
        }
        // The client has received the reply.
        account.limit.set((account.limit.get() + self.bytes).min(account.limit_max));
        account.changed.notify_all();
    }
}

/// The permits that a request holds until its reply has left. Dropping this releases them.
#[derive(Default)]
#[allow(dead_code, reason = "permits are held, not read")]
pub(crate) struct Hold {
    in_flight: Option<Permit>,
    /// A permit of the common part, or of the spare part.
    memory: Option<Permit>,
    large: Option<Permit>,
    entry: Option<Entry>,
}

impl Hold {
    /// For a request without data.
    pub(crate) fn new(in_flight: Permit) -> Hold {
        Hold { in_flight: Some(in_flight), ..Hold::default() }
    }
}

/// The memory that all connections to one array share.
pub(crate) struct Shares {
    bytes: usize,
    /// The most that one connection may hold: a quarter, or one largest request.
    limit_max: usize,
    /// The least that a request counts for.
    request_bytes_min: usize,
    common: Rc<Semaphore>,
    /// Permits for the bytes of the common part that writes may hold.
    writes: Rc<Semaphore>,
    /// Permits of the spare part, for connections that hold nothing: one small request of each can proceed while others
    /// hold all the rest.
    spare: Rc<Semaphore>,
    /// Permits for requests beyond their connection's limit, one set for reads and one for writes. Each set holds at
    /// most a quarter of the common part.
    large: [Rc<Semaphore>; 2],
    holders: Rc<Cell<usize>>,
    /// How many requests wait for memory or blocks that others hold; how many of these wait for `large`; how many other
    /// writes wait for `writes`.
    waiting: Cell<usize>,
    waiting_large: Cell<usize>,
    waiting_writes: Cell<usize>,
    /// Notified when a request begins to wait.
    shortage: Rc<Notify>,
}

impl Shares {
    /// Shares of `arena_bytes` in `blocks` blocks; the largest request has `request_bytes_max`.
    pub(crate) fn new(arena_bytes: usize, blocks: usize, request_bytes_max: usize, shortage: Rc<Notify>) -> Shares {
        // The block classes of the arena fill up unevenly. An eighth is not given out, so that most requests do not
        // wait for the last block of a class.
        let (bytes, spare) = (arena_bytes / 4 * 3, arena_bytes / 8);
        assert!(bytes + spare <= arena_bytes, "no more is given out than there is");
        assert!(blocks > 0 && bytes >= blocks, "a request counts for its blocks");
        Shares {
            bytes,
            limit_max: (bytes / 4).max(request_bytes_max).min(bytes),
            request_bytes_min: bytes / blocks,
            common: Semaphore::new(bytes),
            writes: Semaphore::new(bytes / 2),
            spare: Semaphore::new(spare),
            large: [Semaphore::new(bytes / 4), Semaphore::new(bytes / 4)],
            holders: Rc::default(),
            waiting: Cell::new(0),
            waiting_large: Cell::new(0),
            waiting_writes: Cell::new(0),
            shortage,
        }
    }

    /// The account of a new connection.
    pub(crate) fn open(&self) -> Rc<Account> {
        Rc::new(Account {
            held: Cell::new(0),
            written: Cell::new(0),
            limit: Cell::new((self.bytes / START_PART).max(START_BYTES_MIN).min(self.bytes / 4)),
            limit_max: self.limit_max,
            holders: self.holders.clone(),
            changed: Notify::new(),
        })
    }

    /// The bytes that a request with `bytes` of data counts for: those of its blocks. Small blocks run out before the
    /// bytes do, so small requests count twice, and every request counts for at least one block's part of the memory.
    fn cost(&self, bytes: usize) -> usize {
        let cost = match bytes <= SMALL_REQUEST_BYTES_MAX {
            true => 2 * bytes.next_multiple_of(SMALL_BLOCK_BYTES),
            false => bytes.next_multiple_of(LARGE_BLOCK_BYTES),
        };
        let cost = cost.max(self.request_bytes_min).min(self.bytes);
        assert!(cost > 0, "each request with data counts");
        cost
    }

    /// The permits for a request, if they are available without waiting.
    pub(crate) fn hold_now(
        &self,
        in_flight: &Rc<Semaphore>,
        account: &Rc<Account>,
        direction: Direction,
        bytes: usize,
    ) -> Option<Hold> {
        let cost = self.cost(bytes);
        if account.held.get() + cost > self.limit(account, direction) {
            return None;
        }
        let mut hold = Hold::new(in_flight.try_acquire(1)?);
        let write = match direction {
            Direction::Read => None,
            Direction::Write => Some(self.writes.try_acquire(self.write_cost(cost))?),
        };
        hold.memory = Some(self.common.try_acquire(cost)?);
        hold.entry = Some(account.enter(cost, write));
        Some(hold)
    }

    /// The permits for a request. Waits while the connection, or all connections together, hold too much. One call for
    /// each connection at a time.
    pub(crate) async fn hold(
        &self,
        in_flight: &Rc<Semaphore>,
        account: &Rc<Account>,
        direction: Direction,
        bytes: usize,
    ) -> Hold {
        let cost = self.cost(bytes);
        let mut hold = Hold::new(in_flight.acquire(1).await);
        let fits = || account.held.get() == 0 || account.held.get() + cost <= self.limit(account, direction);
        account.changed.wait_for(|| fits().then_some(())).await;
        if cost > account.limit.get() {
            hold.large = Some(self.hold_large(direction, cost).await);
        }
        let common = self.hold_common(direction, cost);
        let (write, memory) = if cost > SPARE_REQUEST_BYTES_MAX {
            common.await
        } else {
            // Clients that do not take their replies may hold the common part for a long time.
            match race(common, self.hold_spare(account, cost)).await {
                Either::Left(permits) => permits,
                Either::Right(permit) => (None, permit),
            }
        };
        hold.memory = Some(memory);
        hold.entry = Some(account.enter(cost, write));
        hold
    }

    async fn hold_large(&self, direction: Direction, cost: usize) -> Permit {
        let large = &self.large[direction as usize];
        let cost = cost.min(self.bytes / 4);
        match large.try_acquire(cost) {
            Some(permit) => permit,
            None => {
                let _waiting = self.wait();
                let _large = Waiting::new(&self.waiting_large);
                large.acquire(cost).await
            }
        }
    }

    /// A permit of the common part, and for a write also one of the bytes that writes may hold.
    async fn hold_common(&self, direction: Direction, cost: usize) -> (Option<Permit>, Permit) {
        let write = match direction {
            Direction::Read => None,
            Direction::Write => Some(self.hold_write(self.write_cost(cost)).await),
        };
        match self.common.try_acquire(cost) {
            Some(permit) => (write, permit),
            None => {
                let _waiting = self.wait();
                (write, self.common.acquire(cost).await)
            }
        }
    }

    async fn hold_write(&self, cost: usize) -> Permit {
        match self.writes.try_acquire(cost) {
            Some(permit) => permit,
            None => {
                let _waiting = Waiting::new(&self.waiting_writes);
                self.shortage.notify_all();
                self.writes.acquire(cost).await
            }
        }
    }

    /// What a write takes of the bytes that writes may hold: the largest writes take all of them.
    fn write_cost(&self, cost: usize) -> usize {
        cost.min(self.bytes / 2)
    }

    async fn hold_spare(&self, account: &Account, cost: usize) -> Permit {
        account.changed.wait_for(|| (account.held.get() == 0).then_some(())).await;
        self.spare.acquire(cost).await
    }

    /// The current limit of the connection.
    fn limit(&self, account: &Account, direction: Direction) -> usize {
        let share = |bytes: usize, waiting: usize| match waiting {
            0 => usize::MAX,
            _ => bytes / (self.holders.get() + waiting),
        };
        let limit = account.limit.get().min(share(self.bytes, self.waiting.get()));
        match direction {
            Direction::Read => limit,
            Direction::Write => limit.min(share(self.bytes / 2, self.waiting_writes.get())),
        }
    }

    /// Counts a request as waiting for memory that others hold, until the result is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        let waiting = Waiting::new(&self.waiting);
        self.shortage.notify_all();
        waiting
    }

    /// Whether a request waits for memory that others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.get() > 0 || self.waiting_writes.get() > 0
    }

    /// Whether the connection should give memory back. That is so if it holds more than its limit while a request waits
    /// for common memory, or if its writes hold more than theirs while a write waits. (If no connection exceeded its
    /// limit, the first waiting request could proceed.) It is also so if the connection has a request beyond its limit
    /// while another request waits to go beyond its own.
    pub(crate) fn exceeds_share(&self, account: &Account) -> bool {
        let (held, holders) = (account.held.get(), self.holders.get());
        let level = match self.common.first_wanted() {
            Some(wanted) => (self.bytes - wanted).checked_div(holders),
            None => self.bytes.checked_div(holders + self.waiting.get()),
        };
        let of_writes = |wanted: usize| (self.bytes / 2 - wanted).checked_div(holders);
        let write_level = self.writes.first_wanted().and_then(of_writes);
        let is_large = self.waiting_large.get() > 0 && held > account.limit.get();
        is_large
            || level.is_some_and(|level| held > level)
            || write_level.is_some_and(|level| account.written.get() > level)
    }

    /// How many bytes to reclaim at once while memory is short: a quarter.
    pub(crate) fn bytes_to_reclaim(&self) -> usize {
        self.bytes / 4
    }
}

/// Counts a request as waiting until this is dropped.
pub(crate) struct Waiting<'a>(&'a Cell<usize>);

impl Waiting<'_> {
    fn new(count: &Cell<usize>) -> Waiting<'_> {
        count.set(count.get() + 1);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        assert!(self.0.get() > 0);
        self.0.set(self.0.get() - 1);
    }
}
