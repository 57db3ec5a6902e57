//! The scenario `drain-cycles`: drains, one after the other, among clients on two shards, until one does not return.
//! Owns: its array, its clients, how a drain or client that hangs is told from a slow one.
//! Not here: how a drain waits (the engine), how shards wake each other (`host`).
//! Invariant: a printed count covers only drains that returned, in a run in which every client returned, too.

use crate::BenchError;
use crate::measure::flight::Flight;
use crate::measure::on_shards::{self, on_shards};
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::target::{KIB, Target, Trial};
use crate::work::{Pattern, Work};
use hdrhistogram::Histogram;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use uraid_arrays::{HostArray, OnShard, Stop};
use uraid_block::local::{Either, Notify, race};
use uraid_block::{Device, Fua, IoError, Sectors};
use uraid_engine::{StartError, StopError};
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Local};
use uraid_layout::Level;

/// A raid5, so that writes travel between the shards; its members take time, so that requests are in flight.
const MEMBERS: u16 = 5;
const MEMBER: &str = "null:1T,request=1us";
const CHUNK: Sectors = Sectors(64 * KIB);
const SHARDS: u16 = 2;
/// Per shard.
const CLIENTS: u32 = 8;
/// A drain or client that has not returned by then hangs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Why drains cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CyclesError {
    /// The array did not start.
    #[error("the array could not be started")]
    Start(#[from] StartError),
    /// A request failed.
    #[error("a request failed")]
    Request(#[source] IoError),
    /// A drain hangs.
    #[error("drain {number} of {cycles} has not returned within {TIMEOUT:?}")]
    Drain {
        /// Which one, from 1 on.
        number: u64,
        /// How many drains the run was to do.
        cycles: u64,
    },
    /// Clients hang.
    #[error("{lost} of {CLIENTS} clients of shard {shard} have not come back within {TIMEOUT:?}")]
    Clients {
        /// How many.
        lost: u32,
        /// Of which shard.
        shard: u16,
    },
    /// The array did not end as it should.
    #[error("the array was stopped")]
    Stop(#[from] StopError),
}

/// What one shard has found.
struct Found {
    /// The times of the drains, in nanoseconds; shard 0 only.
    times: Histogram<u64>,
    /// Drains during which requests of shard 0's clients were in flight.
    met: u64,
    requests: u64,
}

/// The clients of a shard.
#[derive(Default)]
struct Clients {
    requests: Cell<u64>,
    error: Cell<Option<IoError>>,
    running: Cell<u32>,
    ended: Notify,
    flight: Flight,
}

/// Does this many drains.
pub(crate) fn run(scenario: &str, cycles: u64, screen: &dyn Screen) -> Result<Vec<Row>, BenchError> {
    let target = Target::in_memory(&Trial::new(Level::Raid5, MEMBERS, CHUNK), MEMBER, 0, screen)?;
    let on = format!("{}, {MEMBER}", target.describe());
    let work = Work { pattern: Pattern::Randrw, depth: CLIENTS, shards: SHARDS, ..Work::default() };
    let what = format!("{}; {on}", work.describe());
    let mut options = uraid_arrays::options_for(MEMBERS);
    options.arenas[CLIENT_ARENA] = ArenaBlocks { small: 4 * CLIENTS, large: 1 };
    let is_over = AtomicBool::new(false);
    let task = async |on: &OnShard| on_shard(on, &work, cycles, &is_over, screen).await;
    let began = std::time::Instant::now();
    // A drain or client that hangs would keep the array from stopping.
    let found = on_shards(&target, SHARDS, &options, Stop::AfterSuccess, on_shards::start, task);
    let took = began.elapsed();
    let found = found.map_err(|source| BenchError::Cycles { what: what.clone(), source })?;
    let drains = &found[0];
    let requests: u64 = found.iter().map(|found| found.requests).sum();
    let row = |figure: &str, value: f64, unit| Row::bare(scenario, &format!("{figure}; {what}"), value, unit);
    let time = |quantile| drains.times.value_at_quantile(quantile) as f64;
    let (p50, max) = (table::nanos(time(0.5)), table::nanos(time(1.0)));
    let count = drains.times.len();
    screen.print(&format!(
        "== {scenario}\n\n{what}\n\n  {count} drains, and every one returned; {:.0} s, p50 {p50}, max {max}\n  \
         {} of them found requests of shard 0 under way; {requests} requests meanwhile, every client came back\n\n",
        took.as_secs_f64(),
        drains.met
    ));
    Ok(vec![
        row("drains that returned", drains.times.len() as f64, "drains"),
        row("drains that found requests under way", drains.met as f64, "drains"),
        row("requests meanwhile", requests as f64, "requests"),
        row("time to drain, p50", time(0.5), "ns"),
        row("time to drain, max", time(1.0), "ns"),
    ])
}

/// The task of one shard.
async fn on_shard(
    on: &OnShard,
    work: &Work,
    cycles: u64,
    is_over: &AtomicBool,
    screen: &dyn Screen,
) -> Result<Found, CyclesError> {
    let (local, array) = (&on.local, &on.arrays[0]);
    let mut found = Found { times: crate::measure::drive::no_latencies(), met: 0, requests: 0 };
    let mut outcome = Ok(());
    let clients = Rc::new(Clients::default());
    let is_over_here = Rc::new(Cell::new(false));
    start_clients(local, array, work, &clients, &is_over_here);
    if on.is_first() {
        outcome = drain(screen, local, array, cycles, &clients, &mut found).await;
        is_over.store(true, Ordering::SeqCst);
    }
    while !is_over.load(Ordering::SeqCst) {
        local.sleep(Duration::from_millis(1)).await;
    }
    is_over_here.set(true);
    outcome = outcome.and(all_back(local, &clients).await);
    found.requests = clients.requests.get();
    outcome.map(|()| found)
}

fn start_clients(local: &Local, array: &Rc<HostArray>, work: &Work, clients: &Rc<Clients>, is_over: &Rc<Cell<bool>>) {
    let share = work.share(array.layout().array_size()).expect("the array is large enough");
    let requests = Rc::new(work.requests(local.index().0.into(), share));
    let next = Rc::new(Cell::new(0));
    let arena = local.arena(CLIENT_ARENA);
    let bytes = work.block.len_bytes();
    for _ in 0..work.depth {
        let (array, clients, is_over) = (array.clone(), clients.clone(), is_over.clone());
        let (requests, next) = (requests.clone(), next.clone());
        let mut buffer = arena.take(bytes).expect("the arena was made for it");
        let data = arena.take_zeroed(bytes).expect("the arena was made for it").freeze();
        clients.running.set(clients.running.get() + 1);
        local.spawn(async move {
            while !is_over.get() {
                let request = requests[next.replace((next.get() + 1) % requests.len())];
                let inside = clients.flight.enter();
                let outcome = if request.is_write {
                    array.write(request.at, data.clone(), Fua::No).await
                } else {
                    array.read(request.at, std::mem::take(&mut buffer)).await.map(|back| buffer = back)
                };
                drop(inside);
                if let Err(error) = outcome {
                    clients.error.set(Some(error));
                    break;
                }
                clients.requests.set(clients.requests.get() + 1);
            }
            clients.running.set(clients.running.get() - 1);
            clients.ended.notify_all();
        });
    }
}

/// Does this many drains, one after the other.
async fn drain(
    screen: &dyn Screen,
    local: &Local,
    array: &HostArray,
    cycles: u64,
    clients: &Clients,
    found: &mut Found,
) -> Result<(), CyclesError> {
    let done = Cell::new(0);
    let is_stuck = async {
        loop {
            let before = done.get();
            local.sleep(TIMEOUT).await;
            if done.get() == before {
                return;
            }
        }
    };
    let all = async {
        let mut line = screen.progress("drains");
        while done.get() < cycles {
            found.met += u64::from(clients.flight.count() > 0);
            let before = local.now();
            array.drain_once().await;
            found.times.saturating_record(local.now().since(before).as_nanos() as u64);
            done.set(done.get() + 1);
            line.show(done.get(), cycles);
        }
        drop(line);
    };
    match race(all, is_stuck).await {
        Either::Left(()) => Ok(()),
        Either::Right(()) => Err(CyclesError::Drain { number: done.get() + 1, cycles }),
    }
}

async fn all_back(local: &Local, clients: &Clients) -> Result<(), CyclesError> {
    let all = clients.ended.wait_for(|| (clients.running.get() == 0).then_some(()));
    match race(all, local.sleep(TIMEOUT)).await {
        Either::Left(()) => clients.error.get().map_or(Ok(()), |error| Err(CyclesError::Request(error))),
        Either::Right(()) => Err(CyclesError::Clients { lost: clients.running.get(), shard: local.index().0 }),
    }
}
