//! The server's side of the handshake, as a machine from bytes to bytes.
//! Owns: which answer each option gets, what is agreed, the bounds of a handshake.
//! Not here: sockets, deadlines (`connection`, `server`).
//! Invariant: any bytes, cut anywhere, end the handshake or wait for more; what is kept of a client is at most
//! [`OPTION_DATA_BYTES_MAX`] and a header. Spec: proto.md, "Fixed newstyle negotiation".

use crate::export::Offer;
use uraid_nbd::handshake::{
    CLIENT_FLAGS_BYTES, EXPORT_NAME_ZEROES, OPTION_HEADER_BYTES, greeting, parse_client_flags, parse_export_name,
    push_option_error, push_option_reply,
};
use uraid_nbd::metadata::BASE_ALLOCATION;
use uraid_nbd::{
    ExportQuery, HandshakeFlags, Info, InfoKind, ListEntry, MetaContext, MetaContextQuery, OptionCode, OptionHeader,
    OptionReply,
};

/// The most data of an option that is looked at: the longest name and more infos than there are.
pub(crate) const OPTION_DATA_BYTES_MAX: usize = 16 << 10;
/// An option that announces more than this is answered by hanging up, one below is skipped.
const OPTION_SKIP_BYTES_MAX: u32 = 64 << 10;
/// A client that asks for more than this many options is no client.
const OPTIONS_MAX: u32 = 256;
/// The number of `base:allocation` in block status.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// What replies look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Simple,
    /// In chunks, where there is more to say than success.
    Structured,
    /// All in chunks with lengths of 64 bits, and so are the requests.
    Extended,
}

/// What a handshake ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreement {
    pub(crate) form: Form,
    /// Whether block status of `base:allocation` may be asked for.
    pub(crate) allocation: bool,
    /// Which of the exports.
    pub(crate) export: usize,
}

/// What came out of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// All bytes are used, the handshake goes on.
    More,
    /// The handshake ended with the export; bytes that were not used are requests.
    Agreed(Agreement),
    /// The client wants no export; the connection ends after the answer was sent.
    Aborted,
    /// The client does not keep to the protocol; the connection ends after the answer was sent.
    Close,
}

enum State {
    ClientFlags,
    Header,
    Data(OptionHeader),
    Skip { left: u32 },
}

/// One client's handshake.
pub(crate) struct Handshake {
    state: State,
    /// The front of a message that did not come whole.
    kept: Vec<u8>,
    flags: HandshakeFlags,
    form: Form,
    /// The export for which `base:allocation` was chosen; of no effect on another.
    allocation: Option<usize>,
    options_left: u32,
}

impl Handshake {
    /// A handshake that begins with these bytes of ours.
    pub(crate) fn new(out: &mut Vec<u8>) -> Handshake {
        out.extend_from_slice(&greeting(HandshakeFlags::KNOWN));
        Handshake {
            state: State::ClientFlags,
            kept: Vec::new(),
            flags: HandshakeFlags::NONE,
            form: Form::Simple,
            allocation: None,
            options_left: OPTIONS_MAX,
        }
    }

    /// Takes bytes from the client and appends the answer. Gives how many bytes were used, all but at the end.
    pub(crate) fn receive(&mut self, offers: &[Offer], input: &[u8], out: &mut Vec<u8>) -> (usize, Progress) {
        let mut used = 0;
        loop {
            used += self.collect(&input[used..]);
            let is_whole = match self.state {
                State::Skip { left } => left == 0,
                State::ClientFlags | State::Header | State::Data(_) => self.kept.len() == self.wanted(),
            };
            if !is_whole {
                assert_eq!(used, input.len());
                return (used, Progress::More);
            }
            let message = std::mem::take(&mut self.kept);
            match self.message(offers, &message, out) {
                Progress::More => {}
                end @ (Progress::Agreed(_) | Progress::Aborted | Progress::Close) => return (used, end),
            }
        }
    }

    /// How many bytes the message has that the state waits for.
    fn wanted(&self) -> usize {
        match &self.state {
            State::ClientFlags => CLIENT_FLAGS_BYTES,
            State::Header => OPTION_HEADER_BYTES,
            State::Data(header) => header.length as usize,
            State::Skip { .. } => 0,
        }
    }

    /// Keeps, or skips, what belongs to the message; gives how much that was.
    fn collect(&mut self, input: &[u8]) -> usize {
        if let State::Skip { left } = &mut self.state {
            let count = input.len().min(*left as usize);
            *left -= count as u32;
            return count;
        }
        let wanted = self.wanted();
        assert!(wanted <= OPTION_DATA_BYTES_MAX);
        let count = input.len().min(wanted - self.kept.len());
        self.kept.extend_from_slice(&input[..count]);
        count
    }

    fn message(&mut self, offers: &[Offer], message: &[u8], out: &mut Vec<u8>) -> Progress {
        match std::mem::replace(&mut self.state, State::Header) {
            State::ClientFlags => match message.first_chunk().map(parse_client_flags) {
                Some(Ok(flags)) => {
                    self.flags = flags;
                    Progress::More
                }
                Some(Err(_)) | None => Progress::Close,
            },
            State::Header => match message.first_chunk().map(OptionHeader::parse) {
                Some(Ok(header)) => self.header(header, out),
                Some(Err(_)) | None => Progress::Close,
            },
            State::Data(header) => self.option(offers, header.option, message, out),
            State::Skip { .. } => Progress::More,
        }
    }

    /// Decides by an option's header whether its data is looked at, skipped, or too much.
    fn header(&mut self, header: OptionHeader, out: &mut Vec<u8>) -> Progress {
        let OptionHeader { option, length } = header;
        let is_fixed = self.flags.contains(HandshakeFlags::FIXED_NEWSTYLE);
        // A client without fixed newstyle understands no answer but ExportName's.
        if self.options_left == 0 || (!is_fixed && option != OptionCode::ExportName) {
            return Progress::Close;
        }
        self.options_left -= 1;
        let is_too_long = length as usize > OPTION_DATA_BYTES_MAX;
        // ExportName has no answer for an error: nothing is left but hanging up.
        if option == OptionCode::ExportName && is_too_long {
            return Progress::Close;
        }
        match option {
            OptionCode::ExportName
            | OptionCode::Abort
            | OptionCode::List
            | OptionCode::StartTls
            | OptionCode::Info
            | OptionCode::Go
            | OptionCode::StructuredReply
            | OptionCode::ListMetaContext
            | OptionCode::SetMetaContext
            | OptionCode::ExtendedHeaders
                if !is_too_long =>
            {
                self.state = State::Data(header);
                return Progress::More;
            }
            OptionCode::ExportName
            | OptionCode::Abort
            | OptionCode::List
            | OptionCode::StartTls
            | OptionCode::Info
            | OptionCode::Go
            | OptionCode::StructuredReply
            | OptionCode::ListMetaContext
            | OptionCode::SetMetaContext
            | OptionCode::ExtendedHeaders => {
                push_option_error(out, option, OptionReply::ErrorTooBig, "the option's data is too long");
            }
            OptionCode::PeekExport | OptionCode::Unknown(_) => {
                push_option_error(out, option, OptionReply::ErrorUnsupported, "the option is not known here");
            }
        }
        if length > OPTION_SKIP_BYTES_MAX {
            return Progress::Close;
        }
        self.state = State::Skip { left: length };
        Progress::More
    }

    /// Answers an option whose data is whole.
    fn option(&mut self, offers: &[Offer], option: OptionCode, data: &[u8], out: &mut Vec<u8>) -> Progress {
        match option {
            OptionCode::ExportName => return self.export_name(offers, data, out),
            OptionCode::Info | OptionCode::Go => return self.query(offers, option, data, out),
            OptionCode::Abort => {
                push_option_reply(out, option, OptionReply::Ack, &[]);
                return Progress::Aborted;
            }
            OptionCode::List | OptionCode::StartTls | OptionCode::StructuredReply | OptionCode::ExtendedHeaders
                if !data.is_empty() =>
            {
                push_option_error(out, option, OptionReply::ErrorInvalid, "the option takes no data");
            }
            OptionCode::List => {
                for offer in offers {
                    let entry = ListEntry { name: &offer.name, details: &offer.description };
                    push_option_reply(out, option, OptionReply::Server, &entry.encode());
                }
                push_option_reply(out, option, OptionReply::Ack, &[]);
            }
            OptionCode::StartTls => {
                push_option_error(out, option, OptionReply::ErrorPolicy, "TLS is not configured");
            }
            // Extended headers are structured replies already, and cannot be taken back.
            OptionCode::StructuredReply if self.form == Form::Extended => {
                let text = "extended headers are agreed already";
                push_option_error(out, option, OptionReply::ErrorExtendedHeadersRequired, text);
            }
            OptionCode::ExtendedHeaders if self.form == Form::Extended => {
                push_option_error(out, option, OptionReply::ErrorInvalid, "extended headers are agreed already");
            }
            OptionCode::StructuredReply | OptionCode::ExtendedHeaders => {
                self.form = if option == OptionCode::ExtendedHeaders { Form::Extended } else { Form::Structured };
                push_option_reply(out, option, OptionReply::Ack, &[]);
            }
            OptionCode::ListMetaContext | OptionCode::SetMetaContext => self.contexts(offers, option, data, out),
            OptionCode::PeekExport | OptionCode::Unknown(_) => unreachable!("these are skipped by their header"),
        }
        Progress::More
    }

    /// Lists the contexts, or chooses among them. Unknown ones are passed over in silence, as the protocol wants it.
    fn contexts(&mut self, offers: &[Offer], option: OptionCode, data: &[u8], out: &mut Vec<u8>) {
        let is_choice = option == OptionCode::SetMetaContext;
        if is_choice {
            // Also a choice that fails takes back the one before.
            self.allocation = None;
        }
        let mut refuse = |reply, text: &str| push_option_error(out, option, reply, text);
        if self.form == Form::Simple {
            return refuse(OptionReply::ErrorInvalid, "structured replies or extended headers come first");
        }
        let query = match MetaContextQuery::parse(data) {
            Ok(query) => query,
            Err(error) => return refuse(OptionReply::ErrorInvalid, &error.to_string()),
        };
        let Some(export) = find(offers, query.name) else {
            return refuse(OptionReply::ErrorUnknown, "there is no export of this name");
        };
        let is_named = query.queries.contains(&BASE_ALLOCATION);
        let is_listed = !is_choice && (query.queries.is_empty() || query.queries.contains(&"base:"));
        if is_named || is_listed {
            // In a list the number has no meaning and is zero.
            let id = if is_choice { ALLOCATION_ID } else { 0 };
            let context = MetaContext { id, name: BASE_ALLOCATION };
            push_option_reply(out, option, OptionReply::MetaContext, &context.encode());
        }
        if is_choice && is_named {
            self.allocation = Some(export);
        }
        push_option_reply(out, option, OptionReply::Ack, &[]);
    }

    fn agreed(&self, export: usize) -> Progress {
        Progress::Agreed(Agreement { form: self.form, allocation: self.allocation == Some(export), export })
    }

    fn export_name(&mut self, offers: &[Offer], data: &[u8], out: &mut Vec<u8>) -> Progress {
        let Some(export) = parse_export_name(data).ok().and_then(|name| find(offers, name)) else {
            return Progress::Close;
        };
        out.extend_from_slice(&offers[export].info.encode());
        if !self.flags.contains(HandshakeFlags::NO_ZEROES) {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        self.agreed(export)
    }

    fn query(&mut self, offers: &[Offer], option: OptionCode, data: &[u8], out: &mut Vec<u8>) -> Progress {
        let query = match ExportQuery::parse(data) {
            Ok(query) => query,
            Err(error) => {
                push_option_error(out, option, OptionReply::ErrorInvalid, &error.to_string());
                return Progress::More;
            }
        };
        let Some(export) = find(offers, query.name) else {
            push_option_error(out, option, OptionReply::ErrorUnknown, "there is no export of this name");
            return Progress::More;
        };
        let offer = &offers[export];
        // Each fact is told once, however often it was asked for. Block sizes are told even to who does not ask.
        let mut tell = |info: Info<'_>| push_option_reply(out, option, OptionReply::Info, &info.encode());
        tell(Info::Export(offer.info));
        if query.infos.contains(&InfoKind::Name) {
            tell(Info::Name(&offer.name));
        }
        if query.infos.contains(&InfoKind::Description) && !offer.description.is_empty() {
            tell(Info::Description(&offer.description));
        }
        tell(Info::BlockSize(offer.sizes));
        push_option_reply(out, option, OptionReply::Ack, &[]);
        if option == OptionCode::Go { self.agreed(export) } else { Progress::More }
    }
}

/// The export of this name. The empty name stands for the default export, the first one, unless one is called so.
fn find(offers: &[Offer], name: &str) -> Option<usize> {
    let exact = offers.iter().position(|offer| offer.name == name);
    exact.or_else(|| (name.is_empty() && !offers.is_empty()).then_some(0))
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
