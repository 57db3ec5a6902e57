//! Where shards of a bench wait for each other.
//! Owns: [`Meeting`]. Not here: what they do between two meetings (`session`, `cycles`).
//! Invariant: who has given up keeps nobody waiting.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use uraid_host::Local;

/// How often a shard looks whether the others have come.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// Where shards wait for each other.
#[derive(Default)]
pub struct Meeting {
    arrived: AtomicU64,
    left: AtomicU64,
    is_over: AtomicBool,
}

impl Meeting {
    /// Goes on when all shards are here. False: one of them has given up.
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

    /// There is nothing to meet for any more.
    pub fn give_up(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Goes on when all shards have come here, given up or not.
    pub async fn leave(&self, local: &Local) {
        self.left.fetch_add(1, Ordering::SeqCst);
        while self.left.load(Ordering::SeqCst) < u64::from(local.count()) {
            local.sleep(LOOK_EVERY).await;
        }
    }
}
