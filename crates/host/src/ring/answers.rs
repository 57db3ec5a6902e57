//! Members that do not answer: ending their requests without them, and counting what they still owe.
//! Owns: [`Owed`], one per lane: how many requests are with the system, which requests wait for those, whether the
//! member is dead. Not here: how long is too long (`shard`), what follows from it (the engine).
//! Invariant: a request that is cut keeps its slot and its buffers until its completion. As long as one is owed, the
//! lane submits no other, so a member that hangs holds no more than was in flight when it was given up.
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

/// A question about a member that a helper thread asks the system.
pub(super) struct Question {
    member: String,
    /// A question that waits for a thread behind others says nothing about its member. The call holds the flag, too, until it
    /// has its answer or is dropped.
    is_asked: Arc<AtomicBool>,
}

impl Question {
    fn is_open(&self) -> bool {
        Arc::strong_count(&self.is_asked) > 1
    }
}

/// What one lane's member has not answered.
pub(super) struct Owed {
    /// The member's name.
    name: Rc<str>,
    /// Requests that were cut and have not completed.
    unanswered: Cell<usize>,
    /// How many of these are changes, summed over all shards.
    changes: Arc<AtomicUsize>,
    /// The errno that every request fails with, once the member is dead.
    dead: Cell<Option<i32>>,
    depth: Depth,
    /// How long the oldest of its requests had been with the system at the last look at the clock.
    oldest: Cell<Duration>,
    /// Requests with the system, at most `depth`, and those that wait in the queue.
    with_system: Cell<u32>,
    behind: RefCell<VecDeque<u32>>,
}

/// Flushes, discards and most calls may take this many times as long as a read or a write: a flush may have a large page
/// cache to write.
const LONG: u32 = 4;

/// The state of one slot's request until it is answered.
#[derive(Clone, Copy, Default)]
pub(super) struct Answer {
    /// Clock ticks since it was submitted, alone or in a merged request. Time in a queue does not count against the
    /// member.
    age: u32,
    has_gone_down: bool,
    is_late: bool,
    is_long: bool,
    /// Whether it may change the member if it lands late.
    is_change: bool,
    is_read: bool,
    /// A read that was cut; another copy serves it.
    is_left: bool,
    is_with_system: bool,
    is_owed: bool,
}

impl Answer {
    pub(super) fn new(kind: &Kind) -> Answer {
        let is_long = match kind {
            Kind::Read { .. } | Kind::Write { .. } | Kind::Receive { .. } | Kind::Send | Kind::Poll => false,
            Kind::Sync | Kind::Allocate { .. } => true,
            Kind::Call(call) => !call.is_short,
        };
        let is_read = matches!(kind, Kind::Read { .. });
        Answer { is_long, is_change: is_change(kind), is_read, ..Answer::default() }
    }

    fn is_older(self, looks: u32) -> bool {
        self.age >= if self.is_long { looks.saturating_mul(LONG) } else { looks }
    }

    fn gone_down(self) -> Answer {
        Answer { has_gone_down: true, ..self }
    }
}

/// Whether a request of this kind changes what the member holds.
pub(super) fn is_change(kind: &Kind) -> bool {
    match kind {
        Kind::Write { .. } | Kind::Allocate { .. } => true,
        Kind::Read { .. } | Kind::Sync | Kind::Receive { .. } | Kind::Send | Kind::Poll | Kind::Call(_) => false,
    }
}

impl Owed {
    /// The error for a new request that is refused at once.
    #[inline]
    fn refusal(&self) -> Option<i32> {
        if let Some(os) = self.dead.get() {
            return Some(os);
        }
        (self.unanswered.get() > 0).then_some(libc::ETIMEDOUT)
    }
}

impl Driver {
    /// Registers a lane: requests on it can be ended without the member, and are ended when they are late.
    pub(crate) fn add_lane(&self, lane: Lane, depth: Depth) -> Rc<Lane> {
        self.ring.borrow_mut().expect_member(depth);
        let (dead, oldest, with_system, behind) = Default::default();
        let mut owed = self.owed.borrow_mut();
        let changes = lane.owed_changes.clone();
        let name = lane.name.clone();
        owed.push(Rc::new(Owed { name, unanswered: Cell::new(0), changes, dead, depth, oldest, with_system, behind }));
        let lane = Rc::new(lane.numbered(LaneNumber(owed.len() as u32)));
        let mut lanes = self.lanes.borrow_mut();
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Rc::downgrade(&lane));
        lane
    }

    fn owed(&self, lane: LaneNumber) -> Rc<Owed> {
        self.owed.borrow()[lane.0 as usize - 1].clone()
    }

    #[inline]
    fn with_owed<T>(&self, lane: LaneNumber, look: impl FnOnce(&Owed) -> T) -> T {
        look(&self.owed.borrow()[lane.0 as usize - 1])
    }

    /// The error for a request on this lane; `None`: it may be submitted. A change is also refused as long as the
    /// member owes the answer of a change to any shard: the late one could land on top of its retry.
    #[inline]
    pub(super) fn refusal(&self, lane: &Lane, is_change: bool) -> Option<i32> {
        if lane.number() == LaneNumber::NONE {
            return None;
        }
        let of_other_shards =
            || (is_change && lane.owed_changes.load(Ordering::Acquire) > 0).then_some(libc::ETIMEDOUT);
        self.with_owed(lane.number(), Owed::refusal).or_else(of_other_shards)
    }

    /// Starts a question to the system about the member on a helper thread: its time counts from here on.
    pub(super) fn start_call(&self, token: u32) {
        self.with_slot(token, |slot| slot.answer.set(slot.answer.get().gone_down()));
        self.start_ring(token);
    }

    fn note_gone_down(&self, token: u32) {
        self.with_slot(token, |slot| {
            slot.answer.set(Answer { is_with_system: true, ..slot.answer.get().gone_down() });
            if let State::Merged(merged) = &*slot.state.borrow() {
                for part in merged.tokens() {
                    self.with_slot(part, |slot| slot.answer.set(slot.answer.get().gone_down()));
                }
            }
        });
    }

    /// Submits the request, or queues it behind the earlier ones of its lane.
    #[inline]
    pub(super) fn start_in_turn(&self, lane: LaneNumber, token: u32) {
        if lane == LaneNumber::NONE {
            return self.start_ring(token);
        }
        let has_room = self.with_owed(lane, |owed| {
            let count = owed.with_system.get();
            let has_room = count < owed.depth.0;
            if has_room {
                owed.with_system.set(count + 1);
            } else {
                owed.behind.borrow_mut().push_back(token);
            }
            has_room
        });
        if has_room {
            self.note_gone_down(token);
            self.start_ring(token);
        }
    }

    /// A request of a lane has ended: submit the next one that waits.
    #[inline]
    pub(super) fn answered(&self, lane: LaneNumber, token: u32) {
        let answer = self.with_slot(token, |slot| slot.answer.take());
        if answer.is_owed {
            self.with_owed(lane, |owed| {
                owed.unanswered.set(owed.unanswered.get() - 1);
                if answer.is_change {
                    owed.changes.fetch_sub(1, Ordering::Release);
                }
            });
        }
        if !answer.is_with_system {
            return;
        }
        let next = self.with_owed(lane, |owed| {
            owed.with_system.set(owed.with_system.get() - 1);
            owed.behind.borrow_mut().pop_front()
        });
        if let Some(next) = next {
            self.start_in_turn(lane, next);
        }
    }

    /// The member has failed: all requests in flight on its lane fail with `os`, and so do later ones.
    pub(crate) fn mark_dead(&self, lane: &Lane, os: i32) {
        self.with_owed(lane.number(), |owed| owed.dead.set(Some(os)));
        self.cut(lane, os, |_| true);
    }

    /// Ends the lane's reads in flight with `os`. The member is not considered dead: other requests continue, and later
    /// ones are submitted.
    pub(crate) fn cut_reads(&self, lane: &Lane, os: i32) {
        self.cut_started(lane, os, |answer| answer.is_read, |answer| Answer { is_left: true, ..answer });
    }

    /// Call it at even intervals, each of `period`. A request that has been in flight for more than `looks_max` calls fails
    /// with ETIMEDOUT. If it is a read that was cut before, the lane refuses new requests until it is answered.
    pub(crate) fn look_at_clock(&self, looks_max: u32, period: Duration) {
        let mut late = Vec::new();
        self.owed.borrow().iter().for_each(|owed| owed.oldest.set(Duration::ZERO));
        self.for_each_unanswered(|state, slot| {
            let (lane, answer) = (slot.lane.get(), slot.answer.get());
            if lane == LaneNumber::NONE || !answer.has_gone_down {
                return;
            }
            let is_left = !matches!(state, State::Started(_)) && answer.is_left && !answer.is_owed;
            let is_late = (matches!(state, State::Started(_)) || is_left) && answer.is_older(looks_max);
            let is_owed = answer.is_owed || (is_left && is_late);
            slot.answer.set(Answer { age: answer.age.saturating_add(1), is_late, is_owed, ..answer });
            if is_owed && !answer.is_owed {
                self.with_owed(lane, |owed| owed.unanswered.set(owed.unanswered.get() + 1));
            }
            let age = period.saturating_mul(answer.age.saturating_add(1));
            self.with_owed(lane, |owed| owed.oldest.set(owed.oldest.get().max(age)));
            if is_late && !late.contains(&lane) {
                late.push(lane);
            }
        });
        let lanes: Vec<Rc<Lane>> = self.lanes.borrow().iter().filter_map(Weak::upgrade).collect();
        for lane in lanes.iter().filter(|lane| late.contains(&lane.number())) {
            self.cut(lane, libc::ETIMEDOUT, |answer| answer.is_late);
        }
    }

    /// How long the oldest of the lane's requests that the member has not answered has been with the system, to within one
    /// period. Zero if there was none at the last look at the clock.
    pub(crate) fn unanswered_for(&self, lane: &Lane) -> Duration {
        self.with_owed(lane.number(), |owed| owed.oldest.get())
    }

    /// Ends the chosen requests in flight, and all that are not submitted yet.
    fn cut(&self, lane: &Lane, os: i32, is_chosen: impl Fn(Answer) -> bool) {
        let owed = self.owed(lane.number());
        self.cut_started(lane, os, is_chosen, |answer| {
            owed.unanswered.set(owed.unanswered.get() + 1);
            if answer.is_change {
                // Count it before any future is woken, so before a client can retry on another shard.
                owed.changes.fetch_add(1, Ordering::Release);
            }
            Answer { is_owed: true, ..answer }
        });
        // Requests that the system does not have end for good. From here on the lane refuses new ones, including parts
        // of a merged request that would be submitted again.
        let mut not_gone_down: Vec<u32> = lane.waiting.borrow_mut().drain(..).map(|waiting| waiting.token).collect();
        not_gone_down.extend(owed.behind.borrow_mut().drain(..));
        for token in not_gone_down {
            self.complete(token, -os);
        }
    }

    /// Ends the chosen requests that were started, after calling `note`; their slots stay until the device is done.
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

    /// Operations that a member owes, with the merged ones that carried them: closing does not wait for these.
    pub(super) fn owed_count(&self) -> usize {
        let is_owed_by = |slot: &super::Slot| slot.answer.get().is_owed || slot.answer.get().is_left;
        let is_owed = |token: u32| self.with_slot(token, is_owed_by);
        let slots = self.slots.borrow();
        let count = slots.iter().flat_map(|chunk| chunk.iter()).filter(|slot| match &*slot.state.borrow() {
            State::Merged(merged) => merged.tokens().all(is_owed),
            State::Started(_) | State::Abandoned | State::Cut(_) => is_owed_by(slot),
            State::Free | State::Done(_) => false,
        });
        count.count()
    }

    /// Notes a question about a member. The call that asks it sets the flag when it begins, and holds it to its end.
    pub(crate) fn ask_about(&self, member: &str) -> Arc<AtomicBool> {
        let is_asked = Arc::new(AtomicBool::new(false));
        let mut questions = self.questions.borrow_mut();
        questions.retain(Question::is_open);
        questions.push(Question { member: member.to_owned(), is_asked: is_asked.clone() });
        is_asked
    }

    /// The members that have not answered all requests, and all questions that they were asked.
    pub(crate) fn members_owing(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for slot in self.slots.borrow().iter().flat_map(|chunk| chunk.iter()) {
            let lane = slot.lane.get();
            let is_over = matches!(*slot.state.borrow(), State::Free | State::Done(_));
            if !is_over && lane != LaneNumber::NONE {
                names.insert(self.with_owed(lane, |owed| owed.name.to_string()));
            }
        }
        let questions = self.questions.borrow();
        let owed = questions.iter().filter(|question| question.is_open() && question.is_asked.load(Ordering::Acquire));
        names.extend(owed.map(|question| question.member.clone()));
        names
    }

    fn for_each_started(&self, mut work: impl FnMut(&mut State, &super::Slot)) {
        self.for_each_unanswered(|state, slot| {
            if matches!(state, State::Started(_)) {
                work(state, slot);
            }
        });
    }

    /// Also of those whose futures have ended.
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
