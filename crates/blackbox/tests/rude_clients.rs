//! Clients that break the rules or vanish: they harm no other client.
//! Owns: bytes that no client should send, over a real socket. Not here: the codec's own corpus (`nbd`).

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::nbd::{ClientError, Connection, Negotiate, Options, Request, Stream};
use uraid_blackbox::programs::server::Server;
use uraid_blackbox::random::Random;
use uraid_blackbox::sectors::model::Model;
use uraid_blackbox::sectors::writers::{Workload, Writers, settle, verify};

const ARRAY: Shape = Shape { level: "raid6", layout: "", members: 5, tolerates: 2, chunk: "16K", member_mib: 16 };

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

/// Serves an array, lets polite writers run while `rude` misbehaves, and checks every sector afterwards.
fn beside_polite_writers(rude: impl FnOnce(&Server)) {
    let scratch = Scratch::new();
    let members = create(&scratch, "rude", &ARRAY);
    let mut server = Server::start(scratch.path(), &members, &[]);
    let connection = Connection::open(server.address(), &Options::default()).expect("a server");
    let model = Arc::new(Mutex::new(Model::new(connection.export().bytes / 512)));
    let writers = Writers::start(server.address(), &model, Workload { writers: 3, depth: 4, seed: 0xbad });
    writers.wait_for(100);
    rude(&server);
    writers.wait_for(100);
    writers.finish();
    assert!(server.is_running());
    settle(server.address(), &model, "after the rude clients");
    verify(server.address(), &model, "again");
    drop(connection);
    server.stop();
}

#[test]
fn garbage_instead_of_a_greeting_ends_only_that_connection() {
    beside_polite_writers(|server| {
        for seed in 0..40 {
            let mut random = Random(seed);
            let mut stream = server.address().connect().expect("a server");
            let mut bytes = vec![0; 1 + random.below(5000) as usize];
            random.fill(&mut bytes);
            if seed % 2 == 0 {
                // Valid flags and a valid magic reach code behind the first checks.
                let start = [0, 0, 0, 3].into_iter().chain(*b"IHAVEOPT");
                bytes.splice(..0, start);
            }
            // The server may close before it has taken everything.
            let _ = stream.write_all(&bytes);
            stream.shutdown();
        }
    });
}

#[test]
fn a_client_that_disconnects_at_any_byte_of_the_handshake_harms_no_other() {
    beside_polite_writers(|server| {
        let whole: Vec<u8> = [0, 0, 0, 3]
            .into_iter()
            .chain(*b"IHAVEOPT")
            .chain([0, 0, 0, 7, 0, 0, 0, 10, 0, 0, 0, 4])
            .chain(*b"rude")
            .chain([0, 0])
            .collect();
        for length in 0..=whole.len() {
            let mut stream = server.address().connect().expect("a server");
            stream.write_all(&whole[..length]).expect("the server waits for the rest");
            stream.shutdown();
        }
    });
}

#[test]
fn a_client_that_vanishes_with_requests_in_flight_or_in_mid_write_harms_no_other() {
    beside_polite_writers(|server| {
        for round in 0..10u64 {
            let mut connection = Connection::open(server.address(), &Options::default()).expect("a server");
            for n in 0..16 {
                connection.submit(&Request::Read { at: n << 18, length: 1 << 18 }).expect("a server");
            }
            // A write of 1 MiB whose payload is incomplete: none of it may be written, because the model does not know
            // it.
            let mut header = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1];
            header.extend([0x77; 8]);
            header.extend(0u64.to_be_bytes());
            header.extend((1u32 << 20).to_be_bytes());
            header.resize(28 + (round as usize * 100_003).min((1 << 20) - 1), 0xee);
            connection.send_raw(&header).expect("a server");
            drop(connection);
        }
        // The incomplete write must not happen later either.
        std::thread::sleep(Duration::from_millis(100));
    });
}

/// A client that reads nothing after its handshake.
fn deaf(server: &Server) -> Stream {
    let mut stream = server.address().connect().expect("a server");
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("a server");
    stream.write_all(&[0, 0, 0, 3]).expect("a server");
    let name = server.address().export.as_bytes();
    stream.write_all(b"IHAVEOPT\0\0\0\x01").expect("a server");
    stream.write_all(&u32::try_from(name.len()).expect("a short name").to_be_bytes()).expect("a server");
    stream.write_all(name).expect("a server");
    stream
}

const READ: u8 = 0;
const WRITE: u8 = 1;

/// Sends the headers of `count` requests from the start of the export, and no payload.
fn ask(stream: &mut Stream, command: u8, count: u64, length: u32) {
    for n in 0..count {
        let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, command];
        request.extend(n.to_be_bytes());
        request.extend(0u64.to_be_bytes());
        request.extend(length.to_be_bytes());
        stream.write_all(&request).expect("a server");
    }
}

#[test]
fn a_client_that_never_reads_its_replies_stops_no_other() {
    beside_polite_writers(|server| {
        // No `Connection`: that one reads.
        let mut stream = deaf(server);
        ask(&mut stream, READ, 64, 1 << 20);
        std::thread::sleep(Duration::from_millis(300));
        let mut polite = Connection::open(server.address(), &Options::default()).expect("a server");
        polite.read(0, 4096).expect("an answer while the other does not read");
        stream.shutdown();
    });
}

/// Small and large reads and writes, `rounds` times, one after the other. How long they took, and the slowest pair.
fn small_and_large_requests(client: &mut Connection, rounds: u32) -> (Duration, Duration) {
    let begin = Instant::now();
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        for length in [4096, 256 << 10, 1 << 20] {
            let asked = Instant::now();
            let data = client.read(0, length).expect("an answer while the others keep what they hold");
            assert!(data.iter().all(|byte| *byte == 0x5a));
            client.write(0, &data).expect("an answer while the others keep what they hold");
            slowest = slowest.max(asked.elapsed());
        }
    }
    (begin.elapsed(), slowest)
}

/// A well-behaved client continues with small and large requests while `rude` clients, on the same shard, hold as much
/// as they can.
fn large_requests_go_on_beside(rude: impl FnOnce(&Server) -> Vec<Stream>) {
    let scratch = Scratch::new();
    let members = create(&scratch, "rude", &ARRAY);
    let server = Server::start(scratch.path(), &members, &["--shards", "1"]);
    let mut good = Connection::open(server.address(), &Options::default()).expect("a server");
    good.write(0, &vec![0x5a; 1 << 20]).expect("a server");
    let (alone, _) = small_and_large_requests(&mut good, 10);
    let all = rude(&server);
    std::thread::sleep(Duration::from_millis(300));
    let (beside, slowest) = small_and_large_requests(&mut good, 50);
    println!("300 requests beside {} rude clients took {beside:?}, 60 alone {alone:?}; slowest {slowest:?}", all.len());
    // Requests that wait until the server cuts off a client that holds memory take 30 s each. What a slow machine takes
    // is known from the requests alone.
    let enough = Duration::from_secs(20).max(5 * 5 * alone);
    assert!(beside < enough, "the good client was kept waiting: {slowest:?}, {beside:?} of {enough:?}");
    drop(all);
    server.stop();
}

#[test]
fn large_requests_continue_beside_eight_clients_that_read_no_replies() {
    large_requests_go_on_beside(|server| {
        let mut all: Vec<Stream> = (0..8).map(|_| deaf(server)).collect();
        all.iter_mut().for_each(|stream| ask(stream, READ, 100, 1 << 20));
        all
    });
}

#[test]
fn large_requests_continue_beside_sixty_clients_that_read_no_replies_to_small_requests() {
    large_requests_go_on_beside(|server| {
        let mut all: Vec<Stream> = (0..60).map(|_| deaf(server)).collect();
        all.iter_mut().for_each(|stream| ask(stream, READ, 120, 16 << 10));
        all
    });
}

#[test]
fn large_requests_continue_beside_clients_that_never_send_their_payloads() {
    large_requests_go_on_beside(|server| {
        let mut all: Vec<Stream> = (0..16).map(|_| deaf(server)).collect();
        all.iter_mut().for_each(|stream| ask(stream, WRITE, 1, 16 << 20));
        all
    });
}

#[test]
fn requests_outside_the_export_get_the_protocols_error_and_the_connection_continues() {
    beside_polite_writers(|server| {
        for negotiate in [Negotiate::Go, Negotiate::ExportName] {
            for structured in [true, false] {
                let mut client =
                    Connection::open(server.address(), &Options { negotiate, structured, ..Options::default() })
                        .expect("a server");
                let end = client.export().bytes;
                let error = |client: &mut Connection, request: &Request| match client.call(request) {
                    Err(ClientError::Refused(error)) => error,
                    other => panic!("{request:?} gave {other:?}"),
                };
                let write = |at, length: usize| Request::Write { at, data: vec![0xee; length], fua: false };
                for at in [end, end - 512, u64::MAX - 511, u64::MAX - 1023, 1 << 63] {
                    assert_eq!(error(&mut client, &Request::Read { at, length: 1024 }), EINVAL, "read at {at:#x}");
                    let full = error(&mut client, &write(at, 1024));
                    assert!(full == ENOSPC || full == EINVAL, "write at {at:#x}: {full}");
                    let zeroes = error(&mut client, &Request::WriteZeroes { at, length: 1024, no_hole: false });
                    assert!(zeroes == ENOSPC || zeroes == EINVAL, "zeroes at {at:#x}: {zeroes}");
                    let trim = error(&mut client, &Request::Trim { at, length: 1024 });
                    assert!(trim == ENOSPC || trim == EINVAL, "trim at {at:#x}: {trim}");
                }
                let huge = error(&mut client, &Request::Read { at: 0, length: u32::MAX - 511 });
                assert!(huge == EINVAL || huge == EOVERFLOW, "{huge}");
                // Still in step: the last sector can be read.
                client.read(end - 512, 512).expect("a read that fits");
            }
        }
    });
}
