//! The corpora, in every `cargo test --workspace`: nothing panics, no single allocation is over 1 MiB.
//! What is found by fuzzing and fixed stays in the corpus, so it stays fixed.

use std::path::{Path, PathBuf};
use uraid_block::Sectors;
use uraid_format::bad_blocks::{BadBlockLog, BadRange};
use uraid_format::create::{CreateOptions, NewMember, NewPolicy, create};
use uraid_format::{SetName, Version};
use uraid_fuzz::allocation::{BYTES_MAX, Watched, aside, largest_of};
use uraid_fuzz::{TARGETS, Target, target};
use uraid_layout::{Level, default_layout};

#[global_allocator]
static WATCHED: Watched = Watched;

fn folder(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

#[test]
fn every_input_of_every_corpus_is_handled() {
    for target in TARGETS {
        let (mut inputs, mut largest) = (0, 0);
        for entry in std::fs::read_dir(folder(target)).unwrap_or_else(|error| panic!("{}: {error}", target.name)) {
            let path = entry.expect("a readable folder").path();
            let bytes = std::fs::read(&path).expect("a readable input");
            let bytes_largest = largest_of(|| (target.run)(&bytes));
            assert!(bytes_largest <= BYTES_MAX, "{}: an allocation of {bytes_largest} bytes", path.display());
            largest = largest.max(bytes_largest);
            inputs += 1;
        }
        println!("{}: {inputs} inputs, the largest allocation has {largest} bytes", target.name);
        assert!(inputs > 0, "{} has no corpus", target.name);
    }
}

#[test]
fn inputs_with_a_flipped_bit_or_cut_short_are_handled() {
    for target in TARGETS {
        for entry in std::fs::read_dir(folder(target)).expect("a corpus") {
            let bytes = std::fs::read(entry.expect("a readable folder").path()).expect("a readable input");
            for at in (0..bytes.len()).step_by(1 + bytes.len() / 16) {
                let mut turned = bytes.clone();
                turned[at] ^= 1 << (at % 8);
                for mutated in [&turned[..], &bytes[..at]] {
                    let largest = largest_of(|| (target.run)(mutated));
                    assert!(largest <= BYTES_MAX, "{}: an allocation of {largest} bytes", target.name);
                }
            }
        }
    }
}

#[test]
fn the_allocation_counter_counts_allocations() {
    assert_eq!(largest_of(|| drop(std::hint::black_box(vec![1u8; 3 << 20]))), 3 << 20);
    assert_eq!(largest_of(|| drop(std::hint::black_box(vec![0u8; 2 << 20]))), 2 << 20);
    let both = || {
        drop(std::hint::black_box(vec![1u8; 100]));
        drop(aside(|| std::hint::black_box(vec![0u8; 2 << 20])));
    };
    assert_eq!(largest_of(both), 100);
}

fn superblocks() -> Vec<(Version, Vec<u8>)> {
    let mut all = Vec::new();
    for (level, version) in [
        (Level::Raid1, Version::V1_2),
        (Level::Raid5, Version::V1_1),
        (Level::Raid6, Version::V1_0),
        (Level::Raid10, Version::V1_2),
        (Level::Raid0, Version::V1_2),
    ] {
        let options = CreateOptions {
            version,
            level,
            layout: default_layout(level),
            chunk: if level == Level::Raid1 { Sectors::ZERO } else { Sectors(128) },
            raid_disks: 4,
            spare_devices: 0,
            size: None,
            data_offset: None,
            set_uuid: [7; 16],
            set_name: SetName::new("host", "name").expect("a short name"),
            now_seconds: 1_700_000_000,
            assume_clean: true,
            force: false,
            policy: NewPolicy::Resync,
        };
        let members: Vec<_> = (0..4).map(|n| NewMember::Device { size: Sectors(1 << 20), uuid: [n; 16] }).collect();
        let made = create(&options, &members).expect("a usual array").superblocks.remove(0).expect("of the first");
        all.push((version, made.encode()[..512].to_vec()));
    }
    all
}

/// Plain inputs to start from; the rest of a corpus is what fuzzing found. The wire's come from the nbd crate's words.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let of_superblocks = |head: fn(u8) -> Vec<u8>| -> Vec<Vec<u8>> {
        let place = |version| Version::ALL.iter().position(|known| *known == version).expect("one of all") as u8;
        superblocks().into_iter().map(|(version, bytes)| [head(place(version)), bytes].concat()).collect()
    };
    match name {
        "superblock" => of_superblocks(|place| [&[place][..], &[0; 8]].concat()),
        "find" => of_superblocks(|place| [vec![0; 8 + 3 * usize::from(place)], vec![0, 0, 2]].concat()),
        "signature" => superblocks()
            .into_iter()
            .map(|(_, bytes)| [&(1u64 << 20).to_le_bytes()[..], &[0x82], &[0, 2], &bytes].concat())
            .collect(),
        "bad_blocks" => {
            let ranges = vec![BadRange { start: uraid_block::Sector(3048), length: Sectors(8) }];
            let log = BadBlockLog { shift: 0, ranges }.encode().expect("a short list");
            vec![[&[0][..], &log[..64]].concat()]
        }
        "ppl" => vec![vec![0; 600]],
        "journal" => {
            let block = uraid_format::journal::JournalBlock::empty(9).encode(&[7; 16]);
            vec![[&[0][..], &block[..32], &[1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]].concat()]
        }
        "bitmap" => vec![bitmap()],
        "partition" => vec![gpt(), mbr()],
        "assemble" => (0..7).map(|level| vec![level, 0, 3, 0, 0, 0, 5, 0]).collect(),
        "planner" => (0..7).map(|level| vec![level, 2, 1, 0, 0, 0, 8, 0, 5, 0, 0, 0, 9, 0, 0, 5, 0, 0, 7]).collect(),
        _ => wire(name),
    }
}

fn bitmap() -> Vec<u8> {
    let mut bytes = vec![0; 300];
    bytes[..8].copy_from_slice(b"bitm\x04\0\0\0");
    bytes[42] = 1;
    // 64 KiB for each bit, a round each 5 seconds.
    (bytes[54], bytes[56]) = (1, 5);
    bytes
}

/// A disk of 1 MiB with one partition; the target makes the checksums right.
fn gpt() -> Vec<u8> {
    let mut image = vec![0; 1024 + 128];
    image[450] = 0xee;
    (image[446 + 8], image[446 + 12]) = (1, 0xff);
    (image[510], image[511]) = (0x55, 0xaa);
    image[512..524].copy_from_slice(b"EFI PART\0\0\x01\0");
    image[524] = 92;
    (image[536], image[584], image[592], image[596]) = (1, 2, 1, 128);
    (image[1024], image[1040], image[1056], image[1064]) = (1, 1, 64, 128);
    [&(1u64 << 20).to_le_bytes()[..], &[1], &image].concat()
}

/// Two partitions, one of them a chain that starts in the second sector.
fn mbr() -> Vec<u8> {
    let mut image = vec![0; 1024];
    (image[450], image[454], image[458]) = (0xfd, 8, 64);
    (image[466], image[470], image[474]) = (0x05, 1, 64);
    (image[512 + 450], image[512 + 454], image[512 + 458]) = (0x83, 2, 8);
    for at in [510, 1022] {
        (image[at], image[at + 1]) = (0x55, 0xaa);
    }
    [&(1u64 << 20).to_le_bytes()[..], &[0], &image].concat()
}

fn wire(name: &str) -> Vec<Vec<u8>> {
    use uraid_nbd::handshake::{greeting, option};
    use uraid_nbd::transmission::{done_chunk, push_error_chunk};
    use uraid_nbd::*;
    let query = ExportQuery { name: "md0", infos: vec![InfoKind::BlockSize] }.encode();
    let (flags, command) = (CommandFlags::FUA, Command::Write);
    let request = Request { flags, command, cookie: Cookie(3), offset: 1 << 33, length: 4096 };
    let extents = vec![StatusExtent { length: 4096, state: 3 }];
    let status = BlockStatus { context: 1, extents };
    let mut error = Vec::new();
    push_error_chunk(&mut error, Cookie(3), ErrorCode::Io, "lost");
    match name {
        "nbd_handshake" => vec![
            greeting(HandshakeFlags::KNOWN).to_vec(),
            [vec![0, 0, 0, 3], option(OptionCode::Go, &query)].concat(),
            ListEntry { name: "md0", details: "a RAID6" }.encode(),
            Info::Export(ExportInfo { size: 1 << 40, flags: TransmissionFlags::KNOWN }).encode(),
            Info::BlockSize(BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 }).encode(),
            query,
        ],
        "nbd_transmission" => vec![
            request.encode().to_vec(),
            SimpleReply { cookie: Cookie(3), result: Err(ErrorCode::NoSpace) }.encode().to_vec(),
            [&done_chunk(Cookie(3))[..], &error].concat(),
            error[20..].to_vec(),
        ],
        "nbd_extended" => vec![
            MetaContextQuery { name: "md0", queries: vec!["base:", "base:allocation"] }.encode(),
            MetaContext { id: 1, name: "base:allocation" }.encode(),
            status.encode(),
            status.encode_extended(),
            request.encode_extended().to_vec(),
        ],
        "nbd_session" => sessions(),
        _ => panic!("{name} has no seeds"),
    }
}

/// Clients that behave normally, one for each form of replies; one of them sends its own handshake.
fn sessions() -> Vec<Vec<u8>> {
    use uraid_nbd::handshake::{client_flags, option};
    use uraid_nbd::*;
    let ask =
        |command, flags, offset, length| Request { flags, command, cookie: Cookie(offset ^ length), offset, length };
    let plain = [
        ask(Command::Write, CommandFlags::FUA, 512, 512),
        ask(Command::Read, CommandFlags::NONE, 0, 1024),
        ask(Command::BlockStatus, CommandFlags::NONE, 0, 20 << 10),
        ask(Command::WriteZeroes, CommandFlags::NONE, 0, 512),
        ask(Command::Flush, CommandFlags::NONE, 0, 0),
        ask(Command::Trim, CommandFlags::NONE, 4096, 4096),
        ask(Command::Disconnect, CommandFlags::NONE, 0, 0),
    ];
    let payload = |request: &Request| vec![7; if request.command == Command::Write { 512 } else { 0 }];
    let requests: Vec<u8> =
        plain.iter().flat_map(|request| [&request.encode()[..], &payload(request)].concat()).collect();
    let extended = |request: &Request| {
        let mut request = *request;
        if request.command == Command::Write {
            request.flags = CommandFlags::PAYLOAD_LEN;
        }
        [&request.encode_extended()[..], &payload(&request)].concat()
    };
    let long = |request: &Request| request.command != Command::Write;
    let handshake = [
        client_flags(HandshakeFlags::KNOWN).to_vec(),
        option(OptionCode::List, &[]),
        option(OptionCode::Info, &ExportQuery { name: "other", infos: vec![InfoKind::Name] }.encode()),
        option(OptionCode::ExportName, b"md0"),
        ask(Command::Read, CommandFlags::NONE, 0, 20 << 10).encode().to_vec(),
    ];
    let mut all: Vec<Vec<u8>> = (1..=2).map(|form| [&[form, 0, 2][..], &requests[..28 + 512]].concat()).collect();
    all.extend((1..=2).map(|form| [&[form, 4, 3][..], &requests[28 + 512..]].concat()));
    all.push([&[3, 1, 1][..], &plain.iter().filter(|r| long(r)).flat_map(extended).collect::<Vec<u8>>()].concat());
    all.push([&[3, 0, 4][..], &extended(&plain[0])].concat());
    all.push([&[2, 2, 0][..], &requests[28 + 512..]].concat());
    all.push([&[0, 0, 2][..], &handshake.concat()].concat());
    all
}

#[test]
fn every_target_has_seeds_that_it_accepts() {
    for target in TARGETS {
        seeds(target.name).iter().for_each(|seed| (target.run)(seed));
    }
    assert!(target("superblock").is_some() && target("nothing").is_none());
}

#[test]
#[ignore = "writes files: cargo test -p uraid-fuzz -- --ignored, for a new target"]
fn seeds_are_written_into_the_corpora() {
    for target in TARGETS {
        std::fs::create_dir_all(folder(target)).expect("a writable project");
        for (n, seed) in seeds(target.name).iter().enumerate() {
            std::fs::write(folder(target).join(format!("seed-{n}")), seed).expect("a writable project");
        }
    }
}
