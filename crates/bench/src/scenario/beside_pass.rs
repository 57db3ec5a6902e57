//! The scenarios `beside-pass` and `beside-recovery`: random writes beside a pass, and what the pass takes from them.
//! Owns: its arrays, the load that stands for the pass. Not here: passes (`uraid_engine`), the loop (`drive`).
//! Invariant: both sides of a comparison take turns in one run of one array.
//!
//! ```text
//!   speed     raid1, a resync of 200 MB/s beside the writes           |   the same reads of the members without the engine
//!   share     each level, a resync without limits                     |   the writes alone, the resync alone
//!   window    raid1, 1 MiB, whose writes meet the windows of a check  |   the writes alone, the check alone
//!   recovery  each level, without limits                              |   the writes alone, the recovery alone
//! ```
//! A pass with a share gives way to clients. The others have a minimum that they do not reach, so that they do not.

use crate::figures::{Interval, median};
use crate::measure::drive::{self, Place, Side};
use crate::measure::on_shards::{self, on_shards};
use crate::measure::{Case, MeasureError, Prepared};
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::target::{Target, Trial};
use crate::work::{Pattern, Work};
use crate::{BenchError, Run};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::{HostArray, OnShard, Stop};
use uraid_block::local::{Either, join_all, race};
use uraid_block::{Device, IoError, Sector, Sectors, Slot};
use uraid_engine::{Place as SlotPlace, SpeedLimits};
use uraid_host::CLIENT_ARENA;
use uraid_layout::Level;

/// 200 MB/s in KiB/s.
const SPEED_KIB: u64 = 200_000_000 / 1024;
/// A read of the load that stands for a resync: as long as a window of the pass.
const BLOCK: Sectors = Sectors(512);
/// A minimum that no pass reaches.
const NEVER_WAITS: Option<u64> = Some(1 << 30);
/// Members on which a pass of that speed, or of any, does not end during the run; members as fast as disks, and members
/// of about a MiB.
const LARGE: &str = "null:65G,completion=deferred";
const HUGE: &str = "null:500T,completion=deferred";
const DISKS: [&str; 2] = ["null:65G,bandwidth=500M", "null:65G,bandwidth=500M,request=100us"];
const SMALL: &str = "null:2M,completion=deferred";

/// What is measured beside the writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// A resync of a certain speed.
    Speed,
    /// A resync that gives way.
    Share,
    /// A recovery that gives way. A raid6 can still lose a member meanwhile, the others cannot.
    Recovery,
    /// A check of what is written.
    Window,
}

/// What was found in one round.
#[derive(Clone, Copy)]
struct Round {
    /// Requests, or bytes of the pass, per second: beside each other, and alone.
    beside: f64,
    alone: f64,
    pass_beside: f64,
    pass_alone: f64,
    /// The part of the writes that waited.
    waited: f64,
}

/// The rounds, and the longest that a write has waited in all of them.
struct Found {
    rounds: Vec<Round>,
    longest: Duration,
}

/// `beside-pass`.
pub(crate) fn run(scenario: &str, run: &Run, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let raid1 = || Trial::new(Level::Raid1, 2, Sectors::ZERO);
    let all = [(Beside::Speed, raid1(), LARGE), (Beside::Share, raid1(), HUGE), (Beside::Window, raid1(), SMALL)];
    run_all(scenario, all.into_iter().chain(on_disks(Beside::Share)), run, screen)
}

/// `beside-recovery`.
pub(crate) fn run_recovery(scenario: &str, run: &Run, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    run_all(scenario, on_disks(Beside::Recovery), run, screen)
}

fn on_disks(beside: Beside) -> impl Iterator<Item = (Beside, Trial, &'static str)> {
    Trial::redundant().into_iter().flat_map(move |trial| DISKS.map(|member| (beside, trial.clone(), member)))
}

fn run_all(
    scenario: &str,
    all: impl Iterator<Item = (Beside, Trial, &'static str)>,
    run: &Run,
    screen: &dyn Screen,
) -> Result<Vec<Row>, BenchError> {
    screen.print(&format!("== {scenario}\n\n"));
    let mut rows = Vec::new();
    for (beside, trial, member) in all {
        let mut target = Target::in_memory(&trial, member, 0, screen)?;
        match beside {
            Beside::Speed | Beside::Share => target.plan.is_dirty = true,
            Beside::Recovery => {
                target.plan.members[1].place = SlotPlace::Recovering { slot: Slot(1), below: Sectors::ZERO };
            }
            Beside::Window => {}
        }
        let on = format!("{}, {member}", target.describe());
        let work = Work { pattern: Pattern::Randwrite, ..Work::default() };
        let case = Case::new(&target, &on, work, &Run { has_latencies: false, ..*run });
        let found = measure(&case, beside, screen).map_err(crate::measure_error(&case.name))?;
        screen.print(&format!("  {}\n", case.name));
        rows.extend(shown(scenario, &case.name, &found, beside, screen));
    }
    screen.print("\n");
    Ok(rows)
}

fn shown(scenario: &str, name: &str, found: &Found, beside: Beside, screen: &dyn Screen) -> Vec<Row> {
    let all = |figure: fn(&Round) -> f64| -> Vec<f64> { found.rounds.iter().map(figure).collect() };
    let compared = |what: &str, against, unit, of: [fn(&Round) -> f64; 2]| {
        let ratios: Vec<f64> = all(of[0]).iter().zip(all(of[1])).map(|(beside, alone)| beside / alone).collect();
        let row = Row::bare(scenario, &format!("{what}; {name}"), median(&all(of[0])), unit);
        let row = Row { raw: Some(median(&all(of[1]))), against, ..row }.with_ratio(Some(Interval::of(&ratios)));
        let ratio = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high).unwrap_or_default();
        screen.print(&format!("    {what:<36}  {ratio} of {against}\n"));
        row
    };
    let writes: [fn(&Round) -> f64; 2] = [|round| round.beside, |round| round.alone];
    let passes: [fn(&Round) -> f64; 2] = [|round| round.pass_beside, |round| round.pass_alone];
    let mut rows = match beside {
        Beside::Speed => {
            vec![compared("writes beside a resync of 200 MB/s", "the same load without the engine", "IOPS", writes)]
        }
        Beside::Share => vec![
            compared("writes beside a resync without limits", "the writes alone", "IOPS", writes),
            compared("the resync", "the resync alone", "B/s", passes),
        ],
        Beside::Recovery => vec![
            compared("writes beside a recovery without limits", "the writes alone", "IOPS", writes),
            compared("the recovery", "the recovery alone", "B/s", passes),
        ],
        Beside::Window => vec![
            compared("writes into the window of a check", "the writes alone", "IOPS", writes),
            compared("the check", "the check alone", "B/s", passes),
        ],
    };
    let (waited, longest) = (median(&all(|round| round.waited)), found.longest.as_nanos() as f64);
    screen.print(&format!(
        "    {:.4} % of the writes waited for the pass, {} at most\n",
        waited * 100.0,
        table::nanos(longest)
    ));
    rows.push(Row::bare(scenario, &format!("part of the writes that waited; {name}"), waited, ""));
    rows.push(Row::bare(scenario, &format!("longest wait of a write; {name}"), longest, "ns"));
    rows
}

fn measure(case: &Case<'_>, beside: Beside, screen: &dyn Screen) -> Result<Found, MeasureError> {
    let mut prepared = Prepared::new(case, screen)?;
    prepared.options.arenas[CLIENT_ARENA].large += 64;
    let start = async |array: &Rc<HostArray>| {
        match beside {
            Beside::Speed => array.set_speed(SpeedLimits { min: NEVER_WAITS, max: Some(SPEED_KIB), share: None }).await,
            Beside::Share | Beside::Recovery => {}
            Beside::Window => array.set_speed(SpeedLimits { min: NEVER_WAITS, max: None, share: None }).await,
        }
        if beside == Beside::Window { on_shards::start(array).await } else { array.start().await }
    };
    let task = async |on: &OnShard| -> Result<Found, MeasureError> {
        let place = prepared.place(on);
        let mut rounds = Vec::new();
        for _ in 0..case.rounds {
            let round = match beside {
                Beside::Speed => speed_round(&place, case.runtime).await,
                Beside::Share | Beside::Recovery => share_round(&place, case.runtime).await,
                Beside::Window => window_round(&place, case.runtime).await,
            };
            rounds.push(round.map_err(|source| MeasureError::Request { side: "array", source })?);
        }
        Ok(Found { rounds, longest: place.array.longest_wait() })
    };
    // A dirty array is not stopped in the middle of its resync: nothing needs its superblocks.
    let found = on_shards(case.target, 1, &prepared.options, Stop::AfterSuccess, start, task)?;
    Ok(found.into_iter().next().expect("one shard gives one value"))
}

/// Writes, and the part of them that waited.
async fn write(place: &Rc<Place>, time: Duration) -> Result<(f64, f64), IoError> {
    let before = place.array.counters();
    let section = drive::run(place, Side::Array, time).await?;
    let after = place.array.counters();
    let waited = (after.locks_waited - before.locks_waited) as f64 / (after.writes - before.writes).max(1) as f64;
    Ok((section.rate(), waited))
}

async fn share_round(place: &Rc<Place>, time: Duration) -> Result<Round, IoError> {
    // How far the resync is becomes known each 200 ms. After a pause it is exact, and after the slow resync late by
    // little.
    place.array.pause_passes(true).await;
    let (alone, _) = write(place, time).await?;
    place.array.pause_passes(false).await;
    let (pass_beside, written) = resync_beside(place, write(place, time)).await;
    let (beside, waited) = written?;
    let (pass_alone, ()) = resync_beside(place, async { place.local.sleep(time).await }).await;
    Ok(Round { beside, alone, pass_beside, pass_alone, waited })
}

/// Returns how many bytes per second the resync has passed while `other` goes on.
async fn resync_beside<T>(place: &Place, other: impl Future<Output = T>) -> (f64, T) {
    let done = || place.array.status().pass.map_or(0, |progress| progress.done.bytes());
    let (began, before) = (place.local.now(), done());
    let outcome = other.await;
    (done().saturating_sub(before) as f64 / place.local.now().since(began).as_secs_f64(), outcome)
}

async fn speed_round(place: &Rc<Place>, time: Duration) -> Result<Round, IoError> {
    let (beside, waited) = write(place, time).await?;
    place.array.pause_passes(true).await;
    let is_over = Cell::new(false);
    let mut load = pin!(load(place, &is_over));
    let alone = match race(write(place, time), load.as_mut()).await {
        Either::Left(alone) => alone,
        Either::Right(ended) => {
            ended?;
            unreachable!("it was not told to end")
        }
    };
    is_over.set(true);
    load.await?;
    place.array.pause_passes(false).await;
    Ok(Round { beside, alone: alone?.0, pass_beside: 0.0, pass_alone: 0.0, waited })
}

/// Reads both members as a resync of that speed does.
async fn load(place: &Place, is_over: &Cell<bool>) -> Result<(), IoError> {
    let began = place.local.now();
    let mut at = 0;
    while !is_over.get() {
        let due = Duration::from_secs_f64(Sectors(at).bytes() as f64 / (SPEED_KIB * 1024) as f64);
        place.local.sleep(due.saturating_sub(place.local.now().since(began))).await;
        let read = async |member: usize| {
            let into = place.arena.take(BLOCK.len_bytes()).expect("the arena has room for both");
            place.members[member].read(Sector(4096 + at), into).await
        };
        join_all([0, 1].map(read)).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        at += BLOCK.0;
    }
    Ok(())
}

async fn window_round(place: &Rc<Place>, time: Duration) -> Result<Round, IoError> {
    let (alone, _) = write(place, time).await?;
    let (pass_alone, ()) = checks_beside(place, async { place.local.sleep(time).await }).await;
    let (pass_beside, written) = checks_beside(place, write(place, time)).await;
    let (beside, waited) = written?;
    Ok(Round { beside, alone, pass_beside, pass_alone, waited })
}

/// Checks the array again and again while `other` goes on. Returns bytes per second.
async fn checks_beside<T>(place: &Place, other: impl Future<Output = T>) -> (f64, T) {
    let (array, began, done) = (&place.array, place.local.now(), Cell::new(0));
    let size = array.layout().array_size().bytes();
    let checks = async {
        loop {
            array.begin_check().expect("an array without a pass can be checked");
            array.wait(&mut |_| ()).await.expect("a trial array is not stopped here");
            done.set(done.get() + size);
        }
    };
    let outcome = match race(checks, other).await {
        Either::Left(never) => never,
        Either::Right(outcome) => outcome,
    };
    let speed = done.get() as f64 / place.local.now().since(began).as_secs_f64();
    array.end_check().await;
    (speed, outcome)
}
