//! Four writers at work, and how steadily they are served.
//! Owns: the longest time without an answer. Not here: what they write (`uraid_blackbox::sectors::writers`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uraid_blackbox::programs::server::Server;
use uraid_blackbox::sectors::writers::{SharedModel, Workload, Writers};

/// Writers and a watcher over them.
pub(crate) struct Load {
    writers: Arc<Writers>,
    began: Instant,
    stop: Arc<AtomicBool>,
    stall_us: Arc<AtomicU64>,
    watcher: Option<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(server: &Server, model: &SharedModel, seed: u64) -> Load {
        let workload = Workload { writers: 4, depth: 8, seed };
        let writers = Arc::new(Writers::start(server.address(), model, workload));
        let (stop, stall_us) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let watcher = std::thread::spawn({
            let (writers, stop, stall_us) = (writers.clone(), stop.clone(), stall_us.clone());
            move || {
                let (mut seen, mut since) = (0, Instant::now());
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(500));
                    let answered = writers.answered();
                    if answered != seen {
                        (seen, since) = (answered, Instant::now());
                    }
                    stall_us.fetch_max(since.elapsed().as_micros() as u64, Ordering::Relaxed);
                }
            }
        });
        Load { writers, began: Instant::now(), stop, stall_us, watcher: Some(watcher) }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.writers.answered()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.answered() as f64 / self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn longest_stall(&self) -> Duration {
        Duration::from_micros(self.stall_us.load(Ordering::Relaxed))
    }

    pub(crate) fn finish(self) -> String {
        let (writers, rate) = self.end();
        format!("{} requests answered, {rate:.0} a second", writers.finish())
    }

    pub(crate) fn finish_after_kill(self) -> String {
        let (writers, rate) = self.end();
        format!("{} requests answered, {rate:.0} a second", writers.finish_after_kill())
    }

    fn end(mut self) -> (Writers, f64) {
        let rate = self.per_second();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(watcher) = self.watcher.take() {
            watcher.join().expect("the watcher does not panic");
        }
        (Arc::into_inner(self.writers).expect("the watcher has gone"), rate)
    }
}
