//! Submits started requests: at once, or at the end of the turn together with adjacent ones.
//! Owns: starting on a lane, submitting what waits in lanes, splitting the result of a merged request over its parts.
//! Not here: what may be merged (`merge`), slots and futures (`ring`).
//! Invariant: a request that was merged ends as if it had been alone. If the merged one failed or came back short, its
//! incomplete parts are submitted again, each by itself. So an error concerns only its own request's sectors.
//!
//! A request that is held (see `merge`) is always submitted, and is delayed by at most one other request:
//! - It is held once, for one numbered request A that is in flight now. When A has ended, the held request is submitted
//!   in its group, whatever else is in flight.
//! - A does not depend on any held request: the device already has it.
//! - The shard does not sleep past the end of A. The lane of a held request stays busy, and all busy lanes are checked
//!   before each sleep. The end of A ends the sleep, whether A is on the ring or on a trial device. Then the lane is
//!   checked again before the next sleep, or in the same call if there was no sleep.
//! - A flush, and every other operation that is not a read or a write, first submits all held requests of all lanes. So
//!   does closing.

use super::answers::is_change;
use super::lane::Lane;
use super::merge::{Direction, Identity, Waiting, arrange, together};
use super::trace::TracedKind;
use super::{Buffers, Driver, Holder, Kind, Operation, Request, State, Wait};
use crate::sys;
use smallvec::SmallVec;
use std::rc::Rc;
use uraid_block::Tick;

/// Which of the waiting requests to submit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    All,
    /// All except held ones.
    Due,
}

/// A merged request: the tokens of its parts, with their bytes.
pub(super) struct Merged {
    lane: Rc<Lane>,
    parts: Vec<(u32, u64)>,
}

/// The allocations of an ended merged request, for reuse.
#[derive(Default)]
pub(super) struct Spare {
    parts: Vec<(u32, u64)>,
    segments: SmallVec<[libc::iovec; 4]>,
}

fn direction(kind: &Kind) -> Option<(Direction, u64)> {
    match kind {
        Kind::Read { at } => Some((Direction::Read, *at)),
        Kind::Write { at, sync: false } => Some((Direction::Write, *at)),
        Kind::Write { at, sync: true } => Some((Direction::WriteDurably, *at)),
        Kind::Sync | Kind::Allocate { .. } | Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } | Kind::Call(_) => {
            None
        }
    }
}

impl Merged {
    /// The tokens of the requests in it.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().map(|(token, _)| *token)
    }
}

impl Direction {
    fn kind(self, at: u64) -> Kind {
        match self {
            Direction::Read => Kind::Read { at },
            Direction::Write => Kind::Write { at, sync: false },
            Direction::WriteDurably => Kind::Write { at, sync: true },
        }
    }

    fn traced(self) -> TracedKind {
        match self {
            Direction::Read => TracedKind::Read,
            Direction::Write | Direction::WriteDurably => TracedKind::Write,
        }
    }
}

fn bytes(segments: &[libc::iovec]) -> u64 {
    segments.iter().map(|segment| segment.iov_len as u64).sum()
}

impl Request {
    fn take_lane(&mut self, lane: &Lane) {
        self.lane = lane.number();
        self.is_remote = lane.is_remote();
    }
}

impl Driver {
    /// Starts an operation on a member. Reads and writes wait until the end of the shard's turn, when adjacent ones are
    /// merged. All others are submitted at once, after the waiting ones.
    pub(crate) fn start_on(&self, lane: &Rc<Lane>, kind: Kind, buffers: Buffers) -> Operation<'_> {
        let mut request = Request::new(kind, buffers, Some(lane.clone()));
        request.slot = lane.slot();
        self.start_request(lane, request)
    }

    /// The same, through another file description of the member, as flushes use.
    pub(crate) fn start_with(&self, lane: &Rc<Lane>, holder: Holder, kind: Kind, buffers: Buffers) -> Operation<'_> {
        self.start_request(lane, Request::new(kind, buffers, Some(holder)))
    }

    fn start_request(&self, lane: &Rc<Lane>, mut request: Request) -> Operation<'_> {
        request.take_lane(lane);
        if let Some(os) = self.refusal(lane, is_change(&request.kind)) {
            let token = self.put(request);
            self.complete(token, -os);
            return self.operation(token);
        }
        let Some((direction, at)) = direction(&request.kind) else {
            self.send_waiting(Which::All);
            let is_call = matches!(request.kind, Kind::Call(_));
            let token = self.put(request);
            // A query by a helper thread is not a request to the device.
            if is_call {
                self.start_call(token)
            } else {
                self.submit(lane, token)
            }
            return self.operation(token);
        };
        let (bytes, segments) = (bytes(&request.segments), request.segments.len() as u32);
        let token = self.put(request);
        let mut waiting = lane.waiting.borrow_mut();
        let order = waiting.len() as u32;
        waiting.push(Waiting { at, bytes, segments, direction, order, token, held: None });
        if order == 0 {
            self.busy.borrow_mut().push(lane.clone());
        }
        drop(waiting);
        if !self.merges {
            self.send_waiting(Which::All);
        }
        self.operation(token)
    }

    /// Submits what waits in the lanes.
    pub(super) fn send_waiting(&self, which: Which) {
        self.busy.borrow_mut().retain(|lane| self.send_lane(lane, which));
    }

    /// Submits one lane's requests. Returns whether some are held.
    fn send_lane(&self, lane: &Rc<Lane>, which: Which) -> bool {
        let waiting = &mut *lane.waiting.borrow_mut();
        // If some overlap, they keep their order and are not merged.
        let can_merge = self.merges && (waiting.len() == 1 || arrange(waiting));
        let (mut at, mut held) = (0, 0);
        while at < waiting.len() {
            let count = if can_merge { together(&waiting[at..], lane.limits) } else { 1 };
            let (before, rest) = waiting.split_at_mut(at);
            let group = &mut rest[..count];
            // `held` of those before are moved to the front.
            let last_held = before[..held].last();
            if can_merge && which == Which::Due && self.is_held(lane, group, last_held) {
                waiting.copy_within(at..at + count, held);
                held += count;
            } else {
                self.send_group(lane, group);
            }
            at += count;
        }
        waiting.truncate(held);
        // Nothing overlapped, so their order does not matter. Later requests come after them.
        waiting.iter_mut().zip(0..).for_each(|(one, order)| one.order = order);
        held > 0
    }

    fn send_group(&self, lane: &Rc<Lane>, group: &[Waiting]) {
        let first = group[0];
        let bytes = group.iter().map(|one| one.bytes).sum();
        lane.note(first.direction.traced(), first.at, bytes, group.len() as u32);
        let token = if group.len() == 1 { first.token } else { self.merged(lane, group) };
        if self.merges {
            let identity = Identity { token, number: self.with_slot(token, |slot| slot.number.get()) };
            lane.recent.borrow_mut().note(group, identity);
        }
        self.submit(lane, token);
    }

    /// Whether a group is held: it continues a request in flight, and is smaller than the largest request merged into
    /// that one; or it continues `last`, which is held.
    fn is_held(&self, lane: &Lane, group: &mut [Waiting], last: Option<&Waiting>) -> bool {
        if group.iter().any(|one| one.held.is_some_and(|before| !self.is_under_way(before))) {
            return false;
        }
        if let Some(last) = last.filter(|last| last.is_continued_by(&group[0])) {
            group.iter_mut().for_each(|one| one.held = one.held.or(last.held));
            return true;
        }
        let recent = lane.recent.borrow();
        let Some(before) = recent.before(group).find(|sent| self.is_under_way(sent.identity)).copied() else {
            return false;
        };
        let bytes: u64 = group.iter().map(|one| one.bytes).sum();
        if bytes >= before.part_bytes {
            return false;
        }
        // Mark each request: next time they may be in other groups.
        group.iter_mut().for_each(|one| one.held = one.held.or(Some(before.identity)));
        true
    }

    fn is_under_way(&self, identity: Identity) -> bool {
        self.with_slot(identity.token, |slot| {
            slot.number.get() == identity.number
                && match *slot.state.borrow() {
                    State::Started(_) | State::Abandoned | State::Merged(_) | State::Cut(_) => true,
                    State::Free | State::Done(_) => false,
                }
        })
    }

    /// Merges a group into one operation.
    fn merged(&self, lane: &Rc<Lane>, group: &[Waiting]) -> u32 {
        let Spare { mut parts, mut segments } = self.spare.borrow_mut().pop().unwrap_or_default();
        for one in group {
            parts.push((one.token, one.bytes));
            self.with_request(one.token, |request| segments.extend_from_slice(&request.segments));
        }
        let mut request = Request::new(group[0].direction.kind(group[0].at), Buffers::None, Some(lane.clone()));
        request.segments = segments;
        request.slot = lane.slot();
        request.take_lane(lane);
        let token = self.put(request);
        let merged = Merged { lane: lane.clone(), parts };
        self.with_slot(token, |slot| *slot.state.borrow_mut() = State::Merged(merged));
        token
    }

    /// A merged request has ended: ends its parts that are complete, and submits the others again.
    pub(super) fn end_merged(&self, token: u32, merged: Merged, result: i32) {
        let (request, _) = self.take_request(token);
        let Merged { lane, mut parts } = merged;
        let mut left = u64::try_from(result).unwrap_or(0);
        for (token, bytes) in parts.drain(..) {
            if bytes <= left {
                left -= bytes;
                self.complete(token, i32::try_from(bytes).expect("not more than the whole, which was one"));
            } else if let Some(os) = self.refusal(&lane, is_change(&request.kind)) {
                self.complete(token, -os);
            } else {
                left = 0;
                self.note_again(&lane, token);
                self.submit(&lane, token);
            }
        }
        let mut segments = request.segments;
        segments.clear();
        self.spare.borrow_mut().push(Spare { parts, segments });
    }

    fn note_again(&self, lane: &Lane, token: u32) {
        self.with_request(token, |request| {
            let (direction, at) = direction(&request.kind).expect("only reads and writes are merged");
            lane.note_parted(direction.traced(), at, bytes(&request.segments));
        });
    }

    /// Submits to the ring, or to the trial device that replaces it.
    fn submit(&self, lane: &Rc<Lane>, token: u32) {
        let Some(trial) = &lane.trial else { return self.start_in_turn(lane.number(), token) };
        let bytes = self.with_request(token, |request| bytes(&request.segments));
        self.trials.start(trial.due(Tick(sys::monotonic_nanos()), bytes), token, lane.clone());
    }

    /// Shortens `wait` to the time when a trial device ends its next request.
    pub(super) fn until_trials(&self, wait: Wait) -> Wait {
        let Some(due) = self.trials.next() else { return wait };
        let left = due.since(Tick(sys::monotonic_nanos()));
        match wait {
            Wait::For(time) if time <= left => wait,
            Wait::No => Wait::No,
            Wait::For(_) | Wait::Forever if left.is_zero() => Wait::No,
            Wait::For(_) | Wait::Forever => Wait::For(left),
        }
    }

    /// Runs the requests that are due on trial devices.
    pub(super) fn end_trials(&self) {
        if self.trials.next().is_none() {
            return;
        }
        let now = Tick(sys::monotonic_nanos());
        while let Some(pending) = self.trials.take(now) {
            let result = self.with_request(pending.token, |request| {
                let trial = pending.lane.trial.as_ref().expect("only trials come here");
                // SAFETY: the segments are those of the request's own buffers, or of its parts', all in flight.
                unsafe { trial.run(&request.kind, &request.segments) }
            });
            self.complete(pending.token, result);
        }
    }
}

#[cfg(test)]
mod tests;
