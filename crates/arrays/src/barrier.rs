//! A barrier for the shards of a run.
//! Owns: [`Barrier`]. Not here: what they do between two waits (`run` and its tasks).
//! Invariant: `wait` never waits for a shard that has given up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use uraid_host::Local;

/// How often a shard checks whether the others have arrived.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// A barrier that is used again and again.
#[derive(Default)]
pub(crate) struct Barrier {
    waiting: Arrivals,
    ended: Arrivals,
    is_given_up: AtomicBool,
}

/// Counts arrivals of shards; in each round, every shard arrives once.
#[derive(Default)]
struct Arrivals(AtomicU64);

impl Arrivals {
    /// Counts this shard; returns the count at which its round is complete.
    fn arrive(&self, shards: u16) -> u64 {
        let shards = u64::from(shards);
        let ticket = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        ticket.div_ceil(shards) * shards
    }

    fn have_reached(&self, count: u64) -> bool {
        self.0.load(Ordering::SeqCst) >= count
    }
}

impl Barrier {
    /// Returns when all shards have arrived. False: a shard gave up before it arrived; then all shards get false.
    pub(crate) async fn wait(&self, local: &Local) -> bool {
        // The shard that gave up does not arrive in this round.
        if self.is_given_up() {
            return false;
        }
        let wanted = self.waiting.arrive(local.count());
        // A shard that gives up after it has arrived does not change the answer of this round.
        while !self.waiting.have_reached(wanted) {
            if self.is_given_up() {
                return false;
            }
            local.sleep(LOOK_EVERY).await;
        }
        true
    }

    /// This shard gives up: the others stop waiting.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
    }

    /// Whether a shard has given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::SeqCst)
    }

    /// Returns when all shards have arrived, whether or not one has given up.
    pub(crate) async fn wait_for_all(&self, local: &Local) {
        let wanted = self.ended.arrive(local.count());
        while !self.ended.have_reached(wanted) {
            local.sleep(LOOK_EVERY).await;
        }
    }
}
