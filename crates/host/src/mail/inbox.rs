//! Mail from shard to shard.
//! Owns: [`Inbox`], [`Post`]. Not here: the content of mail, when a shard fetches it (`shard`).
//! Invariant: mail from one shard to another arrives once and in order. All mail of one turn leaves in one batch: one
//! lock and at most one bell for each receiver.

use crate::mail::door::Door;
use crate::sync::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use uraid_block::ShardIndex;

/// The mail from other shards to one shard. The senders' requests in flight bound its length.
pub(crate) struct Inbox<M> {
    messages: Mutex<VecDeque<M>>,
    door: Arc<Door>,
}

impl<M> Inbox<M> {
    pub(crate) fn new(door: Arc<Door>) -> Arc<Inbox<M>> {
        Arc::new(Inbox { messages: Mutex::default(), door })
    }

    pub(crate) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    fn put(&self, messages: &mut VecDeque<M>) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).append(messages);
        self.door.knock();
    }

    fn take(&self, into: &mut VecDeque<M>) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        if into.is_empty() {
            std::mem::swap(&mut *messages, into);
        } else {
            into.append(&mut messages);
        }
    }
}

type Handler<M> = Rc<dyn Fn(M)>;

/// A shard's queues of outgoing and arrived mail.
pub(crate) struct Post<M> {
    inboxes: Arc<[Arc<Inbox<M>>]>,
    me: ShardIndex,
    outgoing: RefCell<Vec<VecDeque<M>>>,
    has_outgoing: Cell<bool>,
    // Mail that has arrived, including mail to this shard itself, and is not handled yet.
    arrived: RefCell<VecDeque<M>>,
    handler: RefCell<Option<Handler<M>>>,
}

impl<M> Post<M> {
    pub(crate) fn new(inboxes: Arc<[Arc<Inbox<M>>]>, me: ShardIndex) -> Post<M> {
        let outgoing = inboxes.iter().map(|_| VecDeque::new()).collect();
        Post {
            inboxes,
            me,
            outgoing: RefCell::new(outgoing),
            has_outgoing: Cell::new(false),
            arrived: RefCell::default(),
            handler: RefCell::default(),
        }
    }

    /// Queues mail; it is sent at the end of the turn.
    pub(crate) fn post(&self, to: ShardIndex, mail: M) {
        self.outgoing.borrow_mut()[usize::from(to.0)].push_back(mail);
        self.has_outgoing.set(true);
    }

    pub(crate) fn on_mail(&self, handler: impl Fn(M) + 'static) {
        *self.handler.borrow_mut() = Some(Rc::new(handler));
    }

    /// Drops the handler and all mail. Needed because the handler may own this `Post`.
    pub(crate) fn close(&self) {
        let handler = self.handler.take();
        let arrived = self.arrived.take();
        let outgoing: Vec<_> = self.outgoing.borrow_mut().iter_mut().map(std::mem::take).collect();
        self.has_outgoing.set(false);
        drop((handler, arrived, outgoing));
    }

    /// Sends the queued mail.
    pub(crate) fn send_all(&self) {
        if !self.has_outgoing.replace(false) {
            return;
        }
        let mut outgoing = self.outgoing.borrow_mut();
        for (to, messages) in outgoing.iter_mut().enumerate().filter(|(_, messages)| !messages.is_empty()) {
            if to == usize::from(self.me.0) {
                self.arrived.borrow_mut().append(messages);
            } else {
                self.inboxes[to].put(messages);
            }
        }
    }

    /// Fetches mail from the other shards; returns whether there was any.
    pub(crate) fn fetch(&self) -> bool {
        let mut arrived = self.arrived.borrow_mut();
        let before = arrived.len();
        self.inboxes[usize::from(self.me.0)].take(&mut arrived);
        arrived.len() > before
    }

    /// Whether there is mail to send, or arrived mail and a handler for it.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_outgoing.get() || (!self.arrived.borrow().is_empty() && self.handler.borrow().is_some())
    }

    /// Calls the handler with the mail that has arrived.
    pub(crate) fn deliver(&self) {
        let messages = self.arrived.borrow().len();
        for _ in 0..messages {
            // Look the handler up each time: it may be replaced while it handles mail.
            let Some(handler) = self.handler.borrow().clone() else { return };
            let Some(message) = self.arrived.borrow_mut().pop_front() else { return };
            handler(message);
        }
    }
}
