//! `uraid bench nbd --beside CLIENTS URI`: measures a client alone and beside harmful clients, in turn.
//! Owns: [`Others`], what each kind of them does, the rounds, the table. Not here: the measured client (`nbd`).
//! Invariant: each round measures the client both alone and beside the others, in alternating order. All others are
//! connected before the client is measured.

use super::connection::{Connection, LoadError, Stream, take_export};
use super::uri::Address;
use super::{NbdError, Sample, Server, all_latencies, each, ratio};
use crate::Run;
use crate::figures::median;
use crate::report::table::{self, Row};
use crate::screen::Screen;
use crate::work::Work;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use uraid_host::ensure_descriptors;
use uraid_nbd::HandshakeFlags;
use uraid_nbd::handshake::client_flags;

/// Requests that one of the others keeps in flight.
const DEPTH: usize = 100;
/// Bytes of a read whose reply is not taken.
const UNREAD_BYTES: usize = 1 << 20;
/// Bytes of one write-zeroes at most: the length has 32 bits.
const ZEROES_BYTES_MAX: u64 = 2 << 30;
/// How often to look for clients whose connection the server has closed.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The harmful clients beside which a good one is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Others {
    /// 8 that ask for 100 reads of 1 MiB each and take no reply
    NonReaders,
    /// 4 that keep 100 write-zeroes over the whole export in flight each
    Zeroers,
    /// 1,000 that fall silent in their handshake
    HalfOpen,
    /// 8,192 that connect and ask for nothing
    Idle,
}

impl Others {
    fn count(self) -> usize {
        match self {
            Others::NonReaders => 8,
            Others::Zeroers => 4,
            Others::HalfOpen => 1000,
            Others::Idle => 8192,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Others::NonReaders => "8 non-readers",
            Others::Zeroers => "4 zeroers",
            Others::HalfOpen => "1,000 half-open",
            Others::Idle => "8,192 idle",
        }
    }
}

/// One harmful client.
enum Client {
    /// A client that only keeps its connection open.
    Silent { _stream: Stream },
    /// A client with requests in flight.
    Busy(Connection<()>),
}

impl Client {
    fn connect(kind: Others, address: &Address) -> Result<Client, LoadError> {
        match kind {
            Others::NonReaders => {
                let mut client = Connection::open(address, DEPTH)?;
                let bytes = UNREAD_BYTES.min(client.export.size as usize / 4096 * 4096);
                (0..DEPTH).for_each(|_| client.put(0, bytes, None, ()));
                client.send()?;
                Ok(Client::Busy(client))
            }
            Others::Zeroers => Ok(Client::Busy(Connection::open(address, DEPTH)?)),
            Others::HalfOpen => {
                let mut stream = Stream::connect(&address.endpoint).map_err(super::connection::failed("connecting"))?;
                // The server may have closed the connection already, which is not a failure.
                let _ = stream.write(&client_flags(HandshakeFlags::FIXED_NEWSTYLE));
                Ok(Client::Silent { _stream: stream })
            }
            Others::Idle => {
                let mut stream = Stream::connect(&address.endpoint).map_err(super::connection::failed("connecting"))?;
                take_export(&mut stream, &address.export)?;
                Ok(Client::Silent { _stream: stream })
            }
        }
    }

    /// Sends and receives what it can without blocking. An error: the server has closed the connection.
    fn go_on(&mut self, kind: Others) -> Result<(), LoadError> {
        match (kind, self) {
            (Others::Zeroers, Client::Busy(client)) => {
                let bytes = client.export.size.min(ZEROES_BYTES_MAX) / 4096 * 4096;
                while client.room() > 0 {
                    client.put_zeroes(0, bytes, ());
                }
                client.turn_now(&mut |()| {}).map(drop)
            }
            (Others::NonReaders, Client::Busy(client)) => client.check(),
            (Others::NonReaders | Others::Zeroers | Others::HalfOpen | Others::Idle, _) => Ok(()),
        }
    }
}

/// All clients of one kind, on a thread of their own.
struct Crowd {
    is_over: Arc<AtomicBool>,
    connected: Receiver<Result<(), LoadError>>,
    thread: JoinHandle<()>,
}

impl Crowd {
    fn gather(kind: Others, address: &Address) -> Crowd {
        let is_over = Arc::new(AtomicBool::new(false));
        let (to_us, connected) = channel();
        let thread = {
            let (is_over, address) = (is_over.clone(), address.clone());
            thread::spawn(move || crowd(kind, &address, &to_us, &is_over))
        };
        Crowd { is_over, connected, thread }
    }

    /// Waits until all have connected.
    fn wait(&self) -> Result<(), LoadError> {
        self.connected.recv().expect("the thread says how it went")
    }

    fn leave(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread does not panic");
    }
}

fn crowd(kind: Others, address: &Address, to_main: &Sender<Result<(), LoadError>>, is_over: &AtomicBool) {
    let connect = || Client::connect(kind, address);
    let mut clients = match (0..kind.count()).map(|_| connect()).collect::<Result<Vec<_>, _>>() {
        Ok(clients) => clients,
        Err(error) => {
            // The main thread waits for this message.
            let _ = to_main.send(Err(error));
            return;
        }
    };
    let _ = to_main.send(Ok(()));
    while !is_over.load(Ordering::Relaxed) {
        for client in &mut clients {
            // A client whose connection was closed reconnects; if the server refuses, it tries again in the next turn.
            if client.go_on(kind).is_err()
                && let Ok(next) = connect()
            {
                *client = next;
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Measures the client of `work` alone and beside each kind of others.
pub(super) fn run(
    uri: &str,
    others: &[Others],
    work: &Work,
    run: &Run,
    destructive: bool,
    screen: &dyn Screen,
) -> Result<Vec<Row>, NbdError> {
    let named = || uri.to_owned();
    if others.contains(&Others::Zeroers) && !destructive {
        return Err(NbdError::Destructive { option: "--beside zeroers".to_owned(), uri: named() });
    }
    let most = others.iter().map(|kind| kind.count()).max().unwrap_or(0) + work.jobs_in_all() as usize;
    ensure_descriptors(most, 0).map_err(|source| NbdError::Descriptors { connections: most, source })?;
    let address = Address::parse(uri)?;
    let mut good = Server::new(uri, work, destructive)?;
    let mut progress = screen.progress(&work.describe());
    let rounds = u64::from(run.rounds) * others.len() as u64;
    let expected = (run.runtime + run.runtime / super::WARM_UP_PART) * 2 * rounds as u32;
    let mut rows = Vec::new();
    let mut cells =
        vec![["", "alone", "beside", "MB/s", "beside / alone", "p99 alone", "p99 beside", "max"].map(str::to_owned)];
    for (which, &kind) in others.iter().enumerate() {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for round in 0..run.rounds {
            progress.show_from_start(which as u64 * u64::from(run.rounds) + u64::from(round), rounds, expected);
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    alone.push(good.measure(work, run)?);
                } else {
                    beside.push(good.measure_beside(kind, &address, work, run)?);
                }
            }
        }
        let row = row(uri, kind, work, &alone, &beside);
        cells.push(line(&row, kind, work, &alone, &beside));
        rows.push(row);
    }
    drop(progress);
    good.close();
    let mut out = format!("{}; {}; {} rounds\n\n", uri, work.describe(), run.rounds);
    table::align(&mut out, &cells);
    let sure = rows.first().and_then(|row| row.confidence).unwrap_or_default() * 100.0;
    out.push_str(&format!("\n  ratios of a round, their median and where it lies with {sure:.1} %\n"));
    screen.print(&out);
    Ok(rows)
}

impl Server {
    /// Measures beside all clients of this kind.
    fn measure_beside(&mut self, kind: Others, address: &Address, work: &Work, run: &Run) -> Result<Sample, NbdError> {
        let crowd = Crowd::gather(kind, address);
        let uri = self.uri.clone();
        let failed = |source| NbdError::Others { kind: kind.describe(), uri, source };
        // The measured client works while the others connect: if it were idle, its connection would be the first that
        // the server closes to make room for them.
        let sample = self.measure_after(work, run, || crowd.wait().map_err(failed));
        crowd.leave();
        sample
    }
}

fn row(uri: &str, kind: Others, work: &Work, alone: &[Sample], beside: &[Sample]) -> Row {
    let rates = |samples| each(samples, |sample: &Sample| sample.rate);
    let what = format!("{}; {uri}; beside {}", work.describe(), kind.describe());
    Row {
        raw: Some(median(&rates(alone))),
        against: "alone",
        block_bytes: Some(work.block.bytes()),
        latency_ns: all_latencies(beside),
        requests: Some(beside.iter().map(|sample| sample.requests).sum()),
        ..Row::bare("nbd-beside", &what, median(&rates(beside)), "IOPS")
    }
    .with_ratio(Some(ratio(&rates(beside), &rates(alone))))
}

fn line(row: &Row, kind: Others, work: &Work, alone: &[Sample], beside: &[Sample]) -> [String; 8] {
    let [_, p99_alone, ..] = table::latency_cells(all_latencies(alone));
    let [_, p99, _, max] = table::latency_cells(all_latencies(beside));
    let ratio = table::ratio_text(row.ratio, row.ratio_low, row.ratio_high).unwrap_or_default();
    let (before, rate) = (table::count(row.raw.unwrap_or_default()), table::count(row.array));
    [kind.describe().to_owned(), before, rate, table::megabytes(row.array, work), ratio, p99_alone, p99, max]
}
