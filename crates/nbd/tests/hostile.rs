//! Every parser of both ends against bytes that no honest peer sends.
//! Owns: the seeded mutations. Not here: what a session does with an error (`export-nbd`).
//! Invariant: a value or an error, and what was read writes the same bytes again.

use uraid_nbd::handshake::{
    client_flags, greeting, parse_client_flags, parse_export_name, parse_greeting, push_option_reply,
};
use uraid_nbd::transmission::{done_chunk, push_error_chunk};
use uraid_nbd::{
    BlockSizes, BlockStatus, Chunk, ChunkHeader, ChunkKind, Command, CommandFlags, Cookie, ErrorCode, ExportInfo,
    ExportQuery, ExtendedChunkHeader, HandshakeFlags, Info, InfoKind, ListEntry, MetaContext, MetaContextQuery,
    OptionCode, OptionHeader, OptionReply, OptionReplyHeader, ReplyHeader, Request, SimpleReply, StatusExtent,
    TransmissionFlags,
};

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

fn samples() -> Vec<Vec<u8>> {
    let query = ExportQuery { name: "md0", infos: vec![InfoKind::BlockSize, InfoKind::Description] };
    let request =
        Request { flags: CommandFlags::FUA, command: Command::Write, cookie: Cookie(3), offset: 1 << 33, length: 4096 };
    let mut option_reply = Vec::new();
    push_option_reply(&mut option_reply, OptionCode::Go, OptionReply::Info, &Info::Name("md0").encode());
    let mut error = Vec::new();
    push_error_chunk(&mut error, Cookie(3), ErrorCode::Io, "three members are lost");
    let sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 };
    let extents = vec![StatusExtent { length: 4096, state: 3 }, StatusExtent { length: 512, state: 0 }];
    let status = BlockStatus { context: 1, extents };
    let kind = ChunkKind::BlockStatusExtended;
    let (flags, command) = (CommandFlags::PAYLOAD_LEN, Command::BlockStatus);
    vec![
        MetaContextQuery { name: "md0", queries: vec!["base:", "base:allocation"] }.encode(),
        MetaContext { id: 1, name: "base:allocation" }.encode(),
        status.encode(),
        status.encode_extended(),
        Request { flags, command, cookie: Cookie(4), offset: 1 << 40, length: 5 << 32 }.encode_extended().to_vec(),
        ExtendedChunkHeader { is_last: true, kind, cookie: Cookie(4), offset: 512, length: 40 }.encode().to_vec(),
        greeting(HandshakeFlags::KNOWN).to_vec(),
        client_flags(HandshakeFlags::KNOWN).to_vec(),
        OptionHeader { option: OptionCode::Go, length: 12 }.encode().to_vec(),
        query.encode(),
        b"md0".to_vec(),
        option_reply,
        ListEntry { name: "md0", details: "a RAID6" }.encode(),
        Info::Export(ExportInfo { size: 1 << 40, flags: TransmissionFlags::KNOWN }).encode(),
        Info::BlockSize(sizes).encode(),
        request.encode().to_vec(),
        SimpleReply { cookie: Cookie(3), result: Err(ErrorCode::NoSpace) }.encode().to_vec(),
        done_chunk(Cookie(3)).to_vec(),
        error[20..].to_vec(),
        error,
    ]
}

/// Gives the bytes to every parser; what it takes must write the same bytes again where the form is unique.
fn feed(bytes: &[u8]) {
    if let Some(Ok(flags)) = bytes.first_chunk().map(parse_greeting) {
        assert_eq!(greeting(flags), bytes[..18]);
    }
    if let Some(Ok(flags)) = bytes.first_chunk().map(parse_client_flags) {
        assert_eq!(client_flags(flags), bytes[..4]);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(OptionHeader::parse) {
        assert_eq!(header.encode(), bytes[..16]);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(OptionReplyHeader::parse) {
        assert_eq!(header.encode(), bytes[..20]);
    }
    if let Ok(query) = ExportQuery::parse(bytes) {
        assert_eq!(query.encode(), bytes);
    }
    if let Ok(name) = parse_export_name(bytes) {
        assert_eq!(name.as_bytes(), bytes);
    }
    if let Ok(entry) = ListEntry::parse(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    if let Ok(info) = Info::parse(bytes)
        && !matches!(info, Info::Unknown(_))
    {
        assert_eq!(info.encode(), bytes);
    }
    if let Some(Ok(request)) = bytes.first_chunk().map(Request::parse) {
        assert_eq!(request.encode(), bytes[..28]);
        let _ = request.place(u64::MAX - 3, 512);
    }
    if let Some(Ok(reply)) = bytes.first_chunk().map(SimpleReply::parse) {
        assert_eq!(reply.encode(), bytes[..16]);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(ChunkHeader::parse) {
        assert_eq!(header.encode()[6..], bytes[6..20]);
    }
    feed_extended(bytes);
    let _ = ReplyHeader::parse(bytes);
    for code in (0..8).chain(0x8000..0x8004) {
        let _ = Chunk::parse(ChunkKind::from_code(code), bytes);
    }
}

/// The same for what extended headers and metadata contexts bring.
fn feed_extended(bytes: &[u8]) {
    if let Ok(query) = MetaContextQuery::parse(bytes) {
        assert_eq!(query.encode(), bytes);
    }
    if let Ok(context) = MetaContext::parse(bytes) {
        assert_eq!(context.encode(), bytes);
    }
    if let Ok(status) = BlockStatus::parse(bytes) {
        assert_eq!(status.encode(), bytes);
    }
    if let Ok(status) = BlockStatus::parse_extended(bytes) {
        assert_eq!(status.encode_extended(), bytes);
    }
    if let Some(Ok(request)) = bytes.first_chunk().map(Request::parse_extended) {
        assert_eq!(request.encode_extended(), bytes[..32]);
        let _ = request.payload_bytes(true);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(ExtendedChunkHeader::parse) {
        assert_eq!(header.encode()[6..], bytes[6..32]);
    }
}

#[test]
fn no_parser_panics_on_mutated_messages() {
    let samples = samples();
    for seed in 1..=200_000u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut bytes = samples[random.below(samples.len())].clone();
        for _ in 0..random.below(4) {
            match random.below(5) {
                0 if !bytes.is_empty() => {
                    let at = random.below(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                }
                1 if !bytes.is_empty() => {
                    let at = random.below(bytes.len());
                    bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
                }
                2 => bytes.truncate(random.below(bytes.len() + 1)),
                3 => bytes.extend_from_slice(&samples[random.below(samples.len())]),
                _ => {
                    let at = random.below(bytes.len() + 1);
                    bytes.insert(at, random.below(256) as u8);
                }
            }
        }
        if std::panic::catch_unwind(|| feed(&bytes)).is_err() {
            panic!("seed {seed}: {bytes:02x?}");
        }
    }
}

#[test]
fn no_parser_panics_on_any_cut_of_any_message() {
    for sample in samples() {
        for end in 0..=sample.len() {
            feed(&sample[..end]);
        }
    }
    for first in 0..=255u8 {
        for second in 0..=255u8 {
            feed(&[first, second]);
            feed(&[0, 0, first, second, 0, 0, 0]);
        }
    }
}
