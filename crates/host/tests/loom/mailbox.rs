//! Mail between shards, and wakes from other threads, against shards that fall asleep.
//! Owns: the models of `mail::door` and `mail::inbox`. A shard here takes turns as `shard::turn` does, and waits only for its bell.
//! Covered: no shard sleeps while mail or a wake is pending, mail arrives once and in order, no wait lasts for ever.
//! Not covered: that a bell wakes a ring (the eventfd is loom's here), time, more than three threads.

use crate::mail::door::Door;
use crate::mail::inbox::{Inbox, Post};
use crate::sync::stores_are_swaps;
use loom::thread;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use uraid_block::ShardIndex;

type Inboxes = Arc<[Arc<Inbox<u32>>]>;

fn inboxes(shards: u16) -> Inboxes {
    (0..shards).map(|_| Inbox::new(Door::new())).collect()
}

/// One shard: its post, and the mail that arrived.
struct Shard {
    post: Rc<Post<u32>>,
    door: Arc<Door>,
    messages: Rc<RefCell<Vec<u32>>>,
}

impl Shard {
    fn new(inboxes: &Inboxes, index: u16) -> Shard {
        let post = Rc::new(Post::new(inboxes.clone(), ShardIndex(index)));
        let messages = Rc::new(RefCell::new(Vec::new()));
        let into = messages.clone();
        post.on_mail(move |message| into.borrow_mut().push(message));
        Shard { post, door: inboxes[usize::from(index)].door().clone(), messages }
    }

    fn send(&self, to: u16, messages: &[u32]) {
        messages.iter().for_each(|&message| self.post.post(ShardIndex(to), message));
        self.post.send_all();
    }

    /// Runs turns until this many messages have arrived.
    fn receive(&self, count: usize) -> Vec<u32> {
        loop {
            if self.door.take_knock() {
                self.post.fetch();
            }
            self.post.deliver();
            if self.messages.borrow().len() >= count {
                return self.messages.take();
            }
            sleep(&self.door);
        }
    }
}

/// The end of a shard's turn: with nothing to do, it waits for its bell.
fn sleep(door: &Door) {
    if door.prepare_sleep() {
        door.bell().wait();
    }
    door.end_sleep();
}

pub(crate) fn one_message() {
    let inboxes = inboxes(2);
    let to = inboxes.clone();
    let sender = thread::spawn(move || Shard::new(&to, 1).send(0, &[7]));
    assert_eq!(Shard::new(&inboxes, 0).receive(1), [7]);
    sender.join().expect("the sender does not panic");
}

pub(crate) fn batches() {
    let inboxes = inboxes(2);
    let to = inboxes.clone();
    let sender = thread::spawn(move || {
        let shard = Shard::new(&to, 1);
        shard.send(0, &[1, 2]);
        shard.send(0, &[3]);
    });
    assert_eq!(Shard::new(&inboxes, 0).receive(3), [1, 2, 3]);
    sender.join().expect("the sender does not panic");
}

pub(crate) fn two_senders() {
    let inboxes = inboxes(3);
    let senders = [1, 2].map(|index| {
        let to = inboxes.clone();
        thread::spawn(move || Shard::new(&to, index).send(0, &[u32::from(index), u32::from(index) + 10]))
    });
    let messages = Shard::new(&inboxes, 0).receive(4);
    assert!(messages == [1, 11, 2, 12] || messages == [2, 12, 1, 11], "once each, and in order: {messages:?}");
    senders.into_iter().for_each(|sender| sender.join().expect("a sender does not panic"));
}

pub(crate) fn three_knocks() {
    stores_are_swaps();
    let inboxes = inboxes(3);
    let senders = [1, 2].map(|index| {
        let to = inboxes.clone();
        thread::spawn(move || {
            let shard = Shard::new(&to, index);
            shard.send(0, &[u32::from(index)]);
            if index == 1 {
                shard.send(0, &[11]);
            }
        })
    });
    let mut messages = Shard::new(&inboxes, 0).receive(3);
    messages.retain(|&message| message != 2);
    assert_eq!(messages, [1, 11], "once each, and in order");
    senders.into_iter().for_each(|sender| sender.join().expect("a sender does not panic"));
}

pub(crate) fn question() {
    let inboxes = inboxes(2);
    let other = inboxes.clone();
    let answering = thread::spawn(move || {
        let shard = Shard::new(&other, 1);
        let question = shard.receive(1);
        shard.send(0, &[question[0] + 1]);
    });
    let shard = Shard::new(&inboxes, 0);
    shard.send(1, &[41]);
    assert_eq!(shard.receive(1), [42]);
    answering.join().expect("the other shard does not panic");
}

pub(crate) fn wakes() {
    let door = Door::new();
    let wakers: Vec<_> = [3, 5]
        .into_iter()
        .map(|task| {
            let door = door.clone();
            thread::spawn(move || door.wake(task))
        })
        .collect();
    let (mut woken, mut taken) = (Vec::new(), Vec::new());
    loop {
        if door.take_knock() {
            door.take_wakes(&mut taken);
            woken.append(&mut taken);
        }
        if woken.len() == 2 {
            break;
        }
        sleep(&door);
    }
    woken.sort_unstable();
    assert_eq!(woken, [3, 5]);
    wakers.into_iter().for_each(|waker| waker.join().expect("a waker does not panic"));
}
