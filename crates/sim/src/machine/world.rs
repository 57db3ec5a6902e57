//! The engine's `World` on a simulated shard, in simulated runs and in crash images.
//! Owns: [`SimWorld`]: clock, tasks, mailboxes, buffers of one logical shard. Not here: who is polled next (`executor`),
//! the members, which are a parameter (`member`, `crash::machine`).
//! Invariant: mail of one pair of shards arrives once and in order, after a delay that the seed chooses.

use crate::machine::event::Event;
use crate::machine::executor::{Executor, Purpose};
use crate::machine::member::SimMember;
use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Arena, Device, ShardIndex, Tick};
use uraid_engine::{Mail, Pool, World};

/// The size of a pool in small blocks (4 KiB) and large blocks (64 KiB).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSize {
    /// How many small blocks.
    pub small: u32,
    /// How many large blocks.
    pub large: u32,
}

/// What [`World::unix_seconds`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WallClock {
    /// It is unreliable on purpose: it jumps by hours, also backwards, as virtual seconds pass.
    Jumps,
    /// It stands still, so that two superblocks never differ only in their time.
    Stands,
}

/// A simulated machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// How many shards.
    pub shards: u16,
    /// The size of each of a shard's five pools: the engine's four and the clients'.
    pub pool: PoolSize,
    /// How long mail takes at most, in nanoseconds.
    pub mail_delay_max: u64,
    /// The wall clock.
    pub wall_clock: WallClock,
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
                SPARE.with_borrow_mut(|spare| spare.push((self.common.machine.pool, arena.clone())));
            }
        }
    }
}

struct Common {
    executor: Executor,
    machine: Machine,
    // When the last mail of each pair (from * shards + to) arrives, so that the next one does not overtake it.
    mail_last: RefCell<Vec<u64>>,
    handlers: RefCell<Vec<Option<Handler>>>,
}

struct Shard {
    common: Rc<Common>,
    index: u16,
    arenas: [Arena; 5],
}

/// One logical shard, with members of type `M`. Clones are handles of the same one.
pub struct SimWorld<M = SimMember>(Rc<Shard>, PhantomData<fn() -> M>);

impl<M> Clone for SimWorld<M> {
    fn clone(&self) -> SimWorld<M> {
        SimWorld(self.0.clone(), PhantomData)
    }
}

impl<M> SimWorld<M> {
    /// The shards of a machine, all on one executor.
    pub fn boot(executor: &Executor, machine: Machine) -> Vec<SimWorld<M>> {
        let shards = usize::from(machine.shards);
        let common = Rc::new(Common {
            executor: executor.clone(),
            machine,
            mail_last: RefCell::new(vec![0; shards * shards]),
            handlers: RefCell::new(vec![None; shards]),
        });
        (0..machine.shards)
            .map(|index| {
                let arenas = std::array::from_fn(|_| take_arena(machine.pool));
                SimWorld(Rc::new(Shard { common: common.clone(), index, arenas }), PhantomData)
            })
            .collect()
    }

    /// Sets the handler of this shard's mail.
    pub fn on_mail(&self, handler: impl Fn(Mail) + 'static) {
        self.0.common.handlers.borrow_mut()[usize::from(self.0.index)] = Some(Rc::new(handler));
    }

    /// The executor that runs this shard.
    pub fn executor(&self) -> &Executor {
        &self.0.common.executor
    }

    /// The clients' buffers.
    pub fn client_arena(&self) -> &Arena {
        &self.0.arenas[4]
    }

    /// Blocks leased now, per pool: request, row, metadata, pass, client.
    pub fn blocks_in_use(&self) -> [usize; 5] {
        std::array::from_fn(|at| self.0.arenas[at].blocks_in_use())
    }

    /// Drops the mail handlers. They hold the arrays, and the arrays hold this world, so this breaks the cycle.
    pub fn shut_down(&self) {
        let handlers = std::mem::take(&mut *self.0.common.handlers.borrow_mut());
        drop(handlers);
        *self.0.common.handlers.borrow_mut() = vec![None; usize::from(self.0.common.machine.shards)];
        // The next arrays begin at an earlier time.
        self.0.common.mail_last.borrow_mut().fill(0);
    }
}

impl Common {
    fn arrive(&self, from: u16, to: u16, mail: Mail) {
        self.executor.record(Event::Mail { from, to });
        let handler = self.handlers.borrow().get(usize::from(to)).and_then(Clone::clone);
        if let Some(handler) = handler {
            handler(mail);
        }
    }
}

impl<M: Device + 'static> World for SimWorld<M> {
    type Member = M;

    fn now(&self) -> Tick {
        self.0.common.executor.now()
    }

    fn unix_seconds(&self) -> u64 {
        let seconds = self.now().0 / 1_000_000_000;
        match self.0.common.machine.wall_clock {
            WallClock::Jumps => 1_700_000_000 + seconds + if seconds % 7 == 3 { 7200 } else { 0 },
            WallClock::Stands => 1_700_000_000,
        }
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        let executor = self.0.common.executor.clone();
        async move { executor.sleep(time).await }
    }

    fn shard(&self) -> ShardIndex {
        ShardIndex(self.0.index)
    }

    fn shards(&self) -> u16 {
        self.0.common.machine.shards
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.0.common.executor.spawn(self.0.index, "engine", task);
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        let common = self.0.common.clone();
        let Machine { shards, mail_delay_max, .. } = common.machine;
        let (from, to) = (self.0.index, to.0);
        assert!(to < shards, "mail to shard {to} of {shards}");
        let delay = common.executor.choose_for(Purpose::Mail, |rng| rng.below(mail_delay_max + 1));
        let at = {
            let mut last = common.mail_last.borrow_mut();
            let last = &mut last[usize::from(from) * usize::from(shards) + usize::from(to)];
            *last = (common.executor.now().0 + delay).max(*last);
            *last
        };
        let executor = common.executor.clone();
        executor.at(Tick(at), move || common.arrive(from, to, mail));
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.0.arenas[pool.index()]
    }
}
