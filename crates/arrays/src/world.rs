//! The host's shard as the engine's world: implements `engine::World`.
//! Owns: [`ShardWorld`], the engine's mail between shards of one process ([`ArrayMail`]). Not here: the implementation of
//! either side, the members, which are a parameter (`member`), other messages of a process.
//! Invariant: the engine's mail arrives once and in order, because the host's mailbox keeps the order. No array waits
//! for buffers that another one holds, because each has its own.

use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Arena, Device, ShardIndex, Tick};
use uraid_engine::{Mail, Pool, World};
use uraid_host::{Local, Options, Shard};

/// The index of an array in the process: member arrays come before those made of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ArrayIndex(pub usize);

/// The engine's mail of one array. If the shards of a process also send each other further messages, the process has a
/// message type of its own, and `ArrayMail` converts into it.
pub struct ArrayMail {
    /// Of which array.
    pub array: ArrayIndex,
    /// For [`uraid_engine::Array::deliver`].
    pub mail: Mail,
}

/// The engine's pools are host's first arenas, by their index.
const POOLS: usize = Pool::COUNT;

/// One shard of the host as the world of one array, with members of type `D`. Clones are handles of the same one.
pub struct ShardWorld<D> {
    local: Local,
    /// The type of the process's messages is erased here, so that the engine is compiled once for all of them.
    post: Rc<dyn Fn(ShardIndex, Mail)>,
    arenas: Rc<[Arena; POOLS]>,
    members: PhantomData<fn() -> D>,
}

impl<D> Clone for ShardWorld<D> {
    fn clone(&self) -> ShardWorld<D> {
        let ShardWorld { local, post, arenas, members } = self;
        ShardWorld { local: local.clone(), post: post.clone(), arenas: arenas.clone(), members: *members }
    }
}

impl<D> ShardWorld<D> {
    /// The world of one array. The first array uses the shard's own arenas, later ones get separate arenas of the same
    /// size: an array that waits for its member array must not hold the buffers that the member array needs.
    pub(crate) fn new<M>(shard: &Shard<M>, array: ArrayIndex, options: &Options) -> ShardWorld<D>
    where
        M: From<ArrayMail> + Send + 'static,
    {
        let arena = |pool: usize| match array {
            ArrayIndex(0) => shard.arena(pool).clone(),
            ArrayIndex(_) => Arena::new(options.arenas[pool].small, options.arenas[pool].large),
        };
        let of = shard.clone();
        ShardWorld {
            local: (**shard).clone(),
            post: Rc::new(move |to, mail| of.post(to, ArrayMail { array, mail }.into())),
            arenas: Rc::new(std::array::from_fn(arena)),
            members: PhantomData,
        }
    }
}

impl<D: Device + 'static> World for ShardWorld<D> {
    type Member = D;

    fn now(&self) -> Tick {
        self.local.now()
    }

    fn turn_time(&self) -> Tick {
        self.local.turn_time()
    }

    fn unix_seconds(&self) -> u64 {
        self.local.unix_seconds()
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
        self.local.sleep(time)
    }

    fn shard(&self) -> ShardIndex {
        self.local.index()
    }

    fn shards(&self) -> u16 {
        self.local.count()
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.local.spawn(task);
    }

    fn post(&self, to: ShardIndex, mail: Mail) {
        (self.post)(to, mail);
    }

    fn arena(&self, pool: Pool) -> &Arena {
        &self.arenas[pool.index()]
    }
}
