//! An NBD session as seen by a client that knows what it sent: both directions are followed in step.
//! Owns: [`follow`]. Not here: the session (`nbd_session`), the parsers (`nbd`), which are under test here as well.
//! Invariant: nothing the client sends makes this panic, only what the server answers to it.

use uraid_nbd::extended::{EXTENDED_CHUNK_HEADER_BYTES, EXTENDED_REQUEST_BYTES};
use uraid_nbd::handshake::{EXPORT_NAME_ZEROES, parse_client_flags};
use uraid_nbd::transmission::{REQUEST_BYTES, SIMPLE_REPLY_BYTES};
use uraid_nbd::{
    BlockStatus, Chunk, ChunkHeader, ChunkKind, Command, CommandFlags, Cookie, ExportInfo, ExtendedChunkHeader,
    HandshakeFlags, Info, ListEntry, MetaContext, OptionCode, OptionHeader, OptionReply, OptionReplyHeader,
    ReplyHeader, Request, parse_greeting,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Simple,
    Structured,
    Extended,
}

/// Follows a session: everything that the client sent and received. Panics if the server sent something illegal.
pub(crate) fn follow(sent: &[u8], got: &[u8]) {
    let mut session = Session { sent, got, form: Form::Simple, has_contexts: false };
    if session.handshake() {
        session.transmission();
    } else {
        assert!(session.got.is_empty(), "the server goes on behind the end of the handshake");
    }
}

struct Session<'a> {
    /// What is not followed yet.
    sent: &'a [u8],
    got: &'a [u8],
    form: Form,
    /// Whether block status may be answered.
    has_contexts: bool,
}

fn take<'a>(from: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (front, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(front)
}

fn fixed<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    take(from, N).map(|bytes| bytes.try_into().expect("it has that length"))
}

impl Session<'_> {
    /// Whether it ended with an export.
    fn handshake(&mut self) -> bool {
        parse_greeting(&fixed(&mut self.got).expect("a greeting")).expect("a good greeting");
        let Some(flags) = fixed(&mut self.sent) else { return false };
        let Ok(flags) = parse_client_flags(&flags) else { return false };
        loop {
            let Some(header) = fixed(&mut self.sent) else { return false };
            let Ok(header) = OptionHeader::parse(&header) else { return false };
            let data = take(&mut self.sent, header.length as usize);
            if self.got.is_empty() {
                // Not answered: it did not come whole, or the server hung up.
                return false;
            }
            if header.option == OptionCode::ExportName {
                self.export_name(flags.contains(HandshakeFlags::NO_ZEROES));
                return true;
            }
            let end = self.option_replies(header.option);
            match header.option {
                OptionCode::Go if end == OptionReply::Ack => return true,
                OptionCode::Abort if end == OptionReply::Ack => return false,
                OptionCode::StructuredReply if end == OptionReply::Ack => self.form = Form::Structured,
                OptionCode::ExtendedHeaders if end == OptionReply::Ack => self.form = Form::Extended,
                OptionCode::ExportName
                | OptionCode::Abort
                | OptionCode::List
                | OptionCode::PeekExport
                | OptionCode::StartTls
                | OptionCode::Info
                | OptionCode::Go
                | OptionCode::StructuredReply
                | OptionCode::ListMetaContext
                | OptionCode::SetMetaContext
                | OptionCode::ExtendedHeaders
                | OptionCode::Unknown(_) => {}
            }
            if data.is_none() {
                // An option that is too long is refused before all of it has arrived.
                assert!(end.is_error(), "half an option is granted");
                return false;
            }
        }
    }

    fn export_name(&mut self, no_zeroes: bool) {
        ExportInfo::parse(&fixed(&mut self.got).expect("the export's facts")).expect("good facts");
        if !no_zeroes {
            let zeroes = take(&mut self.got, EXPORT_NAME_ZEROES).expect("zeroes behind them");
            assert!(zeroes.iter().all(|&byte| byte == 0));
        }
    }

    /// All replies to one option; the last of them.
    fn option_replies(&mut self, option: OptionCode) -> OptionReply {
        let mut has_context = false;
        loop {
            let header = fixed(&mut self.got).expect("an option is answered to its end");
            let header = OptionReplyHeader::parse(&header).expect("a good reply");
            assert_eq!(header.option, option, "a reply to another option");
            let payload = take(&mut self.got, header.length as usize).expect("a whole reply");
            match header.reply {
                OptionReply::Ack => assert!(payload.is_empty()),
                OptionReply::Server => drop(ListEntry::parse(payload).expect("a good entry")),
                OptionReply::Info => assert!(!matches!(Info::parse(payload).expect("good facts"), Info::Unknown(_))),
                OptionReply::MetaContext => drop(MetaContext::parse(payload).expect("a good context")),
                OptionReply::ErrorUnsupported
                | OptionReply::ErrorPolicy
                | OptionReply::ErrorInvalid
                | OptionReply::ErrorPlatform
                | OptionReply::ErrorTlsRequired
                | OptionReply::ErrorUnknown
                | OptionReply::ErrorShutdown
                | OptionReply::ErrorBlockSizeRequired
                | OptionReply::ErrorTooBig
                | OptionReply::ErrorExtendedHeadersRequired => assert!(std::str::from_utf8(payload).is_ok()),
                OptionReply::Unknown(code) => panic!("a reply of kind {code}"),
            }
            has_context |= header.reply == OptionReply::MetaContext;
            if header.reply == OptionReply::Ack || header.reply.is_error() {
                if option == OptionCode::SetMetaContext {
                    self.has_contexts = has_context;
                }
                return header.reply;
            }
        }
    }

    fn transmission(&mut self) {
        let mut waiting = self.requests();
        while !self.got.is_empty() {
            let Some(answered) = self.reply(&waiting) else { return };
            waiting.remove(answered);
        }
        assert!(!waiting.iter().any(|request| request.is_due), "a request that came whole is not answered");
    }

    /// The client's requests, up to the one that ends the connection.
    fn requests(&mut self) -> Vec<Waiting> {
        let is_extended = self.form == Form::Extended;
        let (mut requests, mut is_sure) = (Vec::new(), true);
        loop {
            let request = if is_extended {
                fixed::<EXTENDED_REQUEST_BYTES>(&mut self.sent).map(|bytes| Request::parse_extended(&bytes))
            } else {
                fixed::<REQUEST_BYTES>(&mut self.sent).map(|bytes| Request::parse(&bytes))
            };
            let Some(Ok(request)) = request else { return requests };
            let bytes = usize::try_from(request.payload_bytes(is_extended)).expect("64 bits");
            let is_whole = take(&mut self.sent, bytes).is_some();
            // Such a write does not say whether a payload follows: the server may give up there.
            let says_nothing =
                request.command == Command::Write && is_extended && !request.flags.contains(CommandFlags::PAYLOAD_LEN);
            let is_end = request.command == Command::Disconnect;
            requests.push(Waiting { request, is_due: is_whole && is_sure && !is_end });
            if !is_whole || is_end {
                return requests;
            }
            is_sure &= !says_nothing;
        }
    }

    /// Takes one reply and returns which request it answers; `None` if two requests with one cookie expect different
    /// replies, so that no client could know.
    fn reply(&mut self, waiting: &[Waiting]) -> Option<usize> {
        let find = |cookie| {
            let found = waiting.iter().position(|waiting| waiting.request.cookie == cookie);
            found.expect("a reply to no request")
        };
        if self.form == Form::Extended {
            let header = fixed::<EXTENDED_CHUNK_HEADER_BYTES>(&mut self.got).expect("a whole header");
            let header = ExtendedChunkHeader::parse(&header).expect("a good header");
            let payload = take(&mut self.got, header.length as usize).expect("a whole chunk");
            let fits = |waiting: &Waiting| {
                let request = &waiting.request;
                request.cookie == header.cookie
                    && request.offset == header.offset
                    && self.chunk_fits(request, header.kind, payload)
            };
            assert!(header.is_last, "replies are one chunk each");
            if is_error(header.kind) && is_unclear(waiting, header.cookie) {
                return None;
            }
            return Some(waiting.iter().position(fits).expect("a chunk that no request waits for"));
        }
        let (header, used) = ReplyHeader::parse(self.got).expect("a good header").expect("a whole header");
        take(&mut self.got, used);
        match header {
            ReplyHeader::Simple(reply) => {
                assert_eq!(used, SIMPLE_REPLY_BYTES);
                let at = find(reply.cookie);
                let lengths = |waiting: &&Waiting| waiting.request.cookie == reply.cookie;
                let data = waiting[at].data_bytes();
                if waiting.iter().filter(lengths).any(|waiting| waiting.data_bytes() != data) {
                    return None;
                }
                if reply.result.is_ok() {
                    assert!(self.form == Form::Simple || data == 0, "a read is answered by a chunk");
                    take(&mut self.got, data).expect("the whole data");
                }
                Some(at)
            }
            ReplyHeader::Chunk(ChunkHeader { is_last, kind, cookie, length }) => {
                assert!(self.form == Form::Structured && is_last);
                if is_error(kind) && is_unclear(waiting, cookie) {
                    return None;
                }
                let payload = take(&mut self.got, length as usize).expect("a whole chunk");
                let fits = |waiting: &Waiting| {
                    waiting.request.cookie == cookie && self.chunk_fits(&waiting.request, kind, payload)
                };
                Some(waiting.iter().position(fits).expect("a chunk that no request waits for"))
            }
        }
    }

    /// Whether the chunk is a good answer to the request.
    fn chunk_fits(&self, request: &Request, kind: ChunkKind, payload: &[u8]) -> bool {
        let is_extended = self.form == Form::Extended;
        match kind {
            ChunkKind::BlockStatus | ChunkKind::BlockStatusExtended => {
                assert_eq!(kind == ChunkKind::BlockStatusExtended, is_extended);
                assert!(self.has_contexts, "block status that was not chosen");
                let status =
                    if is_extended { BlockStatus::parse_extended(payload) } else { BlockStatus::parse(payload) };
                let status = status.expect("good block status");
                let told: u64 = status.extents.iter().map(|extent| extent.length).sum();
                request.command == Command::BlockStatus && told <= request.length
            }
            ChunkKind::None
            | ChunkKind::OffsetData
            | ChunkKind::OffsetHole
            | ChunkKind::Error
            | ChunkKind::ErrorOffset
            | ChunkKind::Unknown(_) => match Chunk::parse(kind, payload).expect("a good chunk") {
                Chunk::None => request.command != Command::Read && request.command != Command::BlockStatus,
                Chunk::OffsetData { offset, data } => {
                    let place = request.place(offset, data.len() as u32);
                    request.command == Command::Read && place == Ok(0) && data.len() as u64 == request.length
                }
                Chunk::OffsetHole { .. } => panic!("no holes are sent"),
                Chunk::Error { offset, .. } => offset.is_none(),
            },
        }
    }
}

fn is_error(kind: ChunkKind) -> bool {
    matches!(kind, ChunkKind::Error | ChunkKind::ErrorOffset)
}

/// Whether different requests have this name: an error does not say which of them failed.
fn is_unclear(waiting: &[Waiting], cookie: Cookie) -> bool {
    let mut named = waiting.iter().map(|waiting| waiting.request).filter(|request| request.cookie == cookie);
    let first = named.next();
    first.is_some_and(|first| named.any(|other| other != first))
}

struct Waiting {
    request: Request,
    /// It arrived completely, so it must be answered.
    is_due: bool,
}

impl Waiting {
    /// What follows a simple reply that says success.
    fn data_bytes(&self) -> usize {
        if self.request.command == Command::Read { self.request.length as usize } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_nbd::handshake::{client_flags, greeting, option};
    use uraid_nbd::{SimpleReply, TransmissionFlags};

    /// A flush, and the server's side of it with these replies.
    fn followed(replies: &[u64]) {
        let flush =
            Request { flags: CommandFlags::NONE, command: Command::Flush, cookie: Cookie(3), offset: 0, length: 0 };
        let flags = client_flags(HandshakeFlags::KNOWN);
        let sent = [&flags[..], &option(OptionCode::ExportName, b"md0"), &flush.encode()].concat();
        let facts = ExportInfo { size: 4096, flags: TransmissionFlags::HAS_FLAGS }.encode();
        let mut got = [&greeting(HandshakeFlags::KNOWN)[..], &facts].concat();
        for &cookie in replies {
            got.extend(SimpleReply { cookie: Cookie(cookie), result: Ok(()) }.encode());
        }
        follow(&sent, &got);
    }

    #[test]
    fn exactly_one_reply_per_request_is_accepted() {
        followed(&[3]);
    }

    #[test]
    #[should_panic(expected = "a request that came whole is not answered")]
    fn a_missing_reply_is_a_finding() {
        followed(&[]);
    }

    #[test]
    #[should_panic(expected = "a reply to no request")]
    fn a_second_reply_is_a_finding() {
        followed(&[3, 3]);
    }
}
