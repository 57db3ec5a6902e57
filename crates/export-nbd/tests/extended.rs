//! Extended headers, block status and cache, by clients that keep the rules and by some that do not.
//! Owns: the new messages of the transmission phase. Not here: how they are agreed (`handshake_tests.rs`).

use crate::common::*;
use std::rc::Rc;
use uraid_block::ErrorKind;
use uraid_export_nbd::{Limits, Machine};
use uraid_nbd::extended::EXTENDED_CHUNK_HEADER_BYTES;
use uraid_nbd::handshake::{client_flags, option};
use uraid_nbd::{
    BlockStatus, Chunk, ChunkHeader, ChunkKind, Command, CommandFlags, ErrorCode, ExportQuery, ExtendedChunkHeader,
    HandshakeFlags, MetaContextQuery, OptionCode, StatusExtent,
};

const PLAIN: CommandFlags = CommandFlags::NONE;
const PAYLOAD: CommandFlags = CommandFlags::PAYLOAD_LEN;
const MIB: usize = 1 << 20;
const ZERO: u64 = 3;

/// A server of `ram` and a client with extended headers and block status.
fn extended(bench: &Bench, ram: &Rc<Ram>) -> (Rc<TestServer>, Pipe) {
    let server = server(bench, ram, Limits::default());
    let pipe = connect(bench, &server);
    pipe.write(&hello_extended());
    bench.settle();
    assert!(pipe.take().len() > 100);
    (server, pipe)
}

/// Sends a request; the only reply, with its payload.
fn call(bench: &Bench, pipe: &Pipe, bytes: &[u8]) -> (ExtendedChunkHeader, Vec<u8>) {
    pipe.write(bytes);
    bench.settle();
    let reply = pipe.take();
    let header = ExtendedChunkHeader::parse(reply.first_chunk().expect("a header")).expect("an extended chunk");
    let payload = reply[EXTENDED_CHUNK_HEADER_BYTES..].to_vec();
    assert!(header.is_last && header.length == payload.len() as u64);
    let sent = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    assert_eq!((header.cookie.0, header.offset), (sent(8), sent(16)), "the request is named");
    (header, payload)
}

fn error_of(reply: &(ExtendedChunkHeader, Vec<u8>)) -> Option<ErrorCode> {
    match Chunk::parse(reply.0.kind, &reply.1) {
        Ok(Chunk::Error { error, .. }) => Some(error),
        Ok(_) | Err(_) => None,
    }
}

fn status_of(bench: &Bench, pipe: &Pipe, flags: CommandFlags, offset: u64, length: u64) -> Vec<StatusExtent> {
    let (header, payload) = call(bench, pipe, &ask_extended(Command::BlockStatus, flags, offset, length, &[]));
    assert_eq!(header.kind, ChunkKind::BlockStatusExtended);
    let status = BlockStatus::parse_extended(&payload).expect("block status");
    assert_eq!(status.context, 1);
    status.extents
}

#[test]
fn with_extended_headers_every_reply_is_an_extended_chunk() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let (server, pipe) = extended(&bench, &ram);
    for (bytes, kind) in [
        (ask_extended(Command::Write, PAYLOAD, 4096, 70_144, &[7; 70_144]), ChunkKind::None),
        (ask_extended(Command::Flush, PLAIN, 0, 0, &[]), ChunkKind::None),
        (ask_extended(Command::Trim, PLAIN, MIB as u64 / 2, MIB as u64 / 2, &[]), ChunkKind::None),
        (ask_extended(Command::WriteZeroes, PLAIN, 4096, 512, &[]), ChunkKind::None),
        (ask_extended(Command::Cache, PLAIN, 0, MIB as u64, &[]), ChunkKind::None),
        (ask_extended(Command::Read, PLAIN, 0, MIB as u64 + 512, &[]), ChunkKind::Error),
    ] {
        assert_eq!(call(&bench, &pipe, &bytes).0.kind, kind);
    }
    let (header, data) = call(&bench, &pipe, &ask_extended(Command::Read, PLAIN, 4096, 1024, &[]));
    assert_eq!((header.kind, &data[..8]), (ChunkKind::OffsetData, &4096u64.to_be_bytes()[..]));
    assert_eq!(data[8..], [[0; 512], [7; 512]].concat());
    let counts = server.statistics();
    assert_eq!((counts.caches, counts.refused, counts.failed), (1, 1, 0));
    let device = |op: &Op| !matches!(op, Op::Read(..) | Op::Write(..) | Op::Flush);
    let ops: Vec<Op> = ram.ops.borrow().iter().copied().filter(device).collect();
    assert_eq!(ops, [Op::Discard(1024, 1024), Op::WriteZeroes(8, 1)], "cache moves nothing");
    pipe.write(&ask_extended(Command::Disconnect, PLAIN, 0, 0, &[]));
    bench.settle();
    assert!(pipe.is_shut_down() && bench.arena().blocks_in_use() == 0 && server.statistics().broken == 0);
}

#[test]
fn block_status_joins_what_the_device_tells_in_small_stretches() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    ram.bytes.borrow_mut()[200 << 10..300 << 10].fill(1);
    let (_server, pipe) = extended(&bench, &ram);
    let extent = |kib: u64, state| StatusExtent { length: kib << 10, state };
    let all = [extent(200, ZERO), extent(100, 0), extent(724, ZERO)];
    assert_eq!(status_of(&bench, &pipe, PLAIN, 0, MIB as u64), all);
    assert_eq!(status_of(&bench, &pipe, CommandFlags::REQ_ONE, 0, MIB as u64), all[..1]);
    assert_eq!(status_of(&bench, &pipe, PLAIN, 250 << 10, 60 << 10), [extent(50, 0), extent(10, ZERO)]);
    assert_eq!(status_of(&bench, &pipe, PLAIN, 0, 512), [StatusExtent { length: 512, state: ZERO }]);
    ram.failure.set(Some(ErrorKind::Media));
    let failed = call(&bench, &pipe, &ask_extended(Command::BlockStatus, PLAIN, 0, 512, &[]));
    assert_eq!(error_of(&failed), Some(ErrorCode::Io));
}

#[test]
fn a_reply_of_block_status_is_bounded_and_the_next_goes_on_where_it_ended() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    for sector in ram.bytes.borrow_mut().chunks_mut(1024) {
        sector[512..].fill(9);
    }
    let (_server, pipe) = extended(&bench, &ram);
    let mut at = 0;
    let mut replies = 0;
    while at < MIB as u64 {
        let extents = status_of(&bench, &pipe, PLAIN, at, MIB as u64 - at);
        assert!(extents.len() <= 250);
        for extent in extents {
            assert_eq!(extent, StatusExtent { length: 512, state: if at % 1024 == 0 { ZERO } else { 0 } });
            at += extent.length;
        }
        replies += 1;
    }
    assert_eq!(replies, 2048usize.div_ceil(250));
}

#[test]
fn block_status_comes_with_32_bit_lengths_where_only_structured_replies_were_agreed() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    ram.bytes.borrow_mut()[..4096].fill(1);
    let server = server(&bench, &ram, Limits::default());
    let contexts = MetaContextQuery { name: "", queries: vec!["base:allocation"] }.encode();
    let pipe = connect(&bench, &server);
    pipe.write(&client_flags(HandshakeFlags::KNOWN));
    pipe.write(&option(OptionCode::StructuredReply, &[]));
    pipe.write(&option(OptionCode::SetMetaContext, &contexts));
    pipe.write(&option(OptionCode::Go, &ExportQuery { name: "md0", infos: vec![] }.encode()));
    bench.settle();
    pipe.take();
    pipe.write(&ask(Command::BlockStatus, PLAIN, 5, 0, MIB as u32));
    bench.settle();
    let reply = pipe.take();
    let header = ChunkHeader::parse(reply.first_chunk().expect("a header")).expect("a chunk");
    assert_eq!((header.kind, header.is_last, header.cookie.0), (ChunkKind::BlockStatus, true, 5));
    let extents = BlockStatus::parse(&reply[20..]).expect("block status").extents;
    let expected = [(4096, 0), (MIB as u64 - 4096, ZERO)].map(|(length, state)| StatusExtent { length, state });
    assert_eq!(extents, expected);
    // Without the context it is refused, and the connection goes on.
    let plain = ready(&bench, &server, true);
    plain.write(&ask(Command::BlockStatus, PLAIN, 5, 0, MIB as u32));
    plain.write(&ask(Command::Read, PLAIN, 6, 0, 512));
    bench.settle();
    let list = answers(&plain.take(), |_| 0);
    let refused = list[0].result.as_ref().expect_err("no context");
    assert!(refused.0 == ErrorCode::Invalid && refused.1.contains("base:allocation") && list[1].result.is_ok());
}

#[test]
fn lengths_up_to_64_bits_neither_overflow_nor_allocate() {
    let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
    let (_server, pipe) = extended(&bench, &ram);
    for command in [Command::Read, Command::Trim, Command::WriteZeroes, Command::Cache, Command::BlockStatus] {
        for (offset, length) in [(0, u64::MAX - 511), (512, u64::MAX - 511), (u64::MAX - 511, 512), (0, 1 << 32)] {
            let refused = call(&bench, &pipe, &ask_extended(command, PLAIN, offset, length, &[]));
            assert!(error_of(&refused).is_some(), "{command:?} at {offset:#x} + {length:#x}");
        }
    }
    assert!(ram.ops.borrow().is_empty());
    // An unexpected payload is skipped, and the next request is found.
    for command in [Command::Read, Command::BlockStatus, Command::Trim, Command::Unknown(99)] {
        let refused = call(&bench, &pipe, &ask_extended(command, PAYLOAD, 0, 100_000, &[0x25; 100_000]));
        assert_eq!(error_of(&refused), Some(ErrorCode::Invalid), "{command:?}");
    }
    assert_eq!(call(&bench, &pipe, &ask_extended(Command::Flush, PLAIN, 0, 0, &[])).0.kind, ChunkKind::None);
    assert_eq!(bench.arena().blocks_in_use(), 0);
}

#[test]
fn a_request_after_which_none_can_be_found_gets_an_error_and_a_disconnect() {
    for (bytes, is_answered) in [
        (ask_extended(Command::Write, PLAIN, 0, 512, &[0; 512]), true), // does a payload follow?
        (ask_extended(Command::Write, PAYLOAD, 0, (32 << 20) + 512, &[]), true),
        (ask_extended(Command::BlockStatus, PAYLOAD, 0, u64::MAX, &[]), true),
        ([ask(Command::Flush, PLAIN, 1, 0, 0), vec![0; 4]].concat(), false), // 32-bit headers were given up
    ] {
        let (bench, ram) = (Bench::new(256, 64), Ram::new(MIB));
        let (server, pipe) = extended(&bench, &ram);
        pipe.write(&bytes);
        bench.settle();
        let header = pipe.take().first_chunk().map(|bytes| ExtendedChunkHeader::parse(bytes).expect("a chunk").kind);
        assert_eq!(header, is_answered.then_some(ChunkKind::Error));
        assert!(pipe.is_shut_down() && ram.ops.borrow().is_empty());
        assert_eq!((server.connections(), server.statistics().broken), (0, 1));
        assert_eq!(bench.arena().blocks_in_use(), 0);
    }
}
