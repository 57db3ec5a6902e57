//! `uraid bench nbd URI [URI]`: measures servers with a client that keeps many requests in flight and sends many per
//! call.
//! Owns: the rounds, the jobs' threads, the table. Not here: one connection (`connection`), what a work is (`work`).
//! Invariant: each round has every server once, in an order that changes; a figure counts only answered requests.
//!
//! Common clients send one request per system call and saturate long before a good server does. If client and server
//! share a busy machine, the processor time of the server still shows what a request costs.

mod beside;
mod connection;
mod peer;
mod reader;
mod uri;

use crate::Run;
use crate::figures::{Interval, median};
use crate::measure::drive::{no_latencies, thread_time};
use crate::report::table::{self, Latency, Row};
use crate::screen::Screen;
use crate::work::{Request, Work, WorkError};
pub use beside::Others;
use connection::Connection;
pub use connection::LoadError;
use hdrhistogram::Histogram;
use peer::Peer;
pub use reader::Reader;
use std::sync::OnceLock;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_host::TooFewDescriptors;
use uraid_nbd::TransmissionFlags;
pub use uri::{Address, Endpoint, UriError};

/// The warm-up before each measurement, as 1/N of the runtime.
const WARM_UP_PART: u32 = 4;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// No URI, or an invalid one.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// There must be one server, or two to compare.
    #[error("bench nbd takes one URI, or a second one to compare with; {found} are given")]
    Count {
        /// How many there are.
        found: usize,
    },
    /// The work does not fit the export.
    #[error("{uri}")]
    Work {
        /// Which server.
        uri: String,
        /// Why not.
        source: WorkError,
    },
    /// The work writes.
    #[error("{option} overwrites what {uri} holds; --destructive says that it may be lost")]
    Destructive {
        /// What writes.
        option: String,
        /// Which server.
        uri: String,
    },
    /// The export is read-only.
    #[error("--rw {pattern} writes, and {uri} is read-only")]
    ReadOnly {
        /// The pattern in fio's spelling.
        pattern: &'static str,
        /// Which server.
        uri: String,
    },
    /// Clients beside the one that is measured could not connect.
    #[error("{kind} clients cannot connect to {uri}")]
    Others {
        /// Which ones.
        kind: &'static str,
        /// Which server.
        uri: String,
        /// Why not.
        source: LoadError,
    },
    /// `--beside` with more than one URI, or none.
    #[error("bench nbd --beside takes one URI; {found} are given")]
    BesideCount {
        /// How many there are.
        found: usize,
    },
    /// The system allows too few open files.
    #[error("cannot open {connections} connections")]
    Descriptors {
        /// How many.
        connections: usize,
        /// What is missing.
        source: TooFewDescriptors,
    },
    /// A connection ended.
    #[error("{uri}")]
    Load {
        /// Which server.
        uri: String,
        /// Why.
        source: LoadError,
    },
}

/// One server, its jobs, and its URI.
struct Server {
    uri: String,
    peer: Option<Peer>,
    jobs: Vec<Job>,
}

/// One connection, which stays for all rounds, and its position in its list of requests.
struct Job {
    connection: Connection<Instant>,
    list: Vec<Request>,
    next: usize,
    /// The processor that its thread is pinned to.
    processor: Option<u16>,
}

/// What one server did in one round.
struct Sample {
    requests: u64,
    rate: f64,
    /// The server's processor time per request.
    server_ns: Option<f64>,
    /// The processor time of the client's threads per request.
    client_ns: f64,
    latencies: Histogram<u64>,
}

/// What one job did in one round.
struct Tally {
    /// Requests that were answered within the measured time.
    counted: u64,
    /// All requests that were answered.
    ended: u64,
    cpu: Duration,
    latencies: Histogram<u64>,
}

/// When requests are counted.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    fn has(self, time: Instant) -> bool {
        (self.begin..self.end).contains(&time)
    }
}

/// Measures one server's client alone and beside harmful clients.
pub fn run_beside(
    uris: &[String],
    others: &[Others],
    work: &Work,
    run: &Run,
    destructive: bool,
    screen: &dyn Screen,
) -> Result<Vec<Row>, NbdError> {
    match uris {
        [uri] => beside::run(uri, others, work, run, destructive, screen),
        _ => Err(NbdError::BesideCount { found: uris.len() }),
    }
}

/// Measures one server, or two in turn.
pub fn run(
    uris: &[String],
    work: &Work,
    run: &Run,
    destructive: bool,
    screen: &dyn Screen,
) -> Result<Vec<Row>, NbdError> {
    if uris.is_empty() || uris.len() > 2 {
        return Err(NbdError::Count { found: uris.len() });
    }
    let mut servers = uris.iter().map(|uri| Server::new(uri, work, destructive)).collect::<Result<Vec<_>, _>>()?;
    let mut progress = screen.progress(&work.describe());
    let expected = (run.runtime + run.runtime / WARM_UP_PART) * run.rounds * servers.len() as u32;
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..run.rounds as usize {
        progress.show_from_start(round as u64, run.rounds.into(), expected);
        for turn in 0..servers.len() {
            let which = (round + turn) % servers.len();
            samples[which].push(servers[which].measure(work, run)?);
        }
    }
    drop(progress);
    let uris: Vec<String> = servers.into_iter().map(Server::close).collect();
    let rows = vec![row(&uris, work, &samples)];
    screen.print(&text(&uris, work, &samples, &rows[0]));
    Ok(rows)
}

impl Server {
    /// Opens all connections, so that no round includes that time.
    fn new(uri: &str, work: &Work, destructive: bool) -> Result<Server, NbdError> {
        let address = Address::parse(uri)?;
        let named = || uri.to_owned();
        let pattern = work.pattern.name();
        if work.pattern.writes() && !destructive {
            return Err(NbdError::Destructive { option: format!("--rw {pattern}"), uri: named() });
        }
        let mut jobs = Vec::new();
        for job in 0..work.jobs_in_all() {
            let connection = Connection::open(&address, work.depth as usize)
                .map_err(|source| NbdError::Load { uri: named(), source })?;
            let export = connection.export;
            if work.pattern.writes() && export.flags.contains(TransmissionFlags::READ_ONLY) {
                return Err(NbdError::ReadOnly { pattern, uri: named() });
            }
            let share = work
                .share(Sectors(export.size / SECTOR_BYTES as u64))
                .map_err(|source| NbdError::Work { uri: named(), source })?;
            let processor = work.processors.get((job / u64::from(work.jobs)) as usize).copied();
            jobs.push(Job { connection, list: work.requests(job, share), next: 0, processor });
        }
        let peer = jobs.first().and_then(|job| job.connection.peer());
        Ok(Server { uri: named(), peer, jobs })
    }

    /// Disconnects; returns the URI.
    fn close(self) -> String {
        for job in self.jobs {
            job.connection.close();
        }
        self.uri
    }

    /// Runs every job on its own thread.
    fn measure(&mut self, work: &Work, run: &Run) -> Result<Sample, NbdError> {
        self.measure_after(work, run, || Ok(()))
    }

    /// Runs every job on its own thread, and counts requests only after `ready` has returned.
    fn measure_after(
        &mut self,
        work: &Work,
        run: &Run,
        ready: impl FnOnce() -> Result<(), NbdError>,
    ) -> Result<Sample, NbdError> {
        let time = || self.peer.and_then(Peer::time);
        let before = time();
        let window = OnceLock::new();
        let (is_ready, tallies) = std::thread::scope(|scope| {
            let window = &window;
            let start = |job| scope.spawn(move || drive(job, work, run.has_latencies, window));
            let threads: Vec<_> = self.jobs.iter_mut().map(start).collect();
            let is_ready = ready();
            let begin = Instant::now() + run.runtime / WARM_UP_PART;
            let end = if is_ready.is_ok() { begin + run.runtime } else { begin };
            window.set(Window { begin, end }).expect("it is set once");
            let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect("a job does not panic");
            (is_ready, threads.into_iter().map(join).collect::<Vec<Result<Tally, LoadError>>>())
        });
        is_ready?;
        // All requests are answered: the times are those of these requests, including the warm-up's.
        let server_time = before.zip(time()).map(|(before, after)| after.saturating_sub(before));
        let mut sum = Tally { counted: 0, ended: 0, cpu: Duration::ZERO, latencies: no_latencies() };
        for tally in tallies {
            let tally = tally.map_err(|source| NbdError::Load { uri: self.uri.clone(), source })?;
            sum.counted += tally.counted;
            sum.ended += tally.ended;
            sum.cpu += tally.cpu;
            sum.latencies.add(&tally.latencies).expect("both have the same bounds");
        }
        let each = |time: Duration| time.as_nanos() as f64 / sum.ended as f64;
        Ok(Sample {
            requests: sum.counted,
            rate: sum.counted as f64 / run.runtime.as_secs_f64(),
            server_ns: server_time.map(each),
            client_ns: each(sum.cpu),
            latencies: sum.latencies,
        })
    }
}

/// One job: keeps its depth of requests in flight until the end, and counts those that are answered in the window, which
/// may be set later.
fn drive(job: &mut Job, work: &Work, has_latencies: bool, window: &OnceLock<Window>) -> Result<Tally, LoadError> {
    let block = work.block.len_bytes();
    let payload = vec![0xa5; if work.pattern.writes() { block } else { 0 }];
    let Job { connection, list, next, processor } = job;
    if let Some(processor) = processor {
        uraid_host::pin(*processor);
    }
    let mut tally = Tally { counted: 0, ended: 0, cpu: Duration::ZERO, latencies: no_latencies() };
    let cpu_before = thread_time();
    let mut now = Instant::now();
    loop {
        let window = window.get();
        let is_over = window.is_some_and(|window| now >= window.end);
        if is_over && connection.in_flight() == 0 {
            break;
        }
        let has = |time| window.is_some_and(|window| window.has(time));
        while !is_over && connection.room() > 0 {
            let request = list[*next];
            *next = (*next + 1) % list.len();
            let offset = Sectors(request.at.0).bytes();
            connection.put(offset, block, request.is_write.then_some(&payload), now);
        }
        let mut ended = 0;
        let is_noted = has_latencies && has(now);
        connection.turn(&mut |began: Instant| {
            ended += 1;
            if is_noted {
                tally.latencies.saturating_record(nanos(began.elapsed()));
            }
        })?;
        now = Instant::now();
        tally.ended += ended;
        if has(now) {
            tally.counted += ended;
        }
    }
    tally.cpu = thread_time().saturating_sub(cpu_before);
    Ok(tally)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn each(samples: &[Sample], what: impl Fn(&Sample) -> f64) -> Vec<f64> {
    samples.iter().map(what).collect()
}

/// The server's time per request, by round; `None` if the system does not tell.
fn server_times(samples: &[Sample]) -> Option<Vec<f64>> {
    samples.iter().map(|sample| sample.server_ns).collect()
}

fn ratio(above: &[f64], below: &[f64]) -> Interval {
    Interval::of(&above.iter().zip(below).map(|(above, below)| above / below).collect::<Vec<f64>>())
}

fn all_latencies(samples: &[Sample]) -> Option<Latency> {
    let mut sum = no_latencies();
    for sample in samples {
        sum.add(&sample.latencies).expect("both have the same bounds");
    }
    Latency::of(&sum)
}

fn row(uris: &[String], work: &Work, samples: &[Vec<Sample>]) -> Row {
    let rates = |which: usize| each(&samples[which], |sample| sample.rate);
    let bare = Row {
        block_bytes: Some(work.block.bytes()),
        latency_ns: all_latencies(&samples[0]),
        requests: Some(samples[0].iter().map(|sample| sample.requests).sum()),
        cpu_ns_per_io: server_times(&samples[0]).map(|times| median(&times)),
        ..Row::bare("nbd", &format!("{}; {}", work.describe(), uris[0]), median(&rates(0)), "IOPS")
    };
    if samples.len() == 1 {
        return bare;
    }
    let by_rate = ratio(&rates(0), &rates(1));
    let times = server_times(&samples[0]).zip(server_times(&samples[1]));
    let by_cpu = times.as_ref().map(|(first, second)| ratio(second, first));
    let raw_cpu_ns_per_io = times.map(|(_, second)| median(&second));
    Row { raw: Some(median(&rates(1))), against: "nbd", raw_cpu_ns_per_io, ..bare }
        .with_ratio(Some(by_rate))
        .with_cpu_ratio(by_cpu)
}

fn text(uris: &[String], work: &Work, samples: &[Vec<Sample>], row: &Row) -> String {
    let mut out = format!("{}; {} rounds\n\n", work.describe(), samples[0].len());
    let head = ["", "IOPS", "MB/s", "server CPU/IO", "client CPU/IO", "p50", "p99", "p99.9", "max"];
    let mut cells = vec![head.map(str::to_owned)];
    for (uri, samples) in uris.iter().zip(samples) {
        let rate = median(&each(samples, |sample| sample.rate));
        let server = server_times(samples).map_or("-".to_owned(), |times| table::nanos(median(&times)));
        let client = table::nanos(median(&each(samples, |sample| sample.client_ns)));
        let [p50, p99, p99_9, max] = table::latency_cells(all_latencies(samples));
        let (count, megabytes) = (table::count(rate), table::megabytes(rate, work));
        cells.push([uri.clone(), count, megabytes, server, client, p50, p99, p99_9, max]);
    }
    table::align(&mut out, &cells);
    let sure = row.confidence.unwrap_or_default() * 100.0;
    if let Some(ratio) = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high) {
        out.push_str(&format!("\n  first / second                {ratio}, {sure:.1} %\n"));
    }
    if let Some(ratio) = table::ratio_text(row.cpu_ratio, row.cpu_ratio_low, row.cpu_ratio_high) {
        out.push_str(&format!("  first / second by server CPU  {ratio}, {sure:.1} %\n"));
    }
    out
}
