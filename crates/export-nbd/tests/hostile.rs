//! A server and clients that mean harm: vanishing, hanging, flooding, garbage.
//! Owns: the CVE pack of the transmission phase, seeded mutations of whole sessions.
//! Invariant: no panic, nothing leaks, no half payload is written, honest clients are served meanwhile.

mod common;

use common::*;
use std::time::Duration;
use uraid_block::Fua;
use uraid_export_nbd::{Limits, Machine};
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
fn an_oversized_write_gets_an_error_and_the_door() {
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
fn a_client_that_takes_no_replies_is_bounded_and_goes_when_others_wait() {
    let (bench, ram) = (Bench::new(64, 16), Ram::new(4 * MIB));
    let limits = Limits { requests_max: 16, ..Limits::default() };
    let server = server(&bench, &ram, limits);
    let stuck: Vec<Pipe> = (0..5).map(|_| ready(&bench, &server, true)).collect();
    for pipe in &stuck {
        pipe.set_stuck(true);
        for n in 0..100 {
            pipe.write(&ask(Command::Read, PLAIN, n, 0, 64 << 10));
        }
    }
    bench.settle();
    assert!(ram.ops.borrow().len() <= 5 * 16);
    assert!(stuck.iter().all(|pipe| pipe.unread() == 0), "requests are small and wait in the inbox");
    // Nobody waits who could go on but the stuck ones themselves; an honest client comes.
    let good = ready(&bench, &server, true);
    good.write(&ask(Command::Read, PLAIN, 1, 0, 256 << 10));
    bench.pass(Duration::from_secs(5));
    assert!(stuck.iter().any(|pipe| !pipe.is_shut_down()));
    bench.pass(Duration::from_secs(60));
    assert!(stuck.iter().any(Pipe::is_shut_down));
    assert_eq!(answers(&good.take(), |_| 256 << 10).len(), 1, "the honest client is served");
    assert!(!good.is_shut_down());
    for pipe in stuck {
        pipe.close();
    }
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.arena().blocks_in_use(), 0);
    assert_eq!(server.connections(), 1);
}

#[test]
fn small_requests_go_on_while_others_hold_all_they_can_and_take_no_replies() {
    let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let stuck: Vec<Pipe> = (0..8).map(|_| ready(&bench, &server, true)).collect();
    for pipe in &stuck {
        pipe.set_stuck(true);
        for n in 0..100 {
            pipe.write(&ask(Command::Read, PLAIN, n, 0, 256 << 10));
        }
    }
    bench.settle();
    let good = ready(&bench, &server, true);
    for n in 0..20 {
        good.write(&ask(Command::Read, PLAIN, n, 0, 64 << 10));
        good.write(&write(100 + n, 0, &[7; 4096]));
    }
    bench.pass(Limits::default().stall_time_max / 2);
    assert_eq!(answers(&good.take(), |cookie| if cookie < 100 { 64 << 10 } else { 0 }).len(), 40);
    assert!(stuck.iter().all(|pipe| !pipe.is_shut_down()), "nobody had to go for it");
    for pipe in stuck.into_iter().chain([good]) {
        pipe.close();
    }
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.arena().blocks_in_use(), 0);
}

#[test]
fn clients_that_take_no_replies_leave_room_for_the_large_requests_of_others() {
    // 72 MiB for requests, of which a new connection gets a sixteenth.
    let (bench, ram) = (Bench::new(4096, 1280), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let stuck: Vec<Pipe> = (0..8).map(|_| ready(&bench, &server, true)).collect();
    for pipe in &stuck {
        pipe.set_stuck(true);
        for n in 0..100 {
            pipe.write(&ask(Command::Read, PLAIN, n, 0, MIB as u32));
        }
    }
    bench.settle();
    assert_eq!(ram.ops.borrow().len(), 8 * 4, "of each as much as a new connection may hold");
    let good = ready(&bench, &server, true);
    for n in 0..100 {
        good.write(&ask(Command::Read, PLAIN, n, 0, MIB as u32));
    }
    bench.settle();
    assert_eq!(answers(&good.take(), |_| MIB).len(), 100, "without any time");
    bench.pass(Duration::from_secs(3600));
    assert!(!stuck.iter().any(Pipe::is_shut_down), "they keep nothing that others wait for");
}

#[test]
fn the_stalled_client_that_holds_most_goes_as_soon_as_another_one_waits() {
    let (bench, ram) = (Bench::new(4096, 1280), Ram::new(32 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let slow = ready(&bench, &server, true);
    slow.set_stuck(true);
    slow.write(&ask(Command::Read, PLAIN, 0, 0, MIB as u32));
    let stuck: Vec<Pipe> = (0..2).map(|_| ready(&bench, &server, true)).collect();
    let read = |pipe: &Pipe, count: u64| {
        (0..count).for_each(|n| pipe.write(&ask(Command::Read, PLAIN, n, 0, MIB as u32)));
        bench.settle();
    };
    // Clients that have taken much may hold much.
    for pipe in &stuck {
        read(pipe, 64);
        assert_eq!(answers(&pipe.take(), |_| MIB).len(), 64);
        pipe.set_stuck(true);
        read(pipe, 64);
    }
    bench.pass(Duration::from_secs(10));
    assert!(!stuck.iter().any(Pipe::is_shut_down), "no other one waits");
    let good = ready(&bench, &server, true);
    read(&good, 64);
    bench.pass(Duration::from_millis(100));
    assert_eq!(answers(&good.take(), |_| MIB).len(), 64, "without the time of a stall, which was over");
    assert!(stuck.iter().any(Pipe::is_shut_down) && !stuck.iter().all(Pipe::is_shut_down), "no more than necessary");
    assert!(!slow.is_shut_down(), "it holds less than its share");
}

#[test]
fn large_writes_without_their_payload_do_not_stop_the_writes_of_others() {
    let (bench, ram) = (Bench::new(4096, 1280), Ram::new(32 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let owing: Vec<Pipe> = (0..16).map(|_| ready(&bench, &server, true)).collect();
    owing.iter().for_each(|pipe| pipe.write(&ask(Command::Write, PLAIN, 0, 0, 32 << 20)));
    bench.settle();
    let good = ready(&bench, &server, true);
    (0..20).for_each(|n| good.write(&write(n, 0, &vec![7; MIB])));
    bench.settle();
    assert_eq!(answers(&good.take(), |_| 0).len(), 20, "without any time");
    // A large one is served as well when its turn comes.
    let large = ready(&bench, &server, true);
    large.write(&write(1, 0, &vec![8; 32 << 20]));
    bench.pass(Duration::from_secs(30));
    assert_eq!(answers(&large.take(), |_| 0).len(), 1);
}

#[test]
fn more_small_reads_than_the_arena_has_blocks_are_all_answered_in_turn() {
    // 640 KiB: by bytes there is room for 120 reads of 4 KiB at once, by blocks for 40.
    let (bench, ram) = (Bench::new(32, 8), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipes: Vec<Pipe> = (0..6).map(|_| ready(&bench, &server, true)).collect();
    ram.hold(true);
    for pipe in &pipes {
        let requests: Vec<u8> = (0..30).flat_map(|n| ask(Command::Read, PLAIN, n, n * 4096, 4096)).collect();
        pipe.write(&requests);
    }
    bench.pass(Duration::from_millis(50));
    assert_eq!(ram.ops.borrow().len(), 40, "as many as there are blocks");
    ram.hold(false);
    bench.pass(Duration::from_secs(1));
    for pipe in &pipes {
        assert_eq!(answers(&pipe.take(), |_| 4096).len(), 30);
    }
    assert_eq!((server.requests_running(), bench.arena().blocks_in_use()), (0, 0));
}

#[test]
fn a_client_that_only_pauses_is_not_cut() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    let message = write(1, 0, &vec![9; 100_000 / 512 * 512]);
    pipe.write(&message[..50_000]);
    bench.pass(Duration::from_secs(3600));
    pipe.set_stuck(true);
    pipe.write(&message[50_000..]);
    bench.pass(Duration::from_secs(3600));
    pipe.set_stuck(false);
    bench.settle();
    assert_eq!(answers(&pipe.take(), |_| 0).len(), 1);
}

/// Requests that the device keeps take all of the clients' memory, so that one more client waits for some.
fn with_one_that_waits(bench: &Bench, server: &std::rc::Rc<TestServer>, ram: &Ram) -> Vec<Pipe> {
    ram.hold(true);
    let busy: Vec<Pipe> = (0..8).map(|_| ready(bench, server, true)).collect();
    for pipe in &busy {
        for n in 0..16 {
            pipe.write(&ask(Command::Read, PLAIN, n, 0, 256 << 10));
        }
    }
    bench.settle();
    let begun = ram.ops.borrow().len();
    assert!(begun > 0 && begun < 8 * 16, "some wait for buffers: {begun}");
    busy
}

#[test]
fn clients_that_were_served_and_fell_idle_stay_however_long_others_wait() {
    let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let idle: Vec<Pipe> = (0..4).map(|_| ready(&bench, &server, true)).collect();
    // One write in one piece, one whose payload was waited for, one refused with its payload, one read that was slow.
    idle[0].write(&write(1, 0, &[9; 4096]));
    let large = write(1, 0, &vec![9; 100 << 10]);
    for part in large.chunks(30 << 10) {
        idle[1].write(part);
        bench.settle();
    }
    for part in write(1, 1 << 40, &vec![9; 100 << 10]).chunks(30 << 10) {
        idle[2].write(part);
        bench.settle();
    }
    idle[3].set_stuck(true);
    idle[3].write(&ask(Command::Read, PLAIN, 1, 0, 100 << 10));
    bench.settle();
    idle[3].set_stuck(false);
    bench.settle();
    for (n, pipe) in idle.iter().enumerate() {
        assert_eq!(answers(&pipe.take(), |_| 0).len(), 1, "client {n}");
    }
    let busy = with_one_that_waits(&bench, &server, &ram);
    bench.pass(Duration::from_secs(3600));
    let cut = |pipes: &[Pipe]| pipes.iter().map(Pipe::is_shut_down).collect::<Vec<_>>();
    assert_eq!(cut(&idle), [false; 4], "owing nothing is no fault");
    assert_eq!(cut(&busy), [false; 8], "waiting is no fault");
    ram.hold(false);
    bench.pass(Duration::from_secs(10));
    for pipe in &busy {
        assert_eq!(answers(&pipe.take(), |_| 256 << 10).len(), 16);
    }
    for pipe in &idle {
        pipe.write(&ask(Command::Read, PLAIN, 2, 0, 512));
        bench.settle();
        assert_eq!(answers(&pipe.take(), |_| 512).len(), 1);
    }
}

#[test]
fn a_client_that_owes_a_payload_or_takes_no_reply_goes_after_the_stall_time_if_others_wait() {
    let limits = Limits::default();
    let (stall, look) = (limits.hold_time_max, Duration::from_secs(1));
    for takes_no_reply in [false, true] {
        let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
        let server = server(&bench, &ram, limits.clone());
        let (slow, steady) = (ready(&bench, &server, true), ready(&bench, &server, true));
        let message = write(1, 0, &vec![9; 100 << 10]);
        // Small enough to be received piece by piece; of a large one each receive must end in the stall time.
        let small = write(1, 0, &[9; 12 << 10]);
        steady.write(&small[..1000]);
        if takes_no_reply {
            slow.set_stuck(true);
            slow.write(&ask(Command::Read, PLAIN, 1, 0, 100 << 10));
        } else {
            slow.write(&message[..50_000]);
        }
        bench.settle();
        let busy = with_one_that_waits(&bench, &server, &ram);
        // Some bytes now and then are enough.
        let mut sent = 1000;
        let mut goes_on = |time: Duration| {
            let end = bench.now() + time;
            while bench.now() < end {
                bench.pass(look);
                steady.write(&small[sent..sent + 10]);
                sent += 10;
            }
        };
        goes_on(stall - 2 * look);
        assert!(!slow.is_shut_down(), "takes no reply: {takes_no_reply}");
        goes_on(4 * look);
        assert!(slow.is_shut_down(), "takes no reply: {takes_no_reply}");
        goes_on(2 * stall);
        assert!(!steady.is_shut_down() && !busy.iter().any(Pipe::is_shut_down));
    }
}

#[test]
fn the_stall_time_begins_when_the_reply_is_ready_however_long_the_device_took() {
    let limits = Limits::default();
    let (stall, look) = (limits.stall_time_max, Duration::from_millis(100));
    let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
    let server = server(&bench, &ram, limits);
    let late = ready(&bench, &server, true);
    let busy = with_one_that_waits(&bench, &server, &ram);
    late.write(&ask(Command::Read, PLAIN, 1, 0, 4096));
    bench.pass(Duration::from_secs(90));
    late.set_stuck(true);
    // Replies that are not taken keep the memory that others wait for.
    busy.iter().for_each(|pipe| pipe.set_stuck(true));
    ram.hold(false);
    bench.pass(stall - 2 * look);
    assert!(!late.is_shut_down() && !busy.iter().any(Pipe::is_shut_down));
    late.set_stuck(false);
    bench.settle();
    assert_eq!(answers(&late.take(), |_| 4096).len(), 1);
    bench.pass(4 * look);
    assert!(!late.is_shut_down() && busy.iter().any(Pipe::is_shut_down));
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
struct Luck(u64);

impl Luck {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

fn mutated_session(luck: &mut Luck) -> Vec<u8> {
    let mut bytes = if luck.below(2) == 0 { extended_session(luck) } else { plain_session(luck) };
    for _ in 0..luck.below(4) {
        let at = luck.below(bytes.len());
        match luck.below(4) {
            0 => bytes[at] ^= 1 << luck.below(8),
            1 => bytes[at] = 0xff,
            2 => bytes.truncate(at.max(1)),
            _ => bytes.insert(at, luck.below(256) as u8),
        }
    }
    bytes
}

fn extended_session(luck: &mut Luck) -> Vec<u8> {
    let mut bytes = hello_extended();
    for _ in 0..luck.below(12) {
        let (offset, length) = (luck.below(128) as u64 * 512, (luck.below(80) as u64 + 1) * 512);
        let command = Command::from_code(luck.below(10) as u16);
        let flags = CommandFlags(1 << luck.below(7));
        let payload = vec![1; if flags.contains(CommandFlags::PAYLOAD_LEN) { length as usize } else { 0 }];
        match luck.below(3) {
            0 => bytes.extend(ask_extended(command, flags, offset, length, &payload)),
            1 => bytes.extend(ask_extended(command, PLAIN, offset, u64::MAX >> luck.below(64), &[])),
            _ => bytes.extend(ask_extended(Command::BlockStatus, PLAIN, offset, length, &[])),
        }
    }
    bytes
}

fn plain_session(luck: &mut Luck) -> Vec<u8> {
    let mut bytes = hello(luck.below(2) == 0);
    for n in 0..luck.below(12) as u64 {
        match luck.below(5) {
            0 => bytes.extend(write(n, luck.below(64) as u64 * 512, &vec![1; (luck.below(80) + 1) * 512])),
            1 => bytes.extend(ask(Command::Read, PLAIN, n, 0, luck.below(200) as u32 * 512)),
            2 => bytes.extend(ask(Command::from_code(luck.below(10) as u16), PLAIN, n, 0, 512)),
            3 => bytes.extend(ask(Command::Trim, CommandFlags(luck.below(64) as u16), n, 512, 512)),
            _ => bytes.extend(ask(Command::Flush, PLAIN, n, 0, 0)),
        }
    }
    bytes
}

#[test]
fn no_mutated_session_panics_leaks_or_leaves_the_export() {
    // More: SESSIONS=100000 cargo test -p uraid-export-nbd --test hostile --release
    let sessions = std::env::var("SESSIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(200);
    for seed in 1..=sessions {
        let mut luck = Luck(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let (bench, ram) = (Bench::new(64, 32), Ram::new(64 << 10));
        let limits = Limits { connections_max: 4, requests_max: 4, ..Limits::default() };
        let server = server(&bench, &ram, limits);
        let pipe = connect(&bench, &server);
        let bytes = mutated_session(&mut luck);
        let piece = [1, 7, 100, 5000, usize::MAX][luck.below(5)];
        for part in bytes.chunks(piece.max(bytes.len() / 50)) {
            pipe.write(part);
            ram.hold(luck.below(3) == 0);
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
fn idle_clients_of_one_user_on_all_places_lock_out_nobody() {
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
        let newcomer = ready_as(&bench, &server, false, user);
        newcomer.write(&ask(Command::Read, PLAIN, 1, 0, 512));
        bench.settle();
        assert_eq!(answers(&newcomer.take(), |_| 512).len(), 1);
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
