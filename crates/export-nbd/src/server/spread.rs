//! Which shard serves a new connection.
//! Owns: [`Spread`], the count of connections of each shard. Not here: passing a socket to another shard (the caller).
//! Invariant: each connection is counted once, from its choice to its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use uraid_block::ShardIndex;

/// How many connections each shard has, to assign a new one to the shard with the fewest. Shared by all shards.
pub struct Spread(Box<[AtomicUsize]>);

impl Spread {
    /// For this number of shards.
    pub fn new(shards: u16) -> Arc<Spread> {
        assert!(shards > 0, "a connection needs a shard");
        Arc::new(Spread((0..shards).map(|_| AtomicUsize::new(0)).collect()))
    }

    /// Chooses the shard with the fewest connections and counts one more for it.
    pub(crate) fn choose(&self) -> ShardIndex {
        let fewest = (0..self.0.len()).min_by_key(|&shard| self.0[shard].load(Ordering::Relaxed));
        let shard = fewest.expect("there is a shard");
        self.0[shard].fetch_add(1, Ordering::Relaxed);
        ShardIndex(u16::try_from(shard).expect("shards are counted in 16 bits"))
    }

    pub(crate) fn leave(&self, shard: ShardIndex) {
        let before = self.0[usize::from(shard.0)].fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0);
    }
}
