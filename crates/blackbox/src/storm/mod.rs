//! Kill storms: arrays are served, killed, damaged or deprived of members, and read to the last sector, again and again.
//! Owns: which arrays, how many kills, on how many threads; the sum. Not here: one array's life (`episode`).
//! Called by `uraid-storm` and by tests.
//! Invariant: the seed decides every choice (array, duration, damage); only the moment of a kill depends on the machine.
//!
//! Covered: everything that was answered is there after kill -9, also with members lost; each sector of an unanswered
//! write is old or new, and does not change once read; starts that must be refused are refused.
//!
//! Not covered: **kill -9 loses no page cache.** A write that the engine answered and never flushed survives here, so a
//! missing flush, a wrong order of flushes, a lost FUA and a torn sector are all invisible. The simulator finds those: its
//! members lose unflushed writes. Silent corruption is not tested either, because no answer is defined for it.

mod canary;
mod damage;
mod episode;
mod figures;
mod shapes;
mod trouble;

pub use canary::Canary;
pub use figures::Figures;
pub use trouble::Trouble;

use crate::random::mix;
use episode::Episode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Kills per array before the next array is made.
pub const KILLS_PER_ARRAY: u64 = 6;

/// A storm to run. It ends when both bounds are reached.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of all choices.
    pub seed: u64,
    /// The least number of kills; exactly this many if `time` is zero.
    pub kills: u64,
    /// The least time; arrays that run at its end finish first.
    pub time: Duration,
    /// Arrays at a time.
    pub threads: usize,
}

/// Runs a storm; the figures hold what it found, each with its array and the seed.
pub fn run(plan: Plan) -> Figures {
    let began = Instant::now();
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Figures { seed: plan.seed, ..Figures::default() });
    let is_time_up = || began.elapsed() >= plan.time;
    std::thread::scope(|scope| {
        for _ in 0..plan.threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let wanted = plan.kills.saturating_sub(index * KILLS_PER_ARRAY);
                    let kills = if is_time_up() { wanted.min(KILLS_PER_ARRAY) } else { KILLS_PER_ARRAY };
                    if kills == 0 {
                        break;
                    }
                    let mut episode = Episode::new(index, mix(plan.seed ^ mix(index)));
                    let ended = episode.run(kills, &|| wanted == 0 && is_time_up());
                    let mut sum = sum.lock().expect("no panic while summing");
                    sum.add(episode.figures());
                    if let Err(trouble) = ended {
                        is_over.store(true, Ordering::Relaxed);
                        sum.blame(&trouble, &format!("array {index}, {}", episode.log()));
                    }
                }
            });
        }
    });
    let mut sum = sum.into_inner().expect("no panic while summing");
    sum.milliseconds = began.elapsed().as_millis() as u64;
    sum
}
