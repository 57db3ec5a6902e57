//! A server and clients that keep to the protocol: what is written is read, what fails says why, what is asked at once is answered at once.
//! Owns: the rules of the transmission phase and of stopping. Not here: clients that mean harm (`hostile.rs`).

use crate::common::*;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{ErrorKind, Fua};
use uraid_export_nbd::{Export, Limits, Machine, Server};
use uraid_nbd::handshake::{client_flags, option};
use uraid_nbd::{Command, CommandFlags, ErrorCode, ExportQuery, HandshakeFlags, OptionCode};

const PLAIN: CommandFlags = CommandFlags::NONE;
const FUA: CommandFlags = CommandFlags::FUA;
const MIB: usize = 1 << 20;

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|n| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(n * n * 31 + n) >> 5) as u8)
        .collect()
}

#[test]
fn what_was_written_is_read_with_simple_and_structured_replies() {
    for structured in [false, true] {
        let (bench, ram) = (Bench::new(256, 64), Ram::new(4 * MIB));
        let server = server(&bench, &ram, Limits::default());
        let pipe = ready(&bench, &server, structured);
        for (n, bytes) in [512, 4096, 20 << 10, 32 << 10, 100 << 10, MIB, 2 * MIB].into_iter().enumerate() {
            let data = pattern(n as u64, bytes);
            // In one piece, and then cut so that heads and payloads arrive in parts.
            let message = [write(1, 512, &data), ask(Command::Flush, PLAIN, 2, 0, 0)].concat();
            for part in message.chunks([usize::MAX, 1000, 40_000][n % 3]) {
                pipe.write(part);
                bench.settle();
            }
            let done = answers(&pipe.take(), |_| 0);
            assert_eq!(done.iter().map(|answer| answer.result.is_ok()).collect::<Vec<_>>(), [true, true]);
            pipe.write(&ask(Command::Read, PLAIN, 3, 512, bytes as u32));
            bench.settle();
            let read = answers(&pipe.take(), |_| bytes);
            assert_eq!(read.len(), 1);
            assert!(read[0].result.as_ref() == Ok(&data), "{bytes} bytes, structured {structured}");
        }
        pipe.write(&ask(Command::Disconnect, PLAIN, 4, 0, 0));
        bench.settle();
        assert!(pipe.is_shut_down() && pipe.take().is_empty());
        assert_eq!((server.connections(), server.requests_running()), (0, 0));
        assert_eq!(bench.arena().blocks_in_use(), 0);
        assert_eq!(server.statistics().broken, 0);
    }
}

#[test]
fn many_small_requests_come_in_one_receive_and_leave_in_few_sends() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(4 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    let before = server.statistics();
    let requests: Vec<u8> = (0..64).flat_map(|n| ask(Command::Read, PLAIN, n, n * 4096, 4096)).collect();
    pipe.write(&requests);
    bench.settle();
    let read = answers(&pipe.take(), |_| 4096);
    assert_eq!(read.iter().map(|answer| answer.cookie).collect::<Vec<_>>(), (0..64).collect::<Vec<_>>());
    let now = server.statistics();
    assert_eq!(now.receives - before.receives, 1);
    // 256 KiB leave in two parts, so that the client takes the first while the second is read.
    assert!((1..=3).contains(&(now.sends - before.sends)), "{} sends", now.sends - before.sends);
    assert_eq!((now.reads, now.read_bytes), (64, 64 * 4096));
}

#[test]
fn a_stream_of_large_writes_is_received_without_copies_ahead() {
    let (bench, ram) = (Bench::new(256, 256), Ram::new(16 * MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    let all: Vec<u8> = (0..16).flat_map(|n| write(n, n * MIB as u64, &pattern(n, MIB))).collect();
    pipe.write(&all);
    bench.settle();
    assert_eq!(answers(&pipe.take(), |_| 0).len(), 16);
    for n in 0..16 {
        assert!(ram.bytes.borrow()[n * MIB..][..MIB] == pattern(n as u64, MIB)[..], "write {n}");
    }
    // Per write: its payload and the next one's header in one.
    assert!(server.statistics().receives <= 4 + 16, "{} receives", server.statistics().receives);
}

#[test]
fn fua_flush_trim_and_zeroes_reach_the_device_as_asked() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    let mut fua_write = ask(Command::Write, FUA, 1, 0, 512);
    fua_write.extend_from_slice(&[7; 512]);
    for (message, expected) in [
        (write(1, 0, &[7; 512]), vec![Op::Write(0, 1, Fua::No)]),
        (fua_write, vec![Op::Write(0, 1, Fua::Yes)]),
        (ask(Command::Flush, PLAIN, 1, 0, 0), vec![Op::Flush]),
        (ask(Command::Trim, PLAIN, 1, 512, 1024), vec![Op::Discard(1, 2)]),
        (ask(Command::Trim, FUA, 1, 512, 1024), vec![Op::Discard(1, 2), Op::Flush]),
        (ask(Command::WriteZeroes, CommandFlags::NO_HOLE, 1, 0, MIB as u32), vec![Op::WriteZeroes(0, 2048)]),
        (ask(Command::WriteZeroes, FUA, 1, 0, 512), vec![Op::WriteZeroes(0, 1), Op::Flush]),
        (ask(Command::Read, FUA, 1, 0, 512), vec![Op::Read(0, 1)]),
    ] {
        ram.ops.borrow_mut().clear();
        pipe.write(&message);
        bench.settle();
        assert_eq!(*ram.ops.borrow(), expected);
        assert!(answers(&pipe.take(), |_| 0)[0].result.is_ok());
    }
}

#[test]
fn a_failure_is_the_protocols_error_with_the_devices_words() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let (simple, structured) = (ready(&bench, &server, false), ready(&bench, &server, true));
    for (kind, code) in [
        (ErrorKind::Media, ErrorCode::Io),
        (ErrorKind::TooManyLost, ErrorCode::Io),
        (ErrorKind::NoSpace, ErrorCode::NoSpace),
        (ErrorKind::ReadOnly, ErrorCode::NotPermitted),
        (ErrorKind::Stopping, ErrorCode::Shutdown),
        (ErrorKind::Unsupported, ErrorCode::NotSupported),
    ] {
        ram.failure.set(Some(kind));
        for pipe in [&simple, &structured] {
            pipe.write(&ask(Command::Read, PLAIN, 9, 0, 4096));
            pipe.write(&write(10, 0, &[1; 512]));
            bench.settle();
            for answer in answers(&pipe.take(), |_| 0) {
                let (found, text) = answer.result.expect_err("the device failed");
                assert_eq!(found, code);
                assert!(std::ptr::eq(pipe, &simple) == text.is_empty());
                assert!(text.is_empty() || text == format!("{kind} (errno 5)"));
            }
        }
    }
    ram.failure.set(Some(ErrorKind::Unsupported));
    simple.write(&ask(Command::Trim, PLAIN, 1, 0, 512));
    bench.settle();
    assert!(answers(&simple.take(), |_| 0)[0].result.is_ok(), "a trim is a hint");
}

#[test]
fn refused_requests_are_answered_and_the_next_one_is_found() {
    let (bench, ram) = (Bench::new(256, 1024), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    for (message, code) in [
        (write(1, MIB as u64 - 512, &[1; 1024]), ErrorCode::NoSpace),
        (write(1, 3, &[1; 512]), ErrorCode::Invalid),
        (write(1, u64::MAX - 511, &vec![1; 200_000]), ErrorCode::Invalid),
        (write(1, 0, &vec![1; 33 << 10])[..28].to_vec(), ErrorCode::Invalid),
        (ask(Command::Read, PLAIN, 1, MIB as u64, 512), ErrorCode::Invalid),
        (ask(Command::Read, PLAIN, 1, 0, 0), ErrorCode::Invalid),
        (ask(Command::Unknown(77), PLAIN, 1, 0, 0), ErrorCode::Invalid),
        (ask(Command::WriteZeroes, CommandFlags::FAST_ZERO, 1, 0, 512), ErrorCode::NotSupported),
    ] {
        if message.len() == 28 && message[7] == 1 {
            continue;
        }
        pipe.write(&[message, ask(Command::Read, PLAIN, 2, 0, 512)].concat());
        bench.settle();
        let mut list = answers(&pipe.take(), |_| 0);
        list.sort_by_key(|answer| answer.cookie);
        let (found, text) = list[0].result.clone().expect_err("refused");
        assert_eq!((found, list.len()), (code, 2));
        assert!(!text.is_empty() && list[1].result.is_ok());
    }
    assert!(ram.ops.borrow().iter().all(|op| matches!(op, Op::Read(0, 1))));
    assert_eq!(server.statistics().refused, 7);
}

#[test]
fn a_disconnect_ends_after_the_requests_before_it() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    ram.hold(true);
    pipe.write(&[ask(Command::Read, PLAIN, 1, 0, 4096), ask(Command::Disconnect, PLAIN, 2, 0, 0)].concat());
    bench.settle();
    assert!(!pipe.is_shut_down());
    ram.hold(false);
    bench.settle();
    assert_eq!(answers(&pipe.take(), |_| 4096).len(), 1);
    assert!(pipe.is_shut_down());
    assert_eq!(server.connections(), 0);
}

#[test]
fn stopping_answers_what_is_in_flight_and_closes_all() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let (busy, idle, half, new) = (
        ready(&bench, &server, true),
        ready(&bench, &server, true),
        ready(&bench, &server, true),
        connect(&bench, &server),
    );
    half.write(&write(1, 0, &[1; 4096])[..2000]);
    busy.write(&write(1, 4096, &[2; 4096]));
    ram.hold(true);
    bench.settle();
    let stopping = server.clone();
    let (device, machine) = (ram.clone(), bench.clone());
    bench.spawn(async move {
        machine.sleep(Duration::from_secs(1)).await;
        device.hold(false);
    });
    assert_eq!(bench.finish(async move { stopping.stop(Duration::from_secs(5)).await }), 0);
    assert!(busy.is_shut_down() && idle.is_shut_down() && half.is_shut_down() && new.is_shut_down());
    assert_eq!(answers(&busy.take(), |_| 0).len(), 1);
    assert_eq!(*ram.ops.borrow(), [Op::Write(8, 8, Fua::No)], "half a payload is never written");
    let late = connect(&bench, &server);
    assert!(late.is_shut_down());
}

#[test]
fn stopping_ends_in_time_when_client_or_device_hang() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let (stuck, waiting) = (ready(&bench, &server, true), ready(&bench, &server, true));
    stuck.set_stuck(true);
    stuck.write(&ask(Command::Read, PLAIN, 1, 0, 4096));
    bench.settle();
    ram.hold(true);
    waiting.write(&ask(Command::Read, PLAIN, 1, 0, 4096));
    bench.settle();
    let stopping = server.clone();
    assert_eq!(bench.finish(async move { stopping.stop(Duration::from_secs(4)).await }), 1);
    assert!(stuck.is_shut_down() && waiting.is_shut_down());
    ram.hold(false);
    bench.settle();
    assert_eq!((server.connections(), server.requests_running()), (0, 0));
    assert_eq!(bench.arena().blocks_in_use(), 0);
}

#[test]
fn a_client_reaches_the_device_and_the_flags_of_the_export_it_chose_and_no_other() {
    let (bench, first, second) = (Bench::new(256, 64), Ram::new(MIB), Ram::new(2 * MIB));
    let export = |name: &str, read_only| Export { name: name.into(), description: String::new(), read_only };
    let exports = vec![(export("md0", true), first.clone()), (export("md1", false), second.clone())];
    let server: Rc<TestServer> = Server::new(bench.clone(), exports, Limits::default());
    let enter = |name: &str| {
        let pipe = connect(&bench, &server);
        pipe.write(&client_flags(HandshakeFlags::KNOWN));
        pipe.write(&option(OptionCode::Go, &ExportQuery { name, infos: vec![] }.encode()));
        bench.settle();
        assert!(!pipe.take().is_empty());
        pipe
    };
    let data = pattern(1, 4096);
    let (default, chosen) = (enter(""), enter("md1"));
    for (pipe, offset, is_good) in [(&default, 0, false), (&chosen, MIB, true), (&chosen, 2 * MIB, false)] {
        pipe.write(&write(1, offset as u64, &data));
        bench.settle();
        assert_eq!(answers(&pipe.take(), |_| 0)[0].result.is_ok(), is_good, "at {offset}");
    }
    chosen.write(&ask(Command::Read, PLAIN, 2, MIB as u64, 4096));
    default.write(&ask(Command::Read, PLAIN, 2, 0, 4096));
    bench.settle();
    assert_eq!(answers(&chosen.take(), |_| 4096)[0].result, Ok(data));
    assert_eq!(answers(&default.take(), |_| 4096)[0].result, Ok(vec![0; 4096]));
}

#[test]
fn a_device_that_has_grown_is_seen_whole_by_clients_that_come_then_and_by_no_others() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let before = ready(&bench, &server, true);
    ram.bytes.borrow_mut().resize(2 * MIB, 7);
    let after = ready(&bench, &server, true);
    for (pipe, is_told) in [(&before, false), (&after, true)] {
        for (offset, is_good) in [(0, true), (MIB, is_told), (2 * MIB - 4096, is_told), (2 * MIB, false)] {
            pipe.write(&ask(Command::Read, PLAIN, 1, offset as u64, 4096));
            bench.settle();
            assert_eq!(answers(&pipe.take(), |_| 0)[0].result.is_ok(), is_good, "{is_told}, at {offset}");
        }
    }
}

#[test]
fn a_failure_of_the_device_is_answered_as_one_whatever_was_asked() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(1 << 20));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    for (kind, code) in
        [(ErrorKind::Media, 5), (ErrorKind::Frozen, 5), (ErrorKind::NoSpace, 28), (ErrorKind::Unsupported, 95)]
    {
        ram.failure.set(Some(kind));
        let write_fua = [ask(Command::Write, FUA, 0, 0, 512), vec![7; 512]].concat();
        for (what, message) in [
            ("read", ask(Command::Read, PLAIN, 0, 0, 512)),
            ("write", write(0, 0, &[7; 512])),
            ("durable write", write_fua),
            ("flush", ask(Command::Flush, PLAIN, 0, 0, 0)),
            ("trim", ask(Command::Trim, PLAIN, 0, 0, 512)),
            ("durable trim", ask(Command::Trim, FUA, 0, 0, 512)),
            ("zeroes", ask(Command::WriteZeroes, PLAIN, 0, 0, 512)),
            ("durable zeroes", ask(Command::WriteZeroes, FUA, 0, 0, 512)),
        ] {
            pipe.write(&message);
            bench.settle();
            let list = answers(&pipe.take(), |_| 0);
            let found = list[0].result.as_ref().err().map(|(error, _)| error.code());
            // A trim is a hint, which a device need not take. What is durable needs its flush all the same.
            let expected = (what != "trim" || kind != ErrorKind::Unsupported).then_some(code);
            assert_eq!((list.len(), found), (1, expected), "{what}, {kind:?}");
        }
    }
    assert!(ram.bytes.borrow().iter().all(|byte| *byte == 0));
}

#[test]
fn the_request_behind_a_refused_payload_is_found_however_long_that_is() {
    for bytes in [512, 4096, 100 << 10, MIB, MIB + 512, 3 * MIB, 32 * MIB] {
        let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
        let server = server(&bench, &ram, Limits::default());
        let pipe = ready(&bench, &server, true);
        // A payload that would do as a request, if the server took it for one.
        let request = ask(Command::Write, PLAIN, 9, 0, 512);
        let payload: Vec<u8> = request.iter().copied().cycle().take(bytes).collect();
        pipe.write(&write(1, 1 << 40, &payload));
        pipe.write(&ask(Command::Read, PLAIN, 2, 0, 512));
        bench.settle();
        let list = answers(&pipe.take(), |_| 0);
        let cookies: Vec<u64> = list.iter().map(|answer| answer.cookie).collect();
        assert_eq!((cookies, list[0].result.is_err(), list[1].result.is_ok()), (vec![1, 2], true, true), "{bytes}");
        assert_eq!(ram.ops.borrow().len(), 1, "{bytes}");
    }
}

/// A client that has written and read, with many requests at once so that several workers have come.
fn served(bench: &Bench, server: &Rc<TestServer>, ram: &Ram) -> Pipe {
    let pipe = ready(bench, server, true);
    ram.hold(true);
    for n in 0..5 {
        pipe.write(&write(n, 0, &[7; 4096]));
        pipe.write(&ask(Command::Read, PLAIN, 10 + n, 0, 4096));
    }
    bench.settle();
    ram.hold(false);
    bench.settle();
    assert_eq!(answers(&pipe.take(), |_| 0).len(), 10);
    pipe
}

#[test]
fn no_task_is_left_of_a_connection_that_ended_nor_of_a_server_that_stopped() {
    type End = fn(&Pipe);
    let ends: [(&str, End); 4] = [
        ("disconnects", |pipe| pipe.write(&ask(Command::Disconnect, PLAIN, 99, 0, 0))),
        ("goes", Pipe::close),
        ("goes within a message", |pipe| {
            pipe.write(&write(99, 0, &[7; 4096])[..1000]);
            pipe.close();
        }),
        ("sends garbage", |pipe| pipe.write(&[0x55; 64])),
    ];
    for (what, end) in ends {
        for stops in [false, true] {
            let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
            let server = server(&bench, &ram, Limits::default());
            let pipe = served(&bench, &server, &ram);
            end(&pipe);
            bench.settle();
            assert_eq!(server.connections(), 0, "{what}");
            if stops {
                assert_eq!(
                    bench.finish({
                        let server = server.clone();
                        async move { server.stop(Duration::from_secs(10)).await }
                    }),
                    0
                );
            }
            // The watchdog waits for connections, checks them periodically, and ends with the server.
            bench.pass(Duration::from_secs(1));
            assert_eq!(bench.end(), usize::from(!stops), "a client {what}; the server stops: {stops}");
        }
    }
}

#[test]
fn a_stop_ends_as_soon_as_the_last_request_is_answered() {
    for is_idle in [false, true] {
        let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
        let server = server(&bench, &ram, Limits::default());
        let pipe = ready(&bench, &server, true);
        if !is_idle {
            ram.hold(true);
            pipe.write(&ask(Command::Read, PLAIN, 1, 0, 512));
        }
        bench.settle();
        let (stopped, stopping) = (Rc::new(std::cell::Cell::new(None)), server.clone());
        let slot = stopped.clone();
        bench.spawn(async move { slot.set(Some(stopping.stop(Duration::from_secs(3600)).await)) });
        bench.settle();
        assert_eq!(stopped.get(), is_idle.then_some(0));
        ram.hold(false);
        // No time passes: what ends wakes what waits for it.
        bench.settle();
        assert_eq!((stopped.get(), server.connections()), (Some(0), 0), "idle: {is_idle}");
        assert!(pipe.is_shut_down());
    }
}

#[test]
fn no_reply_goes_out_between_the_parts_of_another_one() {
    const BYTES: usize = 300 << 10;
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let server = server(&bench, &ram, Limits::default());
    let pipe = ready(&bench, &server, true);
    ram.bytes.borrow_mut().copy_from_slice(&pattern(3, MIB));
    pipe.stick_half_way();
    pipe.write(&ask(Command::Read, PLAIN, 1, 0, BYTES as u32));
    bench.settle();
    ram.hold(true);
    pipe.write(&ask(Command::Read, PLAIN, 2, 4096, BYTES as u32));
    bench.settle();
    // The second reply is ready before the sender of the first one hears that the client takes more.
    ram.hold(false);
    pipe.set_stuck(false);
    bench.settle();
    let found = answers(&pipe.take(), |_| BYTES);
    let read: Vec<_> = found.iter().map(|answer| answer.result.as_deref()).collect();
    let bytes = ram.bytes.borrow();
    assert!(read == [Ok(&bytes[..BYTES]), Ok(&bytes[4096..4096 + BYTES])], "{} replies", read.len());
}
