//! Every partial round of superblock writes: at each moment, each subset of the writes that are not yet certain.
//! Owns: [`Enumerator`], the script that causes superblock writes. Not here: when an image is right (`judge`).
//! Invariant: no subset is left out while at most `UNCERTAIN_MAX` writes are uncertain; more is a failure.
//!
//! ```text
//!   round:   member 0 |==FUA==|
//!            member 1          |==FUA==|       here {1, 2, 3} are uncertain: 8 subsets, data all lost or all kept,
//!            member 2          |==FUA==|       16 images; each is assembled and read, and at depth 1 also started,
//!            member 3          |==FUA==|       with the same enumeration while the start writes its own rounds
//! ```

use crate::machine::executor::Ended;
use crate::machine::member::medium::CrashMode;
use crate::random::rng::{Rng, mix};
use crate::rig::{Live, Rig, STEPS_MAX, TIMEOUT};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Slot, SlotSet};
use uraid_engine::Config;

/// The most superblock writes that may be uncertain at a time.
const UNCERTAIN_MAX: usize = 10;

/// Enumerates all partial rounds.
pub struct Enumerator {
    depth: u32,
    last: Vec<(u16, u64)>,
    seen: BTreeSet<Vec<u64>>,
    /// Images checked, including those in starts.
    pub images: u64,
    /// Starts from an image.
    pub starts: u64,
}

impl Enumerator {
    /// At depth 0, images are checked. At depth n, the array is also started from each image, and the start is checked
    /// with depth n - 1.
    pub fn new(depth: u32) -> Enumerator {
        Enumerator { depth, last: Vec::new(), seen: BTreeSet::new(), images: 0, starts: 0 }
    }

    /// Checks the members at this moment; does nothing if no superblock write started or ended since the last call.
    pub fn check_moment(&mut self, rig: &Rig) -> Result<(), String> {
        let of_disk = |(slot, disk): (usize, &Rc<crate::machine::member::Disk>)| -> Vec<(u16, u64)> {
            disk.medium().uncertain_super_writes().into_iter().map(|write| (slot as u16, write)).collect()
        };
        let uncertain: Vec<(u16, u64)> = rig.judge.disks.iter().enumerate().flat_map(of_disk).collect();
        if uncertain == self.last {
            return Ok(());
        }
        self.last.clone_from(&uncertain);
        if uncertain.len() > UNCERTAIN_MAX {
            return Err(format!("{} superblock writes are uncertain at once", uncertain.len()));
        }
        for subset in 0..1u32 << uncertain.len() {
            for mode in [CrashMode::None, CrashMode::All] {
                let keeps = |slot: u16, write: u64| {
                    let index = uncertain.iter().position(|one| *one == (slot, write));
                    index.is_some_and(|index| subset & (1 << index) != 0)
                };
                let mut rng = Rng::new(u64::from(subset));
                let images = rig.judge.images_keeping(mode, &mut rng, &keeps);
                self.images += 1;
                let which = format!("superblock writes {uncertain:?}, subset {subset:#b}, data {mode:?}");
                rig.judge.check_power_cut(&images).map_err(|found| format!("{which}: {found}"))?;
                if self.depth > 0 && self.is_new(&images) {
                    self.start(rig, images).map_err(|found| format!("{which}; then: {found}"))?;
                }
            }
        }
        Ok(())
    }

    /// Whether the array was not started yet from the superblocks of these images.
    fn is_new(&mut self, images: &[Option<Vec<u8>>]) -> bool {
        let sum = |bytes: &[u8]| bytes.iter().fold(7u64, |sum, byte| mix(sum ^ u64::from(*byte)));
        self.seen.insert(images.iter().flatten().map(|image| sum(image)).collect())
    }

    fn start(&mut self, rig: &Rig, images: Vec<Option<Vec<u8>>>) -> Result<(), String> {
        self.starts += 1;
        let mut branch = rig.branch(images, Rng::new(self.starts))?;
        let mut inner = Enumerator::new(self.depth - 1);
        let result = inner.run_start(&mut branch);
        branch.power_off();
        self.images += inner.images;
        self.starts += inner.starts;
        result
    }

    fn run_start(&mut self, rig: &mut Rig) -> Result<(), String> {
        let Some(plan) = rig.assemble(&BTreeSet::new())? else { return Err("it cannot be assembled".to_string()) };
        rig.prepare_oracle(&plan, &BTreeSet::new());
        let live = rig.boot(&plan, &Config::default())?;
        let started = live.started.clone();
        self.run_until(rig, &live, || started.get().is_some())?;
        if started.get() != Some(true) {
            return Err("it does not start".to_string());
        }
        let result = rig.read_all(&live);
        rig.executor.cut();
        result
    }

    /// Runs with a check at every step.
    fn run_until(&mut self, rig: &Rig, live: &Live, is_done: impl Fn() -> bool) -> Result<(), String> {
        let end = rig.executor.now() + TIMEOUT;
        let found = RefCell::new(None);
        let ended = rig.executor.run(STEPS_MAX, end, || {
            let result = self.check_moment(rig);
            let is_over = result.is_err() || is_done();
            if let Err(text) = result {
                found.replace(Some(text));
            }
            is_over
        });
        match (found.take(), ended) {
            (Some(text), _) => Err(text),
            (None, Ended::Done | Ended::Steps | Ended::Time | Ended::Stuck | Ended::Violation) => {
                rig.judge_end(ended, live, false)
            }
        }
    }

    /// Runs the script: start, writes and flushes, a member failed in the middle, clean, dirty again, stop.
    pub fn run_script(&mut self, rig: &mut Rig, failing: u16) -> Result<(), String> {
        let plan = rig.assemble(&BTreeSet::new())?.ok_or("it cannot be assembled")?;
        rig.prepare_oracle(&plan, &BTreeSet::new());
        let live = rig.boot(&plan, &Config::default())?;
        let client = |rig: &mut Rig| live.client(0, rig.rng.fork());
        let (first, second) = (client(rig), client(rig));
        let (executor, array) = (rig.executor.clone(), live.arrays[0].clone());
        rig.judge.lost.borrow_mut().insert(failing);
        let script = rig.executor.spawn(0, "script", async move {
            first.run(8).await;
            let _ = array.fail(SlotSet::EMPTY.with(Slot(failing))).await;
            executor.sleep(Duration::from_millis(700)).await;
            second.run(4).await;
            let _ = array.stop().await;
        });
        let alongside = client(rig);
        let alongside = rig.executor.spawn(0, "client", alongside.run(12));
        let executor = rig.executor.clone();
        self.run_until(rig, &live, || !executor.is_running(script) && !executor.is_running(alongside))?;
        rig.executor.cut();
        Ok(())
    }
}
