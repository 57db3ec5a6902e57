//! The server on the real machine: a unix socket, shards, a member in memory, clients in their own threads.
//! Owns: that host and server fit together. Not here: rules that the bench of `session.rs` and `hostile.rs` can show.

use crate::common::{answers, ask, hello, write};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uraid_export_nbd::{Export, Limits, Server, Spread, Statistics};
use uraid_host::{Access, ArenaBlocks, CLIENT_ARENA, Claimed, Listener, Options, RingChoice, Shard};
use uraid_nbd::{Command, CommandFlags};

const PLAIN: CommandFlags = CommandFlags::NONE;
const MIB: usize = 1 << 20;
const SOCKET_TIMEOUT: Duration = Duration::from_secs(20);

/// A client after its handshake, blocking.
struct Client(UnixStream);

impl Client {
    fn new(path: &Path) -> Client {
        let mut stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(SOCKET_TIMEOUT)).expect("a timeout can be set");
        stream.set_write_timeout(Some(SOCKET_TIMEOUT)).expect("a timeout can be set");
        stream.write_all(&hello(false)).expect("sent");
        // Greeting, then Info export, Info block size, Ack.
        let mut answer = [0; 18 + 32 + 34 + 20];
        stream.read_exact(&mut answer).expect("the handshake is answered");
        Client(stream)
    }

    fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.0.write_all(&ask(Command::Read, PLAIN, 7, offset, length as u32)).expect("sent");
        let mut answer = vec![0; 16 + length];
        self.0.read_exact(&mut answer).expect("the read is answered");
        answers(&answer, |_| length).remove(0).result.expect("the read succeeds")
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.0.write_all(&write(8, offset, data)).expect("sent");
        self.done();
    }

    fn done(&mut self) {
        let mut answer = [0; 16];
        self.0.read_exact(&mut answer).expect("an answer");
        assert!(answers(&answer, |_| 0)[0].result.is_ok());
    }
}

async fn serve(
    shard: Shard<OwnedFd>,
    listener: Listener,
    member: Claimed,
    spread: Arc<Spread>,
    end: Arc<AtomicBool>,
) -> (Statistics, usize) {
    let local = (*shard).clone();
    let export = Export { name: "md0".into(), description: String::new(), read_only: false };
    let server = Server::new(local.clone(), vec![(export, Rc::new(member.on_shard(&local)))], Limits::default());
    let (adopting, shared) = (server.clone(), spread.clone());
    shard.on_mail(move |socket| adopting.adopt(socket, shared.clone()));
    if shard.index().0 == 0 {
        let post = shard.clone();
        local.spawn(server.clone().listen(listener, spread, move |to, socket| post.post(to, socket)));
    }
    while !end.load(Ordering::Relaxed) {
        local.sleep(Duration::from_millis(5)).await;
    }
    let left = server.stop(Duration::from_secs(4)).await;
    (server.statistics(), left)
}

/// Serves 64 MiB of memory on this many shards while `clients` runs; returns the counts of each shard.
fn with_server(name: &str, shards: u16, ring: RingChoice, clients: impl FnOnce(&Path) + Send) -> Vec<Statistics> {
    let directory = std::env::temp_dir().join(format!("uraid-nbd-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory can be made");
    let path: PathBuf = directory.join("socket");
    let listener = Listener::unix(&path, 0o600).expect("the socket can be made");
    let member = Claimed::open("mem:64M", Access::ReadWrite).expect("memory");
    let (spread, end) = (Spread::new(shards), Arc::new(AtomicBool::new(false)));
    let mut options = Options { ring, ..Options::default() };
    options.arenas = [ArenaBlocks { small: 16, large: 2 }; 5];
    options.arenas[CLIENT_ARENA] = ArenaBlocks { small: 256, large: 128 };
    let counted = std::thread::scope(|scope| {
        let asked = end.clone();
        let (listener, spread, options) = (&listener, &spread, &options);
        let server = scope.spawn(move || {
            uraid_host::run(shards, options, |shard| {
                serve(shard, listener.clone(), member.clone(), spread.clone(), asked.clone())
            })
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clients(&path)));
        end.store(true, Ordering::Relaxed);
        let began = Instant::now();
        let counted = server.join().expect("the server ends");
        assert!(began.elapsed() < Duration::from_secs(5), "stopping took {:?}", began.elapsed());
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
        counted
    });
    std::fs::remove_dir_all(&directory).expect("the directory can be removed");
    assert!(counted.iter().all(|(_, left)| *left == 0));
    counted.into_iter().map(|(statistics, _)| statistics).collect()
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n.wrapping_mul(31) ^ (n >> 9) ^ seed.wrapping_mul(97)) as u8).collect()
}

fn writes_are_read_on_other_connections(name: &str, shards: u16, ring: RingChoice) {
    let counted = with_server(name, shards, ring, |path| {
        let mut writer = Client::new(path);
        let mut reader = Client::new(path);
        for (n, bytes) in [512, 4096, 60_000 / 512 * 512, 100 << 10, MIB, 4 * MIB].into_iter().enumerate() {
            let offset = (n * 8 * MIB) as u64;
            writer.write(offset, &pattern(n, bytes));
            assert!(reader.read(offset, bytes) == pattern(n, bytes), "{bytes} bytes");
        }
        // A deep pipeline: writes, a flush, reads, all sent at once by one thread while another takes the replies.
        let mut sender = writer.0.try_clone().expect("a socket can be cloned");
        let wanted: Vec<u8> = (0..500).flat_map(|n| pattern(n, 4096)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (n, data) in wanted.chunks(4096).enumerate() {
                    sender.write_all(&write(n as u64, n as u64 * 4096, data)).expect("sent");
                }
            });
            for _ in 0..500 {
                writer.done();
            }
        });
        writer.0.write_all(&ask(Command::Flush, PLAIN, 1, 0, 0)).expect("sent");
        writer.done();
        assert!(reader.read(0, 500 * 4096) == wanted);
        writer.0.write_all(&ask(Command::Disconnect, PLAIN, 1, 0, 0)).expect("sent");
        assert_eq!(writer.0.read(&mut [0; 1]).expect("closed"), 0);
    });
    let busy = counted.iter().filter(|shard| shard.connections > 0).count();
    assert_eq!(busy, usize::from(shards.min(2)), "each client is on a shard of its own");
    assert_eq!(counted.iter().map(|shard| shard.writes).sum::<u64>(), 506);
}

#[test]
fn writes_are_read_on_other_connections_of_one_shard() {
    writes_are_read_on_other_connections("one", 1, RingChoice::Auto);
}

#[test]
fn writes_are_read_on_other_connections_of_other_shards() {
    writes_are_read_on_other_connections("two", 2, RingChoice::Auto);
}

#[test]
fn writes_are_read_without_io_uring() {
    writes_are_read_on_other_connections("threads", 1, RingChoice::Threads);
}

#[test]
fn clients_that_vanish_harm_no_other_client() {
    let counted = with_server("vanish", 2, RingChoice::Auto, |path| {
        let mut good = Client::new(path);
        good.write(0, &pattern(1, MIB));
        for n in 0..60 {
            let mut bad = Client::new(path);
            let bytes = match n % 4 {
                0 => write(1, 0, &[0xee; 300 << 10])[..200 << 10].to_vec(),
                1 => (0..100).flat_map(|n| ask(Command::Read, PLAIN, n, 0, 1 << 20)).collect(),
                2 => b"not a request, but twenty-eight bytes and more".to_vec(),
                _ => write(1, 0, &[0xee; 4096])[..4000].to_vec(),
            };
            bad.0.write_all(&bytes).expect("sent");
        }
        // Connections that say nothing, as a port scanner's.
        let silent: Vec<UnixStream> = (0..50).map(|_| UnixStream::connect(path).expect("the server listens")).collect();
        assert!(good.read(0, MIB) == pattern(1, MIB));
        drop(silent);
        good.write(0, &pattern(2, 4096));
        // One that never takes its replies, and is there when the server stops.
        let mut stuck = Client::new(path);
        stuck
            .0
            .write_all(&(0..60).flat_map(|n| ask(Command::Read, PLAIN, n, 0, 1 << 20)).collect::<Vec<u8>>())
            .expect("sent");
        std::mem::forget(stuck);
    });
    assert_eq!(counted.iter().map(|shard| shard.writes).sum::<u64>(), 2, "no part of a payload was written");
    assert!(counted.iter().map(|shard| shard.broken).sum::<u64>() >= 45);
}
