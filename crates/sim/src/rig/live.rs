//! An array while it runs.
//! Owns: [`Live`]: its worlds, its handles, and their end. Not here: its start and its stop (`rig`).

use crate::machine::world::SimWorld;
use crate::random::rng::Rng;
use crate::rig::client::{Client, Session};
use std::cell::Cell;
use std::rc::Rc;
use uraid_engine::Array;

/// The array while it runs.
pub struct Live {
    /// One world per shard.
    pub worlds: Vec<SimWorld>,
    /// The array's handle on each shard.
    pub arrays: Vec<Rc<Array<SimWorld>>>,
    /// Shared by the clients.
    pub session: Rc<Session>,
    /// `None` while it starts, then whether the start succeeded.
    pub started: Rc<Cell<Option<bool>>>,
    /// The task that starts it, and waits for its resync.
    pub start: u64,
}

impl Live {
    /// A client on a shard.
    pub fn client(&self, shard: u16, rng: Rng) -> Client {
        let (array, world) = (self.arrays[usize::from(shard)].clone(), self.worlds[usize::from(shard)].clone());
        Client { session: self.session.clone(), array, world, rng }
    }
}

/// Breaks the cycle of arrays and worlds, which would keep the memory of every run.
impl Drop for Live {
    fn drop(&mut self) {
        // After a panic of the engine its destructors could panic again.
        if !std::thread::panicking() {
            self.worlds.iter().for_each(SimWorld::shut_down);
        }
    }
}
