//! Requests that come in batches cost no allocation each: counted on the shard's own thread, over a real socket.

#[path = "../../block/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uraid_export_nbd::{Export, Limits, Server};
use uraid_host::{Access, Claimed, Options, Shard, Stream};
use uraid_nbd::handshake::{GREETING_BYTES, client_flags, option};
use uraid_nbd::transmission::SIMPLE_REPLY_BYTES;
use uraid_nbd::{Command, CommandFlags, Cookie, ExportQuery, HandshakeFlags, OptionCode, Request};

const DEPTH: u64 = 32;
const BATCHES: u64 = 500;
const BYTES: usize = 4096;
/// A few lists of those who wait are made anew for each batch, and the server's clock ticks meanwhile.
const ALLOCATIONS_PER_BATCH_MAX: u64 = 6;

/// Where the client is: in its warm-up, waiting for the count to begin, being counted, done.
static STEP: AtomicU32 = AtomicU32::new(0);

/// Serves one client; gives how often the shard's thread has allocated while it was counted.
async fn serve(shard: Shard<()>, member: Claimed, client: &Mutex<Option<UnixStream>>) -> u64 {
    let local = (*shard).clone();
    let export = Export { name: "md0".into(), description: String::new(), read_only: false };
    let server = Server::new(local.clone(), vec![(export, Rc::new(member.on_shard(&local)))], Limits::default());
    let socket = client.lock().expect("no thread panics while it holds the lock").take().expect("there is one");
    let stream = Stream::from_raw(&local, socket.into());
    let serving = server.clone();
    local.spawn(async move { serving.serve(stream).await });
    let mut before = 0;
    loop {
        local.sleep(Duration::from_millis(5)).await;
        match STEP.load(Ordering::SeqCst) {
            1 => {
                before = allocations();
                STEP.store(2, Ordering::SeqCst);
            }
            3 => break,
            _ => {}
        }
    }
    let counted = allocations() - before;
    server.stop(Duration::from_secs(4)).await;
    counted
}

fn batch(stream: &mut UnixStream, command: Command) {
    let mut requests = Vec::new();
    for n in 0..DEPTH {
        let offset = n * 37 % 256 * BYTES as u64;
        let request = Request { flags: CommandFlags::NONE, command, cookie: Cookie(n), offset, length: BYTES as u64 };
        requests.extend(request.encode());
        requests.extend(std::iter::repeat_n(7, if command == Command::Write { BYTES } else { 0 }));
    }
    let data = if command == Command::Read { BYTES } else { 0 };
    let mut answer = vec![0; DEPTH as usize * (SIMPLE_REPLY_BYTES + data)];
    stream.write_all(&requests).expect("sent");
    stream.read_exact(&mut answer).expect("answered");
}

fn drive(mut stream: UnixStream, command: Command) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    let flags = HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES;
    let mut hello = client_flags(flags).to_vec();
    hello.extend(option(OptionCode::Go, &ExportQuery { name: "md0", infos: Vec::new() }.encode()));
    stream.write_all(&hello).expect("sent");
    // Info export, Info block size, Ack.
    stream.read_exact(&mut [0; GREETING_BYTES + 32 + 34 + 20]).expect("the handshake is answered");
    (0..50).for_each(|_| batch(&mut stream, command));
    STEP.store(1, Ordering::SeqCst);
    while STEP.load(Ordering::SeqCst) != 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    (0..BATCHES).for_each(|_| batch(&mut stream, command));
    STEP.store(3, Ordering::SeqCst);
}

#[test]
fn requests_that_come_in_batches_allocate_nothing_each() {
    for command in [Command::Read, Command::Write] {
        STEP.store(0, Ordering::SeqCst);
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let member = Claimed::open("mem:1M", Access::ReadWrite).expect("memory");
        let socket = Mutex::new(Some(ours));
        let client = std::thread::spawn(move || drive(theirs, command));
        let counted = uraid_host::run(1, &Options::default(), |shard| serve(shard, member.clone(), &socket));
        client.join().expect("the client was answered");
        let most = BATCHES * ALLOCATIONS_PER_BATCH_MAX;
        assert!(counted[0] <= most, "{command:?}: {counted:?} in {} requests", BATCHES * DEPTH);
    }
}
