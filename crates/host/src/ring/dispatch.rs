//! What was started goes down: at once, or at the end of the turn together with its neighbours.
//! Owns: starting on a lane, sending what waits in lanes, giving each part of a merged request its own end.
//! Not here: what may be merged (`merge`), slots and futures (`ring`).
//! Invariant: a request that was merged ends as if it had been alone: where the merged one failed or came back short,
//! those that are not whole go down again, each by itself. So an error speaks for no sectors but its own request's.

use super::lane::Lane;
use super::merge::{Direction, Waiting, arrange, together};
use super::trace::TracedKind;
use super::{Buffers, Cargo, Driver, Holder, Kind, Operation, State, Wait};
use crate::sys;
use smallvec::SmallVec;
use std::rc::Rc;
use uraid_block::Tick;

/// A request that others were merged into: who they are, with their bytes.
pub(super) struct Merged {
    lane: Rc<Lane>,
    parts: Vec<(u32, u64)>,
}

/// What a merged request needs, for the next one.
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
        Kind::Sync | Kind::Allocate { .. } | Kind::Receive { .. } | Kind::Send | Kind::Poll | Kind::Call(_) => None,
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

impl Driver {
    /// Starts an operation on a member. Reads and writes wait for the end of the shard's turn, where those that adjoin
    /// go down as one; everything else goes down at once, behind what waits.
    pub(crate) fn start_on(&self, lane: &Rc<Lane>, kind: Kind, buffers: Buffers) -> Operation<'_> {
        let mut cargo = Cargo::new(kind, buffers, Some(lane.clone()));
        cargo.slot = lane.slot();
        self.start_cargo(lane, cargo)
    }

    /// The same on another file description of the member, as flushes have.
    pub(crate) fn start_with(&self, lane: &Rc<Lane>, holder: Holder, kind: Kind, buffers: Buffers) -> Operation<'_> {
        self.start_cargo(lane, Cargo::new(kind, buffers, Some(holder)))
    }

    fn start_cargo(&self, lane: &Rc<Lane>, cargo: Cargo) -> Operation<'_> {
        let Some((direction, at)) = direction(&cargo.kind) else {
            self.send_waiting();
            let is_call = matches!(cargo.kind, Kind::Call(_));
            let token = self.put(cargo);
            // A question that a helper thread asks the system is no request to the device.
            if is_call {
                self.start_ring(token)
            } else {
                self.submit(lane, token)
            }
            return self.operation(token);
        };
        let (bytes, segments) = (bytes(&cargo.segments), cargo.segments.len() as u32);
        let token = self.put(cargo);
        let mut waiting = lane.waiting.borrow_mut();
        let order = waiting.len() as u32;
        waiting.push(Waiting { at, bytes, segments, direction, order, token });
        if order == 0 {
            self.busy.borrow_mut().push(lane.clone());
        }
        drop(waiting);
        if !self.merges {
            self.send_waiting();
        }
        self.operation(token)
    }

    /// Sends what waits in the lanes.
    pub(super) fn send_waiting(&self) {
        for lane in self.busy.borrow_mut().drain(..) {
            let waiting = &mut *lane.waiting.borrow_mut();
            let can_merge = waiting.len() > 1 && arrange(waiting);
            let mut rest = &waiting[..];
            while let [first, ..] = rest {
                let (group, later) = rest.split_at(if can_merge { together(rest, lane.limits) } else { 1 });
                let bytes = group.iter().map(|one| one.bytes).sum();
                lane.note(first.direction.traced(), first.at, bytes, group.len() as u32);
                let token = if group.len() == 1 { first.token } else { self.merged(&lane, group) };
                self.submit(&lane, token);
                rest = later;
            }
            waiting.clear();
        }
    }

    /// One operation of several.
    fn merged(&self, lane: &Rc<Lane>, group: &[Waiting]) -> u32 {
        let Spare { mut parts, mut segments } = self.spare.borrow_mut().pop().unwrap_or_default();
        for one in group {
            parts.push((one.token, one.bytes));
            self.with_slot(one.token, |slot| {
                // SAFETY: in flight and not with the ring, so only the driver uses the cargo; the borrow ends here.
                let cargo = unsafe { (*slot.cargo.get()).as_ref() };
                segments.extend_from_slice(&cargo.expect("what waits has a cargo").segments);
            });
        }
        let mut cargo = Cargo::new(group[0].direction.kind(group[0].at), Buffers::None, Some(lane.clone()));
        cargo.segments = segments;
        cargo.slot = lane.slot();
        let token = self.put(cargo);
        let merged = Merged { lane: lane.clone(), parts };
        self.with_slot(token, |slot| *slot.state.borrow_mut() = State::Merged(merged));
        token
    }

    /// A merged request has ended: so have those of its parts that are whole.
    pub(super) fn end_merged(&self, token: u32, merged: Merged, result: i32) {
        let (cargo, _) = self.take_cargo(token);
        let Merged { lane, mut parts } = merged;
        let mut left = u64::try_from(result).unwrap_or(0);
        for (token, bytes) in parts.drain(..) {
            if bytes <= left {
                left -= bytes;
                self.complete(token, i32::try_from(bytes).expect("not more than the whole, which was one"));
            } else {
                left = 0;
                self.note_again(&lane, token);
                self.submit(&lane, token);
            }
        }
        let mut segments = cargo.segments;
        segments.clear();
        self.spare.borrow_mut().push(Spare { parts, segments });
    }

    fn note_again(&self, lane: &Lane, token: u32) {
        self.with_slot(token, |slot| {
            // SAFETY: in flight and not with the ring, so only the driver uses the cargo; the borrow ends here.
            let cargo = unsafe { (*slot.cargo.get()).as_ref() }.expect("what is in flight has a cargo");
            let (direction, at) = direction(&cargo.kind).expect("only reads and writes are merged");
            lane.note_parted(direction.traced(), at, bytes(&cargo.segments));
        });
    }

    /// To the ring, or to what stands in for it.
    fn submit(&self, lane: &Rc<Lane>, token: u32) {
        let Some(trial) = &lane.trial else { return self.start_ring(token) };
        let bytes = self.with_slot(token, |slot| {
            // SAFETY: in flight and not with the ring, so only the driver uses the cargo; the borrow ends here.
            unsafe { (*slot.cargo.get()).as_ref() }.map_or(0, |cargo| bytes(&cargo.segments))
        });
        self.trials.start(trial.due(Tick(sys::monotonic_nanos()), bytes), token, lane.clone());
    }

    /// Waits no longer than until a trial device is done with something.
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

    /// Does what trial devices are done with.
    pub(super) fn end_trials(&self) {
        if self.trials.next().is_none() {
            return;
        }
        let now = Tick(sys::monotonic_nanos());
        while let Some(pending) = self.trials.take(now) {
            let result = self.with_slot(pending.token, |slot| {
                // SAFETY: in flight and not with the ring, so only the driver uses the cargo; the borrow ends here.
                let cargo = unsafe { (*slot.cargo.get()).as_ref() }.expect("what is in flight has a cargo");
                let trial = pending.lane.trial.as_ref().expect("only trials come here");
                // SAFETY: the segments are those of the cargo's own buffers, or of its parts', all in flight.
                unsafe { trial.run(&cargo.kind, &cargo.segments) }
            });
            self.complete(pending.token, result);
        }
    }
}

#[cfg(test)]
mod tests;
