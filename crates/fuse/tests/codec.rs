//! The messages of a real kernel, and bytes that are none.
//! Owns: golden bytes, seeded mutations of them. Not here: what a server does (`export-fuse`).
//! Invariant: a value or an error, never a panic.
//!
//! The golden bytes are what Linux 6.18 sent to a server of one file, `home`, of 1 MiB: open(O_RDWR | O_TRUNC), pread of
//! 100 bytes at 4096, pwrite of 512 at 8192, fsync, fallocate(PUNCH_HOLE | KEEP_SIZE, 4096, 8192), lseek(5, SEEK_HOLE),
//! statvfs, listdir, close, unlink. x86-64, so little-endian.

#![cfg(target_endian = "little")]

use uraid_fuse::request::{HEADER_BYTES, WRITE_BYTES};
use uraid_fuse::words::{change, fallocate, init, seek};
use uraid_fuse::{
    Attributes, Errno, FileKind, FileSystem, Init, InitReply, NodeId, Operation, Range, RequestHeader, SetAttributes,
    Unique, WireError, directory_entry, reply, reply_header,
};

const INIT: &str = "680000001a0000000200000000000000000000000000000000000000000000000000000000000000070000002d00000000000200\
                    fbffff73fd0500000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000";
const LOOKUP: &str = "2d000000010000000600000000000000010000000000000000000000000000000c13000000000000686f6d6500";
const OPEN: &str = "300000000e0000000800000000000000020000000000000000000000000000000c130000000000000280000000000000";
const SETATTR: &str = "80000000040000000c00000000000000020000000000000000000000000000000c130000000000000802000000000000\
                       000000000000000000000000000000008c7e2c7af0b08ee100000000000000000000000000000000000000000000000000\
                       00000000000000000000000000000000000000000000000000000000000000";
const READ: &str = "500000000f0000000e00000000000000020000000000000000000000000000000c130000000000000000000000000000\
                    001000000000000064000000020000008c7e2c7af0b08ee10280000000000000";
const WRITE: &str = "50020000100000001000000000000000020000000000000000000000000000000c130000000000000000000000000000\
                     002000000000000000020000020000008c7e2c7af0b08ee10280000000000000";
const FALLOCATE: &str = "480000002b0000001400000000000000020000000000000000000000000000000c130000000000000000000000000000\
                         001000000000000000200000000000000300000000000000";
const LSEEK: &str = "400000002e0000001600000000000000020000000000000000000000000000000c13000000000000000000000000000005\
                     000000000000000400000000000000";
const READDIR: &str = "500000001c0000001c00000000000000010000000000000000000000000000000c130000000000000000000000000000\
                       0000000000000000008000000000000000000000000000000088010000000000";
const UNLINK: &str = "2d0000000a0000002400000000000000010000000000000000000000000000000c13000000000000686f6d6500";
/// FSYNC, STATFS, OPENDIR, RELEASEDIR, RELEASE, GETATTR.
const SHORT: [(&str, Operation<'static>); 6] = [
    (
        "38000000140000001200000000000000020000000000000000000000000000000c1300000000000000000000000000000000000000000000",
        Operation::Sync,
    ),
    ("28000000110000001800000000000000020000000000000000000000000000000c13000000000000", Operation::StatFs),
    (
        "300000001b0000001a00000000000000010000000000000000000000000000000c130000000000000088010000000000",
        Operation::OpenFolder,
    ),
    (
        "400000001d0000001e00000000000000010000000000000000000000000000000000000000000000000000000000000000880100000000000000000000000000",
        Operation::ReleaseFolder,
    ),
    (
        "40000000120000002000000000000000020000000000000000000000000000000000000000000000000000000000000002800000000000000000000000000000",
        Operation::Release,
    ),
    (
        "38000000030000000400000000000000010000000000000000000000000000000c1300000000000000000000000000000000000000000000",
        Operation::GetAttributes,
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("two hex digits");
    digits.chunks(2).map(byte).collect()
}

/// A request as the server parses it: of a write, the data are elsewhere.
fn parse(message: &[u8], length: usize) -> Result<(RequestHeader, Option<Operation<'_>>), WireError> {
    let (front, arguments) = message.split_first_chunk::<HEADER_BYTES>().expect("long enough");
    let header = RequestHeader::parse(front, length)?;
    Ok((header, header.operation(arguments).ok()))
}

#[track_caller]
fn expect(hex: &str, number: u64, node: u64, operation: Operation<'_>) {
    let message = bytes(hex);
    let length = if message[4] == 16 { WRITE_BYTES + 512 } else { message.len() };
    let (header, found) = parse(&message, length).expect("a request");
    assert_eq!((header.unique, header.node), (Unique(number), NodeId(node)));
    assert_eq!(found, Some(operation));
}

#[test]
fn what_linux_sends_is_understood() {
    let flags = 0x73ff_fffb;
    expect(INIT, 2, 0, Operation::Init(Init { major: 7, minor: 45, readahead_max: 131_072, flags }));
    let wanted = init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::MAX_PAGES | init::INIT_EXT;
    assert_eq!(flags & wanted, wanted);
    expect(LOOKUP, 6, 1, Operation::Lookup { name: b"home" });
    expect(OPEN, 8, 2, Operation::Open { flags: 0o100_002 });
    let truncation = SetAttributes { which: 0x208, size: 0 };
    expect(SETATTR, 12, 2, Operation::SetAttributes(truncation));
    assert_eq!((truncation.new_size(), truncation.which & change::FILE), (Some(0), 0));
    expect(READ, 14, 2, Operation::Read(Range { offset: 4096, length: 100 }));
    expect(WRITE, 16, 2, Operation::Write(Range { offset: 8192, length: 512 }));
    let (range, mode) = (Range { offset: 4096, length: 8192 }, fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE);
    expect(FALLOCATE, 20, 2, Operation::Allocate { range, mode });
    expect(LSEEK, 22, 2, Operation::Seek { offset: 5, whence: seek::HOLE });
    expect(READDIR, 28, 1, Operation::ReadFolder { offset: 0, size: 32_768 });
    expect(UNLINK, 36, 1, Operation::Unknown);
    for (hex, operation) in SHORT {
        let message = bytes(hex);
        assert_eq!(parse(&message, message.len()).map(|(_, found)| found), Ok(Some(operation)));
    }
}

/// The answers that Linux accepted from the server that received the golden bytes; their layout is that of fuse.h.
#[test]
fn answers_have_the_layout_of_the_header_file() {
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
    };
    assert_eq!(words(&reply_header(Unique(5), Ok(8))), [24, 0, 5, 0]);
    assert_eq!(words(&reply_header(Unique(1 << 32), Err(Errno::RoFs))), [16, 30u32.wrapping_neg(), 0, 1]);
    let reply = InitReply {
        minor: 41,
        readahead_max: 131_072,
        flags: init::MAX_PAGES,
        background_max: 256,
        congestion: 192,
        write_max: 1 << 20,
        pages_max: 256,
    };
    let expected = [7, 41, 131_072, 1 << 22, 192 << 16 | 256, 1 << 20, 1, 256, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(words(&reply.encode()), expected);
    let (node, kind, rights, links, owner) = (NodeId(2), FileKind::File, 0o600, 1, (7, 8));
    let attributes = Attributes { node, kind, rights, size: 1 << 33, block_bytes: 65_536, links, owner, time: 9 };
    let alone = [2, 0, 0, 2, 1 << 24, 0, 9, 0, 9, 0, 9, 0, 0, 0, 0, 0o100_600, 1, 7, 8, 0, 65_536, 0];
    let valid = std::time::Duration::from_millis(1500);
    assert_eq!(words(&attributes.encode(valid)), [&[1, 0, 500_000_000, 0][..], &alone].concat());
    let entry = words(&attributes.encode_entry(valid));
    assert_eq!(entry, [&[2, 0, 0, 0, 1, 0, 1, 0, 500_000_000, 500_000_000][..], &alone].concat());
    let numbers = FileSystem { bytes: 1 << 33, block_bytes: 4096, files: 1 }.encode();
    assert_eq!(words(&numbers)[..14], [1 << 21, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4096, 255, 4096, 0]);
    assert_eq!(
        (numbers.len(), words(&reply::opened(3)), words(&reply::written(512))),
        (80, vec![0, 0, 3, 0], vec![512, 0])
    );
    let mut entries = Vec::new();
    assert!(directory_entry(&mut entries, 32, NodeId(2), FileKind::File, b"home", 3));
    assert_eq!(entries[..24], [2u64, 3, 8 << 32 | 4].map(u64::to_le_bytes).concat());
    assert_eq!(&entries[24..], b"home\0\0\0\0");
    assert!(!directory_entry(&mut entries, 63, NodeId(3), FileKind::File, b"root", 4) && entries.len() == 32);
}

#[test]
fn a_length_that_is_not_the_number_of_bytes_is_refused() {
    let message = bytes(READ);
    for length in [0, 39, 79, 81, usize::MAX] {
        let announced = 80;
        assert_eq!(parse(&message, length).map(drop), Err(WireError::Length { found: length, announced }));
    }
    let write = bytes(WRITE);
    let mut shorter = write.clone();
    shorter[56..60].copy_from_slice(&511u32.to_le_bytes());
    let (header, found) = parse(&shorter, WRITE_BYTES + 512).expect("its own length is right");
    assert_eq!(found, None);
    let refused = header.operation(&shorter[HEADER_BYTES..]);
    assert_eq!(refused, Err(WireError::Payload { found: 512, announced: 511 }));
}

/// xorshift64*, so that a failure is found again by its seed.
fn below(state: &mut u64, bound: usize) -> usize {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
}

#[test]
fn mutated_requests_give_a_value_or_an_error() {
    let samples = [INIT, LOOKUP, OPEN, SETATTR, READ, WRITE, FALLOCATE, LSEEK, READDIR, UNLINK];
    let (mut values, mut errors) = (0, 0);
    for seed in 1..=20_000 {
        let mut state = seed;
        let mut message = bytes(samples[below(&mut state, samples.len())]);
        for _ in 0..below(&mut state, 4) {
            let at = below(&mut state, message.len());
            message[at] = below(&mut state, 256) as u8;
        }
        if below(&mut state, 2) == 0 {
            // Another opcode with these arguments.
            message[4] = below(&mut state, 64) as u8;
        }
        message.truncate(HEADER_BYTES + below(&mut state, message.len() - HEADER_BYTES + 1));
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_le_bytes());
        match parse(&message, message.len()) {
            Ok((header, Some(operation))) => {
                values += 1;
                assert_eq!(header.is_write(), matches!(operation, Operation::Write(_)), "seed {seed}");
                assert_eq!(header.is_answered(), operation != Operation::Forget, "seed {seed}");
            }
            Ok((_, None)) | Err(_) => errors += 1,
        }
    }
    assert!(values > 1000 && errors > 1000, "{values} {errors}");
}
