//! A machine for tests: one thread, virtual time, pipes instead of sockets, memory instead of members.
//! Owns: [`Bench`], [`Pipe`], [`Ram`]. Not here: any expectation.
//! Invariant: the same calls give the same order of events.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{IoSlice, IoSliceMut};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use uraid_block::buffer::Piece;
use uraid_block::local::Notify;
use uraid_block::{
    Allocation, Arena, Device, ErrorKind, Fua, Geometry, IoError, Lease, Range, ReadPieces, Sector, Sectors, Tick,
    WritePieces,
};
use uraid_export_nbd::{Export, Limits, Machine, Server, Transport};
use uraid_host::{NetError, Peer};
use uraid_nbd::handshake::{client_flags, option};
use uraid_nbd::metadata::BASE_ALLOCATION;
use uraid_nbd::{
    Chunk, ChunkKind, Command, CommandFlags, Cookie, ErrorCode, ExportQuery, HandshakeFlags, InfoKind,
    MetaContextQuery, OptionCode, ReplyHeader, Request,
};

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Wakes {
    ready: Mutex<VecDeque<usize>>,
}

struct TaskWaker {
    wakes: Arc<Wakes>,
    task: usize,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wakes.ready.lock().expect("not poisoned").push_back(self.task);
    }
}

struct Inner {
    wakes: Arc<Wakes>,
    tasks: RefCell<Vec<Option<Task>>>,
    now: Cell<u64>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    timers_made: Cell<u64>,
    arena: Arena,
}

/// The machine.
#[derive(Clone)]
pub struct Bench(Rc<Inner>);

impl Bench {
    pub fn new(small_blocks: u32, large_blocks: u32) -> Bench {
        Bench(Rc::new(Inner {
            wakes: Arc::new(Wakes { ready: Mutex::default() }),
            tasks: RefCell::default(),
            now: Cell::new(0),
            timers: RefCell::default(),
            timers_made: Cell::new(0),
            arena: Arena::new(small_blocks, large_blocks),
        }))
    }

    /// As at the end of a shard: drops the tasks, which hold the machine that holds them. Says how many there were.
    pub fn end(&self) -> usize {
        let tasks = self.0.tasks.take();
        tasks.iter().flatten().count()
    }

    /// How many tasks have not ended.
    pub fn tasks(&self) -> usize {
        self.0.tasks.borrow().iter().flatten().count()
    }

    /// Runs all tasks until none can go on.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// Runs the task whose turn it is until it waits. Returns whether there was one.
    pub fn step(&self) -> bool {
        let next = self.0.wakes.ready.lock().expect("not poisoned").pop_front();
        let Some(name) = next else { return false };
        let task = self.0.tasks.borrow_mut()[name].take();
        let Some(mut task) = task else { return true };
        let waker = Waker::from(Arc::new(TaskWaker { wakes: self.0.wakes.clone(), task: name }));
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            self.0.tasks.borrow_mut()[name] = Some(task);
        }
        true
    }

    /// Lets this time pass without running anything, as if the thread had been delayed.
    pub fn hold_up(&self, time: Duration) {
        let end = self.0.now.get() + time.as_nanos() as u64;
        self.0.now.set(end);
        let later = self.0.timers.borrow_mut().split_off(&(end + 1, 0));
        let over = self.0.timers.replace(later);
        over.into_values().for_each(Waker::wake);
        self.settle();
    }

    /// Lets this time pass, timer by timer.
    pub fn pass(&self, time: Duration) {
        let end = self.0.now.get() + time.as_nanos() as u64;
        self.settle();
        loop {
            let first = self.0.timers.borrow().keys().next().copied();
            match first {
                Some(key) if key.0 <= end => {
                    self.0.now.set(key.0);
                    let waker = self.0.timers.borrow_mut().remove(&key);
                    waker.expect("it was there").wake();
                    self.settle();
                }
                _ => break,
            }
        }
        self.0.now.set(end);
    }

    /// Runs a future to its end, letting time pass as it needs.
    pub fn finish<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let slot = result.clone();
        self.spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        for _ in 0..1000 {
            self.settle();
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            self.pass(Duration::from_millis(100));
        }
        panic!("the future does not end");
    }
}

impl Machine for Bench {
    fn now(&self) -> Tick {
        Tick(self.0.now.get())
    }

    async fn sleep(&self, time: Duration) {
        let at = self.0.now.get() + time.as_nanos() as u64;
        let name = self.0.timers_made.get();
        self.0.timers_made.set(name + 1);
        std::future::poll_fn(|context| {
            if self.0.now.get() >= at {
                return Poll::Ready(());
            }
            self.0.timers.borrow_mut().insert((at, name), context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.tasks.borrow_mut();
        tasks.push(Some(Box::pin(task)));
        self.0.wakes.ready.lock().expect("not poisoned").push_back(tasks.len() - 1);
    }

    fn arena(&self) -> &Arena {
        &self.0.arena
    }
}

#[derive(Default)]
struct PipeState {
    to_server: RefCell<VecDeque<u8>>,
    to_client: RefCell<Vec<u8>>,
    client_closed: Cell<bool>,
    client_stuck: Cell<bool>,
    sticks_half_way: Cell<bool>,
    shut_down: Cell<bool>,
    sends: Cell<usize>,
    user: Cell<u32>,
    changed: Notify,
}

/// A connection without a socket; clones are the same one. The client's end are the plain methods.
#[derive(Clone, Default)]
pub struct Pipe(Rc<PipeState>);

impl Pipe {
    pub fn write(&self, bytes: &[u8]) {
        self.0.to_server.borrow_mut().extend(bytes);
        self.0.changed.notify_all();
    }

    /// What the server sent so far, taken.
    pub fn take(&self) -> Vec<u8> {
        self.0.to_client.take()
    }

    /// Bytes that the server sent and that were not taken yet.
    pub fn sent(&self) -> usize {
        self.0.to_client.borrow().len()
    }

    /// The client goes; what it sent before still arrives.
    pub fn close(&self) {
        self.0.client_closed.set(true);
        self.0.changed.notify_all();
    }

    /// Whether the client takes what the server sends.
    pub fn set_stuck(&self, is_stuck: bool) {
        self.0.client_stuck.set(is_stuck);
        self.0.changed.notify_all();
    }

    /// The client takes half of what comes next, and no more until it is told to.
    pub fn stick_half_way(&self) {
        self.0.sticks_half_way.set(true);
    }

    pub fn is_shut_down(&self) -> bool {
        self.0.shut_down.get()
    }

    pub fn unread(&self) -> usize {
        self.0.to_server.borrow().len()
    }
}

impl Transport for Pipe {
    async fn recv(&self, mut into: Lease) -> Result<(Lease, usize), NetError> {
        let state = &self.0;
        let count = state
            .changed
            .wait_for(|| {
                if state.shut_down.get() {
                    return Some(0);
                }
                let mut bytes = state.to_server.borrow_mut();
                let count = bytes.len().min(into.len());
                let (front, back) = bytes.as_slices();
                let split = count.min(front.len());
                into[..split].copy_from_slice(&front[..split]);
                into[split..count].copy_from_slice(&back[..count - split]);
                bytes.drain(..count);
                (count > 0 || state.client_closed.get()).then_some(count)
            })
            .await;
        Ok((into, count))
    }

    async fn recv_all(&self, into: ReadPieces) -> Result<ReadPieces, NetError> {
        let mut all = ReadPieces::new();
        for mut piece in into {
            while !piece.is_empty() {
                let (mut lease, count) = self.recv(piece).await?;
                if count == 0 {
                    return Err(NetError::Closed);
                }
                all.push(lease.split_to(count));
                piece = lease;
            }
        }
        Ok(all)
    }

    async fn send(&self, from: WritePieces) -> Result<(), NetError> {
        let state = &self.0;
        let is_open = state
            .changed
            .wait_for(|| {
                if state.shut_down.get() || state.client_closed.get() {
                    return Some(false);
                }
                (!state.client_stuck.get()).then_some(true)
            })
            .await;
        if !is_open {
            return Err(NetError::Closed);
        }
        for piece in from.iter() {
            state.to_client.borrow_mut().extend_from_slice(piece);
        }
        Ok(())
    }

    fn try_recv(&self, into: &mut [IoSliceMut<'_>]) -> Result<Option<usize>, NetError> {
        let state = &self.0;
        if state.shut_down.get() {
            return Ok(Some(0));
        }
        let mut bytes = state.to_server.borrow_mut();
        let mut count = 0;
        for slice in into {
            let part = bytes.len().min(slice.len());
            slice[..part].iter_mut().zip(bytes.drain(..part)).for_each(|(to, from)| *to = from);
            count += part;
        }
        Ok((count > 0 || state.client_closed.get()).then_some(count))
    }

    /// Takes a little less than all now and then, as a socket that is full.
    fn try_send(&self, from: &[IoSlice<'_>]) -> Result<usize, NetError> {
        let state = &self.0;
        if state.shut_down.get() || state.client_closed.get() {
            return Err(NetError::Closed);
        }
        if state.client_stuck.get() {
            return Ok(0);
        }
        let all: Vec<u8> = from.iter().flat_map(|slice| slice.to_vec()).collect();
        state.sends.set(state.sends.get() + 1);
        if state.sticks_half_way.take() {
            state.client_stuck.set(true);
            state.to_client.borrow_mut().extend_from_slice(&all[..all.len() / 2]);
            return Ok(all.len() / 2);
        }
        let count = if state.sends.get().is_multiple_of(8) { all.len() - all.len().min(100) } else { all.len() };
        state.to_client.borrow_mut().extend_from_slice(&all[..count]);
        Ok(count)
    }

    fn peer(&self) -> Peer {
        Peer::User(self.0.user.get())
    }

    fn is_hung_up(&self) -> bool {
        self.0.client_closed.get() || self.0.shut_down.get()
    }

    /// What is sent is taken at once, or not at all.
    fn unsent(&self) -> usize {
        0
    }

    fn shutdown(&self) {
        self.0.shut_down.set(true);
        self.0.changed.notify_all();
    }
}

/// One operation that reached the device: sectors for reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Read(u64, u64),
    Write(u64, u64, Fua),
    Flush,
    Discard(u64, u64),
    WriteZeroes(u64, u64),
    Allocation(u64, u64),
}

/// A device in memory that can be held up and made to fail.
pub struct Ram {
    geometry: Geometry,
    pub bytes: RefCell<Vec<u8>>,
    pub ops: RefCell<Vec<Op>>,
    pub failure: Cell<Option<ErrorKind>>,
    is_held: Cell<bool>,
    serves_reads: Cell<bool>,
    changed: Notify,
}

impl Ram {
    pub fn new(bytes: usize) -> Rc<Ram> {
        let geometry = Geometry {
            size: Sectors((bytes / 512) as u64),
            logical_block: Sectors(1),
            physical_block: Sectors(8),
            chunk: Sectors(128),
            stripe: Sectors(384),
            io_max: Sectors(1 << 20),
            segments_max: 1024,
            discard_granularity: Sectors(1),
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        };
        Rc::new(Ram {
            geometry,
            bytes: RefCell::new(vec![0; bytes]),
            ops: RefCell::default(),
            failure: Cell::new(None),
            is_held: Cell::new(false),
            serves_reads: Cell::new(false),
            changed: Notify::new(),
        })
    }

    /// While held, operations that began do not end.
    pub fn hold(&self, is_held: bool) {
        self.is_held.set(is_held);
        self.changed.notify_all();
    }

    /// The same, but reads end: as of a mirror of which one member does not answer.
    pub fn hold_all_but_reads(&self, is_held: bool) {
        self.serves_reads.set(is_held);
        self.hold(is_held);
    }

    async fn begin(&self, op: Op) -> Result<(), IoError> {
        self.ops.borrow_mut().push(op);
        let is_served = || !self.is_held.get() || (self.serves_reads.get() && matches!(op, Op::Read(..)));
        self.changed.wait_for(|| is_served().then_some(())).await;
        self.failure.get().map_or(Ok(()), |kind| Err(IoError { kind, os: 5 }))
    }

    fn span(&self, at: Sector, length: Sectors) -> std::ops::Range<usize> {
        let start = at.0 as usize * 512;
        let end = start + length.len_bytes();
        assert!(start < end && end <= self.bytes.borrow().len(), "a request outside of the device");
        start..end
    }
}

impl Device for Ram {
    fn geometry(&self) -> Geometry {
        Geometry { size: Sectors((self.bytes.borrow().len() / 512) as u64), ..self.geometry }
    }
    async fn read(&self, at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        let span = self.span(at, into.length());
        self.begin(Op::Read(at.0, into.length().0)).await?;
        into.copy_from(&self.bytes.borrow()[span]);
        Ok(into)
    }
    async fn write(&self, at: Sector, from: WritePieces, fua: Fua) -> Result<(), IoError> {
        let span = self.span(at, from.length());
        self.begin(Op::Write(at.0, from.length().0, fua)).await?;
        from.copy_to(&mut self.bytes.borrow_mut()[span]);
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.begin(Op::Flush).await
    }
    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.span(range.start, range.length);
        self.begin(Op::Discard(range.start.0, range.length.0)).await
    }
    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        let span = self.span(range.start, range.length);
        self.begin(Op::WriteZeroes(range.start.0, range.length.0)).await?;
        self.bytes.borrow_mut()[span].fill(0);
        Ok(())
    }
    /// Tells the truth in small stretches.
    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        let span = self.span(range.start, range.length);
        self.begin(Op::Allocation(range.start.0, range.length.0)).await?;
        let bytes = self.bytes.borrow();
        let is_zero = |sector: &[u8]| sector.iter().all(|&byte| byte == 0);
        let mut sectors = bytes[span].chunks(512).take(64).map(is_zero);
        let first = sectors.next().expect("the range is not empty");
        Ok(Allocation {
            length: Sectors(1 + sectors.take_while(|&state| state == first).count() as u64),
            is_zero: first,
        })
    }
}

pub type TestServer = Server<Bench, Pipe, Ram>;

/// A server of `ram` with these limits.
pub fn server(bench: &Bench, ram: &Rc<Ram>, limits: Limits) -> Rc<TestServer> {
    let export = Export { name: "md0".into(), description: "a test".into(), read_only: false };
    Server::new(bench.clone(), vec![(export, ram.clone())], limits)
}

/// A client that has just connected.
pub fn connect<D: Device + 'static>(bench: &Bench, server: &Rc<Server<Bench, Pipe, D>>) -> Pipe {
    connect_as(bench, server, 0)
}

/// The same, by this user.
pub fn connect_as<D: Device + 'static>(bench: &Bench, server: &Rc<Server<Bench, Pipe, D>>, user: u32) -> Pipe {
    let pipe = Pipe::default();
    pipe.0.user.set(user);
    let (server, transport) = (server.clone(), pipe.clone());
    bench.spawn(async move { server.serve(transport).await });
    bench.settle();
    pipe
}

/// The bytes with which a client chooses the export.
pub fn hello(structured: bool) -> Vec<u8> {
    hello_to("md0", structured)
}

/// The same for an export of another name.
pub fn hello_to(name: &str, structured: bool) -> Vec<u8> {
    let mut bytes = client_flags(HandshakeFlags::KNOWN).to_vec();
    if structured {
        bytes.extend(option(OptionCode::StructuredReply, &[]));
    }
    bytes.extend(option(OptionCode::Go, &ExportQuery { name, infos: vec![InfoKind::BlockSize] }.encode()));
    bytes
}

/// The same with extended headers and block status.
pub fn hello_extended() -> Vec<u8> {
    let contexts = MetaContextQuery { name: "md0", queries: vec![BASE_ALLOCATION] }.encode();
    let mut bytes = client_flags(HandshakeFlags::KNOWN).to_vec();
    bytes.extend(option(OptionCode::ExtendedHeaders, &[]));
    bytes.extend(option(OptionCode::SetMetaContext, &contexts));
    bytes.extend(option(OptionCode::Go, &ExportQuery { name: "md0", infos: vec![] }.encode()));
    bytes
}

/// A request with extended headers, and its payload.
pub fn ask_extended(command: Command, flags: CommandFlags, offset: u64, length: u64, payload: &[u8]) -> Vec<u8> {
    let request = Request { flags, command, cookie: Cookie(offset ^ length), offset, length };
    [&request.encode_extended()[..], payload].concat()
}

/// A client after its handshake.
pub fn ready<D: Device + 'static>(bench: &Bench, server: &Rc<Server<Bench, Pipe, D>>, structured: bool) -> Pipe {
    ready_as(bench, server, structured, 0)
}

/// The same, by this user.
pub fn ready_as<D: Device + 'static>(
    bench: &Bench,
    server: &Rc<Server<Bench, Pipe, D>>,
    structured: bool,
    user: u32,
) -> Pipe {
    let pipe = connect_as(bench, server, user);
    pipe.write(&hello(structured));
    bench.settle();
    assert!(pipe.take().len() > 100);
    pipe
}

/// A request without payload.
pub fn ask(command: Command, flags: CommandFlags, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    Request { flags, command, cookie: Cookie(cookie), offset, length: length.into() }.encode().to_vec()
}

/// A write with its payload.
pub fn write(cookie: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ask(Command::Write, CommandFlags::NONE, cookie, offset, payload.len() as u32);
    bytes.extend_from_slice(payload);
    bytes
}

/// A reply as a client understands it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    pub cookie: u64,
    pub result: Result<Vec<u8>, (ErrorCode, String)>,
}

/// All replies in `bytes`. `read_bytes` says how much data a successful simple reply carries, by its cookie.
pub fn answers(bytes: &[u8], read_bytes: impl Fn(u64) -> usize) -> Vec<Answer> {
    let mut list = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (header, used) = ReplyHeader::parse(rest).expect("a good header").expect("a whole header");
        rest = &rest[used..];
        let (cookie, length) = match header {
            ReplyHeader::Simple(reply) => {
                (reply.cookie.0, if reply.result.is_ok() { read_bytes(reply.cookie.0) } else { 0 })
            }
            ReplyHeader::Chunk(chunk) => {
                assert!(chunk.is_last);
                (chunk.cookie.0, chunk.length as usize)
            }
        };
        let (payload, behind) = rest.split_at(length);
        rest = behind;
        let result = match header {
            ReplyHeader::Simple(reply) => match reply.result {
                Ok(()) => Ok(payload.to_vec()),
                Err(error) => Err((error, String::new())),
            },
            ReplyHeader::Chunk(chunk) => match Chunk::parse(chunk.kind, payload).expect("a good chunk") {
                Chunk::OffsetData { data, .. } => Ok(data.to_vec()),
                Chunk::None => Ok(Vec::new()),
                Chunk::Error { error, text, .. } => Err((error, text.to_string())),
                Chunk::OffsetHole { .. } => panic!("no holes are sent"),
            },
        };
        assert!(!matches!(header, ReplyHeader::Chunk(chunk) if chunk.kind == ChunkKind::None));
        list.push(Answer { cookie, result });
    }
    list
}
