//! Settings for all shards of one `run`.
//! Owns: [`Options`]. Not here: what they do (`shard`, `ring`).

use crate::process::panic_hook;
use std::sync::Arc;
use std::time::Duration;

/// How many arenas a shard has. 0 to 3 are the engine's pools; [`CLIENT_ARENA`] is for frontends.
pub const ARENAS: usize = 5;
/// The arena into which frontends receive client data and read array data.
pub const CLIENT_ARENA: usize = 4;

/// How I/O is submitted to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RingChoice {
    /// io_uring if the system allows it, threads otherwise.
    Auto,
    /// io_uring; `run` panics if it is refused.
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

type NameCallback = dyn Fn(&[String]) + Send + Sync;

/// A callback for the end of the process. It gets the members that have not answered all requests, sorted, without
/// duplicates. The kernel does not let the process end before they answer.
#[derive(Clone)]
pub struct LeftBehind(Arc<NameCallback>);

impl LeftBehind {
    /// Calls `tell`.
    pub fn new(tell: impl Fn(&[String]) + Send + Sync + 'static) -> LeftBehind {
        LeftBehind(Arc::new(tell))
    }

    pub(crate) fn tell(&self, members: &[String]) {
        (self.0)(members);
    }
}

impl Default for LeftBehind {
    fn default() -> LeftBehind {
        LeftBehind::new(|members| {
            let members = members.join(", ");
            panic_hook::say(&format!("uraid: {members}: did not answer while closing: its buffers are left behind\n"));
        })
    }
}

impl std::fmt::Debug for LeftBehind {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("LeftBehind")
    }
}

/// Settings for all shards of one [`run`](crate::run).
#[derive(Clone, Debug)]
pub struct Options {
    /// How I/O is submitted to the kernel.
    pub ring: RingChoice,
    /// The blocks of each shard's arenas. Memory that is never touched costs nothing.
    pub arenas: [ArenaBlocks; ARENAS],
    /// How long a shard busy-polls for messages before it sleeps; it does so only while polling finds some. Waking a
    /// sleeping core takes tens of microseconds on a virtual machine. Zero: never.
    pub spin: Duration,
    /// The processor of each shard, to which it is pinned; a shard without an entry is not pinned. Take them from
    /// [`crate::processors_allowed`].
    pub processors: Vec<u16>,
    /// Whether adjacent reads and writes of one turn on a member are merged. Off: to measure the effect.
    pub merging: bool,
    /// Whether every member keeps a [`crate::Trace`] of its requests.
    pub trace: bool,
    /// How long a read or a write of a member may take before it fails as if the member were gone; flushes and discards
    /// may take four times as long. `None`: no limit, and [`Device::unanswered_for`](uraid_block::Device::unanswered_for)
    /// is always zero.
    pub member_timeout: Option<Duration>,
    /// Called with the members that have not answered when the process ends.
    pub left_behind: LeftBehind,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ring: RingChoice::Auto,
            arenas: [ArenaBlocks { small: 1024, large: 256 }; ARENAS],
            spin: Duration::ZERO,
            processors: Vec::new(),
            merging: true,
            trace: false,
            member_timeout: None,
            left_behind: LeftBehind::default(),
        }
    }
}
