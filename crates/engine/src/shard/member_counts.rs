//! Requests and errors of each member, counted by each shard for itself.
//! Owns: [`CountedMember`], [`MemberCounts`], when an error is reported to the steward for the log. Not here: summing
//! over shards (the caller), what follows from errors (`verdict`, `health`).
//! Invariant: a request that succeeds costs plain cells of its shard: no allocation, no lock, no atomic, and no extra
//! reading of the clock (`World::turn_time`).

use crate::shard::mail::{Mail, Message, STEWARD};
use crate::shard::world::World;
use crate::words::bad_blocks::BadBlockList;
use crate::words::failure::{ErrorReport, RequestKind};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use uraid_block::{
    Allocation, Device, ErrorKind, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, Tick, WritePieces,
};

/// Requests of one kind that a member has answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequestCounts {
    /// All requests, including those that failed.
    pub requests: u64,
    /// Bytes of the requests that succeeded; 0 for flushes.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// The request that took longest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slowest {
    /// What it was.
    pub kind: RequestKind,
    /// How long it took, to within one turn of its thread.
    pub time: Duration,
    /// When it ended.
    pub at: Tick,
}

/// The counts of one member since the array was started: of one shard, or of all together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemberCounts {
    /// By [`RequestKind`].
    pub of: [RequestCounts; RequestKind::COUNT],
    /// Sectors of failed reads for which the other members supplied the data.
    pub read_elsewhere: Sectors,
    /// `None` before the first request ended.
    pub slowest: Option<Slowest>,
    /// The age of the oldest request in flight, as far as the member knows it: see [`Device::unanswered_for`].
    pub unanswered_for: Duration,
}

impl MemberCounts {
    /// The counts of one kind.
    pub fn kind(&self, kind: RequestKind) -> RequestCounts {
        self.of[kind as usize]
    }

    /// The sum of both.
    pub fn and(mut self, other: &MemberCounts) -> MemberCounts {
        for (mine, theirs) in self.of.iter_mut().zip(&other.of) {
            mine.requests += theirs.requests;
            mine.bytes += theirs.bytes;
            mine.errors += theirs.errors;
        }
        self.read_elsewhere += other.read_elsewhere;
        self.unanswered_for = self.unanswered_for.max(other.unanswered_for);
        self.slowest = [self.slowest, other.slowest].into_iter().flatten().max_by_key(|slowest| slowest.time);
        self
    }
}

#[derive(Default)]
struct Cells {
    requests: Cell<u64>,
    /// Of requests that succeeded.
    sectors: Cell<u64>,
    errors: Cell<u64>,
}

/// A member as one shard drives it, with its counts.
pub(crate) struct CountedMember<W: World> {
    world: W,
    member: W::Member,
    /// Its index in the start plan.
    index: usize,
    of: [Cells; RequestKind::COUNT],
    read_elsewhere: Cell<u64>,
    slowest: Cell<Option<Slowest>>,
    /// The time of `slowest` plus 1 ns. Every request compares its own time with it.
    slowest_nanos: Cell<u64>,
    /// The array has failed the member: errors after that are not reported.
    is_dead: Cell<bool>,
    /// The sectors that the member lacks, by this shard's view, and whether there are any.
    bad_blocks: RefCell<BadBlockList>,
    has_bad_blocks: Cell<bool>,
}

/// When a request was sent. Every future that waits for a member holds one, so it does not store what its caller knows.
pub(crate) struct Begun(Tick);

impl<W: World> CountedMember<W> {
    pub(crate) fn new(world: W, member: W::Member, index: usize) -> CountedMember<W> {
        let (of, read_elsewhere, slowest, slowest_nanos, is_dead) = Default::default();
        let (bad_blocks, has_bad_blocks) = Default::default();
        CountedMember {
            world,
            member,
            index,
            of,
            read_elsewhere,
            slowest,
            slowest_nanos,
            is_dead,
            bad_blocks,
            has_bad_blocks,
        }
    }

    /// Sets the sectors that the member lacks.
    pub(crate) fn set_bad_blocks(&self, list: BadBlockList) {
        self.has_bad_blocks.set(!list.is_empty());
        self.bad_blocks.replace(list);
    }

    /// Whether the member lacks a sector of the range.
    #[inline]
    pub(crate) fn lacks(&self, range: Range) -> bool {
        self.has_bad_blocks.get() && self.bad_blocks.borrow().overlaps(range)
    }

    /// Whether the member lacks every sector of the range.
    pub(crate) fn lacks_all(&self, range: Range) -> bool {
        self.has_bad_blocks.get() && self.bad_blocks.borrow().contains(range)
    }

    /// The longest stretch from the start of the range that the member lacks as a whole, or has.
    pub(crate) fn lacks_alike(&self, range: Range) -> Sectors {
        self.bad_blocks.borrow().alike(range)
    }

    /// An error if the member lacks a sector of the range: then it is not asked for it.
    #[inline]
    pub(crate) fn check_read(&self, range: Range) -> Result<(), IoError> {
        if self.lacks(range) { Err(ErrorKind::Media.into()) } else { Ok(()) }
    }

    pub(crate) fn counts(&self) -> MemberCounts {
        let of = self.of.each_ref().map(|cells| RequestCounts {
            requests: cells.requests.get(),
            bytes: Sectors(cells.sectors.get()).bytes(),
            errors: cells.errors.get(),
        });
        assert!(of.iter().all(|counts| counts.errors <= counts.requests), "each error is of a request");
        let (read_elsewhere, slowest) = (Sectors(self.read_elsewhere.get()), self.slowest.get());
        MemberCounts { of, read_elsewhere, slowest, unanswered_for: self.member.unanswered_for() }
    }

    /// The bytes that it has read and written; discards and zeroes move none.
    pub(crate) fn bytes(&self) -> u64 {
        let sectors = |kind: RequestKind| self.of[kind as usize].sectors.get();
        Sectors(sectors(RequestKind::Read) + sectors(RequestKind::Write)).bytes()
    }

    /// Counts sectors that this member failed to read and the other members supplied.
    pub(crate) fn note_read_elsewhere(&self, sectors: Sectors) {
        assert!(!sectors.is_zero(), "a read that failed was of some sector");
        self.read_elsewhere.set(self.read_elsewhere.get() + sectors.0);
    }

    /// The member itself, for paths that count on their own. A wrapper's future moves its input and output twice more,
    /// which costs a read of 4 KiB 14 ns.
    #[inline]
    pub(crate) fn uncounted(&self) -> &W::Member {
        &self.member
    }

    #[inline]
    pub(crate) fn begin(&self) -> Begun {
        Begun(self.world.turn_time())
    }

    #[inline]
    pub(crate) fn end(&self, begun: &Begun, kind: RequestKind, range: Range, error: Option<IoError>) {
        let cells = &self.of[kind as usize];
        cells.requests.set(cells.requests.get() + 1);
        let now = self.world.turn_time();
        if now.0 - begun.0.0 >= self.slowest_nanos.get() {
            self.note_slow(begun, kind, now);
        }
        match error {
            None => cells.sectors.set(cells.sectors.get() + range.length.0),
            Some(error) => self.note_error(kind, range, error),
        }
    }

    #[cold]
    fn note_slow(&self, begun: &Begun, kind: RequestKind, now: Tick) {
        let time = now.since(begun.0);
        if self.slowest.get().is_none_or(|slowest| time > slowest.time) {
            self.slowest.set(Some(Slowest { kind, time, at: now }));
            // Requests that take no longer than this one skip this function.
            self.slowest_nanos.set(now.0 - begun.0.0 + 1);
        }
    }

    #[cold]
    fn note_error(&self, kind: RequestKind, range: Range, error: IoError) {
        if self.is_dead.get() || !is_of_member(error) {
            return;
        }
        let cells = &self.of[kind as usize];
        let count = cells.errors.get() + 1;
        cells.errors.set(count);
        assert!(count <= cells.requests.get(), "each error is of a request");
        if is_reported(count) {
            let (shard, member) = (self.world.shard(), self.index);
            let report = ErrorReport { shard, member, kind, count, range, error };
            self.world.post(STEWARD, Mail(Message::Errors(report)));
        }
    }
}

/// Whether an error is the member's fault. It is not if the request did not reach the member, or if the member lacks
/// the operation.
fn is_of_member(error: IoError) -> bool {
    match error.kind {
        ErrorKind::Media => error.is_of_device(),
        ErrorKind::Gone | ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::OutOfRange | ErrorKind::TooManyLost => {
            true
        }
        ErrorKind::Late | ErrorKind::Unsupported | ErrorKind::NoMemory | ErrorKind::Frozen | ErrorKind::Stopping => {
            false
        }
    }
}

/// Whether a shard reports its error number `count` to the steward: each of the first 128, then each that differs in
/// the first seven binary digits. So the sum over shards is right to within 1 in 64, and a member that fails every
/// request causes only a logarithmic number of messages.
fn is_reported(count: u64) -> bool {
    assert!(count > 0, "errors are counted from 1");
    let digits = u64::BITS - count.leading_zeros();
    count.trailing_zeros() + 7 >= digits
}

impl<W: World> Device for CountedMember<W> {
    fn geometry(&self) -> Geometry {
        self.member.geometry()
    }

    #[inline]
    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        let (begun, range) = (self.begin(), Range::new(at, into.length()));
        let outcome = self.member.read(at, into).await;
        self.end(&begun, RequestKind::Read, range, outcome.as_ref().err().copied());
        outcome
    }

    #[inline]
    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let (begun, range) = (self.begin(), Range::new(at, from.length()));
        let outcome = self.member.write(at, from, fua).await;
        self.end(&begun, RequestKind::Write, range, outcome.as_ref().err().copied());
        outcome
    }

    async fn flush(&self) -> Result<(), IoError> {
        let begun = self.begin();
        let outcome = self.member.flush().await;
        self.end(&begun, RequestKind::Flush, Range::new(Sector(0), Sectors::ZERO), outcome.as_ref().err().copied());
        outcome
    }

    async fn discard(&self, range: Range) -> Result<(), IoError> {
        let begun = self.begin();
        let outcome = self.member.discard(range).await;
        self.end(&begun, RequestKind::Discard, range, outcome.as_ref().err().copied());
        outcome
    }

    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        let begun = self.begin();
        let outcome = self.member.write_zeroes(range).await;
        self.end(&begun, RequestKind::Zeroes, range, outcome.as_ref().err().copied());
        outcome
    }

    async fn punch_hole(&self, range: Range) -> Result<(), IoError> {
        let begun = self.begin();
        let outcome = self.member.punch_hole(range).await;
        self.end(&begun, RequestKind::Zeroes, range, outcome.as_ref().err().copied());
        outcome
    }

    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        if self.lacks(range) {
            return Ok(Allocation { length: range.length, is_zero: false });
        }
        self.member.allocation(range).await
    }

    fn cut_reads(&self) {
        self.member.cut_reads();
    }

    fn unanswered_for(&self) -> Duration {
        self.member.unanswered_for()
    }

    fn mark_dead(&self) {
        assert!(!self.is_dead.replace(true), "a member is failed once");
        self.member.mark_dead();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_reported_first_and_then_ever_fewer() {
        assert!((1..=128).all(is_reported));
        let reported: Vec<u64> = (1..=1 << 20).filter(|&count| is_reported(count)).collect();
        // 128, and 64 for each of the 13 doublings from 2^7 to 2^20.
        assert_eq!(reported.len(), 128 + 13 * 64);
        assert!(reported.windows(2).all(|pair| (pair[1] - pair[0]) * 64 <= pair[0].max(64)));
        assert!(is_reported(1 << 63));
    }

    #[test]
    fn sums_add_up_and_keep_the_slowest() {
        let slowest =
            |millis| Slowest { kind: RequestKind::Write, time: Duration::from_millis(millis), at: Tick(millis) };
        let mut one = MemberCounts { read_elsewhere: Sectors(3), slowest: Some(slowest(5)), ..MemberCounts::default() };
        one.of[RequestKind::Read as usize] = RequestCounts { requests: 7, bytes: 512, errors: 2 };
        let mut other = MemberCounts { slowest: Some(slowest(4)), ..one };
        let sum = one.and(&other).and(&MemberCounts::default());
        assert_eq!(sum.kind(RequestKind::Read), RequestCounts { requests: 14, bytes: 1024, errors: 4 });
        assert_eq!((sum.read_elsewhere, sum.slowest), (Sectors(6), Some(slowest(5))));
        other.slowest = Some(slowest(9));
        assert_eq!(one.and(&other).slowest, Some(slowest(9)));
    }
}
