//! Trims and write-zeroes that cover all of a device: they run in pieces, and end early when their client has gone.
//! Owns: what one such request does on a device of the bench, and an attack over a real socket on a slow device.
//! Invariant: no test waits for what such an attack would take, which is hours.

use crate::common::*;
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use uraid_block::local::Semaphore;
use uraid_block::{Allocation, Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, WritePieces};
use uraid_export_nbd::{Export, Limits, Machine, Server, Spread};
use uraid_host::{Listener, Local, Options, Shard};
use uraid_nbd::{Command, CommandFlags, ErrorCode};

const PLAIN: CommandFlags = CommandFlags::NONE;
const FUA: CommandFlags = CommandFlags::FUA;
const MIB: usize = 1 << 20;
/// Sectors of the longest piece of zeroes.
const PIECE: u64 = 8192;

/// Start and length of each piece that reached the device, and whether a flush came last.
fn cleared(ram: &Ram) -> (Vec<(u64, u64)>, bool) {
    let ops = ram.ops.take();
    let pieces = ops.iter().filter_map(|op| match *op {
        Op::Discard(at, length) | Op::WriteZeroes(at, length) => Some((at, length)),
        Op::Read(..) | Op::Write(..) | Op::Flush | Op::Allocation(..) => None,
    });
    (pieces.collect(), ops.last() == Some(&Op::Flush))
}

#[test]
fn a_long_request_is_pieces_on_stripe_edges_with_a_flush_behind_the_last_for_fua() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, false);
    for (command, longest) in [(Command::WriteZeroes, PIECE), (Command::Trim, u64::MAX)] {
        pipe.write(&ask(command, FUA, 1, 512, 60 << 20));
        bench.settle();
        assert!(answers(&pipe.take(), |_| 0)[0].result.is_ok());
        let (pieces, is_flushed) = cleared(&ram);
        assert!(is_flushed);
        let mut at = 1;
        for &(start, length) in &pieces {
            assert_eq!(start, at);
            assert!(length <= longest);
            at += length;
        }
        assert_eq!(at, 1 + (60 << 11));
        assert_eq!(pieces.len() > 1, command == Command::WriteZeroes, "a trim moves no data: {pieces:?}");
        // A stripe of the device is 384 sectors.
        assert!(pieces[1..].iter().all(|(start, _)| start % 384 == 0), "{pieces:?}");
    }
}

#[test]
fn trims_that_arrive_together_and_are_neighbours_reach_the_device_as_one() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, false);
    const LENGTH: u64 = 64 << 10;
    let sent = |requests: &[(Command, CommandFlags, u64)]| {
        let bytes: Vec<u8> = (1..)
            .zip(requests)
            .flat_map(|(n, (command, flags, at))| ask(*command, *flags, n, *at * LENGTH, LENGTH as u32))
            .collect();
        pipe.write(&bytes);
        bench.settle();
        let answers = answers(&pipe.take(), |_| 0);
        assert!(answers.iter().all(|answer| answer.result.is_ok()));
        assert_eq!(answers.len(), requests.len(), "each has its answer");
        cleared(&ram)
    };
    let trims = |places: &[u64]| places.iter().map(|at| (Command::Trim, PLAIN, *at)).collect::<Vec<_>>();
    // In units of 64 KiB, 128 sectors.
    assert_eq!(sent(&trims(&[5, 6, 7, 8])), (vec![(640, 512)], false));
    let (pieces, _) = sent(&trims(&[0, 2, 3, 5, 4]));
    assert_eq!(pieces, [(0, 128), (256, 256), (640, 128), (512, 128)], "only what follows its neighbour");
    let zeroes = (Command::WriteZeroes, PLAIN, 6);
    let (pieces, _) = sent(&[trims(&[4, 5]), vec![zeroes], trims(&[7, 8])].concat());
    assert_eq!(pieces, [(512, 256), (768, 128), (896, 256)], "zeroes are no hint");
    // All that the client may have in flight, more than tasks may run.
    let all: Vec<u64> = (0..128).collect();
    assert_eq!(sent(&trims(&all)), (vec![(0, 128 * 128)], false));
    let durable = [(Command::Trim, PLAIN, 1), (Command::Trim, FUA, 2), (Command::Trim, PLAIN, 3)];
    assert_eq!(sent(&durable), (vec![(128, 384)], true), "one flush, before the answers");
}

/// Requests of which the device fails: each has its error, and what lies behind the piece is still done.
#[test]
fn a_group_of_trims_that_fails_is_answered_with_errors() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, false);
    ram.failure.set(Some(uraid_block::ErrorKind::TooManyLost));
    let bytes: Vec<u8> = (0..8).flat_map(|n| ask(Command::Trim, PLAIN, n, n << 16, 1 << 16)).collect();
    pipe.write(&bytes);
    bench.settle();
    let answers = answers(&pipe.take(), |_| 0);
    assert!(answers.len() == 8 && answers.iter().all(|answer| answer.result.is_err()), "{answers:?}");
    assert_eq!(server.requests_running(), 0);
}

#[test]
fn long_requests_of_one_connection_take_turns_and_those_of_others_do_not_wait_for_them() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let (greedy, other) = (ready(&bench, &server, false), ready(&bench, &server, false));
    ram.hold(true);
    for cookie in 0..128 {
        greedy.write(&ask(Command::WriteZeroes, PLAIN, cookie, 0, 64 << 20));
    }
    bench.settle();
    assert_eq!(ram.ops.borrow().len(), 2, "of 128 requests");
    other.write(&ask(Command::WriteZeroes, PLAIN, 1, 0, 64 << 20));
    bench.settle();
    assert_eq!(ram.ops.borrow().len(), 3);
    ram.hold(false);
    bench.settle();
    assert_eq!(answers(&greedy.take(), |_| 0).len(), 128);
    assert_eq!(answers(&other.take(), |_| 0).len(), 1);
}

#[test]
fn requests_that_wait_cost_no_task_each_and_all_are_answered_in_the_end() {
    for length in [4096, 64 << 20] {
        let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
        let server = server(&bench, &ram, Limits::default());
        let pipes: Vec<Pipe> = (0..100).map(|_| ready(&bench, &server, false)).collect();
        let before = bench.tasks();
        ram.hold(true);
        for pipe in &pipes {
            (0..128).for_each(|cookie| pipe.write(&ask(Command::WriteZeroes, PLAIN, cookie, 0, length)));
        }
        bench.settle();
        let more = bench.tasks() - before;
        println!("12,800 requests of {length} bytes that wait: {more} tasks");
        assert_eq!(server.requests_running(), 12_800);
        assert!((2..=32).contains(&more), "{more} tasks more");
        // Half of the clients go, which ends what they have waiting; a piece that runs ends first.
        pipes[..50].iter().for_each(Pipe::close);
        bench.settle();
        assert!(server.requests_running() <= 50 * 128 + 32);
        if length > 4096 {
            pipes[50..].iter().for_each(Pipe::close);
        }
        ram.hold(false);
        bench.settle();
        assert_eq!((server.requests_running(), server.connections()), (0, if length > 4096 { 0 } else { 50 }));
        assert!(length > 4096 || pipes[50..].iter().all(|pipe| answers(&pipe.take(), |_| 0).len() == 128));
    }
}

/// The same of flushes, which hold no memory either.
#[test]
fn flushes_that_wait_share_tasks_and_all_are_answered_in_the_end() {
    let limits = Limits { connections_max: 100, ..Limits::default() };
    assert_eq!(
        [32, 100, 4096].map(|connections_max| Limits { connections_max, ..limits.clone() }.tasks_max()),
        [4096, 4096, 16_384]
    );
    let (bench, ram) = (Bench::new(64, 16), Ram::new(MIB));
    let server = server(&bench, &ram, limits.clone());
    let pipes: Vec<Pipe> = (0..100).map(|_| ready(&bench, &server, false)).collect();
    let before = bench.tasks();
    ram.hold(true);
    for pipe in &pipes {
        (0..128).for_each(|cookie| pipe.write(&ask(Command::Flush, PLAIN, cookie, 0, 0)));
    }
    bench.settle();
    let more = bench.tasks() - before;
    println!("12,800 flushes that wait: {more} tasks");
    assert_eq!((server.requests_running(), more <= limits.tasks_max()), (12_800, true), "{more} tasks more");
    ram.hold(false);
    bench.settle();
    assert_eq!((server.requests_running(), server.connections()), (0, 100));
    assert!(pipes.iter().all(|pipe| answers(&pipe.take(), |_| 0).len() == 128));
}

/// A device of which each piece of zeroes takes 10 ms, and the rest nothing.
struct Slow {
    ram: Rc<Ram>,
    bench: Bench,
    pieces: Cell<usize>,
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }
    async fn read(&self, at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.ram.read(at, into).await
    }
    async fn write(&self, _at: Sector, _from: WritePieces, _fua: Fua) -> Result<(), IoError> {
        panic!("not asked for")
    }
    async fn flush(&self) -> Result<(), IoError> {
        panic!("not asked for")
    }
    async fn discard(&self, _range: Range) -> Result<(), IoError> {
        panic!("not asked for")
    }
    async fn write_zeroes(&self, _range: Range) -> Result<(), IoError> {
        self.pieces.set(self.pieces.get() + 1);
        self.bench.sleep(Duration::from_millis(10)).await;
        Ok(())
    }
    async fn allocation(&self, _range: Range) -> Result<Allocation, IoError> {
        panic!("not asked for")
    }
}

#[test]
fn pieces_take_a_24th_of_the_time_while_another_client_reads() {
    let bench = Bench::new(64, 16);
    let device = Rc::new(Slow { ram: Ram::new(64 * MIB), bench: bench.clone(), pieces: Cell::new(0) });
    let export = Export { name: "md0".into(), description: String::new(), read_only: false };
    let server = Server::new(bench.clone(), vec![(export, device.clone())], Limits::default());
    let open = || ready(&bench, &server, false);
    let (all, good) = ([open(), open(), open(), open()], open());
    for pipe in &all {
        (0..100).for_each(|cookie| pipe.write(&ask(Command::WriteZeroes, PLAIN, cookie, 0, 64 << 20)));
    }
    let pieces = |reads: bool| {
        let before = device.pieces.get();
        for _ in 0..320 {
            if reads {
                good.write(&ask(Command::Read, PLAIN, 1, 0, 512));
            }
            bench.pass(Duration::from_millis(5));
        }
        device.pieces.get() - before
    };
    // In 1.6 s: two requests of each client at a time, or one piece in 240 ms.
    assert!(pieces(false) >= 8 * 160);
    let beside = pieces(true);
    assert!((5..=9).contains(&beside), "{beside} pieces");
    assert_eq!(answers(&good.take(), |_| 512).len(), 320);
    // Each of the eight ends the pause that it has waited for.
    pieces(false);
    assert!(pieces(false) >= 8 * 160);
}

/// Clients of all exports of a device take turns beside its readers.
#[test]
fn a_piece_that_hangs_keeps_its_turn_for_a_second() {
    for length in [4096, MIB as u32] {
        let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
        let export = |name: &str| Export { name: name.into(), description: String::new(), read_only: false };
        let exports = vec![(export("md0"), ram.clone()), (export("md1"), ram.clone())];
        let server = Server::new(bench.clone(), exports, Limits::default());
        let (reader, one, other) =
            (ready(&bench, &server, false), ready(&bench, &server, false), connect(&bench, &server));
        other.write(&hello_to("md1", false));
        bench.settle();
        other.take();
        ram.hold(true);
        reader.write(&ask(Command::Read, PLAIN, 1, 0, 512));
        bench.settle();
        [&one, &other].into_iter().for_each(|pipe| pipe.write(&ask(Command::WriteZeroes, PLAIN, 1, 0, length)));
        let pieces = |time: Duration| {
            bench.pass(time);
            ram.ops.borrow().iter().filter(|op| matches!(op, Op::WriteZeroes(..))).count()
        };
        assert_eq!(pieces(Duration::from_millis(999)), 1, "pieces of {length} take turns");
        assert_eq!(pieces(Duration::from_millis(2)), 2, "the next one goes on");
        ram.hold(false);
        bench.pass(Duration::from_secs(1));
        assert!([one, other].iter().all(|pipe| answers(&pipe.take(), |_| 0)[0].result.is_ok()));
    }
}

/// On a device that answers at once, so that a piece takes its turn of the thread.
#[test]
fn a_read_does_not_wait_behind_the_zeroes_that_wait_for_others() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let good = ready(&bench, &server, false);
    let zeroers: Vec<Pipe> = (0..4).map(|_| ready(&bench, &server, false)).collect();
    for pipe in &zeroers {
        (0..100).for_each(|cookie| pipe.write(&ask(Command::WriteZeroes, PLAIN, cookie, 0, 64 << 20)));
    }
    good.write(&ask(Command::Read, PLAIN, 1, 0, 512));
    bench.settle();
    let ops = ram.ops.borrow();
    let before = ops.iter().position(|op| matches!(op, Op::Read(..))).expect("it was read");
    assert!(before <= 100, "{before} pieces of {}", ops.len());
}

#[test]
fn long_requests_end_at_a_piece_when_their_client_has_gone() {
    // 300: more than may be in flight, so that the server does not read up to the end.
    for requests in [1, 2, 128, 300] {
        for command in [Command::WriteZeroes, Command::Trim] {
            let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
            let server = server(&bench, &ram, Limits::default());
            let pipe = ready(&bench, &server, false);
            ram.hold(true);
            for cookie in 0..requests {
                pipe.write(&ask(command, PLAIN, cookie, 0, 64 << 20));
            }
            bench.settle();
            pipe.close();
            bench.settle();
            ram.hold(false);
            bench.settle();
            assert!(ram.ops.borrow().len() <= 2, "{requests}: {:?}", ram.ops.borrow());
            assert_eq!((server.connections(), server.requests_running()), (0, 0));
        }
    }
}

#[test]
fn a_client_that_disconnects_by_the_protocol_gets_its_long_requests_done() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, false);
    pipe.write(&ask(Command::WriteZeroes, PLAIN, 1, 0, 64 << 20));
    pipe.write(&ask(Command::Disconnect, PLAIN, 2, 0, 0));
    bench.settle();
    assert!(answers(&pipe.take(), |_| 0)[0].result.is_ok());
    assert_eq!(cleared(&ram).0.iter().map(|(_, length)| length).sum::<u64>(), 64 << 11);
}

#[test]
fn a_stop_ends_long_requests_at_a_piece_and_says_so() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(64 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, false);
    ram.hold(true);
    for cookie in 0..20 {
        pipe.write(&ask(Command::WriteZeroes, PLAIN, cookie, 0, 64 << 20));
    }
    bench.settle();
    let stopping = server.clone();
    bench.spawn(async move {
        stopping.stop(Duration::from_secs(20)).await;
    });
    bench.settle();
    ram.hold(false);
    bench.settle();
    assert_eq!((ram.ops.borrow().len(), server.requests_running(), server.connections()), (2, 0, 0));
    let refused = answers(&pipe.take(), |_| 0);
    assert_eq!(refused.len(), 20);
    assert!(refused.iter().all(|answer| matches!(answer.result, Err((ErrorCode::Shutdown, _)))));
}

/// A disk that writes 100 MB a second, trims ten times as much, and does one request after the other.
struct SlowDisk<M> {
    machine: M,
    geometry: Geometry,
    lane: Rc<Semaphore>,
    busy: Cell<usize>,
    /// How many bytes it was asked for, a trim as a tenth.
    bytes: Cell<u64>,
}

impl<M: Machine> SlowDisk<M> {
    async fn take(&self, bytes: u64) -> Result<(), IoError> {
        self.busy.set(self.busy.get() + 1);
        let _turn = self.lane.acquire(1).await;
        self.bytes.set(self.bytes.get() + bytes);
        self.machine.sleep(Duration::from_nanos(10 * bytes)).await;
        self.busy.set(self.busy.get() - 1);
        Ok(())
    }
}

impl<M: Machine> Device for SlowDisk<M> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }
    async fn read(&self, _at: Sector, into: ReadPieces) -> Result<ReadPieces, IoError> {
        self.take(into.length().bytes()).await.map(|()| into)
    }
    async fn write(&self, _at: Sector, from: WritePieces, _fua: Fua) -> Result<(), IoError> {
        self.take(from.length().bytes()).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.take(0).await
    }
    async fn discard(&self, range: Range) -> Result<(), IoError> {
        self.take(range.length.bytes() / 10).await
    }
    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.take(range.length.bytes()).await
    }
    async fn allocation(&self, range: Range) -> Result<Allocation, IoError> {
        Ok(Allocation { length: range.length, is_zero: false })
    }
}

/// Reads of 4 KiB in half a second by one client at depth 1, beside `zeroers` that zero `length` bytes at a time, and the
/// bytes that the disk zeroed meanwhile.
fn reads_beside(zeroers: usize, length: u32) -> (usize, u64) {
    let bench = Bench::new(64, 16);
    let disk = Rc::new(slow_disk(bench.clone()));
    let export = Export { name: "md0".into(), description: String::new(), read_only: false };
    let server = Server::new(bench.clone(), vec![(export, disk.clone())], Limits::default());
    let open = || ready(&bench, &server, false);
    let (good, others): (Pipe, Vec<Pipe>) = (open(), (0..zeroers).map(|_| open()).collect());
    for pipe in &others {
        (0..1000).for_each(|cookie| pipe.write(&ask(Command::WriteZeroes, PLAIN, cookie, 0, length)));
    }
    let count = |time: Duration| {
        let (end, before) = (bench.now() + time, disk.bytes.get());
        let mut reads = 0;
        while bench.now() < end {
            good.write(&ask(Command::Read, PLAIN, 1, 8 << 30, 4096));
            while good.sent() < 16 + 4096 && bench.now() < end {
                bench.pass(Duration::from_micros(41));
            }
            reads += usize::from(good.take().len() == 16 + 4096);
        }
        (reads, disk.bytes.get() - before - 4096 * reads as u64)
    };
    // What was begun before the first read came, and the longest pause after it.
    count(Duration::from_millis(1100));
    count(Duration::from_millis(500))
}

#[test]
fn a_client_at_depth_1_keeps_its_share_beside_32_zeroers() {
    let (alone, _) = reads_beside(0, 0);
    assert!(alone > 12_000, "41 us each: {alone}");
    for (zeroers, length, least) in [(32, u32::MAX - 511, 0.9), (32, 64 << 10, 0.6)] {
        let (reads, zeroed) = reads_beside(zeroers, length);
        println!("beside {zeroers} that zero {length} at a time: {reads} of {alone} reads, {zeroed} bytes zeroed");
        assert!(reads as f64 >= least * alone as f64, "{reads} of {alone} beside {zeroers} of {length}");
        assert!(zeroed >= MIB as u64, "zeroes go on");
    }
}

/// A client after its handshake.
fn client(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    stream.write_all(&hello(false)).expect("sent");
    let mut answer = [0; 18 + 32 + 34 + 20];
    stream.read_exact(&mut answer).expect("the handshake is answered");
    stream
}

/// 128 requests in 3,584 bytes, which together take the disk 1.5 hours, or 9 minutes.
fn flood(path: &Path, command: Command) -> UnixStream {
    let mut stream = client(path);
    let bytes: Vec<u8> = (0..128).flat_map(|cookie| ask(command, PLAIN, cookie, 0, u32::MAX - 511)).collect();
    assert_eq!(bytes.len(), 3584);
    stream.write_all(&bytes).expect("sent");
    stream
}

fn write_one_sector(stream: &mut UnixStream) {
    stream.write_all(&write(9, 8 << 30, &[7; 512])).expect("sent");
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).expect("the write is answered beside the flood");
    assert!(answers(&answer, |_| 0)[0].result.is_ok());
}

fn slow_disk<M: Machine>(machine: M) -> SlowDisk<M> {
    let geometry = Geometry {
        size: Sectors(64 << 21),
        logical_block: Sectors(1),
        physical_block: Sectors(8),
        chunk: Sectors(128),
        stripe: Sectors(384),
        io_max: Sectors(1 << 16),
        segments_max: 1024,
        discard_granularity: Sectors(1),
        fast_holes: false,
        fast_zeroes: false,
        volatile_cache: true,
    };
    SlowDisk { machine, geometry, lane: Semaphore::new(1), busy: Cell::new(0), bytes: Cell::new(0) }
}

async fn serve(shard: Shard<()>, listener: Listener, state: &State) -> usize {
    let local: Local = (*shard).clone();
    let disk = slow_disk(local.clone());
    let export = Export { name: "md0".into(), description: String::new(), read_only: false };
    let server = Server::new(local.clone(), vec![(export, Rc::new(disk))], Limits::default());
    local.spawn(server.clone().listen(listener, Spread::new(1), |_, _| panic!("there is one shard")));
    while !state.end.load(Ordering::Relaxed) {
        state.running.store(server.requests_running(), Ordering::Relaxed);
        local.sleep(Duration::from_millis(5)).await;
    }
    server.stop(Duration::from_secs(30)).await
}

#[derive(Default)]
struct State {
    end: AtomicBool,
    running: AtomicUsize,
}

/// Serves the slow disk while `attack` runs, then stops; gives how many requests the disk has after 30 seconds.
fn with_slow_disk(name: &str, attack: impl FnOnce(&Path, &State)) -> usize {
    let path = std::env::temp_dir().join(format!("uraid-clearing-{name}-{}", std::process::id()));
    let listener = Listener::unix(&path, 0o600).expect("the socket can be made");
    let state = State::default();
    std::thread::scope(|scope| {
        let state = &state;
        let server =
            scope.spawn(move || uraid_host::run(1, &Options::default(), |shard| serve(shard, listener.clone(), state)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| attack(&path, state)));
        state.end.store(true, Ordering::Relaxed);
        let left = server.join().expect("the server ends")[0];
        outcome.map(|()| left).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_flood_of_long_requests_delays_no_write_of_another_client_and_no_stop() {
    for command in [Command::WriteZeroes, Command::Trim] {
        let mut floods = Vec::new();
        let left = with_slow_disk("flood", |path, _| {
            let mut victim = client(path);
            write_one_sector(&mut victim);
            floods.extend((0..4).map(|_| flood(path, command)));
            for _ in 0..5 {
                write_one_sector(&mut victim);
            }
        });
        assert_eq!(left, 0, "requests at the end of the stop, with four clients that flood: {command:?}");
        for mut stream in floods {
            let mut replies = Vec::new();
            stream.read_to_end(&mut replies).expect("the server has closed");
            let replies = answers(&replies, |_| 0);
            assert_eq!(replies.len(), 128);
            assert!(replies.iter().all(|answer| matches!(answer.result, Err((ErrorCode::Shutdown, _)))));
        }
    }
}

#[test]
fn a_flood_ends_with_its_client() {
    let left = with_slow_disk("gone", |path, state| {
        let mut victim = client(path);
        let flood = flood(path, Command::WriteZeroes);
        while state.running.load(Ordering::Relaxed) < 128 {
            write_one_sector(&mut victim);
        }
        drop(flood);
        // Bounded by the victim's writes, each of which waits behind what is left of the flood.
        let mut writes = 0;
        while state.running.load(Ordering::Relaxed) > 1 {
            write_one_sector(&mut victim);
            writes += 1;
            assert!(writes < 1000, "requests of a client that has gone go on");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(left, 0);
}
