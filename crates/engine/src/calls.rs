//! Calls from this shard to others, and the answers that it waits for.
//! Owns: [`Calls`]. Not here: what a call does (`array`), how mail travels (`World::post`).
//! Invariant: every call is answered once.

use crate::mail::{Answer, Call, CallId, Mail, Message};
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use uraid_block::ShardIndex;
use uraid_block::local::{Receiver, Sender, join_all, oneshot};

/// The calls of one shard that are not answered yet.
pub(crate) struct Calls<W: World> {
    world: W,
    waiting: RefCell<BTreeMap<CallId, Sender<Answer>>>,
    next: Cell<u64>,
}

impl<W: World> Calls<W> {
    pub(crate) fn new(world: W) -> Calls<W> {
        Calls { world, waiting: RefCell::default(), next: Cell::new(0) }
    }

    /// Calls another shard, or this one, and waits for the answer.
    pub(crate) async fn call(&self, to: ShardIndex, call: Call) -> Answer {
        self.start(to, call).await.expect("every call is answered")
    }

    /// Sends a call now; its answer comes later.
    pub(crate) fn start(&self, to: ShardIndex, call: Call) -> Receiver<Answer> {
        assert!(to.0 < self.world.shards(), "a call goes to a shard of this array");
        let id = CallId(self.next.get());
        self.next.set(id.0 + 1);
        let (sender, receiver) = oneshot();
        self.waiting.borrow_mut().insert(id, sender);
        self.world.post(to, Mail(Message::Call { id, from: self.world.shard(), call }));
        receiver
    }

    /// Calls all shards, this one too. Returns the answers in their order.
    pub(crate) async fn call_all(&self, call: impl Fn() -> Call) -> Vec<Answer> {
        let shards = (0..self.world.shards()).map(ShardIndex);
        let calls: Vec<_> = shards.map(|shard| self.start(shard, call())).collect();
        join_all(calls).await.into_iter().map(|answer| answer.expect("every call is answered")).collect()
    }

    /// Hands an answer to the task that waits for it.
    pub(crate) fn answer(&self, id: CallId, answer: Answer) {
        let waiting = self.waiting.borrow_mut().remove(&id).expect("an answer belongs to a call");
        waiting.send(answer);
    }
}
