//! The engine's `World` on a simulated shard.
//! Owns: [`SimWorld`]: clock, tasks, mailboxes, buffers of one logical shard. Not here: who is polled next (`executor`).
//! Invariant: mail of one pair of shards arrives once and in order, after a delay that the seed chooses.

use crate::executor::{Executor, Purpose};
use crate::member::SimMember;
use crate::trace::Event;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Arena, ShardIndex, Tick};
use uraid_engine::{Mail, Pool, World};

/// The size of a pool in small blocks (4 KiB) and large blocks (64 KiB).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSize {
    /// How many small blocks.
    pub small: u32,
    /// How many large blocks.
    pub large: u32,
}

type Handler = Rc<dyn Fn(Mail)>;

thread_local! {
    // Arenas of dropped shards, all blocks free. They are reused because mapping memory costs more than a whole round.
    static SPARE: RefCell<Vec<(PoolSize, Arena)>> = const { RefCell::new(Vec::new()) };
}

fn take_arena(size: PoolSize) -> Arena {
    SPARE.with_borrow_mut(|spare| match spare.iter().position(|(of, _)| *of == size) {
        Some(index) => spare.swap_remove(index).1,
        None => Arena::new(size.small, size.large),
    })
}

impl Drop for Shard {
    fn drop(&mut self) {
        for arena in &self.arenas {
            if arena.blocks_in_use() == 0 {
                SPARE.with_borrow_mut(|spare| spare.push((self.pool, arena.clone())));
            }
        }
    }
}

struct Machine {
    executor: Executor,
    shards: u16,
    mail_delay_max: u64,
    // When the last mail of each pair (from * shards + to) arrives, so that the next one does not overtake it.
    mail_last: RefCell<Vec<u64>>,
    handlers: RefCell<Vec<Option<Handler>>>,
}

struct Shard {
    machine: Rc<Machine>,
    index: u16,
    pool: PoolSize,
    arenas: [Arena; 5],
}

/// One logical shard. Clones are handles of the same one.
#[derive(Clone)]
pub struct SimWorld(Rc<Shard>);

impl SimWorld {
    /// This many shards on one executor, each with five pools of this size: the engine's four and the clients'. Mail
    /// takes up to `mail_delay_max` nanoseconds.
    pub fn boot(executor: &Executor, shards: u16, pool: PoolSize, mail_delay_max: u64) -> Vec<SimWorld> {
        let machine = Rc::new(Machine {
            executor: executor.clone(),
            shards,
            mail_delay_max,
            mail_last: RefCell::new(vec![0; usize::from(shards) * usize::from(shards)]),
            handlers: RefCell::new(vec![None; usize::from(shards)]),
        });
        (0..shards)
            .map(|index| {
                let arenas = std::array::from_fn(|_| take_arena(pool));
                SimWorld(Rc::new(Shard { machine: machine.clone(), index, pool, arenas }))
            })
            .collect()
    }

    /// Sets the handler of this shard's mail.
    pub fn on_mail(&self, handler: impl Fn(Mail) + 'static) {
        self.0.machine.handlers.borrow_mut()[usize::from(self.0.index)] = Some(Rc::new(handler));
    }

    /// The executor that runs this shard.
    pub fn executor(&self) -> &Executor {
        &self.0.machine.executor
    }

    /// The clients' buffers.
    pub fn client_arena(&self) -> &Arena {
        &self.0.arenas[4]
    }

    /// Blocks leased now, per pool: request, row, metadata, pass, client.
    pub fn blocks_in_use(&self) -> [usize; 5] {
        std::array::from_fn(|at| self.0.arenas[at].blocks_in_use())
    }

    /// Drops the mail handlers, which hold the arrays, which hold this world: breaks the cycle.
    pub fn shut_down(&self) {
        let handlers = std::mem::take(&mut *self.0.machine.handlers.borrow_mut());
        drop(handlers);
        *self.0.machine.handlers.borrow_mut() = vec![None; usize::from(self.0.machine.shards)];
    }
}

impl Machine {
    fn arrive(&self, from: u16, to: u16, mail: Mail) {
        self.executor.record(Event::Mail { from, to });
        let handler = self.handlers.borrow().get(usize::from(to)).and_then(Clone::clone);
        if let Some(handler) = handler {
            handler(mail);
        }
    }
}

impl World for SimWorld {
    type Member = SimMember;

    fn now(&self) -> Tick {
        self.0.machine.executor.now()
    }

    fn unix_seconds(&self) -> u64 {
        // The wall clock is unreliable on purpose: it jumps by hours, also backwards, as virtual seconds pass.
        let seconds = self.now().0 / 1_000_000_000;
        1_700_000_000 + seconds + if seconds % 7 == 3 { 7200 } else { 0 }
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        let executor = self.0.machine.executor.clone();
        async move { executor.sleep(time).await }
    }

    fn shard(&self) -> ShardIndex {
        ShardIndex(self.0.index)
    }

    fn shards(&self) -> u16 {
        self.0.machine.shards
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.machine.executor.spawn(self.0.index, "engine", task);
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        let machine = self.0.machine.clone();
        let (from, to) = (self.0.index, to.0);
        assert!(to < machine.shards, "mail to shard {to} of {}", machine.shards);
        let delay = machine.executor.choose_for(Purpose::Mail, |rng| rng.below(machine.mail_delay_max + 1));
        let at = {
            let mut last = machine.mail_last.borrow_mut();
            let last = &mut last[usize::from(from) * usize::from(machine.shards) + usize::from(to)];
            *last = (machine.executor.now().0 + delay).max(*last);
            *last
        };
        let executor = machine.executor.clone();
        executor.at(Tick(at), move || machine.arrive(from, to, mail));
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.0.arenas[pool.index()]
    }
}
