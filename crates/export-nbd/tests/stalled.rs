//! Clients that take no replies, send no payload or only pause: which are cut, and what the others get meanwhile.
//! Owns: the shares of memory and the watchdog, seen by clients. Not here: garbage and floods (`hostile`).

use crate::common::*;
use std::time::Duration;
use uraid_block::Tick;
use uraid_export_nbd::{Limits, Machine};
use uraid_nbd::{Command, CommandFlags};

const PLAIN: CommandFlags = CommandFlags::NONE;
const MIB: usize = 1 << 20;

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
    // Only the stuck clients themselves wait, and they cannot proceed; then a client that takes its replies arrives.
    let good = ready(&bench, &server, true);
    good.write(&ask(Command::Read, PLAIN, 1, 0, 256 << 10));
    bench.pass(Duration::from_secs(5));
    assert!(stuck.iter().any(|pipe| !pipe.is_shut_down()));
    bench.pass(Duration::from_secs(60));
    assert!(stuck.iter().any(Pipe::is_shut_down));
    assert_eq!(answers(&good.take(), |_| 256 << 10).len(), 1, "it is served");
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
    assert!(stuck.iter().all(|pipe| !pipe.is_shut_down()), "no client had to go for it");
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

/// Ten clients that take no replies and hold all but 128 KiB of the 72 MiB for requests. Each has asked for no more than
/// it may hold, so that its reader comes to what follows: a write past the end, whose payload is skipped.
fn with_ten_that_hold_it_all(bench: &Bench, server: &std::rc::Rc<TestServer>) -> Vec<Pipe> {
    let all: Vec<Pipe> = (0..10).map(|_| ready(bench, server, true)).collect();
    for pipe in &all {
        // What a client has taken, it may hold: 4.5 MiB at first, and 8 MiB more.
        (0..8).for_each(|n| pipe.write(&ask(Command::Read, PLAIN, n, 0, MIB as u32)));
        bench.settle();
        assert_eq!(answers(&pipe.take(), |_| MIB).len(), 8);
    }
    for pipe in &all {
        pipe.set_stuck(true);
        (0..7).for_each(|n| pipe.write(&ask(Command::Read, PLAIN, n, 0, MIB as u32)));
        (7..10).for_each(|n| pipe.write(&ask(Command::Read, PLAIN, n, 0, 64 << 10)));
        pipe.write(&ask(Command::Write, PLAIN, 10, 1 << 40, 16 << 20));
    }
    bench.settle();
    assert!(all.iter().all(|pipe| pipe.unread() == 0), "each is at its payload");
    all
}

#[test]
fn a_client_that_takes_no_replies_keeps_nothing_by_a_payload_that_drips() {
    let (bench, ram) = (Bench::new(4096, 1280), Ram::new(32 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let dripping = with_ten_that_hold_it_all(&bench, &server);
    let good = ready(&bench, &server, true);
    (0..20).for_each(|n| good.write(&ask(Command::Read, PLAIN, n, 0, 256 << 10)));
    let mut waited = Duration::ZERO;
    while bench.now() < Tick(0) + Duration::from_secs(60) && good.sent() < 20 * (256 << 10) {
        dripping.iter().for_each(|pipe| pipe.write(&[9]));
        bench.pass(Duration::from_millis(10));
        waited += Duration::from_millis(10);
    }
    println!("20 reads of 256 KiB were answered after {waited:?}, by {} bytes", good.sent());
    assert_eq!(answers(&good.take(), |_| 256 << 10).len(), 20, "after {waited:?}");
    assert!(waited <= Duration::from_secs(2), "no longer than beside clients that send nothing: {waited:?}");
    assert!(!good.is_shut_down() && dripping.iter().any(Pipe::is_shut_down));
}

#[test]
fn large_writes_without_their_payload_do_not_stop_the_writes_of_others() {
    let (bench, ram) = (Bench::new(4096, 1280), Ram::new(32 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let unsent: Vec<Pipe> = (0..16).map(|_| ready(&bench, &server, true)).collect();
    unsent.iter().for_each(|pipe| pipe.write(&ask(Command::Write, PLAIN, 0, 0, 32 << 20)));
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
    assert_eq!(ram.ops.borrow().len(), 40, "one for each block");
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
    assert_eq!(cut(&idle), [false; 4], "an idle client has done nothing wrong");
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
fn a_client_that_sends_no_payload_or_takes_no_reply_is_cut_after_the_stall_time_if_others_wait() {
    let limits = Limits::default();
    let (stall, check) = (limits.hold_time_max, Duration::from_secs(1));
    for takes_no_reply in [false, true] {
        let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
        let server = server(&bench, &ram, limits.clone());
        let (slow, steady) = (ready(&bench, &server, true), ready(&bench, &server, true));
        let message = write(1, 0, &vec![9; 100 << 10]);
        // 2.5 KiB a second: 75 KiB in 30 s, of which a client that holds no more than its share needs 64.
        let long = write(1, 0, &vec![9; 256 << 10]);
        steady.write(&long[..1000]);
        let (dripping, small) = (ready(&bench, &server, true), write(1, 0, &[9; 12 << 10]));
        dripping.write(&small[..1000]);
        if takes_no_reply {
            slow.set_stuck(true);
            slow.write(&ask(Command::Read, PLAIN, 1, 0, 100 << 10));
        } else {
            slow.write(&message[..50_000]);
        }
        bench.settle();
        let busy = with_one_that_waits(&bench, &server, &ram);
        let mut sent = 1000;
        let mut goes_on = |time: Duration| {
            let end = bench.now() + time;
            while bench.now() < end {
                bench.pass(check);
                steady.write(&long[sent..sent + 2560]);
                dripping.write(&[9]);
                sent += 2560;
            }
        };
        goes_on(stall - 2 * check);
        assert!(!slow.is_shut_down() && !dripping.is_shut_down(), "takes no reply: {takes_no_reply}");
        goes_on(4 * check);
        assert!(slow.is_shut_down() && dripping.is_shut_down(), "takes no reply: {takes_no_reply}");
        goes_on(2 * stall);
        assert!(!steady.is_shut_down() && !busy.iter().any(Pipe::is_shut_down));
    }
}

/// One of these clients sends a payload of 1 MiB at this many bytes a second, beside one that waits for memory, and it
/// holds more than its share. Says whether it is cut, or else answered, and when.
fn uploads(bytes_per_second: usize) -> (bool, Duration) {
    let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let uploader = ready(&bench, &server, true);
    let (message, step) = (write(1, 0, &vec![9; MIB]), Duration::from_millis(10));
    uploader.write(&message[..28]);
    bench.settle();
    let _busy = with_one_that_waits(&bench, &server, &ram);
    let (begin, mut sent) = (bench.now(), 28);
    loop {
        bench.pass(step);
        let time = bench.now().since(begin);
        let due = (28 + (time.as_millis() as usize * bytes_per_second) / 1000).min(message.len());
        uploader.write(&message[sent..due]);
        sent = due;
        let has_arrived = ram.ops.borrow().iter().any(|op| matches!(op, Op::Write(..)));
        if uploader.is_shut_down() || has_arrived {
            return (uploader.is_shut_down(), time);
        }
    }
}

#[test]
fn a_steady_uploader_stays_where_memory_is_short_and_one_that_drips_goes() {
    for (bytes_per_second, is_cut) in
        [(1, true), (1000, true), (100_000, true), (300_000, false), (MIB, false), (4 * MIB, false)]
    {
        let (found, time) = uploads(bytes_per_second);
        println!("a payload of 1 MiB at {bytes_per_second} B/s: {} after {time:?}", if found { "cut" } else { "done" });
        assert_eq!(found, is_cut, "{bytes_per_second} B/s");
        assert!(!is_cut || time < Duration::from_secs(2), "{bytes_per_second} B/s: cut after {time:?}");
    }
}

#[test]
fn the_stall_time_begins_when_the_reply_is_ready_however_long_the_device_took() {
    let limits = Limits::default();
    let (stall, check) = (limits.stall_time_max, Duration::from_millis(100));
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
    bench.pass(stall - 2 * check);
    assert!(!late.is_shut_down() && !busy.iter().any(Pipe::is_shut_down));
    late.set_stuck(false);
    bench.settle();
    assert_eq!(answers(&late.take(), |_| 4096).len(), 1);
    bench.pass(4 * check);
    assert!(!late.is_shut_down() && busy.iter().any(Pipe::is_shut_down));
}

#[test]
fn a_server_that_was_held_up_itself_cuts_no_client_for_that_time() {
    let (bench, ram) = (Bench::new(64, 64), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let busy = with_one_that_waits(&bench, &server, &ram);
    busy.iter().for_each(|pipe| pipe.set_stuck(true));
    ram.hold(false);
    bench.pass(Duration::from_millis(100));
    bench.hold_up(Duration::from_secs(60));
    assert!(!busy.iter().any(Pipe::is_shut_down));
    busy.iter().for_each(|pipe| pipe.set_stuck(false));
    bench.settle();
    for pipe in &busy {
        assert_eq!(answers(&pipe.take(), |_| 256 << 10).len(), 16);
    }
}
