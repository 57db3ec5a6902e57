//! Members that do not answer: ends their requests without them, and counts the requests that are still unanswered.
//! Owns: [`LaneState`], one per lane: how many requests the system has, which ones wait behind them, whether the member
//! is dead. Not here: how long a request may take (`shard`), what follows from a late one (the engine).
//! Invariant: a request that is cut keeps its slot and its buffers until its completion. While a lane has an unanswered
//! request, it submits no other, so a member that hangs holds at most what was in flight when it was given up.
//!
//! ```text
//!   start ──► with the system ──────────────► completion ──► done
//!                 │ too old, or the member failed                ▲
//!                 └──► cut: the future ends, the slot stays ─────┘ the buffers are free only here
//! ```

use super::lane::{Depth, Lane};
use super::{Driver, Kind, LaneNumber, State};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A query about a member, such as stat on its path, that a helper thread makes.
pub(super) struct Query {
    member: String,
    /// Set when the call begins, because a query that still waits for a thread says nothing about its member. The call
    /// holds a clone until it returns or is dropped.
    has_begun: Arc<AtomicBool>,
}

impl Query {
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.has_begun) > 1
    }
}

/// The unanswered requests and the queue of one lane.
pub(super) struct LaneState {
    /// The member's name.
    name: Rc<str>,
    /// Requests that were cut and have not completed.
    unanswered: Cell<usize>,
    /// How many of these are changes, summed over all shards.
    changes: Arc<AtomicUsize>,
    /// The errno that every request fails with, once the member is dead.
    dead: Cell<Option<i32>>,
    depth: Depth,
    /// How long the oldest of its requests had been with the system at the last age check.
    oldest: Cell<Duration>,
    /// Requests that the system has, at most `depth`; further ones wait in `behind`.
    with_system: Cell<u32>,
    behind: RefCell<VecDeque<u32>>,
}

/// Flushes, discards and most calls may take this many times as long as a read or a write: a flush may have to write a
/// large page cache.
const LONG: u32 = 4;

/// The state of one slot's request until it is answered.
#[derive(Clone, Copy, Default)]
pub(super) struct Answer {
    /// Age checks since it was submitted, alone or in a merged request. Time in a queue does not count against the
    /// member.
    age: u32,
    is_submitted: bool,
    is_late: bool,
    is_long: bool,
    /// Whether it may still change the member if it completes late.
    is_change: bool,
    is_read: bool,
    /// A read that was cut because another copy serves it.
    is_read_elsewhere: bool,
    is_with_system: bool,
    is_unanswered: bool,
}

impl Answer {
    pub(super) fn new(kind: &Kind) -> Answer {
        let is_long = match kind {
            Kind::Read { .. } | Kind::Write { .. } | Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } => false,
            Kind::Sync | Kind::Allocate { .. } => true,
            Kind::Call(call) => !call.is_short,
        };
        let is_read = matches!(kind, Kind::Read { .. });
        Answer { is_long, is_change: is_change(kind), is_read, ..Answer::default() }
    }

    fn is_older(self, looks: u32) -> bool {
        self.age >= if self.is_long { looks.saturating_mul(LONG) } else { looks }
    }

    fn submitted(self) -> Answer {
        Answer { is_submitted: true, ..self }
    }
}

/// Whether a request of this kind changes what the member holds.
pub(super) fn is_change(kind: &Kind) -> bool {
    match kind {
        Kind::Write { .. } | Kind::Allocate { .. } => true,
        Kind::Read { .. } | Kind::Sync | Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } | Kind::Call(_) => false,
    }
}

impl LaneState {
    /// The error for a new request, if the lane refuses it at once.
    #[inline]
    fn refusal(&self) -> Option<i32> {
        if let Some(os) = self.dead.get() {
            return Some(os);
        }
        (self.unanswered.get() > 0).then_some(libc::ETIMEDOUT)
    }
}

impl Driver {
    /// Registers a lane. From then on its requests can be ended without the member, and are ended when they are late.
    pub(crate) fn add_lane(&self, lane: Lane, depth: Depth) -> Rc<Lane> {
        self.ring.borrow_mut().announce_member(depth);
        let (dead, oldest, with_system, behind) = Default::default();
        let mut states = self.lane_states.borrow_mut();
        let changes = lane.unanswered_changes.clone();
        let name = lane.name.clone();
        states.push(Rc::new(LaneState {
            name,
            unanswered: Cell::new(0),
            changes,
            dead,
            depth,
            oldest,
            with_system,
            behind,
        }));
        let lane = Rc::new(lane.numbered(LaneNumber(states.len() as u32)));
        let mut lanes = self.lanes.borrow_mut();
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Rc::downgrade(&lane));
        lane
    }

    fn lane_state(&self, lane: LaneNumber) -> Rc<LaneState> {
        self.lane_states.borrow()[lane.0 as usize - 1].clone()
    }

    #[inline]
    fn with_lane_state<T>(&self, lane: LaneNumber, work: impl FnOnce(&LaneState) -> T) -> T {
        work(&self.lane_states.borrow()[lane.0 as usize - 1])
    }

    /// The error for a new request on this lane; `None`: it may be submitted. A change is also refused while a change
    /// of any shard is unanswered: if the member performs the late change after the new one, it overwrites the new one.
    #[inline]
    pub(super) fn refusal(&self, lane: &Lane, is_change: bool) -> Option<i32> {
        if lane.number() == LaneNumber::NONE {
            return None;
        }
        let of_other_shards =
            || (is_change && lane.unanswered_changes.load(Ordering::Acquire) > 0).then_some(libc::ETIMEDOUT);
        self.with_lane_state(lane.number(), LaneState::refusal).or_else(of_other_shards)
    }

    /// Starts a query about the member on a helper thread; its age counts from here on.
    pub(super) fn start_call(&self, token: u32) {
        self.with_slot(token, |slot| slot.answer.set(slot.answer.get().submitted()));
        self.start_ring(token);
    }

    fn note_submitted(&self, token: u32) {
        self.with_slot(token, |slot| {
            slot.answer.set(Answer { is_with_system: true, ..slot.answer.get().submitted() });
            if let State::Merged(merged) = &*slot.state.borrow() {
                for part in merged.tokens() {
                    self.with_slot(part, |slot| slot.answer.set(slot.answer.get().submitted()));
                }
            }
        });
    }

    /// Submits the request, or queues it behind the lane's earlier ones.
    #[inline]
    pub(super) fn start_in_turn(&self, lane: LaneNumber, token: u32) {
        if lane == LaneNumber::NONE {
            return self.start_ring(token);
        }
        let has_room = self.with_lane_state(lane, |state| {
            let count = state.with_system.get();
            let has_room = count < state.depth.0;
            if has_room {
                state.with_system.set(count + 1);
            } else {
                state.behind.borrow_mut().push_back(token);
            }
            has_room
        });
        if has_room {
            self.note_submitted(token);
            self.start_ring(token);
        }
    }

    /// A request of a lane has ended: submits the next one that waits.
    #[inline]
    pub(super) fn answered(&self, lane: LaneNumber, token: u32) {
        let answer = self.with_slot(token, |slot| slot.answer.take());
        if answer.is_unanswered {
            self.with_lane_state(lane, |state| {
                state.unanswered.set(state.unanswered.get() - 1);
                if answer.is_change {
                    state.changes.fetch_sub(1, Ordering::Release);
                }
            });
        }
        if !answer.is_with_system {
            return;
        }
        let next = self.with_lane_state(lane, |state| {
            state.with_system.set(state.with_system.get() - 1);
            state.behind.borrow_mut().pop_front()
        });
        if let Some(next) = next {
            self.start_in_turn(lane, next);
        }
    }

    /// The member has failed: all requests in flight on its lane, and all later ones, fail with `os`.
    pub(crate) fn mark_dead(&self, lane: &Lane, os: i32) {
        self.with_lane_state(lane.number(), |state| state.dead.set(Some(os)));
        self.cut(lane, os, |_| true);
    }

    /// Ends the lane's reads in flight with `os`. The member is not marked dead: other requests continue, and later
    /// ones are submitted.
    pub(crate) fn cut_reads(&self, lane: &Lane, os: i32) {
        self.cut_started(lane, os, |answer| answer.is_read, |answer| Answer { is_read_elsewhere: true, ..answer });
    }

    /// Checks the ages of all requests. Call it at even intervals of `period`. A request that has been in flight for
    /// more than `checks_max` calls fails with ETIMEDOUT. If it is a read that was cut before, the lane refuses new
    /// requests until it is answered.
    pub(crate) fn check_ages(&self, checks_max: u32, period: Duration) {
        let mut late = Vec::new();
        self.lane_states.borrow().iter().for_each(|state| state.oldest.set(Duration::ZERO));
        self.for_each_unanswered(|state, slot| {
            let (lane, answer) = (slot.lane.get(), slot.answer.get());
            if lane == LaneNumber::NONE || !answer.is_submitted {
                return;
            }
            let is_read_elsewhere =
                !matches!(state, State::Started(_)) && answer.is_read_elsewhere && !answer.is_unanswered;
            let is_late = (matches!(state, State::Started(_)) || is_read_elsewhere) && answer.is_older(checks_max);
            let is_unanswered = answer.is_unanswered || (is_read_elsewhere && is_late);
            slot.answer.set(Answer { age: answer.age.saturating_add(1), is_late, is_unanswered, ..answer });
            if is_unanswered && !answer.is_unanswered {
                self.with_lane_state(lane, |state| state.unanswered.set(state.unanswered.get() + 1));
            }
            let age = period.saturating_mul(answer.age.saturating_add(1));
            self.with_lane_state(lane, |state| state.oldest.set(state.oldest.get().max(age)));
            if is_late && !late.contains(&lane) {
                late.push(lane);
            }
        });
        let lanes: Vec<Rc<Lane>> = self.lanes.borrow().iter().filter_map(Weak::upgrade).collect();
        for lane in lanes.iter().filter(|lane| late.contains(&lane.number())) {
            self.cut(lane, libc::ETIMEDOUT, |answer| answer.is_late);
        }
    }

    /// How long the lane's oldest unanswered request has been with the system, to within one period. Zero if there was
    /// none at the last age check.
    pub(crate) fn unanswered_for(&self, lane: &Lane) -> Duration {
        self.with_lane_state(lane.number(), |state| state.oldest.get())
    }

    /// Ends the chosen requests in flight, and all that are not submitted yet.
    fn cut(&self, lane: &Lane, os: i32, is_chosen: impl Fn(Answer) -> bool) {
        let state = self.lane_state(lane.number());
        self.cut_started(lane, os, is_chosen, |answer| {
            state.unanswered.set(state.unanswered.get() + 1);
            if answer.is_change {
                // Count it before waking any future, so that a client's retry on another shard is refused.
                state.changes.fetch_add(1, Ordering::Release);
            }
            Answer { is_unanswered: true, ..answer }
        });
        // Requests that the system does not have end for good. From here on the lane refuses new ones, including parts
        // of a merged request that would be submitted again.
        let mut not_submitted: Vec<u32> = lane.waiting.borrow_mut().drain(..).map(|waiting| waiting.token).collect();
        not_submitted.extend(state.behind.borrow_mut().drain(..));
        for token in not_submitted {
            self.complete(token, -os);
        }
    }

    /// Ends the chosen started requests after calling `note`. Their slots stay occupied until the device is done.
    fn cut_started(&self, lane: &Lane, os: i32, is_chosen: impl Fn(Answer) -> bool, note: impl Fn(Answer) -> Answer) {
        let mut wakers = Vec::new();
        self.for_each_started(|state, slot| {
            let answer = slot.answer.get();
            if slot.lane.get() != lane.number() || !is_chosen(answer) {
                return;
            }
            let State::Started(waker) = std::mem::replace(state, State::Cut(os)) else {
                unreachable!("it was started")
            };
            wakers.extend(waker);
            slot.answer.set(note(answer));
        });
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// The number of unanswered operations, including the merged ones that carry them. Closing does not wait for these.
    pub(super) fn unanswered_count(&self) -> usize {
        let is_owed_by = |slot: &super::Slot| slot.answer.get().is_unanswered || slot.answer.get().is_read_elsewhere;
        let is_unanswered = |token: u32| self.with_slot(token, is_owed_by);
        let slots = self.slots.borrow();
        let count = slots.iter().flat_map(|chunk| chunk.iter()).filter(|slot| match &*slot.state.borrow() {
            State::Merged(merged) => merged.tokens().all(is_unanswered),
            State::Started(_) | State::Abandoned | State::Cut(_) => is_owed_by(slot),
            State::Free | State::Done(_) => false,
        });
        count.count()
    }

    /// Registers a query about a member. The call sets the returned flag when it begins, and holds it until it ends.
    pub(crate) fn register_query(&self, member: &str) -> Arc<AtomicBool> {
        let has_begun = Arc::new(AtomicBool::new(false));
        let mut queries = self.queries.borrow_mut();
        queries.retain(Query::is_open);
        queries.push(Query { member: member.to_owned(), has_begun: has_begun.clone() });
        has_begun
    }

    /// The members with unanswered requests or unanswered queries.
    pub(crate) fn unanswered_members(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for slot in self.slots.borrow().iter().flat_map(|chunk| chunk.iter()) {
            let lane = slot.lane.get();
            let is_over = matches!(*slot.state.borrow(), State::Free | State::Done(_));
            if !is_over && lane != LaneNumber::NONE {
                names.insert(self.with_lane_state(lane, |state| state.name.to_string()));
            }
        }
        let queries = self.queries.borrow();
        let unanswered = queries.iter().filter(|query| query.is_open() && query.has_begun.load(Ordering::Acquire));
        names.extend(unanswered.map(|query| query.member.clone()));
        names
    }

    fn for_each_started(&self, mut work: impl FnMut(&mut State, &super::Slot)) {
        self.for_each_unanswered(|state, slot| {
            if matches!(state, State::Started(_)) {
                work(state, slot);
            }
        });
    }

    /// Calls `work` for each unanswered request, including those whose futures have ended.
    fn for_each_unanswered(&self, mut work: impl FnMut(&mut State, &super::Slot)) {
        for slot in self.slots.borrow().iter().flat_map(|chunk| chunk.iter()) {
            let state = &mut *slot.state.borrow_mut();
            match state {
                State::Started(_) | State::Abandoned | State::Cut(_) => work(state, slot),
                State::Merged(_) | State::Free | State::Done(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
