//! A barrier for the shards of a bench.
//! Owns: [`Meeting`]. Not here: what they do between two meetings (`session`, `cycles`).
//! Invariant: no shard waits for one that has given up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use uraid_host::Local;

/// How often a shard checks whether the others have arrived.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// The barrier.
#[derive(Default)]
pub struct Meeting {
    arrived: AtomicU64,
    left: AtomicU64,
    is_over: AtomicBool,
}

impl Meeting {
    /// Returns when all shards are here. False: one of them has given up.
    pub async fn meet(&self, local: &Local) -> bool {
        let shards = u64::from(local.count());
        let ticket = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        let wanted = ticket.div_ceil(shards) * shards;
        while !self.is_over.load(Ordering::SeqCst) {
            if self.arrived.load(Ordering::SeqCst) >= wanted {
                return true;
            }
            local.sleep(LOOK_EVERY).await;
        }
        false
    }

    /// This shard gives up: the others stop waiting.
    pub fn give_up(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Returns when all shards have arrived here, given up or not.
    pub async fn leave(&self, local: &Local) {
        self.left.fetch_add(1, Ordering::SeqCst);
        while self.left.load(Ordering::SeqCst) < u64::from(local.count()) {
            local.sleep(LOOK_EVERY).await;
        }
    }
}
