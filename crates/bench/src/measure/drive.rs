//! The loop of the bench: submits the requests of a list in order, with the work's number of requests in flight.
//! Owns: [`Side`], [`Lists`], [`Job`], [`run`], [`Section`]. Not here: the requests (`work`, `program`), rounds and
//! shards (`measure`). Invariant: the loop, its clock, its counting and its buffers are the same for every side. A
//! request of one piece allocates nothing here.

use crate::measure::flight::Flight;
use crate::work::program::{MemberIo, Program, RowKernel, Steps, Verb};
use crate::work::{Request, Work};
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use uraid_arrays::{ArrayMember, HostArray};
use uraid_block::buffer::LARGE_BLOCK_BYTES;
use uraid_block::local::Notify;
use uraid_block::{Arena, Device, Fua, IoError, ReadPieces, Tick, WritePieces};
use uraid_host::{ArenaBlocks, Local};

/// If latencies are not measured, a client reads the clock once in this many requests.
const REQUESTS_PER_LOOK: u32 = 16;
/// Latencies have three digits, and are at most an hour.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;
const LATENCY_DIGITS: u8 = 3;

/// What is driven.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// The array, through the engine.
    Array,
    /// The array's own member I/Os, without the engine.
    Replay,
    /// The client's requests, spread over the members.
    Ideal,
}

impl Side {
    /// All of them, in the order of the rows of a table.
    pub(crate) const ALL: [Side; 3] = [Side::Array, Side::Replay, Side::Ideal];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Array => "array",
            Side::Replay => "replay",
            Side::Ideal => "ideal",
        }
    }
}

/// The lists of one job: the same in every run.
pub(crate) struct Lists {
    /// For the array.
    pub requests: Vec<Request>,
    /// The member I/Os that the array does for these requests.
    pub replay: Program,
    /// The same requests, spread over the members.
    pub ideal: Program,
}

/// A job: its lists, and its position in them.
pub(crate) struct Job {
    lists: Arc<Lists>,
    next: Cell<usize>,
}

impl Job {
    /// A job that begins at the start of its lists.
    pub(crate) fn new(lists: Arc<Lists>) -> Job {
        Job { lists, next: Cell::new(0) }
    }

    /// The next request.
    fn take(&self) -> usize {
        let now = self.next.get();
        self.next.set(if now + 1 == self.lists.requests.len() { 0 } else { now + 1 });
        now
    }
}

/// What the loop needs on a shard.
pub(crate) struct Place {
    /// The shard.
    pub local: Local,
    /// The array.
    pub array: Rc<HostArray>,
    /// Its members, used without the array.
    pub members: Vec<ArrayMember>,
    /// The work.
    pub work: Work,
    /// This shard's jobs.
    pub jobs: Vec<Rc<Job>>,
    /// Whether to take the time of each request.
    pub has_latencies: bool,
    /// Whether a client yields after each request. If members answer at once, a client would otherwise do many requests
    /// in one go, and a drain would wait for all of them.
    pub takes_turns: bool,
    /// The requests in flight, if they are tracked.
    pub flight: Option<Flight>,
    /// Where the buffers are from.
    pub arena: Arena,
}

/// The result of one side on one shard in one section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Requests that were answered.
    pub requests: u64,
    /// From the first request to the last answer.
    pub took: Duration,
    /// The time of the shard's thread on a processor.
    pub cpu: Duration,
    /// The latency of each request, in nanoseconds; empty without `has_latencies`.
    pub latencies: Histogram<u64>,
}

impl Section {
    /// Requests in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }
}

/// The state that the clients of one call of [`run`] share.
struct Tally {
    requests: Cell<u64>,
    latencies: RefCell<Histogram<u64>>,
    error: Cell<Option<IoError>>,
    running: Cell<usize>,
    ended: Notify,
    stop_at: Tick,
}

/// An empty histogram of latencies.
pub(crate) fn no_latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, LATENCY_DIGITS).expect("the bounds are constant and right")
}

/// Drives `side` for `time`. An error of the array or a member ends it.
pub(crate) async fn run(place: &Rc<Place>, side: Side, time: Duration) -> Result<Section, IoError> {
    let clients = place.jobs.len() * place.work.depth as usize;
    let began = place.local.now();
    let tally = Rc::new(Tally {
        requests: Cell::new(0),
        latencies: RefCell::new(no_latencies()),
        error: Cell::new(None),
        running: Cell::new(clients),
        ended: Notify::new(),
        stop_at: began + time,
    });
    let cpu_before = thread_time();
    // Start clients of different jobs in turn, so that no job submits its whole depth first.
    for _ in 0..place.work.depth {
        for job in &place.jobs {
            let (at, job, tally) = (place.clone(), job.clone(), tally.clone());
            place.local.spawn(async move {
                let outcome = match side {
                    Side::Array => array_client(&at, &job, &tally).await,
                    Side::Replay => member_client(&at, &job, &job.lists.replay, &tally).await,
                    Side::Ideal => member_client(&at, &job, &job.lists.ideal, &tally).await,
                };
                if let Err(error) = outcome {
                    tally.error.set(Some(error));
                }
                tally.running.set(tally.running.get() - 1);
                if tally.running.get() == 0 {
                    tally.ended.notify_all();
                }
            });
        }
    }
    tally.ended.wait_for(|| (tally.running.get() == 0).then_some(())).await;
    let cpu = thread_time().saturating_sub(cpu_before);
    let took = place.local.now().since(began);
    match tally.error.get() {
        Some(error) => Err(error),
        None => Ok(Section {
            requests: tally.requests.get(),
            took,
            cpu,
            latencies: tally.latencies.replace(no_latencies()),
        }),
    }
}

/// The time that this thread has spent on a processor.
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// One client's clock and count.
struct Pace<'a> {
    place: &'a Place,
    tally: &'a Tally,
    began: Tick,
    unseen: u32,
}

impl<'a> Pace<'a> {
    fn new(place: &'a Place, tally: &'a Tally) -> Pace<'a> {
        Pace { place, tally, began: place.local.now(), unseen: 0 }
    }

    /// Counts an answered request. False: the time is over.
    fn step(&mut self) -> bool {
        let tally = self.tally;
        tally.requests.set(tally.requests.get() + 1);
        if self.place.has_latencies {
            // The end of one request is the beginning of the next, so the clock is read once for each.
            let now = self.place.local.now();
            tally.latencies.borrow_mut().saturating_record(now.since(self.began).as_nanos() as u64);
            self.began = now;
        } else {
            self.unseen += 1;
            if self.unseen < REQUESTS_PER_LOOK {
                return true;
            }
            self.unseen = 0;
            self.began = self.place.local.now();
        }
        self.began < tally.stop_at && tally.error.get().is_none()
    }
}

/// Yields to the end of the shard's queue.
async fn let_others() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

async fn array_client(place: &Place, job: &Job, tally: &Tally) -> Result<(), IoError> {
    let bytes = place.work.block.len_bytes();
    let mut buffer = take(&place.arena, bytes);
    let data = data(&place.arena, if place.work.pattern.writes() { bytes } else { 0 });
    let mut pace = Pace::new(place, tally);
    loop {
        let request = job.lists.requests[job.take()];
        let inside = place.flight.as_ref().map(Flight::enter);
        if request.is_write {
            place.array.write(request.at, data.clone(), Fua::No).await?;
        } else {
            buffer = place.array.read(request.at, buffer).await?;
        }
        drop(inside);
        if !pace.step() {
            return Ok(());
        }
        if place.takes_turns {
            let_others().await;
        }
    }
}

async fn member_client(place: &Place, job: &Job, program: &Program, tally: &Tally) -> Result<(), IoError> {
    let alone_bytes = program.alone_bytes();
    let mut alone = take(&place.arena, alone_bytes);
    let mut reads = Cut::new(take(&place.arena, program.read_bytes_max()));
    let mut writes = Cut::new(data(&place.arena, program.write_bytes_max()));
    let mut fan: Vec<_> = (0..program.width_max()).map(|_| Box::pin(None)).collect();
    let start = |io: MemberIo, transfer: Transfer| async move {
        let member = &place.members[usize::from(io.member)];
        match transfer {
            Transfer::Read(into) => member.read(io.at, into).await.map(Some),
            Transfer::Write(from) => member.write(io.at, from, Fua::No).await.map(|()| None),
        }
    };
    let mut pace = Pace::new(place, tally);
    loop {
        let Steps { reads: list, writes: later } = program.steps(job.take());
        let inside = place.flight.as_ref().map(Flight::enter);
        if let ([io], []) = (list, later)
            && io.length.len_bytes() == alone_bytes
        {
            // The common case: a single I/O needs no list and no joining, and its buffer is never cut.
            alone = place.members[usize::from(io.member)].read(io.at, alone).await?;
        } else {
            reads.fit(list);
            for (n, io) in list.iter().enumerate() {
                fan[n].as_mut().set(Some(start(*io, Transfer::Read(std::mem::take(&mut reads.parts[n])))));
            }
            join(&mut fan[..list.len()], |n, got| reads.parts[n] = got.expect("a read gives its buffers back")).await?;
            writes.fit(later);
            let mut parity = program.kernel.as_ref().map(|kernel| run_kernel(kernel, &writes.whole, &place.arena));
            for (n, io) in later.iter().enumerate() {
                let from = match (&mut parity, io.verb) {
                    (Some(parity), Verb::WriteParity) => parity.pop().expect("a row has as many as it writes"),
                    (Some(_) | None, Verb::Read | Verb::Write | Verb::WriteParity | Verb::Discard) => {
                        writes.parts[n].clone()
                    }
                };
                fan[n].as_mut().set(Some(start(*io, Transfer::Write(from))));
            }
            join(&mut fan[..later.len()], |_, _| ()).await?;
        }
        drop(inside);
        if !pace.step() {
            return Ok(());
        }
        if place.takes_turns {
            let_others().await;
        }
    }
}

enum Transfer {
    Read(ReadPieces),
    Write(WritePieces),
}

/// Polls all futures, in place, until they have ended.
async fn join<F, T>(fan: &mut [Pin<Box<Option<F>>>], mut done: impl FnMut(usize, T)) -> Result<(), IoError>
where
    F: Future<Output = Result<T, IoError>>,
{
    let mut outcome = Ok(());
    poll_fn(|context| {
        let mut pending = false;
        for (n, slot) in fan.iter_mut().enumerate() {
            let Some(work) = slot.as_mut().as_pin_mut() else { continue };
            match work.poll(context) {
                Poll::Pending => pending = true,
                Poll::Ready(Ok(value)) => {
                    slot.set(None);
                    done(n, value);
                }
                Poll::Ready(Err(error)) => {
                    slot.set(None);
                    outcome = Err(error);
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outcome
}

/// A client's buffers, cut for its requests. They are cut anew only if the next request needs another cut.
struct Cut<P> {
    whole: P,
    parts: Vec<P>,
    lengths: Vec<usize>,
}

impl<P> Cut<P> {
    fn new(whole: P) -> Cut<P> {
        Cut { whole, parts: Vec::new(), lengths: Vec::new() }
    }

    fn is_fit(&self, list: &[MemberIo]) -> bool {
        self.lengths.iter().copied().eq(list.iter().map(|io| io.length.len_bytes()))
    }
}

impl Cut<ReadPieces> {
    fn fit(&mut self, list: &[MemberIo]) {
        if self.is_fit(list) {
            return;
        }
        let rest = std::mem::take(&mut self.whole);
        for part in self.parts.drain(..) {
            self.whole.append(part);
        }
        self.whole.append(rest);
        self.lengths.clear();
        for io in list {
            self.parts.push(self.whole.split_to(io.length.len_bytes()));
            self.lengths.push(io.length.len_bytes());
        }
    }
}

impl Cut<WritePieces> {
    fn fit(&mut self, list: &[MemberIo]) {
        if self.is_fit(list) {
            return;
        }
        self.parts.clear();
        self.lengths.clear();
        let mut at = 0;
        for io in list {
            let bytes = io.length.len_bytes();
            self.parts.push(self.whole.slice(at, bytes));
            self.lengths.push(bytes);
            at += bytes;
        }
    }
}

impl RowKernel {
    /// How many blocks of an arena the parity of a request of `bytes` bytes takes.
    fn blocks(&self, bytes: usize) -> usize {
        let rows = bytes / (self.chunk_bytes * self.exponents.len());
        rows * self.chunk_bytes.div_ceil(LARGE_BLOCK_BYTES) * (1 + usize::from(self.has_syndrome))
    }
}

/// Computes P, and Q if there is one, of each row in `data`, for requests of whole rows only. The content of the
/// results does not matter, only the amount of computing does.
fn run_kernel(kernel: &RowKernel, data: &WritePieces, arena: &Arena) -> Vec<WritePieces> {
    let (chunk, across) = (kernel.chunk_bytes, kernel.exponents.len());
    let pieces: Vec<&[u8]> = data.iter().map(|piece| &piece[..]).collect();
    let slice = |at: usize, bytes: usize| {
        // All blocks of the arena are equally long except for the last one, and a chunk divides them or is a multiple.
        let piece = pieces[at / LARGE_BLOCK_BYTES];
        &piece[at % LARGE_BLOCK_BYTES..][..bytes]
    };
    let mut made = Vec::new();
    for row in 0..data.bytes() / (chunk * across) {
        let (mut p, mut q) = (ReadPieces::new(), ReadPieces::new());
        for from in (0..chunk).step_by(LARGE_BLOCK_BYTES) {
            let bytes = (chunk - from).min(LARGE_BLOCK_BYTES);
            let sources: Vec<&[u8]> = (0..across).map(|k| slice((row * across + k) * chunk + from, bytes)).collect();
            let take = || arena.take_contiguous(bytes).expect("the arena has room for every client's parity");
            let mut p_part = take();
            if kernel.has_syndrome {
                let mut q_part = take();
                uraid_parity::generate_pq(&mut p_part, &mut q_part, &sources, &kernel.exponents);
                q.push(q_part);
            } else {
                uraid_parity::generate_p(&mut p_part, &sources);
            }
            p.push(p_part);
        }
        made.push(p.freeze());
        if kernel.has_syndrome {
            made.push(q.freeze());
        }
    }
    made
}

/// This many bytes in as few pieces as possible: [`run_kernel`] relies on that.
fn take(arena: &Arena, bytes: usize) -> ReadPieces {
    let mut pieces = ReadPieces::new();
    while pieces.bytes() < bytes {
        let length = (bytes - pieces.bytes()).min(LARGE_BLOCK_BYTES);
        pieces.push(arena.take_contiguous(length).expect("the arena was made for the work"));
    }
    pieces
}

/// What the arena of a shard must hold for its jobs.
pub(crate) fn blocks_for(work: &Work, jobs: &[Arc<Lists>]) -> ArenaBlocks {
    let programs = jobs.iter().flat_map(|job| [&job.replay, &job.ideal]);
    let largest = |bytes: fn(&Program) -> usize| programs.clone().map(bytes).max().unwrap_or(0);
    let block = work.block.len_bytes();
    let (reads, writes) = (largest(Program::read_bytes_max).max(block), largest(Program::write_bytes_max).max(block));
    let alone = largest(Program::alone_bytes);
    let clients = jobs.len() as u64 * u64::from(work.depth);
    let kernels = programs.filter_map(|program| program.kernel.as_ref());
    let parity = kernels.map(|kernel| kernel.blocks(block)).max().unwrap_or(0);
    let large: usize = [alone, reads, writes].map(|bytes| bytes.div_ceil(LARGE_BLOCK_BYTES)).iter().sum();
    let blocks = |each: u64| u32::try_from(each * clients).expect("the work was checked");
    // A request that fits into a small block may take a small block for each kind of buffer.
    ArenaBlocks { small: blocks(3).max(64), large: blocks((large + parity) as u64) }
}

/// Incompressible bytes to write.
fn data(arena: &Arena, bytes: usize) -> WritePieces {
    let mut pieces = take(arena, bytes);
    let mut random = crate::work::Random::new(bytes as u64);
    for piece in pieces.iter_mut() {
        for word in piece.chunks_mut(8) {
            word.copy_from_slice(&random.next().to_ne_bytes()[..word.len()]);
        }
    }
    pieces.freeze()
}
