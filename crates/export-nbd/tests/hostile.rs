//! A server and malicious clients: vanishing, hanging, flooding, garbage.
//! Owns: the CVE pack of the transmission phase, seeded mutations of whole sessions.
//! Invariant: no panic, nothing leaks, no half payload is written, other clients are served meanwhile.

use crate::common::*;
use std::time::Duration;
use uraid_block::Fua;
use uraid_export_nbd::{Export, Limits, Machine, Server};
use uraid_nbd::{Command, CommandFlags};

const PLAIN: CommandFlags = CommandFlags::NONE;
const MIB: usize = 1 << 20;

#[test]
fn a_client_that_goes_in_mid_write_leaves_no_write_behind() {
    for bytes in [512, 4096, 40 << 10, 300 << 10] {
        for cut in [1, 27, 28, 29, 28 + bytes / 2, 28 + bytes - 1] {
            let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
            let server = server(&bench, &ram, Limits::default());
            let pipe = ready(&bench, &server, true);
            pipe.write(&write(1, 0, &vec![9; bytes])[..cut]);
            bench.settle();
            pipe.close();
            bench.settle();
            assert!(ram.ops.borrow().is_empty(), "{bytes} bytes cut at {cut}");
            assert_eq!((server.connections(), server.statistics().broken), (0, 1));
            assert_eq!(bench.arena().blocks_in_use(), 0);
        }
    }
}

#[test]
fn requests_in_flight_run_to_their_end_though_the_client_has_gone() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    ram.hold(true);
    for n in 0..20 {
        pipe.write(&write(n, n * 4096, &[n as u8 + 1; 4096]));
        pipe.write(&ask(Command::Read, PLAIN, 100 + n, 0, 4096));
    }
    bench.settle();
    pipe.close();
    bench.settle();
    assert_eq!(server.requests_running(), 40);
    ram.hold(false);
    bench.settle();
    assert_eq!((server.requests_running(), server.connections()), (0, 0));
    assert!((0..20).all(|n| ram.bytes.borrow()[n * 4096] == n as u8 + 1));
    assert_eq!(bench.arena().blocks_in_use(), 0);
    assert_eq!(server.statistics().writes, 20);
}

#[test]
fn an_oversized_write_gets_an_error_and_a_disconnect() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    for length in [(32 << 20) + 512, u32::MAX, 1 << 31] {
        let pipe = ready(&bench, &server, true);
        pipe.write(&ask(Command::Write, PLAIN, 1, 0, length));
        bench.settle();
        let list = answers(&pipe.take(), |_| 0);
        assert!(list.len() == 1 && list[0].result.is_err());
        assert!(pipe.is_shut_down());
    }
    assert_eq!(bench.arena().blocks_in_use(), 0);
}

#[test]
fn garbage_between_requests_ends_the_connection_only() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let good = ready(&bench, &server, true);
    let bad = ready(&bench, &server, true);
    bad.write(&ask(Command::Read, PLAIN, 1, 0, 512));
    bad.write(b"POST / HTTP/1.1 and some more\r\n");
    bench.settle();
    assert!(bad.is_shut_down());
    assert_eq!(answers(&bad.take(), |_| 512).len(), 1, "what came before is answered");
    good.write(&ask(Command::Read, PLAIN, 1, 0, 512));
    bench.settle();
    assert_eq!(answers(&good.take(), |_| 512).len(), 1);
}

#[test]
fn handshakes_have_a_deadline_and_half_open_connections_make_room() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let limits = Limits { connections_max: 32, ..Limits::default() };
    let server = server(&bench, &ram, limits);
    let good = ready(&bench, &server, true);
    // One byte a second: a slow loris.
    let slow = connect(&bench, &server);
    for byte in hello(true).iter().take(20) {
        slow.write(&[*byte]);
        bench.pass(Duration::from_secs(1));
    }
    assert!(slow.is_shut_down());
    let flood: Vec<Pipe> = (0..1000).map(|_| connect(&bench, &server)).collect();
    assert!(server.connections() <= 32);
    let late = ready(&bench, &server, true);
    for pipe in [&good, &late] {
        pipe.write(&ask(Command::Read, PLAIN, 1, 0, 512));
        bench.settle();
        assert_eq!(answers(&pipe.take(), |_| 512).len(), 1);
    }
    bench.pass(Duration::from_secs(11));
    assert!(flood.iter().all(Pipe::is_shut_down));
    assert_eq!(server.connections(), 2);
    // All places are taken by clients that are being served: the next one is turned away.
    let served: Vec<Pipe> = (0..30).map(|_| ready(&bench, &server, true)).collect();
    ram.hold(true);
    for pipe in served.iter().chain([&good, &late]) {
        pipe.write(&ask(Command::Read, PLAIN, 1, 0, 512));
    }
    bench.settle();
    let one_more = connect(&bench, &server);
    assert!(one_more.is_shut_down() && !served.iter().any(Pipe::is_shut_down));
    assert_eq!(server.statistics().turned_away, 1);
}

#[test]
fn nothing_reaches_the_device_before_the_export_is_chosen() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = connect(&bench, &server);
    pipe.write(&hello(true)[..4]);
    pipe.write(&ask(Command::Write, PLAIN, 1, 0, 512));
    pipe.write(&[0; 512]);
    bench.settle();
    assert!(ram.ops.borrow().is_empty() && pipe.is_shut_down());
}

#[test]
fn requests_may_come_right_behind_the_handshake() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = connect(&bench, &server);
    pipe.write(&[hello(true), write(1, 0, &[5; 8192])].concat());
    bench.settle();
    assert_eq!(*ram.ops.borrow(), [Op::Write(0, 16, Fua::No)]);
    assert!(ram.bytes.borrow()[..8192].iter().all(|&byte| byte == 5));
}

/// A small generator (xorshift64*), so that a failure is found again by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

fn mutated_session(random: &mut Random) -> Vec<u8> {
    let mut bytes = if random.below(2) == 0 { extended_session(random) } else { plain_session(random) };
    for _ in 0..random.below(4) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = 0xff,
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, random.below(256) as u8),
        }
    }
    bytes
}

fn extended_session(random: &mut Random) -> Vec<u8> {
    let mut bytes = hello_extended();
    for _ in 0..random.below(12) {
        let (offset, length) = (random.below(128) as u64 * 512, (random.below(80) as u64 + 1) * 512);
        let command = Command::from_code(random.below(10) as u16);
        let flags = CommandFlags(1 << random.below(7));
        let payload = vec![1; if flags.contains(CommandFlags::PAYLOAD_LEN) { length as usize } else { 0 }];
        match random.below(3) {
            0 => bytes.extend(ask_extended(command, flags, offset, length, &payload)),
            1 => bytes.extend(ask_extended(command, PLAIN, offset, u64::MAX >> random.below(64), &[])),
            _ => bytes.extend(ask_extended(Command::BlockStatus, PLAIN, offset, length, &[])),
        }
    }
    bytes
}

fn plain_session(random: &mut Random) -> Vec<u8> {
    let mut bytes = hello(random.below(2) == 0);
    for n in 0..random.below(12) as u64 {
        match random.below(5) {
            0 => bytes.extend(write(n, random.below(64) as u64 * 512, &vec![1; (random.below(80) + 1) * 512])),
            1 => bytes.extend(ask(Command::Read, PLAIN, n, 0, random.below(200) as u32 * 512)),
            2 => bytes.extend(ask(Command::from_code(random.below(10) as u16), PLAIN, n, 0, 512)),
            3 => bytes.extend(ask(Command::Trim, CommandFlags(random.below(64) as u16), n, 512, 512)),
            _ => bytes.extend(ask(Command::Flush, PLAIN, n, 0, 0)),
        }
    }
    bytes
}

#[test]
fn no_mutated_session_panics_leaks_or_leaves_the_export() {
    // More: SESSIONS=100000 cargo test -p uraid-export-nbd --release --test suite hostile::
    let sessions = std::env::var("SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    for seed in 1..=sessions {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let (bench, ram) = (Bench::new(64, 32), Ram::new(64 << 10));
        let limits = Limits { connections_max: 4, requests_max: 4, ..Limits::default() };
        let server = server(&bench, &ram, limits);
        let pipe = connect(&bench, &server);
        let bytes = mutated_session(&mut random);
        let piece = [1, 7, 100, 5000, usize::MAX][random.below(5)];
        for part in bytes.chunks(piece.max(bytes.len() / 50)) {
            pipe.write(part);
            ram.hold(random.below(3) == 0);
            bench.settle();
        }
        pipe.close();
        ram.hold(false);
        bench.pass(Duration::from_secs(30));
        assert_eq!((server.connections(), server.requests_running()), (0, 0), "seed {seed}");
        assert_eq!(bench.arena().blocks_in_use(), 0, "seed {seed}");
    }
}

#[test]
fn a_thousand_idle_clients_hold_no_buffer_and_half_open_ones_are_bounded() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let limits = Limits { handshakes_max: 100, ..Limits::default() };
    let server = server(&bench, &ram, limits);
    let idle: Vec<Pipe> = (0..1000).map(|_| ready(&bench, &server, true)).collect();
    let half_open: Vec<Pipe> = (0..150).map(|_| connect(&bench, &server)).collect();
    assert_eq!(server.connections(), 1100);
    assert!(half_open[..50].iter().all(Pipe::is_shut_down), "the oldest go");
    assert!(!half_open[50..].iter().any(Pipe::is_shut_down));
    assert_eq!(bench.arena().blocks_in_use(), 0);
    // All of them send more than a small inbox at once, then little: all are served.
    for pipe in &idle {
        pipe.write(&write(1, 0, &[3; 12 << 10]));
        pipe.write(&ask(Command::Read, PLAIN, 2, 0, 512));
    }
    // Some wait for buffers.
    bench.pass(Duration::from_secs(5));
    assert!(idle.iter().all(|pipe| answers(&pipe.take(), |_| 0).len() == 2));
    bench.pass(Duration::from_secs(3600));
    assert!(!idle.iter().any(Pipe::is_shut_down), "waiting is no fault");
    assert_eq!((server.connections(), bench.arena().blocks_in_use()), (1000, 0));
}

#[test]
fn payloads_that_are_refused_leave_others_their_turn() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, false);
    let sent = 16 * (MIB + 28);
    for cookie in 0..16 {
        // Past the end: skipped as fast as it comes.
        pipe.write(&write(cookie, 1 << 40, &vec![9; MIB]));
    }
    let (seen, other) = (std::rc::Rc::new(std::cell::RefCell::new(vec![sent])), pipe.clone());
    let list = seen.clone();
    bench.spawn(async move {
        while other.unread() > 0 {
            list.borrow_mut().push(other.unread());
            uraid_block::local::yield_now().await;
        }
    });
    bench.settle();
    let most = seen.borrow().windows(2).map(|two| two[0] - two[1]).max();
    assert!(most.is_some_and(|bytes| bytes <= 64 << 10), "taken between two turns of another task: {most:?} bytes");
}

#[test]
fn idle_clients_of_one_user_on_all_connections_lock_out_no_other_user() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let limits = Limits { connections_max: 100, peer_connections_max: 60, ..Limits::default() };
    let server = server(&bench, &ram, limits);
    let quiet = ready_as(&bench, &server, false, 1);
    // Each of them works before it falls idle, so that the quiet one has been idle for longest.
    let flood: Vec<Pipe> = (0..300).map(|_| ready_as(&bench, &server, false, 2)).collect();
    assert_eq!(server.connections(), 61);
    assert!(flood[..240].iter().all(Pipe::is_shut_down), "a user's own connections give way for its new ones");
    assert!(!flood[240..].iter().any(Pipe::is_shut_down));
    let more: Vec<Pipe> = (0..300).map(|_| ready_as(&bench, &server, false, 3)).collect();
    assert_eq!((server.connections(), server.statistics().turned_away), (100, 0));
    assert!(!quiet.is_shut_down(), "those with the most give way");
    for user in 4..8 {
        let new = ready_as(&bench, &server, false, user);
        new.write(&ask(Command::Read, PLAIN, 1, 0, 512));
        bench.settle();
        assert_eq!(answers(&new.take(), |_| 512).len(), 1);
    }
    // A connection with requests keeps its place.
    ram.hold(true);
    let working = ready_as(&bench, &server, false, 2);
    working.write(&write(1, 0, &[5; 512]));
    bench.settle();
    let _last: Vec<Pipe> = (0..300).map(|n| ready_as(&bench, &server, false, 2 + n % 2)).collect();
    ram.hold(false);
    bench.settle();
    assert_eq!(answers(&working.take(), |_| 0).len(), 1);
    assert!(!quiet.is_shut_down());
    drop((flood, more));
}

#[test]
fn clients_that_stop_within_a_write_give_up_their_places() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let limits = Limits { connections_max: 100, peer_connections_max: 60, ..Limits::default() };
    let server = server(&bench, &ram, limits);
    let good = ready_as(&bench, &server, false, 2);
    let half_written = |user| {
        let pipe = ready_as(&bench, &server, false, user);
        let whole = write(1, 0, &[7; 4096]);
        pipe.write(&whole[..whole.len() - 4000]);
        pipe
    };
    let flood: Vec<Pipe> = (0..59).map(|_| half_written(2)).chain((0..40).map(|_| half_written(3))).collect();
    bench.settle();
    assert_eq!(server.connections(), 100);
    bench.pass(Duration::from_secs(4));
    for user in [2, 3, 4, 5] {
        let new = ready_as(&bench, &server, false, user);
        new.write(&ask(Command::Read, PLAIN, 1, 0, 512));
        bench.settle();
        assert_eq!(answers(&new.take(), |_| 512).len(), 1, "user {user} gets in");
    }
    assert!(!good.is_shut_down(), "nothing is awaited of an idle one, which is closed after those");
    assert!(flood.iter().any(Pipe::is_shut_down));
    // One that goes on in time keeps its place.
    let slow = half_written(6);
    bench.pass(Duration::from_secs(1));
    let _newcomer = ready_as(&bench, &server, false, 7);
    assert!(!slow.is_shut_down());
}

#[test]
fn requests_that_are_answered_at_once_take_turns_with_those_of_others() {
    // The bytes of a reply, and how many replies the first client gets at once: the device has no requests of others yet.
    let floods: [(Command, u64, u32, usize, usize); 4] = [
        (Command::Cache, 0, 4096, 16, 0),
        (Command::Read, 1 << 62, 4096, 16, 0),
        (Command::Unknown(99), 0, 0, 16, 0),
        (Command::Read, 0, 4096, 16 + 4096, 120),
    ];
    for (command, offset, length, reply, first) in floods {
        let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
        let server = server(&bench, &ram, Limits::default());
        let others: Vec<_> = (0..4).map(|_| ready(&bench, &server, false)).collect();
        let good = ready(&bench, &server, false);
        for pipe in &others {
            let flood: Vec<u8> = (0..120).flat_map(|cookie| ask(command, PLAIN, cookie, offset, length)).collect();
            pipe.write(&flood);
        }
        good.write(&ask(Command::Read, PLAIN, 1, 0, 4096));
        while good.sent() < 16 + 4096 {
            assert!(bench.step(), "the good client is answered");
        }
        let answered = others.iter().map(|pipe| pipe.sent() / reply).sum::<usize>();
        println!("{command:?}: {answered} of 480 answered before the read");
        // Each other client has at most eight answered in a turn, and the read takes two turns or three.
        assert!(answered <= first + 4 * 8 * 3, "{command:?}: {answered}");
        bench.settle();
        assert!(others.iter().all(|pipe| pipe.sent() == 120 * reply), "{command:?}: all are answered in the end");
    }
}

/// Sends `requests` requests of `bytes` bytes each on every connection.
fn flood(pipes: &[Pipe], command: Command, requests: u64, bytes: usize) {
    for (pipe, cookie) in pipes.iter().flat_map(|pipe| (0..requests).map(move |cookie| (pipe, cookie))) {
        pipe.write(&if command == Command::Write {
            write(cookie, 0, &vec![9; bytes])
        } else {
            ask(command, PLAIN, cookie, 0, bytes as u32)
        });
    }
}

#[test]
fn clients_of_another_array_wait_for_nothing_that_one_keeps() {
    for (command, clients, requests, bytes) in [
        (Command::Write, 20, 8, 128 << 10),
        (Command::Write, 60, 128, 4096),
        (Command::Read, 20, 16, 128 << 10),
        (Command::Read, 60, 128, 4096),
        (Command::Flush, 60, 128, 0),
        (Command::WriteZeroes, 60, 128, 128 << 10),
        (Command::WriteZeroes, 60, 128, 4096),
        (Command::Trim, 60, 128, 4096),
    ] {
        let (bench, hung, fine) = (Bench::new(512, 128), Ram::new(2 * MIB), Ram::new(2 * MIB));
        let limits = Limits { connections_max: 64, ..Limits::default() };
        let export = |name: &str| Export { name: name.into(), description: String::new(), read_only: false };
        let exports = vec![(export("md0"), hung.clone()), (export("md1"), fine.clone()), (export("md2"), fine.clone())];
        let server = Server::new(bench.clone(), exports, limits);
        let others: Vec<Pipe> = (0..clients).map(|_| ready(&bench, &server, true)).collect();
        let good: Vec<Pipe> = (0..2).map(|_| connect(&bench, &server)).collect();
        for (pipe, name) in good.iter().zip(["md1", "md2"]) {
            pipe.write(&hello_to(name, true));
            bench.settle();
            pipe.take();
        }
        // So that pieces of zeroes of the flood take turns.
        good[0].write(&ask(Command::Read, PLAIN, 1, 0, 512));
        bench.settle();
        good[0].take();
        hung.hold(true);
        flood(&others, command, requests, bytes);
        bench.settle();
        for pipe in &good {
            for length in [512, 4096, 16 << 10, 64 << 10, 128 << 10, 1 << 20] {
                // Others read, so that pieces of zeroes take turns.
                for other in &good {
                    other.write(&ask(Command::Read, PLAIN, 9, 0, 512));
                    bench.settle();
                    other.take();
                }
                pipe.write(&write(1, 0, &vec![5; length]));
                pipe.write(&ask(Command::Flush, PLAIN, 2, 0, 0));
                pipe.write(&ask(Command::WriteZeroes, PLAIN, 3, MIB as u64, length as u32));
                pipe.write(&ask(Command::Read, PLAIN, 4, 0, length as u32));
                // No time passes: they do not wait for what ends a turn.
                bench.settle();
                let list = answers(&pipe.take(), |cookie| if cookie == 4 { length } else { 0 });
                assert_eq!(list.len(), 4, "{length} bytes beside {command:?} of {bytes}");
            }
        }
        assert!(!others.iter().any(Pipe::is_shut_down), "waiting for the device is no fault");
        hung.hold(false);
        bench.pass(Duration::from_secs(1));
        let reply = |_| if command == Command::Read { bytes } else { 0 };
        let done: usize = others.iter().map(|pipe| answers(&pipe.take(), reply).len()).sum();
        assert_eq!(done, clients * requests as usize, "{command:?} of {bytes}: all are answered in the end");
    }
}

#[test]
fn reads_go_on_beside_all_that_a_member_keeps() {
    // The command, how many other clients send it, how many times each, and its bytes.
    let floods = [
        (Command::Write, 20, 8, 128 << 10),
        (Command::Write, 20, 2, 1 << 20),
        (Command::Write, 60, 128, 4096),
        (Command::Write, 60, 64, 16 << 10),
        (Command::Write, 60, 16, 64 << 10),
        (Command::Flush, 60, 128, 0),
        (Command::Trim, 60, 128, 4096),
        (Command::WriteZeroes, 60, 128, 128 << 10),
    ];
    for (command, clients, requests, bytes) in floods {
        let (bench, ram) = (Bench::new(256, 64), Ram::new(2 * MIB));
        let limits = Limits { connections_max: 64, ..Limits::default() };
        let server = server(&bench, &ram, limits);
        let others: Vec<Pipe> = (0..clients).map(|_| ready(&bench, &server, true)).collect();
        let good = ready(&bench, &server, true);
        ram.hold_all_but_reads(true);
        flood(&others, command, requests, bytes);
        bench.settle();
        for length in [1 << 20, 512, 4096, 16 << 10, 64 << 10, 128 << 10] {
            for cookie in 0..4 {
                good.write(&ask(Command::Read, PLAIN, cookie, 0, length));
            }
            bench.settle();
            let list = answers(&good.take(), |_| length as usize);
            assert_eq!(list.len(), 4, "reads of {length} beside {command:?} of {bytes}");
            bench.pass(Duration::from_secs(3));
        }
        assert!(!others.iter().any(Pipe::is_shut_down), "waiting for the device is no fault");
        ram.hold_all_but_reads(false);
        bench.pass(Duration::from_secs(1));
        let done: usize = others.iter().map(|pipe| answers(&pipe.take(), |_| 0).len()).sum();
        assert_eq!(done, clients * requests as usize, "{command:?} of {bytes}: all are answered in the end");
    }
}
