//! Many idle clients: a thousand after their handshake, hundreds in the middle of it, and one that works.
//! Owns: that they use little memory, block no other client, and that half-open ones are dropped. Not here: rude ones.

use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::nbd::{Connection, Options, Stream};
use uraid_blackbox::programs::server::Server;
use uraid_blackbox::sectors::model::Model;
use uraid_blackbox::sectors::writers::{Workload, Writers, settle, verify};

const ARRAY: Shape = Shape { level: "raid5", layout: "", members: 3, tolerates: 1, chunk: "64K", member_mib: 16 };
const IDLE: usize = 1000;
const HALF_OPEN: usize = 200;
/// What an idle client may cost: a small inbox, its socket's place, its task.
const KIB_PER_CLIENT_MAX: u64 = 16;

/// A client after its handshake, without a separate thread.
fn idle(server: &Server) -> Stream {
    let mut stream = server.address().connect().expect("a server");
    stream.write_all(&[0, 0, 0, 3]).expect("a server");
    let name = server.address().export.as_bytes();
    let length = u32::try_from(name.len()).expect("a short name").to_be_bytes();
    stream.write_all(&[&b"IHAVEOPT\0\0\0\x01"[..], &length, name].concat()).expect("a server");
    let mut answer = [0; 28];
    stream.read_exact(&mut answer).expect("an export");
    stream
}

/// A client that falls silent in the middle of an option.
fn half_open(server: &Server) -> Stream {
    let mut stream = server.address().connect().expect("a server");
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0").expect("a server");
    stream
}

fn read_one_sector(stream: &mut Stream) {
    let mut request = vec![0x25, 0x60, 0x95, 0x13];
    request.extend([0; 20]);
    request.extend(512u32.to_be_bytes());
    stream.write_all(&request).expect("a server");
    let mut reply = [0; 16 + 512];
    stream.read_exact(&mut reply).expect("an answer");
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
}

#[test]
fn a_thousand_idle_and_hundreds_of_half_open_clients_harm_no_other_client() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let scratch = Scratch::new();
    let members = create(&scratch, "idle", &ARRAY);
    let mut server = Server::start(scratch.path(), &members, &[]);
    let bytes = Connection::open(server.address(), &Options::default()).expect("a server").export().bytes;
    let model = Arc::new(Mutex::new(Model::new(bytes / 512)));
    let work = |seed| {
        let writers = Writers::start(server.address(), &model, Workload { writers: 1, depth: 8, seed });
        writers.wait_for(300);
        writers.finish();
    };
    work(1);
    let before = server.resident_kib();
    let begin = Instant::now();
    let mut all: Vec<Stream> = (0..IDLE).map(|_| idle(&server)).collect();
    let mut silent: Vec<Stream> = (0..HALF_OPEN).map(|_| half_open(&server)).collect();
    let connected = begin.elapsed();
    let after = server.resident_kib();
    println!("{} clients in {connected:?}: resident {before} KiB before, {after} KiB after", IDLE + HALF_OPEN);
    assert!(after.saturating_sub(before) <= (IDLE + HALF_OPEN) as u64 * KIB_PER_CLIENT_MAX);
    work(2);
    all.iter_mut().for_each(read_one_sector);
    // A client that does not finish its handshake is dropped after ten seconds; one that has finished stays.
    for stream in &mut silent {
        let end = std::io::copy(stream, &mut std::io::sink());
        assert!(end.is_ok_and(|greeting| greeting == 18) && begin.elapsed() < Duration::from_secs(30));
    }
    all.iter_mut().for_each(read_one_sector);
    work(3);
    assert!(server.is_running());
    settle(server.address(), &model, "after the idle clients");
    verify(server.address(), &model, "again");
    server.stop();
}

#[test]
fn half_open_clients_beyond_the_limit_replace_the_oldest() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let scratch = Scratch::new();
    let members = create(&scratch, "idle", &ARRAY);
    // With one shard, all half-open connections share one limit: 512.
    let server = Server::start(scratch.path(), &members, &["--shards", "1"]);
    let mut first = half_open(&server);
    let begin = Instant::now();
    let _others: Vec<Stream> = (0..600).map(|_| half_open(&server)).collect();
    let end = std::io::copy(&mut first, &mut std::io::sink());
    assert!(end.is_ok_and(|greeting| greeting == 18));
    println!("the oldest of 601 half-open clients went after {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(8), "pushed out, not timed out");
    read_one_sector(&mut idle(&server));
    server.stop();
}

#[test]
fn idle_clients_beyond_the_limit_lock_out_no_other_client() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let scratch = Scratch::new();
    let members = create(&scratch, "idle", &ARRAY);
    // With one shard, all connections share one limit: 4096, and half of that for one user.
    let server = Server::start(scratch.path(), &members, &["--shards", "1"]);
    let mut worker = idle(&server);
    let mut first = idle(&server);
    let mut all = Vec::new();
    for n in 0..4200 {
        if n % 100 == 0 {
            read_one_sector(&mut worker);
        }
        all.push(idle(&server));
    }
    assert!(std::io::copy(&mut first, &mut std::io::sink()).is_ok_and(|bytes| bytes == 0), "the least used one went");
    read_one_sector(&mut worker);
    read_one_sector(&mut idle(&server));
    read_one_sector(all.last_mut().expect("many"));
    server.stop();
}

#[test]
fn idle_clients_that_hold_all_descriptors_are_disconnected() {
    let scratch = Scratch::new();
    let members = create(&scratch, "idle", &ARRAY);
    let server = Server::start(scratch.path(), &members, &["--shards", "1"]);
    let few = Rlimit { current: Some(100), maximum: Some(100) };
    prlimit(Some(server.pid()), Resource::Nofile, few).expect("it is our child");
    let _all: Vec<Stream> = (0..120).map(|_| idle(&server)).collect();
    read_one_sector(&mut idle(&server));
    // The control socket needs a descriptor, too.
    server.command("detail", &[]).expect_done();
    server.stop();
}
