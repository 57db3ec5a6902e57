//! Explores every crash of a script: each moment, each set of lost members, each subset of undurable writes, and the
//! same again during the restart.
//! Owns: [`Explorer`], the enumeration of subsets, which images are new. Not here: restarting from an image (`recover`),
//! legal contents (`expect`).
//! Invariant: images differ if the contents of the present members or the lost set differ. Each image is restarted
//! once, and judged for every moment at which it can occur.
//!
//! ```text
//!   member 0   | durable, w1, w2 |    w1       |        uncertain cells, with their possible contents:
//!   member 1   | durable, w1     |             |        3 * 2 * 2 = 12 images; fewer for each set of lost members
//! ```

use super::content::{Content, PrehashedMap};
use super::expect::Expectation;
use super::found::{Crash, Found};
use super::lab::{Image, Lab};
use super::machine::{CrashMachine, CrashWorld};
use super::recover::{Restarted, assemble_image, boot, drive, restart, start_of};
use super::report::Counts;
use super::script::{Schedule, Script, ScriptRequest};
use crate::random::rng::mix;
use crate::reference::oracle::{Oracle, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::join_all;
use uraid_block::{Device, Fua, Range, Sector, Sectors, Slot};
use uraid_engine::{Array, World};

/// The most subsets of one moment and one set of lost members. Those beyond it are counted as left out.
pub const SUBSETS_MAX: u64 = 1 << 16;

/// Explores the scripts of one array.
pub struct Explorer {
    /// The array.
    pub lab: Rc<Lab>,
    /// The counts.
    pub counts: Counts,
    depth: usize,
    // The first runs the script, the second the restart that is interrupted, the third the restart after that.
    machines: [CrashMachine; 3],
    seen: PrehashedMap<u128, usize>,
    outcomes: Vec<Known>,
    at: Vec<Crash>,
    only: Option<Vec<Crash>>,
    tells: bool,
}

/// An image that was restarted.
struct Known {
    outcome: Restarted,
    // Whether its restart was interrupted at every moment, too.
    is_deep: bool,
}

/// A cell whose content after a crash is uncertain.
struct UncertainCell {
    place: usize,
    options: Vec<(Content, u128)>,
}

/// A moment of a running machine.
struct Moment<'a> {
    level: usize,
    expectation: &'a Expectation,
    // Slots that count against what the array tolerates, whether or not they are lost in the crash.
    failed: u32,
}

impl Explorer {
    /// An explorer of an array.
    pub fn new(lab: Lab) -> Explorer {
        let machines: [CrashMachine; 3] =
            std::array::from_fn(|_| CrashMachine::new(lab.contents.clone(), lab.slots(), lab.device_size()));
        machines[2].set_instant(true);
        for machine in &machines {
            machine.media_mut().iter_mut().for_each(|medium| medium.beside = lab.beside());
        }
        Explorer {
            lab: Rc::new(lab),
            counts: Counts::default(),
            depth: 1,
            machines,
            seen: PrehashedMap::default(),
            outcomes: Vec::new(),
            at: Vec::new(),
            only: None,
            tells: false,
        }
    }

    /// Restricts the exploration to these consecutive crashes, and prints the resulting images.
    pub fn only(&mut self, crashes: Vec<Crash>) {
        self.only = Some(crashes);
        self.tells = true;
    }

    /// Runs a script with every crash in it; with `depth` 2 also with every crash in the restarts.
    pub fn run(&mut self, script: &Script, schedule: Schedule, depth: usize) -> Result<(), Found> {
        assert!((1..=2).contains(&depth));
        self.depth = depth;
        self.at.clear();
        let outcome = self.run_script(script, schedule);
        outcome.map_err(|what| Found { what, crashes: self.at.clone() })
    }

    /// The consecutive crashes that are being explored.
    pub fn crashes(&self) -> &[Crash] {
        &self.at
    }

    fn run_script(&mut self, script: &Script, schedule: Schedule) -> Result<(), String> {
        let (lab, machine) = (self.lab.clone(), self.machines[0].clone());
        let image = lab.first_image();
        for (slot, medium) in machine.media_mut().iter_mut().enumerate() {
            medium.load(&image[slot * lab.cells..(slot + 1) * lab.cells]);
            let loss = script.loss.filter(|loss| usize::from(loss.slot) == slot);
            medium.writes_left = loss.map(|loss| loss.after);
        }
        let assembled = assemble_image(&lab, &image, 0)?;
        let array = boot(&machine, &assembled.plan, &assembled.owners);
        let client = Client {
            lab: lab.clone(),
            machine: machine.clone(),
            oracle: Rc::new(RefCell::new(Oracle::new(lab.array, lab.model.array_size(), Value::Op(0)))),
            version: Rc::default(),
        };
        let is_over = Rc::new(Cell::new(false));
        let (result, inside, own) = (is_over.clone(), client.clone(), script.clone());
        machine.world().spawn(async move {
            inside.run(array, own).await;
            result.set(true);
        });
        let mut expectation = Expectation::default();
        let mut seen = (u64::MAX, u64::MAX, 0);
        let mut point = 0;
        drive(&machine, schedule, &|| is_over.get(), &mut |machine: &CrashMachine| {
            let failed = failed_of(machine);
            let now = (machine.changes(), client.version.get(), failed);
            if now == seen {
                return Ok(());
            }
            if (now.1, now.2) != (seen.1, seen.2) {
                expectation = Expectation::new(&lab, script, &mut client.oracle.borrow_mut(), failed);
            }
            seen = now;
            point += 1;
            self.check_moment(machine, point, &Moment { level: 0, expectation: &expectation, failed })
        })?;
        machine.reset();
        if machine.is_empty() { Ok(()) } else { Err("L3: a buffer has not come back".to_string()) }
    }

    /// Checks every image that a crash at this moment can leave.
    fn check_moment(&mut self, machine: &CrashMachine, point: u64, moment: &Moment<'_>) -> Result<(), String> {
        let only = self.only.as_ref().map(|only| only.get(moment.level).copied());
        if only.is_some_and(|only| only.is_none_or(|only| only.point != point)) {
            return Ok(());
        }
        self.counts.points += 1;
        let lab = self.lab.clone();
        for lost in 0..1u32 << lab.slots() {
            let is_known = lost & lab.tiny.missing == 0 && only.flatten().is_none_or(|only| only.lost == lost);
            if is_known && lab.serves_without(lost | lab.tiny.missing | moment.failed) {
                self.at.truncate(moment.level);
                self.at.push(Crash { point, lost, subset: 0 });
                self.walk(machine, moment, lost, only.flatten().map(|only| only.subset))?;
            }
        }
        self.at.truncate(moment.level);
        Ok(())
    }

    /// Checks the images of one set of lost members, subset by subset.
    fn walk(
        &mut self,
        machine: &CrashMachine,
        moment: &Moment<'_>,
        lost: u32,
        only: Option<u64>,
    ) -> Result<(), String> {
        let (mut image, mut key, uncertain) = self.base(machine, lost);
        let all = uncertain.iter().fold(1u64, |all, cell| all.saturating_mul(cell.options.len() as u64));
        let subsets = match only {
            Some(subset) => subset..subset + 1,
            None => 0..all.min(SUBSETS_MAX),
        };
        self.counts.subsets += subsets.end - subsets.start;
        self.counts.left_out += all.saturating_sub(SUBSETS_MAX);
        let mut digits = vec![0; uncertain.len()];
        for subset in subsets {
            let mut rest = subset;
            for (cell, UncertainCell { place, options }) in uncertain.iter().enumerate() {
                let digit = (rest % options.len() as u64) as usize;
                rest /= options.len() as u64;
                if digit != digits[cell] {
                    key ^= options[digits[cell]].1 ^ options[digit].1;
                    image[*place] = options[digit].0;
                    digits[cell] = digit;
                }
            }
            self.at.last_mut().expect("a crash is being looked at").subset = subset;
            self.visit(&image, key, lost, moment)?;
        }
        Ok(())
    }

    /// The certain contents, their key, and the uncertain cells.
    fn base(&self, machine: &CrashMachine, lost: u32) -> (Image, u128, Vec<UncertainCell>) {
        let lab = &self.lab;
        let contents = lab.contents.borrow();
        let mut image = Vec::with_capacity(lab.slots() * lab.cells);
        let mut key = u128::from(mix(u64::from(lost))) << 64 | u128::from(mix(!u64::from(lost)));
        let mut uncertain = Vec::new();
        let mut options = Vec::new();
        for (slot, medium) in machine.media().iter().enumerate() {
            let is_lost = (lost | lab.tiny.missing) & 1 << slot != 0;
            for cell in 0..lab.cells {
                let place = image.len();
                image.push(medium.durable[cell]);
                if is_lost {
                    continue;
                }
                key ^= contents.key(place, medium.durable[cell]);
                if medium.uncertain[cell].is_empty() {
                    continue;
                }
                medium.options(cell, &mut options);
                if options.len() > 1 {
                    let options = options.iter().map(|&content| (content, contents.key(place, content))).collect();
                    uncertain.push(UncertainCell { place, options });
                }
            }
        }
        (image, key, uncertain)
    }

    fn visit(&mut self, image: &Image, key: u128, lost: u32, moment: &Moment<'_>) -> Result<(), String> {
        let is_deep = moment.level + 1 < self.depth;
        let at = match self.seen.get(&key) {
            Some(at) if self.outcomes[*at].is_deep || !is_deep => *at,
            Some(at) => {
                let at = *at;
                self.check(image, lost, moment)?;
                self.outcomes[at].is_deep = true;
                at
            }
            None => {
                let outcome = self.check(image, lost, moment)?;
                self.count(&outcome, moment);
                self.outcomes.push(Known { outcome, is_deep });
                self.seen.insert(key, self.outcomes.len() - 1);
                self.outcomes.len() - 1
            }
        };
        self.counts.judged += 1;
        let outcome = &self.outcomes[at].outcome;
        let verdict = moment.expectation.judge(&self.lab, lost, outcome);
        if self.tells {
            println!("crash {:?}\n{}{outcome:?}", self.at, self.lab.describe_image(image, lost));
        }
        self.counts.undefined += verdict?;
        Ok(())
    }

    fn count(&mut self, outcome: &Restarted, moment: &Moment<'_>) {
        self.counts.refused += u64::from(outcome.start.is_forced);
        self.counts.resyncs += u64::from(outcome.is_resynced);
        self.counts.degraded += u64::from(outcome.start.missing != 0);
        self.counts.again += u64::from(moment.level > 0);
        self.counts.images += 1;
    }

    fn check(&mut self, image: &Image, lost: u32, moment: &Moment<'_>) -> Result<Restarted, String> {
        let lab = self.lab.clone();
        let assembled = assemble_image(&lab, image, lost)?;
        if moment.level + 1 >= self.depth {
            let machine = self.machines[2].clone();
            return restart(&lab, &machine, image, &assembled, Schedule::Fifo, &mut |_| Ok(()));
        }
        let machine = self.machines[1].clone();
        let expectation = moment.expectation.after_start(&lab, &start_of(&lab, &assembled)?);
        let next = Moment { level: moment.level + 1, expectation: &expectation, failed: moment.failed | lost };
        let (mut seen, mut point) = (u64::MAX, 0);
        restart(&lab, &machine, image, &assembled, Schedule::Fifo, &mut |machine: &CrashMachine| {
            let now = machine.changes();
            if now == seen {
                return Ok(());
            }
            seen = now;
            point += 1;
            self.check_moment(machine, point, &next)
        })
    }
}

fn failed_of(machine: &CrashMachine) -> u32 {
    let media = machine.media();
    media.iter().enumerate().filter(|(_, medium)| medium.is_gone).map(|(slot, _)| 1 << slot).sum()
}

/// The client that runs the script.
#[derive(Clone)]
struct Client {
    lab: Rc<Lab>,
    machine: CrashMachine,
    oracle: Rc<RefCell<Oracle>>,
    // Counts the changes of the oracle.
    version: Rc<Cell<u64>>,
}

impl Client {
    fn with_oracle<T>(&self, work: impl FnOnce(&mut Oracle) -> T) -> T {
        self.version.set(self.version.get() + 1);
        work(&mut self.oracle.borrow_mut())
    }

    async fn run(&self, array: Rc<Array<CrashWorld>>, script: Script) {
        if let Err(error) = array.start().await {
            self.machine.violate(format!("start failed in vain: {error}"));
        }
        let mut op = 0;
        for group in script.groups {
            let first = op;
            op += group.len() as u64;
            let requests = group.into_iter().zip(first + 1..);
            join_all(requests.map(async |(request, op)| {
                if let Err(error) = self.make(&array, request, op).await {
                    self.machine.violate(format!("I7: {request} failed in vain: {error}"));
                }
            }))
            .await;
        }
    }

    async fn make(&self, array: &Rc<Array<CrashWorld>>, request: ScriptRequest, op: u64) -> Result<(), String> {
        match request {
            ScriptRequest::Write { at, length, is_fua } => {
                let payload = self.with_oracle(|oracle| {
                    oracle.begin_write(op, at, length, Value::Op(op));
                    oracle.payload(op, at, length)
                });
                let mut pieces =
                    self.machine.world().client_arena().take(payload.len()).map_err(|full| full.to_string())?;
                pieces.copy_from(&payload);
                let fua = if is_fua { Fua::Yes } else { Fua::No };
                let outcome = array.write(Sector(at), pieces.freeze(), fua).await;
                let usable = array.view().readable();
                self.with_oracle(|oracle| {
                    let began = oracle.end_write(op, at, length, outcome.is_ok(), is_fua);
                    if outcome.is_ok() && is_fua {
                        let missing = |slot: u16| !usable.contains(Slot(slot));
                        let rows = self.lab.model.row_sectors_without_data(at..at + length, &missing);
                        oracle.settle_rows_before(&rows, began);
                    }
                });
                outcome.map_err(|error| format!("{error:?}"))
            }
            ScriptRequest::Zeroes { at, length } => {
                self.with_oracle(|oracle| oracle.begin_write(op, at, length, Value::Zero));
                let range = Range::new(Sector(at), Sectors(length));
                let outcome = array.write_zeroes(range).await;
                self.with_oracle(|oracle| oracle.end_write(op, at, length, outcome.is_ok(), false));
                outcome.map_err(|error| format!("{error:?}"))
            }
            ScriptRequest::Flush => {
                self.with_oracle(|oracle| oracle.begin_flush(op));
                let outcome = array.flush().await;
                self.with_oracle(|oracle| oracle.end_flush(op, outcome.is_ok()));
                outcome.map_err(|error| format!("{error:?}"))
            }
            ScriptRequest::Idle => {
                self.machine.world().sleep(Duration::from_secs(3)).await;
                Ok(())
            }
            ScriptRequest::Stop => array.stop().await.map_err(|error| error.to_string()),
            ScriptRequest::AddBitmap => {
                array.add_bitmap(self.lab.bitmap_to_add()).await.map_err(|error| error.to_string())
            }
            ScriptRequest::RemoveBitmap => array.remove_bitmap().await.map_err(|error| error.to_string()),
        }
    }
}
