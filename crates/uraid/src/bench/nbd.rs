//! `uraid bench nbd URI [URI]`: servers under a client that keeps its requests in flight, many in each system call.
//! Owns: the rounds, the jobs' threads, the table. Not here: one connection (`connection`), what a work is (`work`).
//! Invariant: each round has every server once, first or last in turn; a figure is of requests that were answered.
//!
//! Common clients send one request in a system call and saturate long before a good server does.

mod connection;
mod uri;

use super::Run;
use super::drive::no_latencies;
use super::figures::{Interval, median};
use super::progress::Progress;
use super::table::{self, Latency, Row};
use super::work::{Request, Work, WorkError};
use connection::Connection;
pub use connection::LoadError;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};
use uraid_block::{SECTOR_BYTES, Sectors};
use uraid_nbd::TransmissionFlags;
pub use uri::{Address, UriError};

/// A server runs for such a part of the runtime before it is measured.
const WARM_UP_PART: u32 = 4;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// No URI, or one that is none.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// One server, or one and another to compare it with.
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
    #[error("--rw {pattern} overwrites what {uri} holds; --destructive says that it may be lost")]
    Destructive {
        /// fio's word.
        pattern: &'static str,
        /// Which server.
        uri: String,
    },
    /// The export is read-only.
    #[error("--rw {pattern} writes, and {uri} is read-only")]
    ReadOnly {
        /// fio's word.
        pattern: &'static str,
        /// Which server.
        uri: String,
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

/// One server, and what each job asks of it.
struct Server {
    uri: String,
    address: Address,
    lists: Vec<Vec<Request>>,
}

/// What one server did in one round.
struct Sample {
    requests: u64,
    rate: f64,
    latencies: Histogram<u64>,
}

/// Measures one server, or two in turn.
pub fn run(uris: &[String], work: &Work, run: &Run, destructive: bool, is_shown: bool) -> Result<Vec<Row>, NbdError> {
    if uris.is_empty() || uris.len() > 2 {
        return Err(NbdError::Count { found: uris.len() });
    }
    let servers = uris.iter().map(|uri| Server::new(uri, work, destructive)).collect::<Result<Vec<_>, _>>()?;
    let mut progress = Progress::new(&work.describe());
    let expected = (run.runtime + run.runtime / WARM_UP_PART) * run.rounds * servers.len() as u32;
    let mut samples: Vec<Vec<Sample>> = servers.iter().map(|_| Vec::new()).collect();
    for round in 0..run.rounds as usize {
        progress.show_from_start(round as u64, run.rounds.into(), expected);
        for turn in 0..servers.len() {
            let which = (round + turn) % servers.len();
            samples[which].push(servers[which].measure(work, run)?);
        }
    }
    progress.finish();
    let rows = vec![row(&servers, work, &samples)];
    if is_shown {
        crate::print(&crate::names::printable_lines(&text(&servers, work, &samples, &rows[0])));
    }
    Ok(rows)
}

impl Server {
    fn new(uri: &str, work: &Work, destructive: bool) -> Result<Server, NbdError> {
        let address = Address::parse(uri)?;
        let named = || uri.to_owned();
        let pattern = work.pattern.name();
        if work.pattern.writes() && !destructive {
            return Err(NbdError::Destructive { pattern, uri: named() });
        }
        let connection: Connection<()> =
            Connection::open(&address, 1).map_err(|source| NbdError::Load { uri: named(), source })?;
        let export = connection.export;
        connection.close();
        if work.pattern.writes() && export.flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(NbdError::ReadOnly { pattern, uri: named() });
        }
        let share = work
            .share(Sectors(export.size / SECTOR_BYTES as u64))
            .map_err(|source| NbdError::Work { uri: named(), source })?;
        let lists = (0..work.jobs_in_all()).map(|job| work.requests(job, share)).collect();
        Ok(Server { uri: named(), address, lists })
    }

    /// Every job on a connection and a thread of its own.
    fn measure(&self, work: &Work, run: &Run) -> Result<Sample, NbdError> {
        let begin = Instant::now() + run.runtime / WARM_UP_PART;
        let end = begin + run.runtime;
        let jobs: Vec<Result<(u64, Histogram<u64>), LoadError>> = std::thread::scope(|scope| {
            let job = |list| scope.spawn(move || drive(&self.address, list, work, run.has_latencies, begin, end));
            let threads: Vec<_> = self.lists.iter().map(|list| job(list.as_slice())).collect();
            threads.into_iter().map(|thread| thread.join().expect("a job does not panic")).collect()
        });
        let mut sum = Sample { requests: 0, rate: 0.0, latencies: no_latencies() };
        for job in jobs {
            let (requests, latencies) = job.map_err(|source| NbdError::Load { uri: self.uri.clone(), source })?;
            sum.requests += requests;
            sum.latencies.add(&latencies).expect("both have the same bounds");
        }
        sum.rate = sum.requests as f64 / run.runtime.as_secs_f64();
        Ok(sum)
    }
}

/// One job: counts the requests that are answered between `begin` and `end`.
fn drive(
    address: &Address,
    list: &[Request],
    work: &Work,
    has_latencies: bool,
    begin: Instant,
    end: Instant,
) -> Result<(u64, Histogram<u64>), LoadError> {
    let block = work.block.len_bytes();
    let payload = vec![0xa5; if work.pattern.writes() { block } else { 0 }];
    let mut connection = Connection::open(address, work.depth as usize)?;
    let mut latencies = no_latencies();
    let mut next = list.iter().cycle();
    let (mut counted, mut now) = (0, Instant::now());
    while now < end || connection.in_flight() > 0 {
        while now < end && connection.room() > 0 {
            let request = next.next().expect("a list is not empty");
            let offset = Sectors(request.at.0).bytes();
            connection.put(offset, block, request.is_write.then_some(&payload), now);
        }
        let seen = now;
        let mut ended = 0;
        connection.turn(&mut |began: Instant| {
            ended += 1;
            if has_latencies && (begin..end).contains(&seen) {
                latencies.saturating_record(nanos(began.elapsed()));
            }
        })?;
        now = Instant::now();
        if (begin..end).contains(&now) {
            counted += ended;
        }
    }
    connection.close();
    Ok((counted, latencies))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn rates(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.rate).collect()
}

fn all_latencies(samples: &[Sample]) -> Option<Latency> {
    let mut sum = no_latencies();
    for sample in samples {
        sum.add(&sample.latencies).expect("both have the same bounds");
    }
    Latency::of(&sum)
}

fn row(servers: &[Server], work: &Work, samples: &[Vec<Sample>]) -> Row {
    let rates: Vec<Vec<f64>> = samples.iter().map(|samples| rates(samples)).collect();
    let bare = Row {
        block_bytes: Some(work.block.bytes()),
        latency_ns: all_latencies(&samples[0]),
        requests: Some(samples[0].iter().map(|sample| sample.requests).sum()),
        ..Row::bare("nbd", &format!("{}; {}", work.describe(), servers[0].uri), median(&rates[0]), "IOPS")
    };
    let [first, second] = &rates[..] else { return bare };
    let ratio = Interval::of(&first.iter().zip(second).map(|(one, other)| one / other).collect::<Vec<f64>>());
    Row {
        raw: Some(median(second)),
        against: "nbd",
        ratio: Some(ratio.median),
        ratio_low: Some(ratio.low),
        ratio_high: Some(ratio.high),
        confidence: Some(ratio.confidence),
        ..bare
    }
}

fn text(servers: &[Server], work: &Work, samples: &[Vec<Sample>], row: &Row) -> String {
    let mut out = format!("{}; {} rounds\n\n", work.describe(), samples[0].len());
    let mut cells = vec![["", "IOPS", "MB/s", "p50", "p99", "p99.9", "max"].map(str::to_owned)];
    for (server, samples) in servers.iter().zip(samples) {
        let rate = median(&rates(samples));
        let latency = all_latencies(samples);
        let time = |pick: fn(Latency) -> u64| latency.map_or("-".to_owned(), |all| table::nanos(pick(all) as f64));
        cells.push([
            server.uri.clone(),
            table::count(rate),
            format!("{:.0}", rate * work.block.bytes() as f64 / 1e6),
            time(|latency| latency.p50),
            time(|latency| latency.p99),
            time(|latency| latency.p99_9),
            time(|latency| latency.max),
        ]);
    }
    table::align(&mut out, &cells);
    if let (Some(ratio), Some(low), Some(high), Some(sure)) = (row.ratio, row.ratio_low, row.ratio_high, row.confidence)
    {
        out.push_str(&format!("\n  first / second  {ratio:.3} ({low:.3}..{high:.3}), {:.1} %\n", sure * 100.0));
    }
    out
}
