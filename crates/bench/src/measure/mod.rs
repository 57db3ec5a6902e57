//! One work on one array, from the lists to the figures: rounds, in which all sides run one after the other.
//! Owns: [`measure`], [`measure_in_turn`], [`Case`], [`Outcome`]. Not here: the loop (`drive`), what the array asks of
//! its members (`trace`), the array (`target`).
//! Invariant: each round has every side once, in an order that changes from round to round; all shards are in the same
//! side at the same time.

pub(crate) mod drive;
pub(crate) mod flight;
pub(crate) mod on_shards;
pub(crate) mod trace;

use crate::Run;
use crate::measure::drive::{Job, Lists, Place, Section, Side};
use crate::measure::flight::Flight;
use crate::measure::on_shards::{members_on, on_shards};
use crate::screen::Screen;
use crate::target::Target;
use crate::work::Work;
use crate::work::program::{self, Room};
use hdrhistogram::Histogram;
use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_arrays::{HostArray, OnShard, Stop};
use uraid_block::local::{Either, join_all, race};
use uraid_block::{IoError, Sectors};
use uraid_engine::{Place as MemberPlace, StartError, StopError};
use uraid_host::{CLIENT_ARENA, Options};

/// The warm-up before each measurement, as 1/N of the runtime.
const WARM_UP_PART: u32 = 4;
const WARM_UP_MAX: Duration = Duration::from_millis(500);

/// What to measure.
pub struct Case<'a> {
    /// The array to measure.
    pub target: &'a Target,
    /// The work to do on the array.
    pub work: Work,
    /// How long each side runs in each round.
    pub runtime: Duration,
    /// How many rounds.
    pub rounds: u32,
    /// Whether to take the time of each request.
    pub has_latencies: bool,
    /// The period of drains during the work; `None`: no drains.
    pub drain_every: Option<Duration>,
    /// Whether adjacent requests to a member are merged.
    pub merging: bool,
    /// The name of the case in the figures.
    pub name: String,
}

impl<'a> Case<'a> {
    /// A case without drains and with merging; `on` is the name of the target.
    pub fn new(target: &'a Target, on: &str, work: Work, run: &Run) -> Case<'a> {
        let &Run { runtime, rounds, has_latencies, .. } = run;
        let name = format!("{}; {on}", work.describe());
        Case { target, work, runtime, rounds, has_latencies, drain_every: None, merging: true, name }
    }
}

/// What one side did in one round, all shards together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sample {
    /// Requests that were answered.
    pub requests: u64,
    /// Requests in a second.
    pub rate: f64,
    /// The time of the shards' threads on a processor per request, in nanoseconds.
    pub cpu_ns: f64,
}

/// What the engine has counted in the rounds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub(crate) struct Counted {
    /// Requests of clients.
    pub requests: u64,
    /// Rows written without reading.
    pub rows_full: u64,
    /// Row parts written by read-modify-write.
    pub rows_modified: u64,
    /// Row parts written after reading the rest of their row.
    pub rows_reconstructed: u64,
    /// Writes that waited for a row, and were written by the task that held it together with its own write.
    pub writes_absorbed: u64,
}

impl Counted {
    fn now(array: &HostArray) -> Counted {
        let counters = array.counters();
        Counted {
            requests: counters.reads + counters.writes,
            rows_full: counters.rows_full,
            rows_modified: counters.rows_modified,
            rows_reconstructed: counters.rows_reconstructed,
            writes_absorbed: counters.writes_absorbed,
        }
    }

    /// Combines two, field by field.
    fn with(self, other: Counted, both: fn(u64, u64) -> u64) -> Counted {
        Counted {
            requests: both(self.requests, other.requests),
            rows_full: both(self.rows_full, other.rows_full),
            rows_modified: both(self.rows_modified, other.rows_modified),
            rows_reconstructed: both(self.rows_reconstructed, other.rows_reconstructed),
            writes_absorbed: both(self.writes_absorbed, other.writes_absorbed),
        }
    }
}

/// The result of a case.
pub(crate) struct Outcome {
    /// The samples by round, by [`Side`].
    pub rounds: Vec<[Sample; 3]>,
    /// The latencies of all rounds, by [`Side`].
    pub latencies: [Histogram<u64>; 3],
    /// What the engine has counted in the rounds.
    pub counted: Counted,
    /// The drains of the rounds.
    pub drains: Vec<DrainTime>,
    /// The kind of ring that the shards had.
    pub ring: &'static str,
}

/// How long a drain took, and the requests that it waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DrainTime {
    /// Until the drain returned.
    pub took: Duration,
    /// The time until all requests in flight at the drain's start were answered. `None` if several shards have
    /// requests.
    pub answered: Option<Duration>,
    /// The number of these requests on this shard.
    pub in_flight: u32,
    /// The number of clients there.
    pub clients: u32,
}

/// Why a case has no figures.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The work does not fit the array.
    #[error(transparent)]
    Work(#[from] crate::work::WorkError),
    /// The array did not start.
    #[error("the array could not be started")]
    Start(#[from] StartError),
    /// The array did not end as it should.
    #[error("the array was stopped")]
    Stop(#[from] StopError),
    /// The array refuses the requests.
    #[error("the array cannot say what it does with a request")]
    Trace(#[source] IoError),
    /// A request failed.
    #[error("a request of {side} failed")]
    Request {
        /// Of which side.
        side: &'static str,
        /// Why.
        source: IoError,
    },
}

/// Measures a case, all rounds in one run of its array.
pub(crate) fn measure(case: &Case<'_>, screen: &dyn Screen) -> Result<Outcome, MeasureError> {
    Prepared::new(case, screen)?.run(Rounds { first: 0, count: case.rounds, total: case.rounds, cases: 1 })
}

/// Measures several cases, each once in every round, so that they can be compared with each other. Each round is a
/// separate run, so this is for trial arrays only. All cases have the same number of rounds.
pub(crate) fn measure_in_turn(cases: &[Case<'_>], screen: &dyn Screen) -> Result<Vec<Outcome>, MeasureError> {
    let prepared = cases.iter().map(|case| Prepared::new(case, screen)).collect::<Result<Vec<_>, _>>()?;
    let total = cases[0].rounds;
    let mut outcomes: Vec<Option<Outcome>> = cases.iter().map(|_| None).collect();
    for round in 0..total {
        for turn in 0..cases.len() {
            let which = (round as usize + turn) % cases.len();
            let found = prepared[which].run(Rounds { first: round, count: 1, total, cases: cases.len() as u32 })?;
            match &mut outcomes[which] {
                Some(outcome) => outcome.add(found),
                empty => *empty = Some(found),
            }
        }
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.expect("there is a round at least")).collect())
}

/// Some of the rounds of a case.
#[derive(Clone, Copy)]
struct Rounds {
    first: u32,
    count: u32,
    total: u32,
    /// How many cases take turns.
    cases: u32,
}

/// A case whose lists are computed.
pub(crate) struct Prepared<'a> {
    case: &'a Case<'a>,
    screen: &'a dyn Screen,
    /// The lists of each shard's jobs.
    lists: Vec<Vec<Arc<Lists>>>,
    /// How the machine is set up.
    pub(crate) options: Options,
}

impl<'a> Prepared<'a> {
    /// Computes the lists of a case.
    pub(crate) fn new(case: &'a Case<'a>, screen: &'a dyn Screen) -> Result<Prepared<'a>, MeasureError> {
        let lists = lists(case)?;
        let blocks = lists.iter().map(|jobs| drive::blocks_for(&case.work, jobs));
        let (small, large) = blocks.fold((0, 0), |(small, large), one| (one.small.max(small), one.large.max(large)));
        let mut options = uraid_arrays::options_for(case.target.plan.layout.slots());
        options.spin = case.work.spin;
        options.processors = case.work.processors.clone();
        options.arenas[CLIENT_ARENA] = uraid_host::ArenaBlocks { small, large };
        options.merging = case.merging;
        Ok(Prepared { case, screen, lists, options })
    }

    /// What the loop needs on a shard.
    pub(crate) fn place(&self, on: &OnShard) -> Rc<Place> {
        let Prepared { case, lists, .. } = self;
        let jobs = lists[usize::from(on.local.index().0)].iter().cloned();
        Rc::new(Place {
            local: on.local.clone(),
            array: on.arrays[0].clone(),
            members: members_on(&on.local, case.target),
            work: case.work.clone(),
            jobs: jobs.map(|lists| Rc::new(Job::new(lists))).collect(),
            has_latencies: case.has_latencies,
            takes_turns: case.drain_every.is_some(),
            flight: case.drain_every.map(|_| Flight::default()),
            arena: on.local.arena(CLIENT_ARENA).clone(),
        })
    }

    fn run(&self, rounds: Rounds) -> Result<Outcome, MeasureError> {
        let Case { target, work, .. } = self.case;
        // An existing array is not stopped: `replay` and `ideal` may have written it without the engine, so it stays
        // marked dirty.
        let stop = if target.is_trial { Stop::Always } else { Stop::Never };
        // An existing array that is dirty is resynced before it is written.
        let start = async |array: &Rc<HostArray>| uraid_arrays::start_and_wait(array, self.screen.resync()).await;
        let task = async |on: &OnShard| run_shard(self, on, rounds).await;
        Ok(together(on_shards(target, work.shards, &self.options, stop, start, task)?))
    }
}

impl Outcome {
    /// The values of `what` for one side, by round.
    pub(crate) fn each(&self, side: Side, what: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.rounds.iter().map(|sides| what(&sides[side as usize])).collect()
    }

    /// Adds the rounds of a later run.
    fn add(&mut self, later: Outcome) {
        self.rounds.extend(later.rounds);
        for (all, one) in self.latencies.iter_mut().zip(&later.latencies) {
            all.add(one).expect("all have the same bounds");
        }
        self.counted = self.counted.with(later.counted, u64::wrapping_add);
        self.drains.extend(later.drains);
    }
}

/// The lists of each shard's jobs.
fn lists(case: &Case<'_>) -> Result<Vec<Vec<Arc<Lists>>>, MeasureError> {
    let Case { target, work, .. } = case;
    let share = work.share(target.plan.layout.array_size())?;
    let rooms = rooms(target, work, share);
    let geometries: Vec<_> = target.members.iter().map(|member| member.geometry()).collect();
    let of_shards = trace::on_tracers(work.shards, &target.plan, &geometries, work.block, async |shard, tracer| {
        let mut jobs = Vec::new();
        for n in 0..u64::from(work.jobs) {
            let job = u64::from(shard.0) * u64::from(work.jobs) + n;
            let requests = work.requests(job, share);
            let replay = tracer.program(&requests, work.block).await?;
            let ideal = program::ideal(work, job, &requests, &rooms);
            jobs.push(Arc::new(Lists { requests, replay, ideal }));
        }
        Ok(jobs)
    });
    of_shards.into_iter().collect::<Result<_, IoError>>().map_err(MeasureError::Trace)
}

/// The data areas of the members, together as large as the part of the array that the work uses.
fn rooms(target: &Target, work: &Work, share: Sectors) -> Vec<Room> {
    let in_slots = target.plan.members.iter().filter(|member| match member.place {
        MemberPlace::Slot(_) | MemberPlace::Recovering { .. } => true,
        MemberPlace::Replacing { .. } | MemberPlace::Spare => false,
    });
    let count = in_slots.clone().count() as u64;
    let each = Sectors(share.0 * work.jobs_in_all() / count);
    in_slots
        .map(|member| Room {
            start: member.superblock.data_offset,
            length: each.max(work.block).min(member.superblock.data_size),
        })
        .collect()
}

/// The results of one shard.
struct Shared {
    sections: Vec<[Section; 3]>,
    drains: Vec<DrainTime>,
    counted: Counted,
    ring: &'static str,
}

/// Drains the array periodically until `is_enough` is set, at least once.
async fn drain(place: &Place, every: Duration, is_enough: &Cell<bool>, times: &mut Vec<DrainTime>) {
    let count_before = times.len();
    loop {
        place.local.sleep(every).await;
        if is_enough.get() && times.len() > count_before {
            return;
        }
        times.push(drain_now(place).await);
    }
}

/// One drain. Both times begin at the same moment.
async fn drain_now(place: &Place) -> DrainTime {
    let before = place.local.now();
    let since = || place.local.now().since(before);
    let flight = place.flight.as_ref().expect("who drains asks who is in flight");
    let in_flight = flight.count();
    let drained: Pin<Box<dyn Future<Output = Duration>>> = Box::pin(async {
        place.array.drain_once().await;
        since()
    });
    let answered = Box::pin(async {
        flight.pass().await;
        since()
    });
    let times = join_all([drained, answered]).await;
    let is_alone = place.local.count() == 1;
    let clients = place.jobs.len() as u32 * place.work.depth;
    DrainTime { took: times[0], answered: is_alone.then_some(times[1]), in_flight, clients }
}

/// Runs one side. If the side is the array and drains are wanted, shard 0 drains meanwhile.
async fn run_side(
    place: &Rc<Place>,
    side: Side,
    time: Duration,
    drain_every: Option<Duration>,
    times: &mut Vec<DrainTime>,
) -> Result<Section, IoError> {
    let Some(every) = drain_every.filter(|_| side == Side::Array && place.local.index().0 == 0) else {
        return drive::run(place, side, time).await;
    };
    let is_enough = Cell::new(false);
    let mut drains = pin!(drain(place, every, &is_enough, times));
    let section = match race(drive::run(place, side, time), drains.as_mut()).await {
        Either::Left(section) => section,
        Either::Right(()) => unreachable!("it was not told to end"),
    };
    // A drain in flight belongs to this side, however long it takes.
    is_enough.set(true);
    drains.await;
    section
}

/// The task of one shard.
async fn run_shard(prepared: &Prepared<'_>, on: &OnShard, rounds: Rounds) -> Result<Shared, MeasureError> {
    let place = prepared.place(on);
    let mut found =
        Shared { sections: Vec::new(), drains: Vec::new(), counted: Counted::default(), ring: on.local.ring_name() };
    all_rounds(prepared, on, &place, rounds, &mut found).await?;
    Ok(found)
}

async fn all_rounds(
    prepared: &Prepared<'_>,
    on: &OnShard,
    place: &Rc<Place>,
    rounds: Rounds,
    found: &mut Shared,
) -> Result<(), MeasureError> {
    let Prepared { case, screen, .. } = prepared;
    let steps = u64::from(rounds.total) * 3;
    let expected = case.runtime.mul_f64(steps as f64 * f64::from(rounds.cases));
    let mut line = (place.local.index().0 == 0).then(|| screen.progress(&case.name));
    let mut before = Counted::default();
    for round in 0..=rounds.count {
        let is_warm_up = round == 0;
        let time = if is_warm_up { (case.runtime / WARM_UP_PART).min(WARM_UP_MAX) } else { case.runtime };
        let mut sections: [Option<Section>; 3] = [None, None, None];
        for n in 0..3 {
            let side = Side::ALL[(n + (rounds.first + round) as usize) % 3];
            if let Some(line) = &mut line {
                let done = u64::from(rounds.first + round.max(1) - 1) * 3 + n as u64;
                line.show_from_start(done, steps, expected);
            }
            if !on.wait_for_others().await {
                return Ok(());
            }
            match run_side(place, side, time, case.drain_every, &mut found.drains).await {
                Ok(section) => sections[side as usize] = Some(section),
                Err(source) => return Err(MeasureError::Request { side: side.name(), source }),
            }
        }
        if is_warm_up {
            found.drains.clear();
            before = Counted::now(&place.array);
        } else {
            found.sections.push(sections.map(|section| section.expect("each side ran once")));
        }
    }
    found.counted = Counted::now(&place.array).with(before, u64::wrapping_sub);
    if let Some(line) = line {
        drop(line);
    }
    Ok(())
}

fn together(mut shards: Vec<Shared>) -> Outcome {
    let drains = std::mem::take(&mut shards[0].drains);
    let rounds = shards[0].sections.len();
    let mut latencies = [drive::no_latencies(), drive::no_latencies(), drive::no_latencies()];
    let mut counted = Counted::default();
    for shard in &shards {
        counted = counted.with(shard.counted, u64::wrapping_add);
        for sections in &shard.sections {
            for (all, one) in latencies.iter_mut().zip(sections) {
                all.add(&one.latencies).expect("all have the same bounds");
            }
        }
    }
    let sample = |round: usize, side: usize| {
        let sections = || shards.iter().map(|shard| &shard.sections[round][side]);
        let requests = sections().map(|section| section.requests).sum();
        let cpu: f64 = sections().map(|section| section.cpu.as_nanos() as f64).sum();
        Sample { requests, rate: sections().map(Section::rate).sum(), cpu_ns: cpu / requests as f64 }
    };
    let rounds = (0..rounds).map(|round| [0, 1, 2].map(|side| sample(round, side))).collect();
    Outcome { rounds, latencies, counted, drains, ring: shards[0].ring }
}
