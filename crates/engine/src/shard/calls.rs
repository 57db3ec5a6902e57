//! Calls from this shard to others, and the answers that it waits for.
//! Owns: [`Calls`]. Not here: what a call does (`array`), how mail travels (`World::post`).
//! Invariant: every call is answered once.

use crate::shard::mail::{Answer, Call, CallId, Mail, Message};
use crate::shard::world::World;
use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use uraid_block::ShardIndex;
use uraid_block::local::join_all;

/// The calls of one shard that are not answered yet.
pub(crate) struct Calls<W: World> {
    world: W,
    places: RefCell<Places>,
}

/// One place for each call in flight. Places are used again, so a call needs no allocation.
#[derive(Default)]
struct Places {
    list: Vec<Place>,
    free: Vec<u32>,
}

struct Place {
    /// How many calls have used this place before. So a late answer is not taken for the answer to a later call.
    turn: u32,
    state: State,
}

enum State {
    Free,
    /// Waits for its answer. The waker is that of the last poll.
    Waits(Option<Waker>),
    Answered(Answer),
    /// Its future was dropped: the answer will be dropped, too.
    Dropped,
}

/// A call in flight. It yields the answer; if it is dropped, the answer is dropped when it comes.
#[must_use]
pub(crate) struct PendingCall<'a, W: World> {
    calls: &'a Calls<W>,
    /// `None` once the answer was taken.
    id: Option<CallId>,
}

impl<W: World> Calls<W> {
    pub(crate) fn new(world: W) -> Calls<W> {
        Calls { world, places: RefCell::default() }
    }

    /// Calls another shard, or this one. The call is sent now; its answer comes later.
    pub(crate) fn call(&self, to: ShardIndex, call: Call) -> PendingCall<'_, W> {
        assert!(to.0 < self.world.shards(), "a call goes to a shard of this array");
        let id = self.places.borrow_mut().add();
        self.world.post(to, Mail(Message::Call { id, from: self.world.shard(), call }));
        PendingCall { calls: self, id: Some(id) }
    }

    /// Calls all shards, this one too. Returns the answers in their order.
    pub(crate) async fn call_all(&self, call: impl Fn() -> Call) -> Vec<Answer> {
        let shards = (0..self.world.shards()).map(ShardIndex);
        let calls: Vec<_> = shards.map(|shard| self.call(shard, call())).collect();
        join_all(calls).await
    }

    /// Hands an answer to the task that waits for it.
    pub(crate) fn answer(&self, id: CallId, answer: Answer) {
        // An answer that no task wants is dropped here, while the places are not borrowed.
        let (waker, _unwanted) = self.places.borrow_mut().answer(id, answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<W: World> Future for PendingCall<'_, W> {
    type Output = Answer;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let id = self.id.expect("a future is not polled after its end");
        let answer = self.calls.places.borrow_mut().poll(id, context);
        if answer.is_ready() {
            self.id = None;
        }
        answer
    }
}

impl<W: World> Drop for PendingCall<'_, W> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            // Drop the state only after the borrow of the places: what an answer owns may run other code when dropped.
            let state = self.calls.places.borrow_mut().give_up(id);
            drop(state);
        }
    }
}

impl Places {
    fn add(&mut self) -> CallId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.list.push(Place { turn: 0, state: State::Free });
            (self.list.len() - 1) as u32
        });
        let place = &mut self.list[at as usize];
        assert!(matches!(place.state, State::Free), "one call has a place");
        place.state = State::Waits(None);
        CallId { place: at, turn: place.turn }
    }

    fn of(&mut self, id: CallId) -> &mut State {
        let place = &mut self.list[id.place as usize];
        assert_eq!(place.turn, id.turn, "an answer belongs to a call");
        &mut place.state
    }

    /// Frees the place of a call that has ended. Returns its last state.
    fn free(&mut self, id: CallId) -> State {
        let state = std::mem::replace(self.of(id), State::Free);
        let place = &mut self.list[id.place as usize];
        place.turn = place.turn.wrapping_add(1);
        self.free.push(id.place);
        state
    }

    fn poll(&mut self, id: CallId, context: &Context<'_>) -> Poll<Answer> {
        match self.of(id) {
            State::Waits(Some(waker)) => waker.clone_from(context.waker()),
            State::Waits(waker) => *waker = Some(context.waker().clone()),
            State::Answered(_) => {
                let State::Answered(answer) = self.free(id) else { unreachable!("it was just there") };
                return Poll::Ready(answer);
            }
            State::Free | State::Dropped => unreachable!("a call keeps its place while a task waits for it"),
        }
        Poll::Pending
    }

    /// Returns the task to wake, if one waits, and the last state of the place, if the place is free now.
    fn answer(&mut self, id: CallId, answer: Answer) -> (Option<Waker>, Option<State>) {
        match std::mem::replace(self.of(id), State::Answered(answer)) {
            State::Waits(waker) => (waker, None),
            State::Dropped => (None, Some(self.free(id))),
            State::Free | State::Answered(_) => panic!("a call is answered once"),
        }
    }

    fn give_up(&mut self, id: CallId) -> State {
        match self.of(id) {
            State::Waits(_) => std::mem::replace(self.of(id), State::Dropped),
            State::Answered(_) => self.free(id),
            State::Free | State::Dropped => unreachable!("a call is given up once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reaches_its_call_and_none_that_has_the_place_later() {
        let mut places = Places::default();
        let context = Context::from_waker(Waker::noop());
        let (first, second) = (places.add(), places.add());
        assert!(places.poll(second, &context).is_pending());
        assert!(places.answer(second, Answer::Count(2)).0.is_some(), "a task waits for it");
        assert!(places.answer(first, Answer::Count(1)).0.is_none(), "it was not polled yet");
        for (id, count) in [(first, 1), (second, 2)] {
            let Poll::Ready(answer) = places.poll(id, &context) else { panic!("it was answered") };
            assert_eq!(answer.count(), count);
        }
        let again = places.add();
        assert_eq!((again.place, again.turn), (second.place, 1));
        assert_eq!(places.list.len(), 2);
    }

    #[test]
    fn a_call_that_is_dropped_keeps_its_place_until_it_is_answered() {
        let mut places = Places::default();
        let (early, late) = (places.add(), places.add());
        let _ = places.give_up(early);
        assert!(places.free.is_empty());
        assert!(places.answer(early, Answer::Done).0.is_none());
        assert!(places.answer(late, Answer::Done).0.is_none());
        let _ = places.give_up(late);
        assert_eq!(places.free.len(), 2);
    }

    #[test]
    #[should_panic(expected = "an answer belongs to a call")]
    fn a_second_answer_is_our_mistake() {
        let mut places = Places::default();
        let id = places.add();
        places.answer(id, Answer::Done);
        let _ = places.poll(id, &Context::from_waker(Waker::noop()));
        let _ = places.answer(id, Answer::Done);
    }
}
