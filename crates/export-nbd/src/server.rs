//! One shard's server: its connections, their memory and their deadlines.
//! Owns: [`Server`]: accepting, buffers for all connections, stopping.
//! Not here: one connection (`connection`), its share of the memory (`shares`), deadlines (`watchdog`).
//! Invariant: memory for receiving and for reply headers is reserved, so replies can leave even if the clients' arena
//! is full.

use crate::clears::Clears;
use crate::connection::{Connection, Phase};
use crate::export::{Export, Offer};
use crate::limits::{JOB_BYTES, Limits, SPARE_CONNECTIONS};
use crate::machine::{Machine, Transport};
use crate::news::News;
use crate::places::{self, Place, Use, Verdict};
use crate::request::Work;
use crate::shares::Shares;
use crate::spread::Spread;
use crate::statistics::Statistics;
use crate::workers::{Job, Worker, Workers};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::buffer::{LARGE_BLOCK_BYTES, SMALL_BLOCK_BYTES};
use uraid_block::local::{Either, Notify, Semaphore, race, yield_now};
use uraid_block::{Arena, Device, Lease, ReadPieces, ShardIndex};
use uraid_host::{Listener, Local, Peer, Stream};

/// How long to wait before trying a full arena again: blocks of other sizes may come back meanwhile.
const ARENA_RETRY: Duration = Duration::from_millis(1);
/// After this many retries a request allocates its own memory.
const ARENA_RETRIES_MAX: u32 = 1000;
/// How long to wait after a failed accept, such as for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// By connection number, in the order of arrival.
type Connections<M, T, D> = BTreeMap<u64, Rc<Connection<M, T, D>>>;

/// Serves its exports on one shard. Clones of the `Rc` are handles of the same server.
pub struct Server<M: Machine, T: Transport, D: Device + 'static> {
    pub(crate) machine: M,
    /// The offer of each export; never empty, the first is the default.
    pub(crate) offers: Vec<Offer>,
    /// The device of each export.
    pub(crate) devices: Vec<Rc<D>>,
    /// The longest list of buffers that all devices accept.
    segments_max: usize,
    pub(crate) limits: Limits,
    /// Blocks for receiving and for reply headers.
    own: Arena,
    /// Memory, tasks and turns of each device, which may have several exports. So a member of one array that does not
    /// answer stops no other array.
    per_device: Vec<PerDevice<M, T, D>>,
    /// The index in `per_device` of each export.
    pub(crate) device_of: Vec<usize>,
    /// A request has begun to wait for memory.
    shortage: Rc<Notify>,
    /// Turns at retrying a full arena, for small blocks and for large ones.
    turns: [Rc<Semaphore>; 2],
    /// Waiting trims and write-zeroes of each export.
    pub(crate) clears: Vec<Clears<M, T, D>>,
    /// Reads and writes that the device has.
    pub(crate) transfers_running: Cell<usize>,
    /// Requests that were begun and are not answered.
    pub(crate) running: Cell<usize>,
    pub(crate) connections: RefCell<Connections<M, T, D>>,
    next_connection: Cell<u64>,
    /// Counts receives and sends on all connections.
    moves: Cell<u64>,
    changed: Notify,
    is_stopping: Cell<bool>,
    statistics: RefCell<Statistics>,
    log: OnceCell<Box<dyn Fn(News)>>,
}

/// What all clients of one device share.
struct PerDevice<M: Machine, T: Transport, D: Device + 'static> {
    /// Each connection's share of the memory.
    shares: Shares,
    /// Of reads, and of the other requests: a member that does not answer may keep every task of the others.
    workers: [Workers<Job<M, T, D>>; 2],
    /// The turns for one piece of a trim or write-zeroes beside other clients' reads and writes: of short requests, and of
    /// long ones.
    clearing_turns: [Rc<Semaphore>; 2],
}

impl<M: Machine, T: Transport, D: Device + 'static> Server<M, T, D> {
    /// A server without connections for these exports, of which the first is the default. Panics if there is none, if
    /// two have one name, or if the machine's arena is smaller than 16 KiB.
    pub fn new(machine: M, exports: Vec<(Export, Rc<D>)>, limits: Limits) -> Rc<Server<M, T, D>> {
        let (small, large) = limits.own_blocks();
        let (device_of, count) = number_devices(&exports);
        assert!(count > 0, "there is an export");
        let arena_bytes = machine.arena().capacity_bytes() / count;
        let offer = |(export, device): &(Export, Rc<D>)| Offer::new(export, device.geometry(), arena_bytes);
        let offers: Vec<Offer> = exports.iter().map(offer).collect();
        let names: BTreeSet<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
        assert_eq!(names.len(), offers.len(), "two exports have one name");
        let payload_max = offers.iter().map(|offer| offer.payload_max).max().expect("there is an export");
        let devices: Vec<Rc<D>> = exports.into_iter().map(|(_, device)| device).collect();
        let segments_max = devices.iter().map(|device| device.geometry().segments_max).min();
        let (blocks, tasks) = (machine.arena().blocks() / count, limits.tasks_max() / 2 / count);
        let shortage = Rc::new(Notify::new());
        let one = |_| PerDevice {
            shares: Shares::new(arena_bytes, blocks, payload_max as usize, shortage.clone()),
            workers: [(); 2].map(|()| Workers::new(tasks.max(1))),
            clearing_turns: [Semaphore::new(1), Semaphore::new(1)],
        };
        let per_device = (0..count).map(one).collect();
        let server = Rc::new(Server {
            own: Arena::new(small, large),
            per_device,
            device_of,
            shortage,
            turns: [Semaphore::new(1), Semaphore::new(1)],
            clears: devices.iter().map(|_| Clears::default()).collect(),
            transfers_running: Cell::new(0),
            running: Cell::new(0),
            connections: RefCell::default(),
            next_connection: Cell::new(0),
            moves: Cell::new(0),
            changed: Notify::new(),
            is_stopping: Cell::new(false),
            statistics: RefCell::default(),
            log: OnceCell::new(),
            machine,
            offers,
            devices,
            segments_max: segments_max.expect("there is an export"),
            limits,
        });
        server.machine.spawn(server.clone().watch());
        server
    }

    /// Sets the callback for clients that connect, leave or are refused. Only the first call counts.
    pub fn log_to(&self, log: impl Fn(News) + 'static) {
        let _ = self.log.set(Box::new(log));
    }

    pub(crate) fn tell(&self, news: News) {
        if let Some(log) = self.log.get() {
            log(news);
        }
    }

    /// What the server did so far.
    pub fn statistics(&self) -> Statistics {
        let writers = self.connections.borrow().values().filter(|connection| connection.may_write()).count();
        let connected = self.connections() as u64;
        Statistics { connected, writers: writers as u64, ..*self.statistics.borrow() }
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.borrow().len()
    }

    /// Requests that the device has not answered yet.
    pub fn requests_running(&self) -> usize {
        self.running.get()
    }

    /// Serves a client that has just connected; returns when the connection ends. If there are too many connections,
    /// too many of its peer, or too many in their handshake, `places` closes one that is idle or in its handshake, else
    /// the new one.
    pub async fn serve(self: &Rc<Self>, transport: T) {
        if self.is_stopping.get() || !self.make_room(transport.peer()) {
            self.count(|counts| counts.turned_away += 1);
            self.tell(News::TurnedAway { peer: transport.peer() });
            transport.shutdown();
            return;
        }
        self.count(|counts| counts.connections += 1);
        let connection = Rc::new(Connection::new(self.clone(), transport));
        let name = self.next_connection.get();
        self.next_connection.set(name + 1);
        self.connections.borrow_mut().insert(name, connection.clone());
        self.changed.notify_all();
        let is_broken = connection.clone().run().await;
        self.count(|counts| counts.broken += u64::from(is_broken));
        if connection.phase.get() != Phase::Handshake {
            let (peer, export) = (connection.peer, connection.agreement.get().export);
            self.tell(News::Left { peer, export, is_broken });
        }
        self.connections.borrow_mut().remove(&name);
        if self.connections() == 0 {
            self.per_device.iter().flat_map(|device| &device.workers).for_each(Workers::wake_idle);
        }
        self.changed.notify_all();
    }

    fn make_room(&self, newcomer: Peer) -> bool {
        if self.connections() >= self.limits.connections_max + SPARE_CONNECTIONS {
            return false;
        }
        match places::decide(&self.places(), newcomer, &self.limits) {
            Verdict::Free => true,
            Verdict::Instead(name) => {
                self.connections.borrow()[&name].kill();
                true
            }
            Verdict::Full => false,
        }
    }

    fn places(&self) -> Vec<Place> {
        let connections = self.connections.borrow();
        let stay = connections.iter().filter(|(_, connection)| !connection.is_closing());
        let place = |(&name, connection): (&u64, &Rc<Connection<M, T, D>>)| {
            let use_ = match connection.phase.get() {
                Phase::Handshake => Use::Handshake,
                Phase::Transmission if connection.is_idle() => Use::Idle { moved: connection.moves.get() },
                Phase::Transmission if self.waits_for_a_payload_in_vain(connection) => {
                    Use::Stalled { moved: connection.moves.get() }
                }
                Phase::Transmission | Phase::Ending => Use::Busy,
            };
            Place { name, peer: connection.peer, use_ }
        };
        stay.map(place).collect()
    }

    /// The next number of the move counter.
    pub(crate) fn next_move(&self) -> u64 {
        self.moves.set(self.moves.get() + 1);
        self.moves.get()
    }

    /// Stops reading requests, lets those in flight end and be answered, and closes. After half of `time_max`, clients
    /// that do not take their replies are cut. Returns how many requests the device still has when the time is over.
    pub async fn stop(self: &Rc<Self>, time_max: Duration) -> usize {
        self.is_stopping.set(true);
        self.each(|connection| connection.close());
        self.changed.notify_all();
        if !self.ends_within(time_max / 2).await {
            self.each(|connection| connection.kill());
            self.ends_within(time_max / 2).await;
        }
        self.running.get()
    }

    async fn ends_within(&self, time_max: Duration) -> bool {
        let has_ended = || (self.connections() == 0 && self.running.get() == 0).then_some(());
        match race(self.changed.wait_for(has_ended), self.machine.sleep(time_max)).await {
            Either::Left(()) => true,
            Either::Right(()) => false,
        }
    }

    fn each(&self, act: impl Fn(&Connection<M, T, D>)) {
        let connections: Vec<_> = self.connections.borrow().values().cloned().collect();
        for connection in connections {
            act(&connection);
        }
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Statistics)) {
        add(&mut self.statistics.borrow_mut());
    }

    /// A request on the device is done.
    pub(crate) fn finished(&self, add: impl FnOnce(&mut Statistics)) {
        self.count(add);
        self.running.set(self.running.get() - 1);
        if self.is_stopping.get() {
            self.changed.notify_all();
        }
    }

    /// Begins a job, or queues it for a worker.
    pub(crate) fn put(self: &Rc<Self>, job: Job<M, T, D>) {
        const { assert!(size_of::<Job<M, T, D>>() <= JOB_BYTES, "the memory of waiting requests is counted") };
        let device = self.device_of[job.connection.export()];
        let line = usize::from(!matches!(job.work, Work::Read(_)));
        if let Some(worker) = self.per_device[device].workers[line].put(job) {
            self.machine.spawn(self.clone().work(device, line, worker));
        }
    }

    /// A worker: runs jobs until no connection is left that could bring more.
    async fn work(self: Rc<Self>, device: usize, line: usize, mut worker: Worker) {
        let workers = &self.per_device[device].workers[line];
        loop {
            let next = poll_fn(|context| workers.poll_next(&mut worker, self.connections() == 0, context));
            let Some((job, other)) = next.await else { return };
            if let Some(other) = other {
                self.machine.spawn(self.clone().work(device, line, other));
            }
            job.run().await;
        }
    }

    /// A large block of the server's own memory, if one is free.
    pub(crate) fn large_block(&self) -> Option<Lease> {
        let pieces = self.own.take(LARGE_BLOCK_BYTES).ok()?;
        if pieces.count() == 1 { pieces.into_iter().next() } else { None }
    }

    /// A small block of the server's own memory, which is enough for all connections: this waits only while connections
    /// that were cut have not ended yet.
    pub(crate) async fn own_block(&self, bytes: usize) -> Lease {
        loop {
            if let Ok(pieces) = self.own.take(bytes)
                && pieces.count() == 1
            {
                return pieces.into_iter().next().expect("there is one piece");
            }
            self.machine.sleep(ARENA_RETRY).await;
        }
    }

    /// The memory of the clients of the export's device.
    pub(crate) fn shares(&self, export: usize) -> &Shares {
        &self.per_device[self.device_of[export]].shares
    }

    /// The turns of the export's device, by lane.
    pub(crate) fn clearing_turns(&self, export: usize) -> &[Rc<Semaphore>; 2] {
        &self.per_device[self.device_of[export]].clearing_turns
    }

    /// Whether a request waits for memory that others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.per_device.iter().any(|device| device.shares.is_short())
    }

    /// Waits until one does.
    pub(crate) async fn shortage(&self) {
        self.shortage.wait_for(|| self.is_short().then_some(())).await;
    }

    /// Buffers for a read or write that has its permits. Waits if the arena has enough bytes free, but not in usable
    /// blocks: one request of each class retries, the others wait behind it.
    pub(crate) async fn buffers(&self, export: usize, bytes: usize) -> ReadPieces {
        let turn = &self.turns[usize::from(block_bytes(bytes) == LARGE_BLOCK_BYTES)];
        if turn.free() > 0
            && let Some(pieces) = self.take(bytes)
        {
            return pieces;
        }
        let _waiting = self.shares(export).wait();
        let _turn = turn.acquire(1).await;
        for _ in 0..ARENA_RETRIES_MAX {
            if let Some(pieces) = self.take(bytes) {
                return pieces;
            }
            self.machine.sleep(ARENA_RETRY).await;
        }
        // A device that does not answer keeps its buffers. The permits bound what all requests hold.
        Arena::for_one(bytes).take(bytes).expect("the arena was made for this")
    }

    fn take(&self, bytes: usize) -> Option<ReadPieces> {
        self.machine.arena().take(bytes).ok().filter(|pieces| pieces.count() <= self.segments_max)
    }

    /// Waits until there is a connection to watch; `false` when the server stops.
    pub(crate) async fn has_clients(&self) -> bool {
        let has_clients = || match self.connections() {
            0 => self.is_stopping.get().then_some(false),
            _ => Some(true),
        };
        self.changed.wait_for(has_clients).await
    }
}

impl<D: Device + 'static> Server<Local, Stream, D> {
    /// Accepts clients until the server stops, and gives each to the shard with the fewest: here, or by `post` to
    /// another, which calls [`Server::adopt`]. One shard listens.
    pub async fn listen(
        self: Rc<Self>,
        listener: Listener,
        spread: Arc<Spread>,
        mut post: impl FnMut(ShardIndex, OwnedFd),
    ) {
        allow_descriptors();
        loop {
            let stopping = self.changed.wait_for(|| self.is_stopping.get().then_some(()));
            match race(stopping, listener.accept(&self.machine)).await {
                Either::Left(()) => return,
                Either::Right(Ok(stream)) => match spread.choose() {
                    shard if shard == self.machine.index() => self.begin(stream, spread.clone()),
                    shard => match stream.into_raw() {
                        Ok(socket) => post(shard, socket),
                        // There is no file descriptor for it: drop the client and try the next one later.
                        Err(_) => {
                            spread.leave(shard);
                            self.count(|counts| counts.turned_away += 1);
                            self.machine.sleep(ACCEPT_RETRY).await;
                        }
                    },
                },
                Either::Right(Err(_)) => {
                    // Most likely descriptors are short while a client waits.
                    if let Some(name) = places::least_used(&self.places()) {
                        self.connections.borrow()[&name].kill();
                    }
                    self.machine.sleep(ACCEPT_RETRY).await;
                }
            }
            // A connection that is closed for the new one ends before the next client is accepted.
            yield_now().await;
        }
    }

    /// Serves a client that another shard accepted.
    pub fn adopt(self: &Rc<Self>, socket: OwnedFd, spread: Arc<Spread>) {
        let stream = Stream::from_raw(&self.machine, socket);
        self.begin(stream, spread);
    }

    fn begin(self: &Rc<Self>, stream: Stream, spread: Arc<Spread>) {
        let server = self.clone();
        self.machine.spawn(async move {
            server.serve(stream).await;
            spread.leave(server.machine.index());
        });
    }
}

/// Raises the limit of descriptors, usually 1024, as far as this process may. If that fails, clients without a
/// descriptor are accepted later.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

/// The number of each export's device, and how many devices there are.
fn number_devices<D>(exports: &[(Export, Rc<D>)]) -> (Vec<usize>, usize) {
    let (mut numbers, mut devices): (Vec<usize>, Vec<&Rc<D>>) = Default::default();
    for (_, device) in exports {
        let known = devices.iter().position(|known| Rc::ptr_eq(known, device));
        numbers.push(known.unwrap_or(devices.len()));
        if known.is_none() {
            devices.push(device);
        }
    }
    (numbers, devices.len())
}

fn block_bytes(bytes: usize) -> usize {
    if bytes > 16 << 10 { LARGE_BLOCK_BYTES } else { SMALL_BLOCK_BYTES }
}
