//! A shard: one thread with its executor, ring, timers, arenas and mail.
//! Owns: [`run`], [`Shard`], [`Local`], [`Options`]. Not here: how tasks or I/O are driven.
//! Invariant: mail from one shard to another arrives once and in order.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Arena, ShardIndex, Tick};

/// How many arenas a shard has: 0 to 3 are the engine's pools, [`CLIENT_ARENA`] is what faces receive into.
pub const ARENAS: usize = 5;
/// The arena that faces receive client data into and read array data into.
pub const CLIENT_ARENA: usize = 4;

/// Which way to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingChoice {
    /// io_uring where the system allows it, threads otherwise.
    Auto,
    /// io_uring; `run` panics where it is refused.
    IoUring,
    /// A small pool of threads and poll.
    Threads,
}

/// Blocks of one arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaBlocks {
    /// Pages.
    pub small: u32,
    /// Blocks of 64 KiB.
    pub large: u32,
}

/// How the machine is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which way to the kernel.
    pub ring: RingChoice,
    /// What each shard's arenas hold. Memory that is never touched costs nothing.
    pub arenas: [ArenaBlocks; ARENAS],
}

impl Default for Options {
    fn default() -> Options {
        Options { ring: RingChoice::Auto, arenas: [ArenaBlocks { small: 1024, large: 256 }; ARENAS] }
    }
}

/// What asked the process to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Runs `main` on so many shards, one thread each, and gives their values in shard order.
pub fn run<M, T, F, Fut>(shards: u16, options: &Options, main: F) -> Vec<T>
where
    M: Send + 'static,
    T: Send,
    F: Fn(Shard<M>) -> Fut + Send + Sync,
    Fut: Future<Output = T>,
{
    let _ = (shards, options, main);
    panic!("not built yet")
}

/// One shard's machine without its mail: what faces and members need. Clones are handles of the same shard.
#[derive(Clone)]
pub struct Local(Rc<()>);

impl Local {
    /// Which shard this is.
    pub fn index(&self) -> ShardIndex {
        panic!("not built yet")
    }
    /// How many shards there are.
    pub fn count(&self) -> u16 {
        panic!("not built yet")
    }
    /// The monotonic clock.
    pub fn now(&self) -> Tick {
        panic!("not built yet")
    }
    /// Seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        panic!("not built yet")
    }
    /// Ends after `time` has passed.
    pub async fn sleep(&self, time: Duration) {
        let _ = time;
        panic!("not built yet")
    }
    /// Starts a task on this shard.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let _ = task;
        panic!("not built yet")
    }
    /// One of the shard's arenas. Panics at or above [`ARENAS`].
    pub fn arena(&self, n: usize) -> &Arena {
        panic!("not built yet: {n}")
    }
    /// Waits for SIGTERM or SIGINT, on shard 0; from the call on they do not end the process by themselves.
    pub fn terminated(&self) -> impl Future<Output = Signal> + 'static {
        async { panic!("not built yet") }
    }
}

/// One shard as its tasks see it: its machine (by `Deref`) and mail to other shards.
pub struct Shard<M> {
    local: Local,
    mail: PhantomData<Rc<M>>,
}

impl<M> Clone for Shard<M> {
    fn clone(&self) -> Shard<M> {
        Shard { local: self.local.clone(), mail: PhantomData }
    }
}

impl<M> Deref for Shard<M> {
    type Target = Local;
    fn deref(&self) -> &Local {
        &self.local
    }
}

impl<M: Send + 'static> Shard<M> {
    /// Sends mail to a shard, also to this one: it is handled later, in order.
    pub fn post(&self, to: ShardIndex, mail: M) {
        let _ = (to, mail);
        panic!("not built yet")
    }
    /// Sets who gets the mail. Mail that came before waits for this.
    pub fn on_mail(&self, handler: impl Fn(M) + 'static) {
        let _ = handler;
        panic!("not built yet")
    }
}
